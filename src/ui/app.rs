//! The state machine: (state, event) → state and effects. It does no I/O and reads no clock, so tests can drive it.

use std::sync::Arc;

use crossterm::event::{KeyEvent, KeyEventKind};

use crate::profile::{
    Capabilities, Direction, EventSource, Filter, Grouping, LabelId, Names, Pattern, Query, Request, Snapshot, Target, Unit,
};

use super::keys::{self, Action, a_move, is_ctrl_c};
use super::messages::{Effect, Event, EventName, Message, SaveRequest, Saved, Status};
use super::overlay::{Confirm, Help, Overlay, Picker, PromptKind};
use super::place::Place;
use super::scene::{Chip, Scene};
use super::source::{Hottest, Source};
use super::span::Span;
use super::theme::{ColourMode, Theme};
use super::view::View;
use super::views::{ViewBehaviour, Views};

/// The choices that decide which rows the tables have.
#[derive(Clone, PartialEq, Default)]
struct RowsOf {
    target: Target,
    filters: Vec<Filter>,
    source: Option<EventSource>,
    span: Span,
    compared: (bool, bool),
}

/// Lines of the command's output kept for its pane.
const OUTPUT_LINES: usize = 1000;

/// Everything that the screen is drawn from.
pub struct App {
    /// The shared state: newest answer, choices, looks.
    pub scene: Scene,
    /// The state of each view.
    pub views: Views,
    /// The source that is open over the view.
    pub source: Option<Source>,
    pub(super) hottest: Hottest,
    /// The prompt, list, help or question over the view.
    pub overlay: Option<Overlay>,
    /// The started command's output.
    pub output: Vec<String>,
    /// The available events. `None` before the first request for them.
    pub(super) event_names: Option<Arc<[EventName]>>,
    pub(super) asked: Option<Request>,
    /// The view to return to from callers and callees.
    pub(super) came_from: Option<View>,
    /// The choices that decided the rows of the current tables.
    rows_of: RowsOf,
    /// The seconds in the time strip where the mouse's button went down.
    pub(super) drag_from: Option<(u64, u64)>,
    pub(super) search_before: Option<Pattern>,
    /// Whether the first match is to be shown as soon as the first picture is there.
    pub(super) match_awaited: bool,
    pub(super) pending_save: Option<SaveRequest>,
    pub(super) save_offer: SaveOffer,
}

/// Proposals for the prompt of `w`.
#[derive(Clone, Debug)]
pub struct SaveOffer {
    /// Makes a file name.
    pub name: fn() -> String,
    /// The endings of files that can be written, each with its dot.
    pub endings: Vec<String>,
}

impl App {
    /// Creates the state of a program that has seen nothing yet. `query` is its first query, and its data will have `capabilities`.
    pub fn new(names: Arc<Names>, theme: Theme, query: Query, capabilities: Capabilities, save_offer: SaveOffer) -> App {
        App {
            scene: Scene::new(names, theme, query, capabilities),
            views: Views::default(),
            source: None,
            hottest: Hottest::default(),
            overlay: None,
            output: Vec::new(),
            event_names: None,
            asked: None,
            came_from: None,
            rows_of: RowsOf::default(),
            drag_from: None,
            search_before: None,
            match_awaited: false,
            pending_save: None,
            save_offer,
        }
    }

    /// Processes an event. Returns the effects that the caller must carry out.
    pub fn update(&mut self, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        match event {
            Event::Key(key) if key.kind == KeyEventKind::Release => {}
            Event::Key(key) => {
                self.scene.message = None;
                self.scene.hover = None;
                self.on_key(key, &mut effects);
            }
            Event::Mouse(mouse) => self.on_mouse(mouse, &mut effects),
            Event::Paste(text) => self.on_paste(&text),
            Event::Resize(columns, rows) => self.scene.size = (columns, rows),
            Event::Snapshot(snapshot) => self.on_snapshot(snapshot),
            Event::Status(status) => self.on_status(*status),
            Event::Listing(label, listing) => self.take_listing(label, listing),
            Event::Located(label, lines) => self.take_lines(label, lines),
            Event::Saved(saved) => self.on_saved(saved),
            Event::EventNames(names) => self.take_event_names(names),
            Event::Attached(name, attached) => self.on_attached(&name, attached),
            Event::Output(lines) => {
                self.output.extend(lines);
                let excess = self.output.len().saturating_sub(OUTPUT_LINES);
                self.output.drain(..excess);
            }
        }
        self.scene.note_failure();
        self.show_tops();
        self.ask(&mut effects);
        self.ask_for_code(&mut effects);
        effects
    }

