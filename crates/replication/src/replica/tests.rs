//! What a follower makes of answers, case by case; `tests/` and the simulator run whole clusters.

use towpath_model::Timestamp;
use towpath_records::{BatchBuilder, Compression, set_base_offset, set_leader_epoch};

use super::*;
use AnswerKind::{Batches, BeginAnew, Diverging, Nothing, OutOfRange, Refused};

/// Epoch 1 wrote `[0, 10)`, epoch 3 `[10, 20)`; committed up to 8, as far as is known here.
fn replica() -> Replica {
    let entries = [(1, 0), (3, 10)]
        .map(|(epoch, start)| EpochStart { epoch: LeaderEpoch(epoch), start: Offset(start) });
    Replica::new(ReplicaStart {
        me: BrokerId(2),
        leader: Some(BrokerId(1)),
        leader_epoch: LeaderEpoch(5),
        log_start_offset: Offset(0),
        log_end_offset: Offset(20),
        durable_offset: Offset(15),
        high_watermark: Offset(8),
        durability: Durability::Synced,
        producers: Producers::new(10),
        epochs: EpochHistory::from_entries(entries),
    })
}

fn answer(kind: AnswerKind) -> ReplicaAnswer {
    ReplicaAnswer {
        leader_epoch: LeaderEpoch(5),
        from: Offset(20),
        last_epoch: Some(LeaderEpoch(3)),
        high_watermark: Offset(12),
        log_start_offset: Offset(0),
        kind,
    }
}

fn diverging(epoch: i32, end: i64) -> ReplicaStep {
    let kind = Diverging { epoch: LeaderEpoch(epoch), end: Offset(end) };
    replica().judge(&answer(kind))
}

fn header(base: i64, records: u32, epoch: i32) -> BatchHeader {
    let mut builder = BatchBuilder::new(Compression::None, Timestamp(1));
    for _ in 0..records {
        builder.append(Timestamp(1), None, Some(b"v"), []).unwrap();
    }
    let mut bytes = builder.build();
    set_base_offset(&mut bytes, Offset(base));
    set_leader_epoch(&mut bytes, LeaderEpoch(epoch));
    BatchHeader::parse(&bytes).unwrap()
}

#[test]
fn a_position_names_everything_before_it() {
    assert_eq!(
        replica().position(),
        ReplicaPosition {
            leader_epoch: LeaderEpoch(5),
            from: Offset(20),
            last_epoch: Some(LeaderEpoch(3)),
            durable_offset: Offset(15),
            log_start_offset: Offset(0),
        }
    );
}

#[test]
fn an_answer_counts_only_where_it_was_asked_for() {
    let fits = answer(Batches { epochs: Vec::new() });
    let replica = replica();
    assert_eq!(replica.judge(&fits), ReplicaStep::Append);
    for late in [
        ReplicaAnswer { leader_epoch: LeaderEpoch(4), ..fits.clone() },
        ReplicaAnswer { leader_epoch: LeaderEpoch(6), ..fits.clone() },
        ReplicaAnswer { from: Offset(18), ..fits.clone() },
        ReplicaAnswer { last_epoch: Some(LeaderEpoch(1)), ..fits.clone() },
        ReplicaAnswer { last_epoch: None, kind: Nothing, ..fits },
    ] {
        assert_eq!(replica.judge(&late), ReplicaStep::Ignore, "{late:?}");
    }
    assert_eq!(replica.judge(&answer(Nothing)), ReplicaStep::Told);
    assert_eq!(replica.judge(&answer(Refused)), ReplicaStep::Wait);
}

#[test]
fn a_log_is_cut_where_the_two_agree_and_never_below_what_is_committed() {
    // The leader knows the last epoch, and less of it.
    assert_eq!(diverging(3, 14), ReplicaStep::TruncateTo(Offset(14)));
    // It does not know it; of the one before it has more, or less.
    assert_eq!(diverging(2, 12), ReplicaStep::TruncateTo(Offset(10)));
    assert_eq!(diverging(1, 9), ReplicaStep::TruncateTo(Offset(9)));
    assert_eq!(diverging(1, 8), ReplicaStep::TruncateTo(Offset(8)));
    let below = |end| {
        let (end, high_watermark) = (Offset(end), Offset(8));
        ReplicaStep::Contradiction(ReplicaContradiction::BelowHighWatermark { end, high_watermark })
    };
    assert_eq!(diverging(1, 7), below(7));
    assert_eq!(diverging(0, 0), below(0));
    let nowhere = ReplicaContradiction::Nowhere { from: Offset(20) };
    assert_eq!(diverging(3, 20), ReplicaStep::Contradiction(nowhere));
    let mut given_up = replica();
    given_up.give_up_committed();
    let kind = Diverging { epoch: LeaderEpoch(0), end: Offset(0) };
    assert_eq!(given_up.judge(&answer(kind)), ReplicaStep::TruncateTo(Offset(0)));
}

