//! Simulated time: a monotonic clock that only runs, perhaps a little too fast or too slow, and a wall clock that also
//! jumps (fault F11).

use std::time::Duration;

use towpath_model::{Now, Time, Timestamp};

use crate::rng::Rng;

/// Both clocks of one simulated machine.
#[derive(Debug, Clone)]
pub struct SimClock {
    now: Now,
    jumps: u64,
    /// How far the wall clock is from where it would be without jumps, in milliseconds.
    off_ms: i64,
    /// By how much the wall clock is too fast, in thousandths.
    drift_per_mille: i64,
    /// What the drift owes, in thousandths of a nanosecond each.
    drift_rest: i64,
    /// The same of the monotonic clock.
    rate_per_mille: i64,
    rate_rest: i64,
}

/// 2026-01-01T00:00:00Z: runs start on a plausible date.
const START: Timestamp = Timestamp(1_767_225_600_000);

const HOUR_MS: i64 = 3_600_000;

/// The furthest that one jump goes.
const JUMP_MS_MAX: i64 = 6 * HOUR_MS;

/// The furthest that all jumps together go: below the day after which broker and profiles agree
/// that publishers are forgotten.
const OFF_MS_MAX: i64 = 11 * HOUR_MS;

impl SimClock {
    /// A clock that has just started.
    #[must_use]
    pub fn new() -> SimClock {
        let now = Now { time: Time(0), wall: START };
        SimClock {
            now,
            jumps: 0,
            off_ms: 0,
            drift_per_mille: 0,
            drift_rest: 0,
            rate_per_mille: 0,
            rate_rest: 0,
        }
    }

    /// Lets the monotonic clock run too fast by so many thousandths, or too slow.
    pub fn set_rate(&mut self, per_mille: i64) {
        self.rate_per_mille = per_mille;
    }

    /// How long it takes until the monotonic clock has gone on by so much, at least.
    #[must_use]
    pub fn takes(&self, wait: Duration) -> Duration {
        if self.rate_per_mille == 0 {
            return wait;
        }
        let per_mille = u128::from(1_000_u64.saturating_add_signed(self.rate_per_mille));
        let nanos = (wait.as_nanos() * 1_000).div_ceil(per_mille) + 1;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Lets the wall clock run too fast by so many thousandths, or too slow.
    pub fn set_drift(&mut self, per_mille: i64) {
        self.drift_per_mille = per_mille;
    }

    /// Both readings.
    #[must_use]
    pub fn now(&self) -> Now {
        self.now
    }

    /// How often the wall clock has jumped: between two readings with the same number it ran true.
    #[must_use]
    pub fn jumps(&self) -> u64 {
        self.jumps
    }

    /// Lets time pass on both clocks.
    pub fn advance(&mut self, wait: Duration) {
        let nanos = i64::try_from(wait.as_nanos()).unwrap_or(i64::MAX / 2_000);
        let gained = self.rate_rest + nanos * self.rate_per_mille;
        self.rate_rest = gained.rem_euclid(1_000);
        let passed = nanos + gained.div_euclid(1_000);
        self.now.time = self.now.time + Duration::from_nanos(passed.unsigned_abs());
        let owed = self.drift_rest + nanos * self.drift_per_mille;
        const MILLI: i64 = 1_000_000_000;
        self.drift_rest = owed.rem_euclid(MILLI);
        self.now.wall = self.now.wall + wait;
        self.now.wall = Timestamp(self.now.wall.0 + owed.div_euclid(MILLI));
    }

    /// Moves the wall clock by up to six hours in either direction; the monotonic clock runs on.
    /// Returns the jump in milliseconds.
    pub fn jump_wall(&mut self, rng: &mut Rng) -> i64 {
        let max = rng.weighted(&[(2, HOUR_MS), (1, JUMP_MS_MAX)]);
        let mut jump = rng.below(2 * max as u64 + 1) as i64 - max;
        if OFF_MS_MAX < (self.off_ms + jump).abs() {
            jump = -jump;
        }
        self.off_ms += jump;
        self.now.wall = Timestamp(self.now.wall.0 + jump);
        self.jumps += 1;
        jump
    }
}

impl Default for SimClock {
    fn default() -> SimClock {
        SimClock::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_move_only_the_wall_clock() {
        let mut clock = SimClock::new();
        clock.advance(Duration::from_millis(5));
        let before = clock.now();
        let jump = clock.jump_wall(&mut Rng::new(1));
        assert_eq!(clock.now().time, before.time);
        assert_eq!(clock.now().wall.0, before.wall.0 + jump);
        assert!(jump.abs() <= JUMP_MS_MAX);
        let mut rng = Rng::new(2);
        for _ in 0..1_000 {
            clock.jump_wall(&mut rng);
            assert!(clock.off_ms.abs() <= OFF_MS_MAX);
        }
    }

    #[test]
    fn a_monotonic_clock_at_its_own_rate_gets_everywhere_in_the_time_that_it_takes() {
        for rate in [-2, 0, 2] {
            let mut clock = SimClock::new();
            clock.set_rate(rate);
            let wait = Duration::from_millis(2_007);
            let takes = clock.takes(wait);
            clock.advance(takes / 3);
            clock.advance(takes - takes / 3);
            let late = clock.now().time - (Time(0) + wait);
            assert!(late < Duration::from_nanos(5), "{rate}: {late:?}");
            // Each step is cut to milliseconds.
            let wall = clock.now().wall.0 - START.0;
            assert!(wall.abs_diff(takes.as_millis() as i64) <= 1, "{rate}: {wall} ms");
        }
    }

    #[test]
    fn a_clock_that_drifts_does_so_in_small_steps_too() {
        let mut clock = SimClock::new();
        clock.set_drift(-50);
        let before = clock.now();
        for _ in 0..2_000 {
            clock.advance(Duration::from_millis(1));
        }
        let after = clock.now();
        assert_eq!(after.time - before.time, Duration::from_secs(2));
        assert_eq!(after.wall.0 - before.wall.0, 1_900);
    }
}
