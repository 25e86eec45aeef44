//! Questions about a process that begins: what they ask for may not be there yet.

/// Nanoseconds between the first two questions. Each pause is twice as long as the one before, until it has been doubled this often. Libraries
/// are relocated within some milliseconds, and a JVM has its code heaps some 10 ms later.
const PAUSE: u64 = 5_000_000;
const MAX_DOUBLINGS: u32 = 10;

/// Pauses between questions.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Pauses {
    begun: u32,
    until: u64,
}

impl Pauses {
    pub(super) fn is_over(&self, now: u64) -> bool {
        self.until <= now
    }

    /// Begins the next pause. Returns whether it is one of the first: a question whose pause is no longer doubled has little hope.
    pub(super) fn begin(&mut self, now: u64) -> bool {
        self.until = now + (PAUSE << self.begun.min(MAX_DOUBLINGS));
        self.begun = self.begun.saturating_add(1);
        self.begun <= MAX_DOUBLINGS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pause_is_twice_as_long_up_to_five_seconds() {
        let mut pauses = Pauses::default();
        assert!(pauses.is_over(0));
        assert!(pauses.begin(7) && !pauses.is_over(7 + PAUSE - 1) && pauses.is_over(7 + PAUSE));
        assert_eq!((0..20).filter(|_| pauses.begin(0)).count(), 9);
        assert!(!pauses.is_over(5_119_999_999) && pauses.is_over(5_120_000_000));
    }
}
