//! Functions, inlined functions and lines from DWARF, in all places where it is stored, compared with `llvm-symbolizer`.
//!
//! Each program is built with debug information in every form. The oracle reads the build that has all of it in the plainest form.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use flametop::profile::ElfAddress;
use flametop::symbolize::Resolver;

use crate::agreement::real_objects;
use crate::bench::Bench;
use crate::oracle::{Call, Oracle, ask_llvm, run};

/// C++ with calls inlined into each other, over two files' worth of lines.
pub(crate) const SOURCE: &str = r#"
#include <algorithm>
#include <map>
#include <string>
#include <vector>
#include <cstdio>
template <class T> static inline T square(T x) { return x * x; }
static inline double more(double x) { return square(x) + 1; }
struct Shape { virtual ~Shape() {} virtual double area(double x) const { return more(x); } };
struct Other : Shape { double area(double x) const override { return more(x) * 2; } };
__attribute__((noinline)) static double walk(const Shape* s, std::vector<double>& all, int k) {
  double sum = 0;
  for (auto& x : all) sum += x = s->area(x) + k;
  return sum;
}
int main(int c, char**) {
  std::vector<double> all(1000);
  std::map<std::string, int> seen;
  Shape* s = c > 5 ? new Shape : new Other;
  double sum = 0;
  for (int k = 0; k < 10000; k++) {
    sum += walk(s, all, k);
    std::sort(all.begin(), all.end());
    seen[std::to_string(k)]++;
  }
  printf("%f %zu\n", sum, seen.size());
}
"#;

/// A function by its linkage name, the last part of the file's path, and the line.
fn ours(resolver: &mut Resolver, address: u64) -> Vec<Call> {
    let calls = resolver.resolve(ElfAddress(address)).unwrap();
    let call = |function: flametop::symbolize::Function| {
        let (file, line) = match &function.location {
            Some(place) => (place.file.rsplit('/').next().unwrap_or_default().to_owned(), place.line),
            None => ("??".to_owned(), 0),
        };
        (if function.name.is_empty() { "??".to_owned() } else { function.name }, file, line)
    };
    calls.into_iter().map(call).collect()
}

/// How two answers differ, if they do.
fn difference(ours: &[Call], theirs: &[Call], oracle: &Oracle, address: u64) -> Option<&'static str> {
    // A line of 0 is none.
    let place = |call: &Call| (call.2 > 0).then(|| (call.1.clone(), call.2));
    let nothing = |calls: &[Call]| calls.iter().all(|call| call.0 == "??");
    let aliases = oracle.names(address);
    if nothing(ours) && nothing(theirs) {
        return None;
    }
    if nothing(ours) && aliases.is_empty() && theirs.len() == 1 {
        return Some("explained: past the end of every symbol, or in a stub");
    }
    let ((our_outer, our_inner), (their_outer, their_inner)) = (ours.split_last()?, theirs.split_last()?);
    let stub = our_outer.0.ends_with("@plt") && aliases.contains(our_outer.0.as_str());
    if stub || their_outer.0 == "??" && aliases.contains(bare(&our_outer.0)) {
        return Some("explained: only we know the name");
    }
    let same = |a: &[Call], b: &[Call]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.0 == b.0 && place(a) == place(b));
    if !same(our_inner, their_inner) {
        return Some("WRONG: inlined calls");
    }
    if place(our_outer) != place(their_outer) {
        return Some("WRONG: line");
    }
    let known = |name: &str| aliases.iter().any(|alias| bare(alias) == bare(name));
    match (our_outer.0 == their_outer.0, known(&our_outer.0)) {
        (true, _) => None,
        (false, true) => Some("explained: another name of the same function"),
        (false, false) => Some("WRONG: function"),
    }
}

/// Returns a name without the version that the linker has appended.
fn bare(name: &str) -> &str {
    if name.ends_with("@plt") { name } else { name.split('@').next().unwrap_or(name) }
}

