//! Heads and chunks of a file.

use std::io::{self, Read, Seek, SeekFrom, Write};

use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};

/// The first bytes of a file.
pub(in crate::formats) const MAGIC: &[u8; 8] = b"FLMTOP\r\n";
/// Readers refuse files with a larger major version.
pub(super) const MAJOR: u16 = 1;
const MINOR: u16 = 0;
/// Bytes of a file's head.
const HEAD: usize = 12;
/// Bytes of a chunk's head.
const CHUNK_HEAD: usize = 36;

/// The payload is a deflate stream.
pub(super) const DEFLATED: u8 = 1;
/// A reader that does not know the chunk's kind must refuse the file.
pub(super) const NEEDED: u8 = 2;

/// Largest payload after unpacking.
const LARGEST: usize = 16 << 20;
/// A file's payloads unpack to at most this much more than the file, and [`LITTLE`].
const MOST_UNPACKED: u64 = 100;
const LITTLE: u64 = 1 << 20;

/// Level of compression: higher levels save a hundredth of the bytes and take twice the time.
const LEVEL: u32 = 3;

/// The table in a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Kind {
    /// Empties all tables.
    Segment = 1,
    /// Texts.
    Text = 2,
    /// Objects that hold code.
    Object = 3,
    /// Labels of frames.
    Label = 4,
    /// Frames, without their labels.
    Frame = 5,
    /// Labels of frames.
    Name = 6,
    /// Threads.
    Thread = 7,
    /// Nodes of the trie of stacks. Node 0 is the empty stack.
    Node = 8,
    /// Samples, by time.
    Sample = 9,
    /// Processes. A later row of the same process replaces the earlier one.
    Process = 10,
    /// Paths of cgroups.
    Cgroup = 11,
    /// Names of users.
    User = 12,
    /// Sources of samples, and their counts.
    Source = 13,
    /// Facts by name. A later value replaces the earlier one.
    Fact = 14,
    /// Objects without names, and notes. The rows replace all earlier ones.
    Note = 15,
    /// The recording ended as it should.
    End = 16,
}

impl Kind {
    pub(super) const ALL: [Kind; 16] = [
        Kind::Segment,
        Kind::Text,
        Kind::Object,
        Kind::Label,
        Kind::Frame,
        Kind::Name,
        Kind::Thread,
        Kind::Node,
        Kind::Sample,
        Kind::Process,
        Kind::Cgroup,
        Kind::User,
        Kind::Source,
        Kind::Fact,
        Kind::Note,
        Kind::End,
    ];

    fn of(number: u8) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| *kind as u8 == number)
    }
}

/// Writes the head of a file.
pub(super) fn write_head(out: &mut Vec<u8>) {
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&MAJOR.to_le_bytes());
    out.extend_from_slice(&MINOR.to_le_bytes());
}

/// Writes a chunk. The payload is compressed if that makes it smaller. A payload that would become so small that a reader takes it for a
/// bomb stays as it is: processes choose texts, and such a text would make the whole recording unreadable.
pub(super) fn write_chunk(out: &mut Vec<u8>, kind: Kind, rows: u32, times: (u64, u64), payload: &[u8]) {
    let begin = out.len();
    out.resize(begin + CHUNK_HEAD, 0);
    let mut encoder = DeflateEncoder::new(std::mem::take(out), Compression::new(LEVEL));
    // Writing to memory cannot fail.
    let _ = encoder.write_all(payload);
    *out = encoder.finish().unwrap_or_default();
    let mut flags = DEFLATED;
    let stored = out.len() - begin - CHUNK_HEAD;
    if stored >= payload.len() || stored as u64 * MOST_UNPACKED / 2 < payload.len() as u64 {
        out.truncate(begin + CHUNK_HEAD);
        out.extend_from_slice(payload);
        flags = 0;
    }
    let length = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX).to_le_bytes();
    let stored = length(out.len() - begin - CHUNK_HEAD);
    let mut head = Vec::with_capacity(CHUNK_HEAD);
    head.extend_from_slice(&[kind as u8, flags, 0, 0]);
    head.extend_from_slice(&stored);
    head.extend_from_slice(&length(payload.len()));
    head.extend_from_slice(&rows.to_le_bytes());
    head.extend_from_slice(&times.0.to_le_bytes());
    head.extend_from_slice(&times.1.to_le_bytes());
    let mut crc = Crc::new();
    crc.update(&head);
    crc.update(out.get(begin + CHUNK_HEAD..).unwrap_or_default());
    head.extend_from_slice(&crc.sum().to_le_bytes());
    if let Some(place) = out.get_mut(begin..begin + CHUNK_HEAD) {
        place.copy_from_slice(&head);
    }
}

/// Most chunks whose heads are read to tell how long a recording is.
const MOST_HEADS: usize = 1 << 18;