#[test]
fn a_log_that_the_leader_has_left_behind_begins_anew() {
    let begin_anew = |begin| {
        let kind = BeginAnew { begin: Offset(begin), producers: Vec::new() };
        replica().judge(&answer(kind))
    };
    assert_eq!(begin_anew(30), ReplicaStep::StartAt(Offset(30)));
    // The leader's log starts inside of the batch that begins where this log ends: it is no part of
    // that log, and does not become one by waiting.
    assert_eq!(begin_anew(20), ReplicaStep::StartAt(Offset(20)));
    // Written by a leadership that the leader knows no more, and never committed.
    assert_eq!(begin_anew(12), ReplicaStep::TruncateTo(Offset(12)));
    assert_eq!(begin_anew(8), ReplicaStep::TruncateTo(Offset(8)));
    assert!(matches!(begin_anew(7), ReplicaStep::Contradiction(_)));
    let mut replica = replica();
    replica.started_at(Offset(30), Producers::new(10));
    let position = replica.position();
    assert_eq!((position.from, position.last_epoch), (Offset(30), None));
    assert_eq!((replica.high_watermark(), replica.durable_offset()), (Offset(30), Offset(30)));
}

#[test]
fn a_log_that_begins_where_it_was_told_to_waits() {
    let mut replica = replica();
    replica.started_at(Offset(30), Producers::new(10));
    let kind = BeginAnew { begin: Offset(30), producers: Vec::new() };
    let again = ReplicaAnswer { from: Offset(30), last_epoch: None, ..answer(kind) };
    assert_eq!(replica.judge(&again), ReplicaStep::Wait);
}

#[test]
fn an_offset_at_which_the_leader_has_nothing_is_asked_for_again() {
    let out_of_range = |end| replica().judge(&answer(OutOfRange { log_end_offset: Offset(end) }));
    assert_eq!(out_of_range(50), ReplicaStep::Wait);
    assert!(matches!(out_of_range(7), ReplicaStep::Contradiction(_)));
}

#[test]
fn what_a_compaction_has_removed_still_tells_where_leaderships_began() {
    let mut replica = replica();
    let starts = [(3, 10), (4, 21), (5, 24), (6, 40)]
        .map(|(epoch, start)| EpochStart { epoch: LeaderEpoch(epoch), start: Offset(start) });
    replica.appended(Now::default(), &header(27, 2, 5), &starts);
    assert_eq!((replica.log_end_offset(), replica.durable_offset()), (Offset(29), Offset(15)));
    let ends = |epoch| replica.epochs().end_offset_of(LeaderEpoch(epoch), Offset(29)).unwrap().1;
    assert_eq!((ends(3), ends(4), ends(5)), (Offset(21), Offset(24), Offset(29)));
}

/// Epoch 3 wrote what only others have; this broker led in epoch 4, wrote nothing and kept a snapshot.
#[test]
fn a_leadership_that_wrote_nothing_is_in_nobodys_way() {
    let entries = [(1, 0), (4, 10)]
        .map(|(epoch, start)| EpochStart { epoch: LeaderEpoch(epoch), start: Offset(start) });
    let mut replica = Replica::new(ReplicaStart {
        me: BrokerId(2),
        leader: Some(BrokerId(1)),
        leader_epoch: LeaderEpoch(5),
        log_start_offset: Offset(0),
        log_end_offset: Offset(10),
        durable_offset: Offset(10),
        high_watermark: Offset(10),
        durability: Durability::Synced,
        producers: Producers::new(10),
        epochs: EpochHistory::from_entries(entries),
    });
    assert_eq!(replica.position().last_epoch, Some(LeaderEpoch(1)));
    replica.appended(Now::default(), &header(10, 2, 3), &[]);
    assert_eq!(replica.position().last_epoch, Some(LeaderEpoch(3)));
}

#[test]
fn the_high_watermark_follows_the_leader_as_far_as_the_log_goes_and_never_back() {
    let mut replica = replica();
    replica.leader_told(Offset(30), Offset(12));
    assert_eq!(replica.high_watermark(), Offset(20));
    replica.leader_told(Offset(9), Offset(3));
    assert_eq!(replica.high_watermark(), Offset(20));
    assert_eq!(replica.wanted_log_start(), Some(Offset(12)));
    replica.log_start_moved(Offset(12));
    assert_eq!((replica.log_start_offset(), replica.wanted_log_start()), (Offset(12), None));
}

#[test]
fn a_log_starts_no_later_than_it_is_known_to_be_committed() {
    let mut replica = replica();
    replica.leader_told(Offset(9), Offset(14));
    assert_eq!(replica.wanted_log_start(), Some(Offset(9)));
}

#[test]
#[should_panic(expected = "what is committed is never cut")]
fn nobody_cuts_below_the_high_watermark() {
    replica().truncated(Offset(7), Producers::new(10));
}

#[test]
#[should_panic(expected = "leader epochs rise")]
fn leader_epochs_never_fall() {
    replica().appended(Now::default(), &header(20, 1, 2), &[]);
}
