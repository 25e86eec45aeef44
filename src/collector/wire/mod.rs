//! Typed records, parsed from the kernel's bytes.
//!
//! - [`records`]: samples, requests for tables, and stack dumps, in the layout of `bpf/record.h`.
//! - [`perf_records`]: side-band events of perf.
//! - [`script`]: functions of interpreters.
//! - [`pending`]: waiting records.
//! - `asleep`: the last samples of threads that still wait.

mod asleep;
pub(crate) mod pending;
pub(crate) mod perf_records;
pub(crate) mod records;
pub(crate) mod script;
