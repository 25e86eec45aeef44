//! The views, a folder each: state, drawing, and what keys and the mouse do there.
//!
//! A view knows what is looked at, the [`Scene`](super::scene::Scene), and its own state. No view knows another one: what leads from one
//! to the other is in [`App`](super::app::App).

mod behaviour;
pub(super) mod flame;
pub(super) mod functions;
mod health;
pub(super) mod processes;
mod states;
pub(super) mod time;

pub(super) use behaviour::{Button, Hint, Match, Opened, ViewBehaviour};
pub(super) use states::Views;
