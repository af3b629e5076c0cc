//! Records of our own state: groups and their offsets (in Kafka's own format), publishers, metadata.
//!
//! `key length u16 │ key │ has a value? u8 │ value`. What decodes must encode to something that
//! decodes to the same.

use std::fmt::Debug;
use std::sync::Arc;

use towpath_coordinator::{groups, publishers};
use towpath_metadata as metadata;
use towpath_model::{FoldRecord, Timestamp};

use crate::shape::Shape;
use crate::target::Target;

/// Records of `__consumer_offsets`.
pub(super) const GROUPS: Target = Target {
    name: "groups",
    seeds: group_seeds,
    run: |input| round_trip::<groups::Record>(input),
    memory_max: 1 << 20,
    waits_for_others: false,
};

/// Records of `__towpath_publishers`.
pub(super) const PUBLISHERS: Target = Target {
    name: "publishers",
    seeds: publisher_seeds,
    run: |input| round_trip::<publishers::Record>(input),
    memory_max: 1 << 20,
    waits_for_others: false,
};

/// Records of the metadata log.
pub(super) const METADATA: Target = Target {
    name: "metadata",
    seeds: metadata_seeds,
    run: |input| round_trip::<metadata::Record>(input),
    memory_max: 1 << 20,
    waits_for_others: false,
};

fn round_trip<R: FoldRecord + Debug + PartialEq>(input: &[u8]) -> Shape {
    let Some((key, value)) = split(input) else { return Shape::default() };
    let record = match R::decode(key, value) {
        // Numbers, and what follows the first words, may be the input's own.
        Err(error) => {
            let words = error.0.split(' ').take(4);
            let words = words.filter(|word| word.chars().all(|c| c.is_alphabetic() || c == ':'));
            return words.fold(Shape::default(), Shape::word);
        }
        Ok(None) => return Shape::default().word("later"),
        Ok(Some(record)) => record,
    };
    let text = format!("{record:?}");
    let kind: String = text.chars().take_while(|c| c.is_alphanumeric()).collect();
    let again = record.encode().expect("what was logged can be logged");
    let decoded = R::decode(&again.key, again.value.as_deref());
    assert_eq!(decoded, Ok(Some(record)), "a round trip changes the record");
    Shape::default().word(&kind).size(again.key.len()).size(again.value.map_or(0, |v| v.len()))
}

fn split(input: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let (length, rest) = input.split_at_checked(2)?;
    let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
    let (key, rest) = rest.split_at_checked(length.min(rest.len()))?;
    let (has_value, value) = rest.split_first()?;
    Some((key, (has_value % 2 == 1).then_some(value)))
}

fn join(key: &[u8], value: Option<&[u8]>) -> Vec<u8> {
    let mut input = (key.len() as u16).to_be_bytes().to_vec();
    input.extend(key);
    input.push(u8::from(value.is_some()));
    input.extend(value.unwrap_or_default());
    input
}

fn inputs<R: FoldRecord>(records: impl IntoIterator<Item = R>) -> Vec<Vec<u8>> {
    let logged = records.into_iter().filter_map(|record| record.encode());
    logged.map(|logged| join(&logged.key, logged.value.as_deref())).collect()
}

fn group_seeds() -> Vec<Vec<u8>> {
    use groups::{CommittedOffset, Record, StoredGroup, StoredMember};
    use towpath_model::{Generation, LeaderEpoch, Offset, PartitionIndex, TopicId};

    let member = |id: &str, instance: Option<&str>| StoredMember {
        member_id: id.into(),
        group_instance_id: instance.map(Into::into),
        client_id: "client".into(),
        client_host: "/127.0.0.1".into(),
        rebalance_timeout: std::time::Duration::from_secs(60),
        session_timeout: std::time::Duration::from_secs(45),
        subscription: [0, 1, 0, 0].into(),
        assignment: [0, 0, 0, 0].into(),
    };
    let stored = StoredGroup {
        protocol_type: "consumer".into(),
        generation: Generation(7),
        protocol: Some("range".into()),
        leader: Some("a".into()),
        since: Some(Timestamp(1_700_000_000_000)),
        members: vec![member("a", None), member("b", Some("static"))],
    };
    let committed = CommittedOffset {
        offset: Offset(77),
        leader_epoch: Some(LeaderEpoch(3)),
        metadata: "note".into(),
        committed_at: Timestamp(1_700_000_000_000),
        expires_at: None,
        topic_id: TopicId::ZERO,
    };
    let (group, topic, partition) = ("workers".into(), "orders".into(), PartitionIndex(2));
    let mut seeds = inputs([
        Record::Stored { group: Arc::clone(&group), value: Some(stored) },
        Record::Stored { group: Arc::clone(&group), value: None },
        Record::OffsetCommitted {
            group: Arc::clone(&group),
            topic: Arc::clone(&topic),
            partition,
            committed,
        },
        Record::OffsetRemoved { group, topic, partition },
    ]);
    // Every version that Kafka may have written, with nothing behind the number.
    seeds.extend((0..5).map(|version| join(b"\0\x02\0\x01g", Some(&[0, version]))));
    seeds.extend((0..5).map(|version| join(b"\0\x01\0\x01g\0\x01t\0\0\0\0", Some(&[0, version]))));
    seeds
}

