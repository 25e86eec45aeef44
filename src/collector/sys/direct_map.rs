//! Finds the kernel's direct map of all memory, for stacks that are read in place (`bpf/lookup/physmap.h`).
//!
//! The map begins at another address at each boot. Root can read the address from `/proc/kcore`. Without `/proc/kcore`, the map may still
//! be at its default address, if nothing has moved it. In both cases a program checks the address. It looks up two words that only this
//! process has, through the process's page tables. This proves where the map begins, how many levels the tables have, and how to read their
//! entries.
//!
//! Other addresses are not tried. A wrong address would read other memory, and some memory must not be read: a confidential guest that
//! loads memory which it has not accepted yet is stopped.

use crate::collector::sys::kcore;
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::hint::black_box;
use std::io::Read as _;

use libbpf_rs::{ProgramInput, ProgramMut};

/// `PAGE_SHIFT` of x86_64.
const PAGE_SHIFT: u32 = 12;
/// Most memory that four levels of tables can map: 64 TiB. On a machine with more, stacks are not read in place.
const MOST: u64 = 1 << 46;
/// Default address of the map, by levels of tables: Documentation/arch/x86/x86_64/mm.rst.
const UNMOVED: [(u64, u32); 2] = [(0xffff_8880_0000_0000, 4), (0xff11_0000_0000_0000, 5)];
/// Number of attempts: the kernel may move a page to another place at any time.
const ATTEMPTS: u32 = 3;

/// Bits of a page table entry above the physical address. If memory is encrypted, the bits of [`ENCRYPTION`] are not part of the address.
const BEYOND: u64 = 0x3f << 46;
/// Bits that may mark encrypted memory: AMD's C-bit is one of them, the shared bit of Intel's TDX another.
const ENCRYPTION: u64 = 1 << 47 | 1 << 51;
/// Flags in `/proc/cpuinfo` of processors and guests whose memory may be encrypted.
const ENCRYPTS: [&str; 5] = ["sme", "sev", "sev_es", "sev_snp", "tdx_guest"];

/// Two words in one page, which no other process has.
#[repr(align(16))]
struct Words([u64; 2]);

/// Makes the program check where the map begins, and keep the result. Returns `false` if no check succeeded: then stacks are copied, which
/// is equally correct but slower.
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
        // The words must stay in place until here.
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

/// Returns the end of memory in bytes, holes included, from `/proc/zoneinfo`: the highest sum of a zone's `start_pfn` and `spanned`. 0
/// means unknown.
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

/// Returns an unpredictable number.
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