/// Asks the resolver and the oracle about addresses of a file; `asked` is the file that the oracle reads.
fn compare(file: &Path, asked: &Path, count: usize) -> BTreeMap<&'static str, usize> {
    let oracle = Oracle::of(asked);
    let addresses = oracle.random(count);
    let theirs = ask_llvm(asked, &addresses);
    assert_eq!(theirs.len(), addresses.len(), "{}: llvm-symbolizer answered each question", asked.display());
    let mut resolver = Resolver::open(file, None).unwrap();
    let mut found = BTreeMap::new();
    let (mut inlined, mut lines, mut shown) = (0, 0, 0);
    for (address, theirs) in addresses.iter().zip(&theirs) {
        let ours = ours(&mut resolver, *address);
        inlined += usize::from(ours.len() > 1);
        lines += usize::from(ours.iter().any(|call| call.2 > 0));
        let what = difference(&ours, theirs, &oracle, *address).unwrap_or("the same");
        *found.entry(what).or_default() += 1;
        if what.starts_with("WRONG") && shown < 3 {
            shown += 1;
            println!(
                "{}: {address:#x}: {what}: ours {ours:?}, theirs {theirs:?}, symbols {:?}",
                file.display(),
                oracle.names(*address)
            );
        }
    }
    println!("{}: {count} addresses, {lines} with a line, {inlined} with inlined calls: {found:?}", file.display());
    found
}

#[track_caller]
fn all_right(file: &Path, asked: &Path, count: usize) {
    let found = compare(file, asked, count);
    let wrong: usize = found.iter().filter(|(what, _)| what.starts_with("WRONG")).map(|(_, count)| count).sum();
    assert_eq!(wrong, 0, "{}: {found:?}", file.display());
}

fn tool(program: &str, arguments: &[&str], directory: &Path) {
    run(Command::new(program).args(arguments).current_dir(directory));
}

/// The program, its debug information in itself and not compressed, and what it was built with.
fn build(directory: &Path, name: &str, compiler: &str, options: &[&str]) -> PathBuf {
    std::fs::write(directory.join("a.cc"), SOURCE).unwrap();
    let plain = ["-O2", "-g", "-Wl,--build-id", "a.cc", "-o", name];
    tool(compiler, &[&plain[..], options].concat(), directory);
    directory.join(name)
}

#[test]
fn debug_information_of_every_form_says_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    for options in [&["-gdwarf-5"][..], &["-gdwarf-4"], &["-gdwarf-3"], &["-gdwarf-2"]] {
        let program = build(at, "plain", "g++", options);
        all_right(&program, &program, 1500);
    }
    let plain = build(at, "plain", "g++", &[]);
    for kind in ["zlib", "zlib-gnu", "zstd"] {
        // gdb's own form is old and zstd is new: if this objcopy cannot write a form, LLVM's does, or the form is skipped.
        let packed = format!("packed-{kind}");
        let option = format!("--compress-debug-sections={kind}");
        let done = ["objcopy", "llvm-objcopy"].iter().any(|objcopy| {
            let output = Command::new(objcopy).args([&option, "plain", &packed]).current_dir(at).output();
            output.is_ok_and(|output| output.status.success())
        });
        assert!(done || kind == "zstd", "objcopy cannot compress with {kind}");
        if done {
            all_right(&at.join(&packed), &plain, 1500);
        } else {
            println!("NOT TESTED: no objcopy here compresses with zstd; its decoder is tested with the unwind tables");
        }
    }
    // Split debug information: one file for each source, in DWARF 5 and before; then all of them in one file.
    for (name, options) in [("split5", &["-gsplit-dwarf"][..]), ("split4", &["-gsplit-dwarf", "-gdwarf-4"])] {
        let program = build(at, name, "g++", options);
        let oracle = build(at, &format!("{name}-oracle"), "g++", &options[1..]);
        all_right(&program, &oracle, 1500);
        let package = at.join(format!("{name}.dwp"));
        let dwo = at.read_dir().unwrap().map(|entry| entry.unwrap().path());
        let dwo: Vec<PathBuf> = dwo.filter(|path| path.extension().is_some_and(|extension| extension == "dwo")).collect();
        // binutils' dwp knows no DWARF 5.
        let dwp = if name == "split5" { "llvm-dwp" } else { "dwp" };
        let newest = dwo.iter().max_by_key(|path| path.metadata().unwrap().modified().unwrap()).unwrap();
        run(Command::new(dwp).arg(newest).arg("-o").arg(&package));
        dwo.iter().for_each(|path| std::fs::remove_file(path).unwrap());
        all_right(&program, &oracle, 1500);
        std::fs::remove_file(&package).unwrap();
        // Without it there are lines and the functions that have symbols, and nothing is wrong.
        let mut resolver = Resolver::open(&program, None).unwrap();
        let main = Oracle::of(&program).main();
        assert_eq!(ours(&mut resolver, main).last().unwrap().0, "main");
    }
}

