//! The rules of ARCHITECTURE.md that can be read off the sources: who imports whom, which library appears where, where
//! `unsafe` may be, how long files are, and what must not be in the tree at all.
//!
//! The sources are scanned as plain text: this needs nothing, is quick, and says file and line. Below, each scanner must find a
//! violation, so that no rule can rot into one that every source meets.

mod bpf_stack;
mod imports;
mod mentions;

use std::path::{Path, PathBuf};

use imports::Imports;

/// Room → rooms it may use. A room that is not here fails the test: give it a rule when it is built.
const MAY_USE: &[(&str, &[&str])] = &[
    ("profile", &["profile", "locks"]),
    ("privileges", &[]),
    ("allocator", &[]),
    ("cpu_time", &[]),
    ("locks", &[]),
    ("object", &["object", "profile", "locks", "privileges", "cpu_time"]),
    ("runtimes", &["runtimes"]),
    ("unwind", &["unwind", "object", "profile", "cpu_time"]),
    ("collector", &["collector", "runtimes", "unwind", "object", "profile", "locks", "privileges", "allocator", "cpu_time"]),
    ("symbolize", &["symbolize", "object", "profile", "locks", "allocator", "cpu_time"]),
    ("palette", &["profile"]),
    ("formats", &["formats", "palette", "profile", "locks", "cpu_time"]),
    ("fleet", &["fleet", "formats", "profile", "locks"]),
    ("ui", &["ui", "palette", "profile", "cpu_time"]),
    ("cli", &["cli", "formats", "profile"]),
    (
        "session",
        &[
            "session",
            "cli",
            "profile",
            "unwind",
            "collector",
            "symbolize",
            "formats",
            "fleet",
            "palette",
            "ui",
            "cpu_time",
            "locks",
            "privileges",
            "allocator",
        ],
    ),
    ("lib", &[]),
    ("main", &["cli", "session"]),
];

/// Library → where it may be named, as beginnings of paths under `src/`.
const LIBRARIES: &[(&str, &[&str])] = &[
    ("libbpf_rs", &["collector/"]),
    ("libbpf_sys", &["collector/"]),
    ("perf_event_open_sys", &["collector/"]),
    ("ratatui", &["ui/"]),
    ("crossterm", &["ui/"]),
    ("terminal_colorsaurus", &["ui/"]),
    ("gimli", &["symbolize/", "unwind/"]),
    ("addr2line", &["symbolize/", "unwind/"]),
    ("object", &["symbolize/", "unwind/"]),
    ("iced_x86", &["unwind/", "symbolize/listing/"]),
    ("yaxpeax_arch", &["symbolize/listing/"]),
    ("yaxpeax_arm", &["symbolize/listing/"]),
    ("rustc_demangle", &["symbolize/"]),
    ("cpp_demangle", &["symbolize/"]),
    ("inferno", &["formats/"]),
    (
        "flate2",
        &[
            "object/",
            "collector/tables/cache.rs",
            "fleet/",
            "formats/packed.rs",
            "formats/recording/",
            "formats/pprof/",
            "formats/json/firefox/",
        ],
    ),
    ("ruzstd", &["object/", "formats/packed.rs"]),
    ("lzma_rust2", &["object/", "formats/packed.rs"]),
    ("ureq", &["fleet/", "session/fetch.rs"]),
    ("rustls", &["fleet/"]),
    ("clap", &["cli"]),
    ("toml", &["session/config"]),
    ("seccompiler", &["privileges.rs"]),
    ("anyhow", &["main.rs", "session", "cli"]),
];

/// Where `unsafe` may be, as beginnings of paths under `src/`; each with a `SAFETY:` comment right above.
const UNSAFE: &[&str] = &["allocator.rs", "collector/sys/", "object/mapped.rs"];

/// Rooms whose paths may be chosen by a process: they open files by `object::open`.
const OPENING: &[&str] = &["collector", "symbolize", "object"];

/// Other ways to open files.
const OPENINGS: &[&str] = &["File::open(", "fs::read(", "fs::read_to_string(", "OpenOptions", "openat(", "openat2(", "fs::open("];

/// Beginnings of paths that no process chooses. [`LEADING_OUT`] has parts of such paths that lead out of `/proc` to a file that a
/// process has chosen.
const KERNELS: &[&str] = &["/proc/", "/sys/", "/etc/passwd\""];
const LEADING_OUT: &[&str] =
    &["/root", "/cwd", "/exe", "/map_files", "/fd/", "(\"root", "(\"cwd", "(\"exe", "map_files/", "(\"fd"];

