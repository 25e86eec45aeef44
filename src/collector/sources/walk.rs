//! How user stacks are walked.

/// How user stacks are walked. The numbers are those of `enum walk_how` in bpf/walk/walk.h.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Walk {
    /// By tables made from the unwind information of programs and libraries.
    Tables = 0,
    /// By frame pointers, as the kernel does it: for programs that were built with them.
    FramePointers = 1,
    /// Both, the second in a sample behind the first ([`Collected::compared`](crate::collector::Collected::compared)): for comparing them.
    Compared = 2,
    /// Not at all: for measuring what the rest of a sample costs.
    Nothing = 3,
    /// By tables, each stack anew, whatever the thread's last one was: for measuring what remembering it gains.
    Anew = 4,
    /// By tables; and anew, of a copy of the stack, in a sample behind the first: for comparing them.
    Twice = 5,
    /// By tables; stacks are always copied. The first thing to try if a kernel misbehaves.
    Copied = 6,
    /// By tables; and by user space in a dump of the stack, in a sample behind the first: for comparing them.
    Dumped = 7,
}
