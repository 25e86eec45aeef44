//! The data that BPF needs to walk the functions of a process: CPython's part of `struct runtime`.

use super::layout::{Entry, Innermost, Instruction, Layout};
use super::state::{Clues, LeadsTo, StateSlot};
use crate::runtimes::RuntimeBytes;

/// `NO_FIELD`.
const NO_FIELD: u16 = 0xffff;
/// `HAS_CPYTHON`.
const HAS_CPYTHON: u16 = 1;
/// Words of a frame that BPF reads: `SCRIPT_FRAME_WORDS`.
const FRAME_BYTES: u64 = 128;

impl Layout {
    /// Returns the bytes of a `struct runtime`. Returns `None` for a layout that BPF cannot walk.
    pub fn runtime(&self, slot: StateSlot, clues: &Clues) -> Option<RuntimeBytes> {
        let (loop_at, innermost, loop_previous, in_loop) = match self.innermost {
            Innermost::Frame(innermost) => (None, innermost, None, false),
            Innermost::Loop { at, frame, previous } => (Some(at), frame, Some(previous), true),
            Innermost::Both { frame, at, previous } => (Some(at), frame, Some(previous), false),
        };
        let (entry_is, entry) = match self.entry {
            Entry::Each => (0, 0),
            Entry::Flag(at) => (1, at),
            Entry::Between(at) => (2, at),
        };
        let words = [self.frame_previous, self.frame_code, self.frame_instruction];
        let frame_bytes = words.into_iter().map(|at| at + 8).chain([entry / 8 * 8 + 8]).max()?;
        let is_aligned = words.into_iter().all(|at| at % 8 == 0);
        if frame_bytes > FRAME_BYTES || !is_aligned {
            return None;
        }
        let mut bytes = Vec::with_capacity(size_of::<RuntimeBytes>());
        bytes.extend(slot.distance.to_ne_bytes());
        let (has_list, within, variable) = match slot.leads_to {
            LeadsTo::State => (false, 0, None),
            LeadsTo::List(within) => (true, within, None),
            LeadsTo::Blocks { block, variable } => (true, block, Some(variable)),
        };
        bytes.extend(u32::try_from(within).ok()?.to_ne_bytes());
        let or_none = |at: Option<u64>| at.map_or(Some(NO_FIELD), |at| u16::try_from(at).ok());
        let fields = [
            or_none(loop_at)?,
            u16::try_from(innermost).ok()?,
            or_none(loop_previous)?,
            u16::try_from(self.frame_previous).ok()?,
            u16::try_from(self.frame_code).ok()?,
            u16::try_from(self.frame_instruction).ok()?,
            u16::try_from(entry).ok()?,
            u16::try_from(frame_bytes).ok()?,
            u16::try_from(self.code_check).ok()?,
        ];
        fields.into_iter().for_each(|field| bytes.extend(field.to_ne_bytes()));
        bytes.extend([
            entry_is,
            u8::try_from(!self.code_mask).ok()?,
            u8::from(self.instruction == Instruction::Pointer),
            u8::from(has_list),
            u8::from(in_loop),
        ]);
        bytes.push(0);
        bytes.extend(or_none(variable)?.to_ne_bytes());
        bytes.extend(u16::try_from(self.thread_id).ok()?.to_ne_bytes());
        // Without anchors, the functions of two states cannot be told to be inside each other.
        let interpreters = if self.has_anchors() { clues.runtime.checked_add(self.runtime_interpreters)? } else { 0 };
        bytes.extend(interpreters.to_ne_bytes());
        for field in [self.interpreter_next, self.interpreter_threads, self.thread_next, clues.self_size] {
            bytes.extend(u16::try_from(field).ok()?.to_ne_bytes());
        }
        // No other runtime.
        bytes.extend(HAS_CPYTHON.to_ne_bytes());
        bytes.resize(size_of::<RuntimeBytes>(), 0);
        bytes.try_into().ok()
    }
}
