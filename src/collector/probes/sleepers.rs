//! Stacks of threads that wait, while they wait: the program of bpf/sleepers.bpf.c.
//!
//! ```text
//! cut_waits ──► threads without a stack ──► questions of each user, in turns ──► a worker runs a copy of the program ──► record
//!  once a second                                                      └─ the thread's process holds it up: worker and copy are left behind
//! ```
//!
//! A stack may lack tables. Then the thread is asked about again when `cut_waits` names it the next time, for [`PATIENCE`].
//!
//! Bounds: [`MOST_COPIES`] copies of the program, of about 500 KB each. Two are loaded at first. Another one is loaded for each that is left
//! behind. A user's threads are not asked about while [`MOST_HELD`] of them hold up workers, nor while walks of a user other than root have taken more than
//! [`MOST_SPENT`] of CPU time and a fiftieth of a CPU. Questions have the bounds of [`ProcessReader`].

use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapHandle, OpenMapMut, OpenObject, ProgramInput};
use rustc_hash::FxHashMap;

use super::failure::Failed;
use super::programs::{MAX_SOURCES, OwnMaps, prepare_events};
use crate::collector::bpf_errors::forget_complaint;
use crate::collector::processes::reader::{ProcessReader, Question};
use crate::collector::sources::clock::{SharedMaps, possible_cpus};
use crate::collector::sources::rings::most_dump_pages;
use crate::locks;
use crate::profile::UserId;

#[allow(unsafe_code, unreachable_pub, unused_qualifications, clippy::all, clippy::restriction)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/sleepers.skel.rs"));
}

use skeleton::{SleepersSkel, SleepersSkelBuilder};

/// Copies of the program that are loaded at first: as many as workers that are not left behind.
const COPIES: usize = 2;
/// Threads of one user that may hold up workers. Beyond, none of that user's threads is asked about.
const MOST_HELD: usize = 2;
/// Most threads of one user other than root that are asked about at one time.
const MOST_ASKED: usize = 256;
/// Walks of one user's threads take a fiftieth of a CPU. A user who has spent more than this in advance is not asked about.
const EARNED_IN: u32 = 50;
const MOST_SPENT: Duration = Duration::from_millis(100);
/// Most copies: sixteen users may hold up as many workers as they can.
const MOST_COPIES: usize = COPIES + 16 * MOST_HELD;
/// How long a thread is asked about again while its stack lacks tables: as long as samples of the clock wait for tables.
const PATIENCE: Duration = Duration::from_millis(2500);

/// `struct sleeper` of bpf/record.h.
const SLEEPER: usize = 24;

/// A thread that waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Sleeper {
    tid: u32,
    tgid: u32,
    user: UserId,
    /// From when on it waits.
    since: u64,
}

impl Sleeper {
    fn parse(bytes: &[u8; SLEEPER]) -> Sleeper {
        let [tid, tgid, uid, _, low, high] = *bytes.as_chunks::<4>().0 else { unreachable!("24 bytes are six words") };
        let word = u32::from_ne_bytes;
        let since = [low, high].concat().try_into().map_or(0, u64::from_ne_bytes);
        Sleeper { tid: word(tid), tgid: word(tgid), user: UserId(word(uid)), since }
    }

    fn question(self, is_last: bool) -> Vec<u8> {
        let words = [self.tid, self.tgid, self.user.0, u32::from(is_last)];
        words.into_iter().flat_map(u32::to_ne_bytes).chain(self.since.to_ne_bytes()).collect()
    }
}

/// What `read_sleeper` answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answer {
    /// The thread does not wait any more, or its stack was sent.
    Done,
    /// Tables are missing. They were asked for.
    LacksTables,
}

/// The copies of the program. A worker takes one, and gives it back.
struct Copies {
    free: Mutex<Vec<SleepersSkel<'static>>>,
}

impl Copies {
    fn read(&self, sleeper: Sleeper, is_last: bool) -> Answer {
        let taken = locks::lock(&self.free).pop();
        // All are left behind: the thread is named again.
        let Some(copy) = taken else { return Answer::LacksTables };
        let mut context = sleeper.question(is_last);
        let input = ProgramInput { context_in: Some(&mut context), ..ProgramInput::default() };
        let answer = copy.progs.read_sleeper.test_run(input).map_or(0, |output| output.return_value);
        locks::lock(&self.free).push(copy);
        if answer == LACKS_TABLES { Answer::LacksTables } else { Answer::Done }
    }
}

/// `SLEEPER_LACKS_TABLES`.
const LACKS_TABLES: u32 = 2;

/// A thread whose question has no answer yet, or whose stack lacked tables.
#[derive(Clone, Copy, Debug)]
struct Asked {
    user: UserId,
    since: u64,
    /// When it was asked about first.
    first: Instant,
    /// How often threads were named since the question, as long as there is no answer.
    waiting: Option<u32>,
}

impl Asked {
    /// Tells whether the thread's process holds up the worker. It may be another question of its user that does.
    fn is_held(&self) -> bool {
        self.waiting.is_some_and(|rounds| rounds >= 2)
    }
}

