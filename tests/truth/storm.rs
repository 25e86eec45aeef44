//! A storm of short processes beside a steady program: no samples are lost, and no stacks get worse.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use flametop::profile::{Frame, Losses};

use super::alone;
use super::programs::{self, Form};
use super::session::{FREQUENCY, Sampling, Waiting, now};
use super::stacks::{Images, Judge, Outcome};

/// The kernel's functions, sorted by address.
fn kernel_symbols() -> &'static [(u64, String)] {
    static SYMBOLS: OnceLock<Vec<(u64, String)>> = OnceLock::new();
    SYMBOLS.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/kallsyms").expect("the kernel says where its functions are");
        let of = |line: &str| {
            let mut words = line.split_whitespace();
            let address = u64::from_str_radix(words.next()?, 16).ok()?;
            let kind = words.next()?;
            Some((address, words.next()?.to_owned())).filter(|_| matches!(kind, "t" | "T" | "w" | "W"))
        };
        let mut symbols: Vec<(u64, String)> = text.lines().filter_map(of).collect();
        symbols.sort_unstable();
        symbols
    })
}

/// The names of a stack of kernel frames.
pub(crate) fn kernel_names(kernel: &[Frame]) -> Vec<&'static str> {
    let symbols = kernel_symbols();
    let name = |frame: &Frame| {
        let at = symbols.partition_point(|(address, _)| *address <= frame.called_from());
        at.checked_sub(1).map_or("?", |at| &*symbols[at].1)
    };
    kernel.iter().map(name).collect()
}

/// Whether the kernel is about to replace or to give up the task's memory, or has done so. Then there is no user stack: no
/// memory, or, in exec, the registers of the old program beside the memory of the new one.
pub(crate) fn in_exec_or_exit(kernel: &[Frame]) -> bool {
    let starts = [
        "do_exit",
        "do_group_exit",
        "begin_new_exec",
        "load_elf_binary",
        "bprm_execve",
        "exec_binprm",
        "exit_mmap",
        "do_execveat_common",
        // For the first instructions of do_exit's callee, its return address is only in x30. So the kernel's walk leaves do_exit
        // out on arm64.
        "__arm64_sys_exit",
    ];
    kernel_names(kernel).iter().any(|name| starts.iter().any(|start| name.starts_with(start)))
}

/// How many children a second, and how long each works.
const RATE: &str = "200";
const WORK_MS: &str = "2";

#[derive(Default, Debug)]
struct Count {
    whole: usize,
    all: usize,
    without_user: usize,
    wrong: Vec<String>,
    example: Option<String>,
}

impl Count {
    fn share(&self) -> f64 {
        self.whole as f64 / self.all.max(1) as f64
    }
}

#[test]
fn a_storm_of_short_processes_loses_nothing_and_spoils_nothing() {
    let _alone = alone();
    let built = programs::c("processes.c", Form::Usual);
    let ticks = programs::helper("ticks.c");
    let seconds = if std::env::var_os("TRUTH_LONG").is_some() { 30 } else { 8 };
    let start = |arguments: &[&str]| {
        Waiting::start(&built.path, &arguments.iter().map(|&argument| argument.to_owned()).collect::<Vec<_>>())
    };

    let mut sampling = Sampling::start();
    // A steady program for each CPU: no tick meets an idle CPU, so both clocks count the same ticks.
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut steady: Vec<Waiting> = (0..cpus).map(|_| start(&["steady"])).collect();
    steady.iter_mut().for_each(Waiting::go);
    sampling.watch(Duration::from_millis(1000));
    let calm = now()..{
        sampling.watch(Duration::from_secs(seconds / 2));
        now()
    };

    let mut storm = start(&["storm", RATE, WORK_MS]);
    storm.go();
    sampling.watch(Duration::from_millis(500));
    let mut counter = Command::new(&ticks);
    let mut counter = counter.arg(FREQUENCY.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(counter.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    let stormy = now()..{
        sampling.watch(Duration::from_secs(seconds));
        now()
    };
    sampling.watch(Duration::from_millis(50));
    drop(counter.stdin.take());
    let mut counted = 0usize;
    for line in lines.map_while(Result::ok) {
        let (first, second) = line.split_once(' ').unwrap();
        if first == "lost" {
            assert_eq!(second, "0", "perf's own ring was too small");
        } else {
            counted += usize::from(stormy.contains(&first.parse().unwrap()));
        }
    }
    counter.wait().unwrap();
    let (storm_pid, steady_pids) = (storm.pid(), steady.iter().map(Waiting::pid).collect::<BTreeSet<u32>>());
    storm.kill();
    steady.iter_mut().for_each(Waiting::kill);
    // Some samples wait for the tables of what they ran.
    sampling.watch(Duration::from_secs(3));

    let kept = sampling.taken.iter().filter(|taken| stormy.contains(&taken.time)).count();
    let mut images = Images::default();
    let mut judge = Judge::new(&built.grammar, &sampling.names, &mut images);
    let mut count = |family: &BTreeSet<u32>, time: &std::ops::Range<u64>| {
        let mut count = Count::default();
        for taken in sampling.of(family, time.clone()) {
            let stack = sampling.look(&taken.user);
            let outcome = judge.judge(&stack, taken.end);
            if stack.len() <= 1 && !matches!(outcome, Outcome::Whole) && in_exec_or_exit(&sampling.look(&taken.kernel)) {
                count.without_user += 1;
                continue;
            }
            count.all += 1;
            match outcome {
                Outcome::Whole | Outcome::Replaced => count.whole += 1,
                Outcome::Incomplete(reason) => {
                    let kernel = kernel_names(&sampling.look(&taken.kernel)).join(" > ");
                    count.example.get_or_insert_with(|| format!("{reason}: {} | {kernel}", judge.text(&stack)));
                }
                Outcome::Wrong(what) => count.wrong.push(format!("{:?}: {what}", taken.end)),
            }
        }
        count
    };
    let children: BTreeSet<u32> = sampling.family(storm_pid, true).into_iter().filter(|pid| *pid != storm_pid).collect();
    let short = count(&children, &stormy);
    let (before, during) = (count(&steady_pids, &calm), count(&steady_pids, &stormy));
    let share = kept as f64 / counted as f64;
    println!("samples kept                    {kept} of {counted} that perf counts: {:.2} %", share * 100.0);
    for (name, count) in [("short programs", &short), ("steady, without the storm", &before), ("steady, in the storm", &during)] {
        println!(
            "{name:31} {} of {} whole: {:.2} %; {} wrong; {} in exec or exit have no user stack",
            count.whole,
            count.all,
            count.share() * 100.0,
            count.wrong.len(),
            count.without_user
        );
    }
    println!("short programs seen             {} of about {}", children.len(), 200 * seconds);
    assert_eq!(sampling.losses(), Losses::default());
    assert!(share >= 0.995, "{kept} samples of {counted}");
    assert!(children.len() as u64 > 100 * seconds, "{} short programs were seen", children.len());
    for (name, count) in [("short", &short), ("steady before", &before), ("steady", &during)] {
        assert!(count.wrong.is_empty(), "{name}: {} wrong, such as {}", count.wrong.len(), count.wrong[0]);
    }
    let example = |count: &Count| count.example.clone().unwrap_or_default();
    assert!(short.share() >= 0.99, "short programs: {} of {} whole; {}", short.whole, short.all, example(&short));
    for steady in [&before, &during] {
        let nearly_all = steady.whole + steady.all.div_ceil(1000) >= steady.all;
        assert!(nearly_all, "steady: {} of {}; {}", steady.whole, steady.all, example(steady));
    }
}
