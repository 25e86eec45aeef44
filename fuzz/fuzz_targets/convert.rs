//! The converter of unwind information, which reads files of anybody's processes as root, on any bytes at all: no panic, no
//! overflow, no row out of order, memory and time in proportion to the input.
//!
//! Input that begins as an ELF file is one. Other input is one section, put into an ELF file that has nothing else: see
//! [`Wrapped`].
#![no_main]

use flametop::unwind::{ReadAt, Nowhere, Packed, Paged, Table, convert};
use flametop_fuzz::{Wrapped, make_seeds};
use libfuzzer_sys::fuzz_target;

// FLAMETOP_SEEDS=DIRECTORY and a list of files on standard input: seeds are made, and that is all. In this program, so that
// there is one thing to build.
fuzz_target!(init: make_seeds(), |bytes: &[u8]| {
    if bytes.starts_with(b"\x7fELF") {
        check(bytes);
    } else if let Some(wrapped) = Wrapped::read(bytes) {
        check(&wrapped);
    }
});

fn check(image: &(impl ReadAt + ?Sized)) {
    if let Ok(table) = convert(image, &Nowhere) {
        promises(&table);
    }
}

/// What the walk in the kernel depends on.
fn promises(table: &Table) {
    assert!(table.rows.windows(2).all(|pair| pair[0].offset < pair[1].offset), "rows are not in order");
    assert!(table.rows.iter().all(|row| usize::from(row.rule) < table.rules.len()), "a row without a rule");
    assert!(table.rules.len() <= 1 << 16, "{} rules", table.rules.len());
    if let Some(last) = table.rows.last() {
        assert_eq!(table.rules[usize::from(last.rule)], Packed::GAP, "the last row is no gap");
    }
    let paged = Paged::new(table);
    // As many as take no time, all over the table.
    for row in table.rows.iter().step_by(table.rows.len() / 256 + 1) {
        for address in [u64::from(row.offset).saturating_sub(1), u64::from(row.offset), u64::from(row.offset) + 1] {
            let Some(address) = table.base.checked_add(address) else { continue };
            let rule = paged.lookup(address).and_then(|rule| table.rules.get(usize::from(rule))).copied();
            assert_eq!(rule.unwrap_or(Packed::GAP), table.lookup(address), "{address:#x}: the kernel finds another rule");
        }
    }
}
