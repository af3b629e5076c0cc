//! Memory that checking and reading batches needs, owned by the caller and used again and again.

use crate::compression::Decompressor;

/// Working memory for one thread that looks into batches.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(crate) decompressor: Decompressor,
    pub(crate) plain: Vec<u8>,
    /// Bytes that the first compressed batch makes room for.
    room: usize,
}

impl Scratch {
    /// A buffer that one unusual batch has made larger than this is given back after it.
    const KEPT_BYTES_MAX: usize = 4 << 20;

    /// One that has not allocated anything yet, and grows as batches need it.
    pub fn new() -> Scratch {
        Scratch::default()
    }

    /// One whose buffer holds `bytes` from its first use on. No batch of up to so many bytes in
    /// the clear makes it grow, so it leaves no outgrown buffers with the allocator.
    pub fn with_room(bytes: usize) -> Scratch {
        // The byte more is where a batch that is too large shows itself.
        Scratch { room: bytes.saturating_add(1), ..Scratch::default() }
    }

    /// Gives back what the last batch needed beyond the usual.
    pub fn shrink(&mut self) {
        if Scratch::KEPT_BYTES_MAX.max(self.room) < self.plain.capacity() {
            self.plain = Vec::new();
        }
    }

    /// Gives back everything; the next batch makes room again.
    pub fn release(&mut self) {
        self.decompressor = Decompressor::new();
        self.plain = Vec::new();
    }

    /// Makes the room that was promised.
    pub(crate) fn make_room(&mut self) {
        if self.plain.capacity() < self.room {
            self.plain = Vec::with_capacity(self.room);
        }
    }
}
