//! Reads the code heaps and the methods of a JVM from memory of processes, on the threads of [`reader`](super::reader).

use rustc_hash::FxHashMap;

use super::interpreter::CodeKey;
use super::process_memory::ProcessMemory;
use super::v8_memory::{Asked, Calls};
use crate::runtimes::hotspot::{Blob, BlobKind, Call, CodeHeap, JvmBytes, Layout, Method};

/// The JVM of a process: where fields are in its structures, and where its code is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Jvm {
    layout: Layout,
    heaps: Vec<CodeHeap>,
    /// What BPF needs.
    pub(super) bytes: JvmBytes,
}

/// Reads where the code of a JVM is, whose file is mapped at `start`. Returns `None` while the JVM begins.
pub(super) fn of_process(tgid: u32, layout: &Layout, start: u64) -> Option<Jvm> {
    let memory = ProcessMemory::open(tgid)?;
    let layout = layout.moved_by(start);
    // The JVM makes all heaps before it puts code into one of them.
    let begun = CodeHeap::all(&memory, &layout)?;
    begun.iter().find_map(|heap| heap.blob(&memory, &layout, heap.begin).filter(|blob| !blob.name.is_empty()))?;
    let heaps = CodeHeap::all(&memory, &layout)?;
    let bytes = layout.for_walks(&heaps)?;
    Some(Jvm { layout, heaps, bytes })
}

/// Code that runs in a JVM.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Found {
    Method(Method),
    /// Code that is no method's: its name.
    Stub(String),
}

/// Code that was found, and the methods of instructions.
pub(super) type FoundAndCalls = (Vec<(CodeKey, Option<Found>)>, Vec<(Asked, Calls)>);

/// Most bytes of methods in one answer. A hostile program may have one of 20 KB for each of 64 methods that were inlined at each instruction.
const MAX_BYTES: usize = 4 << 20;

/// Reads methods of a process, and the methods of instructions. A method is `None` if it is gone, or if another one is in its place by now.
pub(super) fn functions(tgid: u32, jvm: &Jvm, wanted: &[Asked]) -> FoundAndCalls {
    let Some(memory) = ProcessMemory::open(tgid) else { return Default::default() };
    let mut reader = Reader { memory, jvm, found: FxHashMap::default(), bytes: 0 };
    let mut calls = Vec::new();
    for &asked in wanted.iter() {
        if reader.bytes > MAX_BYTES {
            break;
        }
        let (key, instruction) = asked;
        if instruction == 0 {
            reader.read(key);
        } else if let Some(found) = reader.calls(asked) {
            calls.push((asked, found));
        } else {
            reader.found.entry(key).or_insert(None);
            calls.push((asked, Box::new([(key, 0)])));
        }
    }
    (reader.found.into_iter().collect(), calls)
}

/// Reads methods of one process, each once.
struct Reader<'a> {
    memory: ProcessMemory,
    jvm: &'a Jvm,
    found: FxHashMap<CodeKey, Option<Found>>,
    /// Of all methods.
    bytes: usize,
}

impl Reader<'_> {
    fn blob(&self, address: u64) -> Option<Blob> {
        self.jvm.heaps.iter().find_map(|heap| heap.blob(&self.memory, &self.jvm.layout, address))
    }

    /// Reads what is at an address: a stub, or a method.
    fn read(&mut self, key: CodeKey) -> Option<&Found> {
        if !self.found.contains_key(&key) {
            let is_code = self.jvm.heaps.iter().any(|heap| (heap.begin..heap.end).contains(&key.0));
            let found = if is_code { self.blob(key.0).map(|blob| Found::Stub(blob.name)) } else { self.method(key) };
            self.bytes += size_of::<Found>() + if let Some(Found::Method(method)) = &found { method.size() } else { 0 };
            self.found.insert(key, found);
        }
        self.found.get(&key)?.as_ref()
    }

    fn method(&self, (address, check): CodeKey) -> Option<Found> {
        let layout = &self.jvm.layout;
        let is_it = || Method::check(&self.memory, layout, address) == Some(check);
        let method = if is_it() { Method::read(&self.memory, layout, address) } else { None };
        // It may have gone while it was read.
        method.filter(|_| is_it()).map(Found::Method)
    }

    /// Returns the methods of an instruction of compiled code, and their lines. `None` if other code is there by now.
    fn calls(&mut self, ((address, number), instruction): Asked) -> Option<Calls> {
        let (instruction, is_return) = (instruction >> 1, instruction & 1 == 1);
        let layout = &self.jvm.layout;
        let its_blob = |reader: &Self| {
            let blob = reader.blob(instruction)?;
            let is_same = blob.address == address && blob.kind == BlobKind::Compiled;
            (is_same && blob.check(&reader.memory, layout) == Some(number)).then_some(blob)
        };
        let calls = its_blob(self)?.calls(&self.memory, layout, instruction, is_return)?;
        let mut call = |call: &Call| {
            let key = (call.method, Method::check(&self.memory, layout, call.method)?);
            let Some(Found::Method(method)) = self.read(key) else { return Some((key, 0)) };
            Some((key, call.place.and_then(|place| method.lines.line(place)).unwrap_or(0)))
        };
        let calls: Option<Calls> = calls.iter().map(&mut call).collect();
        its_blob(self)?;
        calls
    }
}
