//! Functions, inlined calls, files and lines from DWARF, read with addr2line.
//!
//! ```text
//! Dwarf ── Cell ─┬─ Files   main sections · those dwz took out · .dwp · .dwo files, opened as they are met
//!                └─ UnitReader  addr2line's contexts, which borrow from them: one for each unit that was asked for, where units can be
//!                           opened one by one (units.rs), or one with a table of all; functions and lines of a unit
//!                           that was asked for, parsed once
//! ```
//!
//! DWARF is hostile like everything else: see [`limits`]. [`Dwarf::memory`] counts the bytes that gimli and addr2line take, so the holder
//! of a [`Dwarf`] can drop it when it takes too many.

pub(crate) mod limits;
pub(crate) mod sections;
pub(crate) mod units;
use std::cell::{Cell, OnceCell};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use addr2line::{Context, FrameIter, LookupContinuation, LookupResult, SplitDwarfLoad};
use gimli::{AbbreviationsCacheStrategy, DwAt, DwarfPackage, EndianSlice, LittleEndian, UnitType};
use self_cell::self_cell;

use super::dwarf::limits::{MAX_LINES, Tables, check, damaged};
use super::dwarf::sections::Sections;
use super::dwarf::units::{Asked, Units};
use crate::allocator::Meter;
use crate::object::debug_files::Places;
use crate::object::elf::Image;
use crate::object::reason::Reason;
use crate::profile::{ElfAddress, SourceLocation, sanitize};

/// Most files of split DWARF opened for one object: as many as a large program has sources.
const MAX_SPLIT: usize = 4096;
/// Mapped size in bytes above which pages go back to the kernel after each batch. Smaller files give theirs back every [`BATCHES`] batches,
/// because each batch reads its pages again.
const WORTH_GIVING_BACK: u64 = 32 << 20;
const BATCHES: u32 = 8;
/// Longest name that is kept.
const MAX_NAME: usize = 64 << 10;
/// Most calls inlined into each other at one address.
const MAX_CHAIN: usize = 64;

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// One function at an address. The outermost one is the function that was not inlined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call<'a> {
    /// Its linker name, or else its name in the source, at most 64 KiB of it; `None` if DWARF does not say.
    pub(super) name: Option<&'a [u8]>,
    /// File and line that are executed in it. The innermost function has the line of the address, each outer one the line of the call.
    pub(super) place: Option<(&'a str, u32)>,
}

struct Files {
    main: Sections,
    alternative: Option<Sections>,
    package: OnceCell<Option<Sections>>,
    split: boxcar::Vec<Sections>,
    places: Places,
}

struct UnitReader<'a> {
    /// Opens units one by one. `None` if the file does not allow that.
    units: Option<Units<'a>>,
    /// All units at once. Opened if `units` is `None`, or at the first unit that refers to others.
    whole: OnceCell<Result<Context<Slice<'a>>, Reason>>,
    package: OnceCell<Option<DwarfPackage<Slice<'a>>>>,
    /// Number of batches so far.
    batches: Cell<u32>,
}

self_cell!(
    struct Parts {
        owner: Files,
        #[not_covariant]
        dependent: UnitReader,
    }
);

/// An object's debug information, ready for lookups.
pub(super) struct Dwarf {
    parts: Parts,
    /// Counts the bytes that `parts` holds.
    memory: Meter,
}

impl Dwarf {
    /// Opens the debug information of the image that has the sections. `Ok(None)` if it has none.
    ///
    /// Fails if the sections cannot be read, are damaged, or exceed a limit.
    pub(super) fn open(image: &Image, alternative: Option<&Image>, places: Places) -> Result<Option<Dwarf>, Reason> {
        let memory = Meter::default();
        let parts = memory.measure(|| Dwarf::read(image, alternative, places))?;
        Ok(parts.map(|parts| Dwarf { parts, memory }))
    }

