//! What is sampled, and how it is held against the truth.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use flametop::profile::UserEnd;

use super::programs::{self, Built, Form};
use super::session::{Sampling, Waiting, now};
use super::stacks::{Images, Judge, Outcome};
use super::storm::{in_exec_or_exit, kernel_names};

/// What a case is asked besides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Also {
    Nothing,
    /// Between times in that log, a function is so often in the stack.
    Depth {
        log: PathBuf,
        function: &'static str,
    },
    /// Deeper than any walk: the leaf side is there, and it is said that it was cut.
    Cut,
}

/// A program, what it does, and what is asked.
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) built: Built,
    pub(crate) arguments: Vec<String>,
    /// Its children count, too.
    pub(crate) children: bool,
    pub(crate) also: Also,
}

/// Of a stack that is deeper, at least and at most so many frames are kept.
const CUT_TO: std::ops::RangeInclusive<usize> = 1024..=2048;

/// How long one case may take to get its samples, on a machine that has other things to do.
fn patience() -> Duration {
    Duration::from_secs(if programs::in_guest() { 40 } else { 8 })
}

fn case(name: &str, built: &Built, arguments: &[&str]) -> Case {
    let children = matches!(arguments.first(), Some(&("vfork" | "fork" | "storm")));
    let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
    Case { name: name.to_owned(), built: built.clone(), arguments, children, also: Also::Nothing }
}

fn plain(form: Form, modes: &[&str], cases: &mut Vec<Case>) {
    let built = programs::c("plain.c", form);
    for mode in modes {
        if *mode == "one" {
            let log = programs::scratch(&format!("{form:?}"));
            let mut one =
                case(&format!("one function 900 deep, {form:?}"), &built, &["one", log.to_str().unwrap(), "800", "200"]);
            one.also = Also::Depth { log, function: "one" };
            cases.push(one);
        } else {
            cases.push(case(&format!("{mode}, {form:?}"), &built, &[mode]));
        }
    }
}

const PLAIN: [&str; 9] = ["one", "grow", "realign", "tails", "sort", "copy", "calls", "threads", "pages"];

fn deep(form: Form, cases: &mut Vec<Case>) {
    cases.push(case(&format!("900 functions, {form:?}"), &programs::chain(900, 3, form), &[]));
}

fn cut(cases: &mut Vec<Case>) {
    let mut functions = case("5,000 functions: cut", &programs::chain(5000, 4, Form::Usual), &[]);
    functions.also = Also::Cut;
    cases.push(functions);
    let mut one = case(
        "one function 5,000 deep: cut",
        &programs::c("plain.c", Form::Usual),
        &["one", programs::scratch("cut").to_str().unwrap(), "5000", "0"],
    );
    one.also = Also::Cut;
    cases.push(one);
}

fn signals(form: Form, cases: &mut Vec<Case>) {
    let built = programs::c("signals.c", form);
    cases.extend(["leaf", "alternate", "nested"].map(|mode| case(&format!("signals {mode}, {form:?}"), &built, &[mode])));
}

fn stacks(form: Form, cases: &mut Vec<Case>) {
    let built = programs::c("stacks.c", form);
    cases.extend(["word", "owner", "register"].map(|mode| case(&format!("stack left by {mode}, {form:?}"), &built, &[mode])));
}

fn processes(form: Form, cases: &mut Vec<Case>) {
    let built = programs::c("processes.c", form);
    cases.push(case(&format!("vfork, {form:?}"), &built, &["vfork"]));
    cases.push(case(&format!("fork, {form:?}"), &built, &["fork"]));
    cases.push(case(&format!("processes of 50 ms, {form:?}"), &built, &["storm", "15", "50"]));
}

fn loader(cases: &mut Vec<Case>) {
    let (built, libraries) = programs::loader();
    let libraries = libraries.to_str().unwrap();
    cases.push(case("dlopen and dlclose", &built, &["churn", libraries]));
    cases.push(case("lazy binding", &built, &["bind", libraries]));
}

fn throws(form: Form, cases: &mut Vec<Case>) {
    cases.push(case(&format!("exceptions, {form:?}"), &programs::c("throws.cpp", form), &[]));
}

fn rust(cases: &mut Vec<Case>) {
    let built = programs::rust("closures.rs");
    cases.extend(["closures", "panics", "threads"].map(|mode| case(&format!("Rust: {mode}"), &built, &[mode])));
}