    /// Scrolls the tables to their tops if the choice of rows has changed.
    fn show_tops(&mut self) {
        let of = RowsOf {
            target: self.scene.query.target.clone(),
            filters: self.scene.query.filters.clone(),
            source: self.scene.query.source,
            span: self.scene.span,
            compared: (self.scene.compare.on, self.scene.compare.by_shares),
        };
        if of != self.rows_of {
            self.views.each(|view| view.show_top());
            self.rows_of = of;
        }
    }

    /// Requests the data that the screen needs, unless the last request was the same.
    fn ask(&mut self, effects: &mut Vec<Effect>) {
        let mut request = Request {
            query: self.scene.query(),
            search: self.scene.search.clone(),
            addresses_of: self.addresses_wanted(),
            baseline: self.scene.compare.baseline.clone(),
            compare: self.scene.compare.on,
            by_shares: self.scene.compare.by_shares,
            ..Request::default()
        };
        self.views.get(self.scene.view).ask(&mut request);
        if self.asked.as_ref() != Some(&request) {
            self.asked = Some(request.clone());
            effects.push(Effect::Ask(Box::new(request)));
        }
    }

    fn on_status(&mut self, status: Status) {
        if let (None, Some(ended)) = (&self.scene.status.ended, &status.ended) {
            let text = format!("{}; {} quits", ended.words, self.scene.keys.first(Action::Quit));
            self.scene.message = Some(Message { text, bad: ended.failed });
        }
        let ended = self.scene.status.events.iter().filter(|row| status.events.iter().all(|other| other.source != row.source));
        self.scene.ended_events.extend(ended.cloned());
        self.scene.status = status;
    }

    fn on_snapshot(&mut self, snapshot: Arc<Snapshot>) {
        // A frozen picture stays, even when the store drops its samples. Names and late samples still arrive.
        let same = snapshot.request.has_the_picture_of(&self.scene.snapshot.request);
        let melted = self.scene.frozen.is_some() && same && snapshot.weight() < self.scene.snapshot.weight();
        // The sample counts of a function's addresses may arrive after the other figures.
        let is_known = self.scene.snapshot.addresses.is_some() || snapshot.addresses.is_none();
        if melted && snapshot.request == self.scene.snapshot.request && is_known {
            return;
        }
        self.scene.snapshot = match melted {
            // The cursor is on another function: its addresses are new, the picture is the old one.
            true => {
                let (request, addresses) = (snapshot.request.clone(), snapshot.addresses.clone());
                Arc::new(Snapshot { request, addresses, ..(*self.scene.snapshot).clone() })
            }
            false => snapshot,
        };
        if !Arc::ptr_eq(&self.scene.names, &self.scene.snapshot.names) {
            self.follow_names();
        }
        self.scene.check_baseline();
        let snapshot = Arc::clone(&self.scene.snapshot);
        self.take_addresses(&snapshot);
        self.views.each(|view| view.refresh(&self.scene));
        if !self.scene.is_counting() && std::mem::take(&mut self.match_awaited) && self.scene.search.is_some() {
            self.next_match(true);
        }
    }

    /// Follows the picture to other tables of names. Labels in the state are looked up there by their text.
    fn follow_names(&mut self) {
        let names = Arc::clone(&self.scene.snapshot.names);
        let old = std::mem::replace(&mut self.scene.names, Arc::clone(&names));
        let rename = |label| {
            let found = old.labels.get(old.labels.current(label)).and_then(|label| names.labels.find(label));
            found.unwrap_or(label)
        };
        self.views.each(|view| view.rename(&rename));
        if let Some(source) = &mut self.source {
            source.rename(rename);
        }
    }

