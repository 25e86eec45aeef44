//! Tests of the readers of ELF files and of JIT code maps against files that lie: cut, mutated, and with absurd claims.

use std::io::Write;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use proptest::prelude::*;

use super::dwarf::Dwarf;
use super::jit::code_ranges::MAX_RANGES;
use super::jit::growing_file::{CodeFile, Format};
use super::jit::jitdump::{JitDump, tests as dump};
use super::jit::perf_map::PerfMap;
use super::symbols::index::SymbolIndex;
use crate::cpu_time;
use crate::object::bytes::Source;
use crate::object::debug_files::Places;
use crate::object::elf::Image;
use crate::object::object_files::Images;
use crate::object::reason::Reason;
use crate::profile::{ElfAddress, FileOffset};

/// A real library with sections, notes, both tables and DWARF, built once.
fn sample() -> &'static [u8] {
    static BYTES: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    BYTES.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        let (source, object) = (directory.path().join("a.c"), directory.path().join("a.so"));
        std::fs::write(&source, "int one(int a) { return a + 1; }\nstatic int two(int a) { return one(a) * 3; }\nint three(int a) { return two(a) - 7; }\n").unwrap();
        let mut gcc = std::process::Command::new("gcc");
        gcc.args(["-g", "-O1", "-shared", "-fPIC", "-fno-inline", "-Wl,--build-id", "-o"]).arg(&object).arg(&source);
        assert!(gcc.status().expect("gcc is needed by this test").success());
        std::fs::read(&object).unwrap()
    })
}

/// Does everything that the service does with a file, for each of its bytes.
fn read_everything(bytes: &[u8]) -> Result<usize, Reason> {
    let image = Image::read(Source::Memory(bytes.into()))?;
    let images = Images::alone(image);
    let index = SymbolIndex::build(&images)?;
    let mut found = 0;
    for offset in (0..bytes.len() as u64).step_by(7) {
        let address = images.own.elf_address(FileOffset(offset));
        let Some(symbol) = address.and_then(|address| index.find(address)) else { continue };
        found += usize::from(symbol.read(&images)?.is_some());
    }
    if let Ok(Some(dwarf)) = Dwarf::open(&images.own, None, Places::default()) {
        for address in (0x1000..0x1200).step_by(3) {
            let _ = dwarf.calls(ElfAddress(address), |_| ());
        }
        dwarf.memory();
    }
    Ok(found)
}

#[test]
fn a_file_cut_at_any_length_is_refused_or_read_as_far_as_it_goes() {
    let whole = sample();
    assert!(read_everything(whole).unwrap() > 0);
    for length in (0..whole.len()).step_by(13).chain(0..200) {
        if let Ok(found) = read_everything(&whole[..length]) {
            panic!("{length} of {} bytes gave {found} names: the section headers are at the end", whole.len());
        }
    }
}

#[test]
fn claims_larger_than_the_file_cost_nothing() {
    let start = cpu_time::of_this_thread();
    // e_phoff, e_shoff, e_phnum, e_shnum, e_shstrndx
    for (at, size) in [(32, 8), (40, 8), (56, 2), (60, 2), (62, 2)] {
        let mut bytes = sample().to_vec();
        bytes[at..at + size].fill(0xff);
        let _ = read_everything(&bytes);
    }
    let sections = u64::from_le_bytes(sample()[40..48].try_into().unwrap()) as usize;
    for section in 0..30 {
        // sh_offset, sh_size, sh_link, sh_entsize
        for (at, size) in [(24, 8), (32, 8), (40, 4), (56, 8)] {
            let mut bytes = sample().to_vec();
            bytes[sections + section * 64 + at..][..size].fill(0xff);
            let _ = read_everything(&bytes);
            bytes[sections + section * 64 + at..][..size].fill(0x7f);
            let _ = read_everything(&bytes);
        }
    }
    assert!(cpu_time::since(start) < Duration::from_secs(20), "{:?}", cpu_time::since(start));
}