/// Other modules that open files, and why no process chooses those paths.
const OPENERS: &[(&str, &str)] = &[
    ("object/open.rs", "the one opener"),
    ("object/reach.rs", "O_PATH only, below directories that the opener has found"),
    ("collector/sys/direct_map.rs", "what the kernel tells of the machine, in /proc"),
    ("collector/features.rs", "settings of the kernel"),
    ("collector/sys/machine.rs", "lists of CPUs in sysfs"),
    ("collector/probes/tracefs.rs", "tracefs, where it is mounted"),
    ("collector/tables/cache.rs", "our own cache"),
    ("collector/tables/identity.rs", "/proc/PID/mountinfo"),
    ("symbolize/kernel/vmlinux.rs", "what the kernel tells of itself, under a root that tests choose"),
    ("symbolize/kernel/modules.rs", "the same of its modules"),
    ("symbolize/source_files/text.rs", "files in the directory of a process in /proc, which is held open"),
];

/// Lines of code (without comments, blanks, and tests) that a file may have. ARCHITECTURE.md asks for about 500.
const LONGEST_FILE: usize = 600;
const LONGEST_MAIN: usize = 60;

/// A file of the tree: its path under the root, with slashes, and its text.
struct Source {
    path: String,
    text: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files_under(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        // Git ignores `target`, and `.git` is its own. A link may lead anywhere, even round in a circle.
        if name == "target" || name == ".git" || path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            files_under(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// All files of the tree that are text.
fn tree() -> Vec<Source> {
    let mut paths = Vec::new();
    files_under(root(), &mut paths);
    paths.sort();
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).ok()?;
        let path = path.strip_prefix(root()).ok()?.to_string_lossy().into_owned();
        Some(Source { path, text })
    };
    paths.into_iter().filter_map(read).collect()
}

/// The Rust files of the program, by their paths under `src/`.
fn sources() -> Vec<Source> {
    let ours = |source: Source| {
        let path = source.path.strip_prefix("src/").filter(|path| path.ends_with(".rs"))?.to_owned();
        Some(Source { path, ..source })
    };
    tree().into_iter().filter_map(ours).collect()
}

/// `ui/app.rs` → `ui`; `main.rs` → `main`.
fn room(path: &str) -> &str {
    let first = path.split('/').next().unwrap_or(path);
    first.strip_suffix(".rs").unwrap_or(first)
}

/// A line without its comment. Good enough for code that rustfmt has formatted: a `//` in a string is rarely followed by
/// an import.
fn code_of(line: &str) -> &str {
    line.find("//").and_then(|at| line.get(..at)).unwrap_or(line)
}

/// The same text with each comment made blank, lines kept.
fn without_comments(text: &str) -> String {
    text.lines().map(code_of).collect::<Vec<_>>().join("\n")
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Places where `word` stands alone: offset of each.
fn places<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    text.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

fn line_at(text: &str, offset: usize) -> usize {
    text[..offset].matches('\n').count() + 1
}

/// The first names of a path or of a group of paths: `a::b` → a; `{a::b, c, d::{e, f}}` → a, c, d.
fn first_names(path: &str) -> Vec<&str> {
    let path = path.trim_start();
    let Some(group) = path.strip_prefix('{') else {
        return vec![&path[..path.find(|c| !is_word(c)).unwrap_or(path.len())]];
    };
    let mut names = Vec::new();
    let mut depth = 1;
    let mut begin = 0;
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if (c == ',' && depth == 1) || depth == 0 {
            names.extend(first_names(&group[begin..at]).into_iter().filter(|name| !name.is_empty()));
            begin = at + 1;
        }
        if depth == 0 {
            break;
        }
    }
    names
}

/// Rule 1: who imports whom.
fn forbidden_imports(source: &Source) -> Vec<String> {
    let own = room(&source.path);
    let Some((_, allowed)) = MAY_USE.iter().find(|(name, _)| *name == own) else {
        return vec![format!("src/{}: the room `{own}` has no rule in tests/architecture/main.rs", source.path)];
    };
    let text = without_comments(&source.text);
    let mut found = Vec::new();
    for start in ["crate", "flametop", "super"] {
        for at in places(&text, start) {
            let Some(rest) = text[at + start.len()..].strip_prefix("::") else { continue };
            for name in first_names(rest) {
                let is_room = MAY_USE.iter().any(|(room, _)| *room == name);
                // `super::name` is mostly a neighbour in the same room; only another room's name is suspicious. A type (upper
                // case) at the root of the crate belongs to no room.
                let matters = if start == "super" { is_room } else { name.starts_with(char::is_lowercase) };
                if matters && !allowed.contains(&name) {
                    found.push(format!("src/{}:{}: `{own}` may not use `{name}`", source.path, line_at(&text, at)));
                }
            }
        }
    }
    found
}

/// Rule 2: which library appears where.
fn misplaced_libraries(source: &Source) -> Vec<String> {
    let text = without_comments(&source.text);
    let mut found = Vec::new();
    for (library, homes) in LIBRARIES {
        if homes.iter().any(|home| source.path.starts_with(home)) {
            continue;
        }
        for at in places(&text, library) {
            // A crate's name stands at the beginning of a path: what follows `::` or `.` is a name of our own.
            let before = text[..at].trim_end_matches(' ');
            let is_path = text[at + library.len()..].starts_with("::") || before.ends_with("use");
            if is_path && !before.ends_with(':') && !before.ends_with('.') {
                found.push(format!("src/{}:{}: `{library}` belongs in {homes:?}", source.path, line_at(&text, at)));
            }
        }
    }
    found
}

/// `unsafe` only where it is foreseen, and with its reason.
fn misplaced_unsafe(source: &Source) -> Vec<String> {
    let lines: Vec<&str> = source.text.lines().collect();
    let mut found = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let code = code_of(line);
        // In a string it is text.
        let Some(at) = places(code, "unsafe").find(|&at| code[..at].matches('"').count().is_multiple_of(2)) else { continue };
        let place = format!("src/{}:{}", source.path, number + 1);
        if !UNSAFE.iter().any(|home| source.path.starts_with(home)) {
            found.push(format!("{place}: `unsafe` belongs in {UNSAFE:?}"));
        } else if code[at..].contains('{')
            && !lines[number.saturating_sub(6)..=number].iter().any(|line| line.contains("SAFETY:"))
        {
            found.push(format!("{place}: no SAFETY: comment says why this holds"));
        }
    }
    found
}

