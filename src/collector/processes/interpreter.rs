//! Reads about the interpreters of processes, on the threads of [`reader`](super::reader): where its functions are, and what they are called.

use std::cell::LazyCell;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::mapped_build_id::{self, MappedFile};
use crate::interpreters::Memory;
use crate::interpreters::python::{Code, Layout, Version, find_slot, threads};
use crate::object::bytes::Source;
use crate::object::elf::Image;
use crate::object::exported::addresses_of;
use crate::profile::{FileOffset, Tgid, UserId};

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

/// Whether it is a library that programs have their interpreter from.
pub(crate) fn is_library(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|name| name.starts_with("lib"))
}

/// Reads the interpreter in a file that a process has mapped. `offset` is where in the file the mapping begins. Returns `None` if there is
/// none of ours, or if none of its threads runs yet. May wait for the file. `user` is charged.
pub(crate) fn of_mapping(user: UserId, tgid: Tgid, mapped: &MappedFile, offset: u64) -> Option<Interpreter> {
    let file = mapped_build_id::find(user, tgid, mapped).ok()?;
    let image = Image::read(Source::of(file, false)).ok()?;
    let names = ["_PyRuntime", "Py_Version", "_PyEval_EvalFrameDefault", "PyGILState_GetThisThreadState"];
    let [runtime, version, evaluate, getter] = addresses_of(&image, names).ok()?;
    let begin = image.elf_address(FileOffset(offset))?.0;
    let in_process = |address: u64| mapped.start.wrapping_sub(begin).wrapping_add(address);
    let memory = ProcessMemory::open(tgid.0)?;
    let runtime = in_process(runtime?.0);
    let version = match version {
        Some(address) => Version::of_hex(memory.u32(in_process(address.0))?),
        // Up to 3.10 only the file's name tells it.
        None => Version::of_file(&mapped.path)?,
    };
    let layout = Layout::of(version, &memory, runtime)?;
    let getter = getter.map(|getter| in_process(getter.0));
    let slot =
        threads(&memory, &layout, runtime).into_iter().find_map(|thread| find_slot(&memory, &layout, runtime, getter, thread))?;
    let evaluation = match evaluate {
        _ if layout.has_anchors() => 0..0,
        Some(address) => image.function_around(address)?,
        None => return None,
    };
    let evaluation = in_process(evaluation.start)..in_process(evaluation.end);
    Some(Interpreter { layout, file: mapped.path.clone(), evaluation, runtime: layout.runtime(slot)? })
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
