//! Rules from code of arm64: code that was assembled for it, and what the libraries of the cross compilers say of themselves.

use super::tests::{compare, print};
use super::*;
use crate::cpu_time;
use crate::object::headers::Arch;
use crate::unwind::convert;
use crate::unwind::debug_frame_files::Nowhere;
use crate::unwind::table::rule::{Cfa, Fp, Frame, Ra, Reg, Rule};
use crate::unwind::tests::elf_of;
use std::time::Duration;

/// Where the code is.
const BASE: u64 = 0x1_0000;

/// One function behind the other: `clang --target=aarch64-linux-gnu -c`, and `llvm-objdump -d`.
#[rustfmt::skip]
const CODE: &[u32] = &[
    // saves
    0xd503_233f, // 0: hint #25
    0xa9be_7bfd, // 4: stp x29, x30, [sp, #-32]!
    0x9100_03fd, // 8: mov x29, sp
    0xf900_0bf3, // c: str x19, [sp, #16]
    0xaa00_03f3, // 10: mov x19, x0
    0xb400_0040, // 14: cbz x0, 0x1c
    0x9400_0005, // 18: bl 0x2c
    0xf940_0bf3, // 1c: ldr x19, [sp, #16]
    0xa8c2_7bfd, // 20: ldp x29, x30, [sp], #32
    0xd503_23bf, // 24: hint #29
    0xd65f_03c0, // 28: ret
    // leaf
    0xb940_0001, // 2c: ldr w1, [x0]
    0x7100_0c3f, // 30: cmp w1, #3
    0x54ff_ffc8, // 34: b.hi 0x2c
    0x5280_0000, // 38: mov w0, #0
    0xd65f_03c0, // 3c: ret
    // large
    0xd280_0210, // 40: mov x16, #16
    0xf2a0_0030, // 44: movk x16, #1, lsl #16
    0xcb30_63ff, // 48: sub sp, sp, x16
    0xa900_7bfd, // 4c: stp x29, x30, [sp]
    0x97ff_fff7, // 50: bl 0x2c
    0xa940_7bfd, // 54: ldp x29, x30, [sp]
    0xd280_0210, // 58: mov x16, #16
    0xf2a0_0030, // 5c: movk x16, #1, lsl #16
    0x8b30_63ff, // 60: add sp, sp, x16
    0xd65f_03c0, // 64: ret
    // dynamic
    0xa9bf_7bfd, // 68: stp x29, x30, [sp, #-16]!
    0x9100_03fd, // 6c: mov x29, sp
    0xcb20_63ff, // 70: sub sp, sp, x0
    0x9100_03e0, // 74: mov x0, sp
    0x97ff_ffed, // 78: bl 0x2c
    0x9100_03bf, // 7c: mov sp, x29
    0xa8c1_7bfd, // 80: ldp x29, x30, [sp], #16
    0xd65f_03c0, // 84: ret
    // copies
    0xd100_c3ff, // 88: sub sp, sp, #48
    0xa902_7bfd, // 8c: stp x29, x30, [sp, #32]
    0x9100_83fd, // 90: add x29, sp, #32
    0xf900_07fe, // 94: str x30, [sp, #8]
    0x9100_23e0, // 98: add x0, sp, #8
    0x97ff_ffe4, // 9c: bl 0x2c
    0xa942_7bfd, // a0: ldp x29, x30, [sp, #32]
    0x9100_c3ff, // a4: add sp, sp, #48
    0xd65f_03c0, // a8: ret
    // switch
    0xf81f_0ffe, // ac: str x30, [sp, #-16]!
    0x7100_081f, // b0: cmp w0, #2
    0x5400_0128, // b4: b.hi 0xd8
    0x1000_0161, // b8: adr x1, #44
    0x3860_4820, // bc: ldrb w0, [x1, w0, uxtw]
    0x1000_0062, // c0: adr x2, #12
    0x8b20_8840, // c4: add x0, x2, w0, sxtb #2
    0xd61f_0000, // c8: br x0
    // one
    0x5280_0020, // cc: mov w0, #1
    0x1400_0002, // d0: b 0xd8
    // two
    0x5280_0040, // d4: mov w0, #2
    0xf841_07fe, // d8: ldr x30, [sp], #16
    0xd65f_03c0, // dc: ret
    0xd503_201f, // e0: nop
    // table
    0x0002_0200, // bytes: 0, 2, 2
    // clone
    0x927c_ec21, // e8: and x1, x1, #0xfffffffffffffff0
    0xa9bf_0c20, // ec: stp x0, x3, [x1, #-16]!
    0x2a02_03e0, // f0: mov w0, w2
    0xaa04_03e2, // f4: mov x2, x4
    0xaa05_03e3, // f8: mov x3, x5
    0xaa06_03e4, // fc: mov x4, x6
    0xd280_1b88, // 100: mov x8, #220
    0xd400_0001, // 104: svc #0
    0xb400_0040, // 108: cbz x0, 0x110
    0xd65f_03c0, // 10c: ret
    0xd280_001d, // 110: mov x29, #0
    0xa8c1_03e1, // 114: ldp x1, x0, [sp], #16
    0xd63f_0020, // 118: blr x1
    0xd280_0ba8, // 11c: mov x8, #93
    0xd400_0001, // 120: svc #0
    // fork
    0xa9bf_7bfd, // 124: stp x29, x30, [sp, #-16]!
    0xd280_0220, // 128: mov x0, #17
    0xd280_1b88, // 12c: mov x8, #220
    0xd400_0001, // 130: svc #0
    0x3500_0040, // 134: cbnz w0, 0x13c
    0x97ff_ffbd, // 138: bl 0x2c
    0xa8c1_7bfd, // 13c: ldp x29, x30, [sp], #16
    0xd65f_03c0, // 140: ret
    // bad
    0xa9bf_7bfd, // 144: stp x29, x30, [sp, #-16]!
    0xd65f_03c0, // 148: ret
    // good
    0x5280_0020, // 14c: mov w0, #1
    0xd65f_03c0, // 150: ret
    // sets
    0xa900_781d, // 154: stp x29, x30, [x0]
    0xd280_0000, // 158: mov x0, #0
    0xd65f_03c0, // 15c: ret
    // restores
    0xd280_1168, // 160: mov x8, #139
    0xd400_0001, // 164: svc #0
];

