//! The input and the output of readers.

use std::io::BufRead;

use super::FormatError;
use crate::profile::{Names, Profile};

/// The tables that a reader fills.
pub struct Destination<'a> {
    /// The names.
    pub names: &'a Names,
    /// The samples.
    pub profile: &'a mut Profile,
    /// The baseline's samples, if the file is a difference. `None` if they are not wanted.
    pub before: Option<&'a mut Profile>,
}

/// What a reader tells besides samples.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Opened {
    /// Defects of the file, and how its numbers were changed: half a sentence each.
    pub remarks: Vec<String>,
    /// Whether the file is a difference.
    pub is_difference: bool,
}

/// Reads a file's content into the tables.
pub(super) type ReadFn = fn(&mut dyn BufRead, &mut Destination<'_>) -> Result<Opened, FormatError>;
