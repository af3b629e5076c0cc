use std::collections::BTreeSet;

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

fn partition() -> Partition {
    let id = TopicPartition { topic: Uuid([3; 16]), partition: PartitionIndex(0) };
    Partition::new(id, leader(), State::None)
}

fn batch(partition: &Partition, leader_epoch: LeaderEpoch) -> BatchHeader {
    let mut builder = BatchBuilder::new(Compression::None, Timestamp(1));
    builder.append(Timestamp(1), None, Some(b"record"), []).unwrap();
    let mut batch = builder.build();
    set_base_offset(&mut batch, partition.log_end_offset());
    set_leader_epoch(&mut batch, leader_epoch);
    BatchHeader::parse(&batch).unwrap()
}

#[test]
fn a_change_of_role_keeps_the_lines_and_ends_the_waits() {
    let mut partition = partition();
    let mut out = Vec::new();
    let header = batch(&partition, LeaderEpoch(0));
    partition.appended(now(), &header, &mut out);
    partition.synced(now(), Offset(1), &mut out);
    assert!(!partition.watch(Token(1), Condition::HighWatermark(Offset(2))));

    partition.follow(Some(BrokerId(2)), LeaderEpoch(1), &mut out);
    assert!(matches!(out[..], [Output::Wake(Token(1), Outcome::NotLeader)]), "{out:?}");
    assert!(!partition.is_led());
    assert_eq!(partition.high_watermark(), Offset(1));

    // A reader at a follower waits for what its leader says is committed.
    assert!(!partition.watch(Token(2), Condition::HighWatermark(Offset(2))));
    let header = batch(&partition, LeaderEpoch(1));
    partition.replicated(now(), &header, &[]);
    out.clear();
    partition.leader_told(Offset(2), Offset(0), &mut out);
    assert!(matches!(out[..], [Output::Wake(Token(2), Outcome::Reached)]), "{out:?}");

    let lead = Lead {
        leader_epoch: LeaderEpoch(2),
        partition_epoch: 3,
        begun_at: now().time,
        replicas: vec![ME, BrokerId(2)],
        in_sync: BTreeSet::from([ME, BrokerId(2)]),
        min_insync_replicas: 2,
    };
    out.clear();
    partition.lead(lead, State::None, &mut out);
    assert_eq!(partition.high_watermark(), Offset(2), "what readers have seen stays");
    assert_eq!((partition.log_end_offset(), partition.durable_offset()), (Offset(2), Offset(1)));
}

#[test]
fn a_leader_that_stays_keeps_who_waits_for_its_log() {
    let mut partition = partition();
    let mut out = Vec::new();
    let header = batch(&partition, LeaderEpoch(0));
    partition.appended(now(), &header, &mut out);
    assert!(!partition.watch(Token(1), Condition::HighWatermark(Offset(1))));
    // A replica has been taken away: the same broker leads on, in a new epoch.
    let lead = Lead {
        leader_epoch: LeaderEpoch(1),
        partition_epoch: 1,
        begun_at: now().time,
        replicas: vec![ME],
        in_sync: BTreeSet::from([ME]),
        min_insync_replicas: 1,
    };
    partition.lead(lead, State::None, &mut out);
    assert!(out.is_empty(), "{out:?}");
    partition.synced(now(), Offset(1), &mut out);
    assert!(matches!(out[..], [Output::Wake(Token(1), Outcome::Reached)]), "{out:?}");
}

#[test]
fn who_waits_hears_when_leadership_ends() {
    let mut partition = partition();
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
