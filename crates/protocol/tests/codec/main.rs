//! The codec as a whole: every message in every version.

#[path = "../support/mod.rs"]
mod support;

mod against_kafka;
mod against_kafka_protocol;
mod fields;
mod hostile;
mod round_trip;
