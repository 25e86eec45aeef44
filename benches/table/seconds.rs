//! Records in a separate process, without a file, and counts the whole stacks of chosen processes for each second.
//!
//! The collector and the symbolizer run as in `flametop record`. A sample counts for the second in which it was taken, even if it is
//! delivered late. Seconds begin with the first sample.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::ChildStdout;
use std::sync::Arc;

use flametop::collector::{Batch, Collector, CollectorOptions, RunningKernel};
use flametop::profile::{LabelId, Names, Processes, Tgid, UserEnd};
use flametop::symbolize::Symbolizer;

use super::*;

/// The first argument of the recording process.
pub(crate) const COLLECT: &str = "collect-by-seconds";

/// Time that it still reads after the last second, so that late samples count as well.
const AFTERWARDS: Duration = Duration::from_secs(1);

/// The processes whose samples are counted. All processes are sampled.
#[derive(Clone, Debug)]
pub(crate) enum Counted {
    /// A process and its descendants.
    Family(u32),
    /// Processes whose names begin with this prefix.
    Named(String),
}

/// Samples of a second.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Second {
    /// Samples with a user stack.
    pub(crate) all: u64,
    /// Samples with a whole user stack.
    pub(crate) whole: u64,
}

impl Second {
    /// Whole stacks in per cent.
    pub(crate) fn percent(self) -> f64 {
        self.whole as f64 * 100.0 / self.all as f64
    }
}

/// The counts of a recording.
#[derive(Default, Debug)]
pub(crate) struct Counts {
    pub(crate) seconds: Vec<Second>,
    /// Number of stacks that were not whole, by reason.
    pub(crate) reasons: BTreeMap<String, u64>,
}

impl Counts {
    /// Returns the sum of all seconds.
    pub(crate) fn sum(&self) -> Second {
        let add = |sum: Second, second: &Second| Second { all: sum.all + second.all, whole: sum.whole + second.whole };
        self.seconds.iter().fold(Second::default(), add)
    }

    /// Returns the three most frequent reasons.
    pub(crate) fn main_reasons(&self) -> String {
        let mut reasons: Vec<_> = self.reasons.iter().collect();
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let reasons: Vec<String> = reasons.into_iter().take(3).map(|(what, count)| format!("{count} {what}")).collect();
        if reasons.is_empty() { "none".to_owned() } else { reasons.join(", ") }
    }
}

