//! From record batches on disk to messages.
//!
//! A read begins somewhere inside a batch, since batches are found and stored whole: records
//! before the offset asked for are skipped. Every batch is checked before anything of it is given
//! out.

use towpath_driver::DiskFile;
use towpath_model::{Offset, Timestamp};
use towpath_records::{
    BatchHeader, CompressionError, Record, RecordsError, Scratch, TimestampType, records,
    split_batches,
};

use crate::api_error::{ApiError, Code};
use crate::encoding::Encoded;
use crate::message::{ReadHeader, ReadMessage};

/// Messages in order, and where to go on.
#[derive(Debug)]
pub(crate) struct Decoded {
    pub(crate) messages: Vec<ReadMessage>,
    pub(crate) next_offset: Offset,
    pub(crate) high_watermark: Offset,
}

/// What is to be decoded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Decoding {
    /// The first message, or where it should be.
    pub(crate) from: Offset,
    /// Most bytes of keys, values and headers, but at least one message.
    pub(crate) max_bytes: usize,
    pub(crate) high_watermark: Offset,
}

/// Reads `len` bytes of whole batches at `position`. Blocks on the disk.
pub(crate) fn read_bytes(
    file: &impl DiskFile,
    position: u64,
    len: usize,
) -> Result<Vec<u8>, ApiError> {
    let mut bytes = vec![0; len];
    let read = file.read_at(&mut bytes, position).map_err(|error| {
        ApiError::new(Code::StorageFailed, format!("the records cannot be read: {error}"))
    })?;
    bytes.truncate(read);
    Ok(bytes)
}

impl Decoding {
    /// Decodes batches, each in at most `plain_bytes_max` bytes. `None`: the first one that is wanted
    /// takes more.
    pub(crate) fn decode(
        &self,
        bytes: &[u8],
        plain_bytes_max: usize,
        scratch: &mut Scratch,
    ) -> Result<Option<Decoded>, ApiError> {
        let Decoding { from, max_bytes, high_watermark } = *self;
        let mut messages = Vec::new();
        let mut next_offset = from;
        let mut taken = 0;
        let some =
            |messages, next_offset| Ok(Some(Decoded { messages, next_offset, high_watermark }));
        for batch in split_batches(bytes) {
            batch.check_crc().map_err(|error| damaged(&batch.header, &error))?;
            if batch.header.next_offset() <= from {
                continue;
            }
            if !batch.header.is_control() {
                let found = match records(batch.bytes, plain_bytes_max, scratch) {
                    Err(RecordsError::Compression(CompressionError::TooLarge { .. })) => {
                        // The messages before it are an answer too.
                        return if next_offset == from {
                            Ok(None)
                        } else {
                            some(messages, next_offset)
                        };
                    }
                    found => found.map_err(|error| damaged(&batch.header, &error))?,
                };
                for record in found {
                    let record = record.map_err(|error| damaged(&batch.header, &error))?;
                    let offset = batch.header.base_offset() + i64::from(record.offset_delta);
                    if offset < from {
                        continue;
                    }
                    taken += record.body_bytes;
                    if max_bytes < taken && !messages.is_empty() {
                        return some(messages, next_offset);
                    }
                    messages.push(message(&batch.header, offset, &record));
                    next_offset = offset.next();
                }
            }
            next_offset = batch.header.next_offset();
        }
        if next_offset == from {
            let message = format!("no whole record batch lies at offset {from}");
            return Err(ApiError::new(Code::RecordsDamaged, message));
        }
        some(messages, next_offset)
    }
}

fn damaged(header: &BatchHeader, error: &dyn std::error::Error) -> ApiError {
    let message =
        format!("the record batch at offset {} is damaged: {error}", header.base_offset());
    tracing::error!("{message}");
    ApiError::new(Code::RecordsDamaged, message)
}

fn message(header: &BatchHeader, offset: Offset, record: &Record<'_>) -> ReadMessage {
    let headers = record
        .headers
        .map(|(name, value)| ReadHeader { name: Encoded::of(name), value: value.map(Encoded::of) });
    ReadMessage {
        offset: offset.0,
        timestamp: timestamp(header, record).0,
        key: record.key.map(Encoded::of),
        value: record.value.map(Encoded::of),
        headers: headers.collect(),
    }
}

