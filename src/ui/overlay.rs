//! Overlays over a view: prompts, lists, help, and the question before a file is overwritten.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use nucleo_matcher::pattern::{CaseMatching, Normalization, Pattern as Fuzzy};
use nucleo_matcher::{Config, Matcher, Utf32Str};
use rustc_hash::FxHashMap;

use crate::profile::{CgroupId, EventSource, LabelId, Names, ProcessFacts, Snapshot, Target, Tgid, Tid};

use super::keys::{Action, KeyMap};
use super::messages::{Effect, EventName, Status};
use super::text;
use super::views::processes::processes_of;

/// An overlay. At most one is open.
pub enum Overlay {
    /// A line to type.
    Prompt(Prompt),
    /// A list to choose from.
    Picker(Picker),
    /// The keys.
    Help(Help),
    /// A question to answer with yes or no.
    Confirm(Confirm),
}

/// Longest line that can be typed or pasted, in bytes.
const MAX_LINE: usize = 1024;

/// A line being typed.
#[derive(Clone, Debug, Default)]
pub struct Line {
    text: String,
    /// Byte position of the cursor.
    at: usize,
}

impl Line {
    /// Creates a line with the cursor at its end.
    pub fn new(text: String) -> Line {
        Line { at: text.len(), text }
    }

    /// Returns the typed text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the text before and after the cursor.
    pub fn split(&self) -> (&str, &str) {
        self.text.split_at(self.at)
    }

    /// Inserts several characters, as far as there is room.
    pub fn insert(&mut self, more: &str) {
        let room = MAX_LINE.saturating_sub(self.text.len());
        let end = (0..=room.min(more.len())).rev().find(|at| more.is_char_boundary(*at)).unwrap_or(0);
        let more = &more[..end];
        self.text.insert_str(self.at, more);
        self.at += more.len();
    }

    fn before(&self) -> Option<char> {
        self.text[..self.at].chars().next_back()
    }

    /// Processes an editing key. Returns `false` for other keys.
    pub fn on_key(&mut self, key: KeyEvent) -> bool {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('u') if control => {
                self.text.drain(..self.at);
                self.at = 0;
            }
            KeyCode::Char('w') if control => {
                let kept = self.text[..self.at].trim_end().rfind(' ').map_or(0, |space| space + 1);
                self.text.drain(kept..self.at);
                self.at = kept;
            }
            KeyCode::Char('a') if control => self.at = 0,
            KeyCode::Char('e') if control => self.at = self.text.len(),
            KeyCode::Char(c) if !control && !key.modifiers.contains(KeyModifiers::ALT) => {
                self.insert(c.encode_utf8(&mut [0; 4]));
            }
            KeyCode::Backspace => {
                if let Some(c) = self.before() {
                    self.at -= c.len_utf8();
                    self.text.remove(self.at);
                }
            }
            KeyCode::Delete if self.at < self.text.len() => {
                self.text.remove(self.at);
            }
            KeyCode::Left => self.at -= self.before().map_or(0, char::len_utf8),
            KeyCode::Right => self.at += self.text[self.at..].chars().next().map_or(0, char::len_utf8),
            KeyCode::Home => self.at = 0,
            KeyCode::End => self.at = self.text.len(),
            _ => return false,
        }
        true
    }
}

/// The purpose of a typed line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum PromptKind {
    Search,
    Keep,
    Drop,
    Save,
}

/// A line to type, and its current error.
pub struct Prompt {
    /// Its purpose.
    pub kind: PromptKind,
    /// The typed text.
    pub line: Line,
    /// Why the text is not accepted.
    pub error: Option<String>,
    /// The line is still the proposed text. The first typed character replaces it; any other key keeps it for editing.
    pub proposed: bool,
}

impl Prompt {
    /// Creates a prompt that proposes a text.
    pub fn new(kind: PromptKind, text: String) -> Prompt {
        let proposed = !text.is_empty();
        Prompt { kind, line: Line::new(text), error: None, proposed }
    }

