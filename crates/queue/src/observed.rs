//! What a leader has seen since it leads: how often, how long, how fast, and why.
//!
//! None of it is part of the state: it is neither logged nor in snapshots, followers do not have it, and it
//! begins anew with every leadership. Nothing is decided from it; people, scalers and alerts ask for it.
//! Noting something costs the same however much was noted before.

use std::time::Duration;

use crate::record::{DeadReason, Return, Settlement};
use crate::subscription::{Live, Place};
use crate::time::QueueTime;

/// Buckets of [`Durations`]: the last one begins at 2^27 ms, a day and a half.
const DURATIONS: usize = 105;

/// How many durations were how long, by buckets of which each is a fifth to a fourth wider than the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Durations {
    counts: [u32; DURATIONS],
    sum_ms: u64,
}

impl Default for Durations {
    fn default() -> Self {
        Durations { counts: [0; DURATIONS], sum_ms: 0 }
    }
}

impl Durations {
    fn note(&mut self, duration: Duration) {
        let ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let count = &mut self.counts[bucket_of(ms)];
        *count = count.saturating_add(1);
        self.sum_ms = self.sum_ms.saturating_add(ms);
    }

    /// All of them together, in milliseconds.
    #[must_use]
    pub fn sum_ms(&self) -> u64 {
        self.sum_ms
    }

    /// The buckets that are not empty, the shortest first: each with the milliseconds below which its durations
    /// are, and how many there are.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let all = self.counts.iter().enumerate().filter(|(_, count)| **count != 0);
        all.map(|(bucket, count)| (end_of(bucket), u64::from(*count)))
    }

    fn add(&mut self, more: &Durations) {
        for (count, more) in self.counts.iter_mut().zip(&more.counts) {
            *count = count.saturating_add(*more);
        }
        self.sum_ms = self.sum_ms.saturating_add(more.sum_ms);
    }
}

/// Four buckets for every doubling; below four, one for each millisecond.
fn bucket_of(ms: u64) -> usize {
    if ms < 4 {
        return ms as usize;
    }
    let doublings = ms.ilog2() as usize;
    (4 * (doublings - 1) + (ms >> (doublings - 2) & 3) as usize).min(DURATIONS - 1)
}

/// The first millisecond that is too long for a bucket.
fn end_of(bucket: usize) -> u64 {
    match bucket {
        0..4 => bucket as u64 + 1,
        _ => (bucket as u64 % 4 + 5) << (bucket / 4 - 1),
    }
}

/// The duration below which `per_mille` of a thousand are, of buckets as [`Durations::buckets`] has them; nothing
/// where there are none.
#[must_use]
pub fn quantile(buckets: impl IntoIterator<Item = (u64, u64)>, per_mille: u64) -> Option<Duration> {
    let buckets: Vec<(u64, u64)> = buckets.into_iter().collect();
    let all: u64 = buckets.iter().map(|(_, count)| count).sum();
    let mut left = (all * per_mille).div_ceil(1_000);
    for (end, count) in buckets {
        if left <= count {
            return (all != 0).then(|| Duration::from_millis(end));
        }
        left -= count;
    }
    None
}

/// Up to how many receives a message of each bucket had when it was deleted; the last one has no end.
pub const RECEIVES_UP_TO: [u32; 7] = [1, 2, 3, 5, 10, 20, 100];

/// Milliseconds of one slot of a [`Rate`], and how many there are.
const SLOT_MS: u64 = 5_000;
const SLOTS: usize = 12;

/// How often something happened in the last minute.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rate {
    slots: [u32; SLOTS],
    newest: u64,
    /// When it was noted first.
    since: Option<QueueTime>,
}

impl Rate {
    pub(crate) fn note(&mut self, at: QueueTime, count: u32) {
        self.since.get_or_insert(at);
        let slot = at.0 / SLOT_MS;
        for passed in self.newest.max(slot.saturating_sub(SLOTS as u64))..slot {
            self.slots[(passed + 1) as usize % SLOTS] = 0;
        }
        self.newest = self.newest.max(slot);
        let now = &mut self.slots[self.newest as usize % SLOTS];
        *now = now.saturating_add(count);
    }

