//! How far a group is behind in one partition, and when retention overtakes it.
//!
//! ```text
//! log start ── lost ──┐          ┌── committed          high watermark
//!     ▼               ▼          ▼                            ▼
//!     ├───────────────┼──────────┼──────── records ───────────┤
//! ```
//!
//! Pure arithmetic on facts that the log has: the command line, HTTP and the metrics all show what
//! comes out here. Every forecast is the earliest possible moment: a group that is told of two hours
//! has at least two hours, if the rate stays.

use std::time::Duration;

use towpath_model::{Offset, Timestamp};

/// From this part of retention on, a group is warned of.
pub const RATIO_WARNING: f64 = 0.5;

/// Where a group is in a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// The first offset it has not processed.
    pub committed: Offset,
    /// First offset kept.
    pub log_start_offset: Offset,
    /// First offset that nobody can read yet.
    pub high_watermark: Offset,
}

/// What the log knows of the records that the group has not read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Unread {
    /// Since when the first of them has been in the log.
    pub waiting_since: Option<Timestamp>,
    /// The time from which its age counts for retention.
    pub expires_from: Option<Timestamp>,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Bytes of the log that go with the first of them when retention by size removes it.
    pub bytes_to_segment_end: u64,
    /// Bytes of the log.
    pub log_bytes: u64,
    /// Bytes per second that are appended.
    pub rate: f64,
}

/// How long records are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// `retention.ms`; `None` is for ever.
    pub time: Option<Duration>,
    /// `retention.bytes`; `None` is without limit.
    pub bytes: Option<u64>,
    /// Bytes that retention's guard may still hold back for groups; `None`: it holds nothing.
    pub hold_bytes: Option<u64>,
}

/// The lag of a group in a partition.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Lag {
    /// Records that are there and not read.
    pub records: i64,
    /// Records that were deleted before they were read.
    pub lost_records: i64,
    /// Bytes that are there and not read, about.
    pub bytes: u64,
    /// How long the first unread record has waited; zero when there is none, `None` when nobody
    /// knows.
    pub age: Option<Duration>,
    /// Which part of what retention allows the lag takes, by time or by size, whichever is worse.
    /// `None` when nothing ever expires.
    pub retention_ratio: Option<f64>,
    /// How long until the first unread record may be deleted; `None`: not while things stay so.
    pub time_to_loss: Option<Duration>,
}

impl Standing {
    /// The first offset that the group has not read and that is still there.
    #[must_use]
    pub fn first_unread(&self) -> Offset {
        self.committed.max(self.log_start_offset)
    }

    /// Whether there is something to read.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.first_unread() < self.high_watermark
    }
}

impl Lag {
    /// The lag at `now`; `unread` is there exactly when the group is behind and its log could be
    /// asked.
    #[must_use]
    pub fn of(
        now: Timestamp,
        standing: &Standing,
        unread: Option<&Unread>,
        limits: &Limits,
    ) -> Lag {
        let records = (standing.high_watermark - standing.first_unread()).max(0);
        let lost_records = (standing.log_start_offset - standing.committed).max(0);
        let caught_up = (records == 0).then_some(Duration::ZERO);
        let is_limited = limits.time.is_some() || limits.bytes.is_some();
        let lag = Lag { records, lost_records, age: caught_up, ..Lag::default() };
        match unread {
            None => Lag { retention_ratio: (is_limited && records == 0).then_some(0.0), ..lag },
            Some(unread) => Lag {
                bytes: unread.bytes,
                age: unread.waiting_since.map(|since| elapsed(since, now)),
                retention_ratio: ratio(now, unread, limits),
                time_to_loss: time_to_loss(now, unread, limits),
                ..lag
            },
        }
    }

    /// [`Lag::age`] in seconds, to the millisecond.
    #[must_use]
    pub fn age_seconds(&self) -> Option<f64> {
        self.age.map(|age| age.as_millis() as f64 / 1000.0)
    }

    /// [`Lag::time_to_loss`] in whole seconds, never more than there are.
    #[must_use]
    pub fn seconds_to_loss(&self) -> Option<u64> {
        self.time_to_loss.map(|left| left.as_secs())
    }

    /// [`Lag::retention_ratio`] to four digits.
    #[must_use]
    pub fn rounded_ratio(&self) -> Option<f64> {
        self.retention_ratio.map(|ratio| (ratio * 10_000.0).round() / 10_000.0)
    }

    /// Whether the group has used up so much of retention that somebody should know.
    #[must_use]
    pub fn is_warned_of(&self) -> bool {
        self.retention_ratio.is_some_and(|ratio| RATIO_WARNING <= ratio)
    }
}

fn elapsed(since: Timestamp, now: Timestamp) -> Duration {
    Duration::from_millis(now.0.saturating_sub(since.0).max(0).unsigned_abs())
}

/// Ages are compared by the record's own wait and by the age of its segment, whichever is more: an
/// imported record of last year waits since today, and expires as one of last year.
fn ratio(now: Timestamp, unread: &Unread, limits: &Limits) -> Option<f64> {
    let ages = unread.waiting_since.into_iter().chain(unread.expires_from);
    let age = ages.map(|since| elapsed(since, now)).max();
    let by_time = limits.time.zip(age).map(|(keep, age)| {
        if keep.is_zero() { 1.0 } else { age.as_secs_f64() / keep.as_secs_f64() }
    });
    let by_size =
        limits.bytes.map(|keep| if keep == 0 { 1.0 } else { unread.bytes as f64 / keep as f64 });
    by_time.into_iter().chain(by_size).reduce(f64::max)
}