    /// Returns the words before the line. `endings` are the endings of files that can be written.
    pub fn label(&self, endings: &[String]) -> Cow<'static, str> {
        match self.kind {
            PromptKind::Search => "search /".into(),
            PromptKind::Keep => "keep stacks with /".into(),
            PromptKind::Drop => "drop stacks with /".into(),
            PromptKind::Save => format!("save to (Tab: {}): ", endings.join(" ")).into(),
        }
    }

    /// Changes the ending of a file name to the next of these endings, or to the first if it has none of them.
    pub fn next_ending(&mut self, endings: &[String]) {
        let text = self.line.text();
        let known = endings.iter().position(|ending| text.ends_with(ending.as_str()));
        let stem = known.and_then(|at| text.strip_suffix(endings[at].as_str())).unwrap_or(text);
        let Some(next) = endings.get(known.map_or(0, |at| (at + 1) % endings.len())) else { return };
        self.line = Line::new(format!("{stem}{next}"));
        self.proposed = false;
    }

    /// Processes an editing key.
    pub fn on_key(&mut self, key: KeyEvent) {
        let types = matches!(key.code, KeyCode::Char(_)) && !key.modifiers.contains(KeyModifiers::CONTROL);
        if std::mem::take(&mut self.proposed) && types {
            self.line = Line::default();
        }
        self.line.on_key(key);
    }
}

/// A user's choice in a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Choice {
    AllProcesses,
    AllCgroups,
    AllCpus,
    Cgroup(CgroupId),
    Process(Tgid),
    Thread(Tgid, Tid),
    Cpu(u16),
    Source(EventSource),
    /// Attach to the event that the row names.
    Attach,
    Do(Action),
}

/// One row of a list.
#[derive(Clone, Debug)]
pub struct Row {
    /// Effect of choosing it.
    pub choice: Choice,
    /// The number, for example a process id.
    pub number: String,
    /// The name.
    pub name: String,
    /// Its share of the samples.
    pub share: String,
    /// Further details, for example the command line.
    pub detail: String,
    /// This machine refuses it. The detail gives the reason.
    pub refused: bool,
}

impl Row {
    /// Creates the row that selects everything.
    fn all(choice: Choice, name: &str) -> Row {
        Row { choice, number: String::new(), name: name.to_owned(), share: String::new(), detail: String::new(), refused: false }
    }
}

/// A list to choose from, narrowed by typing.
pub struct Picker {
    /// The title.
    pub title: &'static str,
    /// The typed text.
    pub line: Line,
    /// All rows.
    rows: Vec<Row>,
    /// Indices of the matching rows, best first.
    shown: Vec<usize>,
    /// The row under the cursor, as an index into the shown rows.
    pub at: usize,
    /// Whether the last row is the typed text itself.
    free: bool,
}

impl Picker {
    fn new(title: &'static str, rows: Vec<Row>) -> Picker {
        let shown = (0..rows.len()).collect();
        Picker { title, line: Line::default(), rows, shown, at: 0, free: false }
    }

    /// Lists events: the attached ones, then the available ones, then the typed text.
    pub fn events(status: &Status, names: &[EventName], shown: Option<EventSource>) -> Picker {
        let shown = shown.unwrap_or(EventSource::CLOCK);
        let mark = |source| if shown == source { "shown".to_owned() } else { String::new() };
        let clock = status.clock.then(|| Row {
            choice: Choice::Source(EventSource::CLOCK),
            number: "on".to_owned(),
            name: "cpu".to_owned(),
            share: mark(EventSource::CLOCK),
            detail: status.source.clone(),
            refused: false,
        });
        let attached = status.events.iter().map(|event| Row {
            choice: Choice::Source(event.source),
            number: text::count(event.events),
            name: event.name.clone(),
            share: mark(event.source),
            detail: format!("{}, {} stacks", event.how, text::count(event.stacks)),
            refused: false,
        });
        let row = |name: &str, help: &str| Row { detail: help.to_owned(), ..Row::all(Choice::Attach, name) };
        let is_on = |name: &str| status.events.iter().any(|event| event.name == name);
        let clock_off = (!status.clock).then(|| row("cpu", "the clock"));
        let others = names.iter().filter(|event| !is_on(&event.name)).map(|event| match &event.refused {
            Some(why) => Row { refused: true, ..row(&event.name, &format!("refused: {why}")) },
            None => row(&event.name, event.help),
        });
        let mut rows: Vec<Row> = clock.into_iter().chain(attached).chain(clock_off).chain(others).collect();
        rows.push(row("", "event name as typed"));
        let mut picker = Picker { free: true, ..Picker::new("events: Enter attaches/shows, Del detaches", rows) };
        picker.filter();
        picker
    }

