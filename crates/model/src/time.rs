//! Two clocks that must not be confused: one that only runs, one that people read.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A reading of the monotonic clock, in nanoseconds since an arbitrary start of this process.
/// All deadlines use it, so that a jump of the wall clock changes none of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub u64);

/// A reading of the wall clock, in milliseconds since 1970-01-01 UTC, as Kafka's records carry it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Timestamp(pub i64);

/// Both clocks, read at one moment; every step of a core gets one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    /// For deadlines.
    pub time: Time,
    /// For what is written into records and shown to people.
    pub wall: Timestamp,
}

impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, wait: Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Time> for Time {
    type Output = Duration;
    /// How long after `earlier`; zero when it is not earlier.
    fn sub(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Timestamp;
    fn add(self, wait: Duration) -> Timestamp {
        Timestamp(self.0.saturating_add(i64::try_from(wait.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
