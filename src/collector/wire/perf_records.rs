//! Parses perf's side-band records into typed events: mappings, forks, program starts, exits, and their times.
//!
//! Layouts are those of `perf_event_open(2)`. Each record ends with the sample id that flametop requests, `{pid, tid, time}`:
//!
//! ```text
//! MMAP2  | header 8 | pid 4 | tid 4 | addr 8 | len 8 | pgoff 8 | maj 4 min 4 ino 8 gen 8  | prot 4 | flags 4 | path… | id 16 |
//!                                                              | or: size 1, 3, build id 20 |
//! COMM   | header 8 | pid 4 | tid 4 | name… | id 16 |
//! FORK   | header 8 | pid 4 | ppid 4 | tid 4 | ptid 4 | time 8 | id 16 |        EXIT is the same
//! LOST   | header 8 | id 8 | lost 8 | id 16 |
//! ```

use perf_event_open_sys::bindings as sys;

use super::records::COMM_LENGTH;
use crate::object::numbers::{u16_at, u32_at, u64_at};
use crate::profile::BuildId;

/// Length of `struct perf_event_header`.
pub(crate) const HEADER: usize = 8;

/// Length of the sample id at each record's end.
const SAMPLE_ID: usize = 16;

/// Identity of a file, to distinguish two files of the same path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Identity {
    /// The kernel read the build id from the file when it was mapped.
    BuildId(BuildId),
    /// The kernel did not read it; the file's inode was given instead.
    Inode(Inode),
}

/// A file, with the numbers that the kernel gives in a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Inode {
    /// The device, as `st_dev` of `stat`.
    pub(crate) device: u64,
    pub(crate) number: u64,
    /// Its `i_generation`: a later file with the same number has another one. Events contain it, `/proc` does not.
    pub(crate) generation: Option<u32>,
}

/// A change of processes, threads, mappings or kernel code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// Executable memory was mapped.
    Map {
        /// The process.
        tgid: u32,
        /// First address.
        start: u64,
        /// Address after the last.
        end: u64,
        /// Offset of the first address in the file.
        offset: u64,
        /// The file.
        identity: Identity,
        /// The process's name for it, or `[vdso]`, `//anon`, …
        path: String,
    },
    /// A process runs another program from here on, or its main thread has a new name. Names of other threads are not needed, because
    /// samples contain them.
    Name {
        /// The process.
        tgid: u32,
        /// Whether the process runs another program.
        exec: bool,
        /// The name, padded with zero bytes.
        comm: [u8; COMM_LENGTH],
    },
    /// A thread was made. If `tgid` and `parent` differ, its process is new.
    Fork {
        /// The process that has the new thread.
        tgid: u32,
        /// The process that made it.
        parent: u32,
    },
    /// A thread ended.
    Exit {
        /// Its process.
        tgid: u32,
        /// The thread.
        tid: u32,
    },
    /// The kernel got or lost code, such as BPF programs and trampolines.
    KernelSymbol,
    /// This many events did not fit into the ring.
    Lost(u64),
    /// The ring was so full that mappings may have been lost.
    Full,
}

impl Event {
    /// Tells whether the event starts another program in this process: a fork or an exec.
    pub(crate) fn begins_program(&self, process: u32) -> bool {
        match self {
            Event::Name { tgid, exec, .. } => *exec && *tgid == process,
            Event::Fork { tgid, parent } => tgid != parent && *tgid == process,
            _ => false,
        }
    }

    /// Tells whether this event names a main thread, and `next` names the same thread again.
    pub(crate) fn is_renamed_by(&self, next: &Event) -> bool {
        let renamed = |event: &Event| if let Event::Name { tgid, exec: false, .. } = event { Some(*tgid) } else { None };
        renamed(self).is_some() && renamed(self) == renamed(next)
    }
}

/// An event and its time: nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Timed {
    pub(crate) time: u64,
    pub(crate) event: Event,
}

/// Result of parsing a record: an event, a record that is not needed, or a malformed one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    Event(Timed),
    Ignored,
    Malformed,
}

