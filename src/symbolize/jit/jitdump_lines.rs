//! Files and lines of code made at run time, from the DEBUG_INFO records of a jitdump.
//!
//! ```text
//! DEBUG_INFO 2 | size 4 | time 8 | code's address 8 | entries 8 | entries…       before the LOAD of that code
//! entry          address 8 | line 4 | column 4 | file… | 0                       "\xff\0" for the file of the entry before
//! ```
//!
//! An entry is valid from its address up to the address of the next entry.
//!
//! # Addresses that are off
//!
//! In the specification, an entry's address is that of the code. perf's agent for Java writes it so. V8 and LLVM add 64, the size of an ELF
//! header. The reason: `perf inject` puts the code after such a header, and ignored that for years until it was fixed ("perf jit: Fix
//! inaccurate DWARF line table"). V8 and LLVM did not change then (seen in the dumps of Node.js 20, 22 and 26 and of `lli` 14). No field
//! says which of the two applies. The addresses show it:
//!
//! | an entry of any function is | then |
//! | --- | --- |
//! | in the first 64 bytes of its code | nothing was added |
//! | beyond the end of its code | 64 was added |
//! | neither, in all of the file | V8 (0xdeadbeef in the header field where others write 0) has added 64; files of others get no lines |
//! | both | a mistake of the writer: no lines |
//!
//! # Records that are wrong
//!
//! Some releases of V8 write the name of a script from memory that they have already freed. Node.js 20 does so for scripts that are not
//! built in: the name is then arbitrary bytes of another length. So a record counts as a whole or not at all. All names must be text, all
//! addresses must be in the code, and only padding may follow the last entry.

use std::ops::Range;

use crate::object::numbers::{u32_at, u64_at};

pub(crate) const DEBUG_INFO: u32 = 2;

/// V8's value in the reserved field of the file's header (`PerfJitLogger::LogWriteHeader`).
const V8: u32 = 0xdead_beef;
/// Bytes added to each address (`kElfHeaderSize` in V8, `0x40` in LLVM's `PerfJITEventListener`).
const ELF_HEADER: u64 = 64;
/// Most records that are examined to detect whether their writer adds [`ELF_HEADER`].
const MAX_LEARNED: u32 = 1024;
/// Offset of the entries in the record, and of the file in an entry.
const ENTRIES: usize = 32;
const FILE: usize = 16;
/// Records are padded to eight bytes.
const PADDING: usize = 8;

/// Whether addresses of lines are shifted, as far as the file has shown.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shift {
    by_v8: bool,
    /// Whether some addresses show that nothing was added (`plain`), or that [`ELF_HEADER`] was added (`added`).
    plain: bool,
    added: bool,
    learned: u32,
}

impl Shift {
    /// Starts with the reserved field of the file's header.
    pub(crate) fn of_header(reserved: u32) -> Shift {
        Shift { by_v8: reserved == V8, ..Shift::default() }
    }

    /// Whether examining more records is useful.
    pub(crate) fn is_learning(self) -> bool {
        self.learned < MAX_LEARNED
    }

    /// Takes in the first and the last address of the lines of this code.
    pub(crate) fn learn(&mut self, (first, last): (u64, u64), code: Range<u64>) {
        self.plain |= first < code.start.saturating_add(ELF_HEADER);
        self.added |= last > code.end;
        self.learned += 1;
    }

    /// Returns the number of bytes added to each address; `None` if it is unknown.
    pub(crate) fn bytes(self) -> Option<u64> {
        match (self.plain, self.added) {
            (true, true) => None,
            (true, false) => Some(0),
            (false, true) => Some(ELF_HEADER),
            (false, false) => self.by_v8.then_some(ELF_HEADER),
        }
    }
}

/// The entries of one record.
#[derive(Debug)]
pub(crate) struct Lines<'a> {
    code: u64,
    /// Address, line and file, in the file's order.
    entries: Vec<(u64, u32, &'a str)>,
}

