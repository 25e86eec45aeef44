//! What a profile can answer.

/// What is known about the samples of a profile, so that nobody asks for more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Capabilities {
    /// Samples still come.
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
    /// Samples are of several sources, one of which is shown at a time.
    pub events: bool,
}

impl Capabilities {
    /// Of samples that are taken while they are shown.
    pub const LIVE: Capabilities =
        Capabilities { live: true, time: true, threads: true, cpus: true, cgroups: true, addresses: true, events: true };

    /// Of stacks and counts alone, such as a file of folded stacks has.
    pub const STACKS: Capabilities =
        Capabilities { live: false, time: false, threads: false, cpus: false, cgroups: false, addresses: false, events: false };
}
