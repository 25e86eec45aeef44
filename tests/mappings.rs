//! What bpf/vma.h says of addresses, against `/proc/PID/maps` for processes that hold still and against the log of a
//! program that maps as quick as it can.
//!
//! Needs root and a C compiler; fails without, never skips.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use common::{Program, root_or_fail};
use libbpf_rs::{Iter, Link, MapCore, MapFlags, Object, ObjectBuilder, RingBufferBuilder};

const REQUESTS: usize = 256;
const ANY_PROCESS: u32 = u32::MAX;

/// The numbers of enum mapping_result.
const FOUND: u32 = 0;
const ANONYMOUS: u32 = 1;
const VDSO: u32 = 2;
const NOT_EXECUTABLE: u32 = 3;
const NONE: u32 = 4;
const RESULTS: [&str; 9] = ["found", "anonymous", "vdso", "not executable", "none", "no mm", "torn", "too deep", "unreadable"];

/// Bit of mapping::flags.
const STABLE: u32 = 4;

/// One at a time: they count ticks.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    root_or_fail();
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a mapping is, as the kernel's file and our program have it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Mapping {
    start: u64,
    end: u64,
    page_offset: u64,
    device: (u32, u32),
    inode: u64,
    executable: bool,
}

#[derive(Clone, Copy, Debug)]
struct Answer {
    address: u64,
    time: (u64, u64),
    result: u32,
    is_pc: bool,
    sequence: u32,
    id: u64,
    in_user_mode: bool,
    stable: bool,
    mapping: Mapping,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

impl Answer {
    /// struct answer of tests/programs/mappings.bpf.c.
    fn parse(bytes: &[u8]) -> Answer {
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

    fn result(&self) -> &'static str {
        RESULTS[self.result as usize]
    }
}

/// The programs of tests/programs/mappings.bpf.c, loaded.
struct Asker {
    object: Object,
}

impl Asker {
    fn load(copied: bool) -> Asker {
        Asker::load_with(copied, &["look_at_sleeping", "look_at_tick"])
    }

    fn load_with(copied: bool, programs: &[&str]) -> Asker {
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

    fn map(&self, name: &str) -> impl MapCore + '_ {
        self.object.maps().find(|map| map.name() == name).unwrap()
    }

    fn program(&mut self, name: &str) -> libbpf_rs::ProgramMut<'_> {
        self.object.progs_mut().find(|program| program.name() == name).unwrap()
    }

    fn ask(&self, tgid: u32, addresses: &[u64]) {
        let mut bytes = vec![0; 8 + 8 * REQUESTS];
        bytes[..4].copy_from_slice(&tgid.to_ne_bytes());
        bytes[4..8].copy_from_slice(&u32::try_from(addresses.len()).unwrap().to_ne_bytes());
        for (address, place) in addresses.iter().zip(bytes[8..].chunks_exact_mut(8)) {
            place.copy_from_slice(&address.to_ne_bytes());
        }
        self.map("questions").update(&0u32.to_ne_bytes(), &bytes, MapFlags::ANY).unwrap();
    }

