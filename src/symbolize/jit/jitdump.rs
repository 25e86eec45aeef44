//! Reads `jit-PID.dump`: the functions that a runtime has made, with their code.
//!
//! LLVM, V8 (`node --perf-prof`), Mono, .NET, wasmtime and others write it for `perf inject --jit`
//! (`tools/perf/Documentation/jitdump-specification.txt`).
//!
//! ```text
//! file    | magic 4 | version 4 | header's size 4 | machine 4 | 0 4 | pid 4 | time 8 | flags 8 | records…
//! record  | kind 4 | size 4 | time 8 | …                                                       all in the machine's order
//! LOAD 0    … | pid 4 | tid 4 | vma 8 | address 8 | code's size 8 | index 8 | name… | 0 | code…
//! MOVE 1    … | pid 4 | tid 4 | vma 8 | old address 8 | new address 8 | code's size 8 | index 8
//! ```
//!
//! DEBUG_INFO 2 describes the LOAD after it. Its lines are read at each lookup ([`jitdump_lines`](super::jitdump_lines)). Other records
//! (CLOSE 3, UNWINDING_INFO 4) are skipped by their size. So is the code itself, until a listing reads it.

use super::code_ranges::{MAX_RANGES, Piece, Ranges};
use super::growing_file::{CodeFile, Format};
use super::jitdump_lines::DEBUG_INFO;
use super::jitdump_lines::{Lines, Shift};
use crate::object::numbers::{u32_at, u64_at};
use crate::object::reason::Reason;

/// "JiTD" in the byte order of the machine that wrote it. Files in the other byte order are not read.
const MAGIC: u32 = 0x4a69_5444;
const VERSION: u32 = 1;
/// Bytes of the known part of the file's header.
const HEADER: u32 = 40;
/// Bytes of each record's header.
const RECORD: u32 = 16;
const LOAD: u32 = 0;
const MOVE: u32 = 1;
/// Offset of the name in a LOAD.
const NAME: usize = 56;
/// Bytes of a MOVE.
const OF_MOVE: usize = 64;
/// Longest DEBUG_INFO that is read: 20 bytes and a path for each position. A large function of Node.js has 100 kB.
const MAX_DEBUG_INFO: u64 = 4 << 20;

/// Reads records.
#[derive(Default, Debug)]
pub(crate) struct JitDump {
    /// Number of entries left out because there were too many, or because they were empty.
    pub(crate) left_out: u64,
    /// Whether the addresses of lines are shifted.
    shift: Shift,
    /// The DEBUG_INFO before the next LOAD.
    before: Option<Before>,
    /// LOADs that have a DEBUG_INFO: the offsets of both, ordered by LOAD.
    lines: Vec<(u32, u32)>,
}

/// Lines of code whose LOAD has not come yet.
#[derive(Debug)]
struct Before {
    /// Address of the code.
    code: u64,
    /// Offset of the record.
    at: u32,
    /// The lowest and the highest address in the record, if it was parsed.
    reach: Option<(u64, u64)>,
}

impl Format for JitDump {
    fn take(&mut self, window: &[u8], at: u64, length: u64, ranges: &mut Ranges) -> Result<u64, Reason> {
        let mut taken = 0;
        if at == 0 {
            let Some(size) = header(window)?.filter(|size| u64::from(*size) <= length) else { return Ok(at) };
            taken = u64::from(size);
            self.shift = Shift::of_header(u32_at(window, 16).unwrap_or(0));
        }
        // A record that begins beyond the window is for the next window.
        while let Some(record) = usize::try_from(taken).ok().and_then(|taken| window.get(taken..)) {
            let (Some(kind), Some(size)) = (u32_at(record, 0), u32_at(record, 4)) else { break };
            // The writer allocated this part of the file and has not filled it yet.
            if (kind, size) == (0, 0) {
                break;
            }
            // A record that reaches past the file's end is still being written.
            let whole = (at + taken).checked_add(u64::from(size)).is_some_and(|end| end <= length);
            if size >= RECORD && (!whole || record.len() < (size as usize).min(OF_MOVE)) {
                break;
            }
            let outcome = match kind {
                _ if size < RECORD => Err(Reason::CodeMapMalformed),
                LOAD => self.load(record, size, at + taken, ranges),
                MOVE => self.relocate(record, size, ranges),
                DEBUG_INFO => {
                    self.remember(record, size, at + taken);
                    Ok(())
                }
                _ => Ok(()),
            };
            match outcome {
                // Keep the records before the malformed one. The next window begins here and fails.
                Err(_) if taken > 0 => break,
                outcome => outcome?,
            }
            taken += u64::from(size);
        }
        Ok(at + taken)
    }

