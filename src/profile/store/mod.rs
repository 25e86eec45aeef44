//! The store: samples in the order of their time, their stacks, threads and processes.

pub(crate) mod alike;
pub(crate) mod capabilities;
pub(crate) mod clock;
pub(crate) mod events;
pub(crate) mod held;
pub(crate) mod processes;
pub(crate) mod profile;
pub(crate) mod renewal;
pub(crate) mod samples;
pub(crate) mod stacks;
pub(crate) mod threads;
