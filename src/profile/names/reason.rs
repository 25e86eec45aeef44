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

    /// Returns the reason whose box has this name.
    pub fn named(name: &str) -> Option<WaitReason> {
        WaitReason::ALL.into_iter().find(|reason| reason.label() == name)
    }

    /// Whether a thread that has nothing to do may wait for this reason.
    pub fn may_be_idle(self) -> bool {
        match self {
            WaitReason::Sleep
            | WaitReason::Lock
            | WaitReason::Poll
            | WaitReason::Network
            | WaitReason::Pipe
            | WaitReason::Child
            | WaitReason::Stopped
            | WaitReason::Other => true,
            WaitReason::Disk | WaitReason::PageFault | WaitReason::KernelLock | WaitReason::Cpu | WaitReason::Quota => false,
        }
    }
}
