//! Who may append to a partition, what counts as committed, and which batches are repeats.
//!
//!   log_start_offset ≤ last_stable_offset ≤ high_watermark ≤ log_end_offset
//!   high_watermark ≤ durable offset of every in-sync replica (relaxed topics: ≤ its log end)
//!
//! One [`Leader`] per partition that this broker leads, one [`Replica`] per partition that it
//! follows: values that are told what happened and asked what follows, and that turn into each other
//! when leadership moves. They hold no records and order no IO: the log does, and the driver calls
//! both under one lock. A partition with one replica is not a special case: its in-sync set has one member, and
//! that member's durable offset is the smallest there is.

mod admission;
mod epochs;
mod follower;
mod leader;
mod position;
mod producers;
mod replica;

pub use admission::{Acks, Admission, ProduceRefusal};
pub use epochs::{EpochHistory, EpochRefusal, EpochStart};
pub use follower::{FetchRefusal, FollowerView};
pub use leader::{
    InSyncProposal, Leader, LeaderStart, PRODUCERS_TOLD_MAX, PartitionDecision, ReplicaGrant,
};
pub use position::{AnswerKind, Incarnation, ReplicaAnswer, ReplicaPosition};
pub use producers::{
    BATCHES_REMEMBERED, ProducerView, Producers, RememberedBatch, SequenceRefusal, SnapshotError,
};
pub use replica::{Lead, Replica, ReplicaContradiction, ReplicaStart, ReplicaStep};
