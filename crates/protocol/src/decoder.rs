//! Reads wire types from a byte slice, and never reserves what the slice cannot fill.
//!
//! Three bounds hold for every input, before anything is allocated for it:
//!
//! ```text
//!   count      ≤ remaining bytes ÷ fewest bytes of one element     (zero-width elements: 1,000)
//!   count      ≤ 1,000,000 elements, 10,000 tagged fields          (Kafka 4.4's own limits)
//!   Σ elements ≤ 64 × input bytes + 64 KiB                         (Σ count × size_of element)
//! ```
//!
//! Strings and bytes are borrowed, unknown tagged fields are skipped, structs nest only as deep as
//! the schema does: so the third line bounds all the memory that a message can take.
//!
//! Each reader is told the name of its field; it is only looked at when something is wrong.

use std::str;

use crate::{Blob, DecodeError, Uuid};

/// Most elements of one array; Kafka 4.4 refuses more as well.
const ELEMENTS_MAX: usize = 1_000_000;
/// Most elements of an array whose elements take no bytes.
const ZERO_WIDTH_ELEMENTS_MAX: usize = 1_000;
/// Most tagged fields of one struct; Kafka 4.4 refuses more as well.
const TAGGED_FIELDS_MAX: usize = 10_000;
/// Longest string in bytes; in flexible versions too.
const STRING_MAX: usize = i16::MAX as usize;
/// Elements for which room is made before the first one has been read.
const INITIAL_RESERVE: usize = 1_000;
/// Element memory that each byte of input pays for. A test asserts that no struct takes more memory
/// per byte that it has on the wire at least; so whatever a client may rightly send is never
/// refused for this.
const MEMORY_PER_BYTE: usize = 64;
/// Element memory that every input may take, in bytes.
const MEMORY_BASE: usize = 64 * 1024;

/// A position in the bytes of one frame, and what they may still cost.
#[derive(Debug, Clone)]
pub struct Decoder<'a> {
    input: &'a [u8],
    /// Invariant: position <= end <= input.len().
    position: usize,
    /// Where reading must stop; inside a tagged field, where that field ends.
    end: usize,
    /// Element memory that may still be reserved, in bytes.
    memory_left: usize,
    /// What it was in the beginning.
    memory_max: usize,
}

type Result<T> = std::result::Result<T, DecodeError>;

impl<'a> Decoder<'a> {
    /// Starts at the first byte of `input`.
    pub fn new(input: &'a [u8]) -> Self {
        let memory_left = input.len().saturating_mul(MEMORY_PER_BYTE).saturating_add(MEMORY_BASE);
        Self { input, position: 0, end: input.len(), memory_left, memory_max: memory_left }
    }

    /// The same with at most `bytes` of element memory, however long the input is. A server uses it
    /// on what strangers send: many of its largest frames would fill the machine otherwise.
    #[must_use]
    pub fn with_memory_max(self, bytes: usize) -> Self {
        let memory_max = self.memory_max.min(bytes);
        Self { memory_left: memory_max.saturating_sub(self.memory_charged()), memory_max, ..self }
    }

    /// Bytes not yet read.
    pub fn remaining(&self) -> usize {
        self.end - self.position
    }

    /// Bytes read so far.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Element memory that this input has been charged, in bytes.
    pub fn memory_charged(&self) -> usize {
        self.memory_max - self.memory_left
    }

    /// Refuses bytes after the end of the message.
    pub fn finish(self) -> Result<()> {
        match self.remaining() {
            0 => Ok(()),
            count => Err(DecodeError::TrailingBytes { position: self.position, count }),
        }
    }