    /// In one second, on the average.
    pub(crate) fn per_second(&self, at: QueueTime) -> f64 {
        let mut rate = *self;
        rate.note(at, 0);
        let whole = SLOT_MS * (SLOTS as u64 - 1) + at.0 % SLOT_MS;
        let known = (at - self.since.unwrap_or(at)).as_millis() as u64;
        let ms = known.clamp(1_000, whole.max(1_000));
        rate.slots.iter().map(|count| f64::from(*count)).sum::<f64>() * 1_000.0 / ms as f64
    }
}

/// How long what is said of "recently" goes back, at least; twice that at most.
const RECENT: Duration = Duration::from_secs(15 * 60);

/// How deliveries went for a while.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recent {
    /// From being received to being deleted, for the last receive of each message.
    pub processing: Durations,
    /// Messages that were deleted after their lease had ended.
    pub late_deletes: u64,
    /// Leases that ended by themselves.
    pub leases_ended: u64,
    /// Times that a lease was prolonged.
    pub extended: u64,
}

impl Recent {
    fn add(&mut self, more: &Recent) {
        self.processing.add(&more.processing);
        self.late_deletes += more.late_deletes;
        self.leases_ended += more.leases_ended;
        self.extended += more.extended;
    }
}

/// What a leader has seen of one subscription.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    /// Messages that were handed out.
    pub(crate) received: u64,
    /// By [`Return`].
    returned: [u64; 5],
    /// By [`Settlement`].
    settled: [u64; 5],
    /// Messages that lie in another queue, by [`DeadReason`].
    moved: [u64; 6],
    receives: [u64; RECEIVES_UP_TO.len() + 1],
    receives_sum: u64,
    /// Everything before `now`.
    earlier: Recent,
    before: Recent,
    now: Recent,
    now_since: QueueTime,
    served: Rate,
}

impl Seen {
    /// What is recent begins anew when it has lasted long enough.
    fn become_later(&mut self, at: QueueTime) {
        let passed = at - self.now_since;
        if RECENT <= passed {
            self.earlier.add(&self.now);
            self.before = if passed < 2 * RECENT { self.now } else { Recent::default() };
            self.now = Recent::default();
            self.now_since = at;
        }
    }

    pub(crate) fn settled(&mut self, at: QueueTime, how: Settlement, count: usize) {
        self.become_later(at);
        self.settled[usize::from(how.byte())] += count as u64;
        self.served.note(at, u32::try_from(count).unwrap_or(u32::MAX));
    }

    /// One of them was deleted by its receiver; `live` is how it was before.
    pub(crate) fn deleted(&mut self, at: QueueTime, live: &Live) {
        self.now.processing.note(at - live.leased_at);
        self.now.late_deletes += u64::from(!matches!(live.place, Place::Leased { .. }));
        let bucket = match live.receives {
            0 | 1 => 0,
            receives => RECEIVES_UP_TO.partition_point(|up_to| *up_to < receives),
        };
        self.receives[bucket] += 1;
        self.receives_sum += u64::from(live.receives);
    }

    pub(crate) fn moved(&mut self, reason: DeadReason) {
        self.moved[usize::from(reason.byte())] += 1;
    }

    pub(crate) fn returned(&mut self, at: QueueTime, why: Return, count: usize) {
        self.become_later(at);
        self.returned[usize::from(why.byte())] += count as u64;
        self.now.leases_ended += if why == Return::LeaseExpired { count as u64 } else { 0 };
    }

    pub(crate) fn extended(&mut self, at: QueueTime, count: usize) {
        self.become_later(at);
        self.now.extended += count as u64;
    }

    pub(crate) fn served_per_second(&self, at: QueueTime) -> f64 {
        self.served.per_second(at)
    }

    /// All of it, as it is at `at`.
    pub(crate) fn observed(&self, at: QueueTime, arrivals: &Arrivals) -> Observed {
        let mut later = *self;
        later.become_later(at);
        let (mut always, mut recent) = (later.earlier, later.before);
        always.add(&later.now);
        recent.add(&later.now);
        Observed {
            admitted: arrivals.admitted,
            duplicates: arrivals.duplicates,
            received: self.received,
            returned: self.returned,
            settled: self.settled,
            moved: self.moved,
            receives: self.receives,
            receives_sum: self.receives_sum,
            always,
            recent,
            arrivals_per_second: arrivals.rate.per_second(at),
            served_per_second: self.served.per_second(at),
        }
    }
}

