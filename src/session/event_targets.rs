//! Turns the text of `-e` into requests for the collector. Functions of programs are looked up here, in the programs' symbols.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::collector::probes::{CodeFile, NamePattern, UserPlace, code_files, nearest};
use crate::collector::{EventRequest, EventSpec};
use crate::profile::{EventSource, FileOffset, Tgid};
use crate::symbolize::{FunctionPlace, code_at, functions_of, program_called};

/// Directories of libraries, for events whose library no watched process has mapped. The same directories below `/usr` are listed as well.
const LIBRARY_DIRECTORIES: [&str; 5] = ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib"];

/// The watched command and processes: an event that names no file is looked up in their files.
#[derive(Default)]
pub(super) struct Watched<'a> {
    /// A command that flametop will start.
    pub(super) command: Option<&'a OsStr>,
    /// Processes.
    pub(super) pids: &'a [u32],
}

/// A file that may have the function: a path for opening it, and its name.
struct Candidate {
    path: PathBuf,
    name: String,
}

/// Reads the events of the command line, and whether the clock is one of them. Without events, the clock is the only source.
///
/// # Errors
///
/// A sentence that names the event and its mistake.
pub(super) fn read(events: &[String], watched: &Watched<'_>) -> Result<(bool, Vec<EventRequest>)> {
    let mut clock = events.is_empty();
    let mut requests = Vec::new();
    for text in events {
        let request = request(text, watched)?;
        if matches!(request.spec, EventSpec::Clock) {
            clock = true;
        } else {
            requests.push(request);
        }
    }
    Ok((clock, requests))
}

/// Returns the event that is shown and written first: the first one of the command line, since events of different kinds cannot be added.
/// Returns `None` if no event was given: then there is only the clock. Sources are numbered in the order of the command line.
pub(super) fn first(events: &[String]) -> Option<EventSource> {
    events.first().map(|event| if is_clock(event) { EventSource::CLOCK } else { EventSource(1) })
}

/// Whether the clock samples with these events: it does without any.
pub(super) fn has_clock(events: &[String]) -> bool {
    events.is_empty() || events.iter().any(|event| is_clock(event))
}

fn is_clock(event: &str) -> bool {
    matches!(EventSpec::parse(event), Ok(EventSpec::Clock))
}

/// Parses one event, and finds its places.
pub(super) fn request(text: &str, watched: &Watched<'_>) -> Result<EventRequest> {
    let spec = match EventSpec::parse(text) {
        Ok(spec) => spec,
        Err(why) => bail!("`{text}` is not an event: {why}"),
    };
    let places = match &spec {
        EventSpec::User { file, functions, .. } => places(text, file.as_deref(), functions, watched)?,
        _ => Vec::new(),
    };
    Ok(EventRequest { name: text.to_owned(), spec, places, is_agreed: true })
}

