//! Reads `/proc`: once at the start for the list of processes, and once for the mappings of each process.

use std::fs;
use std::io::{self, BufRead, Read};
use std::ops::Range;

use super::mappings::MAX_MAPPINGS;
use crate::collector::wire::perf_records::{Identity, Inode, comm_bytes};
use crate::collector::wire::records::COMM_LENGTH;
use crate::object::process::directory;
use crate::profile::{UserId, sanitize};

/// Longest command line kept, in bytes: it is for display.
const MAX_COMMAND_LINE: usize = 4096;

/// Most bytes that are read of a list of mappings. 65,530 lines of 150 bytes are 10 MB; with paths of 4 KB they would be 268 MB.
const MAX_LIST: u64 = 16 << 20;

/// Bytes that are read at once. The kernel returns a page at a time.
const MAPS_BUFFER: usize = 8 << 10;

/// A process as described by `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FoundProcess {
    pub(crate) tgid: u32,
    pub(crate) parent: u32,
    pub(crate) threads: u32,
    pub(crate) comm: [u8; COMM_LENGTH],
    /// Whether it was forked less than two seconds ago and has not called execve since: it has its parent's mappings.
    pub(crate) is_young_copy: bool,
}

/// `PF_FORKNOEXEC` of include/linux/sched.h: the same since 2.0.
const FORKED_WITHOUT_EXEC: u64 = 0x40;

/// Returns all processes that exist now.
pub(crate) fn scan() -> io::Result<Vec<FoundProcess>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Ok(entry) = entry else { continue };
        if let Some(tgid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) {
            // The process may be gone by now. That is no failure.
            found.extend(stat(tgid));
        }
    }
    Ok(found)
}

/// Reads about one process, if it exists.
pub(crate) fn stat(tgid: u32) -> Option<FoundProcess> {
    parse_stat(tgid, &fs::read(format!("/proc/{tgid}/stat")).ok()?)
}

/// Returns the user who runs a process, if it exists.
pub(crate) fn user(tgid: u32) -> Option<UserId> {
    let status = fs::read_to_string(format!("/proc/{tgid}/status")).ok()?;
    let real = status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_ascii_whitespace().next()?;
    real.parse().ok().map(UserId)
}

/// Parses `pid (name) state ppid … num_threads …`. The name may contain any character, so it ends at the last parenthesis.
pub(crate) fn parse_stat(tgid: u32, stat: &[u8]) -> Option<FoundProcess> {
    let open = memchr::memchr(b'(', stat)?;
    let close = memchr::memrchr(b')', stat)?;
    let name = stat.get(open + 1..close)?;
    // After the name: state (3rd field of proc(5)), ppid (4th), …, flags (9th), …, num_threads (20th), …, starttime (22nd).
    let rest = std::str::from_utf8(stat.get(close + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace().skip(1);
    let parent = fields.next()?.parse().ok()?;
    let flags: u64 = fields.nth(4)?.parse().ok()?;
    let threads = fields.nth(10)?.parse().ok()?;
    let began: u64 = fields.nth(1)?.parse().ok()?;
    // `began` is in ticks since boot.
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime).tv_sec.unsigned_abs();
    let is_young = began / rustix::param::clock_ticks_per_second() + 1 >= now;
    let is_young_copy = flags & FORKED_WITHOUT_EXEC != 0 && is_young;
    Some(FoundProcess { tgid, parent, threads, comm: comm_bytes(name), is_young_copy })
}

/// Returns the arguments joined by spaces; empty for kernel threads and for processes that are gone.
///
/// Reads only once, because each read locks the process's memory, and this is done for every program that is sampled.
pub(crate) fn command_line(tgid: u32) -> String {
    let mut bytes = [0; MAX_COMMAND_LINE];
    let read = fs::File::open(directory(tgid).join("cmdline")).and_then(|mut file| file.read(&mut bytes)).unwrap_or(0);
    readable_command_line(bytes.get_mut(..read).unwrap_or_default())
}

pub(crate) fn readable_command_line(arguments: &mut [u8]) -> String {
    let ends = arguments.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let arguments = arguments.get_mut(..ends).unwrap_or_default();
    arguments.iter_mut().filter(|byte| **byte == 0).for_each(|byte| *byte = b' ');
    sanitize(&String::from_utf8_lossy(arguments)).into_owned()
}

/// A mapping as described by `/proc/PID/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapped {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) offset: u64,
    pub(crate) identity: Identity,
    pub(crate) path: String,
}

