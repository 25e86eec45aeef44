//! Memory of a process.

/// Where what an interpreter keeps is read from.
pub trait Memory {
    /// Reads as many bytes as the buffer holds from an address on. Returns `false` if not all of them are there.
    fn read(&self, address: u64, buffer: &mut [u8]) -> bool;

    /// Reads bytes, at most `limit` of them. Returns `None` if more are asked for, or not all are there.
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
