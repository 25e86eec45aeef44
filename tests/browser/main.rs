//! Saved pictures in a real browser.
//!
//! No driver is needed. A copy of the file gets a second script. It does what a user would do, and writes its findings into the document,
//! which Chromium prints. Colours are read from screenshots.
//! Needs Debian's package `chromium`; fails without.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod chromium;
mod html;
mod svg;
