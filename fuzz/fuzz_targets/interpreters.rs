//! Reads objects of Python, V8 or HotSpot in the memory of a hostile process, or a record of the functions in a sample. It must not panic or overflow;
//! names, frames and allocations must be bounded. The first byte chooses the version, or the record
//! (`flametop::collector::fuzzing::script`).
#![no_main]

use std::alloc::{GlobalAlloc, Layout as Block, System};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use flametop::runtimes::{Memory, RuntimeBytes};
use flametop::runtimes::python::{Clues, Code, Layout, LeadsTo, MAX_FILE, MAX_NAME, StateSlot, Version, chain, find_slot, threads};
use flametop::runtimes::{hotspot, v8};
use libfuzzer_sys::fuzz_target;

/// Minor versions that the first byte chooses from: all known versions.
const MINORS: std::ops::RangeInclusive<u8> = 7..=15;
/// The first byte of a record of functions. Versions have smaller first bytes.
const SCRIPT: u8 = 9;
/// The first byte of V8's objects.
const V8: u8 = 10;
/// The first byte of HotSpot's structures.
const HOTSPOT: u8 = 11;
const KINDS: u8 = HOTSPOT + 1;
/// Frames of a walk: slightly more than BPF walks (`MAX_SCRIPT_FRAMES`, 4,096).
const MAX_FRAMES: usize = 4_200;
/// Code objects that are read. A code object has up to 16 KiB of line table and 6 KiB of names.
const MAX_CODES: usize = 20;
/// Threads whose functions are walked.
const MAX_WALKS: usize = 4;
/// Bytes that one input may allocate in all.
const MAX_ALLOCATED: usize = 8 << 20;

/// Memory of a process, made of an input:
///
/// ```text
/// version u8 │ flags u8 │ base u64 │ _PyRuntime i16 │ thread pointer i16 │ state i16 │ getter i16 │ image, at base …
/// ```
///
/// The four places are offsets from the base. Nothing else is mapped. Flag 1 makes pointers into the image of all words with bit 63 set, by
/// their low 16 bits, so that chains find each other. With flag 2 the made-up slot leads to a list, with flag 4 to blocks.
struct Image<'a> {
    leads_inside: bool,
    base: u64,
    bytes: &'a [u8],
}

impl Image<'_> {
    fn address(&self, offset: [u8; 2]) -> u64 {
        self.base.wrapping_add_signed(i16::from_le_bytes(offset).into())
    }
}

impl Memory for Image<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
        // Memory does not wrap at the end of the address space.
        let is_memory = address.checked_add(buffer.len() as u64).is_some();
        let at = address.checked_sub(self.base).and_then(|at| usize::try_from(at).ok());
        let found = at.and_then(|at| self.bytes.get(at..)?.get(..buffer.len())).filter(|_| is_memory);
        if let Some(found) = found {
            buffer.copy_from_slice(found);
        }
        found.is_some()
    }

    fn u64(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        let word = self.read(address, &mut bytes).then(|| u64::from_le_bytes(bytes))?;
        let is_pointer = self.leads_inside && word >> 63 == 1;
        Some(if is_pointer { self.base.wrapping_add((word & 0xffff) % self.bytes.len() as u64) } else { word })
    }
}

