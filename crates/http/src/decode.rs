//! From record batches on disk to messages.
//!
//! A read begins somewhere inside a batch, since batches are found and stored whole: records
//! before the offset asked for are skipped. Every batch is checked before anything of it is given
//! out.

use towpath_driver::DiskFile;
use towpath_model::{Offset, Timestamp};
use towpath_records::{BatchHeader, Record, Scratch, TimestampType, records, split_batches};

use crate::api_error::{ApiError, Code};
use crate::encoding::Encoded;
use crate::limits::PLAIN_BYTES_MAX;
use crate::message::{ReadHeader, ReadMessage};

/// Messages in order, and where to go on.
#[derive(Debug)]
pub(crate) struct Decoded {
    pub(crate) messages: Vec<ReadMessage>,
    pub(crate) next_offset: Offset,
    pub(crate) high_watermark: Offset,
}

/// Reads `len` bytes of whole batches at `position` and decodes what lies at `from` or behind, up
/// to `max_bytes` of keys, values and headers but at least one message. Blocks on the disk.
pub(crate) fn decode(
    file: &impl DiskFile,
    position: u64,
    len: usize,
    from: Offset,
    max_bytes: usize,
    high_watermark: Offset,
) -> Result<Decoded, ApiError> {
    let mut bytes = vec![0; len];
    let read = file.read_at(&mut bytes, position).map_err(|error| {
        ApiError::new(Code::StorageFailed, format!("the records cannot be read: {error}"))
    })?;
    bytes.truncate(read);
    let mut scratch = Scratch::new();
    let (messages, next_offset) = messages_in(&bytes, from, max_bytes, &mut scratch)?;
    Ok(Decoded { messages, next_offset, high_watermark })
}

fn messages_in(
    bytes: &[u8],
    from: Offset,
    max_bytes: usize,
    scratch: &mut Scratch,
) -> Result<(Vec<ReadMessage>, Offset), ApiError> {
    let mut messages = Vec::new();
    let mut next_offset = from;
    let mut taken = 0;
    for batch in split_batches(bytes) {
        batch.check_crc().map_err(|error| damaged(&batch.header, &error))?;
        if batch.header.next_offset() <= from {
            continue;
        }
        if !batch.header.is_control() {
            let found = records(batch.bytes, PLAIN_BYTES_MAX, scratch);
            for record in found.map_err(|error| damaged(&batch.header, &error))? {
                let record = record.map_err(|error| damaged(&batch.header, &error))?;
                let offset = batch.header.base_offset() + i64::from(record.offset_delta);
                if offset < from {
                    continue;
                }
                taken += record.body_bytes;
                if max_bytes < taken && !messages.is_empty() {
                    return Ok((messages, next_offset));
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
    Ok((messages, next_offset))
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
        let (messages, next) =
            messages_in(bytes, Offset(from), max_bytes, &mut Scratch::new()).unwrap();
        let texts = messages.into_iter().map(|m| (m.offset, m.value.unwrap().text)).collect();
        (texts, next.0)
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
        let (messages, _) = messages_in(&bytes, Offset(1), 1000, &mut Scratch::new()).unwrap();
        assert_eq!(messages[0].timestamp, 1001);
    }

    #[test]
    fn damage_is_never_given_out() {
        let mut bytes = batch(0, &["a", "b"], Compression::None);
        *bytes.last_mut().unwrap() ^= 1;
        let error = messages_in(&bytes, Offset(0), 1000, &mut Scratch::new()).unwrap_err();
        assert_eq!(error.code, Code::RecordsDamaged);
        let cut = &batch(0, &["a"], Compression::None)[..40];
        let error = messages_in(cut, Offset(0), 1000, &mut Scratch::new()).unwrap_err();
        assert_eq!(error.code, Code::RecordsDamaged);
    }
}
