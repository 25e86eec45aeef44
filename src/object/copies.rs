//! Copies of debug sections: of files that other users can write, and of compressed sections.
//!
//! The author of a file can make its sections long at no cost. A hole in a sparse file takes no room. A megabyte of zeros takes a kilobyte
//! when compressed. So the bound of a copy depends on the bytes that its file really takes:
//!
//! | copies | bound |
//! | --- | --- |
//! | a plain section | holes are not copied, but stay holes (`SEEK_DATA`) |
//! | a compressed section | [`RATIO`] times its bytes on the disk, or [`IN_MEMORY`] |
//! | all copies at once | [`MAX_COPIED`]; half of that for one user's files that others can write |
//! | copies made in a minute of one user's files that others can write | [`A_MINUTE`] |
//! | the disk of the copies | a tenth of it stays free, or [`LEFT`] if that is less |
//!
//! Copies larger than [`IN_MEMORY`] are mapped files without a name, so the kernel can take back their memory.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{LazyLock, Mutex};
use std::time::Instant;

use rustc_hash::FxHashMap;
use rustix::fs::SeekFrom;

use super::bytes::Source;
use super::mapped::Mapped;
use super::reason::Reason;
use crate::locks::lock;
use crate::profile::UserId;

/// Most bytes of copies at one time.
const MAX_COPIED: u64 = 2 << 30;
/// Most bytes that are copied in a minute from one user's files that others can write.
const A_MINUTE: u64 = 1 << 30;
/// Copies up to this size are kept in memory.
const IN_MEMORY: u64 = 1 << 20;
/// Largest ratio of unpacked to packed bytes. zlib packs debug information of C++ and Rust to a third, zstd to a quarter; lists of strings
/// become a tenth.
const RATIO: u64 = 64;
/// Bytes that stay free on the disk of the copies, or a tenth of the disk if that is less.
const LEFT: u64 = 1 << 30;
/// Bytes that are read at a time.
const CHUNK: usize = 256 << 10;

/// Accounts for the bytes of copies: of all users, and of each.
#[derive(Default)]
struct Ledger {
    copied: u64,
    users: FxHashMap<UserId, Account>,
}

/// The bytes of one user.
#[derive(Clone, Copy)]
struct Account {
    /// Bytes of copies that exist now.
    held: u64,
    /// Bytes copied lately: falls by [`A_MINUTE`] in a minute.
    made: u64,
    at: Instant,
}

static LEDGER: LazyLock<Mutex<Ledger>> = LazyLock::new(Mutex::default);

impl Ledger {
    /// Accounts for a copy of `bytes` bytes. Fails if it must not be made.
    fn take(&mut self, user: UserId, bytes: u64, is_foreign: bool, now: Instant) -> Result<(), Reason> {
        self.users.retain(|_, account| {
            let paid = u128::from(A_MINUTE) * now.saturating_duration_since(account.at).as_millis() / 60_000;
            account.made = account.made.saturating_sub(u64::try_from(paid).unwrap_or(u64::MAX));
            account.at = now;
            account.held > 0 || account.made > 0
        });
        let account = self.users.get(&user).copied().unwrap_or(Account { held: 0, made: 0, at: now });
        let (held, copied) = (account.held.saturating_add(bytes), self.copied.saturating_add(bytes));
        let made = account.made.saturating_add(if is_foreign { bytes } else { 0 });
        if copied > MAX_COPIED || (is_foreign && held > MAX_COPIED / 2) || made > A_MINUTE {
            return Err(Reason::NoRoom);
        }
        self.copied = copied;
        self.users.insert(user, Account { held, made, at: now });
        Ok(())
    }

    fn give_back(&mut self, user: UserId, bytes: u64) {
        self.copied = self.copied.saturating_sub(bytes);
        self.users.entry(user).and_modify(|account| account.held = account.held.saturating_sub(bytes));
    }
}

/// A part of [`MAX_COPIED`].
#[derive(Debug)]
struct Share {
    user: UserId,
    bytes: u64,
}

impl Share {
    fn take(source: &Source, bytes: u64) -> Result<Share, Reason> {
        let user = source.stored().map_or(UserId(0), |(user, _)| user);
        lock(&LEDGER).take(user, bytes, !source.is_trusted(), Instant::now())?;
        Ok(Share { user, bytes })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        lock(&LEDGER).give_back(self.user, self.bytes);
    }
}

/// The bytes of a section.
#[derive(Debug)]
pub(crate) struct Copy {
    bytes: Bytes,
    _share: Share,
}

#[derive(Debug)]
enum Bytes {
    Small(Box<[u8]>),
    Large(Mapped),
}

