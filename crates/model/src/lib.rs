//! What things are called: ids, offsets, epochs, time, configuration properties, and the one
//! contract of every replicated state machine.
//!
//! Nothing here acts: no IO, no clock, no decision. Every other crate may read this one, and this
//! one reads none of them. The surprise: [`Offset`] is signed, because the wire's is; a negative
//! offset never names a record, and the edges turn `-1` into an `Option` before it gets here.

mod ids;
pub mod mutant;
mod names;
pub mod properties;
mod state_machine;
mod time;
mod uuid;

pub use ids::{
    BrokerEpoch, BrokerId, Generation, LeaderEpoch, Offset, PartitionIndex, ProducerEpoch,
    ProducerId, Sequence, Token, TopicPartition,
};
pub use names::{ClusterId, InvalidName, TOPIC_NAME_BYTES_MAX, TopicName, is_internal_topic};
pub use properties::Durability;
pub use state_machine::{Decision, FoldError, FoldRecord, KeyValue, StateMachine};
pub use time::{Now, Time, Timestamp};
pub use uuid::{TopicId, Uuid};
