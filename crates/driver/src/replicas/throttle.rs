//! How fast replicas are fed that are not in sync: a move must take nothing from those who serve.
//!
//! ```text
//! leader    position ─▶ owes? ─ yes ─▶ kept ── every tick ─▶ asked again
//!                            └─ no ──▶ records go out, and are owed
//! follower  records ─▶ written, and owed ─▶ owes? ─ yes ─▶ its next position is told later
//! ```
//!
//! How many bytes go out is known once they are read, so a meter lets the next ones wait and not
//! these. Portions are a tenth of a second's worth, so that slow rates are even too.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use towpath_log::disk::Disk;
use towpath_metadata::Throttled;
use towpath_model::{BrokerId, Time, TopicPartition};

use super::pull::Positions;
use crate::driver::Driver;
use crate::world::{Clock, Net};

const NANOS: u128 = 1_000_000_000;

/// What this broker has sent and taken in under limits, and who waits for it.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    sent: Mutex<Lane>,
    received: Mutex<Lane>,
    /// Partitions that are followed here and whose positions wait.
    waiting: Mutex<BTreeSet<TopicPartition>>,
    /// Whether a leader keeps positions, here.
    keeps_positions: AtomicBool,
}

/// One direction.
#[derive(Debug, Default)]
struct Lane {
    /// For replicas that are being added.
    added: Meter,
    /// For replicas and leaders that topics name.
    named: Meter,
}

/// Bytes a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    added: Option<u64>,
    named: Option<u64>,
}

/// Whether records may pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    /// As they come.
    Free,
    /// Under these limits, so many bytes now.
    Limited(Limits, usize),
    /// Later.
    Wait,
}

/// Bytes that have passed and are not paid for: they are by the time that goes by.
#[derive(Debug, Default)]
struct Meter {
    owed: u64,
    paid_until: Time,
}

impl Meter {
    /// Whether anything is owed, where so many bytes are paid in a second.
    fn owes(&mut self, now: Time, rate: u64) -> bool {
        let elapsed = (now - self.paid_until).as_nanos();
        let paid = elapsed * u128::from(rate) / NANOS;
        if u128::from(self.owed) <= paid {
            self.owed = 0;
            self.paid_until = now;
        } else if 0 < paid {
            self.owed -= u64::try_from(paid).expect("less than what is owed");
            // What is left of a byte is paid next time.
            let counted = u64::try_from(paid * NANOS / u128::from(rate)).unwrap_or(u64::MAX);
            self.paid_until = Time(self.paid_until.0.saturating_add(counted));
        }
        0 < self.owed
    }

    /// So many bytes pass. What time has paid for before counts for nothing: nobody saves up.
    fn charge(&mut self, now: Time, rate: u64, bytes: usize) {
        self.owes(now, rate);
        self.owed = self.owed.saturating_add(bytes as u64);
    }
}

impl Limits {
    fn portion(&self) -> usize {
        let slowest = self.added.into_iter().chain(self.named).min().unwrap_or(u64::MAX);
        usize::try_from(slowest / 10).unwrap_or(usize::MAX).max(1)
    }
}

impl Lane {
    fn pace(&mut self, now: Time, limits: Limits) -> Pace {
        let owes = |meter: &mut Meter, rate: Option<u64>| rate.is_some_and(|r| meter.owes(now, r));
        let waits = owes(&mut self.added, limits.added) | owes(&mut self.named, limits.named);
        if waits { Pace::Wait } else { Pace::Limited(limits, limits.portion()) }
    }

