//! Simulated time: a monotonic clock that only runs and a wall clock that also jumps (fault F11).

use std::time::Duration;

use towpath_model::{Now, Time, Timestamp};

use crate::rng::Rng;

/// Both clocks of one simulated machine.
#[derive(Debug, Clone)]
pub struct SimClock {
    now: Now,
    jumps: u64,
}

/// 2026-01-01T00:00:00Z: runs start on a plausible date.
const START: Timestamp = Timestamp(1_767_225_600_000);

const HOUR_MS: i64 = 3_600_000;

impl SimClock {
    /// A clock that has just started.
    #[must_use]
    pub fn new() -> SimClock {
        SimClock { now: Now { time: Time(0), wall: START }, jumps: 0 }
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
        self.now.time = self.now.time + wait;
        self.now.wall = self.now.wall + wait;
    }

    /// Moves the wall clock by up to an hour in either direction; the monotonic clock runs on.
    /// Returns the jump in milliseconds.
    pub fn jump_wall(&mut self, rng: &mut Rng) -> i64 {
        let jump = rng.below(2 * HOUR_MS as u64 + 1) as i64 - HOUR_MS;
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
        assert!(jump.abs() <= HOUR_MS);
    }
}