/// Files are opened by `object::open` alone where processes choose paths.
fn other_openings(source: &Source) -> Vec<String> {
    let name = source.path.rsplit('/').next().unwrap_or_default();
    let is_test = name.starts_with("tests") || name == "hostile.rs";
    let is_known = OPENERS.iter().any(|(path, _)| *path == source.path);
    if is_test || is_known || !OPENING.contains(&room(&source.path)) {
        return Vec::new();
    }
    let text = without_comments(without_tests(&source.text));
    let mut found = Vec::new();
    for opening in OPENINGS {
        for (at, _) in text.match_indices(opening).filter(|(at, _)| !text[..*at].ends_with(is_word)) {
            let path = text[at + opening.len()..].trim_start();
            let literal = path.strip_prefix("format!(").unwrap_or(path).strip_prefix('"').unwrap_or_default();
            let line = path.lines().next().unwrap_or_default();
            let in_directory = path.starts_with("directory(") && line.contains(").join(\"");
            let is_kernels = in_directory || KERNELS.iter().any(|start| literal.starts_with(start));
            if !is_kernels || LEADING_OUT.iter().any(|way| line.contains(way)) {
                let place = format!("src/{}:{}", source.path, line_at(&text, at));
                found.push(format!("{place}: `{opening}` where a process may have chosen the path: use object::open"));
            }
        }
    }
    found
}

/// A file's text up to the module of tests at its end.
fn without_tests(text: &str) -> &str {
    const TESTS: &str = "\n#[cfg(test)]\n";
    let is_module = |at: &usize| {
        let line = text[at + TESTS.len()..].lines().next().unwrap_or_default();
        line.contains("mod ") && line.ends_with('{')
    };
    let end = text.match_indices(TESTS).map(|(at, _)| at).find(is_module);
    &text[..end.unwrap_or(text.len())]
}

/// Lines of code, up to the tests at a file's end.
fn code_lines(text: &str) -> usize {
    let code = text.split("\n#[cfg(test)]\nmod ").next().unwrap_or(text);
    code.lines().filter(|line| !code_of(line).trim().is_empty()).count()
}

fn too_long(source: &Source) -> Vec<String> {
    let lines = code_lines(&source.text);
    let whole = source.text.lines().count();
    if source.path == "main.rs" && whole > LONGEST_MAIN {
        return vec![format!("src/main.rs has {whole} lines; {LONGEST_MAIN} are enough to parse, run and print errors")];
    }
    if lines > LONGEST_FILE {
        return vec![format!("src/{} has {lines} lines of code: split it by noun ({LONGEST_FILE} at most)", source.path)];
    }
    Vec::new()
}

