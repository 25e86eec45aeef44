//! Rules from code against unwind information, where there is both; and code that was written for it.

use std::path::{Path, PathBuf};

use super::super::object::Evidence as Tables;
use super::super::rule::{Cfa, Fp, Frame, Reg, Rule};
use super::super::separate::{Nowhere, OnDisk};
use super::*;

/// What a comparison with unwind information found. Bytes of code, not rows: each counts as much as it may be met.
#[derive(Default, Debug)]
struct Compared {
    rows: u64,
    equal: u64,
    /// Nothing to compare: one says nothing, or counts from a register of which the other knows nothing.
    silent: u64,
    different: Vec<String>,
    functions: usize,
    proved: usize,
    bytes: u64,
    known: u64,
    failures: BTreeMap<&'static str, usize>,
}

/// Follows all code of a file as if it had no unwind information, and compares what comes of it with what that says.
fn compare(path: &Path) -> Compared {
    let bytes = std::fs::read(path).unwrap();
    let image = bytes.as_slice();
    let (_, evidence) = Tables::read(image, &OnDisk::of(path)).unwrap();
    let table = evidence.table(image);
    let elf = &evidence.elf;
    let stub = |range: &Range<u64>| {
        evidence.blocks.iter().any(|block| block.source != "entry" && range.contains(&block.start))
            && range.end - range.start < 1 << 16
    };
    let code: Vec<Range<u64>> = elf.code().into_iter().filter(|range| !stub(range)).collect();
    let found = of_ranges(elf, image, &code, false);
    let mut compared = Compared { functions: found.functions.len(), ..Compared::default() };
    compared.bytes = code.iter().map(|range| range.end - range.start).sum();
    compared.known = found.blocks.iter().map(|block| block.end - block.start).sum();
    for (_, failed) in &found.functions {
        match failed {
            None => compared.proved += 1,
            Some(why) => *compared.failures.entry(why).or_default() += 1,
        }
    }
    if let Some(wanted) = std::env::var_os("FAILED") {
        for (start, failed) in found.functions.iter().filter(|(_, failed)| failed.is_some_and(|why| why == wanted)).take(40) {
            println!("{start:#x} {failed:?}");
        }
    }
    for (function, row) in &found.rows {
        let Some(facts) = row.facts else { continue };
        let from = table.rows.partition_point(|other| table.base + u64::from(other.offset) <= row.start);
        let others = table.rows[from..].iter().map(|other| table.base + u64::from(other.offset));
        let addresses = [row.start].into_iter().chain(others.take_while(|address| *address < row.end));
        for address in addresses {
            let rule = table.lookup(address).rule(table.arch).unwrap();
            let (Rule::Frame(theirs), Rule::Frame(ours)) = (rule, facts.rule) else {
                match (rule, facts.rule) {
                    (Rule::Root, Rule::Root) => compared.equal += 1,
                    (Rule::Root, _) | (_, Rule::Root) => {
                        compared.different.push(format!("{address:#x}: {rule:?}, by code {facts:?}"))
                    }
                    _ => compared.silent += 1,
                }
                continue;
            };
            compared.rows += 1;
            match agree(&theirs, &ours, &facts) {
                Some(true) => compared.equal += 1,
                None => compared.silent += 1,
                Some(false) => compared.different.push(format!(
                    "{address:#x} of {function:#x}: {:?} {:?}; by code {:?} {:?} rsp {:?} rbp {:?} saved {:?}",
                    theirs.cfa, theirs.fp, ours.cfa, ours.fp, facts.rsp, facts.rbp, facts.saved
                )),
            }
        }
    }
    compared
}

/// Whether unwind information and code say the same of a place; `None` if they do not speak of the same things.
fn agree(theirs: &Frame, ours: &Frame, facts: &state::Facts) -> Option<bool> {
    let cfa = match theirs.cfa {
        Cfa::Register(Reg(7), size) => Some(facts.rsp? == -size),
        Cfa::Register(Reg(6), size) => Some(facts.rbp? == -size),
        other if other == ours.cfa => Some(true),
        _ => None,
    };
    if cfa? == false {
        return Some(false);
    }
    if ours.fp == Fp::Undefined {
        return None;
    }
    Some(match theirs.fp {
        Fp::Unchanged => facts.kept,
        Fp::AtCfa(offset) => facts.saved == Some(offset) || facts.kept && facts.saved.is_none(),
        other => other == ours.fp,
    })
}

/// `OBJECTS=… cargo test --release --lib code_says -- --ignored --nocapture`
#[test]
#[ignore = "for looking at chosen files"]
fn code_says_of_these_files() {
    for path in std::env::var("OBJECTS").unwrap_or_default().split_whitespace() {
        let begin = std::time::Instant::now();
        let compared = compare(Path::new(path));
        println!(
            "{path}: {} rows compared: {} equal, {} silent, {} different; {} of {} functions proved, {:.1} % of {} KiB; {:.2?}\n    {:?}",
            compared.rows,
            compared.equal,
            compared.silent,
            compared.different.len(),
            compared.proved,
            compared.functions,
            100.0 * compared.known as f64 / compared.bytes as f64,
            compared.bytes >> 10,
            begin.elapsed(),
            compared.failures,
        );
        for different in compared.different.iter().take(30) {
            println!("    {different}");
        }
    }
}

/// What is found in the gaps of files as they are.
#[test]
#[ignore = "for looking at chosen files"]
fn gaps_of_these_files() {
    for path in std::env::var("OBJECTS").unwrap_or_default().split_whitespace() {
        let bytes = std::fs::read(path).unwrap();
        let elf = Elf::read(bytes.as_slice()).unwrap();
        let (_, evidence) = Tables::read(bytes.as_slice(), &Nowhere).unwrap();
        let mut bare = evidence.table(bytes.as_slice());
        let begin = std::time::Instant::now();
        let found = find(&elf, bytes.as_slice(), &bare);
        let took = begin.elapsed();
        let ranges: u64 = gaps(&bare, &elf.code()).iter().map(|range| range.end - range.start).sum();
        let known: u64 = found.blocks.iter().map(|block| block.end - block.start).sum();
        let mut failures: BTreeMap<&str, usize> = BTreeMap::new();
        for why in found.functions.iter().filter_map(|(_, failed)| *failed) {
            *failures.entry(why).or_default() += 1;
        }
        println!("{path}: {known} of {ranges} bytes; {} functions, not proved {failures:?}; {took:.2?}", found.functions.len());
        if let Some(wanted) = std::env::var_os("FAILED") {
            for (start, failed) in found.functions.iter().filter(|(_, failed)| failed.is_some_and(|why| why == wanted)) {
                println!("    {start:#x} {failed:?}");
            }
        }
        bare.fill(&found.blocks);
        for (start, end) in gaps(&bare, &elf.code())
            .iter()
            .map(|range| (range.start, range.end))
            .filter(|(start, end)| end - start > 15)
            .take(if std::env::var_os("GAPS").is_some() { 1000 } else { 0 })
        {
            println!("    gap {start:#x}..{end:#x}");
        }
    }
}

#[expect(dead_code, reason = "later")]
fn unused() -> PathBuf {
    PathBuf::new()
}
