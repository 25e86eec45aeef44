//! Compares two walks of one stack. Walks by tables and by frame pointers may differ only in known ways. Walks with and without
//! the cache of the thread's last stack must be equal.
//!
//! ```text
//! leaf first        by tables             by frame pointers
//!                   leaf                  leaf
//!                   caller of the leaf    -            in a prologue or epilogue, in a stub, in code without a frame
//!                   …                     …
//!                   main                  main
//!                   in libc               whatever     libc keeps no frame pointers: there it ends for good
//! ```
//!
//! So the program's own frames are compared, from the leaf to the first caller without frame pointers.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use flametop::collector::Walk;
use flametop::profile::{Frame, FrameId, UserEnd};

use super::cases::Case;
use super::session::{Sampling, Taken, Waiting, now};
use super::stacks::{Images, Judge, Outcome};
use super::storm::{in_exec_or_exit, kernel_names};

/// How two walks compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Agreement {
    /// Equal, as far as frame pointers lead.
    Same,
    /// Equal except for the leaf's caller, which frame pointers do not show at this moment.
    ButTheLeafsCaller,
    /// They differ at this frame, counted from the leaf.
    At(usize),
}

/// Compares addresses, leaf first; `followed` says whether code keeps frame pointers, `cut` whether the walk along them was cut.
pub(crate) fn compare<T: PartialEq>(tables: &[T], pointers: &[T], cut: bool, followed: impl Fn(&T) -> bool) -> Agreement {
    // A caller's address is found through the frame below it: the first that is not followed is still right.
    let reach = |walk: &[T]| walk.iter().position(|frame| !followed(frame)).map_or(walk.len(), |at| at + 1);
    let (tables, pointers) = (&tables[..reach(tables)], &pointers[..reach(pointers)]);
    let differ = |tables: &[&T]| {
        let common = tables.iter().zip(pointers).take_while(|(a, b)| *a == b).count();
        (common < pointers.len() || common < tables.len() && !cut).then_some(common)
    };
    let all: Vec<&T> = tables.iter().collect();
    let Some(at) = differ(&all) else { return Agreement::Same };
    // In a recursion, where all return addresses are one, the missing one shows only at its end.
    let without: Vec<&T> = tables.iter().enumerate().filter(|(depth, _)| *depth != 1).map(|(_, frame)| frame).collect();
    if differ(&without).is_none() { Agreement::ButTheLeafsCaller } else { Agreement::At(at) }
}

#[test]
fn two_walks_agree_but_for_what_frame_pointers_cannot_know() {
    let program = |frame: &u64| *frame < 100;
    let compare = |tables: &[u64], pointers: &[u64]| compare(tables, pointers, pointers.len() == 5, program);
    assert_eq!(compare(&[1, 2, 3, 4], &[1, 2, 3, 4]), Agreement::Same);
    // main is called from libc, which uses the frame pointer's register in another way.
    assert_eq!(compare(&[1, 2, 3, 200, 201, 4], &[1, 2, 3, 200, 777]), Agreement::Same);
    assert_eq!(compare(&[1, 2, 3, 200], &[1, 2, 3, 300]), Agreement::At(3));
    // Before `push rbp` and after `pop rbp`.
    assert_eq!(compare(&[1, 2, 3, 200], &[1, 3, 200]), Agreement::ButTheLeafsCaller);
    assert_eq!(compare(&[1, 2, 3, 4, 200], &[1, 2, 4, 200]), Agreement::At(2));
    assert_eq!(compare(&[1, 2, 3], &[1, 2]), Agreement::At(2));
    assert_eq!(compare(&[1, 2, 2, 2, 3, 200], &[1, 2, 2, 3, 200]), Agreement::ButTheLeafsCaller);
    assert_eq!(compare(&[1, 2, 2, 2, 3, 200], &[1, 2, 3, 200]), Agreement::At(2));
    // Cut after five.
    assert_eq!(compare(&[1, 2, 3, 4, 5, 6, 7], &[1, 2, 3, 4, 5]), Agreement::Same);
    assert_eq!(compare(&[1, 2, 3, 4, 5, 6, 7], &[1, 3, 4, 5, 6]), Agreement::ButTheLeafsCaller);
    assert_eq!(compare(&[1, 2, 3, 4, 5, 6, 7], &[1, 2, 3, 5, 6]), Agreement::At(3));
    // A leaf in libc: nothing to compare.
    assert_eq!(compare(&[200, 1, 2], &[200, 2]), Agreement::Same);
}

