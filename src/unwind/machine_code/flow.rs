//! Where execution continues after an instruction.

use super::state::Value;

/// Where execution continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flow {
    /// Behind the instruction.
    Next,
    Jump(u64),
    /// There or behind the instruction.
    Branch(u64),
    /// There first; behind the instruction once the callee has returned.
    Call(Option<u64>),
    Return,
    /// Where a register or memory says.
    Indirect,
    /// Nowhere.
    End,
}

/// `CLONE_VM`: include/uapi/linux/sched.h.
const CLONE_VM: u64 = 0x100;

/// Returns whether a `clone` with these flags is a fork. A fork's child has a copy of the stack and continues as its parent does.
pub(crate) fn is_fork(flags: Value) -> bool {
    matches!(flags, Value::Number(flags) if flags & CLONE_VM == 0)
}
