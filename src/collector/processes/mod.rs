//! Processes: their mappings over time, the facts read from `/proc`, and the samples that wait for them.
//!
//! ```text
//! events ─► table ◄─ reading ◄─ reader ◄─ /proc
//!             │
//! samples ─► resolve ─► frames
//!             └─ parking, dumped: until the process is read, or its unwind table is loaded
//! ```

pub(crate) mod at_sample;
pub(crate) mod bounds;
pub(crate) mod cgroups;
pub(crate) mod dumped;
pub(crate) mod dumps;
mod engine_files;
pub(crate) mod engines;
pub(crate) mod functions;
pub(crate) mod interpreter;
mod jvm_memory;
pub(crate) mod jvms;
pub(crate) mod kernel_entries;
pub(crate) mod mapped_build_id;
pub(crate) mod mappings;
pub(crate) mod moved;
pub(crate) mod moved_file;
pub(crate) mod moved_reading;
pub(crate) mod parked;
pub(crate) mod parking;
pub(crate) mod pauses;
pub(crate) mod proc;
pub(crate) mod process_memory;
pub(crate) mod reader;
pub(crate) mod reading;
pub(crate) mod reasons;
pub(crate) mod remapped;
pub(crate) mod resolve;
pub(crate) mod script_reading;
pub(crate) mod scripts;
pub(crate) mod shown_functions;
pub(crate) mod state;
pub(crate) mod table;
pub(crate) mod tidy;
mod v8_memory;
pub(crate) mod wanted_functions;