fn table_of(code: &[u32]) -> Table {
    let bytes: Vec<u8> = code.iter().flat_map(|word| word.to_le_bytes()).collect();
    convert(elf_of(183, &bytes).as_slice(), &Nowhere).unwrap()
}

fn rule(table: &Table, at: u64) -> Rule {
    table.lookup(BASE + at).rule(Arch::Aarch64).unwrap()
}

/// Returns the CFA, the place of the return address from it, and the frame pointer.
fn frame(table: &Table, at: u64) -> (Cfa, Ra, Fp) {
    match rule(table, at) {
        Rule::Frame(Frame { cfa, ra, fp, .. }) => (cfa, ra, fp),
        other => panic!("{at:#x}: {other:?}"),
    }
}

const fn sp(size: i32) -> Cfa {
    Cfa::Register(Reg(31), size)
}

const fn x29(size: i32) -> Cfa {
    Cfa::Register(Reg(29), size)
}

/// At a function's begin, and wherever it has saved nothing.
const NOTHING: (Cfa, Ra, Fp) = (sp(0), Ra::Register(Reg(30)), Fp::Unchanged);

#[test]
fn what_is_saved_is_found_where_it_is() {
    let table = table_of(CODE);
    for at in [0, 4, 0x24, 0x28] {
        assert_eq!(frame(&table, at), NOTHING, "{at:#x}");
    }
    assert_eq!(frame(&table, 0x8), (sp(32), Ra::AtCfa(-24), Fp::Unchanged));
    for at in (0xc..=0x20).step_by(4) {
        assert_eq!(frame(&table, at), (x29(32), Ra::AtCfa(-24), Fp::AtCfa(-32)), "{at:#x}");
    }
    // A loop, as in the vDSO: every address has the same rule.
    for at in (0x2c..=0x3c).step_by(4) {
        assert_eq!(frame(&table, at), NOTHING, "{at:#x}");
    }
    // A frame that no instruction has a number for.
    assert_eq!(frame(&table, 0x48), NOTHING);
    assert_eq!(frame(&table, 0x4c), (sp(0x1_0010), Ra::Register(Reg(30)), Fp::Unchanged));
    assert_eq!(frame(&table, 0x50), (sp(0x1_0010), Ra::AtCfa(-0x1_0008), Fp::Unchanged));
    assert_eq!(frame(&table, 0x64), NOTHING);
}

#[test]
fn the_frame_pointer_finds_a_frame_of_any_size() {
    let table = table_of(CODE);
    for at in (0x70..=0x80).step_by(4) {
        assert_eq!(frame(&table, at), (x29(16), Ra::AtCfa(-8), Fp::AtCfa(-16)), "{at:#x}");
    }
    assert_eq!(frame(&table, 0x84), NOTHING);
}

#[test]
fn of_two_copies_of_the_return_address_that_in_the_frame_record_counts() {
    // The address of the other copy is handed out.
    assert_eq!(frame(&table_of(CODE), 0x9c), (x29(16), Ra::AtCfa(-8), Fp::AtCfa(-16)));
}

