//! Reads real HotSpots, from JDK 11 on, and compares with what they tell of themselves.

// A test panics with a sentence if it cannot run.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "common/mod.rs"]
mod common;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::alone;
use common::functions::{Function, Sample, sampled};
use flametop::profile::Language;
use flametop::runtimes::Memory;
use flametop::runtimes::hotspot::{Blob, BlobKind, Call, CodeHeap, Layout, Method};

/// A Java runtime.
struct Java {
    version: String,
    home: PathBuf,
}

/// Where `scripts/jdks.sh` puts what it fetches.
fn fetched() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("jdks")
}

/// The runtimes that `scripts/jdks.sh` has fetched.
fn runtimes() -> Vec<Java> {
    let fetched = fetched();
    let directories = std::fs::read_dir(&fetched).into_iter().flatten().flatten().map(|entry| entry.path());
    let runtime = |home: PathBuf| {
        let version = home.file_name()?.to_str()?.to_owned();
        home.join("bin/java").exists().then_some(Java { version, home })
    };
    let mut found: Vec<Java> = directories.filter_map(runtime).collect();
    found.sort_by_key(Java::major);
    assert!(found.len() >= 3, "scripts/jdks.sh has fetched no Java into {}", fetched.display());
    found
}

impl Java {
    fn major(&self) -> u32 {
        self.version.split('.').next().unwrap().parse().unwrap()
    }
}

/// Compiles a program of tests/programs/java. Returns the directory with its classes.
fn classes(name: &str) -> PathBuf {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/java");
    let into = Path::new(env!("CARGO_TARGET_TMPDIR")).join("java");
    let compiled = Command::new("javac")
        .args(["--release", "11", "-g", "-d"])
        .arg(&into)
        .arg("-sourcepath")
        .args([&sources, &sources.join(name)])
        .output();
    let compiled = compiled.expect("this test needs javac");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    into
}

/// A process that ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The memory of a process.
struct ItsMemory(File);

impl Memory for ItsMemory {
    fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
        self.0.read_exact_at(buffer, address).is_ok()
    }
}

/// A JVM that runs.
struct Running {
    process: Process,
    memory: ItsMemory,
    layout: Layout,
    heaps: Vec<CodeHeap>,
}

/// Returns the addresses of symbols that the process's libjvm.so exports.
fn symbols(process: &Process) -> Option<[u64; Layout::SYMBOLS.len()]> {
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", process.0.id())).ok()?;
    let line = maps.lines().find(|line| line.ends_with("libjvm.so"))?;
    let base = u64::from_str_radix(line.split('-').next()?, 16).ok()?;
    let listed = Command::new("nm").args(["-D", "--defined-only", line.split_whitespace().last()?]).output().ok()?;
    let listed = String::from_utf8(listed.stdout).ok()?;
    let found: HashMap<&str, u64> = listed
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            let address = u64::from_str_radix(words.next()?, 16).ok()?;
            Some((words.nth(1)?.split('@').next()?, base + address))
        })
        .collect();
    let mut addresses = [0; Layout::SYMBOLS.len()];
    for (address, name) in addresses.iter_mut().zip(Layout::SYMBOLS) {
        *address = *found.get(name)?;
    }
    Some(addresses)
}

impl Running {
    /// Starts a class, and waits until the JVM has its code heaps.
    fn start(java: &Java, flags: &[&str], class: &str, output: Stdio) -> Running {
        let place = classes(&format!("{class}.java"));
        let mut command = Command::new(java.home.join("bin/java"));
        command.args(flags).arg("-cp").arg(place).arg(class).stdout(output);
        let process = Process(command.spawn().unwrap());
        loop {
            // As long as its program starts another one, it has another memory.
            let memory = ItsMemory(File::open(format!("/proc/{}/mem", process.0.id())).expect("this test needs root"));
            let found = symbols(&process).and_then(|symbols| Layout::read(&memory, &symbols));
            if let Some(layout) = found {
                let layout = layout.unwrap_or_else(|unfit| panic!("{}: {unfit:?}", java.version));
                if let Some(heaps) = CodeHeap::all(&memory, &layout) {
                    assert_eq!(layout.version, java.major());
                    return Running { process, memory, layout, heaps };
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn blob(&self, address: u64) -> Option<Blob> {
        self.heaps.iter().find_map(|heap| heap.blob(&self.memory, &self.layout, address))
    }

    /// Returns the methods of an instruction of compiled code.
    fn calls(&self, blob: &Blob, address: u64) -> Vec<Printed> {
        let printed = |call: &Call| {
            let method = Method::read(&self.memory, &self.layout, call.method).unwrap();
            // Where a method begins, before its first instruction, the JVM prints that one's line.
            let line = method.lines.line(call.place.unwrap_or(0)).unwrap_or(0);
            (format!("{}::{}", method.class, method.name), call.place.map_or(-1, i32::from), line)
        };
        blob.calls(&self.memory, &self.layout, address, true).unwrap().iter().map(printed).collect()
    }

    fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.process.0), signal).unwrap();
    }
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).ok()
}

