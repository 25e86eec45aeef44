//! New programs that run once, with an empty cache: their stacks are whole from the first sample on. Also: more stacks are to be
//! copied than the budget allows.
//!
//! Needs root and gcc; fails without, never skips.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Program, alone};
use flametop::collector::{Batch, Collector, CollectorOptions};
use flametop::profile::{Names, UserEnd};

/// A build id that no linker makes, and the part of it that is a different number in each copy.
const BUILD_ID: &str = "-Wl,--build-id=0x500a4b500a4b500a4b500a4b0000000000000000";
const MARK: &[u8] = &[0x50, 0x0a, 0x4b, 0x50, 0x0a, 0x4b, 0x50, 0x0a, 0x4b, 0x50, 0x0a, 0x4b];

/// Without frame pointers: nothing can be guessed.
fn once(options: &[&str]) -> Program {
    Program::build_with("once.c", &[&["-O2", "-fomit-frame-pointer", "-pthread", BUILD_ID], options].concat())
}

/// Copies of a program, each with a different build id.
fn copies(program: &Program, count: u32, directory: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut bytes = std::fs::read(&program.path).unwrap();
    let at = bytes.windows(MARK.len()).position(|window| window == MARK).expect("the build id is in the file");
    let copy = |number: u32| {
        bytes[at + 8..at + 12].copy_from_slice(&number.to_be_bytes());
        let path = directory.join(format!("once-{number}"));
        std::fs::write(&path, &bytes).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    };
    (0..count).map(copy).collect()
}

fn collector(frequency: u32) -> (Collector, Arc<Names>) {
    let names = Arc::new(Names::default());
    let options = CollectorOptions { frequency, cache_tables: false, ..CollectorOptions::default() };
    (Collector::start(options, names.clone(), Arc::default()).expect("these tests need root"), names)
}

/// Runs copies of a program, `a_second` of them each second. Returns how many user stacks of their samples ended in each way.
fn ends_of_copies(program: &Program, count: u32, a_second: u32, microseconds: &str) -> BTreeMap<String, usize> {
    let directory = tempfile::tempdir().unwrap();
    let programs = copies(program, count, directory.path());
    let (mut collector, names) = collector(499);
    let (mut batch, mut ends) = (Batch::default(), BTreeMap::<String, usize>::new());
    let mut drain = |collector: &mut Collector, is_last: bool| {
        match is_last {
            true => collector.drain_last(&mut batch, Instant::now() + Duration::from_secs(1)),
            false => collector.drain(&mut batch),
        }
        .unwrap();
        for sample in &batch.samples {
            let is_copy = names.labels.name(sample.thread.name).starts_with("once-");
            // Inside of execve there is no user stack yet, and at the end it is gone.
            if is_copy && !matches!(sample.user_end, UserEnd::Registers | UserEnd::NoMemory | UserEnd::KernelThread) {
                *ends.entry(format!("{:?}", sample.user_end)).or_default() += 1;
            }
        }
    };
    // Libraries that all programs share soon have their tables.
    drain(&mut collector, false);
    let begun = Instant::now();
    let mut children = Vec::new();
    for (number, program) in (0u32..).zip(&programs) {
        while begun.elapsed() < Duration::from_secs(1) * number / a_second {
            std::thread::sleep(Duration::from_millis(1));
            collector.wait(Duration::ZERO);
            drain(&mut collector, false);
        }
        children.push(Command::new(program).arg(microseconds).stdout(Stdio::null()).spawn().unwrap());
    }
    for child in &mut children {
        child.wait().unwrap();
    }
    for _ in 0..30 {
        std::thread::sleep(Duration::from_millis(20));
        drain(&mut collector, false);
    }
    drain(&mut collector, true);
    println!("{count} programs, {a_second} a second of {microseconds} µs: {ends:?}; {:?}", collector.dumps());
    ends
}

fn assert_whole(ends: &BTreeMap<String, usize>, least: usize) {
    let (all, whole) = (ends.values().sum::<usize>(), ends.get("Root").copied().unwrap_or_default());
    assert!(all >= least, "only {all} samples");
    assert!(whole * 100 >= all * 99, "{whole} of {all} are whole: {ends:?}");
}