    fn passed(&mut self, now: Time, limits: Limits, bytes: usize) {
        for (meter, rate) in [(&mut self.added, limits.added), (&mut self.named, limits.named)] {
            if let Some(rate) = rate {
                meter.charge(now, rate, bytes);
            }
        }
    }
}

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// Whether records may go out to a follower.
    pub(super) fn pace_out(&self, id: TopicPartition, to: BrokerId) -> Pace {
        let me = self.settings.broker_id;
        let limits = self.feeding_limits(id, me, to, |throttled, leader_rate, _| {
            throttled.by_leader.then_some(leader_rate)
        });
        let Some(limits) = limits else { return Pace::Free };
        let now = self.clock.now().time;
        self.throttle.sent.lock().expect("no panic holds a meter").pace(now, limits)
    }

    /// A position is kept here, and looked at again soon.
    pub(super) fn note_kept(&self) {
        self.throttle.keeps_positions.store(true, Ordering::Relaxed);
    }

    /// So many bytes have gone out.
    pub(super) fn gone_out(&self, pace: Pace, bytes: usize) {
        if let Pace::Limited(limits, _) = pace {
            let now = self.clock.now().time;
            let mut lane = self.throttle.sent.lock().expect("no panic holds a meter");
            lane.passed(now, limits, bytes);
        }
    }

    /// So many bytes have come in. Says whether more may be asked for at once; if not, it will be.
    pub(super) fn may_ask_for_more(
        &self,
        id: TopicPartition,
        from: BrokerId,
        bytes: usize,
    ) -> bool {
        let Some(limits) = self.limits_in(id, from) else { return true };
        let now = self.clock.now().time;
        let waits = {
            let mut lane = self.throttle.received.lock().expect("no panic holds a meter");
            lane.passed(now, limits, bytes);
            lane.pace(now, limits) == Pace::Wait
        };
        if waits {
            self.throttle.waiting.lock().expect("no panic holds the list").insert(id);
        }
        !waits
    }

    fn limits_in(&self, id: TopicPartition, from: BrokerId) -> Option<Limits> {
        let me = self.settings.broker_id;
        self.feeding_limits(id, from, me, |throttled, _, follower_rate| {
            throttled.by_follower.then_some(follower_rate)
        })
    }

    fn feeding_limits(
        &self,
        id: TopicPartition,
        leader: BrokerId,
        follower: BrokerId,
        named: impl Fn(Throttled, u64, u64) -> Option<u64>,
    ) -> Option<Limits> {
        let image = self.image();
        let throttled = image.throttled(id.records(), leader, follower)?;
        let config = image.broker_config();
        let limits = Limits {
            added: throttled.is_added.then_some(config.reassignment_rate),
            named: named(throttled, config.leader_throttled_rate, config.follower_throttled_rate),
        };
        (limits.added.is_some() || limits.named.is_some()).then_some(limits)
    }

    /// Whether a followed partition waits before it asks for more.
    pub(super) fn is_held_up(&self, id: TopicPartition) -> bool {
        self.throttle.waiting.lock().expect("no panic holds the list").contains(&id)
    }

    /// Time has passed: who waited goes on, as far as may be.
    pub(super) fn go_on_feeding(&self, now: Time) {
        if self.throttle.keeps_positions.swap(false, Ordering::Relaxed) {
            self.feed_kept();
        }
        let waiting =
            std::mem::take(&mut *self.throttle.waiting.lock().expect("no panic holds the list"));
        let mut positions = Positions::new();
        let mut still = BTreeSet::new();
        for id in waiting {
            let Some(cell) = self.cell(id) else { continue };
            let Some((leader, id, position)) = self.position_for(&cell, None) else { continue };
            let waits = self.limits_in(id, leader).is_some_and(|limits| {
                let mut lane = self.throttle.received.lock().expect("no panic holds a meter");
                lane.pace(now, limits) == Pace::Wait
            });
            match waits {
                true => drop(still.insert(id)),
                false => positions.entry(leader).or_default().push((id, position)),
            }
        }
        self.throttle.waiting.lock().expect("no panic holds the list").extend(still);
        self.tell_positions(positions);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_meter_lets_through_what_its_rate_allows_and_no_more() {
        let limits = Limits { added: Some(1_000), named: None };
        let mut lane = Lane::default();
        let mut now = Time(7 * SECOND);
        let mut passed = 0;
        for _ in 0..200 {
            if let Pace::Limited(_, bytes) = lane.pace(now, limits) {
                assert_eq!(bytes, 100);
                lane.passed(now, limits, bytes);
                passed += bytes;
            }
            now = now + Duration::from_millis(50);
        }
        assert_eq!(passed, 10_000, "ten seconds' worth");
    }

    #[test]
    fn nobody_saves_up() {
        let limits = Limits { added: None, named: Some(1_000) };
        let mut lane = Lane::default();
        let now = Time(100 * SECOND);
        lane.passed(now, limits, 1_000);
        assert_eq!(lane.pace(now, limits), Pace::Wait, "though nothing passed for long");
        assert_eq!(lane.pace(Time(101 * SECOND), limits), Pace::Limited(limits, 100));
    }

    #[test]
    fn a_raised_rate_counts_for_what_is_owed_already() {
        let mut meter = Meter { owed: 1_000_000, paid_until: Time(0) };
        assert!(meter.owes(Time(SECOND), 1));
        assert!(!meter.owes(Time(2 * SECOND), 1_000_000));
        assert!(!Meter::default().owes(Time(0), 0));
        let mut stopped = Meter { owed: 1, paid_until: Time(0) };
        assert!(stopped.owes(Time(u64::MAX), 0), "a rate of nothing");
    }

    #[test]
    fn the_slower_of_two_limits_counts() {
        let limits = Limits { added: Some(1_000_000), named: Some(10) };
        let mut lane = Lane::default();
        assert_eq!(lane.pace(Time(0), limits), Pace::Limited(limits, 1));
        lane.passed(Time(0), limits, 10);
        assert_eq!(lane.pace(Time(SECOND / 2), limits), Pace::Wait);
        assert_eq!(lane.pace(Time(SECOND), limits), Pace::Limited(limits, 1));
    }
}
