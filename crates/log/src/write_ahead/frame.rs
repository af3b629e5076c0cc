//! One frame of a write-ahead file, as bytes and as a value. See `docs/file-formats.md` §6.

use towpath_model::mutant::{self, Mutant};
use towpath_model::{Offset, PartitionIndex, TopicPartition, Uuid};
use towpath_records::crc::crc32c;

use super::replay::Durable;
use crate::envelope::Payload;

/// Bytes before the payload.
pub(crate) const HEADER_LEN: usize = 80;
/// Where the first frame of a file begins.
pub(crate) const FIRST_FRAME_AT: u64 = 64;
/// Every frame begins at a multiple of this.
pub(crate) const ALIGNMENT: usize = 8;
/// The largest payload: an extent that is larger is synced directly, so a longer one is damage.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 16 << 20;

const VERSION: u8 = 1;
const APPEND: u8 = 1;
const FORGET: u8 = 2;
const MARK: u8 = 3;
const REPLACED: u8 = 4;

/// One use of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Use {
    /// Its number.
    pub(crate) number: u64,
    /// Mixed into every checksum. It follows from the directory's id, which no producer knows: so
    /// the bytes of a record never pass for a frame.
    salt: u32,
}

impl Use {
    pub(crate) fn new(directory_id: Uuid, number: u64) -> Use {
        let salt = crc32c(&[&directory_id.0[..], &number.to_be_bytes()[..]].concat());
        if mutant::is_on(Mutant::OldFramesReplayed) {
            return Use { number, salt: 0 };
        }
        Use { number, salt }
    }
}

/// What a frame says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameKind {
    /// The payload lies at the position, and the log is durable up to `next_offset` with it.
    Append,
    /// What earlier frames say at or behind the position is void.
    Forget,
    /// The log was durable up to `next_offset` without any frame.
    Mark,
    /// What earlier frames say about segments from `segment` on, below `next_offset`, is void: a
    /// compaction writes them anew.
    Replaced,
}

/// A frame without its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: FrameKind,
    pub(crate) partition: TopicPartition,
    /// Base offset of the segment.
    pub(crate) segment: Offset,
    /// Position in the segment.
    pub(crate) position: u64,
    pub(crate) offset: Offset,
    pub(crate) next_offset: Offset,
}

/// Bytes that a frame with this payload takes in the file.
pub(crate) fn frame_bytes(payload_bytes: usize) -> usize {
    (HEADER_LEN + payload_bytes).next_multiple_of(ALIGNMENT)
}

impl Frame {
    /// Up to where the log is durable with it.
    pub(crate) fn end(&self, payload_bytes: usize) -> Durable {
        Durable {
            segment: self.segment,
            position: self.position + payload_bytes as u64,
            next_offset: self.next_offset,
        }
    }

    /// Appends the frame to `out` for this use of the file. `payload` writes the payload of
    /// exactly `payload_bytes` bytes into the slice it gets.
    pub(crate) fn encode<E>(
        &self,
        file_use: Use,
        synced_position: u64,
        payload_bytes: usize,
        out: &mut Vec<u8>,
        payload: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let start = out.len();
        let kind = match self.kind {
            FrameKind::Append => APPEND,
            FrameKind::Forget => FORGET,
            FrameKind::Mark => MARK,
            FrameKind::Replaced => REPLACED,
        };
        assert!(payload_bytes <= PAYLOAD_BYTES_MAX);
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&(payload_bytes as u32).to_be_bytes());
        out.extend_from_slice(&file_use.number.to_be_bytes());
        out.extend_from_slice(&[kind, VERSION, 0, 0]);
        out.extend_from_slice(&self.partition.partition.0.to_be_bytes());
        out.extend_from_slice(&self.partition.topic.0);
        out.extend_from_slice(&self.segment.0.to_be_bytes());
        out.extend_from_slice(&self.position.to_be_bytes());
        out.extend_from_slice(&self.offset.0.to_be_bytes());
        out.extend_from_slice(&self.next_offset.0.to_be_bytes());
        out.extend_from_slice(&synced_position.to_be_bytes());
        let payload_at = out.len();
        assert_eq!(payload_at - start, HEADER_LEN);
        out.resize(start + frame_bytes(payload_bytes), 0);
        let payload_end = payload_at + payload_bytes;
        if let Err(error) = payload(&mut out[payload_at..payload_end]) {
            out.truncate(start);
            return Err(error);
        }
        let crc = crc32c(&out[start + 4..payload_end]) ^ file_use.salt;
        out[start..start + 4].copy_from_slice(&crc.to_be_bytes());
        Ok(())
    }
}