fn time_to_loss(now: Timestamp, unread: &Unread, limits: &Limits) -> Option<Duration> {
    let by_time = limits.time.zip(unread.expires_from);
    let by_time = by_time.map(|(keep, from)| keep.saturating_sub(elapsed(from, now)));
    let by_size = limits.bytes.and_then(|keep| {
        let removed_at = unread.bytes_to_segment_end.saturating_add(keep);
        after(removed_at.saturating_sub(unread.log_bytes), unread.rate)
    });
    let expires_in = by_time.into_iter().chain(by_size).min()?;
    match limits.hold_bytes {
        None => Some(expires_in),
        Some(left) => after(left, unread.rate).map(|held| expires_in.saturating_add(held)),
    }
}

/// How long `bytes` take at `rate`; `None`: they never come.
fn after(bytes: u64, rate: f64) -> Option<Duration> {
    if bytes == 0 {
        return Some(Duration::ZERO);
    }
    Duration::try_from_secs_f64(bytes as f64 / rate).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000);

    fn standing(committed: i64) -> Standing {
        Standing {
            committed: Offset(committed),
            log_start_offset: Offset(100),
            high_watermark: Offset(400),
        }
    }

    /// A record that has waited 500 s in a segment whose newest record is 300 s old.
    fn unread() -> Unread {
        Unread {
            waiting_since: Some(Timestamp(500_000)),
            expires_from: Some(Timestamp(700_000)),
            bytes: 600,
            bytes_to_segment_end: 500,
            log_bytes: 1_000,
            rate: 10.0,
        }
    }

    fn limits(seconds: Option<u64>, bytes: Option<u64>) -> Limits {
        Limits { time: seconds.map(Duration::from_secs), bytes, hold_bytes: None }
    }

    fn seconds(duration: Option<Duration>) -> Option<u64> {
        duration.map(|duration| duration.as_secs())
    }

    #[test]
    fn records_that_are_gone_are_lost_and_not_lag() {
        let at = |committed| {
            let lag = Lag::of(NOW, &standing(committed), None, &limits(None, None));
            (lag.records, lag.lost_records)
        };
        assert_eq!(at(250), (150, 0));
        assert_eq!(at(40), (300, 60));
        assert_eq!(at(400), (0, 0));
        assert_eq!(at(900), (0, 0), "offsets of a log that has lost its end");
    }

    #[test]
    fn whoever_has_read_everything_has_no_age_and_loses_nothing() {
        let lag = Lag::of(NOW, &standing(400), None, &limits(Some(60), None));
        assert_eq!((lag.age, lag.time_to_loss), (Some(Duration::ZERO), None));
        assert_eq!(lag.retention_ratio, Some(0.0));
        assert!(!lag.is_warned_of());
        let unknown = Lag::of(NOW, &standing(200), None, &limits(Some(60), None));
        assert_eq!((unknown.age, unknown.retention_ratio), (None, None));
    }

    #[test]
    fn the_worse_of_time_and_size_counts() {
        let lag = |limits| Lag::of(NOW, &standing(200), Some(&unread()), &limits);
        let by_time = lag(limits(Some(1_000), None));
        assert_eq!(seconds(by_time.age), Some(500));
        assert_eq!(by_time.retention_ratio, Some(0.5));
        assert!(by_time.is_warned_of());
        assert_eq!(seconds(by_time.time_to_loss), Some(700), "the segment's newest record counts");
        let by_size = lag(limits(None, Some(2_400)));
        assert_eq!(by_size.retention_ratio, Some(0.25));
        // 500 + 2,400 − 1,000 bytes at 10 a second.
        assert_eq!(seconds(by_size.time_to_loss), Some(190));
        let both = lag(limits(Some(1_000), Some(2_400)));
        assert_eq!(both.retention_ratio, Some(0.5));
        assert_eq!(seconds(both.time_to_loss), Some(190));
        let never = lag(limits(None, None));
        assert_eq!((never.retention_ratio, never.time_to_loss), (None, None));
    }

    #[test]
    fn what_is_due_already_may_go_at_once_and_without_appends_nothing_is_too_much() {
        let late = Lag::of(NOW, &standing(200), Some(&unread()), &limits(Some(10), None));
        assert_eq!(late.time_to_loss, Some(Duration::ZERO));
        let idle = Unread { rate: 0.0, ..unread() };
        let lag = Lag::of(NOW, &standing(200), Some(&idle), &limits(None, Some(2_400)));
        assert_eq!(lag.time_to_loss, None);
        let zero = Lag::of(NOW, &standing(200), Some(&unread()), &limits(Some(0), Some(0)));
        assert_eq!((zero.retention_ratio, seconds(zero.time_to_loss)), (Some(1.0), Some(0)));
    }

    #[test]
    fn a_hold_lasts_until_its_bytes_are_used_up() {
        let hold = |bytes| Limits { hold_bytes: Some(bytes), ..limits(Some(1_000), None) };
        let lag = |limits| Lag::of(NOW, &standing(200), Some(&unread()), &limits);
        assert_eq!(seconds(lag(hold(5_000)).time_to_loss), Some(1_200));
        assert_eq!(seconds(lag(hold(0)).time_to_loss), Some(700));
        let idle = Unread { rate: 0.0, ..unread() };
        let lag = Lag::of(NOW, &standing(200), Some(&idle), &hold(5_000));
        assert_eq!(lag.time_to_loss, None);
    }
}
