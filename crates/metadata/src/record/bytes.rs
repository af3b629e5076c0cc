//! Numbers, texts and lists of the metadata's records. Reading is bounded by the bytes that are
//! there: a list allocates as its elements are read, not as its count announces.

use towpath_model::{FoldError, Uuid};

pub(super) struct Writer {
    out: Vec<u8>,
}

impl Writer {
    pub(super) fn new() -> Writer {
        Writer { out: Vec::with_capacity(64) }
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.out
    }

    fn put(&mut self, bytes: &[u8]) -> &mut Writer {
        self.out.extend_from_slice(bytes);
        self
    }

    pub(super) fn u8(&mut self, value: u8) -> &mut Writer {
        self.put(&[value])
    }

    pub(super) fn u16(&mut self, value: u16) -> &mut Writer {
        self.put(&value.to_be_bytes())
    }

    pub(super) fn i32(&mut self, value: i32) -> &mut Writer {
        self.put(&value.to_be_bytes())
    }

    pub(super) fn i64(&mut self, value: i64) -> &mut Writer {
        self.put(&value.to_be_bytes())
    }

    pub(super) fn uuid(&mut self, value: Uuid) -> &mut Writer {
        self.put(&value.0)
    }

    /// # Panics
    ///
    /// When the text is longer than 64 KiB; names and values are bounded far below.
    pub(super) fn text(&mut self, value: &str) -> &mut Writer {
        let len = u16::try_from(value.len()).expect("names and values are bounded when accepted");
        self.u16(len).put(value.as_bytes())
    }

    /// # Panics
    ///
    /// When the list has more than 65,535 elements; brokers, directories and properties are fewer.
    pub(super) fn list<T>(
        &mut self,
        items: &[T],
        each: impl for<'w> Fn(&'w mut Writer, &T) -> &'w mut Writer,
    ) -> &mut Writer {
        self.u16(u16::try_from(items.len()).expect("lists are bounded when accepted"));
        for item in items {
            each(self, item);
        }
        self
    }
}

pub(super) struct Reader<'b> {
    bytes: &'b [u8],
}

impl<'b> Reader<'b> {
    pub(super) fn new(bytes: &'b [u8]) -> Reader<'b> {
        Reader { bytes }
    }

    /// What `read` reads, which must be all that is left.
    pub(super) fn whole<T>(
        &mut self,
        read: impl FnOnce(&mut Reader<'b>) -> Result<T, FoldError>,
    ) -> Result<T, FoldError> {
        let value = read(self)?;
        if self.bytes.is_empty() {
            return Ok(value);
        }
        Err(FoldError(format!("{} bytes too many", self.bytes.len())))
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], FoldError> {
        let (taken, rest) = self.bytes.split_first_chunk::<N>().ok_or_else(too_short)?;
        self.bytes = rest;
        Ok(*taken)
    }

    pub(super) fn u8(&mut self) -> Result<u8, FoldError> {
        Ok(self.take::<1>()?[0])
    }

    pub(super) fn u16(&mut self) -> Result<u16, FoldError> {
        Ok(u16::from_be_bytes(self.take()?))
    }

    pub(super) fn i32(&mut self) -> Result<i32, FoldError> {
        Ok(i32::from_be_bytes(self.take()?))
    }

    pub(super) fn i64(&mut self) -> Result<i64, FoldError> {
        Ok(i64::from_be_bytes(self.take()?))
    }

    pub(super) fn uuid(&mut self) -> Result<Uuid, FoldError> {
        Ok(Uuid(self.take()?))
    }

    pub(super) fn text(&mut self) -> Result<String, FoldError> {
        let len = usize::from(self.u16()?);
        let (text, rest) = self.bytes.split_at_checked(len).ok_or_else(too_short)?;
        self.bytes = rest;
        String::from_utf8(text.to_vec()).map_err(|_| FoldError("a text that is not UTF-8".into()))
    }

    pub(super) fn list<T>(
        &mut self,
        mut each: impl FnMut(&mut Reader<'b>) -> Result<T, FoldError>,
    ) -> Result<Vec<T>, FoldError> {
        (0..self.u16()?).map(|_| each(self)).collect()
    }
}

fn too_short() -> FoldError {
    FoldError("fewer bytes than announced".to_owned())
}
