//! An object's own file, and the files that belong to it.

use crate::profile::Frame;
use crate::profile::KernelAddress;
use std::ops::Range;
use std::sync::OnceLock;

use super::debug_files::{self, Fetched, Places};
use super::elf::{Image, TableKind};
use super::gopclntab::{self, GoFunction, GoNames};
use super::mapped_file::{self, Host};
use super::reason::Reason;
use super::vdso;
use crate::profile::{BuildId, ElfAddress, Object, ObjectKind};

/// The symbol table of a symbol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    /// The object's own `.symtab`.
    Own,
    /// Its `.dynsym`.
    Dynamic,
    /// The `.symtab` of its debug file.
    Debug,
    /// The `.symtab` of its `.gnu_debugdata`: symbols that are not exported, without those that only debuggers need.
    Mini,
    /// Stubs, named after the functions that they jump to: names of `.dynsym`.
    Stub,
    /// Go's own table.
    Go,
}

impl Origin {
    const ALL: [Origin; 6] = [Origin::Own, Origin::Dynamic, Origin::Debug, Origin::Mini, Origin::Stub, Origin::Go];

    /// Returns its number, from 0 to 5.
    pub(crate) fn number(self) -> u32 {
        self as u32
    }

    /// Returns the table with this number.
    pub(crate) fn from_number(number: u32) -> Origin {
        Origin::ALL.get(number as usize).copied().unwrap_or(Origin::Own)
    }

    pub(crate) fn kind(self) -> TableKind {
        match self {
            Origin::Dynamic | Origin::Stub => TableKind::Dynamic,
            Origin::Own | Origin::Debug | Origin::Mini | Origin::Go => TableKind::Full,
        }
    }
}

/// The files of one object.
#[derive(Debug)]
pub(crate) struct Images {
    /// The file that is mapped and run.
    pub(crate) own: Image,
    mini: Option<Image>,
    debug: Option<Image>,
    alternative: Option<Image>,
    /// The place of Go's names, in a program without other symbols.
    go: Option<GoNames>,
    /// The places where further files are searched.
    pub(crate) places: Places,
    /// The place in memory where the kernel or the module runs; `None` for other objects.
    placement: Option<Placement>,
    /// The build id whose debug file was not found here.
    pub(crate) wanted: Option<BuildId>,
    /// That debug file and the file with the parts that dwz moved out of it, once they were fetched.
    fetched: OnceLock<(Image, Option<Image>)>,
}

impl Images {
    /// Finds and opens the files of an object. A debug file may have been fetched.
    pub(crate) fn open(object: &Object, hosts: &[Host], fetched: Option<&Fetched>) -> Result<Images, Reason> {
        if object.kind == ObjectKind::Vdso {
            return vdso::read().map(Images::alone);
        }
        let found = mapped_file::open_image(object, hosts)?;
        let places = Places::of(object, &found, hosts);
        Images::beside(found.image, places, fetched)
    }

    /// Reads an image and the files in these places that belong to it.
    pub(crate) fn beside(own: Image, places: Places, fetched: Option<&Fetched>) -> Result<Images, Reason> {
        let has_dwarf = !own.sections_named(|name| matches!(name, ".debug_info" | ".zdebug_info"))?.is_empty();
        let debug = if has_dwarf { None } else { debug_files::find(&own, &places) };
        let wanted = own.build_id().filter(|_| !has_dwarf && debug.is_none());
        let found = OnceLock::new();
        if let Some(pair) = fetched.filter(|_| wanted.is_some()).and_then(|fetched| fetched.open(&own)) {
            let _ = found.set(pair);
        }
        let mini = match &debug {
            // The full table includes the symbols of `.gnu_debugdata`.
            Some(debug) if debug.has_full_table() => None,
            _ if own.has_full_table() => None,
            _ => debug_files::unpack_debugdata(&own).and_then(Result::ok),
        };
        let alternative = debug_files::alternative(debug.as_ref().unwrap_or(&own), &places);
        Images { own, mini, debug, alternative, go: None, places, placement: None, wanted, fetched: found }.with_go()
    }

    /// Returns an image with the data in the file itself, without other files.
    pub(crate) fn inside(own: Image) -> Result<Images, Reason> {
        let mini = if own.has_full_table() { None } else { debug_files::unpack_debugdata(&own).and_then(Result::ok) };
        Images { mini, ..Images::alone(own) }.with_go()
    }

    /// Adds files that were fetched. Returns the number of files added.
    pub(crate) fn attach(&self, fetched: &Fetched) -> usize {
        let before = self.count();
        if let Some(pair) = fetched.open(&self.own).filter(|_| self.wanted.is_some()) {
            let _ = self.fetched.set(pair);
        }
        self.count() - before
    }

    fn debug(&self) -> Option<&Image> {
        self.debug.as_ref().or_else(|| self.fetched.get().map(|(debug, _)| debug))
    }