    fn read(image: &Image, alternative: Option<&Image>, places: Places) -> Result<Option<Parts>, Reason> {
        let Some(main) = Sections::read(image)? else { return Ok(None) };
        let alternative = alternative.map(Sections::read).transpose()?.flatten();
        let files = Files { main, alternative, package: OnceCell::new(), split: boxcar::Vec::new(), places };
        let parts = Parts::try_new(files, |files| {
            // Reads every unit, and is dropped.
            let mut read = load(files)?;
            if !files.main.is_trusted() {
                check(&read, true, Tables::Shared)?;
                read.populate_abbreviations_cache(AbbreviationsCacheStrategy::Duplicates);
                check(&read, false, Tables::Shared)?;
            }
            let units = Units::of(&files.main, &mut read, load(files)?)?;
            let reader = UnitReader { units, whole: OnceCell::new(), package: OnceCell::new(), batches: Cell::default() };
            if reader.units.is_none() {
                reader.whole(files)?;
            }
            Ok::<_, Reason>(reader)
        })?;
        // Opening has read the begin of each unit, which touches most pages. Lookups need few, so the pages go back to the kernel.
        each_file(&parts, Sections::give_back);
        Ok(Some(parts))
    }

    /// Calls `each` for the functions at an address, innermost first; not at all if none is known.
    ///
    /// At most [`MAX_CHAIN`] calls are reported. An error means that a unit could not be read.
    pub(super) fn calls(&self, address: ElfAddress, mut each: impl FnMut(Call<'_>)) -> Result<(), Reason> {
        let mut each = |call: Call<'_>| self.memory.leave_out(|| each(call));
        self.memory.measure(|| self.tell_calls(address, &mut each))
    }

    fn tell_calls(&self, address: ElfAddress, mut each: impl FnMut(Call<'_>)) -> Result<(), Reason> {
        self.parts.with_dependent(|files, reader| {
            if reader.whole.get().is_none() && reader.calls_of_units(address, &mut each)? {
                return Ok(());
            }
            let whole = reader.whole(files)?;
            let mut lookup = whole.find_frames(address.0);
            let frames = loop {
                match lookup {
                    LookupResult::Output(frames) => break frames,
                    LookupResult::Load { load, continuation } => lookup = continuation.resume(split(files, reader, &load)),
                }
            };
            tell(frames, &mut each).map(drop)
        })
    }

    /// Drops the units without a question for this long. Returns whether there were any.
    pub(super) fn drop_unused_units(&self, unused: Duration) -> bool {
        let drop_them = |reader: &UnitReader<'_>| reader.units.as_ref().is_some_and(|units| units.drop_unused(unused));
        self.memory.measure(|| self.parts.with_dependent(|_, reader| drop_them(reader)))
    }

    /// Returns the bytes held, without mapped files.
    pub(super) fn memory(&self) -> usize {
        self.memory.bytes()
    }

    /// Whether zeros were read in place of bytes that a file had before.
    pub(super) fn is_torn(&self) -> bool {
        let files = self.parts.borrow_owner();
        let others = files.alternative.iter().chain(files.package.get().into_iter().flatten());
        files.main.is_torn() || others.chain(files.split.iter().map(|(_, split)| split)).any(Sections::is_torn)
    }

    /// Ends a batch: gives pages that were read back to the kernel.
    pub(super) fn give_back(&self) {
        let mut mapped = 0;
        each_file(&self.parts, |sections| mapped += sections.mapped());
        let batches = self.parts.with_dependent(|_, reader| {
            reader.batches.set(reader.batches.get().wrapping_add(1));
            reader.batches.get()
        });
        if mapped > WORTH_GIVING_BACK || batches.is_multiple_of(BATCHES) {
            each_file(&self.parts, Sections::give_back);
        }
    }
}

/// Calls `ask` for each file that is read.
fn each_file(parts: &Parts, mut ask: impl FnMut(&Sections)) {
    let files = parts.borrow_owner();
    ask(&files.main);
    files.alternative.iter().chain(files.package.get().into_iter().flatten()).for_each(&mut ask);
    files.split.iter().for_each(|(_, split)| ask(split));
}

/// Returns the sections in gimli's form.
fn load(files: &Files) -> Result<gimli::Dwarf<Slice<'_>>, Reason> {
    let mut dwarf = gimli::Dwarf::load(|id| Ok::<_, Reason>(Slice::new(files.main.section(id), LittleEndian)))?;
    if let Some(alternative) = &files.alternative {
        dwarf.load_sup(|id| Ok::<_, Reason>(Slice::new(alternative.section(id), LittleEndian)))?;
    }
    Ok(dwarf)
}

/// Reports the functions of one lookup. Returns whether there were any.
fn tell(frames: Result<FrameIter<'_, Slice<'_>>, gimli::Error>, each: &mut impl FnMut(Call<'_>)) -> Result<bool, Reason> {
    let mut frames = frames.map_err(damaged)?;
    for told in 0..MAX_CHAIN {
        let Some(frame) = frames.next().map_err(damaged)? else { return Ok(told > 0) };
        let place = frame.location.as_ref().and_then(|place| Some((place.file?, place.line.filter(|line| *line > 0)?)));
        let name = frame.function.as_ref().map(|function| function.name.slice());
        each(Call { name: name.map(|name| name.get(..MAX_NAME).unwrap_or(name)), place });
    }
    Ok(true)
}

impl<'a> UnitReader<'a> {
    /// Reports the functions at an address by the units that may have it. Returns `false` if these units cannot be read alone.
    fn calls_of_units(&self, address: ElfAddress, each: &mut impl FnMut(Call<'_>)) -> Result<bool, Reason> {
        let Some(units) = &self.units else { return Ok(false) };
        units.ask(address.0, |unit| {
            let LookupResult::Output(frames) = unit.find_frames(address.0) else { return Ok(Asked::Elsewhere) };
            tell(frames, each).map(|told| if told { Asked::Known } else { Asked::Unknown })
        })
    }

    /// Opens all units at once, the first time.
    fn whole(&self, files: &'a Files) -> Result<&Context<Slice<'a>>, Reason> {
        let open = || {
            let mut dwarf = load(files)?;
            // The list is left out here: gimli recurses once for each empty entry of a list. If the list is valid, `Units` opens units by
            // it. Here the units themselves have their ranges.
            dwarf.debug_aranges = gimli::DebugAranges::new(&[], LittleEndian);
            // Entries of files that others could have written were checked at opening.
            check(&dwarf, true, Tables::Shared)?;
            dwarf.populate_abbreviations_cache(AbbreviationsCacheStrategy::Duplicates);
            if !files.main.is_trusted() && units::lines_at_opening(&dwarf)? > MAX_LINES {
                return Err(Reason::TooLarge);
            }
            if let (Some(sup), Some(sections)) = (dwarf.sup(), &files.alternative) {
                check(sup, sections.is_trusted(), Tables::OfEachUnit)?;
            }
            Context::from_dwarf(dwarf).map_err(damaged)
        };
        self.whole.get_or_init(open).as_ref().map_err(|reason| *reason)
    }
}

/// Finds the unit that a skeleton represents: in the package next to the object, or in the file that the skeleton names.
fn split<'a>(
    files: &'a Files,
    reader: &UnitReader<'a>,
    load: &SplitDwarfLoad<Slice<'a>>,
) -> Option<Arc<gimli::Dwarf<Slice<'a>>>> {
    from_package(files, reader, load).or_else(|| from_file(files, load)).map(Arc::new)
}

fn from_package<'a>(
    files: &'a Files,
    reader: &UnitReader<'a>,
    load: &SplitDwarfLoad<Slice<'a>>,
) -> Option<gimli::Dwarf<Slice<'a>>> {
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
    found.filter(|dwarf| check(dwarf, sections.is_trusted(), Tables::OfEachUnit).is_ok())
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
            if check(&dwarf, sections.is_trusted(), Tables::OfEachUnit).is_ok() && is_of(&dwarf, load.dwo_id) {
                return Some(dwarf);
            }
        }
    }
    None
}

