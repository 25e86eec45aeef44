//! Stubs of the procedure linkage table: `read@plt` is the jump through which a program calls `read`.
//!
//! A stub has no symbol. It jumps to the address in a slot of the global offset table. A relocation says which symbol's address the linker
//! puts into that slot:
//!
//! ```text
//! .plt.sec   stub ── jmp *slot ──►  .got slot  ◄── .rela.plt: slot, symbol ──► .dynsym ──► name
//! ```
//!
//! System V ABI, AMD64 supplement, "Procedure Linkage Table"; ELF for the Arm 64-bit Architecture, "Dynamic linking".

use rustc_hash::{FxHashMap, FxHashSet};

use super::elf::{Image, NamedSection, TableKind, fills_slot};
use super::headers::{Arch, SYMBOL};
use super::numbers::{u32_at, u64_at};
use super::reason::Reason;

/// Most relocations that are read. Chromium has a million in `.rela.dyn`; a thousand of them have a slot.
const MAX_RELOCATIONS: u64 = 4_000_000;
/// Most bytes of stubs that are read: a stub has 16 or 24.
const MAX_CODE: u64 = 4 << 20;
/// `Elf64_Rela`: `r_offset`, `r_info` (symbol << 32 | type), `r_addend`.
const RELA: usize = 24;

/// A stub, and the place of its target's name among the strings of `.dynsym`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stub {
    pub(crate) address: u64,
    pub(crate) size: u32,
    pub(crate) name: u32,
}

/// Returns the stubs of an image, in order of address in each section.
///
/// Fails if the file cannot be read. Malformed tables give no stubs.
pub(crate) fn stubs(image: &Image) -> Result<Vec<Stub>, Reason> {
    let (Some(symbols), Some(arch)) = (image.table(TableKind::Dynamic), image.arch()) else { return Ok(Vec::new()) };
    let sections = image.sections_named(|name| matches!(name, ".plt" | ".plt.sec" | ".plt.got" | ".rela.plt" | ".rela.dyn"))?;
    // Only the first section of each name counts: a hostile file may have hundreds of them over the same bytes.
    let mut sections: Vec<NamedSection> = sections;
    let mut seen = FxHashSet::default();
    sections.retain(|section| seen.insert(section.name.clone()));
    let has_code = sections.iter().any(|section| section.name.starts_with(".plt"));
    if !has_code {
        return Ok(Vec::new());
    }
    let name_of = |symbol: u64| -> Option<u32> {
        let at = symbols.offset.checked_add(symbol.checked_mul(SYMBOL as u64)?)?;
        let mut name = [0; 4];
        let known = symbol > 0 && symbol < symbols.count && image.source.read_exact(at, &mut name).is_ok();
        known.then_some(u32::from_le_bytes(name)).filter(|name| *name > 0)
    };
    let mut slots = FxHashMap::default();
    let mut order = Vec::new();
    for section in sections.iter().filter(|section| section.name.starts_with(".rela")) {
        let size = section.file.end - section.file.start;
        let bytes = image.source.read(section.file.start, size, MAX_RELOCATIONS * RELA as u64)?;
        for relocation in bytes.chunks_exact(RELA) {
            let (slot, info) = (u64_at(relocation, 0).unwrap_or(0), u64_at(relocation, 8).unwrap_or(0));
            let fills_slot = fills_slot(arch, info as u32);
            if fills_slot {
                slots.insert(slot, info >> 32);
            }
            if &*section.name == ".rela.plt" {
                order.push(if fills_slot { info >> 32 } else { 0 });
            }
        }
    }
    let mut stubs = Vec::new();
    for section in sections.iter().filter(|section| section.name.starts_with(".plt")) {
        let code = image.source.read(section.file.start, section.file.end - section.file.start, MAX_CODE)?;
        let mut add = |address, size, symbol: u64| {
            stubs.extend(name_of(symbol).map(|name| Stub { address, size, name }));
        };
        match arch {
            Arch::X86_64 => x86_64(section, &code, &slots, &order, &mut add),
            Arch::Aarch64 => arm64(section, &code, &slots, &mut add),
        }
    }
    Ok(stubs)
}

/// Finds stubs of 16 bytes, or of 8 if the section says so. `jmp *slot(%rip)` is `ff 25`, with or without `endbr64` and `bnd` before it. If
/// there are two tables, the stubs of the first push their relocation's number instead: `68`.
fn x86_64(section: &NamedSection, code: &[u8], slots: &FxHashMap<u64, u64>, order: &[u64], add: &mut impl FnMut(u64, u32, u64)) {
    let size = if section.entry_size == 8 { 8 } else { 16 };
    for (index, stub) in code.chunks_exact(size).enumerate() {
        let address = section.address.wrapping_add((index * size) as u64);
        let body = stub.strip_prefix(b"\xf3\x0f\x1e\xfa").unwrap_or(stub);
        let before = stub.len() - body.len();
        let bare = body.strip_prefix(b"\xf2").unwrap_or(body);
        let jump = before + body.len() - bare.len();
        let symbol = if bare.starts_with(b"\xff\x25") {
            let distance = u32_at(bare, 2).unwrap_or(0).cast_signed();
            let slot = address.wrapping_add(jump as u64 + 6).wrapping_add_signed(distance.into());
            slots.get(&slot).copied()
        } else if body.starts_with(b"\x68") {
            u32_at(body, 1).and_then(|number| order.get(number as usize).copied())
        } else {
            None
        };
        if let Some(symbol) = symbol {
            add(address, size as u32, symbol);
        }
    }
}

