//! Topics that are created, changed and deleted while in use.

use std::time::Duration;

use towpath_protocol::messages::*;
use towpath_protocol::{ErrorCode, Uuid};

use crate::broker::Broker;
use crate::wire::{Wire, batch, code, fetch_request, produce_request, produced};

#[test]
fn a_recreated_topic_has_a_new_id_and_the_old_one_fails() {
    let broker = Broker::start();
    let mut wire = broker.connect();
    let old = wire.create("topic", 1, &[]);
    wire.produce("topic", &batch(&["old"]));
    wire.delete("topic");
    let new = wire.create("topic", 1, &[]);
    assert_ne!(old, new);
    assert_eq!(fetch_by_id(&mut wire, old), ErrorCode::UnknownTopicId);
    assert_eq!(fetch_by_id(&mut wire, new), ErrorCode::None);
    assert_eq!(produce_by_id(&mut wire, old), ErrorCode::UnknownTopicId);
    assert_eq!(produce_by_id(&mut wire, new), ErrorCode::None);
    assert_eq!(wire.fetch("topic", 0).values(), ["by id"]);
}

fn fetch_by_id(wire: &mut Wire, id: Uuid) -> ErrorCode {
    let mut request = fetch_request("", 0, 0, Duration::ZERO);
    request.topics[0].topic_id = id;
    let answer = wire.ask(17, &request);
    let answer: FetchResponse<'_> = answer.read();
    code(answer.responses[0].partitions[0].error_code)
}

fn produce_by_id(wire: &mut Wire, id: Uuid) -> ErrorCode {
    let batch = batch(&["by id"]);
    let mut request = produce_request("", 0, -1, &batch);
    request.topic_data[0].topic_id = id;
    produced(&wire.ask(13, &request)).error
}

#[test]
fn metadata_creates_a_topic_and_answers_with_it() {
    let broker = Broker::start();
    let mut wire = broker.connect();
    let ask = |wire: &mut Wire, allow_auto_topic_creation| {
        let request = MetadataRequest {
            topics: Some(vec![MetadataRequestTopic { name: Some("auto"), ..Default::default() }]),
            allow_auto_topic_creation,
            ..Default::default()
        };
        let answer = wire.ask(9, &request);
        let answer: MetadataResponse<'_> = answer.read();
        let topic = &answer.topics[0];
        (code(topic.error_code), topic.partitions.iter().map(|p| p.leader_id).collect::<Vec<_>>())
    };
    assert_eq!(ask(&mut wire, false), (ErrorCode::UnknownTopicOrPartition, vec![]));
    assert_eq!(ask(&mut wire, true), (ErrorCode::None, vec![1]));
    assert_eq!(wire.produce("auto", &batch(&["a"])).error, ErrorCode::None);
}

#[test]
fn metadata_names_the_address_that_the_client_dialled() {
    let broker = Broker::start();
    let answer = broker.connect().ask(9, &MetadataRequest::default());
    let answer: MetadataResponse<'_> = answer.read();
    let address = broker.address();
    assert_eq!(answer.brokers[0].host, address.ip().to_string());
    assert_eq!(answer.brokers[0].port, i32::from(address.port()));
}

#[test]
fn created_partitions_take_records_at_once() {
    let broker = Broker::start();
    let mut wire = broker.connect();
    wire.create("topic", 1, &[]);
    let batch = batch(&["a"]);
    let to_third = produce_request("topic", 2, -1, &batch);
    assert_eq!(produced(&wire.ask(9, &to_third)).error, ErrorCode::UnknownTopicOrPartition);
    let request = CreatePartitionsRequest {
        topics: vec![CreatePartitionsTopic { name: "topic", count: 3, assignments: None }],
        timeout_ms: 5_000,
        validate_only: false,
    };
    let answer = wire.ask(3, &request);
    let answer: CreatePartitionsResponse<'_> = answer.read();
    assert_eq!(code(answer.results[0].error_code), ErrorCode::None);
    assert_eq!(produced(&wire.ask(9, &to_third)).base_offset, 0);
}

/// DeleteRecords of partition 0: the error and the log start offset after it.
pub(crate) fn delete_records(wire: &mut Wire, topic: &str, offset: i64) -> (ErrorCode, i64) {
    let request = DeleteRecordsRequest {
        topics: vec![DeleteRecordsTopic {
            name: topic,
            partitions: vec![DeleteRecordsPartition { partition_index: 0, offset }],
        }],
        timeout_ms: 5_000,
    };
    let answer = wire.ask(2, &request);
    let answer: DeleteRecordsResponse<'_> = answer.read();
    let partition = &answer.topics[0].partitions[0];
    (code(partition.error_code), partition.low_watermark)
}

#[test]
fn deleted_records_are_gone_and_stay_gone_after_a_restart() {
    let broker = Broker::start();
    let mut wire = broker.connect();
    wire.create("topic", 1, &[]);
    for value in ["a", "b", "c"] {
        wire.produce("topic", &batch(&[value]));
    }
    assert_eq!(delete_records(&mut wire, "topic", 2), (ErrorCode::None, 2));
    assert_eq!(delete_records(&mut wire, "topic", 1), (ErrorCode::None, 2));
    assert_eq!(delete_records(&mut wire, "topic", 9), (ErrorCode::OffsetOutOfRange, -1));
    assert_eq!(wire.fetch("topic", 1).error, ErrorCode::OffsetOutOfRange);
    drop(wire);
    let broker = broker.restart();
    let mut wire = broker.connect();
    assert_eq!(wire.list_offset("topic", -2), (ErrorCode::None, 2, -1));
    assert_eq!(wire.fetch("topic", 2).values(), ["c"]);
    assert_eq!(delete_records(&mut wire, "topic", -1), (ErrorCode::None, 3));
    assert_eq!(wire.produce("topic", &batch(&["d"])).base_offset, 3);
}
