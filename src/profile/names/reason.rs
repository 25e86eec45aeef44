//! Why a thread waits: the innermost box of a wait's stack.

/// Why a thread does not run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum WaitReason {
    /// It sleeps for a time.
    Sleep,
    /// It waits for another thread: a lock, a condition, a semaphore.
    Lock,
    /// It waits for one of several files, or for a signal.
    Poll,
    /// It waits for a socket.
    Network,
    /// It waits for a pipe or a terminal.
    Pipe,
    /// It waits for a disk, or for a file system on another machine.
    Disk,
    /// It waits for a page of its memory.
    PageFault,
    /// It waits for a child.
    Child,
    /// It waits for a lock inside the kernel.
    KernelLock,
    /// It is stopped: by a signal, a debugger or the freezer.
    Stopped,
    /// It could run, but others have the CPU.
    Cpu,
    /// It could run, but its cgroup has used up its CPU time.
    Quota,
    /// None of these.
    Other,
}

impl WaitReason {
    /// All reasons, in the order of legends.
    pub const ALL: [WaitReason; 13] = [
        WaitReason::Sleep,
        WaitReason::Lock,
        WaitReason::Poll,
        WaitReason::Network,
        WaitReason::Pipe,
        WaitReason::Disk,
        WaitReason::PageFault,
        WaitReason::Child,
        WaitReason::KernelLock,
        WaitReason::Stopped,
        WaitReason::Cpu,
        WaitReason::Quota,
        WaitReason::Other,
    ];

    /// Returns the name of its box.
    pub fn label(self) -> &'static str {
        match self {
            WaitReason::Sleep => "[sleep]",
            WaitReason::Lock => "[lock]",
            WaitReason::Poll => "[poll]",
            WaitReason::Network => "[network]",
            WaitReason::Pipe => "[pipe or terminal]",
            WaitReason::Disk => "[disk]",
            WaitReason::PageFault => "[page fault]",
            WaitReason::Child => "[child]",
            WaitReason::KernelLock => "[kernel lock]",
            WaitReason::Stopped => "[stopped]",
            WaitReason::Cpu => "[CPU taken]",
            WaitReason::Quota => "[CPU quota]",
            WaitReason::Other => "[other wait]",
        }
    }

    /// Tells whether this is the name of a reason's box.
    pub fn is_label(name: &str) -> bool {
        WaitReason::ALL.iter().any(|reason| reason.label() == name)
    }
}
