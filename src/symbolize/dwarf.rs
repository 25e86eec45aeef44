//! Functions, what was inlined into them, files and lines: from DWARF, by way of addr2line.
//!
//! ```text
//! Dwarf ── Cell ─┬─ Files   main sections · those dwz took out · .dwp · .dwo files, opened as they are met
//!                └─ Reader  addr2line's context, which borrows from them: a table of units (ranges → unit); of each unit that was
//!                           asked for: its functions and lines, parsed once
//! ```
//!
//! DWARF is hostile like everything else: see [`dwarf_check`](super::dwarf_check). What units that were looked at take is estimated ([`Dwarf::memory`]), so that
//! whoever holds this can let go of it.

use std::cell::{Cell, OnceCell, RefCell};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use addr2line::{Context, LookupContinuation, LookupResult, SplitDwarfLoad};
use gimli::{DwAt, DwarfPackage, EndianSlice, LittleEndian, UnitType};
use rustc_hash::FxHashSet;
use self_cell::self_cell;

use super::debug_files::Places;
use super::dwarf_check::check;
use super::elf::Image;
use super::problem::Reason;
use super::sections::Sections;
use crate::profile::{ElfAddress, sanitize};

/// Files of split DWARF opened of one object, as many as a large program has sources.
const MAX_SPLIT: usize = 4096;
/// Pages of files larger than this are given back after each batch; of others after so many, as each gets again what it looks at.
const WORTH_GIVING_BACK: u64 = 32 << 20;
const BATCHES: u32 = 8;
/// Longest name looked at.
const MAX_NAME: usize = 64 << 10;
/// Calls inlined into each other at one address.
const MAX_CHAIN: usize = 64;

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// A place in source code.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub struct SourceLocation {
    /// The file as the compiler wrote it down, with the directory it ran in; safe to print.
    pub file: Arc<str>,
    /// Line, counted from 1.
    pub line: u32,
}

/// One function at an address: the outermost is the one that has an address of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call<'a> {
    /// Its name as the linker knows it, or as the source has it, at most 64 KiB of it; none where DWARF does not say.
    pub(super) name: Option<&'a [u8]>,
    /// The file and line that are executed in it: of the innermost the address's own, of others those of the call.
    pub(super) place: Option<(&'a str, u32)>,
}

struct Files {
    main: Sections,
    alternative: Option<Sections>,
    package: OnceCell<Option<Sections>>,
    split: boxcar::Vec<Sections>,
    places: Places,
}

struct Reader<'a> {
    context: Context<Slice<'a>>,
    package: OnceCell<Option<DwarfPackage<Slice<'a>>>>,
    /// Units that were looked at, by their place.
    seen: RefCell<FxHashSet<(u64, usize)>>,
    weight: Cell<usize>,
    /// Where the last address was whose unit was weighed.
    near: Cell<u64>,
    /// Batches so far.
    batches: Cell<u32>,
}

self_cell!(
    struct Parts {
        owner: Files,
        #[not_covariant]
        dependent: Reader,
    }
);

/// An object's debug information, ready to be asked.
pub(super) struct Dwarf(Parts);

impl Dwarf {
    /// Of the image that has the sections. `Ok(None)` where it has none.
    ///
    /// Fails where they cannot be read, are damaged, or are more than is ever read.
    pub(super) fn open(image: &Image, alternative: Option<&Image>, places: Places) -> Result<Option<Dwarf>, Reason> {
        let Some(main) = Sections::read(image)? else { return Ok(None) };
        let alternative = alternative.map(Sections::read).transpose()?.flatten();
        let files = Files { main, alternative, package: OnceCell::new(), split: boxcar::Vec::new(), places };
        let parts = Parts::try_new(files, |files| {
            let mut dwarf = gimli::Dwarf::load(|id| Ok::<_, Reason>(Slice::new(files.main.section(id), LittleEndian)))?;
            if let Some(alternative) = &files.alternative {
                dwarf.load_sup(|id| Ok::<_, Reason>(Slice::new(alternative.section(id), LittleEndian)))?;
            }
            check(&dwarf, files.main.is_trusted())?;
            if let (Some(sup), Some(sections)) = (dwarf.sup(), &files.alternative) {
                check(sup, sections.is_trusted())?;
            }
            let context = Context::from_dwarf(dwarf).map_err(|_| Reason::MalformedDwarf)?;
            let (seen, weight, batches) = (RefCell::default(), Cell::default(), Cell::default());
            Ok::<_, Reason>(Reader { context, package: OnceCell::new(), seen, weight, near: Cell::new(u64::MAX), batches })
        })?;
        let dwarf = Dwarf(parts);
        // Opening has looked at the begin of each unit, so at most pages there are; questions look at few.
        dwarf.each(Sections::give_back);
        Ok(Some(dwarf))
    }

