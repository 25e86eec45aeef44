//! A list of profiles to choose from, before one is shown.
//!
//! ```text
//!  profiles in /var/lib/flametop  3 files, 14 MB
//!
//!    when              how long        size  what           name
//!    2026-11-29 21:40   10m 00s      4.1 MB  recording      web.flametop
//!  b 2026-11-28 21:40   10m 00s      4.0 MB  recording      web-before.flametop
//!  ↵ open  b baseline  q quit
//! ```

use std::io;

use crossterm::event::{Event as TerminalEvent, EventStream, KeyCode, KeyEventKind, KeyModifiers, MouseButton, MouseEventKind};
use futures_util::StreamExt;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use tokio::sync::watch;

use super::paint::put;
use super::terminal;
use super::text;
use super::theme::Theme;
use super::{Stop, format_bytes};

/// A file of the list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProfileFile {
    /// Its name, which is safe to print.
    pub name: String,
    /// When it was written: `2026-11-29 21:40`.
    pub when: String,
    /// How long it was sampled.
    pub seconds: Option<f64>,
    /// What it is: `recording`.
    pub what: &'static str,
    /// Its size in bytes.
    pub size: u64,
}

/// The list, and what is chosen in it.
#[derive(Clone, Debug, Default)]
pub struct ProfileList {
    /// The directory, which is safe to print.
    pub directory: String,
    /// The files.
    pub files: Vec<ProfileFile>,
    /// The row of the cursor.
    pub cursor: usize,
    /// The row of the file that others are compared with.
    pub baseline: Option<usize>,
    /// Why the last file could not be opened.
    pub message: Option<String>,
    /// The first row on the screen, and how many there are room for.
    top: usize,
    rows: usize,
}

/// Lines above the files, and below them.
const ABOVE: u16 = 3;
const BELOW: u16 = 2;

/// What a key does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Stay,
    Open,
    Quit,
}

impl ProfileList {
    /// A list without files yet.
    pub fn new(directory: String) -> ProfileList {
        ProfileList { directory, ..ProfileList::default() }
    }

    fn key(&mut self, code: KeyCode, modifiers: KeyModifiers) -> Step {
        self.message = None;
        let last = self.files.len().saturating_sub(1);
        match code {
            KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => return Step::Quit,
            KeyCode::Char('q') => return Step::Quit,
            KeyCode::Enter if !self.files.is_empty() => return Step::Open,
            KeyCode::Up | KeyCode::Char('k') => self.cursor = self.cursor.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.cursor = (self.cursor + 1).min(last),
            KeyCode::PageUp => self.cursor = self.cursor.saturating_sub(self.rows),
            KeyCode::PageDown => self.cursor = (self.cursor + self.rows).min(last),
            KeyCode::Home | KeyCode::Char('g') => self.cursor = 0,
            KeyCode::End | KeyCode::Char('G') => self.cursor = last,
            KeyCode::Char('b') if !self.files.is_empty() => {
                self.baseline = if self.baseline == Some(self.cursor) { None } else { Some(self.cursor) };
            }
            _ => {}
        }
        Step::Stay
    }

    fn mouse(&mut self, kind: MouseEventKind, row: u16) -> Step {
        match kind {
            MouseEventKind::ScrollUp => self.cursor = self.cursor.saturating_sub(1),
            MouseEventKind::ScrollDown => self.cursor = (self.cursor + 1).min(self.files.len().saturating_sub(1)),
            MouseEventKind::Down(MouseButton::Left) => {
                let line = row.checked_sub(ABOVE).map(usize::from).filter(|line| *line < self.rows);
                let at = line.map(|line| self.top + line).filter(|at| *at < self.files.len());
                if at == Some(self.cursor) {
                    return Step::Open;
                }
                self.cursor = at.unwrap_or(self.cursor);
            }
            _ => {}
        }
        Step::Stay
    }

    /// Draws the list. Rows scroll so that the cursor is among them.
    fn draw(&mut self, theme: &Theme, area: Rect, buffer: &mut Buffer) {
        self.rows = usize::from(area.height.saturating_sub(ABOVE + BELOW)).max(1);
        self.cursor = self.cursor.min(self.files.len().saturating_sub(1));
        self.top = self.top.clamp((self.cursor + 1).saturating_sub(self.rows), self.cursor);
        let size: u64 = self.files.iter().map(|file| file.size).sum();
        let x = put(buffer, area, area.x + 1, area.y, &format!("profiles in {}", self.directory), theme.strong());
        let word = if self.files.len() == 1 { "file" } else { "files" };
        let counts = format!("{} {word}, {}", text::grouped(self.files.len() as u64), bytes(size));
        put(buffer, area, x + 2, area.y, &counts, theme.dim());
        let heading = format!("   {:<17} {:>8} {:>10}  {:<14} name", "when", "how long", "size", "what");
        put(buffer, area, area.x, area.y + 2, &heading, theme.dim());
        for (line, (number, file)) in (0u16..).zip(self.files.iter().enumerate().skip(self.top).take(self.rows)) {
            let y = area.y + ABOVE + line;
            let long = file.seconds.map_or_else(String::new, |seconds| text::clock(seconds.round() as u64));
            let mark = if self.baseline == Some(number) { 'b' } else { ' ' };
            let words = format!(" {mark} {:<17} {long:>8} {:>10}  {:<14} {}", file.when, bytes(file.size), file.what, file.name);
            let is_selected = number == self.cursor;
            let style = if is_selected { theme.selected() } else { Style::new() };
            if is_selected {
                buffer.set_style(Rect { y, height: 1, ..area }, style);
            }
            put(buffer, area, area.x, y, &words, style);
        }
        if self.files.is_empty() {
            put(buffer, area, area.x + 1, area.y + ABOVE, "no file here is a profile that flametop can open", theme.dim());
        }
        if let Some(message) = &self.message {
            put(buffer, area, area.x + 1, area.bottom().saturating_sub(2), message, theme.warning());
        }
        let baseline = self.baseline.and_then(|number| self.files.get(number));
        let compared = baseline.map_or_else(String::new, |file| format!("   compared with {}", file.name));
        let enter = if theme.ascii { "Enter" } else { "↵" };
        let mut x = area.x + 1;
        for (key, words) in [(enter, "open"), ("b", "baseline"), ("q", "quit")] {
            x = put(buffer, area, x, area.bottom().saturating_sub(1), key, theme.key());
            x = put(buffer, area, x + 1, area.bottom().saturating_sub(1), words, theme.dim()) + 2;
        }
        put(buffer, area, x, area.bottom().saturating_sub(1), &compared, theme.dim());
    }
}