/// A frame as it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Decoded<'a> {
    pub(crate) frame: Frame,
    pub(crate) synced_position: u64,
    pub(crate) payload: &'a [u8],
}

/// Length of the payload of what may be a frame of this use; `None` when it is none. Only a
/// checksum over all of it makes it certain.
pub(crate) fn payload_length(header: &[u8], file_use: Use) -> Option<usize> {
    let header = header.first_chunk::<HEADER_LEN>()?;
    let mut fields = Payload(&header[4..]);
    let length = fields.u32()? as usize;
    let is_ours = fields.u64()? == file_use.number || mutant::is_on(Mutant::OldFramesReplayed);
    let [kind, version, 0, 0] = fields.array()? else { return None };
    let is_known = version == VERSION && (APPEND..=REPLACED).contains(&kind);
    (is_ours && is_known && length <= PAYLOAD_BYTES_MAX).then_some(length)
}

/// Reads the frame of this use at the start of `bytes`; `None` when none is there whole.
pub(crate) fn decode(bytes: &[u8], file_use: Use) -> Option<Decoded<'_>> {
    let length = payload_length(bytes, file_use)?;
    let whole = bytes.get(..HEADER_LEN + length)?;
    let mut fields = Payload(whole);
    let crc = fields.u32()?;
    if crc32c(&whole[4..]) ^ file_use.salt != crc {
        return None;
    }
    fields.array::<12>()?;
    let [kind, ..] = fields.array::<4>()?;
    let kind = match kind {
        APPEND => FrameKind::Append,
        FORGET => FrameKind::Forget,
        MARK => FrameKind::Mark,
        _ => FrameKind::Replaced,
    };
    let partition = PartitionIndex(fields.i32()?);
    let topic = Uuid(fields.array()?);
    let frame = Frame {
        kind,
        partition: TopicPartition { topic, partition },
        segment: Offset(fields.i64()?),
        position: fields.u64()?,
        offset: Offset(fields.i64()?),
        next_offset: Offset(fields.i64()?),
    };
    let synced_position = fields.u64()?;
    Some(Decoded { frame, synced_position, payload: fields.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_and_belong_to_one_use_of_a_file() {
        let frame = Frame {
            kind: FrameKind::Append,
            partition: TopicPartition { topic: Uuid([7; 16]), partition: PartitionIndex(3) },
            segment: Offset(100),
            position: 4096,
            offset: Offset(120),
            next_offset: Offset(125),
        };
        let mut bytes = Vec::new();
        let payload = b"eleven byte";
        let put = |to: &mut [u8]| {
            to.copy_from_slice(payload);
            Ok::<(), ()>(())
        };
        let ours = Use::new(Uuid([1; 16]), 9);
        frame.encode(ours, 64, payload.len(), &mut bytes, put).unwrap();
        assert_eq!(bytes.len(), frame_bytes(payload.len()));
        assert_eq!(bytes.len() % ALIGNMENT, 0);
        let back = decode(&bytes, ours).unwrap();
        assert_eq!((back.frame, back.synced_position, back.payload), (frame, 64, &payload[..]));
        assert_eq!(decode(&bytes, Use::new(Uuid([1; 16]), 8)), None);
        assert_eq!(decode(&bytes, Use::new(Uuid([2; 16]), 9)), None);
        for at in 0..HEADER_LEN + payload.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            assert_eq!(decode(&flipped, ours), None, "byte {at}");
        }
    }
}
