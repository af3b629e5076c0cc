//! What a producer's batch must be before it may enter a log: the checks of Kafka 4.4's broker
//! (`ProduceRequest.validateRecords`, `UnifiedLog.analyzeAndValidateRecords`, `LogValidator`), in
//! its order, in one pass and without an allocation while batches are good.
//!
//! Stricter than Kafka where leniency would store what a consumer cannot read, or guess: bytes
//! after the batch (Kafka drops them), offset deltas that are not 0, 1, 2… (Kafka rewrites
//! compressed batches that have such, and stores uncompressed ones), attribute bits without a
//! meaning, a delete horizon or LogAppendTime set by a producer.
//!
//! The surprise: Kafka does not believe the maximum timestamp that a batch declares, it corrects
//! it; [`Validated::stamp`] does so too, at the price of a new checksum, because time indexes
//! and ListOffsets rest on it.

use thiserror::Error;
use towpath_model::{LeaderEpoch, Offset, Timestamp};

use crate::crc::{CrcMismatch, check_crc};
use crate::header::{
    BatchHeader, HEADER_LEN, HeaderError, TimestampType, set_base_offset, set_leader_epoch,
    set_log_append_time, set_max_timestamp,
};
use crate::record::{MalformedRecord, Record, RecordIter, RecordsError, plain_body};
use crate::scratch::Scratch;

/// A record without a timestamp, as the wire has it.
const NO_TIMESTAMP: Timestamp = Timestamp(-1);
/// A batch of null keys names this many of them; the answer must not grow beyond its question.
const REPORTED_RECORDS_MAX: usize = 1_000;

/// What a topic asks of the batches that are produced to it.
#[derive(Debug, Clone, Copy)]
pub struct ProduceRules {
    /// Largest batch as it is sent, bytes (`max.message.bytes`).
    pub batch_bytes_max: usize,
    /// Largest batch after decompression, bytes; Kafka has no such bound.
    pub plain_bytes_max: usize,
    /// Whether every record needs a key (`cleanup.policy` has `compact`).
    pub requires_keys: bool,
    /// Whose timestamps count (`message.timestamp.type`).
    pub timestamp_type: TimestampType,
    /// How old a record may be, ms (`message.timestamp.before.max.ms`); for CreateTime only.
    pub timestamp_before_ms_max: i64,
    /// How far ahead a record may be, ms (`message.timestamp.after.max.ms`); for CreateTime only.
    pub timestamp_after_ms_max: i64,
    /// The time by which both are judged, and which LogAppendTime sets.
    pub now: Timestamp,
}

/// A batch that may be appended.
#[derive(Debug, Clone, Copy)]
pub struct Validated {
    /// Its header as the producer sent it.
    pub header: BatchHeader,
    /// Largest timestamp its records will have in the log; −1 where none has one.
    pub max_timestamp: Timestamp,
    /// Which record has it first, by its distance from the base offset; the last record for
    /// LogAppendTime, where all have it.
    pub max_timestamp_offset_delta: Option<i32>,
    /// Bytes of its records after decompression.
    pub plain_bytes: usize,
    timestamp_type: TimestampType,
}

impl Validated {
    /// Makes the batch what the log stores: its place, the leadership, and the timestamps where
    /// the broker sets or corrects them. `batch` is the one that was validated.
    ///
    /// # Panics
    /// When `batch` has another size.
    pub fn stamp(&self, batch: &mut [u8], base_offset: Offset, leader_epoch: LeaderEpoch) {
        assert_eq!(batch.len(), self.header.size_in_bytes());
        set_base_offset(batch, base_offset);
        set_leader_epoch(batch, leader_epoch);
        match self.timestamp_type {
            TimestampType::LogAppendTime => set_log_append_time(batch, self.max_timestamp),
            TimestampType::CreateTime if self.max_timestamp != self.header.max_timestamp() => {
                set_max_timestamp(batch, self.max_timestamp);
            }
            TimestampType::CreateTime => {}
        }
    }
}

