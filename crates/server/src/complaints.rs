//! Log lines about strangers, at most a few a second: a flood of bad connections must not become a
//! flood of lines. What is left out is counted.

use std::sync::atomic::{AtomicU64, Ordering};

use towpath_model::Time;

/// Lines per second.
const PER_SECOND: u64 = 10;

/// How many lines have been written in the current second.
#[derive(Debug, Default)]
pub(crate) struct Complaints {
    second: AtomicU64,
    written: AtomicU64,
    suppressed: AtomicU64,
}

impl Complaints {
    /// Whether a line may be written now, and how many were left out before it.
    pub(crate) fn allow(&self, now: Time) -> Option<u64> {
        let second = now.0 / 1_000_000_000;
        if self.second.swap(second, Ordering::Relaxed) != second {
            self.written.store(0, Ordering::Relaxed);
        }
        if PER_SECOND <= self.written.fetch_add(1, Ordering::Relaxed) {
            self.suppressed.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(self.suppressed.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_counted_and_not_written() {
        let complaints = Complaints::default();
        let allowed = (0..100).filter(|_| complaints.allow(Time(5)).is_some()).count();
        assert_eq!(allowed, 10);
        assert_eq!(complaints.allow(Time(2_000_000_000)), Some(90));
    }
}
