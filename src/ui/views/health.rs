//! View 5: how reliable the picture is, and how to improve it.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::profile::{Held, Request, Snapshot, UserEnd};
use crate::ui::messages::{Heap, Problem};
use crate::ui::scene::Scene;
use crate::ui::text;

use super::behaviour::{Hint, ViewBehaviour};
use crate::ui::keys::Action;
use crate::ui::paint::put;

/// The health view's state.
#[derive(Clone, Debug, Default)]
pub struct Health {
    /// The first line on screen. It may be past the end; drawing limits it.
    scroll: usize,
}

impl ViewBehaviour for Health {
    fn ask(&self, request: &mut Request) {
        request.memory = true;
    }

    fn draw(&self, scene: &Scene, area: Rect, buffer: &mut Buffer) {
        let lines = wrapped(scene, area);
        let scroll = self.scroll.min(lines.len().saturating_sub(usize::from(area.height)));
        for (y, (words, style)) in (area.y..area.bottom()).zip(lines.into_iter().skip(scroll)) {
            put(buffer, area, area.x + 1, y, &words, style);
        }
    }

    fn hints(&self, _: &Scene) -> Vec<Hint> {
        vec![(Action::Up, "up"), (Action::Down, "down")]
    }

    fn go(&mut self, scene: &Scene, action: Action) {
        let page = usize::from(scene.areas().body.height).max(1);
        let last = wrapped(scene, scene.areas().body).len().saturating_sub(page);
        let scroll = match action {
            Action::Up => self.scroll.saturating_sub(1),
            Action::Down => self.scroll + 1,
            Action::PageUp => self.scroll.saturating_sub(page),
            Action::PageDown => self.scroll + page,
            Action::Top => 0,
            Action::Bottom => last,
            _ => self.scroll,
        };
        self.scroll = scroll.min(last);
    }
}

/// Returns the lines, none of them wider than the view.
fn wrapped(scene: &Scene, area: Rect) -> Vec<(String, Style)> {
    let columns = usize::from(area.width).saturating_sub(2).max(20);
    let parts = |(line, style): (String, Style)| text::wrap(&line, columns).into_iter().map(move |part| (part, style));
    lines(scene).into_iter().flat_map(parts).collect()
}

/// Most objects named for each reason.
const MOST_OBJECTS: usize = 4;

/// Describes how many stacks are complete, why others are not, and which samples have no stack.
fn stacks(scene: &Scene) -> Vec<(String, Style)> {
    let (plain, dim) = (Style::new(), scene.theme.dim());
    let snapshot = &scene.snapshot;
    let totals = &snapshot.totals;
    let mut lines = vec![("User stacks of the samples shown".to_owned(), scene.theme.key())];
    let row = |weight, of, what: &str| {
        let share = text::percent(weight, of);
        (format!("{:>9}  {share:>5} %  {what}", scene.count_of(weight)), plain)
    };
    if totals.user > 0 {
        lines.push(row(totals.complete, totals.user, "complete: they reach the start of the program or thread"));
    }
    for (end, weight) in totals.reasons() {
        let (what, remedy) = end.explain();
        lines.push(row(weight, totals.user, what));
        if !remedy.is_empty() {
            lines.push((format!("{:22}{remedy}", ""), dim));
        }
        let objects = snapshot.short.iter().filter(|short| short.end == end);
        for short in objects.clone().take(MOST_OBJECTS) {
            lines.push((format!("{:>32}  in {}", scene.count_of(short.weight), short.object), dim));
        }
        let more = objects.count().saturating_sub(MOST_OBJECTS);
        if more > 0 {
            lines.push((format!("{more:>32}  more objects"), dim));
        }
    }
    let without = UserEnd::ALL.into_iter().zip(totals.ends).filter(|(end, weight)| !end.has_stack() && *weight > 0);
    for (at, (end, weight)) in without.enumerate() {
        if at == 0 {
            lines.push((format!("{:22}Without a user stack:", ""), dim));
        }
        lines.push((format!("{:>9}  {:>7}  {}", scene.count_of(weight), "", end.explain().0), plain));
    }
    lines
}

/// Describes the parts of the resident memory. For files it is not measured; then the list has all stored data.
fn memory(scene: &Scene, snapshot: &Snapshot) -> Vec<String> {
    let Held { samples, names, tables, known, trees } = snapshot.held;
    let (resident, mapped) = (scene.status.own_memory, scene.status.own_mapped);
    let stored = format!("{} samples, their stacks and threads", text::grouped(snapshot.stored as u64));
    let parts = [
        (mapped, "mapped: this program, libraries, other files and the kernel's buffers"),
        (samples, stored.as_str()),
        (names, "names"),
        (tables, "symbol tables and debug information"),
        (known, "processes, files with unwind tables, the kernel's symbols"),
        (trees, "call trees of this screen"),
    ];
    let anonymous = resident.saturating_sub(mapped);
    let last = match scene.status.own_heap {
        Some(Heap { resident, in_use }) => {
            let resident = resident.min(anonymous);
            let in_use = in_use.min(resident);
            [
                (anonymous - resident, "threads, and data of this program and its libraries"),
                (resident - in_use, "freed and kept for reuse, and libbpf's memory"),
                (in_use.saturating_sub(snapshot.held.total()), "everything else"),
            ]
        }
        // It has not been measured yet.
        None => [(0, ""), (0, ""), (anonymous.saturating_sub(snapshot.held.total()), "freed, and everything else")],
    };
    let parts = parts.into_iter().chain(last);
    let least = if resident > 0 { 100_000 } else { 1 };
    parts.filter(|(bytes, _)| *bytes >= least).map(|(bytes, what)| format!("{:>20}  {what}", text::bytes(bytes))).collect()
}

