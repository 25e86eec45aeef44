//! Reads about the interpreters of processes, on the threads of [`reader`](super::reader): where its functions are, and what they are called.

use std::cell::LazyCell;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::mapped_build_id::{self, MappedFile};
use super::proc::{self, FoundProcess};
use crate::interpreters::Memory;
use crate::interpreters::python::{Clues, Code, Layout, Version, find_slot, threads};
use crate::object::bytes::Source;
use crate::object::elf::Image;
use crate::object::exported::addresses_of;
use crate::profile::{ElfAddress, FileOffset, Tgid, UserId};

/// A process's memory. Reading it takes the process's memory lock.
struct ProcessMemory(File);

impl ProcessMemory {
    fn open(tgid: u32) -> Option<ProcessMemory> {
        File::open(format!("/proc/{tgid}/mem")).ok().map(ProcessMemory)
    }
}

impl Memory for ProcessMemory {
    fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
        self.0.read_exact_at(buffer, address).is_ok()
    }
}

/// An interpreter that a process has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Interpreter {
    /// Where fields are in its objects.
    pub(crate) layout: Layout,
    /// Its file, as the process calls it.
    pub(crate) file: Arc<str>,
    /// The code of its evaluation loop, as addresses of the process: where no [anchors](Layout::has_anchors) tell which frames are of it.
    pub(crate) evaluation: Range<u64>,
    /// The `struct runtime` that BPF walks its functions by.
    pub(crate) runtime: [u8; 40],
}

/// Whether a file of this path may have an interpreter in it: `python3.11`, `libpython3.11.so.1.0`.
pub(crate) fn may_be_interpreter(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.starts_with("python3") || name.starts_with("libpython3") || name == "python"
}

/// Most processes whose interpreters are looked up at the start. Anybody may have begun any number of them, and the start waits.
const MAX_AT_START: usize = 4096;

/// Returns the processes whose program is an interpreter, each with the user who runs it: at most [`MAX_AT_START`]. The dynamic linker counts
/// too, because its argument may be an interpreter.
pub(crate) fn interpreters_of(found: &[FoundProcess]) -> Vec<(u32, UserId)> {
    let is_linker = |path: &str| path.rsplit('/').next().is_some_and(|name| name.starts_with("ld-"));
    let is_one = |tgid: u32| {
        let program = std::fs::read_link(format!("/proc/{tgid}/exe")).ok();
        let program = program.as_ref().map(|program| program.to_string_lossy());
        program.is_some_and(|program| may_be_interpreter(&program) || is_linker(&program))
    };
    let with_user = |process: &FoundProcess| is_one(process.tgid).then(|| Some((process.tgid, proc::user(process.tgid)?)))?;
    found.iter().filter_map(with_user).take(MAX_AT_START).collect()
}

/// Whether it is a library that programs have their interpreter from.
pub(crate) fn is_library(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|name| name.starts_with("lib"))
}

/// Whether it is a part of glibc that tells how long its record of a thread is: `libc.so.6`, up to 2.33 `libpthread-2.31.so`.
pub(crate) fn may_tell_threads(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name == "libc.so.6" || name.starts_with("libpthread")
}

/// Mapped files of a process that tell about its interpreter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Places {
    /// The one that may have an interpreter in it.
    pub(crate) interpreter: MappedPart,
    /// Files that [may tell](may_tell_threads) about threads. Only needed on arm64.
    pub(crate) threads: Vec<MappedPart>,
}

/// A mapping of a file, and where in the file it begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct MappedPart {
    pub(crate) mapped: MappedFile,
    pub(crate) offset: u64,
}

/// A file in the memory of a process.
struct MappedImage {
    image: Image,
    /// Distance from the file's addresses to the process's.
    distance: u64,
}

