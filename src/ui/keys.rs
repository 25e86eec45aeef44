//! The table of keys: key → action → help text. Help and the hint line are made from it; no other place assigns keys.
//!
//! [`KeyMap`] is the table with the changes of the configuration file.

use std::borrow::Cow;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::view::View;

/// An action of the user, bound to keys.
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
    ChooseEvents,
    NextView,
    PreviousView,
    Show(View),
    Freeze,
    MarkBaseline,
    Compare,
    Measure,
    CycleRange,
    RangeEarlier,
    RangeLater,
    RangeNarrower,
    RangeWider,
    RangeLive,
    Orientation,
    BottomUp,
    Sandwich,
    Source,
    Order,
    Grouping,
    Chains,
    MachineWidths,
    Inlined,
    Interpreter,
    Recursion,
    IdleThreads,
    NameDetail,
    ColourMode,
    Save,
    Copy,
    Output,
    Palette,
    Help,
    Redraw,
    Suspend,
    Quit,
}

/// The pattern of all cursor movements, in any view. It keeps a `match` exhaustive.
macro_rules! a_move {
    () => {
        Action::Left
            | Action::Right
            | Action::Up
            | Action::Down
            | Action::PageUp
            | Action::PageDown
            | Action::Top
            | Action::Bottom
    };
}
pub(super) use a_move;

/// Sections of the help.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Section {
    Move,
    Zoom,
    Find,
    Choose,
    Time,
    Compare,
    Show,
    Program,
}

impl Section {
    /// In the order of the help.
    pub const ALL: [Section; 8] = [
        Section::Move,
        Section::Zoom,
        Section::Find,
        Section::Choose,
        Section::Time,
        Section::Compare,
        Section::Show,
        Section::Program,
    ];

    /// Returns its heading.
    pub fn title(self) -> &'static str {
        match self {
            Section::Move => "Move",
            Section::Zoom => "Zoom",
            Section::Find => "Find and filter",
            Section::Choose => "Select samples",
            Section::Time => "Time",
            Section::Compare => "Compare",
            Section::Show => "Display",
            Section::Program => "Program",
        }
    }
}

/// One row of the table.
pub struct Binding {
    /// The keys, with their names in the help.
    pub keys: &'static [&'static str],
    /// The action of the keys.
    pub action: Action,
    /// The section of the help that lists it.
    pub section: Section,
    /// Text in the help, at most 58 bytes: it must fit into 80 columns.
    pub help: &'static str,
}

const fn bind(keys: &'static [&'static str], action: Action, section: Section, help: &'static str) -> Binding {
    Binding { keys, action, section, help }
}

const fn show(view: View, key: &'static [&'static str]) -> Binding {
    bind(key, Action::Show(view), Section::Show, view.help())
}

