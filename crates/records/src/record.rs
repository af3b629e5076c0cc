//! Records inside a batch, borrowed from it (or, when it is compressed, from the scratch).
//!
//! ```text
//! length varint │ attributes i8 │ timestamp delta varlong │ offset delta varint
//!               │ key length varint, key │ value length varint, value      length −1: null
//!               │ header count varint │ key length, key, value length, value …
//! ```
//!
//! A record is checked whole before it is handed out, its headers included. Its attributes have no
//! bits yet; Kafka does not look at them and neither do we.

use thiserror::Error;

use crate::compression::{Compression, CompressionError};
use crate::header::{BatchHeader, HEADER_LEN, HeaderError};
use crate::scratch::Scratch;
use crate::varint;

/// Why the bytes of a record make no sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum MalformedRecord {
    /// Fewer records than the header counts.
    #[error("the batch ends before its last record")]
    Missing,
    /// The record's declared length is negative or larger than what is left.
    #[error("record length {0} does not fit the batch")]
    InvalidLength(i64),
    /// A field is cut off, or a number in it is too long.
    #[error("{0} is cut off or no valid number")]
    Field(&'static str),
    /// A length below −1, or −1 where null is not allowed.
    #[error("{0} has length {1}")]
    NegativeLength(&'static str, i32),
    /// The record has bytes after its last header.
    #[error("{0} bytes follow the record's last header")]
    TrailingBytes(usize),
    /// The batch has bytes after its last record.
    #[error("{0} bytes follow the last record")]
    TrailingBatchBytes(usize),
    /// An offset that is not after the one before, or not within the batch.
    #[error("offset delta {found} is out of order or beyond the last, {last}")]
    OffsetDelta {
        /// The record's.
        found: i32,
        /// The batch's last.
        last: i32,
    },
}

/// Why the records of a batch cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RecordsError {
    /// The batch is not one.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The batch is not all there, or more than it.
    #[error("the batch says it has {declared} bytes, {found} were given")]
    Size {
        /// Its declared size.
        declared: usize,
        /// What was given.
        found: usize,
    },
    /// The codec does not exist.
    #[error("compression codec {0} does not exist")]
    UnknownCompression(u8),
    /// The records cannot be decompressed.
    #[error(transparent)]
    Compression(#[from] CompressionError),
}

/// A record.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// Distance of its offset from the batch's base offset.
    pub offset_delta: i32,
    /// Distance of its timestamp from the batch's base timestamp, ms.
    pub timestamp_delta: i64,
    /// Its key.
    pub key: Option<&'a [u8]>,
    /// Its value; none is a tombstone on a compacted topic.
    pub value: Option<&'a [u8]>,
    /// Its headers, in order, duplicates included.
    pub headers: Headers<'a>,
    /// Bytes it has in the batch, after decompression and without its length in front.
    pub body_bytes: usize,
}

/// Headers of a record: an iterator of key and value.
///
/// Invariant: the bytes hold exactly `count` well-formed headers.
#[derive(Debug, Clone, Copy, Default)]
pub struct Headers<'a> {
    bytes: &'a [u8],
    count: i32,
}

impl<'a> Headers<'a> {
    fn check(count: i32, bytes: &'a [u8]) -> Result<Headers<'a>, MalformedRecord> {
        if count < 0 {
            return Err(MalformedRecord::NegativeLength("header count", count));
        }
        let mut rest = bytes;
        for _ in 0..count {
            take_header(&mut rest)?;
        }
        if !rest.is_empty() {
            return Err(MalformedRecord::TrailingBytes(rest.len()));
        }
        Ok(Headers { bytes, count })
    }

    /// How many are left.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether none is left.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl<'a> Iterator for Headers<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.count == 0 {
            return None;
        }
        self.count -= 1;
        Some(take_header(&mut self.bytes).expect("`check` has walked the same bytes"))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.len(), Some(self.len()))
    }
}

impl ExactSizeIterator for Headers<'_> {}

/// Iterator over the records of a batch; ends after the first error.
#[derive(Debug, Clone)]
pub struct RecordIter<'a> {
    header: BatchHeader,
    rest: &'a [u8],
    left: i32,
    previous_delta: i32,
    ended: bool,
}

/// Reads the records of one whole batch. Compressed ones are decompressed into `scratch`, to at
/// most `bytes_max` bytes. The checksum is not looked at.
pub fn records<'a>(
    batch: &'a [u8],
    bytes_max: usize,
    scratch: &'a mut Scratch,
) -> Result<RecordIter<'a>, RecordsError> {
    let header = BatchHeader::parse(batch)?;
    if header.size_in_bytes() != batch.len() {
        return Err(RecordsError::Size { declared: header.size_in_bytes(), found: batch.len() });
    }
    scratch.shrink();
    let plain = plain_body(&header, &batch[HEADER_LEN..], bytes_max, scratch)?;
    Ok(RecordIter::over(header, plain))
}