impl MappedImage {
    /// May wait for the file.
    fn read(user: UserId, tgid: Tgid, part: &MappedPart) -> Option<MappedImage> {
        let file = mapped_build_id::find(user, tgid, &part.mapped).ok()?;
        let image = Image::read(Source::of(file, false)).ok()?;
        let begin = image.elf_address(FileOffset(part.offset))?.0;
        Some(MappedImage { image, distance: part.mapped.start.wrapping_sub(begin) })
    }

    /// Addresses in the process of symbols that the file exports.
    fn addresses_of<const N: usize>(&self, names: [&str; N]) -> Option<[Option<u64>; N]> {
        let found = addresses_of(&self.image, names).ok()?;
        Some(found.map(|address| Some(address?.0.wrapping_add(self.distance))))
    }

    /// The function that this address of the process is in.
    fn function_around(&self, address: u64) -> Option<Range<u64>> {
        let found = self.image.function_around(ElfAddress(address.wrapping_sub(self.distance)))?;
        Some(found.start.wrapping_add(self.distance)..found.end.wrapping_add(self.distance))
    }
}

/// Bytes from `pthread_self()` to the thread pointer: 0, but on arm64 the C library's record of a thread lies between. `Some` also where no
/// library tells: then it is musl's.
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

/// Reads the interpreter in a file that a process has mapped. Returns `None` if there is none of ours, or if none of its threads runs yet.
/// May wait for the files. `user` is charged.
pub(crate) fn of_places(user: UserId, tgid: Tgid, places: &Places) -> Option<Interpreter> {
    let file = MappedImage::read(user, tgid, &places.interpreter)?;
    let path = &places.interpreter.mapped.path;
    let names = ["_PyRuntime", "Py_Version", "_PyEval_EvalFrameDefault", "PyGILState_GetThisThreadState"];
    let [runtime, version, evaluate, getter] = file.addresses_of(names)?;
    let memory = ProcessMemory::open(tgid.0)?;
    let runtime = runtime?;
    let version = match version {
        Some(address) => Version::of_hex(memory.u32(address)?),
        // Up to 3.10 only the file's name tells it.
        None => Version::of_file(path)?,
    };
    let layout = Layout::of(version, &memory, runtime)?;
    let clues = Clues { runtime, getter, self_size: self_size(user, tgid, &memory, &places.threads)? };
    let slot = threads(&memory, &layout, runtime).into_iter().find_map(|thread| find_slot(&memory, &layout, &clues, thread))?;
    let evaluation = match evaluate {
        _ if layout.has_anchors() => 0..0,
        Some(address) => file.function_around(address)?,
        None => return None,
    };
    Some(Interpreter { layout, file: path.clone(), evaluation, runtime: layout.runtime(slot)? })
}

/// A code object, by its address and the check that BPF made of it.
pub(crate) type CodeKey = (u64, u32);

/// Reads functions of a process. File names that are no whole paths begin in the directory where the process is now. A function is `None` where the code object is gone, or another one is in its place by now.
pub(crate) fn functions(tgid: u32, layout: &Layout, wanted: &[CodeKey]) -> Vec<(CodeKey, Option<Code>)> {
    let Some(memory) = ProcessMemory::open(tgid) else { return Vec::new() };
    let directory = || std::fs::read_link(format!("/proc/{tgid}/cwd")).ok()?.into_os_string().into_string().ok();
    let directory = LazyCell::new(directory);
    let read = |&(address, check): &CodeKey| {
        // BPF could not read it: its memory was not there. Then what is there now has to do.
        let is_it = || check == 0 || Code::check(&memory, layout, address) == check;
        let code = if is_it() { Code::read(&memory, layout, address) } else { None };
        // It may have gone while it was read.
        let mut code = code.filter(|_| is_it());
        if let Some(code) = code.as_mut().filter(|code| !code.file.starts_with(['/', '<']))
            && let Some(directory) = &*directory
        {
            code.file = format!("{directory}/{}", code.file);
        }
        ((address, check), code)
    };
    wanted.iter().map(read).collect()
}
