//! Reads V8's numbers and functions from files and memory of processes, on the threads of [`reader`](super::reader).

use super::interpreter::{CodeKey, MappedImage, MappedPart};
use super::process_memory::ProcessMemory;
use crate::profile::{Tgid, UserId};
use crate::runtimes::Memory;
use crate::runtimes::v8::{Function, Layout, Reader, Sources};

/// Reads the numbers that a mapped file's symbols lead to: `Some(None)` if it does not contain V8. Returns `None` if it cannot be read. May wait for
/// the file.
pub(super) fn of_file(user: UserId, tgid: Tgid, part: &MappedPart) -> Option<Option<Layout>> {
    let file = MappedImage::read(user, tgid, part)?;
    let [major, ..] = Layout::SYMBOLS;
    // Nearly all files end here.
    let [Some(_)] = file.addresses_of([major])? else { return Some(None) };
    let found = file.addresses_of(Layout::SYMBOLS)?;
    let memory = ProcessMemory::open(tgid.0)?;
    let version = found.first().copied().flatten()?;
    // The process is gone, and says nothing of the file.
    memory.u32(version)?;
    Some(Layout::of(|name| {
        let at = Layout::SYMBOLS.iter().position(|symbol| *symbol == name)?;
        memory.u32((*found.get(at)?)?).map(u32::cast_signed)
    }))
}

/// Reads functions of a process. A function is `None` if it is gone, or if another one is in its place by now.
pub(super) fn functions(
    tgid: u32,
    layout: &Layout,
    sources: &mut Sources,
    wanted: &[CodeKey],
) -> Vec<(CodeKey, Option<Function>)> {
    let Some(memory) = ProcessMemory::open(tgid) else { return Vec::new() };
    let mut reader = Reader::new(&memory, layout, sources);
    let read = |&(shared, check): &CodeKey| {
        let is_it = || Function::check(&memory, layout, shared) == Some(check);
        let function = if is_it() { reader.function(shared) } else { None };
        // It may have gone while it was read.
        ((shared, check), function.filter(|_| is_it()))
    };
    wanted.iter().map(read).collect()
}
