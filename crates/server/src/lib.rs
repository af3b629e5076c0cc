//! Real sockets, disks, clocks and threads around the driver, and the Kafka protocol.
//!
//! Touches the world and never decides: a handler decodes, asks the driver, encodes. The produce
//! path in order: `connection.rs` → `kafka/produce.rs` → `towpath_driver`'s `produce.rs` → the log.

mod address_book;
mod clock;
mod cluster;
mod cold_reads;
mod complaints;
mod connection;
mod connection_slots;
pub mod disk;
mod first_bytes;
pub mod formation;
mod guard;
mod health;
mod kafka;
mod limits;
mod listener;
mod metrics;
mod node;
mod outgoing;
pub mod peer;
mod plain_memory;
mod progress;
mod publish;
mod queues;
mod reads;
mod remove_broker;
mod restart_order;
mod self_test;
mod topics;
pub mod verify;
mod waiters;

pub use address_book::AddressBook;
pub use clock::SystemClock;
pub use cluster::Neighbours;
pub use connection_slots::{ConnectionSlot, ConnectionSlots, NoSlot};
pub use first_bytes::Stranger;
pub use limits::{Charge, Ledger, Limits, TOO_FEW_FILES, leaves_files_for_data};
pub use listener::KafkaListener;
pub use metrics::Metrics;
pub use node::{Node, NodeSettings, Surroundings, SystemDriver, Unavailable, random_uuid};
pub use plain_memory::PlainTurn;
pub use progress::Progress;
pub use publish::{Acknowledged, Appended, PublishError};
pub use queues::{NotRead, ReadMessages, StoredMessage};
pub use remove_broker::RemovalFailure;
pub use restart_order::{NoRestart, RestartOrder};
pub use self_test::SelfTestError;
pub use towpath_log::Identity;
pub use waiters::{Wait, Waiters};
