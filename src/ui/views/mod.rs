//! The views, a folder each: state, drawing, and what keys and the mouse do there.

pub(super) mod flame;
pub(super) mod functions;
pub(super) mod health;
pub(super) mod processes;
pub(super) mod time;
