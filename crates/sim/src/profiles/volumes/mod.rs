//! Two data directories, of which one fails, stalls, or is not there at a start (faults F7 and F8):
//! what lies in the other goes on, and nothing that was acknowledged is lost or begun anew.
//!
//! ```text
//! partitions ─┬─▶ /srv/towpath/first      metadata, and its share of the partitions
//!             └─▶ /srv/towpath/second     the others; sometimes unreadable, not mounted, not named
//! ```
//!
//! Both lie on one simulated disk, so that a power cut meets them in the same moment; their faults are
//! bound to a path. The model knows of every partition where it lies, what was acknowledged there, and
//! which directory is in what state; each answer is judged by that alone.

mod life;
mod partitions;
mod world;

use crate::events::Events;
use crate::profile::{Profile, Violation};
use crate::steps::Parted;
use crate::trace::Trace;
use world::World;

/// The profile.
#[derive(Debug)]
pub struct Volumes;

impl Profile for Volumes {
    fn name(&self) -> &'static str {
        "volumes"
    }

    fn about(&self) -> &'static str {
        "two data directories over the real driver: one fails, stalls or is missing"
    }

    fn must_happen(&self) -> &'static [&'static str] {
        &[
            "disk: sync failed",
            "life: closed",
            "life: killed",
            "life: power lost",
            "volumes: acknowledged while another directory had failed",
            "volumes: acknowledged while another directory was missing",
            "volumes: acknowledged while another directory was stalled",
            "volumes: batch refused by a failed directory",
            "volumes: batch refused by a missing directory",
            "volumes: batch refused by a stalled directory",
            "volumes: batch taken after a stall",
            "volumes: directory empty in place of a missing one",
            "volumes: directory not named at a start",
            "volumes: directory unreadable at a start",
            "volumes: partition back with its directory",
            "volumes: partition offline with its directory",
            "volumes: read from a failed directory",
            "volumes: read from a stalled directory",
            "volumes: topic created while a directory was failed or missing",
        ]
    }

    fn run(&self, seed: u64, trace: &Trace) -> Result<Events, Violation> {
        let mut world = World::new(seed, trace.clone());
        life::first(&mut world)?;
        for _ in 0..world.rng.between(2, 6) {
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
        let outcome = run(&Volumes, Campaign { from: 1, seeds: 20, threads: 2, twice: true });
        assert_eq!(outcome.failure.map(|failure| failure.to_string()), None);
        assert_eq!(outcome.passed, 20);
    }
}
