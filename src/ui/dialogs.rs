//! Prompts, lists, help and questions over the view: opens them, passes keys to them, and applies the result.

use std::path::PathBuf;
use std::sync::Arc;

use crossterm::event::{KeyCode, KeyEvent};

use crate::profile::{Cpu, FilterMode, Pattern, Query, Target};

use super::app::App;
use super::messages::{Effect, Message, SaveRequest};
use super::overlay::{Choice, Overlay, Picker, Prompt, PromptKind, Row};
use super::screen;
use super::view::View;

impl App {
    /// Opens a prompt that contains `text`, and notes the present search: Esc returns to it.
    pub(super) fn open_prompt(&mut self, kind: PromptKind, text: String) {
        self.search_before.clone_from(&self.scene.search);
        self.overlay = Some(Overlay::Prompt(Prompt::new(kind, text)));
    }

    /// Returns the list of processes to choose from.
    pub(super) fn process_picker(&self) -> Picker {
        // The process of the frame under the cursor comes first, so that `p Enter` drills into it.
        let cursor = self.views.flame.cursor.path.first().copied();
        Picker::processes(&self.scene.names, &self.scene.snapshot, self.scene.query.target.tgids.first().copied(), cursor)
    }

    /// Returns the list of threads to choose from.
    pub(super) fn thread_picker(&self) -> Picker {
        Picker::threads(&self.scene.names, &self.scene.snapshot, &self.scene.query.target)
    }

    /// Passes a key to the open dialog, applies its result, and closes it when it is done.
    pub(super) fn on_overlay_key(&mut self, key: KeyEvent, effects: &mut Vec<Effect>) {
        let Some(mut overlay) = self.overlay.take() else { return };
        let keep_open = match &mut overlay {
            Overlay::Prompt(prompt) => match key.code {
                KeyCode::Enter => !self.finish_prompt(prompt, effects),
                KeyCode::Esc => {
                    self.scene.search.clone_from(&self.search_before);
                    false
                }
                KeyCode::Tab if prompt.kind == PromptKind::Save => {
                    prompt.next_ending(&self.save_offer.endings);
                    true
                }
                _ => {
                    prompt.on_key(key);
                    true
                }
            },
            Overlay::Picker(picker) => match key.code {
                KeyCode::Enter => {
                    match picker.chosen_row() {
                        Some(Row { choice: Choice::Attach, name, .. }) => self.attach(name, effects),
                        Some(Row { choice: Choice::Do(action), .. }) => self.act(*action, effects),
                        Some(row) => self.choose(row.choice),
                        None => {}
                    }
                    false
                }
                KeyCode::Esc => false,
                KeyCode::Delete if self.detach_chosen(picker, effects) => false,
                _ => {
                    picker.on_key(key);
                    true
                }
            },
            Overlay::Help(help) => help.on_key(key, screen::help::extent(self, help)),
            Overlay::Confirm(confirm) => {
                if matches!(key.code, KeyCode::Char('y' | 'Y')) {
                    effects.push(confirm.yes.clone());
                } else {
                    self.scene.message = Some(Message { text: confirm.no.to_owned(), bad: false });
                }
                false
            }
        };
        if keep_open {
            self.overlay = Some(overlay);
        }
        self.preview_search();
    }

    /// While a pattern is being typed, shows its error in the prompt. While a search is being typed, also shows its matches in the picture.
    pub(super) fn preview_search(&mut self) {
        if let Some(Overlay::Prompt(prompt)) = &mut self.overlay {
            let text = prompt.line.text();
            let pattern = if text.is_empty() { None } else { Some(Pattern::new(text)) };
            prompt.error = match (&pattern, prompt.kind) {
                (Some(Err(error)), kind) if kind != PromptKind::Save => Some(error.clone()),
                _ => None,
            };
            if prompt.kind == PromptKind::Search {
                match pattern {
                    None => self.scene.search = None,
                    Some(Ok(pattern)) => self.scene.search = Some(pattern),
                    Some(Err(_)) => {}
                }
            }
        }
    }

    /// Applies the typed text. Returns `false` if the text is invalid and the prompt stays.
    pub(super) fn finish_prompt(&mut self, prompt: &mut Prompt, effects: &mut Vec<Effect>) -> bool {
        let text = prompt.line.text().to_owned();
        if prompt.kind == PromptKind::Save {
            if text.is_empty() {
                return true;
            }
            let order = self.save_order(PathBuf::from(text));
            self.pending_save = Some(order.clone());
            self.scene.message = Some(Message { text: format!("saving {} …", order.path.display()), bad: false });
            effects.push(Effect::Save(Box::new(order)));
            return true;
        }
        if text.is_empty() {
            if prompt.kind == PromptKind::Search {
                self.scene.search = None;
            }
            return true;
        }
        match Pattern::new(&text) {
            Err(error) => {
                prompt.error = Some(error);
                false
            }
            Ok(pattern) => {
                match prompt.kind {
                    PromptKind::Keep => self.scene.add_filter(FilterMode::Keep, pattern),
                    PromptKind::Drop => self.scene.add_filter(FilterMode::Drop, pattern),
                    PromptKind::Search | PromptKind::Save => {
                        self.scene.search = Some(pattern);
                        self.go_to_first_match();
                    }
                }
                true
            }
        }
    }

    /// Returns a request to save what is on screen to a file, but not over an existing one.
    pub(super) fn save_order(&self, path: PathBuf) -> SaveRequest {
        SaveRequest {
            path,
            overwrite: false,
            tree: Arc::clone(&self.scene.snapshot.tree),
            names: Arc::clone(&self.scene.snapshot.names),
            one: self.scene.snapshot.one,
            unit: self.scene.unit(),
            seconds: self.scene.snapshot.seconds,
            source: self.scene.query.source,
            difference: self.scene.snapshot.difference.clone(),
            zoom: self.views.flame.zoom.path.clone(),
            query: Query { source: None, range: self.scene.fixed_range(), ..self.scene.query() },
            watched: self.scene.everything.clone(),
            title: self.scene.title(),
            facts: self.scene.facts(),
            palette: self.scene.theme.palette,
        }
    }

    /// Applies the chosen row of a list to the query. Then leaves the view of processes for the flame graph.
    pub(super) fn choose(&mut self, choice: Choice) {
        match choice {
            Choice::AllProcesses => {
                let Target { cpu, cgroup, .. } = self.scene.query.target;
                self.scene.query.target = Target { cpu, cgroup, ..Target::default() };
            }
            Choice::AllCgroups => self.scene.query.target.cgroup = None,
            Choice::Cgroup(id) => self.scene.query.target.cgroup = Some(id),
            Choice::AllCpus => self.scene.query.target.cpu = None,
            Choice::Process(tgid) => self.aim(vec![tgid], None),
            Choice::Thread(tgid, tid) => self.aim(vec![tgid], Some(tid)),
            Choice::Cpu(cpu) => self.scene.query.target.cpu = Some(Cpu(cpu)),
            Choice::Source(source) => self.show_source(source),
            // Done by the caller, which knows the row's name and the effects.
            Choice::Attach | Choice::Do(_) => {}
        }
        if self.scene.view == View::Processes {
            self.scene.view = View::Flame;
        }
    }
}