fn go(cases: &mut Vec<Case>) {
    let built = programs::go("routines.go");
    cases.extend(["routines", "collect", "system"].map(|mode| case(&format!("Go: {mode}"), &built, &[mode])));
    // Go for another machine is made by the machine's own Go, which has no compiler of C for that.
    if !programs::for_arm64() {
        cases.push(case("Go that calls C", &programs::go("cgo.go"), &[]));
    }
}

/// One of each kind.
pub(crate) fn quick() -> Vec<Case> {
    let mut cases = Vec::new();
    plain(Form::Usual, &PLAIN, &mut cases);
    deep(Form::Usual, &mut cases);
    cut(&mut cases);
    signals(Form::Usual, &mut cases);
    stacks(Form::Usual, &mut cases);
    processes(Form::Usual, &mut cases);
    loader(&mut cases);
    throws(Form::Usual, &mut cases);
    rust(&mut cases);
    go(&mut cases);
    for form in [Form::Static, Form::StaticPie, Form::Musl] {
        plain(form, &["sort", "threads"], &mut cases);
    }
    chosen(cases)
}

/// Stacks whose pages are taken away while they are read.
pub(crate) fn moves() -> Vec<Case> {
    chosen(vec![case("moves", &programs::c("moves.c", Form::Usual), &[])])
}

/// A form of the programs of C and C++.
pub(crate) fn of(form: Form) -> Vec<Case> {
    let mut cases = Vec::new();
    plain(form, &PLAIN, &mut cases);
    deep(form, &mut cases);
    signals(form, &mut cases);
    // Its assembler keeps no frame pointers.
    if form != Form::FramePointers {
        stacks(form, &mut cases);
    }
    processes(form, &mut cases);
    if form != Form::Musl {
        throws(form, &mut cases);
    }
    cases
}

pub(crate) fn all() -> Vec<Case> {
    let mut cases: Vec<Case> = [Form::Usual, Form::Static, Form::StaticPie, Form::Musl].into_iter().flat_map(of).collect();
    cut(&mut cases);
    loader(&mut cases);
    rust(&mut cases);
    go(&mut cases);
    chosen(cases)
}

/// Those that `TRUTH` asks for.
fn chosen(cases: Vec<Case>) -> Vec<Case> {
    let wanted = std::env::var("TRUTH").unwrap_or_default();
    cases.into_iter().filter(|case| case.name.contains(&wanted)).collect()
}

/// Which came first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// Programs that were there when the collector started.
    Before,
    /// Programs that start when it runs: their first instance, whose objects it has never seen, is told apart.
    After,
}

/// What came of one case.
#[derive(Default)]
struct Row {
    samples: usize,
    whole: usize,
    /// Reason → how many, and a stack to look at.
    incomplete: BTreeMap<String, (usize, String)>,
    wrong: Vec<String>,
    /// Samples before the first whole one, and others of objects that were new.
    warming: usize,
    /// How long that was.
    warm_after: Duration,
    /// Samples at moments when there is no stack: see [`Outcome::Replaced`].
    replaced: usize,
    /// Samples of a vfork child at its end, whose parent writes to their stack already.
    taken_back: usize,
    /// Depths that were looked up in the program's log.
    depths: usize,
}

#[derive(Default)]
pub(crate) struct Table {
    /// Whether cases that are a little below what is asked for may be looked at again, with more samples.
    pub(crate) may_ask_again: bool,
    /// Those.
    pub(crate) again: BTreeSet<String>,
    failed: Vec<String>,
    begun: bool,
    /// Samples of all cases, whole ones, and wrong ones.
    all: (usize, usize, usize),
    /// Samples of all cases that were taken before there was a table.
    warming: usize,
    /// Samples of first instances, whose tables were made meanwhile: all, whole ones, and those whose copied stack was too short.
    first: (usize, usize, usize),
}

