//! The progress line that a terminal shows while `record` samples.

use std::time::Duration;

use crate::profile::{Profile, UserEnd};
use crate::ui::format_grouped as grouped;

/// The counts so far. Each call of [`line`](Self::line) counts only the samples that came since the last call.
#[derive(Default)]
pub(super) struct Progress {
    /// Number of the next sample to count.
    next: u64,
    /// Samples with a user stack, and those of them whose stack is whole.
    user: u64,
    whole: u64,
    /// Whether some stacks end where the chain of frame pointers ended. Only names tell whether these stacks are whole, and the names are
    /// not known yet. So the line has no percentage.
    is_unsure: bool,
    /// Whether only the last minutes are kept.
    is_keeping: bool,
}

impl Progress {
    /// Begins to count. `is_keeping` says whether only the last minutes are kept.
    pub(super) fn new(is_keeping: bool) -> Progress {
        Progress { is_keeping, ..Progress::default() }
    }

    /// Returns the line: `recording: 12 s, 18 s left · 1,204 samples, 99.2 % complete, 0 lost`.
    pub(super) fn line(&mut self, profile: &Profile, elapsed: Duration, duration: Option<Duration>) -> String {
        for sample in profile.samples.slices_from(self.next).flatten() {
            match sample.user_end {
                end if !end.has_stack() => continue,
                UserEnd::Root => self.whole += 1,
                UserEnd::FramePointerEnd => self.is_unsure = true,
                _ => {}
            }
            self.user += 1;
        }
        self.next = profile.samples.end();
        let left = match duration {
            Some(duration) => format!(", {} s left", duration.saturating_sub(elapsed).as_secs_f64().ceil()),
            None => " (Ctrl-C ends)".to_owned(),
        };
        let complete = match self.user {
            0 => String::new(),
            _ if self.is_unsure => String::new(),
            user => format!(", {:.1} % complete", self.whole as f64 * 100.0 / user as f64),
        };
        let (samples, lost) = (grouped(self.next), grouped(profile.losses.ring_full));
        let word = if self.is_keeping { "keeping" } else { "recording" };
        format!("{word}: {} s{left} · {samples} samples{complete}, {lost} lost", elapsed.as_secs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Capabilities, Sample, Thread};

    #[test]
    fn each_look_counts_what_came_since() {
        let mut profile = Profile::fixed(Capabilities::STACKS);
        let mut progress = Progress::new(false);
        let seconds = Duration::from_secs_f64;
        let add = |profile: &mut Profile, end: UserEnd, count: usize| {
            for _ in 0..count {
                profile.record(Thread::default(), [], Sample { user_end: end, ..Sample::default() });
            }
        };
        assert_eq!(progress.line(&profile, seconds(0.2), None), "recording: 0 s (Ctrl-C ends) · 0 samples, 0 lost");
        add(&mut profile, UserEnd::Root, 999);
        add(&mut profile, UserEnd::Gap, 1);
        add(&mut profile, UserEnd::KernelThread, 500);
        let line = progress.line(&profile, seconds(2.5), Some(seconds(30.0)));
        assert_eq!(line, "recording: 2 s, 28 s left · 1,500 samples, 99.9 % complete, 0 lost");
        add(&mut profile, UserEnd::Gap, 1000);
        let line = progress.line(&profile, seconds(31.0), Some(seconds(30.0)));
        assert_eq!(line, "recording: 31 s, 0 s left · 2,500 samples, 50.0 % complete, 0 lost");
        add(&mut profile, UserEnd::FramePointerEnd, 1);
        let line = progress.line(&profile, seconds(31.0), None);
        assert_eq!(line, "recording: 31 s (Ctrl-C ends) · 2,501 samples, 0 lost");
    }
}
