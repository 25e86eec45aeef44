//! Why an object's frames could not be named: data for the screen, with what the user can do about it.

use std::io;
use std::sync::Arc;

use super::read_at::Unreadable;
use crate::profile::ObjectId;

/// What stood in the way. The text says what is wrong; [`Reason::remedy`] says what helps.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Reason {
    /// `/proc/kallsyms` shows every address as 0.
    #[error("the kernel hides its symbols' addresses")]
    KernelAddressesHidden,
    /// `/proc/kallsyms` cannot be read.
    #[error("/proc/kallsyms cannot be read ({0})")]
    KernelSymbolsUnreadable(io::ErrorKind),
    /// The file was opened by none of its names.
    #[error("the file cannot be found any more")]
    NotFound,
    /// Nothing is at the path that somebody wrote.
    #[error("there is no such file")]
    NoSuchFile,
    /// All processes that are known to have had the file mapped are gone, and so is the file.
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
    /// The disk for temporary files, or the bytes that may be copied, have no room for a copy of its debug information.
    #[error("there is no room to copy or unpack its debug information")]
    NoRoom,
    /// What is on disk now is not what the process runs: build id or inode differ.
    #[error("the file on disk is not the one that was mapped")]
    Replaced,
    /// There is a file of that path, but neither build id nor inode to tell whether it is the one that was mapped.
    #[error("nothing tells whether the file on disk is the one that was mapped")]
    Unverified,
    /// The file changed while it was read.
    #[error("the file was changed while it was read")]
    Changed,
    /// The file changes again and again.
    #[error("the file is written to again and again")]
    Rewritten,
    /// Not an ELF file, or one whose tables contradict each other.
    #[error("not a valid ELF file")]
    Malformed,
    /// 32-bit or big-endian.
    #[error("an ELF file of another machine's kind (only 64-bit little-endian is read)")]
    Unsupported,
    /// A table of the file reaches past its end.
    #[error("the file is cut short")]
    Truncated,
    /// A table, or its debug information, is larger than is ever read or would become so.
    #[error("its symbols or its debug information are more than is read")]
    TooLarge,
    /// Its DWARF contradicts itself: functions keep the names of their symbols, and have no lines.
    #[error("its debug information is damaged")]
    MalformedDwarf,
    /// The file has no symbol table at all.
    #[error("the file has no symbols")]
    NoSymbols,
    /// Only what is exported has a symbol: some frames were named, others were not.
    #[error("the file is stripped: only its exported functions have names")]
    Stripped,
    /// Some addresses belong to no symbol, though the file has all of its symbols.
    #[error("some addresses belong to no symbol")]
    NoSymbolThere,
    /// A server that is gone, or a program that serves files and does not any more.
    #[error("the file system does not answer")]
    NotAnswering,
    /// Reading failed.
    #[error("the file cannot be read ({0})")]
    Io(io::ErrorKind),
    /// There is neither a perf map nor a jitdump.
    #[error("no map of its JIT code")]
    NoCodeMap,
    /// The perf map is neither the process's user's nor root's.
    #[error("the map of its JIT code is another user's file")]
    CodeMapForeign,
    /// The perf map is a link, a mount, or something else that is no plain file.
    #[error("the map of its JIT code is a link, or no regular file")]
    CodeMapNotRegular,
    /// The perf map was written by an earlier process of that number.
    #[error("the map of its JIT code was written before the process began")]
    CodeMapStale,
    /// Not all of a map is read.
    #[error("the map of its JIT code is too large to be read to its end")]
    CodeMapTooLarge,
    /// A jitdump that contradicts itself, or a perf map without a line that makes sense.
    #[error("the map of its JIT code makes no sense")]
    CodeMapMalformed,
    /// Some code is in no entry of the map, or not yet.
    #[error("some of its JIT code is not in its map")]
    NotInCodeMap,
    /// The reader itself failed: a bug of ours.
    #[error("reading the file's symbols failed unexpectedly")]
    Crashed,
}

impl Reason {
    /// What the user can do; empty where nothing helps.
    pub fn remedy(self) -> &'static str {
        match self {
            Reason::KernelAddressesHidden => "run as root, or `sysctl kernel.kptr_restrict=0`",
            Reason::KernelSymbolsUnreadable(_) => "run as root; the kernel needs CONFIG_KALLSYMS",
            Reason::NotFound | Reason::Replaced | Reason::Unverified | Reason::Changed | Reason::Rewritten => {
                "restart the program, so that it runs the file on disk"
            }
            Reason::ProcessGone => "keep the program's file, or link it with a build id (-Wl,--build-id)",
            Reason::PermissionDenied => "run as root, or with CAP_SYS_ADMIN and CAP_SYS_PTRACE",
            Reason::NoRoom => "make room in /var/tmp; of one user's files, 1 GiB a minute is copied",
            Reason::NotAnswering => "see that its server is up; what was asked of it is asked again with the next process",
            Reason::NoSymbols | Reason::Stripped => "install its debug symbols, or build it without `strip`",
            Reason::MalformedDwarf => "build the program anew, or install its debug symbols again",
            Reason::NoCodeMap => {
                "start it with node --perf-basic-prof, python3 -X perf or DOTNET_PerfMapEnabled=1; for Java run `jcmd PID Compiler.perfmap`"
            }
            Reason::CodeMapForeign | Reason::CodeMapNotRegular | Reason::CodeMapStale => {
                "remove /tmp/perf-PID.map and restart the program, so that it writes its own"
            }
            Reason::CodeMapTooLarge => "restart the program: its map begins anew",
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

    /// Whether it is worth telling although all frames have a name: inlined functions and lines are missing.
    pub(crate) fn costs_lines(self) -> bool {
        matches!(self, Reason::MalformedDwarf | Reason::TooLarge | Reason::NoRoom | Reason::Crashed)
    }

    /// Whether another process that maps the same object may have better luck.
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

/// One object and what is wrong with its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The object.
    pub object: ObjectId,
    /// Its path as the process that mapped it calls it, safe to print.
    pub path: Arc<str>,
    /// What stood in the way.
    pub reason: Reason,
    /// Frames of it that have a name all the same.
    pub named: u64,
    /// Frames of it that have none.
    pub unnamed: u64,
}

/// Frames of all objects together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames that were given a name.
    pub named: u64,
    /// Frames that were given up.
    pub unnamed: u64,
}
