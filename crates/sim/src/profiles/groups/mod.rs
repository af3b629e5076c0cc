//! Consumer groups over the real driver: members that join, share partitions, read, commit, fall
//! silent, come back, and are fenced, on a machine that crashes (INV-C1 to C4).
//!
//! Members are real in what they do: they act on answers only, and keep what they were told until
//! somebody tells them otherwise. The surprise: a member that only *paused* is the dangerous one. It
//! wakes with an old generation and commits, and the coordinator has to know.

mod life;
mod members;
mod requests;
mod topic;
mod world;

use crate::events::Events;
use crate::profile::{Profile, Violation};
use crate::steps::Parted;
use crate::trace::Trace;
use world::World;

/// The profile.
#[derive(Debug)]
pub struct Groups;

impl Profile for Groups {
    fn name(&self) -> &'static str {
        "groups"
    }

    fn about(&self) -> &'static str {
        "consumer groups over the real driver: joins, commits, pauses and fences, over many crashes"
    }

    fn must_happen(&self) -> &'static [&'static str] {
        &[
            "commit: accepted",
            "commit: fenced by generation",
            "commit: fenced by instance",
            "commit: fenced, the member is not known",
            "commit: without an answer",
            "commit: without an answer, and it counts",
            "compaction: ended",
            "disk: sync failed",
            "life: killed",
            "life: power lost",
            "member: assigned",
            "member: fell silent",
            "member: id handed out",
            "member: left",
            "member: static one came back",
            "member: went on after a restart",
            "member: woke with what it knew",
            "life: paused",
            "network: answer came late",
            "network: answer lost",
            "network: request repeated",
            "sync: made durable after more appends",
            "sync: published after more appends",
            "topic: deleted",
            "topic: made again under its name",
        ]
    }

    fn run(&self, seed: u64, trace: &Trace) -> Result<Events, Violation> {
        let mut world = World::new(seed, trace.clone());
        life::first(&mut world)?;
        for _ in 0..world.rng.between(1, 5) {
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
        let outcome = run(&Groups, Campaign { from: 1, seeds: 20, threads: 2, twice: true });
        assert_eq!(outcome.failure.map(|failure| failure.to_string()), None);
        assert_eq!(outcome.passed, 20);
    }
}