fn publisher_seeds() -> Vec<Vec<u8>> {
    use publishers::{Intent, Published, Publisher, Record};
    use towpath_model::{Offset, PartitionIndex, ProducerEpoch, ProducerId, Sequence, TopicId};

    let publisher = Publisher { topic: TopicId::ZERO, name: "shop".into() };
    let intent = Intent {
        number: 9,
        sequence: 42,
        partition: PartitionIndex(1),
        producer_id: ProducerId(5),
        producer_epoch: ProducerEpoch(0),
        producer_sequence: Sequence(8),
    };
    let published =
        Published { partition: PartitionIndex(1), offset: Offset(7), timestamp: Timestamp(1) };
    let (at, partition) = (Timestamp(1_700_000_000_000), PartitionIndex(1));
    inputs([
        Record::Intended { publisher: publisher.clone(), intent, at, is_refuted: false },
        Record::Intended { publisher: publisher.clone(), intent, at, is_refuted: true },
        Record::Finished { publisher: publisher.clone(), number: 9, sequence: 42, published, at },
        Record::IntentRemoved { publisher, partition },
    ])
}

fn metadata_seeds() -> Vec<Vec<u8>> {
    use metadata::{Address, Broker, ConfiguredResource, Overrides, PartitionState, Record};
    use towpath_model::{
        BrokerId, LeaderEpoch, Offset, PartitionIndex, Timestamp, TopicId, TopicName,
        TopicPartition,
    };

    let id = TopicId::ZERO;
    let partition = TopicPartition { topic: id, partition: PartitionIndex(0) };
    let overrides = Overrides::from([("retention.ms".to_owned(), "7".to_owned())]);
    let broker = Broker {
        id: BrokerId(1),
        epoch: 3,
        incarnation: id,
        rack: Some("here".to_owned()),
        addresses: vec![Address {
            listener: "PLAINTEXT".to_owned(),
            host: "localhost".to_owned(),
            port: 9092,
        }],
        directories: vec![id],
        role: metadata::Role::Broker,
        offline: vec![id],
        format_level: 1,
        fenced: true,
        in_controlled_shutdown: false,
        drained: true,
    };
    let name = TopicName::new("orders").expect("a legal name");
    let loss = metadata::AcceptedLoss {
        partition,
        topic: name.clone(),
        leader_epoch: LeaderEpoch(2),
        leader: BrokerId(1),
        lost_from: Offset(5),
        resume_at: Offset(9),
        at: Timestamp(7),
        by: "an operator".to_owned(),
    };
    let queue = metadata::TaskQueue { id, name: name.clone() };
    let task = metadata::Task {
        id,
        kind: metadata::TaskKind::Redrive,
        source: queue.clone(),
        destination: Some(queue),
        filter: "{}".to_owned(),
        messages_max: Some(10),
        rate: None,
        redrives_max: 3,
        by: "an operator".to_owned(),
        started_at: Timestamp(7),
        state: metadata::TaskState::Failed(metadata::TaskFailure::SourceDeleted),
        changed_at: Timestamp(8),
        changed_by: String::new(),
        run: 1,
        progress: metadata::TaskProgress {
            ends: vec![Offset(9)],
            in_hand: vec![Offset(5)],
            ..metadata::TaskProgress::default()
        },
    };
    inputs([
        Record::FormatLevel(1),
        Record::Topic { id, name, internal: false, grows: true },
        Record::TopicRemoved { id },
        Record::Partition { partition, state: PartitionState::new(vec![BrokerId(1), BrokerId(2)]) },
        Record::PartitionRemoved { partition },
        Record::Config { resource: ConfiguredResource::Topic(id), overrides: overrides.clone() },
        Record::Config { resource: ConfiguredResource::Broker(None), overrides },
        Record::Broker(broker),
        Record::BrokerRemoved { id: BrokerId(1) },
        Record::Retired { broker: BrokerId(1), directory: id },
        Record::AcceptedLoss(loss),
        Record::Task(Box::new(task)),
        Record::TaskRemoved { id },
        Record::BrokerEpoch(3),
        Record::ClusterId("c".to_owned()),
        Record::ProducerIdBlock { end: 1000 },
    ])
}
