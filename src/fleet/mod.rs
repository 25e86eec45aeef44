//! Sends profiles to the engines that collect them from many machines (OpenTelemetry's Collector, Grafana Pyroscope), and asks engines for what they have
//! kept (Grafana Pyroscope, Parca).
//!
//! ```text
//! root                              │ nobody: no capabilities, few system calls
//! Profile ─► OtlpWriter ─► Package ──pipe──► Outbox (at most 32 MB) ─► one request at a time ─► the engine
//! ```
//!
//! A package is a request as the engine takes it, complete in itself: names, stacks and samples of ten seconds. So the sender need not know what
//! is in it, and a package that gets lost takes nothing else with it. The sender always reads: packages that an engine does not take wait in the
//! outbox, and the oldest give way.
#![deny(clippy::indexing_slicing)]

mod address;
mod answer;
mod certificates;
mod client;
mod counts;
mod environment;
mod metrics;
mod outbox;
mod package;
mod question;
mod retry;
mod sender;

pub use address::{Address, Engine};
pub use client::ask;
pub use environment::{attributes, endpoint};
pub use metrics::parse as metrics_address;
pub use package::{LARGEST, Package};
pub use question::Question;
pub use sender::{Settings, run};
