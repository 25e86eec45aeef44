//! Source files: opened in the roots of the processes that run the programs, as far as their users may read them.

pub(super) mod hosts;
pub(super) mod text;
