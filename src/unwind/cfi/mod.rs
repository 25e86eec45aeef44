//! Call frame information: `.eh_frame` and `.debug_frame`.
//!
//! ```text
//! bytes ─ entries ─► CIEs and FDEs ─ machine ─► a state for each address ─ translate ─► rules
//! ```

pub(crate) mod entries;
pub(crate) mod expression;
pub(crate) mod machine;
pub(crate) mod translate;