/// Why a batch may not be appended. Each says the Kafka error that its client should hear.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidBatch {
    /// Not a batch at all. `CORRUPT_MESSAGE`.
    #[error(transparent)]
    Header(HeaderError),
    /// Another record format. `INVALID_RECORD`.
    #[error("record format {0} is not served, only format 2 is")]
    UnsupportedMagic(i8),
    /// The batch is cut off. `CORRUPT_MESSAGE`.
    #[error("the batch says it has {declared} bytes, only {found} are there")]
    Truncated {
        /// Its declared size.
        declared: usize,
        /// What is there.
        found: usize,
    },
    /// More than one batch, or something behind it. `INVALID_RECORD`.
    #[error("{0} bytes follow the batch; a produce request has exactly one per partition")]
    TrailingBytes(usize),
    /// A client's batch begins at offset 0. `INVALID_RECORD`.
    #[error("the base offset of a produced batch is 0, not {0}")]
    BaseOffset(Offset),
    /// Larger than `max.message.bytes`. `MESSAGE_TOO_LARGE`, after which clients split.
    #[error("the batch has {size} bytes, the topic allows {max}")]
    TooLarge {
        /// Its size.
        size: usize,
        /// What is allowed.
        max: usize,
    },
    /// Damaged on the way. `CORRUPT_MESSAGE`, after which clients retry.
    #[error(transparent)]
    Crc(#[from] CrcMismatch),
    /// No records, or another number of offsets than of records. `INVALID_RECORD`.
    #[error("the batch counts {count} records, its offsets span {span}")]
    Count {
        /// Declared records.
        count: i32,
        /// Last offset − base offset + 1.
        span: i64,
    },
    /// Only brokers write markers. `INVALID_RECORD`.
    #[error("clients may not write control records")]
    Control,
    /// Transactions are not served yet. The edge chooses the code.
    #[error("transactional records are not supported yet")]
    Transactional,
    /// A producer without incarnation or sequence. `INVALID_RECORD`.
    #[error("producer epoch {epoch} with base sequence {base_sequence} is not valid")]
    Sequence {
        /// Its epoch.
        epoch: i16,
        /// Its base sequence.
        base_sequence: i32,
    },
    /// Bits without a meaning, or which only brokers set. `INVALID_RECORD`.
    #[error("attributes {0:#06x} have bits that producers may not set")]
    Attributes(i16),
    /// Only brokers say that a timestamp is theirs. `INVALID_TIMESTAMP`.
    #[error("producers may not set the timestamp type to LogAppendTime")]
    LogAppendTime,
    /// A codec that does not exist. `UNSUPPORTED_COMPRESSION_TYPE`.
    #[error("compression codec {0} does not exist")]
    UnknownCompression(u8),
    /// Decompression came to no good end though the checksum is right. `INVALID_RECORD`.
    #[error(transparent)]
    Compression(crate::compression::CompressionError),
    /// More than we are willing to decompress. `MESSAGE_TOO_LARGE`, after which clients split.
    #[error("the batch is larger than {max} bytes after decompression")]
    PlainTooLarge {
        /// What is allowed.
        max: usize,
    },
    /// A record is not one. `INVALID_RECORD`.
    #[error("record {index} of the batch: {error}")]
    MalformedRecord {
        /// Which, from 0.
        index: i32,
        /// What is wrong.
        error: MalformedRecord,
    },
    /// Records break the topic's rules. `INVALID_TIMESTAMP` where [`RecordProblem::Timestamp`] is
    /// among them, else `INVALID_RECORD`; with a record error for each of `records`.
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
    /// `INVALID_RECORD`.
    #[error("a compacted topic cannot accept a record without a key")]
    NullKey,
    /// `INVALID_TIMESTAMP`.
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

fn first_of(records: &[InvalidRecord]) -> String {
    records.first().map_or(String::new(), |record| format!("{}: {record}", record.index))
}

/// Checks the bytes that a producer sent for one partition.
///
/// Allocates only what `scratch` lacks, and for the list of refused records.
pub fn validate_produced(
    bytes: &[u8],
    rules: &ProduceRules,
    scratch: &mut Scratch,
) -> Result<Validated, InvalidBatch> {
    let header = check_frame(bytes, rules)?;
    check_crc(&header, bytes)?;
    check_header(&header)?;

    scratch.shrink();
    let plain = plain_body(&header, &bytes[HEADER_LEN..], rules.plain_bytes_max, scratch)
        .map_err(refusal_of)?;
    if rules.plain_bytes_max < plain.len() {
        return Err(InvalidBatch::PlainTooLarge { max: rules.plain_bytes_max });
    }
    let mut findings = Findings::new(rules, &header);
    let mut iter = RecordIter::over(header, plain);
    for index in 0..=header.record_count() {
        match iter.next() {
            None => break,
            Some(Ok(record)) if record.offset_delta == index => findings.note(index, &record),
            Some(Ok(record)) => {
                let error = MalformedRecord::OffsetDelta {
                    found: record.offset_delta,
                    last: header.last_offset_delta(),
                };
                return Err(InvalidBatch::MalformedRecord { index, error });
            }
            Some(Err(error)) => return Err(InvalidBatch::MalformedRecord { index, error }),
        }
    }
    findings.conclude(plain.len())
}

/// Exactly one batch, from a client, not too large.
fn check_frame(bytes: &[u8], rules: &ProduceRules) -> Result<BatchHeader, InvalidBatch> {
    let header = BatchHeader::parse(bytes).map_err(|error| match error {
        HeaderError::UnsupportedMagic(magic) => InvalidBatch::UnsupportedMagic(magic),
        HeaderError::NegativeCount(_) | HeaderError::NegativeOffsetDelta(_) => {
            InvalidBatch::Header(error)
        }
        error => InvalidBatch::Header(error),
    })?;
    let size = header.size_in_bytes();
    if bytes.len() < size {
        return Err(InvalidBatch::Truncated { declared: size, found: bytes.len() });
    }
    if size < bytes.len() {
        return Err(InvalidBatch::TrailingBytes(bytes.len() - size));
    }
    if header.base_offset() != Offset::ZERO {
        return Err(InvalidBatch::BaseOffset(header.base_offset()));
    }
    if rules.batch_bytes_max < size {
        return Err(InvalidBatch::TooLarge { size, max: rules.batch_bytes_max });
    }
    Ok(header)
}

/// What the header alone shows, once the checksum says that it is what the producer meant.
fn check_header(header: &BatchHeader) -> Result<(), InvalidBatch> {
    let count = header.record_count();
    let span = i64::from(header.last_offset_delta()) + 1;
    if count == 0 || i64::from(count) != span {
        return Err(InvalidBatch::Count { count, span });
    }
    if header.is_control() {
        return Err(InvalidBatch::Control);
    }
    let epoch = header.producer_epoch().0;
    let base_sequence = header.base_sequence().0;
    if header.producer_id().is_some() && (epoch < 0 || base_sequence < 0) {
        return Err(InvalidBatch::Sequence { epoch, base_sequence });
    }
    if header.is_transactional() {
        return Err(InvalidBatch::Transactional);
    }
    if header.unknown_attributes() != 0 || header.has_delete_horizon() {
        return Err(InvalidBatch::Attributes(header.attributes()));
    }
    if header.timestamp_type() == TimestampType::LogAppendTime {
        return Err(InvalidBatch::LogAppendTime);
    }
    Ok(())
}

fn refusal_of(error: RecordsError) -> InvalidBatch {
    use crate::compression::CompressionError;

    match error {
        RecordsError::Header(error) => InvalidBatch::Header(error),
        RecordsError::Size { declared, found } => InvalidBatch::Truncated { declared, found },
        RecordsError::UnknownCompression(id) => InvalidBatch::UnknownCompression(id),
        RecordsError::Compression(CompressionError::TooLarge { cap }) => {
            InvalidBatch::PlainTooLarge { max: cap }
        }
        RecordsError::Compression(error) => InvalidBatch::Compression(error),
    }
}

/// What one pass over the records finds out.
struct Findings<'r> {
    rules: &'r ProduceRules,
    header: BatchHeader,
    earliest: Timestamp,
    latest: Timestamp,
    max_timestamp: Timestamp,
    max_timestamp_offset_delta: Option<i32>,
    refused_count: usize,
    refused: Vec<InvalidRecord>,
    has_timestamp_problem: bool,
}

