//! Puts a file in its place whole or not at all.
//!
//! What is written goes to a temporary file in the same directory, which then takes the name. Whatever fails on the way, the
//! temporary file is removed and what stood there before is untouched. A symbolic link is replaced, not followed: flametop
//! runs as root, and a link in a directory that others can write to may lead anywhere.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::FormatError;

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

/// Why nothing was saved. Each message is one sentence that names the file and says what to do.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// The name does not say which format is meant.
    #[error("`{}` does not end in .svg, .folded or .txt, which tells the format; add one of them", path.display())]
    UnknownEnding {
        /// As it was given.
        path: PathBuf,
    },
    /// There is a file already, and replacing it was not agreed to.
    #[error("`{}` exists already; agree to replace it, or choose another name", path.display())]
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
    /// The directory is missing.
    #[error("there is no directory `{}`; create it, or choose another", directory.display())]
    NoDirectory {
        /// The part of the name before the last `/`.
        directory: PathBuf,
    },
    /// The file could not be made or written.
    #[error("failed to save `{}`: {source}; {advice}", path.display())]
    Failed {
        /// As it was given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
        /// What may help.
        advice: &'static str,
    },
    /// There was nothing that could be written.
    #[error(transparent)]
    Content(FormatError),
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

/// A target that takes bytes and has no name of its own to protect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stream {
    Output,
    Error,
    Device,
}

impl Stream {
    fn open(self, path: &Path) -> io::Result<Box<dyn Write>> {
        Ok(match self {
            Stream::Output => Box::new(io::stdout()),
            Stream::Error => Box::new(io::stderr()),
            Stream::Device => Box::new(fs::OpenOptions::new().write(true).open(path)?),
        })
    }
}

/// Standard output and error by any of their names, other character devices and pipes under `/dev` and `/proc`. Not devices
/// elsewhere, and no block device: a link or a slip must not cost a disk.
fn stream_of(path: &Path) -> Option<Stream> {
    match path.to_str()? {
        "-" | "/dev/stdout" | "/dev/fd/1" | "/proc/self/fd/1" => Some(Stream::Output),
        "/dev/stderr" | "/dev/fd/2" | "/proc/self/fd/2" => Some(Stream::Error),
        name if name.starts_with("/dev/") || name.starts_with("/proc/") => {
            let kind = fs::metadata(path).ok()?.file_type();
            (kind.is_char_device() || kind.is_fifo()).then_some(Stream::Device)
        }
        _ => None,
    }
}

/// An error of the writer: the system's with the file's name, the format's as it is.
fn content_error(path: &Path, error: FormatError) -> SaveError {
    match error {
        FormatError::Write(source) => failure(path, source),
        other => SaveError::Content(other),
    }
}

fn failure(path: &Path, source: io::Error) -> SaveError {
    let path = path.into();
    let source = without_temporary_name(source);
    let advice = match source.kind() {
        io::ErrorKind::AlreadyExists => return SaveError::Exists { path },
        io::ErrorKind::IsADirectory => return SaveError::IsDirectory { path },
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "make room, or choose another place",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => "choose a directory that you may write to",
        io::ErrorKind::NotADirectory => "a part of the name before the last `/` is a file",
        io::ErrorKind::InvalidFilename => "choose a shorter name",
        io::ErrorKind::BrokenPipe => "whoever read it has gone",
        _ => "choose another place",
    };
    SaveError::Failed { path, source, advice }
}

/// What the system said, without the temporary file's name that `tempfile` adds: it is gone when the message is read.
fn without_temporary_name(error: io::Error) -> io::Error {
    let inner = error.get_ref().and_then(|wrapped| wrapped.source()).and_then(|source| source.downcast_ref::<io::Error>());
    inner.and_then(io::Error::raw_os_error).map(io::Error::from_raw_os_error).unwrap_or(error)
}

/// Under sudo the file should belong to the person, not to root. That it cannot (FAT knows no owners) is no reason to lose it.
fn give_to_caller_of_sudo(file: &fs::File) {
    if rustix::process::geteuid().is_root()
        && let Some((user, group)) = caller_of_sudo(|name| std::env::var(name).ok())
    {
        let _ = std::os::unix::fs::fchown(file, Some(user), Some(group));
    }
}

