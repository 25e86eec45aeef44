//! Two walks of one stack, by tables and by frame pointers: where they may differ, and what is left.
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
//! So the frames of the program itself are compared, from the leaf to where the first caller without frame pointers comes.

use std::collections::BTreeMap;

use flametop::profile::{Frame, Names, ObjectId};

use super::cases::Case;
use super::session::{Sampling, Waiting, now};
use super::stacks::{Images, Judge, Outcome};

/// How two walks compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Agreement {
    /// The same, as far as frame pointers go.
    Same,
    /// The same, but for the leaf's caller, which frame pointers cannot know at that moment.
    ButTheLeafsCaller,
    /// They differ at this frame, counted from the leaf.
    At(usize),
}

/// Compares addresses, leaf first; `followed` says whether code keeps frame pointers.
pub(crate) fn compare<T: PartialEq>(tables: &[T], pointers: &[T], followed: impl Fn(&T) -> bool) -> Agreement {
    // A caller's address is found through the frame below it: the first that is not followed is still right.
    let reach = |walk: &[T]| walk.iter().position(|frame| !followed(frame)).map_or(walk.len(), |at| at + 1);
    let (tables, pointers) = (&tables[..reach(tables)], &pointers[..reach(pointers)]);
    let differ = |tables: &[T], pointers: &[T]| {
        let common = tables.iter().zip(pointers).take_while(|(a, b)| a == b).count();
        // Whoever stops first may, if the other only goes on; but not before the end of what is followed.
        (common < tables.len() || common < pointers.len()).then_some(common)
    };
    match differ(tables, pointers) {
        None => Agreement::Same,
        Some(at) if at > 1 => Agreement::At(at),
        Some(at) => {
            let without: Vec<&T> = tables.iter().enumerate().filter(|(depth, _)| *depth != 1).map(|(_, frame)| frame).collect();
            let same = without.len() == pointers.len() && without.iter().zip(pointers).all(|(a, b)| *a == b);
            if same { Agreement::ButTheLeafsCaller } else { Agreement::At(at) }
        }
    }
}

#[test]
fn two_walks_agree_but_for_what_frame_pointers_cannot_know() {
    let program = |frame: &u64| *frame < 100;
    let compare = |tables: &[u64], pointers: &[u64]| compare(tables, pointers, program);
    assert_eq!(compare(&[1, 2, 3, 4], &[1, 2, 3, 4]), Agreement::Same);
    // main is called from libc, which has its own mind about that register.
    assert_eq!(compare(&[1, 2, 3, 200, 201, 4], &[1, 2, 3, 200, 777]), Agreement::Same);
    assert_eq!(compare(&[1, 2, 3, 200], &[1, 2, 3, 300]), Agreement::At(3));
    // Before `push rbp` and after `pop rbp`.
    assert_eq!(compare(&[1, 2, 3, 200], &[1, 3, 200]), Agreement::ButTheLeafsCaller);
    assert_eq!(compare(&[1, 2, 3, 4, 200], &[1, 2, 4, 200]), Agreement::At(2));
    assert_eq!(compare(&[1, 2, 3], &[1, 2]), Agreement::At(2));
    // A leaf in libc: nothing to compare.
    assert_eq!(compare(&[200, 1, 2], &[200, 2]), Agreement::Same);
}

/// The harness against the walker that is there already: where everything has frame pointers it is right, and the judges must
/// say so.
pub(crate) fn by_frame_pointers(cases: &[Case]) {
    let mut images = Images::default();
    for case in cases {
        let mut program = Waiting::start(&case.built.path, &case.arguments);
        let mut sampling = Sampling::start();
        program.go();
        sampling.watch(std::time::Duration::from_millis(1200));
        let end = now();
        program.kill();
        let family = sampling.family(program.pid(), case.children);
        let mut judge = Judge::new(&case.built.grammar, &sampling.names, &mut images);
        let (mut right, mut others) = (0, BTreeMap::<String, usize>::new());
        for taken in sampling.of(&family, 0..end) {
            let stack = until_library(&sampling.names, &sampling.look(&taken.user), &case.built.path);
            match judge.judge(&stack, taken.end) {
                Outcome::Wrong(what) => *others.entry(what).or_default() += 1,
                Outcome::Whole | Outcome::Incomplete(_) => right += 1,
            }
        }
        let wrong: usize = others.values().sum();
        println!("{:32} {right} right, {wrong} not", case.name);
        let example = others.keys().next().cloned().unwrap_or_default();
        assert!(right > 200 && wrong * 100 <= right, "{}: {wrong} of {} wrong: {example}", case.name, right + wrong);
    }
}

/// The leaf side of a stack, root first, as far as frame pointers are kept.
fn until_library(names: &Names, stack: &[Frame], program: &std::path::Path) -> Vec<Frame> {
    let own = |frame: &&Frame| {
        let object = names.objects.get(frame.object);
        frame.object != ObjectId::UNMAPPED && object.is_some_and(|object| *object.path == *program.to_string_lossy())
    };
    let mut kept: Vec<Frame> = stack.iter().rev().take_while(own).copied().collect();
    kept.reverse();
    kept
}
