//! Where the kernel has all memory, its direct map: for stacks that are read in place (`bpf/direct.h`).
//!
//! It begins elsewhere at each boot. `/proc/kcore` tells root; without, it may still be where it is when nothing moves it. Either way a
//! program proves it, by two words that only this process has, through our own page tables: where the map begins, how many levels
//! tables have, and how their entries are to be read.
//!
//! Other begins are not tried: by a wrong one other memory is read, and not all memory may be (of a confidential guest's that it has not
//! accepted yet, a load is its end).

use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::hint::black_box;

use libbpf_rs::{ProgramInput, ProgramMut};

use super::perf;

/// `PAGE_SHIFT` of x86_64.
const PAGE_SHIFT: u32 = 12;
/// Memory that four levels of tables have room for: 64 TiB. More is not read in place.
const MOST: u64 = 1 << 46;
/// Where the map begins when nothing moves it, by levels of tables: Documentation/arch/x86/x86_64/mm.rst.
const UNMOVED: [(u64, u32); 2] = [(0xffff_8880_0000_0000, 4), (0xff11_0000_0000_0000, 5)];
/// The kernel may move any page to another place, at any time: asked again so often.
const ATTEMPTS: u32 = 3;

/// Two words in one page, that nobody else has.
#[repr(align(16))]
struct Words([u64; 2]);

/// Has the program prove where the map begins, and keep it. Whether it did: else stacks are copied, which is as right, and slower.
pub(super) fn find(program: &ProgramMut<'_>) -> bool {
    let end = memory_end(&fs::read_to_string("/proc/zoneinfo").unwrap_or_default());
    if !(1..=MOST).contains(&end) {
        return false;
    }
    match perf::linear_offset() {
        0 if is_all_readable(&fs::read_to_string("/proc/meminfo").unwrap_or_default()) => {
            UNMOVED.into_iter().any(|(begin, levels)| is_at(program, begin, levels, end))
        }
        0 => false,
        begin => [4, 5].into_iter().any(|levels| is_at(program, begin, levels, end)),
    }
}

/// Whether the map begins there.
fn is_at(program: &ProgramMut<'_>, begin: u64, levels: u32, end: u64) -> bool {
    (0..ATTEMPTS).any(|_| {
        let words = Box::new(Words([random(), random()]));
        let address = std::ptr::from_ref(black_box(&*words)).expose_provenance() as u64;
        // `struct direct_map_question` of bpf/direct.h.
        let question = [address, words.0[0], words.0[1], begin, end, u64::from(levels)];
        let mut context: Vec<u8> = question.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let input = ProgramInput { context_in: Some(&mut context), ..ProgramInput::default() };
        let is_there = program.test_run(input).is_ok_and(|answer| answer.return_value == 1);
        // Until here they are where they are.
        drop(black_box(words));
        is_there
    })
}

/// Whether all memory may be read, by `/proc/meminfo`: none has failed, and none is still to be accepted by a confidential guest.
fn is_all_readable(meminfo: &str) -> bool {
    let is_none = |line: &str| line.split_ascii_whitespace().nth(1) == Some("0");
    !meminfo.is_empty()
        && meminfo.lines().filter(|line| line.starts_with("Unaccepted:") || line.starts_with("HardwareCorrupted:")).all(is_none)
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
        assert!(is_all_readable("MemTotal: 24 kB\nHardwareCorrupted:     0 kB\nUnaccepted:     0 kB\n"));
        assert!(is_all_readable("MemTotal: 24 kB\n"), "a kernel that knows neither");
        assert!(!is_all_readable("HardwareCorrupted:     0 kB\nUnaccepted:     2048 kB\n"));
        assert!(!is_all_readable("HardwareCorrupted:     4 kB\n"));
        assert!(!is_all_readable(""));
    }
}
