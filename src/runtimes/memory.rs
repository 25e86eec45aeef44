//! The memory of a process, as interpreters' structures are read from it.

/// Read access to a process's memory.
pub trait Memory {
    /// Fills the buffer from `address`. Returns `false` if not all bytes are there.
    fn read(&self, address: u64, buffer: &mut [u8]) -> bool;

    /// Reads `length` bytes. Returns `None` if that is more than `limit`, or if not all bytes are there.
    fn bytes(&self, address: u64, length: u64, limit: u64) -> Option<Vec<u8>> {
        let length = usize::try_from(length).ok().filter(|_| length <= limit)?;
        let mut bytes = vec![0; length];
        self.read(address, &mut bytes).then_some(bytes)
    }

    /// Reads 8 bytes as a number.
    fn u64(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes).then_some(u64::from_le_bytes(bytes))
    }

    /// Reads 4 bytes as a number.
    fn u32(&self, address: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.read(address, &mut bytes).then_some(u32::from_le_bytes(bytes))
    }

    /// Reads one byte.
    fn u8(&self, address: u64) -> Option<u8> {
        let mut byte = [0];
        self.read(address, &mut byte).then_some(byte[0])
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

    use super::Memory;

    /// Memory of random words: the same ones for the same seed.
    pub(in crate::runtimes) struct Nonsense {
        pub(in crate::runtimes) seed: u64,
        /// Makes a word of a random number. Small numbers and words that lead to each other bring readers further.
        pub(in crate::runtimes) word: fn(u64) -> u64,
        /// The end of the memory.
        pub(in crate::runtimes) end: u64,
    }

    /// Returns a random number for a thing, the same one for the same seed.
    pub(in crate::runtimes) fn random(seed: u64, of: impl std::hash::Hash) -> u64 {
        BuildHasherDefault::<DefaultHasher>::default().hash_one((seed, of))
    }

    impl Memory for Nonsense {
        fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
            for (at, byte) in (address..).zip(buffer.iter_mut()) {
                *byte = (self.word)(random(self.seed, at & !7)).to_le_bytes()[(at & 7) as usize];
            }
            address.is_multiple_of(97) || address < self.end
        }
    }
}
