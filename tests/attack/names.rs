//! Attacks on names: floods of names by one user, and files that pass for other files.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::*;

const RECORD: [&str; 4] = ["-F", "499", "-d", "9"];

/// Records beside a flood of names: a new program of root's must still have all its names.
#[track_caller]
fn flood(source: &str, witness: &str) -> String {
    let lair = Lair::new();
    let flooding = attacker(source, &[]);
    let recording = Recording::start(&[RECORD.as_slice(), &["--memory", "24M"]].concat());
    std::thread::sleep(Duration::from_millis(500));
    let _attack = lair.start(&flooding.path, &["30"]);
    std::thread::sleep(Duration::from_secs(5));
    let witness_runs = Witness::start_unseen(witness);
    let (lines, said) = recording.end(Duration::from_secs(9));
    drop(witness_runs);
    assert_named(witness, &lines);
    println!("{said}");
    said
}

/// Asserts that at least 99 % of a witness's samples have only named frames. (The tests of unwind tables check whether samples
/// are whole: on a busy machine the witness's table may take a second.)
#[track_caller]
pub(super) fn assert_named(name: &str, lines: &[Line]) {
    let is_named = |frame: &String| !frame.contains("+0x") && !frame.starts_with('[');
    let of_it = || lines.iter().filter(|line| line.frames[0] == name);
    let all: u64 = of_it().map(|line| line.count).sum();
    let named: u64 = of_it().filter(|line| line.frames.iter().all(is_named)).map(|line| line.count).sum();
    let (_, whole) = Witness::count(name, lines);
    println!("{name}: of {all} samples {named} named, {whole} whole");
    assert!(all >= 20, "{name} has {all} samples only");
    assert!(named * 100 >= all * 99, "{name}: {named} of {all} named: {:#?}", of_it().collect::<Vec<_>>());
}