/// An ELF file with some code and these sections.
fn file_with(sections: &[(&str, &[u8])]) -> Vec<u8> {
    let mut names = vec![0];
    let mut bytes = vec![0; 64];
    bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    bytes[18] = 62;
    let mut headers = vec![[0u64; 8]];
    for (name, contents) in sections.iter().copied().chain([(".text", &[0x90; 4096][..]), (".shstrtab", &[])]) {
        let name_at = names.len() as u64;
        names.extend(name.bytes().chain([0]));
        let contents = if name == ".shstrtab" { names.clone() } else { contents.to_vec() };
        let (flags, address) = if name == ".text" { (6, 0x1000) } else { (0, 0) };
        headers.push([name_at | 1 << 32, flags, address, bytes.len() as u64, contents.len() as u64, 0, 0, 0]);
        bytes.extend(contents);
    }
    let segment_at = bytes.len() as u64;
    let text_at = headers[headers.len() - 2][3];
    bytes.extend([1 | 5 << 32, text_at, 0x1000, 0, 0x1000, 0x1000, 0].iter().flat_map(|number: &u64| number.to_le_bytes()));
    let headers_at = bytes.len() as u64;
    let count = headers.len() as u16;
    bytes.extend(headers.concat().iter().flat_map(|number| number.to_le_bytes()));
    bytes[32..40].copy_from_slice(&segment_at.to_le_bytes());
    bytes[40..48].copy_from_slice(&headers_at.to_le_bytes());
    (bytes[54], bytes[56], bytes[58]) = (56, 1, 64);
    bytes[60..62].copy_from_slice(&count.to_le_bytes());
    bytes[62..64].copy_from_slice(&(count - 1).to_le_bytes());
    bytes
}

/// Builds a unit of DWARF 4 with these entries after its own: code 1, [0x1000, 0x2000).
fn unit(entries: &[u8]) -> Vec<u8> {
    let mut unit = vec![4, 0, 0, 0, 0, 0, 8, 1];
    unit.extend(0x1000u64.to_le_bytes());
    unit.extend(0x1000u64.to_le_bytes());
    unit.extend(entries);
    unit.push(0);
    [&(unit.len() as u32).to_le_bytes(), unit.as_slice()].concat()
}

/// 1: a unit; 2: a function; 3: a call inlined, of one byte; 4: a function of many ranges.
const ABBREVIATIONS: &[u8] =
    &[1, 0x11, 1, 0x11, 1, 0x12, 7, 0, 0, 2, 0x2e, 1, 0x11, 1, 0x12, 7, 0, 0, 3, 0x1d, 1, 0, 0, 4, 0x2e, 0, 0x55, 0x17, 0, 0];

fn open(sections: &[(&str, &[u8])]) -> Result<usize, Reason> {
    let image = Image::read(Source::Memory(file_with(sections).into()))?;
    let start = cpu_time::of_this_thread();
    let dwarf = Dwarf::open(&image, None, Places::default())?.expect("it has some");
    let mut calls = 0;
    let asked = dwarf.calls(ElfAddress(0x1100), |_| calls += 1);
    assert!(cpu_time::since(start) < Duration::from_secs(10), "{:?}", cpu_time::since(start));
    asked.map(|()| calls)
}

/// Builds an address list of the unit at 0: DWARF 5, 6.1.2. Its addresses have `address_size` bytes.
fn list(address_size: u8, entries: &[u8]) -> Vec<u8> {
    let mut list = vec![2, 0, 0, 0, 0, 0, address_size, 0];
    list.resize(12, 0);
    list.extend(entries);
    [&(list.len() as u32).to_le_bytes(), list.as_slice()].concat()
}

#[test]
fn a_list_of_addresses_takes_neither_stack_nor_memory_without_end() {
    let function = [&[2][..], &0x1000u64.to_le_bytes(), &0x1000u64.to_le_bytes(), &[0]].concat();
    let entry = [0x1000u64.to_le_bytes(), 0x1000u64.to_le_bytes()].concat();
    let listed =
        |list: &[u8]| open(&[(".debug_abbrev", ABBREVIATIONS), (".debug_aranges", list), (".debug_info", &unit(&function))]);
    assert_eq!(listed(&list(8, &entry)), Ok(1));
    // Lists of empty entries, of entries that end past the last address, or of many entries for one unit.
    assert_eq!(listed(&list(8, &[vec![0; 4 << 20], entry.clone()].concat())), Ok(1));
    assert_eq!(listed(&list(8, &[vec![0xff; 4 << 20], entry.clone()].concat())), Ok(1));
    assert_eq!(listed(&list(8, &entry.repeat(100_000))), Ok(1));
    // These lists are rejected. The unit's own ranges count instead.
    assert_eq!(listed(&list(8, &entry.repeat(3 << 20))), Ok(1));
    assert_eq!(listed(&list(1, &[1; 8 << 20])), Ok(1));
    assert_eq!(listed(&list(8, &entry)[..20]), Ok(1));
}

