//! Recordings: all samples with their times, threads, stacks and names. A recording opens in all views as if it were live.
//!
//! # The file
//!
//! ```text
//! file   = head chunk…           a head may also stand between chunks: two recordings put together by cat are one
//! head   = "FLMTOP\r\n", major u16, minor u16                                                              12 bytes
//! chunk  = kind u8, flags u8, 0 u16, stored u32, raw u32, rows u32, first u64, last u64, crc u32, payload  36 bytes + stored
//! ```
//!
//! All numbers are little-endian. `stored` is the length of the payload, `raw` its length after unpacking; they are equal, or the payload
//! is a deflate stream (bit 0 of the flags). `first` and `last` are the times of the samples in the chunk. The checksum is the CRC-32 of
//! the 32 bytes before it and of the payload. A payload is a table in columns: tag u8, length u32, bytes. A value is a varint (LEB128).
//! A column without bytes is all zeros. Readers skip chunks and columns that they do not know, so both can be added without a new major
//! version. A chunk with bit 1 of its flags set may not be skipped.
//!
//! Chunks are written about once a second, all of them in one write: first new rows of tables, then samples. Rows refer to earlier rows by
//! number, counted from 0 in each table. A chunk of kind `Segment` empties all tables. It begins a recording. It also follows when
//! flametop has renewed its names, and when the writer keeps too many texts. A frame may get its name in a later chunk than its samples; the last name counts.
//!
//! A file that was cut anywhere is read to its last whole chunk. Without a chunk of kind `End`, the recording was cut.
//!
//! # Writing
//!
//! [`Recorder`] is a [`Sink`](crate::formats::Sink). Once a second it takes the samples that came since the last time. Tables are sent as
//! samples need them. Samples that are still being taken, samples of the last minutes and samples of another file are all written in the
//! same way. If the store has dropped samples before they were written, they are counted as lost.

mod chunk;
mod columns;
mod kinds;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub(super) use chunk::seconds;
pub(super) use read::{open, recognizes};
pub use write::Recorder;
