//! Fetch: waiting, and incremental sessions.

use std::time::{Duration, Instant};

use towpath_model::PartitionIndex;
use towpath_protocol::messages::*;
use towpath_protocol::{ApiKey, ErrorCode};

use crate::broker::Broker;
use crate::wire::{batch, code, fetch_request, fetched};

#[test]
fn a_waiting_fetch_wakes_when_records_are_committed() {
    let broker = Broker::start();
    let (mut reader, mut writer) = (broker.connect(), broker.connect());
    writer.create("topic", 1, &[]);
    let begun = Instant::now();
    reader.send(11, &fetch_request("topic", 0, 1, Duration::from_secs(15)));
    std::thread::sleep(Duration::from_millis(100));
    writer.produce("topic", &batch(&["news"]));
    let answer = reader.receive(ApiKey::Fetch, 11);
    assert!(begun.elapsed() < Duration::from_secs(10));
    let answer: FetchResponse<'_> = answer.read();
    assert_eq!(fetched(&answer.responses[0].partitions[0]).values(), ["news"]);
}

#[test]
fn a_waiting_fetch_waits_for_min_bytes_over_several_batches() {
    let broker = Broker::start();
    let (mut reader, mut writer) = (broker.connect(), broker.connect());
    writer.create("topic", 1, &[]);
    let size = i32::try_from(batch(&["a"]).len()).unwrap();
    reader.send(11, &fetch_request("topic", 0, size + 1, Duration::from_secs(15)));
    writer.produce("topic", &batch(&["a"]));
    writer.produce("topic", &batch(&["b"]));
    let answer = reader.receive(ApiKey::Fetch, 11);
    let answer: FetchResponse<'_> = answer.read();
    assert_eq!(fetched(&answer.responses[0].partitions[0]).values(), ["a", "b"]);
}

#[test]
fn a_waiting_fetch_ends_at_its_deadline_with_nothing() {
    let broker = Broker::start();
    let mut wire = broker.connect();
    wire.create("topic", 1, &[]);
    let begun = Instant::now();
    let answer = wire.ask(11, &fetch_request("topic", 0, 1, Duration::from_millis(300)));
    assert!(Duration::from_millis(290) <= begun.elapsed());
    let answer: FetchResponse<'_> = answer.read();
    let partition = fetched(&answer.responses[0].partitions[0]);
    assert_eq!((partition.error, partition.bytes.len()), (ErrorCode::None, 0));
}

#[test]
fn a_waiting_fetch_whose_client_hangs_up_leaves_nothing_behind() {
    let broker = Broker::start();
    let mut reader = broker.connect();
    reader.create("topic", 1, &[]);
    let driver = broker.node().driver();
    let partition = driver.partition_of("topic", PartitionIndex(0)).unwrap();
    let has_watches = |count: usize| {
        (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            driver.with_partition(partition, |led| led.watch_count()) == Some(count)
        })
    };
    reader.send(11, &fetch_request("topic", 0, 1, Duration::from_secs(60)));
    assert!(has_watches(1));
    drop(reader);
    assert!(has_watches(0));
}

#[test]
fn a_waiting_fetch_hears_that_its_topic_was_deleted() {
    let broker = Broker::start();
    let (mut reader, mut writer) = (broker.connect(), broker.connect());
    writer.create("topic", 1, &[]);
    let begun = Instant::now();
    reader.send(11, &fetch_request("topic", 0, 1, Duration::from_secs(15)));
    std::thread::sleep(Duration::from_millis(100));
    writer.delete("topic");
    let answer = reader.receive(ApiKey::Fetch, 11);
    assert!(begun.elapsed() < Duration::from_secs(10));
    let answer: FetchResponse<'_> = answer.read();
    assert_eq!(
        code(answer.responses[0].partitions[0].error_code),
        ErrorCode::UnknownTopicOrPartition
    );
}

/// Partition indexes of an answer, and the session.
fn listed(answer: &FetchResponse<'_>) -> (ErrorCode, i32, Vec<i32>) {
    let partitions = answer.responses.iter().flat_map(|topic| &topic.partitions);
    let indexes = partitions.map(|partition| partition.partition_index).collect();
    (code(answer.error_code), answer.session_id, indexes)
}

#[test]
fn a_session_lists_only_what_has_changed() {
    let broker = Broker::start();
    let mut wire = broker.connect();
    wire.create("topic", 2, &[]);
    let mut request = fetch_request("topic", 0, 0, Duration::ZERO);
    request.session_epoch = 0;
    let mut other = request.topics[0].partitions[0].clone();
    other.partition = 1;
    request.topics[0].partitions.push(other);
    let answer = wire.ask(12, &request);
    let (error, id, indexes) = listed(&answer.read());
    assert_eq!((error, indexes), (ErrorCode::None, vec![0, 1]));
    assert_ne!(id, 0);

    let next = |epoch, forgotten: &[i32]| FetchRequest {
        max_bytes: 1 << 20,
        session_id: id,
        session_epoch: epoch,
        forgotten_topics_data: forgotten
            .iter()
            .map(|partition| ForgottenTopic {
                topic: "topic",
                partitions: vec![*partition],
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    };
    assert_eq!(listed(&wire.ask(12, &next(1, &[])).read()), (ErrorCode::None, id, vec![]));
    wire.produce("topic", &batch(&["news"]));
    assert_eq!(listed(&wire.ask(12, &next(2, &[])).read()), (ErrorCode::None, id, vec![0]));
    // The wrong epoch is refused, the session lives on; it is bound to no connection.
    let refused = (ErrorCode::InvalidFetchSessionEpoch, 0, vec![]);
    assert_eq!(listed(&wire.ask(12, &next(9, &[])).read()), refused);
    let mut elsewhere = broker.connect();
    assert_eq!(listed(&elsewhere.ask(12, &next(3, &[0])).read()), (ErrorCode::None, id, vec![]));
    // Forgetting the last partition ends it.
    assert_eq!(listed(&wire.ask(12, &next(4, &[1])).read()), (ErrorCode::None, 0, vec![]));
    let gone = (ErrorCode::FetchSessionIdNotFound, 0, vec![]);
    assert_eq!(listed(&wire.ask(12, &next(5, &[])).read()), gone);
}

#[test]
fn many_partitions_in_one_request_take_no_more_than_their_share() {
    let broker = Broker::start();
    let mut wire = broker.connect();
    wire.create("topic", 1, &[]);
    let mut request = fetch_request("topic", 0, 0, Duration::ZERO);
    request.session_epoch = 0;
    let one = request.topics[0].partitions[0].clone();
    let many = (0..100_000).map(|partition| FetchPartition { partition, ..one.clone() });
    request.topics[0].partitions = many.collect();
    let begun = Instant::now();
    let answer = wire.ask(12, &request);
    let answer: FetchResponse<'_> = answer.read();
    assert_eq!(answer.responses[0].partitions.len(), 100_000);
    // Looking at every partition for every partition would take minutes.
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
}
