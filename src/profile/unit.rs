//! Units of weights.

/// The unit in which samples of one source are weighed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Unit {
    /// Ticks of the clock. A file of counts without a unit has these, too.
    #[default]
    Samples,
    /// Events, such as calls of a function.
    Events,
    /// Time, such as how long a thread waited.
    Nanoseconds,
    /// Memory.
    Bytes,
}

impl Unit {
    /// Returns the word that follows a number of it: `samples`.
    pub fn word(self) -> &'static str {
        match self {
            Unit::Samples => "samples",
            Unit::Events => "events",
            Unit::Nanoseconds => "nanoseconds",
            Unit::Bytes => "bytes",
        }
    }
}
