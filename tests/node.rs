//! Samples real Node.js, official builds of each major version, and compares the functions of JavaScript with what the program tells of its own
//! stacks.

// A test panics with a sentence if it cannot run.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "common/mod.rs"]
mod common;

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use common::alone;
use common::functions::{Function, Sample, sampled};
use flametop::profile::{Frame, FrameId, FrameKind, FrameWeight, LabelId, Language, Names, Object, ObjectKind, UserId};
use flametop::symbolize::Symbolizer;

/// A build of Node.js.
struct Node {
    path: PathBuf,
    version: String,
}

/// The builds that `scripts/nodes.sh` has fetched, and the machine's own.
fn nodes() -> Vec<Node> {
    let fetched = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("nodes");
    let directories = std::fs::read_dir(&fetched).into_iter().flatten().flatten().map(|entry| entry.path().join("bin/node"));
    let mut found: Vec<Node> = directories.chain([PathBuf::from("/usr/bin/node")]).filter_map(Node::at).collect();
    found.sort_by_key(|node| node.major());
    assert!(found.len() >= 3, "scripts/nodes.sh has fetched no Node.js into {}", fetched.display());
    found
}

impl Node {
    fn at(path: PathBuf) -> Option<Node> {
        let output = Command::new(&path).arg("--version").output().ok().filter(|output| output.status.success())?;
        Some(Node { path, version: String::from_utf8_lossy(&output.stdout).trim().to_owned() })
    }

    fn major(&self) -> u32 {
        self.version.trim_start_matches('v').split('.').next().unwrap().parse().unwrap()
    }

    fn starts(&self, flags: &[&str], program: &Path, words: &[&str]) -> Running {
        let mut command = Command::new(&self.path);
        command.args(flags).arg(program).args(words).stdout(Stdio::piped());
        Running(command.spawn().unwrap())
    }
}

/// A process that ends with the test.
struct Running(Child);

