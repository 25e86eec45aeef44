//! Reasons why nothing was saved, as sentences.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::formats::FormatError;
use crate::formats::table::known_endings;

/// Reason why nothing was saved. Each message is one sentence that names the file and says what to do.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// The name does not say which format is meant.
    #[error("unknown file ending: `{}`; use one of {}", path.display(), known_endings())]
    UnknownEnding {
        /// As it was given.
        path: PathBuf,
    },
    /// The file exists already, and the user has not agreed to replace it.
    #[error("`{}` exists already; confirm replacing it, or choose another name", path.display())]
    Exists {
        /// As it was given.
        path: PathBuf,
    },
    /// There is a directory of that name.
    #[error("`{}` is a directory; give the name of a file", path.display())]
    IsDirectory {
        /// As it was given.
        path: PathBuf,
    },
    /// A device, a socket or another user's pipe has that name.
    #[error("`{}` is {what} and cannot be replaced; give the name of a file", path.display())]
    NoFile {
        /// As it was given.
        path: PathBuf,
        /// Its kind, with an article.
        what: &'static str,
    },
    /// Another user's link is on the way, and may lead anywhere.
    #[error(
        "`{}` was not saved: `{}` is another user's link and is not followed; give the path it points to",
        path.display(), link.display()
    )]
    ForeignLink {
        /// As it was given.
        path: PathBuf,
        /// The link.
        link: PathBuf,
    },
    /// A named pipe without a reader.
    #[error("no program reads the pipe `{}`; start a reader, or give the name of a file", path.display())]
    NoReader {
        /// As it was given.
        path: PathBuf,
    },
    /// The directory is missing.
    #[error("there is no directory `{}`; create it, or choose another", directory.display())]
    NoDirectory {
        /// The part of the name before the last `/`.
        directory: PathBuf,
    },
    /// The file could not be created or written.
    #[error("failed to save `{}`: {source}; {advice}", path.display())]
    Failed {
        /// As it was given.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
        /// Advice for this error.
        advice: &'static str,
    },
    /// There was no content to write.
    #[error(transparent)]
    Content(FormatError),
}

/// Converts an error of the writer: a system error gets the file's name, a format error stays unchanged.
pub(super) fn content_error(path: &Path, error: FormatError) -> SaveError {
    match error {
        FormatError::Write(source) => failure(path, source),
        other => SaveError::Content(other),
    }
}

pub(super) fn failure(path: &Path, source: io::Error) -> SaveError {
    let path = path.into();
    let advice = match source.kind() {
        io::ErrorKind::AlreadyExists => return SaveError::Exists { path },
        io::ErrorKind::IsADirectory => return SaveError::IsDirectory { path },
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "make room, or choose another place",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => "choose a directory that you may write to",
        io::ErrorKind::NotADirectory => "a part of the name before the last `/` is a file",
        io::ErrorKind::InvalidFilename => "choose a shorter name",
        _ if source.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => return SaveError::NoReader { path },
        io::ErrorKind::BrokenPipe => "the reader has closed it",
        _ => "choose another place",
    };
    SaveError::Failed { path, source, advice }
}
