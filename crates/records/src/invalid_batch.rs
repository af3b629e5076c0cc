//! Why a produced batch may not enter a log, with the facts that its client needs.

use thiserror::Error;
use towpath_model::{Offset, Timestamp};

use crate::compression::CompressionError;
use crate::crc::CrcMismatch;
use crate::header::HeaderError;
use crate::record::MalformedRecord;

/// Why a batch may not be appended; [`InvalidBatch::class`] says what its client should hear.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidBatch {
    /// Not a batch at all.
    #[error(transparent)]
    Header(HeaderError),
    /// The batch is cut off.
    #[error("the batch says it has {declared} bytes, only {found} are there")]
    Truncated {
        /// Its declared size.
        declared: usize,
        /// What is there.
        found: usize,
    },
    /// More than one batch, or something behind it.
    #[error("{0} bytes follow the batch; a produce request has exactly one per partition")]
    TrailingBytes(usize),
    /// A client's batch begins at offset 0.
    #[error("the base offset of a produced batch is 0, not {0}")]
    BaseOffset(Offset),
    /// Larger than `max.message.bytes`.
    #[error("the batch has {size} bytes, the topic allows {max}")]
    TooLarge {
        /// Its size.
        size: usize,
        /// What is allowed.
        max: usize,
    },
    /// Damaged on the way.
    #[error(transparent)]
    Crc(#[from] CrcMismatch),
    /// No records, or another number of offsets than of records.
    #[error("the batch counts {count} records, its offsets span {span}")]
    Count {
        /// Declared records.
        count: i32,
        /// Last offset − base offset + 1.
        span: i64,
    },
    /// Only brokers write markers.
    #[error("clients may not write control records")]
    Control,
    /// Transactions are not served yet.
    #[error("transactional records are not supported yet")]
    Transactional,
    /// A producer without incarnation or sequence.
    #[error("producer epoch {epoch} with base sequence {base_sequence} is not valid")]
    Sequence {
        /// Its epoch.
        epoch: i16,
        /// Its base sequence.
        base_sequence: i32,
    },
    /// Bits without a meaning, or which only brokers set.
    #[error("attributes {0:#06x} have bits that producers may not set")]
    Attributes(i16),
    /// Only brokers say that a timestamp is theirs.
    #[error("producers may not set the timestamp type to LogAppendTime")]
    LogAppendTime,
    /// A codec that does not exist.
    #[error("compression codec {0} does not exist")]
    UnknownCompression(u8),
    /// Decompression came to no good end though the checksum is right.
    #[error(transparent)]
    Compression(CompressionError),
    /// More than we are willing to decompress.
    #[error("the batch is larger than {max} bytes after decompression")]
    PlainTooLarge {
        /// What is allowed.
        max: usize,
    },
    /// A record is not one.
    #[error("record {index} of the batch: {error}")]
    MalformedRecord {
        /// Which, from 0.
        index: i32,
        /// What is wrong.
        error: MalformedRecord,
    },
    /// A record of a compressed batch is larger than the topic allows.
    #[error("record {index} of the batch has {size} bytes, the topic allows {max}")]
    RecordTooLarge {
        /// Which, from 0.
        index: i32,
        /// Its size after decompression.
        size: usize,
        /// What is allowed.
        max: usize,
    },
    /// Records break the topic's rules; the answer has a record error for each of `records`.
    #[error("{count} records break the rules of the topic; the first is record {}", first_of(.records))]
    Records {
        /// How many.
        count: usize,
        /// The first of them, at most 1,000, in order.
        records: Vec<InvalidRecord>,
        /// Whether one of all of them has a timestamp out of bounds.
        has_timestamp_problem: bool,
    },
}

/// A record that breaks a rule of its topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{problem}")]
pub struct InvalidRecord {
    /// Which of the batch, from 0 (`batch_index` of Produce v8).
    pub index: i32,
    /// What is wrong with it.
    pub problem: RecordProblem,
}

/// Rules for single records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RecordProblem {
    /// The topic is compacted, which needs a key in every record.
    #[error("a compacted topic cannot accept a record without a key")]
    NullKey,
    /// The record is older or newer than the topic allows.
    #[error("timestamp {timestamp} is not within [{earliest}, {latest}]")]
    Timestamp {
        /// The record's.
        timestamp: Timestamp,
        /// Oldest that is allowed now.
        earliest: Timestamp,
        /// Newest that is allowed now.
        latest: Timestamp,
    },
}

/// What a client should hear about a batch that may not be appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InvalidBatchClass {
    /// Damaged on the way; sending it again may help. Kafka's `CORRUPT_MESSAGE`.
    Corrupt,
    /// Sending it again will not help. Kafka's `INVALID_RECORD`.
    Invalid,
    /// Kafka's `INVALID_TIMESTAMP`.
    Timestamp,
    /// Clients split the batch and send again. Kafka's `MESSAGE_TOO_LARGE`.
    TooLarge,
    /// Kafka's `UNSUPPORTED_COMPRESSION_TYPE`; its broker answers `UNKNOWN_SERVER_ERROR` here.
    UnsupportedCompression,
    /// Transactions, which are not served yet.
    Transactional,
}

impl InvalidBatch {
    /// What its client should hear: what Kafka 4.4's broker would say, where it would refuse.
    pub fn class(&self) -> InvalidBatchClass {
        match self {
            InvalidBatch::Header(HeaderError::InvalidLength(_)) | InvalidBatch::Crc(_) => {
                InvalidBatchClass::Corrupt
            }
            InvalidBatch::LogAppendTime
            | InvalidBatch::Records { has_timestamp_problem: true, .. } => {
                InvalidBatchClass::Timestamp
            }
            InvalidBatch::TooLarge { .. } | InvalidBatch::PlainTooLarge { .. } => {
                InvalidBatchClass::TooLarge
            }
            InvalidBatch::UnknownCompression(_) => InvalidBatchClass::UnsupportedCompression,
            InvalidBatch::Transactional => InvalidBatchClass::Transactional,
            _ => InvalidBatchClass::Invalid,
        }
    }
}

fn first_of(records: &[InvalidRecord]) -> String {
    records.first().map_or(String::new(), |record| format!("{}: {record}", record.index))
}
