//! Where the kernel has all memory, its direct map: for stacks that are read in place (`bpf/direct.h`).
//!
//! No interface tells where it begins, and that differs from boot to boot. So a program is asked by which begin two words that only this
//! process has are found through its own page tables. What it finds is proved by that: layout and levels of the tables, and how their
//! entries are to be read.

use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::hint::black_box;

use libbpf_rs::{ProgramInput, ProgramMut};

/// `PAGE_SHIFT` of x86_64: numbers of pages are counted in these.
const PAGE_SHIFT: u32 = 12;
/// Begins are multiples of 1 GiB: of `PUD_SIZE`, see `kernel_randomize_memory` in arch/x86/mm/kaslr.c.
const BEGIN_SHIFT: u32 = 30;
/// `DIRECT_MAP_TRIES` of bpf/direct.h: begins that one run tries.
const TRIES: u64 = 64;
/// Memory that four levels of tables have room for, in GiB: 64 TiB. Places beyond it are not read.
const MOST: u64 = 64 << 10;
/// The kernel may move any page to another place, at any time: asked again so often.
const ATTEMPTS: u32 = 3;

/// Two words in one page, that nobody else has.
#[repr(align(16))]
struct Words([u64; 2]);

/// Has the program find the begin and keep it. Whether it did: else stacks are copied, which is as right, and slower.
pub(super) fn find(program: &ProgramMut<'_>) -> bool {
    let farthest = memory_end(&fs::read_to_string("/proc/zoneinfo").unwrap_or_default());
    if farthest == 0 || farthest > MOST || has_other_places() {
        return false;
    }
    (0..ATTEMPTS).any(|_| {
        let words = Box::new(Words([random(), random()]));
        let address = std::ptr::from_ref(black_box(&*words)).expose_provenance() as u64;
        let is_found = (0..=farthest).rev().step_by(TRIES as usize).any(|farthest| {
            let question = [address, words.0[0], words.0[1], farthest];
            let mut context: Vec<u8> = question.iter().flat_map(|word| word.to_ne_bytes()).collect();
            let input = ProgramInput { context_in: Some(&mut context), ..ProgramInput::default() };
            program.test_run(input).is_ok_and(|answer| answer.return_value == 1)
        });
        // Until here they are where they are.
        drop(black_box(words));
        is_found
    })
}

/// Whether tables have places that the kernel's own mapping does not count by: those of a guest of Xen without tables of its own.
fn has_other_places() -> bool {
    fs::read_to_string("/sys/hypervisor/guest_type").is_ok_and(|guest| guest.trim() == "PV")
}

/// GiB up to the end of memory, holes and all, by `/proc/zoneinfo`: the highest `start_pfn` and `spanned` of a zone. 0: not known.
fn memory_end(zones: &str) -> u64 {
    let mut spanned = 0;
    let mut end = 0;
    for line in zones.lines() {
        let mut words = line.split_ascii_whitespace();
        let (name, number) = (words.next(), words.next().and_then(|number| number.parse::<u64>().ok()));
        match (name, number) {
            (Some("spanned"), Some(pages)) => spanned = pages,
            (Some("start_pfn:"), Some(first)) if spanned > 0 => end = end.max(first.saturating_add(spanned)),
            _ => {}
        }
    }
    (end << PAGE_SHIFT).div_ceil(1 << BEGIN_SHIFT)
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
        assert_eq!(memory_end(zones), 25, "1048576 + 5505024 pages");
        assert_eq!(memory_end(""), 0);
        assert_eq!(memory_end("spanned 1\nstart_pfn: 0"), 1, "what is begun counts");
    }
}
