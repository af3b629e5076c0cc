//! Produce: order, acknowledgements, and topics that go away.

use std::time::Duration;

use towpath_model::Timestamp;
use towpath_protocol::messages::*;
use towpath_protocol::{ApiKey, ErrorCode};
use towpath_records::{BatchBuilder, Compression};

use crate::broker::Broker;
use crate::wire::{Produced, Wire, batch, numbered, produce_request, produced};

#[test]
fn pipelined_batches_keep_their_order() {
    let broker = Broker::start();
    let mut wire = broker.connect();
    wire.create("topic", 1, &[]);
    let count = 60;
    for at in 0..count {
        let value = format!("{at}");
        wire.send(9, &produce_request("topic", 0, -1, &batch(&[&value])));
    }
    for at in 0..count {
        let answer = produced(&wire.receive(ApiKey::Produce, 9));
        assert_eq!((answer.error, answer.base_offset), (ErrorCode::None, at));
    }
    let wanted: Vec<String> = (0..count).map(|at| at.to_string()).collect();
    assert_eq!(wire.fetch("topic", 0).values(), wanted);
}

/// A batch that has `bytes` in the clear and few as it is sent.
fn dense_batch(bytes: usize, timestamp: i64) -> Vec<u8> {
    let timestamp = Timestamp(timestamp);
    let mut builder = BatchBuilder::new(Compression::Zstd, timestamp);
    builder.append(timestamp, None, Some(&vec![b'x'; bytes]), []).unwrap();
    builder.build()
}

#[test]
fn what_follows_a_large_batch_that_has_to_wait_for_memory_does_not_overtake_it() {
    let broker = Broker::start();
    let (mut wire, mut other) = (broker.connect(), broker.connect());
    wire.create("topic", 1, &[]);
    let turn = broker.plain_turn();
    wire.send(9, &produce_request("topic", 0, -1, &dense_batch(3 << 20, 1_000)));
    wire.send(9, &produce_request("topic", 0, -1, &batch(&["small"])));
    // Others are served meanwhile, on as many connections as there are workers and more.
    for at in 0..5 {
        assert_eq!(other.produce("topic", &batch(&["other"])).base_offset, at);
        other = broker.connect();
    }
    drop(turn);
    assert_eq!(produced(&wire.receive(ApiKey::Produce, 9)).base_offset, 5);
    assert_eq!(produced(&wire.receive(ApiKey::Produce, 9)).base_offset, 6);
}

#[test]
fn a_lookup_by_time_that_needs_much_memory_waits_without_a_worker() {
    let broker = Broker::start();
    let mut other = broker.connect();
    other.create("topic", 1, &[]);
    assert_eq!(other.produce("topic", &dense_batch(3 << 20, 1_000)).base_offset, 0);
    let turn = broker.plain_turn();
    let partition = ListOffsetsPartition { timestamp: 500, ..Default::default() };
    let topic = ListOffsetsTopic { name: "topic", partitions: vec![partition] };
    let request = ListOffsetsRequest { replica_id: -1, topics: vec![topic], ..Default::default() };
    let mut seekers: Vec<Wire> = (0..5).map(|_| broker.connect()).collect();
    for seeker in &mut seekers {
        seeker.send(7, &request);
    }
    assert_eq!(other.produce("topic", &batch(&["other"])).base_offset, 1);
    drop(turn);
    for seeker in &mut seekers {
        let answer = seeker.receive(ApiKey::ListOffsets, 7);
        let answer: ListOffsetsResponse<'_> = answer.read();
        let found = &answer.topics[0].partitions[0];
        assert_eq!((found.offset, found.timestamp), (0, 1_000));
    }
}

#[test]
fn acks_0_has_no_answer_and_an_error_ends_the_connection() {
    let broker = Broker::start();
    let mut wire = broker.connect();
    wire.create("topic", 1, &[]);
    wire.send(9, &produce_request("topic", 0, 0, &batch(&["silent"])));
    // The next answer belongs to the next request.
    assert_eq!(wire.produce("topic", &batch(&["loud"])).base_offset, 1);
    wire.send(9, &produce_request("absent", 0, 0, &batch(&["lost"])));
    assert!(wire.is_closed());
    assert_eq!(broker.connect().fetch("topic", 0).values(), ["silent", "loud"]);
}

#[test]
fn acks_1_is_answered_and_other_numbers_are_refused() {
    let broker = Broker::start();
    let mut wire = broker.connect();
    wire.create("topic", 1, &[]);
    let mut ask = |acks| produced(&wire.ask(9, &produce_request("topic", 0, acks, &batch(&["a"]))));
    assert_eq!(ask(1).base_offset, 0);
    assert_eq!(ask(2).error, ErrorCode::InvalidRequiredAcks);
    assert_eq!(ask(-1).base_offset, 1);
}

#[test]
fn a_topic_deleted_meanwhile_refuses_records_and_its_successor_takes_them() {
    let broker = Broker::start();
    let (mut wire, mut other) = (broker.connect(), broker.connect());
    wire.create("topic", 1, &[]);
    assert_eq!(wire.produce("topic", &batch(&["old"])).base_offset, 0);
    other.delete("topic");
    assert_eq!(wire.produce("topic", &batch(&["x"])).error, ErrorCode::UnknownTopicOrPartition);
    other.create("topic", 1, &[]);
    assert_eq!(wire.produce("topic", &batch(&["new"])).base_offset, 0);
    assert_eq!(wire.fetch("topic", 0).values(), ["new"]);
}

