//! The vDSO's image, copied from our own memory. One image serves all 64-bit processes of a kernel.

use std::fs::{self, File};

use super::bytes::Source;
use super::elf::Image;
use super::reason::Reason;

/// The vDSO is two or three pages; this leaves room for more.
const MAX_SIZE: u64 = 1 << 20;

/// Reads the image.
pub(crate) fn read() -> Result<Image, Reason> {
    Image::read(Source::Memory(bytes()?.into()))
}

/// Reads the bytes at `[vdso]` in `/proc/self/maps` through `/proc/self/mem`.
pub(crate) fn bytes() -> Result<Vec<u8>, Reason> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]")).ok_or(Reason::NotFound)?;
    let (start, end) = line.split(' ').next().and_then(|range| range.split_once('-')).ok_or(Reason::Malformed)?;
    let start = u64::from_str_radix(start, 16).map_err(|_| Reason::Malformed)?;
    let end = u64::from_str_radix(end, 16).map_err(|_| Reason::Malformed)?;
    let size = end.checked_sub(start).filter(|size| *size <= MAX_SIZE).ok_or(Reason::TooLarge)?;
    let mut bytes = vec![0; usize::try_from(size).map_err(|_| Reason::TooLarge)?];
    std::os::unix::fs::FileExt::read_exact_at(&File::open("/proc/self/mem")?, &mut bytes, start)?;
    Ok(bytes)
}
