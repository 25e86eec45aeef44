//! View 1: the flame graph.

mod detail;
mod draw;
mod layout;
mod state;

pub(in crate::ui) use detail::draw as draw_detail;
pub(in crate::ui) use draw::draw;
pub(in crate::ui) use layout::{Span, place_of};
pub(in crate::ui) use state::Flame;
