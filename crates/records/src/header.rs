//! The 61 bytes in front of every batch, as a value, and the few of them a broker may change.
//!
//! Parsing checks what every reader relies on (magic, lengths, offsets that fit an i64), not what a
//! producer may send: that is [`crate::validate_produced`].

use thiserror::Error;
use towpath_model::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};

use crate::compression::Compression;
use crate::crc;

/// Bytes before the first record of a batch.
pub const HEADER_LEN: usize = 61;
/// Bytes before the part that `batch length` counts: base offset and the length itself.
pub const LENGTH_PREFIX_LEN: usize = 12;
/// The only record format there is since Kafka 4.0 (KIP-724).
pub(crate) const MAGIC: i8 = 2;

const LEADER_EPOCH_AT: usize = 12;
pub(crate) const MAGIC_AT: usize = 16;
const CRC_AT: usize = 17;
/// The first byte the checksum covers.
const ATTRIBUTES_AT: usize = 21;
const MAX_TIMESTAMP_AT: usize = 35;

const COMPRESSION_BITS: i16 = 0b111;
const LOG_APPEND_TIME_BIT: i16 = 1 << 3;
const TRANSACTIONAL_BIT: i16 = 1 << 4;
const CONTROL_BIT: i16 = 1 << 5;
const DELETE_HORIZON_BIT: i16 = 1 << 6;
const KNOWN_BITS: i16 = 0b111_1111;

/// Why bytes are not the start of a v2 batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum HeaderError {
    /// Fewer bytes than a header.
    #[error("a record batch header has {HEADER_LEN} bytes, only {found} are there")]
    Truncated {
        /// Bytes that are there.
        found: usize,
    },
    /// Format 0 or 1, gone since Kafka 4.0, or one that does not exist.
    #[error("record format {0} is not served, only format 2 is")]
    UnsupportedMagic(i8),
    /// The declared length is shorter than the header or negative.
    #[error("batch length {0} is shorter than a batch header")]
    InvalidLength(i32),
    /// A negative count of records.
    #[error("record count {0} is negative")]
    NegativeCount(i32),
    /// The last offset lies before the first.
    #[error("last offset delta {0} is negative")]
    NegativeOffsetDelta(i32),
    /// The offset after the last record does not fit an i64.
    #[error("base offset {base} plus {delta} does not fit an offset")]
    OffsetOverflow {
        /// The base offset.
        base: i64,
        /// The last offset delta.
        delta: i32,
    },
}

/// What the timestamps of a batch mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimestampType {
    /// Set by the producer, per record.
    CreateTime,
    /// Set by the broker, one for the whole batch: its maximum timestamp.
    LogAppendTime,
}

/// Header of a record batch.
///
/// Invariant: `0 <= last_offset_delta`, `0 <= record_count`, `base_offset + last_offset_delta + 1`
/// fits an i64, and `HEADER_LEN <= size_in_bytes()`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    base_offset: i64,
    batch_length: i32,
    leader_epoch: i32,
    crc: u32,
    attributes: i16,
    last_offset_delta: i32,
    base_timestamp: i64,
    max_timestamp: i64,
    producer_id: i64,
    producer_epoch: i16,
    base_sequence: i32,
    record_count: i32,
}

