//! The Kafka port from outside: a whole broker in this process, and raw frames over TCP; several
//! brokers that form a cluster (`cluster.rs`); and the port for other brokers (`peers.rs`).
//!
//! These tests are about what a client may rely on, so they speak only the protocol; what is odd
//! about an answer is explained in `docs/kafka-behaviour.md`.

mod broker;
mod cluster;
mod clustered;
mod clustered_admin;
mod clustered_client;
mod configs;
mod connections;
mod disks;
mod every_version;
mod fetch;
mod full_disk;
mod groups;
mod peer_transport;
mod peers;
mod produce;
mod queues;
mod restart;
mod topics;
mod wire;