/// Parses one record, which includes its header.
pub(crate) fn parse(record: &[u8]) -> Parsed {
    let Some(kind) = u32_at(record, 0) else { return Parsed::Malformed };
    let event = match kind {
        sys::PERF_RECORD_MMAP2 => mmap2(record),
        sys::PERF_RECORD_COMM => match name(record) {
            Some(None) => return Parsed::Ignored,
            named => named.flatten(),
        },
        sys::PERF_RECORD_FORK => fork(record),
        sys::PERF_RECORD_EXIT => exit(record),
        sys::PERF_RECORD_KSYMBOL => Some(Event::KernelSymbol),
        sys::PERF_RECORD_LOST => u64_at(record, HEADER + 8).map(Event::Lost),
        _ => return Parsed::Ignored,
    };
    let time = record.len().checked_sub(8).and_then(|offset| u64_at(record, offset));
    match (event, time) {
        (Some(event), Some(time)) => Parsed::Event(Timed { time, event }),
        _ => Parsed::Malformed,
    }
}

fn mmap2(record: &[u8]) -> Option<Event> {
    const FILE: usize = HEADER + 32;
    const PATH: usize = FILE + 32;
    let misc = u32::from(u16_at(record, 4)?);
    let identity = if misc & sys::PERF_RECORD_MISC_MMAP_BUILD_ID != 0 {
        let length = usize::from(*record.get(FILE)?);
        Identity::BuildId(BuildId::new(record.get(FILE + 4..FILE + 4 + length.min(20))?)?)
    } else {
        Identity::Inode(Inode {
            device: libc::makedev(u32_at(record, FILE)?, u32_at(record, FILE + 4)?),
            number: u64_at(record, FILE + 8)?,
            // Only 32 of its 64 bits are used.
            generation: Some(u32_at(record, FILE + 16)?),
        })
    };
    let path = record.get(PATH..record.len().checked_sub(SAMPLE_ID)?)?;
    let start = u64_at(record, HEADER + 8)?;
    Some(Event::Map {
        tgid: u32_at(record, HEADER)?,
        start,
        end: start.checked_add(u64_at(record, HEADER + 16)?)?,
        offset: u64_at(record, HEADER + 24)?,
        identity,
        path: text(path),
    })
}

/// Parses a name. Returns `Some(None)` for the name of a thread that is not the main thread.
fn name(record: &[u8]) -> Option<Option<Event>> {
    let given = record.get(HEADER + 8..record.len().checked_sub(SAMPLE_ID)?)?;
    let mut comm = [0; COMM_LENGTH];
    comm.iter_mut().zip(given).for_each(|(to, from)| *to = *from);
    let exec = u32::from(u16_at(record, 4)?) & sys::PERF_RECORD_MISC_COMM_EXEC != 0;
    let (tgid, tid) = (u32_at(record, HEADER)?, u32_at(record, HEADER + 4)?);
    Some((exec || tgid == tid).then_some(Event::Name { tgid, exec, comm }))
}

fn fork(record: &[u8]) -> Option<Event> {
    Some(Event::Fork { tgid: u32_at(record, HEADER)?, parent: u32_at(record, HEADER + 4)? })
}

fn exit(record: &[u8]) -> Option<Event> {
    Some(Event::Exit { tgid: u32_at(record, HEADER)?, tid: u32_at(record, HEADER + 8)? })
}

/// Returns the text before the first zero byte. Bytes that are not UTF-8 are replaced.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned()
}

/// Calls `each` with every record of `bytes`. Returns the number of malformed bytes at the end (usually 0).
pub(crate) fn split(bytes: &[u8], mut each: impl FnMut(&[u8])) -> usize {
    let mut rest = bytes;
    while !rest.is_empty() {
        let size = u16_at(rest, 6).map_or(0, usize::from);
        match rest.split_at_checked(size) {
            Some((record, after)) if size >= HEADER => {
                each(record);
                rest = after;
            }
            _ => return rest.len(),
        }
    }
    0
}

