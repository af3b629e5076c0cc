//! Retention over the real driver, with groups that read slowly: what a guard holds, what it may not
//! hold, and what is said of it (INV-T5, T8).
//!
//! Groups are simple consumers that commit wherever they please. The model knows what each was
//! answered; whatever happens to unanswered commits, the next start tells. Before every upkeep the
//! model notes where everything is, and after it (or after the crash in it) it judges every step of a
//! log start: had every group read that, or did a rule of the topic allow it, and is it named?

mod check;
mod groups;
mod life;
mod world;

use crate::events::Events;
use crate::profile::{Profile, Violation};
use crate::trace::Trace;
use world::World;

/// The profile.
#[derive(Debug)]
pub struct Retention;

impl Profile for Retention {
    fn name(&self) -> &'static str {
        "retention"
    }

    fn about(&self) -> &'static str {
        "retention and its guard over the real driver: slow groups, caps, a full disk, crashes"
    }

    fn must_happen(&self) -> &'static [&'static str] {
        &[
            "commit: accepted",
            "commit: back to an earlier offset",
            "commit: without an answer, and it counts",
            "guard: gave way to a full disk",
            "guard: held records of a group",
            "guard: held until the group had read them",
            "guard: let the oldest go beyond its cap",
            "guard: loss by an order named",
            "guard: loss by retention named",
            "guard: off, and nothing said",
            "life: killed",
            "life: power lost",
            "retention: records expired",
            "retention: start moved in an upkeep that a crash ended",
        ]
    }

    fn cost(&self) -> u64 {
        3
    }

    fn run(&self, seed: u64, trace: &Trace) -> Result<Events, Violation> {
        let mut world = World::new(seed, trace.clone());
        life::first(&mut world)?;
        for _ in 0..world.rng.between(1, 5) {
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
    fn a_few_seeds_keep_every_promise() {
        let outcome = run(&Retention, Campaign { from: 1, seeds: 20, threads: 2, twice: true });
        assert_eq!(outcome.failure.map(|failure| failure.to_string()), None);
        assert_eq!(outcome.passed, 20);
    }
}
