//! What the kernel tells of its own code.

use std::ops::Range;

/// A function of the running kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelSymbol {
    /// As it is linked.
    pub name: String,
    /// Whose it is, `[ext4]`; the kernel's own if nobody is named.
    pub module: Option<String>,
    /// Where it is, up to the next symbol: padding belongs to it.
    pub addresses: Range<u64>,
}