    /// The iterator's answers to at most [`REQUESTS`] questions about a process that may sleep.
    fn answers(&mut self, tgid: u32, addresses: &[u64]) -> Vec<Answer> {
        self.ask(tgid, addresses);
        let link = self.program("look_at_sleeping").attach().expect("the iterator attaches");
        let mut text = Vec::new();
        Iter::new(&link).unwrap().read_to_end(&mut text).unwrap();
        let answers = self.map("answers");
        let answer = |at: u32| answers.lookup(&at.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
        (0..u32::try_from(addresses.len()).unwrap()).map(|at| Answer::parse(&answer(at))).collect()
    }

    /// A program on a clock of each CPU, as long as the links live.
    fn start_clocks(&mut self, program: &str, frequency: u64) -> Vec<Link> {
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

    /// The ticks' answers during a while.
    fn sample(&mut self, frequency: u64, time: Duration) -> Vec<Answer> {
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

/// `/proc/PID/maps`.
fn maps_of(pid: u32) -> Vec<(Mapping, String)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let line = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next().unwrap().split_once('-').unwrap();
        let executable = words.next().unwrap().as_bytes()[2] == b'x';
        let page_offset = hex(words.next().unwrap()) / rustix::param::page_size() as u64;
        let (major, minor) = words.next().unwrap().split_once(':').unwrap();
        let device = (u32::try_from(hex(major)).unwrap(), u32::try_from(hex(minor)).unwrap());
        let inode = words.next().unwrap().parse().unwrap();
        let name = words.collect::<Vec<_>>().join(" ");
        (Mapping { start: hex(start), end: hex(end), page_offset, device, inode, executable }, name)
    };
    // The vsyscall page is in no tree: the kernel adds it to what it prints.
    text.lines().map(line).filter(|(_, name)| name != "[vsyscall]").collect()
}

/// Devices of overlay file systems, as a process sees them: a container's root is one. Its files have an inode there, which
/// 6.8 and later print, and one of the file system beneath, which is what is mapped, and what we say.
fn overlays_of(pid: u32) -> Vec<(u32, u32)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
    let device = |line: &str| {
        let (major, minor) = line.split_ascii_whitespace().nth(2)?.split_once(':')?;
        line.contains(" - overlay ").then_some((major.parse().ok()?, minor.parse().ok()?))
    };
    text.lines().filter_map(device).collect()
}

/// xorshift: the same questions in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Addresses around the borders of mappings, inside of them, and anywhere.
fn questions(maps: &[(Mapping, String)], count: usize) -> Vec<u64> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let ask = |at: usize| {
        let map = &maps[usize::try_from(random.below(maps.len() as u64)).unwrap()].0;
        match at % 6 {
            0 => map.start,
            1 => map.end - 1,
            2 => map.end,
            3 => map.start - 1,
            4 => map.start + random.below(map.end - map.start),
            _ => random.below(1 << 47),
        }
    };
    (0..count).map(ask).collect()
}

/// What is wrong with an answer, if anything.
fn differs(answer: &Answer, maps: &[(Mapping, String)], overlays: &[(u32, u32)]) -> Option<String> {
    let at = maps.partition_point(|(map, _)| map.end <= answer.address);
    let truth = maps.get(at).filter(|(map, _)| map.start <= answer.address);
    let right = match truth {
        None => answer.result == NONE,
        Some((map, name)) => {
            let of_file = map.inode != 0 || map.device != (0, 0);
            let result = match (map.executable, of_file, name.as_str()) {
                (false, ..) => NOT_EXECUTABLE,
                (true, _, "[vdso]") => VDSO,
                (true, true, _) => FOUND,
                (true, false, _) => ANONYMOUS,
            };
            let mut said = answer.mapping;
            if !of_file {
                // It has an offset in the kernel, which that does not print.
                said.page_offset = map.page_offset;
            }
            if overlays.contains(&map.device) {
                (said.device, said.inode) = (map.device, map.inode);
            }
            answer.result == result && said == *map
        }
    };
    (!right).then(|| format!("{:#x}: {} {:x?}, and the kernel says {truth:x?}", answer.address, answer.result(), answer.mapping))
}

/// A program that is ended when dropped.
struct Started(Child);

impl Started {
    fn new(program: &str, arguments: &[&str]) -> Option<Started> {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().ok().map(Started)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Asks until the process held still during the asking, a few times.
fn compare(asker: &mut Asker, pid: u32, ask: impl Fn(&mut Asker, &[u64]) -> Vec<Answer>) -> Option<usize> {
    for _ in 0..5 {
        let before = maps_of(pid);
        if before.is_empty() {
            return None;
        }
        let answers = ask(asker, &questions(&before, 240));
        if maps_of(pid) != before {
            continue;
        }
        let overlays = overlays_of(pid);
        let wrong: Vec<_> = answers.iter().filter_map(|answer| differs(answer, &before, &overlays)).collect();
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        assert!(wrong.is_empty(), "{} of {} wrong in {} ({pid}):\n{}", wrong.len(), answers.len(), name.trim(), wrong.join("\n"));
        assert!(answers.iter().all(|answer| answer.stable || !has_generation()), "no answer of a quiet process is unstable");
        return Some(answers.len());
    }
    None
}

/// Whether this kernel counts changes of mappings: up to 6.0, and from 6.4 on.
fn has_generation() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    let version: (u32, u32) = (numbers.next().unwrap(), numbers.next().unwrap());
    !((6, 1)..(6, 4)).contains(&version)
}

fn whole_machine(copied: bool) {
    let _alone = alone();
    let _many = Program::build("mappings.c").run(&["60", "many", "3000"]);
    let _small = Program::build("mappings.c").run(&["60"]);
    // What is not installed is not looked at; the others must agree.
    let _programs = [
        Started::new("python3", &["-c", "import json, ssl, time; time.sleep(60)"]),
        Started::new("node", &["-e", "setTimeout(() => 0, 60000)"]),
        Started::new("bash", &["-c", "read < <(sleep 60)"]),
        Started::new("chromium", &["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", "about:blank"]),
    ];
    std::thread::sleep(Duration::from_secs(3));
    let mut asker = Asker::load(copied);
    let (mut processes, mut answers, mut largest) = (0, 0, 0);
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse() else { continue };
        if let Some(compared) = compare(&mut asker, pid, |asker, addresses| asker.answers(pid, addresses)) {
            processes += 1;
            answers += compared;
            largest = largest.max(maps_of(pid).len());
        }
    }
    println!("{answers} answers about {processes} processes with up to {largest} mappings: all equal");
    assert!(processes >= 3 && largest > 3000);
}