/// Samples the cases one after the other, with two walks of each sample. Returns each case's process and time span.
fn take_turns<'a>(sampling: &mut Sampling, cases: &'a [Case]) -> Vec<(&'a Case, u32, Range<u64>)> {
    let mut turns = Vec::new();
    for case in cases {
        let mut program = Waiting::start(&case.built.path, &case.arguments);
        program.go();
        // Waits for the tables first: a machine that has not read the files yet needs some time.
        let patience = Instant::now();
        let begin = loop {
            let step = now();
            sampling.watch(Duration::from_millis(300));
            let family = sampling.family(program.pid(), case.children);
            let lack = sampling.of(&family, step..u64::MAX).into_iter().filter(|taken| taken.end == UserEnd::NoTable).count();
            if lack == 0 || patience.elapsed() > Duration::from_secs(5) {
                break now();
            }
        };
        // Two samples for each tick. Some programs sleep, and the machine may run other programs.
        let patience = Instant::now();
        while patience.elapsed() < Duration::from_secs(10) {
            let family = sampling.family(program.pid(), case.children);
            if sampling.of(&family, begin..u64::MAX).len() >= 1000 {
                break;
            }
            sampling.watch(Duration::from_millis(100));
        }
        turns.push((case, program.pid(), begin..now()));
        program.kill();
    }
    turns
}

/// Both samples of each tick, in the order in which they came.
fn pairs<'a>(sampling: &'a Sampling, family: &'a BTreeSet<u32>, time: Range<u64>) -> Vec<(&'a Taken, &'a Taken)> {
    let taken = sampling.of(family, time);
    // Two CPUs may tick at once: then their samples are interleaved.
    let tick = |taken: &Taken| (taken.time, taken.tid);
    let of_one_tick = |pair: &&[&Taken]| pair[1].compared && !pair[0].compared && tick(pair[0]) == tick(pair[1]);
    taken.windows(2).filter(of_one_tick).map(|pair| (pair[0], pair[1])).collect()
}

/// Compares both walks of each sample of programs that keep frame pointers. At most one in a thousand may differ without a known reason.
pub(crate) fn live(cases: &[Case]) {
    let mut sampling = Sampling::walking(Walk::Compared);
    let turns = take_turns(&mut sampling, cases);
    let mut failed = Vec::new();
    for (case, pid, time) in turns {
        let own = |frame: &Frame| {
            let object = sampling.names.objects.get(frame.object());
            object.is_some_and(|object| *object.path == *case.built.path.to_string_lossy())
        };
        let (mut counts, mut examples) = (BTreeMap::<&str, usize>::new(), Vec::new());
        for (by_tables, by_pointers) in pairs(&sampling, &sampling.family(pid, case.children), time) {
            let leaf_first = |taken: &Taken| -> Vec<Frame> { sampling.look(&taken.user).into_iter().rev().collect() };
            let (tables, pointers) = (leaf_first(by_tables), leaf_first(by_pointers));
            // The kernel's own walk goes 127 frames deep.
            let what = match compare(&tables, &pointers, by_pointers.end == UserEnd::Cut, own) {
                Agreement::Same => "the same",
                Agreement::ButTheLeafsCaller => "but the leaf's caller",
                // Frame pointers do not lead to the function that a signal has interrupted.
                Agreement::At(_) if case.name.contains("signals") && in_handler(&tables, own) => "behind a signal",
                Agreement::At(at) => {
                    examples.push(format!("frame {at}: {tables:x?} by tables, {pointers:x?} by frame pointers"));
                    "different"
                }
            };
            *counts.entry(what).or_default() += 1;
        }
        let all: usize = counts.values().sum();
        println!("{:32} {all:6} samples walked twice: {counts:?}", case.name);
        if all < 300 || examples.len() > all.div_ceil(1000) {
            failed.push(format!(
                "{}: {} of {all} differ, such as {}",
                case.name,
                examples.len(),
                examples.first().cloned().unwrap_or_default()
            ));
        }
    }
    assert!(failed.is_empty(), "no agreement:\n  {}", failed.join("\n  "));
}

