//! Resolves addresses of one file to names without a process: for `flametop names`, and for comparison with other tools.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use rustc_hash::FxHashMap;

use super::dwarf::{Dwarf, location};
use super::jit::growing_file::{CodeFile, Format};
use super::jit::jitdump::JitDump;
use super::jit::perf_map::PerfMap;
use super::symbols::demangle::{Detail, demangle};
use super::symbols::index::{NameRef, SymbolIndex};
use crate::object::bytes::Source;
use crate::object::debug_files::Places;
use crate::object::elf::Image;
use crate::object::object_files::Images;
use crate::object::reason::Reason;
use crate::profile::{ElfAddress, Object, ObjectKind, SourceLocation};

/// Bytes of debug information above which it is opened anew.
const MAX_HELD: usize = 1 << 30;
/// Most names remembered, so that each is made readable once.
const MAX_NAMES: usize = 1 << 16;

/// A function at an address.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Function {
    /// Its name; empty if it is unknown.
    pub name: String,
    /// File and line that are executed in it.
    pub location: Option<SourceLocation>,
}

/// One file's symbols and debug information.
pub struct Resolver {
    images: Images,
    index: SymbolIndex,
    dwarf: Option<Dwarf>,
    detail: Option<Detail>,
    names: FxHashMap<NameRef, String>,
    problem: Option<Reason>,
}

impl Resolver {
    /// Opens a file and the debug files that belong to it. Without `detail`, names stay as the linker has them.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is no ELF file for this kind of machine.
    pub fn open(path: &Path, detail: Option<Detail>) -> Result<Resolver, Reason> {
        let path = std::fs::canonicalize(path).map_err(|error| match Reason::from(error) {
            Reason::NotFound => Reason::NoSuchFile,
            reason => reason,
        })?;
        let meta = path.metadata()?;
        let file = Some((meta.dev(), meta.ino()));
        let object =
            Object { kind: ObjectKind::Elf, path: path.to_string_lossy().into(), build_id: None, file, ..Default::default() };
        Resolver::of(Images::open(&object, &[], None)?, detail)
    }

    /// Resolves names in a file's bytes, without any debug files. For tests: a file is hostile, and this is what reads it.
    ///
    /// # Errors
    ///
    /// The bytes are no ELF file for this kind of machine.
    pub fn of_bytes(bytes: &[u8], detail: Option<Detail>) -> Result<Resolver, Reason> {
        Resolver::of(Images::inside(Image::read(Source::Memory(bytes.into()))?)?, detail)
    }

    /// Resolves names in `bytes` as if they were the file `/object` under `root`, with the files there as its debug files. For tests: those
    /// files are hostile as well.
    ///
    /// # Errors
    ///
    /// As [`of_bytes`](Self::of_bytes).
    pub fn of_bytes_beside(bytes: &[u8], root: &Path, detail: Option<Detail>) -> Result<Resolver, Reason> {
        let own = Image::read(Source::Memory(bytes.into()))?;
        Resolver::of(Images::beside(own, Places::of_path(root.to_owned(), Path::new("/object")), None)?, detail)
    }

    fn of(images: Images, detail: Option<Detail>) -> Result<Resolver, Reason> {
        let index = SymbolIndex::build(&images)?;
        let mut resolver = Resolver { images, index, dwarf: None, detail, names: FxHashMap::default(), problem: None };
        // Without debug information there are still the symbols.
        resolver.problem = resolver.open_dwarf().err();
        Ok(resolver)
    }

    /// Returns why there are symbols only, though the file has debug information.
    pub fn problem(&self) -> Option<Reason> {
        self.problem
    }

    fn open_dwarf(&mut self) -> Result<(), Reason> {
        self.dwarf = None;
        let (image, alternative) = self.images.dwarf();
        self.dwarf = Dwarf::open(image, alternative, self.images.places.clone())?;
        Ok(())
    }

    /// Returns the functions at a virtual address of the file, innermost first; none if nothing is known. The outermost has the name of its
    /// symbol.
    ///
    /// # Errors
    ///
    /// The file could not be read, or was changed meanwhile.
    pub fn resolve(&mut self, address: ElfAddress) -> Result<Vec<Function>, Reason> {
        let mut functions = Vec::new();
        let detail = self.detail;
        if let Some(dwarf) = &self.dwarf {
            // If a unit is damaged, the symbol still names the address.
            let _ = dwarf.calls(address, |call| {
                let name = call.name.map(|name| readable(name, detail)).unwrap_or_default();
                functions.push(Function { name, location: call.place.map(location) });
            });
            if dwarf.is_torn() {
                return Err(Reason::Changed);
            }
            if dwarf.memory() > MAX_HELD {
                self.problem = self.open_dwarf().err();
            }
        }
        let symbol = self.index.find(address).map(|name| self.symbol(name)).transpose()?;
        if let Some(symbol) = symbol.filter(|symbol| !symbol.is_empty()) {
            match functions.last_mut() {
                Some(outermost) => outermost.name = symbol,
                None => functions.push(Function { name: symbol, location: None }),
            }
        }
        Ok(functions)
    }

    fn symbol(&mut self, name: NameRef) -> Result<String, Reason> {
        if let Some(known) = self.names.get(&name) {
            return Ok(known.clone());
        }
        if self.names.len() >= MAX_NAMES {
            self.names.clear();
        }
        let read = name.read(&self.images)?.map(|name| readable(&name, self.detail)).unwrap_or_default();
        self.names.insert(name, read.clone());
        Ok(read)
    }
}

fn readable(name: &[u8], detail: Option<Detail>) -> String {
    match detail {
        Some(detail) => demangle(name, detail).into_owned(),
        None => String::from_utf8_lossy(name).into_owned(),
    }
}

/// Returns the names of these addresses in a JIT code map: a perf map, or a jitdump. The second half is written after the first was read,
/// as runtimes do. For tests: maps are hostile, and this is what reads them.
///
/// # Errors
///
/// The bytes are no such map, or a file for them could not be made.
pub fn code_names(bytes: &[u8], is_dump: bool, addresses: &[u64]) -> Result<Vec<Option<Vec<u8>>>, Reason> {
    if is_dump { as_it_grows::<JitDump>(bytes, addresses) } else { as_it_grows::<PerfMap>(bytes, addresses) }
}

fn as_it_grows<F: Format + Default>(bytes: &[u8], addresses: &[u64]) -> Result<Vec<Option<Vec<u8>>>, Reason> {
    let mut file = tempfile::tempfile()?;
    let mut reader = CodeFile::<F>::ours(file.try_clone()?)?;
    let (first, second) = bytes.split_at(bytes.len() / 2);
    for half in [first, second] {
        file.write_all(half)?;
        reader.update(&AtomicBool::new(false))?;
    }
    addresses.iter().map(|address| reader.name_at(*address)).collect()
}