/// Finds stubs of `adrp x16, page` and `ldr x17, [x16, #offset]`, with or without `bti c` before them. A stub ends with `br x17`.
fn arm64(section: &NamedSection, code: &[u8], slots: &FxHashMap<u64, u64>, add: &mut impl FnMut(u64, u32, u64)) {
    const BTI_C: u32 = 0xd503_245f;
    const BR_X17: u32 = 0xd61f_0220;
    let words: Vec<u32> = code.chunks_exact(4).map(|word| u32_at(word, 0).unwrap_or(0)).collect();
    let address_of = |index: usize| section.address.wrapping_add(4 * index as u64);
    for (index, pair) in words.windows(2).enumerate() {
        let &[adrp, ldr] = pair else { continue };
        if adrp & 0x9f00_001f != 0x9000_0010 || ldr & 0xffc0_03ff != 0xf940_0211 {
            continue;
        }
        let immediate = (adrp >> 29 & 3 | (adrp >> 5 & 0x7_ffff) << 2).cast_signed() << 11 >> 11;
        let page = (address_of(index) & !0xfff).wrapping_add_signed(i64::from(immediate) << 12);
        let slot = page.wrapping_add(u64::from(ldr >> 10 & 0xfff) * 8);
        let begins = if index > 0 && words.get(index - 1) == Some(&BTI_C) { index - 1 } else { index };
        let length = words.iter().skip(begins).take(8).position(|word| *word == BR_X17).map_or(4, |last| last + 1);
        if let Some(symbol) = slots.get(&slot) {
            add(address_of(begins), 4 * length as u32, *symbol);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(name: &str, entry_size: u64) -> NamedSection {
        NamedSection { index: 0, name: name.into(), address: 0x1000, file: 0..0, compressed: false, entry_size }
    }

    fn found(of: impl Fn(&mut dyn FnMut(u64, u32, u64))) -> Vec<(u64, u32, u64)> {
        let mut found = Vec::new();
        of(&mut |address, size, symbol| found.push((address, size, symbol)));
        found
    }

    #[test]
    fn stubs_of_x86_64_are_known_by_their_slot_or_their_relocation() {
        // jmp *0x2ffa(%rip) at 0x1000: slot 0x4000. The next pushes relocation 1; the third is of .plt.sec: slot 0x4008.
        let mut code = vec![0; 48];
        code[..6].copy_from_slice(b"\xff\x25\xfa\x2f\x00\x00");
        code[16..25].copy_from_slice(b"\xf3\x0f\x1e\xfa\x68\x01\x00\x00\x00");
        code[32..43].copy_from_slice(b"\xf3\x0f\x1e\xfa\xf2\xff\x25\xdd\x2f\x00\x00");
        let slots = [(0x4000, 5), (0x4008, 6)].into_iter().collect();
        let stubs = found(|mut add| x86_64(&section(".plt", 16), &code, &slots, &[7, 8], &mut add));
        assert_eq!(stubs, [(0x1000, 16, 5), (0x1010, 16, 8), (0x1020, 16, 6)]);
        let stubs = found(|mut add| x86_64(&section(".plt.got", 8), &code[..8], &slots, &[], &mut add));
        assert_eq!(stubs, [(0x1000, 8, 5)]);
    }

    #[test]
    fn stubs_of_arm64_are_known_by_their_slot() {
        // adrp x16, 0x4000; ldr x17, [x16, #8]; add x16, x16, #8; br x17; then the same with bti c before and x16 of 0x0.
        let plain = [0xf000_0010, 0xf940_0611, 0x9100_2210, 0xd61f_0220u32];
        let guarded = [0xd503_245f, 0xf0ff_fff0, 0xf940_0611, 0x9100_2210, 0xd61f_0220, 0xd503_201f];
        let code: Vec<u8> = plain.iter().chain(&guarded).flat_map(|word| word.to_le_bytes()).collect();
        let slots = [(0x4008, 5), (0x8, 6)].into_iter().collect();
        let stubs = found(|mut add| arm64(&section(".plt", 0), &code, &slots, &mut add));
        assert_eq!(stubs, [(0x1000, 16, 5), (0x1010, 20, 6)]);
    }
}