#[test]
fn small_debug_information_that_becomes_large_is_refused() {
    let function = [&[2][..], &0x1000u64.to_le_bytes(), &0x1000u64.to_le_bytes()].concat();
    let nested = |depth: usize| unit(&[function.clone(), vec![3; depth], vec![0; depth + 1]].concat());
    assert_eq!(open(&[(".debug_abbrev", ABBREVIATIONS), (".debug_info", &nested(100))]), Ok(1));
    // A call inlined into a call inlined into a call, …
    for depth in [1_000, 1_000_000] {
        assert_eq!(open(&[(".debug_abbrev", ABBREVIATIONS), (".debug_info", &nested(depth))]), Err(Reason::TooLarge));
    }
    // Thousands of units with one table of thousands of abbreviations: they share it.
    let mut table = ABBREVIATIONS.to_vec();
    (5..5000u16).for_each(|code| table.extend([code as u8 | 0x80, (code >> 7) as u8, 0x2e, 0, 0, 0]));
    assert_eq!(open(&[(".debug_abbrev", &table), (".debug_info", &unit(&[]).repeat(20_000))]), Ok(0));
    // Thousands of units with tables that begin elsewhere in the same bytes.
    let at = |table: u32| [&unit(&[])[..6], &table.to_le_bytes(), &unit(&[])[10..]].concat();
    let overlapping: Vec<u8> = (0..4990).flat_map(|number| at(ABBREVIATIONS.len() as u32 + 6 * number)).collect();
    assert_eq!(open(&[(".debug_abbrev", &table), (".debug_info", &overlapping)]), Err(Reason::TooLarge));
    // Thousands of functions with one list of thousands of ranges.
    let functions = [4, 0, 0, 0, 0].repeat(20_000);
    let ranges: Vec<u8> =
        (0..20_000u64).flat_map(|at| [at.to_le_bytes(), (at + 1).to_le_bytes()].concat()).chain([0; 16]).collect();
    let sections: &[(&str, &[u8])] =
        &[(".debug_abbrev", ABBREVIATIONS), (".debug_info", &unit(&functions)), (".debug_ranges", &ranges)];
    assert_eq!(open(sections), Err(Reason::TooLarge));
}

#[test]
fn line_programs_that_units_share_take_neither_time_nor_memory_without_end() {
    // A program of DWARF 4: 13 opcodes, no directories, no files, and a row per byte.
    let header = [1, 1, 1, 0xfb, 14, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1, 0, 0];
    let rest = [&(header.len() as u32).to_le_bytes()[..], &header, &[0x20; 4 << 20]].concat();
    let lines = [&(rest.len() as u32 + 2).to_le_bytes()[..], &[4, 0], &rest].concat();
    // 1: a unit; 2: a unit with lines alone; 3: a function, which may refer to another unit.
    let alone = [1, 0x11, 1, 0x11, 1, 0x12, 7, 0, 0, 2, 0x11, 0, 0x10, 0x17, 0, 0, 3, 0x2e, 0, 0, 0, 0];
    let referring = [&alone[..19], &[0x31, 0x10, 0, 0, 0]].concat();
    let of_lines = [12, 0, 0, 0, 4, 0, 0, 0, 0, 0, 8, 2, 0, 0, 0, 0];
    let told = |table: &[u8], count: usize| {
        let info = [unit(&[]), of_lines.repeat(count)].concat();
        open(&[(".debug_abbrev", table), (".debug_line", &lines), (".debug_info", &info)])
    };
    assert_eq!((told(&alone, 2), told(&alone, 10_000)), (Ok(0), Ok(0)));
    // Here all units are read at once.
    assert_eq!((told(&referring, 2), told(&referring, 10_000)), (Ok(0), Err(Reason::TooLarge)));
}

