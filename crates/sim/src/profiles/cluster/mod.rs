//! A cluster: three to five real drivers over simulated disks, a network between them, clients of every
//! kind, and everything that goes wrong with machines, disks, clocks and connections.
//!
//! ```text
//! clients ─▶ broker 1 ⇄ network ⇄ broker 2 …     each with a disk, a clock, a process that comes and goes
//!    ▲           │ every call
//!    │           ▼
//!    └────── books: what is committed, what the metadata was, what clients were told
//! ```
//!
//! Half of the seeds are plain; in the other half faults come in bursts and meet whoever leads or
//! controls. In the end everything is mended, and the cluster must come into order by itself: every
//! partition led, every replica in sync and the same to the byte, everything acknowledged there once and in
//! order. The surprise: the checkers see every replica after every call, and still believe none: what
//! counts as durable is looked for on a copy of the disk that lost its power.

mod admin;
mod faults;
mod ghost;
mod heal;
mod network;
mod node;
mod observe;
mod offsets;
mod outbox;
mod producers;
mod queues;
mod readers;
mod swarm;
mod truth;
mod work;
mod world;

use std::time::Duration;

use crate::events::Events;
use crate::profile::{Profile, Violation, ensure};
use crate::steps::Parted;
use crate::trace::Trace;
use world::World;

pub use work::Queue;

/// The profile.
#[derive(Debug)]
pub struct Cluster;

/// How long brokers that meet for the first time may take until they serve.
const FORMING_MAX: Duration = Duration::from_secs(10);

impl Profile for Cluster {
    fn name(&self) -> &'static str {
        "cluster"
    }

    fn about(&self) -> &'static str {
        "three to five real drivers: consensus, replication, elections, over every kind of failure"
    }

    fn must_happen(&self) -> &'static [&'static str] {
        &[
            "admin: broker drained",
            "admin: change without an answer",
            "admin: deletion answered",
            "admin: leaders elected",
            "admin: partitions added",
            "admin: records deleted",
            "admin: replicas moved",
            "admin: topic configured",
            "admin: topic deleted",
            "cluster: broker registered again",
            "cluster: broker restarted after a failure",
            "cluster: broker stopped orderly",
            "cluster: controller changed",
            "cluster: eligible replica elected",
            "cluster: in-sync set grew",
            "cluster: in-sync set shrank",
            "cluster: log cut to where it agrees",
            "cluster: metadata snapshot arrived",
            "cluster: old leader fenced",
            "cluster: partition without a leader",
            "cluster: promises found on a disk without power",
            "cluster: proposal repeated",
            "cluster: replica began anew",
            "cluster: replica compared",
            "cluster: stale proposal refused",
            "cluster: stopped at a call",
            "cluster: stopped during the start",
            "consumer: batch read",
            "consumer: position was deleted",
            "disk: stopped at a sync",
            "disk: stopped at a write",
            "disk: sync failed",
            "fault: all lost power",
            "fault: broker isolated",
            "fault: controller out of reach",
            "fault: disk filled",
            "fault: disk replaced",
            "fault: one way blocked",
            "fault: process paused",
            "fault: slow disk",
            "fault: wall clock jumped",
            "group: commit without an answer",
            "group: offset answered",
            "network: connection refused",
            "network: message held by a partition",
            "network: message lost",
            "producer: acknowledged by all",
            "producer: duplicate recognised",
            "producer: refused for a disk",
            "producer: sequence refused after a loss",
            "producer: stray batch appended",
            "producer: stray batch recognised",
            "queue: a follower has folded along",
            "queue: deliveries trimmed",
            "queue: delivery acknowledged",
            "queue: made of a topic in use",
        ]
    }

    fn cost(&self) -> u64 {
        3
    }

    fn run(&self, seed: u64, trace: &Trace) -> Result<Events, Violation> {
        let mut world = World::new(seed, trace.clone());
        world.life(live)?;
        Ok(world.into_events())
    }
}

fn live(world: &mut World) -> Result<(), Violation> {
    form(world)?;
    world.begin_clients();
    world.begin_faults();
    let lasts = world.swarm.lasts;
    world.run_until(world.now + lasts)?;
    heal::mend(world);
    heal::converge(world)?;
    heal::check(world)
}

/// The first brokers find each other, and the first topics are made.
fn form(world: &mut World) -> Result<(), Violation> {
    let began = world.now;
    while !world.has_formed() {
        ensure!(world.now - began < FORMING_MAX, "INV-R14", "no cluster comes about");
        world.run_until(world.now + Duration::from_millis(20))?;
    }
    world.create_topic(true)?;
    world.create_topic(false)?;
    world.run_until(world.now + Duration::from_millis(200))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::{Campaign, run};

    #[test]
    fn a_few_seeds_keep_every_promise() {
        let outcome = run(&Cluster, Campaign { from: 1, seeds: 4, threads: 2, twice: true });
        assert_eq!(outcome.failure.map(|failure| failure.to_string()), None);
        assert_eq!(outcome.passed, 4);
    }
}
