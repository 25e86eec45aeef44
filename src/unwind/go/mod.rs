//! Go: rules from the runtime's own table for stack walks, and from the code of functions that change stacks.

pub(crate) mod gopclntab;
pub(crate) mod switches_arm64;
pub(crate) mod switches_x86_64;