/// What a leader has seen of messages that came, whoever gets them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Arrivals {
    admitted: u64,
    duplicates: u64,
    rate: Rate,
}

impl Arrivals {
    pub(crate) fn per_second(&self, at: QueueTime) -> f64 {
        self.rate.per_second(at)
    }

    /// Messages have come; `void` of them are none or repeat others, `duplicates` of these the latter.
    pub(crate) fn note(&mut self, at: QueueTime, count: u32, void: u32, duplicates: u32) {
        let messages = count.saturating_sub(void);
        self.admitted += u64::from(messages);
        self.duplicates += u64::from(duplicates);
        self.rate.note(at, messages);
    }
}

/// What a leader has seen of one subscription of one partition since it leads.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// Messages that came, without repeats.
    pub admitted: u64,
    /// Messages that repeated others and are never delivered.
    pub duplicates: u64,
    /// Messages that were handed out, each time counted.
    pub received: u64,
    returned: [u64; 5],
    settled: [u64; 5],
    moved: [u64; 6],
    /// How many messages had been received how often when they were deleted, see [`RECEIVES_UP_TO`].
    pub receives: [u64; RECEIVES_UP_TO.len() + 1],
    /// How often all of them had been received together.
    pub receives_sum: u64,
    /// How deliveries went, since this broker leads.
    pub always: Recent,
    /// How they went in the last quarter to half of an hour.
    pub recent: Recent,
    /// Messages that came in one second, in the last minute.
    pub arrivals_per_second: f64,
    /// Messages that the subscription was done with in one second, in the last minute.
    pub served_per_second: f64,
}

impl Observed {
    /// Messages that came back, by why.
    #[must_use]
    pub fn returned(&self, why: Return) -> u64 {
        self.returned[usize::from(why.byte())]
    }

    /// Messages that the subscription is done with, by how.
    #[must_use]
    pub fn settled(&self, how: Settlement) -> u64 {
        self.settled[usize::from(how.byte())]
    }

    /// Messages that lie in another queue now, by why.
    #[must_use]
    pub fn moved(&self, reason: DeadReason) -> u64 {
        self.moved[usize::from(reason.byte())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_without_a_gap() {
        let mut begin = 0;
        for bucket in 0..DURATIONS - 1 {
            let end = end_of(bucket);
            assert_eq!((bucket_of(begin), bucket_of(end - 1)), (bucket, bucket), "from {begin}");
            assert!(end - begin <= begin / 4 + 1, "{begin} to {end}");
            begin = end;
        }
        assert_eq!(bucket_of(u64::MAX), DURATIONS - 1);
        assert!(12 * 3_600_000 < begin, "the longest lease has a bucket of its own");
    }

    #[test]
    fn one_in_a_thousand_is_seen() {
        let mut durations = Durations::default();
        (0..999).for_each(|_| durations.note(Duration::from_millis(100)));
        durations.note(Duration::from_secs(60));
        let at = |per_mille| quantile(durations.buckets(), per_mille).unwrap().as_millis();
        assert_eq!((at(500), at(999)), (112, 112));
        assert_eq!(at(1_000), 65_536);
        assert_eq!(durations.sum_ms(), 159_900);
        assert_eq!(quantile([], 999), None);
    }

    #[test]
    fn a_rate_is_that_of_the_last_minute() {
        let mut rate = Rate::default();
        for second in 0..600 {
            rate.note(QueueTime(second * 1_000), 7);
        }
        let per_second = rate.per_second(QueueTime(599_999));
        assert!((6.9..7.2).contains(&per_second), "{per_second}");
        assert_eq!(rate.per_second(QueueTime(660_001)), 0.0);
        // It does not take a minute to say something.
        let mut rate = Rate::default();
        rate.note(QueueTime(900_000), 10);
        rate.note(QueueTime(901_000), 10);
        assert_eq!(rate.per_second(QueueTime(902_000)), 10.0);
    }
}
