//! Generations of an address space: which operations change one, and how long one lasts. An answer may be kept for that long.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::asker::{ANY_PROCESS, Asker};
use super::common::{Program, alone};
use super::proc_maps::has_generation;
use super::start;

/// Runs one step of `mappings SECONDS steps` and returns the generation after it.
fn step(name: &str, child: &mut Child, output: &mut impl BufRead, asker: &mut Asker) -> (u64, u32) {
    // In one write: the program takes the result of one read for a line.
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

/// Prints how often the generation stays the same from tick to tick, for all programs of the machine and some of ours.
#[test]
#[ignore = "measures for half a minute"]
fn how_long_generations_last() {
    let _alone = alone();
    let _programs = [
        start("node", &["-e", "for (;;) { JSON.parse(JSON.stringify(Array.from({length: 20000}, (_, i) => ({i})))) }"]),
        start("python3", &["-c", "while True: x = [str(i) for i in range(100000)]; y = sorted(x)"]),
    ];
    for frequency in [97, 997] {
        let mut asker = Asker::load(false);
        asker.ask(ANY_PROCESS, &[]);
        asker.sample(frequency, Duration::from_secs(10));
    }
}
