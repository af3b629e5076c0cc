//! The thick client: a producer, a group consumer, a reader without a group, and administration; a queue
//! client and a worker.
//!
//! Logs it knows by the public Kafka protocol alone, so that works with any Kafka 4.x as well; queues by
//! Towpath's HTTP API. It needs a tokio runtime, of either flavour. What surprises: positions in a partition move only when
//! records are handed to the caller, and committing them is always the caller's own call.
//!
//! ```text
//!   Producer   GroupConsumer   Reader   Admin
//!       └───────────┴───┬─────────┴───────┘
//!                    Cluster       brokers, leaders, coordinators
//!                       │
//!                   Connection     frames, in order, many on the way
//!
//!   QueueWorker ── Queue ── HttpCluster
//! ```

mod admin;
mod cluster;
mod config;
mod consumer;
mod error;
mod image;
mod news;
mod producer;
mod queue;
mod record;
mod wire;

pub use admin::{
    Admin, ConfigChange, ConfigEntry, ConfigSource, CreatedTopic, GroupDescription, GroupListing,
    GroupMember, LogDir, NewTopic, Resource, StoredPartition,
};
pub use cluster::{Cluster, Lane};
pub use config::{Backoff, ClientConfig, DEFAULT_PORT, join_address, split_address};
pub use consumer::{
    Assignments, Assignor, Bound, Committed, FetchConfig, FoundOffset, GroupConfig, GroupConsumer,
    Isolation, MemberSubscription, OffsetReset, OffsetSpec, Reader, RebalanceEvent,
    RebalanceListener,
};
pub use error::{Error, Result};
pub use image::{Broker, Image, Partition, Topic};
pub use producer::{Acks, Delivered, DeliveryFuture, OnFull, Producer, ProducerConfig};
pub use queue::{
    BreakerConfig, BreakerState, HandlerError, HttpCluster, HttpConfig, OutgoingMessage, Queue,
    QueueMessage, QueueWorker, ReceiveOptions, SentMessage, Settled, Work, WorkerConfig,
    WorkerHandle, WorkerStats,
};
pub use record::{Header, OutgoingRecord, Record, TopicPartition};
pub use towpath_model::{BrokerId, LeaderEpoch, Offset, PartitionIndex, Timestamp};
pub use towpath_protocol::{ErrorCode, Uuid};
pub use towpath_records::Compression;
pub use wire::{Answer, Connection, Pending, Place, recognise};
