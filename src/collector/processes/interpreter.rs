//! Reads the interpreters of processes, on the threads of [`reader`](super::reader): the places and the names of their functions.

use std::cell::LazyCell;
use std::ops::Range;
use std::sync::Arc;

use super::mapped_build_id::{self, MappedFile};
use super::proc::{self, FoundProcess};
use super::process_memory::ProcessMemory;
use crate::object::bytes::Source;
use crate::object::elf::Image;
use crate::object::exported::addresses_of;
use crate::object::process::directory;
use crate::profile::{ElfAddress, FileOffset, Tgid, UserId};
use crate::runtimes::python::{Clues, Code, Layout, Version, find_slot, threads};
use crate::runtimes::{Memory, RuntimeBytes};

/// The interpreter of a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Interpreter {
    /// Where fields are in its objects.
    pub(crate) layout: Layout,
    /// The path of its file, as the process sees it.
    pub(crate) file: Arc<str>,
    /// The code of its evaluation loop, as addresses of the process. It shows which frames belong to the loop if no
    /// [anchors](Layout::has_anchors) do, or if the walk does not reach them. Empty if it is not known.
    pub(crate) evaluation: Range<u64>,
    /// The `struct runtime` that BPF uses to walk its functions.
    pub(crate) runtime: RuntimeBytes,
}

/// Whether a file with this path may contain an interpreter: `python3.11`, `libpython3.11.so.1.0`. It may be deleted.
pub(crate) fn may_be_interpreter(path: &str) -> bool {
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    let name = path.rsplit('/').next().unwrap_or(path);
    name.starts_with("python3") || name.starts_with("libpython3") || name == "python"
}

/// Whether a program with this path may have V8. Only used to find such programs before the first sample.
fn may_have_engine(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.starts_with("node")
}

/// Most processes whose interpreters are looked up at the start. Any user may have begun any number of them, and the start waits.
const MAX_AT_START: usize = 4096;

/// Returns the processes whose program is an interpreter, each with the user who runs it: at most [`MAX_AT_START`]. The dynamic linker
/// counts as an interpreter, because its argument may be one.
pub(crate) fn interpreters_of(found: &[FoundProcess]) -> Vec<(u32, UserId)> {
    let is_linker = |path: &str| path.rsplit('/').next().is_some_and(|name| name.starts_with("ld-"));
    let is_one = |tgid: u32| {
        let program = std::fs::read_link(directory(tgid).join("exe")).ok();
        let program = program.as_ref().map(|program| program.to_string_lossy());
        program.is_some_and(|program| may_be_interpreter(&program) || may_have_engine(&program) || is_linker(&program))
    };
    let with_user = |process: &FoundProcess| is_one(process.tgid).then(|| Some((process.tgid, proc::user(process.tgid)?)))?;
    found.iter().filter_map(with_user).take(MAX_AT_START).collect()
}

/// Whether the file is a library from which programs get their interpreter.
pub(crate) fn is_library(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|name| name.starts_with("lib"))
}

/// Whether the file is a part of glibc that contains the size of glibc's thread record: `libc.so.6`, up to 2.33 `libpthread-2.31.so`.
pub(crate) fn may_tell_threads(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name == "libc.so.6" || name.starts_with("libpthread")
}

/// Mapped files of a process that describe its interpreter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Places {
    /// Files that may contain the interpreter, the likeliest first.
    pub(crate) interpreters: Vec<MappedPart>,
    /// Files that [may contain](may_tell_threads) the size of a thread record. Only needed on arm64.
    pub(crate) threads: Vec<MappedPart>,
}

/// A mapping of a file, and the offset in the file where it begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct MappedPart {
    pub(crate) mapped: MappedFile,
    pub(crate) offset: u64,
}

/// A file in the memory of a process.
pub(super) struct MappedImage {
    image: Image,
    /// Distance from the file's addresses to the process's.
    distance: u64,
}

impl MappedImage {
    /// Opens and reads a mapped file. May wait for the file.
    pub(super) fn read(user: UserId, tgid: Tgid, part: &MappedPart) -> Option<MappedImage> {
        let file = mapped_build_id::find(user, tgid, &part.mapped).ok()?;
        let image = Image::read(Source::of(file, false)).ok()?;
        let begin = image.elf_address(FileOffset(part.offset))?.0;
        Some(MappedImage { image, distance: part.mapped.start.wrapping_sub(begin) })
    }