impl Running {
    /// Returns what it prints until it ends.
    fn output(mut self) -> String {
        let mut text = String::new();
        self.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        text
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/javascript").join(name)
}

/// Returns a stack as the program tells it. A function without a name is called by its place.
fn told(stack: &serde_json::Value) -> Vec<Function> {
    let function = |site: &serde_json::Value| {
        let text = |at: usize| site[at].as_str().unwrap_or_default().trim_start_matches("file://").to_owned();
        (text(0), text(1), site[2].as_u64().unwrap_or(0) as u32)
    };
    stack.as_array().unwrap().iter().map(function).collect()
}

/// Whether a function that was sampled is the one that was told. Where the line of a file is not known, it is 0 in the sample.
fn is_it((name, file, line): &Function, (told_name, told_file, told_line): &Function, has_lines: bool) -> bool {
    // Code of `eval` and `new Function` is told as `eval`.
    let is_called = if told_name.is_empty() || told_name == "eval" { name.starts_with("(anonymous") } else { name == told_name };
    is_called && (file == told_file || file.is_empty()) && (!has_lines || file.is_empty() || line == told_line)
}

const LONG: &str = "3000000";
const SHORT: &str = "1000";

/// A way in which V8 runs functions.
struct Tier {
    name: &'static str,
    flags: Vec<&'static str>,
    /// Whether the lines that run are known. Otherwise a function has the line where it begins.
    has_lines: bool,
    /// The rounds of a call of the leaf. With few rounds, small functions are inlined.
    rounds: &'static str,
}

/// The flags that leave one tier of V8, and those of all tiers together.
fn tiers(major: u32) -> Vec<Tier> {
    let maglev = if major >= 20 { &["--no-maglev"][..] } else { &[] };
    let tier = |name, flags: &[&'static str], has_lines, rounds| Tier { name, flags: flags.to_vec(), has_lines, rounds };
    let mut tiers = vec![
        tier("Ignition", &[&["--no-opt", "--no-sparkplug"], maglev].concat(), true, LONG),
        tier("Sparkplug", &[&["--no-opt", "--always-sparkplug"], maglev].concat(), false, LONG),
        tier("TurboFan", &[maglev, &["--no-sparkplug"]].concat(), true, SHORT),
        tier("all", &[], false, SHORT),
    ];
    // Node.js has Maglev on from 22 on.
    if major >= 22 {
        tiers.push(tier("Maglev", &["--no-turbofan", "--no-sparkplug"], true, SHORT));
    }
    tiers
}

/// Checks the stacks of a run of `stacks.js`: each sample of its leaf has the functions that the program tells, and nothing else.
fn check_stacks(node: &Node, tier: &Tier) {
    let mut running = node.starts(&tier.flags, &program("stacks.js"), &["0.25", tier.rounds]);
    let samples = sampled(&mut running.0, 1997, Language::JavaScript);
    let output = running.output();
    let chains: Vec<Vec<Function>> =
        output.lines().map(|line| told(&serde_json::from_str::<serde_json::Value>(line).unwrap()[1])).collect();
    assert_eq!(chains.len(), 12, "{} {}: {output}", node.version, tier.name);
    let has = |sample: &Sample, is_it: fn(&str) -> bool| sample.functions.iter().any(|(name, ..)| is_it(name));
    // Not those in which the program finds out its stack.
    let is_of_leaf =
        |sample: &&Sample| has(sample, |name| name == "leaf") && !has(sample, |name| name.contains("repareStackTrace"));
    // V8 inlines built-in functions, such as `Array.prototype.map`, and does not note that.
    let is_builtin = |function: &Function| function.1.is_empty() && function.2 == 0;
    let is_told = |sample: &Sample, told: &[Function]| {
        let same = |found: &[Function], told: &[&Function]| {
            found.len() == told.len() && found.iter().zip(told).all(|(found, told)| is_it(found, told, tier.has_lines))
        };
        let own: Vec<&Function> = told.iter().filter(|told| !is_builtin(told)).collect();
        same(&sample.functions, &told.iter().collect::<Vec<_>>()) || tier.rounds == SHORT && same(&sample.functions, &own)
    };
    let tier = tier.name;
    let (mut right, mut of_chain, mut cut, mut wrong) = (0, vec![0; chains.len()], 0, Vec::new());
    // V8 is found, and the tables of Node.js are made, while the first chain runs.
    let begun = samples.iter().position(|sample| chains[1..].iter().any(|told| is_told(sample, told))).expect("a second chain");
    for sample in samples[begun..].iter().filter(is_of_leaf) {
        match chains.iter().position(|told| is_told(sample, told)) {
            Some(chain) => (right, of_chain[chain]) = (right + 1, of_chain[chain] + 1),
            None if !sample.is_whole => cut += 1,
            None => wrong.push(&sample.functions),
        }
    }
    println!("{} {tier}: {right} right, {cut} cut, {} wrong, {of_chain:?}", node.version, wrong.len());
    assert!(wrong.is_empty(), "{} {tier}: {} wrong: {:?}", node.version, wrong.len(), wrong[0]);
    assert!(right > 2000 && cut * 200 <= right, "{} {tier}: {right} right, {cut} cut", node.version);
    assert!(of_chain.iter().skip(1).all(|samples| *samples > 50), "{} {tier}: {of_chain:?}", node.version);
}

#[test]
fn stacks_are_those_that_the_program_tells() {
    let _alone = alone();
    for node in nodes() {
        for tier in tiers(node.major()) {
            check_stacks(&node, &tier);
        }
    }
}

/// Functions that come and go keep their names: closures share what V8 knows of them. Code that is made anew each time may be gone.
#[test]
fn closures_that_come_and_go_have_names() {
    const CLOSURES: &str = "
        function work(count) { let sum = 0; for (let i = 0; i < count; i++) sum += i; return sum; }
        function make(count) { const closure = () => work(count); return closure; }
        const end = Date.now() + 3000;
        while (Date.now() < end) { const all = []; for (let i = 0; i < 200; i++) all.push(make(i)()); globalThis.kept = all; }
    ";
    let _alone = alone();
    let place = tempfile::tempdir().unwrap();
    let program = place.path().join("closures.js");
    std::fs::write(&program, CLOSURES).unwrap();
    for node in nodes() {
        let samples = sampled(&mut node.starts(&[], &program, &[]).0, 997, Language::JavaScript);
        let all: usize = samples.iter().map(|sample| sample.functions.len()).sum();
        let is_gone = |(name, ..): &&Function| name.contains("is gone") || name.contains("not read");
        let gone = samples.iter().flat_map(|sample| &sample.functions).filter(is_gone).count();
        println!("{}: {gone} of {all} functions are gone", node.version);
        assert!(all > 5000 && gone * 200 <= all, "{}: {gone} of {all} functions are gone", node.version);
    }
}

/// Each worker has an isolate of its own, and a script of another context another global object.
#[test]
fn workers_and_contexts_have_their_functions() {
    const WORKERS: &str = "
        const { Worker, isMainThread } = require('worker_threads');
        const vm = require('vm');
        function spin(ms) { const end = Date.now() + ms; let turns = 0; while (Date.now() < end) turns++; return turns; }
        function inWorker() { return spin(3000) + 1; }
        if (isMainThread) {
            new Worker(__filename);
            new Worker(__filename);
            vm.runInNewContext('function inContext(spin) { return spin(3000) + 1; } inContext(spin);', { spin }, '/the/context.js');
        } else {
            inWorker();
        }
    ";
    let _alone = alone();
    let place = tempfile::tempdir().unwrap();
    let program = place.path().join("workers.js");
    std::fs::write(&program, WORKERS).unwrap();
    for node in nodes() {
        let samples = sampled(&mut node.starts(&[], &program, &[]).0, 499, Language::JavaScript);
        let (mut of_worker, mut of_context, mut others) = (0, 0, Vec::new());
        for sample in samples.iter().filter(|sample| sample.is_whole && sample.functions.iter().any(|(name, ..)| name == "spin"))
        {
            let file_of = |name: &str| sample.functions.iter().find(|(known, ..)| known == name).map(|(_, file, _)| &**file);
            match (file_of("inWorker"), file_of("inContext")) {
                (Some(file), None) if file == program.to_str().unwrap() => of_worker += 1,
                (None, Some("/the/context.js")) => of_context += 1,
                _ => others.push(&sample.functions),
            }
        }
        println!("{}: {of_worker} in workers, {of_context} in another context", node.version);
        assert!(others.is_empty(), "{}: {:?}", node.version, others[0]);
        assert!(of_worker > 300 && of_context > 100, "{}: {of_worker} in workers, {of_context} in another context", node.version);
    }
}

/// Functions of WebAssembly are called after their module, between the functions of JavaScript.
#[test]
fn modules_of_web_assembly_have_names() {
    // The module exports `outer`, which calls a function that counts down. It has a name, or none.
    const PROGRAM: &str = "
        const section = (number, ...bytes) => [number, bytes.length, ...bytes];
        const text = (word) => [word.length, ...Buffer.from(word)];
        const spin = [1, 1, 0x7f, 3, 0x40, 0x20, 1, 0x20, 0, 0x6a, 0x21, 1, 0x20, 0, 0x41, 1, 0x6b, 0x22, 0, 0xd, 0, 0xb, 0x20, 1, 0xb];
        const outer = [0, 0x20, 0, 0x10, 0, 0x41, 1, 0x6a, 0xb];
        const named = (...name) => [
            0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, ...section(1, 1, 0x60, 1, 0x7f, 1, 0x7f), ...section(3, 2, 0, 0), ...section(7, 1, ...text('outer'), 0, 1),
            ...section(10, 2, spin.length, ...spin, outer.length, ...outer), ...name,
        ];
        const of = (bytes) => new WebAssembly.Instance(new WebAssembly.Module(Uint8Array.from(bytes))).exports.outer;
        const sums = of(named(...section(0, ...text('name'), 0, 5, ...text('sums')))), nameless = of(named());
        function run(part) { return part(1e6); }
        const end = Date.now() + 2000;
        while (Date.now() < end) { run(sums); run(nameless); }
    ";
    let _alone = alone();
    let place = tempfile::tempdir().unwrap();
    let program = place.path().join("wasm.js");
    std::fs::write(&program, PROGRAM).unwrap();
    for node in nodes() {
        let samples = sampled(&mut node.starts(&[], &program, &[]).0, 997, Language::JavaScript);
        let (mut named, mut nameless) = (0, 0);
        for functions in samples.iter().filter(|sample| sample.is_whole).map(|sample| &sample.functions) {
            let name = |at: usize| functions.get(at).map_or("", |(name, ..)| name);
            if !name(0).starts_with("(WebAssembly ") {
                continue;
            }
            let of_module = functions.iter().take_while(|(function, ..)| function == name(0)).count();
            // In older versions also the function of JavaScript that calls the module's.
            let after = of_module + usize::from(name(of_module) == "wasm-function[1]");
            assert!(of_module <= 2 && name(after) == "run", "{}: {functions:?}", node.version);
            if name(0) == "(WebAssembly sums)" { named += 1 } else { nameless += 1 }
        }
        println!("{}: {named} of {} in a module with a name, {nameless} in another", node.version, samples.len());
        assert!(named > 500 && nameless > 500, "{}: {named} and {nameless} of {}", node.version, samples.len());
    }
}

/// Minified code has functions of the same name in one line.
#[test]
fn functions_of_one_line_are_told_apart() {
    const MINIFIED: &str = "/* */const a={t(n){let s=0;for(let i=0;i<n;i++)s+=i;return s}},b={t(n){let s=1;for(let i=0;i<n;i++)s^=i;return s}};for(const e=Date.now()+2e3;Date.now()<e;){a.t(1e6);b.t(1e6)}";
    let _alone = alone();
    let place = tempfile::tempdir().unwrap();
    let program = place.path().join("minified.js");
    std::fs::write(&program, MINIFIED).unwrap();
    for node in nodes() {
        let folded = place.path().join("x.folded");
        let record = ["record", "-F", "499", "--places", "--force", "-o", folded.to_str().unwrap(), "--"];
        let mut command = Command::new(env!("CARGO_BIN_EXE_flametop"));
        let recorded = command.args(record).arg(&node.path).arg(&program).output().unwrap();
        assert!(recorded.status.success(), "this test needs root: {}", String::from_utf8_lossy(&recorded.stderr));
        let folded = std::fs::read_to_string(&folded).unwrap();
        // Where their parameters begin, as in V8's own profiles.
        for function in ["t(n){let s=0", "t(n){let s=1"] {
            let column = MINIFIED.find(function).unwrap() + 2;
            let name = format!("t ({}:1:{column})_[s]", program.display());
            let samples = folded.lines().filter(|line| line.contains(&name)).count();
            assert!(samples > 0, "{}: no {name} in\n{folded}", node.version);
        }
    }
}

/// V8's own profiler, in the same process at the same time, sees the same functions with the same shares.
#[test]
fn functions_have_the_shares_that_v8_sees() {
    let _alone = alone();
    let place = tempfile::tempdir().unwrap();
    // Older versions count some functions that they have inlined for their callers (22: 0.04 % for isPrime, 6.18 % for countPrimes).
    let node = nodes().pop().unwrap();
    let directory = format!("--cpu-prof-dir={}", place.path().display());
    let flags = ["--cpu-prof", "--cpu-prof-interval=1000", &directory, "--cpu-prof-name=told.cpuprofile"];
    let file = program("shares.js");
    let file = file.to_str().unwrap();
    let samples = sampled(&mut node.starts(&flags, Path::new(file), &["8"]).0, 997, Language::JavaScript);
    let mut mine: HashMap<String, f64> = HashMap::new();
    let is_of_program = |(_, of, _): &&Function| of == file;
    let of_program: Vec<&Sample> =
        samples.iter().filter(|sample| sample.functions.iter().any(|function| is_of_program(&function))).collect();
    for sample in &of_program {
        let names: HashSet<&String> = sample.functions.iter().filter(is_of_program).map(|(name, ..)| name).collect();
        names.into_iter().for_each(|name| *mine.entry(name.clone()).or_default() += 1.0 / of_program.len() as f64);
    }
    let told: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(place.path().join("told.cpuprofile")).unwrap()).unwrap();
    let nodes = told["nodes"].as_array().unwrap();
    let parents: HashMap<u64, u64> = nodes
        .iter()
        .flat_map(|node| {
            let children = node["children"].as_array().into_iter().flatten();
            children.map(|child| (child.as_u64().unwrap(), node["id"].as_u64().unwrap()))
        })
        .collect();
    let frames: HashMap<u64, &serde_json::Value> =
        nodes.iter().map(|node| (node["id"].as_u64().unwrap(), &node["callFrame"])).collect();
    let (mut theirs, mut all): (HashMap<String, f64>, f64) = (HashMap::new(), 0.0);
    for (sample, time) in told["samples"].as_array().unwrap().iter().zip(told["timeDeltas"].as_array().unwrap()) {
        let stack = std::iter::successors(sample.as_u64(), |id| parents.get(id).copied()).map(|id| frames[&id]);
        let is_of_program =
            |frame: &&serde_json::Value| frame["url"].as_str().is_some_and(|url| url.trim_start_matches("file://") == file);
        let names: HashSet<String> =
            stack.filter(is_of_program).map(|frame| frame["functionName"].as_str().unwrap().to_owned()).collect();
        if !names.is_empty() {
            all += time.as_f64().unwrap();
            names.into_iter().for_each(|name| *theirs.entry(name).or_default() += time.as_f64().unwrap());
        }
    }
    for function in ["fib", "isPrime", "countPrimes", "insert", "trees", "sum", "words", "matrix", "json", "num", "term", "parse"]
    {
        let (mine, other) = (mine.get(function).copied().unwrap_or(0.0), theirs.get(function).copied().unwrap_or(0.0) / all);
        println!("{} {function}: {mine:.3} here, {other:.3} by --cpu-prof", node.version);
        // Here, the time of V8's profiler counts for the functions that it interrupts.
        assert!(
            other > 0.005 && (mine - other).abs() <= 0.1 * other + 0.02,
            "{function}: {mine:.3} here, {other:.3} by --cpu-prof"
        );
    }
    let only_told = theirs.iter().filter(|(name, share)| **share / all > 0.01 && !name.is_empty() && !mine.contains_key(*name));
    assert_eq!(only_told.count(), 0, "{theirs:?}");
}

/// A script with a source map, and the names of its functions.
struct Bundle {
    path: PathBuf,
    names: Arc<Names>,
    symbolizer: Symbolizer,
    runtime: tokio::runtime::Runtime,
}

impl Bundle {
    fn of(path: PathBuf) -> Bundle {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let names = Arc::new(Names::default());
        Bundle { symbolizer: Symbolizer::start(Arc::clone(&names), runtime.handle().clone()), path, names, runtime }
    }