#[test]
fn separate_debug_files_are_found_only_if_they_are_the_right_ones() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let plain = build(at, "plain", "g++", &[]);
    tool("objcopy", &["--only-keep-debug", "plain", "linked.debug"], at);
    tool(
        "objcopy",
        &["--strip-all", "--remove-section=.note.gnu.build-id", "--add-gnu-debuglink=linked.debug", "plain", "linked"],
        at,
    );
    all_right(&at.join("linked"), &plain, 1500);
    std::fs::create_dir(at.join(".debug")).unwrap();
    std::fs::rename(at.join("linked.debug"), at.join(".debug/linked.debug")).unwrap();
    all_right(&at.join("linked"), &plain, 1500);
    // One byte is changed: it is no longer the file that was linked.
    let path = at.join(".debug/linked.debug");
    let mut bytes = std::fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let mut resolver = Resolver::open(&at.join("linked"), None).unwrap();
    assert_eq!(ours(&mut resolver, Oracle::of(&plain).main()), []);
}

/// A program in another root, as in a container: its debug file is installed there and nowhere else.
#[test]
fn a_debug_file_is_found_in_the_root_of_the_process() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    std::fs::write(at.join("a.c"), "#include <unistd.h>\nstatic inline int twice(int a) { int s = 1; while (a-- > 1) s += s * a; return s; }\n__attribute__((noinline)) int work(int a) { return twice(a) + 1; }\nint main(int c, char **v) { (void)v; pause(); return work(c); }\n").unwrap();
    tool("gcc", &["-O2", "-g", "-static", "-Wl,--build-id", "a.c", "-o", "contained"], at);
    let oracle = Oracle::of(&at.join("contained"));
    let id: String = oracle.build_id.as_ref().unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
    let place = at.join("usr/lib/debug/.build-id").join(&id[..2]);
    std::fs::create_dir_all(&place).unwrap();
    tool("objcopy", &["--only-keep-debug", "contained", &format!("{}/{}.debug", place.display(), &id[2..])], at);
    let inlined = ask_llvm(&at.join("contained"), &oracle.edges()).into_iter().zip(oracle.edges());
    let (_, address) = inlined.into_iter().find(|(calls, _)| calls.first().is_some_and(|call| call.0 == "twice")).unwrap();
    tool("strip", &["--strip-all", "contained"], at);
    let mut sleeper = Command::new("chroot").arg(at).arg("/contained").spawn().expect("this test needs root");
    let bench = Bench::new();
    let object = bench.object(Path::new("/contained"), oracle.build_id.as_deref());
    let frame = bench.frame(object, oracle.offset(address).unwrap(), false);
    // Once it has executed that program, its root is the other one.
    let link = format!("/proc/{}/exe", sleeper.id());
    let since = std::time::Instant::now();
    while !std::fs::read_link(&link).is_ok_and(|path| path.ends_with("contained")) && since.elapsed().as_secs() < 10 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    bench.name(&[frame], sleeper.id(), 0..0);
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    let expected = [("work".to_owned(), false), ("twice".to_owned(), true)];
    assert_eq!(bench.chain(frame), expected, "{:?}", bench.symbolizer.problems());
}