fn timestamp(header: &BatchHeader, record: &Record<'_>) -> Timestamp {
    match header.timestamp_type() {
        TimestampType::LogAppendTime => header.max_timestamp(),
        TimestampType::CreateTime => {
            Timestamp(header.base_timestamp().0.saturating_add(record.timestamp_delta))
        }
    }
}

#[cfg(test)]
mod tests {
    use towpath_records::{BatchBuilder, Compression, set_base_offset};

    use super::*;

    fn batch(base: i64, values: &[&str], compression: Compression) -> Vec<u8> {
        let mut builder = BatchBuilder::new(compression, Timestamp(1000));
        for (at, value) in values.iter().enumerate() {
            let timestamp = Timestamp(1000 + i64::try_from(at).unwrap());
            builder.append(timestamp, None, Some(value.as_bytes()), []).unwrap();
        }
        let mut bytes = builder.build();
        set_base_offset(&mut bytes, Offset(base));
        bytes
    }

    fn read(bytes: &[u8], from: i64, max_bytes: usize) -> (Vec<(i64, String)>, i64) {
        let decoded = decode(bytes, from, max_bytes, 1 << 20).unwrap().unwrap();
        let texts = decoded.messages.into_iter().map(|m| (m.offset, m.value.unwrap().text));
        (texts.collect(), decoded.next_offset.0)
    }

    fn decode(
        bytes: &[u8],
        from: i64,
        max_bytes: usize,
        plain_bytes_max: usize,
    ) -> Result<Option<Decoded>, ApiError> {
        let decoding = Decoding { from: Offset(from), max_bytes, high_watermark: Offset(100) };
        decoding.decode(bytes, plain_bytes_max, &mut Scratch::new())
    }

    #[test]
    fn a_batch_that_takes_more_memory_waits_for_the_next_read_or_for_more() {
        let large = "x".repeat(10_000);
        let bytes = [batch(0, &["a"], Compression::None), batch(1, &[&large], Compression::Zstd)];
        let bytes = bytes.concat();
        let before = decode(&bytes, 0, 100_000, 1_000).unwrap().unwrap();
        assert_eq!((before.messages.len(), before.next_offset), (1, Offset(1)));
        assert!(decode(&bytes, 1, 100_000, 1_000).unwrap().is_none());
        let all = decode(&bytes, 0, 100_000, 20_000).unwrap().unwrap();
        assert_eq!((all.messages.len(), all.next_offset), (2, Offset(2)));
    }

    fn of(pairs: &[(i64, &str)]) -> Vec<(i64, String)> {
        pairs.iter().map(|(offset, value)| (*offset, (*value).to_owned())).collect()
    }

    #[test]
    fn reading_may_start_inside_a_batch() {
        for compression in [Compression::None, Compression::Zstd] {
            let bytes = batch(10, &["a", "b", "c"], compression);
            assert_eq!(read(&bytes, 11, 1000), (of(&[(11, "b"), (12, "c")]), 13));
        }
    }

    #[test]
    fn max_bytes_ends_the_answer_after_at_least_one_message() {
        let bytes = [batch(0, &["a", "b"], Compression::None), batch(2, &["c"], Compression::None)];
        let bytes = bytes.concat();
        assert_eq!(read(&bytes, 0, 1), (of(&[(0, "a")]), 1));
        assert_eq!(read(&bytes, 1, 1), (of(&[(1, "b")]), 2));
        assert_eq!(read(&bytes, 0, 1000), (of(&[(0, "a"), (1, "b"), (2, "c")]), 3));
    }

    #[test]
    fn timestamps_are_the_records_own() {
        let bytes = batch(0, &["a", "b"], Compression::None);
        let decoded = decode(&bytes, 1, 1000, 1000).unwrap().unwrap();
        assert_eq!(decoded.messages[0].timestamp, 1001);
    }

    #[test]
    fn damage_is_never_given_out() {
        let mut bytes = batch(0, &["a", "b"], Compression::None);
        *bytes.last_mut().unwrap() ^= 1;
        let error = decode(&bytes, 0, 1000, 1000).unwrap_err();
        assert_eq!(error.code, Code::RecordsDamaged);
        let cut = &batch(0, &["a"], Compression::None)[..40];
        let error = decode(cut, 0, 1000, 1000).unwrap_err();
        assert_eq!(error.code, Code::RecordsDamaged);
    }
}