/// Finds the functions in their files.
fn places(event: &str, file: Option<&str>, wanted: &NamePattern, watched: &Watched<'_>) -> Result<Vec<UserPlace>> {
    let candidates = match file {
        Some(file) => named(event, file, watched)?,
        None => {
            let own = of_watched(watched);
            if own.is_empty() {
                bail!("`{event}` names no program or library: write uprobe:FILE:FUNC, or choose processes with -p");
            }
            own
        }
    };
    let mut places = Vec::new();
    let mut names = Vec::new();
    let (mut unread, mut chooser) = (None, false);
    for candidate in &candidates {
        let functions = match functions_of(&candidate.path) {
            Ok(functions) => functions,
            Err(why) => {
                unread = Some(format!("{}: {why}", candidate.name));
                continue;
            }
        };
        let (choosing, found): (Vec<&FunctionPlace>, Vec<_>) =
            functions.iter().filter(|function| is_meant(function, wanted)).partition(|function| function.chooses);
        if wanted.exact().is_some() && !choosing.is_empty() {
            // This name selects a function at load time (IFUNC). A second symbol of the same name serves only programs that were linked
            // long ago: an event there would count nothing.
            chooser = true;
            continue;
        }
        let mut offsets: Vec<FileOffset> = found.iter().map(|function| function.offset).collect();
        offsets.dedup();
        let code = code_at(&candidate.path, &offsets).unwrap_or_default().into_iter().chain(std::iter::repeat([0; 4]));
        let place = |(offset, begins): (FileOffset, _)| UserPlace { path: candidate.path.clone(), offset: offset.0, begins };
        places.extend(offsets.into_iter().zip(code).map(place));
        if places.is_empty() {
            names.extend(functions.iter().map(FunctionPlace::name));
        }
    }
    if !places.is_empty() {
        return Ok(places);
    }
    let looked: Vec<&str> = candidates.iter().map(|candidate| candidate.name.as_str()).collect();
    let looked = looked.join(", ");
    if chooser {
        bail!("`{event}` is an IFUNC resolver in {looked}; name the function it selects instead");
    }
    if let Some(unread) = unread.filter(|_| names.is_empty()) {
        bail!("failed to look for {event} in {unread}");
    }
    let near = wanted.exact().map(|name| nearest(name, names.iter().map(String::as_str))).unwrap_or_default();
    let near = if near.is_empty() { String::new() } else { format!(": is it {}?", near.join(", ")) };
    bail!("failed to take stacks at {event}: no such function in {looked}{near}");
}

fn is_meant(function: &FunctionPlace, wanted: &NamePattern) -> bool {
    wanted.matches(&function.symbol) || wanted.matches(&function.name())
}

/// Returns the files of this path or name: those of the watched processes, else those of the system.
fn named(event: &str, file: &str, watched: &Watched<'_>) -> Result<Vec<Candidate>> {
    if file.contains('/') {
        let path = PathBuf::from(file);
        if !path.exists() {
            bail!("failed to take stacks at {event}: there is no file {file}");
        }
        return Ok(vec![Candidate { path, name: file.to_owned() }]);
    }
    let own: Vec<Candidate> =
        of_watched(watched).into_iter().filter(|candidate| is_called(Path::new(&candidate.name), file)).collect();
    if !own.is_empty() {
        return Ok(own);
    }
    match library(file).or_else(|| program(OsStr::new(file))) {
        Some(path) => {
            let name = path.display().to_string();
            Ok(vec![Candidate { path, name }])
        }
        None => bail!("failed to take stacks at {event}: there is no program or library `{file}`; write its path"),
    }
}

/// Tells whether a file is the wanted library: `libc` means `libc.so.6` and `libc-2.31.so`.
fn is_called(path: &Path, wanted: &str) -> bool {
    let Some(name) = path.file_name().and_then(OsStr::to_str) else { return false };
    let rest = name.strip_prefix(wanted);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(".so") || (rest.starts_with('-') && rest.contains(".so")))
}

/// Returns the files that the processes have mapped as code, each once, and the command's own file.
fn of_watched(watched: &Watched<'_>) -> Vec<Candidate> {
    let files = watched.pids.iter().flat_map(|pid| code_files(Tgid(*pid)));
    let mut candidates: Vec<Candidate> = Vec::new();
    for CodeFile { link, path } in files {
        // Processes of one program have the same files. Two files of the same path are taken for the same file.
        if candidates.iter().all(|known| known.name != path) {
            candidates.push(Candidate { path: link, name: path });
        }
    }
    if let Some(path) = watched.command.and_then(program) {
        let name = path.display().to_string();
        candidates.push(Candidate { path, name });
    }
    candidates
}