impl Copy {
    /// Copies a part of a file.
    pub(crate) fn plain(source: &Source, range: Range<u64>) -> Result<Copy, Reason> {
        let size = range.end.saturating_sub(range.start);
        let Some(near) = source.near().filter(|_| size > IN_MEMORY) else {
            return Copy::of(source, source.reader(range), size);
        };
        let pieces = pieces_with_data(near, range.clone());
        let share = Share::take(source, pieces.iter().map(|piece| piece.end - piece.start).sum())?;
        let file = unnamed_file(share.bytes)?;
        let mut chunk = vec![0; CHUNK];
        for piece in pieces {
            let mut at = piece.start;
            while at < piece.end {
                let room = chunk.len().min(usize::try_from(piece.end - at).unwrap_or(usize::MAX));
                let Some(room) = chunk.get_mut(..room) else { break };
                source.read_exact(at, room)?;
                file.write_all_at(room, at - range.start)?;
                at += room.len() as u64;
            }
        }
        file.set_len(size)?;
        Ok(Copy { bytes: Bytes::Large(Mapped::new(&file, size)?), _share: share })
    }

    /// Copies the unpacked bytes of a section from `reader`. Its header claims `size` bytes; `packed` is the section's part of the file.
    pub(crate) fn unpacked(source: &Source, packed: Range<u64>, reader: impl Read, size: u64) -> Result<Copy, Reason> {
        let stored = source.stored().map_or(u64::MAX, |(_, stored)| stored);
        let packed = packed.end.saturating_sub(packed.start).min(stored);
        if size > packed.saturating_mul(RATIO).max(IN_MEMORY) {
            return Err(Reason::TooLarge);
        }
        Copy::of(source, reader, size)
    }

    /// Copies all bytes of `reader`, which must be `size`. The copy grows as they come, so a size that a hostile file only claims costs
    /// nothing.
    pub(crate) fn of(source: &Source, reader: impl Read, size: u64) -> Result<Copy, Reason> {
        let share = Share::take(source, size)?;
        let mut reader = reader.take(size);
        let bytes = if size <= IN_MEMORY {
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes).map_err(|_| Reason::MalformedDwarf)?;
            (bytes.len() as u64 == size).then(|| Bytes::Small(bytes.into()))
        } else {
            let file = unnamed_file(size)?;
            let (mut chunk, mut at) = (vec![0; CHUNK], 0);
            loop {
                let count = reader.read(&mut chunk).map_err(|_| Reason::MalformedDwarf)?;
                if count == 0 {
                    break;
                }
                let read = chunk.get(..count).unwrap_or_default();
                // Chunks of zeros become holes in the copy.
                if read.iter().any(|byte| *byte != 0) {
                    file.write_all_at(read, at)?;
                }
                at += count as u64;
            }
            file.set_len(size)?;
            (at == size).then(|| Mapped::new(&file, size)).transpose()?.map(Bytes::Large)
        };
        Ok(Copy { bytes: bytes.ok_or(Reason::MalformedDwarf)?, _share: share })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Small(bytes) => bytes,
            Bytes::Large(mapped) => mapped.bytes(),
        }
    }

    /// Gives the pages that were read back to the kernel.
    pub(crate) fn give_back(&self) {
        if let Bytes::Large(mapped) = &self.bytes {
            mapped.give_back();
        }
    }

    /// Returns the bytes that are mapped.
    pub(crate) fn mapped(&self) -> u64 {
        match &self.bytes {
            Bytes::Small(_) => 0,
            Bytes::Large(mapped) => mapped.bytes().len() as u64,
        }
    }
}

/// Returns the parts of a range that are not holes. If the file system does not tell, returns the whole range.
fn pieces_with_data(file: &File, range: Range<u64>) -> Vec<Range<u64>> {
    let mut pieces = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            // Only a hole follows.
            Err(rustix::io::Errno::NXIO) => break,
            Err(_) => at,
        };
        let end = rustix::fs::seek(file, SeekFrom::Hole(start)).unwrap_or(range.end).min(range.end);
        if start >= end {
            break;
        }
        pieces.push(start..end);
        at = end;
    }
    pieces
}

