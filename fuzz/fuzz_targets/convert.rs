//! Converts unwind information from arbitrary bytes. flametop does this as root for files of all users' processes. It must not panic or
//! overflow, rows must be in order, and memory and time must be in proportion to the input.
//!
//! Input that begins like an ELF file is used as a file. Other input is one section, put into an ELF file without other sections: see
//! [`Wrapped`].
#![no_main]

use flametop::unwind::{ReadAt, Nowhere, Packed, Paged, Table, convert};
use flametop_fuzz::{Wrapped, make_seeds};
use libfuzzer_sys::fuzz_target;

// With FLAMETOP_SEEDS=DIRECTORY and a list of files on standard input, it only makes seeds. It is part of this program, so that
// only one program has to be built.
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

/// Checks the properties of a table that the walk in the kernel depends on.
fn promises(table: &Table) {
    assert!(table.rows.windows(2).all(|pair| pair[0].offset < pair[1].offset), "rows are not in order");
    assert!(table.rows.iter().all(|row| usize::from(row.rule) < table.rules.len()), "a row without a rule");
    assert!(table.rules.len() <= 1 << 16, "{} rules", table.rules.len());
    if let Some(last) = table.rows.last() {
        assert_eq!(table.rules[usize::from(last.rule)], Packed::GAP, "the last row is no gap");
    }
    let paged = Paged::new(table);
    // Up to about 256 rows from all parts of the table, which take hardly any time.
    for row in table.rows.iter().step_by(table.rows.len() / 256 + 1) {
        for address in [u64::from(row.offset).saturating_sub(1), u64::from(row.offset), u64::from(row.offset) + 1] {
            let Some(address) = table.base.checked_add(address) else { continue };
            let rule = paged.lookup(address).and_then(|rule| table.rules.get(usize::from(rule))).copied();
            assert_eq!(rule.unwrap_or(Packed::GAP), table.lookup(address), "{address:#x}: the kernel finds another rule");
        }
    }
}
