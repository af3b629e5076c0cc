//! The clock of a queue: how long it has been served, in milliseconds.
//!
//! ```text
//!   leader 1 ──────▶│ failover │ leader 2 ──────▶      wall clocks and the processes' own clocks differ,
//!   0 ··· 70 000        70 000 ··· 70 120 ···        this one only runs, and stands still while nobody leads
//! ```
//!
//! All deadlines of deliveries are points on it. Records carry it, so a new leader goes on where the
//! last record was, plus what has passed on its own monotonic clock since it read that record. That is
//! never more than what really passed: a lease may last longer by the time of a failover, and never
//! shorter (INV-Q2), and no jump of a wall clock changes any of it (INV-Q9).

use std::ops::{Add, Sub};
use std::time::Duration;

use towpath_model::Time;

/// Milliseconds on a queue partition's own clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct QueueTime(pub u64);

impl QueueTime {
    /// Later than everything.
    pub const MAX: QueueTime = QueueTime(u64::MAX);
}

impl Add<Duration> for QueueTime {
    type Output = QueueTime;
    fn add(self, wait: Duration) -> QueueTime {
        QueueTime(self.0.saturating_add(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)))
    }
}

impl Sub<QueueTime> for QueueTime {
    type Output = Duration;
    /// How long after `earlier`; zero when it is not earlier.
    fn sub(self, earlier: QueueTime) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// The clock of one partition in one process.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Clock {
    /// What the last record said.
    last: QueueTime,
    /// This process's own clock when `last` was read or said; none before that is known.
    seen_at: Option<Time>,
}

impl Clock {
    /// The time now: what was last known, and what has passed here since.
    pub(crate) fn now(&self, time: Time) -> QueueTime {
        self.seen_at.map_or(self.last, |at| self.last + (time - at))
    }

    /// What the last record said.
    pub(crate) fn last(&self) -> QueueTime {
        self.last
    }

    /// A record says what time it is. The next [`Clock::runs_from`] says when that was here.
    pub(crate) fn told(&mut self, at: QueueTime) {
        if self.last < at {
            // What had passed here since the last reading is in `at` already.
            self.seen_at = self.seen_at.map(|seen| seen + (at - self.last));
            self.last = at;
        }
    }

    /// Another leadership begins. Its clock may have stood still for a while that has passed here, so what has
    /// passed here means nothing any more, until [`Clock::runs_from`] is said again.
    pub(crate) fn forget_reading(&mut self) {
        self.seen_at = None;
    }

    /// It is `at`, and this process's clock says `time`.
    pub(crate) fn runs_from(&mut self, at: QueueTime, time: Time) {
        self.last = self.last.max(at);
        self.seen_at = Some(time);
    }

    /// When this process's clock will show that it is `at`.
    pub(crate) fn when(&self, at: QueueTime) -> Time {
        self.seen_at.map_or(Time(0), |seen| seen + (at - self.last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_leader_reads_what_has_passed_since_it_began() {
        let mut clock = Clock::default();
        clock.told(QueueTime(70_000));
        clock.runs_from(QueueTime(70_000), Time(0) + 5 * SECOND);
        assert_eq!(clock.now(Time(0) + 7 * SECOND), QueueTime(72_000));
        clock.told(QueueTime(71_500));
        assert_eq!(clock.now(Time(0) + 7 * SECOND), QueueTime(72_000));
        assert_eq!(clock.when(QueueTime(80_000)), Time(0) + 15 * SECOND);
    }

    #[test]
    fn without_a_reading_it_stands_still() {
        let mut clock = Clock::default();
        clock.told(QueueTime(9));
        assert_eq!(clock.now(Time(0) + 7 * SECOND), QueueTime(9));
    }

    #[test]
    fn it_never_goes_back() {
        let mut clock = Clock::default();
        clock.told(QueueTime(9));
        clock.told(QueueTime(4));
        clock.runs_from(QueueTime(2), Time(0));
        assert_eq!(clock.last(), QueueTime(9));
    }
}