#[test]
fn sections_of_one_name_are_looked_at_once() {
    let relocations = vec![7u8; 240_000];
    let many: Vec<(&str, &[u8])> =
        (0..200).map(|_| (".rela.plt", relocations.as_slice())).chain([(".plt", &[0x90; 64][..])]).collect();
    let start = cpu_time::of_this_thread();
    let images = Images::alone(Image::read(Source::Memory(file_with(&many).into())).unwrap());
    assert_eq!(SymbolIndex::build(&images).unwrap().len(), 0);
    assert!(cpu_time::since(start) < Duration::from_secs(5), "{:?}", cpu_time::since(start));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mutated_files_never_end_the_reader(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..24), headers in any::<bool>()) {
        let mut bytes = sample().to_vec();
        // Half of the runs change only the headers, where a byte does most.
        let places = bytes.len();
        let sections = u64::from_le_bytes(sample()[40..48].try_into().unwrap()) as usize;
        for (at, value) in changes {
            let at = at.index(if headers { 1024 + places - sections } else { places });
            let at = if headers && at >= 1024 { sections + at - 1024 } else { at };
            bytes[at] = value;
        }
        let start = cpu_time::of_this_thread();
        let _ = read_everything(&bytes);
        prop_assert!(cpu_time::since(start) < Duration::from_secs(5), "{:?}", cpu_time::since(start));
    }

    #[test]
    fn noise_behind_an_elf_magic_never_ends_the_reader(mut bytes in prop::collection::vec(any::<u8>(), 64..2048)) {
        bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        let _ = read_everything(&bytes);
    }

    #[test]
    fn mutated_maps_of_jit_code_never_end_the_reader(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..16), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4)) {
        let mut text = sample_map();
        changes.iter().for_each(|(at, value)| *at.get_mut(&mut text) = *value);
        prop_assert!(read_as_it_grows::<PerfMap>(&text, &cuts).is_ok(), "no line is reason enough to give up the others");
    }

    #[test]
    fn mutated_jitdumps_never_end_the_reader(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..16), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4)) {
        let mut bytes = sample_dump();
        changes.iter().for_each(|(at, value)| *at.get_mut(&mut bytes) = *value);
        let _ = read_as_it_grows::<JitDump>(&bytes, &cuts);
    }

    #[test]
    fn noise_is_no_map_of_jit_code(noise in prop::collection::vec(any::<u8>(), 0..4096), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4)) {
        prop_assert!(read_as_it_grows::<PerfMap>(&noise, &cuts).is_ok());
        let _ = read_as_it_grows::<JitDump>(&noise, &cuts);
        let _ = read_as_it_grows::<JitDump>(&[dump::file_header(), noise].concat(), &cuts);
    }
}

fn sample_map() -> Vec<u8> {
    (0..40u64).flat_map(|line| format!("{:x} {:x} function {line}\n", 0x1000 + line * 32, 16 + line).into_bytes()).collect()
}

fn sample_dump() -> Vec<u8> {
    let mut parts = vec![dump::file_header(), dump::record(2, &[1; 64])];
    for index in 0..20 {
        parts.push(dump::load(0x1000 + index * 64, &[0x90; 40], &format!("function {index}")));
        parts.push(dump::relocation(0x1000 + index * 64, 0x9000 + index * 48, 40));
    }
    parts.concat()
}

/// Reads a file that grows in pieces, ending at `cuts`, and asks for the names of all addresses after each piece. Then reads the file
/// written anew.
fn read_as_it_grows<F: Format + Default>(bytes: &[u8], cuts: &[prop::sample::Index]) -> Result<(), Reason> {
    let start = cpu_time::of_this_thread();
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).chain([bytes.len()]).collect();
    cuts.sort_unstable();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let mut reader = CodeFile::<F>::ours(std::fs::File::open(file.path()).unwrap())?;
    let going = AtomicBool::new(false);
    let mut outcome = Ok(false);
    let mut written = 0;
    for cut in cuts {
        file.write_all(&bytes[written..cut]).unwrap();
        written = cut;
        outcome = reader.update(&going);
        assert!(outcome.is_err() || reader.update(&going) == Ok(false), "what was read is read again");
        for address in (0x1000..0xa000).step_by(24) {
            if let Ok(Some(name)) = reader.name_at(address) {
                assert!(!name.is_empty() && name.len() <= 8 << 10);
            }
        }
    }
    file.as_file().set_len(0).unwrap();
    let _ = reader.update(&going);
    assert!(bytes.is_empty() || reader.len() == 0, "of what is gone nothing is kept");
    assert!(cpu_time::since(start) < Duration::from_secs(5), "{:?}", cpu_time::since(start));
    outcome.map(drop)
}

#[test]
fn a_map_of_jit_code_without_end_costs_bounded_memory_and_time() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let lines: Vec<u8> = (0..(MAX_RANGES as u64 * 4)).flat_map(|line| format!("{:x} 1 f\n", line * 2).into_bytes()).collect();
    file.write_all(&lines).unwrap();
    // A hole follows in the file, as large as files get here: a line that never ends.
    file.as_file().set_len(1 << 42).unwrap();
    let start = cpu_time::of_this_thread();
    let mut reader = CodeFile::<PerfMap>::ours(std::fs::File::open(file.path()).unwrap()).unwrap();
    let outcome = reader.update(&AtomicBool::new(false));
    assert_eq!((outcome, reader.len()), (Err(Reason::CodeMapTooLarge), MAX_RANGES));
    assert!(reader.memory() < 12 << 20 && cpu_time::since(start) < Duration::from_secs(30), "{:?}", cpu_time::since(start));
    assert_eq!(reader.update(&AtomicBool::new(false)), Err(Reason::CodeMapTooLarge));
    println!("{} bytes of lines and a hole: {:?}", lines.len(), cpu_time::since(start));
}
