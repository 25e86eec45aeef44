//! Puts a file in its place whole or not at all.
//!
//! What is written goes to a temporary file in the same directory, which then takes the name. Whatever fails on the way, the
//! temporary file is removed and what stood there before is untouched. A symbolic link is replaced, not followed: flametop
//! runs as root, and a link in a directory that others can write to may lead anywhere.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::FormatError;

mod error;
mod name;
mod person;
mod stream;
#[cfg(test)]
mod tests;

pub use error::SaveError;
use error::{content_error, failure};
pub use name::{DateTime, default_name};
pub use person::expand_home;
use person::give_to_caller_of_sudo;
pub use stream::is_standard_output;
use stream::{Stream, stream_of};

/// A kind of file that can be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// An interactive flame graph.
    Svg,
    /// Folded stacks.
    Folded,
}

impl Format {
    /// By the ending of the file's name: `.svg`, `.folded` or `.txt`, in upper or lower case. Standard output and other
    /// streams (`-`, `/dev/…`) have no ending and take folded stacks.
    pub fn of(path: &Path) -> Result<Format, SaveError> {
        let ending = path.extension().and_then(OsStr::to_str).map(str::to_ascii_lowercase);
        match ending.as_deref() {
            Some("svg") => Ok(Format::Svg),
            Some("folded" | "txt") => Ok(Format::Folded),
            _ if stream_of(path).is_some() => Ok(Format::Folded),
            _ => Err(SaveError::UnknownEnding { path: path.into() }),
        }
    }

    /// The ending of its files, without the dot.
    pub fn ending(self) -> &'static str {
        match self {
            Format::Svg => "svg",
            Format::Folded => "folded",
        }
    }
}

/// Whether a file that is there may be replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Overwrite {
    /// Not without asking: [`SaveError::Exists`] comes back.
    No,
    /// The user has agreed.
    Yes,
}

/// What was saved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Saved {
    /// Its size.
    pub bytes: u64,
}

/// Saves what `write` writes as `path`.
///
/// The file gets mode 0644 less the umask, and belongs to whoever called sudo if flametop runs under it. For `-`, standard
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
    let directory = look_at_target(path, overwrite)?;
    let temporary = tempfile::Builder::new()
        .prefix(".flametop-")
        .permissions(fs::Permissions::from_mode(0o644))
        .tempfile_in(&directory)
        .map_err(failed)?;
    let _unfinished = Unfinished::new(temporary.path());
    let (_, saved) = write_to(temporary.as_file(), write).map_err(|error| content_error(path, error))?;
    give_to_caller_of_sudo(temporary.as_file());
    let persisted = match overwrite {
        Overwrite::Yes => temporary.persist(path),
        Overwrite::No => temporary.persist_noclobber(path),
    };
    // On failure the error holds the temporary file, which is removed when it is dropped here.
    persisted.map_err(|error| failure(path, error.error))?;
    Ok(saved)
}

/// Whether [`save`] could put a file there: what it would refuse is refused here, before the work of a long recording.
pub fn check(path: &Path, overwrite: Overwrite) -> Result<Format, SaveError> {
    let format = Format::of(path)?;
    if stream_of(path).is_none() {
        look_at_target(path, overwrite)?;
    }
    Ok(format)
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
        None => {}
    }
    look_at_target(path, Overwrite::No)?;
    // O_EXCL alone follows no link in the last place; the other flag says so.
    let flags = i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or(0);
    let file = fs::OpenOptions::new().write(true).create_new(true).custom_flags(flags).mode(0o644).open(path).map_err(failed)?;
    give_to_caller_of_sudo(&file);
    Ok(file)
}

/// Temporary files of saves that go on now.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

struct Unfinished(PathBuf);

impl Unfinished {
    fn new(path: &Path) -> Unfinished {
        UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner).push(path.into());
        Unfinished(path.into())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner).retain(|path| *path != self.0);
    }
}

/// Removes the temporary files of saves that go on: for who ends the program at once, when nothing is dropped any more.
pub fn remove_unfinished() {
    remove_all(&UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner));
}

fn remove_all(paths: &[PathBuf]) {
    for path in paths {
        // It may have got its name just now.
        let _ = fs::remove_file(path);
    }
}

/// The directory to write to, if a file of that name can be put there.
fn look_at_target(path: &Path, overwrite: Overwrite) -> Result<PathBuf, SaveError> {
    if path.file_name().is_none() || path.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return Err(SaveError::IsDirectory { path: path.into() });
    }
    match fs::symlink_metadata(path) {
        Ok(there) if there.is_dir() => return Err(SaveError::IsDirectory { path: path.into() }),
        Ok(_) if overwrite == Overwrite::No => return Err(SaveError::Exists { path: path.into() }),
        _ => {}
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match fs::metadata(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(SaveError::NoDirectory { directory: directory.into() }),
        _ => Ok(directory.into()),
    }
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
