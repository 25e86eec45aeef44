//! Samples programs that know their own stacks, and counts how many stacks are whole and right.
//!
//! ```text
//! cargo test --test truth -- --nocapture                          the quick selection, with its table
//! cargo test --test truth -- --nocapture --ignored --test-threads=1     all forms of all programs, many samples
//! TRUTH=sort cargo test --test truth -- --nocapture               only cases whose name has that in it
//! ```
//!
//! `tests/vm` runs the quick selection in guests with other kernels and on arm64: by `TRUTH_PROGRAMS`, see `programs.rs`.
//!
//! Wrong frames: none. Whole and right: all user stacks but one in a thousand. Needs root, gcc, g++, musl-gcc, rustc, go.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod agreement;
mod cases;
#[path = "../common/mod.rs"]
mod common;
mod grammar;
mod images;
mod programs;
mod second;
mod session;
mod stacks;
mod storm;

use cases::{Case, Pass, Table};
use common::alone;
use programs::Form;

/// Programs that ran before the collector, then programs that start after it.
fn judge(cases: &[Case], samples: usize) {
    if programs::are_for_a_guest() {
        return;
    }
    if programs::in_guest() {
        // One instance of each is enough where all takes so long.
        let mut table = Table::default();
        cases::run(cases, Pass::Before, samples / 8, &mut table);
        return table.finish();
    }
    let _alone = alone();
    let run = |cases: &[Case], samples, may_ask_again| {
        let mut table = Table::default();
        table.may_ask_again = may_ask_again;
        for pass in [Pass::Before, Pass::After] {
            cases::run(cases, pass, samples, &mut table);
        }
        table
    };
    let table = run(cases, samples, true);
    let again: Vec<Case> = cases.iter().filter(|case| table.again.contains(&case.name)).cloned().collect();
    table.finish();
    if !again.is_empty() {
        run(&again, samples * 5, false).finish();
    }
}

#[test]
fn programs_know_their_own_stack() {
    judge(&cases::quick(), 1_000);
}

#[test]
#[ignore = "six minutes"]
fn programs_in_all_forms_know_their_own_stack() {
    judge(&cases::all(), 3_000);
}

/// Checks the declarations without our walker: whether programs make other calls than the declared ones.
#[test]
#[ignore = "needs gdb"]
fn gdb_finds_the_declared_calls_only() {
    let _alone = alone();
    second::opinion(&cases::all());
}

#[test]
fn both_walks_agree_on_programs_that_keep_frame_pointers() {
    let _alone = alone();
    agreement::live(&cases::of(Form::FramePointers));
}

#[test]
fn what_stands_as_at_the_last_sample_is_what_a_walk_finds() {
    let _alone = alone();
    agreement::with_the_last(&cases::quick());
}

#[test]
fn a_walk_of_a_copied_stack_in_user_space_is_the_same() {
    let _alone = alone();
    agreement::in_dumps(&cases::quick());
}

#[test]
fn no_stack_is_wrong_while_its_pages_are_taken_away() {
    if programs::in_guest() || programs::are_for_a_guest() {
        return;
    }
    let _alone = alone();
    agreement::while_pages_move(&cases::moves());
}
