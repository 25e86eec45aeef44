//! Checks the table of bpf/regs.h: which of a program's registers each source of events shows.
//!
//! A program fills its registers with numbers that identify the register. A BPF program at each source reads the registers that
//! the kernel has saved at the top of the task's stack. It also reads its own context as if it were registers. Prints a table.
//! REGISTERS_PROGRAM names the program where it cannot be built: in the guests of tests/vm.
//!
//! Needs root, and gcc without that. Sources that this kernel does not offer are reported as missing; all others must match the table.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "common/mod.rs"]
mod common;

use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use common::{Program, Running, root_or_fail};
use flametop::symbolize::functions_of;
use libbpf_rs::{Link, MapCore, MapFlags, ObjectBuilder};

const SEED: u64 = 0x5eed_0000;

/// DWARF numbers of the words of `struct pt_regs`; `None` where a word is no general register.
fn numbers() -> Vec<Option<u64>> {
    if cfg!(target_arch = "x86_64") {
        let general = [15, 14, 13, 12, 6, 3, 11, 10, 9, 8, 0, 2, 1, 4, 5];
        general.into_iter().map(Some).chain(vec![None; 6]).collect()
    } else {
        (0..30).map(Some).chain(vec![None; 4]).collect()
    }
}

/// A source: its number in enum register_source, its program, and whether the task is in a system call at the event.
struct Source {
    number: u32,
    name: &'static str,
    program: &'static str,
    in_syscall: bool,
}

const SOURCES: [Source; 10] = [
    Source { number: 0, name: "perf_event", program: "on_perf_event", in_syscall: true },
    Source { number: 1, name: "kprobe", program: "on_kprobe", in_syscall: true },
    Source { number: 2, name: "kretprobe", program: "on_kretprobe", in_syscall: true },
    Source { number: 3, name: "kprobe.multi", program: "on_kprobe_multi", in_syscall: true },
    Source { number: 4, name: "kretprobe.multi", program: "on_kretprobe_multi", in_syscall: true },
    Source { number: 5, name: "uprobe", program: "on_uprobe", in_syscall: false },
    Source { number: 6, name: "uretprobe", program: "on_uretprobe", in_syscall: false },
    Source { number: 7, name: "raw tracepoint", program: "on_tracepoint", in_syscall: true },
    Source { number: 8, name: "fentry", program: "on_entry", in_syscall: true },
    Source { number: 9, name: "fexit", program: "on_exit", in_syscall: true },
];

/// Registers that a system call uses for itself: x86_64 rax, rcx, r11; arm64 x0 and x8.
const OF_SYSCALLS: &[u64] = if cfg!(target_arch = "x86_64") { &[0, 2, 11] } else { &[0, 8] };

