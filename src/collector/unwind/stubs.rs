//! Code that is known by its bytes where no description covers it: stubs of the linkage table, entry points, returns from
//! signal handlers.

use super::elf::{Elf, SectionHeader};
use super::rule::{Arch, Cfa, Fp, Frame, Packed, Ra, Rbx, Reg, Rule};
use super::source::Image;

/// Code and the rules that hold in it, each from its address on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Block {
    pub(super) source: &'static str,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) rows: Vec<(u64, Packed)>,
}

/// `mov rax, 15 (rt_sigreturn); syscall`: what `__restore_rt` is in glibc and musl, and what gdb tells it by.
const RESTORER_X86_64: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
/// `mov x8, 139 (rt_sigreturn); svc 0`: `__kernel_rt_sigreturn` of the vDSO, and musl's.
const RESTORER_AARCH64: [u8; 8] = [0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4];

/// Linkage tables larger than this are not looked at: 2 million stubs.
const LARGEST_PLT: u64 = 32 << 20;

fn restorer(arch: Arch) -> &'static [u8] {
    match arch {
        Arch::X86_64 => &RESTORER_X86_64,
        Arch::Aarch64 => &RESTORER_AARCH64,
    }
}

/// Whether a description that begins at `start` is of the kernel's return from a signal handler. It begins some bytes
/// before the code: the return address of a handler is looked up one byte before, so C libraries put a nop there.
pub(super) fn is_restorer(elf: &Elf, image: &(impl Image + ?Sized), start: u64) -> bool {
    let mut code = [0; 24];
    let Some(offset) = elf.file_offset(start) else { return false };
    let length = image.length().saturating_sub(offset).min(code.len() as u64) as usize;
    let Some(code) = code.get_mut(..length) else { return false };
    image.read_exact_at(offset, code).is_ok() && memchr::memmem::find(code, restorer(elf.arch)).is_some_and(|at| at <= 8)
}

/// All that is known by its bytes, sorted by nothing; descriptions win over it.
pub(super) fn find(elf: &Elf, image: &(impl Image + ?Sized)) -> Vec<Block> {
    let mut blocks = Vec::new();
    if elf.arch == Arch::X86_64 {
        for name in [".plt", ".plt.got", ".plt.sec", ".iplt"] {
            let section = elf.section(name).filter(|section| section.size <= LARGEST_PLT);
            blocks.extend(section.and_then(|section| plt(section, &elf.bytes(image, section).ok()?)));
        }
    }
    blocks
}

fn frame(size: i32) -> Packed {
    let cfa = Cfa::Register(Reg(7), size);
    let frame = Frame { cfa, ra: Ra::AtCfa(-8), fp: Fp::Unchanged, rbx: Rbx::Unknown, interrupted: false };
    Packed::new(Rule::Frame(frame), Arch::X86_64).unwrap_or(Packed::GAP)
}

/// The rules in a linkage table: what is pushed, by the instructions that linkers put there. lld describes none of it.
///
/// ```text
/// first stub, lazy:   push [got+8]; jmp [got+16]               CFA = rsp + 16, then + 24
/// lazy:               jmp [got+n]; push n; jmp first           CFA = rsp + 8, from byte 11 on + 16
/// lazy, with IBT:     endbr64; push n; (bnd) jmp first         the same, from byte 9 on
/// others:             (endbr64;) (bnd) jmp [got+n]; nop        CFA = rsp + 8
/// ```
fn plt(section: &SectionHeader, code: &[u8]) -> Option<Block> {
    if section.address % 16 != 0 {
        return None;
    }
    let end = section.address.checked_add(code.len() as u64)?;
    let pushed = |pushed| Packed::new(Rule::Plt { pushed }, Arch::X86_64);
    let mut rows = Vec::new();
    for (stub, address) in code.chunks(16).zip((section.address..).step_by(16)) {
        match stub {
            [0xff, 0x35, ..] => rows.extend([(address, frame(16)), (address.checked_add(6)?, frame(24))]),
            [0xff, 0x25, _, _, _, _, 0x68, ..] => rows.push((address, pushed(11)?)),
            [0xf3, 0x0f, 0x1e, 0xfa, 0x68, ..] => rows.push((address, pushed(9)?)),
            _ => rows.push((address, frame(8))),
        }
    }
    Some(Block { source: ".plt", start: section.address, end, rows })
}