    fn on_key(&mut self, key: KeyEvent, effects: &mut Vec<Effect>) {
        if is_ctrl_c(key) {
            effects.push(Effect::Quit);
        } else if self.overlay.is_some() {
            self.on_overlay_key(key, effects);
        } else if let Some(action) = self.scene.keys.action(key) {
            self.act(action, effects);
        } else if let Some(key) = keys::name(key) {
            let (all, palette) = (self.scene.keys.first(Action::Help), self.scene.keys.first(Action::Palette));
            self.scene.say(format!("{key} does nothing; {all} lists the keys, {palette} all actions"));
        }
    }

    fn on_paste(&mut self, text: &str) {
        let line: String = text.chars().filter(|c| !c.is_control()).collect();
        match &mut self.overlay {
            Some(Overlay::Prompt(prompt)) => prompt.line.insert(&line),
            Some(Overlay::Picker(picker)) => {
                picker.line.insert(&line);
                picker.filter();
            }
            _ => {}
        }
        self.preview_search();
    }

    /// Carries out the action of a key or a click.
    pub fn act(&mut self, action: Action, effects: &mut Vec<Effect>) {
        if self.act_on_source(action, effects) {
            return;
        }
        match action {
            a_move!() => self.views.get_mut(self.scene.view).go(&self.scene, action),
            Action::ZoomIn => self.zoom_in(),
            Action::ZoomOut => self.zoom_out(),
            Action::ResetZoom => self.views.flame.reset(),
            Action::Search => {
                self.open_prompt(PromptKind::Search, self.scene.search.as_ref().map_or("", Pattern::source).to_owned())
            }
            Action::NextMatch => self.next_match(true),
            Action::PreviousMatch => self.next_match(false),
            Action::SearchSelected => self.search_selected(),
            Action::Keep => self.open_prompt(PromptKind::Keep, self.filter_proposal()),
            Action::Drop => self.open_prompt(PromptKind::Drop, self.filter_proposal()),
            Action::RemoveFilter => self.remove_chip(match self.scene.query.filters.len().checked_sub(1) {
                Some(last) => Chip::Filter(last),
                None => Chip::Target,
            }),
            Action::RemoveAllFilters => {
                self.scene.query.filters.clear();
                self.scene.query.target = Target::default();
            }
            Action::ChooseProcess => self.overlay = Some(Overlay::Picker(self.process_picker())),
            Action::ChooseThread => self.overlay = Some(Overlay::Picker(self.thread_picker())),
            Action::ChooseCgroup if !self.scene.has().cgroups => self.scene.say("this file tells no cgroups".to_owned()),
            Action::ChooseCpu if !self.scene.has().cpus => self.scene.say("this file tells no CPUs".to_owned()),
            Action::ChooseCgroup => {
                self.overlay = Some(Overlay::Picker(Picker::cgroups(&self.scene.snapshot, &self.scene.status)))
            }
            Action::ChooseCpu => self.overlay = Some(Overlay::Picker(Picker::cpus(&self.scene.snapshot, &self.scene.status))),
            Action::ChooseEvents => self.open_events(effects),
            Action::NextView => self.turn_view(1),
            Action::PreviousView => self.turn_view(View::ALL.len() - 1),
            Action::Show(view) => self.show(view),
            Action::Freeze if !self.scene.has().live => self.scene.say("nothing to freeze: a file does not change".to_owned()),
            // Before the first picture there is nothing to freeze.
            Action::Freeze if self.scene.frozen.is_some() || self.scene.is_counting() => self.scene.frozen = None,
            Action::Freeze => self.scene.frozen = Some(self.scene.snapshot.now),
            Action::MarkBaseline => self.scene.mark_baseline(),
            Action::Compare => self.scene.toggle_difference(),
            Action::Measure => self.scene.change_measure(),
            Action::CycleRange
            | Action::RangeEarlier
            | Action::RangeLater
            | Action::RangeNarrower
            | Action::RangeWider
            | Action::RangeLive => self.scene.change_range(action),
            Action::Orientation => {
                self.views.flame.root_on_top = !self.views.flame.root_on_top;
                let place = if self.views.flame.root_on_top { "top" } else { "bottom" };
                self.scene.say(format!("callers are at the {place}"));
            }
            Action::BottomUp => self.turn_over(),
            Action::Sandwich => self.sandwich(),
            Action::Source => self.open_source(),
            Action::Order => self.change_order(),
            Action::Grouping => self.change_grouping(),
            Action::Inlined => self.fold_inlined(!self.scene.query.folding.inlined),
            Action::IdleThreads => self.hide_idle_threads(!self.scene.query.without_idle),
            Action::Recursion => self.fold_recursion(!self.scene.query.folding.recursion),
            Action::Interpreter => self.fold_interpreter(!self.scene.query.folding.interpreter),
            Action::NameDetail => {
                self.scene.detail = self.scene.detail.next();
                self.scene.say(self.scene.detail.describe().to_owned());
            }
            Action::Chains => {
                self.views.flame.chains = !self.views.flame.chains;
                let how = if self.views.flame.chains { "call chains share a row" } else { "each function has a row" };
                self.scene.say(how.to_owned());
            }
            Action::MachineWidths => self.change_widths(),
            Action::ColourMode => {
                self.scene.theme.mode = match self.scene.theme.mode {
                    ColourMode::Kind => ColourMode::Own,
                    ColourMode::Own => ColourMode::Kind,
                };
                let by = if self.scene.theme.mode == ColourMode::Kind { "kind of code" } else { "self weight" };
                self.scene.say(format!("colours show the {by}"));
            }
            Action::Save => self.open_prompt(PromptKind::Save, (self.save_offer.name)()),
            Action::Copy => self.copy(effects),
            Action::Palette => self.overlay = Some(Overlay::Picker(Picker::actions(&self.scene.keys))),
            Action::Output => self.scene.output_open = !self.scene.output_open,
            Action::Help => self.overlay = Some(Overlay::Help(Help::default())),
            Action::Redraw => effects.push(Effect::Redraw),
            Action::Suspend => effects.push(Effect::Suspend),
            Action::Quit => effects.push(Effect::Quit),
        }
    }

