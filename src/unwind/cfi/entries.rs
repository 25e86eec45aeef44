//! Reads the entries of `.eh_frame` and `.debug_frame`: shared parts (CIE), and descriptions of code (FDE).
//!
//! LSB 5.0, chapter 10.6 "Exception frames"; DWARF 5, section 6.4.1. An entry that cannot be read is counted and skipped: its
//! length leads to the next one. A CIE must come before the FDEs that point to it; all producers write them in this order. So
//! hostile pointers into the middle of entries lead nowhere, and reading takes time in proportion to the section.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use rustc_hash::FxHasher;

use crate::object::headers::Arch;
use crate::object::numbers::Cursor;

/// The format of a section of unwind information.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Format {
    /// `.eh_frame`: pointers are encoded; the number 0 marks a CIE.
    EhFrame,
    /// `.debug_frame`: plain addresses; the number −1 marks a CIE.
    DebugFrame,
}

/// A section of unwind information in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Section<'a> {
    pub(crate) bytes: &'a [u8],
    /// Its ELF address, for pointers relative to themselves.
    pub(crate) address: u64,
    pub(crate) format: Format,
    /// Whether a zero length ends it. It does not if the length of the section is known: linkers put terminators of start-up
    /// files into the middle, and entries follow.
    pub(crate) terminated: bool,
    pub(crate) arch: Arch,
    /// Base addresses of pointers relative to text and to data.
    pub(crate) text: u64,
    pub(crate) data: u64,
}

/// The part that descriptions share (CIE).
#[derive(Clone, Debug)]
pub(crate) struct Cie<'a> {
    pub(crate) code_factor: u64,
    pub(crate) data_factor: i64,
    pub(crate) ra: u64,
    /// Augmentation `S`: the frame was interrupted.
    pub(crate) signal: bool,
    pub(crate) instructions: &'a [u8],
    encoding: u8,
    has_data: bool,
}

/// A description (FDE): a range of code and its instructions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fde<'a> {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Index into [`Entries::cies`].
    pub(crate) cie: u32,
    pub(crate) instructions: &'a [u8],
}

/// All entries of a section.
#[derive(Default, Debug)]
pub(crate) struct Entries<'a> {
    pub(crate) cies: Vec<Cie<'a>>,
    pub(crate) fdes: Vec<Fde<'a>>,
    /// Descriptions that could not be read, or whose CIE could not.
    pub(crate) unreadable: u64,
}

/// Bounds on the memory that a hostile section can make us hold. Chromium has 700,000 descriptions and 2 CIEs; a kernel's worth
/// of object files has some thousand CIEs. Entries beyond the bounds count as unreadable.
const MOST_FDES: usize = 1 << 22;
const MOST_CIES: usize = 1 << 18;

const DW_EH_PE_INDIRECT: u8 = 0x80;
const DW_EH_PE_OMIT: u8 = 0xff;