    /// Returns a frame in this line, of a function that begins at this line and column.
    fn frame(&self, begin: (u32, u32), line: u32) -> (LabelId, FrameId) {
        let path = self.path.to_str().unwrap();
        let files = flametop::object::open::own_files();
        let user = UserId(rustix::process::getuid().as_raw());
        let object = Object { kind: ObjectKind::Script, path: path.into(), build_id: None, file: None, files, user };
        let object = self.names.objects.intern(object);
        let label = format!("{path}:{}:{}", begin.0, begin.1);
        let label = self.names.labels.intern("f", &label, FrameKind::Script(Language::JavaScript));
        let (frame, _) = self.names.intern_frame(Frame::Script { object, label, line });
        self.symbolizer.request_here([frame]);
        (label, frame)
    }

    fn located(&self, frame: FrameId) -> Option<(String, u32)> {
        let found = self.runtime.block_on(self.symbolizer.locate(frame)).unwrap()?;
        Some((found.file.to_string(), found.line))
    }
}

/// Node.js finds the same source for each column of a script that is one line, and for each line of a longer one.
#[test]
fn lines_of_bundles_are_those_that_node_finds() {
    // Prints a list of `[line, column, source, line of the source]`, all from 1.
    const TOLD: &str = r"
        const { findSourceMap, SourceMap } = require('module'), fs = require('fs'), path = require('path');
        const file = process.argv[2], lines = fs.readFileSync(file, 'utf8').split('\n');
        const url = lines.findLast((line) => line.startsWith('//# sourceMappingURL=')).slice(21);
        const data = url.startsWith('data:') ? Buffer.from(url.split(',')[1], 'base64') : fs.readFileSync(path.join(path.dirname(file), url));
        const map = new SourceMap(JSON.parse(data)), found = [];
        lines.forEach((text, line) => {
            for (let column = 0; column < text.length; column++) {
                const entry = map.findEntry(line, column);
                if (entry.generatedLine !== line) continue;
                found.push([line + 1, column + 1, path.join(path.dirname(file), entry.originalSource), entry.originalLine + 1]);
            }
        });
        console.log(JSON.stringify(found));
    ";
    let directory = tempfile::tempdir().unwrap();
    let tell = directory.path().join("tell.js");
    std::fs::write(&tell, TOLD).unwrap();
    let node = nodes().pop().unwrap();
    for (name, at_least) in [("bundle.js", 300), ("plain.js", 25)] {
        let bundle = Bundle::of(program(name));
        let told = node.starts(&[], &tell, &[bundle.path.to_str().unwrap()]).output();
        let told: Vec<(u32, u32, String, u32)> = serde_json::from_str(&told).unwrap();
        let (mut compared, mut before) = (0, 0);
        for (line, column, source, its_line) in told {
            // Without its column, a line counts as what it begins with.
            let begin = if name == "plain.js" { (line + 1, 1) } else { (line, column) };
            let is_compared = if name == "plain.js" { line != before } else { column > 1 };
            before = line;
            if is_compared {
                let (_, frame) = bundle.frame(begin, line);
                assert_eq!(bundle.located(frame), Some((source, its_line)), "{name}:{line}:{column}");
                compared += 1;
            }
        }
        assert!(compared >= at_least, "{name}: {compared} places");
    }
}

/// The source view shows the source that the map has, else the file, else the script itself and why.
#[test]
fn the_source_of_a_bundle_is_shown() {
    let column = |script: &str, function: &str| script.find(function).unwrap() as u32 + 1;
    let script = std::fs::read_to_string(program("bundle.js")).unwrap();
    let map = std::fs::read_to_string(program("bundle.js.map")).unwrap();
    let without = map.replace("sourcesContent", "nothing");
    let expected = std::fs::read_to_string(program("src/sums.ts")).unwrap();
    const SHOWN: &str = "from the source map of bundle.js";
    for (map, has_file, note) in [
        (Some(&map), false, SHOWN),
        (Some(&without), true, SHOWN),
        (Some(&without), false, "src/sums.ts was not found"),
        (Some(&map.replace("AAOO", "AAO")), true, "bundle.js.map: its mappings are damaged"),
        (Some(&"x".to_owned()), true, "bundle.js.map: it is no source map"),
        (None, true, "bundle.js.map was not found"),
    ] {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("bundle.js"), &script).unwrap();
        map.into_iter().for_each(|map| std::fs::write(place.path().join("bundle.js.map"), map).unwrap());
        if has_file {
            std::fs::create_dir(place.path().join("src")).unwrap();
            std::fs::write(place.path().join("src/sums.ts"), &expected).unwrap();
        }
        let bundle = Bundle::of(place.path().join("bundle.js"));
        let (label, frame) = bundle.frame((1, column(&script, "(t){let")), 1);
        let weight = FrameWeight { frame, own: 1, total: 1 };
        let listing = bundle.runtime.block_on(bundle.symbolizer.listing(label, vec![weight], None)).unwrap().unwrap();
        let source = listing.source.unwrap();
        let row = &source.rows[source.row_of[&frame]];
        assert!(source.note.contains(note), "{note}: {}", source.note);
        if note == SHOWN {
            assert!(source.file.ends_with("src/sums.ts"), "{}", source.file);
            assert!(&*row.text == "    mix(range: Range): number {" && row.place == 19, "{row:?}");
        } else {
            assert!(source.file.ends_with("bundle.js") && row.place == 1, "{note}: {} {row:?}", source.file);
        }
    }
}