impl BatchHeader {
    /// Reads the header at the start of `bytes`; what follows it is not looked at.
    pub fn parse(bytes: &[u8]) -> Result<BatchHeader, HeaderError> {
        let Some(header) = bytes.first_chunk::<HEADER_LEN>() else {
            return Err(HeaderError::Truncated { found: bytes.len() });
        };
        let magic = header[MAGIC_AT] as i8;
        if magic != MAGIC {
            return Err(HeaderError::UnsupportedMagic(magic));
        }
        let parsed = BatchHeader {
            base_offset: i64::from_be_bytes(array(header, 0)),
            batch_length: i32::from_be_bytes(array(header, 8)),
            leader_epoch: i32::from_be_bytes(array(header, LEADER_EPOCH_AT)),
            crc: u32::from_be_bytes(array(header, CRC_AT)),
            attributes: i16::from_be_bytes(array(header, ATTRIBUTES_AT)),
            last_offset_delta: i32::from_be_bytes(array(header, 23)),
            base_timestamp: i64::from_be_bytes(array(header, 27)),
            max_timestamp: i64::from_be_bytes(array(header, MAX_TIMESTAMP_AT)),
            producer_id: i64::from_be_bytes(array(header, 43)),
            producer_epoch: i16::from_be_bytes(array(header, 51)),
            base_sequence: i32::from_be_bytes(array(header, 53)),
            record_count: i32::from_be_bytes(array(header, 57)),
        };
        parsed.check()?;
        Ok(parsed)
    }

    fn check(&self) -> Result<(), HeaderError> {
        const SHORTEST: i32 = (HEADER_LEN - LENGTH_PREFIX_LEN) as i32;
        if self.batch_length < SHORTEST {
            return Err(HeaderError::InvalidLength(self.batch_length));
        }
        if self.record_count < 0 {
            return Err(HeaderError::NegativeCount(self.record_count));
        }
        if self.last_offset_delta < 0 {
            return Err(HeaderError::NegativeOffsetDelta(self.last_offset_delta));
        }
        let records = i64::from(self.last_offset_delta) + 1;
        if self.base_offset.checked_add(records).is_none() {
            return Err(HeaderError::OffsetOverflow {
                base: self.base_offset,
                delta: self.last_offset_delta,
            });
        }
        Ok(())
    }

    /// Offset of the first record the batch had when it was written.
    pub fn base_offset(&self) -> Offset {
        Offset(self.base_offset)
    }

    /// Offset of the last record the batch had when it was written; compaction does not change it.
    pub fn last_offset(&self) -> Offset {
        Offset(self.base_offset + i64::from(self.last_offset_delta))
    }

    /// First offset after the batch.
    pub fn next_offset(&self) -> Offset {
        self.last_offset().next()
    }

    /// Distance of the last offset from the base offset.
    pub fn last_offset_delta(&self) -> i32 {
        self.last_offset_delta
    }

    /// Leadership under which the batch was appended; −1 as producers send it.
    pub fn leader_epoch(&self) -> LeaderEpoch {
        LeaderEpoch(self.leader_epoch)
    }

    /// Bytes of the whole batch, header included.
    pub fn size_in_bytes(&self) -> usize {
        // `check` has seen that the length is positive.
        LENGTH_PREFIX_LEN + self.batch_length as usize
    }

    /// CRC-32C that the batch declares, over everything from the attributes on.
    pub fn crc(&self) -> u32 {
        self.crc
    }

    /// The raw attribute bits.
    pub fn attributes(&self) -> i16 {
        self.attributes
    }

    /// Codec of the records, or the number that names none.
    pub fn compression(&self) -> Result<Compression, u8> {
        Compression::from_id((self.attributes & COMPRESSION_BITS) as u8)
    }

    /// What the timestamps mean.
    pub fn timestamp_type(&self) -> TimestampType {
        if self.attributes & LOG_APPEND_TIME_BIT == 0 {
            TimestampType::CreateTime
        } else {
            TimestampType::LogAppendTime
        }
    }