#[test]
fn symbols_are_found_in_gnu_debugdata() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let plain = build(at, "plain", "g++", &[]);
    tool("objcopy", &["--only-keep-debug", "plain", "mini"], at);
    tool("objcopy", &["--strip-debug", "--remove-section=.comment", "mini", "mini"], at);
    tool("xz", &["mini"], at);
    tool("objcopy", &["--strip-all", "--add-section=.gnu_debugdata=mini.xz", "plain", "packed"], at);
    let oracle = Oracle::of(&plain);
    let mut resolver = Resolver::open(&at.join("packed"), None).unwrap();
    for address in oracle.random(500) {
        let expected = oracle.names(address);
        let found = ours(&mut resolver, address);
        match found.last() {
            Some((name, ..)) => assert!(expected.contains(name.as_str()), "{address:#x} {name} {expected:?}"),
            None => assert!(expected.is_empty(), "{address:#x} {expected:?}"),
        }
    }
}

#[test]
fn what_dwz_has_taken_out_is_looked_up_where_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let plain = build(at, "plain", "g++", &["-gdwarf-4"]);
    let again = build(at, "again", "g++", &["-gdwarf-4", "-DAGAIN", "-O1"]);
    for name in ["plain", "again"] {
        tool("objcopy", &["--only-keep-debug", name, &format!("{name}.debug")], at);
        tool("objcopy", &["--strip-all", name, &format!("{name}-stripped")], at);
    }
    tool("dwz", &["-m", "common.debug", "-r", "plain.debug", "again.debug"], at);
    assert!(at.join("common.debug").exists(), "dwz found nothing in common");
    for (name, oracle) in [("plain", plain), ("again", again)] {
        let stripped = format!("{name}-stripped");
        tool("objcopy", &[&format!("--add-gnu-debuglink={name}.debug"), &stripped], at);
        all_right(&at.join(stripped), &oracle, 1500);
    }
}

#[test]
fn real_objects_say_what_llvm_symbolizer_says() {
    for file in real_objects().into_iter().chain([std::env::current_exe().unwrap()]) {
        all_right(&file, &file, 2000);
    }
}

/// Every program and library that is large or much used, 10,000 addresses each.
#[test]
#[ignore = "a minute; needs what only the slow tests install"]
fn twenty_real_objects_say_what_llvm_symbolizer_says() {
    let directory = tempfile::tempdir().unwrap();
    let cpp = build(directory.path(), "templates", "g++", &[]);
    std::fs::write(directory.path().join("go.mod"), "module x\ngo 1.18\n").unwrap();
    let go = "package main\nimport (\"fmt\"; \"net/http\"; \"sort\")\nfunc main() { a := []int{3, 1}; sort.Ints(a); fmt.Println(a, http.DefaultClient) }\n";
    std::fs::write(directory.path().join("main.go"), go).unwrap();
    run(Command::new("go").args(["build", "-o", "gone", "main.go"]).current_dir(directory.path()));
    let mut files: Vec<PathBuf> = real_objects();
    files.extend([std::env::current_exe().unwrap(), cpp, directory.path().join("gone")]);
    for library in [
        "libm.so.6",
        "ld-linux-x86-64.so.2",
        "libcrypto.so.3",
        "libssl.so.3",
        "libz.so.1",
        "libelf.so.1",
        "liblzma.so.5",
        "libgcc_s.so.1",
        "libpython3.11.so.1.0",
        "libsqlite3.so.0",
        "libasan.so.8",
        "libgmp.so.10",
    ] {
        let found = run(Command::new("gcc").arg(format!("-print-file-name={library}")));
        files.extend(Path::new(found.trim()).canonicalize().ok().filter(|path| path.is_absolute()));
    }
    for program in ["cc1plus", "cc1", "lto1"] {
        let found = run(Command::new("gcc").arg(format!("-print-prog-name={program}")));
        files.extend(Path::new(found.trim()).canonicalize().ok().filter(|path| path.is_absolute()));
    }
    for program in [
        "bash",
        "git",
        "gdb",
        "perl",
        "python3",
        "ld.bfd",
        "as",
        "llvm-symbolizer",
        "clang",
        "sqlite3",
        "tmux",
        "node",
        "chromium",
    ] {
        let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output().unwrap();
        let path = String::from_utf8_lossy(&found.stdout).trim().to_owned();
        files.extend(Path::new(&path).canonicalize().ok().filter(|path| path.is_absolute()));
    }
    let is_elf = |path: &PathBuf| std::fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"\x7fELF\x02"));
    files.retain(is_elf);
    files.sort();
    files.dedup();
    assert!(files.len() >= 20, "{files:?}");
    for file in &files {
        all_right(file, file, 10_000);
    }
    println!("{} objects", files.len());
}

