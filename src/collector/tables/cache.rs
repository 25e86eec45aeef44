//! Cache of unwind tables on disk. It saves a second of CPU time for a large browser.
//!
//! The name of a cache file is the [`Content`] of its object. A cache file is trusted only if it and its directories belong to us and
//! nobody else can write to them.
//!
//! ```text
//! "flametop" │ version u32 │ arch u32 │ summary 7 × u64 │ ranges, rows, rules, each with its count │ CRC-32 of all before
//! ```
//!
//! Numbers are in the machine's byte order, because a cache is used by one machine only.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::Summary;
use super::digest::Digest;
use super::layout::{Layout, Range};
use crate::object::numbers::{array_at, u16_at, u32_at, u64_at};
use crate::profile::BuildId;
use crate::unwind::{Arch, Packed, Page};

/// Version of the format. Changes whenever the converter makes other tables, or the format changes.
const VERSION: u32 = 13;
const MAGIC: [u8; 8] = *b"flametop";

/// Most bytes of the cache. Beyond it, the least recently used files are removed.
const MOST_BYTES: u64 = 512 << 20;

/// Most bytes of a table: 16 million rows and their index.
const LARGEST: u64 = 160 << 20;

/// Identifies the content of an object. Objects with equal content share a table, even if they belong to different users.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Content {
    /// The build id and length of a file that only root can write.
    Hosts(BuildId, u64),
    /// The hash of a file's bytes and length.
    Bytes(Digest),
}

impl std::fmt::Display for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Content::Hosts(id, length) => write!(f, "host-{id}-{length:x}"),
            Content::Bytes(digest) => write!(f, "sha256-{digest}"),
        }
    }
}

/// A directory of tables.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    directory: PathBuf,
}

impl Cache {
    /// Returns the cache of the user as whom we run; `None` if no directory can be trusted.
    pub(crate) fn of_user() -> Option<Cache> {
        let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute() && ours(path));
        let home = std::env::var_os("HOME").map(PathBuf::from).filter(|path| path.is_absolute() && ours(path));
        // sudo may leave HOME unchanged. Then it belongs to another user than root.
        let root = rustix::process::geteuid().is_root().then(|| PathBuf::from("/root")).filter(|path| ours(path));
        let base = base.or_else(|| home.or(root).map(|home| home.join(".cache")))?;
        Cache::at(base.join("flametop").join("unwind"))
    }

    /// Returns a cache in a directory, which is created if necessary.
    pub(crate) fn at(directory: PathBuf) -> Option<Cache> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory).ok()?;
        let (first, second) = (directory.as_path(), directory.parent()?);
        (ours(first) && ours(second)).then_some(Cache { directory })
    }

    fn path(&self, content: &Content) -> PathBuf {
        self.directory.join(content.to_string())
    }

    /// Loads the table of an object, if it is in the cache and undamaged.
    pub(crate) fn load(&self, content: &Content) -> Option<(Layout, Summary)> {
        let path = self.path(content);
        let mut file = File::open(&path).ok()?;
        let metadata = file.metadata().ok()?;
        if !metadata.is_file() || !is_ours(&metadata) || metadata.len() > LARGEST {
            return None;
        }
        let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).ok()?);
        file.read_to_end(&mut bytes).ok()?;
        let found = decode(&bytes)?;
        // `prune` removes the files in the order of this time.
        let _ = file.set_modified(SystemTime::now());
        Some(found)
    }

    /// Stores a table. A failure only means that the table has to be made again.
    pub(crate) fn store(&self, content: &Content, layout: &Layout, summary: &Summary) -> io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(&self.directory)?;
        file.write_all(&encode(layout, summary))?;
        file.persist(self.path(content))?;
        Ok(())
    }

    /// Removes the least recently used files until the cache is within its bound.
    pub(crate) fn prune(&self) {
        let Ok(entries) = fs::read_dir(&self.directory) else { return };
        let mut files: Vec<(SystemTime, u64, PathBuf)> = entries
            .filter_map(|entry| {
                let entry = entry.ok()?;
                let metadata = entry.metadata().ok()?;
                Some((metadata.modified().ok()?, metadata.len(), entry.path()))
            })
            .collect();
        files.sort();
        let mut total: u64 = files.iter().map(|(_, size, _)| size).sum();
        for (_, size, path) in files {
            if total <= MOST_BYTES {
                break;
            }
            // Another flametop may have removed the file.
            let _ = fs::remove_file(path);
            total -= size;
        }
    }
}

/// Whether a directory belongs to us, and no other user may write in it.
fn ours(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_dir() && is_ours(&metadata))
}

fn is_ours(metadata: &fs::Metadata) -> bool {
    metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & 0o022 == 0
}

fn encode(layout: &Layout, summary: &Summary) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(layout.bytes() + 256);
    bytes.extend(MAGIC);
    bytes.extend(VERSION.to_ne_bytes());
    bytes.extend((layout.arch as u32).to_ne_bytes());
    summary.numbers().iter().for_each(|number| bytes.extend(number.to_ne_bytes()));
    bytes.extend((layout.ranges.len() as u32).to_ne_bytes());
    for range in &layout.ranges {
        bytes.extend(range.first_page.to_ne_bytes());
        bytes.extend((range.pages.len() as u32).to_ne_bytes());
        for page in &range.pages {
            bytes.extend(page.first.to_ne_bytes());
            bytes.extend(page.count.to_ne_bytes());
            bytes.extend(page.segment.to_ne_bytes());
        }
    }
    bytes.extend((layout.rows.len() as u32).to_ne_bytes());
    for rows in &layout.rows {
        bytes.extend((rows.len() as u32).to_ne_bytes());
        bytes.extend_from_slice(bytemuck::cast_slice(rows));
    }
    bytes.extend((layout.rules.len() as u32).to_ne_bytes());
    layout.rules.iter().for_each(|Packed(rule)| bytes.extend(rule.to_ne_bytes()));
    let mut crc = flate2::Crc::new();
    crc.update(&bytes);
    bytes.extend(crc.sum().to_ne_bytes());
    bytes
}

