//! The second shell: real cores and the real log in one thread, driven from a seed.
//!
//! ```text
//! seed ──▶ Rng ──▶ workload ──▶ the product ──▶ SimDisk   (forgets, tears, fills up, fails)
//!                     │                          SimClock  (jumps)
//!                     ▼
//!                  checker: its own model of what was promised ──▶ Violation | Events
//! ```
//!
//! A [`Profile`] is one such arrangement. A run with the same seed makes the same calls and so
//! has the same [`Trace`] hash, in every process. The surprise: the checkers never ask the product
//! what is durable. They ask the disk, or they cut the power and look.

pub mod campaign;
pub mod checker;
pub mod clock;
pub mod contract;
pub mod disk;
pub mod events;
pub mod ledger;
pub mod mutants;
pub mod profile;
pub mod profiles;
pub mod rng;
pub mod scenario;
pub mod shrink;
pub mod steps;
pub mod trace;
pub mod workload;

pub use clock::SimClock;
pub use disk::SimDisk;
pub use events::Events;
pub use profile::{Profile, Violation};
pub use rng::Rng;
pub use steps::Parted;
pub use trace::Trace;
