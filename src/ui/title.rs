//! Describes the content of the screen, for the header and for titles of saved files.

use rustc_hash::FxHashMap;

use crate::profile::{FilterMode, Grouping, LabelId, Snapshot, Tgid, Timestamp};

use super::messages::Status;
use super::scene::Scene;
use super::span::Span;
use super::text;

/// How samples were taken, for saved pictures.
#[derive(Clone, Copy, Debug)]
pub struct Sampled<'a> {
    /// Name of the machine.
    pub host: &'a str,
    /// Samples a second and CPU; 0 if that is not known.
    pub frequency: u32,
    /// Number of sampled CPUs; 0 if that is not known.
    pub cpus: usize,
    /// Length of the sampling, if it is known better than from the samples that are shown.
    pub seconds: Option<f64>,
}

/// Returns facts for the line below the title of a saved picture.
pub fn picture_facts(snapshot: &Snapshot, sampled: Option<Sampled<'_>>) -> Vec<String> {
    let mut facts = vec![text::amount(snapshot.totals.weight, snapshot.unit)];
    let span = snapshot.span.filter(|_| snapshot.capabilities.time);
    let seconds = span.map(|(first, last)| last.0.saturating_sub(first.0) as f64 / 1e9);
    let seconds = sampled.and_then(|sampled| sampled.seconds).or(snapshot.seconds).or(seconds);
    facts.extend(seconds.filter(|seconds| *seconds >= 0.05).map(|seconds| format!("{seconds:.1} s")));
    if let Some(Sampled { host, frequency, cpus, .. }) = sampled {
        facts.extend(match (frequency, cpus) {
            (0, _) => None,
            (_, 0) => Some(format!("{frequency} Hz")),
            _ => Some(format!("{frequency} Hz on {}", text::cpus(cpus))),
        });
        facts.extend((!host.is_empty()).then(|| host.to_owned()));
    }
    let totals = &snapshot.totals;
    if totals.user > 0 {
        facts.push(format!("{:.1} % of user stacks complete", totals.complete as f64 * 100.0 / totals.user as f64));
    }
    if let hidden @ 1.. = snapshot.idle_threads {
        facts.push(format!("{} hidden", text::idle_threads(hidden)));
    }
    let lost = snapshot.losses.ring_full;
    facts.extend((lost > 0).then(|| format!("{} lost", text::grouped(lost))));
    facts
}

/// Most columns of a command in a title.
const LONGEST_COMMAND: usize = 80;

/// Returns what a title says of a process: `python3 shop.py 18081 (13120)`, or `process 13120` if its command is not known.
pub fn process_title(snapshot: &Snapshot, tgid: Tgid) -> String {
    let command = snapshot.processes.get(&tgid).map_or("", |process| &process.command);
    let program = command.split(' ').next().unwrap_or_default();
    let begin = program.rfind('/').map_or(0, |at| at + 1);
    match command.get(begin..).filter(|words| !words.is_empty()) {
        Some(words) => format!("{} ({tgid})", text::cut(words, LONGEST_COMMAND)),
        None => format!("process {tgid}"),
    }
}

impl Scene {
    /// Returns facts for the line below the title of a saved picture, without the time.
    pub(super) fn facts(&self) -> Vec<String> {
        let Status { host, frequency, cpus, .. } = &self.status;
        let sampled = Sampled { host, frequency: *frequency, cpus: *cpus, seconds: None };
        let mut facts = picture_facts(&self.snapshot, (*frequency > 0).then_some(sampled));
        match self.span {
            Span::All => {}
            Span::Last(seconds) => facts.push(format!("last {seconds} s")),
            Span::Fading(seconds) => facts.push(format!("fading, {seconds} s")),
            Span::Between(from, to) => facts.push(self.between(from, to)),
        }
        facts
    }

    /// Describes the content of the screen, for titles of saved files.
    pub fn title(&self) -> String {
        let mut title = format!("flametop: {}", self.target_in_words(|tgid| process_title(&self.snapshot, tgid)));
        if self.shown_event().is_some() {
            title.push_str(&format!(", {}", self.source_words()));
        }
        for filter in &self.query.filters {
            let mode = if filter.mode == FilterMode::Keep { "keep" } else { "drop" };
            title.push_str(&format!(", {mode} /{}/", filter.pattern.source()));
        }
        if self.query.folding.inlined {
            title.push_str(", inlined functions folded");
        }
        if self.snapshot.tree.has_recursion() {
            title.push_str(", recursion folded");
        }
        if self.shows_interpreter() {
            title.push_str(", with interpreter frames");
        }
        if self.compare.on {
            title.push_str(", difference to a baseline: red has grown, blue has shrunk");
        }
        title
    }

    /// Names the selected processes, thread, cgroup or CPU.
    pub fn target_name(&self) -> String {
        self.target_in_words(|tgid| {
            let name = self.newest_names(&[tgid]).next();
            format!("{} {tgid}", name.map_or("pid", |name| self.names.labels.name(name)))
        })
    }

    /// Returns the newest names of those of the processes that the snapshot has, in no order.
    fn newest_names(&self, tgids: &[Tgid]) -> impl Iterator<Item = LabelId> + use<> {
        let mut newest: FxHashMap<Tgid, (Timestamp, LabelId)> = FxHashMap::default();
        for row in self.snapshot.activity.iter().filter(|row| tgids.contains(&row.thread.tgid)) {
            let name = (row.weights.last, row.thread.process);
            let known = newest.entry(row.thread.tgid).or_insert(name);
            *known = (*known).max(name);
        }
        newest.into_values().map(|(_, name)| name)
    }

    /// The same as [`Scene::target_name`], with these words for a process.
    fn target_in_words(&self, process: impl Fn(Tgid) -> String) -> String {
        let target = &self.query.target;
        let mut words = Vec::new();
        match target.tgids.as_slice() {
            [] => {}
            [tgid] => words.push(process(*tgid)),
            several => {
                let mut names = self.newest_names(several);
                let first = names.next().filter(|first| names.all(|name| name == *first));
                let times = if self.theme.ascii { 'x' } else { '×' };
                words.push(match first {
                    Some(name) => format!("{} {times}{}", self.names.labels.name(name), several.len()),
                    None => format!("{} processes", several.len()),
                });
            }
        }
        if let Some(tid) = target.tid {
            words.push(format!("thread {tid}"));
        }
        if let Some(cgroup) = target.cgroup {
            let name = self.status.cgroup_name(cgroup).unwrap_or_else(|| cgroup.to_string());
            words.push(if self.status.container(cgroup).is_some() { name } else { format!("cgroup {name}") });
        }
        if let Some(cpu) = target.cpu {
            words.push(format!("CPU {cpu}"));
        }
        match (words.is_empty(), self.query.grouping) {
            (false, _) => words.join(" "),
            (true, Grouping::None) => "all stacks".to_owned(),
            (true, _) => self.everything.clone().unwrap_or_else(|| "all processes".to_owned()),
        }
    }
}
