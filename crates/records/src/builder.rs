//! Builds one batch, record by record: for the client, the HTTP edge and the records of our own
//! state machines.

use thiserror::Error;
use towpath_model::{Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};

use crate::compression::{self, Compression};
use crate::header::{BatchHeader, HEADER_LEN, HeaderFields, LENGTH_PREFIX_LEN, renew_crc};
use crate::varint;

/// Most bytes of records, before compression, that one batch takes: the format counts in i32, and
/// a batch must stay readable by everyone.
pub(crate) const PLAIN_BYTES_MAX: usize = 1 << 30;

/// Why a record does not go into a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BuilderRefusal {
    /// The batch would be larger than the format can count.
    #[error("a record batch cannot hold more than {PLAIN_BYTES_MAX} bytes")]
    Full,
    /// The timestamp is too far from the batch's base timestamp to be told as a difference.
    #[error("timestamp {0} is too far from the base timestamp of the batch")]
    TimestampOutOfRange(Timestamp),
}

/// A batch that is being filled. Records get the offsets 0, 1, 2…, counted from the base offset.
#[derive(Debug, Clone)]
pub struct BatchBuilder {
    compression: Compression,
    base_offset: Offset,
    base_timestamp: Timestamp,
    max_timestamp: Option<Timestamp>,
    producer: Option<(ProducerId, ProducerEpoch, Sequence)>,
    record_count: i32,
    plain: Vec<u8>,
}

impl BatchBuilder {
    /// An empty batch from no producer with base offset 0, as clients send it. `base_timestamp` is
    /// usually that of the first record; those of all records are told as differences to it.
    pub fn new(compression: Compression, base_timestamp: Timestamp) -> BatchBuilder {
        BatchBuilder {
            compression,
            base_offset: Offset::ZERO,
            base_timestamp,
            max_timestamp: None,
            producer: None,
            record_count: 0,
            plain: Vec::new(),
        }
    }

    /// Gives the batch its first offset, for those who know it before they write.
    pub fn set_base_offset(&mut self, base_offset: Offset) {
        self.base_offset = base_offset;
    }

    /// Names the idempotent producer, its incarnation and the sequence of the first record.
    pub fn set_producer(&mut self, id: ProducerId, epoch: ProducerEpoch, base_sequence: Sequence) {
        self.producer = Some((id, epoch, base_sequence));
    }

    /// Adds a record; refused ones leave the batch as it was.
    pub fn append<'h>(
        &mut self,
        timestamp: Timestamp,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: impl IntoIterator<Item = (&'h [u8], Option<&'h [u8]>), IntoIter: Clone>,
    ) -> Result<(), BuilderRefusal> {
        let timestamp_delta = timestamp
            .0
            .checked_sub(self.base_timestamp.0)
            .ok_or(BuilderRefusal::TimestampOutOfRange(timestamp))?;
        let fields = RecordFields {
            timestamp_delta,
            offset_delta: self.record_count,
            key,
            value,
            headers: headers.into_iter(),
        };
        let body_len = fields.body_len();
        if self.record_count == i32::MAX || PLAIN_BYTES_MAX - self.plain.len() < body_len + 5 {
            return Err(BuilderRefusal::Full);
        }
        fields.encode(body_len, &mut self.plain);
        self.record_count += 1;
        self.max_timestamp = self.max_timestamp.max(Some(timestamp));
        Ok(())
    }

    /// Records so far.
    pub fn record_count(&self) -> i32 {
        self.record_count
    }

    /// Whether no record has been added.
    pub fn is_empty(&self) -> bool {
        self.record_count == 0
    }

    /// Bytes of the batch if it were built now and did not compress: an upper estimate but for
    /// data that no codec makes smaller.
    pub fn size_in_bytes(&self) -> usize {
        HEADER_LEN + self.plain.len()
    }

    /// The finished batch.
    ///
    /// # Panics
    /// When it is empty: only compaction makes empty batches.
    pub fn build(self) -> Vec<u8> {
        assert!(!self.is_empty(), "a batch has at least one record");
        let (id, epoch, base_sequence) =
            self.producer.unwrap_or((ProducerId(-1), ProducerEpoch(-1), Sequence(-1)));
        let fields = HeaderFields {
            base_offset: self.base_offset.0,
            batch_length: 0,
            leader_epoch: -1,
            attributes: 0,
            last_offset_delta: self.record_count - 1,
            base_timestamp: self.base_timestamp.0,
            max_timestamp: self.max_timestamp.unwrap_or(self.base_timestamp).0,
            producer_id: id.0,
            producer_epoch: epoch.0,
            base_sequence: base_sequence.0,
            record_count: self.record_count,
        };
        encode_batch(fields, self.compression, &self.plain)
    }
}

