//! The Python functions of a thread.

use super::layout::{Entry, Innermost, Layout, NO_FUNCTION};
use crate::runtimes::Memory;

/// A function that runs, or that waits for a function it has called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PythonFrame {
    /// Address of its code object.
    pub code: u64,
    /// The instruction that runs, in bytes from the begin of the bytecode. Negative before the first instruction.
    pub place: i32,
}

/// The functions that one call of the evaluation loop runs, innermost first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Run {
    /// The functions.
    pub frames: Vec<PythonFrame>,
    /// An address in the stack frame of the call. `None` up to 3.9, because there each call runs one function.
    pub anchor: Option<u64>,
}

/// Walks the functions of a thread from its state, at most `limit` frames. Returns the runs, innermost first, and whether the walk reached
/// the outermost function. It does not reach it if memory cannot be read or is malformed.
pub fn chain(memory: &impl Memory, layout: &Layout, state: u64, limit: usize) -> (Vec<Run>, bool) {
    let mut runs = Vec::new();
    let is_whole = walk(memory, layout, state, limit, &mut runs).is_some_and(|whole| whole);
    (runs, is_whole)
}

fn walk(memory: &impl Memory, layout: &Layout, state: u64, limit: usize, runs: &mut Vec<Run>) -> Option<bool> {
    let at = |base: u64, offset: u64| memory.u64(base.checked_add(offset)?);
    // The structure on the C stack of the innermost call, and the offset of the pointer to the next structure.
    let (mut frame, mut anchor, previous_anchor) = match layout.innermost {
        Innermost::Frame(offset) => (at(state, offset)?, None, None),
        Innermost::Both { frame, at: offset, previous } => (at(state, frame)?, Some(at(state, offset)?), Some(previous)),
        Innermost::Loop { at: offset, frame, previous } => {
            let innermost = at(state, offset)?;
            (at(innermost, frame)?, Some(innermost), Some(previous))
        }
    };
    let mut run = Run::default();
    for _ in 0..limit {
        if frame == 0 {
            if !run.frames.is_empty() {
                runs.push(run);
            }
            return Some(true);
        }
        let owner = match layout.entry {
            Entry::Between(offset) => memory.u8(frame.checked_add(offset)?)?,
            Entry::Each | Entry::Flag(_) => 0,
        };
        if owner < NO_FUNCTION {
            let code = at(frame, layout.frame_code)? & layout.code_mask;
            let place = layout.place(code, at(frame, layout.frame_instruction)?);
            run.frames.push(PythonFrame { code, place });
        }
        let ends = match layout.entry {
            Entry::Each => true,
            Entry::Flag(offset) => memory.u8(frame.checked_add(offset)?)? != 0,
            Entry::Between(_) => owner >= NO_FUNCTION,
        };
        if ends {
            run.anchor = if let Entry::Between(_) = layout.entry { Some(frame) } else { anchor };
            if !run.frames.is_empty() {
                runs.push(std::mem::take(&mut run));
            }
            anchor = match (anchor, previous_anchor) {
                (Some(anchor), Some(offset)) => at(anchor, offset),
                _ => None,
            };
        }
        frame = at(frame, layout.frame_previous)?;
    }
    Some(false)
}
