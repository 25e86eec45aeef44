//! Compares names with those of `readelf`, `llvm-symbolizer` and `c++filt` for the same addresses.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use flametop::profile::{FrameKind, sanitize};
use flametop::symbolize::{Detail, demangle};

use crate::bench::Bench;
use crate::oracle::{Oracle, llvm, run};

/// A symbol as a label shows it: demangled, harmless, and cut where it is endless.
pub(crate) fn readable(name: &str) -> String {
    sanitize(&demangle(name.as_bytes(), Detail::Normal)).into_owned()
}

/// How names of a file compare with an oracle's.
#[derive(Debug, Default)]
pub(crate) struct Agreement {
    pub(crate) same: usize,
    pub(crate) neither: usize,
    /// The oracle knows a name and we do not.
    pub(crate) missed: Vec<String>,
    /// We give a name that the oracle does not know for this place.
    pub(crate) wrong: Vec<String>,
}

/// Looks up addresses and compares the names with all aliases that `readelf` lists.
pub(crate) fn compare(file: &Path, oracle: &Oracle, addresses: &[u64]) -> Agreement {
    let bench = Bench::new();
    let object = bench.object(file, oracle.build_id.as_deref());
    let addresses: Vec<(u64, u64)> = addresses.iter().filter_map(|at| Some((*at, oracle.offset(*at)?))).collect();
    let offsets: Vec<u64> = addresses.iter().map(|(_, offset)| *offset).collect();
    let start = Instant::now();
    bench.names_at(object, &offsets[..1]);
    let first = start.elapsed();
    let found = bench.names_at(object, &offsets);
    let rest = start.elapsed() - first;
    bench.names_at(object, &offsets.iter().map(|offset| offset ^ 1).collect::<Vec<_>>());
    let again = start.elapsed() - first - rest;
    let mut agreement = Agreement::default();
    for ((address, _), named) in addresses.iter().zip(&found) {
        assert!(!named.provisional, "{named:?}");
        let expected: BTreeSet<String> = oracle.names(*address).into_iter().map(readable).collect();
        let named = (named.kind == FrameKind::User).then_some(&named.name);
        match named {
            None if expected.is_empty() => agreement.neither += 1,
            None => agreement.missed.push(format!("{address:#x} {expected:?}")),
            Some(name) if expected.contains(name) => agreement.same += 1,
            Some(name) => agreement.wrong.push(format!("{address:#x} {name} {expected:?}")),
        }
    }
    let usage = bench.symbolizer.usage();
    println!(
        "{}: first address {first:?}, then {} in {rest:?}, their neighbours in {again:?}, tables {} KiB; {} same, {} unnamed in both, {} missed, {} wrong; {:?}",
        file.display(),
        addresses.len(),
        usage.tables / 1024,
        agreement.same,
        agreement.neither,
        agreement.missed.len(),
        agreement.wrong.len(),
        bench.symbolizer.problems().iter().map(|problem| problem.reason).collect::<Vec<_>>(),
    );
    agreement
}

pub(crate) fn real_objects() -> Vec<PathBuf> {
    let sysroot = run(Command::new("rustc").args(["--print", "sysroot"]));
    let libraries = Path::new(sysroot.trim()).join("lib").read_dir().unwrap();
    let driver = libraries.map(|entry| entry.unwrap().path()).find(|path| path.to_string_lossy().contains("librustc_driver"));
    let node = run(Command::new("which").arg("node"));
    // Debian's is a small stripped program beside a library that has the names.
    let linked = run(Command::new("ldd").arg(node.trim()));
    let library = linked.lines().find(|line| line.contains("libnode")).and_then(|line| line.split_whitespace().nth(2));
    let node = library.unwrap_or(node.trim());
    let listed = run(Command::new("gcc").arg("-print-file-name=libstdc++.so.6"));
    let libc = run(Command::new("gcc").arg("-print-file-name=libc.so.6"));
    let files = [libc.trim(), listed.trim(), node].map(PathBuf::from);
    files.into_iter().chain(driver).map(|path| path.canonicalize().unwrap()).collect()
}

#[test]
fn real_objects_get_the_names_that_readelf_gives_them() {
    for file in real_objects() {
        let oracle = Oracle::of(&file);
        let agreement = compare(&file, &oracle, &oracle.random(5000));
        assert!(agreement.same > 1000, "{}: {agreement:?}", file.display());
        assert!(agreement.wrong.is_empty(), "{}: {:?}", file.display(), agreement.wrong);
        assert!(agreement.missed.is_empty(), "{}: {:?}", file.display(), agreement.missed);
    }
}

