//! Reads facts about processes from `/proc` and mapped files, on worker threads that can be left behind.
//!
//! Reading `/proc/PID/maps` or `/proc/PID/cmdline` takes the process's memory lock. If that lock is held for long (by a dead disk, a
//! fork of 100 GB, a hostile program), every reader waits. So the collecting thread only asks, and does not wait:
//!
//! ```text
//! ask ──► questions of each user, in turns ──► worker ──► answer ──► applied at the next drain
//!                                                 └─ 20 ms without an answer: the worker is left behind, another takes its place
//! ```
//!
//! While the processes of a user hold up [`MAX_LEFT_OF_USER`] workers, no other question about that user's processes is asked.
//! Questions about other users' processes are asked. A worker that comes back still gives its answer, and ends if there are enough
//! other workers. A process is asked one question at a time. A worker that computes for long, for a user other than root, takes only the
//! CPU time that nothing else wants: see [`privileges::give_way`].
//!
//! Bounds: 2 workers, and the workers left behind: at most 64 by processes of root and 8 by processes of any other user. At most 8,192
//! questions about root's processes wait, and 1,024 about the processes of any other user. From 256 workers and 16,384 questions in
//! all, only root's are added.

use crate::collector::processes::mapped_build_id::MappedFile;
use crate::collector::sys::machine;
use std::collections::VecDeque;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use rustix::process::Pid;

use super::functions::{self, FunctionsRead, Runtime};
use super::interpreter::{self, Interpreter, MappedPart, Places};
use super::jvm_memory::Jvm;
use super::mapped_build_id::{self, Missing};
use super::mappings::{Engine, FileIndex};
use super::moved_file::{self, MovedText};
use super::proc::{self, MappedList};
use super::v8_memory::Asked;
use super::{engine_files, jvm_memory, process_memory};
use crate::cpu_time;
use crate::locks;
use crate::privileges;
use crate::profile::{BuildId, FileNamespace, Tgid, UserId};
use crate::runtimes::hotspot;

/// Number of workers. A question takes a few system calls; with two workers, one slow process does not delay the next.
const WORKERS: usize = 2;
/// From this number of waiting questions on, all workers are woken. One worker answers fewer questions sooner than another wakes up.
const WORTH_ALL: usize = 8;
/// A worker that works on one question for longer is left behind. Reading 65,530 mappings takes about as long.
pub(super) const PROMPT: Duration = Duration::from_millis(20);
/// Most workers left behind by processes of one user, of root, and of all.
const MAX_LEFT_OF_USER: usize = 8;
const MAX_LEFT_OF_ROOT: usize = 64;
const MAX_LEFT: usize = 256;
/// Most waiting questions of one user, of root, and of all.
const MAX_WAITING_OF_USER: usize = 1024;
const MAX_WAITING_OF_ROOT: usize = 8192;
const MAX_WAITING: usize = 16_384;
/// A worker ends after this time without a question.
const IDLE: Duration = Duration::from_secs(5);

/// The subject of a question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum What {
    /// Its executable mappings.
    Mappings,
    /// Its arguments.
    CommandLine,
    /// Its parent and the number of its threads.
    Status,
    /// The build id of a file that it has mapped.
    BuildId(MappedFile),
    /// Its interpreter.
    Interpreter(Box<Places>),
    /// The file whose code is in this memory without a file.
    Moved(Range<u64>),
    /// Nothing; but the code at this address is in memory afterwards.
    Code(u64),
    /// Whether this file that it has mapped contains V8 or HotSpot. The answer counts for the processes of its user that see the same files.
    Engine(FileIndex, FileNamespace, Box<MappedPart>),
    /// Where its JVM has code. The JVM's file is mapped at this address.
    CodeHeaps(Arc<hotspot::Layout>, u64),
    /// Functions of a runtime.
    Functions(Runtime, Vec<Asked>),
}

/// A question about a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Question<W = What> {
    pub(crate) tgid: u32,
    /// See [`ProcessState::life`](super::state::ProcessState::life): an answer counts for that program only.
    pub(crate) life: u64,
    /// The user who is charged for it.
    pub(crate) user: UserId,
    pub(crate) what: W,
}

/// The answer to a question.
#[derive(Debug)]
pub(crate) enum Reply {
    /// `None`: the process is gone, or has no memory.
    Mappings(Option<MappedList>),
    /// Empty if there is none.
    CommandLine(String),
    /// `None`: the process is gone.
    Status(Option<proc::FoundProcess>),
    /// The result of [`mapped_build_id::of_mapping`].
    BuildId(Result<BuildId, Missing>),
    /// The result of [`interpreter::of_places`].
    Interpreter(Option<Box<Interpreter>>),
    /// The result of [`moved_file::find`].
    Moved(Option<Box<MovedText>>),
    /// Code was read.
    Code,
    /// The result of [`v8_memory::of_file`]. `None`: the file could not be read.
    Engine(Engine),
    /// `None`: the JVM has none yet.
    CodeHeaps(Option<Box<Jvm>>),
    /// The functions that were read.
    Functions(FunctionsRead),
}

