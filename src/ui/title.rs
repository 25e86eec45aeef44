//! What is seen, in words: for the header, and for titles of saved files.

use crate::profile::{FilterMode, Grouping};

use super::scene::Scene;

impl Scene {
    /// What is seen, in words: for titles of saved files.
    pub fn title(&self) -> String {
        let mut title = format!("flametop: {}", self.target_name());
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
        if self.shows_interpreter() {
            title.push_str(", with frames of interpreters");
        }
        if self.compare.on {
            title.push_str(", difference to a baseline: red has grown, blue has shrunk");
        }
        title
    }

    /// Whose samples are shown, in words.
    pub fn target_name(&self) -> String {
        let target = &self.query.target;
        let mut words = Vec::new();
        match target.tgids.as_slice() {
            [] => {}
            [tgid] => {
                let row = self.snapshot.activity.iter().find(|row| row.thread.tgid == *tgid);
                let name = row.map_or("pid", |row| self.names.labels.name(row.thread.process));
                words.push(format!("{name} {tgid}"));
            }
            several => {
                let of_them = self.snapshot.activity.iter().filter(|row| several.contains(&row.thread.tgid));
                let mut named = of_them.map(|row| row.thread.process);
                let first = named.next().filter(|first| named.all(|name| name == *first));
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
            // The end of a path tells more than its beginning.
            let name = self.status.cgroups.get(&cgroup).map(|path| path.rsplit('/').next().unwrap_or(path).to_owned());
            words.push(format!(
                "cgroup {}",
                name.map_or_else(|| cgroup.to_string(), |name| if name.is_empty() { "/".to_owned() } else { name })
            ));
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