/// async-profiler, in the same process at the same time, sees the same methods with the same shares.
#[test]
fn methods_have_the_shares_that_async_profiler_sees() {
    let _alone = alone();
    let runtimes = runtimes();
    // It is Debian's, as the runtime is, and turns -XX:+DebugNonSafepoints on.
    let library = fetched().join("async-profiler/usr/lib/x86_64-linux-gnu/jni/libasyncProfiler.so");
    let Some(java) = runtimes.iter().find(|java| java.version == "27" && library.exists()) else {
        return println!(
            "NOT TESTED: scripts/jdks.sh has not fetched both Java 27 and async-profiler; {}/*.missing say why",
            fetched().display()
        );
    };
    let place = tempfile::tempdir().unwrap();
    let told = place.path().join("told.folded");
    let agent = format!("-agentpath:{}=start,event=itimer,interval=1ms,collapsed,file={}", library.display(), told.display());
    let mut program = Command::new(java.home.join("bin/java"));
    program.arg(agent).arg("-cp").arg(classes("Shares.java")).args(["Shares", "8"]).stdout(Stdio::null());
    let samples = sampled(&mut Process(program.spawn().unwrap()).0, 997, Language::Java);
    let method = |(name, ..): &Function| name.split('(').next().unwrap_or_default().to_owned();
    let mine = shares(samples.iter().map(|sample| (sample.functions.iter().map(method).collect(), 1)));
    let told = std::fs::read_to_string(told).unwrap();
    let stack = |line: &str| {
        let (stack, count) = line.rsplit_once(' ')?;
        Some((stack.split(';').map(str::to_owned).collect(), count.parse().ok()?))
    };
    let told: Vec<(HashSet<String>, u64)> =
        told.lines().map(|line| stack(line).unwrap_or_else(|| panic!("async-profiler told {line}"))).collect();
    let all: u64 = told.iter().map(|(_, count)| count).sum();
    let is_lost = |methods: &HashSet<String>| methods.iter().any(|method| method.starts_with("[unknown_Java]"));
    // It has no stack in the prologue of a method: it loses a third of the samples of `fib`.
    let lost = told.iter().filter(|(methods, _)| is_lost(methods)).map(|(_, count)| count).sum::<u64>() as f64 / all as f64;
    let theirs = shares(told.into_iter());
    for method in
        [".fib", ".isPrime", ".countPrimes", "$Tree.insert", "$Tree.sum", ".trees", ".words", ".matrix", ".sorted", ".parse"]
    {
        let method = format!("Shares{method}");
        let [mine, other] = [&mine, &theirs].map(|shares| shares.get(&method).copied().unwrap_or(0.0));
        println!("{} {method}: {mine:.3} here, {other:.3} by async-profiler, which lost {lost:.3}", java.version);
        let close = 0.1 * other + 0.02;
        assert!(other - close <= mine && mine <= other + lost + close, "{method}: {mine:.3} here, {other:.3} by async-profiler");
    }
}

/// Returns the share of the samples of `Shares.main` that each method is in.
fn shares(samples: impl Iterator<Item = (HashSet<String>, u64)>) -> HashMap<String, f64> {
    let (mut counts, mut all): (HashMap<String, u64>, u64) = (HashMap::new(), 0);
    for (methods, count) in samples.filter(|(methods, _)| methods.contains("Shares.main")) {
        all += count;
        methods.into_iter().for_each(|method| *counts.entry(method).or_default() += count);
    }
    counts.into_iter().map(|(method, count)| (method, count as f64 / all as f64)).collect()
}

