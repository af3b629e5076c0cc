//! A partition with its log, behind one lock.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use towpath_broker::{Output, Partition};
use towpath_log::Log;
use towpath_log::disk::Disk;
use towpath_model::properties::TopicConfig;
use towpath_model::{BrokerId, LeaderEpoch, Offset, Time, TopicName, TopicPartition};
use towpath_replication::ReplicaPosition;

use crate::config::{delivery_config, log_config};
use crate::volume::VolumeIndex;

use crate::compact::Compactions;
use crate::fold_along::Followed;
use crate::forget::{Agreed, Forgotten};

/// One partition that this process holds a replica of. Shared by everybody who serves it; alive until the last of
/// them lets go, even when the topic is deleted meanwhile.
pub(crate) struct Cell<D: Disk> {
    pub(crate) id: TopicPartition,
    pub(crate) topic: TopicName,
    pub(crate) counted: Counted,
    /// The data directory that its log lies in.
    pub(crate) volume: VolumeIndex,
    /// This broker leads the partition; as under the lock, for lists.
    pub(crate) led: AtomicBool,
    slot: Mutex<Slot<D>>,
}

/// What went through a partition since it was opened.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    pub(crate) records_in: AtomicU64,
    /// Those of them that were acknowledged without waiting for anything (`acks=0`).
    pub(crate) records_acks_none: AtomicU64,
    /// Those that waited for the leader alone (`acks=1`).
    pub(crate) records_acks_leader: AtomicU64,
    /// Not taken, because their queue was full.
    pub(crate) records_refused: AtomicU64,
    pub(crate) bytes_in: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
}

/// What the lock guards.
pub(crate) struct Slot<D: Disk> {
    pub(crate) partition: Partition,
    pub(crate) log: Log<D>,
    pub(crate) config: Arc<TopicConfig>,
    /// The partition is on the list of the next sync round.
    pub(crate) awaits_sync: bool,
    /// That round is to be ordered by whoever holds the partition now.
    pub(crate) wants_round: bool,
    /// The partition is on the list of those whose start is to follow that of others.
    pub(crate) awaits_start: bool,
    /// The partition is on the list of those whose snapshot is due.
    pub(crate) awaits_snapshot: bool,
    /// The deadline that the driver has noted for the partition.
    pub(crate) scheduled: Option<Time>,
    /// No longer led here: the topic was deleted or the broker stops.
    pub(crate) closed: bool,
    pub(crate) compactions: Compactions,
    /// The data directory has failed: nothing is written any more, and only what had become durable
    /// before is read.
    pub(crate) failed: bool,
    /// Its state could not be written; time does not act on it before this.
    pub(crate) retry_at: Option<Time>,
    /// Followers that have everything, each with the position at which it waits for more.
    pub(crate) armed: Vec<(BrokerId, ReplicaPosition)>,
    /// The partition is on the list of those whose followers are told its lines.
    pub(crate) awaits_lines: bool,
    /// The partition is on the list of those whose followers are looked at.
    pub(crate) watched: bool,
    /// When the controller was last asked for an in-sync set.
    pub(crate) proposed_at: Option<Time>,
    /// A snapshot of deliveries that is not known to be committed: in which leadership it was appended,
    /// where it begins and ends.
    pub(crate) snapshot: Option<(LeaderEpoch, Offset, Offset)>,
    /// How large a delivery log may grow until its next snapshot.
    pub(crate) snapshot_at_bytes: u64,
    /// Up to where every message of a delivery log's partition is settled for good.
    pub(crate) settled: SettledForGood,
    /// What a delivery log that is followed adds up to.
    pub(crate) followed: Option<Followed>,
    /// Which records of messages that are done with may go, by a delivery log that is led.
    pub(crate) agreed: Option<Box<Agreed>>,
    /// Which have gone from this log.
    pub(crate) forgotten: Option<Box<Forgotten>>,
}

/// Up to where every message is settled, by records of the delivery log that are committed: a deletion that a failover
/// takes back has not happened.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SettledForGood {
    /// In which leadership, and up to where.
    known: Option<(LeaderEpoch, Offset)>,
    /// The same, once the delivery log is committed up to the second offset.
    next: Option<(LeaderEpoch, Offset, Offset)>,
}

