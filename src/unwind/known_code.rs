//! Finds code by its bytes where no description covers it: stubs of the linkage table, entry points, returns from signal
//! handlers.

use super::sections::Elf;
use super::table::packed::Packed;
use super::table::rule::{Cfa, Fp, Frame, Ra, Rbx, Reg, Rule};
use crate::object::headers::Arch;
use crate::object::read_at::{ReadAt, read};
use crate::unwind::table::block::Block;

/// `mov rax, 15 (rt_sigreturn); syscall`: the code of `__restore_rt` in glibc and musl. gdb recognises it by these bytes.
const RESTORER_X86_64: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
/// `mov x8, 139 (rt_sigreturn); svc 0`: `__kernel_rt_sigreturn` of the vDSO, and musl's.
const RESTORER_AARCH64: [u8; 8] = [0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4];

/// Larger linkage tables are ignored. This is room for 2 million stubs.
const LARGEST_PLT: u64 = 32 << 20;

/// Largest code that is searched for returns from signal handlers: enough for musl, alone or linked statically. Code that runs is
/// in memory already; searching it takes a millisecond.
const LARGEST_SEARCHED: u64 = 16 << 20;
const MOST_RESTORERS: usize = 16;

/// `.init` has some 30 bytes; code that calls constructors the old way may have more.
const LARGEST_INIT: u64 = 4096;

fn restorer(arch: Arch) -> &'static [u8] {
    match arch {
        Arch::X86_64 => &RESTORER_X86_64,
        Arch::Aarch64 => &RESTORER_AARCH64,
    }
}

/// Returns whether a description that begins at `start` covers the kernel's return from a signal handler. It begins some bytes
/// before the code: the return address of a handler is looked up one byte before, so C libraries put a nop there.
pub(crate) fn is_restorer(elf: &Elf, image: &(impl ReadAt + ?Sized), start: u64) -> bool {
    let mut code = [0; 24];
    let Some(offset) = elf.file_offset(start) else { return false };
    let length = image.length().saturating_sub(offset).min(code.len() as u64) as usize;
    let Some(code) = code.get_mut(..length) else { return false };
    image.read_exact_at(offset, code).is_ok() && memchr::memmem::find(code, restorer(elf.arch)).is_some_and(|at| at <= 8)
}

/// Finds returns from signal handlers in code without a description: musl's. A description, if there is one, wins.
fn restorers(elf: &Elf, image: &(impl ReadAt + ?Sized)) -> Vec<Block> {
    let mut blocks = Vec::new();
    let Some(signal) = Packed::new(Rule::Signal, elf.arch) else { return blocks };
    let pattern = restorer(elf.arch);
    for segment in elf.segments.iter().filter(|segment| segment.executable && segment.size <= LARGEST_SEARCHED) {
        let Ok(code) = read(image, segment.offset, segment.size, LARGEST_SEARCHED, "code") else { continue };
        for at in memchr::memmem::find_iter(&code, pattern).take(MOST_RESTORERS) {
            // A handler returns to the first byte, and return addresses are looked up one byte before.
            let Some(start) = segment.address.checked_add(at as u64).and_then(|start| start.checked_sub(1)) else { continue };
            let end = start + 1 + pattern.len() as u64;
            blocks.push(Block { source: "rt_sigreturn", wins: false, start, end, rows: vec![(start, signal)] });
        }
    }
    blocks
}

/// Returns all code that is known without descriptions, unsorted. Go's own table knows more than the descriptions that Go writes
/// for debuggers; otherwise descriptions win.
pub(crate) fn find(elf: &Elf, image: &(impl ReadAt + ?Sized)) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    blocks.extend(entry(elf, image));
    blocks.extend(restorers(elf, image));
    if elf.arch == Arch::Aarch64 {
        blocks.extend(linkage_aarch64(elf, image));
    } else {
        for name in [".plt", ".plt.got", ".plt.sec", ".iplt"] {
            let section = elf.section(name).filter(|section| section.size <= LARGEST_PLT);
            blocks.extend(section.and_then(|section| plt(section.address, &elf.bytes(image, section).ok()?)));
        }
        for name in [".init", ".fini"] {
            let section = elf.section(name).filter(|section| section.size <= LARGEST_INIT);
            blocks.extend(section.and_then(|section| init(section.address, &elf.bytes(image, section).ok()?)));
        }
    }
    blocks
}