    /// Lists the sources of a file's samples.
    pub fn sources(status: &Status, shown: Option<EventSource>) -> Picker {
        let row = |source, name: &str, detail: &str| Row {
            choice: Choice::Source(source),
            number: String::new(),
            name: name.to_owned(),
            share: if shown.unwrap_or(EventSource::CLOCK) == source { "shown".to_owned() } else { String::new() },
            detail: detail.to_owned(),
            refused: false,
        };
        let clock = status.clock.then(|| row(EventSource::CLOCK, "cpu", &status.source));
        let others = status.events.iter().map(|event| row(event.source, &event.name, &event.how));
        Picker::new("what to show", clock.into_iter().chain(others).collect())
    }

    /// Lists the actions that have keys, by name.
    pub fn actions(keys: &KeyMap) -> Picker {
        let rows = keys.rows().filter(|(binding, _)| binding.action != Action::Palette).map(|(binding, keys)| Row {
            number: keys.first().map_or_else(String::new, |key| key.to_string()),
            detail: binding.help.to_owned(),
            ..Row::all(Choice::Do(binding.action), &binding.action.name().replace('-', " "))
        });
        Picker::new("actions", rows.collect())
    }

    /// Lists processes, those with the most samples first. The current process, or the one under the cursor, is on top.
    pub fn processes(names: &Names, snapshot: &Snapshot, current: Option<Tgid>, cursor: Option<LabelId>) -> Picker {
        let mut processes = processes_of(snapshot);
        processes.sort_by_key(|process| std::cmp::Reverse(process.weights.all));
        let wanted = |label: LabelId| {
            let name = names.labels.name(label);
            processes.iter().position(|process| {
                process.name == label || name == format!("{} {}", names.labels.name(process.name), process.tgid)
            })
        };
        let first = match current {
            Some(tgid) => processes.iter().position(|process| process.tgid == tgid),
            None => cursor.and_then(wanted),
        };
        if let Some(first) = first {
            let process = processes.remove(first);
            processes.insert(0, process);
        }
        let all: u64 = processes.iter().map(|process| process.weights.all).sum();
        let mut rows: Vec<Row> = processes
            .iter()
            .map(|process| {
                let ProcessFacts { command, exited, .. } = snapshot.processes.get(&process.tgid).cloned().unwrap_or_default();
                Row {
                    choice: Choice::Process(process.tgid),
                    number: process.tgid.to_string(),
                    name: names.labels.name(process.name).to_owned(),
                    share: format!("{} %", text::percent(process.weights.all, all)),
                    detail: if exited { format!("(exited) {command}") } else { command.to_string() },
                    refused: false,
                }
            })
            .collect();
        let everything = Row::all(Choice::AllProcesses, "all processes");
        // Deselecting a process is as easy as choosing one.
        rows.insert(if current.is_some() { 0 } else { rows.len() }, everything);
        Picker::new("process", rows)
    }

    /// Lists threads of the target process, or of all processes.
    pub fn threads(names: &Names, snapshot: &Snapshot, target: &Target) -> Picker {
        let mut sums: FxHashMap<(Tgid, Tid), (LabelId, u64)> = FxHashMap::default();
        for row in snapshot.activity.iter() {
            if target.tgids.is_empty() || target.tgids.contains(&row.thread.tgid) {
                let sum = sums.entry((row.thread.tgid, row.thread.tid)).or_insert((row.thread.name, 0));
                *sum = (row.thread.name, sum.1 + row.weights.all);
            }
        }
        let all: u64 = sums.values().map(|(_, weight)| weight).sum();
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_by_key(|((_, tid), (_, weight))| (std::cmp::Reverse(*weight), *tid));
        let rows = sums.into_iter().map(|((tgid, tid), (name, weight))| Row {
            choice: Choice::Thread(tgid, tid),
            number: tid.to_string(),
            name: names.labels.name(name).to_owned(),
            share: format!("{} %", text::percent(weight, all)),
            detail: format!("process {tgid}"),
            refused: false,
        });
        Picker::new("thread", rows.collect())
    }