#[test]
fn deleting_a_topic_under_load_answers_every_request() {
    let broker = Broker::start();
    let (mut wire, mut other) = (broker.connect(), broker.connect());
    wire.create("topic", 1, &[]);
    for _ in 0..40 {
        wire.send(9, &produce_request("topic", 0, -1, &batch(&["a"])));
    }
    other.delete("topic");
    for _ in 0..40 {
        let error = produced(&wire.receive(ApiKey::Produce, 9)).error;
        let expected =
            [ErrorCode::None, ErrorCode::UnknownTopicOrPartition, ErrorCode::NotLeaderOrFollower];
        assert!(expected.contains(&error), "{error:?}");
    }
}

/// A producer id as clients get it.
pub(crate) fn producer_id(wire: &mut Wire) -> i64 {
    let request = InitProducerIdRequest { transactional_id: None, ..Default::default() };
    let answer = wire.ask(4, &request);
    let answer: InitProducerIdResponse = answer.read();
    assert_eq!(answer.error_code, 0);
    answer.producer_id
}

#[test]
fn a_repeated_batch_is_stored_once() {
    let broker = Broker::start();
    let mut wire = broker.connect();
    wire.create("topic", 1, &[]);
    let id = producer_id(&mut wire);
    assert_ne!(id, producer_id(&mut wire));
    let first = numbered(id, 0, &["a", "b"]);
    assert_eq!(wire.produce("topic", &first).base_offset, 0);
    assert_eq!(wire.produce("topic", &numbered(id, 2, &["c"])).base_offset, 2);
    let again = wire.produce("topic", &first);
    assert_eq!((again.error, again.base_offset), (ErrorCode::None, 0));
    assert_eq!(
        wire.produce("topic", &numbered(id, 9, &["gap"])).error,
        ErrorCode::OutOfOrderSequenceNumber
    );
    assert_eq!(wire.fetch("topic", 0).values(), ["a", "b", "c"]);
}

#[test]
fn a_repeat_sent_before_the_first_answer_waits_for_the_same_sync() {
    let broker = Broker::start();
    let mut wire = broker.connect();
    wire.create("topic", 1, &[]);
    let id = producer_id(&mut wire);
    let first = numbered(id, 0, &["a"]);
    for _ in 0..2 {
        wire.send(9, &produce_request("topic", 0, -1, &first));
    }
    let answers: Vec<Produced> =
        (0..2).map(|_| produced(&wire.receive(ApiKey::Produce, 9))).collect();
    for answer in answers {
        assert_eq!((answer.error, answer.base_offset), (ErrorCode::None, 0));
    }
    assert_eq!(wire.fetch("topic", 0).high_watermark, 1);
}

#[test]
fn durability_relaxed_is_acknowledged_and_readable() {
    let broker = Broker::start();
    let mut wire = broker.connect();
    wire.create("topic", 1, &[("durability", "relaxed")]);
    assert_eq!(wire.produce("topic", &batch(&["a"])).base_offset, 0);
    assert_eq!(wire.fetch("topic", 0).values(), ["a"]);
    // The upkeep flushes it; nothing changes for readers.
    std::thread::sleep(Duration::from_millis(1200));
    assert_eq!(wire.fetch("topic", 0).high_watermark, 1);
}

/// Of one topic twice in a request and of one partition twice in it, the last data counts, as in
/// Kafka; each partition is answered once.
#[test]
fn the_last_data_for_a_partition_wins() {
    let broker = Broker::start();
    let mut wire = broker.connect();
    for topic in ["a", "b"] {
        wire.create(topic, 2, &[]);
    }
    let batches = ["first", "b", "second", "other", "last"].map(|value| batch(&[value]));
    let data = |name, parts: &[(i32, usize)]| TopicProduceData {
        name,
        partition_data: parts
            .iter()
            .map(|(index, at)| PartitionProduceData {
                index: *index,
                records: Some(towpath_protocol::Blob::Bytes(&batches[*at])),
            })
            .collect(),
        ..Default::default()
    };
    let topic_data =
        vec![data("a", &[(0, 0)]), data("b", &[(1, 1)]), data("a", &[(0, 2), (1, 3), (0, 4)])];
    let request = ProduceRequest { acks: -1, timeout_ms: 10_000, topic_data, ..Default::default() };
    let answer = wire.ask(9, &request);
    let answer: ProduceResponse<'_> = answer.read();
    let answered: Vec<(&str, i32, i64)> = answer
        .responses
        .iter()
        .flat_map(|topic| topic.partition_responses.iter().map(move |p| (topic.name, p)))
        .map(|(name, partition)| (name, partition.index, partition.base_offset))
        .collect();
    assert_eq!(answered, [("a", 0, 0), ("a", 1, 0), ("b", 1, 0)]);
    assert_eq!(wire.fetch("a", 0).values(), ["last"]);
}
