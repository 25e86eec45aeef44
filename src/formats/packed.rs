//! Unpacks compressed files while they are read.
//!
//! A file says itself how it is compressed. A hostile one may unpack to more than a disk holds. So reading ends when the content
//! is out of proportion to the file.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Chain, Cursor, Read};
use std::rc::Rc;

use flate2::bufread::MultiGzDecoder;
use lzma_rust2::XzReader;
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

/// Number of first bytes that are enough to recognize a format.
pub(super) const HEAD: usize = 4096;

/// The first bytes of a frame of zstd.
pub(super) const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// Most times that a file is compressed.
const MOST_LAYERS: usize = 2;

/// Text of stacks shrinks to a twentieth or a fiftieth.
const MOST_UNPACKED: u64 = 500;
/// A small file may always unpack to this much.
const LITTLE: u64 = 16 << 20;

/// Largest dictionary of xz. `xz -9` uses 64 MiB.
const XZ_MEMORY_KIB: u32 = 80 << 10;

const CHUNK: usize = 64 << 10;

/// A file's content, and its first bytes.
pub(super) struct Unpacked<'a> {
    /// At most [`HEAD`] bytes. Less only if the content is shorter.
    pub(super) head: Vec<u8>,
    /// The whole content, from its first byte on.
    pub(super) content: Box<dyn BufRead + 'a>,
}

/// Begins to unpack a file. The content of an uncompressed file is the file.
pub(super) fn unpack<'a>(input: impl Read + 'a) -> io::Result<Unpacked<'a>> {
    let mut input: Box<dyn Read + 'a> = Box::new(input);
    let mut layers = 0;
    loop {
        let head = peek(&mut input)?;
        let content = Cursor::new(head.clone()).chain(input);
        let Some(packing) = Packing::of(&head).filter(|_| layers < MOST_LAYERS) else {
            return Ok(Unpacked { head, content: Box::new(BufReader::with_capacity(CHUNK, content)) });
        };
        layers += 1;
        input = Box::new(Bounded::new(packing, content)?);
    }
}

fn peek(input: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(HEAD);
    input.by_ref().take(HEAD as u64).read_to_end(&mut head)?;
    Ok(head)
}

/// A way to compress a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Packing {
    Gzip,
    Zstd,
    Xz,
}

impl Packing {
    fn of(head: &[u8]) -> Option<Packing> {
        match head {
            [0x1f, 0x8b, ..] => Some(Packing::Gzip),
            head if head.starts_with(ZSTD) => Some(Packing::Zstd),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Packing::Xz),
            _ => None,
        }
    }
}

/// Counts the bytes that are read.
struct Counted<R> {
    input: R,
    count: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(into)?;
        self.count.set(self.count.get() + read as u64);
        Ok(read)
    }
}

type Source<'a> = BufReader<Counted<Chain<Cursor<Vec<u8>>, Box<dyn Read + 'a>>>>;

/// Unpacks, and fails once the result is out of proportion.
struct Bounded<'a> {
    unpacking: Box<dyn Read + 'a>,
    packed: Rc<Cell<u64>>,
    unpacked: u64,
}

impl<'a> Bounded<'a> {
    fn new(packing: Packing, input: Chain<Cursor<Vec<u8>>, Box<dyn Read + 'a>>) -> io::Result<Bounded<'a>> {
        let packed = Rc::new(Cell::new(0));
        let source = BufReader::with_capacity(CHUNK, Counted { input, count: Rc::clone(&packed) });
        let unpacking: Box<dyn Read + 'a> = match packing {
            Packing::Gzip => Box::new(MultiGzDecoder::new(source)),
            Packing::Zstd => Box::new(ZstdFrames::new(source)?),
            Packing::Xz => Box::new(XzReader::new_mem_limit(source, true, XZ_MEMORY_KIB)),
        };
        Ok(Bounded { unpacking, packed, unpacked: 0 })
    }
}