/// Whether the first unit belongs to a skeleton. The file may have been rebuilt since.
fn is_of(dwarf: &gimli::Dwarf<Slice<'_>>, wanted: gimli::DwoId) -> bool {
    let Ok(Some(header)) = dwarf.units().next() else { return false };
    if let UnitType::SplitCompilation(id) = header.type_() {
        return id == wanted;
    }
    dwarf.unit(header).is_ok_and(|unit| unit.dwo_id == Some(wanted) || has_old_id(&unit, wanted))
}

/// Whether the unit has this id as an attribute, as before DWARF 5.
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;
    use crate::object::bytes::Source;

    type Told = Vec<(Option<String>, Option<(String, u32)>)>;

    fn owned(call: Call<'_>) -> (Option<String>, Option<(String, u32)>) {
        (call.name.map(|name| String::from_utf8_lossy(name).into_owned()), call.place.map(|(file, line)| (file.into(), line)))
    }

    /// Returns addr2line's answer from the whole file at once.
    fn whole(dwarf: &Dwarf, address: u64) -> Told {
        dwarf.parts.with_dependent(|files, _| {
            let context = Context::from_dwarf(load(files).unwrap()).unwrap();
            let mut told = Vec::new();
            tell(context.find_frames(address).skip_all_loads(), &mut |call| told.push(owned(call))).unwrap();
            told
        })
    }

    fn one_by_one(dwarf: &Dwarf, address: u64) -> Told {
        let mut told = Vec::new();
        dwarf.calls(ElfAddress(address), |call| told.push(owned(call))).unwrap();
        told
    }

    /// Builds a program of three units, one of them without code. Functions of one unit are inlined into another.
    fn build(directory: &Path, flags: &[&str]) -> Image {
        let common = "template <int N> __attribute__((noinline)) int shared(int x) { return x * N + 1; }\n\
                      static inline int twice(int x) { return shared<2>(x) * 2; }\nint of_other(int);\nextern int table[4];\n";
        let sources = [
            ("main.cc", "int main(int argc, char **) { return twice(argc) + of_other(argc) + table[argc & 3]; }\n"),
            (
                "other.cc",
                "__attribute__((noinline)) int unused(int x) { return x; }\nint of_other(int x) { return twice(x + 1); }\n",
            ),
            ("data.cc", "int table[4] = {1, 2, 3, 4};\n"),
        ];
        for (name, text) in sources {
            fs::write(directory.join(name), [common, text].concat()).unwrap();
        }
        let mut compiler = Command::new("g++");
        compiler.current_dir(directory).args(["-O2", "-o", "program"]).args(flags).args(sources.map(|(name, _)| name));
        assert!(compiler.status().expect("this test needs g++").success(), "{compiler:?}");
        Image::read(Source::Memory(fs::read(directory.join("program")).unwrap().into())).unwrap()
    }

    #[test]
    fn units_opened_one_by_one_tell_what_all_at_once_do() {
        let directory = tempfile::tempdir().unwrap();
        let kinds: [(&[&str], bool); 6] = [
            (&["-g"], true),
            (&["-g", "-gdwarf-4"], true),
            (&["-g", "-ffunction-sections", "-Wl,--gc-sections"], true),
            (&["-g", "-gz"], true),
            // Calls of one unit are inlined into another: entries of both refer to each other.
            (&["-g", "-flto"], false),
            (&["-g", "-gsplit-dwarf"], false),
        ];
        for (flags, alone) in kinds {
            let image = build(directory.path(), flags);
            let dwarf = Dwarf::open(&image, None, Places::default()).unwrap().unwrap();
            let is_open = || dwarf.parts.with_dependent(|_, reader| reader.whole.get().is_some());
            assert!(!is_open(), "{flags:?}: this compiler lists no addresses");
            let code = image.sections_named(|name| name == ".text").unwrap().remove(0);
            let (mut inlined, mut named) = (0, 0);
            // In a small program, addresses equal file offsets.
            for address in code.file.step_by(3) {
                let told = one_by_one(&dwarf, address);
                // Split parts are found by directories. This image has none.
                if !flags.contains(&"-gsplit-dwarf") {
                    assert_eq!(told, whole(&dwarf, address), "{flags:?} {address:#x}");
                }
                inlined += usize::from(told.len() > 1);
                named += usize::from(!told.is_empty());
            }
            assert_eq!(is_open(), !alone, "{flags:?}");
            assert!(named > 10 && inlined > 0 || flags.contains(&"-gsplit-dwarf"), "{flags:?}: {named} named, {inlined} inlined");
        }
    }

    #[test]
    fn units_that_nobody_asks_for_are_dropped_and_come_back() {
        let directory = tempfile::tempdir().unwrap();
        let image = build(directory.path(), &["-g"]);
        let dwarf = Dwarf::open(&image, None, Places::default()).unwrap().unwrap();
        let before = dwarf.memory();
        let code = image.sections_named(|name| name == ".text").unwrap().remove(0);
        let ask = || -> Vec<Told> { code.file.clone().map(|address| one_by_one(&dwarf, address)).collect() };
        let told = ask();
        let with_units = dwarf.memory();
        assert!(with_units > before + 1000, "{before}, then {with_units}");
        assert!(!dwarf.drop_unused_units(Duration::from_secs(30)));
        assert_eq!(dwarf.memory(), with_units);
        assert!(dwarf.drop_unused_units(Duration::ZERO));
        assert_eq!(dwarf.memory(), before);
        assert_eq!((ask(), dwarf.memory()), (told, with_units));
    }

    /// A unit of assembler. Its entry has neither addresses nor ranges; a function in it has. DWARF 4.
    const OF_LINES: &str = r#"
        .text
        .globl of_lines