    fn with_go(self) -> Result<Images, Reason> {
        let mut images = self;
        if !images.has_full_table() {
            images.go = gopclntab::names(&images.own)?;
        }
        Ok(images)
    }

    /// Returns an image without other files.
    pub(crate) fn alone(own: Image) -> Images {
        let places = Places::default();
        Images {
            own,
            mini: None,
            debug: None,
            alternative: None,
            go: None,
            places,
            placement: None,
            wanted: None,
            fetched: OnceLock::new(),
        }
    }

    /// Returns the files of the kernel.
    pub(crate) fn of_kernel(own: Image, alternative: Option<Image>, places: Places, placement: Placement) -> Images {
        Images { alternative, places, placement: Some(placement), ..Images::alone(own) }
    }

    /// Returns the address of a frame's instruction as the file has it. For a return address, this is the address of the call. `None` for
    /// frames of other address spaces.
    pub(crate) fn elf_address(&self, frame: Frame) -> Option<ElfAddress> {
        match &self.placement {
            Some(placement) => placement.elf_address(frame.kernel_address()?),
            None => self.own.elf_address(frame.file_offset()?),
        }
    }

    /// Returns the tables that together have all known symbols.
    pub(crate) fn origins(&self) -> impl Iterator<Item = Origin> {
        let full = match (self.debug(), &self.mini) {
            (Some(debug), _) if debug.has_full_table() => Origin::Debug,
            (_, Some(_)) => Origin::Mini,
            _ => Origin::Own,
        };
        [full, Origin::Dynamic].into_iter()
    }

    /// Returns the functions of Go code, if they have no symbols.
    pub(crate) fn go_functions(&self) -> Result<Vec<GoFunction>, Reason> {
        let functions = self.go.map(|_| gopclntab::functions(&self.own)).transpose()?.flatten();
        Ok(functions.map(|(_, functions)| functions).unwrap_or_default())
    }

    /// Returns the image that has a table, and the table's kind there.
    pub(crate) fn table(&self, origin: Origin) -> (Option<&Image>, TableKind) {
        let image = match origin {
            Origin::Own | Origin::Dynamic | Origin::Stub | Origin::Go => Some(&self.own),
            Origin::Debug => self.debug(),
            Origin::Mini => self.mini.as_ref(),
        };
        (image, origin.kind())
    }

    /// Returns the name of a symbol of a table, by its place among the table's names.
    pub(crate) fn name(&self, origin: Origin, place: u32) -> Result<Option<Vec<u8>>, Reason> {
        match (origin, self.table(origin), self.go) {
            (Origin::Go, _, Some(names)) => self.own.string_in(names.offset, names.size, place),
            (Origin::Go, _, None) | (_, (None, _), _) => Ok(None),
            (Origin::Stub, (Some(image), kind), _) => {
                let name = image.string(kind, place)?.filter(|name| !name.is_empty());
                Ok(name.map(|name| [name.as_slice(), b"@plt"].concat()))
            }
            (_, (Some(image), kind), _) => image.string(kind, place),
        }
    }

    /// Whether all functions have a symbol, not only the exported ones.
    pub(crate) fn has_full_table(&self) -> bool {
        self.own.has_full_table() || self.go.is_some() || self.mini.is_some() || self.debug().is_some_and(Image::has_full_table)
    }

    /// Returns the image that has DWARF sections, if any, and the image with the parts that dwz moved out of it.
    pub(crate) fn dwarf(&self) -> (&Image, Option<&Image>) {
        let alternative = self.fetched.get().map_or(self.alternative.as_ref(), |(_, alternative)| alternative.as_ref());
        (self.debug().unwrap_or(&self.own), alternative)
    }

    /// Fails with [`Reason::Changed`] if one of the files was written to since it was opened.
    pub(crate) fn check_unchanged(&self) -> Result<(), Reason> {
        self.files().try_for_each(|image| image.source.check_unchanged())
    }

    fn files(&self) -> impl Iterator<Item = &Image> {
        let fetched = self.fetched.get().into_iter().flat_map(|(debug, alternative)| [Some(debug), alternative.as_ref()]);
        [Some(&self.own), self.debug.as_ref(), self.alternative.as_ref()].into_iter().chain(fetched).flatten()
    }

    /// Returns the number of descriptors held.
    pub(crate) fn count(&self) -> usize {
        self.files().count()
    }
}

/// The place in memory where vmlinux, or a module, runs.
#[derive(Clone, Debug)]
pub(crate) struct Placement {
    /// The ranges of its code, as addresses of the file.
    pub(crate) text: Vec<Range<u64>>,
    /// The difference that the kernel added to these addresses, modulo 2^64.
    pub(crate) slide: u64,
}

impl Placement {
    /// Converts an address of the running kernel to one of the file, if it is in this code.
    pub(crate) fn elf_address(&self, address: KernelAddress) -> Option<ElfAddress> {
        let address = address.0.wrapping_sub(self.slide);
        self.text.iter().any(|text| text.contains(&address)).then_some(ElfAddress(address))
    }
}
