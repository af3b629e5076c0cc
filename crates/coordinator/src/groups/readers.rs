//! Who reads what: committed offsets, by the partition they are in.
//!
//! A fold over the *committed* records of one partition of the internal topic, turned around: the
//! groups are asked "where are you", lag and retention ask "who is here". [`super::Groups`] holds
//! what was appended and may still be lost in a crash; data may be deleted only on the ground of
//! what may not, so this state follows the high watermark.

use std::collections::BTreeMap;
use std::sync::Arc;

use towpath_model::{Offset, PartitionIndex, Timestamp, TopicId};

use super::record::Record;

/// A group's place in one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reader {
    /// The first offset it has not processed.
    pub offset: Offset,
    /// When it said so.
    pub committed_at: Timestamp,
    /// The topic it meant; [`TopicId::ZERO`] when its client knew none.
    pub topic_id: TopicId,
}

impl Reader {
    /// Whether it reads this topic, and not an earlier one of the same name.
    #[must_use]
    pub fn reads(&self, topic: TopicId) -> bool {
        self.topic_id.is_zero() || self.topic_id == topic
    }
}

/// The readers of one partition, by group.
pub type PartitionReaders = BTreeMap<Arc<str>, Reader>;

/// Every group with committed offsets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Readers {
    topics: BTreeMap<Arc<str>, BTreeMap<PartitionIndex, PartitionReaders>>,
}

impl Readers {
    /// Takes note of a committed record.
    pub fn apply(&mut self, record: &Record) {
        match record {
            Record::OffsetCommitted { group, topic, partition, committed } => {
                let reader = Reader {
                    offset: committed.offset,
                    committed_at: committed.committed_at,
                    topic_id: committed.topic_id,
                };
                let groups = self.topics.entry(topic.clone()).or_default();
                groups.entry(*partition).or_default().insert(group.clone(), reader);
            }
            Record::OffsetRemoved { group, topic, partition } => {
                self.remove(group, topic, *partition);
            }
            Record::Stored { .. }
            | Record::Live { .. }
            | Record::Member { .. }
            | Record::Heartbeat { .. }
            | Record::CheckOffsetsAt(_) => {}
        }
    }

    fn remove(&mut self, group: &Arc<str>, topic: &Arc<str>, partition: PartitionIndex) {
        let Some(partitions) = self.topics.get_mut(topic) else { return };
        if let Some(groups) = partitions.get_mut(&partition) {
            groups.remove(group);
            if groups.is_empty() {
                partitions.remove(&partition);
            }
        }
        if partitions.is_empty() {
            self.topics.remove(topic);
        }
    }

    /// Every partition of the topic that somebody reads.
    pub fn of_topic(
        &self,
        topic: &str,
    ) -> impl Iterator<Item = (PartitionIndex, &PartitionReaders)> {
        self.topics.get(topic).into_iter().flatten().map(|(partition, groups)| (*partition, groups))
    }

    /// The groups that read one partition of the topic.
    #[must_use]
    pub fn of_partition(
        &self,
        topic: &str,
        partition: PartitionIndex,
    ) -> Option<&PartitionReaders> {
        self.topics.get(topic)?.get(&partition)
    }

    /// Topics that somebody reads, by name.
    pub fn topics(&self) -> impl Iterator<Item = &Arc<str>> {
        self.topics.keys()
    }
}

#[cfg(test)]
mod tests {
    use super::super::reply::CommittedOffset;
    use super::*;

    fn committed(group: &str, partition: i32, offset: i64) -> Record {
        Record::OffsetCommitted {
            group: group.into(),
            topic: "orders".into(),
            partition: PartitionIndex(partition),
            committed: CommittedOffset {
                offset: Offset(offset),
                leader_epoch: None,
                metadata: "".into(),
                committed_at: Timestamp(7),
                expires_at: None,
                topic_id: TopicId::ZERO,
            },
        }
    }

    fn removed(group: &str, partition: i32) -> Record {
        Record::OffsetRemoved {
            group: group.into(),
            topic: "orders".into(),
            partition: PartitionIndex(partition),
        }
    }

    #[test]
    fn readers_are_found_by_partition_until_their_offsets_go() {
        let mut readers = Readers::default();
        for record in [committed("a", 0, 5), committed("b", 0, 9), committed("a", 1, 3)] {
            readers.apply(&record);
        }
        readers.apply(&committed("a", 0, 2));
        let of_0 = readers.of_partition("orders", PartitionIndex(0)).unwrap();
        let offsets: Vec<_> = of_0.iter().map(|(group, at)| (&**group, at.offset.0)).collect();
        assert_eq!(offsets, [("a", 2), ("b", 9)]);
        assert_eq!(readers.of_topic("orders").count(), 2);
        for record in [removed("a", 0), removed("b", 0), removed("a", 1), removed("a", 1)] {
            readers.apply(&record);
        }
        assert_eq!(readers, Readers::default());
    }

    #[test]
    fn an_offset_of_an_older_topic_of_that_name_reads_nothing() {
        let of = |topic_id| Reader { offset: Offset(1), committed_at: Timestamp(0), topic_id };
        let (old, new) = (TopicId::from_random_bytes([1; 16]), TopicId::from_random_bytes([2; 16]));
        assert!(!of(old).reads(new));
        assert!(of(new).reads(new) && of(TopicId::ZERO).reads(new));
    }
}