    /// Whether the records belong to a transaction.
    pub fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL_BIT != 0
    }

    /// Whether the batch is a marker of the broker (commit, abort), not data.
    pub fn is_control(&self) -> bool {
        self.attributes & CONTROL_BIT != 0
    }

    /// Whether the base timestamp is the time after which tombstones may go (KIP-534).
    pub fn has_delete_horizon(&self) -> bool {
        self.attributes & DELETE_HORIZON_BIT != 0
    }

    /// Attribute bits that no version of the format has given a meaning.
    pub fn unknown_attributes(&self) -> i16 {
        self.attributes & !KNOWN_BITS
    }

    /// Timestamp to which the records' timestamps are relative.
    pub fn base_timestamp(&self) -> Timestamp {
        Timestamp(self.base_timestamp)
    }

    /// Largest timestamp of the records, as the batch declares it; −1 for none.
    pub fn max_timestamp(&self) -> Timestamp {
        Timestamp(self.max_timestamp)
    }

    /// Timestamp of the record with this delta. Wraps where the sum leaves an i64, as Java's does.
    pub fn timestamp_of(&self, timestamp_delta: i64) -> Timestamp {
        match self.timestamp_type() {
            TimestampType::CreateTime => {
                Timestamp(self.base_timestamp.wrapping_add(timestamp_delta))
            }
            TimestampType::LogAppendTime => self.max_timestamp(),
        }
    }

    /// Offset of the record with this delta. Wraps where the sum leaves an i64: only damaged bytes
    /// have such a delta, and [`crate::RecordIter`] refuses it first.
    pub fn offset_of(&self, offset_delta: i32) -> Offset {
        Offset(self.base_offset.wrapping_add(i64::from(offset_delta)))
    }

    /// The idempotent producer that wrote the batch, if one did.
    pub fn producer_id(&self) -> Option<ProducerId> {
        (self.producer_id >= 0).then_some(ProducerId(self.producer_id))
    }

    /// Incarnation of the producer; −1 without one.
    pub fn producer_epoch(&self) -> ProducerEpoch {
        ProducerEpoch(self.producer_epoch)
    }

    /// Sequence of the first record; −1 without a producer.
    pub fn base_sequence(&self) -> Sequence {
        Sequence(self.base_sequence)
    }

    /// Sequence of the last record: wraps from `i32::MAX` to 0; −1 without a producer.
    pub fn last_sequence(&self) -> Sequence {
        if self.base_sequence < 0 {
            return self.base_sequence();
        }
        self.base_sequence().advance(self.last_offset_delta)
    }

    /// Records that are in the batch now; 0 where compaction has left only the header.
    pub fn record_count(&self) -> i32 {
        self.record_count
    }

    /// The bytes of a header with these fields; `crc` is written as it is here.
    pub(crate) fn encode(fields: &HeaderFields) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        put(&mut out, 0, &fields.base_offset.to_be_bytes());
        put(&mut out, 8, &fields.batch_length.to_be_bytes());
        put(&mut out, LEADER_EPOCH_AT, &fields.leader_epoch.to_be_bytes());
        put(&mut out, MAGIC_AT, &MAGIC.to_be_bytes());
        put(&mut out, ATTRIBUTES_AT, &fields.attributes.to_be_bytes());
        put(&mut out, 23, &fields.last_offset_delta.to_be_bytes());
        put(&mut out, 27, &fields.base_timestamp.to_be_bytes());
        put(&mut out, MAX_TIMESTAMP_AT, &fields.max_timestamp.to_be_bytes());
        put(&mut out, 43, &fields.producer_id.to_be_bytes());
        put(&mut out, 51, &fields.producer_epoch.to_be_bytes());
        put(&mut out, 53, &fields.base_sequence.to_be_bytes());
        put(&mut out, 57, &fields.record_count.to_be_bytes());
        out
    }

    pub(crate) fn fields(&self) -> HeaderFields {
        HeaderFields {
            base_offset: self.base_offset,
            batch_length: self.batch_length,
            leader_epoch: self.leader_epoch,
            attributes: self.attributes,
            last_offset_delta: self.last_offset_delta,
            base_timestamp: self.base_timestamp,
            max_timestamp: self.max_timestamp,
            producer_id: self.producer_id,
            producer_epoch: self.producer_epoch,
            base_sequence: self.base_sequence,
            record_count: self.record_count,
        }
    }
}

