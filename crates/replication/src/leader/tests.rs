//! See `tests/`: scenarios and properties; here are the cases that panic by design.

use towpath_model::BrokerEpoch;

use super::*;
use crate::{AnswerKind, EpochStart, FetchRefusal, Incarnation, ReplicaPosition};

fn start() -> LeaderStart {
    LeaderStart {
        me: BrokerId(1),
        leader_epoch: LeaderEpoch(3),
        partition_epoch: 7,
        begun_at: Time(0),
        replicas: vec![BrokerId(1), BrokerId(2)],
        in_sync: BTreeSet::from([BrokerId(1), BrokerId(2)]),
        min_insync_replicas: 1,
        durability: Durability::Synced,
        log_start_offset: Offset(5),
        log_end_offset: Offset(20),
        durable_offset: Offset(20),
        high_watermark: Offset(12),
        producers: Producers::new(10),
        epochs: EpochHistory::new(),
    }
}

#[test]
fn a_new_leader_keeps_the_high_watermark_it_knew() {
    assert_eq!(Leader::new(start()).high_watermark(), Offset(12));
    let beyond = LeaderStart { high_watermark: Offset(99), ..start() };
    assert_eq!(Leader::new(beyond).high_watermark(), Offset(20));
}

/// Epoch 1 wrote up to somewhere before 40, epoch 2 goes on; records before 50 have been deleted.
#[test]
fn a_follower_of_which_nothing_is_kept_begins_anew() {
    let entries = [(1, 0), (2, 40)]
        .map(|(epoch, start)| EpochStart { epoch: LeaderEpoch(epoch), start: Offset(start) });
    let mut leader = Leader::new(LeaderStart {
        log_start_offset: Offset(0),
        log_end_offset: Offset(90),
        durable_offset: Offset(90),
        high_watermark: Offset(90),
        epochs: EpochHistory::from_entries(entries),
        ..start()
    });
    let at = |from, epoch: i32| ReplicaPosition {
        leader_epoch: LeaderEpoch(3),
        from: Offset(from),
        last_epoch: Some(LeaderEpoch(epoch)),
        durable_offset: Offset(from),
        log_start_offset: Offset(0),
    };
    leader.log_start_moved(Offset(40));
    let left_behind: fn(i64) -> Result<(), FetchRefusal> =
        |start| Err(FetchRefusal::LeftBehind { log_start_offset: Offset(start) });
    assert_eq!(leader.check_position(&at(40, 1)), Ok(()), "that is where epoch 1 ended");
    assert_eq!(leader.check_position(&at(40, 0)), left_behind(40));
    leader.log_start_moved(Offset(50));
    // Records of epoch 1 from 40 on were never committed, also where they end at the start.
    for (from, epoch) in [(45, 1), (50, 1), (60, 1), (49, 2)] {
        assert_eq!(leader.check_position(&at(from, epoch)), left_behind(50), "{from} of {epoch}");
    }
    assert_eq!(leader.check_position(&at(50, 2)), Ok(()));
    let refusal = FetchRefusal::LeftBehind { log_start_offset: Offset(50) };
    assert_eq!(leader.answer_to_refused(&at(60, 1), refusal), None);
    let AnswerKind::BeginAnew { begin, .. } = leader.begin_anew(&at(60, 1), Offset(48)).kind else {
        panic!("it begins anew");
    };
    assert_eq!(begin, Offset(48));
}

#[test]
fn deleted_records_stay_deleted_whoever_leads_next() {
    let at = |start| ReplicaPosition {
        leader_epoch: LeaderEpoch(3),
        from: Offset(20),
        last_epoch: None,
        durable_offset: Offset(20),
        log_start_offset: Offset(start),
    };
    let follower = Incarnation { broker: BrokerId(2), epoch: BrokerEpoch(1) };
    let mut leader = Leader::new(start());
    assert_eq!(leader.low_watermark(), Offset(0), "nobody knows what the other one keeps");
    leader.replica_asks(Now::default(), follower, &at(4)).unwrap();
    assert_eq!((leader.low_watermark(), leader.wanted_log_start()), (Offset(4), None));
    // It has followed an earlier leader further than this one.
    leader.replica_asks(Now::default(), follower, &at(9)).unwrap();
    assert_eq!((leader.low_watermark(), leader.wanted_log_start()), (Offset(5), Some(Offset(9))));
    leader.log_start_moved(Offset(9));
    assert_eq!((leader.low_watermark(), leader.wanted_log_start()), (Offset(9), None));
    // Out of sync it counts no more, and comes back when it has deleted what is deleted here.
    let alone = BTreeSet::from([BrokerId(1)]);
    leader.partition_decided(Now::default(), decision(8, &alone));
    leader.log_start_moved(Offset(12));
    assert_eq!(leader.low_watermark(), Offset(12));
    let judged = |leader: &Leader| {
        leader.judged_in_sync(None, Now::default(), Duration::from_secs(1), |_| true).is_some()
    };
    assert!(!judged(&leader));
    leader.replica_asks(Now::default(), follower, &at(12)).unwrap();
    assert!(judged(&leader));
}