#[test]
fn tables_of_bytes_are_followed() {
    let table = table_of(CODE);
    for at in [0xc8, 0xcc, 0xd4, 0xd8] {
        assert_eq!(frame(&table, at), (sp(16), Ra::AtCfa(-16), Fp::Unchanged), "{at:#x}");
    }
    // Without the comparison before it a table has no length.
    let mut code = CODE.to_vec();
    code[0xb4 / 4] = 0xd503_201f;
    let other = table_of(&code);
    assert_eq!(rule(&other, 0xd4), Rule::Gap);
    assert_eq!(frame(&other, 0x2c), NOTHING);
}

#[test]
fn a_thread_begins_behind_clone_and_a_fork_goes_on() {
    let table = table_of(CODE);
    assert_eq!(frame(&table, 0x108), NOTHING);
    // A return address is looked up at the call's last byte.
    assert_eq!([0x110, 0x114, 0x11b, 0x120].map(|at| rule(&table, at)), [Rule::Root; 4]);
    for at in [0x134, 0x138, 0x13c] {
        assert_eq!(frame(&table, at), (sp(16), Ra::AtCfa(-8), Fp::Unchanged), "{at:#x}");
    }
}

#[test]
fn what_contradicts_itself_or_is_no_instruction_stays_a_gap() {
    let table = table_of(CODE);
    assert_eq!([0x144, 0x148].map(|at| rule(&table, at)), [Rule::Gap; 2]);
    assert_eq!(frame(&table, 0x14c), NOTHING);
    // An instruction of no group may do anything.
    let mut code = CODE.to_vec();
    code[0xc / 4] = 0x0200_0000;
    let other = table_of(&code);
    assert_eq!(rule(&other, 0), Rule::Gap);
    assert_eq!(frame(&other, 0x2c), NOTHING);
}

#[test]
fn the_instruction_before_a_return_from_a_signal_handler_is_whole() {
    // Its rule begins a byte before the code, in that instruction.
    let table = table_of(CODE);
    assert_eq!([0x154, 0x15c].map(|at| frame(&table, at)), [NOTHING; 2]);
    assert_eq!([0x15f, 0x160].map(|at| rule(&table, at)), [Rule::Signal; 2]);
}

#[test]
fn any_words_are_followed_in_time_in_proportion_to_them() {
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let some = [0x5400_0000, 0x9400_0000, 0xa9bf_7bfd, 0xa8c1_7bfd, 0xd65f_03c0, 0x1400_0000, 0xb400_0000, 0];
    let code: Vec<u32> = (0..1 << 16)
        .map(|_| {
            random = random.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
            let (word, wild) = (some[(random >> 56) as usize % some.len()], (random >> 24) as u32);
            // Near branches, and now and then anything.
            if random >> 52 & 15 == 0 { wild } else { word | if word << 8 == 0 { wild & 0xfff0 } else { 0 } }
        })
        .collect();
    let begin = cpu_time::of_this_thread();
    table_of(&code);
    assert!(cpu_time::since(begin) < Duration::from_secs(5), "{:?}", cpu_time::since(begin));
}

/// The libraries that guests of `tests/vm` run with, which have unwind information: `tests/vm/build arm64` puts them there.
#[test]
#[ignore = "needs what make test-vm makes"]
fn code_of_arm64_says_what_unwind_information_says() {
    let libraries = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("target/vm/arm64/root/usr/lib/aarch64-linux-gnu");
    for name in ["libc.so.6", "libm.so.6", "libgcc_s.so.1", "libstdc++.so.6", "ld-linux-aarch64.so.1"] {
        let (path, begin) = (libraries.join(name), std::time::Instant::now());
        let compared = compare(&path);
        print(&path, &compared, begin.elapsed());
        // glibc says of `_Fork` that x0 has the return address, at two places; it is where it was saved, too.
        let is_there_too = |what: &String| name == "libc.so.6" && what.contains("ra: Register(Reg(0))");
        // glibc 2.43 says of `_dl_tlsdesc_dynamic` that a frame is gone one instruction after it went: at `autiasp` before its return.
        let is_late = |what: &String| {
            name == "ld-linux-aarch64.so.1" && what.contains("cfa: Register(Reg(31), 32)") && what.contains("sp: Some(0)")
        };
        let is_known = |what: &&String| is_there_too(what) || is_late(what);
        let (known, unknown): (Vec<_>, Vec<_>) = compared.different.iter().partition(is_known);
        assert_eq!(unknown, Vec::<&String>::new(), "{name}");
        assert!(known.len() <= 2 && compared.equal > 500 && compared.silent < 100, "{name}: {compared:?}");
        assert!(compared.proved as f64 > compared.functions as f64 * 0.9, "{name}: {compared:?}");
    }
}
