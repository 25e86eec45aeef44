//! The selected time.

use crate::profile::Timestamp;

/// The selected time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Span {
    /// Everything that is stored.
    #[default]
    All,
    /// The last seconds, as many as this.
    Last(u64),
    /// Everything, with older samples weighing less. The weight halves in this many seconds.
    Fading(u64),
    /// From the first moment up to the second, which is not included.
    Between(Timestamp, Timestamp),
}