/// A partition's records and its deliveries, both led under `start()`, and what their follower tells.
struct Pair {
    records: Leader,
    deliveries: Leader,
}

impl Pair {
    fn new(in_sync: &[i32]) -> Pair {
        let in_sync: BTreeSet<BrokerId> = in_sync.iter().copied().map(BrokerId).collect();
        let leader = || Leader::new(LeaderStart { in_sync: in_sync.clone(), ..start() });
        Pair { records: leader(), deliveries: leader() }
    }

    fn judged(&self, seconds: u64) -> Option<Vec<i32>> {
        let now = Now { time: Time(seconds * 1_000_000_000), ..Now::default() };
        let stall = Duration::from_secs(2);
        let judged = self.records.judged_in_sync(Some(&self.deliveries), now, stall, |_| true)?;
        Some(judged.followers.keys().map(|broker| broker.0).collect())
    }
}

fn tells(leader: &mut Leader, epoch: i64, end: i64) {
    let follower = Incarnation { broker: BrokerId(2), epoch: BrokerEpoch(epoch) };
    let position = ReplicaPosition {
        leader_epoch: LeaderEpoch(3),
        from: Offset(end),
        last_epoch: None,
        durable_offset: Offset(end),
        log_start_offset: Offset(5),
    };
    leader.replica_asks(Now::default(), follower, &position).unwrap();
}

#[test]
fn who_joins_has_caught_up_on_both_logs_and_as_the_same_process() {
    let mut pair = Pair::new(&[1]);
    assert_eq!(pair.judged(1), None, "nobody has told anything");
    tells(&mut pair.records, 1, 20);
    assert_eq!(pair.judged(1), None, "nobody has told anything of its deliveries");
    tells(&mut pair.deliveries, 1, 19);
    assert_eq!(pair.judged(1), None, "it lacks one");
    tells(&mut pair.records, 2, 20);
    tells(&mut pair.deliveries, 1, 20);
    assert_eq!(pair.judged(1), None, "it has started anew since, and may have lost some");
    tells(&mut pair.deliveries, 2, 20);
    assert_eq!(pair.judged(1), Some(vec![2]));
}

#[test]
fn who_stands_still_on_either_log_leaves() {
    for behind_on_records in [true, false] {
        let mut pair = Pair::new(&[1, 2]);
        tells(&mut pair.records, 1, if behind_on_records { 12 } else { 20 });
        tells(&mut pair.deliveries, 1, if behind_on_records { 20 } else { 12 });
        assert_eq!(pair.judged(1), None, "not for long");
        assert_eq!(pair.judged(3), Some(vec![]));
    }
}

#[test]
fn nothing_is_asked_while_the_two_logs_act_on_different_states() {
    let mut pair = Pair::new(&[1, 2]);
    tells(&mut pair.records, 1, 12);
    let both = BTreeSet::from([BrokerId(1), BrokerId(2)]);
    pair.deliveries.partition_decided(Now::default(), decision(8, &both));
    assert_eq!(pair.judged(3), None);
    pair.records.partition_decided(Now::default(), decision(8, &both));
    assert_eq!(pair.judged(3), Some(vec![]));
}

/// The controller may have taken it in by the time that the delivery log is there.
#[test]
fn a_log_that_comes_later_waits_for_whoever_was_asked_for() {
    let mut pair = Pair::new(&[1]);
    tells(&mut pair.records, 1, 20);
    pair.records.propose_in_sync(proposal(&[2]));
    let mut deliveries = Leader::new(LeaderStart {
        in_sync: BTreeSet::from([BrokerId(1)]),
        log_start_offset: Offset(0),
        log_end_offset: Offset(0),
        durable_offset: Offset(0),
        high_watermark: Offset(0),
        ..start()
    });
    deliveries.count_also(&pair.records.maximal_in_sync());
    assert_eq!(deliveries.maximal_in_sync(), pair.records.maximal_in_sync());
    deliveries.partition_decided(Now::default(), decision(8, &BTreeSet::from([BrokerId(1)])));
    assert_eq!(deliveries.maximal_in_sync(), BTreeSet::from([BrokerId(1)]));
}

#[test]
#[should_panic(expected = "what was durable stays so")]
fn a_durable_offset_never_goes_back() {
    Leader::new(start()).synced(Now::default(), Offset(19));
}

#[test]
#[should_panic(expected = "only committed records are deleted")]
fn uncommitted_records_are_not_deleted() {
    Leader::new(start()).log_start_moved(Offset(13));
}