/// Returns the code that links functions on arm64.
///
/// ```text
/// .plt:   stp x16, x30, [sp, -16]!; …; br x17    CFA = sp, from the second instruction on sp + 16 with RA = *(CFA − 8)
///         adrp x16, …; ldr x17, …; add x16, …; br x17                  CFA = sp, RA in x30
/// ```
///
/// The first stub jumps to the dynamic linker's `_dl_runtime_resolve`. Its description takes the words pushed by the stub for its
/// caller's:
///
/// ```text
/// (bti c;) stp x8, x9, [sp, -n]!; …    CFA = sp + 16, then + n
/// ldp x8, x9, [sp], n                  CFA = sp + n + 16
/// ldp x17, x30, [sp], 16; br x16       CFA = sp + 16, then sp with RA in x30
/// ```
fn linkage_aarch64(elf: &Elf, image: &(impl ReadAt + ?Sized)) -> Vec<Block> {
    let mut blocks = Vec::new();
    for name in [".plt", ".iplt", ".plt.got"] {
        let section = elf.section(name).filter(|section| section.size <= LARGEST_PLT);
        if let Some((section, code)) = section.and_then(|section| Some((section, elf.bytes(image, section).ok()?))) {
            blocks.extend(plt_aarch64(section.address, &words(&code)));
        }
    }
    for segment in elf.segments.iter().filter(|segment| segment.executable && segment.size <= LARGEST_SEARCHED) {
        let Ok(code) = read(image, segment.offset, segment.size, LARGEST_SEARCHED, "code") else { continue };
        blocks.extend(resolver_aarch64(segment.address, &code));
    }
    blocks
}

fn words(code: &[u8]) -> Vec<u32> {
    code.chunks_exact(4).filter_map(|word| word.first_chunk()).map(|word| u32::from_le_bytes(*word)).collect()
}

/// Returns the rule `CFA = sp + size`. The return address is in the word below the CFA, or in x30 where nothing was pushed.
fn frame_aarch64(size: i32) -> Packed {
    let ra = if size == 0 { Ra::Register(Reg(30)) } else { Ra::AtCfa(-8) };
    let cfa = Cfa::Register(Arch::Aarch64.sp(), size);
    let frame = Frame { cfa, ra, fp: Fp::Unchanged, rbx: Rbx::Unknown, interrupted: false, skips: false };
    Packed::new(Rule::Frame(frame), Arch::Aarch64).unwrap_or(Packed::GAP)
}

fn plt_aarch64(start: u64, code: &[u32]) -> Option<Block> {
    let end = start.checked_add(4 * code.len() as u64)?;
    let mut rows = vec![(start, frame_aarch64(0))];
    // Only the first stub pushes; it has 32 bytes. With branch protection there is a bti before.
    if let Some(at) = code.iter().take(2).position(|word| *word == 0xa9bf_7bf0) {
        rows.push((start.checked_add(4 * at as u64 + 4)?, frame_aarch64(16)));
        rows.push((start.checked_add(32)?.min(end), frame_aarch64(0)));
    }
    rows.retain(|(address, _)| *address < end);
    Some(Block { source: ".plt", wins: false, start, end, rows })
}

fn resolver_aarch64(address: u64, code: &[u8]) -> Option<Block> {
    let end = memchr::memmem::find(code, &[0xf1, 0x7b, 0xc1, 0xa8, 0x00, 0x02, 0x1f, 0xd6])?;
    let begin = end.checked_sub(160)?;
    let before = words(code.get(begin..end)?);
    // ldp x8, x9, [sp], n and stp x8, x9, [sp, -n]!: n is in bits 15 to 21, in words of 8 bytes.
    let size = before.last().filter(|word| **word & 0xffc0_7fff == 0xa8c0_27e8).map(|word| word >> 15 & 0x3f)?;
    let size = i32::try_from(size * 8).ok()?.checked_add(16)?;
    let save = before.iter().rposition(|word| *word & 0xffc0_7fff == 0xa980_27e8)?;
    let protected = save.checked_sub(1).and_then(|at| before.get(at)).is_some_and(|word| *word == 0xd503_245f);
    let at = |offset: usize| address.checked_add((begin + offset) as u64);
    let start = at(4 * (save - usize::from(protected)))?;
    let end = at(168)?;
    let rows = vec![
        (start, frame_aarch64(16)),
        (at(4 * save + 4)?, frame_aarch64(size)),
        (at(160)?, frame_aarch64(16)),
        (at(164)?, frame_aarch64(0)),
    ];
    Some(Block { source: "_dl_runtime_resolve", wins: true, start, end, rows })
}

