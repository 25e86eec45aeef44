//! Where the kernel has all memory, its direct map: for stacks that are read in place (`bpf/lookup/physmap.h`).
//!
//! It begins elsewhere at each boot. `/proc/kcore` tells root; without, it may still be where it is when nothing moves it. Either way a
//! program proves it, by two words that only this process has, through our own page tables: where the map begins, how many levels
//! tables have, and how their entries are to be read.
//!
//! Other begins are not tried: by a wrong one other memory is read, and not all memory may be (of a confidential guest's that it has not
//! accepted yet, a load is its end).

use crate::collector::sys::kcore;
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::hint::black_box;
use std::io::Read as _;

use libbpf_rs::{ProgramInput, ProgramMut};

/// `PAGE_SHIFT` of x86_64.
const PAGE_SHIFT: u32 = 12;
/// Memory that four levels of tables have room for: 64 TiB. More is not read in place.
const MOST: u64 = 1 << 46;
/// Where the map begins when nothing moves it, by levels of tables: Documentation/arch/x86/x86_64/mm.rst.
const UNMOVED: [(u64, u32); 2] = [(0xffff_8880_0000_0000, 4), (0xff11_0000_0000_0000, 5)];
/// The kernel may move any page to another place, at any time: asked again so often.
const ATTEMPTS: u32 = 3;

/// Bits of a page table entry above the places that are read. Where memory is encrypted, those of [`ENCRYPTION`] are not part of a place.
const BEYOND: u64 = 0x3f << 46;
/// Bits that may tell how memory is encrypted: AMD's C-bit is one of them, the shared bit of Intel's TDX another.
const ENCRYPTION: u64 = 1 << 47 | 1 << 51;
/// Flags in `/proc/cpuinfo` of processors, and of guests, whose memory may be encrypted.
const ENCRYPTS: [&str; 5] = ["sme", "sev", "sev_es", "sev_snp", "tdx_guest"];

/// Two words in one page, that nobody else has.
#[repr(align(16))]
struct Words([u64; 2]);

/// Has the program prove where the map begins, and keep it. Whether it did: else stacks are copied, which is as right, and slower.
pub(crate) fn find(program: &ProgramMut<'_>) -> bool {
    let end = memory_end(&fs::read_to_string("/proc/zoneinfo").unwrap_or_default());
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    if !(1..=MOST).contains(&end) || has_failed(&meminfo) {
        return false;
    }
    let beyond = beyond(&first_bytes("/proc/cpuinfo"));
    let is_at = |begin, levels| is_at(program, &[begin, end, beyond, u64::from(levels)]);
    match kcore::linear_offset() {
        0 if is_all_accepted(&meminfo) => UNMOVED.into_iter().any(|(begin, levels)| is_at(begin, levels)),
        0 => false,
        begin => [4, 5].into_iter().any(|levels| is_at(begin, levels)),
    }
}

/// Reads the first 8 KiB of a kernel file: enough for the first CPU of `/proc/cpuinfo`.
fn first_bytes(path: &str) -> String {
    let mut bytes = vec![0; 8192];
    let read = fs::File::open(path).and_then(|mut file| file.read(&mut bytes)).unwrap_or(0);
    String::from_utf8_lossy(bytes.get(..read).unwrap_or_default()).into_owned()
}

/// Returns the bits that a page table entry must not have, according to `/proc/cpuinfo`.
fn beyond(cpuinfo: &str) -> u64 {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    let encrypts = flags.split_ascii_whitespace().any(|flag| ENCRYPTS.contains(&flag));
    if encrypts { BEYOND & !ENCRYPTION } else { BEYOND }
}

/// Tells whether the direct map is this one: `struct direct_map` of bpf/lookup/tables.h.
fn is_at(program: &ProgramMut<'_>, map: &[u64; 4]) -> bool {
    (0..ATTEMPTS).any(|_| {
        let words = Box::new(Words([random(), random()]));
        let address = std::ptr::from_ref(black_box(&*words)).expose_provenance() as u64;
        // `struct direct_map_question` of bpf/lookup/physmap.h.
        let question = [address, words.0[0], words.0[1]];
        let mut context: Vec<u8> = question.iter().chain(map).flat_map(|word| word.to_ne_bytes()).collect();
        let input = ProgramInput { context_in: Some(&mut context), ..ProgramInput::default() };
        let is_there = program.test_run(input).is_ok_and(|answer| answer.return_value == 1);
        // Until here they are where they are.
        drop(black_box(words));
        is_there
    })
}

