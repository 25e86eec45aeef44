//! What `record` says about a recording: its title, and its quality.

use std::io::{self, Write};
use std::path::Path;

use crate::cli;
use crate::cpu_time;
use crate::profile::{EventStatus, Snapshot, Tgid, Totals, Unit, UserEnd};
use crate::session::child::shown;
use crate::session::cost::own_memory;
use crate::session::recording::Written;
use crate::session::sampling::{CollectorStatus, Ended, Sampling};
use crate::ui::{format_bytes, format_duration, format_idle_threads, process_title};

/// What was written.
pub(super) enum Outcome {
    /// All samples.
    Recording(Written),
    /// A tree, and a note about parts that the file lacks.
    Tree { cut: Option<String> },
}

/// Says why there is nothing to write.
pub(super) fn nothing(options: &cli::Record, output: &Path, told: &CollectorStatus) -> String {
    let why = if options.sampling.events.is_empty() { "processes ran" } else { "events happened" };
    let own = told.own_left_out + told.events.iter().map(|event| event.own).sum::<u64>();
    let but = if own > 0 { ", not counting flametop itself (--self shows it)" } else { "" };
    let waits = told.events.iter().find(|event| event.waited.is_some());
    let how = waits.map_or_else(String::new, |waits| format!(" ({}: {})", waits.name, waits.how));
    format!("no samples: none of the selected {why}{but}{how}. {} was not written.", output.display())
}

pub(super) fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Most processes that a title has.
const MOST_NAMED: usize = 3;

/// Returns the title of a picture: what was watched, and where.
pub(super) fn title(options: &cli::Record, snapshot: &Snapshot) -> String {
    let host = host();
    let at = options.sampling.events.first().map_or(String::new(), |event| format!(", at {event}"));
    let of = match (options.program.as_slice(), options.sampling.pids.as_slice()) {
        ([], []) => format!("flametop: everything on {host}"),
        ([], pids) => {
            let mut processes: Vec<String> =
                pids.iter().take(MOST_NAMED).map(|pid| process_title(snapshot, Tgid(*pid))).collect();
            if let more @ 1.. = pids.len().saturating_sub(MOST_NAMED) {
                processes.push(format!("{more} more"));
            }
            format!("flametop: {} on {host}", processes.join(", "))
        }
        (command, _) => {
            let words: Vec<String> = command.iter().map(|word| shown(word)).collect();
            format!("flametop: {}", words.join(" "))
        }
    };
    of + &at
}

/// Describes the counts of a source, in a line.
fn describe_event(event: &EventStatus) -> String {
    let events = match event.waited {
        Some(waited) => format!("{} waits, {} together", event.events, format_duration(waited)),
        None => format!("{} events", event.events),
    };
    let mut line = format!("{}: {events}, stacks of {}", event.name, event.stacks);
    let mut how = vec![event.how.to_string()];
    if event.places > 1 {
        how.push(format!("{} places", event.places));
    }
    if event.missed > 0 {
        how.push(format!("{} without a stack: another one was being taken", event.missed));
    }
    if event.unsure > 0 {
        how.push(format!("{} more, of any process, not counted: a stack was being taken", event.unsure));
    }
    if event.unknown > 0 {
        how.push(format!("{} more waits not counted: their threads could not be followed", event.unknown));
    }
    if event.own > 0 {
        how.push(format!("{} more in flametop itself not counted: --self shows them", event.own));
    }
    if event.cost > 0 {
        how.push(format!("they cost the programs about {:.2} s of CPU", event.cost as f64 / 1e9));
    }
    if event.cut > 0 {
        how.push(format!("kernel stacks cut: {}", event.cut));
    }
    line.push_str(&format!(" ({})", how.join(", ")));
    line
}

/// Number of reasons for incomplete stacks that are printed at the end. View 5 has all of them.
const MAIN_REASONS: usize = 3;

