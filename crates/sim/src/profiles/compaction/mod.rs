//! A compacted log through many lives of one process: appended to, compacted in steps between
//! everything else, read, deleted from, and stopped at any disk call.
//!
//! ```text
//! life:  open ─ compare with the ghost ─ steps … ─ close │ kill -9 │ power loss
//!                                         └ append, commit, begin, step, replace, roll, read …
//! ```
//!
//! A second log shares the data directory, so that commit rounds go through the write-ahead file:
//! what it holds of a replaced segment must never come back.

mod ghost;
mod life;
mod steps;

use crate::events::Events;
use crate::profile::{Profile, Violation};
use crate::trace::Trace;
use life::World;

/// The profile.
#[derive(Debug)]
pub struct Compaction;

impl Profile for Compaction {
    fn name(&self) -> &'static str {
        "compaction"
    }

    fn about(&self) -> &'static str {
        "a compacted log: the newest record of each key, tombstones, crashes in the middle"
    }

    fn must_happen(&self) -> &'static [&'static str] {
        &[
            "compaction: abandoned because the log had changed",
            "compaction: began",
            "compaction: ended",
            "compaction: ended before the end of its range",
            "compaction: interrupted by a full disk",
            "compaction: interrupted by the end of the process",
            "compaction: old tombstone removed",
            "compaction: record removed",
            "compaction: replaced one segment",
            "compaction: replaced several segments",
            "compaction: sound in a power loss of a copy",
            "disk: rename lost",
            "disk: removal lost",
            "disk: stopped at a directory sync",
            "disk: stopped at a removal",
            "disk: stopped at a rename",
            "disk: stopped at a write",
            "life: closed",
            "life: ended during the start",
            "life: killed",
            "life: power lost",
            "log: start moved",
            "log: write-ahead frames repaired a segment",
        ]
    }

    fn run(&self, seed: u64, trace: &Trace) -> Result<Events, Violation> {
        let mut world = World::new(seed, trace.clone());
        for _ in 0..world.rng.between(2, 7) {
            life::live(&mut world)?;
        }
        life::last(&mut world)?;
        Ok(world.into_events())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::{Campaign, run};

    #[test]
    fn forty_seeds_keep_every_promise_and_are_deterministic() {
        let outcome = run(&Compaction, Campaign { from: 1, seeds: 40, threads: 2, twice: true });
        assert_eq!(outcome.failure.map(|failure| failure.to_string()), None);
        assert_eq!(outcome.passed, 40);
    }
}