    fn name(entry: &[u8], _address: u64) -> Option<&[u8]> {
        let (kind, size) = (u32_at(entry, 0)?, u32_at(entry, 4)? as usize);
        let code = usize::try_from(u64_at(entry, 40)?).ok()?;
        let room = size.checked_sub(NAME)?.checked_sub(code)?;
        let name = entry.get(NAME..)?;
        let name = name.get(..room.min(name.len()))?;
        let name = name.get(..memchr::memchr(0, name).unwrap_or(name.len()))?;
        (kind == LOAD && !name.is_empty()).then_some(name)
    }

    fn memory(&self) -> usize {
        self.lines.capacity() * size_of::<(u32, u32)>()
    }
}

impl JitDump {
    fn load(&mut self, record: &[u8], size: u32, at: u64, ranges: &mut Ranges) -> Result<(), Reason> {
        let fields = (u64_at(record, 32), u64_at(record, 40), (size as usize).checked_sub(NAME));
        let (Some(address), Some(code), Some(room)) = fields else { return Err(Reason::CodeMapMalformed) };
        if code > room as u64 {
            return Err(Reason::CodeMapMalformed);
        }
        let before = self.before.take();
        let Ok(at) = u32::try_from(at) else { return Ok(()) };
        let is_taken = ranges.insert(address, code, at);
        self.left_out += u64::from(!is_taken);
        if let Some(before) = before.filter(|before| is_taken && before.code == address) {
            if let Some(reach) = before.reach {
                self.shift.learn(reach, address..address.saturating_add(code));
            }
            if self.lines.len() < MAX_RANGES {
                self.lines.push((at, before.at));
            }
        }
        Ok(())
    }

    /// Remembers that the next LOAD has lines.
    fn remember(&mut self, record: &[u8], size: u32, at: u64) {
        let fields = u64_at(record, 16).zip(u32::try_from(at).ok()).filter(|_| u64::from(size) <= MAX_DEBUG_INFO);
        let whole = record.get(..size as usize).filter(|_| self.shift.is_learning());
        let reach = || Lines::read(whole?)?.reach();
        self.before = fields.map(|(code, at)| Before { code, at, reach: reach() });
    }

    /// Moves a function, which keeps its name and size. Its old address identifies it, so the index is not read.
    fn relocate(&mut self, record: &[u8], size: u32, ranges: &mut Ranges) -> Result<(), Reason> {
        let (Some(old), Some(new)) = (u64_at(record, 32), u64_at(record, 40)) else { return Err(Reason::CodeMapMalformed) };
        if (size as usize) < OF_MOVE {
            return Err(Reason::CodeMapMalformed);
        }
        if let Some((at, moved)) = ranges.relocate(old, new) {
            // Its lines have the old addresses.
            if let Ok(index) = self.lines.binary_search_by_key(&at, |(load, _)| *load) {
                self.lines.remove(index);
            }
            self.left_out += u64::from(!moved);
        }
        Ok(())
    }
}

impl CodeFile<JitDump> {
    /// Returns the file and line that the runtime wrote for an address, if the code there has this name.
    pub(crate) fn line_at(&self, address: u64, name: &[u8]) -> Option<(String, u32)> {
        let load = self.place_of(address)?;
        let lines = &self.format().lines;
        let (_, at) = *lines.get(lines.binary_search_by_key(&load, |(load, _)| *load).ok()?)?;
        let entry = self.bytes_at(u64::from(load), 8 << 10).ok()?;
        let (start, size) = u64_at(&entry, 32).zip(u64_at(&entry, 40))?;
        let code = start..start.checked_add(size)?;
        // The file may have something else at this offset by now.
        if JitDump::name(&entry, address) != Some(name) || !code.contains(&address) {
            return None;
        }
        let head = self.bytes_at(u64::from(at), RECORD as usize).ok()?;
        let length = u32_at(&head, 4).filter(|length| u64::from(*length) <= MAX_DEBUG_INFO)? as usize;
        let record = self.bytes_at(u64::from(at), length).ok().filter(|record| record.len() == length)?;
        Lines::read(&record)?.within(code, self.format().shift.bytes()?)?.find(address)
    }
}