/// Has HotSpot note the inlined methods of all instructions.
const ALL_INSTRUCTIONS: [&str; 2] = ["-XX:+UnlockDiagnosticVMOptions", "-XX:+DebugNonSafepoints"];

/// `jcmd` lists the compiled methods of a JVM: their numbers, names and places. Without a flag, of their first instruction no more is known; with
/// it, also its place in the bytecode.
#[test]
fn compiled_methods_are_those_that_the_jvm_lists() {
    for (java, flags) in runtimes().iter().flat_map(|java| [(java, &[][..]), (java, &ALL_INSTRUCTIONS)]) {
        let running = Running::start(java, flags, "Work", Stdio::null());
        std::thread::sleep(Duration::from_secs(4));
        let mut jcmd = Command::new(java.home.join("bin/java"));
        jcmd.args(["-m", "jdk.jcmd/sun.tools.jcmd.JCmd"]).arg(running.process.0.id().to_string()).arg("Compiler.codelist");
        let told = jcmd.output();
        running.signal(rustix::process::Signal::STOP);
        let told = String::from_utf8(told.unwrap().stdout).unwrap();
        let (mut compared, mut placed) = (0, 0);
        for line in told.lines() {
            // 1281 4 0 java.lang.Iterable.forEach(Ljava/util/function/Consumer;)V [0x00007fd280f30c90, 0x00007fd280f30e40 - 0x00007fd280f31060]
            let Some((said, place)) = line.trim_end_matches(']').split_once(" [") else { continue };
            let words: Vec<&str> = said.split_whitespace().collect();
            let [id, _, _, name, ..] = words[..] else { continue };
            let places: Vec<u64> = place.split([',', '-']).filter_map(|text| hexadecimal(text.trim())).collect();
            let [address, begin, end] = places[..] else { continue };
            // It may have been freed since.
            let same = |blob: &Blob| blob.address == address && blob.check(&running.memory, &running.layout) == id.parse().ok();
            let Some(blob) = running.blob(begin).filter(same) else { continue };
            assert_eq!((blob.begin, blob.kind), (begin, BlobKind::Compiled), "{line}");
            assert_eq!(running.blob(end - 1).map(|blob| blob.address), Some(address), "{line}");
            let calls = blob.calls(&running.memory, &running.layout, begin, false).unwrap();
            let method = Method::read(&running.memory, &running.layout, calls.last().unwrap().method).unwrap();
            let (named, signature) = name.split_at(name.find('(').unwrap());
            let is_hidden = named.contains("/0x") || named.contains("+0x") || named.contains("$$Lambda$");
            assert!(is_hidden || format!("{}.{}", method.class, method.name) == named, "{line}: {method:?}");
            assert_eq!(
                method.parameters.matches(',').count() + usize::from(method.parameters != "()"),
                count(signature),
                "{line}"
            );
            compared += 1;
            placed += usize::from(calls[0].place.is_some());
        }
        println!("{} {flags:?}: {compared} of {} compiled methods, {placed} with a place", java.version, told.lines().count());
        assert!(if flags.is_empty() { placed == 0 } else { placed * 2 > compared }, "{}: {placed} of {compared}", java.version);
        assert!(compared > 200 && compared * 20 > told.lines().count() * 19, "{}: {compared} in\n{told}", java.version);
    }
}

/// Counts the parameters of a signature.
fn count(signature: &str) -> usize {
    let mut types = signature[1..signature.find(')').unwrap()].chars();
    let mut count = 0;
    while let Some(first) = types.by_ref().find(|c| *c != '[') {
        count += 1;
        if first == 'L' {
            types.by_ref().find(|c| *c == ';');
        }
    }
    count
}

/// A method with its class, the place in its bytecode, and its line: `java.lang.String::hashCode`, 37, 1525. -1 and 0: not known.
type Printed = (String, i32, u32);

/// Whether these calls are those that the JVM has printed. Names of hidden classes have numbers there.
fn is_told(read: &[Printed], told: &[Printed]) -> bool {
    let is_it = |(read, told): (&Printed, &Printed)| {
        let is_hidden = told.0.contains("0x") || told.0.contains("$$Lambda$");
        (is_hidden || read.0 == told.0) && (read.1, read.2) == (told.1, told.2)
    };
    read.len() == told.len() && read.iter().zip(told).all(is_it)
}