#[test]
fn real_objects_get_the_names_that_llvm_symbolizer_gives_them_or_an_alias() {
    for file in real_objects() {
        let oracle = Oracle::of(&file);
        let addresses: Vec<u64> = oracle.random(3000).into_iter().filter(|at| oracle.offset(*at).is_some()).collect();
        let bench = Bench::new();
        let object = bench.object(&file, oracle.build_id.as_deref());
        let offsets: Vec<u64> = addresses.iter().map(|at| oracle.offset(*at).unwrap()).collect();
        let ours = bench.names_at(object, &offsets);
        let theirs = llvm(&file, &addresses);
        assert_eq!(theirs.len(), ours.len(), "llvm-symbolizer answered each question");
        let (mut same, mut alias, mut neither, mut only_ours, mut only_theirs, mut wrong) = (0, 0, 0, 0, 0, Vec::new());
        for ((address, ours), theirs) in addresses.iter().zip(&ours).zip(&theirs) {
            let name = (ours.kind == FrameKind::User).then_some(&ours.name);
            let aliases: BTreeSet<String> = oracle.names(*address).into_iter().map(readable).collect();
            match (name, theirs.as_deref().map(readable)) {
                (None, None) => neither += 1,
                (Some(a), Some(b)) if *a == b => same += 1,
                // llvm looks for symbols in the stripped file only, and takes the name of the function in the source.
                (Some(a), Some(b)) if aliases.contains(a) && a.split_once('.').is_some_and(|(bare, _)| bare == b) => alias += 1,
                // The name is another one of the same function: both are in the symbol table at its start.
                (Some(a), Some(b)) if aliases.contains(a) && aliases.contains(&b) => alias += 1,
                (Some(a), None) if aliases.contains(a) => only_ours += 1,
                // A stub has no symbol; llvm gives it that of the code before it.
                (Some(a), Some(_)) if a.ends_with("@plt") && aliases.contains(a) => only_ours += 1,
                (None, Some(_)) => {
                    only_theirs += 1;
                    if only_theirs < 6 {
                        println!("only llvm: {address:#x} {theirs:?}");
                    }
                }
                (a, b) => wrong.push(format!("{address:#x} ours {a:?} theirs {b:?} symbols {aliases:?}")),
            }
        }
        println!(
            "{}: {same} same, {alias} by another alias, {neither} unnamed in both, {only_ours} only we name, {only_theirs} only llvm names, {} differ",
            file.display(),
            wrong.len()
        );
        assert!(wrong.is_empty(), "{}: {wrong:#?}", file.display());
    }
}

#[test]
fn cpp_names_read_as_cppfilt_writes_them() {
    for file in real_objects() {
        let listing = run(Command::new("nm").arg("-D").arg("--defined-only").arg(&file));
        let names: Vec<&str> = listing.lines().filter_map(|line| line.split(' ').nth(2)).collect();
        let names: Vec<&str> =
            names.into_iter().map(|name| name.split('@').next().unwrap()).filter(|name| name.starts_with("_Z")).collect();
        let mut filter =
            Command::new("c++filt").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("this test needs c++filt");
        let (mut input, text) = (filter.stdin.take().unwrap(), names.join("\n") + "\n");
        let writer = std::thread::spawn(move || input.write_all(text.as_bytes()).unwrap());
        let output = String::from_utf8(filter.wait_with_output().unwrap().stdout).unwrap();
        writer.join().unwrap();
        let plain = |name: &str| name.replace(' ', "").replace("{lambda", "'lambda");
        let (mut same, mut raw, mut other) = (0, 0, Vec::new());
        for (name, theirs) in names.iter().zip(output.lines()) {
            let ours = demangle(name.as_bytes(), Detail::Full);
            match plain(&ours) == plain(theirs) {
                true => same += 1,
                false if ours == *name => raw += 1,
                false => other.push(format!("{ours}  |  {theirs}")),
            }
        }
        println!(
            "{}: {} C++ names, {same} as c++filt, {raw} left raw, {} written otherwise",
            file.display(),
            names.len(),
            other.len()
        );
        other.iter().step_by(1 + other.len() / 4).for_each(|pair| println!("  {pair}"));
        assert!(raw * 100 <= names.len(), "{}: {raw} of {} stay mangled", file.display(), names.len());
    }
}
