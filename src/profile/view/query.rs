//! The query of a view: selects samples, and says how their stacks form a tree.

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

    /// Returns an expression that matches exactly this name.
    pub fn exactly(name: &str) -> String {
        format!("^{}$", regex::escape(name))
    }

    /// Returns the expression as it was typed.
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

/// Whether samples that match a filter are kept or dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FilterMode {
    /// Only samples with a matching frame.
    Keep,
    /// Only samples without one.
    Drop,
}

/// A filter: keeps or drops the samples whose stack has a frame (or process) that matches.
#[derive(Clone, PartialEq, Debug)]
pub struct Filter {
    /// Keep or drop.
    pub mode: FilterMode,
    /// The pattern to match.
    pub pattern: Pattern,
}

/// Selects samples by process, thread, cgroup and CPU. Empty or `None` matches everything.
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
    /// Whether it matches every sample.
    pub fn is_everything(&self) -> bool {
        *self == Target::default()
    }

    /// Whether each process, thread, cgroup and CPU that it names is also named by the other target.
    pub fn is_within(&self, other: &Target) -> bool {
        let all_of = |tgids: &[Tgid]| !self.tgids.is_empty() && self.tgids.iter().all(|tgid| tgids.contains(tgid));
        (other.tgids.is_empty() || all_of(&other.tgids))
            && (other.tid.is_none() || other.tid == self.tid)
            && (other.cgroup.is_none() || other.cgroup == self.cgroup)
            && (other.cpu.is_none() || other.cpu == self.cpu)
    }
}

/// A range of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TimeRange {
    /// Everything that is stored.
    #[default]
    All,
    /// The last nanoseconds, as many as this number. The range moves with the time.
    Last(u64),
    /// From the first time to before the second.
    Between(Timestamp, Timestamp),
    /// Everything, but old samples weigh less: a sample's weight halves with each half-life (nanoseconds). Ages are counted from now, or
    /// from an earlier moment.
    Fading(u64, Timestamp),
}

/// The direction in which the tree grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Direction {
    /// Callers first: a flame graph.
    #[default]
    TopDown,
    /// Callees first: the innermost frames, with their callers below them.
    BottomUp,
}

/// The level below "all".
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Grouping {
    /// Processes of one name share a node.
    #[default]
    Name,
    /// Each process has its own node, named `name PID`.
    Process,
    /// Each process has its own node, with its threads below it.
    Thread,
    /// No such level: for files, whose stacks bring their own root.
    None,
}

/// Selects samples, and says how their stacks form a tree.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Query {
    /// The range of time.
    pub range: TimeRange,
    /// Selects samples by process, thread, cgroup and CPU.
    pub target: Target,
    /// The source of the samples; `None` is all sources. Ticks and events of different kinds have nothing in common that could be added.
    pub source: Option<EventSource>,
    /// Filters. A sample is shown if it passes all of them.
    pub filters: Vec<Filter>,
    /// The direction in which the tree grows.
    pub direction: Direction,
    /// The level below "all".
    pub grouping: Grouping,
    /// The frames that are not shown.
    pub folding: Folding,
    /// Whether the waits of threads that only wait for work are left out.
    pub without_idle: bool,
}

/// Everything that the screen needs for its next picture.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Request {
    /// Selects the samples, and the tree's form.
    pub query: Query,
    /// The pattern to search for, if any.
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
    /// Function whose per-address sample counts are wanted.
    pub addresses_of: Option<crate::profile::LabelId>,
    /// The mark to keep as the baseline. The baseline is dropped when this changes.
    pub baseline: Option<Mark>,
    /// Whether to compare with the baseline.
    pub compare: bool,
    /// Whether to compare by shares even if the time of both sides is known.
    pub by_shares: bool,
}

impl Request {
    /// Whether nothing but [`Request::addresses_of`] differs. The picture is the same then, and can wait.
    pub fn has_the_picture_of(&self, other: &Request) -> bool {
        *self == Request { addresses_of: self.addresses_of, ..other.clone() }
    }
}

/// A mark that the reader has set: the samples to keep for comparison.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Mark {
    /// Identifies the mark; 0 is the baseline that a file gave.
    pub number: u64,
    /// The query that was shown when the mark was set. Its range does not move.
    pub query: Query,
}

impl Mark {
    /// Returns the query for the baseline that belongs to `query` for the store.
    ///
    /// A selection within the marked one applies to both sides. Any other selection leaves the baseline as it was marked: a reader who
    /// marks process A and then selects process B wants to see A beside B, not nothing.
    pub fn query_beside(&self, query: &Query) -> Query {
        let within = query.target.is_within(&self.query.target);
        let filtered_more = self.query.filters.iter().all(|filter| query.filters.contains(filter));
        Query {
            range: TimeRange::All,
            target: if within { query.target.clone() } else { self.query.target.clone() },
            // The baseline keeps its source. Another kind of event is compared with it, as one process is with another.
            source: self.query.source,
            filters: if filtered_more { query.filters.clone() } else { Vec::new() },
            direction: query.direction,
            grouping: query.grouping,
            folding: query.folding,
            without_idle: query.without_idle,
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
