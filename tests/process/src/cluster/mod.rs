//! Three real brokers, each with a network and a disk of its own, to which things happen.
//!
//! ```text
//!            writers, members, a reader                  faults, one after the other or two at once
//!                       │                                              │
//!        ───────────── bridge ─────────────      kill, pause, stop: signals
//!          │            │            │           cut: routing rules that drop what comes from somebody
//!      namespace 1  namespace 2  namespace 3     fill: a file on the broker's own file system
//!      ext4, loop   ext4, loop   ext4, loop      slow: a limit on what the broker writes to it
//! ```
//!
//! After every fault all is mended, the brokers get in sync, and what lies on the three disks is
//! compared byte for byte, and with what clients were promised. Only root can do that.
//!
//! What surprises: here, and only here, a test looks into data directories. A follower's copy cannot
//! be read in any other way, and segments are Kafka's own format.

mod campaign;
mod disk;
mod fault;
mod flips;
mod foreign;
mod ledger;
mod moves;
mod node;
mod queues;
mod replicas;
mod rig;
mod rolling;
mod round;
mod tool;
mod view;

pub use campaign::{Kind, Plan, run};
pub use rig::{missing, sweep_after};
