//! The memory in which produced batches are looked at in the clear: a little per thread, and one
//! large piece for the whole broker.
//!
//! A compressed batch of a kilobyte can hold megabytes. Nearly all are small in the clear and find
//! room in their thread's own buffer. The others, known by their size or by having outgrown that,
//! are looked at one at a time in the large one. So what strangers make us decompress has a bound
//! that does not depend on how many of them there are: threads × [`SMALL_BYTES`] and, once,
//! [`PLAIN_BYTES_MAX`] or what a topic with larger batches allows. Both buffers are taken whole at
//! their first use: growing by doubling would leave as much again with the allocator.
//!
//! Looking is work without waiting, so a thread that waits for the large buffer waits as long as
//! others work on theirs.

use std::cell::RefCell;
use std::sync::{Mutex, PoisonError, TryLockError};

use towpath_records::{InvalidBatch, Scratch};

use crate::publish::PublishError;

/// Largest batch after decompression, for topics with batches of ordinary size: a bomb ends here,
/// whatever it declares. Clients bound their batches before they compress them, at 1 MiB or so.
pub(crate) const PLAIN_BYTES_MAX: usize = 16 << 20;
/// Room of a thread's own buffer.
const SMALL_BYTES: usize = 1 << 20;

thread_local! {
    static SMALL: RefCell<Scratch> = RefCell::new(Scratch::with_room(SMALL_BYTES));
}

/// The large buffer, for one batch at a time.
pub(crate) struct PlainMemory {
    large: Mutex<Large>,
}

struct Large {
    scratch: Scratch,
    /// Since the last [`PlainMemory::release_idle`].
    is_used: bool,
}

impl Default for PlainMemory {
    fn default() -> Self {
        let large = Large { scratch: Scratch::with_room(PLAIN_BYTES_MAX), is_used: false };
        PlainMemory { large: Mutex::new(large) }
    }
}

impl PlainMemory {
    /// Runs `look` on a compressed batch of `bytes`, with memory and with how much of it may be
    /// used: the second time, if there is one, `plain_bytes_max`.
    pub(crate) fn look<T>(
        &self,
        bytes: usize,
        plain_bytes_max: usize,
        mut look: impl FnMut(&mut Scratch, usize) -> Result<T, PublishError>,
    ) -> Result<T, PublishError> {
        let small = plain_bytes_max.min(SMALL_BYTES);
        if bytes <= small {
            let looked = SMALL.with_borrow_mut(|scratch| look(scratch, small));
            let is_too_small = |error: &PublishError| {
                matches!(error, PublishError::Invalid(InvalidBatch::PlainTooLarge { .. }))
            };
            if small == plain_bytes_max || !looked.as_ref().is_err_and(is_too_small) {
                return looked;
            }
        }
        let mut large = self.large.lock().unwrap_or_else(PoisonError::into_inner);
        large.is_used = true;
        let looked = look(&mut large.scratch, plain_bytes_max);
        // What a topic with very large batches needed beyond the usual.
        large.scratch.shrink();
        looked
    }

    /// Gives the large buffer back if nobody has used it since the last call.
    pub(crate) fn release_idle(&self) {
        let mut large = match self.large.try_lock() {
            Ok(large) => large,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if !std::mem::take(&mut large.is_used) {
            large.scratch.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn too_large(max: usize) -> Result<(), PublishError> {
        Err(InvalidBatch::PlainTooLarge { max }.into())
    }

    #[test]
    fn a_batch_that_outgrows_the_small_buffer_is_looked_at_once_more_in_the_large_one() {
        let memory = PlainMemory::default();
        let mut caps = Vec::new();
        let looked = memory.look(10, PLAIN_BYTES_MAX, |_, cap| {
            caps.push(cap);
            too_large(cap)
        });
        assert!(looked.is_err());
        assert_eq!(caps, [SMALL_BYTES, PLAIN_BYTES_MAX]);
    }

    #[test]
    fn a_batch_that_is_large_as_it_came_is_looked_at_once() {
        let memory = PlainMemory::default();
        let mut caps = Vec::new();
        let looked = memory.look(SMALL_BYTES + 1, PLAIN_BYTES_MAX, |_, cap| {
            caps.push(cap);
            Ok(())
        });
        assert!(looked.is_ok());
        assert_eq!(caps, [PLAIN_BYTES_MAX]);
    }

    #[test]
    fn a_topic_that_allows_little_gets_no_second_look() {
        let memory = PlainMemory::default();
        let mut caps = Vec::new();
        let looked = memory.look(10, 1_000, |_, cap| {
            caps.push(cap);
            too_large(cap)
        });
        assert!(looked.is_err());
        assert_eq!(caps, [1_000]);
    }
}
