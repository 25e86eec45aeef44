//! The questions that a profile can answer.

/// Data that a profile's samples have. Views offer only questions that these data can answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Capabilities {
    /// Samples still arrive.
    pub live: bool,
    /// Samples have times.
    pub time: bool,
    /// Samples have threads and processes.
    pub threads: bool,
    /// Samples have CPUs.
    pub cpus: bool,
    /// Samples have cgroups.
    pub cgroups: bool,
    /// Frames have addresses, so their instructions and source lines can be shown.
    pub addresses: bool,
    /// Frames that an interpreter needs to run its functions are marked.
    pub interpreters: bool,
    /// It is known how many samples were lost, and whether stacks are complete.
    pub losses: bool,
    /// Samples come from several sources. The screen shows one source at a time.
    pub events: bool,
}

impl Capabilities {
    /// Capabilities of samples that are taken while they are shown.
    pub const LIVE: Capabilities = Capabilities {
        live: true,
        time: true,
        threads: true,
        cpus: true,
        cgroups: true,
        addresses: true,
        interpreters: true,
        losses: true,
        events: true,
    };

    /// Capabilities of stacks with counts only, such as a file of folded stacks.
    pub const STACKS: Capabilities = Capabilities {
        live: false,
        time: false,
        threads: false,
        cpus: false,
        cgroups: false,
        addresses: false,
        interpreters: false,
        losses: false,
        events: false,
    };
}