    /// Returns the addresses, in the process, of symbols that the file exports.
    pub(super) fn addresses_of<const N: usize>(&self, names: [&str; N]) -> Option<[Option<u64>; N]> {
        let found = addresses_of(&self.image, names).ok()?;
        Some(found.map(|address| Some(address?.0.wrapping_add(self.distance))))
    }

    /// Returns the function that contains this address of the process.
    fn function_around(&self, address: u64) -> Option<Range<u64>> {
        let found = self.image.function_around(ElfAddress(address.wrapping_sub(self.distance)))?;
        Some(found.start.wrapping_add(self.distance)..found.end.wrapping_add(self.distance))
    }
}

/// Returns the bytes from `pthread_self()` to the thread pointer. This is 0, except on arm64, where the C library's thread record lies
/// between. If no library contains the size, the C library must be musl, whose size is fixed.
fn self_size(user: UserId, tgid: Tgid, memory: &ProcessMemory, libraries: &[MappedPart]) -> Option<u64> {
    const OF_MUSL: u32 = 200;
    const MAX_SIZE: u32 = 1 << 14;
    if !cfg!(target_arch = "aarch64") {
        return Some(0);
    }
    let told = |library: &MappedPart| {
        let [size] = MappedImage::read(user, tgid, library)?.addresses_of(["_thread_db_sizeof_pthread"])?;
        memory.u32(size?)
    };
    let size = libraries.iter().find_map(told).unwrap_or(OF_MUSL);
    Some(u64::from(size)).filter(|_| size < MAX_SIZE)
}

/// Reads the interpreter in a file that a process has mapped. Returns `None` if no file has an interpreter that flametop knows and whose
/// threads run. May wait for the files. `user` is charged.
///
/// A program that contains an interpreter may have opened the library of the same interpreter, too: then only one of both has threads.
pub(crate) fn of_places(user: UserId, tgid: Tgid, places: &Places) -> Option<Interpreter> {
    places.interpreters.iter().find_map(|part| of_place(user, tgid, part, places))
}

fn of_place(user: UserId, tgid: Tgid, part: &MappedPart, places: &Places) -> Option<Interpreter> {
    let file = MappedImage::read(user, tgid, part)?;
    let path = &part.mapped.path;
    let names = ["_PyRuntime", "Py_Version", "_PyEval_EvalFrameDefault", "PyGILState_GetThisThreadState"];
    let [runtime, version, evaluate, getter] = file.addresses_of(names)?;
    let memory = ProcessMemory::open(tgid.0)?;
    let runtime = runtime?;
    let version = match version {
        Some(address) => Version::of_hex(memory.u32(address)?),
        // Up to 3.10 only the file's name contains the version.
        None => Version::of_file(path)?,
    };
    let layout = Layout::of(version, &memory, runtime)?;
    let clues = Clues { runtime, getter, self_size: self_size(user, tgid, &memory, &places.threads)? };
    let slot = threads(&memory, &layout, runtime).into_iter().find_map(|thread| find_slot(&memory, &layout, &clues, thread))?;
    let evaluation = evaluate.and_then(|address| file.function_around(address));
    let evaluation = if layout.has_anchors() { evaluation.unwrap_or(0..0) } else { evaluation? };
    Some(Interpreter { layout, file: path.clone(), evaluation, runtime: layout.runtime(slot, &clues)? })
}

/// Key of a code object: its address, and the check value that BPF computed from it.
pub(crate) type CodeKey = (u64, u32);

/// Reads functions of a process. File names that are no whole paths begin in the current directory of the process. A function is `None`
/// if its code object is gone, or if another code object is in its place by now.
pub(crate) fn functions(tgid: u32, layout: &Layout, wanted: &[CodeKey]) -> Vec<(CodeKey, Option<Code>)> {
    let Some(memory) = ProcessMemory::open(tgid) else { return Vec::new() };
    let working_directory = || std::fs::read_link(directory(tgid).join("cwd")).ok()?.into_os_string().into_string().ok();
    let working_directory = LazyCell::new(working_directory);
    let read = |&(address, check): &CodeKey| {
        // A check of 0: BPF could not read the code object, because its page was not in memory. Then the current contents have to do.
        let is_it = || check == 0 || Code::check(&memory, layout, address) == check;
        let code = if is_it() { Code::read(&memory, layout, address) } else { None };
        // It may have gone while it was read.
        let mut code = code.filter(|_| is_it());
        if let Some(code) = code.as_mut().filter(|code| !code.file.starts_with(['/', '<']))
            && let Some(directory) = &*working_directory
        {
            code.file = format!("{directory}/{}", code.file);
        }
        ((address, check), code)
    };
    wanted.iter().map(read).collect()
}
