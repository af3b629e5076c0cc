//! What others make of the same bytes: batches written by Kafka's Java client, and the verdicts
//! of Kafka 4.4's own broker code on good and bad ones.

mod allocations;
mod java_batches;
mod kafka_verdicts;