/// The table. Hints show the first key of a row.
pub const BINDINGS: &[Binding] = &[
    bind(&["↵", "Enter"], Action::ZoomIn, Section::Zoom, "zoom into the selected frame; open a row of a table"),
    bind(&["/"], Action::Search, Section::Find, "search by regular expression; shows the matching share"),
    bind(&["&"], Action::Keep, Section::Find, "keep only samples whose stack matches"),
    bind(&["!"], Action::Drop, Section::Find, "drop samples whose stack matches"),
    bind(&["p"], Action::ChooseProcess, Section::Choose, "choose a process (the selected one is on top)"),
    bind(&["w"], Action::Save, Section::Program, "save the samples shown; the file ending sets the format"),
    bind(&["Space", "z"], Action::Freeze, Section::Time, "freeze the picture / continue; sampling continues"),
    bind(&["Tab"], Action::NextView, Section::Show, "next view"),
    bind(&["?", "F1"], Action::Help, Section::Program, "this help; type / in it to search"),
    bind(&["q", "F10", "Ctrl-C"], Action::Quit, Section::Program, "quit"),
    bind(&["h", "Left"], Action::Left, Section::Move, "to the frame on the left; close a row"),
    bind(&["l", "Right"], Action::Right, Section::Move, "to the frame on the right; open a row"),
    bind(&["k", "Up"], Action::Up, Section::Move, "one row up"),
    bind(&["j", "Down"], Action::Down, Section::Move, "one row down"),
    bind(&["B", "PgUp", "Ctrl-B", "Ctrl-U"], Action::PageUp, Section::Move, "one page up"),
    bind(&["f", "PgDn", "Ctrl-F", "Ctrl-D"], Action::PageDown, Section::Move, "one page down"),
    bind(&["g", "Home", "<"], Action::Top, Section::Move, "to the top"),
    bind(&["G", "End", ">"], Action::Bottom, Section::Move, "to the bottom"),
    bind(&["Esc", "Backspace"], Action::ZoomOut, Section::Zoom, "leave one level: zoom, filter, target; never quits"),
    bind(&["r"], Action::ResetZoom, Section::Zoom, "back to the whole view"),
    bind(&["n"], Action::NextMatch, Section::Find, "next match"),
    bind(&["N"], Action::PreviousMatch, Section::Find, "previous match"),
    bind(&["#", "*"], Action::SearchSelected, Section::Find, "search for the selected frame"),
    bind(&["x"], Action::RemoveFilter, Section::Find, "remove the last filter"),
    bind(&["X"], Action::RemoveAllFilters, Section::Find, "remove all filters and the target"),
    bind(&["T"], Action::ChooseThread, Section::Choose, "choose a thread"),
    bind(&["H"], Action::ChooseCgroup, Section::Choose, "choose a cgroup (a hierarchy of processes)"),
    bind(&["C"], Action::ChooseCpu, Section::Choose, "choose a CPU"),
    bind(&["E"], Action::ChooseEvents, Section::Choose, "choose events instead of ticks: calls, faults, switches"),
    bind(&["m"], Action::CycleRange, Section::Time, "last 60 s / last 10 s / fading / since start"),
    bind(&["["], Action::RangeEarlier, Section::Time, "select time: move the range earlier"),
    bind(&["]"], Action::RangeLater, Section::Time, "move the range later"),
    bind(&["{"], Action::RangeNarrower, Section::Time, "make the range narrower"),
    bind(&["}"], Action::RangeWider, Section::Time, "make the range wider"),
    bind(&["c"], Action::RangeLive, Section::Time, "back to live and the usual time"),
    bind(&["b"], Action::MarkBaseline, Section::Compare, "mark the samples shown as the baseline"),
    bind(&["d"], Action::Compare, Section::Compare, "compare with the baseline, or with the time before"),
    bind(&["%"], Action::Measure, Section::Compare, "show differences in CPUs, or in shares of all samples"),
    show(View::Flame, &["1"]),
    show(View::Functions, &["2"]),
    show(View::Processes, &["3"]),
    show(View::Time, &["4"]),
    show(View::Health, &["5"]),
    bind(&["S-Tab"], Action::PreviousView, Section::Show, "previous view"),
    bind(&["i"], Action::Orientation, Section::Show, "root at the top or at the bottom"),
    bind(&["u"], Action::BottomUp, Section::Show, "bottom-up: hot functions, then their callers"),
    bind(&["s"], Action::Sandwich, Section::Show, "callers and callees of the selected function"),
    bind(&["o"], Action::Source, Section::Show, "the function's source, weight per line; Tab: instructions"),
    bind(&["S"], Action::Order, Section::Show, "order by name or weight; in a table, by another column"),
    bind(&["e"], Action::Grouping, Section::Show, "group by name / process / thread"),
    bind(&["a"], Action::Chains, Section::Show, "fold straight call chains into one row, or not"),
    bind(&["M"], Action::MachineWidths, Section::Show, "widths as shares of the machine, or of the samples shown"),
    bind(&["I"], Action::Inlined, Section::Show, "show inlined functions, or merge them into callers"),
    bind(&["A"], Action::Interpreter, Section::Show, "show or hide an interpreter's own frames"),
    bind(&["R"], Action::Recursion, Section::Show, "direct recursion as one box, or one box per call"),
    bind(&["Z"], Action::IdleThreads, Section::Show, "waits: hide or show threads that only wait for work"),
    bind(&["D"], Action::NameDetail, Section::Show, "names in full / without parameters / last segment only"),
    bind(&["v"], Action::ColourMode, Section::Show, "colour by kind of code or by self weight"),
    bind(&["O"], Action::Output, Section::Show, "the started command's output"),
    bind(&["y"], Action::Copy, Section::Program, "copy the selected frame's stack (works over ssh)"),
    bind(&[":"], Action::Palette, Section::Program, "choose an action by its name"),
    bind(&["Ctrl-Z"], Action::Suspend, Section::Program, "suspend to the shell; fg resumes"),
    bind(&["Ctrl-L"], Action::Redraw, Section::Program, "redraw the screen"),
];

