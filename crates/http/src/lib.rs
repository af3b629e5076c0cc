//! The HTTP API of a node: publish, read, commit offsets, look at topics; metrics and health.
//!
//! An edge: it knows JSON and HTTP, asks the node, and decides nothing about records. One file per
//! operation; `routes.rs` lists them. The surprise: what is not served here is not an error page
//! but JSON with a stable code (`api_error.rs`), down to requests that never became one.

mod accept_loss;
mod answer;
mod api_error;
mod app;
mod append_batch;
mod balance;
mod batch_answer;
mod body;
mod captured;
mod commit_offsets;
mod committed_offsets;
mod connection;
mod create_topic;
mod decode;
mod delete_topic;
mod drain_node;
mod encoding;
mod find_offsets;
mod forward;
mod front_page;
mod group_lag;
mod health;
mod limits;
mod list_groups;
mod list_losses;
mod list_moves;
mod list_nodes;
mod list_replicas;
mod list_sizes;
mod list_topics;
mod listener;
mod measure_lag;
mod memory;
mod message;
mod metrics;
mod node_self;
mod node_view;
mod openapi;
mod parsers;
mod partition_choice;
mod process;
mod publish_elsewhere;
mod publish_messages;
mod publisher;
mod queues;
mod read_messages;
mod refusals;
mod remove_node;
mod request_ids;
mod restart_node;
mod routes;
mod set_format_level;
mod show_cluster;
mod show_node;
mod show_producer;
mod show_topic;
mod sqs;
mod stall;
mod starting;
mod tasks;
mod time;

pub use api_error::Code;
pub use health::Readiness;
pub use listener::HttpListener;
pub use parsers::Part;
pub use sqs::{AccessKeys, InvalidAccessKeys, SqsSettings};
