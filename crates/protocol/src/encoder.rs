//! Writes wire types into one buffer, and remembers where file regions interrupt it.
//!
//! The buffer begins with room for the frame's length prefix, which is filled in last: only then
//! is it known what the regions add. Cutting the buffer into pieces costs no copy.

use bytes::Bytes;

use crate::{Blob, EncodeError, Frame, Piece, Uuid};

/// Bytes of the length prefix.
const PREFIX: usize = 4;
/// The longest string that a 16-bit length can say, and the longest that Kafka's compact strings
/// may be.
const STRING_MAX: usize = i16::MAX as usize;
/// The longest bytes or array that a 32-bit length can say. One less so that compact lengths fit
/// too.
const LONG_MAX: usize = i32::MAX as usize - 1;

/// A message on its way to become a [`Frame`].
#[derive(Debug, Clone)]
pub struct Encoder {
    /// Invariant: PREFIX <= buffer.len().
    buffer: Vec<u8>,
    /// Invariant: `at` rises, PREFIX < at <= buffer.len().
    regions: Vec<RegionAt>,
    /// Sum of the lengths of `regions`, in bytes.
    region_bytes: usize,
}

#[derive(Debug, Clone, Copy)]
struct RegionAt {
    at: usize,
    index: u32,
    len: u32,
}

