//! Symbol tables: map an address to the function that holds it, and make its name readable.

pub(crate) mod demangle;
pub(crate) mod file_functions;
pub(crate) mod index;
