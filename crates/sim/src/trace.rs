//! What a run did, as a 64-bit hash that two runs of one seed must share, and as text on demand.
//!
//! Shared by handle: the disk writes its calls and the profile its steps into one sequence. Only
//! names and numbers go in; an address or an order that differs per process must never get here.

use std::fmt;
use std::sync::{Arc, Mutex};

use crate::steps::Parts;

/// A longer remark (an answer that lists every property of a topic) hides more than it shows.
const REMARK_BYTES_MAX: usize = 400;

/// A handle to the record of one run.
#[derive(Clone)]
pub struct Trace {
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    hash: u64,
    steps: u64,
    prints: bool,
    /// The parts that happen; `None`: all of them.
    kept: Option<Parts>,
    /// Every part that was reached.
    reached: Parts,
    life: u32,
    step: u32,
}

impl Trace {
    /// A trace that only hashes.
    #[must_use]
    pub fn hashing() -> Trace {
        Trace::with(false)
    }

    /// A trace that also prints one line per event to standard error.
    #[must_use]
    pub fn printing() -> Trace {
        Trace::with(true)
    }

    fn with(prints: bool) -> Trace {
        let inner = Inner {
            hash: 0x746f_7770_6174_6821,
            steps: 0,
            prints,
            kept: None,
            reached: Parts::default(),
            life: 0,
            step: 0,
        };
        Trace { inner: Arc::new(Mutex::new(inner)) }
    }

    /// The same, for a run of which only these parts happen.
    #[must_use]
    pub fn keeping(self, parts: Option<Parts>) -> Trace {
        self.change(|inner| inner.kept = parts);
        self
    }

    /// A world is made: lives are counted from 1 again.
    pub fn begin_world(&self) {
        self.change(|inner| (inner.life, inner.step) = (0, 0));
    }

    /// The next life begins; says whether it happens.
    pub fn begin_life(&self) -> bool {
        self.change(|inner| {
            (inner.life, inner.step) = (inner.life + 1, 0);
            inner.reached.add_life(inner.life);
            if inner.prints {
                eprintln!("         life {}", inner.life);
            }
            inner.kept.as_ref().is_none_or(|kept| kept.has_life(inner.life))
        })
    }

    /// The next step of the life begins; says whether it happens.
    pub fn begin_step(&self) -> bool {
        self.change(|inner| {
            inner.step += 1;
            inner.reached.add_step(inner.life, inner.step);
            let keeps =
                inner.kept.as_ref().is_none_or(|kept| kept.has_step(inner.life, inner.step));
            if inner.prints && keeps {
                eprintln!("         step {}:{}", inner.life, inner.step);
            }
            keeps
        })
    }

    /// Every part that was reached so far, happened or not.
    #[must_use]
    pub fn reached(&self) -> Parts {
        self.change(|inner| inner.reached.clone())
    }

    /// Notes an event with its numbers.
    pub fn event(&self, name: &str, numbers: &[u64]) {
        self.change(|inner| {
            inner.absorb(name.as_bytes());
            for number in numbers {
                inner.mix(*number);
            }
            inner.steps += 1;
            if inner.prints {
                eprintln!("{:>7}  {name} {}", inner.steps, Numbers(numbers));
            }
        });
    }

    /// Notes an event whose content matters too.
    pub fn content(&self, name: &str, bytes: &[u8]) {
        self.change(|inner| inner.absorb(bytes));
        self.event(name, &[bytes.len() as u64]);
    }

    /// Prints a remark in a printing trace. Remarks are not part of the hash.
    pub fn remark(&self, text: impl FnOnce() -> String) {
        self.change(|inner| {
            if inner.prints {
                let text = text();
                let end = text.floor_char_boundary(REMARK_BYTES_MAX);
                eprintln!("         {}", &text[..end]);
            }
        });
    }

    /// Hash of everything so far.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.change(|inner| inner.hash)
    }

    /// Number of events so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.change(|inner| inner.steps)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        // A panic of the product under test may have poisoned the lock; the numbers are still good.
        let mut inner = self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        change(&mut inner)
    }
}

impl Inner {
    fn mix(&mut self, number: u64) {
        let mut h = (self.hash ^ number).wrapping_mul(0x9fb2_1c65_1e98_df25);
        h ^= h >> 32;
        self.hash = h.wrapping_mul(0xd6e8_feb8_6659_fd93).rotate_left(29);
    }

    fn absorb(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word));
        }
        self.mix(bytes.len() as u64);
    }
}

struct Numbers<'a>(&'a [u64]);

impl fmt::Display for Numbers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for number in self.0 {
            write!(f, "{number} ")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Trace({:016x} after {} events)", self.hash(), self.steps())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_tells_order_names_numbers_and_bytes_apart() {
        let hash = |notes: &dyn Fn(&Trace)| {
            let trace = Trace::hashing();
            notes(&trace);
            trace.hash()
        };
        let one = hash(&|t| {
            t.event("a", &[1]);
            t.event("b", &[2]);
        });
        let swapped = hash(&|t| {
            t.event("b", &[2]);
            t.event("a", &[1]);
        });
        let again = hash(&|t| {
            t.event("a", &[1]);
            t.event("b", &[2]);
        });
        assert_eq!(one, again);
        assert_ne!(one, swapped);
        assert_ne!(hash(&|t| t.content("w", b"x")), hash(&|t| t.content("w", b"x\0")));
    }
}
