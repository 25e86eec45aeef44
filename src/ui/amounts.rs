//! Formats weights by their unit: as CPU time if they are ticks of a clock, else as counts, times or bytes.

use super::scene::Scene;
use super::text;
use crate::profile::Unit;

impl Scene {
    /// Returns the unit of the weights on screen.
    pub(super) fn unit(&self) -> Unit {
        self.snapshot.unit
    }

    /// Returns the clock's samples a second and CPU. 0 if the weights are not ticks of a clock: they do not show how busy a CPU was.
    pub(super) fn ticks(&self) -> u32 {
        if self.unit() == Unit::Samples { self.status.frequency } else { 0 }
    }

    /// Returns the weight of a second in which all CPUs were busy; `None` if the weights do not tell that, or the number of CPUs is not known.
    pub(super) fn all_busy(&self) -> Option<u64> {
        let all = u64::from(self.ticks()) * self.status.cpus as u64;
        (all > 0).then_some(all)
    }

    /// Formats a weight of the tree: `5.41 s` of CPU time, or in its unit.
    pub(in crate::ui) fn amount(&self, weight: u64) -> String {
        self.counted(self.snapshot.amount_of(weight))
    }

    /// Formats an amount in its unit, or as CPU time.
    pub(in crate::ui) fn counted(&self, amount: u64) -> String {
        match (self.unit(), self.ticks()) {
            (Unit::Samples, ticks @ 1..) => text::cpu_time(amount as f64 / f64::from(ticks)),
            (Unit::Samples | Unit::Events, _) => text::grouped(amount),
            (Unit::Nanoseconds, _) => text::duration(amount),
            (Unit::Bytes, _) => text::bytes(usize::try_from(amount).unwrap_or(usize::MAX)),
        }
    }

    /// Formats the weight of samples where their number matters, and not the CPU time: `1,000`, or in its unit.
    pub(in crate::ui) fn count_of(&self, weight: u64) -> String {
        match self.unit() {
            Unit::Samples | Unit::Events => text::grouped(weight),
            Unit::Nanoseconds | Unit::Bytes => self.counted(weight),
        }
    }

    /// Formats a weight of the tree with its unit: `5.41 s of CPU`, `1,000 samples`.
    pub(in crate::ui) fn amount_with_unit(&self, weight: u64) -> String {
        self.with_unit(self.snapshot.amount_of(weight))
    }

    /// Formats an amount with its unit.
    pub(in crate::ui) fn with_unit(&self, amount: u64) -> String {
        let words = self.counted(amount);
        match self.unit() {
            Unit::Samples if self.ticks() > 0 => format!("{words} of CPU"),
            unit @ (Unit::Samples | Unit::Events) => format!("{words} {}", unit.word()),
            Unit::Nanoseconds | Unit::Bytes => words,
        }
    }

    /// Formats the whole weight with its unit in few columns: `15.2k samples`.
    pub(in crate::ui) fn whole_in_short(&self) -> String {
        let amount = self.snapshot.amount();
        match self.unit() {
            unit @ (Unit::Samples | Unit::Events) => format!("{} {}", text::count(amount), unit.word()),
            Unit::Nanoseconds | Unit::Bytes => self.counted(amount),
        }
    }

    /// Converts a weight per second to the figure of tables: per cent of a CPU, or of a thread's time; else the weight itself.
    pub(in crate::ui) fn figure_of_rate(&self, per_second: f64) -> f64 {
        match (self.unit(), self.ticks()) {
            (Unit::Samples, ticks @ 1..) => per_second * 100.0 / f64::from(ticks),
            (Unit::Nanoseconds, _) => per_second * 100.0 / 1e9,
            (Unit::Samples | Unit::Events | Unit::Bytes, _) => per_second,
        }
    }

    /// Returns the heading of [`figure_of_rate`](Self::figure_of_rate), and that of amounts.
    pub(in crate::ui) fn headings(&self) -> (&'static str, &'static str) {
        match self.unit() {
            Unit::Samples if self.ticks() > 0 => ("CPU %", "CPU time"),
            Unit::Samples => ("/s", "samples"),
            Unit::Events => ("ev/s", "events"),
            Unit::Nanoseconds => ("time %", "time"),
            Unit::Bytes => ("B/s", "bytes"),
        }
    }

    /// Formats a weight per second: CPUs, seconds a second, or the weight.
    pub(super) fn rate(&self, weight: f64) -> String {
        match (self.unit(), self.ticks()) {
            (Unit::Samples, ticks @ 1..) => format!("{:.2}", weight / f64::from(ticks)),
            (Unit::Samples | Unit::Events, _) => format!("{}/s", text::count(weight.round() as u64)),
            (Unit::Nanoseconds, _) => format!("{:.2} s/s", weight / 1e9),
            (Unit::Bytes, _) => format!("{}/s", text::bytes(weight.round() as usize)),
        }
    }

    /// Returns the unit that follows a [`rate`](Self::rate), with a blank before it; `""` if the rate contains its unit.
    pub(in crate::ui) fn unit_of_rate(&self) -> &'static str {
        if self.ticks() == 0 { "" } else { " CPUs" }
    }

    /// Returns the CPUs that a weight of the tree kept busy, on average over the time on screen. `None` if weights are not ticks of a
    /// clock. Other sources may have been attached after sampling began.
    fn cpus_of(&self, weight: u64) -> Option<String> {
        let seconds = self.snapshot.seconds.filter(|seconds| *seconds > 0.0 && self.ticks() > 0)?;
        Some(self.rate(self.snapshot.amount_of(weight) as f64 / seconds))
    }

    /// Returns the part of all CPUs that was in use in the time on screen, from 0 to 1. `None` if that is not known.
    pub(in crate::ui) fn share_of_machine(&self) -> Option<f64> {
        let seconds = self.snapshot.seconds.filter(|seconds| *seconds > 0.0 && !self.compare.on)?;
        let all = self.all_busy()?;
        let most = seconds * if self.target().cpu.is_some() { f64::from(self.ticks()) } else { all as f64 };
        Some((self.snapshot.amount() as f64 / most.max(1.0)).clamp(0.0, 1.0))
    }

    /// Formats the CPUs that a weight kept busy: `0.98 CPUs`.
    pub(in crate::ui) fn use_of(&self, weight: u64) -> Option<String> {
        Some(format!("{} CPUs", self.cpus_of(weight)?))
    }

    /// Formats the CPUs that a weight kept busy, and the number of CPUs, if it is known: `1.62 of 2 CPUs`.
    pub(in crate::ui) fn use_of_all(&self, weight: u64) -> Option<String> {
        match if self.target().cpu.is_some() { 1 } else { self.status.cpus } {
            0 => self.use_of(weight),
            all => Some(format!("{} of {}", self.cpus_of(weight)?, text::cpus(all))),
        }
    }
}
