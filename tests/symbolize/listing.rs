//! Sources and instructions of functions: compared with `objdump`, and read from files that have changed.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::sync::RwLock;
use std::time::{Duration, SystemTime};

use flametop::profile::{
    FrameId, FrameKind, FrameWeight, LabelId, Limits, Listing, Object, ObjectKind, Profile, Renewals, Rows, Sample, Tgid, Thread,
    Tid, UserId,
};

use crate::Sleeper;
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

/// Whether instructions are those that objdump has found.
#[track_caller]
fn assert_same(code: &Rows, expected: &[(u64, String)]) {
    let addresses: Vec<u64> = code.rows.iter().map(|row| row.place).collect();
    assert_eq!(addresses, expected.iter().map(|(address, _)| *address).collect::<Vec<_>>());
    for (row, (address, mnemonic)) in code.rows.iter().zip(expected) {
        let ours = row.text.split(' ').next().unwrap();
        // Padding has many spellings; suffixes of operand sizes are left out where an operand tells the size.
        let same =
            ours.starts_with(mnemonic.as_str()) || mnemonic.starts_with(ours) || mnemonic.contains("nop") || mnemonic == "data16";
        assert!(same, "{address:x}: {} is {mnemonic}", row.text);
    }
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
    assert_same(&code, &weigh.instructions);
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
fn what_is_known_of_an_object_outlives_its_names() {
    let directory = tempfile::tempdir().unwrap();
    let file = build(directory.path(), "prog", HOT, &["-g", "-O2"]);
    let mut weigh = Weigh::of(&file, here());
    // A sample holds each frame.
    let profile = RwLock::new(Profile::beside(&weigh.bench.names, Limits::NONE));
    let process = weigh.bench.names.labels.intern("prog", "", FrameKind::Process);
    let thread = Thread { tgid: Tgid(here()), tid: Tid(here()), process, name: process, ..Thread::default() };
    for frame in &weigh.frames {
        profile.write().unwrap().record(thread, [*frame], Sample { ..Sample::default() });
    }
    let files = weigh.bench.symbolizer.usage().files;
    let renewed = Renewals::at_once(&profile).unwrap();
    weigh.bench.symbolizer.use_names(&renewed);
    assert_eq!((weigh.bench.symbolizer.usage().files, files > 0), (files, true));
    // An old question finds nothing.
    assert!(weigh.bench.listing(weigh.label, &weigh.frames).is_err());
    weigh.bench.names = renewed.names;
    let profile = profile.into_inner().unwrap();
    weigh.frames =
        profile.samples.slices_from(0).flatten().filter_map(|sample| Some(profile.stacks.split(sample.stack)?.1)).collect();
    weigh.bench.names.labels_of(weigh.frames[0], |label| weigh.label = label);
    // The file is gone, but it is still open.
    std::fs::remove_file(&file).unwrap();
    let listing = weigh.listing();
    assert_same(&listing.code.unwrap(), &weigh.instructions);
    assert!(listing.source.unwrap().file.ends_with("/prog.c"));
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
    assert!(weigh.listing().source.unwrap_err().contains("prog.c was not found"));
    std::os::unix::fs::symlink("/proc/self/environ", &source).unwrap();
    assert!(weigh.listing().source.unwrap_err().contains("not a file on storage"));
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
    assert!(why.contains("no directory for ./") && why.contains("relative.c"), "{why}");
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
    assert!(alone.source.unwrap_err().contains("/made/up/prog.c was not found"));
    let executable = format!("/proc/{}/exe", child.id());
    let until = std::time::Instant::now() + Duration::from_secs(60);
    while !std::fs::read_link(&executable).is_ok_and(|path| path.ends_with("prog")) && std::time::Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    let listing = Weigh::of(&file, child.id()).listing();
    child.kill().unwrap();
    child.wait().unwrap();
    let source = listing.source.unwrap();
    assert!(&*source.file == "/made/up/prog.c" && source.rows.iter().any(|row| row.text.contains("sum += table")));
}

/// A function of a file is used as code made at run time, so that objdump can list its instructions.
#[test]
fn instructions_of_code_made_at_run_time_are_those_in_the_memory_of_its_process() {
    let directory = tempfile::tempdir().unwrap();
    let file = build(directory.path(), "prog", HOT, &["-O2", "-no-pie"]);
    let instructions = objdump(&file, "weigh");
    let (start, last) = (instructions[0].0, instructions.last().unwrap().0);
    let mut process = Sleeper::start(Command::new(&file).arg("wait"));
    let tgid = process.0.id();
    let map = format!("/tmp/perf-{tgid}.map");
    std::fs::write(&map, format!("{start:x} {:x} JS:*weigh /srv/app.js:1:2\n", last + 1 - start)).unwrap();
    let bench = Bench::new();
    let object = bench.names.jit_object(Default::default(), Tgid(tgid), 1);
    let frames: Vec<FrameId> = instructions.iter().map(|(address, _)| bench.frame(object, *address, false)).collect();
    bench.name(&frames, tgid, 0..0);
    let mut label = LabelId(0);
    bench.names.labels_of(frames[0], |first| label = first);
    let listing = bench.listing(label, &frames).unwrap();
    let code = listing.code.unwrap();
    assert_eq!(&*code.file, "memory of prog");
    // The last one of a function is short, whatever there is behind it: its size is unknown here.
    assert_same(
        &Rows { rows: code.rows[..instructions.len() - 1].to_vec(), ..code.clone() },
        &instructions[..instructions.len() - 1],
    );
    assert!(frames.iter().enumerate().all(|(at, frame)| code.row_of[frame] == at));
    assert!(listing.source.unwrap_err().contains("its runtime did not record"));
    // The map that is read for the listing also names all other waiting frames.
    let later = bench.frame(object, start + 0x10_0000, false);
    bench.name(&[later], tgid, 0..0);
    let whole = std::fs::read_to_string(&map).unwrap();
    std::fs::write(&map, format!("{whole}{:x} 10 JS:*later /srv/app.js:9:9\n", start + 0x10_0000)).unwrap();
    assert!(bench.listing(label, &frames).is_ok() && bench.named(later).name.starts_with("later "), "{:?}", bench.named(later));
    // Something else is there by now.
    std::fs::write(&map, format!("{start:x} {:x} JS:*other /srv/app.js:1:2\n", last + 1 - start)).unwrap();
    let why = bench.listing(label, &frames).unwrap_err();
    assert!(why.contains("neither source nor instructions") && why.ends_with("other code is at its address now"), "{why}");
    std::fs::write(&map, format!("{start:x} {:x} JS:*weigh /srv/app.js:1:2\n", last + 1 - start)).unwrap();
    process.0.kill().unwrap();
    process.0.wait().unwrap();
    let why = bench.listing(label, &frames).unwrap_err();
    std::fs::remove_file(&map).unwrap();
    assert!(why.contains("its process has ended"), "{why}");
}

#[test]
fn a_listing_says_whose_program_it_is_if_other_users_have_such_a_function() {
    let places = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [ours, theirs] = [("", &places[0]), ("// another user's\n", &places[1])]
        .map(|(first, place)| build(place.path(), "prog", &format!("{first}{HOT}"), &["-g", "-O2"]));
    let mut weigh = Weigh::of(&ours, here());
    assert_eq!(weigh.listing().user, None);
    let oracle = Oracle::of(&theirs);
    let file = theirs.metadata().ok().map(|meta| (meta.dev(), meta.ino()));
    let path = theirs.to_str().unwrap().into();
    let object = Object { kind: ObjectKind::Elf, path, file, user: UserId(1000), ..Object::default() };
    let object = weigh.bench.names.objects.intern(object);
    let offset = oracle.offset(objdump(&theirs, "weigh")[0].0).unwrap();
    let other = weigh.bench.frame(object, offset, false);
    weigh.bench.name(&[other], here(), 0..0);
    // However much the other user's program weighs, root's is listed.
    weigh.frames = vec![weigh.frames[0], other];
    let weight = |frame: FrameId, own| FrameWeight { frame, own, total: own };
    let asked = vec![weight(other, 1000), weight(weigh.frames[0], 1)];
    let listing = weigh.bench.listing_of(weigh.label, asked).unwrap();
    assert_eq!((listing.user, listing.by), (Some(UserId(0)), weigh.frames[0]));
    let theirs = weigh.bench.listing_by(weigh.label, &weigh.frames, Some(other)).unwrap();
    assert_eq!(theirs.user, Some(UserId(1000)));
}

#[test]
fn of_two_functions_with_one_name_that_which_is_being_read_stays() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    for name in ["first", "second"] {
        let same = "static __attribute__((noinline)) int same(int *x) { *x += __LINE__; return *x; }\n";
        write(&format!("{name}.c"), &format!("{same}int {name}(int *x) {{ return same(x) + 1; }}\n"));
    }
    write("main.c", "int first(int *), second(int *);\nint main(int c, char **v) { return first(&c) + second(&c); }\n");
    let file = directory.path().join("prog");
    let sources = ["main.c", "first.c", "second.c"].map(|name| directory.path().join(name));
    run(Command::new("gcc").args(["-g", "-O2", "-fno-ipa-icf", "-fno-ipa-cp", "-o"]).arg(&file).args(&sources));
    let oracle = Oracle::of(&file);
    let symbols = run(Command::new("nm").arg(&file));
    let starts: Vec<u64> = symbols
        .lines()
        .filter_map(|line| line.strip_suffix(" t same"))
        .map(|address| u64::from_str_radix(address, 16).unwrap())
        .collect();
    let bench = Bench::new();
    let object = bench.object(&file, oracle.build_id.as_deref());
    let frames: Vec<FrameId> = starts.iter().map(|start| bench.frame(object, oracle.offset(*start).unwrap(), false)).collect();
    bench.name(&frames, here(), 0..0);
    let mut labels = Vec::new();
    frames.iter().for_each(|frame| bench.names.labels_of(*frame, |label| labels.push(label)));
    assert!(frames.len() == 2 && labels.len() == 2 && labels[0] == labels[1], "{labels:?}");
    for (order, by, expected) in [([0, 1], None, 0), ([1, 0], None, 1), ([0, 1], Some(1), 1), ([1, 0], Some(0), 0)] {
        let frame_of = |at: usize| frames[at];
        let asked = order.map(frame_of);
        let listing = bench.listing_by(labels[0], &asked, by.map(frame_of)).unwrap();
        assert_eq!(listing.by, frames[expected]);
        let (source, code) = (listing.source.unwrap(), listing.code.unwrap());
        assert_eq!(code.rows[0].place, starts[expected]);
        assert!(
            source.row_of.contains_key(&frames[expected]) && !source.row_of.contains_key(&frames[1 - expected]),
            "{}",
            source.file
        );
        // Where nothing has samples it stays, too; but not if only the other one has.
        let file = |frames: &[FrameId]| {
            let listing = bench.listing_by(labels[0], frames, Some(frame_of(expected))).unwrap();
            (listing.code.unwrap().rows[0].place, listing.source.unwrap().file)
        };
        assert_eq!(file(&[]), (starts[expected], source.file.clone()));
        let (place, other) = file(&[frame_of(1 - expected)]);
        assert!(place == starts[1 - expected] && other != source.file, "{other}");
    }
}