/// A recording that is under way.
pub(crate) struct Recording {
    child: std::process::Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Recording {
    /// Starts a recording with this cache directory and waits until it samples.
    pub(crate) fn start(seconds: u64, hertz: u32, counted: &Counted, cache: &Path) -> Recording {
        let whose = match counted {
            Counted::Family(pid) => ["family".to_owned(), pid.to_string()],
            Counted::Named(prefix) => ["named".to_owned(), prefix.clone()],
        };
        let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
        command.args([COLLECT, &seconds.to_string(), &hertz.to_string()]).args(whose).env("XDG_CACHE_HOME", cache);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("this program starts itself");
        let mut lines = BufReader::new(child.stdout.take().expect("piped above")).lines();
        assert!(matches!(lines.next(), Some(Ok(line)) if line == "ready"), "the recording has failed");
        Recording { child, lines }
    }

    /// Waits for the end of the recording.
    pub(crate) fn counts(mut self) -> Counts {
        let mut counts = Counts::default();
        for line in self.lines.by_ref().map_while(Result::ok) {
            let words: Vec<&str> = line.splitn(3, ' ').collect();
            match words[..] {
                ["second", whole, all] => {
                    let number = |text: &str| text.parse().expect("it writes numbers");
                    counts.seconds.push(Second { all: number(all), whole: number(whole) });
                }
                ["reason", count, what] => {
                    counts.reasons.insert(what.to_owned(), count.parse().expect("it writes numbers"));
                }
                _ => panic!("the recording has written {line:?}"),
            }
        }
        assert!(self.child.wait().is_ok_and(|status| status.success()), "the recording has failed");
        counts
    }
}

/// The parts of a sample that are needed to count it.
struct Taken {
    time: u64,
    tgid: Tgid,
    process: LabelId,
    end: UserEnd,
}

/// The recording itself: `collect-by-seconds SECONDS HERTZ family PID` or `… named PREFIX`.
pub(crate) fn collect(arguments: &[String]) {
    let [seconds, hertz, how, whose] = arguments else { panic!("not {arguments:?}") };
    let seconds: usize = seconds.parse().expect("a number of seconds");
    let counted = match how.as_str() {
        "family" => Counted::Family(whose.parse().expect("a process")),
        _ => Counted::Named(whose.clone()),
    };
    let frequency = hertz.parse().expect("samples a second");
    let (names, processes) = (Arc::new(Names::default()), Arc::new(Processes::default()));
    let taken = take(frequency, Duration::from_secs(seconds as u64), &names, &processes);
    // Time starts at the first sample, as in flametop's own timeline.
    let began = taken.iter().map(|sample| sample.time).min().unwrap_or(0);

    let mut of_seconds = vec![Second::default(); seconds];
    let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
    for sample in &taken {
        let is_counted = match &counted {
            Counted::Family(root) => descends(sample.tgid, Tgid(*root), &processes),
            Counted::Named(prefix) => names.labels.name(sample.process).starts_with(prefix),
        };
        let second = usize::try_from((sample.time - began) / 1_000_000_000).unwrap_or(usize::MAX);
        let Some(of_second) = of_seconds.get_mut(second).filter(|_| is_counted && has_user_stack(sample.end)) else { continue };
        of_second.all += 1;
        if sample.end == UserEnd::Root {
            of_second.whole += 1;
        } else {
            *reasons.entry(sample.end.explain().0).or_default() += 1;
        }
    }
    of_seconds.iter().for_each(|second| println!("second {} {}", second.whole, second.all));
    reasons.iter().for_each(|(what, count)| println!("reason {count} {what}"));
}

/// Says whether there was a user stack. A process has none during exec and after its memory is freed.
fn has_user_stack(end: UserEnd) -> bool {
    !matches!(end, UserEnd::KernelThread | UserEnd::Registers | UserEnd::NoMemory)
}

/// Samples everything for some seconds.
fn take(frequency: u32, time: Duration, names: &Arc<Names>, processes: &Arc<Processes>) -> Vec<Taken> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).max_blocking_threads(6).enable_all().build();
    let runtime = runtime.expect("threads");
    let symbolizer = Symbolizer::start(Arc::clone(names), runtime.handle().clone());
    symbolizer.ask_kernel_by(Box::<RunningKernel>::default());
    let begin = Instant::now();
    let options = CollectorOptions { frequency, ..Default::default() };
    let mut collector = Collector::start(options, Arc::clone(names), Arc::clone(processes)).expect("this needs root");
    println!("ready");
    std::io::stdout().flush().expect("somebody reads it");
    let (mut batch, mut taken) = (Batch::default(), Vec::new());
    loop {
        let is_last = begin.elapsed() > time + AFTERWARDS;
        if is_last {
            collector.drain_last(&mut batch, Instant::now() + Duration::from_secs(1)).expect("drained");
        } else {
            collector.wait(Duration::from_millis(if begin.elapsed() < Duration::from_secs(1) { 20 } else { 100 }));
            collector.drain(&mut batch).expect("drained");
        }
        symbolizer.request(batch.wanted.drain(..));
        taken.extend(batch.samples.iter().filter(|sample| !sample.compared).map(|sample| Taken {
            time: sample.time.0,
            tgid: sample.thread.tgid,
            process: sample.thread.process,
            end: sample.user_end,
        }));
        if is_last {
            runtime.shutdown_background();
            return taken;
        }
    }
}

fn descends(tgid: Tgid, root: Tgid, processes: &Processes) -> bool {
    let mut at = tgid;
    // The bound is deeper than any family here. Reused process numbers could otherwise form an endless circle.
    for _ in 0..64 {
        if at == root {
            return true;
        }
        let Some(parent) = processes.get(&at).map(|process| process.parent) else { return false };
        at = parent;
    }
    false
}
