//! Ids and positions are types, so that two numbers side by side cannot be swapped.

use std::fmt;
use std::ops::{Add, Sub};

use serde::{Deserialize, Serialize};

use crate::uuid::TopicId;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize,
            Deserialize,
        )]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// Position of a record in a partition, its permanent identity; the first is 0.
    Offset(i64)
}
number! {
    /// Number of a partition's leadership; rises by at least one with every new leader.
    LeaderEpoch(i32)
}
number! {
    /// A broker of the cluster (Kafka's node id).
    BrokerId(i32)
}
number! {
    /// Number of a broker's registration, which every start renews: what an older one said or was
    /// told does not count any more (KIP-903).
    BrokerEpoch(i64)
}
number! {
    /// Identity of an idempotent producer, given out by the cluster (KIP-98).
    ProducerId(i64)
}
number! {
    /// Incarnation of a [`ProducerId`]; an older one is fenced (KIP-98).
    ProducerEpoch(i16)
}
number! {
    /// Number of a record among those of one producer in one partition; wraps from `i32::MAX` to 0.
    Sequence(i32)
}
number! {
    /// Round of a consumer group: rises with every completed rebalance.
    Generation(i32)
}
number! {
    /// Names one waiting request inside one process, so that its answer finds it again.
    Token(u64)
}

/// Which partition of a topic; the first is 0. A negative number is the delivery log of a partition, by
/// which it goes inside of brokers only: see [`TopicPartition::delivery_log`].
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct PartitionIndex(pub i32);

impl fmt::Display for PartitionIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            number if number < 0 => write!(f, "{}-deliveries", !number),
            number => number.fmt(f),
        }
    }
}

impl Offset {
    /// The first offset of every partition.
    pub const ZERO: Offset = Offset(0);

    /// The offset that follows this one.
    #[must_use]
    pub fn next(self) -> Offset {
        Offset(self.0 + 1)
    }
}

impl Add<i64> for Offset {
    type Output = Offset;
    fn add(self, records: i64) -> Offset {
        Offset(self.0 + records)
    }
}

impl Sub<Offset> for Offset {
    type Output = i64;
    fn sub(self, earlier: Offset) -> i64 {
        self.0 - earlier.0
    }
}

impl Sequence {
    /// The sequence `records` further on, wrapping from `i32::MAX` to 0 as Kafka's does.
    #[must_use]
    pub fn advance(self, records: i32) -> Sequence {
        let sum = i64::from(self.0) + i64::from(records);
        let wrapped = sum % (i64::from(i32::MAX) + 1);
        Sequence(i32::try_from(wrapped).expect("a remainder of 2^31 fits an i32"))
    }
}

/// One partition of one topic, by the topic's permanent id: a topic that is deleted and created
/// again under the same name is another topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TopicPartition {
    /// The topic.
    pub topic: TopicId,
    /// Which of its partitions.
    pub partition: PartitionIndex,
}

impl TopicPartition {
    /// The delivery log of this partition: the log beside its records of who was given what, where its
    /// topic is worked as a queue (ADR 0021). It goes by the complement of the partition's number, so
    /// that the log, replication and peer messages need no second kind of id. Clients never see it.
    #[must_use]
    pub fn delivery_log(self) -> TopicPartition {
        let PartitionIndex(number) = self.records().partition;
        TopicPartition { partition: PartitionIndex(!number), ..self }
    }

    /// The partition whose log this is: of a delivery log the one beside it, of anything else itself.
    /// What the metadata says of it holds for both.
    #[must_use]
    pub fn records(self) -> TopicPartition {
        let PartitionIndex(number) = self.partition;
        TopicPartition { partition: PartitionIndex(number.max(!number)), ..self }
    }

    /// Whether this is a delivery log.
    #[must_use]
    pub fn is_delivery_log(self) -> bool {
        self.partition < PartitionIndex(0)
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_wrap_to_zero_after_the_largest_i32() {
        assert_eq!(Sequence(i32::MAX).advance(1), Sequence(0));
        assert_eq!(Sequence(i32::MAX - 1).advance(3), Sequence(1));
        assert_eq!(Sequence(5).advance(2), Sequence(7));
    }

    #[test]
    fn a_partition_and_its_delivery_log_name_each_other() {
        let partition =
            |number| TopicPartition { topic: TopicId::ZERO, partition: PartitionIndex(number) };
        for (records, deliveries) in [(0, -1), (1, -2), (i32::MAX, i32::MIN)] {
            let (records, deliveries) = (partition(records), partition(deliveries));
            assert_eq!((records.delivery_log(), deliveries.records()), (deliveries, records));
            assert_eq!((deliveries.delivery_log(), records.records()), (deliveries, records));
            assert!(deliveries.is_delivery_log() && !records.is_delivery_log());
        }
        assert!(partition(-4).to_string().ends_with("-3-deliveries"));
        assert!(partition(3).to_string().ends_with("-3"));
    }
}