/// Parses what `-XX:+PrintNMethods` prints: for each return address the number of the compiled code and the methods, those that were inlined first.
fn parse(text: &str) -> Vec<(u32, u64, Vec<Printed>)> {
    let (mut found, mut id, mut at, mut calls) = (Vec::new(), None, None, Vec::new());
    for line in text.lines() {
        let line = line.trim_start();
        if let Some(rest) = line.strip_prefix("Compiled method (") {
            id = rest.split_whitespace().nth(2).and_then(|id| id.parse().ok());
        } else if let Some((_, call)) = line.split_once("; - ") {
            // java.lang.String::hashCode@37 (line 1525)
            let (name, rest) = call.trim_start_matches("(reexecute) ").split_once('@').unwrap();
            let mut words = rest.split_whitespace();
            let place = words.next().unwrap().parse().unwrap();
            let line = words.nth(1).and_then(|line| line.trim_end_matches(')').parse().ok()).unwrap_or(0);
            calls.push((name.to_owned(), place, line));
        } else if line.starts_with("0x") || line.is_empty() {
            let calls = std::mem::take(&mut calls);
            found.extend(id.zip(at).map(|(id, at)| (id, at, calls)).filter(|(.., calls)| !calls.is_empty()));
            at = line.split(':').next().filter(|_| line.contains("ImmutableOopMap")).and_then(hexadecimal);
        }
    }
    found
}

/// With a flag the JVM prints the methods that run at each return address of compiled code, with inlined ones and lines.
#[test]
fn inlined_methods_and_lines_are_those_that_the_jvm_prints() {
    for java in runtimes().into_iter().filter(|java| java.major() >= 17) {
        let printed = tempfile::NamedTempFile::new().unwrap();
        let flags = ["-XX:+UnlockDiagnosticVMOptions", "-XX:+PrintNMethods"];
        let running = Running::start(&java, &flags, "Work", printed.reopen().unwrap().into());
        std::thread::sleep(Duration::from_secs(6));
        running.signal(rustix::process::Signal::STOP);
        let text = std::fs::read(printed.path()).unwrap();
        let (mut compared, mut inlined) = (0, 0);
        for (id, at, told) in parse(&String::from_utf8_lossy(&text)) {
            // It may have been freed since.
            let Some(blob) = running.blob(at).filter(|blob| blob.check(&running.memory, &running.layout) == Some(id)) else {
                continue;
            };
            // Without a disassembler, the JVM prints four bytes at a time. The return address is where the call ends.
            let read: Vec<Vec<Printed>> = (at..=at + 8).map(|at| running.calls(&blob, at)).collect();
            assert!(read.iter().any(|read| is_told(read, &told)), "{}: {at:#x} {read:?} {told:?}", java.version);
            compared += 1;
            inlined += told.len() - 1;
        }
        println!("{}: {compared} return addresses, {inlined} inlined methods", java.version);
        assert!(compared > 500 && inlined > 500, "{}: {compared} return addresses, {inlined} inlined methods", java.version);
    }
}

/// Ways in which HotSpot runs methods, and the flags for each: interpreted, by its first compiler without and with counters, by its second, and all.
const TIERS: [(&str, &[&str]); 5] = [
    ("interpreter", &["-Xint"]),
    ("C1", &["-XX:TieredStopAtLevel=1"]),
    ("C1 with counters", &["-XX:TieredStopAtLevel=3"]),
    ("C2", &["-XX:-TieredCompilation"]),
    ("all", &[]),
];

/// Returns a stack as the program tells it: CLASS.METHOD and the line of each method. Classes that a JVM makes have a number, which samples do not
/// have.
fn told(line: &str) -> Vec<(String, u32)> {
    let method = |method: &str| {
        let [class, name, line] = method.split(' ').collect::<Vec<_>>()[..] else { panic!("{method}") };
        let class = match class.find("/0x").or(class.find("+0x")) {
            Some(end) => class[..end].trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('$'),
            None => class,
        };
        (format!("{class}.{name}"), line.parse::<i32>().unwrap().max(0) as u32)
    };
    // Not the method that finds it out.
    line.split('\t').skip(2).map(method).collect()
}

