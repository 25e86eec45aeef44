//! Information about the running kernel's code, as the kernel reports it.

use std::ops::Range;

/// A way to query the running kernel about its code.
pub trait AskKernel: Send {
    /// Returns the function that holds each address, if any. `None` if the kernel cannot be queried.
    fn symbols(&mut self, addresses: &[u64]) -> Option<Vec<Option<KernelSymbol>>>;

    /// Returns the current bytes at these addresses. `None` if they cannot be read.
    fn code(&mut self, addresses: Range<u64>) -> Option<Vec<u8>>;
}

/// A function of the running kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelSymbol {
    /// The name as linked.
    pub name: String,
    /// The module that has it, such as `[ext4]`; `None` for the kernel itself.
    pub module: Option<String>,
    /// The addresses up to the next symbol: padding counts as part of the function.
    pub addresses: Range<u64>,
}