/// Who called sudo, if both ids are plain numbers. `u32::MAX` means "leave as it is" to the kernel and is nobody's id.
fn caller_of_sudo(variable: impl Fn(&str) -> Option<String>) -> Option<(u32, u32)> {
    let id = |name: &str| {
        let text = variable(name).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
        text.parse().ok().filter(|id| *id != u32::MAX)
    };
    Some((id("SUDO_UID")?, id("SUDO_GID")?))
}

/// A date and a time of day, local or not as the caller has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DateTime {
    /// Such as 2026.
    pub year: i64,
    /// From 1 to 12.
    pub month: u8,
    /// From 1 to 31.
    pub day: u8,
    /// From 0 to 23.
    pub hour: u8,
    /// From 0 to 59.
    pub minute: u8,
    /// From 0 to 59.
    pub second: u8,
}

impl DateTime {
    /// From seconds since 1970 in UTC and the local time's offset from UTC, in seconds (0 gives UTC).
    ///
    /// Gregorian calendar by H. Hinnant's `civil_from_days`
    /// (<https://howardhinnant.github.io/date_algorithms.html#civil_from_days>): eras of 400 years that begin in March.
    pub fn from_unix(seconds: i64, utc_offset: i32) -> DateTime {
        let local = seconds.saturating_add(i64::from(utc_offset));
        let (days, second_of_day) = (local.div_euclid(86_400), local.rem_euclid(86_400));
        let days = days.saturating_add(719_468);
        let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * day_of_year + 2) / 153;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        let small = |number: i64| u8::try_from(number).unwrap_or(0);
        DateTime {
            year: year_of_era + era * 400 + i64::from(month <= 2),
            month: small(month),
            day: small(day_of_year - (153 * from_march + 2) / 5 + 1),
            hour: small(second_of_day / 3_600),
            minute: small(second_of_day / 60 % 60),
            second: small(second_of_day % 60),
        }
    }
}