/// The program's entry, if it is assembly that clears the frame pointer and continues to C. It has no caller.
///
/// ```text
/// x86_64 (musl):        xor rbp, rbp; mov rdi, rsp; lea rsi, …; and rsp, -16; call …
/// arm64 (musl, glibc):  mov x29, 0; mov x30, 0; mov x0, sp; …; b or bl …
/// x86_64 (glibc's dynamic linker):  mov rdi, rsp; call _dl_start; …; call _dl_init; …; jmp r12
/// ```
///
/// It ends behind its call or jump. The called function returns to that byte, and return addresses are looked up one byte before.
fn entry(elf: &Elf, image: &(impl ReadAt + ?Sized)) -> Option<Block> {
    let mut code = [0; 80];
    let offset = elf.file_offset(elf.entry)?;
    let length = usize::try_from(image.length().saturating_sub(offset)).ok()?.min(code.len());
    let code = code.get_mut(..length)?;
    image.read_exact_at(offset, code).ok()?;
    let length = match elf.arch {
        Arch::X86_64 => entry_x86_64(code)?,
        Arch::Aarch64 => entry_aarch64(code)?,
    };
    let (start, root) = (elf.entry, Packed::new(Rule::Root, elf.arch)?);
    // glibc for arm64 says only behind the first instruction that there is no caller.
    let wins = elf.arch == Arch::Aarch64;
    Some(Block { source: "entry", wins, start, end: start.checked_add(length)?, rows: vec![(start, root)] })
}

fn entry_x86_64(code: &[u8]) -> Option<u64> {
    if code.starts_with(&[0x48, 0x89, 0xe7, 0xe8]) {
        let jump = memchr::memmem::find(code, &[0x41, 0xff, 0xe4])?;
        return Some(jump as u64 + 3);
    }
    let mut rest = code;
    // `endbr64`, then `xor ebp, ebp` or `xor rbp, rbp`.
    rest = rest.strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa]).unwrap_or(rest);
    rest = rest.strip_prefix(&[0x31, 0xed]).or_else(|| rest.strip_prefix(&[0x48, 0x31, 0xed]))?;
    loop {
        let length = match rest {
            // call, jmp: the end, and the one byte that a callee returns to.
            [0xe8 | 0xe9, _, _, _, _, ..] => return Some((code.len() - rest.len() + 6) as u64),
            // mov or xor between registers; and rsp, -16; lea from rip
            [0x48 | 0x49 | 0x45 | 0x4c, 0x89 | 0x31, _, ..] => 3,
            [0x48, 0x83, 0xe4, 0xf0, ..] => 4,
            [0x48 | 0x4c, 0x8d, 0x05 | 0x0d | 0x15 | 0x35 | 0x3d, ..] => 7,
            [0x31, _, ..] => 2,
            _ => return None,
        };
        rest = rest.get(length..)?;
    }
}

fn entry_aarch64(code: &[u8]) -> Option<u64> {
    let mut words = code.chunks_exact(4).filter_map(|word| word.first_chunk()).map(|word| u32::from_le_bytes(*word)).peekable();
    let mut length = 0;
    // bti c
    if words.next_if_eq(&0xd503_245f).is_some() {
        length += 4;
    }
    // mov x29, 0; mov x30, 0
    if (words.next()?, words.next()?) != (0xd280_001d, 0xd280_001e) {
        return None;
    }
    length += 8;
    for word in words {
        length += 4;
        // b, bl
        if word >> 26 & 0x1f == 5 {
            return Some(length + 1);
        }
    }
    None
}

fn frame(size: i32) -> Packed {
    let cfa = Cfa::Register(Reg(7), size);
    let frame = Frame { cfa, ra: Ra::AtCfa(-8), fp: Fp::Unchanged, rbx: Rbx::Unknown, interrupted: false, skips: false };
    Packed::new(Rule::Frame(frame), Arch::X86_64).unwrap_or(Packed::GAP)
}

