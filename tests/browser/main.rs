//! Saved pictures in a real browser.
//!
//! No driver is needed: a copy of the file gets a second script, which does what a user would do once the page has loaded, and
//! writes what it sees into the document; Chromium prints the document. Colours are read from screenshots.
//! Needs Debian's package `chromium`; fails without.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod chromium;
mod html;
mod svg;
