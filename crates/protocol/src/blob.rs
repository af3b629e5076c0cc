//! Record data inside a message: bytes at hand, or a place that the socket writer knows.

/// The records of one partition, opaque to this crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blob<'a> {
    /// The bytes themselves. Decoding always yields these; encoding copies them into the frame.
    Bytes(&'a [u8]),
    /// `len` bytes that are not here: encoding writes their length and leaves a
    /// [`Piece::Region`](crate::Piece::Region) for the socket writer to fill, for example by
    /// `sendfile`.
    Region {
        /// What the caller calls the region; comes back unchanged in the frame.
        index: u32,
        /// Its length in bytes.
        len: u32,
    },
}

impl Blob<'_> {
    /// Length in bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Region { len, .. } => *len as usize,
        }
    }

    /// Whether there is not one byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<'a> Blob<'a> {
    /// The bytes, if they are here.
    pub fn bytes(&self) -> Option<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Region { .. } => None,
        }
    }
}

impl Default for Blob<'_> {
    fn default() -> Self {
        Self::Bytes(&[])
    }
}