/// Checks that a walk with the cache of the thread's last stack (bpf/walk/stack_cache.h) equals a full walk of the same stack.
pub(crate) fn with_the_last(cases: &[Case]) {
    let mut sampling = Sampling::walking(Walk::Twice);
    let turns = take_turns(&mut sampling, cases);
    let (mut all, mut failed) = (0, Vec::new());
    for (case, pid, time) in turns {
        let family = sampling.family(pid, case.children);
        let pairs = pairs(&sampling, &family, time);
        let stack = |taken: &Taken| (taken.end, sampling.frames[taken.user.clone()].to_vec());
        // A walk with the cache leads to the root, or none of its frames are kept. If it did not, and only the innermost frame is
        // there, both walks went by rules alone. That is a new thread, whose parent may use the same memory meanwhile. Seen once
        // in 55,268.
        let is_alone = |taken: &Taken| taken.user.len() == 1;
        let has_changed = |(followed, anew): &&(&Taken, &Taken)| {
            followed.end != UserEnd::Root && is_alone(followed) && is_alone(anew) && stack(followed).1 == stack(anew).1
        };
        let (changed, differ): (Vec<_>, Vec<_>) =
            pairs.iter().filter(|(followed, anew)| stack(followed) != stack(anew)).partition(has_changed);
        // In exit the kernel wakes the waiting thread (vfork's parent, or a thread that joins) while the task still has its
        // memory. The woken thread runs and writes to the stack. Seen where two milliseconds passed between both walks, as under
        // a hypervisor: the child of vfork in `_exit` had the return address of its parent's `waitpid`.
        let is_taken_back = |(followed, _): &(&Taken, &Taken)| in_exec_or_exit(&sampling.look(&followed.kernel));
        let (taken_back, differ): (Vec<_>, Vec<_>) = differ.into_iter().partition(|pair| is_taken_back(pair));
        println!(
            "{:32} {:6} samples walked twice, {} differ, {} changed, {} taken back in exit",
            case.name,
            pairs.len(),
            differ.len(),
            changed.len(),
            taken_back.len()
        );
        if changed.len() > pairs.len().div_ceil(1000) {
            failed.push(format!("{}: {} of {} changed while they were walked", case.name, changed.len(), pairs.len()));
        }
        if let Some((followed, anew)) = differ.first() {
            let words = |taken: &Taken| format!("{:?} {:x?}", taken.end, sampling.look(&taken.user));
            let kernel = kernel_names(&sampling.look(&followed.kernel)).join(" > ");
            failed.push(format!("{}: {} and anew {} | {kernel}", case.name, words(followed), words(anew)));
        }
        all += pairs.len();
    }
    let walked = sampling.walked();
    println!("{all} samples, {} user frames of which {} stood as before", walked.frames, walked.retraced);
    assert!(failed.is_empty(), "not the same:\n  {}", failed.join("\n  "));
    // This is no share of all frames: cut stacks have thousands of frames and are not kept in the cache.
    assert!(all >= 300 * cases.len() && walked.retraced > 4 * all as u64, "too few to tell");
}

