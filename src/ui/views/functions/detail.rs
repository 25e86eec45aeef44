//! Describes a row of the table of functions.

use super::rows::FunctionsRow;
use crate::ui::scene::Scene;
use crate::ui::text;

/// Describes the weight of a row. Empty in a comparison: the table has all figures.
pub(super) fn figures(scene: &Scene, row: Option<&FunctionsRow>) -> String {
    if scene.snapshot.difference.is_some() {
        return String::new();
    }
    let weighed =
        |words: &str, weight: u64, whole: u64| format!("{words} {} ({} %)", scene.amount(weight), text::percent(weight, whole));
    let whole = scene.snapshot.weight();
    match row {
        Some(FunctionsRow::Function { own, total, .. }) => {
            format!("{}  {}", weighed("self", own.now, whole), weighed("total", total.now, whole))
        }
        Some(FunctionsRow::Node { callers, weight, of, .. }) => {
            let words = if *callers { "calls it" } else { "is called" };
            format!("{words} for {} of {}", scene.amount(*weight), scene.amount(*of))
        }
        Some(FunctionsRow::Heading { .. }) | None => String::new(),
    }
}

/// Describes a row: the function's whole name, its module and weight.
pub(super) fn describe(scene: &Scene, row: &FunctionsRow) -> String {
    let label = match row {
        FunctionsRow::Function { label, .. } => Some(*label),
        FunctionsRow::Node { path, .. } => path.last().copied(),
        FunctionsRow::Heading { callers: true } => return "functions that call it".to_owned(),
        FunctionsRow::Heading { callers: false } => return "functions that it calls".to_owned(),
    };
    let Some(label) = label.and_then(|label| scene.names.labels.get(label)) else { return String::new() };
    let words = [&*label.name, label.short_object(), &figures(scene, Some(row))].map(str::to_owned);
    words.into_iter().filter(|words| !words.is_empty()).collect::<Vec<_>>().join("  ")
}