    /// The functions at an address, innermost first; none where nothing is known.
    ///
    /// The number of calls told is bounded; an error is a unit that cannot be read.
    pub(super) fn calls(&self, address: ElfAddress, mut each: impl FnMut(Call<'_>)) -> Result<(), Reason> {
        self.0.with_dependent(|files, reader| {
            let mut lookup = reader.context.find_frames(address.0);
            let frames = loop {
                match lookup {
                    LookupResult::Output(frames) => break frames,
                    LookupResult::Load { load, continuation } => lookup = continuation.resume(split(files, reader, &load)),
                }
            };
            // After its split part was found: whoever asks without that finds that there is none. And whether it is damaged or
            // not: what comes before the damage is held as well.
            reader.weigh(address.0);
            let mut frames = frames.map_err(|_| Reason::MalformedDwarf)?;
            for _ in 0..MAX_CHAIN {
                let Some(frame) = frames.next().map_err(|_| Reason::MalformedDwarf)? else { break };
                let place = frame.location.as_ref().and_then(|place| Some((place.file?, place.line.filter(|line| *line > 0)?)));
                let name = frame.function.as_ref().map(|function| function.name.slice());
                each(Call { name: name.map(|name| name.get(..MAX_NAME).unwrap_or(name)), place });
            }
            Ok(())
        })
    }

    /// Bytes that are held of it, about: of all units their abbreviations; of those that were looked at their lines, and
    /// functions; and sections that were unpacked. The factors are between those of C (the kernel: 5.1 MB of abbreviations take
    /// 92 MB, all of its 163 MB of units with 16.7 MB of lines another 87 MB) and of Rust (this program, built for its
    /// tests: 6.7 MB of units with 3.5 MB of lines take 39 MB).
    pub(super) fn memory(&self) -> usize {
        self.0.with_dependent(|files, reader| {
            let abbreviations = files.main.section(gimli::SectionId::DebugAbbrev).len() * 18;
            files.main.memory() + abbreviations + reader.weight.get()
        })
    }

    /// Whether zeros were read in place of what a file had.
    pub(super) fn is_torn(&self) -> bool {
        let files = self.0.borrow_owner();
        let others = files.alternative.iter().chain(files.package.get().into_iter().flatten());
        files.main.is_torn() || others.chain(files.split.iter().map(|(_, split)| split)).any(Sections::is_torn)
    }

    /// Gives pages that were looked at back to the kernel, at the end of a batch.
    pub(super) fn give_back(&self) {
        let mut mapped = 0;
        self.each(|sections| mapped += sections.mapped());
        let batches = self.0.with_dependent(|_, reader| {
            reader.batches.set(reader.batches.get().wrapping_add(1));
            reader.batches.get()
        });
        if mapped > WORTH_GIVING_BACK || batches.is_multiple_of(BATCHES) {
            self.each(Sections::give_back);
        }
    }

    /// All files that it reads.
    fn each(&self, mut ask: impl FnMut(&Sections)) {
        let files = self.0.borrow_owner();
        ask(&files.main);
        files.alternative.iter().chain(files.package.get().into_iter().flatten()).for_each(&mut ask);
        files.split.iter().for_each(|(_, split)| ask(split));
    }
}

impl Reader<'_> {
    /// Counts the unit of an address, if it is a new one. Addresses come in order: those close to the last are of its unit.
    fn weigh(&self, address: u64) {
        if self.near.replace(address >> 8) == address >> 8 {
            return;
        }
        let Some(unit) = self.context.find_dwarf_and_unit(address).skip_all_loads() else { return };
        let offset = unit.header.debug_info_offset().map_or(0, |offset| offset.0);
        if self.seen.borrow_mut().insert((unit.dwo_id.map_or(0, |id| id.0), offset)) {
            let lines = unit.line_program.as_ref().map_or(0, |program| program.header().raw_program_buf().len());
            self.weight.set(self.weight.get() + unit.header.unit_length() / 2 + 7 * lines);
        }
    }
}