    /// Lists the cgroups with samples, those with the most samples first, by the names of their containers. If the path is not known, the number is shown.
    pub fn cgroups(snapshot: &Snapshot, status: &Status) -> Picker {
        let all: u64 = snapshot.cgroups.iter().map(|(_, weight)| weight).sum();
        let rows = snapshot.cgroups.iter().map(|(id, weight)| {
            let path = status.cgroups.get(id).map(|path| &**path);
            Row {
                choice: Choice::Cgroup(*id),
                number: id.to_string(),
                name: status.cgroup_name(*id).unwrap_or_else(|| "(path unknown)".to_owned()),
                share: format!("{} %", text::percent(*weight, all)),
                detail: path.unwrap_or_default().to_owned(),
                refused: false,
            }
        });
        Picker::new("cgroup", std::iter::once(Row::all(Choice::AllCgroups, "all cgroups")).chain(rows).collect())
    }

    /// Lists the CPUs that are online, and the CPUs that have samples.
    pub fn cpus(snapshot: &Snapshot, status: &Status) -> Picker {
        let all: u64 = snapshot.cpus.iter().map(|(_, weight)| weight).sum();
        let mut cpus: BTreeMap<u16, u64> = status.online.iter().map(|cpu| (*cpu, 0)).collect();
        cpus.extend(snapshot.cpus.iter().map(|(cpu, weight)| (cpu.0, *weight)));
        let rows = cpus.into_iter().map(|(cpu, weight)| Row {
            choice: Choice::Cpu(cpu),
            number: cpu.to_string(),
            name: "CPU".to_owned(),
            share: format!("{} %", text::percent(weight, all)),
            detail: if status.online.contains(&cpu) { String::new() } else { "offline".to_owned() },
            refused: false,
        });
        Picker::new("CPU", std::iter::once(Row::all(Choice::AllCpus, "all CPUs")).chain(rows).collect())
    }

    /// Returns the columns for a name. Functions of the kernel have long names and short details.
    pub fn longest_name(&self) -> usize {
        if self.free { 56 } else { 32 }
    }

    /// Returns the matching rows, best first.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &Row> {
        self.shown.iter().map(|index| &self.rows[*index])
    }

    /// Returns the row under the cursor.
    pub fn chosen_row(&self) -> Option<&Row> {
        self.shown.get(self.at).map(|index| &self.rows[*index])
    }

    /// Returns the choice of the row under the cursor.
    pub fn chosen(&self) -> Option<Choice> {
        self.chosen_row().map(|row| row.choice)
    }

    /// Narrows the rows to those that match the typed text: every word of it, somewhere in number, name or detail.
    pub fn filter(&mut self) {
        let typed = self.line.text();
        self.at = 0;
        let listed = self.rows.len() - usize::from(self.free);
        if typed.is_empty() {
            self.shown = (0..listed).collect();
            return;
        }
        let mut matcher = Matcher::new(Config::DEFAULT);
        let fuzzy = Fuzzy::parse(typed, CaseMatching::Smart, Normalization::Smart);
        let mut buffer = Vec::new();
        let mut scored: Vec<(bool, u32, usize)> = Vec::new();
        for (index, row) in self.rows.iter().take(listed).enumerate() {
            let hay = format!("{} {} {}", row.number, row.name, row.detail);
            if let Some(score) = fuzzy.score(Utf32Str::new(&hay, &mut buffer), &mut matcher) {
                scored.push((row.number == typed || row.name == typed, score, index));
            }
        }
        scored.sort_by_key(|(exact, score, index)| (!exact, std::cmp::Reverse(*score), *index));
        self.shown = scored.into_iter().map(|(_, _, index)| index).collect();
        if self.free && !self.rows.iter().take(listed).any(|row| row.name == typed) {
            typed.clone_into(&mut self.rows[listed].name);
            self.shown.push(listed);
        }
    }

    /// Processes a key: arrows move, all other keys are typed.
    pub fn on_key(&mut self, key: KeyEvent) {
        let last = self.shown.len().saturating_sub(1);
        match key.code {
            KeyCode::Up | KeyCode::BackTab => self.at = self.at.saturating_sub(1),
            KeyCode::Down | KeyCode::Tab => self.at = (self.at + 1).min(last),
            KeyCode::PageUp => self.at = self.at.saturating_sub(10),
            KeyCode::PageDown => self.at = (self.at + 10).min(last),
            _ => {
                let before = self.line.text().to_owned();
                self.line.on_key(key);
                if self.line.text() != before {
                    self.filter();
                }
            }
        }
    }
}