/// A name to offer: `flametop-20261121-101502.svg`.
pub fn default_name(format: Format, now: DateTime) -> String {
    let DateTime { year, month, day, hour, minute, second } = now;
    format!("flametop-{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}.{}", format.ending())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn hello(out: &mut dyn Write) -> Result<(), FormatError> {
        Ok(out.write_all(b"hello")?)
    }

    fn names_in(directory: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn the_ending_tells_the_format() {
        assert_eq!(Format::of(Path::new("a/b.SVG")).unwrap(), Format::Svg);
        assert_eq!(Format::of(Path::new("b.folded")).unwrap(), Format::Folded);
        assert_eq!(Format::of(Path::new("b.txt")).unwrap(), Format::Folded);
        assert_eq!(Format::of(Path::new("-")).unwrap(), Format::Folded);
        let error = Format::of(Path::new("b.png")).unwrap_err().to_string();
        assert_eq!(error, "`b.png` does not end in .svg, .folded or .txt, which tells the format; add one of them");
    }

    #[test]
    fn a_file_is_saved_whole_and_readable_by_all() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.folded");
        assert_eq!(save(&path, Overwrite::No, hello).unwrap(), Saved { bytes: 5 });
        assert_eq!(fs::read(&path).unwrap(), b"hello");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777 & !0o044, 0o600, "0644 less the umask");
        assert_eq!(names_in(directory.path()), ["a.folded"]);
    }

    #[test]
    fn what_is_there_stays_unless_the_user_agrees() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.svg");
        fs::write(&path, "mine").unwrap();
        let refused = save(&path, Overwrite::No, |_| panic!("not even written"));
        assert!(matches!(refused, Err(SaveError::Exists { .. })));
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        save(&path, Overwrite::Yes, hello).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"hello");
    }

    #[test]
    fn a_file_that_appears_meanwhile_is_not_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.svg");
        let late = save(&path, Overwrite::No, |out| {
            fs::write(&path, "theirs")?;
            hello(out)
        });
        assert!(matches!(late, Err(SaveError::Exists { .. })), "{late:?}");
        assert_eq!(fs::read(&path).unwrap(), b"theirs");
        assert_eq!(names_in(directory.path()), ["a.svg"]);
    }

    #[test]
    fn a_symbolic_link_is_replaced_and_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (path, precious) = (directory.path().join("a.svg"), directory.path().join("precious"));
        fs::write(&precious, "precious").unwrap();
        symlink(&precious, &path).unwrap();
        assert!(matches!(save(&path, Overwrite::No, hello), Err(SaveError::Exists { .. })));
        save(&path, Overwrite::Yes, hello).unwrap();
        assert_eq!(fs::read(&precious).unwrap(), b"precious");
        assert!(!fs::symlink_metadata(&path).unwrap().is_symlink());
    }

    #[test]
    fn when_writing_fails_nothing_is_left_and_what_was_there_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.svg");
        fs::write(&path, "mine").unwrap();
        let full = |out: &mut dyn Write| {
            out.write_all(&[0; 1 << 20])?;
            Err(FormatError::Write(io::ErrorKind::StorageFull.into()))
        };
        let error = save(&path, Overwrite::Yes, full).unwrap_err().to_string();
        assert!(error.ends_with("a.svg`: no storage space; make room, or choose another place"), "{error}");
        assert_eq!((names_in(directory.path()), fs::read(&path).unwrap()), (vec!["a.svg".to_owned()], b"mine".to_vec()));
        let error = save(&path, Overwrite::Yes, |_| Err(FormatError::NothingToSave)).unwrap_err().to_string();
        assert!(error.starts_with("there is nothing to save yet"), "{error}");
        assert_eq!(names_in(directory.path()), ["a.svg"]);
    }

    #[test]
    fn places_that_cannot_be_written_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let here = directory.path();
        let message = |path: &Path| save(path, Overwrite::Yes, hello).unwrap_err().to_string();
        let missing = here.join("missing");
        assert_eq!(
            message(&missing.join("a.svg")),
            format!("there is no directory `{}`; create it, or choose another", missing.display())
        );
        assert_eq!(message(here), format!("`{}` is a directory; give the name of a file", here.display()));
        assert!(message(Path::new("a.svg/")).ends_with("is a directory; give the name of a file"));
        fs::write(here.join("file"), "").unwrap();
        assert!(message(&here.join("file/a.svg")).ends_with("a part of the name before the last `/` is a file"));
        assert!(message(Path::new("/proc/a.svg")).starts_with("failed to save `/proc/a.svg`: "));
        assert!(message(&here.join("x".repeat(300) + ".svg")).contains("failed to save"));
        assert_eq!(names_in(here), ["file"]);
    }

    #[test]
    fn devices_get_what_is_written_and_say_when_they_are_full() {
        assert_eq!(save(Path::new("/dev/null"), Overwrite::No, hello).unwrap().bytes, 5);
        let error = save(Path::new("/dev/full"), Overwrite::No, hello).unwrap_err().to_string();
        assert_eq!(
            error,
            "failed to save `/dev/full`: No space left on device (os error 28); make room, or choose another place"
        );
    }

    #[test]
    fn the_caller_of_sudo_is_two_plain_numbers() {
        let with = |user: &'static str, group: &'static str| {
            caller_of_sudo(move |name| Some(if name == "SUDO_UID" { user } else { group }.to_owned()))
        };
        assert_eq!(with("1000", "100"), Some((1000, 100)));
        for nonsense in ["", "-1", "+5", "4294967295", "4294967296", "root", " 1"] {
            assert_eq!(with(nonsense, "100"), None, "{nonsense:?}");
            assert_eq!(with("1000", nonsense), None, "{nonsense:?}");
        }
        assert_eq!(caller_of_sudo(|_| None), None);
    }

    #[test]
    fn the_name_offered_is_the_local_time() {
        let now = DateTime::from_unix(1_795_252_502, 3_600);
        assert_eq!(default_name(Format::Svg, now), "flametop-20261121-101502.svg");
        let leap = DateTime { year: 2024, month: 2, day: 29, hour: 23, minute: 59, second: 59 };
        assert_eq!(DateTime::from_unix(1_709_251_199, 0), leap);
        assert_eq!(default_name(Format::Folded, DateTime::from_unix(-1, 0)), "flametop-19691231-235959.folded");
    }
}
