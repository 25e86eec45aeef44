//! The two lines at the bottom. The first shows the frame under the cursor, the second shows the position and the keys. A prompt, a
//! question or a message replaces the second line.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;

use crate::ui::app::App;
use crate::ui::detail::DetailLine;
use crate::ui::keys::Action;
use crate::ui::overlay::{Overlay, Prompt, PromptKind};
use crate::ui::text;
use crate::ui::view::View;
use crate::ui::views::Hint;

use crate::ui::paint::put;

/// Draws both lines.
pub(super) fn draw(app: &App, detail: Rect, hints: Rect, buffer: &mut Buffer) {
    if !detail.is_empty() {
        draw_detail(app, detail, buffer);
    }
    if hints.is_empty() {
        return;
    }
    match (&app.overlay, &app.scene.message) {
        (Some(Overlay::Prompt(prompt)), _) => draw_prompt(app, prompt, hints, buffer),
        (Some(Overlay::Confirm(confirm)), _) => {
            let x = put(buffer, hints, hints.x + 1, hints.y, &confirm.question, app.scene.theme.strong());
            let answers = "y yes  any other key no";
            let answers = if x + 1 + answers.len() as u16 > hints.right() { "y / n" } else { answers };
            put(buffer, hints, x + 1, hints.y, answers, app.scene.theme.key());
        }
        (_, Some(message)) => {
            let style = if message.bad { app.scene.theme.warning() } else { app.scene.theme.strong() };
            put(buffer, hints, hints.x + 1, hints.y, &message.text, style);
        }
        _ => draw_hints(app, hints, buffer),
    }
}

fn draw_detail(app: &App, area: Rect, buffer: &mut Buffer) {
    let searched = searched(app);
    let line = DetailLine { area, theme: &app.scene.theme, searched: &searched, hottest: app.hottest_place() };
    if let Some(source) = &app.source {
        let left = line.draw_searched(buffer);
        put(buffer, left, left.x, left.y, &super::source::describe(app, source), app.scene.theme.strong());
        return;
    }
    app.views.get(app.scene.view).draw_detail(&app.scene, line, buffer);
}

/// Describes the share of samples that the search has found, from the longest wording to the shortest. Empty without a search.
fn searched(app: &App) -> Vec<String> {
    let Some(found) = &app.scene.snapshot.search else { return Vec::new() };
    let share = text::percent(found.weight, app.scene.snapshot.tree.total());
    let (pattern, frames) = (found.pattern.source(), text::count(found.nodes as u64));
    let frames = if found.nodes == 1 { "1 frame".to_owned() } else { format!("{frames} frames") };
    vec![format!("  /{pattern}/ matches {share} %  {frames} "), format!("  /{pattern}/ {share} % ")]
}

fn draw_prompt(app: &App, prompt: &Prompt, area: Rect, buffer: &mut Buffer) {
    let (before, after) = prompt.line.split();
    let mut x = put(buffer, area, area.x + 1, area.y, &prompt.label(&app.save_offer.endings), app.scene.theme.key());
    // A long line shows its end, where the cursor is.
    let room = usize::from(area.right().saturating_sub(x + 2));
    let mut shown = before;
    while text::width(shown) > room {
        let mut rest = shown.chars();
        rest.next();
        shown = rest.as_str();
    }
    let typed = if prompt.proposed { app.scene.theme.chip() } else { app.scene.theme.strong() };
    x = put(buffer, area, x, area.y, shown, typed);
    let mut rest = after.chars();
    let under = rest.next().map_or(" ".to_owned(), String::from);
    let style = app.scene.theme.strong().add_modifier(Modifier::REVERSED);
    x = put(buffer, area, x, area.y, &under, style);
    x = put(buffer, area, x, area.y, rest.as_str(), app.scene.theme.strong());
    let words = match (&prompt.error, &app.scene.snapshot.search) {
        (Some(error), _) => format!("  {error}"),
        (None, Some(found)) if app.scene.search.is_some() && prompt.kind == PromptKind::Search => {
            format!("  {} % of samples", text::percent(found.weight, app.scene.snapshot.tree.total()))
        }
        _ if prompt.proposed => "  Enter accepts, typing replaces it, Esc cancels".to_owned(),
        _ => "  Enter accepts, Esc cancels".to_owned(),
    };
    let style = if prompt.error.is_some() { app.scene.theme.warning() } else { app.scene.theme.dim() };
    put(buffer, area, x + 1, area.y, &words, style);
}

/// Returns the actions offered in the current state, each with a word. Help and quit are the last.
fn hints(app: &App) -> Vec<Hint> {
    let mut hints = Vec::new();
    if app.scene.frozen.is_some() {
        hints.push((Action::Freeze, "resume"));
    }
    if app.source.is_some() {
        hints.extend([
            (Action::ZoomOut, "back"),
            (Action::NextMatch, "next hot line"),
            (Action::NextView, "source, instructions"),
            (Action::Sandwich, "callers"),
            (Action::Copy, "copy line"),
        ]);
    } else {
        if app.scene.compare.on {
            hints.push((Action::Compare, "end comparison"));
        }
        let of_view = app.views.get(app.scene.view).hints(&app.scene);
        hints.extend(of_view.into_iter().filter(|(action, _)| *action != Action::Compare || !app.scene.compare.on));
        if app.scene.frozen.is_none() && app.scene.has().live {
            hints.push((Action::Freeze, "freeze"));
        }
    }
    hints.extend([(Action::Help, "help"), (Action::Quit, "quit")]);
    hints
}

fn draw_hints(app: &App, area: Rect, buffer: &mut Buffer) {
    let ascii = app.scene.theme.ascii;
    let key_of = |(action, words)| {
        let key = app.scene.keys.keys_of(action).find(|key| !ascii || key.is_ascii())?;
        Some((key, words))
    };
    let mut hints: Vec<(&str, &str)> = hints(app).into_iter().filter_map(key_of).collect();
    let width = |hints: &[(&str, &str)]| -> usize { hints.iter().map(|(k, h)| text::width(k) + text::width(h) + 3).sum() };
    let crumbs = match &app.source {
        Some(source) => format!("source of {}", app.scene.names.labels.name(source.label)),
        None if app.scene.compare.on && matches!(app.scene.view, View::Flame | View::Functions) => app.scene.key_of_colours(),
        None => app.views.get(app.scene.view).breadcrumb(&app.scene),
    };
    // Help and quit are always shown. Other actions are removed from the end of the list if there is no room.
    let least = usize::from(area.width) / 3;
    while hints.len() > 2 && width(&hints) + least.min(text::width(&crumbs) + 2) > usize::from(area.width) {
        hints.remove(hints.len() - 3);
    }
    let hints_width = u16::try_from(width(&hints)).unwrap_or(area.width).min(area.width);
    let mut x = area.right() - hints_width;
    let left = Rect { width: x.saturating_sub(area.x), ..area };
    put(buffer, left, left.x + 1, left.y, &text::cut(&crumbs, usize::from(left.width).saturating_sub(2)), app.scene.theme.dim());
    for (key, hint) in hints {
        x = put(buffer, area, x, area.y, key, app.scene.theme.key());
        x = put(buffer, area, x + 1, area.y, hint, app.scene.theme.dim()) + 2;
    }
}
