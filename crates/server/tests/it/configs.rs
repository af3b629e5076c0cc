//! Topic configurations, and that a change counts at once.

use std::time::{Duration, Instant};

use towpath_protocol::ErrorCode;
use towpath_records::{BatchHeader, Compression, TimestampType};

use crate::broker::{Broker, Options};
use crate::wire::{Wire, batch, batch_at, now_ms};

#[test]
fn max_message_bytes_counts_from_the_next_batch_on() {
    let broker = Broker::start();
    let mut wire = broker.connect();
    wire.create("topic", 1, &[]);
    let large = "x".repeat(2000);
    assert_eq!(wire.produce("topic", &batch(&[&large])).error, ErrorCode::None);
    assert_eq!(wire.alter("topic", "max.message.bytes", Some("1000")), ErrorCode::None);
    assert_eq!(wire.produce("topic", &batch(&[&large])).error, ErrorCode::MessageTooLarge);
    assert_eq!(wire.alter("topic", "max.message.bytes", None), ErrorCode::None);
    assert_eq!(wire.produce("topic", &batch(&[&large])).error, ErrorCode::None);
}

#[test]
fn log_append_time_is_the_brokers() {
    let broker = Broker::start();
    let mut wire = broker.connect();
    wire.create("topic", 1, &[("message.timestamp.type", "LogAppendTime")]);
    let before = now_ms();
    let answer = wire.produce("topic", &batch_at(1_000, &["a", "b"]));
    assert!((before..=now_ms()).contains(&answer.append_time), "{answer:?}");
    let stored = wire.fetch("topic", 0);
    let header = BatchHeader::parse(&stored.bytes).unwrap();
    assert_eq!(header.timestamp_type(), TimestampType::LogAppendTime);
    assert_eq!(header.max_timestamp().0, answer.append_time);
    assert_eq!(wire.list_offset("topic", answer.append_time).1, 0);
    assert_eq!(stored.values(), ["a", "b"]);
}

#[test]
fn compression_type_compresses_anew() {
    let broker = Broker::start();
    let mut wire = broker.connect();
    wire.create("topic", 1, &[("compression.type", "gzip")]);
    let value = "x".repeat(5000);
    wire.produce("topic", &batch(&[&value, "b"]));
    let stored = wire.fetch("topic", 0);
    assert_eq!(BatchHeader::parse(&stored.bytes).unwrap().compression(), Ok(Compression::Gzip));
    assert!(stored.bytes.len() < 1000);
    assert_eq!(stored.values(), [&value, "b"]);
}

#[test]
fn a_value_out_of_bounds_changes_nothing() {
    let broker = Broker::start();
    let mut wire = broker.connect();
    wire.create("topic", 1, &[]);
    assert_eq!(wire.alter("topic", "retention.ms", Some("-2")), ErrorCode::InvalidConfig);
    assert_eq!(wire.alter("topic", "no.such", Some("1")), ErrorCode::InvalidConfig);
    assert_eq!(wire.alter("absent", "retention.ms", Some("1")), ErrorCode::UnknownTopicOrPartition);
}

/// Retention that is looked at all the time.
fn with_fast_retention() -> Broker {
    let properties = vec![("log.retention.check.interval.ms", "1")];
    Broker::start_with(Options { properties, ..Options::default() })
}

fn wait_for_log_start(wire: &mut Wire, wanted: i64) {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let (_, start, _) = wire.list_offset("topic", -2);
        if start == wanted {
            return;
        }
        assert!(Instant::now() < deadline, "the log still starts at {start}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn records_older_than_retention_ms_are_removed() {
    let broker = with_fast_retention();
    let mut wire = broker.connect();
    wire.create("topic", 1, &[("retention.ms", "60000")]);
    wire.produce("topic", &batch_at(now_ms() - 3_600_000, &["old", "old"]));
    wait_for_log_start(&mut wire, 2);
    assert_eq!(wire.fetch("topic", 0).error, ErrorCode::OffsetOutOfRange);
    assert_eq!(wire.produce("topic", &batch(&["new"])).base_offset, 2);
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(wire.fetch("topic", 2).values(), ["new"]);
}

#[test]
fn segments_beyond_retention_bytes_are_removed() {
    let broker = with_fast_retention();
    let mut wire = broker.connect();
    wire.create("topic", 1, &[("segment.bytes", "1048576"), ("retention.bytes", "1500000")]);
    let value = "x".repeat(400_000);
    for at in 0..6 {
        assert_eq!(wire.produce("topic", &batch(&[&value])).base_offset, at);
    }
    // Two batches fill a segment; the oldest segment goes once 1,500,000 bytes are left without it.
    wait_for_log_start(&mut wire, 2);
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(wire.list_offset("topic", -2).1, 2);
    assert_eq!(wire.fetch("topic", 2).error, ErrorCode::None);
}

#[test]
fn retention_can_be_shortened_while_running() {
    let broker = with_fast_retention();
    let mut wire = broker.connect();
    wire.create("topic", 1, &[]);
    wire.produce("topic", &batch_at(now_ms() - 3_600_000, &["old"]));
    std::thread::sleep(Duration::from_millis(1200));
    assert_eq!(wire.list_offset("topic", -2).1, 0);
    assert_eq!(wire.alter("topic", "retention.ms", Some("1000")), ErrorCode::None);
    wait_for_log_start(&mut wire, 1);
}
