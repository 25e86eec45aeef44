//! Labels for code without a name: the object, and where its function begins.
//!
//! A label `program+0x1240` covers a whole function, so that a function is one box. The number is an ELF address, as `addr2line`, `objdump`
//! and debuggers take it. If the function is not known, it is the address of the instruction. If the file cannot be read, it is the offset
//! in the file.

use std::ops::Range;
use std::sync::Arc;

use crate::object::object_files::Images;
use crate::profile::{ElfAddress, Frame};

/// Finds the numbers for the labels of an object's unnamed frames.
#[derive(Default)]
pub(super) struct Unnamed {
    /// Its files, if they can be read.
    images: Option<Arc<Images>>,
    /// The function that was found last. The next frame is often in the same one: they are sorted by address.
    last: Range<u64>,
}

impl Unnamed {
    pub(super) fn of(images: Option<Arc<Images>>) -> Unnamed {
        Unnamed { images, last: 0..0 }
    }

    /// Returns the number in a frame's label.
    pub(super) fn place(&mut self, frame: Frame) -> u64 {
        let found = self.images.as_ref().and_then(|images| Some((images, images.elf_address(frame)?)));
        let Some((images, ElfAddress(address))) = found else { return frame.address() };
        if !self.last.contains(&address) {
            self.last = images.own.function_around(ElfAddress(address)).unwrap_or_default();
        }
        if self.last.contains(&address) { self.last.start } else { address + u64::from(frame.is_return()) }
    }
}