/// Returns the rules in a linkage table: each push moves the CFA. Stubs have the instructions that linkers put there; lld
/// describes none of it.
///
/// ```text
/// first stub, lazy:   push [got+8]; jmp [got+16]               CFA = rsp + 16, then + 24
/// lazy:               jmp [got+n]; push n; jmp first           CFA = rsp + 8, from byte 11 on + 16
/// lazy, with IBT:     endbr64; push n; (bnd) jmp first         the same, from byte 9 on
/// others:             (endbr64;) (bnd) jmp [got+n]; nop        CFA = rsp + 8
/// of 8 bytes:         jmp [got+n]; xchg ax, ax                 CFA = rsp + 8: all of them, in static programs, from any multiple of 8 on
/// ```
fn plt(start: u64, code: &[u8]) -> Option<Block> {
    let end = start.checked_add(code.len() as u64)?;
    if code.chunks(8).all(|stub| matches!(stub, [0xff, 0x25, _, _, _, _, 0x66, 0x90])) {
        return Some(Block { source: ".plt", wins: false, start, end, rows: vec![(start, frame(8))] });
    }
    if !start.is_multiple_of(16) {
        return None;
    }
    let pushed = |pushed| Packed::new(Rule::Plt { pushed }, Arch::X86_64);
    let mut rows = Vec::new();
    for (stub, address) in code.chunks(16).zip((start..).step_by(16)) {
        match stub {
            [0xff, 0x35, ..] => rows.extend([(address, frame(16)), (address.checked_add(6)?, frame(24))]),
            [0xff, 0x25, _, _, _, _, 0x68, ..] => rows.push((address, pushed(11)?)),
            [0xf3, 0x0f, 0x1e, 0xfa, 0x68, ..] => rows.push((address, pushed(9)?)),
            _ => rows.push((address, frame(8))),
        }
    }
    Some(Block { source: ".plt", wins: false, start, end, rows })
}