#[test]
fn every_process_of_the_machine_has_the_mappings_that_the_kernel_prints() {
    whole_machine(false);
}

#[test]
fn the_same_by_copies() {
    whole_machine(true);
}

fn at_ticks(copied: bool) {
    let _alone = alone();
    let program = Program::build("mappings.c");
    let many = program.run(&["60", "many", "3000"]);
    let small = program.run(&["60"]);
    let node = Started::new("node", &["-e", "setTimeout(() => { for (;;); }, 1000)"]);
    let python = Started::new("python3", &["-c", "while True: pass"]);
    std::thread::sleep(Duration::from_secs(2));
    let pids =
        [Some(many.pid()), Some(small.pid()), node.as_ref().map(|node| node.0.id()), python.as_ref().map(|python| python.0.id())];
    for pid in pids.into_iter().flatten() {
        let mut asker = Asker::load(copied);
        let compared = compare(&mut asker, pid, |asker, addresses| {
            asker.ask(pid, addresses);
            asker.sample(499, Duration::from_millis(1500))
        });
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
        println!("{}: {compared:?} answers, all equal", name.trim());
    }
}

#[test]
fn ticks_in_a_busy_process_find_what_the_kernel_prints() {
    at_ticks(false);
}

#[test]
fn ticks_in_a_busy_process_find_it_by_copies() {
    at_ticks(true);
}

/// struct turn of tests/programs/mappings.c.
#[derive(Clone, Copy, Debug)]
struct Turn {
    begin: u64,
    end: u64,
    file: u64,
    page_offset: u64,
}

/// What was mapped at one slot, over time.
fn read_turns(path: &std::path::Path) -> (u64, u64, BTreeMap<u64, Vec<Turn>>) {
    let bytes = std::fs::read(path).unwrap();
    let mut turns = bytes.chunks_exact(40).map(|turn| [0, 8, 16, 24, 32].map(|at| u64_at(turn, at)));
    let [_, _, place, bytes_of_slot, _] = turns.next().unwrap();
    let mut slots: BTreeMap<u64, Vec<Turn>> = BTreeMap::new();
    for [begin, end, place, file, page_offset] in turns.filter(|turn| turn[0] != 0) {
        // The last one may not be over.
        let end = if end == 0 { u64::MAX } else { end };
        slots.entry(place).or_default().push(Turn { begin, end, file, page_offset });
    }
    (place, bytes_of_slot, slots)
}

/// Whether the answer was true at a moment between its two times.
fn was_true(answer: &Answer, place: u64, bytes_of_slot: u64, turns: &[Turn]) -> bool {
    let (from, to) = answer.time;
    // Turns that were not over before we began, and the one before them.
    let first = turns.partition_point(|turn| turn.end < from).saturating_sub(1);
    let possible = turns[first..].iter().take_while(|turn| turn.begin <= to);
    let mut before = true;
    for turn in possible {
        let changing = turn.end >= from;
        let is = match answer.result {
            // Over something else: it is away for a moment.
            NONE => turn.file == 0 || changing,
            FOUND => {
                let mapping = answer.mapping;
                let whole = mapping.start == place && mapping.end == place + bytes_of_slot;
                whole && mapping.inode == turn.file && mapping.page_offset == turn.page_offset
            }
            _ => false,
        };
        if is {
            return true;
        }
        before = false;
    }
    // Before the first turn there is nothing.
    before && answer.result == NONE
}

