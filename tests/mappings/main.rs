//! Compares answers of bpf/lookup/mappings.h with `/proc/PID/maps`, for processes that hold still, and with the log of a program
//! that maps as quickly as it can.
//!
//! Needs root and a C compiler; fails without, never skips.
//!
//! Here: processes that hold still, and the kinds of programs that may ask. `storms`: processes that change during the look-up.
//! `generations`: changes of the number that says how long an answer may be kept. `prices`: the cost of a look-up. `asker` asks
//! our programs, `proc_maps` the kernel.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "../common/mod.rs"]
mod common;

mod asker;
mod generations;
mod prices;
mod proc_maps;
mod storms;

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Program, Running, alone};
use libbpf_rs::{MapCore, MapFlags};

use asker::{Answer, Asker};
use proc_maps::{compare, differs, maps_of, overlays_of};

/// A program of the system; `None` where it is not installed.
fn start(program: &str, arguments: &[&str]) -> Option<Running> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().ok().map(|child| Running { child })
}

fn whole_machine(copied: bool) {
    let _alone = alone();
    let _many = Program::build("mappings.c").run(&["60", "many", "3000"]);
    let _small = Program::build("mappings.c").run(&["60"]);
    // Programs that are not installed are skipped; the others must agree.
    let _programs = [
        start("python3", &["-c", "import json, ssl, time; time.sleep(60)"]),
        start("node", &["-e", "setTimeout(() => 0, 60000)"]),
        start("bash", &["-c", "read < <(sleep 60)"]),
        start("chromium", &["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", "about:blank"]),
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
    let node = start("node", &["-e", "setTimeout(() => { for (;;); }, 1000)"]);
    let python = start("python3", &["-c", "while True: pass"]);
    std::thread::sleep(Duration::from_secs(2));
    let pids = [Some(many.pid()), Some(small.pid()), node.as_ref().map(Running::pid), python.as_ref().map(Running::pid)];
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

#[test]
fn each_kind_of_program_may_ask() {
    let _alone = alone();
    let own = std::process::id();
    let maps = maps_of(own);
    let code = &maps.iter().find(|(map, _)| map.executable && map.inode != 0).unwrap().0;
    for copied in [false, true] {
        for name in ["ask_from_tp_btf", "ask_from_raw_tp", "ask_from_kprobe", "ask_from_uprobe"] {
            let mut asker = Asker::load_with(copied, &[name]);
            // Some kernels, such as those of small virtual machines, have no probes: there the program is only loaded.
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
