//! The controller and brokers that know it only by what it has logged: registrations, heartbeats,
//! in-sync sets and elections, over a network that loses, delays, repeats and swaps messages.
//!
//! The controller is the product's. Brokers are models: a log is a list of numbers, of which a part
//! is durable; replication copies the leader's list and cuts what differs. So nothing can be lost
//! through them, as long as the controller lets the right ones lead.
//!
//! ```text
//! broker ─ register, heartbeat, propose ─▶ (late, twice, never) ─▶ Metadata ─ records ─▶ committed
//!    ▲                                                                                      │
//!    └──────────────────────── folds them, each at its own pace ────────────────────────────┘
//! ```

mod node;
mod world;

use crate::events::Events;
use crate::profile::{Profile, Violation};
use crate::trace::Trace;

/// The profile.
#[derive(Debug)]
pub struct Controller;

impl Profile for Controller {
    fn name(&self) -> &'static str {
        "controller"
    }

    fn about(&self) -> &'static str {
        "the controller: who is there, in sync, eligible and leads, with model brokers"
    }

    fn must_happen(&self) -> &'static [&'static str] {
        &[
            "controller: eligible replica elected",
            "controller: leader elected anew",
            "controller: failed over",
            "controller: last replica in sync fenced",
            "controller: late proposal refused",
            "controller: member refused",
            "controller: minimum changed",
            "controller: proposal accepted",
            "controller: registration behind a refused proposal",
            "controller: replicas moved",
            "node: lost unsynced records",
            "node: broker dead for good",
        ]
    }

    fn run(&self, seed: u64, trace: &Trace) -> Result<Events, Violation> {
        world::run(seed, trace)
    }
}