impl Table {
    fn add(&mut self, pass: Pass, case: &Case, row: &Row) {
        if !self.begun {
            println!(
                "{:6} {:32} {:>7} {:>7} {:>10} {:>5}  incomplete by reason",
                "pass", "case", "samples", "whole", "incomplete", "wrong"
            );
            self.begun = true;
        }
        let incomplete: usize = row.incomplete.values().map(|(count, _)| count).sum();
        let mut notes: Vec<String> = row.incomplete.iter().map(|(reason, (count, _))| format!("{reason} {count}")).collect();
        if row.warming > 0 {
            notes.push(format!("{} without a table, the first whole one after {:.0?}", row.warming, row.warm_after));
        }
        if row.replaced > 0 {
            notes.push(format!("{} being replaced", row.replaced));
        }
        if let Also::Depth { .. } = case.also {
            notes.push(format!("{} depths", row.depths));
        }
        let pass = if pass == Pass::Before { "before" } else { "after" };
        println!(
            "{pass:6} {:32} {:7} {:7} {incomplete:10} {:5}  {}",
            case.name,
            row.samples,
            row.whole,
            row.wrong.len(),
            notes.join(", ")
        );
        let (samples, whole, wrong) = self.all;
        self.all = (samples + row.samples, whole + row.whole, wrong + row.wrong.len());
        self.warming += row.warming;
        // Few samples of each case: there all of them together are counted.
        let allowed = if programs::in_guest() { row.samples / 20 } else { row.samples.div_ceil(1000) };
        let mut complaints = Vec::new();
        // Those before the first whole one are samples, too: where none is whole it takes as long as is granted.
        if row.samples + row.warming < if programs::in_guest() { 50 } else { 200 } {
            complaints.push(format!("only {} samples", row.samples));
        }
        if row.replaced * 10 > row.samples {
            complaints.push(format!("{} of {} being replaced: that is more than exceptions take", row.replaced, row.samples));
        }
        if row.taken_back > allowed {
            complaints.push(format!("{} of {} on a stack that was taken back, {allowed} allowed", row.taken_back, row.samples));
        }
        if programs::in_guest() {
            // There is no second look.
            row.incomplete.iter().for_each(|(reason, (count, stack))| println!("       {count} {reason}: {stack}"));
        }
        if incomplete > allowed {
            let examples: Vec<String> =
                row.incomplete.iter().map(|(reason, (count, stack))| format!("\n    {count} {reason}: {stack}")).collect();
            let complaint = format!("{incomplete} of {} incomplete, {allowed} allowed:{}", row.samples, examples.concat());
            // One in a thousand is not told from two in a thousand by a thousand samples: more are to tell.
            if self.may_ask_again && incomplete <= 3 * allowed {
                println!("       again, with more samples: {complaint}");
                self.again.insert(case.name.clone());
            } else {
                complaints.push(complaint);
            }
        }
        if !row.wrong.is_empty() {
            complaints.push(format!(
                "{} wrong:\n    {}",
                row.wrong.len(),
                row.wrong.iter().take(3).cloned().collect::<Vec<_>>().join("\n    ")
            ));
        }
        if let Also::Depth { .. } = case.also
            && row.depths * 2 < row.whole
        {
            complaints.push(format!("only {} depths could be looked up", row.depths));
        }
        self.failed.extend(complaints.iter().map(|complaint| format!("{pass}: {}: {complaint}", case.name)));
    }

    /// The first instance of a program, from its first sample on.
    fn add_first(&mut self, case: &Case, row: &Row) {
        let short: usize = row.incomplete.iter().filter(|(reason, _)| reason.contains("Dump")).map(|(_, (count, _))| count).sum();
        let incomplete = row.samples - row.whole - row.wrong.len();
        if incomplete > short || !row.wrong.is_empty() {
            let reasons: Vec<String> =
                row.incomplete.iter().map(|(reason, (count, stack))| format!("{reason} {count}: {stack}")).collect();
            println!(
                "first  {:32} {:7} {:7} {incomplete:10} {:5}  {}",
                case.name,
                row.samples,
                row.whole,
                row.wrong.len(),
                reasons.join(", ")
            );
        }
        let (samples, whole, too_short) = self.first;
        self.first = (samples + row.samples, whole + row.whole, too_short + short);
        self.failed.extend(row.wrong.first().map(|wrong| format!("first: {}: {} wrong: {wrong}", case.name, row.wrong.len())));
    }

