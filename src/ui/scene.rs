//! State shared by drawing and views: the newest answer, the user's choices, and looks.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use crate::profile::{
    Capabilities, Direction, EventStatus, Filter, FrameKind, Grouping, Label, Language, Names, Pattern, Query, Snapshot, Target,
    Timestamp,
};

use super::areas::Areas;
use super::baseline::Compare;
use super::keys::KeyMap;
use super::messages::{Message, Status};
use super::names::{Detail, shorten, shorten_method};
use super::place::{Branch, Place};
use super::span::Span;
use super::theme::Theme;
use super::view::View;

/// A chip: it stands in the second line until it is removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Chip {
    /// The time on screen.
    Range,
    /// A filter, by its index.
    Filter(usize),
    /// The selected processes, thread, cgroup or CPU.
    Target,
    /// The comparison of two sides.
    Difference,
    /// Hiding of inlined functions.
    Folded,
    /// Showing the frames that an interpreter needs to run its functions.
    Interpreter,
    /// Showing each call of a direct recursion.
    Recursion,
    /// Hiding of threads that only wait for work.
    Idle,
}

/// An item under the pointer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Hovered {
    /// A box of the flame graph.
    Box(Place),
    /// A caller or callee of the open function.
    Branch(Branch),
    /// A line of a table, counted from the line below its heading. Rows may move away from the pointer.
    Line(usize),
}

/// State shared by drawing and views.
pub struct Scene {
    /// Names of labels; read without a lock.
    pub names: Arc<Names>,
    /// Looks.
    pub theme: Theme,
    /// How much of functions' names is shown.
    pub detail: Detail,
    /// The keys of each action.
    pub keys: KeyMap,
    /// The newest answer.
    pub snapshot: Arc<Snapshot>,
    /// Status of the run.
    pub status: Status,
    /// The view on screen.
    pub view: View,
    /// The item under the pointer.
    pub hover: Option<Hovered>,
    /// A short message.
    pub message: Option<Message>,
    /// The last failures shown as messages, the newest last.
    pub failures: VecDeque<String>,
    /// The searched pattern.
    pub search: Option<Pattern>,
    /// The selected time.
    pub span: Span,
    /// The usual time on screen.
    pub home: Span,
    /// When the picture was frozen, if it is.
    pub frozen: Option<Timestamp>,
    /// The comparison.
    pub compare: Compare,
    /// Whether the pane of the command's output is open.
    pub output_open: bool,
    /// Columns and rows of the terminal.
    pub size: (u16, u16),
    /// Description of the sampled processes. `None` if every process is sampled.
    pub everything: Option<String>,
    /// Detached sources. Their samples are still stored.
    pub(super) ended_events: Vec<EventStatus>,
    pub(super) query: Query,
}

impl Scene {
    /// Creates a scene without data. The data will have `capabilities`.
    pub(super) fn new(names: Arc<Names>, theme: Theme, mut query: Query, capabilities: Capabilities) -> Scene {
        query.folding.recursion = true;
        Scene {
            names,
            theme,
            detail: Detail::Full,
            keys: KeyMap::default(),
            snapshot: Arc::new(Snapshot { capabilities, ..Snapshot::default() }),
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

    /// Returns the query on screen, time range included.
    pub fn query(&self) -> Query {
        Query { range: self.range(), ..self.query.clone() }
    }

    /// Returns the active filters.
    pub fn filters(&self) -> &[Filter] {
        &self.query.filters
    }

    /// Returns the selected processes, thread, cgroup or CPU.
    pub fn target(&self) -> &Target {
        &self.query.target
    }

    /// Returns how the level below "all" is made.
    pub fn grouping(&self) -> Grouping {
        self.query.grouping
    }

    /// Returns whether inlined functions are merged into the functions that contain them.
    pub fn folds_inlined(&self) -> bool {
        self.query.folding.inlined
    }

    /// Returns whether the frames are shown that an interpreter needs to run its functions. Some files do not distinguish them from
    /// other frames.
    pub fn shows_interpreter(&self) -> bool {
        !self.query.folding.interpreter && self.has().interpreters
    }

    /// Returns whether each call of a direct recursion is shown.
    pub fn shows_recursion(&self) -> bool {
        !self.query.folding.recursion
    }

    /// Returns the number of threads that are hidden because they only wait for work.
    pub fn hidden_threads(&self) -> usize {
        if self.query.without_idle { self.snapshot.idle_threads } else { 0 }
    }

    /// Returns whether callers or callees are the roots of the tree.
    pub fn direction(&self) -> Direction {
        self.query.direction
    }

    /// Returns a label's name as shown on the screen. Processes, functions of Python and of the kernel, and addresses keep their
    /// whole names.
    pub(in crate::ui) fn shown_name<'a>(&self, label: &'a Label) -> Cow<'a, str> {
        match label.kind {
            FrameKind::User | FrameKind::Inlined | FrameKind::Jit => shorten(&label.name, self.detail),
            FrameKind::Script(Language::Java) => Cow::Borrowed(shorten_method(&label.name, self.detail)),
            FrameKind::Script(_) | FrameKind::Process | FrameKind::Kernel | FrameKind::Wait | FrameKind::Unknown => {
                Cow::Borrowed(&label.name)
            }
        }
    }

    /// Sets the usual time on screen, and shows it.
    pub fn begin_with(&mut self, home: Span) {
        (self.span, self.home) = (home, home);
    }

    /// Returns the parts of the screen, for drawing and for the mouse.
    pub fn areas(&self) -> Areas {
        Areas::new(self.size, self.output_open, self.has().time || self.has_chips())
    }

    fn has_chips(&self) -> bool {
        !self.query.filters.is_empty()
            || !self.query.target.is_everything()
            || self.compare.on
            || self.query.folding.inlined
            || self.shows_interpreter()
            || self.shows_recursion()
            || self.hidden_threads() > 0
    }

    /// Returns whether the first picture has not been made yet. It is unknown until then whether there are samples.
    pub(super) fn is_counting(&self) -> bool {
        self.snapshot.now == Timestamp(0)
    }

    /// Returns the questions that the data can answer. They are known before the first picture.
    pub(super) fn has(&self) -> Capabilities {
        self.snapshot.capabilities
    }

    /// Keeps the message if it reports a failure, since the next key removes it from the screen.
    pub(super) fn note_failure(&mut self) {
        const KEPT: usize = 8;
        let Some(message) = self.message.as_ref().filter(|message| message.bad) else { return };
        if self.failures.back() != Some(&message.text) {
            self.failures.push_back(message.text.clone());
            let excess = self.failures.len().saturating_sub(KEPT);
            self.failures.drain(..excess);
        }
    }

    /// Shows a short message.
    pub(super) fn say(&mut self, text: String) {
        self.message = Some(Message { text, bad: false });
    }
}