    fn change_widths(&mut self) {
        if self.scene.share_of_machine().is_none() {
            return self.scene.say("only for CPU time on a live machine, without a comparison".to_owned());
        }
        self.views.flame.of_machine = !self.views.flame.of_machine;
        self.views.each(|view| view.refresh(&self.scene));
        let of = if self.views.flame.of_machine { "the machine" } else { "the samples shown" };
        self.scene.say(format!("widths are shares of {of}"));
    }

    fn turn_over(&mut self) {
        self.scene.query.direction = match self.scene.query.direction {
            Direction::TopDown => Direction::BottomUp,
            Direction::BottomUp => Direction::TopDown,
        };
        self.views.flame.reset();
        let text = match self.scene.query.direction {
            Direction::TopDown => "top-down again",
            Direction::BottomUp => "bottom-up: running functions first, then their callers",
        };
        self.scene.message = Some(Message { text: text.to_owned(), bad: false });
    }

    fn change_order(&mut self) {
        // Views without an order change the order of the flame graph.
        if !self.views.get_mut(self.scene.view).next_order() {
            self.views.flame.next_order();
        }
        if matches!(self.scene.view, View::Flame | View::Time | View::Health) {
            self.scene.say(format!("boxes are ordered by {}", self.views.flame.order_word()));
        }
    }

    fn change_grouping(&mut self) {
        let (next, text) = match self.scene.query.grouping {
            Grouping::Name => (Grouping::Process, "one box per process"),
            Grouping::Process => (Grouping::Thread, "one box per process and thread"),
            Grouping::Thread => (Grouping::Name, "one box per process name"),
            Grouping::None => (Grouping::None, "this file tells no processes"),
        };
        self.scene.query.grouping = next;
        self.scene.message = Some(Message { text: text.to_owned(), bad: false });
    }

