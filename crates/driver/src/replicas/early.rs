//! Positions that come before this broker knows that it leads.
//!
//! Brokers hear of a new leader one after the other, within milliseconds, and a follower tells its position
//! once. Where it heard first, that position is kept until the leader leads: otherwise it would be missed
//! until it is told again, and nothing would be acknowledged meanwhile.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use towpath_log::disk::Disk;
use towpath_model::{BrokerEpoch, BrokerId, Time, TopicPartition};
use towpath_replication::ReplicaPosition;

use crate::driver::Driver;
use crate::world::{Clock, Net};

/// Most positions that are kept; what comes beyond is told again.
const KEPT_MAX: usize = 20_000;
/// How long a position is kept. By then it has been told again.
const KEPT_FOR: Duration = Duration::from_secs(1);

/// Who has told a position, of what registration.
type Teller = (BrokerId, BrokerEpoch);

/// What was told to this broker as a leader that it is not yet.
#[derive(Debug, Default)]
pub(crate) struct Early {
    positions: BTreeMap<TopicPartition, BTreeMap<BrokerId, (BrokerEpoch, ReplicaPosition)>>,
    /// When each of them came, in order; some may have been replaced or taken since.
    came: VecDeque<(Time, TopicPartition)>,
}

impl Early {
    fn keep(&mut self, now: Time, id: TopicPartition, told: ReplicaPosition, by: Teller) {
        if KEPT_MAX <= self.came.len() {
            return;
        }
        self.positions.entry(id).or_default().insert(by.0, (by.1, told));
        self.came.push_back((now, id));
    }

    fn take(&mut self, id: TopicPartition) -> Vec<(Teller, ReplicaPosition)> {
        let taken = self.positions.remove(&id).unwrap_or_default().into_iter();
        taken.map(|(from, (epoch, position))| ((from, epoch), position)).collect()
    }

    fn forget_old(&mut self, now: Time) {
        while let Some((came, id)) = self.came.front().copied()
            && came + KEPT_FOR <= now
        {
            self.came.pop_front();
            self.positions.remove(&id);
        }
    }
}

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// A follower of a leadership that has not begun here has told its position.
    pub(super) fn told_early(&self, id: TopicPartition, told: ReplicaPosition, by: Teller) {
        let now = self.clock.now().time;
        self.early.lock().expect("no panic holds the list").keep(now, id, told, by);
    }

    /// This broker leads a partition now: hears who has told a position before.
    pub(crate) fn hear_early(&self, id: TopicPartition) {
        let early = self.early.lock().expect("no panic holds the list").take(id);
        for ((from, epoch), position) in early {
            self.replicas_ask(from, epoch, &[(id, position)]);
        }
    }

    pub(super) fn forget_early(&self, now: Time) {
        self.early.lock().expect("no panic holds the list").forget_old(now);
    }
}

#[cfg(test)]
mod tests {
    use towpath_model::{LeaderEpoch, Offset, PartitionIndex, Uuid};

    use super::*;

    fn id(partition: i32) -> TopicPartition {
        TopicPartition {
            topic: Uuid::from_random_bytes([1; 16]),
            partition: PartitionIndex(partition),
        }
    }

    fn position(from: i64) -> ReplicaPosition {
        ReplicaPosition {
            leader_epoch: LeaderEpoch(1),
            from: Offset(from),
            last_epoch: None,
            durable_offset: Offset(0),
            log_start_offset: Offset(0),
        }
    }

    const BY: Teller = (BrokerId(2), BrokerEpoch(7));

    #[test]
    fn the_last_position_of_each_follower_is_kept_for_a_while() {
        let mut early = Early::default();
        early.keep(Time(0), id(0), position(1), BY);
        early.keep(Time(0), id(0), position(2), BY);
        early.keep(Time(0), id(0), position(3), (BrokerId(3), BrokerEpoch(1)));
        let told: Vec<i64> = early.take(id(0)).iter().map(|(_, told)| told.from.0).collect();
        assert_eq!(told, [2, 3]);
        assert!(early.take(id(0)).is_empty());
        early.keep(Time(0), id(1), position(1), BY);
        early.forget_old(Time(0) + KEPT_FOR);
        assert!(early.take(id(1)).is_empty() && early.came.is_empty());
    }

    #[test]
    fn no_more_than_a_bound_are_kept() {
        let mut early = Early::default();
        for partition in 0..=i32::try_from(KEPT_MAX).unwrap() {
            early.keep(Time(0), id(partition), position(1), BY);
        }
        assert_eq!(early.positions.len(), KEPT_MAX);
    }
}
