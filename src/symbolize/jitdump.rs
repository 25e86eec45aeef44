//! `jit-PID.dump`: what a runtime has made, with the code itself, as LLVM, V8 (`node --perf-prof`), Mono, .NET, wasmtime and others
//! write it for `perf inject --jit` (`tools/perf/Documentation/jitdump-specification.txt`).
//!
//! ```text
//! file    | magic 4 | version 4 | header's size 4 | machine 4 | 0 4 | pid 4 | time 8 | flags 8 | records…
//! record  | kind 4 | size 4 | time 8 | …                                                       all in the machine's order
//! LOAD 0    … | pid 4 | tid 4 | vma 8 | address 8 | code's size 8 | index 8 | name… | 0 | code…
//! MOVE 1    … | pid 4 | tid 4 | vma 8 | old address 8 | new address 8 | code's size 8 | index 8
//! ```
//!
//! Others (DEBUG_INFO 2, CLOSE 3, UNWINDING_INFO 4) are passed over by their size. The code in the file is not read either.
//!
//! Of DEBUG_INFO no lines are made: by the specification its addresses are those of the code, but V8 adds the 64 bytes of an ELF
//! header (`kElfHeaderSize`; seen in the dump of Node.js 20: code at 0x7f5e58005b80, its first line at 0x7f5e58005bc0), and nothing in
//! the file tells which it is.

use super::code_file::Format;
use super::problem::Reason;
use super::ranges::Ranges;
use super::source::{u32_at, u64_at};

/// "JiTD" as the machine that wrote it writes numbers: files of machines of the other byte order are not read.
const MAGIC: u32 = 0x4a69_5444;
const VERSION: u32 = 1;
/// Bytes of the file's header that are known of.
const HEADER: u32 = 40;
/// Bytes of each record's header.
const RECORD: u32 = 16;
const LOAD: u32 = 0;
const MOVE: u32 = 1;
/// Where in a LOAD its name begins.
const NAME: usize = 56;
/// Bytes of a MOVE.
const OF_MOVE: usize = 64;

/// Reads records.
#[derive(Default, Debug)]
pub(super) struct JitDump {
    /// Entries that were one too many, or empty.
    pub(super) left_out: u64,
}

impl Format for JitDump {
    fn take(&mut self, window: &[u8], at: u64, length: u64, ranges: &mut Ranges) -> Result<u64, Reason> {
        let mut taken = 0;
        if at == 0 {
            let Some(size) = header(window)?.filter(|size| u64::from(*size) <= length) else { return Ok(at) };
            taken = u64::from(size);
        }
        // What begins beyond the window is for the next one.
        while let Some(record) = usize::try_from(taken).ok().and_then(|taken| window.get(taken..)) {
            let (Some(kind), Some(size)) = (u32_at(record, 0), u32_at(record, 4)) else { break };
            // Room that was made before it is filled.
            if (kind, size) == (0, 0) {
                break;
            }
            // A record that reaches past the file's end is being written.
            let whole = (at + taken).checked_add(u64::from(size)).is_some_and(|end| end <= length);
            if size >= RECORD && (!whole || record.len() < (size as usize).min(OF_MOVE)) {
                break;
            }
            let outcome = match kind {
                _ if size < RECORD => Err(Reason::CodeMapMalformed),
                LOAD => self.load(record, size, at + taken, ranges),
                MOVE => self.relocate(record, size, ranges),
                _ => Ok(()),
            };
            match outcome {
                // What came before is taken in; next time the window begins here.
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
}

impl JitDump {
    fn load(&mut self, record: &[u8], size: u32, at: u64, ranges: &mut Ranges) -> Result<(), Reason> {
        let fields = (u64_at(record, 32), u64_at(record, 40), (size as usize).checked_sub(NAME));
        let (Some(address), Some(code), Some(room)) = fields else { return Err(Reason::CodeMapMalformed) };
        if code > room as u64 {
            return Err(Reason::CodeMapMalformed);
        }
        let Ok(at) = u32::try_from(at) else { return Ok(()) };
        self.left_out += u64::from(!ranges.insert(address, code, at));
        Ok(())
    }

    /// The function keeps its name and its size; the index need not be looked at, since its old address tells which it is.
    fn relocate(&mut self, record: &[u8], size: u32, ranges: &mut Ranges) -> Result<(), Reason> {
        let (Some(old), Some(new)) = (u64_at(record, 32), u64_at(record, 40)) else { return Err(Reason::CodeMapMalformed) };
        if (size as usize) < OF_MOVE {
            return Err(Reason::CodeMapMalformed);
        }
        if let Some((length, at)) = ranges.remove(old) {
            self.left_out += u64::from(!ranges.insert(new, length, at));
        }
        Ok(())
    }
}

/// The size of the file's header; `None` while it is not whole.
fn header(window: &[u8]) -> Result<Option<u32>, Reason> {
    let (Some(magic), Some(version), Some(size)) = (u32_at(window, 0), u32_at(window, 4), u32_at(window, 8)) else {
        return Ok(None);
    };
    // The file is made long before it is filled by some.
    if (magic, version, size) == (0, 0, 0) {
        return Ok(None);
    }
    if magic != MAGIC || version != VERSION || size < HEADER {
        return Err(Reason::CodeMapMalformed);
    }
    Ok(Some(size))
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::sync::atomic::AtomicBool;

    use super::super::code_file::{CodeFile, WINDOW};
    use super::*;

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
        let dump = CodeFile::new(File::open(file.path()).unwrap()).unwrap();
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
