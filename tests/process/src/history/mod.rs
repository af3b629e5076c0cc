//! What clients were promised, and whether it is there.
//!
//! A model of its own: it knows nothing of the broker's code, only what was sent, what was
//! acknowledged, what was read and what was committed. The names of the invariants are those of the
//! reliability catalogue:
//!
//! ```text
//!   R1   acknowledged records are there, where they were said to be
//!   R13  what was read once is read again
//!   P1   no record is there twice            P2  each writer's records keep their order
//!   P6   what was refused is not there       T4  offsets are contiguous, and none is invented
//!   C2   a group never falls back behind what it had committed
//!   C3   and never skips what it had not
//! ```
//!
//! What workers of queues are promised stands in `deliveries`.

mod deliveries;
mod group;
mod report;
mod stamp;
mod writers;

pub use deliveries::{Delivered, DeliveryHistory};
pub use group::GroupHistory;
pub use report::{Report, Violation};
pub use stamp::Stamp;
pub use writers::{Fate, FoundRecord, WriterHistory};

/// A partition by its topic's name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The topic.
    pub topic: String,
    /// The partition's index.
    pub partition: i32,
}

impl Place {
    /// Names a partition.
    pub fn new(topic: &str, partition: i32) -> Place {
        Place { topic: topic.to_owned(), partition }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}
