//! Unpacks compressed parts of ELF files: sections (zlib, zstd) and `.gnu_debugdata` (xz). The size of the packed data bounds the result.

use std::io::Read;

use super::read_at::{LITTLE, Unreadable};

/// The largest section that is read, packed or unpacked. Chromium's `.eh_frame` has 30 MB.
pub(crate) const LARGEST_SECTION: u64 = 256 << 20;

/// The largest `.gnu_debugdata`, unpacked: symbols and `.debug_frame` of one object.
const LARGEST_DEBUGDATA: u64 = 64 << 20;

/// Largest ratio of unpacked to packed data, plus [`LITTLE`]. Sections of debugging information become 3 to 5 times as large. With this
/// bound, memory and time stay in proportion to the bytes on the disk.
const MOST_UNPACKED: u64 = 64;

/// Most memory of xz: its dictionary is never larger in practice than that of `xz -9`.
const XZ_MEMORY_KIB: u32 = 72 << 10;

/// How a section is compressed: `ch_type` of `Elf64_Chdr`. gABI, "Compressed sections".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Compression {
    Zlib,
    Zstd,
}

impl Compression {
    /// Returns the compression with this number.
    pub(crate) fn of(number: u32) -> Option<Compression> {
        match number {
            1 => Some(Compression::Zlib),
            2 => Some(Compression::Zstd),
            _ => None,
        }
    }

    /// Returns a reader that unpacks while it reads. `None` if the data does not begin as zstd data does.
    pub(crate) fn reader<'a>(self, packed: impl Read + 'a) -> Option<Box<dyn Read + 'a>> {
        match self {
            Compression::Zlib => Some(Box::new(flate2::read::ZlibDecoder::new(packed))),
            Compression::Zstd => Some(Box::new(ruzstd::decoding::StreamingDecoder::new(packed).ok()?)),
        }
    }
}

/// Unpacks a section. Its header claims that it becomes `size` bytes.
pub(crate) fn unpack(packed: &[u8], compression: Compression, size: u64) -> Result<Vec<u8>, Unreadable> {
    let limit = LARGEST_SECTION.min(most_unpacked(packed));
    if size > limit {
        return Err(Unreadable::TooLarge { what: "a compressed section", size, limit });
    }
    let reader = compression.reader(packed).ok_or(Unreadable::Damaged("a section compressed with zstd"))?;
    let unpacked = up_to(reader, size)?;
    if unpacked.len() as u64 == size { Ok(unpacked) } else { Err(Unreadable::Damaged("a compressed section")) }
}

/// Unpacks the ELF file in `.gnu_debugdata`. If it is damaged, returns the part before the damage.
pub(crate) fn unpack_debugdata(packed: &[u8]) -> Vec<u8> {
    let mut unpacked = Vec::new();
    let limit = LARGEST_DEBUGDATA.min(most_unpacked(packed));
    // After an error, the part unpacked so far is used: a file that ends too early.
    let _ = lzma_rust2::XzReader::new_mem_limit(packed, false, XZ_MEMORY_KIB).take(limit).read_to_end(&mut unpacked);
    unpacked
}

fn most_unpacked(packed: &[u8]) -> u64 {
    (packed.len() as u64).saturating_mul(MOST_UNPACKED).saturating_add(LITTLE)
}

/// Reads to the end or to `limit`. Grows as bytes come, so a size that a hostile file only claims costs nothing.
fn up_to(reader: impl Read, limit: u64) -> Result<Vec<u8>, Unreadable> {
    let mut bytes = Vec::new();
    reader.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}