/// Returns a library in the usual directories, or in their subdirectories for the machine's architecture.
fn library(wanted: &str) -> Option<PathBuf> {
    let architecture = format!("{}-linux-gnu", std::env::consts::ARCH);
    let directories = LIBRARY_DIRECTORIES.iter().flat_map(|directory| {
        let directory = PathBuf::from(directory);
        [directory.join(&architecture), directory]
    });
    directories.into_iter().find_map(|directory| {
        let mut found: Vec<PathBuf> = fs::read_dir(directory).ok()?.flatten().map(|entry| entry.path()).collect();
        found.retain(|path| is_called(path, wanted) && is_elf(path));
        found.sort();
        found.into_iter().next()
    })
}

/// Tells whether a file is an ELF file: linker scripts have names like libraries.
fn is_elf(path: &Path) -> bool {
    use std::io::Read;
    let mut magic = [0; 4];
    fs::metadata(path).is_ok_and(|meta| meta.is_file())
        && fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok()
        && magic == *b"\x7fELF"
}

/// Finds a program as a shell does.
fn program(name: &OsStr) -> Option<PathBuf> {
    let path = Path::new(name);
    if path.components().count() > 1 {
        return Some(path.to_owned()).filter(|path| path.exists());
    }
    program_called(name.to_str()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_called_without_their_versions() {
        let called = |name: &str, wanted: &str| is_called(Path::new(name), wanted);
        assert!(called("/lib/libc.so.6", "libc") && called("/lib/libc-2.31.so", "libc") && called("/x/libc.so.6", "libc.so.6"));
        assert!(!called("/lib/libcrypt.so.1", "libc") && !called("/lib/libc.txt", "libc"));
        assert!(called("/usr/bin/node", "node"));
    }

    #[test]
    fn functions_of_libraries_are_found_and_misspelt_ones_are_guessed() {
        let found = request("uprobe:libc:malloc", &Watched::default()).unwrap();
        assert_eq!(found.places.len(), 1);
        assert!(found.places[0].path.to_string_lossy().contains("libc"));
        let error = |text: &str| request(text, &Watched::default()).unwrap_err().to_string();
        assert!(error("uprobe:libc:mallco").contains("is it malloc"), "{}", error("uprobe:libc:mallco"));
        assert!(error("uprobe:libc:memcpy").contains("IFUNC"), "{}", error("uprobe:libc:memcpy"));
        assert!(error("uprobe:malloc").contains("-p"), "{}", error("uprobe:malloc"));
        assert!(error("uprobe:nosuchlibrary:f").contains("nosuchlibrary"));
        assert!(error("nothing:like:this").contains("is not an event"));
    }

    /// A function that has a symbol: the compiler may inline the tests.
    #[inline(never)]
    fn a_function_of_the_test() -> u32 {
        std::hint::black_box(std::process::id())
    }

    #[test]
    fn a_process_of_ones_own_has_its_files() {
        let pids = [a_function_of_the_test()];
        let watched = Watched { command: None, pids: &pids };
        let here = request("uretprobe:a_function_of_the_test", &watched);
        // Its name is a path of modules.
        assert!(here.is_err());
        let here = request("uretprobe:*::a_function_of_the_test", &watched).unwrap();
        assert!(!here.places.is_empty() && here.places.iter().all(|place| place.path.starts_with("/proc")));
    }

    #[test]
    fn the_clock_is_meant_where_nothing_else_is() {
        let read = |events: &[&str]| {
            let events: Vec<String> = events.iter().map(|event| (*event).to_owned()).collect();
            let (clock, requests) = read(&events, &Watched::default()).unwrap();
            (clock, requests.len())
        };
        assert_eq!([read(&[]), read(&["page-faults"]), read(&["page-faults", "cpu"])], [(true, 0), (false, 1), (true, 1)]);
        let first = |events: &[&str]| first(&events.iter().map(|event| (*event).to_owned()).collect::<Vec<_>>());
        assert_eq!(
            [first(&[]), first(&["cs", "cpu"]), first(&["cpu", "cs"])],
            [None, Some(EventSource(1)), Some(EventSource::CLOCK)]
        );
    }
}