impl Read for Bounded<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.unpacking.read(into)?;
        self.unpacked += read as u64;
        if self.unpacked > LITTLE + self.packed.get() * MOST_UNPACKED {
            let words = format!("it unpacks to more than {MOST_UNPACKED} times its size, so the rest was not read");
            return Err(io::Error::new(io::ErrorKind::InvalidData, words));
        }
        Ok(read)
    }
}

/// The frames of a zstd file, one after another: `zstd` and `pzstd` write several if they are asked to.
struct ZstdFrames<'a> {
    /// `None` after the last frame.
    frame: Option<StreamingDecoder<Source<'a>, FrameDecoder>>,
}

impl<'a> ZstdFrames<'a> {
    fn new(source: Source<'a>) -> io::Result<ZstdFrames<'a>> {
        Ok(ZstdFrames { frame: Some(StreamingDecoder::new(source).map_err(io::Error::other)?) })
    }
}

impl Read for ZstdFrames<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while let Some(frame) = &mut self.frame {
            let read = frame.read(into)?;
            if read > 0 || into.is_empty() {
                return Ok(read);
            }
            let mut source = self.frame.take().map(StreamingDecoder::into_inner);
            if let Some(mut source) = source.take()
                && !source.fill_buf()?.is_empty()
            {
                self.frame = Some(StreamingDecoder::new(source).map_err(io::Error::other)?);
            }
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
    }

    fn content(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut unpacked = unpack(bytes)?;
        let mut all = Vec::new();
        unpacked.content.read_to_end(&mut all)?;
        assert_eq!(unpacked.head, &all[..all.len().min(HEAD)]);
        Ok(all)
    }

    #[test]
    fn each_packing_is_recognized_in_pieces_and_in_each_other() {
        let text: Vec<u8> = (0..40_000).flat_map(|n| format!("main;f{};g{n} 1\n", n % 7).into_bytes()).collect();
        let (front, back) = text.split_at(100_000);
        assert_eq!(content(&text).unwrap(), text);
        assert_eq!(content(&gzip(&text)).unwrap(), text);
        assert_eq!(content(&[gzip(front), gzip(back)].concat()).unwrap(), text);
        assert_eq!(content(&zstd(&text)).unwrap(), text);
        assert_eq!(content(&[zstd(front), zstd(back)].concat()).unwrap(), text);
        assert_eq!(content(&gzip(&zstd(&text))).unwrap(), text);
        assert_eq!(content(b"").unwrap(), b"");
        // What `printf 'a;b 3\n' | xz` writes.
        let xz = [
            0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00, 0x00, 0x04, 0xe6, 0xd6, 0xb4, 0x46, 0x02, 0x00, 0x21, 0x01, 0x16, 0x00, 0x00,
            0x00, 0x74, 0x2f, 0xe5, 0xa3, 0x01, 0x00, 0x05, 0x61, 0x3b, 0x62, 0x20, 0x33, 0x0a, 0x00, 0x00, 0x00, 0x75, 0x5f,
            0x91, 0xeb, 0xf2, 0xed, 0x99, 0x3b, 0x00, 0x01, 0x1e, 0x06, 0xc1, 0x2f, 0xa4, 0x1d, 0x1f, 0xb6, 0xf3, 0x7d, 0x01,
            0x00, 0x00, 0x00, 0x00, 0x04, 0x59, 0x5a,
        ];
        assert_eq!(content(&xz).unwrap(), b"a;b 3\n");
        assert!(content(&xz[..xz.len() - 20]).is_err());
    }

    #[test]
    fn a_bomb_ends_at_a_bound_and_a_cut_file_is_an_error() {
        let error = content(&gzip(&vec![b'x'; 64 << 20])).unwrap_err();
        assert!(error.to_string().starts_with("it unpacks to more than 500 times"), "{error}");
        let whole = gzip(b"main;f 1\n");
        assert!(content(&whole[..whole.len() - 4]).is_err());
        let whole = zstd(b"main;f 1\n");
        assert!(content(&whole[..whole.len() - 4]).is_err());
        // Compressed three times: what is inside is none of ours.
        assert_eq!(content(&gzip(&gzip(&gzip(b"a 1")))).unwrap(), gzip(b"a 1"));
    }
}
