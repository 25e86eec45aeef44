//! One table: key → action → help text. Help and the hint line are made from it; nothing else knows which key does what.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// What a key asks for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)] // The table below says it for each.
pub enum Action {
    Left,
    Right,
    Up,
    Down,
    PageUp,
    PageDown,
    Top,
    Bottom,
    ZoomIn,
    ZoomOut,
    ResetZoom,
    Search,
    NextMatch,
    PreviousMatch,
    SearchSelected,
    Keep,
    Drop,
    RemoveFilter,
    RemoveAllFilters,
    ChooseProcess,
    ChooseThread,
    ChooseCgroup,
    ChooseCpu,
    NextView,
    PreviousView,
    FlameView,
    FunctionsView,
    ProcessesView,
    HealthView,
    Freeze,
    CycleRange,
    RangeEarlier,
    RangeLater,
    RangeNarrower,
    RangeWider,
    RangeLive,
    Orientation,
    BottomUp,
    Sandwich,
    Order,
    Grouping,
    Chains,
    ColourMode,
    Save,
    Copy,
    Output,
    Help,
    Redraw,
    Quit,
}

/// Sections of the help.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Section {
    Move,
    Zoom,
    Find,
    Choose,
    Time,
    Show,
    Program,
}

impl Section {
    /// In the order of the help.
    pub const ALL: [Section; 7] =
        [Section::Move, Section::Zoom, Section::Find, Section::Choose, Section::Time, Section::Show, Section::Program];

    /// Its heading.
    pub fn title(self) -> &'static str {
        match self {
            Section::Move => "Move",
            Section::Zoom => "Zoom",
            Section::Find => "Find and filter",
            Section::Choose => "Choose whose samples",
            Section::Time => "Time",
            Section::Show => "What is shown",
            Section::Program => "Program",
        }
    }
}

/// One row of the table.
pub struct Binding {
    /// The keys, by the names that the help shows.
    pub keys: &'static [&'static str],
    /// What they do.
    pub action: Action,
    /// Where the help lists it.
    pub section: Section,
    /// What the help says.
    pub help: &'static str,
    /// What the hint line says; empty where it is not worth the room.
    pub hint: &'static str,
}

const fn bind(
    keys: &'static [&'static str],
    action: Action,
    section: Section,
    help: &'static str,
    hint: &'static str,
) -> Binding {
    Binding { keys, action, section, help, hint }
}

/// The table. The first key of a row is the one that the hint line shows.
pub const BINDINGS: &[Binding] = &[
    bind(&["↵", "Enter"], Action::ZoomIn, Section::Zoom, "zoom into the selected frame; open a row of a table", "zoom"),
    bind(&["/"], Action::Search, Section::Find, "search by regular expression; tells the share that matches", "search"),
    bind(&["&"], Action::Keep, Section::Find, "keep only samples whose stack matches", "keep"),
    bind(&["!"], Action::Drop, Section::Find, "drop samples whose stack matches", "drop"),
    bind(&["p"], Action::ChooseProcess, Section::Choose, "choose a process (the selected one is on top)", "process"),
    bind(&["w"], Action::Save, Section::Program, "write what is seen to a file: .svg or .folded", "save"),
    bind(&["Space", "z"], Action::Freeze, Section::Time, "freeze the picture / go on; sampling goes on underneath", "freeze"),
    bind(&["Tab"], Action::NextView, Section::Show, "next view", "view"),
    bind(&["?", "F1"], Action::Help, Section::Program, "this help; type / in it to search", "help"),
    bind(&["q", "Ctrl-C"], Action::Quit, Section::Program, "quit", "quit"),
    bind(&["h", "Left"], Action::Left, Section::Move, "to the frame on the left; close a row", ""),
    bind(&["l", "Right"], Action::Right, Section::Move, "to the frame on the right; open a row", ""),
    bind(&["k", "Up"], Action::Up, Section::Move, "one row up", ""),
    bind(&["j", "Down"], Action::Down, Section::Move, "one row down", ""),
    bind(&["B", "PgUp"], Action::PageUp, Section::Move, "one page up", ""),
    bind(&["f", "PgDn"], Action::PageDown, Section::Move, "one page down", ""),
    bind(&["g", "Home", "<"], Action::Top, Section::Move, "to the top", ""),
    bind(&["End", ">"], Action::Bottom, Section::Move, "to the bottom", ""),
    bind(&["Esc", "Backspace"], Action::ZoomOut, Section::Zoom, "one level out: zoom, filters, target; never quits", ""),
    bind(&["r"], Action::ResetZoom, Section::Zoom, "back to the whole view", ""),
    bind(&["n"], Action::NextMatch, Section::Find, "next match", ""),
    bind(&["N"], Action::PreviousMatch, Section::Find, "previous match", ""),
    bind(&["#", "*"], Action::SearchSelected, Section::Find, "search for the selected frame", ""),
    bind(&["x"], Action::RemoveFilter, Section::Find, "remove the last filter", ""),
    bind(&["X"], Action::RemoveAllFilters, Section::Find, "remove all filters and the target", ""),
    bind(&["T"], Action::ChooseThread, Section::Choose, "choose a thread", ""),
    bind(&["G"], Action::ChooseCgroup, Section::Choose, "choose a cgroup", ""),
    bind(&["C"], Action::ChooseCpu, Section::Choose, "choose a CPU", ""),
    bind(&["m"], Action::CycleRange, Section::Time, "everything / last 10 s / last 60 s", ""),
    bind(&["["], Action::RangeEarlier, Section::Time, "select time: move the range earlier", ""),
    bind(&["]"], Action::RangeLater, Section::Time, "move the range later", ""),
    bind(&["{"], Action::RangeNarrower, Section::Time, "make the range narrower", ""),
    bind(&["}"], Action::RangeWider, Section::Time, "make the range wider", ""),
    bind(&["c"], Action::RangeLive, Section::Time, "back to live", ""),
    bind(&["1"], Action::FlameView, Section::Show, "flame graph", ""),
    bind(&["2"], Action::FunctionsView, Section::Show, "functions: self and total, callers and callees", ""),
    bind(&["3"], Action::ProcessesView, Section::Show, "processes and threads", ""),
    bind(&["5"], Action::HealthView, Section::Show, "health: why stacks ended, what was lost, own cost", ""),
    bind(&["S-Tab"], Action::PreviousView, Section::Show, "previous view", ""),
    bind(&["i"], Action::Orientation, Section::Show, "root at the top or at the bottom", ""),
    bind(&["u"], Action::BottomUp, Section::Show, "bottom-up: what is hot, and its callers", ""),
    bind(&["s"], Action::Sandwich, Section::Show, "callers and callees of the selected function", ""),
    bind(&["S"], Action::Order, Section::Show, "order by name or weight; in a table, by the next column", ""),
    bind(&["e"], Action::Grouping, Section::Show, "processes by name / each apart / with threads", ""),
    bind(&["a"], Action::Chains, Section::Show, "chains of single callees on one row, or each on its own", ""),
    bind(&["v"], Action::ColourMode, Section::Show, "colour by kind or by own weight", ""),
    bind(&["O"], Action::Output, Section::Show, "the started command's output", ""),
    bind(&["y"], Action::Copy, Section::Program, "copy the selected frame's stack (works over ssh)", ""),
    bind(&["Ctrl-L"], Action::Redraw, Section::Program, "draw the screen anew", ""),
];