    /// Fails the test if anything has failed.
    pub(crate) fn finish(mut self) {
        let (samples, whole, wrong) = self.all;
        println!("all cases: {samples} samples, {whole} whole, {wrong} wrong");
        let (first, first_whole, short) = self.first;
        println!("first instances: {first} samples, {first_whole} whole, {short} with a copied stack that was too short");
        if first > 0 && first - first_whole - short > first.div_ceil(1000) {
            self.failed.push(format!("{} of {first} of first instances are not whole", first - first_whole - short));
        }
        // A case may be over before its table is there, where a processor is emulated; many may not.
        if self.warming > samples / 2 {
            self.failed.push(format!("{} samples more were taken before there was a table", self.warming));
        }
        if samples - whole > samples.div_ceil(1000) {
            self.failed.push(format!("{} of {samples} in all are not whole", samples - whole));
        }
        assert!(self.failed.is_empty(), "not true:\n  {}", self.failed.join("\n  "));
    }
}

/// How many cases run at once: each wants one CPU.
fn at_once() -> usize {
    std::thread::available_parallelism().map_or(1, |cpus| cpus.get().min(4))
}

/// A program that has had its turn, and when that was.
struct Turn<'a> {
    case: &'a Case,
    pid: u32,
    time: std::ops::Range<u64>,
    /// For the first instance of a program, whose tables are made meanwhile.
    first: bool,
}

/// Runs cases, some at once, until each has its samples; then judges, as that takes time in which buffers would fill.
pub(crate) fn run(cases: &[Case], pass: Pass, samples: usize, table: &mut Table) {
    let start = |case: &Case| Waiting::start(&case.built.path, &case.arguments);
    let mut before: Vec<Option<Waiting>> = cases.iter().map(|case| (pass == Pass::Before).then(|| start(case))).collect();
    let mut sampling = Sampling::start();
    let mut turns = Vec::new();
    for (cases, waiting) in cases.chunks(at_once()).zip(before.chunks_mut(at_once())) {
        if pass == Pass::After {
            let first: Vec<Waiting> = cases.iter().map(start).collect();
            turns.extend(take_turns(&mut sampling, cases, first, |_, begun| begun.elapsed() > Duration::from_millis(400)));
            turns.iter_mut().rev().take(cases.len()).for_each(|turn| turn.first = true);
        }
        let programs = cases.iter().zip(waiting).map(|(case, waiting)| waiting.take().unwrap_or_else(|| start(case))).collect();
        turns.extend(take_turns(&mut sampling, cases, programs, |sampling, begun| {
            begun.elapsed() > patience()
                || cases
                    .iter()
                    .zip(&sampling.running)
                    .all(|(case, pid)| sampling.count(&sampling.family(*pid, case.children)) >= samples)
        }));
    }
    // Samples of first instances may still wait for their tables.
    sampling.watch(Duration::from_secs(if pass == Pass::After { 3 } else { 0 }));
    let losses = sampling.losses();
    let mut images = Images::default();
    for turn in &turns {
        if turn.first {
            table.add_first(turn.case, &look(&sampling, &mut images, pass, turn));
        } else {
            table.add(pass, turn.case, &look(&sampling, &mut images, pass, turn));
        }
    }
    if losses != flametop::profile::Losses::default() {
        table.failed.push(format!("{pass:?}: lost: {losses:?}"));
    }
}

/// Lets programs go and samples them until it is enough, then ends them.
fn take_turns<'a>(
    sampling: &mut Sampling,
    cases: &'a [Case],
    mut programs: Vec<Waiting>,
    enough: impl Fn(&Sampling, Instant) -> bool,
) -> Vec<Turn<'a>> {
    sampling.running = programs.iter().map(Waiting::pid).collect();
    let (begin, begun) = (now(), Instant::now());
    programs.iter_mut().for_each(Waiting::go);
    while !enough(sampling, begun) {
        sampling.watch(Duration::from_millis(20));
    }
    // What is killed has no user stack: its end does not count.
    let time = begin..now();
    programs.iter_mut().for_each(Waiting::kill);
    sampling.watch(Duration::from_millis(10));
    let pids = sampling.running.iter();
    cases.iter().zip(pids).map(|(case, pid)| Turn { case, pid: *pid, time: time.clone(), first: false }).collect()
}

/// How long making tables may take, in nanoseconds: longer where the processor is emulated.
fn granted() -> u64 {
    if programs::in_guest() { 15_000_000_000 } else { 500_000_000 }
}