impl<'a> Lines<'a> {
    /// Parses a whole record. `None` if anything in it is wrong.
    pub(crate) fn read(record: &'a [u8]) -> Option<Lines<'a>> {
        let count = u64_at(record, 24).filter(|_| u32_at(record, 0) == Some(DEBUG_INFO))?;
        let code = u64_at(record, 16)?;
        let mut rest = record.get(ENTRIES..)?;
        let mut entries: Vec<(u64, u32, &str)> = Vec::new();
        for _ in 0..count {
            let (address, line) = u64_at(rest, 0).zip(u32_at(rest, 8))?;
            let name = rest.get(FILE..)?;
            let name = name.get(..memchr::memchr(0, name)?)?;
            let file = match name {
                [0xff] => entries.last()?.2,
                name => path(name)?,
            };
            entries.push((address, line, file));
            rest = rest.get(FILE + name.len() + 1..)?;
        }
        (rest.len() < PADDING).then_some(Lines { code, entries })
    }

    /// Returns the lowest and the highest address.
    pub(crate) fn reach(&self) -> Option<(u64, u64)> {
        let addresses = || self.entries.iter().map(|(at, ..)| *at);
        addresses().min().zip(addresses().max())
    }

    /// Subtracts the added bytes from the addresses. `None` if the lines do not belong to this code.
    pub(crate) fn within(mut self, code: Range<u64>, added: u64) -> Option<Lines<'a>> {
        for (address, ..) in &mut self.entries {
            *address = address.checked_sub(added).filter(|address| (code.start..=code.end).contains(address))?;
        }
        (self.code == code.start).then_some(self)
    }

    /// Returns the file and line that are executed at an address.
    pub(crate) fn find(&self, address: u64) -> Option<(String, u32)> {
        let before = self.entries.iter().filter(|(at, ..)| *at <= address);
        // If several entries have one address, the last of them counts.
        let (_, line, file) = before.max_by_key(|(at, ..)| *at)?;
        // The line is 0 or negative if it is unknown.
        (1..=i32::MAX.unsigned_abs()).contains(line).then(|| ((*file).to_owned(), *line))
    }
}

