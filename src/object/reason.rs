//! Reasons why an object's frames could not be named: data for the screen, with a remedy for the user.

use std::io;
use std::sync::Arc;

use super::read_at::Unreadable;
use crate::profile::ObjectId;

/// The reason why names are missing. The text says what is wrong; [`Reason::remedy`] says what helps.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Reason {
    /// `/proc/kallsyms` shows every address as 0.
    #[error("the kernel hides its symbols' addresses")]
    KernelAddressesHidden,
    /// `/proc/kallsyms` cannot be read.
    #[error("/proc/kallsyms cannot be read ({0})")]
    KernelSymbolsUnreadable(io::ErrorKind),
    /// The file could not be opened by any of its names.
    #[error("the file cannot be found any more")]
    NotFound,
    /// There is no file at the path that a user gave.
    #[error("there is no such file")]
    NoSuchFile,
    /// All processes known to have mapped the file are gone, and so is the file.
    #[error("the process ended before its file was read")]
    ProcessGone,
    /// Opening was refused.
    #[error("the file cannot be opened: permission denied")]
    PermissionDenied,
    /// The name leads to a device, a FIFO, a socket or a directory.
    #[error("not a regular file")]
    NotRegular,
    /// A file that shows state of the kernel. Reading it may have effects.
    #[error("not a file on storage")]
    NotStorage,
    /// There is no room for a copy of its debug information: the disk for temporary files is full, or the limit of copied bytes is reached.
    #[error("there is no room to copy or unpack its debug information")]
    NoRoom,
    /// The file on disk is not the one that the process runs: build id or inode differ.
    #[error("the file on disk is not the one that was mapped")]
    Replaced,
    /// There is a file of that path, but no build id or inode to tell whether it is the one that was mapped.
    #[error("the file on disk may not be the one that was mapped")]
    Unverified,
    /// The file changed while it was read.
    #[error("the file was changed while it was read")]
    Changed,
    /// The file changes again and again.
    #[error("the file keeps changing")]
    Rewritten,
    /// Not an ELF file, or one whose tables contradict each other.
    #[error("not a valid ELF file")]
    Malformed,
    /// 32-bit or big-endian.
    #[error("an unsupported ELF file (only 64-bit little-endian is read)")]
    Unsupported,
    /// A table of the file reaches past its end.
    #[error("the file is truncated")]
    Truncated,
    /// A table or its debug information is larger than the limit, or would become so.
    #[error("its symbols or debug information exceed the size limit")]
    TooLarge,
    /// Its DWARF contradicts itself. Functions keep the names of their symbols, and have no lines.
    #[error("its debug information is damaged")]
    MalformedDwarf,
    /// The file has no symbol table at all.
    #[error("the file has no symbols")]
    NoSymbols,
    /// Only exported functions have a symbol: some frames were named, others were not.
    #[error("the file is stripped: only its exported functions have names")]
    Stripped,
    /// Some addresses belong to no symbol, although the file has all of its symbols.
    #[error("some addresses have no symbol")]
    NoSymbolThere,
    /// The server is gone, or the program that serves the files does not answer any more.
    #[error("the file system does not answer")]
    NotAnswering,
    /// Reading failed.
    #[error("the file cannot be read ({0})")]
    Io(io::ErrorKind),
    /// There is neither a perf map nor a jitdump.
    #[error("no map of its JIT code")]
    NoCodeMap,
    /// The owner of the perf map is neither root nor the process's user.
    #[error("the map of its JIT code is another user's file")]
    CodeMapForeign,
    /// The perf map is a link, a mount, or something else that is not a regular file.
    #[error("the map of its JIT code is not a regular file")]
    CodeMapNotRegular,
    /// The perf map was written by an earlier process with the same number.
    #[error("the map of its JIT code is older than the process")]
    CodeMapStale,
    /// The map is longer than the part that is read.
    #[error("the map of its JIT code is too large: only its beginning was read")]
    CodeMapTooLarge,
    /// A jitdump that contradicts itself, or a perf map without any valid line.
    #[error("the map of its JIT code is malformed")]
    CodeMapMalformed,
    /// Some code is in no entry of the map, or is not there yet.
    #[error("some of its JIT code is not in its map")]
    NotInCodeMap,
    /// The reader itself failed: a bug in flametop.
    #[error("reading the file's symbols failed unexpectedly")]
    Crashed,
}