impl<'a> Section<'a> {
    /// Reads all entries.
    pub(crate) fn entries(&self) -> Entries<'a> {
        let mut found = Entries::default();
        // Offset of a CIE → its index in `cies`, if it could be read.
        let mut known: HashMap<u64, Option<u32>, BuildHasherDefault<FxHasher>> = HashMap::default();
        let mut cursor = Cursor::new(self.bytes);
        loop {
            let start = self.bytes.len() - cursor.left();
            let Some(length) = cursor.u32() else { break };
            let (length, wide) = match length {
                0 if self.terminated => break,
                0 => continue,
                0xffff_ffff => match cursor.u64() {
                    Some(length) => (length, true),
                    None => break,
                },
                length => (u64::from(length), false),
            };
            let Some(entry) = usize::try_from(length).ok().and_then(|length| cursor.take(length)) else {
                // The length is wrong, or the section was cut: there is no way to the next entry.
                found.unreadable += 1;
                break;
            };
            let mut entry = Cursor::new(entry);
            let id_at = self.offset_of(&entry);
            let Some(id) = (if wide { entry.u64() } else { entry.u32().map(u64::from) }) else {
                found.unreadable += 1;
                continue;
            };
            let is_cie = match self.format {
                Format::EhFrame => id == 0,
                Format::DebugFrame => id == if wide { u64::MAX } else { 0xffff_ffff },
            };
            if is_cie {
                let cie = self.cie(entry).and_then(|cie| {
                    let place = u32::try_from(found.cies.len()).ok().filter(|_| found.cies.len() < MOST_CIES)?;
                    found.cies.push(cie);
                    Some(place)
                });
                known.insert(start as u64, cie);
                continue;
            }
            let cie_at = match self.format {
                Format::EhFrame => id_at.checked_sub(id),
                Format::DebugFrame => Some(id),
            };
            let cie = cie_at.and_then(|at| *known.get(&at)?);
            match cie.and_then(|cie| self.fde(entry, cie, found.cies.get(cie as usize)?)) {
                Some(fde) if found.fdes.len() < MOST_FDES => found.fdes.push(fde),
                _ => found.unreadable += 1,
            }
        }
        found
    }

    /// Returns the offset of a cursor in the section.
    fn offset_of(&self, cursor: &Cursor<'a>) -> u64 {
        (cursor.rest().as_ptr().addr() - self.bytes.as_ptr().addr()) as u64
    }

    fn cie(&self, mut entry: Cursor<'a>) -> Option<Cie<'a>> {
        let version = entry.u8()?;
        if !matches!(version, 1 | 3 | 4) {
            return None;
        }
        let augmentation = entry.c_string()?;
        if augmentation == b"eh" {
            // GCC 2: an address for its own use.
            entry.u64()?;
        }
        if version == 4 && (entry.u8()? != 8 || entry.u8()? != 0) {
            // Addresses of another size, or segments.
            return None;
        }
        let code_factor = entry.uleb()?;
        let data_factor = entry.sleb()?;
        let ra = if version == 1 { u64::from(entry.u8()?) } else { entry.uleb()? };
        let mut cie = Cie { code_factor, data_factor, ra, signal: false, instructions: &[], encoding: 0, has_data: false };
        if let Some(letters) = augmentation.strip_prefix(b"z") {
            let length = usize::try_from(entry.uleb()?).ok()?;
            let mut data = Cursor::new(entry.take(length)?);
            cie.has_data = true;
            self.augmentation(letters, &mut data, &mut cie)?;
        } else if augmentation == b"S" {
            cie.signal = true;
        } else if !matches!(augmentation, b"" | b"eh") {
            // Without `z` the begin of the instructions is unknown.
            return None;
        }
        cie.instructions = entry.rest();
        Some(cie)
    }

    fn augmentation(&self, letters: &[u8], data: &mut Cursor<'a>, cie: &mut Cie<'a>) -> Option<()> {
        for letter in letters {
            match letter {
                b'L' => drop(data.u8()?),
                b'R' => cie.encoding = data.u8()?,
                b'P' => {
                    let encoding = data.u8()?;
                    self.pointer(encoding & !DW_EH_PE_INDIRECT, data)?;
                }
                b'S' => cie.signal = true,
                // arm64: signed with the B key; with tagged stack memory. The places of saved registers do not depend on either.
                b'B' | b'G' => {}
                // The following data is unknown, but `z` says where it ends.
                _ => break,
            }
        }
        Some(())
    }

    fn fde(&self, mut entry: Cursor<'a>, number: u32, cie: &Cie<'a>) -> Option<Fde<'a>> {
        let start = self.pointer(cie.encoding, &mut entry)?;
        // The length has the same format, but is relative to nothing.
        let length = self.pointer(cie.encoding & 0x0f, &mut entry)?;
        if cie.has_data {
            let length = usize::try_from(entry.uleb()?).ok()?;
            entry.take(length)?;
        }
        let end = start.checked_add(length)?;
        Some(Fde { start, end, cie: number, instructions: entry.rest() })
    }

    /// Reads an encoded pointer. Pointers that must be loaded from memory are not supported.
    fn pointer(&self, encoding: u8, cursor: &mut Cursor<'a>) -> Option<u64> {
        if encoding == DW_EH_PE_OMIT || encoding & DW_EH_PE_INDIRECT != 0 {
            return None;
        }
        let base = match encoding & 0x70 {
            0x00 => 0,
            0x10 => self.address.wrapping_add(self.offset_of(cursor)),
            0x20 => self.text,
            0x30 => self.data,
            // Relative to a function, but a description's start would be that function itself; aligned.
            _ => return None,
        };
        let signed = |value: i64| value.cast_unsigned();
        let value = match encoding & 0x0f {
            0x00 | 0x04 => cursor.u64()?,
            0x01 => cursor.uleb()?,
            0x02 => u64::from(cursor.u16()?),
            0x03 => u64::from(cursor.u32()?),
            0x08 | 0x0c => cursor.u64()?,
            0x09 => signed(cursor.sleb()?),
            0x0a => signed(i64::from(cursor.u16()?.cast_signed())),
            0x0b => signed(i64::from(cursor.u32()?.cast_signed())),
            _ => return None,
        };
        Some(base.wrapping_add(value))
    }

    /// Reads an address among instructions (`DW_CFA_set_loc`).
    pub(crate) fn address(&self, cie: &Cie<'a>, cursor: &mut Cursor<'a>) -> Option<u64> {
        self.pointer(cie.encoding, cursor)
    }
}
