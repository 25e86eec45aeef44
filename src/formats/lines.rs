//! Reads the lines of a file of any size, in UTF-8 or UTF-16, and holds at most one chunk or one line in memory.
//!
//! A file in UTF-16 with a byte order mark is returned as UTF-8. The bytes of any other file are returned unchanged. Only a byte order
//! mark is left out.

use std::io::{self, Chain, Cursor, Read};

use super::FormatError;

/// How the text was stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Encoding {
    /// UTF-8, or bytes that mostly are.
    #[default]
    Utf8,
    /// UTF-16, little-endian, recognized by its byte order mark.
    Utf16Le,
    /// UTF-16, big-endian, recognized by its byte order mark.
    Utf16Be,
}

/// Bytes of one read: large enough that the cost of system calls does not matter, small enough for the second-level cache.
const CHUNK: usize = 256 << 10;

/// The longest line: 5,000 frames of 10,000 bytes fit.
const MAX_LINE: usize = 64 << 20;

/// Reads lines and counts them.
pub(super) struct Lines<R> {
    input: Decoded<R>,
    buffer: Vec<u8>,
    /// `buffer[start..end]` has been read and not yet handed out.
    start: usize,
    end: usize,
    at_end: bool,
    number: u64,
    max_line: usize,
    encoding: Encoding,
}

impl<R: Read> Lines<R> {
    /// Checks the first bytes for a byte order mark. An empty file is an error.
    pub(super) fn new(mut input: R) -> Result<Lines<R>, FormatError> {
        let mut head = [0u8; 4];
        let length = fill(&mut input, &mut head).map_err(FormatError::Read)?;
        let head = head.get(..length).unwrap_or_default();
        if head.is_empty() {
            return Err(FormatError::EmptyFile);
        }
        let (encoding, mark) = match head {
            [0xef, 0xbb, 0xbf, ..] => (Encoding::Utf8, 3),
            [0xff, 0xfe, ..] => (Encoding::Utf16Le, 2),
            [0xfe, 0xff, ..] => (Encoding::Utf16Be, 2),
            _ => (Encoding::Utf8, 0),
        };
        let rest = Cursor::new(head.get(mark..).unwrap_or_default().to_vec()).chain(input);
        let input = match encoding {
            Encoding::Utf8 => Decoded::AsItIs(rest),
            Encoding::Utf16Le => Decoded::Utf16(Box::new(Utf16::new(rest, u16::from_le_bytes))),
            Encoding::Utf16Be => Decoded::Utf16(Box::new(Utf16::new(rest, u16::from_be_bytes))),
        };
        let buffer = vec![0; CHUNK];
        Ok(Lines { input, buffer, start: 0, end: 0, at_end: false, number: 0, max_line: MAX_LINE, encoding })
    }

    /// Returns how the file is stored.
    pub(super) fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Returns the number of the line that was returned last, from 1.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the next line without its newline; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>, FormatError> {
        let mut searched = self.start;
        let (line, next) = loop {
            let unsearched = self.buffer.get(searched..self.end).unwrap_or_default();
            if let Some(offset) = memchr::memchr(b'\n', unsearched) {
                break (self.start..searched + offset, searched + offset + 1);
            }
            if self.at_end {
                if self.start == self.end {
                    return Ok(None);
                }
                break (self.start..self.end, self.end);
            }
            let pending = self.end - self.start;
            self.read_more()?;
            searched = self.start + pending;
        };
        self.start = next;
        self.number += 1;
        Ok(self.buffer.get(line))
    }

    /// Moves unread bytes to the front of the buffer and fills the rest of it. A line longer than the buffer doubles the buffer's
    /// size.
    fn read_more(&mut self) -> Result<(), FormatError> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.end > self.max_line {
            return Err(FormatError::LineTooLong { line: self.number + 1, limit: self.max_line });
        }
        if self.end == self.buffer.len() {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        let free = self.buffer.get_mut(self.end..).unwrap_or_default();
        let read = read_some(&mut self.input, free).map_err(FormatError::Read)?;
        self.end += read;
        self.at_end = read == 0;
        Ok(())
    }
}