/// Formats a weight, without the word of its unit.
fn number(weight: u64, unit: Unit) -> String {
    if unit == Unit::Nanoseconds { format_duration(weight) } else { weight.to_string() }
}

/// Says why user stacks are incomplete: a line for each of the main reasons, in the words of view 5. Says nothing if 99.9 % are complete.
fn incomplete(totals: &Totals, unit: Unit) -> Vec<String> {
    if totals.complete * 1000 >= totals.user * 999 {
        return Vec::new();
    }
    let line = |(end, weight): (UserEnd, u64)| {
        let (what, _) = end.explain();
        format!("incomplete: {} ({:.1} %), {what}", number(weight, unit), weight as f64 * 100.0 / totals.user as f64)
    };
    totals.reasons().into_iter().take(MAIN_REASONS).map(line).collect()
}

/// Describes the written file and its quality on standard error.
pub(super) fn report(
    options: &cli::Record,
    output: &Path,
    snapshot: &Snapshot,
    sampling: &Sampling,
    ended: Option<&Ended>,
    outcome: Outcome,
) {
    let mut lines = Vec::new();
    if let Some(Ended::Target(ending)) = ended {
        lines.push(ending.words.clone());
    }
    let totals = &snapshot.totals;
    let told = sampling.told();
    lines.extend(told.events.iter().map(describe_event));
    lines.extend(told.comparison);
    lines.extend(told.unread);
    let mut losses = snapshot.losses;
    let mut line = match &outcome {
        Outcome::Tree { .. } => {
            let word = if snapshot.unit == Unit::Nanoseconds { String::new() } else { format!(" {}", snapshot.unit.word()) };
            format!("{}{word} written to {}", number(snapshot.tree.total(), snapshot.unit), output.display())
        }
        Outcome::Recording(Written { bytes, samples, missed }) => {
            // The file also has what the store has dropped since.
            (losses.over_memory, losses.aged_out) = (*missed, 0);
            format!(
                "{samples} samples written to {} ({})",
                output.display(),
                format_bytes(usize::try_from(*bytes).unwrap_or(usize::MAX))
            )
        }
    };
    if let [first, _, ..] = options.sampling.events.as_slice() {
        line.push_str(&format!(", of {first} only"));
    }
    if totals.user > 0 {
        line.push_str(&format!(", {:.1} % of user stacks complete", totals.complete as f64 * 100.0 / totals.user as f64));
    }
    lines.push(line);
    if let Outcome::Tree { cut } = outcome {
        lines.extend(cut);
    }
    if let hidden @ 1.. = snapshot.idle_threads {
        lines.push(format!("{} hidden, which only wait for work (--idle shows them)", format_idle_threads(hidden)));
    }
    let reasons = incomplete(totals, snapshot.unit);
    if reasons.iter().any(|reason| reason.ends_with(UserEnd::Gap.explain().0)) {
        lines.extend(reasons);
        lines.extend(told.without_tables.into_iter().take(MAIN_REASONS));
    } else {
        lines.extend(reasons);
    }
    for (count, what) in [
        (losses.ring_full, "samples lost: ring buffer full (lower the rate with -F)"),
        (losses.events_lost, "process events lost (mappings, names, exits); some frames may have no name"),
        (losses.over_memory, "samples dropped: memory limit reached (raise --memory)"),
        (losses.coarse, "addresses share a name: memory limit reached (raise --memory)"),
        (losses.aged_out, "samples dropped: older than the window (raise --window)"),
    ] {
        if count > 0 {
            lines.push(format!("{count} {what}"));
        }
    }
    let mut cost = format!("cost: {:.2} s of CPU, {} MB", cpu_time::of_this_process().as_secs_f64(), own_memory().0 / 1_000_000);
    if told.own_left_out > 0 {
        cost.push_str(&format!("; {} samples of flametop itself left out (--self shows them)", told.own_left_out));
    }
    lines.push(cost);
    drop(writeln!(io::stderr(), "{}", lines.join("\n")));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_title_says_what_was_watched() {
        use crate::profile::ProcessFacts;
        let commands = [(7, "/usr/bin/python3 shop.py 18081".to_owned()), (8, "nginx: worker".to_owned()), (9, "x".repeat(200))];
        let facts = |command: String| ProcessFacts { command: command.into(), ..ProcessFacts::default() };
        let processes = commands.into_iter().map(|(tgid, command)| (Tgid(tgid), facts(command))).collect();
        let snapshot = Snapshot { processes: Arc::new(processes), ..Snapshot::default() };
        let of = |words: &[&str]| title(&cli::Record::of(words), &snapshot).replace(&host(), "HOST");
        assert_eq!(of(&[]), "flametop: everything on HOST");
        assert_eq!(of(&["-p", "7"]), "flametop: python3 shop.py 18081 (7) on HOST");
        assert_eq!(of(&["-p", "9"]), format!("flametop: {}… (9) on HOST", "x".repeat(79)));
        let four = of(&["-p", "7,8,10,9"]);
        assert_eq!(four, "flametop: python3 shop.py 18081 (7), nginx: worker (8), process 10, 1 more on HOST");
        assert_eq!(of(&["-e", "page-faults", "--", "make", "-j8"]), "flametop: make -j8, at page-faults");
    }

    #[test]
    fn the_main_reasons_for_incomplete_stacks_are_told_in_the_words_of_view_5() {
        let mut totals = Totals { user: 10_000, complete: 9_990, ..Totals::default() };
        for (end, weight) in [(UserEnd::Gap, 3), (UserEnd::Changing, 1), (UserEnd::NoTable, 4), (UserEnd::NoCode, 2)] {
            totals.incomplete[end as usize] = weight;
        }
        assert!(incomplete(&totals, Unit::Samples).is_empty());
        totals.incomplete[UserEnd::Gap as usize] = 173;
        totals.complete = 9_820;
        assert_eq!(
            incomplete(&totals, Unit::Samples),
            [
                "incomplete: 173 (1.7 %), code without usable unwind information",
                "incomplete: 4 (0.0 %), the unwind table of its object was still being made",
                "incomplete: 2 (0.0 %), the caller's address is not code",
            ]
        );
        assert!(incomplete(&Totals::default(), Unit::Samples).is_empty(), "a recording of kernel threads");
    }

    #[test]
    fn what_was_passed_over_is_told_in_the_count_or_beside_it() {
        let event = EventStatus {
            name: "vfs_read".to_owned(),
            how: "fentry".into(),
            places: 1,
            events: 12,
            stacks: 3,
            ..EventStatus::default()
        };
        assert_eq!(describe_event(&event), "vfs_read: 12 events, stacks of 3 (fentry)");
        let counted = EventStatus { missed: 2, ..event.clone() };
        assert_eq!(
            describe_event(&counted),
            "vfs_read: 12 events, stacks of 3 (fentry, 2 without a stack: another one was being taken)"
        );
        let beside_own = EventStatus { own: 7, ..event.clone() };
        assert_eq!(
            describe_event(&beside_own),
            "vfs_read: 12 events, stacks of 3 (fentry, 7 more in flametop itself not counted: --self shows them)"
        );
        let waits =
            EventStatus { name: "off-cpu".to_owned(), waited: Some(1_500_000_000), unknown: 2, events: 40, ..event.clone() };
        assert_eq!(
            describe_event(&waits),
            "off-cpu: 40 waits, 1.50 s together, stacks of 3 (fentry, 2 more waits not counted: their threads could not be \
             followed)"
        );
        let beside = EventStatus { unsure: 2, cut: 1, places: 4, ..event };
        assert_eq!(
            describe_event(&beside),
            "vfs_read: 12 events, stacks of 3 (fentry, 4 places, 2 more, of any process, not counted: a stack was being taken, \
             kernel stacks cut: 1)"
        );
    }
}