/// Makes a file without a name. Fails if its disk has no room for `bytes`. Prefers /var/tmp, because /tmp often is in memory.
fn unnamed_file(bytes: u64) -> Result<File, Reason> {
    let file = tempfile::tempfile_in("/var/tmp").or_else(|_| tempfile::tempfile())?;
    let disk = rustix::fs::fstatvfs(&file).map_err(std::io::Error::from)?;
    let (all, free) = (disk.f_blocks.saturating_mul(disk.f_frsize), disk.f_bavail.saturating_mul(disk.f_frsize));
    if free < bytes.saturating_add(LEFT.min(all / 10)) { Err(Reason::NoRoom) } else { Ok(file) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::time::Duration;

    use super::*;
    use crate::cpu_time;
    use crate::object::open::OpenFile;

    fn foreign(file: &File) -> Source {
        Source::of(OpenFile::ours(file.try_clone().unwrap()).unwrap(), false)
    }

    #[test]
    fn holes_are_not_copied() {
        let file = tempfile::tempfile_in("/var/tmp").unwrap();
        file.set_len(900 << 20).unwrap();
        file.write_all_at(b"begin", 0).unwrap();
        file.write_all_at(b"end", (900 << 20) - 3).unwrap();
        let source = foreign(&file);
        let begun = cpu_time::of_this_thread();
        let copy = Copy::plain(&source, 0..900 << 20).unwrap();
        assert!(
            copy._share.bytes < 1 << 20 && cpu_time::since(begun) < Duration::from_secs(2),
            "{copy:?} in {:?}",
            cpu_time::since(begun)
        );
        assert_eq!((&copy.bytes()[..6], &copy.bytes()[(900 << 20) - 4..]), (&b"begin\0"[..], &b"\0end"[..]));
        assert_eq!(copy.bytes().len(), 900 << 20);
        // A part that begins in the hole.
        let part = Copy::plain(&source, 1000..(899 << 20)).unwrap();
        assert!(part.bytes()[5000..10_000].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn bytes_that_were_looked_at_stay_though_their_file_is_written_to() {
        let file = tempfile::tempfile_in("/var/tmp").unwrap();
        file.write_all_at(&vec![7; 2 << 20], 0).unwrap();
        let ours = Source::of(OpenFile::ours(file.try_clone().unwrap()).unwrap(), true);
        let source = foreign(&file);
        assert!(ours.is_trusted() && !source.is_trusted(), "root's file, in our tree of mounts and in another");
        let copies = [Copy::plain(&source, 0..2 << 20).unwrap(), Copy::plain(&source, 0..4096).unwrap()];
        assert!(copies.iter().all(|copy| copy.bytes().iter().all(|byte| *byte == 7)));
        file.write_all_at(&vec![9; 2 << 20], 0).unwrap();
        assert!(copies.iter().all(|copy| copy.bytes().iter().all(|byte| *byte == 7)));
    }

    #[test]
    fn what_is_packed_becomes_no_more_than_a_multiple_of_what_is_stored() {
        let file = tempfile::tempfile_in("/var/tmp").unwrap();
        file.write_all_at(&[7; 4096], 0).unwrap();
        file.set_len(1 << 30).unwrap();
        let source = foreign(&file);
        let stored = file.metadata().unwrap().blocks() * 512;
        assert!(stored < 1 << 16, "{stored}");
        let unpack = |size| Copy::unpacked(&source, 0..1 << 30, std::io::repeat(1), size).map(|copy| copy.bytes().len() as u64);
        assert_eq!(unpack(stored * RATIO + IN_MEMORY + 1), Err(Reason::TooLarge), "its length counts for nothing");
        assert_eq!(unpack(IN_MEMORY), Ok(IN_MEMORY));
    }

    #[test]
    fn a_user_has_so_much_a_minute_and_others_have_theirs() {
        let (mut ledger, now) = (Ledger::default(), Instant::now());
        let (one, other) = (UserId(1), UserId(2));
        let take = |ledger: &mut Ledger, user, after| {
            let outcome = ledger.take(user, A_MINUTE / 4, true, now + Duration::from_secs(after));
            outcome.inspect(|()| ledger.give_back(user, A_MINUTE / 4)).is_ok()
        };
        assert_eq!([0, 0, 0, 0, 0].map(|after| take(&mut ledger, one, after)), [true, true, true, true, false]);
        assert!(take(&mut ledger, other, 1));
        assert_eq!([14, 16, 17].map(|after| take(&mut ledger, one, after)), [false, true, false]);
        assert!(
            ledger.take(one, 1 << 30, false, now + Duration::from_secs(17)).is_ok(),
            "what root wrote is not counted by time"
        );
        assert_eq!(ledger.take(other, (1 << 30) + 1, false, now).err(), Some(Reason::NoRoom), "all together");
        ledger.give_back(one, 1 << 30);
        assert!(ledger.take(other, 0, true, now + Duration::from_secs(600)).is_ok());
        assert!(ledger.users.len() == 1 && ledger.copied == 0, "what is paid off is forgotten");
    }
}