fn in_a_storm(copied: bool) {
    let _alone = alone();
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let log = directory.path().join("log");
    let mut storm = Program::build("mappings.c").run(&["60", "storm", log.to_str().unwrap()]);
    let own = maps_of(storm.pid());
    let code = own.iter().find(|(map, name)| map.executable && name.ends_with("/mappings")).unwrap().0;
    let (region, bytes_of_slot, _) = read_turns(&log);
    let mut random = Random(42);
    let addresses: Vec<u64> = (0..200).map(|_| region + random.below(16 * bytes_of_slot)).collect();
    let mut asker = Asker::load(copied);
    asker.ask(storm.pid(), &addresses);
    let answers = asker.sample(1999, Duration::from_secs(3));
    storm.kill();
    let (.., slots) = read_turns(&log);

    let turns: usize = slots.values().map(Vec::len).sum();
    let mut results: BTreeMap<(bool, &str, bool), usize> = BTreeMap::new();
    let (mut pcs, mut code_found, mut torn, mut wrong, mut true_later) = (0, 0, 0, Vec::new(), 0);
    let mut mixed = 0;
    for answer in &answers {
        *results.entry((answer.is_pc, answer.result(), answer.stable)).or_default() += 1;
        if answer.is_pc {
            pcs += 1;
            let in_code = (code.start..code.end).contains(&answer.address);
            let found = matches!(answer.result, FOUND | VDSO) && (!in_code || answer.mapping == code);
            code_found += usize::from(found);
            torn += usize::from(answer.result() == "torn");
            if !found && answer.result() != "torn" {
                wrong.push(format!("{:#x} is {} {:x?}", answer.address, answer.result(), answer.mapping));
            }
            continue;
        }
        let place = region + (answer.address - region) / bytes_of_slot * bytes_of_slot;
        let turns = slots.get(&place).map_or(&[][..], Vec::as_slice);
        let later = Answer { time: (answer.time.0 + 1_000_000, answer.time.1 + 1_000_000), ..*answer };
        true_later += usize::from(was_true(&later, place, bytes_of_slot, turns));
        let doubtful = answer.result() != "torn" && !was_true(answer, place, bytes_of_slot, turns);
        if doubtful && !answer.stable {
            // Read beside a writer, as it says itself: start and page offset would be of two moments.
            mixed += 1;
        } else if doubtful {
            wrong.push(format!("{:#x} is {} {:x?} stable {}", answer.address, answer.result(), answer.mapping, answer.stable));
        }
    }
    println!("{turns} turns of the storm; {pcs} instruction pointers, {code_found} found; {} answers", answers.len());
    for ((is_pc, result, stable), count) in results {
        println!(
            "  {:>8} {result}{}, {}",
            count,
            if stable { "" } else { ", beside a writer" },
            if is_pc { "pc" } else { "in the storm" }
        );
    }
    assert!(wrong.is_empty(), "{} wrong answers:\n{}", wrong.len(), wrong[..wrong.len().min(20)].join("\n"));
    println!("{mixed} answers given beside a writer were of two moments{}", if copied { ", by copies" } else { ", in place" });
    // None is excused: an answer that was given beside a writer was found twice.
    assert!(mixed == 0, "{mixed} of {} answers were of two moments", answers.len());
    // 6.1 may be interrupted while a node is neither the old one nor the new one.
    let allowed = if has_generation() { pcs / 10_000 } else { pcs / 200 };
    assert!(torn <= allowed, "{torn} of {pcs} instruction pointers were not found");
    assert!(turns > 10_000 && pcs > 500);
    println!("a millisecond later {true_later} of them would have been true");
    assert!(true_later * 4 < answers.len() * 3, "the log says no more what was mapped when: this test proves nothing");
}

#[test]
fn in_a_storm_of_mmap_no_object_is_wrong_and_code_is_found() {
    in_a_storm(false);
}

#[test]
fn in_a_storm_of_mmap_no_object_is_wrong_by_copies() {
    in_a_storm(true);
}