#[test]
fn programs_of_two_milliseconds_are_whole_from_their_first_sample_on() {
    let _alone = alone();
    assert_whole(&ends_of_copies(&once(&[]), 400, 200, "2000"), 150);
}

#[test]
fn programs_of_fifty_milliseconds_are_whole_from_their_first_sample_on() {
    let _alone = alone();
    assert_whole(&ends_of_copies(&once(&[]), 60, 20, "50000"), 500);
}

/// The copy of a stack has its first pages and its far end. One frame lies between them.
#[test]
fn a_frame_of_a_megabyte_is_passed_from_the_first_sample_on() {
    let _alone = alone();
    for options in [&["-DLARGE=1048576"][..], &["-DLARGE=1048576", "-DTHREAD"]] {
        assert_whole(&ends_of_copies(&once(options), 40, 20, "50000"), 300);
    }
}

/// Without build ids, a file is known by its inode. File systems give that to the next file.
#[test]
fn a_program_that_has_the_inode_of_another_is_walked_by_its_own_table() {
    let _alone = alone();
    let build = |room| Program::build_with("once.c", &["-O2", "-fomit-frame-pointer", "-Wl,--build-id=none", room]);
    let programs = ["-DROOM=8", "-DROOM=400", "-DROOM=4000"].map(|room| std::fs::read(build(room).path).unwrap());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("once-again");
    let (mut collector, names) = collector(999);
    let (mut batch, mut ends, mut inodes) = (Batch::default(), BTreeMap::<String, usize>::new(), Vec::new());
    let mut drain = |collector: &mut Collector| {
        collector.drain(&mut batch).unwrap();
        for sample in batch.samples.iter().filter(|sample| names.labels.name(sample.thread.name) == "once-again") {
            if !matches!(sample.user_end, UserEnd::Registers | UserEnd::NoMemory) {
                *ends.entry(format!("{:?}", sample.user_end)).or_default() += 1;
            }
        }
    };
    for number in 0..30 {
        std::fs::write(&path, &programs[number % programs.len()]).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        inodes.push(std::fs::metadata(&path).unwrap().ino());
        let mut child = Command::new(&path).arg("20000").spawn().unwrap();
        while child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(2));
            drain(&mut collector);
        }
        std::thread::sleep(Duration::from_millis(50));
        drain(&mut collector);
        std::fs::remove_file(&path).unwrap();
    }
    for _ in 0..150 {
        std::thread::sleep(Duration::from_millis(20));
        drain(&mut collector);
    }
    let again = inodes.windows(2).filter(|pair| pair[0] == pair[1]).count();
    println!("{again} of 30 files had the inode of the one before: {ends:?}; {:?}", collector.dumps());
    assert!(again >= 10, "this file system does not use inodes again: {inodes:?}");
    assert_whole(&ends, 200);
}

#[test]
fn stacks_beyond_the_budget_are_counted_and_no_sample_is_lost() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let program = copies(&once(&[]), 1, directory.path()).remove(0);
    let (mut collector, _) = collector(9_000);
    let mut batch = Batch::default();
    collector.drain(&mut batch).unwrap();
    // Nothing is drained meanwhile: no table can come.
    let mut child = Command::new(&program).arg("1500000").spawn().unwrap();
    child.wait().unwrap();
    let (mut samples, mut without) = (0, 0);
    for _ in 0..40 {
        collector.drain(&mut batch).unwrap();
        let own = batch.samples.iter().filter(|sample| sample.thread.tgid.0 == child.id());
        for sample in own {
            samples += 1;
            without += u32::from(sample.user_end == UserEnd::NoTable);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let dumps = collector.dumps();
    println!("{samples} samples, {without} without a table; {dumps:?}");
    assert!(samples > 2_000, "{samples} samples");
    assert!(dumps.refused > 0 && dumps.dumped > 50, "{dumps:?}");
    assert!(u64::from(without) <= dumps.refused + dumps.late, "{without} without a table, {dumps:?}");
    assert_eq!(batch.losses.malformed, 0);
}