#[test]
#[should_panic(expected = "a leader is in sync with itself")]
fn a_leader_never_leaves_its_own_in_sync_set() {
    let in_sync = BTreeSet::from([BrokerId(2)]);
    Leader::new(start()).partition_decided(Now::default(), decision(8, &in_sync));
}

#[test]
#[should_panic(expected = "holds no replica")]
fn a_stranger_never_joins() {
    Leader::new(start()).propose_in_sync(proposal(&[7]));
}

#[test]
#[should_panic(expected = "one proposal at a time")]
fn a_proposal_waits_for_the_answer_to_the_one_before() {
    let mut leader = Leader::new(start());
    leader.propose_in_sync(proposal(&[]));
    leader.propose_in_sync(proposal(&[2]));
}

fn decision(partition_epoch: i32, in_sync: &BTreeSet<BrokerId>) -> PartitionDecision<'static> {
    PartitionDecision {
        partition_epoch,
        replicas: &[BrokerId(1), BrokerId(2)],
        in_sync: in_sync.clone(),
        min_insync_replicas: 1,
    }
}

#[test]
fn a_leader_is_settled_while_everybody_holds_everything() {
    let mut leader = Leader::new(start());
    assert!(!leader.is_settled(), "its follower has not said yet that it holds everything");
    let follower = Incarnation { broker: BrokerId(2), epoch: BrokerEpoch(1) };
    let position = |from| ReplicaPosition {
        leader_epoch: LeaderEpoch(3),
        from: Offset(from),
        last_epoch: None,
        durable_offset: Offset(from),
        log_start_offset: Offset(5),
    };
    let report = |leader: &mut Leader, from| {
        leader.follower_reported(Now::default(), follower, &position(from)).unwrap();
    };
    report(&mut leader, 20);
    assert!(leader.is_settled());

    leader.propose_in_sync(proposal(&[]));
    assert!(!leader.is_settled(), "the controller has been asked");
    leader.partition_decided(Now::default(), decision(8, &[BrokerId(1)].into()));
    report(&mut leader, 20);
    assert!(!leader.is_settled(), "a replica may join");
}

fn proposal(followers: &[i32]) -> InSyncProposal {
    let followers = followers.iter().map(|id| (BrokerId(*id), None)).collect();
    InSyncProposal { partition_epoch: 7, followers }
}

#[test]
fn what_an_older_state_of_the_partition_says_changes_nothing() {
    let mut leader = Leader::new(start());
    let alone = BTreeSet::from([BrokerId(1)]);
    assert!(!leader.partition_decided(Now::default(), decision(7, &alone)));
    assert_eq!(leader.in_sync().len(), 2);
    leader.propose_in_sync(proposal(&[]));
    assert!(leader.partition_decided(Now::default(), decision(9, &alone)));
    assert_eq!((leader.in_sync(), leader.proposal()), (&alone, None));
    assert_eq!(leader.high_watermark(), Offset(20));
}

/// Broker 2 leaves while the minimum is raised to two: it stays eligible, so nothing may be committed
/// without it, not even in the step in which the leader learns of both (KIP-966).
#[test]
fn who_leaves_while_the_minimum_is_raised_misses_nothing() {
    let mut leader = Leader::new(start());
    let alone = BTreeSet::from([BrokerId(1)]);
    let decision = PartitionDecision { min_insync_replicas: 2, ..decision(8, &alone) };
    assert!(leader.partition_decided(Now::default(), decision));
    assert_eq!((leader.in_sync(), leader.high_watermark()), (&alone, Offset(12)));
}

#[test]
fn a_leader_that_resigns_follows_and_leads_again_with_what_it_knew() {
    let mut leader = Leader::new(LeaderStart {
        epochs: EpochHistory::from_entries([EpochStart {
            epoch: LeaderEpoch(1),
            start: Offset(5),
        }]),
        ..start()
    });
    assert!(!leader.is_high_watermark_certain());
    leader.set_config(1, Durability::Synced);
    let mut replica = leader.resign();
    assert_eq!(replica.high_watermark(), Offset(12));
    assert_eq!(replica.epochs().latest(), Some(LeaderEpoch(1)), "it has written nothing");
    assert!(replica.follow(Some(BrokerId(2)), LeaderEpoch(4)));
    assert!(!replica.follow(Some(BrokerId(2)), LeaderEpoch(3)), "leader epochs only rise");
    let leader = replica.lead(crate::Lead {
        leader_epoch: LeaderEpoch(5),
        partition_epoch: 9,
        begun_at: Time(0),
        replicas: start().replicas,
        in_sync: BTreeSet::from([BrokerId(1)]),
        min_insync_replicas: 1,
    });
    assert_eq!((leader.high_watermark(), leader.log_end_offset()), (Offset(20), Offset(20)));
    assert!(leader.is_high_watermark_certain());
    assert_eq!(leader.end_offset_of_epoch(LeaderEpoch(4)), Some((LeaderEpoch(1), Offset(20))));
}
