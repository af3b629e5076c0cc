//! A decision of the metadata as the command of one log entry: all of its records, in order.
//!
//! ```text
//! u32 count, then per record: u32 length, key, u8 has a value, u32 length, value
//! ```
//!
//! `docs/file-formats.md` §9 draws it. One entry, because half of a decision must never be seen.

use towpath_metadata::Record;
use towpath_model::{FoldError, FoldRecord, KeyValue};

/// The command of a decision whose logged records are `records`.
pub(super) fn encode(records: &[KeyValue]) -> Vec<u8> {
    let mut out = Vec::new();
    length(&mut out, records.len());
    for KeyValue { key, value } in records {
        length(&mut out, key.len());
        out.extend_from_slice(key);
        out.push(u8::from(value.is_some()));
        if let Some(value) = value {
            length(&mut out, value.len());
            out.extend_from_slice(value);
        }
    }
    out
}

fn length(out: &mut Vec<u8>, length: usize) {
    let length = u32::try_from(length).expect("a decision is far below 4 GiB");
    out.extend_from_slice(&length.to_be_bytes());
}

/// The records of a command, without those of kinds that this version does not know.
///
/// # Errors
/// When the bytes are no command, or a record is of a version that this program does not read.
pub(super) fn decode(mut bytes: &[u8]) -> Result<Vec<Record>, FoldError> {
    let bytes = &mut bytes;
    let count = number(bytes)?;
    let mut records = Vec::new();
    for _ in 0..count {
        let key = text(bytes)?;
        let value = match take(bytes, 1)? {
            [0] => None,
            _ => Some(text(bytes)?),
        };
        records.extend(Record::decode(key, value)?);
    }
    if bytes.is_empty() { Ok(records) } else { Err(FoldError("a command goes on".to_owned())) }
}

fn take<'b>(bytes: &mut &'b [u8], length: usize) -> Result<&'b [u8], FoldError> {
    let short = || FoldError("a command ends too early".to_owned());
    let (taken, rest) = bytes.split_at_checked(length).ok_or_else(short)?;
    *bytes = rest;
    Ok(taken)
}

fn number(bytes: &mut &[u8]) -> Result<u32, FoldError> {
    let taken = take(bytes, 4)?;
    Ok(u32::from_be_bytes(taken.try_into().expect("four bytes were taken")))
}

fn text<'b>(bytes: &mut &'b [u8]) -> Result<&'b [u8], FoldError> {
    let length = number(bytes)? as usize;
    take(bytes, length)
}

#[cfg(test)]
mod tests {
    use towpath_model::Uuid;

    use super::*;

    #[test]
    fn a_decision_comes_back_whole_or_not_at_all() {
        let removed = Record::TopicRemoved { id: Uuid::from_random_bytes([3; 16]) };
        let records = [Record::FormatLevel(1), removed];
        let logged: Vec<KeyValue> = records.iter().filter_map(Record::encode).collect();
        let command = encode(&logged);
        assert_eq!(decode(&command), Ok(records.to_vec()));
        for end in 0..command.len() {
            assert!(decode(&command[..end]).is_err());
        }
        assert!(decode(&[command, vec![0]].concat()).is_err());
    }
}