/// The help: its scroll position and its search text.
#[derive(Default)]
pub struct Help {
    /// First line on screen.
    pub scroll: usize,
    /// Only rows that contain this.
    pub line: Line,
    /// Whether keys are typed into `line`.
    pub typing: bool,
}

impl Help {
    /// Processes a key. Returns `false` if the key closes the help. `last` is the last possible first line on screen, `page` the
    /// number of lines on screen.
    pub fn on_key(&mut self, key: KeyEvent, (last, page): (usize, usize)) -> bool {
        match key.code {
            KeyCode::Esc if self.typing => {
                self.typing = false;
                self.line = Line::default();
            }
            KeyCode::Enter if self.typing => self.typing = false,
            KeyCode::Up => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::Down => self.scroll += 1,
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(page),
            KeyCode::PageDown => self.scroll += page,
            KeyCode::Home => self.scroll = 0,
            KeyCode::End => self.scroll = last,
            _ if self.typing => {
                self.line.on_key(key);
                self.scroll = 0;
            }
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Char('k') => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::Char('j') => self.scroll += 1,
            KeyCode::Char('f' | ' ') => self.scroll += page,
            KeyCode::Char('B') => self.scroll = self.scroll.saturating_sub(page),
            KeyCode::Char('g') => self.scroll = 0,
            KeyCode::Char('G') => self.scroll = last,
            KeyCode::Esc | KeyCode::Char('q' | '?') | KeyCode::F(1) | KeyCode::Enter => return false,
            _ => {}
        }
        self.scroll = self.scroll.min(last);
        true
    }
}

/// A question to answer with yes or no.
pub struct Confirm {
    /// The question.
    pub question: String,
    /// Carried out if the answer is yes.
    pub yes: Effect,
    /// The message if the answer is no.
    pub no: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(line: &mut Line, text: &str) {
        for c in text.chars() {
            line.on_key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE));
        }
    }

    #[test]
    fn a_line_can_be_edited_in_the_middle() {
        let mut line = Line::new("höher".to_owned());
        for _ in 0..3 {
            line.on_key(KeyEvent::new(KeyCode::Left, KeyModifiers::NONE));
        }
        line.on_key(KeyEvent::new(KeyCode::Backspace, KeyModifiers::NONE));
        typed(&mut line, "oe");
        assert_eq!(line.text(), "hoeher");
        line.on_key(KeyEvent::new(KeyCode::Char('u'), KeyModifiers::CONTROL));
        assert_eq!(line.split(), ("", "her"));
        line.on_key(KeyEvent::new(KeyCode::End, KeyModifiers::NONE));
        typed(&mut line, " two  ");
        line.on_key(KeyEvent::new(KeyCode::Char('w'), KeyModifiers::CONTROL));
        assert_eq!(line.text(), "her ");
    }

    #[test]
    fn a_picker_finds_a_pid_before_anything_like_it() {
        let row = |pid: u32, name: &str| Row {
            choice: Choice::Process(Tgid(pid)),
            number: pid.to_string(),
            name: name.to_owned(),
            share: String::new(),
            detail: String::new(),
            refused: false,
        };
        let mut picker = Picker::new("process", vec![row(1423, "postgres"), row(42, "nginx"), row(7, "node42")]);
        for c in "42".chars() {
            picker.on_key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE));
        }
        assert_eq!(picker.chosen(), Some(Choice::Process(Tgid(42))));
        picker.line = Line::new("pgres".to_owned());
        picker.filter();
        assert_eq!((picker.rows().len(), picker.chosen()), (1, Some(Choice::Process(Tgid(1423)))));
        picker.line = Line::new("nothing at all".to_owned());
        picker.filter();
        assert_eq!(picker.chosen(), None);
    }
}
