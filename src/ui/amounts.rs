//! Formats weights: as CPU time if the clock was sampled live, as counts otherwise.

use super::scene::Scene;
use super::text;

impl Scene {
    /// Formats a weight of the tree: `5.41 s` of CPU time, or a count.
    pub(in crate::ui) fn amount(&self, weight: u64) -> String {
        self.counted(self.snapshot.amount_of(weight))
    }

    /// Formats a number of samples or events: as CPU time or as a count.
    pub(in crate::ui) fn counted(&self, amount: u64) -> String {
        match self.ticks() {
            0 => text::grouped(amount),
            ticks => text::cpu_time(amount as f64 / f64::from(ticks)),
        }
    }

    /// Formats a weight of the tree with its unit: `5.41 s of CPU`, `1,000 samples`.
    pub(in crate::ui) fn amount_with_unit(&self, weight: u64) -> String {
        let unit = if self.ticks() == 0 { self.unit_word() } else { "of CPU" };
        format!("{} {unit}", self.amount(weight))
    }

    /// Returns the CPUs that a weight of the tree kept busy, on average over the time on screen. `None` for files and events:
    /// events may have been attached after sampling began.
    fn cpus_of(&self, weight: u64) -> Option<String> {
        let seconds = self.snapshot.seconds.filter(|seconds| *seconds > 0.0 && self.ticks() > 0)?;
        Some(self.rate(self.snapshot.amount_of(weight) as f64 / seconds))
    }

    /// Returns the part of all CPUs that was in use in the time on screen, from 0 to 1. `None` if that is not known.
    pub(in crate::ui) fn share_of_machine(&self) -> Option<f64> {
        let seconds = self.snapshot.seconds.filter(|seconds| *seconds > 0.0 && self.ticks() > 0 && !self.compare.on)?;
        let all = if self.target().cpu.is_some() { 1 } else { self.status.cpus };
        let most = seconds * f64::from(self.ticks()) * all as f64;
        Some((self.snapshot.amount() as f64 / most.max(1.0)).clamp(0.0, 1.0))
    }

    /// Formats the CPUs that a weight kept busy: `0.98 CPUs`.
    pub(in crate::ui) fn use_of(&self, weight: u64) -> Option<String> {
        Some(format!("{} CPUs", self.cpus_of(weight)?))
    }

    /// Formats the CPUs that a weight kept busy, and the number of CPUs: `1.62 of 2 CPUs`.
    pub(in crate::ui) fn use_of_all(&self, weight: u64) -> Option<String> {
        let all = if self.target().cpu.is_some() { 1 } else { self.status.cpus };
        Some(format!("{} of {}", self.cpus_of(weight)?, text::cpus(all)))
    }
}
