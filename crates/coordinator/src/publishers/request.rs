//! What the HTTP side asks about a publisher, and what it is told to do.

use std::sync::Arc;
use std::time::Duration;

use towpath_model::{
    Offset, PartitionIndex, ProducerEpoch, ProducerId, Sequence, Timestamp, TopicId,
};

/// Settings of [`super::Publishers`]. The promise to callers (100 results, 24 hours) is fixed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishersConfig {
    /// Most publishers in one partition of the internal topic.
    pub publishers_max: usize,
    /// How long an append may take before its fate has to be asked for.
    pub append_timeout: Duration,
    /// How often forgotten publishers and old results are looked for.
    pub check_interval: Duration,
}

/// Who publishes what, in the caller's own numbers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Publisher {
    /// Into which topic.
    pub topic: TopicId,
    /// The caller's `producer_id` as text: the integer `7` and the text `"7"` are one publisher.
    /// It has nothing to do with Kafka's producer ids.
    pub name: Arc<str>,
}

/// One request to the publishers of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// A caller wants to publish.
    Begin {
        /// Who.
        publisher: Publisher,
        /// The caller's number of the message; it only has to rise.
        sequence: i64,
        /// Where the message belongs, unless an earlier attempt has settled that.
        partition: PartitionIndex,
        /// A Kafka producer id that nobody else has, once [`Reply::NeedsProducerId`] asked for
        /// it.
        producer_id: Option<ProducerId>,
    },
    /// The append that [`Reply::Append`] ordered is over, or the fate that [`Reply::Resolve`]
    /// asked about is known.
    Finish {
        /// Who.
        publisher: Publisher,
        /// Which attempt.
        number: u64,
        /// How it ended.
        outcome: Outcome,
    },
    /// The cluster deleted a topic: its publishers are forgotten.
    TopicDeleted {
        /// The topic.
        topic: TopicId,
    },
}

/// How an append ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The record is durable, now or already before (the partition recognised a repeat).
    Appended {
        /// Where.
        offset: Offset,
        /// The record's timestamp.
        timestamp: Timestamp,
    },
    /// The record is not in the partition.
    NotAppended,
}

/// What to append as whom: one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Intent {
    /// Number of the attempt, rising per publisher.
    pub number: u64,
    /// The caller's sequence.
    pub sequence: i64,
    /// Into which partition; it may differ from the one asked for, when an earlier attempt at the
    /// same sequence chose another.
    pub partition: PartitionIndex,
    /// As which Kafka producer.
    pub producer_id: ProducerId,
    /// In which of its incarnations.
    pub producer_epoch: ProducerEpoch,
    /// With which base sequence.
    pub producer_sequence: Sequence,
}

/// Where a message went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Published {
    /// Its partition.
    pub partition: PartitionIndex,
    /// Its offset.
    pub offset: Offset,
    /// Its timestamp.
    pub timestamp: Timestamp,
}

/// The answer to a [`Request`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// To `Begin`: append this, then `Finish` with its number, whatever happens.
    Append(Intent),
    /// To `Begin`: this sequence was published before; here is the first result.
    Repeat(Published),
    /// To `Begin`: the sequence lies before one that is known, and its result is not (409).
    Stale,
    /// To `Begin`: an append of this publisher is under way; ask again shortly.
    Busy,
    /// To `Begin`: the fate of an earlier append is not known. Ask its partition whether it holds
    /// this producer's epoch and sequence durably, `Finish` with the answer, and begin again.
    Resolve(Intent),
    /// To `Begin`: begin again with a fresh Kafka producer id.
    NeedsProducerId,
    /// To `Begin`: the publisher's name is empty or longer than
    /// [`PUBLISHER_NAME_BYTES_MAX`](super::PUBLISHER_NAME_BYTES_MAX).
    InvalidName,
    /// To `Begin`: there are too many publishers; those idle for 24 hours are forgotten.
    TooManyPublishers,
    /// To `Finish`: noted; a repeat will be answered by this.
    Finished,
    /// To `Finish`: another attempt has taken over (or the publisher is forgotten). If this one was
    /// appended all the same, its caller may be told so: the record is there, once.
    Superseded,
    /// To `TopicDeleted`: how many publishers were forgotten.
    TopicDeleted {
        /// Number of publishers.
        publishers: usize,
    },
}