#[test]
fn in_a_storm_of_exec_every_instruction_pointer_has_its_mapping() {
    let _alone = alone();
    let storm = Started::new("sh", &["-c", "while :; do /bin/true; /bin/ls / >/dev/null; done"]);
    assert!(storm.is_some());
    let mut asker = Asker::load(false);
    asker.ask(ANY_PROCESS, &[]);
    let answers = asker.sample(1999, Duration::from_secs(3));
    let mut results: BTreeMap<(&str, bool), usize> = BTreeMap::new();
    for answer in answers.iter().filter(|answer| answer.is_pc) {
        *results.entry((answer.result(), answer.in_user_mode)).or_default() += 1;
    }
    println!("{results:?} (true: the tick came in user mode)");
    for answer in answers.iter().filter(|answer| answer.is_pc && answer.in_user_mode) {
        let result = answer.result();
        assert!(matches!(answer.result, FOUND | ANONYMOUS | VDSO), "code runs at {:#x}, where there is {result}", answer.address);
    }
}

/// Runs one step of `mappings SECONDS steps` and gives the generation after it.
fn step(name: &str, child: &mut Child, output: &mut impl BufRead, asker: &mut Asker) -> (u64, u32) {
    // In one write: the program takes what it reads for a line.
    child.stdin.as_mut().unwrap().write_all(format!("{name}\n").as_bytes()).unwrap();
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line.trim(), name, "the program did the step");
    let answer = asker.answers(child.id(), &[0x1000])[0];
    (answer.id, answer.sequence)
}

