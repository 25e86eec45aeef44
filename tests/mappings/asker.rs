//! Loads the programs of tests/programs/mappings.bpf.c, asks them, and reads their answers.

use std::io::Read;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use libbpf_rs::{Iter, Link, MapCore, MapFlags, Object, ObjectBuilder, RingBufferBuilder};

pub(crate) const REQUESTS: usize = 256;
pub(crate) const ANY_PROCESS: u32 = u32::MAX;

/// The numbers of enum mapping_result.
pub(crate) const FOUND: u32 = 0;
pub(crate) const ANONYMOUS: u32 = 1;
pub(crate) const VDSO: u32 = 2;
pub(crate) const NOT_EXECUTABLE: u32 = 3;
pub(crate) const NONE: u32 = 4;
const RESULTS: [&str; 9] = ["found", "anonymous", "vdso", "not executable", "none", "no mm", "torn", "too deep", "unreadable"];

/// Bit of mapping::flags.
const STABLE: u32 = 4;

/// A mapping, as `/proc/PID/maps` and our program describe it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Mapping {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) page_offset: u64,
    pub(crate) device: (u32, u32),
    pub(crate) inode: u64,
    pub(crate) executable: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) address: u64,
    pub(crate) time: (u64, u64),
    pub(crate) result: u32,
    pub(crate) is_pc: bool,
    pub(crate) sequence: u32,
    pub(crate) id: u64,
    pub(crate) in_user_mode: bool,
    pub(crate) stable: bool,
    pub(crate) mapping: Mapping,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

impl Answer {
    /// struct answer of tests/programs/mappings.bpf.c.
    pub(crate) fn parse(bytes: &[u8]) -> Answer {
        let (device, flags) = (u32_at(bytes, 80), u32_at(bytes, 88));
        Answer {
            address: u64_at(bytes, 0),
            time: (u64_at(bytes, 8), u64_at(bytes, 16)),
            result: u32_at(bytes, 24),
            is_pc: u32_at(bytes, 28) != 0,
            sequence: u32_at(bytes, 32),
            id: u64_at(bytes, 40),
            in_user_mode: u32_at(bytes, 36) != 0,
            stable: flags & STABLE != 0,
            mapping: Mapping {
                start: u64_at(bytes, 48),
                end: u64_at(bytes, 56),
                page_offset: u64_at(bytes, 64),
                device: (device >> 20, device & 0xf_ffff),
                inode: u64_at(bytes, 72),
                executable: flags & 1 != 0,
            },
        }
    }

    pub(crate) fn result(&self) -> &'static str {
        RESULTS[self.result as usize]
    }
}

/// The programs of tests/programs/mappings.bpf.c, loaded.
pub(crate) struct Asker {
    object: Object,
}

impl Asker {
    pub(crate) fn load(copied: bool) -> Asker {
        Asker::load_with(copied, &["look_at_sleeping", "look_at_tick"])
    }

    pub(crate) fn load_with(copied: bool, programs: &[&str]) -> Asker {
        let bytes = include_bytes!(concat!(env!("OUT_DIR"), "/mappings.bpf.o"));
        let mut open = ObjectBuilder::default().open_memory(bytes).expect("our object is one");
        for mut map in open.maps_mut() {
            if map.name().to_string_lossy().ends_with(".rodata") {
                map.initial_value_mut().unwrap()[..4].copy_from_slice(&u32::from(copied).to_ne_bytes());
            }
        }
        for mut program in open.progs_mut() {
            let wanted = programs.contains(&program.name().to_str().unwrap());
            program.set_autoload(wanted);
        }
        Asker { object: open.load().expect("the programs load") }
    }

