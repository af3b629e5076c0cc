//! What survives a restart: everything that was acknowledged.

use towpath_protocol::ErrorCode;
use towpath_protocol::messages::*;

use crate::broker::{Broker, Options};
use crate::groups::{commit, committed};
use crate::produce::producer_id;
use crate::topics::delete_records;
use crate::wire::{Wire, batch, batch_at, numbered};

fn topic_id(wire: &mut Wire, topic: &str) -> (towpath_protocol::Uuid, usize) {
    let request = MetadataRequest {
        topics: Some(vec![MetadataRequestTopic { name: Some(topic), ..Default::default() }]),
        ..Default::default()
    };
    let answer = wire.ask(12, &request);
    let answer: MetadataResponse<'_> = answer.read();
    (answer.topics[0].topic_id, answer.topics[0].partitions.len())
}

#[test]
fn topics_records_and_times_survive() {
    let broker = Broker::start();
    let mut wire = broker.connect();
    let id = wire.create("topic", 3, &[("retention.ms", "-1")]);
    wire.produce("topic", &batch_at(1_000, &["a", "b"]));
    wire.produce("topic", &batch_at(5_000, &["c"]));
    drop(wire);
    let broker = broker.restart();
    let mut wire = broker.connect();
    assert_eq!(topic_id(&mut wire, "topic"), (id, 3));
    assert_eq!(wire.fetch("topic", 0).values(), ["a", "b", "c"]);
    assert_eq!(wire.list_offset("topic", 1_001), (ErrorCode::None, 1, 1_001));
    assert_eq!(wire.list_offset("topic", 1_002), (ErrorCode::None, 2, 5_000));
    assert_eq!(wire.list_offset("topic", -3), (ErrorCode::None, 2, 5_000));
    assert_eq!(wire.produce("topic", &batch(&["d"])).base_offset, 3);
}

#[test]
fn a_deleted_topic_stays_deleted() {
    let broker = Broker::start();
    let mut wire = broker.connect();
    wire.create("topic", 1, &[]);
    wire.produce("topic", &batch(&["a"]));
    wire.delete("topic");
    drop(wire);
    let broker = broker.restart();
    let mut wire = broker.connect();
    assert_eq!(wire.fetch("topic", 0).error, ErrorCode::UnknownTopicOrPartition);
    wire.create("topic", 1, &[]);
    assert_eq!(wire.fetch("topic", 0).high_watermark, 0);
}

#[test]
fn a_repeat_after_a_restart_is_answered_with_the_first_offset() {
    let broker = Broker::start();
    let mut wire = broker.connect();
    wire.create("topic", 1, &[]);
    let id = producer_id(&mut wire);
    let first = numbered(id, 0, &["a"]);
    wire.produce("topic", &first);
    wire.produce("topic", &numbered(id, 1, &["b"]));
    drop(wire);
    let broker = broker.restart();
    let mut wire = broker.connect();
    let again = wire.produce("topic", &first);
    assert_eq!((again.error, again.base_offset), (ErrorCode::None, 0));
    assert_eq!(wire.produce("topic", &numbered(id, 2, &["c"])).base_offset, 2);
    assert_eq!(wire.fetch("topic", 0).values(), ["a", "b", "c"]);
    assert_ne!(producer_id(&mut wire), id);
}

/// The records of the first batch are gone, those of the second, by the same producer, are not.
#[test]
fn a_repeat_of_deleted_records_is_recognised_after_a_crash() {
    let broker = Broker::start();
    let mut wire = broker.connect();
    wire.create("topic", 1, &[]);
    let id = producer_id(&mut wire);
    let first = numbered(id, 0, &["a"]);
    wire.produce("topic", &first);
    wire.produce("topic", &numbered(id, 1, &["b"]));
    assert_eq!(delete_records(&mut wire, "topic", 1), (ErrorCode::None, 1));
    let broker = Broker::start_in(broker.as_if_killed(), Options::default());
    let mut wire = broker.connect();
    let again = wire.produce("topic", &first);
    assert_eq!((again.error, again.base_offset), (ErrorCode::None, 0));
    assert_eq!(wire.produce("topic", &numbered(id, 2, &["c"])).base_offset, 2);
}

#[test]
fn committed_offsets_survive() {
    let broker = Broker::start();
    let mut wire = broker.connect();
    wire.create("topic", 1, &[]);
    assert_eq!(commit(&mut wire, "group", "topic", 7, "note"), ErrorCode::None);
    assert_eq!(committed(&mut wire, "group", "topic"), (7, "note".to_owned()));
    drop(wire);
    let broker = broker.restart();
    let mut wire = broker.connect();
    assert_eq!(committed(&mut wire, "group", "topic"), (7, "note".to_owned()));
}

#[test]
fn the_cluster_keeps_its_id() {
    let cluster = |wire: &mut Wire| {
        let answer = wire.ask(0, &DescribeClusterRequest::default());
        let answer: DescribeClusterResponse<'_> = answer.read();
        answer.cluster_id.to_owned()
    };
    let broker = Broker::start();
    let before = cluster(&mut broker.connect());
    let broker = broker.restart();
    assert_eq!(cluster(&mut broker.connect()), before);
}
