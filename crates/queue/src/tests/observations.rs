//! What a leader tells of what it has seen: one test for each thing that is told.

use super::*;
use crate::{DeadReason, Return, Settlement, quantile};

fn with_dead_letters() -> DeliveryConfig {
    DeliveryConfig {
        receives_max: Some(2),
        dead_letter_queue: Some(Arc::from("dead")),
        ..DeliveryConfig::default()
    }
}

#[test]
fn what_came_and_went_is_counted_by_how() {
    let mut bench = Bench::new(DeliveryConfig::default());
    let named = || Facts { dedup_id: Some(b"a"[..].into()), ..Facts::default() };
    let control = Facts { is_control: true, ..Facts::default() };
    bench.send_with(vec![named(), Facts::default(), named(), control]);
    bench.send(4);
    let receipts = bench.receive(3, MINUTE);
    bench.delete(&receipts[..2]);
    let note = Arc::from("no");
    let reject = Request::Reject { subscription: 0, receipts: receipts[2..].to_vec(), note };
    bench.outcomes(reject);
    let (subscription, offsets, to) = (0, vec![Offset(5)], None);
    bench.ask(Request::Dispose { subscription, offsets, to, held_too: true, note: None });
    bench.ask(Request::Purge { subscription: 0 });
    let seen = bench.observed();
    assert_eq!((seen.admitted, seen.duplicates, seen.received), (6, 1, 3));
    let settled = |how| seen.settled(how);
    assert_eq!((settled(Settlement::Deleted), settled(Settlement::Rejected)), (2, 1));
    assert_eq!(settled(Settlement::Dropped), 3);
    assert_eq!(bench.stats().ready, 0);
}

#[test]
fn what_came_back_is_counted_by_why() {
    let mut bench = Bench::new(DeliveryConfig::default());
    bench.send(4);
    let receipts = bench.receive(4, 10 * SECOND);
    let one = |at: usize| vec![receipts[at]];
    let (subscription, delay) = (0, None);
    bench.outcomes(Request::Release { subscription, receipts: one(0), delay, note: None });
    let note = Some(Arc::from("no database"));
    bench.outcomes(Request::Release { subscription, receipts: one(1), delay, note });
    bench.outcomes(Request::Unclaim { subscription, receipts: one(2) });
    bench.wait(11 * SECOND);
    let seen = bench.observed();
    let all = [Return::Released, Return::Failed, Return::Unclaimed, Return::LeaseExpired];
    assert_eq!(all.map(|why| seen.returned(why)), [1, 1, 1, 1]);
    assert_eq!(seen.recent.leases_ended, 1);
}

#[test]
fn dead_letters_are_counted_by_reason_once_they_lie_in_the_other_queue() {
    let mut bench = Bench::new(with_dead_letters());
    bench.send(2);
    for _ in 0..2 {
        bench.receive(1, SECOND);
        bench.wait(2 * SECOND);
    }
    let receipts = bench.receive(1, MINUTE);
    let note = Arc::from("no");
    bench.outcomes(Request::Reject { subscription: 0, receipts, note });
    assert_eq!(bench.observed().moved(DeadReason::Rejected), 0);
    let offsets = vec![Offset(0), Offset(1)];
    bench.ask(Request::Moved { subscription: 0, offsets: offsets.clone() });
    bench.ask(Request::Moved { subscription: 0, offsets });
    let seen = bench.observed();
    assert_eq!(seen.moved(DeadReason::TooManyReceives), 1);
    assert_eq!(seen.moved(DeadReason::Rejected), 1);
    assert_eq!(seen.settled(Settlement::Moved), 2);
}

#[test]
fn messages_that_grow_too_old_are_counted() {
    let retention = Some(MINUTE);
    let mut bench = Bench::new(DeliveryConfig { retention, ..DeliveryConfig::default() });
    bench.send(5);
    let receipts = bench.receive(2, MINUTE);
    bench.delete(&receipts);
    bench.wait(2 * MINUTE);
    assert_eq!(bench.observed().settled(Settlement::Expired), 3);
    assert_eq!(bench.stats().oldest, None);
}

