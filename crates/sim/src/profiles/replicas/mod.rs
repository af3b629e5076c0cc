//! One partition on several brokers: leaders and followers as values, a controller that decides by
//! the rules of KIP-497, KIP-903 and KIP-966, disks that lose what was not synced, and a network that
//! loses, delays, repeats and reorders.
//!
//! ```text
//!  brokers ─ positions, answers ─ brokers         produce, read, fault, heal: by the clock of the run
//!     └─ registrations, heartbeats, proposals ─ controller ─ states of the partition ─▶ all brokers
//! ```
//!
//! Only the cores of `towpath-replication` are the product; the rest is as small as it can be, so
//! that a seed costs a millisecond and finds what lies in the cores. The ghost knows what was
//! committed, from the moment at which a leader's high watermark passed it.

mod broker;
mod controller;
mod ghost;
mod machine;
mod swarm;
mod world;

use crate::events::Events;
use crate::profile::{Profile, Violation};
use crate::steps::Parted;
use crate::trace::Trace;
use world::World;

/// The profile.
#[derive(Debug)]
pub struct Replicas;

impl Profile for Replicas {
    fn name(&self) -> &'static str {
        "replicas"
    }

    fn about(&self) -> &'static str {
        "the cores of leaders and followers, a toy controller, crashes, lost and late messages"
    }

    fn must_happen(&self) -> &'static [&'static str] {
        &[
            "broker: killed",
            "broker: paused",
            "broker: power lost",
            "broker: unsynced records lost",
            "controller: eligible replica elected",
            "controller: expansion accepted",
            "controller: leader elected",
            "controller: proposal refused, member not eligible",
            "controller: proposal refused, stale partition epoch",
            "controller: shrink accepted",
            "follower: answer ignored",
            "follower: began anew",
            "follower: log cut",
            "follower: position diverges",
            "leader: expansion made void",
            "leader: high watermark not certain",
            "leader: led after following",
            "leader: resigned",
            "leader: stale incarnation refused",
            "leader: zombie refused",
            "network: message delayed",
            "network: message lost",
            "network: message repeated",
            "network: one way only",
            "records: acknowledged",
            "records: deleted",
        ]
    }

    fn run(&self, seed: u64, trace: &Trace) -> Result<Events, Violation> {
        let mut world = World::new(seed, trace.clone());
        world.life(World::live)?;
        Ok(world.into_events())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::{Campaign, run};

    #[test]
    fn three_hundred_seeds_keep_every_promise() {
        let outcome = run(&Replicas, Campaign { from: 1, seeds: 300, threads: 2, twice: true });
        assert_eq!(outcome.failure.map(|failure| failure.to_string()), None);
        assert_eq!(outcome.passed, 300);
    }
}
