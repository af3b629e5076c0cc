//! What clients were promised, kept by the simulator and compared with what the product does.
//!
//! The checkers know only what a client can know: what it sent, what it was answered, what it read.
//! They never look into a core.

pub mod groups;
pub mod produced;

pub use groups::{GroupHistory, Member};
pub use produced::{Answer, PartitionHistory};
