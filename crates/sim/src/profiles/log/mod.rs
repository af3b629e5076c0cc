//! The log of a broker without a broker: several partitions in one data directory, through many
//! lives of one process, each of which ends badly or well.
//!
//! ```text
//! life:  open ─ recover ─ compare with the ghosts ─ steps … ─ close │ kill -9 │ power loss
//!        └──────────── the machine may stop at any call, here too ────────────┘
//! ```
//!
//! Each seed switches a random half of the operations off and draws its own sizes (a *swarm*):
//! what always happens together hides what happens alone.

mod copies;
mod ghost;
mod life;
mod reads;
mod steps;
mod swarm;
mod world;

use crate::events::Events;
use crate::profile::{Profile, Violation};
use crate::trace::Trace;
use world::World;

/// The profile.
#[derive(Debug)]
pub struct Log;

impl Profile for Log {
    fn name(&self) -> &'static str {
        "log"
    }

    fn about(&self) -> &'static str {
        "logs in one data directory: append, commit, truncate, retain, crash, recover"
    }

    fn must_happen(&self) -> &'static [&'static str] {
        &[
            "disk: allocation found no space",
            "disk: create lost",
            "disk: last sector is noise",
            "disk: last sector is zero",
            "disk: length kept without its bytes",
            "disk: removal lost",
            "disk: rename lost",
            "disk: stopped at a create",
            "disk: stopped at a directory sync",
            "disk: stopped at a removal",
            "disk: stopped at a rename",
            "disk: stopped at a sync",
            "disk: stopped at a truncation",
            "disk: stopped at a write",
            "disk: sync failed",
            "disk: write forgotten",
            "disk: write torn",
            "disk: writes kept out of order",
            "life: closed",
            "life: killed",
            "life: power lost",
            "life: stopped during recovery",
            "log: appended",
            "log: append refused by a full disk",
            "log: commit of a truncated log passed over",
            "log: deleted",
            "log: durable in a power loss of a copy",
            "log: expired",
            "log: rolled",
            "log: several logs in one round",
            "log: start moved",
            "log: tail cut in recovery",
            "log: truncated",
            "log: truncated below its durable offset",
            "log: truncation undone by a power loss",
            "log: write-ahead frames repaired a segment",
        ]
    }

    fn run(&self, seed: u64, trace: &Trace) -> Result<Events, Violation> {
        let mut world = World::new(seed, trace.clone());
        let lives = world.rng.between(2, 7);
        for _ in 0..lives {
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
    fn thirty_seeds_keep_every_promise_and_are_deterministic() {
        let outcome = run(&Log, Campaign { from: 1, seeds: 30, threads: 2, twice: true });
        assert_eq!(outcome.failure.map(|failure| failure.to_string()), None);
        assert_eq!(outcome.passed, 30);
    }
}