/// The records' bytes in the clear: the batch's own where it is not compressed. A batch that
/// compaction has emptied has no body at all, whatever its codec bits say.
pub(crate) fn plain_body<'a>(
    header: &BatchHeader,
    body: &'a [u8],
    bytes_max: usize,
    scratch: &'a mut Scratch,
) -> Result<&'a [u8], RecordsError> {
    match header.compression().map_err(RecordsError::UnknownCompression)? {
        Compression::None => Ok(body),
        _ if header.record_count() == 0 && body.is_empty() => Ok(body),
        compression => {
            scratch.make_room();
            scratch.decompressor.decompress(compression, body, bytes_max, &mut scratch.plain)?;
            Ok(&scratch.plain)
        }
    }
}

impl<'a> RecordIter<'a> {
    pub(crate) fn over(header: BatchHeader, plain: &'a [u8]) -> RecordIter<'a> {
        RecordIter {
            header,
            rest: plain,
            left: header.record_count(),
            previous_delta: -1,
            ended: false,
        }
    }

    /// Header of the batch.
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// Bytes of the records that were not taken yet.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn take(&mut self) -> Result<Option<Record<'a>>, MalformedRecord> {
        if self.left == 0 {
            return match self.rest.len() {
                0 => Ok(None),
                trailing => Err(MalformedRecord::TrailingBatchBytes(trailing)),
            };
        }
        let record = take_record(&mut self.rest)?;
        let last = self.header.last_offset_delta();
        if record.offset_delta <= self.previous_delta || last < record.offset_delta {
            return Err(MalformedRecord::OffsetDelta { found: record.offset_delta, last });
        }
        self.previous_delta = record.offset_delta;
        self.left -= 1;
        Ok(Some(record))
    }
}

impl<'a> Iterator for RecordIter<'a> {
    type Item = Result<Record<'a>, MalformedRecord>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let taken = self.take().transpose();
        self.ended = !matches!(taken, Some(Ok(_)));
        taken
    }
}

impl std::iter::FusedIterator for RecordIter<'_> {}

fn take_record<'a>(rest: &mut &'a [u8]) -> Result<Record<'a>, MalformedRecord> {
    if rest.is_empty() {
        return Err(MalformedRecord::Missing);
    }
    let length = varint::take_i32(rest).ok_or(MalformedRecord::Field("record length"))?;
    let taken = usize::try_from(length).ok().and_then(|length| rest.split_at_checked(length));
    let Some((mut record, after)) = taken else {
        return Err(MalformedRecord::InvalidLength(length.into()));
    };
    *rest = after;
    let body_bytes = record.len();

    let Some((_attributes, fields)) = record.split_first() else {
        return Err(MalformedRecord::Field("attributes"));
    };
    record = fields;
    let timestamp_delta =
        varint::take_i64(&mut record).ok_or(MalformedRecord::Field("timestamp delta"))?;
    let offset_delta =
        varint::take_i32(&mut record).ok_or(MalformedRecord::Field("offset delta"))?;
    let key = take_nullable(&mut record, "key")?;
    let value = take_nullable(&mut record, "value")?;
    let header_count =
        varint::take_i32(&mut record).ok_or(MalformedRecord::Field("header count"))?;
    let headers = Headers::check(header_count, record)?;
    Ok(Record { offset_delta, timestamp_delta, key, value, headers, body_bytes })
}

fn take_header<'a>(rest: &mut &'a [u8]) -> Result<(&'a [u8], Option<&'a [u8]>), MalformedRecord> {
    let key = take_nullable(rest, "header key")?
        .ok_or(MalformedRecord::NegativeLength("header key", -1))?;
    let value = take_nullable(rest, "header value")?;
    Ok((key, value))
}

fn take_nullable<'a>(
    rest: &mut &'a [u8],
    name: &'static str,
) -> Result<Option<&'a [u8]>, MalformedRecord> {
    let length = varint::take_i32(rest).ok_or(MalformedRecord::Field(name))?;
    if length == -1 {
        return Ok(None);
    }
    let length =
        usize::try_from(length).map_err(|_| MalformedRecord::NegativeLength(name, length))?;
    let (taken, after) = rest.split_at_checked(length).ok_or(MalformedRecord::Field(name))?;
    *rest = after;
    Ok(Some(taken))
}

#[cfg(test)]
mod tests;