    fn take(&mut self, len: usize, field: &'static str) -> Result<&'a [u8]> {
        let available = self.remaining();
        if available < len {
            let position = self.position;
            return Err(DecodeError::UnexpectedEnd { field, position, needed: len, available });
        }
        let bytes = &self.input[self.position..self.position + len];
        self.position += len;
        Ok(bytes)
    }

    fn take_array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N, field)?);
        Ok(array)
    }

    /// Reads a boolean; any byte but zero is true.
    pub fn bool(&mut self, field: &'static str) -> Result<bool> {
        Ok(self.i8(field)? != 0)
    }

    /// Reads an `int8`.
    pub fn i8(&mut self, field: &'static str) -> Result<i8> {
        Ok(i8::from_be_bytes(self.take_array(field)?))
    }

    /// Reads an `int16`.
    pub fn i16(&mut self, field: &'static str) -> Result<i16> {
        Ok(i16::from_be_bytes(self.take_array(field)?))
    }

    /// Reads a `uint16`.
    pub fn u16(&mut self, field: &'static str) -> Result<u16> {
        Ok(u16::from_be_bytes(self.take_array(field)?))
    }

    /// Reads an `int32`.
    pub fn i32(&mut self, field: &'static str) -> Result<i32> {
        Ok(i32::from_be_bytes(self.take_array(field)?))
    }

    /// Reads a `uint32`.
    pub fn u32(&mut self, field: &'static str) -> Result<u32> {
        Ok(u32::from_be_bytes(self.take_array(field)?))
    }

    /// Reads an `int64`.
    pub fn i64(&mut self, field: &'static str) -> Result<i64> {
        Ok(i64::from_be_bytes(self.take_array(field)?))
    }

    /// Reads a `float64`.
    pub fn f64(&mut self, field: &'static str) -> Result<f64> {
        Ok(f64::from_be_bytes(self.take_array(field)?))
    }

    /// Reads a `uuid`.
    pub fn uuid(&mut self, field: &'static str) -> Result<Uuid> {
        Ok(Uuid(self.take_array(field)?))
    }

    /// Reads an unsigned variable-length number of at most 32 bits. Padding within the five bytes
    /// is accepted, as Kafka accepts it.
    pub fn uvarint(&mut self, field: &'static str) -> Result<u32> {
        let position = self.position;
        let mut value = 0_u32;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.take_array(field)?;
            if shift == 28 && 0x0f < byte {
                return Err(DecodeError::VarintTooLong { field, position });
            }
            value |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeError::VarintTooLong { field, position })
    }

    /// Reads a string.
    pub fn string(&mut self, flexible: bool, field: &'static str) -> Result<&'a str> {
        let position = self.position;
        self.nullable_string(flexible, true, field)?
            .ok_or(DecodeError::NullNotAllowed { field, position })
    }

    /// Reads a string that may be null if `nullable`.
    pub fn nullable_string(
        &mut self,
        flexible: bool,
        nullable: bool,
        field: &'static str,
    ) -> Result<Option<&'a str>> {
        let Some(len) = self.string_len(flexible, nullable, field)? else { return Ok(None) };
        let position = self.position;
        let bytes = self.take(len, field)?;
        match str::from_utf8(bytes) {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(DecodeError::InvalidUtf8 { field, position }),
        }
    }

    /// Reads bytes.
    pub fn bytes(&mut self, flexible: bool, field: &'static str) -> Result<&'a [u8]> {
        let position = self.position;
        self.nullable_bytes(flexible, true, field)?
            .ok_or(DecodeError::NullNotAllowed { field, position })
    }

    /// Reads bytes that may be null if `nullable`.
    pub fn nullable_bytes(
        &mut self,
        flexible: bool,
        nullable: bool,
        field: &'static str,
    ) -> Result<Option<&'a [u8]>> {
        match self.long_len(flexible, nullable, field)? {
            Some(len) => Ok(Some(self.take(len, field)?)),
            None => Ok(None),
        }
    }

    /// Reads records.
    pub fn records(&mut self, flexible: bool, field: &'static str) -> Result<Blob<'a>> {
        Ok(Blob::Bytes(self.bytes(flexible, field)?))
    }

    /// Reads records that may be null if `nullable`.
    pub fn nullable_records(
        &mut self,
        flexible: bool,
        nullable: bool,
        field: &'static str,
    ) -> Result<Option<Blob<'a>>> {
        Ok(self.nullable_bytes(flexible, nullable, field)?.map(Blob::Bytes))
    }

    /// Reads an array whose elements take `element_size_min` bytes or more each.
    pub fn array<T>(
        &mut self,
        flexible: bool,
        element_size_min: usize,
        field: &'static str,
        read: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        let position = self.position;
        self.nullable_array(flexible, true, element_size_min, field, read)?
            .ok_or(DecodeError::NullNotAllowed { field, position })
    }

    /// Reads an array that may be null if `nullable`.
    pub fn nullable_array<T>(
        &mut self,
        flexible: bool,
        nullable: bool,
        element_size_min: usize,
        field: &'static str,
        mut read: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Option<Vec<T>>> {
        let position = self.position;
        let Some(count) = self.long_len(flexible, nullable, field)? else { return Ok(None) };
        self.check_count(count, element_size_min, position, field)?;
        self.charge(count.saturating_mul(size_of::<T>()), position, field)?;

        let mut elements = Vec::with_capacity(count.min(INITIAL_RESERVE));
        for _ in 0..count {
            // Doubling, as a vector does by itself, but never beyond what was charged.
            if elements.len() == elements.capacity() {
                elements.reserve_exact(elements.len().min(count - elements.len()));
            }
            elements.push(read(self)?);
        }
        Ok(Some(elements))
    }

    /// Reads a struct that may be null if `nullable`; a byte in front says whether it is (−1:
    /// null).
    pub fn nullable_struct<T>(
        &mut self,
        nullable: bool,
        field: &'static str,
        read: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<Option<T>> {
        let position = self.position;
        if 0 <= self.i8(field)? {
            return Ok(Some(read(self)?));
        }
        if nullable { Ok(None) } else { Err(DecodeError::NullNotAllowed { field, position }) }
    }

    /// Reads the tagged fields at the end of a struct. `read` gets each tag and returns whether it
    /// knows it; an unknown one is skipped. If a tag occurs twice the last one counts, as in Kafka.
    pub fn tagged_fields(
        &mut self,
        field: &'static str,
        mut read: impl FnMut(u32, &mut Self) -> Result<bool>,
    ) -> Result<()> {
        let position = self.position;
        let count = self.uvarint(field)? as usize;
        // Tag and size take a byte each.
        let limit = TAGGED_FIELDS_MAX.min(self.remaining() / 2);
        if limit < count {
            return Err(DecodeError::TooManyElements { field, position, count, limit });
        }
        for _ in 0..count {
            let tag = self.uvarint(field)?;
            let size = self.uvarint(field)? as usize;
            self.tagged_field(tag, size, field, &mut read)?;
        }
        Ok(())
    }

    fn tagged_field(
        &mut self,
        tag: u32,
        size: usize,
        field: &'static str,
        read: &mut impl FnMut(u32, &mut Self) -> Result<bool>,
    ) -> Result<()> {
        let (position, available) = (self.position, self.remaining());
        if available < size {
            return Err(DecodeError::UnexpectedEnd { field, position, needed: size, available });
        }
        let outer_end = std::mem::replace(&mut self.end, position + size);
        let is_known = read(tag, self)?;
        if is_known && self.position != self.end {
            let unread = self.remaining();
            return Err(DecodeError::TagSize { field, position: self.position, unread });
        }
        self.position = self.end;
        self.end = outer_end;
        Ok(())
    }

    /// The length of a string: 16 bits, or compact and not longer than 16 bits could say.
    fn string_len(
        &mut self,
        flexible: bool,
        nullable: bool,
        field: &'static str,
    ) -> Result<Option<usize>> {
        let position = self.position;
        if flexible {
            let len = self.compact_len(nullable, field)?;
            return match len {
                Some(len) if STRING_MAX < len => {
                    Err(DecodeError::TooLong { field, position, len, limit: STRING_MAX })
                }
                _ => Ok(len),
            };
        }
        let length = i32::from(self.i16(field)?);
        check_len(length, nullable, position, field)
    }

    /// The length of bytes or an array: 32 bits, or compact.
    fn long_len(
        &mut self,
        flexible: bool,
        nullable: bool,
        field: &'static str,
    ) -> Result<Option<usize>> {
        if flexible {
            return self.compact_len(nullable, field);
        }
        let position = self.position;
        let length = self.i32(field)?;
        check_len(length, nullable, position, field)
    }

    /// A length plus one; zero is null.
    fn compact_len(&mut self, nullable: bool, field: &'static str) -> Result<Option<usize>> {
        let position = self.position;
        match self.uvarint(field)? {
            0 if nullable => Ok(None),
            0 => Err(DecodeError::NullNotAllowed { field, position }),
            len => Ok(Some(len as usize - 1)),
        }
    }

    fn check_count(
        &self,
        count: usize,
        element_size_min: usize,
        position: usize,
        field: &'static str,
    ) -> Result<()> {
        let fitting = match element_size_min {
            0 => ZERO_WIDTH_ELEMENTS_MAX,
            size => self.remaining() / size,
        };
        let limit = fitting.min(ELEMENTS_MAX);
        if limit < count {
            return Err(DecodeError::TooManyElements { field, position, count, limit });
        }
        Ok(())
    }

    fn charge(&mut self, wanted: usize, position: usize, field: &'static str) -> Result<()> {
        let left = self.memory_left;
        if left < wanted {
            return Err(DecodeError::TooLarge { field, position, wanted, left });
        }
        self.memory_left -= wanted;
        Ok(())
    }
}

fn check_len(
    length: i32,
    nullable: bool,
    position: usize,
    field: &'static str,
) -> Result<Option<usize>> {
    match length {
        -1 if nullable => Ok(None),
        -1 => Err(DecodeError::NullNotAllowed { field, position }),
        _ => match usize::try_from(length) {
            Ok(len) => Ok(Some(len)),
            Err(_) => Err(DecodeError::NegativeLength { field, position, length }),
        },
    }
}

#[cfg(test)]
mod tests;