#[test]
fn a_live_frame_has_what_was_inlined_into_it() {
    let directory = tempfile::tempdir().unwrap();
    let program = build(directory.path(), "plain", "g++", &[]);
    let oracle = Oracle::of(&program);
    let bench = Bench::new();
    let object = bench.object(&program, oracle.build_id.as_deref());
    let addresses: Vec<u64> = oracle.random(800).into_iter().filter(|at| oracle.offset(*at).is_some()).collect();
    let frames: Vec<_> = addresses.iter().map(|at| bench.frame(object, oracle.offset(*at).unwrap(), false)).collect();
    bench.name(&frames, std::process::id(), 0..0);
    let mut resolver = Resolver::open(&program, Some(flametop::symbolize::Detail::Normal)).unwrap();
    let mut deep = 0;
    for (address, frame) in addresses.iter().zip(&frames) {
        let chain = bench.chain(*frame);
        let expected: Vec<String> =
            resolver.resolve(ElfAddress(*address)).unwrap().into_iter().rev().map(|function| function.name).collect();
        // A line, and no function.
        if expected.concat().is_empty() {
            continue;
        }
        assert_eq!(chain.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>(), expected, "{address:#x}");
        assert!(chain.iter().enumerate().all(|(depth, (_, inlined))| *inlined == (depth > 0)), "{chain:?}");
        deep += usize::from(chain.len() > 2);
    }
    assert!(deep > 50, "{deep} of {} have two calls inlined", frames.len());
}

#[test]
fn a_stripped_go_program_has_the_names_it_had() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    std::fs::write(at.join("go.mod"), "module x\ngo 1.18\n").unwrap();
    let source = "package main\nimport (\"fmt\"; \"sort\")\nfunc main() { a := []int{3, 1}; sort.Ints(a); fmt.Println(a) }\n";
    std::fs::write(at.join("main.go"), source).unwrap();
    for (name, flags) in [("whole", "-ldflags="), ("stripped", "-ldflags=-s -w")] {
        let mut go = Command::new("go");
        run(go.args(["build", flags, "-o", name, "main.go"]).env("CGO_ENABLED", "0").current_dir(at));
    }
    let listing = run(Command::new("nm").arg(at.join("whole")));
    let mut resolver = Resolver::open(&at.join("stripped"), None).unwrap();
    let mut count = 0;
    for line in listing.lines() {
        let Some((address, name)) = line.split_once(" T ").or_else(|| line.split_once(" t ")) else { continue };
        // The end of the text is no function.
        if matches!(name, "runtime.text" | "runtime.etext") {
            continue;
        }
        let address = u64::from_str_radix(address, 16).unwrap();
        let found = ours(&mut resolver, address);
        let bare = name.strip_suffix(".abi0").unwrap_or(name);
        // The table writes `[...]` for type arguments and lengths.
        let same = |found: &str| match (found.split_once("[...]"), bare.find('['), bare.rfind(']')) {
            (Some((before, after)), Some(open), Some(close)) => (before, after) == (&bare[..open], &bare[close + 1..]),
            _ => found == bare,
        };
        assert!(found.last().is_some_and(|call| same(&call.0)), "{address:#x}: {found:?}, not {bare}");
        count += 1;
    }
    assert!(count > 1000, "{count} functions");
}
