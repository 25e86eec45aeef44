//! A second opinion: gdb walks the stacks of the same programs by their full unwind information, in user space and stopped.
//!
//! It finds sources that do not declare all calls, and faults of the judges. Not every stack of gdb's is whole: in some assembly
//! it guesses. So its result is printed, and a few stacks may be wrong.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use flametop::profile::{FileOffset, Frame, Names, Object, ObjectId, ObjectKind, ProcessAddress};

use super::cases::Case;
use super::session::Waiting;
use super::stacks::{Images, Judge, Outcome};

/// How often each program is stopped.
const STOPS: usize = 6;

/// Prints what is mapped while all stands still; for each thread, address and kind of each frame, leaf first.
const SCRIPT: &str = r#"
import gdb
for line in open("/proc/%d/maps" % gdb.selected_inferior().pid):
    print("MAP " + line, end="")
for inferior_thread in gdb.selected_inferior().threads():
    inferior_thread.switch()
    frame = gdb.newest_frame()
    print("THREAD")
    depth = 0
    while frame is not None and frame.is_valid() and depth < 3000:
        if frame.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):
            print("FRAME %x %d" % (frame.pc(), frame.type() == gdb.SIGTRAMP_FRAME))
            depth += 1
        frame = frame.older()
"#;

/// Where a file is mapped: addresses, and the offset of the first.
struct Mapping {
    start: u64,
    end: u64,
    offset: u64,
    path: String,
}

fn mappings(text: &str) -> Vec<Mapping> {
    let mapping = |line: &str| {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let offset = words.nth(1)?;
        let path = words.nth(2).unwrap_or_default().to_owned();
        let number = |text| u64::from_str_radix(text, 16).ok();
        Some(Mapping { start: number(start)?, end: number(end)?, offset: number(offset)?, path })
    };
    text.lines().filter_map(|line| mapping(line.strip_prefix("MAP ")?)).collect()
}

/// The stacks of a process's threads, root first.
fn stacks_of(pid: u32, names: &Names) -> Vec<Vec<Frame>> {
    let script = super::programs::scratch("gdb").with_extension("py");
    std::fs::File::create(&script).and_then(|mut file| file.write_all(SCRIPT.as_bytes())).expect("a script can be written");
    let gdb = Command::new("gdb")
        .args([
            "-nx",
            "-batch",
            "-ex",
            "set auto-load no",
            "-ex",
            "set backtrace past-main on",
            "-ex",
            "set debuginfod enabled off",
        ])
        .args(["-ex", "set backtrace past-entry on", "-p", &pid.to_string(), "-x"])
        .arg(&script)
        .stdin(Stdio::null())
        .output()
        .expect("failed to run gdb");
    let said = String::from_utf8_lossy(&gdb.stdout);
    let mappings = mappings(&said);
    let frame = |address: u64, is_return: bool| {
        let mapping = mappings.iter().find(|mapping| (mapping.start..mapping.end).contains(&address));
        let (kind, path, offset) = match mapping {
            Some(mapping) if mapping.path.starts_with('/') => {
                (ObjectKind::Elf, mapping.path.as_str(), address - mapping.start + mapping.offset)
            }
            Some(mapping) if mapping.path == "[vdso]" => (ObjectKind::Vdso, "[vdso]", address - mapping.start),
            // Equal to no frame of a sample.
            _ => return Frame::Process { object: ObjectId::UNMAPPED, address: ProcessAddress(address), is_return },
        };
        let object = names.objects.intern(Object { kind, path: path.into(), build_id: None, file: None, ..Default::default() });
        Frame::File { object, offset: FileOffset(offset), is_return }
    };
    let mut stacks: Vec<Vec<Frame>> = Vec::new();
    // The first frame, and the one that a signal has interrupted, are instructions and not returns.
    let mut runs = true;
    for line in said.lines() {
        if line == "THREAD" {
            stacks.push(Vec::new());
            runs = true;
        }
        let mut words = line.strip_prefix("FRAME ").into_iter().flat_map(|rest| rest.split(' '));
        if let (Some(address), Some(signal), Some(stack)) = (words.next(), words.next(), stacks.last_mut()) {
            let address = u64::from_str_radix(address, 16).expect("a number");
            let signal = signal == "1";
            stack.push(frame(address, !runs && !signal));
            runs = signal;
        }
    }
    stacks.iter_mut().for_each(|stack| stack.reverse());
    stacks
}

pub(crate) fn opinion(cases: &[Case]) {
    let (names, mut images) = (Names::default(), Images::default());
    let mut failed = Vec::new();
    // musl itself has no unwind information, and gdb guesses.
    for case in cases.iter().filter(|case| !case.children && !case.name.contains("Musl")) {
        let mut program = Waiting::start(&case.built.path, &case.arguments);
        program.go();
        let mut judge = Judge::new(&case.built.grammar, &names, &mut images);
        let (mut whole, mut incomplete, mut wrong) = (0, Vec::new(), Vec::new());
        for stop in 0..STOPS {
            std::thread::sleep(Duration::from_millis(30 + stop as u64 * 7));
            for stack in stacks_of(program.pid(), &names) {
                // gdb does not say how a stack ends: a stack that begins at a root counts as whole.
                match judge.judge_alone(&stack) {
                    Outcome::Whole | Outcome::Replaced => whole += 1,
                    Outcome::Incomplete(_) => incomplete.push(judge.text(&stack)),
                    Outcome::Wrong(what) => wrong.push(what),
                }
            }
        }
        println!("{:32} {whole} whole, {} incomplete, {} wrong", case.name, incomplete.len(), wrong.len());
        incomplete.iter().take(1).for_each(|text| println!("    incomplete: {text}"));
        wrong.iter().take(2).for_each(|text| println!("    {text}"));
        // For Go, gdb knows only the goroutines, not the stacks of threads.
        if (incomplete.len() + wrong.len()) * 5 > whole && !case.name.starts_with("Go") {
            failed.push(case.name.clone());
        }
    }
    assert!(failed.is_empty(), "gdb is of another opinion about {failed:?}");
}