impl SettledForGood {
    /// What is known now, where messages are settled up to `settled` by a delivery log that ends at `end`.
    pub(crate) fn up_to(
        &mut self,
        epoch: LeaderEpoch,
        settled: Offset,
        end: Offset,
        high_watermark: Offset,
    ) -> Option<Offset> {
        let of_this = self.next.filter(|(of, ..)| *of == epoch);
        let (_, settled, needs) = *self.next.insert(of_this.unwrap_or((epoch, settled, end)));
        if needs <= high_watermark {
            self.known = Some((epoch, settled));
            self.next = None;
        }
        self.known.filter(|(of, _)| *of == epoch).map(|(_, settled)| settled)
    }
}

impl<D: Disk> Slot<D> {
    /// Takes over what a topic's configuration says.
    pub(crate) fn configure(
        &mut self,
        id: TopicPartition,
        config: &Arc<TopicConfig>,
        min_in_sync: u32,
        out: &mut Vec<Output>,
    ) {
        self.log.set_config(log_config(config, id));
        self.config = Arc::clone(config);
        self.partition.tell_deliveries(|deliveries| {
            deliveries.configure(Arc::new(delivery_config(config)));
        });
        self.partition.configured(min_in_sync, config.durability, out);
    }

    /// Whether this broker leads the partition.
    pub(crate) fn leads(&self) -> bool {
        !self.closed && self.partition.is_led()
    }

    /// When time is to act on the state; never on one that is no longer led here.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let deadline = self.partition.next_deadline().filter(|_| self.leads())?;
        Some(self.retry_at.map_or(deadline, |at| at.max(deadline)))
    }
}

impl<D: Disk> Cell<D> {
    pub(crate) fn new(
        id: TopicPartition,
        topic: TopicName,
        volume: VolumeIndex,
        partition: Partition,
        log: Log<D>,
        config: Arc<TopicConfig>,
    ) -> Self {
        let slot = Slot {
            partition,
            log,
            config,
            awaits_sync: false,
            wants_round: false,
            awaits_start: false,
            awaits_snapshot: false,
            scheduled: None,
            closed: false,
            compactions: Compactions::default(),
            failed: false,
            retry_at: None,
            armed: Vec::new(),
            awaits_lines: false,
            watched: false,
            proposed_at: None,
            snapshot: None,
            snapshot_at_bytes: 0,
            settled: SettledForGood::default(),
            followed: None,
            agreed: None,
            forgotten: None,
        };
        let led = AtomicBool::new(slot.leads());
        Cell { id, topic, volume, counted: Counted::default(), led, slot: Mutex::new(slot) }
    }

    /// Locks the partition, if nobody holds it.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, Slot<D>>> {
        match self.slot.try_lock() {
            Ok(slot) => Some(slot),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(_)) => Some(self.lock()),
        }
    }

    /// Locks the partition. Never held over a wait; only an append is carried out under it.
    ///
    /// # Panics
    /// When a thread has panicked under this lock: the state may break its invariants, and the
    /// process must stop before it serves it.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Slot<D>> {
        self.slot.lock().expect("a panic under a partition's lock is a bug that ends the process")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_settled_counts_once_it_is_committed_and_in_one_leadership() {
        let (one, two) = (LeaderEpoch(1), LeaderEpoch(2));
        let mut settled = SettledForGood::default();
        let (mine, end) = (Offset(10), Offset(7));
        assert_eq!(settled.up_to(one, mine, end, Offset(6)), None);
        // More has been settled meanwhile; what is known is what was asked about first.
        assert_eq!(settled.up_to(one, Offset(20), Offset(9), Offset(7)), Some(Offset(10)));
        assert_eq!(settled.up_to(one, Offset(20), Offset(9), Offset(8)), Some(Offset(10)));
        assert_eq!(settled.up_to(two, Offset(12), Offset(9), Offset(8)), None);
        assert_eq!(settled.up_to(two, Offset(12), Offset(9), Offset(9)), Some(Offset(12)));
    }
}