/// The executable mappings of a process.
#[derive(Clone, Default, Debug)]
pub(crate) struct MappedList {
    pub(crate) mapped: Vec<Mapped>,
    /// Whether the list was longer than [`MAX_LIST`] or had more than [`MAX_MAPPINGS`] mappings.
    pub(crate) cut: bool,
}

/// Reads the executable mappings of a process; `None` if it is gone. Waits for the process's memory lock.
pub(crate) fn maps(tgid: u32) -> Option<MappedList> {
    parse_maps(fs::File::open(directory(tgid).join("maps")).ok()?)
}

/// Reads our own executable mappings. Our memory lock is never held for long.
pub(crate) fn own_maps() -> Vec<Mapped> {
    maps(std::process::id()).unwrap_or_default().mapped
}

/// Reads lines until there are [`MAX_MAPPINGS`] executable mappings or [`MAX_LIST`] bytes.
pub(crate) fn parse_maps(list: impl Read) -> Option<MappedList> {
    let mut list = io::BufReader::with_capacity(MAPS_BUFFER, list).take(MAX_LIST);
    let (mut found, mut line) = (MappedList::default(), Vec::new());
    loop {
        line.clear();
        // If the process lost its memory meanwhile, the lines so far count.
        if list.read_until(b'\n', &mut line).unwrap_or(0) == 0 {
            found.cut = list.limit() == 0;
            return Some(found);
        }
        if line.pop_if(|last| *last == b'\n').is_none() && list.limit() == 0 {
            found.cut = true;
            return Some(found);
        }
        // Most lines are not executable and need no conversion to text.
        if is_executable(&line) {
            if found.mapped.len() >= MAX_MAPPINGS {
                found.cut = true;
                return Some(found);
            }
            found.mapped.extend(parse_mapping(&String::from_utf8_lossy(&line)));
        }
    }
}

/// Whether a line of `/proc/PID/maps` is about executable memory: ` rwxp ` follows the addresses.
fn is_executable(line: &[u8]) -> bool {
    memchr::memchr(b' ', line).and_then(|space| line.get(space + 3)) == Some(&b'x')
}

/// Reads the mapping right behind an executable mapping of a process. `None` if the executable mapping is no longer there, or if nothing
/// is mapped right behind it. Waits for the process's memory lock.
pub(crate) fn behind(tgid: u32, range: &Range<u64>) -> Option<Mapped> {
    parse_behind(fs::File::open(directory(tgid).join("maps")).ok()?, range)
}

fn parse_behind(list: impl Read, range: &Range<u64>) -> Option<Mapped> {
    let mut list = io::BufReader::with_capacity(MAPS_BUFFER, list).take(MAX_LIST);
    let wanted = format!("{:08x}-{:08x} ", range.start, range.end);
    let (mut line, mut is_found) = (Vec::new(), false);
    loop {
        line.clear();
        if list.read_until(b'\n', &mut line).unwrap_or(0) == 0 {
            return None;
        }
        line.pop_if(|last| *last == b'\n');
        if is_found {
            return parse_mapping(&String::from_utf8_lossy(&line)).filter(|behind| behind.start == range.end);
        }
        is_found = line.starts_with(wanted.as_bytes()) && is_executable(&line);
    }
}

