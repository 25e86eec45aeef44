//! Views: the trees, tables and sums that a query selects from the samples of a store.
//!
//! ```text
//! store ─ builder ─► tree, functions, timeline, summaries ─ engine ─► snapshot
//! ```

pub(crate) mod activity;
pub(crate) mod addresses;
pub(crate) mod baseline;
pub(crate) mod builder;
pub(crate) mod chance;
pub(crate) mod difference;
pub(crate) mod engine;
pub(crate) mod fading;
pub(crate) mod functions;
pub(crate) mod hottest;
pub(crate) mod idle;
pub(crate) mod query;
pub(crate) mod search;
pub(crate) mod sides;
pub(crate) mod snapshot;
pub(crate) mod steady;
pub(crate) mod summaries;
pub(crate) mod timeline;
pub(crate) mod totals;
pub(crate) mod tree;
pub(crate) mod tree_paths;
