//! Reads which engine a mapped file contains, V8 or HotSpot, on the threads of [`reader`](super::reader).

use std::sync::Arc;

use super::interpreter::{MappedImage, MappedPart};
use super::mappings::Engine;
use super::process_memory::ProcessMemory;
use crate::profile::{Tgid, UserId};
use crate::runtimes::{Memory, hotspot, v8};

/// Finds out which engine a mapped file contains, and reads the numbers that its symbols lead to. May wait for the file.
pub(super) fn of_file(user: UserId, tgid: Tgid, part: &MappedPart) -> Engine {
    read_file(user, tgid, part).unwrap_or(Engine::Unknown)
}

fn read_file(user: UserId, tgid: Tgid, part: &MappedPart) -> Option<Engine> {
    let file = MappedImage::read(user, tgid, part)?;
    let memory = ProcessMemory::open(tgid.0)?;
    let ([of_v8, ..], [of_hotspot, ..]) = (v8::Layout::SYMBOLS, hotspot::Layout::SYMBOLS);
    // Nearly all files have neither.
    match file.addresses_of([of_v8, of_hotspot])? {
        [Some(major), _] => {
            let found = file.addresses_of(v8::Layout::SYMBOLS)?;
            // If the process is gone, it says nothing of the file.
            memory.u32(major)?;
            let layout = v8::Layout::of(|name| {
                let at = v8::Layout::SYMBOLS.iter().position(|symbol| *symbol == name)?;
                memory.u32((*found.get(at)?)?).map(u32::cast_signed)
            });
            Some(layout.map_or_else(Engine::UnfitV8, |layout| Engine::V8(Arc::new(layout))))
        }
        [_, Some(_)] => {
            let found = file.addresses_of(hotspot::Layout::SYMBOLS)?;
            let mut symbols = [0; hotspot::Layout::SYMBOLS.len()];
            for (symbol, found) in symbols.iter_mut().zip(found) {
                *symbol = found?;
            }
            let layout = hotspot::Layout::read(&memory, &symbols)?;
            let at_zero = |layout: hotspot::Layout| Engine::HotSpot(Arc::new(layout.moved_by(part.mapped.start.wrapping_neg())));
            Some(layout.map_or_else(Engine::UnfitHotSpot, at_zero))
        }
        _ => Some(Engine::None),
    }
}
