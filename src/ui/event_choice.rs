//! Events instead of the clock: shows one, and lets the user choose others.

use std::sync::Arc;

use crate::profile::{EventSource, EventStatus};

use super::app::App;
use super::messages::{Effect, EventCommand, EventName, Message, NotAttached};
use super::overlay::{Choice, Confirm, Overlay, Picker};
use super::scene::Scene;
use super::text;

impl Scene {
    /// Returns the source of the samples on screen, if it is not the clock.
    pub(super) fn shown_event(&self) -> Option<EventSource> {
        self.query.source.filter(|source| *source != EventSource::CLOCK)
    }

    /// Returns the status of the event on screen, if it is still attached.
    fn shown_row(&self) -> Option<&EventStatus> {
        let shown = self.shown_event()?;
        self.status.events.iter().find(|row| row.source == shown)
    }

    /// Describes the source of samples.
    pub(super) fn source_words(&self) -> String {
        let Some(shown) = self.shown_event() else { return self.status.source.clone() };
        let ended = || self.ended_events.iter().rev().find(|row| row.source == shown);
        match (self.shown_row(), ended()) {
            (Some(row), _) => format!("{} ({})", row.name, row.how),
            (None, Some(row)) => format!("{} (detached)", row.name),
            // Before the first status.
            (None, None) => format!("event {shown}"),
        }
    }
}

impl App {
    /// Opens the list of events, or of a file's sources. The available events arrive later.
    pub(super) fn open_events(&mut self, effects: &mut Vec<Effect>) {
        if !self.scene.has().events {
            return self.scene.say("this file has no events to choose from".to_owned());
        }
        if !self.scene.has().live {
            self.overlay = Some(Overlay::Picker(Picker::sources(&self.scene.status, self.scene.query.source)));
            return;
        }
        if self.event_names.is_none() {
            effects.push(Effect::Events(EventCommand::List));
        }
        self.overlay = Some(Overlay::Picker(self.event_picker()));
    }

    fn event_picker(&self) -> Picker {
        let names = self.event_names.as_deref().unwrap_or_default();
        Picker::events(&self.scene.status, names, self.scene.query.source)
    }

    /// Adds the available events to the open list.
    pub(super) fn take_event_names(&mut self, names: Arc<[EventName]>) {
        self.event_names = Some(names);
        let new = self.event_picker();
        if let Some(Overlay::Picker(picker)) = &mut self.overlay
            && picker.title == new.title
        {
            let line = std::mem::take(&mut picker.line);
            *picker = new;
            picker.line = line;
            picker.filter();
        }
    }

    /// Shows the samples of a source.
    pub(super) fn show_source(&mut self, source: EventSource) {
        self.scene.query.source = Some(source);
    }

    /// Requests stacks at these events.
    pub(super) fn attach(&mut self, name: &str, effects: &mut Vec<Effect>) {
        effects.push(Effect::Events(EventCommand::Attach { name: name.to_owned(), is_agreed: false }));
        self.scene.say(format!("attaching to {name} …"));
    }

    /// Shows the result of attaching to an event.
    pub(super) fn on_attached(&mut self, name: &str, attached: Result<EventSource, NotAttached>) {
        match attached {
            Ok(source) => {
                self.show_source(source);
                self.scene.say(format!("attached to {name}"));
            }
            Err(NotAttached::Costly { per_second, cpus }) => {
                let yes = Effect::Events(EventCommand::Attach { name: name.to_owned(), is_agreed: true });
                // It fits 80 columns with the answers.
                let (name, events) = (text::cut(name, 18), text::grouped(per_second));
                let question = format!("{name} costs programs {cpus:.1} CPUs ({events} events/s). Attach?");
                self.overlay = Some(Overlay::Confirm(Confirm { question, yes, no: "not attached" }));
            }
            Err(NotAttached::Failed(why)) => self.scene.message = Some(Message { text: why, bad: true }),
        }
    }

    /// Detaches the source under the cursor of the list. Another source is shown in its place.
    pub(super) fn detach_chosen(&mut self, picker: &Picker, effects: &mut Vec<Effect>) -> bool {
        let Some(Choice::Source(source)) = picker.chosen().filter(|_| self.scene.has().live) else { return false };
        effects.push(Effect::Events(EventCommand::Detach(source)));
        let others =
            self.scene.status.events.iter().map(|row| row.source).chain(self.scene.status.clock.then_some(EventSource::CLOCK));
        if let Some(other) = others.into_iter().find(|other| *other != source)
            && self.scene.query.source.unwrap_or(EventSource::CLOCK) == source
        {
            self.show_source(other);
        }
        self.scene.say("detached; its samples are kept".to_owned());
        true
    }
}