/// Parses `start-end perms offset major:minor inode path`.
fn parse_mapping(line: &str) -> Option<Mapped> {
    let mut rest = line;
    let mut field = || {
        let (field, after) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = after;
        field
    };
    let (range, _permissions, offset, device, inode) = (field(), field(), field(), field(), field());
    let (start, end) = range.split_once('-')?;
    let (major, minor) = device.split_once(':')?;
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let hex32 = |text| u32::from_str_radix(text, 16).ok();
    let identity = Identity::Inode(Inode {
        device: libc::makedev(hex32(major)?, hex32(minor)?),
        number: inode.parse().ok()?,
        generation: None,
    });
    // The kernel writes a line feed in a path as \012; events of perf contain the line feed itself.
    let path = rest.trim_start().replace("\\012", "\n");
    Some(Mapped { start: hex(start)?, end: hex(end)?, offset: hex(offset)?, identity, path })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_does_not_confuse_stat() {
        let mut line = b"12 (a) b (c) S 7".to_vec();
        line.extend(" 0".repeat(15).bytes());
        line.extend(b" 9 0 0");
        let found = parse_stat(12, &line).unwrap();
        assert_eq!((found.parent, found.threads, found.is_young_copy), (7, 9, false));
        // state ppid, 4 fields, flags, 10 fields, threads, itrealvalue, starttime.
        let copy = |flags: u32, began: u64| {
            parse_stat(12, format!("12 (a) S 7 0 0 0 0 {flags}{} 9 0 {began}", " 0".repeat(10)).as_bytes())
        };
        let young = |flags, began| copy(flags, began).unwrap().is_young_copy;
        assert_eq!([young(0x40, u64::MAX), young(0x40, 0), young(0, u64::MAX)], [true, false, false]);
        assert_eq!(found.comm, comm_bytes(b"a) b (c"));
        assert_eq!(parse_stat(12, b"12 (x"), None);
        assert_eq!(parse_stat(12, b""), None);
    }

    #[test]
    fn a_line_of_maps_is_read_with_spaces_in_its_path() {
        let line = "7f00-8f00 r-xp 00001000 08:01 1234                       /opt/my app/lib.so (deleted)";
        let mapped = parse_mapping(line).unwrap();
        assert_eq!((mapped.start, mapped.end, mapped.offset), (0x7f00, 0x8f00, 0x1000));
        assert_eq!(mapped.identity, Identity::Inode(Inode { device: libc::makedev(8, 1), number: 1234, generation: None }));
        assert_eq!(mapped.path, "/opt/my app/lib.so (deleted)");
        assert_eq!(parse_mapping("7f00-8f00 r-xp 00000000 00:00 0 ").map(|mapped| mapped.path), Some(String::new()));
        assert_eq!(parse_mapping("nonsense"), None);
    }

    #[test]
    fn the_mapping_behind_another_is_found_if_they_touch() {
        let lines = "00401000-00500000 r-xp 00000000 00:00 0 \n00500000-00600000 rw-p 00100000 08:01 12 /opt/a b\n\
                     00600000-00700000 r-xp 00000000 00:00 0\n00710000-00800000 r-xp 00000000 00:00 0";
        let of = |range: Range<u64>| parse_behind(lines.as_bytes(), &range);
        let found = of(0x401000..0x500000).unwrap();
        assert_eq!((found.start, found.end, found.offset, &*found.path), (0x50_0000, 0x60_0000, 0x10_0000, "/opt/a b"));
        // Not executable; of another size; a gap; the last; gone.
        let none = [0x500000..0x600000, 0x401000..0x402000, 0x600000..0x700000, 0x710000..0x800000, 1..2];
        assert!(none.into_iter().all(|range| of(range).is_none()));
        let is_touched = |own: &Mapped| behind(std::process::id(), &(own.start..own.end)).is_some();
        assert!(own_maps().iter().any(is_touched));
    }

    #[test]
    fn we_find_ourselves() {
        let me = std::process::id();
        let found = scan().unwrap();
        let own = found.iter().find(|found| found.tgid == me).unwrap();
        assert!(own.threads >= 1);
        assert!(command_line(me).contains("flametop"));
        assert!(own_maps().iter().any(|mapped| mapped.path == "[vdso]"));
    }

    #[test]
    fn a_list_without_end_is_cut() {
        let line = b"7f00-8f00 r-xp 00001000 08:01 1234 /lib.so\n";
        let whole = parse_maps(line.repeat(3).as_slice()).unwrap();
        assert_eq!((whole.mapped.len(), whole.cut), (3, false));
        let long = parse_maps(line.repeat(MAX_MAPPINGS + 1).as_slice()).unwrap();
        assert_eq!((long.mapped.len(), long.cut), (MAX_MAPPINGS, true));
        let others = b"7f00-8f00 rw-p 00001000 08:01 1234 /lib.so\n";
        let endless = parse_maps(line.chain(others.repeat(1 << 19).as_slice())).unwrap();
        assert_eq!((endless.mapped.len(), endless.cut), (1, true));
        assert!(parse_maps(&b""[..]).is_some_and(|none| none.mapped.is_empty() && !none.cut));
    }
}