fn bytes(size: u64) -> String {
    format_bytes(usize::try_from(size).unwrap_or(usize::MAX))
}

/// Shows the list until a file is chosen. Returns whether one was: it is at the cursor. The terminal is restored in every case.
///
/// # Errors
///
/// The terminal cannot be taken over, or has disappeared.
pub async fn choose(list: &mut ProfileList, theme: &Theme, mut stop: watch::Receiver<Stop>) -> io::Result<bool> {
    let mut guard = terminal::Guard::take()?;
    let mut gone = std::pin::pin!(terminal::gone());
    let mut events = EventStream::new();
    loop {
        guard.draw(|frame| list.draw(theme, frame.area(), frame.buffer_mut()))?;
        let event = tokio::select! {
            biased;
            _ = stop.changed() => return Ok(false),
            () = &mut gone => return Ok(false),
            event = events.next() => match event {
                None => return Ok(false),
                Some(event) => event?,
            },
        };
        let step = match event {
            TerminalEvent::Key(key) if key.kind != KeyEventKind::Release => list.key(key.code, key.modifiers),
            TerminalEvent::Mouse(mouse) => list.mouse(mouse.kind, mouse.row),
            _ => Step::Stay,
        };
        match step {
            Step::Stay => {}
            Step::Open => return Ok(true),
            Step::Quit => return Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(count: usize) -> ProfileList {
        let file = |number: usize| ProfileFile {
            name: format!("run-{number}.flametop"),
            when: "2026-11-29 21:40".to_owned(),
            seconds: (number == 0).then_some(600.0),
            what: "recording",
            size: 4_000_000,
        };
        ProfileList { directory: "/srv".to_owned(), files: (0..count).map(file).collect(), ..ProfileList::default() }
    }

    fn drawn(list: &mut ProfileList, height: u16) -> Vec<String> {
        let area = Rect { x: 0, y: 0, width: 80, height };
        let mut buffer = Buffer::empty(area);
        list.draw(&Theme::default(), area, &mut buffer);
        let line = |y| (0..80).map(|x| buffer[(x, y)].symbol().to_owned()).collect::<String>().trim_end().to_owned();
        (0..height).map(line).collect()
    }

    #[test]
    fn files_are_listed_and_chosen() {
        let mut few = list(2);
        assert_eq!(few.key(KeyCode::Down, KeyModifiers::NONE), Step::Stay);
        few.key(KeyCode::Char('b'), KeyModifiers::NONE);
        few.key(KeyCode::Up, KeyModifiers::NONE);
        assert_eq!(
            drawn(&mut few, 8),
            [
                " profiles in /srv  2 files, 8.0 MB",
                "",
                "   when              how long       size  what           name",
                "   2026-11-29 21:40     10:00     4.0 MB  recording      run-0.flametop",
                " b 2026-11-29 21:40               4.0 MB  recording      run-1.flametop",
                "",
                "",
                " ↵ open  b baseline  q quit     compared with run-1.flametop",
            ]
        );
        assert_eq!((few.cursor, few.key(KeyCode::Enter, KeyModifiers::NONE)), (0, Step::Open));
        few.key(KeyCode::End, KeyModifiers::NONE);
        few.key(KeyCode::Char('b'), KeyModifiers::NONE);
        assert_eq!((few.cursor, few.baseline), (1, None));
        assert_eq!(few.key(KeyCode::Char('c'), KeyModifiers::CONTROL), Step::Quit);
        assert_eq!(list(0).key(KeyCode::Enter, KeyModifiers::NONE), Step::Stay);
        assert!(drawn(&mut list(0), 8)[3].contains("no file here"));
    }

    #[test]
    fn a_long_list_scrolls_and_is_clicked() {
        let mut many = list(50);
        many.key(KeyCode::End, KeyModifiers::NONE);
        assert!(drawn(&mut many, 10)[7].contains("run-49"), "{:?}", drawn(&mut many, 10));
        many.key(KeyCode::PageUp, KeyModifiers::NONE);
        assert!(drawn(&mut many, 10)[3].contains("run-44"), "{:?}", drawn(&mut many, 10));
        let left = MouseEventKind::Down(MouseButton::Left);
        assert_eq!((many.mouse(left, 5), many.cursor), (Step::Stay, 46));
        assert_eq!(many.mouse(left, 5), Step::Open);
        // The lines below the files are none.
        assert_eq!((many.mouse(left, 8), many.cursor), (Step::Stay, 46));
    }
}
