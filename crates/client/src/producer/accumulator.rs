//! The buffer between `send` and the sender task, and the choice of a partition.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::{Notify, Semaphore};
use towpath_model::PartitionIndex;
use towpath_records::partitioner::partition_of;

use super::queue::PartitionQueue;
use crate::error::Error;
use crate::image::Topic;
use crate::record::{OutgoingRecord, TopicPartition};

/// What `send` and the sender task share.
pub(super) struct Shared {
    pub(super) accumulator: Mutex<Accumulator>,
    /// Tells the sender task to look.
    pub(super) wake: Notify,
    /// Tells those who flush to look.
    pub(super) progress: Notify,
    /// One permit per byte of room in the buffer.
    pub(super) room: Semaphore,
}

impl Shared {
    pub(super) fn accumulator(&self) -> MutexGuard<'_, Accumulator> {
        self.accumulator.lock().expect("nothing panics while it holds this lock")
    }
}

#[derive(Default)]
pub(super) struct Accumulator {
    pub(super) partitions: HashMap<TopicPartition, PartitionQueue>,
    sticky: HashMap<Arc<str>, Sticky>,
    /// Callers that wait for room or for a flush.
    pub(super) hurried_by: usize,
    pub(super) is_closed: bool,
    /// Why nothing can be sent any more.
    pub(super) stopped: Option<Error>,
}

/// Records without a key stay on one partition until it got a batch's worth of bytes, so that
/// batches fill (KIP-480, KIP-794).
struct Sticky {
    partition: i32,
    partition_count: usize,
    bytes_left: usize,
}

impl Accumulator {
    /// Which partition `record` goes to.
    pub(super) fn choose_partition(
        &mut self,
        record: &OutgoingRecord,
        topic: &Topic,
        bytes: usize,
        batch_bytes: usize,
    ) -> PartitionIndex {
        if let Some(partition) = record.partition {
            return partition;
        }
        let count = u32::try_from(topic.partitions.len()).ok().and_then(NonZeroU32::new);
        let count =
            count.expect("a topic in the image has partitions, and Kafka counts them in i32");
        if let Some(key) = &record.key {
            return partition_of(key, count);
        }
        let sticky = self.sticky.entry(topic.name.clone()).or_insert(Sticky {
            partition: 0,
            partition_count: 0,
            bytes_left: 0,
        });
        if sticky.bytes_left == 0 || sticky.partition_count != topic.partitions.len() {
            *sticky = Sticky {
                partition: another_partition(topic, sticky.partition),
                partition_count: topic.partitions.len(),
                bytes_left: batch_bytes,
            };
        }
        sticky.bytes_left = sticky.bytes_left.saturating_sub(bytes);
        PartitionIndex(sticky.partition)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.partitions.values().all(PartitionQueue::is_idle)
    }
}

/// A partition with a leader, another one than before where there is a choice.
fn another_partition(topic: &Topic, before: i32) -> i32 {
    let led: Vec<i32> =
        topic.partitions.iter().filter(|p| p.leader.is_some()).map(|p| p.index.0).collect();
    let others: Vec<i32> = led.iter().copied().filter(|index| *index != before).collect();
    fastrand::choice(&others).or(led.first()).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;
    use towpath_model::{BrokerId, LeaderEpoch};
    use towpath_protocol::Uuid;

    use super::*;
    use crate::image::Partition;

    fn topic(partitions: i32) -> Topic {
        Topic {
            name: "t".into(),
            id: Uuid::ZERO,
            is_internal: false,
            partitions: (0..partitions)
                .map(|index| Partition {
                    index: PartitionIndex(index),
                    leader: (index != 1).then_some(BrokerId(1)),
                    leader_epoch: LeaderEpoch(0),
                    replicas: vec![],
                    in_sync: vec![],
                    offline: vec![],
                })
                .collect(),
            fetched_at: Instant::now(),
        }
    }

    #[test]
    fn keys_go_where_kafkas_default_partitioner_sends_them() {
        let mut accumulator = Accumulator::default();
        let record = OutgoingRecord::new("t", "v").key("foobar");
        let got = accumulator.choose_partition(&record, &topic(10), 1, 100);
        assert_eq!(got.0, (-790332482_i32 & i32::MAX) % 10);
    }

    #[test]
    fn records_without_a_key_change_partition_after_a_batch_of_bytes() {
        let mut accumulator = Accumulator::default();
        let topic = topic(4);
        let record = OutgoingRecord::new("t", "v");
        let mut choose = || accumulator.choose_partition(&record, &topic, 50, 100).0;
        let chosen: Vec<i32> = (0..8).map(|_| choose()).collect();
        for pair in chosen.chunks(2) {
            assert_eq!(pair[0], pair[1]);
            assert_ne!(pair[0], 1, "partition 1 has no leader");
        }
        assert!(chosen.windows(3).all(|w| w[0] != w[2] || w[0] != w[1]));
    }

    #[test]
    fn an_explicit_partition_wins() {
        let mut accumulator = Accumulator::default();
        let record = OutgoingRecord::new("t", "v").key("k").partition(1);
        assert_eq!(accumulator.choose_partition(&record, &topic(4), 1, 1).0, 1);
    }
}
