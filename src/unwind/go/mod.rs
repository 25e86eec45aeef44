//! Go: rules from the table by which its runtime walks its own stacks, and from the code of functions that change stacks.

pub(crate) mod gopclntab;
pub(crate) mod switches_arm64;
pub(crate) mod switches_x86_64;
