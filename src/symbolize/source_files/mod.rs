//! Source files: opened in the roots of the processes that run the programs, as far as their users may read them.
//!
//! ```text
//! app.js:12 ─► SourceMaps ─► sums.ts:3        if app.js names a source map that can be read
//! sums.ts   ─► text       ─► rows             or the text that the map has of it
//! ```

pub(super) mod hosts;
pub(super) mod map;
pub(super) mod maps;
pub(super) mod text;