fn lines(scene: &Scene) -> Vec<(String, Style)> {
    let plain = Style::new();
    let heading = scene.theme.key();
    let snapshot = &scene.snapshot;
    let mut lines = stacks(scene);
    if !scene.failures.is_empty() {
        lines.push((String::new(), plain));
        lines.push(("Recent failures".to_owned(), heading));
        lines.extend(scene.failures.iter().rev().map(|failure| (format!("  {failure}"), plain)));
    }
    lines.push((String::new(), plain));
    lines.push(("Not in the picture".to_owned(), heading));
    let losses = &snapshot.losses;
    let kinds = [
        (losses.ring_full, "samples lost: ring buffer full (lower the rate with -F)"),
        (losses.events_lost, "process events lost (mappings, names, exits): some frames may have no name"),
        (losses.malformed, "malformed records"),
        (losses.over_memory, "samples dropped: memory limit reached (raise --memory)"),
        (losses.coarse, "addresses merged under a shared name: memory limit reached (raise --memory)"),
        (losses.aged_out, "samples dropped: older than the window (raise --window)"),
        (scene.status.own_left_out, "samples of flametop itself; --self shows them"),
    ];
    for (count, what) in kinds {
        let style = if count > 0 { plain } else { scene.theme.dim() };
        lines.push((format!("{:>9}  {what}", text::grouped(count)), style));
    }
    if let Some((user, count)) = losses.coarse_most {
        let words = format!(
            "{:>20}  of these belong to user {user}, whose share of the memory for names is used up",
            text::grouped(count)
        );
        lines.push((words, scene.theme.dim()));
    }
    if !snapshot.events.is_empty() {
        lines.push((String::new(), plain));
        lines.push(("Events (all counted) and their stacks".to_owned(), heading));
    }
    for event in snapshot.events.iter() {
        let (events, stacks) = (text::grouped(event.events), text::grouped(event.stacks));
        let places = if event.places == 1 { String::new() } else { format!(" at {} places", event.places) };
        let together = event.waited.map_or(String::new(), |waited| format!(", {} together", text::duration(waited)));
        lines.push((format!("{events:>9}  {} ({}{places}){together}, {stacks} stacks", event.name, event.how), plain));
        if event.cost > 0 && event.events > 0 {
            let each = event.cost as f64 / event.events as f64 / 1000.0;
            lines.push((format!("{each:>17.1} µs  about, is what each event costs its program"), scene.theme.dim()));
        }
        let kinds = [
            (event.missed, "events came while another stack was taken on that CPU: counted, but without a stack"),
            (event.unsure, "more events, of any process, came while a stack was taken on that CPU: not counted"),
            (event.unknown, "more waits, not counted: their threads could not be followed"),
            (event.busy, "stacks were skipped while another was taken on that CPU: the next one has their weight"),
            (event.own, "events of flametop itself, not counted; --self shows them"),
            (event.cut, "kernel stacks are incomplete: the callers could not be determined"),
        ];
        for (count, what) in kinds.into_iter().filter(|(count, _)| *count > 0) {
            lines.push((format!("{:>20}  {what}", text::grouped(count)), scene.theme.dim()));
        }
    }
    lines.push((String::new(), plain));
    lines.push(("Cost of flametop".to_owned(), heading));
    if scene.status.own_memory > 0 {
        lines.push((format!("{:>8.1}%  of one CPU over the last seconds", scene.status.own_cpu), plain));
        if scene.status.probes_cpu > 0.0 {
            let words =
                format!("{:>8.1}%  of one CPU, about, is lost by the programs whose events are counted", scene.status.probes_cpu);
            lines.push((words, plain));
        }
        lines.push((format!("{:>9}  resident memory", text::bytes(scene.status.own_memory)), plain));
    }
    lines.extend(memory(scene, snapshot).into_iter().map(|line| (line, scene.theme.dim())));
    for (title, rows) in [("Unwind tables", &scene.status.notes), ("Processes that cannot be read", &scene.status.unread)] {
        if !rows.is_empty() {
            lines.push((String::new(), plain));
            lines.push((title.to_owned(), heading));
            lines.extend(rows.iter().map(|note| (format!("  {note}"), plain)));
        }
    }
    if !scene.status.problems.is_empty() {
        lines.push((String::new(), plain));
        lines.push(("Objects without names or source lines".to_owned(), heading));
        for Problem { path, reason, unnamed, remedy } in &scene.status.problems {
            let how_many = match unnamed {
                0 => "functions have names, but no source lines".to_owned(),
                1 => "1 frame without a name".to_owned(),
                unnamed => format!("{unnamed} frames without a name"),
            };
            lines.push((format!("  {path}: {reason}; {how_many}"), plain));
            if !remedy.is_empty() {
                lines.push((format!("    {remedy}"), scene.theme.dim()));
            }
        }
    }
    lines
}