/// Returns a key's name in the table; `None` for keys without a name.
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
        KeyCode::Delete => "Del".to_owned(),
        KeyCode::Insert => "Ins".to_owned(),
        KeyCode::F(n) => format!("F{n}"),
        _ => return None,
    };
    Some(base)
}

/// Returns whether the key is Ctrl-C. It always quits, and cannot be bound to another action.
pub(super) fn is_ctrl_c(key: KeyEvent) -> bool {
    name(key).as_deref() == Some("Ctrl-C")
}

impl Action {
    /// Returns the action's name in the configuration file: `ZoomIn` is `zoom-in`, `Show(View::Flame)` is `flame-view`.
    pub fn name(self) -> String {
        if let Action::Show(view) = self {
            return format!("{}-view", view.title().1);
        }
        let mut name = String::new();
        for c in format!("{self:?}").chars() {
            if c.is_ascii_uppercase() && !name.is_empty() {
                name.push('-');
            }
            name.push(c.to_ascii_lowercase());
        }
        name
    }
}

/// Names of keys that are not characters.
const NAMED: [&str; 16] = [
    "Space",
    "Enter",
    "Esc",
    "Backspace",
    "Left",
    "Right",
    "Up",
    "Down",
    "PgUp",
    "PgDn",
    "Home",
    "End",
    "Tab",
    "S-Tab",
    "Del",
    "Ins",
];

/// Converts a key's name as typed by the user to its name in [`name`].
fn key_called(text: &str) -> Result<String, String> {
    let mut chars = text.chars();
    if let (Some(c), None) = (chars.next(), chars.next())
        && !c.is_control()
        && !c.is_whitespace()
    {
        return Ok(text.to_owned());
    }
    if let Some(named) = NAMED.iter().find(|named| named.eq_ignore_ascii_case(text)) {
        return Ok((*named).to_owned());
    }
    let upper = text.to_ascii_uppercase();
    let number = upper.strip_prefix('F').and_then(|number| number.parse::<u8>().ok());
    if number.is_some_and(|number| (1..=24).contains(&number)) {
        return Ok(upper);
    }
    match upper.strip_prefix("CTRL-").map(str::as_bytes) {
        Some(b"C") => Err("Ctrl-C always quits".to_owned()),
        Some(letter @ (b"I" | b"M")) => {
            let same = if letter == b"I" { "Tab" } else { "Enter" };
            Err(format!("terminals cannot distinguish {text} from {same}; write {same}"))
        }
        Some([letter]) if letter.is_ascii_alphabetic() => Ok(format!("Ctrl-{}", char::from(*letter))),
        _ => Err(format!(
            "no key is called `{text}`; write a character, Ctrl-A to Ctrl-Z, F1 to F24, or one of {}",
            NAMED.join(" ")
        )),
    }
}

/// The table of keys with the changes of the configuration file.
#[derive(Clone, Debug)]
pub struct KeyMap {
    /// Keys of each row of the table.
    rows: Vec<Vec<Cow<'static, str>>>,
    /// Rows that the configuration file has changed.
    changed: Vec<bool>,
}

impl Default for KeyMap {
    fn default() -> Self {
        let keys = |binding: &Binding| binding.keys.iter().copied().map(Cow::Borrowed).collect();
        KeyMap { rows: BINDINGS.iter().map(keys).collect(), changed: vec![false; BINDINGS.len()] }
    }
}

impl KeyMap {
    /// Returns the rows of the table, each with its keys.
    pub fn rows(&self) -> impl Iterator<Item = (&'static Binding, &[Cow<'static, str>])> {
        BINDINGS.iter().zip(&self.rows).map(|(binding, keys)| (binding, keys.as_slice()))
    }

    /// Returns the keys of an action.
    pub fn keys_of(&self, action: Action) -> impl Iterator<Item = &str> {
        let row = self.rows().find(|(binding, _)| binding.action == action);
        row.into_iter().flat_map(|(_, keys)| keys.iter().map(|key| &**key))
    }

    /// Returns the key to show for an action.
    pub fn first(&self, action: Action) -> &str {
        self.keys_of(action).next().unwrap_or("(no key)")
    }

    /// Returns the action of a key, if it has one.
    pub(super) fn action(&self, key: KeyEvent) -> Option<Action> {
        let name = name(key)?;
        self.rows().find(|(_, keys)| keys.iter().any(|key| *key == name)).map(|(binding, _)| binding.action)
    }

    /// Gives the action of this name these keys and no others. A key that had another action by default loses it.
    ///
    /// # Errors
    ///
    /// A sentence: there is no such action or key, or a key was given to another action before.
    pub fn rebind(&mut self, action: &str, keys: &[String]) -> Result<(), String> {
        let Some(at) = BINDINGS.iter().position(|binding| binding.action.name() == action) else {
            return Err(format!("unknown action `{action}`; did you mean `{}`?", nearest(action)));
        };
        let mut wanted = Vec::new();
        for key in keys {
            let key = key_called(key)?;
            let owner = self.rows.iter().position(|keys| keys.iter().any(|had| *had == key));
            match owner.filter(|owner| *owner != at) {
                Some(owner) if self.changed[owner] => {
                    return Err(format!("`{key}` is the key of {} already", BINDINGS[owner].action.name()));
                }
                Some(owner) => self.rows[owner].retain(|had| *had != key),
                None => {}
            }
            wanted.push(Cow::Owned(key));
        }
        if BINDINGS[at].action == Action::Quit {
            wanted.push(Cow::Borrowed("Ctrl-C"));
        }
        self.rows[at] = wanted;
        self.changed[at] = true;
        Ok(())
    }
}