/// Returns the rules of `_init` and `_fini`, which run when a library is opened and closed. They are put together from pieces of
/// the C library without a description.
///
/// ```text
/// (endbr64;) sub rsp, 8                     CFA = rsp + 8
/// …                                         CFA = rsp + 16
/// add rsp, 8                                CFA = rsp + 16
/// ret                                       CFA = rsp + 8
/// ```
fn init(start: u64, code: &[u8]) -> Option<Block> {
    let begin = if code.starts_with(&[0xf3, 0x0f, 0x1e, 0xfa]) { 4 } else { 0 };
    let made = begin + 4;
    if code.get(begin..made) != Some(&[0x48, 0x83, 0xec, 0x08]) || !code.ends_with(&[0x48, 0x83, 0xc4, 0x08, 0xc3]) {
        return None;
    }
    let at = |offset: usize| start.checked_add(offset as u64);
    let rows = vec![(start, frame(8)), (at(made)?, frame(16)), (at(code.len() - 1)?, frame(8))];
    Some(Block { source: ".init", wins: false, start, end: at(code.len())?, rows })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stubs_of_8_bytes_begin_anywhere() {
        let code = [[0xff, 0x25, 1, 2, 3, 4, 0x66, 0x90]; 3].concat();
        assert_eq!(plt(0x1018, &code).unwrap().rows, [(0x1018, frame(8))]);
        assert!(plt(0x1018, &code[..20]).is_none());
    }

    #[test]
    fn init_and_fini_are_known_by_their_code() {
        let code = [&[0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x83, 0xec, 0x08][..], &[0x90; 7], &[0x48, 0x83, 0xc4, 0x08, 0xc3]].concat();
        let rows = init(0x1000, &code).unwrap().rows;
        assert_eq!(rows, [(0x1000, frame(8)), (0x1008, frame(16)), (0x1013, frame(8))]);
        assert_eq!(init(0x1000, &code[4..]).unwrap().rows[1], (0x1004, frame(16)));
        assert!(init(0x1000, &code[..12]).is_none());
        assert!(init(0x1000, &[]).is_none());
    }

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn stubs_of_arm64_push_in_the_first_only() {
        // bfd's, without and with branch protection.
        let stub = [0x9000_0110, 0xf940_0211, 0x9100_0210, 0xd61f_0220];
        let first = [0xa9bf_7bf0, 0xf000_00f0, 0xf947_fe11, 0x913f_e210, 0xd61f_0220, 0xd503_201f, 0xd503_201f, 0xd503_201f];
        let rows = |code: &[u32]| plt_aarch64(0x1000, code).unwrap().rows;
        let pushed = [(0x1000, frame_aarch64(0)), (0x1004, frame_aarch64(16)), (0x1020, frame_aarch64(0))];
        assert_eq!(rows(&[&first[..], &stub].concat()), pushed);
        let protected = [&[0xd503_245f][..], &first[..7], &stub].concat();
        assert_eq!(rows(&protected)[1], (0x1008, frame_aarch64(16)));
        assert_eq!(rows(&stub), [(0x1000, frame_aarch64(0))]);
        assert_eq!(rows(&first[..2]), pushed[..2]);
    }

    #[test]
    fn the_linker_of_arm64_finds_its_caller_above_what_its_stub_has_pushed() {
        // _dl_runtime_resolve of glibc 2.41: bti c; stp x8, x9, [sp, -208]!; 24 of others; ldp x8, x9, [sp], 208; ldp x17, x30, [sp], 16; br x16
        let mut code = vec![0xd503_201f; 20];
        code.extend([0xd503_245f, 0xa9b3_27e8]);
        code.extend([0xd503_201f; 24]);
        code.extend([0xa8cd_27e8, 0xa8c1_7bf1, 0xd61f_0200]);
        let block = resolver_aarch64(0x4000, &bytes(&code)).unwrap();
        let start = 0x4000 + 80;
        let pops = start + 4 * 27;
        let rows = [(start, 16), (start + 8, 224), (pops, 16), (pops + 4, 0)];
        assert_eq!(block.rows, rows.map(|(address, size)| (address, frame_aarch64(size))));
        assert_eq!((block.start, block.end), (start, pops + 8));
        assert!(resolver_aarch64(0x4000, &bytes(&code[30..])).is_none());
    }

    #[test]
    fn entry_points_by_hand_are_known_by_their_code() {
        // musl: xor rbp, rbp; mov rdi, rsp; lea rsi, [rip + …]; and rsp, -16; call
        let musl = [
            0x48, 0x31, 0xed, 0x48, 0x89, 0xe7, 0x48, 0x8d, 0x35, 1, 2, 3, 4, 0x48, 0x83, 0xe4, 0xf0, 0xe8, 0, 0, 0, 0, 0x90,
            0x90,
        ];
        assert_eq!(entry_x86_64(&musl), Some(23));
        // The same without a call in reach; another function.
        assert_eq!(entry_x86_64(&musl[..17]), None);
        assert_eq!(entry_x86_64(&[0x55, 0x48, 0x89, 0xe5, 0xe8, 0, 0, 0, 0, 0]), None);
        let words = [0xd280_001du32, 0xd280_001e, 0x9100_03e0, 0x9400_0002, 0xd503_201f];
        let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(entry_aarch64(&code), Some(17));
        assert_eq!(entry_aarch64(&code[4..]), None);
    }

    #[test]
    fn stubs_of_the_linkage_table_are_told_apart_by_their_code() {
        let mut elf = Vec::new();
        for stub in [
            &[0xff, 0x35, 0, 0, 0, 0, 0xff, 0x25, 0, 0, 0, 0, 0x0f, 0x1f, 0x40, 0][..],
            &[0xff, 0x25, 0, 0, 0, 0, 0x68, 0, 0, 0, 0, 0xe9, 0, 0, 0, 0],
            &[0xf3, 0x0f, 0x1e, 0xfa, 0x68, 0, 0, 0, 0, 0xf2, 0xe9, 0, 0, 0, 0, 0x90],
            &[0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, 0, 0, 0, 0, 0x66, 0x0f, 0x1f, 0x44, 0, 0],
        ] {
            elf.extend_from_slice(stub);
        }
        let rules = plt(0x1000, &elf).unwrap().rows;
        let pushed = |pushed| Packed::new(Rule::Plt { pushed }, Arch::X86_64).unwrap();
        let expected = [(0x1000, frame(16)), (0x1006, frame(24)), (0x1010, pushed(11)), (0x1020, pushed(9)), (0x1030, frame(8))];
        assert_eq!(rules, expected);
        assert_eq!(plt(0x1008, &elf), None);
    }

    #[test]
    fn the_dynamic_linkers_entry_ends_behind_its_jump_to_the_program() {
        // mov rdi, rsp; call; mov r12, rax; xor ebp, ebp; call; mov rsp, r13; jmp r12; nop
        let code = [
            0x48, 0x89, 0xe7, 0xe8, 0, 0, 0, 0, 0x49, 0x89, 0xc4, 0x31, 0xed, 0xe8, 0, 0, 0, 0, 0x4c, 0x89, 0xec, 0x41, 0xff,
            0xe4, 0x0f, 0x1f,
        ];
        assert_eq!(entry_x86_64(&code), Some(24));
        assert_eq!(entry_x86_64(&code[..20]), None);
    }
}