/// A whole batch: `fields` with length and codec set, the compressed records, the checksum.
///
/// # Panics
/// When the batch is larger than an i32 counts; callers bound `plain`, and no codec doubles it.
pub(crate) fn encode_batch(
    mut fields: HeaderFields,
    compression: Compression,
    plain: &[u8],
) -> Vec<u8> {
    assert!(plain.len() <= PLAIN_BYTES_MAX);
    let mut batch = Vec::with_capacity(HEADER_LEN + plain.len() / 2 + 64);
    batch.resize(HEADER_LEN, 0);
    compression::compress(compression, plain, &mut batch);
    fields.batch_length = i32::try_from(batch.len() - LENGTH_PREFIX_LEN)
        .expect("no codec doubles what is at most 2^30 bytes");
    fields.set_compression(compression);
    batch[..HEADER_LEN].copy_from_slice(&BatchHeader::encode(&fields));
    renew_crc(&mut batch);
    batch
}

struct RecordFields<'a, H> {
    timestamp_delta: i64,
    offset_delta: i32,
    key: Option<&'a [u8]>,
    value: Option<&'a [u8]>,
    headers: H,
}

impl<'h, H: Iterator<Item = (&'h [u8], Option<&'h [u8]>)> + Clone> RecordFields<'_, H> {
    /// Bytes after the length; more than fits a batch where a slice's length does not fit an i32.
    fn body_len(&self) -> usize {
        let mut len = 1
            + varint::len_i64(self.timestamp_delta)
            + varint::len_i32(self.offset_delta)
            + nullable_len(self.key)
            + nullable_len(self.value);
        let mut count = 0_usize;
        for (key, value) in self.headers.clone() {
            len = len.saturating_add(nullable_len(Some(key)) + nullable_len(value));
            count += 1;
        }
        len.saturating_add(varint::len_i32(i32::try_from(count).unwrap_or(i32::MAX)))
    }

    /// Every length fits an i32: `body_len` is within `PLAIN_BYTES_MAX`.
    fn encode(self, body_len: usize, out: &mut Vec<u8>) {
        varint::put_i32(out, body_len as i32);
        let start = out.len();
        out.push(0);
        varint::put_i64(out, self.timestamp_delta);
        varint::put_i32(out, self.offset_delta);
        put_nullable(out, self.key);
        put_nullable(out, self.value);
        varint::put_i32(out, self.headers.clone().count() as i32);
        for (key, value) in self.headers {
            put_nullable(out, Some(key));
            put_nullable(out, value);
        }
        assert_eq!(out.len() - start, body_len);
    }
}

fn nullable_len(bytes: Option<&[u8]>) -> usize {
    match bytes {
        None => 1,
        Some(bytes) => {
            varint::len_i32(i32::try_from(bytes.len()).unwrap_or(i32::MAX)) + bytes.len()
        }
    }
}

fn put_nullable(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        None => varint::put_i32(out, -1),
        Some(bytes) => {
            varint::put_i32(out, bytes.len() as i32);
            out.extend_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests;