/// From when on stacks are whole: time, samples until then, and how long that took.
fn warm(sampling: &Sampling, images: &mut Images, turn: &Turn<'_>) -> (u64, usize, Duration) {
    let (case, begin) = (turn.case, turn.time.start);
    let family = sampling.family(turn.pid, case.children);
    let mut judge = Judge::new(&case.built.grammar, &sampling.names, images);
    let mut first = None;
    for (number, taken) in sampling.of(&family, begin..u64::MAX).into_iter().enumerate() {
        let first = *first.get_or_insert(taken.time);
        let waited = taken.time - first;
        let is_whole = matches!(judge.judge(&sampling.look(&taken.user), taken.end), Outcome::Whole) || taken.end == UserEnd::Cut;
        if is_whole || waited > granted() {
            return (taken.time, number, Duration::from_nanos(waited));
        }
    }
    (begin, 0, Duration::ZERO)
}

/// Holds all samples of a case against the truth.
fn look(sampling: &Sampling, images: &mut Images, pass: Pass, turn: &Turn<'_>) -> Row {
    let mut row = Row::default();
    let (case, mut time) = (turn.case, turn.time.clone());
    if pass == Pass::Before {
        // Tables of programs that are there are made when they are first seen.
        (time.start, row.warming, row.warm_after) = warm(sampling, images, turn);
    }
    let family = sampling.family(turn.pid, case.children);
    let phases = match &case.also {
        Also::Depth { log, .. } => phases(log),
        _ => BTreeMap::new(),
    };
    let mut judge = Judge::new(&case.built.grammar, &sampling.names, images);
    for taken in sampling.of(&family, time) {
        let stack = sampling.look(&taken.user);
        let outcome = judge.judge(&stack, taken.end);
        // An object that was not seen before: its table is made from now on.
        if pass == Pass::Before
            && matches!(taken.end, UserEnd::NoTable | UserEnd::Dump)
            && taken.time - turn.time.start < granted()
        {
            row.warming += 1;
            continue;
        }
        // The child of vfork ends on its parent's stack, and that one goes on, and writes there, before the child is gone.
        let is_taken_back = stack.len() <= 1 || case.name.starts_with("vfork");
        if is_taken_back && !matches!(outcome, Outcome::Whole) && in_exec_or_exit(&sampling.look(&taken.kernel)) {
            row.taken_back += usize::from(stack.len() > 1);
            continue;
        }
        if matches!(outcome, Outcome::Replaced) {
            row.replaced += 1;
            continue;
        }
        row.samples += 1;
        let outcome = match (&case.also, outcome) {
            (Also::Cut, Outcome::Whole) if stack.len() < *CUT_TO.end() => Outcome::Whole,
            (Also::Cut, Outcome::Incomplete(_)) if taken.end == UserEnd::Cut && CUT_TO.contains(&stack.len()) => Outcome::Whole,
            (Also::Cut, Outcome::Incomplete(reason)) => Outcome::Incomplete(format!("{reason} with {} frames", stack.len())),
            (_, outcome) => outcome,
        };
        match outcome {
            Outcome::Whole | Outcome::Replaced => row.whole += 1,
            Outcome::Incomplete(reason) => {
                let (count, example) = row.incomplete.entry(reason).or_default();
                *count += 1;
                if *count == 1 {
                    let after = Duration::from_nanos(taken.time - turn.time.start);
                    *example = format!(
                        "after {after:.0?}: {} | {}",
                        judge.text(&stack),
                        kernel_names(&sampling.look(&taken.kernel)).join(" > ")
                    );
                }
                continue;
            }
            Outcome::Wrong(what) => {
                row.wrong.push(format!("{:?}: {what}", taken.end));
                continue;
            }
        }
        if let Also::Depth { function, .. } = &case.also
            && let Some((_, (end, depth))) = phases.range(..=taken.time).next_back()
            && taken.time < *end
        {
            row.depths += 1;
            let found = judge.count(&stack, function);
            if found != *depth {
                row.whole -= 1;
                row.wrong.push(format!("{found} frames of {function}, and there were {depth}: {}", judge.text(&stack)));
            }
        }
    }
    row
}

/// Beginning → end and depth.
fn phases(log: &std::path::Path) -> BTreeMap<u64, (u64, usize)> {
    let bytes = std::fs::read(log).expect("the program has written its log");
    let word = |bytes: &[u8], at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
    let phases = bytes.chunks_exact(32).map(|phase| (word(phase, 0), (word(phase, 8), word(phase, 16) as usize)));
    phases.filter(|(begin, _)| *begin > 0).collect()
}
