//! What follows from what was seen, for people: how long a message should be hidden, and whether it is hidden
//! for too short a time.

use std::time::Duration;

use crate::decide::LEASE_MAX;
use crate::observed::quantile;

/// Deletes without which nothing is advised.
const DELETES_MIN: u64 = 100;

/// How deliveries of a queue went lately, over all of its partitions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Worked {
    /// How long messages were held before they were deleted, as [`crate::Durations::buckets`] has it.
    pub processing: Vec<(u64, u64)>,
    /// Deletes that came after the lease had ended.
    pub late_deletes: u64,
    /// Times that a lease was prolonged.
    pub extended: u64,
}

/// Why a visibility timeout is too short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooShort {
    /// One delete in a thousand, or more, came after the lease had ended: others had been given the message by then,
    /// or could have been.
    LateDeletes,
    /// Nobody prolongs leases, and one message in a thousand takes nearly as long, or longer.
    NoMargin,
}

impl Worked {
    fn deletes(&self) -> u64 {
        self.processing.iter().map(|(_, count)| count).sum()
    }

    /// The visibility timeout that fits: half as much again as 999 of 1,000 messages take, in whole seconds.
    /// Nothing before a hundred were deleted.
    #[must_use]
    pub fn suggested_visibility(&self) -> Option<Duration> {
        let is_enough = DELETES_MIN <= self.deletes();
        let longest = quantile(self.processing.iter().copied(), 999).filter(|_| is_enough)?;
        let seconds = (longest * 3 / 2).as_millis().div_ceil(1_000);
        Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(u64::MAX)).min(LEASE_MAX))
    }

    /// Whether messages are hidden for too short a time.
    #[must_use]
    pub fn is_too_short(&self, visibility: Duration) -> Option<TooShort> {
        if 0 < self.late_deletes && self.deletes() <= 1_000 * self.late_deletes {
            return Some(TooShort::LateDeletes);
        }
        let is_tight = self.suggested_visibility().is_some_and(|fitting| visibility < fitting);
        (is_tight && self.extended == 0).then_some(TooShort::NoMargin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_visibility_timeout_is_suggested_from_the_slowest_in_a_thousand_and_a_margin() {
        let processing = vec![(100, 9_980), (20_000, 19), (50_000, 1)];
        let worked = Worked { processing, ..Worked::default() };
        assert_eq!(worked.suggested_visibility(), Some(30 * SECOND));
        assert_eq!(worked.is_too_short(30 * SECOND), None);
        assert_eq!(worked.is_too_short(29 * SECOND), Some(TooShort::NoMargin));
        let extending = Worked { extended: 1, ..worked };
        assert_eq!(extending.is_too_short(SECOND), None);
    }

    #[test]
    fn little_work_says_nothing() {
        let worked = Worked { processing: vec![(900_000, 99)], ..Worked::default() };
        assert_eq!(worked.suggested_visibility(), None);
        assert_eq!(worked.is_too_short(SECOND), None);
    }

    #[test]
    fn late_deletes_say_so_whatever_else_is_seen() {
        let processing = vec![(100, 1_000)];
        let worked = Worked { processing, late_deletes: 1, extended: 5 };
        assert_eq!(worked.is_too_short(SECOND), Some(TooShort::LateDeletes));
        let rare = Worked { processing: vec![(100, 1_001)], ..worked };
        assert_eq!(rare.is_too_short(SECOND), None);
    }
}
