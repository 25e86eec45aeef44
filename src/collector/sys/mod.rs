//! Direct calls to the kernel. This is the collector's only folder with unsafe code.
#![allow(unsafe_code)]

pub(crate) mod bpf_memory;
pub(crate) mod bpf_stats;
#[cfg(target_arch = "x86_64")]
pub(crate) mod direct_map;
pub(crate) mod kcore;
pub(crate) mod machine;
pub(crate) mod perf_event;
pub(crate) mod perf_ring;
pub(crate) mod probed;
pub(crate) mod scheduling;
pub(crate) mod windowed_ring;