impl<'r> Findings<'r> {
    fn new(rules: &'r ProduceRules, header: &BatchHeader) -> Findings<'r> {
        let now = rules.now.0;
        Findings {
            rules,
            header: *header,
            earliest: Timestamp(now.saturating_sub(rules.timestamp_before_ms_max)),
            latest: Timestamp(now.saturating_add(rules.timestamp_after_ms_max)),
            max_timestamp: NO_TIMESTAMP,
            max_timestamp_offset_delta: None,
            refused_count: 0,
            refused: Vec::new(),
            has_timestamp_problem: false,
        }
    }

    fn note(&mut self, index: i32, record: &Record<'_>) {
        let timestamp = self.header.timestamp_of(record.timestamp_delta);
        if self.max_timestamp < timestamp {
            self.max_timestamp = timestamp;
            self.max_timestamp_offset_delta = Some(record.offset_delta);
        }
        if self.rules.requires_keys && record.key.is_none() {
            self.refuse(index, RecordProblem::NullKey);
        } else if self.is_out_of_bounds(timestamp) {
            let (earliest, latest) = (self.earliest, self.latest);
            self.has_timestamp_problem = true;
            self.refuse(index, RecordProblem::Timestamp { timestamp, earliest, latest });
        }
    }

    fn is_out_of_bounds(&self, timestamp: Timestamp) -> bool {
        self.rules.timestamp_type == TimestampType::CreateTime
            && timestamp != NO_TIMESTAMP
            && (timestamp < self.earliest || self.latest < timestamp)
    }

    fn refuse(&mut self, index: i32, problem: RecordProblem) {
        self.refused_count += 1;
        if self.refused.len() < REPORTED_RECORDS_MAX {
            self.refused.push(InvalidRecord { index, problem });
        }
    }

    fn conclude(self, plain_bytes: usize) -> Result<Validated, InvalidBatch> {
        if self.refused_count != 0 {
            return Err(InvalidBatch::Records {
                count: self.refused_count,
                records: self.refused,
                has_timestamp_problem: self.has_timestamp_problem,
            });
        }
        let (max_timestamp, max_timestamp_offset_delta) = match self.rules.timestamp_type {
            TimestampType::CreateTime => (self.max_timestamp, self.max_timestamp_offset_delta),
            TimestampType::LogAppendTime => (self.rules.now, Some(self.header.last_offset_delta())),
        };
        Ok(Validated {
            header: self.header,
            max_timestamp,
            max_timestamp_offset_delta,
            plain_bytes,
            timestamp_type: self.rules.timestamp_type,
        })
    }
}

#[cfg(test)]
mod tests;
