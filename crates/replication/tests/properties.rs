//! Whatever happens in whatever order: the high watermark keeps its promises, and a producer's
//! records are appended once, in order, whether or not the process restarted in between.

mod support;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use towpath_model::{
    BrokerEpoch, BrokerId, Durability, LeaderEpoch, Now, Offset, ProducerId, Sequence, Time,
    Timestamp,
};
use towpath_replication::{
    Acks, Admission, AnswerKind, EpochHistory, EpochStart, InSyncProposal, Incarnation, Leader,
    LeaderStart, PartitionDecision, ProduceRefusal, Producers, ReplicaGrant, ReplicaPosition,
};

const EPOCH: LeaderEpoch = LeaderEpoch(4);

fn at(step: usize) -> Now {
    Now { time: Time(step as u64 * 1_000_000), wall: Timestamp(step as i64) }
}

fn lead(replicas: i32, min: u32, durability: Durability) -> Leader {
    let replicas: Vec<BrokerId> = (1..=replicas).map(BrokerId).collect();
    Leader::new(LeaderStart {
        me: BrokerId(1),
        leader_epoch: EPOCH,
        partition_epoch: 0,
        begun_at: Time(0),
        in_sync: replicas.iter().copied().collect(),
        replicas,
        min_insync_replicas: min,
        durability,
        log_start_offset: Offset::ZERO,
        log_end_offset: Offset::ZERO,
        durable_offset: Offset::ZERO,
        high_watermark: Offset::ZERO,
        producers: Producers::new(4),
        epochs: EpochHistory::new(),
    })
}

#[derive(Debug, Clone)]
enum Step {
    Append(u32),
    Sync(u8),
    Report { follower: i32, end: u8, durable: u8 },
    InSync(u8),
    Propose(u8),
    Start(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1..5u32).prop_map(Step::Append),
        3 => any::<u8>().prop_map(Step::Sync),
        6 => (2..=3, any::<u8>(), any::<u8>())
            .prop_map(|(follower, end, durable)| Step::Report { follower, end, durable }),
        1 => any::<u8>().prop_map(Step::InSync),
        1 => any::<u8>().prop_map(Step::Propose),
        1 => any::<u8>().prop_map(Step::Start),
    ]
}

/// A place between two offsets, `share` of 255 parts along.
fn between(from: Offset, to: Offset, share: u8) -> Offset {
    Offset(from.0 + (to.0 - from.0) * i64::from(share) / 255)
}

fn members(bits: u8) -> BTreeSet<BrokerId> {
    let others = (2..=3).filter(|id| bits & (1 << id) != 0);
    std::iter::once(1).chain(others).map(BrokerId).collect()
}