    /// Shows inlined functions, or only the functions that they were inlined into.
    pub(super) fn fold_inlined(&mut self, fold: bool) {
        self.scene.query.folding.inlined = fold;
        self.views.flame.expect_other_frames();
        self.scene
            .say(if fold { "inlined functions are merged into their callers" } else { "inlined functions are shown" }.to_owned());
    }

    /// Shows the frames of interpreters that run functions, or only the functions.
    pub(super) fn fold_interpreter(&mut self, fold: bool) {
        self.scene.query.folding.interpreter = fold;
        self.views.flame.expect_other_frames();
        let text =
            if fold { "interpreter frames are merged into the functions they run" } else { "interpreter frames are shown" };
        self.scene.say(text.to_owned());
    }

    /// Shows all calls of a direct recursion as one frame, or each call separately.
    pub(super) fn fold_recursion(&mut self, fold: bool) {
        self.scene.query.folding.recursion = fold;
        self.views.flame.expect_other_frames();
        let text = if fold { "all calls of a direct recursion are one box" } else { "each call of a recursion is a box" };
        self.scene.say(text.to_owned());
    }

    /// Hides threads that only wait for work, or shows them.
    pub(super) fn hide_idle_threads(&mut self, hide: bool) {
        self.scene.query.without_idle = hide;
        let text = match (hide, self.scene.unit()) {
            (_, unit) if unit != Unit::Nanoseconds => "only waits have idle threads; E chooses them",
            (true, _) => "idle threads are hidden: those that spend 99 % of the time in one wait",
            (false, _) => "idle threads are shown",
        };
        self.scene.say(text.to_owned());
    }

    /// Shows callers and callees of the selected function. From there, returns to the view where they were opened.
    fn sandwich(&mut self) {
        if self.go_back() {
            return;
        }
        if let Some(label) = self.selected_label() {
            self.open_sandwich(label);
        }
    }

    pub(super) fn open_sandwich(&mut self, label: LabelId) {
        self.came_from = (self.scene.view != View::Functions).then_some(self.scene.view);
        self.views.functions.open_function(label);
        self.scene.view = View::Functions;
    }

    /// Returns the function under the cursor of the current view.
    pub fn selected_label(&self) -> Option<LabelId> {
        if let Some(source) = &self.source {
            return Some(source.label);
        }
        self.views.get(self.scene.view).selected_label(&self.scene)
    }

    fn copy(&mut self, effects: &mut Vec<Effect>) {
        let labels = &self.scene.names.labels;
        let text: Vec<&str> = match self.scene.view {
            View::Flame => self.views.flame.cursor.path.iter().map(|label| labels.name(*label)).collect(),
            _ => self.selected_label().map(|label| labels.name(label)).into_iter().collect(),
        };
        if !text.is_empty() {
            self.scene.message = Some(Message { text: format!("copied {} frames", text.len()), bad: false });
            effects.push(Effect::Copy(text.join(";")));
        }
    }

    fn on_saved(&mut self, saved: Saved) {
        self.scene.message = match saved {
            Saved::Done { path, bytes, cut } => {
                self.pending_save = None;
                let size = super::text::bytes(usize::try_from(bytes).unwrap_or(usize::MAX));
                let but = cut.map(|cut| format!("; {cut}")).unwrap_or_default();
                Some(Message { text: format!("saved {} ({size}){but}", path.display()), bad: false })
            }
            Saved::Exists(path) => {
                if let Some(order) = self.pending_save.take() {
                    let question = format!("{} exists. Overwrite it?", path.display());
                    let yes = Effect::Save(Box::new(SaveRequest { overwrite: true, ..order }));
                    self.overlay = Some(Overlay::Confirm(Confirm { question, yes, no: "not saved" }));
                }
                None
            }
            Saved::Failed(why) => Some(Message { text: why, bad: true }),
        };
    }

    /// Returns the place under the cursor, for the breadcrumb.
    pub fn cursor(&self) -> &Place {
        &self.views.flame.cursor
    }
}
