//! Bytes from the kernel → typed records.
//!
//! - [`records`]: samples, requests for tables and stack dumps, as `bpf/record.h` lays them out.
//! - [`perf_records`]: what perf's rings tell of processes.
//! - [`script`]: functions of interpreters in samples.
//! - [`pending`]: records that wait for their turn.

pub(crate) mod pending;
pub(crate) mod perf_records;
pub(crate) mod records;
pub(crate) mod script;
