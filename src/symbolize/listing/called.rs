//! Names for the targets of a function's instructions, and the limit of instructions shown.

/// Most instructions shown of one function: more than a person reads, and a bound for the claims of hostile files.
pub(super) const MAX_INSTRUCTIONS: usize = 20_000;

/// Finds the names of addresses that calls and jumps lead to.
#[cfg_attr(not(feature = "disassembly"), expect(dead_code, reason = "nothing is decoded that could lead anywhere"))]
pub(super) trait Called: 'static {
    /// Returns the function that holds an address: its begin and its name.
    fn name(&self, address: u64) -> Option<(u64, String)>;
}