/// Whether the methods of a sample are those that were told. The innermost one has a line only where it calls.
fn are_told(found: &[&Function], told: &[(String, u32)]) -> bool {
    let same = |at: usize, (name, _, line): &Function, (told_name, told_line): &(String, u32)| {
        name.split('(').next() == Some(told_name) && (at == 0 || *told_line == 0 || line == told_line)
    };
    found.len() == told.len() && found.iter().zip(told).enumerate().all(|(at, (found, told))| same(at, found, told))
}

/// Returns the samples in the leaf, with their methods.
fn in_leaf(samples: &[Sample]) -> impl Iterator<Item = (&Sample, Vec<&Function>)> {
    fn methods(sample: &Sample) -> Vec<&Function> {
        sample.functions.iter().filter(|(name, ..)| !name.starts_with("[jvm ")).collect()
    }
    let has = |methods: &[&Function], method: &str| methods.iter().any(|(name, ..)| name.starts_with(method));
    let samples = samples.iter().map(|sample| (sample, methods(sample)));
    samples.filter(move |(_, methods)| has(methods, "Stacks.leaf(") && !has(methods, "Stacks.tell("))
}

/// Starts a program of Java, samples it until it ends, and returns what it has printed as well.
fn told_and_sampled(java: &Java, flags: &[&str], place: &Path, arguments: &[&str]) -> (Vec<Vec<(String, u32)>>, Vec<Sample>) {
    let mut command = Command::new(java.home.join("bin/java"));
    command.args(flags).args(["-XX:CompileCommand=quiet", "-XX:CompileCommand=dontinline,Stacks.leaf", "-cp"]);
    command.arg(place).args(arguments).stdout(Stdio::piped());
    let mut process = Process(command.spawn().unwrap());
    let samples = sampled(&mut process.0, 1997, Language::Java);
    let mut output = String::new();
    process.0.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    (output.lines().map(told).collect(), samples)
}

/// Methods in C that call Java again, inside each other.
#[test]
fn native_methods_have_their_callers() {
    let _alone = alone();
    let place = classes("Jni.java");
    let includes = std::fs::canonicalize("/usr/bin/javac").unwrap().parent().unwrap().with_file_name("include");
    let library = place.join("libjni.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/java/jni.c");
    let mut compiler = Command::new("gcc");
    compiler.args(["-O2", "-fomit-frame-pointer", "-shared", "-fPIC", "-I"]).arg(&includes).arg("-I").arg(includes.join("linux"));
    assert!(compiler.arg("-o").args([&library, &source]).status().unwrap().success(), "this test needs jni.h");
    for java in runtimes() {
        for (tier, flags) in TIERS {
            let (chains, samples) = told_and_sampled(&java, flags, &place, &["Jni", "3000", "1000", library.to_str().unwrap()]);
            let [told] = &chains[..] else { panic!("{chains:?}") };
            let (mut right, mut cut, mut wrong) = (0, 0, Vec::new());
            for (sample, methods) in in_leaf(&samples) {
                match are_told(&methods, told) {
                    true => right += 1,
                    false if !sample.is_whole => cut += 1,
                    false => wrong.push(methods),
                }
            }
            println!("{} {tier}: {right} right, {cut} cut, {} wrong", java.version, wrong.len());
            assert!(wrong.is_empty(), "{} {tier}: {} wrong: {:?}", java.version, wrong.len(), wrong[0]);
            assert!(right > 1000 && cut * 200 <= right, "{} {tier}: {right} right, {cut} cut", java.version);
        }
    }
}

/// The thread that carries a virtual thread.
const CARRIER: &str = "java.util.concurrent.ForkJoinWorkerThread.run(";

