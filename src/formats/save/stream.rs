//! Targets that are not files, such as standard output.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};

use super::place::may_lead_us;

/// A target that takes bytes. It has no name to protect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stream {
    Output,
    Error,
    Device,
    /// A pipe with a name.
    Pipe,
}

impl Stream {
    pub(super) fn open(self, path: &Path) -> io::Result<Box<dyn Write>> {
        Ok(match self {
            Stream::Output => Box::new(io::stdout()),
            Stream::Error => Box::new(io::stderr()),
            Stream::Device => Box::new(fs::OpenOptions::new().write(true).open(path)?),
            Stream::Pipe => Box::new(open_pipe(path)?),
        })
    }
}

/// Opens a named pipe without waiting for a reader. Fails if there is none.
pub(super) fn open_pipe(path: &Path) -> io::Result<fs::File> {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let pipe = rustix::fs::open(path, flags, Mode::empty())?;
    // Another file may have taken its place since the check.
    let there = rustix::fs::fstat(&pipe)?;
    if FileType::from_raw_mode(there.st_mode) != FileType::Fifo || !may_lead_us(there.st_uid) {
        return Err(io::Error::other("it is no longer your pipe"));
    }
    rustix::fs::fcntl_setfl(&pipe, OFlags::empty())?;
    Ok(pipe.into())
}

/// Recognizes standard output and standard error by any of their names, and other character devices and pipes under `/dev` and
/// `/proc`. Devices elsewhere and block devices are excluded: a link or a mistake must not cost a disk.
pub(super) fn stream_of(path: &Path) -> Option<Stream> {
    match path.to_str()? {
        "-" | "/dev/stdout" | "/dev/fd/1" | "/proc/self/fd/1" => Some(Stream::Output),
        "/dev/stderr" | "/dev/fd/2" | "/proc/self/fd/2" => Some(Stream::Error),
        name if name.starts_with("/dev/") || name.starts_with("/proc/") => {
            let kind = fs::metadata(path).ok()?.file_type();
            (kind.is_char_device() || kind.is_fifo()).then_some(Stream::Device)
        }
        // A pipe of another user would receive root's data.
        _ => {
            let there = fs::symlink_metadata(path).ok()?;
            (there.file_type().is_fifo() && may_lead_us(there.uid())).then_some(Stream::Pipe)
        }
    }
}

/// Returns whether a file saved at this path goes to standard output, under any name.
pub fn is_standard_output(path: &Path) -> bool {
    match stream_of(path) {
        Some(Stream::Output) => true,
        // `/dev/tty2`, `/proc/12/fd/5`. Not `/dev/null`, where output cannot mix.
        Some(Stream::Device) => {
            let output = rustix::fs::fstat(rustix::stdio::stdout());
            let mixes = rustix::termios::isatty(rustix::stdio::stdout())
                || output.is_ok_and(|output| FileType::from_raw_mode(output.st_mode) == FileType::Fifo);
            mixes
                && fs::metadata(path)
                    .is_ok_and(|there| output.is_ok_and(|output| (there.dev(), there.ino()) == (output.st_dev, output.st_ino)))
        }
        _ => false,
    }
}