/// Returns how many seconds lie between the first sample and the last one. It reads only the heads of chunks. `None` if the file is packed,
/// is several recordings, or has more chunks than that.
pub(in crate::formats) fn seconds(mut file: impl Read + Seek) -> Option<f64> {
    let mut span: Option<(u64, u64)> = None;
    let mut head = [0; CHUNK_HEAD];
    file.read_exact(head.get_mut(..HEAD)?).ok()?;
    head.starts_with(MAGIC).then_some(())?;
    for _ in 0..MOST_HEADS {
        if file.read_exact(&mut head).is_err() {
            return span.map(|(first, last)| last.saturating_sub(first) as f64 / 1e9);
        }
        if head.starts_with(MAGIC) {
            return None;
        }
        let long = |at: usize| head.get(at..)?.first_chunk().copied().map(u64::from_le_bytes);
        if head.first() == Some(&(Kind::Sample as u8)) {
            let (first, last) = long(16).zip(long(24))?;
            let (begin, end) = span.unwrap_or((first, last));
            span = Some((begin.min(first), end.max(last)));
        }
        let stored = head.get(4..)?.first_chunk().copied().map(u32::from_le_bytes)?;
        file.seek(SeekFrom::Current(stored.into())).ok()?;
    }
    None
}

/// A part of a file.
pub(super) enum Part {
    /// The head of a recording.
    Head { major: u16 },
    /// A chunk.
    Chunk(Chunk),
}

/// A chunk, unpacked.
pub(super) struct Chunk {
    /// `None` if this reader does not know the kind.
    pub(super) kind: Option<Kind>,
    pub(super) is_needed: bool,
    pub(super) rows: u32,
    pub(super) times: (u64, u64),
    pub(super) payload: Vec<u8>,
    /// Where it begins in the file.
    pub(super) at: u64,
}

/// The end of what can be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// The file ends after a whole chunk.
    Whole,
    /// The file was cut or damaged here.
    Cut { at: u64 },
}

/// Reads the parts of a file.
pub(super) struct Parts<'a> {
    input: &'a mut dyn Read,
    /// Bytes read.
    at: u64,
    unpacked: u64,
}

impl<'a> Parts<'a> {
    pub(super) fn new(input: &'a mut dyn Read) -> Parts<'a> {
        Parts { input, at: 0, unpacked: 0 }
    }

    /// Returns the next part, or how the file ends.
    pub(super) fn next(&mut self) -> io::Result<Result<Part, End>> {
        let at = self.at;
        let cut = Ok(Err(End::Cut { at }));
        let mut head = [0; CHUNK_HEAD];
        let (short, long) = head.split_at_mut(HEAD);
        match self.fill(short)? {
            0 => return Ok(Err(End::Whole)),
            HEAD => {}
            _ => return cut,
        }
        if let Some(rest) = short.strip_prefix(MAGIC) {
            let major = rest.first_chunk().copied().map_or(0, u16::from_le_bytes);
            return Ok(Ok(Part::Head { major }));
        }
        if self.fill(long)? < CHUNK_HEAD - HEAD {
            return cut;
        }
        let Some(chunk) = self.chunk(at, &head)? else { return cut };
        Ok(Ok(Part::Chunk(chunk)))
    }

    /// Reads the payload that belongs to a head. `None` if it is cut or damaged.
    fn chunk(&mut self, at: u64, head: &[u8; CHUNK_HEAD]) -> io::Result<Option<Chunk>> {
        let word = |at: usize| head.get(at..).and_then(|rest| rest.first_chunk()).copied().map_or(0, u32::from_le_bytes);
        let long = |at: usize| head.get(at..).and_then(|rest| rest.first_chunk()).copied().map_or(0, u64::from_le_bytes);
        let [kind, flags, ..] = *head;
        let (stored, raw, rows, crc) = (word(4) as usize, word(8) as usize, word(12), word(32));
        if raw > LARGEST || stored > raw {
            return Ok(None);
        }
        // Memory grows as bytes come, whatever the head claims.
        let mut payload = Vec::new();
        Read::take(&mut *self.input, stored as u64).read_to_end(&mut payload)?;
        self.at += payload.len() as u64;
        let mut sum = Crc::new();
        sum.update(head.get(..CHUNK_HEAD - 4).unwrap_or_default());
        sum.update(&payload);
        if payload.len() < stored || sum.sum() != crc {
            return Ok(None);
        }
        self.unpacked += raw as u64;
        if self.unpacked > LITTLE + MOST_UNPACKED * self.at {
            let words = format!("it unpacks to more than {MOST_UNPACKED} times its size, so the rest was not read");
            return Err(io::Error::new(io::ErrorKind::InvalidData, words));
        }
        if flags & DEFLATED != 0 {
            let mut unpacked = Vec::with_capacity(raw);
            let read = flate2::bufread::DeflateDecoder::new(&*payload).take(raw as u64 + 1).read_to_end(&mut unpacked);
            payload = unpacked;
            if read.is_err() {
                return Ok(None);
            }
        }
        let is_whole = payload.len() == raw;
        let (kind, is_needed) = (Kind::of(kind), flags & NEEDED != 0);
        Ok(is_whole.then_some(Chunk { kind, is_needed, rows, times: (long(16), long(24)), payload, at }))
    }

    fn fill(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while let Some(free) = into.get_mut(filled..).filter(|free| !free.is_empty()) {
            match self.input.read(free) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.at += filled as u64;
        Ok(filled)
    }
}
