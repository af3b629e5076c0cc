//! Work queues in a cluster: clients of every kind at two queues, of which one takes the other's dead letters,
//! in the world of the profile `cluster` with everything that goes wrong there.
//!
//! ```text
//! clients ─ send, receive, delete, … ─▶ whoever seems to lead ─▶ answers ─▶ account: what must hold now
//! carrier ─ moves ─▶ append at the other queue ─▶ moved           one per process, dies with it anywhere
//! ```
//!
//! The account ([`account`]) knows calls, answers and the records that receivers read, and nothing else. In the end
//! everything is mended, and clients receive and delete until there is nothing left: then every
//! acknowledged message was worked, dropped by request, grown too old, or carried to where it was worked.

mod account;
mod answers;
mod carrier;
mod cleaner;
mod clients;
mod drain;
mod mix;
mod records;
mod subscribers;

use std::time::Duration;

use towpath_model::PartitionIndex;

use crate::events::Events;
use crate::profile::{Profile, Violation, ensure};
use crate::steps::Parted;
use crate::trace::Trace;

use super::FORMING_MAX;
use super::heal;
use super::swarm::Swarm;
use super::world::World;
use crate::rng::Rng;

pub(super) use clients::{Clients, Waiter};
pub(super) use mix::Mix;

/// The profile.
#[derive(Debug)]
pub struct Queue;

/// The queue that is worked, and the one that takes what cannot be worked.
const QUEUE: &str = "work";
const DEAD: &str = "dead";

impl Profile for Queue {
    fn name(&self) -> &'static str {
        "queue"
    }

    fn about(&self) -> &'static str {
        "work queues on three real drivers: leases, groups, dead letters, over every kind of failure"
    }

    fn must_happen(&self) -> &'static [&'static str] {
        &[
            "cluster: broker restarted after a failure",
            "cluster: controller changed",
            "cluster: leader elected",
            "cluster: old leader fenced",
            "cluster: replica began anew",
            "cluster: stopped at a call",
            "fault: all lost power",
            "fault: broker isolated",
            "fault: disk filled",
            "fault: disk replaced",
            "fault: process paused",
            "fault: wall clock jumped",
            "queue: a follower has folded along",
            "work: carrier died on its way",
            "work: deleted",
            "work: given back unclaimed",
            "work: message carried",
            "work: message received",
            "work: message received again",
            "work: message sent",
            "work: messages dropped",
            "work: messages lost on the way",
            "work: messages moved",
            "work: nothing left of what was done with",
            "work: nothing received",
            "work: promise kept",
            "work: purge",
            "work: receiver hung up",
            "work: receivers woken",
            "work: records deleted",
            "work: segment written anew",
            "work: send repeated",
            "work: subscribed from now on",
            "work: subscribed from the start",
            "work: subscription ended",
            "work: subscription not found",
        ]
    }

    fn run(&self, seed: u64, trace: &Trace) -> Result<Events, Violation> {
        let mut rng = Rng::new(seed);
        let swarm = Swarm::of_queues(&mut rng);
        let mut world = World::with(rng, swarm, trace.clone());
        world.let_clocks_differ();
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
    drain::drain(world)?;
    heal::converge(world)?;
    heal::check(world)
}

/// The brokers find each other, and the queues are made.
fn form(world: &mut World) -> Result<(), Violation> {
    let began = world.now;
    let mix = world.mix().clone();
    let (mut has_dead, mut has_own) = (false, false);
    loop {
        ensure!(world.now - began < FORMING_MAX, "INV-R14", "no queues come about");
        world.run_until(world.now + Duration::from_millis(20))?;
        if !world.has_formed() {
            continue;
        }
        if !has_dead {
            world.create_named(DEAD, 1, mix.properties(true, DEAD))?;
            has_dead = true;
        } else if !has_own && world.finds(DEAD, 0) {
            world.create_named(QUEUE, mix.partitions, mix.properties(false, DEAD))?;
            has_own = true;
        } else if has_own && world.finds(QUEUE, 0) && world.serve_queues(&mix)? {
            return Ok(());
        }
    }
}

impl World {
    /// In half of the runs every broker's monotonic clock has a rate of its own (INV-Q9).
    fn let_clocks_differ(&mut self) {
        if self.chance.percent(50) {
            return;
        }
        let most = i64::from(account::RATE_PER_MILLE);
        for node in self.nodes.values_mut() {
            node.set_rate(self.chance.weighted(&[(1, 0), (1, most), (1, -most)]));
        }
    }

    pub(super) fn mix(&self) -> &Mix {
        self.swarm.work.as_ref().expect("asked only where queues are worked")
    }

    fn finds(&self, name: &str, partition: i32) -> bool {
        let processes = self.nodes.values().filter_map(|node| node.process.as_ref());
        let mut found = processes
            .filter_map(|process| process.driver.partition_of(name, PartitionIndex(partition)));
        found.next().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::{Campaign, run};

    #[test]
    fn a_few_seeds_keep_every_promise() {
        let outcome = run(&Queue, Campaign { from: 1, seeds: 8, threads: 2, twice: true });
        assert_eq!(outcome.failure.map(|failure| failure.to_string()), None);
        assert_eq!(outcome.passed, 8);
    }
}
