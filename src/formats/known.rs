//! Finds what is known about a piece of a file by its bytes, as written. Each name is then decoded and looked up in the shared tables once.

use std::hash::Hasher;

use hashbrown::HashTable;
use rustc_hash::FxHasher;

/// Values by bytes.
pub(super) struct Known<T> {
    index: HashTable<Entry<T>>,
    bytes: Vec<u8>,
}

struct Entry<T> {
    start: usize,
    length: usize,
    value: T,
}

impl<T> Default for Known<T> {
    fn default() -> Known<T> {
        Known { index: HashTable::new(), bytes: Vec::new() }
    }
}

impl<T: Copy> Known<T> {
    /// Returns the value of these bytes; if there is none yet, it is the one that `make` returns.
    pub(super) fn get(&mut self, key: &[u8], make: impl FnOnce() -> T) -> T {
        let bytes = &self.bytes;
        let bytes_of = |entry: &Entry<T>| bytes.get(entry.start..entry.start + entry.length).unwrap_or_default();
        let wanted = hash(key);
        if let Some(entry) = self.index.find(wanted, |entry| bytes_of(entry) == key) {
            return entry.value;
        }
        let value = make();
        let entry = Entry { start: bytes.len(), length: key.len(), value };
        self.index.insert_unique(wanted, entry, |entry| hash(bytes_of(entry)));
        self.bytes.extend_from_slice(key);
        value
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(bytes);
    hasher.finish()
}
