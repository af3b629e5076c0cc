//! The real driver, over a disk that forgets and clocks that jump, with clients of every kind:
//! producers, consumers, publishers over HTTP, an administrator.
//!
//! ```text
//! clients ─▶ Driver ─▶ SimDisk        the profile runs sync rounds, timers and upkeep whenever
//!    ▲          │                     chance says so: between any two steps, or not for long
//!    └─ Mailbox ┘
//! ```
//!
//! A run is a few *lives* of a broker process on one machine. The models know what clients sent, were
//! answered and have read, and ask the disk (a copy of it, without power) what is durable; they never
//! ask a core. The surprise: an answer that was in the mailbox when the machine stopped was never
//! given, so its client repeats.

mod admin;
mod catalog;
mod compacted;
mod consumers;
mod inspect;
mod life;
pub(super) mod machine;
mod network;
mod partitions;
mod producers;
mod publishers;
pub(super) mod shell;
mod swarm;
mod world;

use crate::events::Events;
use crate::profile::{Profile, Violation};
use crate::steps::Parted;
use crate::trace::Trace;
pub(super) use producers::validate;
use world::World;

/// The profile.
#[derive(Debug)]
pub struct Broker;

impl Profile for Broker {
    fn name(&self) -> &'static str {
        "broker"
    }

    fn about(&self) -> &'static str {
        "the real driver: producers, consumers, publishers and an administrator, over many crashes"
    }

    fn must_happen(&self) -> &'static [&'static str] {
        &[
            "admin: change without an answer has happened",
            "admin: nonsense refused",
            "admin: partitions added",
            "admin: records deleted",
            "admin: topic configured",
            "admin: topic created",
            "admin: topic deleted",
            "broker: deleted log removed",
            "broker: deletion finished by the next start",
            "broker: duplicate recognised",
            "broker: duplicate recognised after a restart",
            "broker: promises found on a copy without power",
            "broker: relaxed batch lost in a power cut",
            "broker: scrub passed over everything",
            "broker: segment scrubbed",
            "broker: write accepted after a refusal",
            "broker: write refused by the watermark",
            "broker: write refused while the disk does not answer",
            "broker: write refused for a full disk",
            "compaction: ended",
            "compaction: superseded record gone",
            "compaction: tombstone gone",
            "consumer: answer lost on the way",
            "consumer: compacted topic read",
            "consumer: records came late",
            "consumer: woken late",
            "consumer: long poll answered",
            "consumer: position was deleted",
            "consumer: records read",
            "disk: stopped at a removal",
            "disk: stopped at a rename",
            "disk: stopped at a sync",
            "disk: stopped at a write",
            "disk: sync failed",
            "disk: write torn",
            "life: closed, then power lost",
            "life: ended during the start",
            "life: killed",
            "life: power lost",
            "life: paused",
            "life: restarted after a failure",
            "network: answer came late",
            "network: connection cut",
            "network: request lost",
            "network: request of an old connection arrived",
            "network: request repeated",
            "network: stray batch appended first",
            "network: stray batch fenced",
            "network: stray batch recognised",
            "sync: made durable after more appends",
            "sync: published after a partition was closed",
            "sync: published after more appends",
            "producer: acknowledged by all",
            "producer: acknowledged by the leader",
            "producer: batch of an old epoch fenced",
            "producer: sequence refused after a loss",
            "retention: log start moved",
            "publisher: append recognised as a repeat",
            "publisher: message given up",
            "publisher: repeat answered after a crash",
            "publisher: resolved as appended",
            "publisher: resolved as not appended",
            "publisher: straggler fenced",
        ]
    }

    fn run(&self, seed: u64, trace: &Trace) -> Result<Events, Violation> {
        let mut world = World::new(seed, trace.clone());
        let lives = world.rng.between(2, 6);
        for _ in 0..lives {
            world.life(life::live)?;
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
    fn a_few_seeds_keep_every_promise() {
        let outcome = run(&Broker, Campaign { from: 1, seeds: 20, threads: 2, twice: true });
        assert_eq!(outcome.failure.map(|failure| failure.to_string()), None);
        assert_eq!(outcome.passed, 20);
    }
}