of_lines:
        .file 1 "lines.c"
        .loc 1 7
        mov %edi, %eax
        .loc 1 8
        ret
.Lend:
        .section .debug_abbrev
        .byte 1, 0x11, 1, 0x10, 0x17, 0, 0
        .byte 2, 0x2e, 0, 0x03, 0x08, 0x11, 0x01, 0x12, 0x07, 0, 0, 0
        .section .debug_line
.Llines:
        .section .debug_info
        .long .Lbehind - .Lunit
.Lunit: .value 4
        .long .debug_abbrev
        .byte 8, 1
        .long .Llines
        .byte 2
        .asciz "of_lines"
        .quad of_lines, .Lend - of_lines
        .byte 0
.Lbehind:
        .section .note.GNU-stack
"#;

    #[test]
    fn units_that_are_not_listed_are_found_by_their_own_ranges() {
        let directory = tempfile::tempdir().unwrap();
        build(directory.path(), &["-g"]);
        let at = |name: &str| directory.path().join(name);
        let run = |command: &mut Command| assert!(command.status().unwrap().success(), "{command:?}");
        // Three kinds of units: with a range, with a list of ranges, with nothing but lines.
        for (name, flags) in [("other", &["-O2"][..]), ("main", &["-O2", "-ffunction-sections"])] {
            run(Command::new("g++").args(["-g", "-c", "-o"]).arg(at(name)).args(flags).arg(at(&format!("{name}.cc"))));
            run(Command::new("objcopy")
                .args(["--remove-section", ".debug_aranges", "--remove-section", ".rela.debug_aranges"])
                .arg(at(name)));
        }
        fs::write(at("lines.s"), OF_LINES).unwrap();
        let inputs = [at("main"), at("other"), at("lines.s"), at("data.cc")];
        run(Command::new("g++").args(["-O2", "-g", "-o"]).arg(at("program")).args(inputs));
        let image = Image::read(Source::Memory(fs::read(at("program")).unwrap().into())).unwrap();
        let dwarf = Dwarf::open(&image, None, Places::default()).unwrap().unwrap();
        let code = image.sections_named(|name| name == ".text").unwrap().remove(0);
        let told: Vec<Told> = code.file.clone().map(|address| one_by_one(&dwarf, address)).collect();
        let names = |name: &str| told.iter().filter(|told| told.iter().any(|call| call.0.as_deref() == Some(name))).count();
        assert!(["_Z8of_otheri", "main", "of_lines"].iter().all(|name| names(name) > 0), "{told:?}");
        assert!(
            told.iter().flatten().any(|call| call.1.as_ref().is_some_and(|(file, line)| file.ends_with("lines.c") && *line == 8))
        );
        assert!(dwarf.parts.with_dependent(|_, reader| reader.units.is_some() && reader.whole.get().is_none()));
        assert_eq!(told, code.file.map(|address| whole(&dwarf, address)).collect::<Vec<_>>());
    }
}