/// The sequence of a producer's n-th record: one of them wraps within a few.
fn sequence(id: i64, nth: i32) -> i32 {
    let first = if id == 1 { i32::MAX - 9 } else { 0 };
    Sequence(first).advance(nth).0
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() })]

    /// INV-R4, R9, R10, T7, against disks that the test keeps on its own.
    #[test]
    fn the_high_watermark_passes_only_what_every_counted_disk_holds(
        steps in prop::collection::vec(step(), 1..80),
        min in 1..=3u32,
    ) {
        let mut leader = lead(3, min, Durability::Synced);
        let mut disks: BTreeMap<BrokerId, Offset> = BTreeMap::new();
        let mut proposed = BTreeSet::new();
        for (index, step) in steps.into_iter().enumerate() {
            let before = leader.high_watermark();
            let start = leader.log_start_offset();
            match step {
                Step::Append(records) => {
                    let header = support::stored(records, None, leader.log_end_offset(), EPOCH);
                    leader.appended(at(index), &header);
                }
                Step::Sync(share) => {
                    let to = between(leader.durable_offset(), leader.log_end_offset(), share);
                    disks.insert(BrokerId(1), to);
                    leader.synced(at(index), to);
                }
                Step::Report { follower, end, durable } => {
                    let disk = disks.entry(BrokerId(follower)).or_insert(leader.log_start_offset());
                    let end = between(*disk, leader.log_end_offset(), end).max(start);
                    *disk = between(*disk, end, durable).max(*disk);
                    let durable = *disk;
                    let reported = leader.replica_asks(
                        at(index),
                        Incarnation { broker: BrokerId(follower), epoch: BrokerEpoch(1) },
                        &ReplicaPosition {
                            leader_epoch: EPOCH,
                            from: end,
                            last_epoch: (Offset::ZERO < end).then_some(EPOCH),
                            durable_offset: durable,
                            log_start_offset: end,
                        },
                    );
                    let has_more = end < leader.log_end_offset();
                    prop_assert_eq!(reported == Ok(ReplicaGrant::Wait), !has_more);
                    prop_assert!(reported.is_ok());
                }
                Step::InSync(bits) => {
                    let decision = PartitionDecision {
                        partition_epoch: leader.partition_epoch() + 1,
                        replicas: &[1, 2, 3].map(BrokerId),
                        in_sync: members(bits),
                        min_insync_replicas: min,
                    };
                    leader.partition_decided(at(index), decision);
                    proposed.clear();
                }
                Step::Propose(bits) => {
                    leader.proposal_refused();
                    proposed.extend(members(bits));
                    let followers = members(bits).into_iter().filter(|id| *id != BrokerId(1));
                    leader.propose_in_sync(InSyncProposal {
                        partition_epoch: leader.partition_epoch(),
                        followers: followers.map(|id| (id, Some(BrokerEpoch(1)))).collect(),
                    });
                }
                Step::Start(share) => {
                    leader.log_start_moved(between(start, leader.high_watermark(), share));
                }
            }
            let after = leader.high_watermark();
            prop_assert!(before <= after && start <= leader.log_start_offset());
            if before < after {
                prop_assert!(min as usize <= leader.in_sync().len());
                for broker in leader.in_sync().union(&proposed) {
                    prop_assert!(after <= disks.get(broker).copied().unwrap_or(Offset::ZERO));
                }
            }
        }
    }

    /// INV-P1, P4, P5: a producer that retries at random, and a process that restarts at random,
    /// end in a log that holds each record once and in order.
    #[test]
    fn each_sequence_is_appended_once_and_in_order(
        sends in prop::collection::vec((0..3i64, 0..9u8, 1..4u32, any::<bool>()), 1..120),
    ) {
        let mut leader = lead(1, 1, Durability::Synced);
        // Per producer: what is in the log, as (first sequence, records, base offset).
        let mut logs: BTreeMap<i64, Vec<(i32, u32, Offset)>> = BTreeMap::new();
        let mut headers = Vec::new();
        let mut snapshot = (0, leader.producers().encode());
        for (index, (id, back, records, restarts)) in sends.into_iter().enumerate() {
            let log = logs.entry(id).or_default();
            let next = log.last().map_or(0, |(first, records, _)| first + *records as i32);
            // Something old again, something new, or something too far ahead.
            let again = log.iter().rev().nth(usize::from(back)).copied();
            let (first, records) = match (again, back) {
                (Some((first, records, _)), 0..=7) => (first, records),
                (Some(_), _) if back == 8 => (next + 1, records),
                _ => (next, records),
            };
            let header = support::sent(records, Some((id, 0, sequence(id, first))));
            match leader.produce(at(index), &header, Acks::All) {
                Ok(Admission::Append { base_offset, leader_epoch }) => {
                    prop_assert_eq!(first, next, "only the next batch is appended");
                    let header = support::stored(records, Some((id, 0, sequence(id, first))), base_offset, leader_epoch);
                    leader.appended(at(index), &header);
                    headers.push(header);
                    log.push((first, records, base_offset));
                }
                Ok(Admission::Duplicate { base_offset, end_offset, .. }) => {
                    prop_assert!(log.contains(&(first, records, base_offset)));
                    prop_assert_eq!(end_offset, base_offset + i64::from(records));
                }
                Err(ProduceRefusal::DuplicateBeyondWindow { .. }) => {
                    let place = log.iter().position(|(known, ..)| *known == first);
                    prop_assert!(place.is_some_and(|place| place + 5 < log.len()));
                }
                Err(ProduceRefusal::OutOfOrderSequence { expected, .. }) => {
                    prop_assert_eq!(expected.0, sequence(id, next));
                    prop_assert_eq!(first, next + 1);
                }
                Err(other) => prop_assert!(false, "{other}"),
            }
            if index % 16 == 3 {
                snapshot = (headers.len(), leader.producers().encode());
            }
            if restarts && index % 4 == 0 {
                let now = at(index);
                let mut producers = Producers::decode(&snapshot.1, now, 4).unwrap();
                for header in &headers[snapshot.0..] {
                    producers.replay(now, header);
                }
                for known in producers.iter() {
                    prop_assert_eq!(leader.producers().batches(known.id), producers.batches(known.id));
                }
                prop_assert_eq!(producers.len(), leader.producers().len());
                leader = Leader::new(LeaderStart {
                    me: BrokerId(1),
                    leader_epoch: EPOCH,
                    partition_epoch: 0,
                    begun_at: Time(0),
                    replicas: vec![BrokerId(1)],
                    in_sync: BTreeSet::from([BrokerId(1)]),
                    min_insync_replicas: 1,
                    durability: Durability::Synced,
                    log_start_offset: Offset::ZERO,
                    log_end_offset: leader.log_end_offset(),
                    durable_offset: leader.log_end_offset(),
                    high_watermark: Offset::ZERO,
                    producers,
                    epochs: leader.epochs().clone(),
                });
            }
        }
    }

    /// What a leader tells a replica that begins anew, and the records from there on, make what the
    /// leader knows of its producers.
    #[test]
    fn a_replica_that_begins_anew_comes_to_know_every_producer(
        batches in prop::collection::vec((0..3i64, 1..4u32), 1..40),
        begin in any::<prop::sample::Index>(),
    ) {
        let mut leader = lead(1, 1, Durability::Synced);
        let mut written: BTreeMap<i64, i32> = BTreeMap::new();
        let mut headers = Vec::new();
        for (index, (id, records)) in batches.into_iter().enumerate() {
            let nth = written.entry(id).or_default();
            let from = Some((id, 0, sequence(id, *nth)));
            let header = support::stored(records, from, leader.log_end_offset(), EPOCH);
            leader.appended(at(index), &header);
            headers.push(header);
            *nth += records as i32;
        }
        let cut = begin.index(headers.len());
        let position = ReplicaPosition {
            leader_epoch: EPOCH,
            from: Offset::ZERO,
            last_epoch: None,
            durable_offset: Offset::ZERO,
            log_start_offset: Offset::ZERO,
        };
        let kind = leader.begin_anew(&position, headers[cut].base_offset()).kind;
        let AnswerKind::BeginAnew { producers, .. } = kind else { panic!("it begins anew") };
        let mut known = Producers::decode(&producers, at(99), 4).unwrap();
        for header in &headers[cut..] {
            known.replay(at(99), header);
        }
        prop_assert_eq!(known.len(), leader.producers().len());
        for producer in leader.producers().iter() {
            prop_assert_eq!(known.batches(producer.id), leader.producers().batches(producer.id));
        }
    }

    /// A snapshot that is anything at all is read or refused, and what is read is written the same.
    #[test]
    fn snapshots_of_any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(producers) = Producers::decode(&bytes, at(0), 100) {
            prop_assert_eq!(producers.encode(), bytes);
        }
    }

    /// One damaged byte or a cut never panics, and never yields more producers than there were.
    #[test]
    fn damaged_snapshots_are_read_or_refused(
        ids in prop::collection::btree_set(0..1000i64, 1..20),
        place in any::<prop::sample::Index>(),
        flip in 1..=255u8,
    ) {
        let mut producers = Producers::new(50);
        for (index, id) in ids.iter().enumerate() {
            producers.replay(at(index), &support::stored(2, Some((*id, 3, 7)), Offset(index as i64), EPOCH));
        }
        let whole = producers.encode();
        let again = Producers::decode(&whole, at(99), 50).unwrap();
        prop_assert_eq!(again.encode(), whole.clone());
        let few = Producers::decode(&whole, at(99), 3).unwrap();
        prop_assert_eq!(few.len(), ids.len().min(3));
        let newest = *ids.last().unwrap();
        prop_assert!(few.get(ProducerId(newest)).is_some(), "the idlest go first");

        let mut damaged = whole.clone();
        damaged[place.index(whole.len())] ^= flip;
        if let Ok(read) = Producers::decode(&damaged, at(99), 50) {
            prop_assert!(read.len() <= ids.len());
        }
        prop_assert!(Producers::decode(&whole[..place.index(whole.len())], at(99), 50).is_err());
    }

    /// The answer to "where did epoch e end" never lies beyond what that epoch, or an earlier one,
    /// wrote, and never misses any of it.
    #[test]
    fn epochs_end_where_a_plain_list_of_records_says(
        runs in prop::collection::vec((0..3i32, 0..4i64), 1..12),
        asked in 0..40i32,
        cut in any::<prop::sample::Index>(),
        from_end in any::<bool>(),
    ) {
        let mut history = EpochHistory::new();
        let mut written: Vec<i32> = Vec::new();
        let mut epoch = 0;
        for (rise, records) in runs {
            epoch += 1 + rise;
            history.enter(LeaderEpoch(epoch), Offset(written.len() as i64));
            written.extend(std::iter::repeat_n(epoch, records as usize));
        }
        let cut = cut.index(written.len() + 1);
        let mut start = 0;
        if from_end {
            history.truncate_from_end(Offset(cut as i64));
            written.truncate(cut);
        } else {
            history.truncate_from_start(Offset(cut as i64));
            start = cut;
        }
        let entries: Vec<EpochStart> = history.entries().to_vec();
        prop_assert_eq!(EpochHistory::from_entries(entries.iter().copied()), history.clone());
        prop_assert!(entries.windows(2).all(|two| two[0].epoch < two[1].epoch && two[0].start < two[1].start));
        let end = Offset(written.len() as i64);
        for (offset, epoch) in written.iter().enumerate().skip(start) {
            prop_assert_eq!(history.epoch_of(Offset(offset as i64)), Some(LeaderEpoch(*epoch)));
        }
        if let Some((answered, ends)) = history.end_offset_of(LeaderEpoch(asked), end) {
            prop_assert!(answered <= LeaderEpoch(asked));
            let not_after = written.iter().skip(start).filter(|epoch| **epoch <= asked).count();
            // Of the leadership just before the start more may be remembered than that it ended there.
            prop_assert_eq!(ends.max(Offset(start as i64)), Offset((start + not_after) as i64));
        }
    }
}
