//! Puts a file in its place whole or not at all.
//!
//! What is written goes to a temporary file in the same directory, which then takes the name. Whatever fails on the way, the
//! temporary file is removed and what stood there before is untouched. A symbolic link is replaced, not followed: flametop
//! runs as root, and a link in a directory that others can write to may lead anywhere. The directory is opened once (`save/place.rs`).
//!
//! Files are their owner's alone (0600): they show what root saw of everybody.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Mutex;

use super::{Format, FormatError};
use crate::locks;

mod error;
mod name;
mod person;
mod place;
mod stream;
#[cfg(test)]
mod tests;

pub use error::SaveError;
use error::{content_error, failure};
pub use name::{DateTime, default_name};
pub use person::expand_home;
use person::give_to_caller_of_sudo;
pub use place::Overwrite;
use place::Place;
pub use stream::is_standard_output;
use stream::{Stream, open_pipe, stream_of};

/// What was saved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Saved {
    /// Its size.
    pub bytes: u64,
}

/// Saves what `write` writes as `path`.
///
/// The file gets mode 0600, and belongs to whoever called sudo if flametop runs under it. For `-`, standard
/// output and other streams under `/dev`, what is written goes straight there. The writer that `write` gets is buffered.
pub fn save(
    path: &Path,
    overwrite: Overwrite,
    write: impl FnOnce(&mut dyn Write) -> Result<(), FormatError>,
) -> Result<Saved, SaveError> {
    let failed = |source: io::Error| failure(path, source);
    if let Some(stream) = stream_of(path) {
        return write_to(stream.open(path).map_err(failed)?, write)
            .map_err(|error| content_error(path, error))
            .map(|(_, saved)| saved);
    }
    let place = Place::open(path, overwrite)?;
    let (temporary, file) = place.create_beside().map_err(failed)?;
    let unfinished = Unfinished::new(temporary);
    let (file, saved) = write_to(file, write).map_err(|error| content_error(path, error))?;
    give_to_caller_of_sudo(&file);
    // A disk that fails says so now, while what stood there before is still there.
    match file.sync_all() {
        Err(error) if error.kind() != io::ErrorKind::InvalidInput && error.kind() != io::ErrorKind::Unsupported => {
            return Err(failed(error));
        }
        _ => {}
    }
    place.take(&unfinished.0, overwrite).map_err(failed)?;
    unfinished.has_its_name();
    Ok(saved)
}

/// Whether [`save`] could put a file there: what it would refuse is refused here, before the work of a long recording.
pub fn check(path: &Path, overwrite: Overwrite) -> Result<Format, SaveError> {
    let format = Format::of(path)?;
    if stream_of(path).is_none() {
        Place::open(path, overwrite)?;
    }
    Ok(format)
}

/// A named pipe that has a reader.
///
/// It is opened once: a reader that has seen it opened and closed takes that for the end of the file.
#[derive(Debug)]
pub struct Pipe(fs::File);

impl Pipe {
    /// Opens `path` if it is a named pipe and not under `/dev` or `/proc`. `None` if it is none. Fails if nobody reads it yet
    /// ([`SaveError::NoReader`]).
    pub fn open(path: &Path) -> Result<Option<Pipe>, SaveError> {
        if stream_of(path) != Some(Stream::Pipe) {
            return Ok(None);
        }
        open_pipe(path).map(|file| Some(Pipe(file))).map_err(|source| failure(path, source))
    }

    /// Saves what `write` writes, as [`save`] does. `path` is named where that fails.
    pub fn save(self, path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<(), FormatError>) -> Result<Saved, SaveError> {
        write_to(self.0, write).map(|(_, saved)| saved).map_err(|error| content_error(path, error))
    }
}

/// A new file for what others write, such as a command's output: one that is there is neither emptied nor followed if it is a
/// link. It belongs to whoever called sudo. Standard output and other streams under `/dev` are opened.
pub fn create(path: &Path) -> Result<fs::File, SaveError> {
    let failed = |source: io::Error| failure(path, source);
    let duplicate = |stream: BorrowedFd<'_>| stream.try_clone_to_owned().map(fs::File::from);
    match stream_of(path) {
        Some(Stream::Output) => return duplicate(rustix::stdio::stdout()).map_err(failed),
        Some(Stream::Error) => return duplicate(rustix::stdio::stderr()).map_err(failed),
        Some(Stream::Device) => return fs::OpenOptions::new().write(true).open(path).map_err(failed),
        Some(Stream::Pipe) => return open_pipe(path).map_err(failed),
        None => {}
    }
    let file = Place::open(path, Overwrite::No)?.create().map_err(failed)?;
    give_to_caller_of_sudo(&file);
    Ok(file)
}

/// Temporary files of saves that go on now.
static UNFINISHED: Mutex<Vec<Place>> = Mutex::new(Vec::new());

/// A temporary file. Removed when this is dropped, unless it got its name.
struct Unfinished(Place);

impl Unfinished {
    fn new(place: Place) -> Unfinished {
        locks::lock(&UNFINISHED).push(place.clone());
        Unfinished(place)
    }

    /// There is nothing to remove any more.
    fn has_its_name(self) {
        locks::lock(&UNFINISHED).retain(|place| place.name != self.0.name);
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let mut unfinished = locks::lock(&UNFINISHED);
        // Once it has its name, nobody else's file of the old one is ours to remove.
        if unfinished.iter().any(|place| place.name == self.0.name) {
            self.0.remove();
            unfinished.retain(|place| place.name != self.0.name);
        }
    }
}

/// Removes the temporary files of saves that go on: for who ends the program at once, when nothing is dropped any more.
pub fn remove_unfinished() {
    remove_all(&locks::lock(&UNFINISHED));
}

fn remove_all(places: &[Place]) {
    // One may have got its name just now.
    places.iter().for_each(Place::remove);
}

/// Writes to `target` and gives it back, all of it written.
fn write_to<W: Write>(
    target: W,
    write: impl FnOnce(&mut dyn Write) -> Result<(), FormatError>,
) -> Result<(W, Saved), FormatError> {
    let mut counted = BufWriter::with_capacity(256 << 10, Counted { inner: target, bytes: 0 });
    write(&mut counted)?;
    let mut counted = counted.into_inner().map_err(|error| FormatError::Write(error.into_error()))?;
    counted.flush()?;
    Ok((counted.inner, Saved { bytes: counted.bytes }))
}

struct Counted<W> {
    inner: W,
    bytes: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
