//! Instructions of code that a process has made at run time, read from its memory, or else from its jitdump.

use std::sync::Arc;

use crate::object::headers::Arch;
use crate::profile::{FrameId, FrameWeight, ObjectId, Rows, sanitize};
use crate::symbolize::jit::JitNames;
use crate::symbolize::service::Service;

use super::called::Called;
use super::code::{Code, MAX_BYTES};

/// Returns the instructions of the function at this address, and the rows of its sampled addresses. The error is the end of a sentence.
pub(super) fn instructions(service: &Service, id: ObjectId, by: FrameId, frames: &[FrameWeight]) -> Result<Rows, &'static str> {
    let made = service.jit.code(&service.names, by, MAX_BYTES, &service.stopped)?;
    let places = frames.iter().filter_map(|weight| Some((weight.frame, service.names.frames.get(weight.frame)?.called_from())));
    let note = if made.is_rest { "other code has overwritten its beginning: the first instructions may be wrong" } else { "" };
    let file = sanitize(&made.file);
    let code = Code { arch: Arch::OWN, bytes: &made.bytes, range: made.range, note, file: &file };
    code.rows(Made(Arc::clone(&service.jit), id), places)
}

/// The names that a process gives to its JIT code.
struct Made(Arc<JitNames>, ObjectId);

impl Called for Made {
    fn name(&self, address: u64) -> Option<(u64, String)> {
        self.0.name_at(self.1, address)
    }
}