#[test]
fn it_is_known_how_long_work_takes_and_how_often_it_comes_too_late() {
    let mut bench = Bench::new(DeliveryConfig::default());
    bench.send(101);
    let receipts = bench.receive(100, 10 * SECOND);
    bench.wait(2 * SECOND);
    bench.delete(&receipts);
    let late = bench.receive(1, 10 * SECOND);
    bench.wait(30 * SECOND);
    bench.delete(&late);
    let recent = bench.observed().recent;
    let half = quantile(recent.processing.buckets(), 500).unwrap();
    assert!(2 * SECOND <= half && half < 3 * SECOND, "{half:?}");
    let most = quantile(recent.processing.buckets(), 999).unwrap();
    assert!(30 * SECOND <= most && most < 40 * SECOND, "{most:?}");
    assert_eq!((recent.late_deletes, recent.leases_ended, recent.extended), (1, 1, 0));
    assert_eq!(bench.observed().receives[..2], [101, 0]);

    // What was long ago is counted, and says nothing of now.
    bench.wait(40 * MINUTE);
    let seen = bench.observed();
    assert_eq!(seen.recent, crate::Recent::default());
    assert_eq!((seen.always.late_deletes, seen.always.leases_ended), (1, 1));
}

#[test]
fn a_message_that_is_received_again_and_again_is_seen_among_the_others() {
    let mut bench = Bench::new(DeliveryConfig::default());
    bench.send(1);
    for _ in 0..6 {
        bench.receive(1, SECOND);
        bench.wait(2 * SECOND);
    }
    let receipts = bench.receive(1, MINUTE);
    bench.outcomes(Request::Extend { subscription: 0, receipts: vec![(receipts[0], MINUTE)] });
    bench.delete(&receipts);
    // Seven: more than five, ten at most.
    assert_eq!(bench.observed().receives, [0, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(bench.observed().recent.extended, 1);
}

#[test]
fn the_backlog_grows_older_while_nobody_reads_and_its_rates_are_known() {
    let mut bench = Bench::new(DeliveryConfig::default());
    for _ in 0..60 {
        bench.send(10);
        let receipts = bench.receive(4, MINUTE);
        bench.delete(&receipts);
        bench.wait(SECOND);
    }
    let seen = bench.observed();
    assert!((9.5..10.6).contains(&seen.arrivals_per_second), "{}", seen.arrivals_per_second);
    assert!((3.8..4.3).contains(&seen.served_per_second), "{}", seen.served_per_second);
    let before = bench.stats().oldest_waiting.unwrap();
    bench.advance_to(bench.now.time + 10 * MINUTE);
    let after = bench.stats();
    assert_eq!(after.oldest_waiting, Some(before + 10 * MINUTE));
    assert_eq!(after.oldest, after.oldest_waiting);
    assert_eq!(bench.observed().arrivals_per_second, 0.0);
}

#[test]
fn the_oldest_that_is_held_is_the_oldest_and_not_the_oldest_that_waits() {
    let mut bench = Bench::new(DeliveryConfig { is_fifo: true, ..DeliveryConfig::default() });
    bench.send_with(vec![in_group("a"), in_group("a")]);
    bench.wait(5 * SECOND);
    bench.send_with(vec![in_group("b"), in_group("c")]);
    bench.receive(1, MINUTE);
    bench.wait(5 * SECOND);
    // The second one of the first group waits for the first one: no receiver could have it.
    let stats = bench.stats();
    assert_eq!((stats.ready, stats.in_flight, stats.held_groups), (3, 1, 1));
    assert_eq!((stats.oldest, stats.oldest_waiting), (Some(10 * SECOND), Some(5 * SECOND)));
}

#[test]
fn what_was_seen_is_no_part_of_the_state() {
    let mut bench = Bench::new(DeliveryConfig::default());
    bench.send(3);
    let receipts = bench.receive(2, MINUTE);
    bench.delete(&receipts);
    // The bench compares the bytes of leader and follower after each record.
    assert_eq!(bench.follower.observed(bench.now, 0).unwrap().received, 0);
    bench.fail_over();
    let seen = bench.observed();
    assert_eq!((seen.admitted, seen.received), (0, 0));
    assert_eq!(bench.stats().ready, 1);
}
