//! Writes and reads the few primitives of delivery records: varints, and what is made of them.
//!
//! The bytes come from a disk: however broken, they end in a [`FoldError`], and never in a panic or in
//! more memory than they are long.

use std::sync::Arc;

use towpath_model::{FoldError, Offset, Uuid};

use crate::time::QueueTime;

/// Appends an unsigned varint.
pub(crate) fn put_u64(out: &mut Vec<u8>, mut value: u64) {
    while 0x80 <= value {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a signed varint, small for small distances from zero.
pub(crate) fn put_i64(out: &mut Vec<u8>, value: i64) {
    put_u64(out, ((value << 1) ^ (value >> 63)) as u64);
}

/// Appends a length and that many bytes.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u64(out, bytes.len() as u64);
    out.extend(bytes);
}

/// Appends whether there is a value, and the value.
pub(crate) fn put_option<T>(
    out: &mut Vec<u8>,
    value: Option<T>,
    put: impl FnOnce(&mut Vec<u8>, T),
) {
    out.push(u8::from(value.is_some()));
    if let Some(value) = value {
        put(out, value);
    }
}

/// Appends a count, and offsets each as its distance to the one before.
pub(crate) fn put_offsets(out: &mut Vec<u8>, offsets: impl ExactSizeIterator<Item = Offset>) {
    put_u64(out, offsets.len() as u64);
    let mut last = 0;
    for offset in offsets {
        put_i64(out, offset.0.wrapping_sub(last));
        last = offset.0;
    }
}

/// Bytes not yet read.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    pub(crate) fn error(problem: &str) -> FoldError {
        FoldError(format!("delivery record: {problem}"))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn take(&mut self, bytes: usize) -> Result<&'a [u8], FoldError> {
        let Some((taken, rest)) = self.rest.split_at_checked(bytes) else {
            return Err(Self::error("ends too early"));
        };
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, FoldError> {
        Ok(self.take(1)?[0])
    }

    pub(crate) fn u64(&mut self) -> Result<u64, FoldError> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            if shift == 63 && 1 < byte {
                break;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Self::error("a number is too long"))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, FoldError> {
        u32::try_from(self.u64()?).map_err(|_| Self::error("a number is too large"))
    }

    pub(crate) fn i64(&mut self) -> Result<i64, FoldError> {
        let value = self.u64()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    pub(crate) fn offset(&mut self) -> Result<Offset, FoldError> {
        Ok(Offset(self.i64()?))
    }

    pub(crate) fn time(&mut self) -> Result<QueueTime, FoldError> {
        Ok(QueueTime(self.u64()?))
    }

    pub(crate) fn uuid(&mut self) -> Result<Uuid, FoldError> {
        let bytes = self.take(16)?;
        Ok(Uuid(bytes.try_into().expect("sixteen were taken")))
    }

    pub(crate) fn flag(&mut self) -> Result<bool, FoldError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Self::error("a flag is neither set nor not")),
        }
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], FoldError> {
        let length = self.u64()?;
        self.take(usize::try_from(length).map_err(|_| Self::error("a length is too large"))?)
    }

    pub(crate) fn blob(&mut self) -> Result<Arc<[u8]>, FoldError> {
        Ok(self.bytes()?.into())
    }

    pub(crate) fn text(&mut self) -> Result<Arc<str>, FoldError> {
        let text = std::str::from_utf8(self.bytes()?);
        text.map(Into::into).map_err(|_| Self::error("a text is not UTF-8"))
    }

    pub(crate) fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, FoldError>,
    ) -> Result<Option<T>, FoldError> {
        if self.flag()? { read(self).map(Some) } else { Ok(None) }
    }

    /// How many elements of at least one byte follow.
    pub(crate) fn count(&mut self) -> Result<usize, FoldError> {
        let count = usize::try_from(self.u64()?).unwrap_or(usize::MAX);
        if self.rest.len() < count {
            return Err(Self::error("counts more than it holds"));
        }
        Ok(count)
    }

    /// A count and elements.
    pub(crate) fn list<T>(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Result<T, FoldError>,
    ) -> Result<Vec<T>, FoldError> {
        (0..self.count()?).map(|_| read(self)).collect()
    }

    /// A count, and offsets each as its distance to the one before.
    pub(crate) fn offsets(&mut self) -> Result<Vec<Offset>, FoldError> {
        let mut last = 0_i64;
        self.list(|reader| {
            last = last.wrapping_add(reader.i64()?);
            Ok(Offset(last))
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_come_back(unsigned: u64, signed: i64, offsets: Vec<i64>) {
            let mut out = Vec::new();
            put_u64(&mut out, unsigned);
            put_i64(&mut out, signed);
            put_offsets(&mut out, offsets.iter().copied().map(Offset));
            let mut reader = Reader::new(&out);
            prop_assert_eq!(reader.u64(), Ok(unsigned));
            prop_assert_eq!(reader.i64(), Ok(signed));
            let read: Vec<i64> = reader.offsets().unwrap().into_iter().map(|at| at.0).collect();
            prop_assert_eq!(read, offsets);
            prop_assert!(reader.is_empty());
        }

        #[test]
        fn broken_bytes_are_refused(bytes: Vec<u8>) {
            let mut reader = Reader::new(&bytes);
            let _ = (reader.u64(), reader.text(), reader.offsets(), reader.blob());
        }
    }
}
