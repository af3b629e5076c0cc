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
    /// Which partition of a topic; the first is 0.
    PartitionIndex(i32)
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
}
