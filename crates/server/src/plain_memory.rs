//! The memory in which produced batches are looked at in the clear: small pieces, as many as there are
//! processors, and one large piece for the whole broker.
//!
//! A compressed batch of a kilobyte can hold megabytes. Nearly all are small in the clear and find
//! room in a small piece. The others, known by their size or by having outgrown that, are looked at
//! one at a time in the large one. So what strangers make us decompress has a bound that does not
//! depend on how many of them there are: a few times [`SMALL_BYTES`] and, once, [`PLAIN_BYTES_MAX`]
//! or what a topic with larger batches allows, with a codec's window each. Pieces are taken whole at
//! their first use: growing by doubling would leave as much again with the allocator.
//!
//! The pieces belong to nobody between two looks. A thread's own would be more each time a worker is
//! held up, because another thread then becomes the worker.
//!
//! Looking at a large one takes milliseconds, so it is done where a worker is not held up, and whoever
//! waits for the buffer waits in a task and not in a thread.

use std::sync::{Arc, Mutex as ThreadMutex};

use tokio::sync::{Mutex, OwnedMutexGuard};
use towpath_records::{InvalidBatch, Scratch};

use crate::disk::off_worker;
use crate::publish::PublishError;

/// Largest batch after decompression, for topics with batches of ordinary size: a bomb ends here,
/// whatever it declares. Clients bound their batches before they compress them, at 1 MiB or so.
pub(crate) const PLAIN_BYTES_MAX: usize = 16 << 20;
/// Room of a small piece.
const SMALL_BYTES: usize = 1 << 20;

/// The small pieces, and the large one for one batch at a time.
pub(crate) struct PlainMemory {
    small: ThreadMutex<Small>,
    large: Arc<Mutex<Large>>,
}

/// Invariant: no more pieces are kept than processors can use at once.
struct Small {
    idle: Vec<Scratch>,
    kept_max: usize,
    /// Since the last [`PlainMemory::release_idle`].
    is_used: bool,
}

struct Large {
    scratch: Scratch,
    /// Since the last [`PlainMemory::release_idle`].
    is_used: bool,
}

/// The use of the large buffer. Held for one batch, and never while something is waited for.
pub struct PlainTurn(OwnedMutexGuard<Large>);

impl PlainTurn {
    fn new(mut large: OwnedMutexGuard<Large>) -> PlainTurn {
        large.is_used = true;
        PlainTurn(large)
    }

    /// The buffer.
    pub fn scratch(&mut self) -> &mut Scratch {
        &mut self.0.scratch
    }
}

impl Drop for PlainTurn {
    fn drop(&mut self) {
        // What a topic with very large batches needed beyond the usual.
        self.0.scratch.shrink();
    }
}

impl Default for PlainMemory {
    fn default() -> Self {
        let large = Large { scratch: Scratch::with_room(PLAIN_BYTES_MAX), is_used: false };
        let kept_max = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let small = Small { idle: Vec::new(), kept_max, is_used: false };
        PlainMemory { small: ThreadMutex::new(small), large: Arc::new(Mutex::new(large)) }
    }
}

impl PlainMemory {
    /// Runs `look` on a compressed batch of `bytes`, with memory and with how much of it may be
    /// used: the second time, if there is one, `plain_bytes_max`. With a turn, only that one.
    ///
    /// # Errors
    /// [`PublishError::PlainMemoryTaken`]: others use the large buffer; [`PlainMemory::turn`] waits
    /// for it.
    pub(crate) fn look<T>(
        &self,
        bytes: usize,
        plain_bytes_max: usize,
        turn: Option<PlainTurn>,
        mut look: impl FnMut(&mut Scratch, usize) -> Result<T, PublishError>,
    ) -> Result<T, PublishError> {
        let small = plain_bytes_max.min(SMALL_BYTES);
        if turn.is_none() && bytes <= small {
            let looked = self.look_small(|scratch, _| look(scratch, small));
            let is_too_small = |error: &PublishError| {
                matches!(error, PublishError::Invalid(InvalidBatch::PlainTooLarge { .. }))
            };
            if small == plain_bytes_max || !looked.as_ref().is_err_and(is_too_small) {
                return looked;
            }
        }
        let turn = turn.or_else(|| {
            let large = Arc::clone(&self.large).try_lock_owned().ok()?;
            Some(PlainTurn::new(large))
        });
        let mut turn = turn.ok_or(PublishError::PlainMemoryTaken)?;
        off_worker(|| look(turn.scratch(), plain_bytes_max))
    }

    /// Runs `look` with a small piece, and with how much of it may be used.
    pub(crate) fn look_small<T>(&self, look: impl FnOnce(&mut Scratch, usize) -> T) -> T {
        let idle = self.small().idle.pop();
        let mut scratch = idle.unwrap_or_else(|| Scratch::with_room(SMALL_BYTES));
        let looked = look(&mut scratch, SMALL_BYTES);
        let mut small = self.small();
        small.is_used = true;
        if small.idle.len() < small.kept_max {
            small.idle.push(scratch);
        }
        looked
    }

    fn small(&self) -> std::sync::MutexGuard<'_, Small> {
        self.small.lock().expect("nothing panics over the list of pieces")
    }

    /// Waits for the large buffer. To be awaited in a task that does nothing else meanwhile: a turn
    /// that has come and is not used is kept from all others.
    pub(crate) async fn turn(&self) -> PlainTurn {
        PlainTurn::new(Arc::clone(&self.large).lock_owned().await)
    }

    /// Gives back what nobody has used since the last call.
    pub(crate) fn release_idle(&self) {
        let mut small = self.small();
        if !std::mem::take(&mut small.is_used) {
            small.idle = Vec::new();
        }
        drop(small);
        let Ok(mut large) = self.large.try_lock() else { return };
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
        let looked = memory.look(10, PLAIN_BYTES_MAX, None, |_, cap| {
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
        let looked = memory.look(SMALL_BYTES + 1, PLAIN_BYTES_MAX, None, |_, cap| {
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
        let looked = memory.look(10, 1_000, None, |_, cap| {
            caps.push(cap);
            too_large(cap)
        });
        assert!(looked.is_err());
        assert_eq!(caps, [1_000]);
    }

    #[test]
    fn small_pieces_are_kept_for_whoever_comes_next_and_given_back_when_nobody_does() {
        let memory = PlainMemory::default();
        let kept_max = memory.small().kept_max;
        fn nest(memory: &PlainMemory, depth: usize) {
            if 0 < depth {
                memory.look_small(|_, _| nest(memory, depth - 1));
            }
        }
        nest(&memory, kept_max + 3);
        assert_eq!(memory.small().idle.len(), kept_max);
        memory.release_idle();
        assert_eq!(memory.small().idle.len(), kept_max);
        memory.release_idle();
        assert!(memory.small().idle.is_empty());
    }

    #[tokio::test]
    async fn nobody_waits_in_a_thread_for_the_large_buffer() {
        let memory = PlainMemory::default();
        let turn = memory.turn().await;
        let look = |turn| memory.look(SMALL_BYTES + 1, PLAIN_BYTES_MAX, turn, |_, _| Ok(()));
        assert!(matches!(look(None), Err(PublishError::PlainMemoryTaken)));
        assert!(look(Some(turn)).is_ok());
        assert!(look(None).is_ok());
    }
}
