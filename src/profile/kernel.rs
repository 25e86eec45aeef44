//! What the kernel tells of its own code.

use std::ops::Range;

/// Whoever can ask the running kernel about its code.
pub trait AskKernel: Send {
    /// The function that holds each address, or nothing. `None` if the kernel cannot be asked.
    fn symbols(&mut self, addresses: &[u64]) -> Option<Vec<Option<KernelSymbol>>>;

    /// The bytes that are at these addresses now. `None` where they cannot be read.
    fn code(&mut self, addresses: Range<u64>) -> Option<Vec<u8>>;
}

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