/// Reads once, and repeats the read if a signal interrupted it.
fn read_some(input: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    loop {
        match input.read(into) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Reads until `into` is full or the input ends. Returns the number of bytes read.
fn fill(input: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(free) = into.get_mut(filled..).filter(|free| !free.is_empty()) {
        match read_some(input, free)? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(filled)
}

type Rest<R> = Chain<Cursor<Vec<u8>>, R>;

enum Decoded<R> {
    AsItIs(Rest<R>),
    Utf16(Box<Utf16<Rest<R>>>),
}

impl<R: Read> Read for Decoded<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Decoded::AsItIs(input) => input.read(into),
            Decoded::Utf16(input) => input.read(into),
        }
    }
}

/// Converts UTF-16 to UTF-8, chunk by chunk. A surrogate without its other half, or half a unit at the end, becomes U+FFFD.
struct Utf16<R> {
    input: R,
    unit: fn([u8; 2]) -> u16,
    raw: Vec<u8>,
    /// High surrogate at the end of a chunk. It waits for the next chunk.
    waiting: Option<u16>,
    decoded: String,
    given: usize,
}

impl<R: Read> Utf16<R> {
    fn new(input: R, unit: fn([u8; 2]) -> u16) -> Utf16<R> {
        Utf16 { input, unit, raw: vec![0; 64 << 10], waiting: None, decoded: String::new(), given: 0 }
    }

    fn decode_chunk(&mut self) -> io::Result<()> {
        let length = fill(&mut self.input, &mut self.raw)?;
        let raw = self.raw.get(..length).unwrap_or_default();
        let (pairs, odd) = raw.as_chunks::<2>();
        let mut units: Vec<u16> = self.waiting.take().into_iter().chain(pairs.iter().map(|pair| (self.unit)(*pair))).collect();
        let more_may_come = length == self.raw.len();
        if more_may_come && units.last().is_some_and(|last| (0xd800..0xdc00).contains(last)) {
            self.waiting = units.pop();
        }
        self.decoded.clear();
        self.given = 0;
        self.decoded.extend(char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)));
        if !odd.is_empty() {
            self.decoded.push(char::REPLACEMENT_CHARACTER);
        }
        Ok(())
    }
}

impl<R: Read> Read for Utf16<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.given == self.decoded.len() {
            self.decode_chunk()?;
        }
        let mut left = self.decoded.as_bytes().get(self.given..).unwrap_or_default();
        let read = left.read(into)?;
        self.given += read;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(input: &[u8]) -> Vec<String> {
        let mut lines = Lines::new(input).unwrap();
        let mut all = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            all.push(String::from_utf8_lossy(line).into_owned());
        }
        all
    }

    #[test]
    fn lines_end_at_newlines_and_at_the_end_of_the_file() {
        assert_eq!(lines_of(b"a\n\nb\r\nc"), ["a", "", "b\r", "c"]);
        assert_eq!(lines_of(b"a\n"), ["a"]);
        assert_eq!(lines_of(b"\xef\xbb\xbfa 1\n"), ["a 1"]);
    }

    #[test]
    fn lines_of_all_lengths_cross_chunks_unharmed() {
        let long = "x".repeat(3 * CHUNK + 7);
        let text: String = (0..40).map(|n| format!("{}{n}\n", &long[..n * n * 500])).collect::<String>() + &long;
        let expected: Vec<&str> = text.lines().collect();
        assert_eq!(lines_of(text.as_bytes()), expected);
    }

    #[test]
    fn utf16_is_read_in_both_byte_orders_over_chunk_borders() {
        let text: String = "aé€😀;b 1\n".repeat(20_000);
        let units: Vec<u16> = std::iter::once(0xfeff).chain(text.encode_utf16()).collect();
        let little: Vec<u8> = units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
        let big: Vec<u8> = units.iter().flat_map(|unit| unit.to_be_bytes()).collect();
        let expected: Vec<&str> = text.lines().collect();
        assert_eq!(lines_of(&little), expected);
        assert_eq!(lines_of(&big), expected);
    }

    #[test]
    fn half_a_character_of_utf16_becomes_a_replacement() {
        assert_eq!(lines_of(b"\xff\xfea\0\x3d\xd8b\0c"), ["a\u{fffd}b\u{fffd}"]);
        assert_eq!(lines_of(b"\xff\xfea\0\x3d\xd8"), ["a\u{fffd}"]);
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let mut lines = Lines::new(io::repeat(b'x')).unwrap();
        lines.max_line = 1 << 20;
        assert!(matches!(lines.next(), Err(FormatError::LineTooLong { line: 1, .. })));
    }

    #[test]
    fn an_empty_file_is_refused() {
        assert!(matches!(Lines::new(&b""[..]), Err(FormatError::EmptyFile)));
    }
}
