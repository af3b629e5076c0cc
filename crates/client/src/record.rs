//! Records as an application sees them, before they are sent and after they were read.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use towpath_model::{LeaderEpoch, Offset, PartitionIndex, Timestamp};

/// A partition by its topic's name, as people and the group protocol name it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    /// The topic's name.
    pub topic: Arc<str>,
    /// Which of its partitions.
    pub partition: PartitionIndex,
}

impl TopicPartition {
    /// Names a partition.
    pub fn new(topic: impl Into<Arc<str>>, partition: i32) -> TopicPartition {
        TopicPartition { topic: topic.into(), partition: PartitionIndex(partition) }
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// One header: names may repeat, and a value may be absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The name.
    pub key: Arc<str>,
    /// The value.
    pub value: Option<Bytes>,
}

/// A record on its way out.
#[derive(Debug, Clone)]
pub struct OutgoingRecord {
    /// The topic it goes to.
    pub topic: Arc<str>,
    /// The partition, when the caller wants to choose it.
    pub partition: Option<PartitionIndex>,
    /// The key: records with the same key share a partition and keep their order.
    pub key: Option<Bytes>,
    /// The value; `None` is a tombstone.
    pub value: Option<Bytes>,
    /// The headers, in order.
    pub headers: Vec<Header>,
    /// When it happened; the time of sending when absent.
    pub timestamp: Option<Timestamp>,
}

impl OutgoingRecord {
    /// A record with a value and nothing else.
    pub fn new(topic: impl Into<Arc<str>>, value: impl Into<Bytes>) -> OutgoingRecord {
        OutgoingRecord {
            topic: topic.into(),
            partition: None,
            key: None,
            value: Some(value.into()),
            headers: Vec::new(),
            timestamp: None,
        }
    }

    /// With this key.
    #[must_use]
    pub fn key(mut self, key: impl Into<Bytes>) -> OutgoingRecord {
        self.key = Some(key.into());
        self
    }

    /// To this partition.
    #[must_use]
    pub fn partition(mut self, partition: i32) -> OutgoingRecord {
        self.partition = Some(PartitionIndex(partition));
        self
    }

    /// With one more header.
    #[must_use]
    pub fn header(mut self, key: impl Into<Arc<str>>, value: impl Into<Bytes>) -> OutgoingRecord {
        self.headers.push(Header { key: key.into(), value: Some(value.into()) });
        self
    }

    /// With this timestamp.
    #[must_use]
    pub fn timestamp(mut self, timestamp: Timestamp) -> OutgoingRecord {
        self.timestamp = Some(timestamp);
        self
    }

    /// An upper bound of its size inside a batch, before compression.
    pub(crate) fn size_bound(&self) -> usize {
        // Lengths and deltas are varints; none of those here is longer than 10 bytes.
        const FIELDS: usize = 24;
        const HEADER_FIELDS: usize = 10;
        let headers: usize = self
            .headers
            .iter()
            .map(|h| HEADER_FIELDS + h.key.len() + h.value.as_ref().map_or(0, Bytes::len))
            .sum();
        FIELDS
            + self.key.as_ref().map_or(0, Bytes::len)
            + self.value.as_ref().map_or(0, Bytes::len)
            + headers
    }
}

/// A record that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The topic's name.
    pub topic: Arc<str>,
    /// Its partition.
    pub partition: PartitionIndex,
    /// Its permanent place.
    pub offset: Offset,
    /// When it happened, or when it was appended, as the topic wants.
    pub timestamp: Timestamp,
    /// The leadership under which it was appended; `None` where the batch does not say.
    pub leader_epoch: Option<LeaderEpoch>,
    /// The key.
    pub key: Option<Bytes>,
    /// The value; `None` is a tombstone.
    pub value: Option<Bytes>,
    /// The headers, in order, repeated names kept.
    pub headers: Vec<Header>,
}
