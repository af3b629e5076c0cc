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
use crate::steps::Parted;
use crate::trace::Trace;
use life::Faults;
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
            "disk: page lost by a failed sync was read again",
            "disk: removal lost",
            "disk: rename lost",
            "disk: stopped at a create",
            "disk: stopped at a directory sync",
            "disk: stopped at a removal",
            "disk: stopped at a rename",
            "disk: stopped at a sync",
            "disk: stopped at a sync of everything",
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
            "log: went on after a failed round",
            "log: write-ahead frames repaired a segment",
        ]
    }

    fn run(&self, seed: u64, trace: &Trace) -> Result<Events, Violation> {
        let mut world = World::new(seed, trace.clone());
        let lives = world.rng.between(2, 7);
        for _ in 0..lives {
            world.life(|world| life::live(world, Faults::Drawn))?;
        }
        life::last(&mut world)?;
        Ok(world.into_events())
    }
}

/// The same with fewer steps, and a stop at *every* call of one life, one run each: recovery,
/// appends, commits, the end.
#[derive(Debug)]
pub struct LogCalls;

impl Profile for LogCalls {
    fn name(&self) -> &'static str {
        "log-calls"
    }

    fn about(&self) -> &'static str {
        "a short life of the logs, stopped at each of its disk calls in turn"
    }

    fn must_happen(&self) -> &'static [&'static str] {
        &[
            "disk: stopped at a create",
            "disk: stopped at a directory sync",
            "disk: stopped at a removal",
            "disk: stopped at a rename",
            "disk: stopped at a sync",
            "disk: stopped at a truncation",
            "disk: stopped at a write",
            "disk: stopped at an allocation",
            "life: stopped during recovery",
        ]
    }

    fn cost(&self) -> u64 {
        50
    }

    fn run(&self, seed: u64, trace: &Trace) -> Result<Events, Violation> {
        let mut events = Events::new();
        let calls = second_life(seed, trace, Faults::None, &mut events)?;
        for call in 1..=calls {
            trace.event("stop at", &[call]);
            second_life(seed, trace, Faults::StopAt(call), &mut events)?;
        }
        Ok(events)
    }
}

/// A life without faults, one with `faults`, and a last look. Returns the calls of the second.
fn second_life(
    seed: u64,
    trace: &Trace,
    faults: Faults,
    events: &mut Events,
) -> Result<u64, Violation> {
    let mut world = World::new(seed, trace.clone());
    world.swarm.steps_max = world.swarm.steps_max.min(25);
    world.swarm.aims_percent = 0;
    world.life(|world| life::live(world, Faults::None))?;
    let before = world.disk.changing_calls();
    world.life(|world| life::live(world, faults))?;
    let calls = world.disk.changing_calls() - before;
    life::last(&mut world)?;
    events.merge(&world.into_events());
    Ok(calls)
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

    #[test]
    fn a_stop_at_each_call_of_one_life_loses_nothing() {
        let outcome = run(&LogCalls, Campaign { from: 1, seeds: 2, threads: 2, twice: false });
        assert_eq!(outcome.failure.map(|failure| failure.to_string()), None);
    }
}