/// A key's name, as the table writes it; `None` for keys that have none.
pub(super) fn name(key: KeyEvent) -> Option<String> {
    let base = match key.code {
        KeyCode::Char(' ') => "Space".to_owned(),
        KeyCode::Char(c) if key.modifiers.contains(KeyModifiers::CONTROL) => format!("Ctrl-{}", c.to_ascii_uppercase()),
        KeyCode::Char(_) if key.modifiers.contains(KeyModifiers::ALT) => return None,
        KeyCode::Char(c) => c.to_string(),
        KeyCode::Enter => "Enter".to_owned(),
        KeyCode::Esc => "Esc".to_owned(),
        KeyCode::Backspace => "Backspace".to_owned(),
        KeyCode::Left => "Left".to_owned(),
        KeyCode::Right => "Right".to_owned(),
        KeyCode::Up => "Up".to_owned(),
        KeyCode::Down => "Down".to_owned(),
        KeyCode::PageUp => "PgUp".to_owned(),
        KeyCode::PageDown => "PgDn".to_owned(),
        KeyCode::Home => "Home".to_owned(),
        KeyCode::End => "End".to_owned(),
        KeyCode::Tab => "Tab".to_owned(),
        KeyCode::BackTab => "S-Tab".to_owned(),
        KeyCode::F(n) => format!("F{n}"),
        _ => return None,
    };
    Some(base)
}

/// What a key does, if it does anything.
pub(super) fn action(key: KeyEvent) -> Option<Action> {
    let name = name(key)?;
    BINDINGS.iter().find(|binding| binding.keys.contains(&name.as_str())).map(|binding| binding.action)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_has_two_meanings() {
        let mut seen = std::collections::BTreeMap::new();
        for binding in BINDINGS {
            for key in binding.keys {
                assert!(seen.insert(*key, binding.action).is_none(), "{key} is bound twice");
            }
        }
    }

    #[test]
    fn every_row_says_what_it_does() {
        for binding in BINDINGS {
            assert!(!binding.help.is_empty() && !binding.keys.is_empty());
            assert!(binding.help.len() <= 58, "80 columns show 58 of {:?}", binding.help);
        }
    }

    #[test]
    fn keys_find_their_actions() {
        let key = |code, modifiers| action(KeyEvent::new(code, modifiers));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Action::Quit));
        assert_eq!(key(KeyCode::Char('?'), KeyModifiers::SHIFT), Some(Action::Help));
        assert_eq!(key(KeyCode::Char('G'), KeyModifiers::SHIFT), Some(Action::ChooseCgroup));
        assert_eq!(key(KeyCode::Enter, KeyModifiers::NONE), Some(Action::ZoomIn));
        assert_eq!(key(KeyCode::Char('x'), KeyModifiers::ALT), None);
    }
}
