//! The build id in the notes of an ELF image.

use super::headers::{FileHeader, PT_NOTE};
use super::read_at::{ReadAt, read};
use crate::profile::BuildId;

/// Most program headers and bytes of notes that are read.
const MAX_HEADERS: u16 = 64;
const MAX_NOTES: u64 = 64 * 1024;

/// Returns the build id of an image.
pub(crate) fn of_image(image: &(impl ReadAt + ?Sized)) -> Option<BuildId> {
    let segments = FileHeader::read(image).ok()?.program_headers(image, MAX_HEADERS).ok()?;
    segments.iter().filter(|segment| segment.kind == PT_NOTE).find_map(|segment| {
        let notes = read(image, segment.offset, segment.file_size.min(MAX_NOTES), MAX_NOTES, "notes").ok()?;
        BuildId::in_notes(&notes, segment.align)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_build_id_of_our_own_libc_is_what_readelf_says() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| line.contains("libc.so.6") && line.contains("r-xp")).expect("libc is mapped");
        let path = line.split_whitespace().last().unwrap();
        let id = of_image(std::fs::read(path).unwrap().as_slice()).expect("libc has a build id");
        let said = std::process::Command::new("readelf").args(["-n", path]).output().expect("readelf (binutils) is needed");
        assert!(String::from_utf8_lossy(&said.stdout).contains(&id.to_string()), "{id}");
    }

    #[test]
    fn a_file_that_lies_about_its_sizes_has_none() {
        let mut elf = vec![0u8; 64];
        elf[..5].copy_from_slice(b"\x7fELF\x02");
        elf[32..40].copy_from_slice(&u64::MAX.to_ne_bytes());
        elf[54..56].copy_from_slice(&56u16.to_ne_bytes());
        elf[56..58].copy_from_slice(&u16::MAX.to_ne_bytes());
        assert_eq!(of_image(elf.as_slice()), None);
        assert_eq!(BuildId::in_notes(&[0xff; 64], 4), None);
        assert_eq!(BuildId::in_notes(&[], 4), None);
    }
}
