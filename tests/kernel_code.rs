//! Code of the running kernel and its modules, as flametop reads it to show instructions. It is compared with the bytes in
//! `/proc/kcore`, for functions that `/proc/kallsyms` lists.
//!
//! Needs root. Where the kernel offers no `/proc/kcore` (as on our build machines) the test says so; kernels in the guests of
//! `tests/vm` offer it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "common/mod.rs"]
mod common;

use std::fs::File;

use common::root_or_fail;
use flametop::collector::KernelNames;
use object::read::elf::ElfFile64;
use object::read::{ReadCache, ReadRef};
use object::{Endianness, Object, ObjectSegment};

/// One in this many of the kernel's own functions is compared; of modules, every function.
const STEP: usize = 97;

#[test]
fn code_is_that_of_kcore() {
    root_or_fail();
    let Ok(file) = File::open("/proc/kcore") else {
        println!("NOT TESTED: this kernel offers no /proc/kcore");
        return;
    };
    let cache = ReadCache::new(file);
    let core = ElfFile64::<Endianness, _>::parse(&cache).unwrap();
    let segments: Vec<(u64, u64, u64)> =
        core.segments().map(|segment| (segment.address(), segment.size(), segment.file_range().0)).collect();
    let in_core = |start: u64, length: u64| {
        let (from, _, offset) = segments.iter().find(|(from, size, _)| (*from..from.saturating_add(*size)).contains(&start))?;
        cache.read_bytes_at(offset + (start - from), length).ok().map(<[u8]>::to_vec)
    };

    let text = std::fs::read_to_string("/proc/kallsyms").unwrap();
    let mut starts: Vec<(u64, bool)> = Vec::new();
    for line in text.lines() {
        if let [address, "t" | "T", _, owner @ ..] = line.split_whitespace().collect::<Vec<_>>().as_slice() {
            starts.push((u64::from_str_radix(address, 16).unwrap(), owner.first().is_some_and(|owner| *owner != "[bpf]")));
        }
    }
    starts.sort_unstable();
    starts.dedup();
    let chosen = starts.iter().enumerate().filter(|(at, (_, of_module))| *of_module || at % STEP == 0).map(|(_, start)| *start);

    let mut kernel = KernelNames::load().unwrap();
    let (mut compared, mut of_modules) = (0, 0);
    for (start, of_module) in chosen {
        let Some(symbol) = kernel.symbols(&[start]).unwrap().remove(0) else { continue };
        let length = (symbol.addresses.end - symbol.addresses.start).min(64 << 10);
        if symbol.addresses.start != start || symbol.module.is_some() != of_module {
            continue;
        }
        // A module's initialisation code, which is freed after loading, and the start of the kernel cannot be read in either way.
        let Some(ours) = kernel.code(start..start + length).unwrap() else { continue };
        let Some(theirs) = in_core(start, length) else { continue };
        // The kernel writes over its code while it runs: between the two readings, once.
        let mut again = || kernel.code(start..start + length).unwrap().unwrap();
        assert!(ours == theirs || again() == theirs, "{} at {start:#x}, {length} bytes", symbol.name);
        compared += 1;
        of_modules += usize::from(of_module);
    }
    assert!(compared > 300, "only {compared} could be compared");
    let modules = std::fs::read_to_string("/proc/modules").unwrap_or_default();
    assert!(of_modules > 0 || modules.trim().is_empty(), "none of modules, which there are:\n{modules}");
    println!("{compared} functions compared, {of_modules} of modules");
}
