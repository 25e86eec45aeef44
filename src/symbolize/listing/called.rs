//! What instructions of a function lead to, and how many are shown.

/// Instructions shown of one function: more than anybody reads, and a bound for what hostile files claim.
pub(super) const MAX_INSTRUCTIONS: usize = 20_000;

/// Whoever knows what addresses are called that calls and jumps lead to.
#[cfg_attr(not(feature = "disassembly"), expect(dead_code, reason = "nothing is decoded that could lead anywhere"))]
pub(super) trait Called: 'static {
    /// The function that holds an address: where it begins, and its name.
    fn name(&self, address: u64) -> Option<(u64, String)>;
}