/// The stack of a virtual thread that never waited is whole, with the frames of the thread that carries it. After it has waited, a stack has its
/// innermost frames only, and is not whole.
#[test]
fn virtual_threads_have_their_frames_and_those_of_their_carriers() {
    let _alone = alone();
    let place = classes("Virtual.java");
    for java in runtimes().into_iter().filter(|java| java.major() >= 21) {
        for (tier, flags) in TIERS {
            let (chains, samples) = told_and_sampled(&java, flags, &place, &["Virtual", "3000", "1000"]);
            let [mounted, waited] = &chains[..] else { panic!("{chains:?}") };
            let (mut whole, mut parts, mut cut, mut wrong) = (0, 0, 0, Vec::new());
            for (sample, methods) in in_leaf(&samples) {
                let is_carried = methods.last().is_some_and(|(name, ..)| name.starts_with(CARRIER));
                let frozen = methods.iter().position(|(name, ..)| name == "[frozen frames]");
                let begins = |told: &[(String, u32)]| methods.get(..told.len()).is_some_and(|methods| are_told(methods, told));
                match frozen {
                    None if sample.is_whole && is_carried && begins(mounted) => whole += 1,
                    None if sample.is_whole && is_carried && begins(waited) => whole += 1,
                    Some(at) if !sample.is_whole && is_carried && at > 0 && begins(&waited[..at]) => parts += 1,
                    None if !sample.is_whole => cut += 1,
                    _ => wrong.push(methods),
                }
            }
            println!("{} {tier}: {whole} whole, {parts} in part, {cut} cut, {} wrong", java.version, wrong.len());
            assert!(wrong.is_empty(), "{} {tier}: {} wrong: {:?}", java.version, wrong.len(), wrong[0]);
            assert!(whole > 100 && parts > 100 && cut * 200 <= whole, "{} {tier}: {whole}, {parts}, {cut}", java.version);
        }
    }
}

/// Methods of classes that are loaded and unloaded all the time have names, if they are there until they are read: a tenth of a second at most. Here all
/// classes but the last are unloaded every 2.5 seconds.
#[test]
fn methods_that_come_and_go_have_names() {
    let _alone = alone();
    let place = classes("Loads.java");
    for java in runtimes() {
        let mut command = Command::new(java.home.join("bin/java"));
        command.args(["-Xmx64m", "-cp"]).arg(&place).args(["Loads", "600", "250"]);
        let mut process = Process(command.spawn().unwrap());
        let samples = sampled(&mut process.0, 997, Language::Java);
        let loaded =
            samples.iter().filter(|sample| sample.functions.iter().any(|(name, ..)| name.starts_with("Loads$Loaded.run(")));
        let all: usize = samples.iter().map(|sample| sample.functions.len()).sum();
        let is_gone = |(name, ..): &&Function| name.contains("is gone") || name.contains("not read");
        let gone = samples.iter().flat_map(|sample| &sample.functions).filter(is_gone).count();
        let loaded = loaded.count();
        println!("{}: {gone} of {all} methods are gone; {loaded} of {} samples in loaded classes", java.version, samples.len());
        assert!(loaded > 3000 && gone * 25 <= all, "{}: {gone} of {all} methods are gone; {loaded}", java.version);
    }
}

#[test]
fn stacks_are_those_that_the_program_tells() {
    let _alone = alone();
    let place = classes("Stacks.java");
    for java in runtimes() {
        for (tier, flags) in TIERS {
            let (chains, samples) = told_and_sampled(&java, flags, &place, &["Stacks", "500", "1000"]);
            assert_eq!(chains.len(), 22, "{} {tier}: {chains:?}", java.version);
            let (mut right, mut of_chain, mut cut, mut wrong) = (0, vec![0; chains.len()], 0, Vec::new());
            for (sample, methods) in in_leaf(&samples) {
                match chains.iter().position(|told| are_told(&methods, told)) {
                    Some(chain) => (right, of_chain[chain]) = (right + 1, of_chain[chain] + 1),
                    None if !sample.is_whole => cut += 1,
                    None => wrong.push(methods),
                }
            }
            println!("{} {tier}: {right} right, {cut} cut, {} wrong, {of_chain:?}", java.version, wrong.len());
            assert!(wrong.is_empty(), "{} {tier}: {} wrong: {:?}", java.version, wrong.len(), wrong[0]);
            assert!(right > 1000 && cut * 200 <= right, "{} {tier}: {right} right, {cut} cut", java.version);
            // Some chains are the same in both halves.
            assert!(of_chain.chunks(2).all(|both| both[0] + both[1] > 20), "{} {tier}: {of_chain:?}", java.version);
        }
    }
}
