//! Sources and instructions of functions, against `objdump` and against files that are not what they were.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use flametop::profile::{FrameId, LabelId, Listing};

use crate::bench::{Bench, build};
use crate::oracle::{Oracle, run};

const HOT: &str = r#"
#include <string.h>
#include <unistd.h>
static double table[256];
__attribute__((noinline)) double weigh(const char *text, double *sums)
{
	double sum = 0;
	for (const char *at = text; *at; at++) {
		sum += table[(unsigned char)*at] * 1.5;
		if (sum > 1e9)
			sum -= sums[*at & 7];
	}
	return sum + strlen(text);
}
int main(int c, char **v)
{
	if (c > 1) pause();
	return weigh(v[0], table) > 1;
}
"#;

/// Addresses of instructions of a function and their mnemonics, as objdump has them.
fn objdump(file: &Path, function: &str) -> Vec<(u64, String)> {
    let text = run(Command::new("objdump").args(["-d", "--no-show-raw-insn", &format!("--disassemble={function}")]).arg(file));
    let row = |line: &str| {
        let (address, text) = line.trim().split_once(":\t")?;
        Some((u64::from_str_radix(address, 16).ok()?, text.split_whitespace().next()?.to_owned()))
    };
    text.lines().filter_map(row).collect()
}

/// Everything about `weigh` in a program: a frame for each of its instructions.
struct Weigh {
    bench: Bench,
    frames: Vec<FrameId>,
    label: LabelId,
    instructions: Vec<(u64, String)>,
}

impl Weigh {
    fn of(file: &Path, tgid: u32) -> Weigh {
        let oracle = Oracle::of(file);
        let bench = Bench::new();
        let object = bench.object(file, oracle.build_id.as_deref());
        let instructions = objdump(file, "weigh");
        let frame = |(address, _): &(u64, String)| bench.frame(object, oracle.offset(*address).unwrap(), false);
        let frames: Vec<FrameId> = instructions.iter().map(frame).collect();
        bench.name(&frames, tgid, 0..0);
        let mut label = LabelId(0);
        bench.names.labels_of(frames[0], |first| label = first);
        Weigh { bench, frames, label, instructions }
    }

    fn listing(&self) -> Listing {
        self.bench.listing(self.label, &self.frames).unwrap()
    }
}

fn here() -> u32 {
    std::process::id()
}

#[test]
fn instructions_are_those_of_objdump_and_lines_those_of_the_source() {
    let directory = tempfile::tempdir().unwrap();
    let file = build(directory.path(), "prog", HOT, &["-g", "-O2"]);
    let weigh = Weigh::of(&file, here());
    let listing = weigh.listing();
    let code = listing.code.unwrap();
    assert_eq!(code.note, "");
    let addresses: Vec<u64> = code.rows.iter().map(|row| row.place).collect();
    assert_eq!(addresses, weigh.instructions.iter().map(|(address, _)| *address).collect::<Vec<_>>());
    for (row, (address, mnemonic)) in code.rows.iter().zip(&weigh.instructions) {
        let ours = row.text.split(' ').next().unwrap();
        // Padding has many spellings; suffixes of operand sizes are left out where an operand tells the size.
        let same =
            ours.starts_with(mnemonic.as_str()) || mnemonic.starts_with(ours) || mnemonic.contains("nop") || mnemonic == "data16";
        assert!(same, "{address:x}: {} is {mnemonic}", row.text);
    }
    assert!(code.rows.iter().any(|row| row.text.starts_with("call strlen")), "{:?}", code.rows);
    for (at, frame) in weigh.frames.iter().enumerate() {
        assert_eq!(code.row_of.get(frame), Some(&at));
    }
    let source = listing.source.unwrap();
    assert!(source.file.ends_with("/prog.c") && source.note.is_empty(), "{} {}", source.file, source.note);
    let text = |frame: &FrameId| source.row_of.get(frame).map_or("", |row| &*source.rows[*row].text);
    assert!(weigh.frames.iter().filter(|frame| text(frame).contains("sum += table")).count() > 1);
    let inside = weigh.frames.iter().filter(|frame| (6..14).contains(source.row_of.get(frame).unwrap_or(&0))).count();
    assert!(inside * 10 > weigh.frames.len() * 9, "{inside} of {}", weigh.frames.len());
}

#[test]
fn a_source_that_was_changed_since_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let file = build(directory.path(), "prog", HOT, &["-g"]);
    let weigh = Weigh::of(&file, here());
    let source = directory.path().join("prog.c");
    let note = || weigh.listing().source.unwrap().note;
    assert_eq!(note(), "");
    let later = SystemTime::now() + Duration::from_secs(60);
    std::fs::File::options().write(true).open(&source).unwrap().set_modified(later).unwrap();
    assert!(note().contains("newer than the program"), "{}", note());
    std::fs::write(&source, "only one line\n").unwrap();
    assert!(note().contains("fewer lines"), "{}", note());
    std::fs::remove_file(&source).unwrap();
    assert!(weigh.listing().source.unwrap_err().contains("prog.c is not here"));
    std::os::unix::fs::symlink("/proc/self/environ", &source).unwrap();
    assert!(weigh.listing().source.unwrap_err().contains("not a regular file"));
}

#[test]
fn without_debug_information_or_a_directory_there_is_no_source() {
    let directory = tempfile::tempdir().unwrap();
    let plain = Weigh::of(&build(directory.path(), "plain", HOT, &[]), here()).listing();
    assert!(plain.source.unwrap_err().contains("plain has no debug information") && plain.code.is_ok());
    let prefix = format!("-fdebug-prefix-map={}=.", directory.path().display());
    // The compiler runs elsewhere, so that nothing but the prefix tells where the file is.
    let here = std::env::current_dir().unwrap();
    let working = format!("-fdebug-prefix-map={}=.", here.display());
    let relative = Weigh::of(&build(directory.path(), "relative", HOT, &["-g", &prefix, &working]), std::process::id()).listing();
    let why = relative.source.unwrap_err();
    assert!(why.contains("no directory of ./") && why.contains("relative.c"), "{why}");
}

#[test]
fn the_source_is_read_where_the_program_sees_it() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    std::fs::create_dir_all(root.join("made/up")).unwrap();
    let prefix = format!("-fdebug-prefix-map={}=/made/up", directory.path().display());
    let file = build(directory.path(), "prog", HOT, &["-g", "-static", &prefix]);
    let inside = root.join("prog");
    std::fs::copy(&file, &inside).unwrap();
    std::fs::copy(directory.path().join("prog.c"), root.join("made/up/prog.c")).unwrap();
    let child = Command::new("chroot").arg(&root).args(["/prog", "wait"]).spawn();
    let mut child = child.expect("chroot (coreutils) is needed by this test");
    let alone = Weigh::of(&file, here()).listing();
    assert!(alone.source.unwrap_err().contains("/made/up/prog.c is not here"));
    let executable = format!("/proc/{}/exe", child.id());
    let until = std::time::Instant::now() + Duration::from_secs(20);
    while !std::fs::read_link(&executable).is_ok_and(|path| path.ends_with("prog")) && std::time::Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    let listing = Weigh::of(&file, child.id()).listing();
    child.kill().unwrap();
    child.wait().unwrap();
    let source = listing.source.unwrap();
    assert!(&*source.file == "/made/up/prog.c" && source.rows.iter().any(|row| row.text.contains("sum += table")));
}