/// Texts that name one machine or one mirror. They are put together here so that this file does not contain them.
fn forbidden_texts() -> Vec<String> {
    let mut texts: Vec<String> = [
        ["/wo", "rk/"],
        ["/fa", "rm/"],
        ["/root/", ".cargo"],
        ["crates", ".io"],
        ["deb.debian", ".org"],
        ["snapshot.debian", ".org"],
        ["archive.ubuntu", ".com"],
        ["registry.npmjs", ".org"],
        ["pypi", ".org"],
        ["proxy.golang", ".org"],
        ["docker", ".io"],
        ["ghcr", ".io"],
        ["quay", ".io"],
    ]
    .iter()
    .map(|parts| parts.concat())
    .collect();
    // A short path, such as /repo, may be a word of a text.
    if root().components().count() > 3 {
        texts.push(root().to_string_lossy().into_owned());
    }
    texts
}

fn traces_of_machines(source: &Source, forbidden: &[String]) -> Vec<String> {
    // Cargo writes the index's name into its lock file.
    if source.path.ends_with("Cargo.lock") {
        return Vec::new();
    }
    let mut found = Vec::new();
    for text in forbidden {
        for (at, _) in source.text.match_indices(text.as_str()) {
            let before = source.text[..at].chars().next_back();
            if !text.starts_with('/') || !before.is_some_and(|c| is_word(c) || matches!(c, '.' | '~' | '}' | '*' | '/')) {
                found.push(format!("{}:{}: names `{text}`", source.path, line_at(&source.text, at)));
            }
        }
    }
    found
}

#[track_caller]
fn assert_none(found: Vec<String>) {
    assert!(found.is_empty(), "ARCHITECTURE.md does not allow:\n  {}", found.join("\n  "));
}

#[test]
fn rooms_use_only_the_rooms_they_may() {
    assert_none(sources().iter().flat_map(forbidden_imports).collect());
}

fn imports() -> Imports {
    let sources = sources();
    Imports::read(sources.iter().map(|source| (source.path.as_str(), source.text.as_str())))
}

/// The folder of a file in its room; a file outside of folders is its own group.
fn folder(path: &str) -> String {
    let mut parts = path.split('/');
    let (room, second, third) = (parts.next().unwrap_or(path), parts.next(), parts.next());
    match (second, third) {
        (Some(folder), Some(_)) => format!("{room}/{folder}"),
        _ => path.to_owned(),
    }
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    assert_none(imports().circles());
}

#[test]
fn no_folders_import_each_other_in_a_circle() {
    assert_none(imports().grouped(folder).circles());
}

#[test]
fn a_circle_is_found() {
    let circles = |files: &[(&'static str, &'static str)]| Imports::read(files.iter().copied()).circles();
    let lib = ("lib.rs", "mod a; mod b; mod c;");
    let round = [lib, ("a.rs", "use crate::b::B; pub struct A(B);"), ("b.rs", "pub struct B; fn f(_: super::a::A) {}")];
    assert_eq!(circles(&round).len(), 1);
    // A third file re-exports the name: the circle is between the two files that define something.
    let handed = [
        lib,
        ("a.rs", "use crate::c::B;\npub struct A;"),
        ("b.rs", "pub struct B(crate::a::A);"),
        ("c.rs", "pub use crate::b::B;"),
    ];
    assert_eq!(circles(&handed), ["2 in a circle:\n    a.rs -> b.rs: B\n    b.rs -> a.rs: A"]);
    let by_tests =
        [lib, ("a.rs", "#[cfg(test)] mod tests { use crate::b::B; } pub struct A;"), ("b.rs", "use crate::a::A; pub struct B;")];
    assert_eq!(circles(&by_tests), Vec::<String>::new());
    let by_module = [lib, ("a.rs", "use super::b; fn f() { b::g() } pub fn h() {}"), ("b.rs", "pub fn g() { crate::a::h() }")];
    assert_eq!(circles(&by_module).len(), 1);
}

