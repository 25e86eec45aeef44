//! What is looked at, and how: the newest answer, what was chosen, looks. All that drawing and views need besides their own state.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use crate::profile::{
    Direction, EventStatus, Filter, FrameKind, Grouping, Label, Names, Pattern, Query, Snapshot, Target, Timestamp,
};

use super::areas::Areas;
use super::baseline::Compare;
use super::keys::KeyMap;
use super::messages::{Message, Status};
use super::names::{Detail, shorten};
use super::place::{Branch, Place};
use super::span::Span;
use super::theme::Theme;
use super::view::View;

/// What stands in the second line until it is taken away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Chip {
    /// The time on screen.
    Range,
    /// A filter, by its place among them.
    Filter(usize),
    /// Whose samples are shown.
    Target,
    /// That two sides are compared.
    Difference,
    /// That inlined functions are not shown.
    Folded,
    /// That frames are shown that an interpreter has to run its functions.
    Interpreter,
    /// That each call of a direct recursion is shown.
    Recursion,
}

/// A thing under the pointer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Hovered {
    /// A box of the flame graph.
    Box(Place),
    /// A caller or callee of the open function.
    Branch(Branch),
    /// A line of a table, counted from the one below its heading. Rows move, the pointer does not.
    Line(usize),
}

/// What is looked at, and how.
pub struct Scene {
    /// Names of labels; read without a lock.
    pub names: Arc<Names>,
    /// How things look.
    pub theme: Theme,
    /// How much of functions' names is shown.
    pub detail: Detail,
    /// Which key does what.
    pub keys: KeyMap,
    /// The newest answer.
    pub snapshot: Arc<Snapshot>,
    /// What the run tells about itself.
    pub status: Status,
    /// The view on screen.
    pub view: View,
    /// What the pointer is on.
    pub hover: Option<Hovered>,
    /// A short word.
    pub message: Option<Message>,
    /// The last failures that messages told, the newest last.
    pub failures: VecDeque<String>,
    /// What is searched for.
    pub search: Option<Pattern>,
    /// Which time is looked at.
    pub span: Span,
    /// The usual time on screen.
    pub home: Span,
    /// When the picture was frozen, if it is.
    pub frozen: Option<Timestamp>,
    /// What is compared with what.
    pub compare: Compare,
    /// Whether the pane of the command's output is open.
    pub output_open: bool,
    /// Columns and rows of the terminal.
    pub size: (u16, u16),
    /// What is sampled at all, in words, where that is not every process.
    pub everything: Option<String>,
    /// Sources that were detached: their samples are still there.
    pub(super) ended_events: Vec<EventStatus>,
    pub(super) query: Query,
}

impl Scene {
    /// Nothing seen yet.
    pub(super) fn new(names: Arc<Names>, theme: Theme, mut query: Query) -> Scene {
        query.folding.recursion = true;
        Scene {
            names,
            theme,
            detail: Detail::Full,
            keys: KeyMap::default(),
            snapshot: Arc::default(),
            status: Status::default(),
            view: View::default(),
            hover: None,
            message: None,
            failures: VecDeque::new(),
            search: None,
            span: Span::All,
            home: Span::All,
            frozen: None,
            compare: Compare::default(),
            output_open: false,
            size: (80, 24),
            everything: None,
            ended_events: Vec::new(),
            query,
        }
    }

    /// The query on screen, time range included.
    pub fn query(&self) -> Query {
        Query { range: self.range(), ..self.query.clone() }
    }

    /// The filters that are on.
    pub fn filters(&self) -> &[Filter] {
        &self.query.filters
    }

    /// Whose samples are shown.
    pub fn target(&self) -> &Target {
        &self.query.target
    }

    /// How the level below "all" is made.
    pub fn grouping(&self) -> Grouping {
        self.query.grouping
    }

    /// Whether inlined functions are a part of what they were inlined into.
    pub fn folds_inlined(&self) -> bool {
        self.query.folding.inlined
    }

    /// Whether frames are shown that an interpreter has to run its functions. A file does not tell them from others.
    pub fn shows_interpreter(&self) -> bool {
        !self.query.folding.interpreter && !self.is_file()
    }

    /// Whether each call of a direct recursion is shown.
    pub fn shows_recursion(&self) -> bool {
        !self.query.folding.recursion
    }

    /// Which way up the tree grows.
    pub fn direction(&self) -> Direction {
        self.query.direction
    }

    /// What a label is called on the screen. Processes, functions of Python and of the kernel, and addresses keep their
    /// whole names.
    pub(in crate::ui) fn shown_name<'a>(&self, label: &'a Label) -> Cow<'a, str> {
        match label.kind {
            FrameKind::User | FrameKind::Inlined | FrameKind::Jit => shorten(&label.name, self.detail),
            FrameKind::Python | FrameKind::Process | FrameKind::Kernel | FrameKind::Unknown => Cow::Borrowed(&label.name),
        }
    }

    /// Sets the usual time on screen, and shows it.
    pub fn begin_with(&mut self, home: Span) {
        (self.span, self.home) = (home, home);
    }

    /// How the screen is divided; the same for drawing and for the mouse.
    pub fn areas(&self) -> Areas {
        Areas::new(self.size, self.output_open, !self.is_file() || self.has_chips())
    }

    fn has_chips(&self) -> bool {
        !self.query.filters.is_empty()
            || !self.query.target.is_everything()
            || self.compare.on
            || self.query.folding.inlined
            || self.shows_interpreter()
            || self.shows_recursion()
    }

    /// Whether a file is looked at, which has no time, CPUs and cgroups.
    pub(super) fn is_file(&self) -> bool {
        self.status.frequency == 0
    }

    /// Keeps the message if it tells a failure: the next key takes it away.
    pub(super) fn note_failure(&mut self) {
        const KEPT: usize = 8;
        let Some(message) = self.message.as_ref().filter(|message| message.bad) else { return };
        if self.failures.back() != Some(&message.text) {
            self.failures.push_back(message.text.clone());
            let excess = self.failures.len().saturating_sub(KEPT);
            self.failures.drain(..excess);
        }
    }

    /// Shows a short word.
    pub(super) fn say(&mut self, text: String) {
        self.message = Some(Message { text, bad: false });
    }
}