/// The threads that were asked about, by their numbers, and the CPU time that the walks of each user but root took and have not earned yet.
#[derive(Default)]
struct Attempts(FxHashMap<u32, Asked>, Spent);

/// The CPU time that users have spent, as it was at an instant.
#[derive(Default)]
struct Spent {
    of: FxHashMap<UserId, Duration>,
    at: Option<Instant>,
}

impl Spent {
    fn spend(&mut self, user: UserId, cpu: Duration) {
        if user != UserId(0) {
            *self.of.entry(user).or_default() += cpu;
        }
    }

    /// Lets time pass: each user earns a share of it.
    fn earn(&mut self, now: Instant) {
        let earned = now.saturating_duration_since(self.at.replace(now).unwrap_or(now)) / EARNED_IN;
        self.of.retain(|_, spent| {
            *spent = spent.saturating_sub(earned);
            !spent.is_zero()
        });
    }

    fn may_ask(&self, user: UserId) -> bool {
        self.of.get(&user).is_none_or(|spent| *spent < MOST_SPENT)
    }
}

impl Attempts {
    /// Returns the questions for threads that wait now, and whether each is the last attempt.
    fn questions(&mut self, sleepers: &[Sleeper], now: Instant) -> Vec<(Sleeper, bool)> {
        let mut held: FxHashMap<UserId, usize> = FxHashMap::default();
        for asked in self.0.values_mut() {
            asked.waiting = asked.waiting.map(|rounds| rounds + 1);
            *held.entry(asked.user).or_default() += usize::from(asked.is_held());
        }
        self.1.earn(now);
        let mut asked_now: FxHashMap<UserId, usize> = FxHashMap::default();
        let spent = &self.1;
        let mut may_ask = |user| {
            let count = asked_now.entry(user).or_default();
            *count += 1;
            let is_held = held.get(&user).is_some_and(|held| *held >= MOST_HELD);
            !is_held && spent.may_ask(user) && (user == UserId(0) || *count <= MOST_ASKED)
        };
        let mut named = FxHashMap::default();
        let mut questions = Vec::new();
        for sleeper in sleepers {
            let before = self.0.remove(&sleeper.tid);
            let asked = match before {
                Some(asked) if asked.waiting.is_some() => asked,
                _ if !may_ask(sleeper.user) => continue,
                before => {
                    let first = before.filter(|asked| asked.since == sleeper.since).map_or(now, |asked| asked.first);
                    questions.push((*sleeper, now.saturating_duration_since(first) >= PATIENCE));
                    Asked { user: sleeper.user, since: sleeper.since, first, waiting: Some(0) }
                }
            };
            named.insert(sleeper.tid, asked);
        }
        // The others wait no more, unless their question has no answer yet.
        named.extend(self.0.drain().filter(|(_, asked)| asked.waiting.is_some()));
        self.0 = named;
        questions
    }

    fn answered(&mut self, tid: u32, user: UserId, answer: Answer, cpu: Duration) {
        self.1.spend(user, cpu);
        match answer {
            Answer::Done => drop(self.0.remove(&tid)),
            Answer::LacksTables => self.0.get_mut(&tid).into_iter().for_each(|asked| asked.waiting = None),
        }
    }
}

/// Asks for stacks of threads that wait.
pub(super) struct Sleepers {
    reader: ProcessReader<(Sleeper, bool), Answer>,
    copies: Arc<Copies>,
    /// How many copies were loaded.
    loaded: usize,
    attempts: Attempts,
    /// The map of waits.bpf.c.
    threads: MapHandle,
}

impl Sleepers {
    /// Loads the program. `threads` is the map of waits.bpf.c.
    pub(super) fn load(number: u32, shared: &SharedMaps, own: &OwnMaps, threads: MapHandle) -> Result<Sleepers, Failed> {
        let free = (0..COPIES).map(|_| load(number, shared, own, &threads)).collect::<Result<Vec<_>, _>>()?;
        let copies = Arc::new(Copies { free: Mutex::new(free) });
        let workers_copies = Arc::clone(&copies);
        let read = move |question: &Question<(Sleeper, bool)>| workers_copies.read(question.what.0, question.what.1);
        let reader = ProcessReader::with(Box::new(read));
        Ok(Sleepers { reader, copies, loaded: COPIES, attempts: Attempts::default(), threads })
    }

    /// Asks for the stacks of threads: as many `struct sleeper` as there are.
    pub(super) fn ask(&mut self, threads: &[u8]) {
        for answer in self.reader.answers() {
            let (sleeper, _) = answer.question.what;
            self.attempts.answered(sleeper.tid, sleeper.user, answer.found, answer.cpu);
        }
        let sleepers: Vec<Sleeper> = threads.as_chunks().0.iter().map(Sleeper::parse).collect();
        let questions = self.attempts.questions(&sleepers, Instant::now());
        let question = |what: (Sleeper, bool)| Question { tgid: what.0.tgid, life: 0, user: what.0.user, what };
        for refused in self.reader.ask(questions.into_iter().map(question)) {
            self.attempts.0.remove(&refused.what.0.tid);
        }
    }

