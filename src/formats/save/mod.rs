//! Puts a file in its place whole or not at all.
//!
//! A save writes to a temporary file in the same directory, which is then renamed. If any step fails, the temporary file is removed
//! and an existing file stays untouched. A symbolic link is replaced, not followed: flametop runs as root, and a link in a
//! directory that others can write to may lead anywhere. The directory is opened once (`save/place.rs`).
//!
//! Files are private to their owner (0600): they show what root saw of all users.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Mutex;

use super::{Format, FormatError};
use crate::locks;

mod error;
mod growing;
mod name;
mod person;
mod place;
mod stream;
#[cfg(test)]
mod tests;

pub use error::SaveError;
use error::{content_error, failure};
pub use growing::Growing;
pub use name::{DateTime, default_name};
pub use person::expand_home;
use person::give_to_caller_of_sudo;
pub use place::Overwrite;
use place::Place;
pub use stream::is_standard_output;
use stream::{Stream, open_pipe, stream_of};

/// Result of a successful save.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Saved {
    /// Size of the file.
    pub bytes: u64,
}

/// Saves the output of `write` as `path`.
///
/// The file gets mode 0600. Under sudo it belongs to the user who called sudo. For `-`, standard output and other streams under
/// `/dev`, the output goes straight there. The writer that `write` gets is buffered.
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
    // A failing disk reports its error now, while the old file still exists.
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

/// Checks whether [`save`] could put a file there. It refuses what [`save`] would refuse, before the work of a long recording. Returns
/// `format`, or else the format of the name.
pub fn check(path: &Path, overwrite: Overwrite, format: Option<Format>) -> Result<Format, SaveError> {
    let format = format.map_or_else(|| Format::of(path), Ok)?;
    if stream_of(path).is_none() {
        Place::open(path, overwrite)?;
    }
    Ok(format)
}

/// A named pipe that has a reader.
///
/// The pipe is opened once: a reader that has seen it opened and closed takes that for the end of the file.
#[derive(Debug)]
pub struct Pipe(fs::File);

impl Pipe {
    /// Opens `path` if it is a named pipe and not under `/dev` or `/proc`; otherwise returns `None`. Fails if the pipe has no
    /// reader yet ([`SaveError::NoReader`]).
    pub fn open(path: &Path) -> Result<Option<Pipe>, SaveError> {
        if stream_of(path) != Some(Stream::Pipe) {
            return Ok(None);
        }
        open_pipe(path).map(|file| Some(Pipe(file))).map_err(|source| failure(path, source))
    }

    /// Saves the output of `write`, as [`save`] does. Errors name `path`.
    pub fn save(self, path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<(), FormatError>) -> Result<Saved, SaveError> {
        write_to(self.0, write).map(|(_, saved)| saved).map_err(|error| content_error(path, error))
    }
}

/// Creates a file for other writers, such as a command's output. An existing file is not emptied, and a link is not followed. The
/// file belongs to the user who called sudo. Standard output and other streams under `/dev` are opened.
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

/// Temporary files of unfinished saves.
static UNFINISHED: Mutex<Vec<Place>> = Mutex::new(Vec::new());

/// A temporary file. Dropping this removes the file, unless it was renamed.
struct Unfinished(Place);

impl Unfinished {
    fn new(place: Place) -> Unfinished {
        locks::lock(&UNFINISHED).push(place.clone());
        Unfinished(place)
    }

    /// Marks the file as renamed: there is nothing left to remove.
    fn has_its_name(self) {
        locks::lock(&UNFINISHED).retain(|place| place.name != self.0.name);
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let mut unfinished = locks::lock(&UNFINISHED);
        // After a rename, another user may own a file of the old name. It must not be removed.
        if unfinished.iter().any(|place| place.name == self.0.name) {
            self.0.remove();
            unfinished.retain(|place| place.name != self.0.name);
        }
    }
}

/// Removes the temporary files of unfinished saves. For callers that end the program at once, when nothing is dropped.
pub fn remove_unfinished() {
    remove_all(&locks::lock(&UNFINISHED));
}

fn remove_all(places: &[Place]) {
    // A file may have been renamed just now.
    places.iter().for_each(Place::remove);
}

/// Writes everything to `target` and returns it.
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