/// Returns the bytes of a name of at most 15 characters; for names read from `/proc`.
pub(crate) fn comm_bytes(name: &[u8]) -> [u8; COMM_LENGTH] {
    let mut comm = [0; COMM_LENGTH];
    comm.iter_mut().take(COMM_LENGTH - 1).zip(name).for_each(|(to, from)| *to = *from);
    comm
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, misc: u16, body: &[u8], time: u64) -> Vec<u8> {
        let size = u16::try_from(HEADER + body.len() + SAMPLE_ID).unwrap();
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend(misc.to_ne_bytes());
        bytes.extend(size.to_ne_bytes());
        bytes.extend(body);
        bytes.extend([0; 8]);
        bytes.extend(time.to_ne_bytes());
        bytes
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn mmap_body(file: &[u8; 24], path: &[u8]) -> Vec<u8> {
        let mut body = words(&[10, 11]);
        [0x7f00_0000_1000u64, 0x2000, 0x3000].iter().for_each(|number| body.extend(number.to_ne_bytes()));
        body.extend(file);
        body.extend(words(&[5, 2]));
        body.extend(path);
        body
    }

    #[test]
    fn a_mapping_is_known_by_inode_or_by_build_id() {
        let mut file = [0; 24];
        file[..4].copy_from_slice(&8u32.to_ne_bytes());
        file[4..8].copy_from_slice(&1u32.to_ne_bytes());
        file[8..16].copy_from_slice(&99u64.to_ne_bytes());
        file[16..20].copy_from_slice(&7u32.to_ne_bytes());
        let body = mmap_body(&file, b"/usr/lib/libc.so.6\0\0\0\0\0\0");
        let expected = |identity| Event::Map {
            tgid: 10,
            start: 0x7f00_0000_1000,
            end: 0x7f00_0000_3000,
            offset: 0x3000,
            identity,
            path: "/usr/lib/libc.so.6".into(),
        };
        let event = expected(Identity::Inode(Inode { device: libc::makedev(8, 1), number: 99, generation: Some(7) }));
        assert_eq!(parse(&record(sys::PERF_RECORD_MMAP2, 2, &body, 7)), Parsed::Event(Timed { time: 7, event }));

        let mut file = [0; 24];
        file[0] = 20;
        file[4..].fill(0xab);
        let body = mmap_body(&file, b"/usr/lib/libc.so.6\0\0\0\0\0\0");
        let event = expected(Identity::BuildId(BuildId::new(&[0xab; 20]).unwrap()));
        let misc = u16::try_from(sys::PERF_RECORD_MISC_MMAP_BUILD_ID).unwrap() | 2;
        assert_eq!(parse(&record(sys::PERF_RECORD_MMAP2, misc, &body, 7)), Parsed::Event(Timed { time: 7, event }));
    }

    #[test]
    fn exec_fork_and_exit_are_told_apart() {
        let mut body = words(&[4, 4]);
        body.extend(b"sh\0\0\0\0\0\0");
        let misc = u16::try_from(sys::PERF_RECORD_MISC_COMM_EXEC).unwrap();
        let event = Event::Name { tgid: 4, exec: true, comm: comm_bytes(b"sh") };
        assert_eq!(parse(&record(sys::PERF_RECORD_COMM, misc, &body, 1)), Parsed::Event(Timed { time: 1, event }));

        let rename = |tid| parse(&record(sys::PERF_RECORD_COMM, 0, &[words(&[4, tid]), b"worker\0\0".to_vec()].concat(), 1));
        assert!(matches!(rename(4), Parsed::Event(Timed { event: Event::Name { tgid: 4, exec: false, .. }, .. })));
        assert_eq!(rename(5), Parsed::Ignored);

        let mut body = words(&[5, 4, 6, 4]);
        body.extend(0u64.to_ne_bytes());
        let event = Event::Fork { tgid: 5, parent: 4 };
        assert_eq!(parse(&record(sys::PERF_RECORD_FORK, 0, &body, 2)), Parsed::Event(Timed { time: 2, event }));
        let event = Event::Exit { tgid: 5, tid: 6 };
        assert_eq!(parse(&record(sys::PERF_RECORD_EXIT, 0, &body, 3)), Parsed::Event(Timed { time: 3, event }));
    }

    #[test]
    fn cut_records_are_malformed_and_unknown_ones_ignored() {
        let whole = record(sys::PERF_RECORD_MMAP2, 0, &mmap_body(&[0; 24], b"/x\0\0\0\0\0\0"), 1);
        for length in 0..HEADER + 32 + 24 {
            assert_eq!(parse(&whole[..length]), Parsed::Malformed, "{length} bytes");
        }
        assert_eq!(parse(&record(4711, 0, &[], 1)), Parsed::Ignored);
    }

    #[test]
    fn a_buffer_is_split_into_records_and_a_broken_end_is_told() {
        let one = record(sys::PERF_RECORD_EXIT, 0, &[0; 24], 1);
        let mut buffer = [one.clone(), one.clone()].concat();
        let mut count = 0;
        assert_eq!(split(&buffer, |_| count += 1), 0);
        assert_eq!(count, 2);
        buffer.extend([0; 16]);
        assert_eq!(split(&buffer, |_| ()), 16);
    }
}
