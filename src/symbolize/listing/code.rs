//! A function's instructions, in the syntax of `objdump`: AT&T's for x86_64.

use std::ops::Range;
use std::sync::Arc;

use super::called::{Called, MAX_INSTRUCTIONS};
use super::disassembly;
use crate::object::headers::Arch;
use crate::object::object_files::Images;
use crate::object::reason::Reason;
use crate::profile::{ElfAddress, FrameId, FrameWeight, Object, ObjectId, ObjectKind, Rows, sanitize};
use crate::symbolize::service::Service;
use crate::symbolize::symbols::demangle::{Detail, demangle};
use crate::symbolize::symbols::index::SymbolIndex;

/// Most bytes read of one function: x86 has at most 15 in an instruction, and 4 on average.
pub(super) const MAX_BYTES: u64 = 256 << 10;
/// Bytes read if the end of the function is unknown.
const WITHOUT_BOUNDS: u64 = 512;

/// Returns when the object's file was written: seconds and nanoseconds.
pub(super) fn modified(service: &Service, id: ObjectId, object: &Object) -> Option<(i64, i64)> {
    let entry = service.objects.entry(id);
    let images = service.objects.images(&mut entry.state(), object, &[]).ok()?;
    images.own.source.modified()
}

/// Returns the object that has a function of the kernel: the kernel itself or a module. Its debug information must be installed here. The
/// error says why nothing is known of the function.
pub(super) fn kernel_object(service: &Service, frames: &[FrameWeight]) -> Result<ObjectId, &'static str> {
    let found = frames.iter().find_map(|weight| service.has_debug_information_of(weight.frame));
    let object = found.ok_or("this kernel code is in none of the kernel's files")?;
    let about = service.names.objects.get(object).ok_or("")?;
    let entry = service.objects.entry(object);
    let Ok(images) = service.objects.images(&mut entry.state(), about, &[]) else {
        return Err(match object {
            ObjectId::KERNEL => "the debug information of this kernel is not installed",
            _ => "the debug information of this module is not installed",
        });
    };
    let is_its = |weight: &FrameWeight| {
        let frame = service.names.frames.get(weight.frame).filter(|frame| frame.object() == ObjectId::KERNEL);
        frame.is_some_and(|frame| images.elf_address(frame).is_some())
    };
    if frames.iter().any(is_its) { Ok(object) } else { Err("this function's place in the kernel's files is unknown") }
}

/// Reads the instructions of the function at this address from its file. Also returns the rows of its sampled addresses.
pub(super) fn instructions(
    service: &Service,
    id: ObjectId,
    object: &Object,
    by: FrameId,
    frames: &[FrameWeight],
) -> Result<Rows, String> {
    let symbols = Symbols::of(service, id, object).map_err(|reason| format!("no instructions: {reason}"))?;
    if symbols.images.own.placed.is_some() {
        return Err("no instructions: a module's file is not linked, so the code that runs differs from it".to_owned());
    }
    let images = Arc::clone(&symbols.images);
    let image = &images.own;
    let arch = image.arch().ok_or("no instructions: only x86_64 and arm64 code can be read")?;
    let place = |frame: FrameId| {
        let address = images.elf_address(service.names.frames.get(frame)?)?;
        Some((address, image.file_offset(address)?.0))
    };
    let (address, offset) = place(by).ok_or("no instructions: this function's addresses are not in its file's code")?;
    let known = symbols.index.interval(address).map(|(range, _)| range).or_else(|| image.function_around(address));
    let (range, note) = match known {
        Some(range) if object.kind == ObjectKind::Kernel => {
            (range, "from vmlinux: the running kernel has overwritten some of these instructions")
        }
        Some(range) => (range, ""),
        None => {
            let end =
                image.code_around(address.0).map_or(address.0, |code| code.end.min(address.0.saturating_add(WITHOUT_BOUNDS)));
            (address.0..end, "the function's start is unknown: shown from the sampled address on")
        }
    };
    let length = (range.end - range.start).min(MAX_BYTES);
    let bytes = offset
        .checked_sub(address.0 - range.start)
        .ok_or(Reason::Malformed)
        .and_then(|begin| image.source.read(begin, length, MAX_BYTES))
        .map_err(|reason| format!("no instructions: {reason}"))?;
    let places = frames.iter().filter_map(|weight| Some((weight.frame, place(weight.frame)?.0.0)));
    let file = sanitize(&object.path);
    let rows = Code { arch, bytes: &bytes, range, note, file: &file }.rows(symbols, places)?;
    image.source.check_unchanged().map_err(|reason| format!("no instructions: {reason}"))?;
    Ok(rows)
}

/// A function's code.
pub(super) struct Code<'a> {
    pub(super) arch: Arch,
    /// Its bytes from its begin on; they may end before the function does.
    pub(super) bytes: &'a [u8],
    pub(super) range: Range<u64>,
    /// A note for the reader; empty for none.
    pub(super) note: &'static str,
    pub(super) file: &'a str,
}

impl Code<'_> {
    /// Decodes its instructions, and finds the rows of these addresses.
    pub(super) fn rows(self, symbols: impl Called, places: impl Iterator<Item = (FrameId, u64)>) -> Result<Rows, &'static str> {
        let Code { arch, bytes, range, note, file } = self;
        let rows = disassembly::decode(arch, bytes, range.clone(), symbols)?;
        let is_cut = (bytes.len() as u64) < range.end - range.start || rows.len() >= MAX_INSTRUCTIONS;
        let end = if is_cut { rows.last().map_or(range.start, |row| row.place + 1) } else { range.end };
        let note = if end < range.end { "the function is very long: only its beginning is shown" } else { note };
        let row_at = |address: u64| rows.partition_point(|row| row.place <= address).checked_sub(1);
        let inside = places.filter(|(_, at)| (range.start..end).contains(at));
        let row_of = inside.filter_map(|(frame, at)| Some((frame, row_at(at)?))).collect();
        Ok(Rows { file: file.into(), note: note.to_owned(), rows, row_of })
    }
}

/// The symbols of a file.
struct Symbols {
    images: Arc<Images>,
    index: Arc<SymbolIndex>,
}

impl Symbols {
    fn of(service: &Service, id: ObjectId, object: &Object) -> Result<Symbols, Reason> {
        let entry = service.objects.entry(id);
        let mut state = entry.state();
        let images = service.objects.images(&mut state, object, &[])?;
        let index = service.objects.index(&mut state, &images)?;
        Ok(Symbols { images, index })
    }
}

impl Called for Symbols {
    fn name(&self, address: u64) -> Option<(u64, String)> {
        let (range, name) = self.index.interval(ElfAddress(address))?;
        let name = name.read(&self.images).ok()??;
        Some((range.start, demangle(&name, Detail::Short).into_owned()))
    }
}