/// An answer, when it was complete (`CLOCK_MONOTONIC`, nanoseconds), and the CPU time that it took.
#[derive(Debug)]
pub(crate) struct Answer<W = What, R = Reply> {
    pub(crate) question: Question<W>,
    pub(crate) found: R,
    pub(crate) time: u64,
    pub(crate) cpu: Duration,
}

type Read<W, R> = Box<dyn Fn(&Question<W>) -> R + Send + Sync>;

/// A question that a worker is working on.
struct Running {
    worker: u64,
    tgid: u32,
    user: UserId,
    since: Instant,
    thread: Pid,
    /// Whether it has the lowest priority.
    gives_way: bool,
}

impl Running {
    fn is_left(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= PROMPT
    }
}

struct Inner<W> {
    waiting: FxHashMap<UserId, VecDeque<Question<W>>>,
    /// Users with waiting questions, in the order of their turns.
    turns: VecDeque<UserId>,
    waiting_count: usize,
    running: Vec<Running>,
    /// Number of workers, including those left behind.
    workers: usize,
    /// Workers that wait for a question, without those that are being woken.
    asleep: usize,
    /// Workers that are being woken, and have not noticed yet.
    woken: usize,
    next_worker: u64,
    stop: bool,
}

impl<W> Default for Inner<W> {
    fn default() -> Self {
        Inner {
            waiting: FxHashMap::default(),
            turns: VecDeque::new(),
            waiting_count: 0,
            running: Vec::new(),
            workers: 0,
            asleep: 0,
            woken: 0,
            next_worker: 0,
            stop: false,
        }
    }
}

impl<W> Inner<W> {
    /// Counts the workers left behind by processes of a user, and by all processes.
    fn left(&self, user: UserId, now: Instant) -> (usize, usize) {
        let left = self.running.iter().filter(|running| running.is_left(now));
        let of_user = left.clone().filter(|running| running.user == user).count();
        (of_user, left.count())
    }

    fn may_ask(&self, user: UserId, now: Instant) -> bool {
        let (of_user, all) = self.left(user, now);
        if user == UserId(0) { of_user < MAX_LEFT_OF_ROOT } else { of_user < MAX_LEFT_OF_USER && all < MAX_LEFT }
    }

    /// Takes the next question that may be asked now.
    fn next(&mut self, now: Instant) -> Option<Question<W>> {
        for _ in 0..self.turns.len() {
            let user = self.turns.pop_front()?;
            let may_ask = self.may_ask(user, now);
            let Some(questions) = self.waiting.get_mut(&user) else { continue };
            let running = &self.running;
            let is_free = |question: &Question<W>| running.iter().all(|running| running.tgid != question.tgid);
            // Few questions are running, so one of the first is about a free process.
            let place = if may_ask { questions.iter().take(MAX_LEFT).position(is_free) } else { None };
            let question = place.and_then(|place| questions.remove(place));
            if questions.is_empty() {
                self.waiting.remove(&user);
            } else {
                self.turns.push_back(user);
            }
            if question.is_some() {
                self.waiting_count -= 1;
                return question;
            }
        }
        None
    }

    /// Adds a question to its user's queue, or returns it if that is full.
    fn push(&mut self, question: Question<W>) -> Result<(), Question<W>> {
        let limit = if question.user == UserId(0) { MAX_WAITING_OF_ROOT } else { MAX_WAITING_OF_USER };
        let questions = self.waiting.entry(question.user).or_default();
        let has_room = questions.len() < limit && (self.waiting_count < MAX_WAITING || question.user == UserId(0));
        if !has_room {
            if questions.is_empty() {
                self.waiting.remove(&question.user);
            }
            return Err(question);
        }
        if questions.is_empty() {
            self.turns.push_back(question.user);
        }
        questions.push_back(question);
        self.waiting_count += 1;
        Ok(())
    }

    /// Gives the lowest priority to workers that were left behind by processes of users other than root.
    fn give_way(&mut self, now: Instant) {
        let left =
            self.running.iter_mut().filter(|running| running.user != UserId(0) && !running.gives_way && running.is_left(now));
        for running in left {
            privileges::give_way(running.thread);
            running.gives_way = true;
        }
    }

