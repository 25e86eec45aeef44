//! The list of views.

/// The views, by number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum View {
    /// 1: the flame graph.
    #[default]
    Flame,
    /// 2: functions.
    Functions,
    /// 3: processes and threads.
    Processes,
    /// 4: the map of time.
    Time,
    /// 5: health.
    Health,
}

impl View {
    /// Every view, in the order of Tab.
    pub const ALL: [View; 5] = [View::Flame, View::Functions, View::Processes, View::Time, View::Health];

    /// Returns number and name, as the tabs show them.
    pub const fn title(self) -> (char, &'static str) {
        match self {
            View::Flame => ('1', "flame"),
            View::Functions => ('2', "functions"),
            View::Processes => ('3', "processes"),
            View::Time => ('4', "time"),
            View::Health => ('5', "health"),
        }
    }

    /// Returns the help text for its key.
    pub const fn help(self) -> &'static str {
        match self {
            View::Flame => "flame graph",
            View::Functions => "functions: self and total, callers and callees",
            View::Processes => "processes and threads",
            View::Time => "time: busy seconds; select a range",
            View::Health => "health: incomplete stacks, losses, flametop's cost",
        }
    }
}
