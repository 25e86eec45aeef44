//! Replaces `disassembly` if that feature is switched off.

use std::ops::Range;

use super::called::Called;
use crate::object::headers::Arch;
use crate::profile::Row;

/// Returns an error that says why there are no instructions.
pub(super) fn decode(_: Arch, _: &[u8], _: Range<u64>, _: impl Called) -> Result<Vec<Row>, &'static str> {
    Err("no instructions: this flametop was built without the feature `disassembly`")
}