    /// Counts the workers that are not left behind.
    fn prompt_workers(&self, now: Instant) -> usize {
        self.workers.saturating_sub(self.running.iter().filter(|running| running.is_left(now)).count())
    }

    /// Returns how many workers to wake, and how many to start, so that `wanted` work on the waiting questions.
    fn wake(&mut self, wanted: usize, now: Instant) -> (usize, usize) {
        let prompt = self.prompt_workers(now);
        let missing = wanted.saturating_sub(prompt.saturating_sub(self.asleep));
        let wake = missing.min(self.asleep);
        self.asleep -= wake;
        self.woken += wake;
        (wake, missing - wake)
    }

    /// Notes that a worker no longer waits.
    fn wakes_up(&mut self) {
        // One worker may time out while another is woken. Then they swap their counts, and the sum is right.
        let count = if self.woken > 0 { &mut self.woken } else { &mut self.asleep };
        *count = count.saturating_sub(1);
    }

    /// Whether an answer is likely to come soon, to a running or waiting question.
    fn expects_answer(&self, now: Instant) -> bool {
        self.running.iter().any(|running| !running.is_left(now)) || self.turns.iter().any(|user| self.left(*user, now).0 == 0)
    }
}

struct ReaderQueue<W, R> {
    inner: Mutex<Inner<W>>,
    work: Condvar,
    read: Read<W, R>,
    answers: Mutex<Sender<Answer<W, R>>>,
}

impl<W, R> ReaderQueue<W, R> {
    fn lock(&self) -> MutexGuard<'_, Inner<W>> {
        locks::lock(&self.inner)
    }
}

/// Reads about processes. Dropping it does not wait for the workers.
pub(crate) struct ProcessReader<W = What, R = Reply> {
    shared: Arc<ReaderQueue<W, R>>,
    answers: Receiver<Answer<W, R>>,
}

impl Default for ProcessReader {
    fn default() -> Self {
        ProcessReader::with(Box::new(read))
    }
}

impl<W: Send + 'static, R: Send + 'static> ProcessReader<W, R> {
    /// Returns a reader whose workers call `read`.
    pub(crate) fn with(read: Read<W, R>) -> ProcessReader<W, R> {
        let (tell, answers) = channel();
        let shared = ReaderQueue { inner: Mutex::default(), work: Condvar::new(), read, answers: Mutex::new(tell) };
        ProcessReader { shared: Arc::new(shared), answers }
    }

    /// Asks questions. Returns the questions that found no room in the queue.
    pub(crate) fn ask(&self, questions: impl IntoIterator<Item = Question<W>>) -> Vec<Question<W>> {
        let mut inner = self.shared.lock();
        let refused = questions.into_iter().filter_map(|question| inner.push(question).err()).collect();
        drop(inner);
        self.tick();
        refused
    }

    /// Wakes or starts workers if questions wait and too few workers are at work. To be called at each drain.
    pub(crate) fn tick(&self) {
        self.wake(|waiting| if waiting < WORTH_ALL { waiting.min(1) } else { WORKERS });
    }

    /// Wakes or starts workers, until as many work as `wanted` returns for the number of waiting questions.
    fn wake(&self, wanted: impl Fn(usize) -> usize) {
        let mut inner = self.shared.lock();
        inner.give_way(Instant::now());
        let wanted = wanted(inner.waiting_count);
        let (wake, start) = inner.wake(wanted, Instant::now());
        drop(inner);
        // Without the lock: a worker that wakes up needs it.
        for _ in 0..wake {
            self.shared.work.notify_one();
        }
        for _ in 0..start {
            let mut inner = self.shared.lock();
            let number = inner.next_worker;
            inner.next_worker += 1;
            inner.workers += 1;
            drop(inner);
            let shared = Arc::clone(&self.shared);
            let named = std::thread::Builder::new().name(format!("processes-{number}")).stack_size(256 << 10);
            if named.spawn(move || work(&shared, number)).is_err() {
                self.shared.lock().workers -= 1;
                break;
            }
        }
    }

    /// Returns the answers that have come.
    pub(crate) fn answers(&self) -> Vec<Answer<W, R>> {
        self.answers.try_iter().collect()
    }

    /// Returns the answers that have come. Also waits for answers that are likely to come soon, at most for `patience`.
    pub(crate) fn answers_within(&self, patience: Duration) -> Vec<Answer<W, R>> {
        let until = Instant::now() + patience;
        // Somebody waits: one slow process must not delay the next.
        self.wake(|waiting| WORKERS.min(waiting));
        let mut answers = self.answers();
        loop {
            let now = Instant::now();
            if now >= until || !self.shared.lock().expects_answer(now) {
                break;
            }
            // Waits in steps, because a worker may be left behind meanwhile.
            if let Ok(answer) = self.answers.recv_timeout((until - now).min(PROMPT)) {
                answers.push(answer);
            }
        }
        answers.extend(self.answers());
        answers
    }

