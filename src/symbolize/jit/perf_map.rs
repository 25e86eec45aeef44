//! Reads `/tmp/perf-PID.map`: a line for each function that a runtime has made, as perf reads it
//! (`tools/perf/Documentation/jit-interface.txt`).
//!
//! ```text
//! START SIZE NAME     START and SIZE in hexadecimal, with or without 0x; NAME is the rest of the line
//! 7f5c8c0a2b40 1d0 JS:*hotInner /srv/app.js:1:18
//! ```
//!
//! Node.js (`--perf-basic-prof`), Python 3.12 (`-X perf`), .NET, Java (`jcmd PID Compiler.perfmap`), wasmtime, LuaJIT and others write it.
//! The file does not record when code is freed; see [`code_ranges`](super::code_ranges).

use super::code_ranges::Ranges;
use super::growing_file::{Format, WINDOW};
use crate::object::reason::Reason;

/// Reads lines.
#[derive(Default, Debug)]
pub(crate) struct PerfMap {
    /// Number of malformed lines.
    pub(crate) malformed: u64,
    /// Number of entries left out because there were too many.
    pub(crate) left_out: u64,
    /// Set while the rest of a line that is longer than a window is skipped.
    skipping: bool,
}

impl Format for PerfMap {
    fn take(&mut self, window: &[u8], at: u64, _length: u64, ranges: &mut Ranges) -> Result<u64, Reason> {
        let mut rest = window;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let (line, after) = rest.split_at_checked(end + 1).unwrap_or((rest, &[]));
            if !std::mem::take(&mut self.skipping) {
                self.line(line, at + (window.len() - rest.len()) as u64, ranges);
            }
            rest = after;
        }
        // An incomplete line waits for its rest. If it fills the whole window, its name is cut instead.
        if rest.len() == window.len() && window.len() >= WINDOW {
            if !std::mem::replace(&mut self.skipping, true) {
                self.line(rest, at, ranges);
            }
            rest = &[];
        }
        Ok(at + (window.len() - rest.len()) as u64)
    }

    fn name(entry: &[u8], address: u64) -> Option<&[u8]> {
        let line = entry.split(|byte| *byte == b'\n').next()?;
        let (start, size, name) = parse(line)?;
        (start..start + size).contains(&address).then_some(name)
    }
}

impl PerfMap {
    fn line(&mut self, line: &[u8], at: u64, ranges: &mut Ranges) {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let Some((start, size, _)) = parse(line) else {
            self.malformed += u64::from(!line.is_empty());
            return;
        };
        let Ok(at) = u32::try_from(at) else { return };
        self.left_out += u64::from(!ranges.insert(start, size, at));
    }
}

/// Parses a line without its end into start, size and name. `None` for a malformed line, and for code that is empty or reaches past the
/// last address.
fn parse(line: &[u8]) -> Option<(u64, u64, &[u8])> {
    let (start, rest) = number(line)?;
    let (size, name) = number(rest)?;
    let name = name.trim_ascii();
    (!name.is_empty() && size > 0 && start.checked_add(size).is_some()).then_some((start, size, name))
}