    /// Loads another copy if one was left behind.
    pub(super) fn replace(&mut self, number: u32, shared: &SharedMaps, own: &OwnMaps) {
        if self.loaded < MOST_COPIES.min(COPIES + self.reader.left_behind())
            && let Ok(copy) = load(number, shared, own, &self.threads)
        {
            locks::lock(&self.copies.free).push(copy);
            self.loaded += 1;
        }
    }
}

fn load(number: u32, shared: &SharedMaps, own: &OwnMaps, threads: &MapHandle) -> Result<SleepersSkel<'static>, Failed> {
    forget_complaint();
    // As in the sampler, one pointer is leaked.
    let place: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
    let mut open = SleepersSkelBuilder::default().open(place).map_err(|error| Failed::of(&error))?;
    prepare_events!(&mut open, number, shared, Some(own), None);
    if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
        // It runs with interrupts on, and its stacks are asked for once in a wait.
        rodata.walk_time = 0;
        rodata.most_dump_pages = 0;
    }
    open.maps.threads.reuse_fd(threads.as_fd()).map_err(|error| Failed::of(&error))?;
    open.load().map_err(|error| Failed::of(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper(tid: u32, since: u64) -> Sleeper {
        Sleeper { tid, tgid: tid, user: UserId(7), since }
    }

    #[test]
    fn sleepers_are_read_and_written_as_bpf_has_them() {
        let bytes: Vec<u8> = [3u32, 2, 7, 0].into_iter().flat_map(u32::to_ne_bytes).chain(u64::MAX.to_ne_bytes()).collect();
        let parsed = Sleeper::parse(bytes.first_chunk().unwrap());
        assert_eq!(parsed, Sleeper { tid: 3, tgid: 2, user: UserId(7), since: u64::MAX });
        assert_eq!(parsed.question(false), bytes);
        assert_eq!(parsed.question(true)[12], 1);
    }

    #[test]
    fn a_thread_is_asked_about_once_at_a_time_and_a_stack_that_lacks_tables_for_a_while() {
        let mut attempts = Attempts::default();
        let now = Instant::now();
        let both = [sleeper(1, 10), sleeper(2, 10)];
        assert_eq!(attempts.questions(&both, now), both.map(|sleeper| (sleeper, false)));
        assert!(attempts.questions(&[sleeper(1, 10)], now).is_empty(), "no answer yet");
        attempts.answered(2, UserId(7), Answer::Done, Duration::ZERO);
        for (after, is_last) in [(1, false), (2, false), (3, true)] {
            attempts.answered(1, UserId(7), Answer::LacksTables, Duration::ZERO);
            assert_eq!(attempts.questions(&[sleeper(1, 10)], now + Duration::from_secs(after)), [(sleeper(1, 10), is_last)]);
        }
        attempts.answered(1, UserId(7), Answer::LacksTables, Duration::ZERO);
        let later = now + Duration::from_secs(4);
        assert_eq!(attempts.questions(&[sleeper(1, 11)], later), [(sleeper(1, 11), false)], "another wait");
        attempts.answered(1, UserId(7), Answer::LacksTables, Duration::ZERO);
        attempts.questions(&[], later);
        assert!(attempts.0.is_empty());
    }

    #[test]
    fn a_user_whose_threads_hold_up_workers_delays_nobody_else() {
        let mut attempts = Attempts::default();
        let now = Instant::now();
        let named: Vec<Sleeper> = (0..40).map(|tid| sleeper(tid, 10)).collect();
        assert_eq!(attempts.questions(&named[..MOST_HELD], now).len(), MOST_HELD);
        attempts.questions(&named, now);
        assert!(attempts.questions(&named[MOST_HELD..], now).is_empty());
        let other = Sleeper { user: UserId(8), ..sleeper(99, 10) };
        assert_eq!(attempts.questions(&[other, sleeper(50, 10)], now), [(other, false)]);
        (0..40).for_each(|tid| attempts.answered(tid, UserId(7), Answer::Done, Duration::ZERO));
        assert_eq!(attempts.questions(&[sleeper(50, 10)], now), [(sleeper(50, 10), false)]);
    }

    #[test]
    fn a_user_whose_walks_are_expensive_is_asked_about_less() {
        let (mut attempts, now) = (Attempts::default(), Instant::now());
        let many = |user| (0..1000).map(|tid| Sleeper { user: UserId(user), ..sleeper(tid, 10) }).collect::<Vec<_>>();
        assert_eq!(attempts.questions(&many(7), now).len(), MOST_ASKED);
        (0..1000).for_each(|tid| attempts.answered(tid, UserId(7), Answer::Done, Duration::from_millis(1)));
        assert!(attempts.questions(&many(7), now + Duration::from_secs(40)).is_empty(), "0.2 s are too much still");
        assert_eq!(attempts.questions(&many(0), now + Duration::from_secs(40)).len(), 1000);
        (0..1000).for_each(|tid| attempts.answered(tid, UserId(0), Answer::Done, Duration::from_millis(1)));
        assert_eq!(attempts.questions(&many(7), now + Duration::from_secs(50)).len(), MOST_ASKED);
    }
}
