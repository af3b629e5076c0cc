//! A parser to feed.

use crate::shape::Shape;

/// No run may hold more, whatever its target and its input, in bytes.
const MEMORY_MAX: usize = 256 << 20;

/// One parser, or several that belong together.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name: of the corpus directory, and on the command line.
    pub name: &'static str,
    /// Inputs to begin with, made by our own encoders.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Parses, whatever the input. Panics when a promise is broken.
    pub run: fn(&[u8]) -> Shape,
    /// Bytes that one run may hold at most, beyond 256 for each byte of input.
    pub memory_max: usize,
    /// Whether a run waits for other threads, and so for whatever else the machine does.
    pub waits_for_others: bool,
}

impl Target {
    /// How much a run on so many bytes may hold.
    pub(crate) fn memory_for(&self, input: usize) -> usize {
        (self.memory_max + 256 * input).min(MEMORY_MAX)
    }
}