/// The unit that a skeleton stands for: from the package beside the object, or from the file that it names.
fn split<'a>(files: &'a Files, reader: &Reader<'a>, load: &SplitDwarfLoad<Slice<'a>>) -> Option<Arc<gimli::Dwarf<Slice<'a>>>> {
    from_package(files, reader, load).or_else(|| from_file(files, load)).map(Arc::new)
}

fn from_package<'a>(files: &'a Files, reader: &Reader<'a>, load: &SplitDwarfLoad<Slice<'a>>) -> Option<gimli::Dwarf<Slice<'a>>> {
    let open = || {
        let path = files.places.path_with(".dwp");
        files.places.images(&path).find_map(|image| Sections::read_package(&image).ok()?)
    };
    let sections = files.package.get_or_init(open).as_ref()?;
    let package = reader.package.get_or_init(|| {
        let section = |id: gimli::SectionId| {
            let name = match id {
                gimli::SectionId::DebugCuIndex => ".debug_cu_index",
                gimli::SectionId::DebugTuIndex => ".debug_tu_index",
                id => id.dwo_name().unwrap_or_default(),
            };
            Ok::<_, gimli::Error>(Slice::new(sections.get(name), LittleEndian))
        };
        DwarfPackage::load(section, Slice::new(&[], LittleEndian)).ok()
    });
    let found = package.as_ref()?.find_cu(load.dwo_id, &load.parent).ok()?;
    found.filter(|dwarf| check(dwarf, sections.is_trusted()).is_ok())
}

fn from_file<'a>(files: &'a Files, load: &SplitDwarfLoad<Slice<'a>>) -> Option<gimli::Dwarf<Slice<'a>>> {
    if files.split.count() >= MAX_SPLIT {
        return None;
    }
    let text = |slice: Slice<'a>| std::str::from_utf8(slice.slice()).ok();
    let named = Path::new(load.path.and_then(text)?);
    let path = load.comp_dir.and_then(text).map_or(PathBuf::new(), PathBuf::from).join(named);
    let beside = files.places.directory().zip(named.file_name()).map(|(directory, name)| directory.join(name));
    for path in [Some(path), beside].into_iter().flatten() {
        for image in files.places.images(&path) {
            let Some(sections) = Sections::read(&image).ok().flatten() else { continue };
            let slot = files.split.push(sections);
            let sections = files.split.get(slot)?;
            let mut dwarf =
                gimli::Dwarf::load(|id| Ok::<_, Reason>(Slice::new(sections.split_section(id), LittleEndian))).ok()?;
            dwarf.make_dwo(&load.parent);
            if check(&dwarf, sections.is_trusted()).is_ok() && is_of(&dwarf, load.dwo_id) {
                return Some(dwarf);
            }
        }
    }
    None
}

/// Whether the first unit is the one that belongs to a skeleton: a file may have been built anew since.
fn is_of(dwarf: &gimli::Dwarf<Slice<'_>>, wanted: gimli::DwoId) -> bool {
    let Ok(Some(header)) = dwarf.units().next() else { return false };
    if let UnitType::SplitCompilation(id) = header.type_() {
        return id == wanted;
    }
    dwarf.unit(header).is_ok_and(|unit| unit.dwo_id == Some(wanted) || has_old_id(&unit, wanted))
}

/// Before DWARF 5 the unit itself has it as an attribute.
fn has_old_id(unit: &gimli::Unit<Slice<'_>>, wanted: gimli::DwoId) -> bool {
    const GNU_DWO_ID: DwAt = gimli::DW_AT_GNU_dwo_id;
    let Ok(mut entries) = unit.entries_raw(None) else { return false };
    let Ok(Some(abbreviation)) = entries.read_abbreviation() else { return false };
    abbreviation.attributes().iter().any(|spec| {
        let attribute = entries.read_attribute(*spec);
        attribute.is_ok_and(|attribute| attribute.name() == GNU_DWO_ID && attribute.udata_value() == Some(wanted.0))
    })
}

/// A place in source code, safe to print.
pub(super) fn location((file, line): (&str, u32)) -> SourceLocation {
    SourceLocation { file: sanitize(file).into(), line }
}
