//! Reads and writes the few primitives of our logged records.
//!
//! The bytes come from a disk: however broken, they end in a [`FoldError`] and never in a panic or
//! in an allocation larger than they are.

use std::sync::Arc;

use towpath_model::{FoldError, Uuid};

/// Bytes not yet read.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    what: &'static str,
}

impl<'a> Reader<'a> {
    /// Reads `bytes`; `what` names them in errors.
    pub(crate) fn new(bytes: &'a [u8], what: &'static str) -> Reader<'a> {
        Reader { rest: bytes, what }
    }

    pub(crate) fn error(&self, problem: &str) -> FoldError {
        FoldError(format!("{}: {problem}", self.what))
    }

    pub(crate) fn take(&mut self, bytes: usize) -> Result<&'a [u8], FoldError> {
        if self.rest.len() < bytes {
            return Err(self.error("ends too early"));
        }
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], FoldError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, FoldError> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    pub(crate) fn i16(&mut self) -> Result<i16, FoldError> {
        Ok(i16::from_be_bytes(self.array()?))
    }

    pub(crate) fn i32(&mut self) -> Result<i32, FoldError> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    pub(crate) fn i64(&mut self) -> Result<i64, FoldError> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    pub(crate) fn uuid(&mut self) -> Result<Uuid, FoldError> {
        Ok(Uuid(self.array()?))
    }

    /// An unsigned varint of at most 32 bits.
    pub(crate) fn uvarint(&mut self) -> Result<u32, FoldError> {
        let mut value: u64 = 0;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return u32::try_from(value).map_err(|_| self.error("varint is too large"));
            }
        }
        Err(self.error("varint is too long"))
    }

    /// A length that was read, as a size; `None` for −1.
    fn size(&self, length: i64) -> Result<Option<usize>, FoldError> {
        match length {
            -1 => Ok(None),
            _ => usize::try_from(length).map(Some).map_err(|_| self.error("negative length")),
        }
    }

    fn text(&mut self, length: i64) -> Result<Option<Arc<str>>, FoldError> {
        let Some(size) = self.size(length)? else { return Ok(None) };
        let bytes = self.take(size)?;
        let text = std::str::from_utf8(bytes).map_err(|_| self.error("text is not UTF-8"))?;
        Ok(Some(text.into()))
    }

    fn blob(&mut self, length: i64) -> Result<Arc<[u8]>, FoldError> {
        let size = self.size(length)?.unwrap_or(0);
        Ok(self.take(size)?.into())
    }

    /// STRING or NULLABLE_STRING: an i16 length.
    pub(crate) fn string(&mut self) -> Result<Option<Arc<str>>, FoldError> {
        let length = self.i16()?.into();
        self.text(length)
    }

    /// COMPACT_STRING or COMPACT_NULLABLE_STRING: a varint of the length and one.
    pub(crate) fn compact_string(&mut self) -> Result<Option<Arc<str>>, FoldError> {
        let length = i64::from(self.uvarint()?) - 1;
        self.text(length)
    }

    /// BYTES: an i32 length.
    pub(crate) fn bytes(&mut self) -> Result<Arc<[u8]>, FoldError> {
        let length = self.i32()?.into();
        self.blob(length)
    }

    /// COMPACT_BYTES: a varint of the length and one.
    pub(crate) fn compact_bytes(&mut self) -> Result<Arc<[u8]>, FoldError> {
        let length = i64::from(self.uvarint()?) - 1;
        self.blob(length)
    }

    /// A text that must be there.
    pub(crate) fn required(&self, text: Option<Arc<str>>) -> Result<Arc<str>, FoldError> {
        text.ok_or_else(|| self.error("a text is missing"))
    }

    /// Calls `field` with number and bytes of every tagged field.
    pub(crate) fn tagged_fields(
        &mut self,
        mut field: impl FnMut(u32, Reader<'a>) -> Result<(), FoldError>,
    ) -> Result<(), FoldError> {
        for _ in 0..self.uvarint()? {
            let number = self.uvarint()?;
            let size = self.uvarint()?;
            let bytes = self.take(size as usize)?;
            field(number, Reader::new(bytes, self.what))?;
        }
        Ok(())
    }
}

/// Appends STRING or NULLABLE_STRING.
pub(crate) fn put_string(out: &mut Vec<u8>, text: Option<&str>) {
    let Some(text) = text else { return out.extend((-1_i16).to_be_bytes()) };
    let length = i16::try_from(text.len()).expect("names are bounded by NAME_BYTES_MAX and less");
    out.extend(length.to_be_bytes());
    out.extend(text.as_bytes());
}

/// Appends BYTES.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = i32::try_from(bytes.len()).expect("frames are far below 2 GiB");
    out.extend(length.to_be_bytes());
    out.extend(bytes);
}

/// Appends an unsigned varint.
pub(crate) fn put_uvarint(out: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends COMPACT_STRING.
pub(crate) fn put_compact_string(out: &mut Vec<u8>, text: &str) {
    put_uvarint(out, u32::try_from(text.len() + 1).expect("frames are far below 2 GiB"));
    out.extend(text.as_bytes());
}
