//! What a producer's batch must be before it may enter a log: the checks of Kafka 4.4's broker
//! (`ProduceRequest.validateRecords`, `UnifiedLog.analyzeAndValidateRecords`, `LogValidator`), in
//! its order, in one pass and without an allocation while batches are good.
//!
//! Stricter than Kafka where leniency would store what a consumer cannot read, or guess: records
//! that are not well-formed inside (Kafka skips through compressed ones and does not look), bytes
//! after the batch (Kafka drops them) or after its compressed records, offset deltas that are not
//! 0, 1, 2… (Kafka stores uncompressed batches that have such, and fails on compressed ones),
//! attribute bits without a meaning, a delete horizon or LogAppendTime set by a producer, a
//! producer without an epoch. `tests/it/kafka_verdicts.rs` holds the two side by side.
//!
//! The surprise: Kafka does not believe the maximum timestamp that a batch declares, it corrects
//! it; [`Validated::stamp`] does so too, at the price of a new checksum, because time indexes
//! and ListOffsets rest on it.

use towpath_model::{LeaderEpoch, Offset, Timestamp};

use crate::compression::{Compression, CompressionError};
use crate::crc::check_crc;
use crate::header::{
    BatchHeader, HEADER_LEN, TimestampType, set_base_offset, set_leader_epoch, set_log_append_time,
    set_max_timestamp,
};
use crate::invalid_batch::{InvalidBatch, InvalidRecord, RecordProblem};
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
    /// Largest single record of a compressed batch after decompression, bytes
    /// (`max.decompressed.message.bytes`, new in Kafka 4.4).
    pub record_bytes_max: usize,
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
    for (index, record) in (0..).zip(RecordIter::over(header, plain)) {
        let record = record.map_err(|error| InvalidBatch::MalformedRecord { index, error })?;
        check_record(index, &record, &header, rules)?;
        findings.note(index, &record);
    }
    findings.conclude(plain.len())
}

/// Exactly one batch, from a client, not too large.
fn check_frame(bytes: &[u8], rules: &ProduceRules) -> Result<BatchHeader, InvalidBatch> {
    let header = BatchHeader::parse(bytes).map_err(InvalidBatch::Header)?;
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

/// What one record must be whatever the topic's timestamps and keys.
fn check_record(
    index: i32,
    record: &Record<'_>,
    header: &BatchHeader,
    rules: &ProduceRules,
) -> Result<(), InvalidBatch> {
    if record.offset_delta != index {
        let error = MalformedRecord::OffsetDelta {
            found: record.offset_delta,
            last: header.last_offset_delta(),
        };
        return Err(InvalidBatch::MalformedRecord { index, error });
    }
    let is_compressed = header.compression() != Ok(Compression::None);
    if is_compressed && rules.record_bytes_max < record.body_bytes {
        let (size, max) = (record.body_bytes, rules.record_bytes_max);
        return Err(InvalidBatch::RecordTooLarge { index, size, max });
    }
    Ok(())
}

fn refusal_of(error: RecordsError) -> InvalidBatch {
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
