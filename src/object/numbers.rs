//! Reads little-endian numbers from a slice, and never past its end.

/// Reads values from a slice. Holds the bytes that are not read yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { rest: bytes }
    }

    /// Returns the number of bytes left.
    pub(crate) fn left(&self) -> usize {
        self.rest.len()
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*taken)
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads an unsigned LEB128 number of at most 64 bits.
    #[inline]
    pub(crate) fn uleb(&mut self) -> Option<u64> {
        let first = self.u8()?;
        if first < 0x80 {
            return Some(u64::from(first));
        }
        let mut value = u64::from(first & 0x7f);
        let mut shift = 7;
        loop {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift > 63 || shift == 63 && bits > 1 {
                return None;
            }
            value |= bits << shift;
            shift += 7;
            if byte < 0x80 {
                return Some(value);
            }
        }
    }

    /// Reads a signed LEB128 number of at most 64 bits.
    #[inline]
    pub(crate) fn sleb(&mut self) -> Option<i64> {
        let mut value = 0i64;
        let mut shift = 0;
        loop {
            let byte = self.u8()?;
            if shift > 63 || shift == 63 && byte != 0 && byte != 0x7f {
                return None;
            }
            value |= i64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                if shift < 64 && byte & 0x40 != 0 {
                    value |= -1 << shift;
                }
                return Some(value);
            }
        }
    }

    /// Reads the bytes up to the next zero byte. Skips the zero byte.
    pub(crate) fn c_string(&mut self) -> Option<&'a [u8]> {
        let length = memchr::memchr(0, self.rest)?;
        let text = self.take(length)?;
        self.take(1)?;
        Some(text)
    }
}

/// Returns `N` bytes at an offset.
pub(crate) fn array_at<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..)?.first_chunk().copied()
}

/// Returns the number of two bytes at an offset.
pub(crate) fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    array_at(bytes, offset).map(u16::from_le_bytes)
}

/// Returns the number of four bytes at an offset.
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    array_at(bytes, offset).map(u32::from_le_bytes)
}

/// Returns the number of eight bytes at an offset.
pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    array_at(bytes, offset).map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leb128_numbers_are_read_up_to_64_bits() {
        let uleb = |bytes: &[u8]| Cursor::new(bytes).uleb();
        let sleb = |bytes: &[u8]| Cursor::new(bytes).sleb();
        assert_eq!((uleb(&[0x7f]), uleb(&[0xe5, 0x8e, 0x26])), (Some(127), Some(624_485)));
        assert_eq!((sleb(&[0x7f]), sleb(&[0xc0, 0xbb, 0x78]), sleb(&[0x3f])), (Some(-1), Some(-123_456), Some(63)));
        let most = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(uleb(&most), Some(u64::MAX));
        assert_eq!(sleb(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x7f]), Some(i64::MIN));
        assert_eq!((uleb(&[0x80]), uleb(&[0xff; 12]), sleb(&[0xff; 12])), (None, None, None));
    }
}
