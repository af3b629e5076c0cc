//! See `tests/`: scenarios and properties; here are the cases that panic by design.

use super::*;

fn start() -> LeaderStart {
    LeaderStart {
        me: BrokerId(1),
        leader_epoch: LeaderEpoch(3),
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

#[test]
#[should_panic(expected = "what was durable stays so")]
fn a_durable_offset_never_goes_back() {
    Leader::new(start()).synced(Offset(19));
}

#[test]
#[should_panic(expected = "only committed records are deleted")]
fn uncommitted_records_are_not_deleted() {
    Leader::new(start()).log_start_moved(Offset(13));
}

#[test]
#[should_panic(expected = "a leader is in sync with itself")]
fn a_leader_never_leaves_its_own_in_sync_set() {
    Leader::new(start()).set_in_sync(BTreeSet::from([BrokerId(2)]));
}

#[test]
#[should_panic(expected = "holds no replica")]
fn a_stranger_never_joins() {
    Leader::new(start()).propose_in_sync(BTreeSet::from([BrokerId(1), BrokerId(7)]));
}