    /// Whether questions are waiting or being answered.
    #[cfg(test)]
    pub(crate) fn is_expecting(&self) -> bool {
        let inner = self.shared.lock();
        inner.waiting_count > 0 || !inner.running.is_empty()
    }

    /// Counts the workers that are left behind now.
    pub(crate) fn left_behind(&self) -> usize {
        let now = Instant::now();
        self.shared.lock().running.iter().filter(|running| running.is_left(now)).count()
    }
}

impl<W, R> Drop for ProcessReader<W, R> {
    fn drop(&mut self) {
        let mut inner = self.shared.lock();
        inner.stop = true;
        inner.waiting.clear();
        inner.turns.clear();
        inner.waiting_count = 0;
        drop(inner);
        self.shared.work.notify_all();
    }
}

fn work<W, R>(shared: &ReaderQueue<W, R>, worker: u64) {
    privileges::drop_unneeded();
    let mut inner = shared.lock();
    loop {
        let now = Instant::now();
        if inner.stop || inner.prompt_workers(now) > WORKERS {
            break;
        }
        if let Some(question) = inner.next(now) {
            let thread = rustix::thread::gettid();
            inner.running.push(Running {
                worker,
                tgid: question.tgid,
                user: question.user,
                since: now,
                thread,
                gives_way: false,
            });
            drop(inner);
            let before = cpu_time::of_this_thread();
            let found = catch_unwind(AssertUnwindSafe(|| (shared.read)(&question)));
            if let Ok(found) = found {
                let cpu = cpu_time::since(before);
                let answer = Answer { question, found, time: machine::now().0, cpu };
                // At the end of the run the receiver is gone.
                let _ = locks::lock(&shared.answers).send(answer);
            }
            inner = shared.lock();
            let own = inner.running.extract_if(.., |running| running.worker == worker);
            if own.fold(false, |gives_way, running| gives_way | running.gives_way) {
                // It cannot have its priority back. Another worker takes its place.
                break;
            }
        } else {
            inner.asleep += 1;
            let (again, waited) = shared.work.wait_timeout(inner, IDLE).unwrap_or_else(PoisonError::into_inner);
            inner = again;
            inner.wakes_up();
            if waited.timed_out() && inner.waiting_count == 0 {
                break;
            }
        }
    }
    inner.workers -= 1;
}

