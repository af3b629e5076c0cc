//! What a compaction leaves of a batch: the records that somebody decides to keep, under the same
//! header.
//!
//! Offsets, producer, sequences, leader epoch and codec stay; so a batch that has lost records has
//! gaps between its offset deltas, and still ends at its old last offset. A batch that keeps a
//! tombstone gets a *delete horizon* once (KIP-534): its base timestamp becomes the time after which
//! tombstones in it may go, and the records' timestamps are told as differences to that.

use thiserror::Error;
use towpath_model::Timestamp;

use crate::builder::{self, encode_batch};
use crate::compression::Compression;
use crate::header::{BatchHeader, HEADER_LEN, TimestampType};
use crate::record::{MalformedRecord, Record, RecordIter, RecordsError, plain_body};
use crate::scratch::Scratch;
use crate::varint;

/// Most bytes of records in the clear. A later base can make the smallest record, of 7 bytes, 9 bytes
/// longer: the result fits a batch all the same.
const PLAIN_BYTES_MAX: usize = builder::PLAIN_BYTES_MAX / 4;

/// What becomes of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It stays.
    Kept,
    /// It stays, and is a tombstone whose time begins to run now, unless it runs already.
    KeptUntilHorizon,
    /// It goes.
    Dropped,
}

/// What is left of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remainder {
    /// The batch as it is, byte for byte.
    Same,
    /// These bytes in its place.
    Changed(Vec<u8>),
    /// No record.
    Nothing,
}

/// Why a batch cannot be looked into. Its bytes are damaged, or were never valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RetainError {
    /// The batch as a whole.
    #[error(transparent)]
    Batch(#[from] RecordsError),
    /// One of its records.
    #[error(transparent)]
    Record(#[from] MalformedRecord),
}

/// Keeps the records of `batch` that `fate_of` wants. When a tombstone is kept and the batch has no
/// delete horizon yet, it gets `horizon`. The records in the clear have at most `plain_bytes_max`
/// bytes. The checksum is not looked at.
///
/// # Errors
/// When the batch cannot be read.
pub fn retain(
    batch: &[u8],
    plain_bytes_max: usize,
    horizon: Timestamp,
    scratch: &mut Scratch,
    mut fate_of: impl FnMut(&BatchHeader, &Record<'_>) -> Fate,
) -> Result<Remainder, RetainError> {
    let header = BatchHeader::parse(batch).map_err(RecordsError::Header)?;
    let declared = header.size_in_bytes();
    if declared != batch.len() {
        return Err(RecordsError::Size { declared, found: batch.len() }.into());
    }
    scratch.shrink();
    let cap = plain_bytes_max.min(PLAIN_BYTES_MAX);
    let plain = plain_body(&header, &batch[HEADER_LEN..], cap, scratch)?;
    let mut kept = Kept::new(&header);
    let mut iter = RecordIter::over(header, plain);
    loop {
        let before = iter.rest();
        let Some(record) = iter.next() else { break };
        let record = record?;
        let raw = &before[..before.len() - iter.rest().len()];
        match fate_of(&header, &record) {
            Fate::Dropped => kept.dropped += 1,
            fate => kept.note(&header, &record, raw, fate == Fate::KeptUntilHorizon),
        }
    }
    let gets_horizon = kept.has_tombstone && !header.has_delete_horizon();
    if kept.records.is_empty() && 0 < header.record_count() {
        return Ok(Remainder::Nothing);
    }
    if kept.dropped == 0 && !gets_horizon {
        return Ok(Remainder::Same);
    }
    Ok(Remainder::Changed(kept.encode(&header, gets_horizon.then_some(horizon))?))
}

/// The header of a batch without its records: who produced it, with which sequences, and which
/// offsets it had. Its maximum timestamp stays; no record has it.
#[must_use]
pub fn without_records(header: &BatchHeader) -> Vec<u8> {
    let mut fields = header.fields();
    fields.record_count = 0;
    fields.clear_delete_horizon();
    encode_batch(fields, Compression::None, &[])
}

struct Kept<'a> {
    records: Vec<&'a [u8]>,
    dropped: usize,
    has_tombstone: bool,
    max_timestamp: Option<Timestamp>,
}

impl<'a> Kept<'a> {
    fn new(header: &BatchHeader) -> Kept<'a> {
        // The count is a claim until the records have been read.
        let capacity = usize::try_from(header.record_count()).unwrap_or(0).min(4096);
        Kept {
            records: Vec::with_capacity(capacity),
            dropped: 0,
            has_tombstone: false,
            max_timestamp: None,
        }
    }

    fn note(&mut self, header: &BatchHeader, record: &Record<'_>, raw: &'a [u8], ages: bool) {
        self.records.push(raw);
        self.has_tombstone |= ages;
        let timestamp = header.timestamp_of(record.timestamp_delta);
        self.max_timestamp = self.max_timestamp.max(Some(timestamp));
    }

    fn encode(
        &self,
        header: &BatchHeader,
        horizon: Option<Timestamp>,
    ) -> Result<Vec<u8>, RetainError> {
        let compression = header.compression().map_err(RecordsError::UnknownCompression)?;
        let mut plain = Vec::with_capacity(self.records.iter().map(|raw| raw.len()).sum());
        let mut fields = header.fields();
        match horizon {
            None => self.records.iter().for_each(|raw| plain.extend_from_slice(raw)),
            Some(horizon) => {
                let moved = header.base_timestamp().0.wrapping_sub(horizon.0);
                for raw in &self.records {
                    put_later(raw, moved, &mut plain)?;
                }
                fields.set_delete_horizon(horizon);
            }
        }
        fields.record_count = i32::try_from(self.records.len()).unwrap_or(i32::MAX);
        if header.timestamp_type() == TimestampType::CreateTime {
            fields.max_timestamp = self.max_timestamp.unwrap_or(header.max_timestamp()).0;
        }
        Ok(encode_batch(fields, compression, &plain))
    }
}

/// Copies a record whose timestamp is told as a difference to a base that lies `moved` ms earlier.
/// Wraps where a difference leaves an i64, as reading it does.
fn put_later(raw: &[u8], moved: i64, out: &mut Vec<u8>) -> Result<(), MalformedRecord> {
    let mut body = raw;
    varint::take_i32(&mut body).ok_or(MalformedRecord::Field("record length"))?;
    let Some((attributes, mut rest)) = body.split_first() else {
        return Err(MalformedRecord::Field("attributes"));
    };
    let delta = varint::take_i64(&mut rest).ok_or(MalformedRecord::Field("timestamp delta"))?;
    let delta = delta.wrapping_add(moved);
    let length = 1 + varint::len_i64(delta) + rest.len();
    let length =
        i32::try_from(length).map_err(|_| MalformedRecord::InvalidLength(length as i64))?;
    varint::put_i32(out, length);
    out.push(*attributes);
    varint::put_i64(out, delta);
    out.extend_from_slice(rest);
    Ok(())
}

#[cfg(test)]
mod tests;
