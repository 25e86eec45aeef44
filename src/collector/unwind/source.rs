//! The bytes of an ELF image, read piece by piece with bounds on all that is allocated.
//!
//! Files are read with `pread`, never mapped: a file that its owner truncates under a mapping would end us with SIGBUS.

use std::io::{self, Read};

use crate::object::open::{OpenError, OpenFile};

/// The largest section that is read, and the largest that a compressed one may become. chromium's `.eh_frame` has 30 MB.
pub(super) const LARGEST_SECTION: u64 = 256 << 20;

/// The largest `.gnu_debugdata`, unpacked: symbols and `.debug_frame` of one object.
const LARGEST_DEBUGDATA: u64 = 64 << 20;

/// Unpacked data is at most this many times as large as packed, plus [`LITTLE`]. Sections of debugging information are 3 to 5 times as
/// large. So memory and time stay in proportion to the bytes on the disk.
const MOST_UNPACKED: u64 = 64;

/// A piece of a file is at most this many times as large as the whole file on its disk, plus [`LITTLE`]. It can be larger than the file on
/// the disk where the file is sparse or its file system compresses.
const MOST_SPARSE: u64 = 8;

/// Bytes that may always be read or unpacked.
const LITTLE: u64 = 1 << 20;

/// A dictionary of xz is never larger in practice than `xz -9`'s.
const XZ_MEMORY_KIB: u32 = 72 << 10;

/// Why an object has no table at all. Everything less is in the [`super::Report`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unreadable {
    /// Reading failed.
    #[error("failed to read it: {0}")]
    Io(#[from] io::Error),
    /// It could not be opened.
    #[error("failed to open it: {0}")]
    Open(#[from] OpenError),
    /// Another kind of file.
    #[error("not an ELF file")]
    NotElf,
    /// An ELF file that does not run here.
    #[error("not a program or library of 64 bits for x86_64 or arm64 Linux")]
    NotOurs,
    /// Headers that point outside the file or contradict each other.
    #[error("the ELF headers are damaged: {0}")]
    Damaged(&'static str),
    /// More than we are willing to read.
    #[error("{what} has {size} bytes, more than the {limit} that are read")]
    TooLarge {
        /// Which part.
        what: &'static str,
        /// Its size.
        size: u64,
        /// The bound.
        limit: u64,
    },
}

/// Bytes that can be read at any place.
pub trait Image {
    /// How many there are.
    fn length(&self) -> u64;
    /// Bytes on the disk. Fewer than the length if the file has holes.
    fn stored(&self) -> u64 {
        self.length()
    }
    /// Fills the buffer from `offset`; an error where the image ends before.
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
}

/// The bytes of an open file, as many as it had when it was opened.
#[derive(Clone, Debug)]
pub struct FileImage(OpenFile);

impl FileImage {
    /// Returns the image in an open file.
    pub fn new(file: OpenFile) -> FileImage {
        FileImage(file)
    }

    /// Returns the file.
    pub fn file(&self) -> &OpenFile {
        &self.0
    }
}

impl Image for FileImage {
    fn length(&self) -> u64 {
        self.0.facts.length
    }

    fn stored(&self) -> u64 {
        self.0.facts.stored
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.opened.read_exact_at(buffer, offset)
    }
}

impl Image for [u8] {
    fn length(&self) -> u64 {
        self.len() as u64
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).ok();
        let from = start.and_then(|start| self.get(start..)?.get(..buffer.len())).ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(from);
        Ok(())
    }
}

/// `length` bytes at `offset`, if the image has them and they are no more than `limit`.
pub(super) fn read(
    image: &(impl Image + ?Sized),
    offset: u64,
    length: u64,
    limit: u64,
    what: &'static str,
) -> Result<Vec<u8>, Unreadable> {
    if length > limit {
        return Err(Unreadable::TooLarge { what, size: length, limit });
    }
    if offset.checked_add(length).is_none_or(|end| end > image.length()) {
        return Err(Unreadable::Damaged(what));
    }
    let sparse = image.stored().saturating_mul(MOST_SPARSE).saturating_add(LITTLE);
    if length > sparse {
        return Err(Unreadable::TooLarge { what, size: length, limit: sparse });
    }
    let size = usize::try_from(length).map_err(|_| Unreadable::TooLarge { what, size: length, limit })?;
    let mut bytes = vec![0; size];
    image.read_exact_at(offset, &mut bytes)?;
    Ok(bytes)
}

/// How a section is compressed: `ch_type` of `Elf64_Chdr`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Compression {
    Zlib,
    Zstd,
}

/// Unpacks `packed`, which says that it becomes `size` bytes.
pub(super) fn unpack(packed: &[u8], compression: Compression, size: u64) -> Result<Vec<u8>, Unreadable> {
    if size > LARGEST_SECTION {
        return Err(Unreadable::TooLarge { what: "a compressed section", size, limit: LARGEST_SECTION });
    }
    let limit = most_unpacked(packed);
    if size > limit {
        return Err(Unreadable::TooLarge { what: "a compressed section", size, limit });
    }
    let unpacked = match compression {
        Compression::Zlib => up_to(flate2::read::ZlibDecoder::new(packed), size)?,
        Compression::Zstd => {
            let decoder = ruzstd::decoding::StreamingDecoder::new(packed)
                .map_err(|_| Unreadable::Damaged("a section compressed with zstd"))?;
            up_to(decoder, size)?
        }
    };
    if unpacked.len() as u64 == size { Ok(unpacked) } else { Err(Unreadable::Damaged("a compressed section")) }
}

/// Unpacks the ELF file in `.gnu_debugdata`.
pub(super) fn unpack_debugdata(packed: &[u8]) -> Result<Vec<u8>, Unreadable> {
    up_to(lzma_rust2::XzReader::new_mem_limit(packed, false, XZ_MEMORY_KIB), LARGEST_DEBUGDATA.min(most_unpacked(packed)))
}

fn most_unpacked(packed: &[u8]) -> u64 {
    (packed.len() as u64).saturating_mul(MOST_UNPACKED).saturating_add(LITTLE)
}

/// Reads to the end or to `limit`. Grows as bytes come: a size that a hostile file only claims costs nothing.
fn up_to(reader: impl Read, limit: u64) -> Result<Vec<u8>, Unreadable> {
    let mut bytes = Vec::new();
    reader.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}
