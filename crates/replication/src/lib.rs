//! Who may append to a partition, what counts as committed, and which batches are repeats.
//!
//!   log_start_offset ≤ last_stable_offset ≤ high_watermark ≤ log_end_offset
//!   high_watermark ≤ durable offset of every in-sync replica (relaxed topics: ≤ its log end)
//!
//! One [`Leader`] per partition that this broker leads; a value that is told what happened and asked
//! what follows. It holds no records and orders no IO: the log does, and the driver calls both under
//! one lock. A partition with one replica is not a special case: its in-sync set has one member, and
//! that member's durable offset is the smallest there is.

mod admission;
mod epochs;
mod follower;
mod leader;
mod producers;

pub use admission::{Acks, Admission, ProduceRefusal};
pub use epochs::{EpochHistory, EpochRefusal, EpochStart};
pub use follower::{FetchRefusal, FollowerView};
pub use leader::{Leader, LeaderStart};
pub use producers::{
    BATCHES_REMEMBERED, ProducerView, Producers, RememberedBatch, SequenceRefusal, SnapshotError,
};
