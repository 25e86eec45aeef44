//! Tables to jump by.

/// An entry of a table of jumps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Width {
    /// 1, 2, 4 or 8 bytes.
    pub(crate) bytes: u8,
    pub(crate) signed: bool,
    /// An entry counts units of `1 << shift` bytes.
    pub(crate) shift: u8,
}

impl Width {
    pub(crate) const fn signed(bytes: u8) -> Width {
        Width { bytes, signed: true, shift: 0 }
    }
}

/// A table to jump by: addresses are `base + (entry << shift)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Jumps {
    pub(crate) table: u64,
    pub(crate) base: u64,
    pub(crate) width: Width,
}

impl Jumps {
    /// Returns a table of plain addresses.
    pub(crate) fn absolute(table: u64) -> Jumps {
        Jumps { table, base: 0, width: Width::signed(8) }
    }
}
