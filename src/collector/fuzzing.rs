//! Lets the fuzzer (`fuzz/`) call the readers of kernel data about processes, of interpreters' functions in samples, and of the cache.
//!
//! The fuzzer can call only public functions. The program itself calls none of these.

use super::processes::proc;
use super::tables::{any_table, device_of_any_mount};
use super::wire::perf_records::{self, Event, HEADER, Parsed};
use super::wire::records::{Record, Wish};
use super::wire::script::{Part, Role, Script, ScriptFrame};
use crate::object::numbers::u64_at;

/// The reader that gets the bytes of an input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CollectorReader {
    /// Side-band records of perf, one after the other.
    Events,
    /// One record of the ring buffer.
    Sample,
    /// `/proc/PID/stat`.
    Stat,
    /// `/proc/PID/maps`.
    Maps,
    /// `/proc/PID/cmdline`.
    CommandLine,
    /// `/proc/PID/mountinfo`.
    Mounts,
    /// The headers and notes of an ELF file.
    BuildId,
    /// A file of the cache, without its magic and version, and without its checksum.
    Cache,
}

impl CollectorReader {
    /// All readers. The first byte of an input selects one.
    pub const ALL: [CollectorReader; 8] = [
        CollectorReader::Events,
        CollectorReader::Sample,
        CollectorReader::Stat,
        CollectorReader::Maps,
        CollectorReader::CommandLine,
        CollectorReader::Mounts,
        CollectorReader::BuildId,
        CollectorReader::Cache,
    ];

    /// Gives the bytes to the reader and checks its result.
    ///
    /// # Errors
    ///
    /// The promise that the reader did not keep.
    pub fn read(self, bytes: &[u8]) -> Result<(), String> {
        match self {
            CollectorReader::Events => events(bytes),
            CollectorReader::Sample => sample(bytes),
            CollectorReader::Stat => {
                let found = proc::parse_stat(1, bytes);
                keep(found.is_none_or(|found| found.comm.last() == Some(&0)), "a name has no end")
            }
            CollectorReader::Maps => maps(bytes),
            CollectorReader::CommandLine => {
                let text = proc::readable_command_line(&mut bytes.to_owned());
                keep(!text.contains(char::is_control), "control characters in a command line")
            }
            CollectorReader::Mounts => {
                let _ = device_of_any_mount(&String::from_utf8_lossy(bytes));
                Ok(())
            }
            CollectorReader::BuildId => {
                let found = crate::object::build_id::of_image(bytes);
                keep(found.is_none_or(|id| (1..=20).contains(&id.as_bytes().len())), "a build id of another length")
            }
            CollectorReader::Cache => any_table(bytes),
        }
    }
}

/// Parses a record of an interpreter's functions, merges it with native frames, and replaces stack pointers of its sample.
///
/// ```text
/// native frames u8 │ stack pointers kept u8 │ stack pointers added u8 │ the record …
/// ```
///
/// # Errors
///
/// The promise that the reader did not keep.
pub fn script(input: &[u8]) -> Result<(), String> {
    let Some((&[native, kept, added], bytes)) = input.split_first_chunk() else { return Ok(()) };
    let sample = Script::sample_of(bytes);
    let Some(script) = Script::parse(bytes) else { return Ok(()) };
    merge(&script, native.into())?;
    // The record's own last words serve as stack pointers, so that some lie near its anchors.
    let pointers = bytes.rchunks_exact(8).filter_map(|word| u64_at(word, 0)).take(added.into());
    let Some(more) = Script::with_user(bytes, kept.into(), pointers) else { return Ok(()) };
    keep(Script::sample_of(&more) == sample, "the record is of another sample")?;
    let Some(more) = Script::parse(&more) else { return Err("a record with other stack pointers is none".to_owned()) };
    keep(more.end == script.end && more.functions().eq(script.functions()), "other functions than before")?;
    merge(&more, native.into())
}