/// An allocator that counts bytes.
struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: each call goes unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, block: Block) -> *mut u8 {
        ALLOCATED.fetch_add(block.size(), Ordering::Relaxed);
        // SAFETY: see above.
        unsafe { System.alloc(block) }
    }

    unsafe fn alloc_zeroed(&self, block: Block) -> *mut u8 {
        ALLOCATED.fetch_add(block.size(), Ordering::Relaxed);
        // SAFETY: see above.
        unsafe { System.alloc_zeroed(block) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, block: Block, size: usize) -> *mut u8 {
        ALLOCATED.fetch_add(size, Ordering::Relaxed);
        // SAFETY: see above.
        unsafe { System.realloc(pointer, block, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, block: Block) {
        // SAFETY: see above.
        unsafe { System.dealloc(pointer, block) }
    }
}

fuzz_target!(|bytes: &[u8]| {
    ALLOCATED.store(0, Ordering::Relaxed);
    match bytes.split_first() {
        Some((kind, bytes)) if kind % KINDS == SCRIPT => {
            if let Err(broken) = flametop::collector::fuzzing::script(bytes) {
                panic!("{broken}");
            }
        }
        Some((kind, bytes)) if kind % KINDS == V8 => javascript(bytes),
        Some((kind, bytes)) if kind % KINDS == HOTSPOT => java(bytes),
        Some((kind, bytes)) => python(MINORS.start() + kind % KINDS, bytes),
        None => {}
    }
    let allocated = ALLOCATED.load(Ordering::Relaxed);
    assert!(allocated <= MAX_ALLOCATED, "{allocated} bytes were allocated");
});

/// Reads functions of V8. The input begins with the numbers of V8's symbols, and goes on as for Python.
fn javascript(input: &[u8]) {
    let Some((numbers, input)) = input.split_first_chunk::<{ 2 * v8::Layout::SYMBOLS.len() }>() else { return };
    let Some((&[flags, base @ ..], bytes)) = input.split_first_chunk::<9>() else { return };
    let number = |name: &str| {
        let at = 2 * v8::Layout::SYMBOLS.iter().position(|symbol| *symbol == name)?;
        numbers.get(at..)?.first_chunk().map(|number| i32::from(u16::from_le_bytes(*number)))
    };
    let Some(layout) = v8::Layout::of(number).ok().filter(|_| !bytes.is_empty()) else { return };
    let memory = Image { leads_inside: flags & 1 == 1, base: u64::from_le_bytes(base) & !3, bytes };
    layout.add_to(&mut [0; size_of::<RuntimeBytes>()]);
    let mut known = v8::Known::default();
    let mut reader = v8::Reader::new(&memory, &layout, &mut known);
    for object in (0..bytes.len() as u64).step_by(8).take(MAX_CODES) {
        let shared = memory.base.wrapping_add(object) | 1;
        v8::Function::check(&memory, &layout, shared);
        let calls = reader.calls(shared, memory.base.wrapping_add(bytes.len() as u64 / 2));
        assert!(calls.is_none_or(|calls| calls.last().is_some_and(|call| call.shared == shared)));
        let Some(function) = reader.function(shared) else { continue };
        assert!(function.name.chars().count() <= v8::MAX_NAME as usize && function.file.chars().count() <= v8::MAX_FILE as usize);
        assert!(function.size() <= 1 << 18);
        function.lines.line(layout.place_of(object as u32));
    }
}

/// Reads methods of Java. The input begins with the version, and with the places and widths of fields.
fn java(input: &[u8]) {
    const FIELDS: usize = 64;
    let Some((numbers, input)) = input.split_first_chunk::<{ 2 * FIELDS }>() else { return };
    let Some((&[version, flags, base @ ..], bytes)) = input.split_first_chunk::<10>() else { return };
    let base = u64::from_le_bytes(base) & !7;
    let field = |name: &'static str| {
        if name == "CodeCache._heaps" {
            return Some(hotspot::Field { offset: base, width: 8 });
        }
        // Names share numbers if they have the same sum.
        let at = 2 * (name.bytes().map(usize::from).sum::<usize>() % FIELDS);
        let [offset, width] = *numbers.get(at..)?.first_chunk()?;
        Some(hotspot::Field { offset: u64::from(offset) << (width >> 4), width: 1 << (width & 3) })
    };
    let Some(layout) = hotspot::Layout::of(version.into(), field).ok().filter(|_| !bytes.is_empty()) else { return };
    let memory = Image { leads_inside: flags & 1 == 1, base, bytes };
    let heaps = hotspot::CodeHeap::all(&memory, &layout).unwrap_or_default();
    layout.for_walks(&heaps);
    for heap in heaps {
        let Some(blob) = heap.blob(&memory, &layout, heap.begin + (heap.end - heap.begin) / 2) else { continue };
        let calls = blob.calls(&memory, &layout, blob.begin.wrapping_add(u64::from(flags)));
        assert!(calls.is_none_or(|calls| (1..=64).contains(&calls.len())));
    }
    for object in (0..bytes.len() as u64).step_by(8).take(MAX_CODES) {
        let method = memory.base.wrapping_add(object);
        hotspot::Method::check(&memory, &layout, method);
        let Some(method) = hotspot::Method::read(&memory, &layout, method) else { continue };
        assert!(method.size() <= 1 << 18);
        method.lines.line(object as u16);
    }
}

fn python(minor: u8, input: &[u8]) {
    let Some((&[flags, base @ .., r0, r1, t0, t1, s0, s1, g0, g1], bytes)) = input.split_first_chunk::<17>() else { return };
    let memory = Image { leads_inside: flags & 1 == 1, base: u64::from_le_bytes(base), bytes };
    let [runtime, thread_pointer, state, getter] = [[r0, r1], [t0, t1], [s0, s1], [g0, g1]].map(|offset| memory.address(offset));

    assert!(MINORS.into_iter().all(|minor| Layout::of(Version { major: 3, minor }, &memory, runtime).is_some()));
    if let Some(hex) = memory.u32(runtime) {
        let version = Version::of_hex(hex);
        let is_known = version.major == 3 && MINORS.contains(&version.minor);
        assert_eq!(Layout::of(version, &memory, runtime).is_some(), is_known);
    }
    Version::of_file(&String::from_utf8_lossy(&bytes[..bytes.len().min(64)]));

    let Some(layout) = Layout::of(Version { major: 3, minor }, &memory, runtime) else { return };
    let all = threads(&memory, &layout, runtime);
    assert!(all.len() <= 64 && !all.contains(&0));
    // Any thread of a process is enough to find its slot.
    let clues = Clues { runtime, getter: Some(getter), self_size: u64::from(flags >> 3) * 64 };
    let slot = all.iter().chain([&thread_pointer]).find_map(|thread| find_slot(&memory, &layout, &clues, *thread));
    let distance = state.wrapping_sub(thread_pointer).cast_signed();
    let leads_to = match flags & 6 {
        0 => LeadsTo::State,
        2 => LeadsTo::List(thread_pointer),
        _ => LeadsTo::Blocks { block: thread_pointer, variable: state },
    };
    let any_slot = StateSlot { distance, leads_to };
    for slot in slot.into_iter().chain([any_slot]) {
        is_walked_by_bpf(layout.runtime(slot, &clues), slot);
    }
    let states = all.iter().chain([&thread_pointer]).filter_map(|thread| slot?.state(&memory, *thread));
    let states: BTreeSet<u64> = states.chain([state]).collect();
    states.into_iter().take(MAX_WALKS).for_each(|state| functions(&memory, &layout, minor, state));
}

/// Checks offsets that BPF uses without a bound: see `struct runtime` in `bpf/record.h`.
fn is_walked_by_bpf(runtime: Option<RuntimeBytes>, slot: StateSlot) {
    let Some(bytes) = runtime else { return };
    let field = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let frame_bytes = field(26);
    assert!(frame_bytes <= 128 && frame_bytes % 8 == 0, "{frame_bytes} bytes of a frame");
    assert!([18, 20, 22].into_iter().all(|at| field(at) % 8 == 0 && field(at) + 8 <= frame_bytes), "a word outside of the frame");
    assert!(field(24) < frame_bytes, "an entry outside of the frame");
    assert_eq!(bytes[..8], slot.distance.to_ne_bytes());
}

/// Walks the functions of a state and reads their code.
fn functions(memory: &Image, layout: &Layout, minor: u8, state: u64) {
    let (runs, _) = chain(memory, layout, state, MAX_FRAMES);
    assert!(runs.iter().map(|run| run.frames.len()).sum::<usize>() <= MAX_FRAMES);
    assert!(runs.iter().all(|run| !run.frames.is_empty()), "a run without functions");
    assert!(minor > 9 || runs.iter().all(|run| run.frames.len() == 1 && run.anchor.is_none()), "an anchor before 3.10");

    let mut codes: Vec<_> = runs.iter().flat_map(|run| &run.frames).map(|frame| (frame.code, frame.place)).collect();
    codes.sort_unstable();
    codes.dedup_by_key(|(code, _)| *code);
    for (address, place) in codes.into_iter().take(MAX_CODES) {
        let check = Code::check(memory, layout, address);
        assert_eq!(check, Code::check(memory, layout, address));
        let Some(code) = Code::read(memory, layout, address) else { continue };
        assert!(code.name.chars().count() as u64 <= MAX_NAME && code.file.chars().count() as u64 <= MAX_FILE);
        assert!(code.size() <= 32 << 10, "a function of {} bytes", code.size());
        code.is_shim();
        assert_eq!([i32::MIN, -1].map(|place| code.lines.line(place)), [Some(code.first_line); 2]);
        for place in [place, layout.place_of(check), layout.place_of(place as u32), 0, 1, 64, 4096, 1 << 20, i32::MAX] {
            code.lines.line(place);
        }
    }
}
