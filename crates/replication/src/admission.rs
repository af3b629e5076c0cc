//! What a leader says to a batch before it is appended.

use thiserror::Error;
use towpath_model::{LeaderEpoch, Offset, ProducerEpoch, Sequence, Timestamp};

use crate::producers::SequenceRefusal;

/// What a producer waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acks {
    /// Nothing.
    None,
    /// The leader alone (in a synced topic: the leader's disk).
    Leader,
    /// Every in-sync replica, of which there must be `min.insync.replicas`.
    All,
}

/// A batch that may be answered with success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// To be appended, with these two written into its header first.
    Append {
        /// Offset of its first record: the log's end.
        base_offset: Offset,
        /// The leadership it is appended under.
        leader_epoch: LeaderEpoch,
    },
    /// It is in the log already. The answer is that of the first time, once `end_offset` is
    /// committed.
    Duplicate {
        /// Offset of its first record.
        base_offset: Offset,
        /// First offset after it.
        end_offset: Offset,
        /// Its largest timestamp, which Kafka answers as `log_append_time_ms` of a duplicate
        /// whatever the topic's timestamp type.
        append_time: Timestamp,
    },
}

/// Why a batch is not appended, in the order a producer would want to hear it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ProduceRefusal {
    /// `acks=all` with too few replicas to hold the records. Kafka: NOT_ENOUGH_REPLICAS (19),
    /// retriable.
    #[error("{in_sync} replicas are in sync, {min} are needed")]
    NotEnoughReplicas {
        /// Size of the in-sync set.
        in_sync: u32,
        /// `min.insync.replicas`, or the number of replicas where that is smaller.
        min: u32,
    },
    /// The producer has a newer incarnation. Kafka: INVALID_PRODUCER_EPOCH (47).
    #[error("producer epoch is older than the current one, {current}")]
    StaleProducerEpoch {
        /// The newest incarnation seen here.
        current: ProducerEpoch,
    },
    /// Records between this batch and the last one are missing. Kafka:
    /// OUT_OF_ORDER_SEQUENCE_NUMBER (45).
    #[error("sequence {got} where {expected} was expected")]
    OutOfOrderSequence {
        /// What would have been taken.
        expected: Sequence,
        /// What was sent.
        got: Sequence,
    },
    /// The batch has been appended, too long ago to say where. Kafka 4.4 answers
    /// OUT_OF_ORDER_SEQUENCE_NUMBER (45) here too, which tells the producer that its records are
    /// *not* in the log; DUPLICATE_SEQUENCE_NUMBER (46) is the truth, and clients take it for the
    /// success it is.
    #[error("sequence {got} was appended before the last {window} batches")]
    DuplicateBeyondWindow {
        /// What was sent.
        got: Sequence,
        /// How many batches are remembered.
        window: usize,
    },
}

impl From<SequenceRefusal> for ProduceRefusal {
    fn from(refusal: SequenceRefusal) -> ProduceRefusal {
        match refusal {
            SequenceRefusal::StaleEpoch { current } => {
                ProduceRefusal::StaleProducerEpoch { current }
            }
            SequenceRefusal::OutOfOrder { expected, got } => {
                ProduceRefusal::OutOfOrderSequence { expected, got }
            }
            SequenceRefusal::DuplicateBeyondWindow { got } => {
                ProduceRefusal::DuplicateBeyondWindow { got, window: crate::BATCHES_REMEMBERED }
            }
        }
    }
}