/// Returns the path in a name, as text. For modules Node.js writes a URL.
fn path(name: &[u8]) -> Option<&str> {
    let name = std::str::from_utf8(name).ok().filter(|name| !name.is_empty() && !name.contains(char::is_control))?;
    let path = name.strip_prefix("file://").filter(|path| path.starts_with('/') && !path.contains('%'));
    Some(path.unwrap_or(name))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs::File;
    use std::path::PathBuf;
    use std::process::Command;
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::symbolize::jit::growing_file::CodeFile;
    use crate::symbolize::jit::jitdump::JitDump;

    /// Builds a record of these entries.
    pub(crate) fn record(code: u64, entries: &[(u64, u32, &[u8])]) -> Vec<u8> {
        let mut payload = [code, entries.len() as u64].map(u64::to_le_bytes).concat();
        for (address, line, file) in entries {
            payload.extend(address.to_le_bytes());
            payload.extend([*line, 1].map(u32::to_le_bytes).concat());
            payload.extend(file.iter().chain(&[0]));
        }
        payload.resize(payload.len().next_multiple_of(8), 0);
        crate::symbolize::jit::jitdump::tests::record(DEBUG_INFO, &payload)
    }

    fn found(record: &[u8], is_shifted: bool, at: u64) -> Option<(String, u32)> {
        Lines::read(record)?.within(0x1000..0x1100, if is_shifted { ELF_HEADER } else { 0 })?.find(at)
    }

    fn place(file: &str, line: u32) -> Option<(String, u32)> {
        Some((file.to_owned(), line))
    }

    #[test]
    fn an_entry_is_true_up_to_the_next_one() {
        let bytes =
            record(0x1000, &[(0x1004, 1, b"/a.js"), (0x1010, 7, b"\xff"), (0x1020, 3, b"file:///b.mjs"), (0x1020, 4, b"/c d")]);
        let lines = [0x1003, 0x1004, 0x100f, 0x1010, 0x101f, 0x1020, 0x10ff].map(|at| found(&bytes, false, at));
        let expected = [None, place("/a.js", 1), place("/a.js", 1), place("/a.js", 7), place("/a.js", 7)];
        assert_eq!(lines[..5], expected);
        assert_eq!(lines[5..], [place("/c d", 4), place("/c d", 4)]);
        let url = record(0x1000, &[(0x1004, 3, b"file:///b.mjs"), (0x1008, 3, b"file:///b%20c.mjs"), (0x100c, 0, b"/a")]);
        assert_eq!(
            [0x1004, 0x1008, 0x100c].map(|at| found(&url, false, at)),
            [place("/b.mjs", 3), place("file:///b%20c.mjs", 3), None]
        );
    }

    #[test]
    fn what_v8_adds_is_taken_away() {
        let bytes = record(0x1000, &[(0x1040, 1, b"/a.js"), (0x1050, 2, b"/a.js"), (0x1130, 3, b"/a.js")]);
        assert_eq!(
            [0x1000, 0x100f, 0x1010, 0x10f0].map(|at| found(&bytes, true, at).map(|(_, line)| line)),
            [Some(1), Some(1), Some(2), Some(3)]
        );
        assert_eq!(found(&bytes, false, 0x1050), None, "one of its addresses would be beyond the code");
    }

    /// Looks up lines in each function of a dump whose name contains `function`. The dump was written by a real runtime. Returns the lines
    /// of all instructions that begin with one of `opcodes`, and how many such instructions have no line.
    fn lines_of_instructions(dump: &std::path::Path, function: &str, opcodes: &[&[u8]]) -> (Vec<(String, u32)>, usize) {
        let mut file = CodeFile::<JitDump>::ours(File::open(dump).unwrap()).unwrap();
        assert_eq!(file.update(&AtomicBool::new(false)), Ok(true));
        let bytes = std::fs::read(dump).unwrap();
        let (mut at, mut found, mut without) = (40, Vec::new(), 0);
        while let (Some(kind), Some(size)) = (u32_at(&bytes, at), u32_at(&bytes, at + 4).filter(|size| *size >= 16)) {
            let record = &bytes[at..at + size as usize];
            at += size as usize;
            let name = if kind == 0 { record[56..].split(|byte| *byte == 0).next().unwrap() } else { b"" };
            if !String::from_utf8_lossy(name).contains(function) {
                continue;
            }
            let (start, length) = (u64_at(record, 32).unwrap(), u64_at(record, 40).unwrap());
            for (offset, rest) in (0..length).zip((record.len() - length as usize..).map(|from| &record[from..])) {
                if opcodes.iter().any(|opcode| rest.starts_with(opcode)) {
                    let address = start + offset;
                    match file.name_at(address).unwrap().and_then(|name| file.line_at(address, &name)) {
                        Some(place) => found.push(place),
                        None => without += 1,
                    }
                }
            }
        }
        found.dedup();
        (found, without)
    }

    fn dump_in(directory: &std::path::Path) -> Option<PathBuf> {
        let entries = std::fs::read_dir(directory).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
        entries.into_iter().find_map(|path| {
            let name = path.file_name()?.to_str()?;
            let is_dump = name.starts_with("jit-") && name.ends_with(".dump");
            if is_dump {
                Some(path.clone())
            } else if path.is_dir() {
                dump_in(&path)
            } else {
                None
            }
        })
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn instructions_of_llvms_code_are_on_their_lines() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let source = "\
static double step(double x) { return x * 1.0000001; }
__attribute__((noinline)) double work(long n) {
  double sum = 1;
  for (long i = 0; i < n; i++)
    sum = step(sum) / 3.0;
  return sum;
}
int main(void) { return work(1000000) == 1.0; }
";
        std::fs::write(at("hot.c"), source).unwrap();
        let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
        let built = Command::new(clang).args(["-g", "-O1", "-emit-llvm", "-c", "-o"]).arg(at("hot.bc")).arg(at("hot.c")).status();
        assert!(built.unwrap().success());
        let mut lli = Command::new("lli");
        let ran = lli.arg("-jit-kind=mcjit").arg(at("hot.bc")).env("JITDUMPDIR", directory.path()).status();
        assert!(ran.expect("lli (of the package llvm) is needed by this test").code().is_some());
        let dump =
            dump_in(directory.path()).expect("this lli writes no jitdump: one that was built with LLVM_USE_PERF is needed");
        let file = at("hot.c").to_str().unwrap().to_owned();
        // divsd, mulsd
        for (opcode, line) in [([0xf2, 0x0f, 0x5e], 5), ([0xf2, 0x0f, 0x59], 1)] {
            assert_eq!(lines_of_instructions(&dump, "work", &[&opcode]), (vec![(file.clone(), line)], 0));
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn instructions_of_nodes_code_are_on_their_lines_or_on_none() {
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("app.js");
        let source = "\
function work(n) {
  let sum = 1;
  for (let i = 0; i < n; i++) {
    sum += i % 7;
    sum += Math.sqrt(sum);
  }
  return sum;
}
const until = Date.now() + 1500;
while (Date.now() < until) work(100000);
";
        std::fs::write(&script, source).unwrap();
        let node = std::env::var("FLAMETOP_TEST_NODE").unwrap_or_else(|_| "node".to_owned());
        let ran = Command::new(node).arg("--perf-prof").arg(&script).current_dir(&directory).status();
        assert!(ran.expect("node is needed by this test").success());
        let dump = dump_in(directory.path()).unwrap();
        // sqrtsd; vsqrtsd
        let sqrt: [&[u8]; 4] = [&[0xf2, 0x0f, 0x51], &[0xc5, 0xfb, 0x51], &[0xc5, 0xf3, 0x51], &[0xc5, 0xeb, 0x51]];
        let (found, without) = lines_of_instructions(&dump, "work ", &sqrt);
        println!("{found:?}, {without} without");
        // Node.js 20 writes the script's name from freed memory: then there may be no lines at all. V8 moves instructions a little, within
        // the loop.
        let is_right = |(file, line): &(String, u32)| *file == script.to_str().unwrap() && (3..=5).contains(line);
        assert!(found.iter().all(is_right), "{found:?}");
        assert!(found.iter().any(|(_, line)| *line == 5) || found.is_empty() && without > 0, "{found:?}, {without} without");
        // Names of built-in scripts stay in memory. The opcode matches calls, and bytes that look like calls.
        let (found, _) = lines_of_instructions(&dump, " node:", &[&[0xe8]]);
        assert!(found.iter().any(|(file, _)| file.starts_with("node:")), "{found:?}");
    }

    #[test]
    fn a_record_with_anything_wrong_in_it_has_no_lines() {
        let good: &[(u64, u32, &[u8])] = &[(0x1000, 1, b"/a.js"), (0x1010, 2, b"/b.js")];
        assert_eq!(found(&record(0x1000, good), false, 0x1010), place("/b.js", 2));
        for wrong in
            [(0xfff, 2, &b"/b.js"[..]), (0x1101, 2, b"/b.js"), (0x1010, 2, b""), (0x1010, 2, b"/\xfe"), (0x1010, 2, b"/\x1b[2J")]
        {
            assert_eq!(found(&record(0x1000, &[good[0], wrong]), false, 0x1000), None, "{wrong:?}");
        }
        assert_eq!(found(&record(0x1000, &[(0x1000, 1, b"\xff")]), false, 0x1000), None, "of no entry before");
        assert_eq!(found(&record(0x2000, good), false, 0x1000), None, "of other code");
        let whole = record(0x1000, good);
        for length in 0..whole.len() - 8 {
            assert_eq!(found(&whole[..length], false, 0x1000), None);
        }
        assert_eq!(found(&[&whole[..], &[0; 8]].concat(), false, 0x1000), None, "there is more than its entries");
        let mut more = whole;
        more[24..32].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(found(&more, false, 0x1000), None);
    }
}