/// What a header is written from; the checksum follows from it and the body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeaderFields {
    pub(crate) base_offset: i64,
    pub(crate) batch_length: i32,
    pub(crate) leader_epoch: i32,
    pub(crate) attributes: i16,
    pub(crate) last_offset_delta: i32,
    pub(crate) base_timestamp: i64,
    pub(crate) max_timestamp: i64,
    pub(crate) producer_id: i64,
    pub(crate) producer_epoch: i16,
    pub(crate) base_sequence: i32,
    pub(crate) record_count: i32,
}

impl HeaderFields {
    pub(crate) fn set_compression(&mut self, compression: Compression) {
        self.attributes = (self.attributes & !COMPRESSION_BITS) | i16::from(compression.id());
    }

    /// Makes the base timestamp the time after which tombstones may go.
    pub(crate) fn set_delete_horizon(&mut self, horizon: Timestamp) {
        self.attributes |= DELETE_HORIZON_BIT;
        self.base_timestamp = horizon.0;
    }

    /// For a batch without records: there is nothing that the base timestamp is the base of.
    pub(crate) fn clear_delete_horizon(&mut self) {
        self.attributes &= !DELETE_HORIZON_BIT;
        self.base_timestamp = -1;
    }
}

/// Gives a whole batch its first offset. The checksum does not cover it.
///
/// # Panics
/// When `batch` is shorter than a header: callers hold a parsed batch.
pub fn set_base_offset(batch: &mut [u8], base_offset: Offset) {
    assert!(HEADER_LEN <= batch.len());
    put(batch, 0, &base_offset.0.to_be_bytes());
}

/// Notes the leadership under which a whole batch is appended. The checksum does not cover it.
///
/// # Panics
/// When `batch` is shorter than a header: callers hold a parsed batch.
pub fn set_leader_epoch(batch: &mut [u8], leader_epoch: LeaderEpoch) {
    assert!(HEADER_LEN <= batch.len());
    put(batch, LEADER_EPOCH_AT, &leader_epoch.0.to_be_bytes());
}

/// Makes `now` the timestamp of every record of a whole batch (`message.timestamp.type`
/// `LogAppendTime`): sets the attribute bit and the maximum timestamp, leaves the records' own
/// timestamps as they are, and renews the checksum, which costs a read of the batch.
///
/// # Panics
/// When `batch` is shorter than a header: callers hold a parsed batch.
pub fn set_log_append_time(batch: &mut [u8], now: Timestamp) {
    assert!(HEADER_LEN <= batch.len());
    let attributes = i16::from_be_bytes(array(batch, ATTRIBUTES_AT)) | LOG_APPEND_TIME_BIT;
    put(batch, ATTRIBUTES_AT, &attributes.to_be_bytes());
    put(batch, MAX_TIMESTAMP_AT, &now.0.to_be_bytes());
    renew_crc(batch);
}

/// Corrects the maximum timestamp of a whole batch and renews the checksum. Kafka's broker does so
/// when a producer declared another maximum than its records have.
///
/// # Panics
/// When `batch` is shorter than a header: callers hold a parsed batch.
pub fn set_max_timestamp(batch: &mut [u8], max_timestamp: Timestamp) {
    assert!(HEADER_LEN <= batch.len());
    put(batch, MAX_TIMESTAMP_AT, &max_timestamp.0.to_be_bytes());
    renew_crc(batch);
}

/// Computes and stores the checksum of a whole batch.
pub(crate) fn renew_crc(batch: &mut [u8]) {
    let crc = crc::crc32c(&batch[ATTRIBUTES_AT..]);
    put(batch, CRC_AT, &crc.to_be_bytes());
}

/// The part of a whole batch that its checksum covers.
pub(crate) fn checksummed(batch: &[u8]) -> &[u8] {
    &batch[ATTRIBUTES_AT..]
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("the slice has N bytes")
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

#[cfg(test)]
mod tests;