type Result<T> = std::result::Result<T, EncodeError>;

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Encoder {
    /// Starts an empty frame.
    pub fn new() -> Self {
        Self::with_capacity(256)
    }

    /// Starts an empty frame with room for `bytes`, regions not counted.
    pub fn with_capacity(bytes: usize) -> Self {
        let mut buffer = Vec::with_capacity(PREFIX + bytes);
        buffer.extend_from_slice(&[0; PREFIX]);
        Self { buffer, regions: Vec::new(), region_bytes: 0 }
    }

    /// Bytes so far, regions included and the length prefix not.
    pub fn len(&self) -> usize {
        self.buffer.len() - PREFIX + self.region_bytes
    }

    /// Whether nothing has been written.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills in the length prefix and cuts the frame into its pieces.
    pub fn finish(mut self) -> Result<Frame> {
        let len = self.len();
        let prefix = i32::try_from(len).map_err(|_| EncodeError::FrameTooLarge { len })?;
        self.buffer[..PREFIX].copy_from_slice(&prefix.to_be_bytes());

        let bytes = Bytes::from(self.buffer);
        let mut pieces = Vec::with_capacity(2 * self.regions.len() + 1);
        let mut start = 0;
        for RegionAt { at, index, len } in self.regions {
            if start < at {
                pieces.push(Piece::Bytes(bytes.slice(start..at)));
            }
            pieces.push(Piece::Region { index, len });
            start = at;
        }
        if start < bytes.len() {
            pieces.push(Piece::Bytes(bytes.slice(start..)));
        }
        Ok(Frame { pieces })
    }

    /// The bytes without a length prefix, for what is not a frame: records, headers, embedded
    /// protocols.
    pub fn into_body(self) -> Result<Bytes> {
        if !self.regions.is_empty() {
            return Err(EncodeError::RegionNotAllowed { field: "body" });
        }
        Ok(Bytes::from(self.buffer).slice(PREFIX..))
    }

    /// Writes a boolean.
    pub fn bool(&mut self, value: bool) {
        self.buffer.push(u8::from(value));
    }

    /// Writes an `int8`.
    pub fn i8(&mut self, value: i8) {
        self.buffer.extend_from_slice(&value.to_be_bytes());
    }

    /// Writes an `int16`.
    pub fn i16(&mut self, value: i16) {
        self.buffer.extend_from_slice(&value.to_be_bytes());
    }

    /// Writes a `uint16`.
    pub fn u16(&mut self, value: u16) {
        self.buffer.extend_from_slice(&value.to_be_bytes());
    }

    /// Writes an `int32`.
    pub fn i32(&mut self, value: i32) {
        self.buffer.extend_from_slice(&value.to_be_bytes());
    }

    /// Writes a `uint32`.
    pub fn u32(&mut self, value: u32) {
        self.buffer.extend_from_slice(&value.to_be_bytes());
    }

    /// Writes an `int64`.
    pub fn i64(&mut self, value: i64) {
        self.buffer.extend_from_slice(&value.to_be_bytes());
    }

    /// Writes a `float64`.
    pub fn f64(&mut self, value: f64) {
        self.buffer.extend_from_slice(&value.to_be_bytes());
    }

    /// Writes a `uuid`.
    pub fn uuid(&mut self, value: Uuid) {
        self.buffer.extend_from_slice(&value.0);
    }

    /// Writes an unsigned variable-length number.
    pub fn uvarint(&mut self, value: u32) {
        let (bytes, len) = uvarint_bytes(value);
        self.buffer.extend_from_slice(&bytes[..len]);
    }

    /// Writes a string.
    pub fn string(&mut self, flexible: bool, value: &str, field: &'static str) -> Result<()> {
        let len = value.len();
        if STRING_MAX < len {
            return Err(EncodeError::TooLong { field, len, limit: STRING_MAX });
        }
        if flexible {
            self.uvarint(len as u32 + 1);
        } else {
            self.i16(len as i16);
        }
        self.buffer.extend_from_slice(value.as_bytes());
        Ok(())
    }

    /// Writes a string that may be null if `nullable`.
    pub fn nullable_string(
        &mut self,
        flexible: bool,
        nullable: bool,
        value: Option<&str>,
        field: &'static str,
    ) -> Result<()> {
        match value {
            Some(value) => return self.string(flexible, value, field),
            None if !nullable => return Err(EncodeError::NullNotAllowed { field }),
            None if flexible => self.uvarint(0),
            None => self.i16(-1),
        }
        Ok(())
    }

    /// Writes bytes.
    pub fn bytes(&mut self, flexible: bool, value: &[u8], field: &'static str) -> Result<()> {
        self.long_len(flexible, value.len(), field)?;
        self.buffer.extend_from_slice(value);
        Ok(())
    }

    /// Writes bytes that may be null if `nullable`.
    pub fn nullable_bytes(
        &mut self,
        flexible: bool,
        nullable: bool,
        value: Option<&[u8]>,
        field: &'static str,
    ) -> Result<()> {
        match value {
            Some(value) => self.bytes(flexible, value, field),
            None => self.long_null(flexible, nullable, field),
        }
    }

    /// Writes records; of a region only the length.
    pub fn records(&mut self, flexible: bool, value: Blob<'_>, field: &'static str) -> Result<()> {
        match value {
            Blob::Bytes(bytes) => self.bytes(flexible, bytes, field),
            Blob::Region { index, len } => {
                self.long_len(flexible, len as usize, field)?;
                if 0 < len {
                    self.regions.push(RegionAt { at: self.buffer.len(), index, len });
                    self.region_bytes += len as usize;
                }
                Ok(())
            }
        }
    }

    /// Writes records that may be null if `nullable`.
    pub fn nullable_records(
        &mut self,
        flexible: bool,
        nullable: bool,
        value: Option<Blob<'_>>,
        field: &'static str,
    ) -> Result<()> {
        match value {
            Some(value) => self.records(flexible, value, field),
            None => self.long_null(flexible, nullable, field),
        }
    }

    /// Writes an array.
    pub fn array<T>(
        &mut self,
        flexible: bool,
        elements: &[T],
        field: &'static str,
        mut write: impl FnMut(&mut Self, &T) -> Result<()>,
    ) -> Result<()> {
        self.long_len(flexible, elements.len(), field)?;
        elements.iter().try_for_each(|element| write(self, element))
    }

    /// Writes an array that may be null if `nullable`.
    pub fn nullable_array<T>(
        &mut self,
        flexible: bool,
        nullable: bool,
        elements: Option<&[T]>,
        field: &'static str,
        write: impl FnMut(&mut Self, &T) -> Result<()>,
    ) -> Result<()> {
        match elements {
            Some(elements) => self.array(flexible, elements, field, write),
            None => self.long_null(flexible, nullable, field),
        }
    }

    /// Writes a struct that may be null if `nullable`, with the byte in front that says whether it
    /// is.
    pub fn nullable_struct<T>(
        &mut self,
        nullable: bool,
        value: Option<&T>,
        field: &'static str,
        write: impl FnOnce(&mut Self, &T) -> Result<()>,
    ) -> Result<()> {
        match value {
            Some(value) => {
                self.i8(1);
                write(self, value)
            }
            None if !nullable => Err(EncodeError::NullNotAllowed { field }),
            None => {
                self.i8(-1);
                Ok(())
            }
        }
    }

    /// Writes one tagged field: tag, size, content. Content with regions is refused; no schema has
    /// it.
    pub fn tagged_field(
        &mut self,
        tag: u32,
        field: &'static str,
        write: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        self.uvarint(tag);
        let start = self.buffer.len();
        let regions = self.regions.len();
        write(self)?;
        if regions != self.regions.len() {
            return Err(EncodeError::RegionNotAllowed { field });
        }

        // The size goes before the content but is known after it: append it, then rotate it to the
        // front.
        let len = self.buffer.len() - start;
        let size = u32::try_from(len).map_err(|_| EncodeError::FrameTooLarge { len })?;
        let (size, size_len) = uvarint_bytes(size);
        self.buffer.extend_from_slice(&size[..size_len]);
        self.buffer[start..].rotate_right(size_len);
        Ok(())
    }

    fn long_len(&mut self, flexible: bool, len: usize, field: &'static str) -> Result<()> {
        if LONG_MAX < len {
            return Err(EncodeError::TooLong { field, len, limit: LONG_MAX });
        }
        if flexible {
            self.uvarint(len as u32 + 1);
        } else {
            self.i32(len as i32);
        }
        Ok(())
    }

    fn long_null(&mut self, flexible: bool, nullable: bool, field: &'static str) -> Result<()> {
        if !nullable {
            return Err(EncodeError::NullNotAllowed { field });
        }
        if flexible {
            self.uvarint(0);
        } else {
            self.i32(-1);
        }
        Ok(())
    }
}

fn uvarint_bytes(mut value: u32) -> ([u8; 5], usize) {
    let mut bytes = [0; 5];
    let mut len = 0;
    while 0x7f < value {
        bytes[len] = value as u8 | 0x80;
        value >>= 7;
        len += 1;
    }
    bytes[len] = value as u8;
    (bytes, len + 1)
}

#[cfg(test)]
mod tests;