impl CodeFile<JitDump> {
    /// Returns the bytes of a piece of code if it has this name, at most `most` of them.
    pub(crate) fn code_of(&self, piece: &Piece, name: &[u8], most: u64) -> Option<Vec<u8>> {
        let entry = self.bytes_at(u64::from(piece.at), 8 << 10).ok()?;
        let (code, size) = (u64_at(&entry, 40)?, u32_at(&entry, 4)?);
        let length = piece.range.end - piece.range.start;
        let is_within = u64::from(piece.from).checked_add(length).is_some_and(|end| end <= code);
        if JitDump::name(&entry, piece.range.start) != Some(name) || !is_within {
            return None;
        }
        let begin = (u64::from(piece.at) + u64::from(size)).checked_sub(code)? + u64::from(piece.from);
        let read = self.bytes_at(begin, usize::try_from(length.min(most)).ok()?).ok()?;
        (read.len() as u64 == length.min(most)).then_some(read)
    }
}

/// Returns the size of the file's header; `None` while the header is incomplete.
fn header(window: &[u8]) -> Result<Option<u32>, Reason> {
    let (Some(magic), Some(version), Some(size)) = (u32_at(window, 0), u32_at(window, 4), u32_at(window, 8)) else {
        return Ok(None);
    };
    // Some runtimes make the file long before they fill it.
    if (magic, version, size) == (0, 0, 0) {
        return Ok(None);
    }
    if magic != MAGIC || version != VERSION || size < HEADER {
        return Err(Reason::CodeMapMalformed);
    }
    Ok(Some(size))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::symbolize::jit::growing_file::{CodeFile, WINDOW};

    pub(crate) fn file_header() -> Vec<u8> {
        let mut bytes = Vec::new();
        for word in [MAGIC, VERSION, HEADER, 62, 0, 1234] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend([0; 16]);
        bytes
    }

    pub(crate) fn record(kind: u32, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(kind.to_le_bytes());
        bytes.extend((u32::try_from(payload.len()).unwrap() + RECORD).to_le_bytes());
        bytes.extend(7u64.to_le_bytes());
        bytes.extend(payload);
        bytes
    }

    pub(crate) fn load(address: u64, code: &[u8], name: &str) -> Vec<u8> {
        let mut payload = [1u32, 2].map(u32::to_le_bytes).concat();
        payload.extend([address, address, code.len() as u64, 9].map(u64::to_le_bytes).concat());
        payload.extend(name.bytes().chain([0]));
        payload.extend(code);
        record(LOAD, &payload)
    }

    pub(crate) fn relocation(from: u64, to: u64, size: u64) -> Vec<u8> {
        let mut payload = [1u32, 2].map(u32::to_le_bytes).concat();
        payload.extend([to, from, to, size, 9].map(u64::to_le_bytes).concat());
        record(MOVE, &payload)
    }

    struct World {
        file: tempfile::NamedTempFile,
        dump: CodeFile<JitDump>,
    }

    fn world(parts: &[Vec<u8>]) -> World {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&parts.concat()).unwrap();
        let dump = CodeFile::ours(File::open(file.path()).unwrap()).unwrap();
        World { file, dump }
    }

    impl World {
        fn update(&mut self) -> Result<bool, Reason> {
            self.dump.update(&AtomicBool::new(false))
        }

        fn name(&self, address: u64) -> Option<String> {
            self.dump.name_at(address).unwrap().map(|name| String::from_utf8(name).unwrap())
        }
    }

    #[test]
    fn code_is_what_was_written_down_also_where_it_was_moved_to_or_partly_covered() {
        let code: Vec<u8> = (0..32).collect();
        let mut world = world(&[
            file_header(),
            load(0x1000, &code, "moved"),
            load(0x2000, &code, "covered"),
            relocation(0x1000, 0x5000, 32),
            load(0x2008, &[7; 8], "cover"),
            load(0x3000, &code, "both"),
            relocation(0x3000, 0x3008, 32),
            load(0x3020, &[7; 8], "behind"),
            load(0x4000, &code, "first covered"),
            load(0x4000, &[7; 8], "before"),
            relocation(0x4008, 0x6000, 24),
        ]);
        assert_eq!(world.update(), Ok(true));
        let at = |address, name: &str, most| {
            let piece = world.dump.piece_around(address)?;
            Some((piece.range.clone(), world.dump.code_of(&piece, name.as_bytes(), most)?))
        };
        assert_eq!(at(0x5007, "moved", 99), Some((0x5000..0x5020, code.clone())));
        assert_eq!(at(0x5007, "moved", 4), Some((0x5000..0x5020, code[..4].to_vec())));
        assert_eq!(at(0x2001, "covered", 99), Some((0x2000..0x2008, code[..8].to_vec())));
        assert_eq!(at(0x2011, "covered", 99), Some((0x2010..0x2020, code[16..].to_vec())));
        assert_eq!(at(0x2008, "cover", 99), Some((0x2008..0x2010, vec![7; 8])));
        assert_eq!(at(0x3008, "both", 99), Some((0x3008..0x3020, code[..24].to_vec())));
        assert_eq!(at(0x6000, "first covered", 99), Some((0x6000..0x6018, code[8..].to_vec())));
        assert_eq!([at(0x2008, "covered", 99), at(0x1000, "moved", 99), at(0x3000, "cover", 99)], [None, None, None]);
    }

    #[test]
    fn functions_are_where_they_were_made_or_moved_to() {
        let mut world = world(&[
            file_header(),
            record(2, &[1; 40]),
            load(0x1000, &[0x90; 32], "first"),
            record(4, &[0; 24]),
            load(0x2000, &[0x90; 16], "second one"),
            relocation(0x1000, 0x5000, 32),
            relocation(0x7777, 0x8000, 32),
            load(0x1010, &[0x90; 4], "third"),
            record(3, &[]),
        ]);
        assert_eq!(world.update(), Ok(true));
        let names = [0x1000, 0x5000, 0x501f, 0x5020, 0x200f, 0x1012, 0x8000].map(|address| world.name(address));
        let expected = [None, Some("first"), Some("first"), None, Some("second one"), Some("third"), None];
        assert_eq!(names, expected.map(|name| name.map(str::to_owned)));
    }

    #[test]
    fn lines_are_those_of_the_code_that_is_there_now() {
        use crate::symbolize::jit::jitdump_lines::tests::record as lines;
        let of = |world: &World, address| {
            let name = world.dump.name_at(address).unwrap()?;
            world.dump.line_at(address, &name).map(|(file, line)| format!("{file}:{line}"))
        };
        let mut v8_header = file_header();
        v8_header[16..20].copy_from_slice(&0xdead_beef_u32.to_le_bytes());
        let code = [0x90; 32];
        let plain = lines(0x1000, &[(0x1000, 1, b"/a"), (0x1010, 2, b"/a")]);
        let shifted = lines(0x2000, &[(0x2040, 3, b"/b"), (0x2050, 4, b"/b")]);
        let mut spec = world(&[file_header(), plain.clone(), load(0x1000, &code, "a"), load(0x3000, &code, "without")]);
        assert_eq!(spec.update(), Ok(true));
        let found = [0x1000, 0x100f, 0x101f, 0x3000].map(|address| of(&spec, address));
        assert_eq!(found, [Some("/a:1"), Some("/a:1"), Some("/a:2"), None].map(|line| line.map(str::to_owned)));
        assert_eq!(spec.dump.line_at(0x1000, b"another"), None, "other code had that name");
        let mut v8 = world(&[v8_header.clone(), shifted.clone(), load(0x2000, &code, "b")]);
        assert_eq!(v8.update(), Ok(true));
        assert_eq!([of(&v8, 0x200f), of(&v8, 0x2010)], [Some("/b:3".to_owned()), Some("/b:4".to_owned())]);
        // V8 without added bytes. The file's other functions show that.
        let late = lines(0x2000, &[(0x2000, 5, b"/b"), (0x2010, 6, b"/b")]);
        let mut v8 = world(&[v8_header, plain, load(0x1000, &code, "a"), late, load(0x2000, &code, "b")]);
        assert_eq!(v8.update(), Ok(true));
        assert_eq!([of(&v8, 0x1010), of(&v8, 0x2010)], [Some("/a:2".to_owned()), Some("/b:6".to_owned())]);
        // As LLVM writes it. The first address beyond its code's end shows that 64 was added.
        let llvm = lines(0x5000, &[(0x5040, 7, b"/l"), (0x505c, 8, b"/l")]);
        let mut parts = world(&[file_header(), shifted.clone(), load(0x2000, &[0x90; 128], "b")]);
        assert_eq!(parts.update(), Ok(true));
        assert_eq!(of(&parts, 0x2040), None, "it may be either");
        parts.file.write_all(&[llvm.clone(), load(0x5000, &code, "l")].concat()).unwrap();
        assert_eq!(parts.update(), Ok(true));
        assert_eq!([of(&parts, 0x2000), of(&parts, 0x501c)], [Some("/b:3".to_owned()), Some("/l:8".to_owned())]);
        // A file that shows both is rejected.
        parts.file.write_all(&[lines(0x6000, &[(0x6000, 1, b"/m")]), load(0x6000, &code, "m")].concat()).unwrap();
        assert_eq!(parts.update(), Ok(true));
        assert_eq!([of(&parts, 0x2000), of(&parts, 0x6000)], [None, None]);
        // No lines for other code, moved code, and overwritten code.
        let mut moved = world(&[
            file_header(),
            lines(0x1000, &[(0x1000, 1, b"/a")]),
            load(0x7000, &code, "not its"),
            lines(0x2000, &[(0x2000, 1, b"/a")]),
            load(0x2000, &code, "goes"),
            relocation(0x2000, 0x2010, 32),
            lines(0x4000, &[(0x4000, 1, b"/a")]),
            load(0x4000, &code, "first"),
            load(0x4000, &code, "second"),
        ]);
        assert_eq!(moved.update(), Ok(true));
        assert_eq!([0x7000, 0x1000, 0x2018, 0x4000].map(|address| of(&moved, address)), [const { None }; 4]);
        assert!(moved.dump.memory() > moved.dump.len() * 40, "lines are counted");
    }

    #[test]
    fn a_record_that_is_being_written_waits_for_its_end() {
        let whole = load(0x1000, &[0x90; 100], "slowly");
        for cut in [0, 3, 7, 15, 20, 60, whole.len() - 1] {
            let mut world = world(&[file_header(), load(0x9000, &[0x90; 8], "before"), whole[..cut].to_vec()]);
            assert_eq!(world.update(), Ok(true));
            assert_eq!((world.name(0x1000), world.name(0x9000).as_deref()), (None, Some("before")), "{cut}");
            world.file.write_all(&whole[cut..]).unwrap();
            assert_eq!(world.update(), Ok(true), "{cut}");
            assert_eq!(world.name(0x1063).as_deref(), Some("slowly"), "{cut}");
        }
        let mut header = world(&[file_header()[..20].to_vec()]);
        assert_eq!(header.update(), Ok(false));
        header.file.write_all(&[&file_header()[20..], &whole].concat()).unwrap();
        assert_eq!(header.update(), Ok(true));
        assert_eq!(header.name(0x1000).as_deref(), Some("slowly"));
    }

    #[test]
    fn records_larger_than_a_window_and_many_of_them_are_read() {
        let mut parts = vec![file_header(), load(0x10_0000, &vec![0xcc; 3 * WINDOW], "large")];
        for index in 0..5000 {
            parts.push(load(0x200_0000 + index * 64, &[0x90; 60], &format!("f{index}")));
        }
        let mut world = world(&parts);
        assert_eq!(world.update(), Ok(true));
        assert_eq!(world.name(0x10_0000 + 3 * WINDOW as u64 - 1).as_deref(), Some("large"));
        for index in [0, 1, 900, 4999] {
            assert_eq!(world.name(0x200_0000 + index * 64 + 59), Some(format!("f{index}")));
        }
        assert_eq!(world.dump.len(), 5001);
    }

    #[test]
    fn files_of_another_kind_are_refused_and_what_was_read_before_nonsense_is_kept() {
        let swapped =
            file_header().chunks(4).flat_map(|word| word.iter().rev().copied().collect::<Vec<u8>>()).collect::<Vec<u8>>();
        for bytes in [swapped, b"1000 10 a line of a map and more of it\n".to_vec(), vec![0xff; 100]] {
            assert_eq!(world(&[bytes]).update(), Err(Reason::CodeMapMalformed));
        }
        let mut short = file_header();
        short[8] = 39;
        assert_eq!(world(&[short]).update(), Err(Reason::CodeMapMalformed));
        let mut larger = load(0x3000, &[0x90; 8], "larger than its record");
        larger[40..48].copy_from_slice(&1000u64.to_le_bytes());
        for bad in [record(0, &[0; 39]), record(1, &[0; 47]), vec![9, 0, 0, 0, 15, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], larger] {
            let mut world = world(&[file_header(), load(0x1000, &[0x90; 8], "good"), bad]);
            assert_eq!(world.update(), Err(Reason::CodeMapMalformed));
            assert_eq!(world.update(), Err(Reason::CodeMapMalformed), "it is not read again");
            assert_eq!(world.name(0x3000), None);
        }
    }

    #[test]
    fn a_name_without_an_end_is_none_of_the_code_behind_it() {
        let mut bytes = load(0x1000, b"CODE", "name");
        let end = bytes.len() - 5;
        bytes[end] = b'!';
        let mut world = world(&[file_header(), bytes, vec![0; 100]]);
        assert_eq!(world.update(), Ok(true));
        assert_eq!(world.name(0x1000).as_deref(), Some("name!"));
    }
}