/// Checks that the kernel's walk and the walk of a stack copy in user space (src/unwind/walk.rs) are equal, as far as the second
/// leads. The second ends where it needs more than the copy, and where the kernel's walk guesses.
pub(crate) fn in_dumps(cases: &[Case]) {
    let mut sampling = Sampling::walking(Walk::Dumped);
    let turns = take_turns(&mut sampling, cases);
    let (mut all, mut same, mut failed) = (0, 0, Vec::new());
    for (case, pid, time) in turns {
        let family = sampling.family(pid, case.children);
        let pairs = pairs(&sampling, &family, time);
        let (mut ends, mut differ) = (BTreeMap::<String, usize>::new(), Vec::new());
        for (kernels, copys) in &pairs {
            let leaf_first =
                |taken: &Taken| -> Vec<FrameId> { sampling.frames[taken.user.clone()].iter().rev().copied().collect() };
            let (in_kernel, in_copy) = (leaf_first(kernels), leaf_first(copys));
            let is_same = kernels.end == copys.end && in_kernel == in_copy;
            let may_end =
                matches!(copys.end, UserEnd::Dump | UserEnd::Gap | UserEnd::Anonymous | UserEnd::Invalid | UserEnd::NoTable);
            // Where the caller of a new thread's first function is no code, only the kernel's walk can see why.
            let is_shorter = (may_end || kernels.end == UserEnd::Root && in_copy.len() <= 1) && in_kernel.starts_with(&in_copy);
            // The kernel's walk came before a table was ready. The copy was walked when it was.
            let came_early = kernels.end == UserEnd::NoTable && in_copy.starts_with(&in_kernel);
            let what = if is_same { "the same".to_owned() } else { format!("ends: {:?}", copys.end) };
            *ends.entry(what).or_default() += 1;
            if !is_same && !is_shorter && !came_early && !in_exec_or_exit(&sampling.look(&kernels.kernel)) {
                differ.push((*kernels, *copys));
            }
        }
        println!("{:32} {:6} samples walked twice, {} differ: {ends:?}", case.name, pairs.len(), differ.len());
        if let Some((kernels, copys)) = differ.first() {
            let words = |taken: &Taken| format!("{:?} {:x?}", taken.end, sampling.look(&taken.user));
            failed.push(format!("{}: {} in the kernel, and of the copy {}", case.name, words(kernels), words(copys)));
        }
        all += pairs.len();
        same += ends.get("the same").copied().unwrap_or_default();
    }
    println!("{all} samples walked twice, {same} of them to the same end");
    assert!(failed.is_empty(), "not the same:\n  {}", failed.join("\n  "));
    assert!(all >= 200 * cases.len() && same * 10 >= all * 8, "{same} of {all}: too few to tell");
}

/// Takes pages of stacks away while the stacks are read in place: no stack is wrong, and walks of copies are as good. Some stacks
/// end at a page that is missing at the time of the walk.
pub(crate) fn while_pages_move(cases: &[Case]) {
    let _swap = Swap::on();
    for case in cases {
        let mut sampling = Sampling::walking(Walk::Twice);
        let turns = take_turns(&mut sampling, std::slice::from_ref(case));
        let (mut images, names) = (Images::default(), sampling.names.clone());
        let mut judge = Judge::new(&case.built.grammar, &names, &mut images);
        let (mut ends, mut wrong) = (BTreeMap::<String, usize>::new(), Vec::new());
        for (_, pid, time) in turns {
            for taken in sampling.of(&sampling.family(pid, false), time) {
                let how = match judge.judge(&sampling.look(&taken.user), taken.end) {
                    Outcome::Whole | Outcome::Replaced => "whole".to_owned(),
                    Outcome::Incomplete(_) => format!("{:?}", taken.end),
                    Outcome::Wrong(what) => {
                        wrong.push(what);
                        "wrong".to_owned()
                    }
                };
                *ends.entry(format!("{how}, {}", if taken.compared { "copied" } else { "in place" })).or_default() += 1;
            }
        }
        println!("{}: {ends:?}; {} stacks were walked again of copies", case.name, sampling.walked().moved);
        assert_eq!(wrong, Vec::<String>::new(), "{}", case.name);
        let count = |how: &str| ends.get(how).copied().unwrap_or_default();
        let (whole, copied) = (count("whole, in place"), count("whole, copied"));
        assert!(whole >= 300 && whole * 100 >= copied * 95, "{whole} whole in place, {copied} of copies");
    }
}

/// A swap file of 64 MiB, if the system allows one.
struct Swap(std::path::PathBuf);

impl Swap {
    fn on() -> Option<Swap> {
        let path = std::env::temp_dir().join(format!("flametop-swap-{}", std::process::id()));
        let script = "dd if=/dev/zero of=$0 bs=1M count=64 status=none && chmod 600 $0 && mkswap -q $0 && swapon $0";
        let swap = Swap(path);
        let done = Command::new("sh").args(["-c", script]).arg(&swap.0).stderr(Stdio::null()).status();
        if done.is_ok_and(|status| status.success()) {
            return Some(swap);
        }
        println!("NOT TESTED: pages that go to swap: a swap file cannot be had here");
        None
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        let _ = Command::new("swapoff").arg(&self.0).stderr(Stdio::null()).status();
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Whether a library's frame is between frames of the program, leaf first: a handler's return.
fn in_handler(stack: &[Frame], own: impl Fn(&Frame) -> bool) -> bool {
    stack.windows(3).any(|three| own(&three[0]) && !own(&three[1]) && own(&three[2]))
}