/// Parses a hexadecimal number. Returns it and the text after the spaces that follow.
fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let text = text.trim_ascii_start();
    let end = text.iter().position(u8::is_ascii_whitespace)?;
    let (digits, rest) = text.split_at_checked(end)?;
    let digits = digits.strip_prefix(b"0x").or_else(|| digits.strip_prefix(b"0X")).unwrap_or(digits);
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    let value = digits.iter().try_fold(0u64, |value, digit| Some(value << 4 | u64::from(char::from(*digit).to_digit(16)?)))?;
    Some((value, rest))
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};
    use std::io::Write;
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::symbolize::jit::growing_file::CodeFile;

    /// A map that is being written, and its reader.
    struct World {
        path: tempfile::TempPath,
        map: CodeFile<PerfMap>,
    }

    fn world(text: &[u8]) -> World {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text).unwrap();
        let path = file.into_temp_path();
        let map = CodeFile::ours(File::open(&path).unwrap()).unwrap();
        World { path, map }
    }

    impl World {
        fn append(&self, text: &[u8]) {
            OpenOptions::new().append(true).open(&self.path).unwrap().write_all(text).unwrap();
        }

        fn update(&mut self) -> Result<bool, Reason> {
            self.map.update(&AtomicBool::new(false))
        }

        fn name(&self, address: u64) -> Option<String> {
            self.map.name_at(address).unwrap().map(|name| String::from_utf8_lossy(&name).into_owned())
        }
    }

    #[test]
    fn lines_of_real_runtimes_are_read() {
        let mut world = world(
            b"7f5c8c0a2b40 1d0 JS:*hotInner /srv/my app.js:1:18\n\
              0x7f0000001000 0x20 py::func:/usr/lib/x.py\n\
              00007F0000002000 10 void [System.Private.CoreLib] Program::Main(string[])[Tier0]\r\n\
              40000000 8 _ZN3foo3barEv\n",
        );
        assert_eq!(world.update(), Ok(true));
        assert_eq!(world.name(0x7f5c_8c0a_2b40).as_deref(), Some("JS:*hotInner /srv/my app.js:1:18"));
        assert_eq!(world.name(0x7f5c_8c0a_2d0f).as_deref(), Some("JS:*hotInner /srv/my app.js:1:18"));
        assert_eq!(world.name(0x7f5c_8c0a_2d10), None);
        assert_eq!(world.name(0x7f00_0000_101f).as_deref(), Some("py::func:/usr/lib/x.py"));
        let dotnet = "void [System.Private.CoreLib] Program::Main(string[])[Tier0]";
        assert_eq!(world.name(0x7f00_0000_2000).as_deref(), Some(dotnet), "without its carriage return");
        assert_eq!((world.map.len(), world.map.format().malformed), (4, 0));
    }

    #[test]
    fn lines_that_make_no_sense_are_passed_over_and_counted() {
        let mut world = world(
            b"\nhello\n1000\n1000 10\n1000 10 \nxyz 10 name\n1000 0 empty\nffffffffffffffff 2 past\n\
              11112222333344445 1 long\n0x 1 none\n-10 4 minus\n2000 10 good\n\xff\xfe\n",
        );
        assert_eq!(world.update(), Ok(true));
        assert_eq!(world.name(0x2000).as_deref(), Some("good"));
        assert_eq!((world.map.len(), world.map.format().malformed), (1, 11));
    }

    #[test]
    fn only_what_is_new_is_read_and_half_a_line_waits() {
        let mut world = world(b"1000 10 one\n2000 10 tw");
        assert_eq!(world.update(), Ok(true));
        assert_eq!((world.name(0x1000).as_deref(), world.name(0x2000)), (Some("one"), None));
        assert_eq!(world.update(), Ok(false), "nothing is new");
        world.append(b"o\n1008 4 three\n");
        assert_eq!(world.update(), Ok(true));
        assert_eq!(world.name(0x2000).as_deref(), Some("two"));
        let names = [0x1007, 0x1008, 0x100c].map(|address| world.name(address).unwrap());
        assert_eq!(names, ["one", "three", "one"], "the later one wins where they overlap");
    }

    #[test]
    fn a_map_that_was_written_anew_is_read_from_its_start() {
        let mut world = world(b"1000 10 one\n2000 10 two\n");
        assert_eq!(world.update(), Ok(true));
        std::fs::write(&world.path, b"1000 10 other\n").unwrap();
        assert_eq!(world.update(), Ok(true));
        assert_eq!((world.name(0x1000).as_deref(), world.name(0x2000)), (Some("other"), None), "it is shorter");
        std::fs::write(&world.path, b"4000 10 a\n5000 10 b\n6000 10 c\n").unwrap();
        assert_eq!(world.update(), Ok(true));
        let names = [0x1000, 0x4000, 0x5000, 0x6000].map(|address| world.name(address));
        assert_eq!(names, [None, Some("a".into()), Some("b".into()), Some("c".into())], "it is longer");
        std::fs::write(&world.path, b"").unwrap();
        assert_eq!(world.update(), Ok(true));
        assert_eq!(world.map.len(), 0);
    }

    #[test]
    fn a_name_whose_line_is_gone_is_no_other_lines() {
        let mut world = world(b"1000 10 one\n2000 10 two\n");
        assert_eq!(world.update(), Ok(true));
        std::fs::write(&world.path, b"two words, and no line of a map\n").unwrap();
        assert_eq!(world.map.name_at(0x1000), Err(Reason::Changed));
    }

    #[test]
    fn a_line_longer_than_a_window_has_a_name_that_is_cut_and_the_next_is_read() {
        let mut text = b"1000 10 ".to_vec();
        text.extend(std::iter::repeat_n(b'x', 3 * WINDOW));
        text.extend(b"\n2000 10 next\n");
        let mut world = world(&text);
        assert_eq!(world.update(), Ok(true));
        assert!(world.name(0x1000).unwrap().len() < WINDOW);
        assert_eq!(world.name(0x2000).as_deref(), Some("next"));
        assert_eq!((world.map.len(), world.map.format().malformed), (2, 0));
    }

    #[test]
    fn more_entries_than_are_kept_are_counted() {
        let mut text = Vec::new();
        for index in 0..crate::symbolize::jit::code_ranges::MAX_RANGES + 5 {
            writeln!(text, "{:x} 1 f", index * 2).unwrap();
        }
        let mut world = world(&text);
        assert_eq!(world.update(), Ok(true));
        assert_eq!(world.map.format().left_out, 5);
    }
}