/// `scripts/test.sh` hands each word of the list to `--skip`: a word that is no test would leave out others.
#[test]
fn tests_that_need_root_are_tests() {
    let sources = sources();
    let is_one = |line: &str| {
        let Some((module, test)) = line.split_once("::tests::") else { return false };
        let (place, function) = (module.replace("::", "/"), format!("fn {test}("));
        sources.iter().any(|source| source.path.starts_with(&place) && source.text.contains(&function))
    };
    let list = include_str!("../../scripts/needs-root");
    let lines: Vec<&str> = list.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(lines.len() > 10, "{lines:?}");
    assert_none(lines.into_iter().filter(|line| !is_one(line)).map(|line| format!("scripts/needs-root: {line}")).collect());
}

#[test]
fn libraries_stay_in_their_rooms() {
    assert_none(sources().iter().flat_map(misplaced_libraries).collect());
}

#[test]
fn unsafe_code_stays_where_it_is_foreseen_and_says_why() {
    assert_none(sources().iter().flat_map(misplaced_unsafe).collect());
}

#[test]
fn paths_that_processes_choose_are_opened_in_one_place() {
    assert_none(sources().iter().flat_map(other_openings).collect());
    let is_there = |path: &str| sources().iter().any(|source| source.path == path);
    assert_none(OPENERS.iter().filter(|(path, _)| !is_there(path)).map(|(path, _)| format!("src/{path} is gone")).collect());
}

#[test]
fn files_are_short_enough_to_be_read() {
    assert_none(sources().iter().flat_map(too_long).collect());
}

#[test]
fn the_tree_names_no_machine_and_no_mirror() {
    let forbidden = forbidden_texts();
    assert_none(tree().iter().flat_map(|source| traces_of_machines(source, &forbidden)).collect());
}

#[test]
fn what_is_mentioned_exists() {
    let sources = tree();
    let known = mentions::Tree::of(&sources);
    assert_none(sources.iter().flat_map(|source| mentions::unknown(source, &known)).collect());
}

#[test]
fn a_mention_of_nothing_is_found() {
    let source = |path: &str, text: &str| Source { path: path.to_owned(), text: text.to_owned() };
    let code = source("src/ui/app.rs", "fn a_name_of_six_parts_here() {}");
    let known = mentions::Tree::of(&[code, source("scripts/a.sh", ""), source("docs/a.md", "")]);
    let found = |path: &str, text: &str| mentions::unknown(&source(path, text), &known).len();
    for (path, text, expected) in [
        ("scripts/b.sh", "cargo test a_name_of_six ui::app:: # docs/a.md, ui/app.rs, src/ui/…, scripts/FILE", 0),
        ("scripts/b.sh", "cargo test a_name_of_seven ui::gone:: # docs/b.md, ui/gone.rs, src/gone/…", 5),
        ("src/ui/app.rs", "let a_name_of_no_test = 1; // of_four_parts_only, /proc/ui/a.rs, elsewhere/src/a.rs", 0),
        ("src/ui/app.rs", concat!("let x = 1; /", "/ a_name_of_no_test, scripts/b.sh"), 2),
        ("docs/a.md", "`a_name_of_none` in [b](docs/b.md)", 2),
    ] {
        assert_eq!(found(path, text), expected, "{path}: {text}");
    }
}

#[test]
fn the_scanners_see_the_program() {
    // An empty list would make every rule hold.
    let sources = sources();
    assert!(sources.iter().any(|source| source.path == "main.rs"));
    assert!(sources.iter().any(|source| source.path.starts_with("profile/")));
}

#[test]
fn a_forbidden_import_is_found_in_each_of_its_forms() {
    let one = |path: &str, text: &str| forbidden_imports(&Source { path: path.to_owned(), text: text.to_owned() }).len();
    assert_eq!(one("ui/app.rs", "use crate::collector::Event;"), 1);
    assert_eq!(one("ui/app.rs", "use crate::{\n    profile::{Frame, Names},\n    symbolize::Kernel,\n    ui::keys,\n};"), 1);
    assert_eq!(one("profile/tree.rs", "fn f() -> crate::ui::App { todo() }"), 1);
    assert_eq!(one("formats/svg.rs", "use super::super::collector::Event;"), 1);
    assert_eq!(one("formats/mod.rs", "use super::collector::Event;"), 1);
    assert_eq!(one("main.rs", "use flametop::ui::App;"), 1);
    assert_eq!(one("cellar/mod.rs", ""), 1, "a room without a rule");

    assert_eq!(one("ui/app.rs", "// use crate::collector::Event;"), 0);
    assert_eq!(one("ui/app.rs", "use crate::profile::{Frame, collector};"), 0);
    assert_eq!(one("session/live.rs", "use crate::{cli, collector, formats, profile, symbolize, ui};"), 0);
    assert_eq!(one("main.rs", "use flametop::{cli, session};"), 0);
    assert_eq!(one("profile/mod.rs", "use other_crate::ui::Thing;"), 0);
}

