//! Compares the quick way with the thorough one, and its decoder with iced-x86.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory, OpAccess, Register};

use super::*;
use crate::unwind::machine_code::quick_frame::{RBP, RBX, SLOTS};
use crate::unwind::machine_code::state::Facts;
use crate::unwind::machine_code::{Findings, of_ranges};
use crate::unwind::sections::Elf;
use crate::unwind::table::rule::{Frame as RuleFrame, Rule};

thread_local! {
    /// Nothing is plain.
    pub(crate) static THOROUGHLY: Cell<bool> = const { Cell::new(false) };
}

/// C, C++, assembly, and Rust.
fn files() -> Vec<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mapped = maps.lines().filter_map(|line| line.split_whitespace().nth(5)).map(PathBuf::from);
    let mut files: Vec<PathBuf> = mapped.filter(|path| path.to_string_lossy().contains(".so")).collect();
    files.extend(["sh", "bash", "readelf", "gcc"].map(|name| Path::new("/usr/bin").join(name)));
    files.extend([PathBuf::from("/usr/lib/x86_64-linux-musl/libc.so")]);
    files.retain(|path| path.is_file());
    files.sort();
    files.dedup();
    files
}

#[test]
fn the_quick_way_finds_what_the_thorough_way_finds() {
    for path in files() {
        let bytes = std::fs::read(&path).unwrap();
        let elf = Elf::read(bytes.as_slice()).unwrap();
        if elf.arch != Arch::X86_64 {
            return;
        }
        let found = |thoroughly| {
            THOROUGHLY.set(thoroughly);
            let found = of_ranges(&elf, bytes.as_slice(), &elf.code(), true);
            THOROUGHLY.set(false);
            found
        };
        let (quick, thorough) = (found(false), found(true));
        let proved = |found: &Findings| found.functions.iter().filter(|(_, failed)| failed.is_none()).count();
        let (ours, theirs) = (proved(&quick), proved(&thorough));
        println!("{}: {ours} and {theirs} functions, {} and {} rows", path.display(), quick.rows.len(), thorough.rows.len());
        assert!(ours * 1000 >= theirs * 995, "{}: {ours} and {theirs} functions", path.display());
        // If both know a rule, it is the same. One difference is allowed: the quick way may have lost a frame pointer that was
        // saved in the frame itself.
        let agree = |ours: Option<Facts>, theirs: Option<Facts>| match (ours, theirs) {
            (Some(ours), Some(theirs)) => match (ours.rule, theirs.rule) {
                (Rule::Frame(our), Rule::Frame(their)) if ours.fp.is_none() && theirs.fp.is_some() => {
                    ours.sp == theirs.sp && RuleFrame { cfa: our.cfa, ..their } == our
                }
                (our, their) => our == their,
            },
            _ => true,
        };
        let mut others = thorough.rows.iter().map(|(_, row)| row).filter(|row| row.facts.is_some()).peekable();
        let mut different = Vec::new();
        for (_, row) in quick.rows.iter().filter(|(_, row)| row.facts.is_some()) {
            while others.next_if(|other| other.end <= row.start).is_some() {}
            if let Some(other) = others.peek().filter(|other| other.start < row.end)
                && !agree(row.facts, other.facts)
            {
                different.push((*row, **other));
            }
        }
        assert!(different.is_empty(), "{}: {} rows, as {:?}", path.display(), different.len(), different.first());
    }
}

#[test]
fn instructions_are_as_long_and_write_as_much_as_iced_says() {
    let (mut factory, mut quick, mut compared) = (InstructionInfoFactory::new(), Quick::new(), 0);
    let registers: [Value; 16] = std::array::from_fn(|register| Value::Number(1000 + register as u64));
    let mut before =
        Frame { registers, slots: [RBX as u8; SLOTS], compared: None, limit: None, is_changed: false, is_lost: false };
    (before.registers[RSP], before.registers[RBP]) = (Value::Stack(-96), Value::Stack(-67));
    let writes = |access| matches!(access, OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite);
    for path in files() {
        let bytes = std::fs::read(&path).unwrap();
        let elf = Elf::read(bytes.as_slice()).unwrap();
        for range in elf.code().into_iter().filter(|_| elf.arch == Arch::X86_64) {
            let offset = elf.file_offset(range.start).unwrap() as usize;
            let code = &bytes[offset..offset + (range.end - range.start) as usize];
            let mut decoder = Decoder::with_ip(64, code, range.start, DecoderOptions::NONE);
            while decoder.can_decode() {
                let at = decoder.position();
                let instruction = decoder.decode();
                let mut frame = before.clone();
                let (step, length) = quick.step(&code[at..], instruction.ip(), &mut frame);
                quick.references.clear();
                if step == Step::Hard || instruction.is_invalid() {
                    assert!(step == Step::Hard || instruction.is_invalid(), "{instruction}");
                    continue;
                }
                compared += 1;
                assert_eq!(length, instruction.len(), "{:#x}: {instruction} of {}", instruction.ip(), path.display());
                let info = factory.info(&instruction);
                for used in info.used_registers().iter().filter(|used| writes(used.access()) && used.register().is_gpr()) {
                    let register = used.register().full_register().number();
                    let is_moved = instruction.op_count() == 2 && instruction.op0_register() == instruction.op1_register();
                    let is_kept = register != RSP && frame.registers[register] == before.registers[register];
                    let is_leaf = matches!(step, Step::Call(_) | Step::Return);
                    assert!(!is_kept || is_moved || is_leaf, "{:#x}: {instruction} of {}", instruction.ip(), path.display());
                }
                let stored = info.used_memory().iter().filter(|used| writes(used.access()) && used.index() == Register::None);
                for used in stored.filter(|used| !matches!(used.segment(), Register::FS | Register::GS)) {
                    let base = match used.base() {
                        Register::RSP => -96,
                        Register::RBP => -67,
                        _ => continue,
                    };
                    let place = base + used.displacement() as i64;
                    let slot = usize::try_from(-(place.div_euclid(8)) - 1).ok().and_then(|slot| frame.slots.get(slot));
                    let is_barrier = matches!(instruction.try_immediate(1), Ok(0)) && instruction.has_lock_prefix();
                    // xsave does not say how much it writes.
                    let is_leaf = matches!(step, Step::Call(_)) || is_barrier || used.memory_size().size() == 0;
                    assert!(
                        is_leaf || slot != Some(&(RBX as u8)),
                        "{:#x}: {instruction} of {}",
                        instruction.ip(),
                        path.display()
                    );
                }
            }
        }
    }
    assert!(compared > 100_000, "{compared}");
}
