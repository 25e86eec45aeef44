//! Symbol tables: an address → the function that holds it, and its name as people read it.

pub(crate) mod demangle;
pub(crate) mod file_functions;
pub(crate) mod index;
