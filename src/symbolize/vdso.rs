//! The vDSO's image, copied from our own memory: one image serves all 64-bit processes of a kernel.

use std::fs::{self, File};

use super::elf::Image;
use super::problem::Reason;
use super::source::Source;

/// The vDSO is two or three pages; this leaves room for more.
const MAX_SIZE: u64 = 1 << 20;

/// Reads the image at `[vdso]` in `/proc/self/maps` through `/proc/self/mem`.
pub(super) fn read() -> Result<Image, Reason> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]")).ok_or(Reason::NotFound)?;
    let (start, end) = line.split(' ').next().and_then(|range| range.split_once('-')).ok_or(Reason::Malformed)?;
    let start = u64::from_str_radix(start, 16).map_err(|_| Reason::Malformed)?;
    let end = u64::from_str_radix(end, 16).map_err(|_| Reason::Malformed)?;
    let size = end.checked_sub(start).filter(|size| *size <= MAX_SIZE).ok_or(Reason::TooLarge)?;
    let mut bytes = vec![0; usize::try_from(size).map_err(|_| Reason::TooLarge)?];
    std::os::unix::fs::FileExt::read_exact_at(&File::open("/proc/self/mem")?, &mut bytes, start)?;
    Image::read(Source::Memory(bytes.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::FileOffset;
    use crate::symbolize::images::Images;
    use crate::symbolize::index::SymbolIndex;

    #[test]
    fn the_vdso_of_this_kernel_has_names_within_its_own_segment() {
        let images = Images::alone(read().unwrap());
        let index = SymbolIndex::build(&images).unwrap();
        assert!(index.len() >= 4, "{index:?}");
        assert!(images.own.build_id().is_some());
        let mut names = Vec::new();
        for offset in 0..images.own.source.length() {
            let symbol = images.own.elf_address(FileOffset(offset)).and_then(|address| index.find(address));
            let Some(name) = symbol.and_then(|symbol| symbol.read(&images).unwrap()) else { continue };
            let name = String::from_utf8(name).unwrap();
            if !names.contains(&name) {
                names.push(name);
            }
        }
        assert!(names.iter().any(|name| name.contains("clock_gettime")), "{names:?}");
    }
}