    pub(crate) fn map(&self, name: &str) -> impl MapCore + '_ {
        self.object.maps().find(|map| map.name() == name).unwrap()
    }

    pub(crate) fn program(&mut self, name: &str) -> libbpf_rs::ProgramMut<'_> {
        self.object.progs_mut().find(|program| program.name() == name).unwrap()
    }

    pub(crate) fn ask(&self, tgid: u32, addresses: &[u64]) {
        let mut bytes = vec![0; 8 + 8 * REQUESTS];
        bytes[..4].copy_from_slice(&tgid.to_ne_bytes());
        bytes[4..8].copy_from_slice(&u32::try_from(addresses.len()).unwrap().to_ne_bytes());
        for (address, place) in addresses.iter().zip(bytes[8..].chunks_exact_mut(8)) {
            place.copy_from_slice(&address.to_ne_bytes());
        }
        self.map("questions").update(&0u32.to_ne_bytes(), &bytes, MapFlags::ANY).unwrap();
    }

    /// The iterator's answers to at most [`REQUESTS`] questions about a process that may sleep.
    pub(crate) fn answers(&mut self, tgid: u32, addresses: &[u64]) -> Vec<Answer> {
        self.ask(tgid, addresses);
        let link = self.program("look_at_sleeping").attach().expect("the iterator attaches");
        let mut text = Vec::new();
        Iter::new(&link).unwrap().read_to_end(&mut text).unwrap();
        let answers = self.map("answers");
        let answer = |at: u32| answers.lookup(&at.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
        (0..u32::try_from(addresses.len()).unwrap()).map(|at| Answer::parse(&answer(at))).collect()
    }

    /// Attaches a program to a clock of each CPU, as long as the links live.
    pub(crate) fn start_clocks(&mut self, program: &str, frequency: u64) -> Vec<Link> {
        let cpus = std::thread::available_parallelism().unwrap().get();
        let clock = |cpu| {
            let event = open_clock(frequency, i32::try_from(cpu).unwrap());
            let link = self.program(program).attach_perf_event(event.as_raw_fd()).expect("attaches to a clock");
            // The link closes it.
            let _ = std::os::fd::IntoRawFd::into_raw_fd(event);
            link
        };
        (0..cpus).map(clock).collect()
    }

    /// The ticks' answers during `time`.
    pub(crate) fn sample(&mut self, frequency: u64, time: Duration) -> Vec<Answer> {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sink = seen.clone();
        let mut builder = RingBufferBuilder::new();
        let take = move |bytes: &[u8]| {
            sink.lock().unwrap().push(Answer::parse(bytes));
            0
        };
        let links = self.start_clocks("look_at_tick", frequency);
        let ticks = self.map("ticks");
        builder.add(&ticks, take).unwrap();
        let ring = builder.build().unwrap();
        let until = Instant::now() + time;
        while Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
            ring.consume().unwrap();
        }
        drop(links);
        ring.consume().unwrap();
        drop(ring);
        let seen = std::mem::take(&mut *seen.lock().unwrap());
        let counters = self.map("counters").lookup(&0u32.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
        let [ticks, lost, user, same, odd, known] = [0, 8, 16, 24, 32, 40].map(|at| u64_at(&counters, at));
        println!("{ticks} ticks ({lost} cut short), {user} in user mode, {odd} inside a writer;");
        println!("  of {known} in an address space that had a tick before, {same} found the same generation");
        assert!(!seen.is_empty(), "no tick in the process at all");
        seen
    }
}

fn open_clock(frequency: u64, cpu: i32) -> std::os::fd::OwnedFd {
    use perf_event_open_sys::bindings as sys;
    let mut attributes = sys::perf_event_attr::default();
    attributes.size = u32::try_from(size_of::<sys::perf_event_attr>()).unwrap();
    attributes.type_ = sys::PERF_TYPE_SOFTWARE;
    attributes.config = u64::from(sys::PERF_COUNT_SW_CPU_CLOCK);
    attributes.set_freq(1);
    attributes.sample_freq = frequency;
    let flags = u64::from(sys::PERF_FLAG_FD_CLOEXEC);
    #[allow(unsafe_code)]
    // SAFETY: a whole structure of the size written in it, alive during the call, which keeps no pointer to it.
    let fd = unsafe { perf_event_open_sys::perf_event_open(&raw mut attributes, -1, cpu, -1, flags) };
    assert!(fd >= 0, "no clock on CPU {cpu}: {}", std::io::Error::last_os_error());
    #[allow(unsafe_code)]
    // SAFETY: the call gave us this descriptor, and nobody else has it.
    unsafe {
        std::os::fd::FromRawFd::from_raw_fd(fd)
    }
}