/// Reads numbers one after the other.
struct EntryReader<'a> {
    rest: &'a [u8],
}

impl<'a> EntryReader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        u32_at(self.take(4)?, 0)
    }

    fn u64(&mut self) -> Option<u64> {
        u64_at(self.take(8)?, 0)
    }

    /// Reads a count, then that number of items of `size` bytes each.
    fn items(&mut self, size: usize) -> Option<std::slice::ChunksExact<'a, u8>> {
        let count = usize::try_from(self.u32()?).ok()?;
        Some(self.take(count.checked_mul(size)?)?.chunks_exact(size))
    }
}

fn decode(bytes: &[u8]) -> Option<(Layout, Summary)> {
    let (body, crc) = bytes.split_last_chunk()?;
    let mut sum = flate2::Crc::new();
    sum.update(body);
    if sum.sum() != u32::from_ne_bytes(*crc) {
        return None;
    }
    let mut reader = EntryReader { rest: body };
    if array_at(reader.take(8)?, 0) != Some(MAGIC) || reader.u32()? != VERSION {
        return None;
    }
    let arch = [Arch::X86_64, Arch::Aarch64]
        .into_iter()
        .find(|arch| Some(*arch as u32) == reader.rest.get(..4).and_then(|b| u32_at(b, 0)))?;
    reader.u32()?;
    let mut numbers = [0; Summary::NUMBERS];
    for number in &mut numbers {
        *number = reader.u64()?;
    }
    let mut ranges = Vec::new();
    for _ in 0..reader.u32()? {
        let first_page = reader.u32()?;
        let pages = reader.items(size_of::<Page>())?;
        let page = |bytes| Some(Page { first: u32_at(bytes, 0)?, count: u16_at(bytes, 4)?, segment: u16_at(bytes, 6)? });
        ranges.push(Range { first_page, pages: pages.map(page).collect::<Option<_>>()? });
    }
    let mut rows = Vec::new();
    for _ in 0..reader.u32()? {
        let count = usize::try_from(reader.u32()?).ok()?;
        rows.push(bytemuck::pod_collect_to_vec(reader.take(count.checked_mul(4)?)?));
    }
    let rules = reader.items(8)?.map(|bytes| u64_at(bytes, 0).map(Packed)).collect::<Option<_>>()?;
    reader.rest.is_empty().then_some((Layout { arch, ranges, rows, rules }, Summary::from_numbers(numbers)))
}

/// For the fuzzer: adds the head and the checksum to a table and reads it. Fails if the written table cannot be read again.
pub(crate) fn any_table(body: &[u8]) -> Result<(), String> {
    let mut bytes = [&MAGIC[..], &VERSION.to_ne_bytes(), body].concat();
    let mut crc = flate2::Crc::new();
    crc.update(&bytes);
    bytes.extend(crc.sum().to_ne_bytes());
    match decode(&bytes).map(|(layout, summary)| encode(&layout, &summary)) {
        Some(written) if decode(&written).is_none() => Err("what was read cannot be written".to_owned()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn layout() -> Layout {
        let pages = vec![Page { first: 0, count: 2, segment: 0 }, Page { first: 2, count: 1, segment: 1 }];
        Layout {
            arch: Arch::X86_64,
            ranges: vec![Range { first_page: 7, pages }],
            rows: vec![vec![1, 2, 3], vec![4]],
            rules: vec![Packed::GAP, Packed(u64::MAX)],
        }
    }

    fn cache() -> (tempfile::TempDir, Cache) {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::at(directory.path().join("flametop/unwind")).unwrap();
        (directory, cache)
    }

    #[test]
    fn what_was_kept_is_found_again_and_nothing_else() {
        let (_directory, cache) = cache();
        let id = BuildId::new(&[1, 2, 3]).unwrap();
        let summary = Summary::from_numbers([1, 2, 3, 4, 5, 6, 1]);
        let contents =
            [Content::Hosts(id, 100), Content::Hosts(id, 101), Content::Bytes(Digest([1; 32])), Content::Bytes(Digest([2; 32]))];
        for (number, content) in contents.iter().enumerate() {
            assert!(contents[number..].iter().all(|other| cache.load(other).is_none()));
            cache.store(content, &layout(), &summary).unwrap();
            assert_eq!(cache.load(content), Some((layout(), summary)));
        }
        assert!(cache.load(&Content::Hosts(BuildId::new(&[1, 2, 4]).unwrap(), 100)).is_none());
    }

    #[test]
    fn damage_is_noticed_wherever_it_is() {
        let bytes = encode(&layout(), &Summary::default());
        assert!(decode(&bytes).is_some());
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x40;
            assert!(decode(&damaged).is_none(), "byte {at}");
            assert!(decode(&bytes[..at]).is_none(), "cut at {at}");
        }
    }

    #[test]
    fn what_others_may_write_is_not_trusted() {
        let (_directory, cache) = cache();
        let content = Content::Hosts(BuildId::new(&[9]).unwrap(), 1);
        cache.store(&content, &layout(), &Summary::default()).unwrap();
        let path = cache.path(&content);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(cache.load(&content).is_none());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(cache.load(&content).is_some());
        fs::set_permissions(&cache.directory, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(Cache::at(cache.directory.clone()).is_none());
    }
}
