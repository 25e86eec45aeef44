//! Places of separate debug files: by build id, or by the name and checksum in `.gnu_debuglink`.
//!
//! Source: gdb's manual, "Debugging Information in Separate Files".

use std::path::{Path, PathBuf};

use super::numbers::u32_at;
use crate::profile::BuildId;

/// The directory where distributions install debug files.
const DIRECTORY: &str = "/usr/lib/debug";

/// Files larger than this are not compared by checksum, because the checksum needs the whole file.
pub(crate) const LARGEST_CHECKED: u64 = 256 << 20;

/// Returns the path of the debug file with a build id: `/usr/lib/debug/.build-id/12/3456….debug`.
pub(crate) fn path_of(id: BuildId) -> Option<PathBuf> {
    let digits = id.to_string();
    let (first, rest) = digits.split_at_checked(2)?;
    Some(Path::new(DIRECTORY).join(".build-id").join(first).join(format!("{rest}.debug")))
}

/// Returns the directory of debug files whose build ids have the same first byte.
pub(crate) fn directory_of(id: BuildId) -> Option<PathBuf> {
    Some(Path::new(DIRECTORY).join(".build-id").join(id.to_string().get(..2)?))
}

/// The contents of `.gnu_debuglink`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DebugLink {
    /// Name of the file, without directories.
    name: String,
    /// CRC-32 of the whole file.
    pub(crate) checksum: u32,
}

impl DebugLink {
    /// Parses the section's bytes.
    pub(crate) fn parse(bytes: &[u8]) -> Option<DebugLink> {
        let name = std::str::from_utf8(bytes.get(..memchr::memchr(0, bytes)?)?).ok()?;
        if name.is_empty() || name.contains('/') {
            return None;
        }
        let checksum = u32_at(bytes, bytes.len().checked_sub(4)?)?;
        Some(DebugLink { name: name.to_owned(), checksum })
    }

    /// Returns the places where gdb looks for the debug file of an object in `directory`: that directory, its `.debug`, and below
    /// /usr/lib/debug.
    pub(crate) fn places(&self, directory: &Path) -> [PathBuf; 3] {
        let below = Path::new(DIRECTORY).join(directory.strip_prefix("/").unwrap_or(directory));
        [directory.join(&self.name), directory.join(".debug").join(&self.name), below.join(&self.name)]
    }
}