/// Checks both ways of merging. Each native frame must come once and in order, and functions must come in the order of the record.
/// Functions without anchors must all come.
fn merge(script: &Script, native: usize) -> Result<(), String> {
    // The record's own functions decide which frames are loops.
    let mut loops: Vec<bool> = script.functions().map(|function| function.check & 1 == 1).collect();
    loops.resize(native, true);
    let role = |frame: usize| if loops.get(frame) == Some(&true) { Role::Loop } else { Role::Interpreter };
    let left = merged(script, native, |each| script.merge(native, role, each))?;
    keep(left == 0, "functions were lost")?;
    for is_whole in [false, true] {
        let left = merged(script, native, |each| script.merge_by_count(&loops, is_whole, each))?;
        keep(left == 0, "functions were lost")?;
    }
    Ok(())
}

/// Checks one way of merging, and returns how many functions are left.
fn merged(script: &Script, native: usize, merge: impl FnOnce(&mut dyn FnMut(Part))) -> Result<usize, String> {
    let (mut next, mut functions, mut is_in_order) = (0, Vec::new(), true);
    merge(&mut |part| match part {
        Part::Native(frame) => {
            is_in_order &= frame == next;
            next += 1;
        }
        Part::Function(function) => functions.push(function),
        Part::Missing => is_in_order &= script.lacks_functions(),
    });
    keep(is_in_order, "frames out of order")?;
    keep(next == native, "native frames were lost")?;
    let mut left: Vec<_> = script.functions().collect();
    let count = left.len();
    // The functions of several states may lie inside each other.
    if script.is_of_one_state() {
        keep(left.starts_with(&functions), "functions out of order")?;
    } else {
        let key = |function: &ScriptFrame| (function.code, function.instruction, function.check);
        left.sort_unstable_by_key(key);
        functions.sort_unstable_by_key(key);
        keep(left == functions, "other functions than those of the record")?;
    }
    Ok(count - functions.len().min(count))
}

fn keep(is_kept: bool, promise: &str) -> Result<(), String> {
    if is_kept { Ok(()) } else { Err(promise.to_owned()) }
}

fn events(bytes: &[u8]) -> Result<(), String> {
    let (mut wrong, mut length) = (None, 0);
    let rest = perf_records::split(bytes, |record| {
        length += record.len();
        let is_short = record.len() < HEADER;
        let is_wrong = match perf_records::parse(record) {
            Parsed::Event(timed) => match timed.event {
                // Each byte that is not UTF-8 becomes a character of three bytes.
                Event::Map { start, end, path, .. } => end < start || path.len() > 3 * record.len() || path.contains('\0'),
                _ => false,
            },
            Parsed::Ignored | Parsed::Malformed => false,
        };
        if is_short || is_wrong {
            wrong = Some(format!("{record:?}"));
        }
    });
    keep(length + rest == bytes.len(), "bytes were lost between records")?;
    wrong.map_or(Ok(()), Err)
}

fn sample(bytes: &[u8]) -> Result<(), String> {
    let _ = Wish::parse(bytes);
    let Some(record) = Record::parse(bytes) else { return Ok(()) };
    let (kernel, user) = (record.kernel().count(), record.user().filter(|frame| frame.address >> 56 == 0).count());
    keep(64 + 8 * (kernel + user) == bytes.len(), "frames were lost")
}

fn maps(bytes: &[u8]) -> Result<(), String> {
    let Some(list) = proc::parse_maps(bytes) else { return Ok(()) };
    keep(!list.cut && list.mapped.len() <= bytes.len() / 8, "more mappings than lines")?;
    keep(list.mapped.iter().all(|mapped| mapped.path.len() <= 3 * bytes.len()), "a path that was not there")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fuzzers_corpus_is_read() {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/collector");
        let mut read = 0;
        for entry in std::fs::read_dir(corpus).unwrap() {
            let bytes = std::fs::read(entry.unwrap().path()).unwrap();
            let (kind, bytes) = bytes.split_first().unwrap();
            let reader = CollectorReader::ALL[usize::from(*kind) % CollectorReader::ALL.len()];
            assert_eq!(reader.read(bytes), Ok(()), "{reader:?}");
            read += 1;
        }
        assert!(read >= CollectorReader::ALL.len());
    }

    #[test]
    fn the_fuzzers_records_of_functions_are_read() {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/interpreters");
        for name in ["script", "script-cut", "script-without-frames"] {
            let bytes = std::fs::read(format!("{corpus}/{name}")).unwrap();
            assert_eq!(script(&bytes[1..]), Ok(()), "{name}");
            assert!(Script::parse(&bytes[4..]).unwrap().functions().count() > 1, "{name}");
        }
    }
}
