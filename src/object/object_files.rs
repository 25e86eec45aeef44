//! An object's own file, and those that belong to it.

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

/// Which table a symbol is from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    /// The object's own `.symtab`.
    Own,
    /// Its `.dynsym`.
    Dynamic,
    /// The `.symtab` of its debug file.
    Debug,
    /// That of its `.gnu_debugdata`: what is neither exported nor only of interest to debuggers.
    Mini,
    /// Stubs, which are called as what they jump to: names of `.dynsym`.
    Stub,
    /// Go's own table.
    Go,
}

impl Origin {
    const ALL: [Origin; 6] = [Origin::Own, Origin::Dynamic, Origin::Debug, Origin::Mini, Origin::Stub, Origin::Go];

    /// 0 to 5.
    pub(crate) fn number(self) -> u32 {
        self as u32
    }

    /// The one of this number.
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
    /// What is mapped and run.
    pub(crate) own: Image,
    mini: Option<Image>,
    debug: Option<Image>,
    alternative: Option<Image>,
    /// Where Go's names are, in a program that has no other symbols.
    go: Option<GoNames>,
    /// Where further files are looked for.
    pub(crate) places: Places,
    /// Of the kernel, where it runs.
    placement: Option<Placement>,
    /// The build id whose debug file is not here.
    pub(crate) wanted: Option<BuildId>,
    /// That file and what dwz took out of it, once they were fetched.
    fetched: OnceLock<(Image, Option<Image>)>,
}

impl Images {
    /// Finds and opens them. A debug file may have been fetched.
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
            // Its symbols are among those.
            Some(debug) if debug.has_full_table() => None,
            _ if own.has_full_table() => None,
            _ => debug_files::unpack_debugdata(&own).and_then(Result::ok),
        };
        let alternative = debug_files::alternative(debug.as_ref().unwrap_or(&own), &places);
        Images { own, mini, debug, alternative, go: None, places, placement: None, wanted, fetched: found }.with_go()
    }

    /// What is in a file itself.
    pub(crate) fn inside(own: Image) -> Result<Images, Reason> {
        let mini = if own.has_full_table() { None } else { debug_files::unpack_debugdata(&own).and_then(Result::ok) };
        Images { mini, ..Images::alone(own) }.with_go()
    }

    /// Takes files that were fetched; how many there are.
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

    /// A file to which no others belong.
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

    /// The kernel's.
    pub(crate) fn of_kernel(own: Image, alternative: Option<Image>, places: Places, placement: Placement) -> Images {
        Images { alternative, places, placement: Some(placement), ..Images::alone(own) }
    }

    /// The address of a frame's instruction as the file writes it; of a return address, that of the call. `None` for frames of other spaces.
    pub(crate) fn elf_address(&self, frame: Frame) -> Option<ElfAddress> {
        match &self.placement {
            Some(placement) => placement.elf_address(frame.kernel_address()?),
            None => self.own.elf_address(frame.file_offset()?),
        }
    }

    /// Tables whose symbols together are all that are known.
    pub(crate) fn origins(&self) -> impl Iterator<Item = Origin> {
        let full = match (self.debug(), &self.mini) {
            (Some(debug), _) if debug.has_full_table() => Origin::Debug,
            (_, Some(_)) => Origin::Mini,
            _ => Origin::Own,
        };
        [full, Origin::Dynamic].into_iter()
    }

    /// The functions of Go code, where they have no symbols.
    pub(crate) fn go_functions(&self) -> Result<Vec<GoFunction>, Reason> {
        let functions = self.go.map(|_| gopclntab::functions(&self.own)).transpose()?.flatten();
        Ok(functions.map(|(_, functions)| functions).unwrap_or_default())
    }

    /// The image in which a table is, and its kind there.
    pub(crate) fn table(&self, origin: Origin) -> (Option<&Image>, TableKind) {
        let image = match origin {
            Origin::Own | Origin::Dynamic | Origin::Stub | Origin::Go => Some(&self.own),
            Origin::Debug => self.debug(),
            Origin::Mini => self.mini.as_ref(),
        };
        (image, origin.kind())
    }

    /// The name of a symbol of a table, by its place among that table's names.
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

    /// Whether all functions have a symbol, not only those that are exported.
    pub(crate) fn has_full_table(&self) -> bool {
        self.own.has_full_table() || self.go.is_some() || self.mini.is_some() || self.debug().is_some_and(Image::has_full_table)
    }

    /// The image whose sections have DWARF, if any has, and the one with what dwz took out of it.
    pub(crate) fn dwarf(&self) -> (&Image, Option<&Image>) {
        let alternative = self.fetched.get().map_or(self.alternative.as_ref(), |(_, alternative)| alternative.as_ref());
        (self.debug().unwrap_or(&self.own), alternative)
    }

    /// Fails with [`Reason::Changed`] when one of the files was written to since it was opened.
    pub(crate) fn check_unchanged(&self) -> Result<(), Reason> {
        self.files().try_for_each(|image| image.source.check_unchanged())
    }

    fn files(&self) -> impl Iterator<Item = &Image> {
        let fetched = self.fetched.get().into_iter().flat_map(|(debug, alternative)| [Some(debug), alternative.as_ref()]);
        [Some(&self.own), self.debug.as_ref(), self.alternative.as_ref()].into_iter().chain(fetched).flatten()
    }

    /// Descriptors held.
    pub(crate) fn count(&self) -> usize {
        self.files().count()
    }
}

/// Where vmlinux, or a module, runs.
#[derive(Clone, Debug)]
pub(crate) struct Placement {
    /// Its code, by its own addresses.
    pub(crate) text: Vec<Range<u64>>,
    /// What the kernel added to them, modulo 2^64.
    pub(crate) slide: u64,
}

impl Placement {
    /// The address in the file of one of the running kernel, if that is its code.
    pub(crate) fn elf_address(&self, address: KernelAddress) -> Option<ElfAddress> {
        let address = address.0.wrapping_sub(self.slide);
        self.text.iter().any(|text| text.contains(&address)).then_some(ElfAddress(address))
    }
}
