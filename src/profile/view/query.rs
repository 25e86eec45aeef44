//! What a view is about: which samples, and how their stacks are laid out.

use regex::{Regex, RegexBuilder};

use crate::profile::Folding;
use crate::profile::ids::{CgroupId, Cpu, EventSource, Tgid, Tid, Timestamp};

/// Longest regular expression taken and largest automaton built for it: typed by hand, so generous is enough.
const MAX_REGEX_BYTES: usize = 1 << 22;

/// A regular expression over frame names. Lower case matches either case; a capital letter, or `^…$` around it, makes it exact.
#[derive(Clone, Debug)]
pub struct Pattern {
    source: String,
    regex: Regex,
}

impl Pattern {
    /// Compiles `source`; the error is one line for the person who typed it.
    pub fn new(source: &str) -> Result<Pattern, String> {
        let exact = source.chars().any(char::is_uppercase) || source.starts_with('^') && source.ends_with('$');
        let regex =
            RegexBuilder::new(source).case_insensitive(!exact).size_limit(MAX_REGEX_BYTES).build().map_err(
                |error| match error {
                    regex::Error::CompiledTooBig(_) => "the expression is too large".to_owned(),
                    other => other.to_string().lines().last().unwrap_or("not a regular expression").trim().to_owned(),
                },
            )?;
        Ok(Pattern { source: source.to_owned(), regex })
    }

    /// An expression that matches exactly this name.
    pub fn exactly(name: &str) -> String {
        format!("^{}$", regex::escape(name))
    }

    /// As it was typed.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether a name contains a match.
    pub fn matches(&self, name: &str) -> bool {
        self.regex.is_match(name)
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

/// Whether samples that match stay or go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FilterMode {
    /// Only samples with a matching frame.
    Keep,
    /// Only samples without one.
    Drop,
}

/// One chip: keep or drop the samples whose stack has a frame (or process) that matches.
#[derive(Clone, PartialEq, Debug)]
pub struct Filter {
    /// Keep or drop.
    pub mode: FilterMode,
    /// What to match.
    pub pattern: Pattern,
}

/// Whose samples. Empty or `None` means everybody's.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Target {
    /// Any of these processes.
    pub tgids: Vec<Tgid>,
    /// This thread.
    pub tid: Option<Tid>,
    /// This cgroup.
    pub cgroup: Option<CgroupId>,
    /// This CPU.
    pub cpu: Option<Cpu>,
}

impl Target {
    /// Whether it leaves nobody out.
    pub fn is_everything(&self) -> bool {
        *self == Target::default()
    }

    /// Whether all that it names is named by the other as well.
    pub fn is_within(&self, other: &Target) -> bool {
        let all_of = |tgids: &[Tgid]| !self.tgids.is_empty() && self.tgids.iter().all(|tgid| tgids.contains(tgid));
        (other.tgids.is_empty() || all_of(&other.tgids))
            && (other.tid.is_none() || other.tid == self.tid)
            && (other.cgroup.is_none() || other.cgroup == self.cgroup)
            && (other.cpu.is_none() || other.cpu == self.cpu)
    }
}

/// When.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TimeRange {
    /// Everything that is stored.
    #[default]
    All,
    /// The last so many nanoseconds, moving along.
    Last(u64),
    /// From the first to before the second.
    Between(Timestamp, Timestamp),
    /// Everything, but the older the less: each half-life (nanoseconds) halves what a sample weighs. As of now, or of an earlier
    /// moment.
    Fading(u64, Timestamp),
}

/// Which way up the tree grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Direction {
    /// Callers first: a flame graph.
    #[default]
    TopDown,
    /// What ran first, its callers below it.
    BottomUp,
}

/// What the level below "all" is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Grouping {
    /// Processes of one name together.
    #[default]
    Name,
    /// Each process apart, as `name PID`.
    Process,
    /// Each process apart and its threads below it.
    Thread,
    /// No such level: for files, whose stacks bring their own root.
    None,
}

/// Which samples, and how their stacks are laid out.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Query {
    /// When.
    pub range: TimeRange,
    /// Whose.
    pub target: Target,
    /// Taken at what; `None` is everything. Ticks and events of different kinds have nothing in common that could be added.
    pub source: Option<EventSource>,
    /// All of these hold for a sample that is shown.
    pub filters: Vec<Filter>,
    /// Which way up.
    pub direction: Direction,
    /// The level below "all".
    pub grouping: Grouping,
    /// The frames that are not shown.
    pub folding: Folding,
}

/// What the screen wants to see.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Request {
    /// The samples and the tree's form.
    pub query: Query,
    /// What is searched for, if anything.
    pub search: Option<Pattern>,
    /// Whether the map of time is on screen.
    pub heat: bool,
    /// Whether the hottest function of each process is on screen.
    pub hottest: bool,
    /// Whether the parts of flametop's own memory are on screen.
    pub memory: bool,
    /// The order of the table of functions, if that is on screen.
    pub functions: Option<crate::profile::FunctionOrder>,
    /// The function whose callers and callees are on screen.
    pub neighbours_of: Option<crate::profile::LabelId>,
    /// The function of which is to be told where in it samples are.
    pub addresses_of: Option<crate::profile::LabelId>,
    /// What is to be kept for comparison, as long as this says so.
    pub baseline: Option<Mark>,
    /// Whether to compare with it.
    pub compare: bool,
    /// Whether to compare shares also where the time of both sides is known.
    pub by_shares: bool,
}

impl Request {
    /// Whether nothing but [`Request::addresses_of`] differs: then the picture is the same, and can wait.
    pub fn has_the_picture_of(&self, other: &Request) -> bool {
        *self == Request { addresses_of: self.addresses_of, ..other.clone() }
    }
}

/// What the reader has marked.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Mark {
    /// Tells one mark from the next; 0 is the baseline that a file gave.
    pub number: u64,
    /// What was shown then. Its range does not move.
    pub query: Query,
}

impl Mark {
    /// The question to the baseline that goes with `query` to the store.
    ///
    /// What is chosen within what was marked is asked of both sides. Otherwise the baseline is shown as it was marked: whoever
    /// marks process A and then looks at process B wants to see A beside B, not nothing.
    pub fn query_beside(&self, query: &Query) -> Query {
        let within = query.target.is_within(&self.query.target);
        let filtered_more = self.query.filters.iter().all(|filter| query.filters.contains(filter));
        Query {
            range: TimeRange::All,
            target: if within { query.target.clone() } else { self.query.target.clone() },
            // Another kind of event is no more than a baseline: as one process is to another.
            source: self.query.source,
            filters: if filtered_more { query.filters.clone() } else { Vec::new() },
            direction: query.direction,
            grouping: query.grouping,
            folding: query.folding,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lower_case_matches_either_case_and_a_capital_is_exact() {
        let lower = Pattern::new("read").unwrap();
        assert!(lower.matches("BufReader") && lower.matches("vfs_read"));
        let exact = Pattern::new("Read").unwrap();
        assert!(exact.matches("BufReader") && !exact.matches("vfs_read"));
        assert!(!Pattern::new(&Pattern::exactly("read")).unwrap().matches("Read"));
        assert!(Pattern::new(&Pattern::exactly("a::<b>(*)")).unwrap().matches("a::<b>(*)"));
    }

    #[test]
    fn what_is_no_expression_is_refused_in_one_line() {
        let error = Pattern::new("a(").unwrap_err();
        assert!(!error.contains('\n') && !error.is_empty(), "{error}");
        assert!(Pattern::new(&"(a{1000}){1000}".repeat(3)).is_err());
    }
}