/// Returns the action whose name is most similar to the text.
fn nearest(written: &str) -> String {
    let names = BINDINGS.iter().map(|binding| binding.action.name());
    names.min_by_key(|name| strsim::levenshtein(name, written)).unwrap_or_default()
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
    fn each_view_has_the_key_of_its_number() {
        for view in View::ALL {
            let number = view.title().0.to_string();
            assert!(BINDINGS.iter().any(|binding| binding.action == Action::Show(view) && binding.keys.contains(&&*number)));
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
    fn what_moves_is_what_the_help_lists_as_moving() {
        for binding in BINDINGS {
            assert_eq!(matches!(binding.action, a_move!()), binding.section == Section::Move, "{:?}", binding.action);
        }
    }

    #[test]
    fn keys_find_their_actions() {
        let key = |code, modifiers| KeyMap::default().action(KeyEvent::new(code, modifiers));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Action::Quit));
        assert_eq!(key(KeyCode::Char('?'), KeyModifiers::SHIFT), Some(Action::Help));
        assert_eq!(key(KeyCode::Char('G'), KeyModifiers::SHIFT), Some(Action::Bottom));
        assert_eq!(key(KeyCode::Enter, KeyModifiers::NONE), Some(Action::ZoomIn));
        assert_eq!(key(KeyCode::Char('x'), KeyModifiers::ALT), None);
    }

    #[test]
    fn a_rebound_key_is_taken_from_whoever_had_it() {
        let mut keys = KeyMap::default();
        let press = |keys: &KeyMap, c| keys.action(KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE));
        keys.rebind("bottom", &["H".to_owned(), "pgdn".to_owned()]).unwrap();
        assert_eq!(press(&keys, 'H'), Some(Action::Bottom));
        assert_eq!(press(&keys, '>'), None, "what it had is free");
        assert_eq!(keys.keys_of(Action::Bottom).collect::<Vec<_>>(), ["H", "PgDn"]);
        assert_eq!((keys.first(Action::ChooseCgroup), keys.first(Action::PageDown)), ("(no key)", "f"));
        assert_eq!(keys.rebind("page-down", &["H".to_owned()]).unwrap_err(), "`H` is the key of bottom already");
        keys.rebind("quit", &[]).unwrap();
        assert_eq!(keys.first(Action::Quit), "Ctrl-C");
    }

    #[test]
    fn each_action_has_a_row_and_a_name_that_leads_to_it() {
        for binding in BINDINGS {
            assert_eq!(KeyMap::default().rebind(&binding.action.name(), &[]), Ok(()));
        }
        assert_eq!((Action::ZoomIn.name(), Action::Quit.name()), ("zoom-in".to_owned(), "quit".to_owned()));
        assert_eq!(nearest("zom_in"), "zoom-in");
    }

    #[test]
    fn the_names_of_the_table_can_be_written_in_the_file() {
        for key in BINDINGS.iter().flat_map(|binding| binding.keys).filter(|key| **key != "Ctrl-C") {
            assert_eq!(key_called(key).as_deref(), Ok(*key));
        }
        assert_eq!(key_called("ctrl-q").as_deref(), Ok("Ctrl-Q"));
        for wrong in ["", " ", "Ctrl-", "Ctrl-1", "F0", "F99", "Alt-x", "ab", "Ctrl-I", "\u{1b}"] {
            assert!(key_called(wrong).is_err(), "{wrong}");
        }
    }
}