impl Reason {
    /// Returns a remedy for the user; empty if nothing helps.
    pub fn remedy(self) -> &'static str {
        match self {
            Reason::KernelAddressesHidden => "run as root, or `sysctl kernel.kptr_restrict=0`",
            Reason::KernelSymbolsUnreadable(_) => "run as root; the kernel needs CONFIG_KALLSYMS",
            Reason::NotFound | Reason::Replaced | Reason::Unverified | Reason::Changed | Reason::Rewritten => {
                "restart the program, so that it runs the file on disk"
            }
            Reason::ProcessGone => "keep the program's file, or link it with a build id (-Wl,--build-id)",
            Reason::PermissionDenied => "run as root, or with CAP_SYS_ADMIN and CAP_SYS_PTRACE",
            Reason::NoRoom => "make room in /var/tmp; at most 1 GiB a minute is copied for each user",
            Reason::NotAnswering => "check that its server is up; flametop tries again with the next process",
            Reason::NoSymbols | Reason::Stripped => "install its debug symbols, or build it without `strip`",
            Reason::MalformedDwarf => "rebuild the program, or reinstall its debug symbols",
            Reason::NoCodeMap => {
                "start it with node --perf-basic-prof, python3 -X perf or DOTNET_PerfMapEnabled=1; for Java run `jcmd PID Compiler.perfmap`"
            }
            Reason::CodeMapForeign | Reason::CodeMapNotRegular | Reason::CodeMapStale => {
                "remove /tmp/perf-PID.map and restart the program, so that it writes its own"
            }
            Reason::CodeMapTooLarge => "restart the program: it then starts a new map",
            Reason::Crashed => "please report this as a bug, with the file",
            Reason::NoSuchFile
            | Reason::NotRegular
            | Reason::NotStorage
            | Reason::Malformed
            | Reason::Unsupported
            | Reason::Truncated
            | Reason::TooLarge
            | Reason::NoSymbolThere
            | Reason::CodeMapMalformed
            | Reason::NotInCodeMap
            | Reason::Io(_) => "",
        }
    }

    /// Whether to report the reason even if all frames have a name, because inlined functions and lines are missing.
    pub(crate) fn costs_lines(self) -> bool {
        matches!(self, Reason::MalformedDwarf | Reason::TooLarge | Reason::NoRoom | Reason::Crashed)
    }

    /// Whether the attempt may succeed with another process that maps the same object.
    pub(crate) fn may_pass(self) -> bool {
        matches!(
            self,
            Reason::NotFound
                | Reason::ProcessGone
                | Reason::PermissionDenied
                | Reason::Replaced
                | Reason::Unverified
                | Reason::Changed
                | Reason::NotAnswering
                | Reason::Io(_)
        )
    }
}

impl From<Unreadable> for Reason {
    fn from(error: Unreadable) -> Reason {
        match error {
            Unreadable::Io(error) => error.into(),
            Unreadable::Open(error) => error.into(),
            Unreadable::NotElf | Unreadable::Damaged(_) => Reason::Malformed,
            Unreadable::NotOurs => Reason::Unsupported,
            Unreadable::Truncated(_) => Reason::Truncated,
            Unreadable::TooLarge { .. } => Reason::TooLarge,
        }
    }
}

impl From<io::Error> for Reason {
    fn from(error: io::Error) -> Reason {
        match error.kind() {
            io::ErrorKind::NotFound => Reason::NotFound,
            io::ErrorKind::PermissionDenied => Reason::PermissionDenied,
            io::ErrorKind::UnexpectedEof => Reason::Truncated,
            io::ErrorKind::TimedOut => Reason::NotAnswering,
            kind => Reason::Io(kind),
        }
    }
}

/// An object, and the reason why its names are missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The object.
    pub object: ObjectId,
    /// Its path as the process that mapped it sees it, safe to print.
    pub path: Arc<str>,
    /// The reason why names are missing.
    pub reason: Reason,
    /// Number of its frames that have a name nevertheless.
    pub named: u64,
    /// Number of its frames that have no name.
    pub unnamed: u64,
}

/// Numbers of frames of all objects together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames that got a name.
    pub named: u64,
    /// Frames whose naming was given up.
    pub unnamed: u64,
}