#[test]
#[ignore = "of one kind with `a_flood_of_addresses_takes_no_name_from_others`"]
fn a_flood_of_thread_names_takes_no_name_from_others() {
    let _alone = alone();
    let said = flood("renames.c", "after_renames");
    assert!(said.contains(" process events lost"), "losses are not told: {said}");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_flood_of_addresses_takes_no_name_from_others() {
    let _alone = alone();
    let said = flood("addresses.c", "after_addresses");
    assert!(said.contains("share a name"), "the flood was noticed: {said}");
}

/// Root has a library. The attacker has one with the same build id, under the same path in his user namespace.
#[test]
fn a_file_mounted_over_a_path_names_no_frames_of_others() {
    let _alone = alone();
    const BUILD_ID: &str = "-Wl,--build-id=0x1234567890abcdef1234567890abcdef12345678";
    let lair = Lair::new();
    let build = |work: &str| attacker("library.c", &["-shared", "-fPIC", BUILD_ID, &format!("-DWORK={work}")]);
    let (honest, evil) = (build("honest_work"), build("STOLEN_KEYS"));
    let caller = attacker("caller.c", &[]);
    let house = tempfile::Builder::new().prefix("flametop-root-").tempdir().unwrap();
    std::fs::set_permissions(house.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let library = house.path().join("libpay.so");
    std::fs::copy(&honest.path, &library).unwrap();
    lair.copy(&evil.path, "evil.so");
    lair.copy(&caller.path, "attacker");
    let script = format!("mount --bind evil.so {0} && exec ./attacker 30 {0}", library.display());
    let recording = Recording::start(&["-F", "499", "-d", "6"]);
    std::thread::sleep(Duration::from_millis(500));
    let mut command = Command::new("unshare");
    command.args(["-Urm", "sh", "-c", &script]).current_dir(lair.path()).stdin(Stdio::null()).stdout(Stdio::null());
    let mut attack = Running { child: command.uid(NOBODY).gid(NOBODY).spawn().expect("unshare can be started") };
    std::thread::sleep(Duration::from_millis(1500));
    let ended = attack.child.try_wait().unwrap();
    assert!(ended.is_none(), "an ordinary user cannot make a user namespace here, which this test needs: {ended:?}");
    let payer = root_calls(&caller.path, house.path(), &library);
    let (lines, _) = recording.end(Duration::from_secs(6));
    drop((payer, attack));
    let count = |name: &str, function: &str| -> u64 {
        let has = |line: &&Line| line.frames[0] == name && line.frames.iter().any(|frame| frame == function);
        lines.iter().filter(has).map(|line| line.count).sum()
    };
    let all: u64 = lines.iter().filter(|line| line.frames[0] == "payer").map(|line| line.count).sum();
    println!("payer: {all} samples, {} honest, {} stolen", count("payer", "honest_work"), count("payer", "STOLEN_KEYS"));
    assert!(all > 50, "{all} samples");
    assert_eq!(count("payer", "STOLEN_KEYS"), 0, "the attacker's name for root's frames");
    assert!(count("payer", "honest_work") * 100 >= all * 95, "root's own names");
    assert_eq!(count("attacker", "honest_work"), 0, "nor root's name for the attacker's");
}

/// Root's program that calls the library.
fn root_calls(caller: &Path, house: &Path, library: &Path) -> Running {
    let payer = house.join("payer");
    std::fs::copy(caller, &payer).unwrap();
    let mut command = Command::new(payer);
    command.args(["30", library.to_str().unwrap()]).stdin(Stdio::null()).stdout(Stdio::null());
    Running { child: command.spawn().unwrap() }
}

/// A program that pretends to be Python has endlessly many functions, and different ones at each look.
#[test]
#[cfg(target_arch = "x86_64")]
fn a_false_interpreter_takes_no_name_and_no_cpu_from_others() {
    let _alone = alone();
    let lair = Lair::new();
    let false_python = lair.copy(&attacker("interpreter.c", &["-rdynamic"]).path, "python3.12");
    let recording = Recording::start(&RECORD);
    std::thread::sleep(Duration::from_millis(500));
    let _attack = lair.run(&false_python, &["30"]);
    std::thread::sleep(Duration::from_secs(5));
    let witness = Witness::start_unseen("after_python");
    let (lines, said) = recording.end(Duration::from_secs(9));
    drop(witness);
    println!("{said}");
    assert_named("after_python", &lines);
    // It was taken for an interpreter, and what it shows is bounded.
    let functions = |line: &Line| line.frames.iter().filter(|frame| frame.ends_with("_[p]")).count();
    let most = lines.iter().map(functions).max().unwrap_or(0);
    let samples: u64 = lines.iter().filter(|line| line.frames[0] == "python3.12").map(|line| line.count).sum();
    assert!((1..=4096).contains(&most), "{most} functions in {samples} samples");
    let cost = said.lines().find_map(|line| line.strip_prefix("cost: ")?.split_once(" s of CPU")?.0.parse::<f64>().ok());
    assert!(cost.is_some_and(|seconds| seconds < 2.0), "{cost:?} s of CPU in nine seconds");
}

/// A program that pretends to contain V8 has endlessly many functions, in endless sources, and different ones at each look.
#[test]
#[cfg(target_arch = "x86_64")]
fn a_false_engine_takes_no_name_and_no_cpu_from_others() {
    false_engine("engine.c", "_[s]", NOBODY, &["30"]);
}

/// The instructions of its compiled code are searched for in vain.
#[test]
#[cfg(target_arch = "x86_64")]
fn a_false_engine_with_compiled_code_takes_no_name_and_no_cpu_from_others() {
    false_engine("engine.c", "_[s]", NOBODY, &["30", "compiled"]);
}

/// Root of a container may be hostile, too.
#[test]
#[cfg(target_arch = "x86_64")]
fn a_false_engine_of_root_takes_no_name_and_no_cpu_from_others() {
    false_engine("engine.c", "_[s]", 0, &["30", "compiled"]);
}

/// A program that pretends to be a JVM has new methods in each sample.
#[test]
#[cfg(target_arch = "x86_64")]
fn a_false_jvm_takes_no_name_and_no_cpu_from_others() {
    false_engine("jvm.c", "_[v]", NOBODY, &["30"]);
}

/// Each of its compiled methods has 64 inlined ones.
#[test]
#[cfg(target_arch = "x86_64")]
fn a_false_jvm_with_compiled_methods_takes_no_name_and_no_cpu_from_others() {
    false_engine("jvm.c", "_[v]", NOBODY, &["30", "compiled"]);
}

/// Root of a container may be hostile, too.
#[test]
#[cfg(target_arch = "x86_64")]
fn a_false_jvm_of_root_takes_no_name_and_no_cpu_from_others() {
    false_engine("jvm.c", "_[v]", 0, &["30", "compiled"]);
}

#[cfg(target_arch = "x86_64")]
fn false_engine(source: &str, mark: &str, user: u32, words: &[&str]) {
    let _alone = alone();
    let lair = Lair::new();
    let engine = lair.copy(&attacker(source, &["-rdynamic"]).path, "engine");
    let recording = Recording::start(&RECORD);
    std::thread::sleep(Duration::from_millis(500));
    let _attack = lair.run_as(user, &engine, words);
    std::thread::sleep(Duration::from_secs(5));
    let witness = Witness::start_unseen("after_engine");
    let (lines, said) = recording.end(Duration::from_secs(9));
    drop(witness);
    println!("{said}");
    assert_named("after_engine", &lines);
    // It was taken for the engine, and what it shows is bounded.
    let functions = |line: &Line| line.frames.iter().filter(|frame| frame.ends_with(mark)).count();
    let most = lines.iter().map(functions).max().unwrap_or(0);
    // Up to 65 methods of Java share a frame.
    let bound = if mark == "_[v]" { 400 * 65 } else { 2048 };
    assert!((1..=bound).contains(&most), "{most} functions");
    let cost = said.lines().find_map(|line| line.strip_prefix("cost: ")?.split_once(" s of CPU")?.0.parse::<f64>().ok());
    assert!(cost.is_some_and(|seconds| seconds < 2.0), "{cost:?} s of CPU in nine seconds");
}
