use std::collections::{BTreeMap, BTreeSet};

use towpath_metadata::{NewTopic, Registration, Reply, Request};
use towpath_model::{BrokerId, PartitionIndex, Timestamp, Uuid};
use towpath_records::{BatchBuilder, Compression, set_base_offset, set_leader_epoch};
use towpath_replication::{EpochHistory, LeaderStart, Producers};

use super::*;

const ME: BrokerId = BrokerId(1);

fn now() -> Now {
    Now { time: Time(1), wall: Timestamp(1) }
}

fn leader() -> Leader {
    Leader::new(LeaderStart {
        me: ME,
        leader_epoch: LeaderEpoch(0),
        partition_epoch: 0,
        begun_at: now().time,
        replicas: vec![ME],
        in_sync: BTreeSet::from([ME]),
        min_insync_replicas: 1,
        durability: Durability::Synced,
        log_start_offset: Offset::ZERO,
        log_end_offset: Offset::ZERO,
        durable_offset: Offset::ZERO,
        high_watermark: Offset::ZERO,
        producers: Producers::new(1),
        epochs: EpochHistory::new(),
    })
}

fn metadata_partition() -> Partition {
    let id = TopicPartition { topic: Uuid::METADATA_TOPIC, partition: PartitionIndex(0) };
    let machine = Metadata::new(ME, BTreeMap::new());
    Partition::new(id, leader(), State::Metadata(Box::new(Host::new(machine))))
}

/// Appends what `out` orders, as the driver does, and makes it durable.
fn carry_out(partition: &mut Partition, out: Vec<Output>) -> Vec<Output> {
    let mut freed = Vec::new();
    for order in out {
        let Output::Append(records) = order else {
            freed.push(order);
            continue;
        };
        let mut builder = BatchBuilder::new(Compression::None, Timestamp(1));
        for record in &records {
            let value = record.value.as_deref();
            builder.append(Timestamp(1), Some(&record.key), value, []).unwrap();
        }
        let mut batch = builder.build();
        set_base_offset(&mut batch, partition.log_end_offset());
        set_leader_epoch(&mut batch, partition.leader_epoch());
        let header = BatchHeader::parse(&batch).unwrap();
        partition.records_appended(now(), &header, &mut freed);
        assert!(freed.is_empty(), "nothing is told before it is durable");
        partition.synced(now(), header.next_offset(), &mut freed);
    }
    freed
}

fn ask(partition: &mut Partition, request: Request) -> Vec<Output> {
    let mut out = Vec::new();
    assert!(partition.ask_metadata(now(), Token(7), request, &mut out));
    carry_out(partition, out)
}

#[test]
fn a_decision_is_published_as_one_and_before_its_answer() {
    let mut partition = metadata_partition();
    ask(
        &mut partition,
        Request::RegisterBroker(Registration {
            id: ME,
            incarnation: Uuid([1; 16]),
            ..Registration::default()
        }),
    );
    let topic = NewTopic { partitions: 3, ..NewTopic::named("orders", Uuid([2; 16])) };
    let freed =
        ask(&mut partition, Request::CreateTopics { topics: vec![topic], validate_only: false });
    // Half a topic would send a group to a partition that is not its own.
    let [Output::MetadataCommitted(records), Output::MetadataReply(Token(7), reply)] = &freed[..]
    else {
        panic!("{freed:?}");
    };
    assert!(4 <= records.len(), "a topic and its three partitions: {records:?}");
    assert!(matches!(reply, Reply::CreatedTopics(created) if created[0].1.is_ok()));
}

#[test]
fn who_waits_hears_when_leadership_ends() {
    let mut partition = metadata_partition();
    assert!(partition.watch(Token(1), Condition::HighWatermark(Offset(0))));
    assert!(!partition.watch(Token(2), Condition::HighWatermark(Offset(1))));
    assert!(!partition.watch(Token(3), Condition::Durable(Offset(1))));
    let mut out = Vec::new();
    partition.resign(Outcome::NotLeader, &mut out);
    let woken: Vec<_> = out
        .into_iter()
        .map(|order| match order {
            Output::Wake(token, Outcome::NotLeader) => token,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(woken, [Token(2), Token(3)]);
}