#[test]
fn a_misplaced_library_is_found() {
    let one = |path: &str, text: &str| misplaced_libraries(&Source { path: path.to_owned(), text: text.to_owned() }).len();
    assert_eq!(one("session/mod.rs", "use crossterm::event::Event;"), 1);
    assert_eq!(one("profile/tree.rs", "fn f(frame: &mut ratatui::Frame) {}"), 1);
    assert_eq!(one("collector/sampler.rs", "use object::Object;"), 1);
    assert_eq!(one("unwind/cfi/machine.rs", "use gimli::Reader;"), 0);
    assert_eq!(one("profile/frame.rs", "use self::object::Object; self.object::<u32>();"), 0);
    assert_eq!(one("profile/frame.rs", "let object = frame.object;"), 0);
}

#[test]
fn misplaced_or_unexplained_unsafe_is_found() {
    let one = |path: &str, text: &str| misplaced_unsafe(&Source { path: path.to_owned(), text: text.to_owned() }).len();
    assert_eq!(one("ui/app.rs", "let x = unsafe { f() };"), 1);
    assert_eq!(one("collector/sys/perf_ring.rs", "let x = unsafe { f() };"), 1);
    assert_eq!(one("collector/sys/perf_ring.rs", "// SAFETY: f has no conditions.\nlet x = unsafe { f() };"), 0);
    assert_eq!(one("ui/app.rs", "// nothing unsafe here\nlet unsafe_code = \"unsafe\";"), 0);
}

#[test]
fn another_opening_of_a_path_is_found() {
    let one = |path: &str, text: &str| other_openings(&Source { path: path.to_owned(), text: text.to_owned() }).len();
    assert_eq!(one("collector/build_id.rs", "let file = File::open(path)?;"), 1);
    assert_eq!(one("collector/build_id.rs", "std::fs::File::open(format!(\"/proc/{tgid}/root{path}\"))"), 1);
    assert_eq!(one("symbolize/files.rs", "File::open(\n    format!(\"/proc/{tgid}/map_files/{start:x}-{end:x}\"))"), 1);
    assert_eq!(one("symbolize/source.rs", "fs::read(path); rustix::fs::openat2(root, path); OpenOptions::new()"), 3);
    assert_eq!(one("symbolize/source.rs", "#[cfg(test)]\nfn f() {}\nfn g() { fs::read_to_string(path); }"), 1);

    assert_eq!(one("collector/proc.rs", "fs::read(format!(\"/proc/{tgid}/stat\")); File::open(\"/proc/self/mem\")"), 0);
    assert_eq!(one("symbolize/fetch.rs", "std::fs::read_to_string(\"/etc/passwd\")"), 0);
    assert_eq!(one("symbolize/source.rs", "f();\n#[cfg(test)]\nmod tests { fn g() { fs::read(path); } }"), 1);
    assert_eq!(one("symbolize/source.rs", "f();\n#[cfg(test)]\nmod tests {\n    fn g() { fs::read(path); }\n}"), 0);
    assert_eq!(one("formats/save.rs", "File::open(path)"), 0, "the paths of another room are our user's");
}

#[test]
fn long_files_are_found_and_tests_are_not_counted() {
    let one = |path: &str, text: String| too_long(&Source { path: path.to_owned(), text }).len();
    assert_eq!(one("ui/app.rs", "f();\n".repeat(LONGEST_FILE + 1)), 1);
    assert_eq!(one("ui/app.rs", "// comment\n\n".repeat(LONGEST_FILE + 1)), 0);
    assert_eq!(one("ui/app.rs", format!("f();\n#[cfg(test)]\nmod tests {{\n{}}}", "g();\n".repeat(LONGEST_FILE))), 0);
    assert_eq!(one("main.rs", "f();\n".repeat(LONGEST_MAIN + 1)), 1);
}

#[test]
fn traces_of_a_machine_are_found() {
    let forbidden = forbidden_texts();
    for text in &forbidden {
        let source = Source { path: "README.md".to_owned(), text: format!("see {text}x") };
        assert_eq!(traces_of_machines(&source, &forbidden).len().min(1), 1, "{text}");
    }
    let source = Source { path: "README.md".to_owned(), text: ["some/wo", "rk/in/progress"].concat() };
    assert_eq!(traces_of_machines(&source, &forbidden), Vec::<String>::new());
}