/// Tells whether `/proc/meminfo` counts failed memory. An empty text counts as failed.
pub(crate) fn has_failed(meminfo: &str) -> bool {
    meminfo.is_empty() || !is_zero(meminfo, "HardwareCorrupted:")
}

/// Tells whether a confidential guest has accepted all its memory, according to `/proc/meminfo`.
fn is_all_accepted(meminfo: &str) -> bool {
    is_zero(meminfo, "Unaccepted:")
}

/// Tells whether a line of `/proc/meminfo` says 0 or is missing. If it is missing, this kernel does not count it.
fn is_zero(meminfo: &str, name: &str) -> bool {
    meminfo.lines().filter(|line| line.starts_with(name)).all(|line| line.split_ascii_whitespace().nth(1) == Some("0"))
}

/// Bytes up to the end of memory, holes and all, by `/proc/zoneinfo`: the highest `start_pfn` and `spanned` of a zone. 0: not known.
fn memory_end(zones: &str) -> u64 {
    let mut spanned = 0;
    let mut end = 0u64;
    for line in zones.lines() {
        let mut words = line.split_ascii_whitespace();
        let (name, number) = (words.next(), words.next().and_then(|number| number.parse::<u64>().ok()));
        match (name, number) {
            (Some("spanned"), Some(pages)) => spanned = pages,
            (Some("start_pfn:"), Some(first)) if spanned > 0 => end = end.max(first.saturating_add(spanned)),
            _ => {}
        }
    }
    end.saturating_mul(1 << PAGE_SHIFT)
}

/// A number that nobody can tell.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_ends_behind_the_highest_zone_that_has_any() {
        let zones = "Node 0, zone      DMA\n  pages free     2816\n        spanned  4095\n        present  3998\n  start_pfn:           1\n\
                     Node 0, zone   Normal\n        spanned  5505024\n  start_pfn:           1048576\n\
                     Node 0, zone  Movable\n        spanned  0\n  start_pfn:           0\n";
        assert_eq!(memory_end(zones), (1_048_576 + 5_505_024) << 12);
        assert_eq!(memory_end(""), 0);
        assert_eq!(memory_end("spanned 18446744073709551615\nstart_pfn: 1"), u64::MAX, "of nonsense the most, which is refused");
    }

    #[test]
    fn memory_that_may_not_be_read_is_told_by_meminfo() {
        let good = "MemTotal: 24 kB\nHardwareCorrupted:     0 kB\nUnaccepted:     0 kB\n";
        assert!(!has_failed(good) && is_all_accepted(good));
        let old = "MemTotal: 24 kB\n";
        assert!(!has_failed(old) && is_all_accepted(old), "a kernel that knows neither");
        let guest = "HardwareCorrupted:     0 kB\nUnaccepted:     2048 kB\n";
        assert!(!has_failed(guest) && !is_all_accepted(guest));
        assert!(has_failed("HardwareCorrupted:     4 kB\n"));
        assert!(has_failed(""), "nothing is known");
    }

    #[test]
    fn bits_of_encryption_are_passed_over_only_where_memory_may_be_encrypted() {
        let cpu = |flags: &str| format!("processor\t: 0\nmodel name\t: sev\nflags\t\t: fpu vme {flags} sse\nbugs\t\t: x\n");
        assert_eq!(beyond(&cpu("pni")), 0x3f << 46);
        assert_eq!(beyond(&cpu("sme sev")), 0b01_1101 << 46);
        assert_eq!(beyond(&cpu("tdx_guest")), 0b01_1101 << 46);
        assert_eq!(beyond(""), 0x3f << 46, "not known: a map with such bits cannot be proved then, and stacks are copied");
    }
}
