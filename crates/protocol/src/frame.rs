//! An encoded frame: the bytes we made, and the places where file regions go between them.

use bytes::Bytes;

/// What goes onto the socket, in order. Together the pieces are one frame with its length prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Invariant: no piece is empty.
    pub pieces: Vec<Piece>,
}

/// A stretch of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Bytes to send as they are.
    Bytes(Bytes),
    /// `len` bytes of the region that the encoder's caller called `index`.
    Region {
        /// The caller's name for it.
        index: u32,
        /// Its length in bytes.
        len: u32,
    },
}

impl Piece {
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

impl Frame {
    /// Length on the wire in bytes: the four of the length prefix, and what they count.
    pub fn len(&self) -> usize {
        self.pieces.iter().map(Piece::len).sum()
    }

    /// Never true: a frame has its length prefix at least.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of it as one buffer, if it has no regions.
    pub fn into_bytes(self) -> Option<Bytes> {
        match <[Piece; 1]>::try_from(self.pieces) {
            Ok([Piece::Bytes(bytes)]) => Some(bytes),
            _ => None,
        }
    }
}