#[test]
fn each_change_of_the_mappings_changes_their_generation() {
    let _alone = alone();
    if !has_generation() {
        println!("this kernel counts no changes");
        return;
    }
    let mut asker = Asker::load(false);
    let program = Program::build("mappings.c");
    let mut child =
        Command::new(&program.path).args(["60", "steps"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut last = step("nothing", &mut child, &mut output, &mut asker);
    // Page faults and the return of memory change no mapping: a generation that they changed would be of little use.
    for (name, changes) in [
        ("nothing", false),
        ("faults", false),
        ("dontneed", false),
        ("mmap", true),
        ("mprotect", true),
        ("mprotect-part", true),
        ("mremap", true),
        ("fixed", true),
        ("munmap-part", true),
        ("munmap", true),
        ("brk", true),
        ("thread", true),
        ("fork", true),
        ("exec", true),
    ] {
        let now = step(name, &mut child, &mut output, &mut asker);
        println!("{name}: {last:?} -> {now:?}");
        // Up to 6.0 only removals are counted: that is enough to keep what was found.
        let only_removals =
            !std::path::Path::new("/sys/kernel/slab/maple_node").exists() && !name.contains("unmap") && name != "exec";
        assert!(changes == (last != now) || only_removals, "{name}");
        assert_eq!(last.0 != now.0, name == "exec", "{name}: another address space, or the same");
        last = now;
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Prints how often the generation stays from tick to tick, of whatever runs, with some programs of our own.
#[test]
#[ignore = "measures for half a minute"]
fn how_long_generations_last() {
    let _alone = alone();
    let _programs = [
        Started::new("node", &["-e", "for (;;) { JSON.parse(JSON.stringify(Array.from({length: 20000}, (_, i) => ({i})))) }"]),
        Started::new("python3", &["-c", "while True: x = [str(i) for i in range(100000)]; y = sorted(x)"]),
    ];
    for frequency in [97, 997] {
        let mut asker = Asker::load(false);
        asker.ask(ANY_PROCESS, &[]);
        asker.sample(frequency, Duration::from_secs(10));
    }
}

#[test]
fn each_kind_of_program_may_ask() {
    let _alone = alone();
    let own = std::process::id();
    let maps = maps_of(own);
    let code = &maps.iter().find(|(map, _)| map.executable && map.inode != 0).unwrap().0;
    for copied in [false, true] {
        for name in ["ask_from_tp_btf", "ask_from_raw_tp", "ask_from_kprobe", "ask_from_uprobe"] {
            let mut asker = Asker::load_with(copied, &[name]);
            // Some kernels, such as those of small virtual machines, have no probes: there it was loaded, and that is all.
            let source = name.trim_start_matches("ask_from_");
            if source.ends_with("probe") && !std::path::Path::new("/sys/bus/event_source/devices").join(source).exists() {
                println!("this kernel has no {source}: only loaded");
                continue;
            }
            asker.ask(own, &[code.start]);
            let program = asker.program(name);
            let link = match name {
                // On a function that this process calls: the C library's read, by its name.
                "ask_from_uprobe" => {
                    let options = libbpf_rs::UprobeOpts { func_name: Some("read".into()), ..libbpf_rs::UprobeOpts::default() };
                    let library = &maps.iter().find(|(_, name)| name.contains("/libc.so")).unwrap().1;
                    program.attach_uprobe_with_opts(-1, library, 0, options)
                }
                _ => program.attach(),
            };
            let link = link.unwrap_or_else(|error| panic!("{name}: {error}"));
            let mut byte = [0];
            std::fs::File::open("/dev/zero").unwrap().read_exact(&mut byte).unwrap();
            drop(link);
            let bytes = asker.map("answers").lookup(&0u32.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
            let answer = Answer::parse(&bytes);
            assert!(answer.is_pc, "{name} has run");
            assert_eq!(differs(&answer, &maps, &overlays_of(own)), None, "{name}, copied: {copied}");
        }
    }
}

/// Fills the trie as the OpenTelemetry profiler does: a mapping is a set of prefixes.
fn fill_trie(asker: &Asker, pid: u32, maps: &[(Mapping, String)]) -> usize {
    let trie = asker.map("trie");
    let mut prefixes = 0;
    for (map, _) in maps {
        let mut at = map.start;
        while at < map.end {
            let mut bits = at.trailing_zeros().min(46);
            while at + (1 << bits) > map.end {
                bits -= 1;
            }
            let mut key = (96 - bits).to_ne_bytes().to_vec();
            key.extend(pid.to_be_bytes());
            key.extend(at.to_be_bytes());
            trie.update(&key, &1u64.to_ne_bytes(), MapFlags::ANY).unwrap();
            prefixes += 1;
            at += 1 << bits;
        }
    }
    prefixes
}

/// Prints what a look-up costs; `cargo test --test mappings prices -- --ignored --nocapture`.
#[test]
#[ignore = "measures for half a minute"]
fn prices_of_look_ups() {
    let _alone = alone();
    let program = Program::build("mappings.c");
    println!("nanoseconds     first of a tick   at random   one address   (less what nothing costs)");
    for count in ["2", "180", "2980"] {
        let busy = program.run(&["60", "many", count]);
        let maps = maps_of(busy.pid());
        let forms = ["nothing", "in place", "by copies", "LPM trie", "bpf_find_vma"];
        let names = ["measure_0", "measure_1", "measure_2", "measure_3", "measure_4"];
        let mut asker = Asker::load_with(false, &names);
        let prefixes = fill_trie(&asker, busy.pid(), &maps);
        // Inside of mappings: what a trie does not have is another matter.
        let mut random = Random(7);
        let mut pick = |_| {
            let map = &maps[usize::try_from(random.below(maps.len() as u64)).unwrap()].0;
            map.start + random.below(map.end - map.start)
        };
        asker.ask(busy.pid(), &(0..REQUESTS).map(&mut pick).collect::<Vec<_>>());
        println!("{} mappings, {prefixes} prefixes", maps.len());
        // In turn, so that a disturbance of the machine meets all.
        for _ in 0..6 {
            for name in names {
                let links = asker.start_clocks(name, 499);
                std::thread::sleep(Duration::from_millis(400));
                drop(links);
            }
        }
        let price = |form: u32| {
            let bytes = asker.map("prices").lookup(&form.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
            let [ticks, first, random, same, failed, second] = [0, 8, 16, 24, 32, 40].map(|at| u64_at(&bytes, at) as f64);
            ([first / ticks, random / ticks / 32.0, same / ticks / 32.0], ticks, failed, second)
        };
        let nothing = price(0).0;
        for (form, name) in forms.iter().enumerate() {
            let (all, ticks, failed, second) = price(u32::try_from(form).unwrap());
            let [first, random, same] = [0, 1, 2].map(|at| if form == 0 { all[at] } else { all[at] - nothing[at] });
            print!("  {name:<14} {first:>12.0}");
            if *name == "bpf_find_vma" {
                println!(
                    "            -             -   {ticks} ticks, {failed} failed; a second call in one tick: {second} failed"
                );
            } else {
                println!(" {random:>12.1} {same:>13.1}   {ticks} ticks, {failed} failed");
            }
        }
    }
}