fn read(question: &Question) -> Reply {
    let tgid = question.tgid;
    match &question.what {
        What::Mappings => Reply::Mappings(proc::maps(tgid)),
        What::CommandLine => Reply::CommandLine(proc::command_line(tgid)),
        What::Status => Reply::Status(proc::stat(tgid)),
        What::BuildId(mapped) => Reply::BuildId(mapped_build_id::of_mapping(question.user, Tgid(tgid), mapped)),
        What::Interpreter(places) => Reply::Interpreter(interpreter::of_places(question.user, Tgid(tgid), places).map(Box::new)),
        What::Moved(range) => Reply::Moved(moved_file::find(question.user, Tgid(tgid), range).map(Box::new)),
        What::Code(address) => {
            process_memory::bring_into_memory(tgid, *address);
            Reply::Code
        }
        What::Engine(_, _, part) => Reply::Engine(engine_files::of_file(question.user, Tgid(tgid), part)),
        What::CodeHeaps(layout, start) => Reply::CodeHeaps(jvm_memory::of_process(tgid, layout, *start).map(Box::new)),
        What::Functions(runtime, wanted) => Reply::Functions(functions::read(tgid, runtime, wanted)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Sender;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn question(tgid: u32, user: u32) -> Question {
        Question { tgid, life: 1, user: UserId(user), what: What::CommandLine }
    }

    /// A reader in which processes of user 1 do not answer until the sender is dropped.
    fn reader() -> (ProcessReader, Sender<()>) {
        let (release, held) = channel::<()>();
        let held = Mutex::new(held);
        let read = move |question: &Question| {
            if question.user == UserId(1) {
                let held = locks::lock(&held);
                let _ = held.recv();
            }
            Reply::CommandLine(question.tgid.to_string())
        };
        (ProcessReader::with(Box::new(read)), release)
    }

    fn wait_for(reader: &ProcessReader, count: usize) -> Vec<u32> {
        let (begun, mut told) = (Instant::now(), Vec::new());
        while told.len() < count {
            assert!(begun.elapsed() < LONG, "{told:?}");
            reader.tick();
            told.extend(reader.answers_within(PROMPT).iter().map(|answer| answer.question.tgid));
        }
        told
    }

    #[test]
    fn a_process_that_does_not_answer_holds_up_nobody_else() {
        let (reader, release) = reader();
        assert!(reader.ask((0..40).map(|tgid| question(tgid, 1))).is_empty());
        assert!(reader.ask((100..140).map(|tgid| question(tgid, 2))).is_empty());
        let mut told = wait_for(&reader, 40);
        told.sort_unstable();
        assert_eq!(told, (100..140).collect::<Vec<_>>());
        // The number of workers left behind stays within the bound, however often questions are asked.
        for _ in 0..20 {
            std::thread::sleep(PROMPT);
            reader.tick();
        }
        assert!(reader.left_behind() <= MAX_LEFT_OF_USER + WORKERS, "{}", reader.left_behind());
        let left: Vec<Pid> = reader.shared.lock().running.iter().map(|running| running.thread).collect();
        assert!(left.iter().all(|thread| rustix::process::getpriority_process(Some(*thread)) == Ok(19)), "they give way");
        let begun = Instant::now();
        assert!(reader.answers_within(LONG).is_empty());
        assert!(begun.elapsed() < LONG / 2, "those that are left behind are not waited for");
        // The workers come back with answers, and the other questions about that user are asked.
        drop(release);
        assert_eq!(wait_for(&reader, 40).len(), 40);
        let begun = Instant::now();
        while reader.shared.lock().workers > WORKERS {
            assert!(begun.elapsed() < LONG, "{} workers stay", reader.shared.lock().workers);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn questions_of_one_user_are_bounded_and_leave_room_for_others() {
        let (reader, _release) = reader();
        let refused = reader.ask((0..5000).map(|tgid| question(tgid, 1)));
        assert!(refused.len() >= 5000 - MAX_WAITING_OF_USER - MAX_LEFT_OF_USER - WORKERS, "{}", refused.len());
        assert!(reader.ask([question(9000, 0), question(9001, 3)]).is_empty());
        let mut told = wait_for(&reader, 2);
        told.sort_unstable();
        assert_eq!(told, [9000, 9001]);
    }

    #[test]
    fn a_process_is_asked_one_question_at_a_time() {
        let (reader, _release) = reader();
        assert!(reader.ask([question(7, 1), question(7, 1), question(8, 1)]).is_empty());
        let begun = Instant::now();
        while reader.left_behind() < 2 {
            assert!(begun.elapsed() < LONG);
            reader.tick();
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(PROMPT * 3);
        reader.tick();
        assert_eq!(reader.shared.lock().running.len(), 2);
    }

    #[test]
    fn whoever_waits_for_an_answer_has_it_beside_a_process_that_does_not_answer() {
        let (reader, _release) = reader();
        assert!(reader.ask([question(1, 1), question(2, 2)]).is_empty());
        let begun = Instant::now();
        let mut told = Vec::new();
        // On a busy machine, a worker that answers may be left behind at first.
        while told.is_empty() && begun.elapsed() < LONG {
            told.extend(reader.answers_within(LONG).iter().map(|answer| answer.question.tgid));
        }
        assert_eq!(told, [2]);
        assert!(begun.elapsed() < LONG / 2, "{:?}", begun.elapsed());
    }

    #[test]
    fn few_questions_take_one_worker_and_many_take_all() {
        let (reader, _release) = reader();
        let answered = |count: usize| {
            let (begun, mut told) = (Instant::now(), 0);
            while told < count {
                assert!(begun.elapsed() < LONG);
                told += reader.answers().len();
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        for round in 0..20 {
            assert!(reader.ask([question(100 + round, 2), question(200 + round, 2)]).is_empty());
            answered(2);
        }
        assert_eq!(reader.shared.lock().workers, 1);
        assert!(reader.ask((300..500).map(|tgid| question(tgid, 2))).is_empty());
        assert_eq!(reader.shared.lock().workers, WORKERS);
        answered(200);
        let begun = Instant::now();
        while reader.shared.lock().asleep < WORKERS {
            assert!(begun.elapsed() < LONG);
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(reader.shared.lock().woken, 0);
    }

    #[test]
    fn a_reader_that_fails_costs_one_answer() {
        let reader = ProcessReader::with(Box::new(|question| {
            assert!(question.tgid != 1, "on purpose");
            Reply::CommandLine(String::new())
        }));
        assert!(reader.ask([question(1, 0), question(2, 0)]).is_empty());
        assert_eq!(wait_for(&reader, 1), [2]);
    }
}