/// Returns the registers that one source shows: those with the right number in the task's saved registers, and in the context.
fn look(source: &Source, running: &Running, path: &std::path::Path, marked: u64) -> Option<[Vec<u64>; 2]> {
    let function = if cfg!(target_arch = "x86_64") { "__x64_sys_getppid" } else { "__arm64_sys_getppid" };
    let bytes = include_bytes!(concat!(env!("OUT_DIR"), "/registers.bpf.o"));
    let mut open = ObjectBuilder::default().open_memory(bytes).expect("our own object");
    for mut map in open.maps_mut() {
        if map.name().to_string_lossy().ends_with(".rodata") {
            map.set_initial_value(&running.pid().to_ne_bytes()).expect("wanted is the only constant");
        }
    }
    for mut program in open.progs_mut() {
        let is_wanted = program.name() == source.program;
        program.set_autoload(is_wanted);
        if is_wanted && matches!(source.name, "fentry" | "fexit") {
            // A system call without arguments has two names. The kernel's types contain one of them.
            let names = ["__do_sys_getppid", function];
            names.iter().find_map(|name| program.set_attach_target(0, Some((*name).to_owned())).ok())?;
        }
    }
    let object = open.load().ok()?;
    let program = object.progs_mut().find(|program| program.name() == source.program).expect("it is there");
    let options = |retprobe| libbpf_rs::UprobeOpts { retprobe, ..Default::default() };
    let attached: libbpf_rs::Result<Link> = match source.name {
        "perf_event" => program.attach_perf_event(clock_of(running.pid()).into_raw_fd()),
        "kprobe" => program.attach_kprobe(false, function),
        "kretprobe" => program.attach_kprobe(true, function),
        "kprobe.multi" => program.attach_kprobe_multi(false, vec![function]),
        "kretprobe.multi" => program.attach_kprobe_multi(true, vec![function]),
        "uprobe" => program.attach_uprobe_with_opts(-1, path, marked as usize, options(false)),
        "uretprobe" => program.attach_uprobe_with_opts(-1, path, marked as usize, options(true)),
        "raw tracepoint" => program.attach_raw_tracepoint("sys_enter"),
        _ => program.attach_trace(),
    };
    let _link = attached.ok()?;
    let map = object.maps().find(|map| map.name() == "sources").expect("it is there");
    let until = Instant::now() + Duration::from_secs(60);
    let key = source.number.to_ne_bytes();
    loop {
        let value = map.lookup(&key, MapFlags::ANY).unwrap().expect("an array has all elements");
        let word = |at: usize| u64::from_ne_bytes(value[at * 8..at * 8 + 8].try_into().unwrap());
        if word(0) > 0 {
            // Written by now: it takes a microsecond.
            std::thread::sleep(Duration::from_millis(20));
            let value = map.lookup(&key, MapFlags::ANY).unwrap().unwrap();
            let word = |at: usize| u64::from_ne_bytes(value[at * 8..at * 8 + 8].try_into().unwrap());
            let held = |from: usize| {
                let numbers = numbers().into_iter().enumerate();
                numbers.filter_map(|(at, number)| number.filter(|number| word(from + at) == SEED + number)).collect()
            };
            return Some([held(1), held(35)]);
        }
        assert!(Instant::now() < until, "{}: no event with the program's registers in 60 s", source.name);
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A clock that ticks a thousand times a second while a process runs.
#[allow(unsafe_code)]
fn clock_of(pid: u32) -> OwnedFd {
    use perf_event_open_sys::bindings as sys;
    let mut attributes = sys::perf_event_attr::default();
    attributes.size = size_of::<sys::perf_event_attr>() as u32;
    attributes.type_ = sys::PERF_TYPE_SOFTWARE;
    attributes.config = u64::from(sys::PERF_COUNT_SW_CPU_CLOCK);
    attributes.set_freq(1);
    // On a slow machine the kernel has lowered the allowed frequency.
    let allowed = std::fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate").ok();
    attributes.sample_freq = allowed.and_then(|rate| rate.trim().parse().ok()).map_or(997, |rate: u64| rate.min(997));
    // SAFETY: a whole structure of the size written in it; the call keeps no pointer to it.
    let fd = unsafe { perf_event_open_sys::perf_event_open(&raw mut attributes, pid as i32, -1, -1, 0) };
    assert!(fd >= 0, "perf_event_open: {}", std::io::Error::last_os_error());
    // SAFETY: the call gave us this descriptor.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn name(number: u64) -> String {
    const X86: [&str; 8] = ["rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp"];
    match X86.get(number as usize) {
        _ if cfg!(target_arch = "aarch64") => format!("x{number}"),
        Some(name) => (*name).to_owned(),
        None => format!("r{number}"),
    }
}

fn shown(held: &[u64]) -> String {
    let mut all: Vec<u64> = numbers().into_iter().flatten().collect();
    all.sort_unstable();
    let missing: Vec<String> = all.iter().filter(|number| !held.contains(number)).map(|number| name(*number)).collect();
    let all = all.len();
    match held.len() {
        0 => "none".to_owned(),
        n if n == all => "all".to_owned(),
        n if n * 2 > all => format!("all but {}", missing.join(" ")),
        n => format!("{n} of {all}"),
    }
}

#[test]
fn the_users_registers_are_whole_at_every_source() {
    root_or_fail();
    let program = std::env::var_os("REGISTERS_PROGRAM")
        .map_or_else(|| Program::build("registers.c"), |path| Program { path: PathBuf::from(path) });
    let functions = functions_of(&program.path).expect("a program of ours");
    let marked = functions.iter().find(|function| function.symbol == "marked").expect("it has this function").offset.0;
    let running = program.run(&["600"]);
    println!("| source | by the task | by the context |\n| - | - | - |");
    let mut offered = Vec::new();
    for source in &SOURCES {
        let Some([by_task, in_context]) = look(source, &running, &program.path, marked) else {
            println!("| {} | not offered | |", source.name);
            continue;
        };
        offered.push(source.name);
        println!("| {} | {} | {} |", source.name, shown(&by_task), shown(&in_context));
        let wanted: Vec<u64> =
            numbers().into_iter().flatten().filter(|number| !source.in_syscall || !OF_SYSCALLS.contains(number)).collect();
        let missing: Vec<u64> = wanted.into_iter().filter(|number| !by_task.contains(number)).collect();
        assert!(missing.is_empty(), "{}: registers {missing:?} are not those of the program", source.name);
    }
    for everywhere in ["perf_event", "uprobe", "uretprobe", "raw tracepoint"] {
        assert!(offered.contains(&everywhere), "{everywhere} is offered by every kernel: {offered:?}");
    }
}
