//! Processes whose mappings change during the look-up: a program that maps as quickly as it can and logs it, and exec.

use std::collections::BTreeMap;
use std::time::Duration;

use super::asker::{ANONYMOUS, ANY_PROCESS, Answer, Asker, FOUND, NONE, VDSO, u64_at};
use super::common::{Program, alone};
use super::proc_maps::{Random, has_generation, maps_of};
use super::start;

/// struct turn of tests/programs/mappings.c.
#[derive(Clone, Copy, Debug)]
struct Turn {
    begin: u64,
    end: u64,
    file: u64,
    page_offset: u64,
}

/// Reads the log: mappings of each slot, over time.
fn read_turns(path: &std::path::Path) -> (u64, u64, BTreeMap<u64, Vec<Turn>>) {
    let bytes = std::fs::read(path).unwrap();
    let mut turns = bytes.chunks_exact(40).map(|turn| [0, 8, 16, 24, 32].map(|at| u64_at(turn, at)));
    let [_, _, place, bytes_of_slot, _] = turns.next().unwrap();
    let mut slots: BTreeMap<u64, Vec<Turn>> = BTreeMap::new();
    for [begin, end, place, file, page_offset] in turns.filter(|turn| turn[0] != 0) {
        // The last turn may not be over.
        let end = if end == 0 { u64::MAX } else { end };
        slots.entry(place).or_default().push(Turn { begin, end, file, page_offset });
    }
    (place, bytes_of_slot, slots)
}

/// Whether the answer was true at a moment between its two times.
fn was_true(answer: &Answer, place: u64, bytes_of_slot: u64, turns: &[Turn]) -> bool {
    let (from, to) = answer.time;
    // Turns that were not over before we began, and the one before them.
    let first = turns.partition_point(|turn| turn.end < from).saturating_sub(1);
    let possible = turns[first..].iter().take_while(|turn| turn.begin <= to);
    let mut before = true;
    for turn in possible {
        let changing = turn.end >= from;
        let is = match answer.result {
            // While one mapping replaces another, none is there for a moment.
            NONE => turn.file == 0 || changing,
            FOUND => {
                let mapping = answer.mapping;
                let whole = mapping.start == place && mapping.end == place + bytes_of_slot;
                whole && mapping.inode == turn.file && mapping.page_offset == turn.page_offset
            }
            _ => false,
        };
        if is {
            return true;
        }
        before = false;
    }
    // Before the first turn there is nothing.
    before && answer.result == NONE
}

fn in_a_storm(copied: bool) {
    let _alone = alone();
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let log = directory.path().join("log");
    let mut storm = Program::build("mappings.c").run(&["60", "storm", log.to_str().unwrap()]);
    let own = maps_of(storm.pid());
    let code = own.iter().find(|(map, name)| map.executable && name.ends_with("/mappings")).unwrap().0;
    let (region, bytes_of_slot, _) = read_turns(&log);
    let mut random = Random(42);
    let addresses: Vec<u64> = (0..200).map(|_| region + random.below(16 * bytes_of_slot)).collect();
    let mut asker = Asker::load(copied);
    asker.ask(storm.pid(), &addresses);
    let answers = asker.sample(1999, Duration::from_secs(3));
    storm.kill();
    let (.., slots) = read_turns(&log);

    let turns: usize = slots.values().map(Vec::len).sum();
    let mut results: BTreeMap<(bool, &str, bool), usize> = BTreeMap::new();
    let (mut pcs, mut code_found, mut torn, mut wrong, mut true_later) = (0, 0, 0, Vec::new(), 0);
    let mut mixed = 0;
    for answer in &answers {
        *results.entry((answer.is_pc, answer.result(), answer.stable)).or_default() += 1;
        if answer.is_pc {
            pcs += 1;
            let in_code = (code.start..code.end).contains(&answer.address);
            let found = matches!(answer.result, FOUND | VDSO) && (!in_code || answer.mapping == code);
            code_found += usize::from(found);
            torn += usize::from(answer.result() == "torn");
            if !found && answer.result() != "torn" {
                wrong.push(format!("{:#x} is {} {:x?}", answer.address, answer.result(), answer.mapping));
            }
            continue;
        }
        let place = region + (answer.address - region) / bytes_of_slot * bytes_of_slot;
        let turns = slots.get(&place).map_or(&[][..], Vec::as_slice);
        let later = Answer { time: (answer.time.0 + 1_000_000, answer.time.1 + 1_000_000), ..*answer };
        true_later += usize::from(was_true(&later, place, bytes_of_slot, turns));
        let doubtful = answer.result() != "torn" && !was_true(answer, place, bytes_of_slot, turns);
        if doubtful && !answer.stable {
            // The answer says that a writer was active: its start and page offset would be of two moments.
            mixed += 1;
        } else if doubtful {
            wrong.push(format!("{:#x} is {} {:x?} stable {}", answer.address, answer.result(), answer.mapping, answer.stable));
        }
    }
    println!("{turns} turns of the storm; {pcs} instruction pointers, {code_found} found; {} answers", answers.len());
    for ((is_pc, result, stable), count) in results {
        println!(
            "  {:>8} {result}{}, {}",
            count,
            if stable { "" } else { ", beside a writer" },
            if is_pc { "pc" } else { "in the storm" }
        );
    }
    assert!(wrong.is_empty(), "{} wrong answers:\n{}", wrong.len(), wrong[..wrong.len().min(20)].join("\n"));
    println!("{mixed} answers given beside a writer were of two moments{}", if copied { ", by copies" } else { ", in place" });
    // No mixed answer is allowed: while a writer is active, an answer is only given if it was found twice.
    assert!(mixed == 0, "{mixed} of {} answers were of two moments", answers.len());
    // 6.1 may be interrupted while a node is neither the old one nor the new one.
    let allowed = if has_generation() { pcs / 10_000 } else { pcs / 200 };
    assert!(torn <= allowed, "{torn} of {pcs} instruction pointers were not found");
    assert!(turns > 10_000 && pcs > 500);
    println!("a millisecond later {true_later} of them would have been true");
    assert!(true_later * 4 < answers.len() * 3, "the log says no more what was mapped when: this test proves nothing");
}

#[test]
fn in_a_storm_of_mmap_no_object_is_wrong_and_code_is_found() {
    in_a_storm(false);
}

#[test]
fn in_a_storm_of_mmap_no_object_is_wrong_by_copies() {
    in_a_storm(true);
}

#[test]
fn in_a_storm_of_exec_every_instruction_pointer_has_its_mapping() {
    let _alone = alone();
    let storm = start("sh", &["-c", "while :; do /bin/true; /bin/ls / >/dev/null; done"]);
    assert!(storm.is_some());
    let mut asker = Asker::load(false);
    asker.ask(ANY_PROCESS, &[]);
    let answers = asker.sample(1999, Duration::from_secs(3));
    let mut results: BTreeMap<(&str, bool), usize> = BTreeMap::new();
    for answer in answers.iter().filter(|answer| answer.is_pc) {
        *results.entry((answer.result(), answer.in_user_mode)).or_default() += 1;
    }
    println!("{results:?} (true: the tick came in user mode)");
    for answer in answers.iter().filter(|answer| answer.is_pc && answer.in_user_mode) {
        let result = answer.result();
        assert!(matches!(answer.result, FOUND | ANONYMOUS | VDSO), "code runs at {:#x}, where there is {result}", answer.address);
    }
}
