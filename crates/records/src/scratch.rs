//! Memory that checking and reading batches needs, owned by the caller and used again and again.

use crate::compression::Decompressor;

/// Working memory for one thread that looks into batches.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(crate) decompressor: Decompressor,
    pub(crate) plain: Vec<u8>,
}

impl Scratch {
    /// A buffer that one unusual batch has made larger than this is given back after it.
    const KEPT_BYTES_MAX: usize = 4 << 20;

    /// One that has not allocated anything yet.
    pub fn new() -> Scratch {
        Scratch::default()
    }

    /// Gives back what the last batch needed beyond the usual.
    pub fn shrink(&mut self) {
        if Scratch::KEPT_BYTES_MAX < self.plain.capacity() {
            self.plain = Vec::new();
        }
    }
}
