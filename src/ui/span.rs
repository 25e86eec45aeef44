//! Which time is looked at.

use crate::profile::Timestamp;

/// Which time is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Span {
    /// Everything that is stored.
    #[default]
    All,
    /// The last so many seconds.
    Last(u64),
    /// Everything, what is older weighing less: half for each so many seconds.
    Fading(u64),
    /// From one moment to before another.
    Between(Timestamp, Timestamp),
}
