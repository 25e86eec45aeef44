//! The table of one object: rules, packed into 8 bytes; rows, by address; and the layout that BPF searches.

pub(crate) mod block;
pub(crate) mod packed;
pub mod paged;
pub mod rows;
pub mod rule;
