//! The views, a folder each: state, drawing, and what keys and the mouse do there.
//!
//! A view knows the shared [`Scene`](super::scene::Scene) and its own state. It does not know other views: [`App`](super::app::App)
//! switches between them.

mod behaviour;
pub(super) mod flame;
pub(super) mod functions;
mod health;
pub(super) mod processes;
mod states;
pub(super) mod time;

pub(super) use behaviour::{Button, Hint, Match, Opened, ViewBehaviour};
pub(super) use states::Views;
