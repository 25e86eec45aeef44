//! How user stacks are walked.

/// How user stacks are walked. The numbers are those of `enum walk_how` in bpf/walk/walk.h.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Walk {
    /// By tables, which are made from the unwind information of programs and libraries.
    Tables = 0,
    /// By frame pointers, as the kernel does it: for programs that were built with frame pointers.
    FramePointers = 1,
    /// By tables, and by frame pointers in a second sample ([`Collected::compared`](crate::collector::Collected::compared)): for comparing
    /// both.
    Compared = 2,
    /// Not at all: to measure the other costs of a sample.
    Nothing = 3,
    /// By tables, without the cache of the thread's last stack: to measure the gain of the cache.
    Anew = 4,
    /// By tables, and in a second sample without the cache, on a copy of the stack: for comparing both.
    Twice = 5,
    /// By tables, on copies of stacks only. The first thing to try if a kernel misbehaves.
    Copied = 6,
    /// By tables, and in a second sample by user space on a dump of the stack: for comparing both.
    Dumped = 7,
}
