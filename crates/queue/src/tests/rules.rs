//! One test for each rule of deliveries.

use super::*;
use crate::{
    DedupKey, Delay, Identity, PeekFilter, PeekState, QueueTime, ReceiptOutcome, Retry,
    request::Request,
};

fn standard() -> DeliveryConfig {
    DeliveryConfig::default()
}

fn fifo() -> DeliveryConfig {
    DeliveryConfig { is_fifo: true, ..DeliveryConfig::default() }
}

fn with_dead_letters(receives_max: u32) -> DeliveryConfig {
    DeliveryConfig {
        receives_max: Some(receives_max),
        dead_letter_queue: Some(Arc::from("dead")),
        ..DeliveryConfig::default()
    }
}

fn with_id(id: &str) -> Facts {
    Facts { dedup_id: Some(id.as_bytes().into()), ..Facts::default() }
}

#[test]
fn a_received_message_is_hidden_and_comes_back() {
    let mut bench = Bench::new(standard());
    bench.send(2);
    assert_eq!(bench.receive(10, 30 * SECOND).len(), 2);
    assert_eq!(bench.received(10), [0_i64; 0]);
    bench.wait(Duration::from_millis(29_999));
    assert_eq!(bench.received(10), [0_i64; 0]);
    bench.wait(Duration::from_millis(1));
    assert_eq!(bench.received(10), [0, 1]);
}

#[test]
fn a_deleted_message_never_comes_back() {
    let mut bench = Bench::new(standard());
    bench.send(3);
    let receipts = bench.receive(2, SECOND);
    assert_eq!(bench.delete(&receipts[..1]), [ReceiptOutcome::Done]);
    bench.restart(MINUTE);
    bench.wait(MINUTE);
    assert_eq!(bench.received(10), [1, 2]);
    assert_eq!(bench.delete(&receipts[..1]), [ReceiptOutcome::Settled]);
}

#[test]
fn an_old_receipt_does_nothing_to_a_newer_delivery() {
    let mut bench = Bench::new(standard());
    bench.send(1);
    let old = bench.receive(1, SECOND);
    bench.wait(SECOND);
    let new = bench.receive(1, MINUTE);
    assert_eq!(bench.delete(&old), [ReceiptOutcome::Superseded]);
    let extend = Request::Extend { subscription: 0, receipts: vec![(old[0], Duration::ZERO)] };
    assert_eq!(bench.outcomes(extend), [ReceiptOutcome::Superseded]);
    assert_eq!(bench.received(10), [0_i64; 0]);
    assert_eq!(bench.delete(&new), [ReceiptOutcome::Done]);
}

#[test]
fn the_newest_receipt_deletes_after_its_time_where_order_does_not_matter() {
    let mut bench = Bench::new(standard());
    bench.send(1);
    let receipts = bench.receive(1, SECOND);
    bench.wait(2 * SECOND);
    assert_eq!(bench.delete(&receipts), [ReceiptOutcome::Done]);
    let mut bench = Bench::new(fifo());
    bench.send(1);
    let receipts = bench.receive(1, SECOND);
    bench.wait(2 * SECOND);
    assert_eq!(bench.delete(&receipts), [ReceiptOutcome::Expired]);
}

#[test]
fn a_holder_may_keep_a_message_and_give_it_back() {
    let mut bench = Bench::new(standard());
    bench.send(1);
    let receipts = bench.receive(1, SECOND);
    let keep = |wait| Request::Extend { subscription: 0, receipts: vec![(receipts[0], wait)] };
    assert_eq!(bench.outcomes(keep(MINUTE)), [ReceiptOutcome::Done]);
    bench.wait(59 * SECOND);
    assert_eq!(bench.received(1), [0_i64; 0]);
    assert_eq!(bench.outcomes(keep(12 * 60 * MINUTE)), [ReceiptOutcome::TooLong]);
    assert_eq!(bench.outcomes(keep(Duration::ZERO)), [ReceiptOutcome::Done]);
    assert_eq!(bench.received(1), [0]);
}

#[test]
fn a_lease_and_its_count_survive_failover_and_restart() {
    let mut bench = Bench::new(standard());
    bench.send(1);
    bench.receive(1, MINUTE);
    bench.wait(50 * SECOND);
    bench.fail_over();
    bench.wait(9 * SECOND);
    assert_eq!(bench.received(1), [0_i64; 0]);
    bench.wait(SECOND);
    let again = bench.ask(Request::Receive(receive(1, MINUTE)));
    let Some(Reply::Received { messages, .. }) = again else { panic!("{again:?}") };
    assert_eq!(messages[0].receives, 2);
    // Nobody knows how long the process was away: what is left of a lease lasts from then on.
    bench.restart(10 * MINUTE);
    bench.wait(59 * SECOND);
    assert_eq!(bench.received(1), [0_i64; 0]);
    bench.wait(6 * SECOND);
    assert_eq!(bench.received(1), [0]);
}

#[test]
fn a_restart_costs_a_long_lease_some_seconds_and_not_all_that_has_passed() {
    let mut bench = Bench::new(standard());
    bench.send(1);
    bench.receive(1, 60 * MINUTE);
    bench.wait(59 * MINUTE);
    bench.restart(SECOND);
    bench.wait(66 * SECOND);
    assert_eq!(bench.received(1), [0]);
}

#[test]
fn a_message_group_is_delivered_in_order_and_by_one() {
    let mut bench = Bench::new(fifo());
    bench.send_with(["a", "b", "a", "a", "b"].map(in_group).to_vec());
    let first = bench.receive(2, MINUTE);
    assert_eq!(first.iter().map(|each| each.offset.0).collect::<Vec<_>>(), [0, 2]);
    assert_eq!(bench.received(10), [1, 4]);
    assert_eq!(bench.received(10), [0_i64; 0]);
    bench.delete(&first[1..]);
    assert_eq!(bench.received(10), [0_i64; 0], "the first one is still held");
    bench.delete(&first[..1]);
    assert_eq!(bench.received(10), [3]);
}

#[test]
fn a_group_stays_closed_while_one_of_it_is_kept_longer() {
    let mut bench = Bench::new(fifo());
    bench.send_with(vec![in_group("a"); 4]);
    let held = bench.receive(3, 10 * SECOND);
    let receipts = vec![(held[0], MINUTE)];
    bench.outcomes(Request::Extend { subscription: 0, receipts });
    bench.wait(20 * SECOND);
    assert_eq!(bench.received(10), [0_i64; 0]);
    bench.wait(40 * SECOND);
    assert_eq!(bench.received(10), [0, 1, 2, 3]);
}

#[test]
fn without_a_group_an_ordered_queue_has_one_order() {
    let mut bench = Bench::new(fifo());
    bench.send(3);
    assert_eq!(bench.received(1), [0]);
    assert_eq!(bench.received(1), [0_i64; 0]);
}

#[test]
fn a_repeated_send_makes_no_second_message() {
    let mut bench = Bench::new(fifo());
    bench.send_with(vec![with_id("x"), with_id("y"), with_id("x")]);
    let receipts = bench.receive(10, MINUTE);
    assert_eq!(receipts.len(), 2);
    bench.delete(&receipts);
    bench.wait(299 * SECOND);
    bench.restart(Duration::ZERO);
    bench.send_with(vec![with_id("x")]);
    assert_eq!(bench.received(10), [0_i64; 0]);
    let key = DedupKey::Id { group: None, id: (*b"x").into() };
    assert_eq!(bench.leader.first_with(bench.now, &key), Some(Offset(0)));
    bench.wait(10 * SECOND);
    bench.send_with(vec![with_id("x")]);
    assert_eq!(bench.received(10), [4]);
}

#[test]
fn ids_may_be_told_apart_by_group() {
    let facts = |group: &str| Facts { dedup_id: Some((*b"x").into()), ..in_group(group) };
    let mut bench = Bench::new(DeliveryConfig { dedup_by_group: true, ..fifo() });
    bench.send_with(vec![facts("a"), facts("b"), facts("a")]);
    assert_eq!(bench.received(10), [0, 1]);
}

#[test]
fn a_purge_forgets_what_is_held_and_delayed_and_which_ids_were_seen() {
    let mut bench = Bench::new(standard());
    let late = Facts { delay: Some(Delay::For(MINUTE)), ..Facts::default() };
    bench.send_with(vec![with_id("x"), late, Facts::default()]);
    bench.receive(1, SECOND);
    assert_eq!(bench.ask(Request::Purge { subscription: 0 }), Some(Reply::Count(3)));
    bench.wait(2 * MINUTE);
    assert_eq!(bench.received(10), [0_i64; 0]);
    assert_eq!(bench.stats().delayed, 0);
    bench.send_with(vec![with_id("x")]);
    assert_eq!(bench.received(10), [3]);
}

#[test]
fn a_purge_of_a_named_subscription_forgets_no_ids() {
    let mut bench = Bench::new(standard());
    let subscribe =
        Request::Subscribe { name: Arc::from("audit"), from_start: true, partitions: 1 };
    assert_eq!(bench.ask(subscribe), Some(Reply::Subscribed(1)));
    bench.send_with(vec![with_id("x")]);
    assert_eq!(bench.ask(Request::Purge { subscription: 1 }), Some(Reply::Count(1)));
    bench.send_with(vec![with_id("x")]);
    assert_eq!(bench.received(10), [0], "the repeat is no message");
    bench.fail_over();
    assert_eq!(bench.ask(Request::Purge { subscription: 0 }), Some(Reply::Count(1)));
    bench.send_with(vec![with_id("x")]);
    assert_eq!(bench.received(10), [2], "the queue forgets its ids");
}

#[test]
fn a_delayed_message_does_not_come_early() {
    let mut bench = Bench::new(standard());
    let days = Delay::For(3 * 24 * 60 * MINUTE);
    let at = Delay::Until(bench.now.wall + 10 * SECOND);
    let facts = |delay| Facts { delay: Some(delay), ..Facts::default() };
    bench.send_with(vec![facts(days), facts(at), Facts::default()]);
    assert_eq!(bench.received(10), [2]);
    bench.wait(9 * SECOND);
    assert_eq!(bench.received(10), [0_i64; 0]);
    bench.wait(SECOND);
    assert_eq!(bench.received(10), [1]);
    bench.fail_over();
    bench.wait(3 * 24 * 60 * MINUTE - 20 * SECOND);
    assert!(!bench.received(10).contains(&0));
    bench.wait(11 * SECOND);
    assert!(bench.received(10).contains(&0));
}

#[test]
fn a_queue_may_delay_all_of_its_messages_and_keep_their_order() {
    let mut bench = Bench::new(DeliveryConfig { delay: 10 * SECOND, ..fifo() });
    bench.send(2);
    assert_eq!(bench.received(10), [0_i64; 0]);
    assert_eq!(bench.stats().delayed, 2);
    assert_eq!(bench.stats().ready, 0);
    bench.wait(10 * SECOND);
    assert_eq!(bench.received(10), [0, 1]);
}

#[test]
fn the_higher_priority_comes_first() {
    let mut bench = Bench::new(standard());
    let facts = |priority| Facts { priority, ..Facts::default() };
    bench.send_with([None, Some(9), Some(0), Some(9), None].map(facts).to_vec());
    let receipts = bench.receive(1, SECOND);
    assert_eq!(receipts[0].offset, Offset(1));
    bench.wait(SECOND);
    assert_eq!(bench.received(10), [1, 3, 0, 4, 2]);
}

#[test]
fn a_message_that_is_worth_nothing_any_more_is_not_delivered() {
    let mut bench = Bench::new(standard());
    let facts = Facts { ttl: Some(10 * SECOND), ..Facts::default() };
    bench.send_with(vec![facts.clone(), facts, Facts::default()]);
    let held = bench.receive(1, MINUTE);
    assert_eq!(held[0].offset, Offset(0));
    bench.wait(11 * SECOND);
    assert_eq!(bench.received(1), [2]);
    // Who holds it may still delete it; who gives it back does not see it again.
    bench.wait(49 * SECOND);
    assert_eq!(bench.received(10), [0_i64; 0]);
    assert_eq!(bench.stats().in_flight, 1);
    assert_eq!(bench.delete(&held), [ReceiptOutcome::Settled]);
}

#[test]
fn messages_grow_too_old_and_become_dead_letters_where_that_is_wanted() {
    let config = DeliveryConfig { retention: Some(MINUTE), ..standard() };
    let mut bench = Bench::new(config.clone());
    bench.send(2);
    bench.wait(40 * SECOND);
    bench.send(1);
    bench.receive(1, MINUTE);
    bench.wait(22 * SECOND);
    assert_eq!(bench.received(10), [2]);

    let dead_letter_queue = Some(Arc::from("dead"));
    let mut bench =
        Bench::new(DeliveryConfig { expired_are_dead_letters: true, dead_letter_queue, ..config });
    bench.send(3);
    let held = bench.receive(1, 90 * SECOND);
    bench.wait(62 * SECOND);
    let moving = |bench: &Bench| bench.leader.moves(0).map(|(at, _)| at.0).collect::<Vec<_>>();
    assert_eq!(moving(&bench), [1, 2]);
    bench.wait(30 * SECOND);
    assert_eq!(moving(&bench), [0, 1, 2]);
    assert_eq!(bench.delete(&held), [ReceiptOutcome::Settled]);
}

#[test]
fn one_receive_too_many_moves_a_message_to_the_dead_letter_queue() {
    let mut bench = Bench::new(with_dead_letters(2));
    bench.send(2);
    for _ in 0..2 {
        assert_eq!(bench.receive(1, SECOND)[0].offset, Offset(0));
        bench.wait(SECOND);
    }
    bench.fail_over();
    assert_eq!(bench.received(1), [1]);
    let moves: Vec<_> = bench.leader.moves(0).map(|(at, way)| (at, way.reason)).collect();
    assert_eq!(moves, [(Offset(0), crate::DeadReason::TooManyReceives)]);
    assert_eq!(bench.leader.history(0, Offset(0)).len(), 2);
    let moved = Request::Moved { subscription: 0, offsets: vec![Offset(0)] };
    assert_eq!(bench.ask(moved), Some(Reply::Count(1)));
    assert_eq!(bench.leader.moves(0).count(), 0);
    bench.wait(2 * MINUTE);
    assert_eq!(bench.receive(10, SECOND).len(), 1);
}

#[test]
fn a_move_that_fails_is_decided_anew_later() {
    let mut bench = Bench::new(with_dead_letters(1));
    bench.send(1);
    bench.receive(1, SECOND);
    bench.wait(SECOND);
    assert_eq!(bench.received(1), [0_i64; 0]);
    let note = Arc::from("it is gone");
    let offsets = vec![Offset(0)];
    let failed = Request::MoveFailed { subscription: 0, offsets, note, is_for_good: false };
    bench.ask(failed);
    assert_eq!(bench.stats().delayed, 1);
    bench.wait(5 * SECOND);
    assert_eq!(bench.received(1), [0_i64; 0]);
    assert_eq!(bench.leader.moves(0).count(), 1);
}

#[test]
fn what_another_queue_never_takes_is_tried_ever_later_and_says_why_it_is_here() {
    let mut bench = Bench::new(with_dead_letters(1));
    bench.send(1);
    bench.receive(1, MINUTE);
    bench.wait(MINUTE);
    let mut waited = Vec::new();
    for _ in 0..14 {
        assert_eq!(bench.received(1), [0_i64; 0], "it goes again");
        assert_eq!((bench.stats().moving, bench.stats().unmovable), (1, 0));
        let (offsets, note) = (vec![Offset(0)], Arc::from("it is too large"));
        bench.ask(Request::MoveFailed { subscription: 0, offsets, note, is_for_good: true });
        assert_eq!((bench.stats().moving, bench.stats().unmovable), (0, 1));
        bench.snapshot();
        bench.restart(Duration::ZERO);
        assert_eq!(bench.stats().unmovable, 1);
        let from = bench.now.time;
        while bench.stats().delayed == 1 {
            bench.wait(SECOND);
        }
        waited.push((bench.now.time - from).as_secs());
    }
    assert!(waited.is_sorted(), "{waited:?}");
    assert!(waited[0] <= 7 && waited[13].abs_diff(3_600) <= 2, "{waited:?}");
    let history = bench.leader.history(0, Offset(0));
    let whys: Vec<crate::Return> = history.iter().map(|attempt| attempt.why).collect();
    assert_eq!(whys, [crate::Return::LeaseExpired, crate::Return::MoveFailed]);
    assert_eq!(history[1].note.as_deref(), Some("it is too large"));
    // In the end it is taken.
    bench.received(1);
    bench.ask(Request::Moved { subscription: 0, offsets: vec![Offset(0)] });
    assert_eq!((bench.stats().unmovable, bench.stats().oldest), (0, None));
}

#[test]
fn a_destination_takes_a_moved_message_once() {
    let identity = Identity {
        topic: towpath_model::Uuid([7; 16]),
        partition: towpath_model::PartitionIndex(0),
        offset: Offset(5),
        subscription: 0,
    };
    let moved = Facts { moved: Some(identity), ..Facts::default() };
    let mut bench = Bench::new(standard());
    bench.send_with(vec![moved.clone()]);
    bench.fail_over();
    bench.send_with(vec![moved.clone()]);
    assert_eq!(bench.received(10), [0]);
    let other = Identity { offset: Offset(6), ..identity };
    bench.send_with(vec![Facts { moved: Some(other), ..moved }]);
    assert_eq!(bench.received(10), [2]);
}

#[test]
fn a_rejected_message_takes_the_workers_words_along() {
    let mut bench = Bench::new(with_dead_letters(5));
    bench.send(1);
    let receipts = bench.receive(1, MINUTE);
    let note: Arc<str> = Arc::from("no such customer");
    let reject =
        Request::Reject { subscription: 0, receipts: receipts.clone(), note: Arc::clone(&note) };
    assert_eq!(bench.outcomes(reject.clone()), [ReceiptOutcome::Done]);
    let (_, way) = bench.leader.moves(0).next().unwrap();
    assert_eq!((way.note.clone(), way.reason), (Some(note), crate::DeadReason::Rejected));
    assert_eq!(bench.outcomes(reject), [ReceiptOutcome::Settled]);
}

#[test]
fn a_failed_message_comes_back_later_and_later() {
    let retry = Retry { first: 10 * SECOND, max: 15 * SECOND, jitter_percent: 0 };
    let mut bench = Bench::new(DeliveryConfig { retry, ..standard() });
    bench.send(1);
    for wait in [10, 15, 15] {
        let receipts = bench.receive(1, MINUTE);
        assert_eq!(receipts.len(), 1);
        let note = Some(Arc::from("no answer"));
        let release = Request::Release { subscription: 0, receipts, delay: None, note };
        assert_eq!(bench.outcomes(release), [ReceiptOutcome::Done]);
        bench.wait((wait - 1) * SECOND);
        bench.fail_over();
        assert_eq!(bench.received(1), [0_i64; 0]);
        bench.wait(2 * SECOND);
    }
    let (peeked, _) = bench.leader.peek(bench.now, 0, Offset(0), PeekFilter::Any, 9, 9);
    assert_eq!(peeked[0].history.len(), 3);
    assert_eq!(peeked[0].history[0].note.as_deref(), Some("no answer"));
}

#[test]
fn what_nobody_took_does_not_count_as_received() {
    let mut bench = Bench::new(with_dead_letters(1));
    bench.send(1);
    for _ in 0..3 {
        let receipts = bench.receive(1, MINUTE);
        assert_eq!(receipts.len(), 1);
        bench.outcomes(Request::Unclaim { subscription: 0, receipts });
    }
}

#[test]
fn a_receiver_waits_for_a_message_a_return_a_delay_and_a_group() {
    let waits = |bench: &mut Bench| {
        let wait_until = Some(bench.now.time + 20 * SECOND);
        bench.ask(Request::Receive(Receive { wait_until, ..receive(1, 10 * SECOND) }))
    };
    let served = |bench: &mut Bench| {
        let replies = std::mem::take(&mut bench.replies);
        let of_reply = |(_, reply): (Token, Reply)| match reply {
            Reply::Received { messages, .. } => messages.len(),
            other => panic!("{other:?}"),
        };
        replies.into_iter().map(of_reply).collect::<Vec<_>>()
    };
    let mut bench = Bench::new(standard());
    assert_eq!(waits(&mut bench), None);
    bench.send(1);
    assert_eq!(served(&mut bench), [1], "a message has come");
    assert_eq!(waits(&mut bench), None);
    bench.wait(10 * SECOND);
    assert_eq!(served(&mut bench), [1], "a lease has ended");
    bench.ask(Request::Purge { subscription: 0 });
    let late = Facts { delay: Some(Delay::For(5 * SECOND)), ..Facts::default() };
    bench.send_with(vec![late]);
    assert_eq!(waits(&mut bench), None);
    bench.wait(6 * SECOND);
    assert_eq!(served(&mut bench), [1], "a delay has ended");
    bench.ask(Request::Purge { subscription: 0 });
    assert_eq!(waits(&mut bench), None);
    bench.wait(20 * SECOND);
    assert_eq!(served(&mut bench), [0], "the wait is over");
    assert_eq!(bench.stats().receivers, 0);

    let mut bench = Bench::new(fifo());
    bench.send(2);
    let held = bench.receive(1, MINUTE);
    assert_eq!(waits(&mut bench), None);
    bench.delete(&held);
    assert_eq!(served(&mut bench), [1], "the group is free");
}

#[test]
fn who_wants_nothing_does_not_wait() {
    let mut bench = Bench::new(standard());
    let wait_until = Some(bench.now.time + 20 * SECOND);
    let asked = Receive { wait_until, ..receive(0, MINUTE) };
    let reply = bench.ask(Request::Receive(asked));
    assert!(matches!(reply, Some(Reply::Received { messages, .. }) if messages.is_empty()));
    bench.send(1);
    assert_eq!(bench.received(1), [0]);
}

#[test]
fn who_waits_no_more_takes_nothing() {
    let mut bench = Bench::new(standard());
    let wait_until = Some(bench.now.time + 20 * SECOND);
    bench.ask(Request::Receive(Receive { wait_until, ..receive(1, MINUTE) }));
    let waiter = Token(bench.tokens);
    bench.ask(Request::StopWaiting { waiter });
    bench.send(1);
    assert_eq!(bench.received(1), [0]);
}

#[test]
fn a_named_receive_can_be_repeated() {
    let mut bench = Bench::new(fifo());
    bench.send_with(vec![in_group("a"), in_group("a"), in_group("b")]);
    let named = Receive { attempt: Some((*b"first").into()), ..receive(2, 10 * SECOND) };
    let first = bench.ask(Request::Receive(named.clone()));
    bench.wait(5 * SECOND);
    bench.fail_over();
    let again = bench.ask(Request::Receive(named.clone()));
    let receipts = |reply: &Option<Reply>| match reply {
        Some(Reply::Received { messages, .. }) => {
            messages.iter().map(|message| message.receipt).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(receipts(&first), receipts(&again));
    bench.wait(9 * SECOND);
    assert_eq!(bench.received(1), [2], "they are hidden anew");
    bench.delete(&receipts(&first)[..1]);
    assert_eq!(
        bench.ask(Request::Receive(named)).map(|reply| receipts(&Some(reply)).len()),
        Some(0)
    );
}

#[test]
fn what_was_handed_out_by_a_name_is_not_given_back_unclaimed() {
    let mut bench = Bench::new(fifo());
    bench.send_with(vec![in_group("a")]);
    let named = Receive { attempt: Some((*b"first").into()), ..receive(1, 10 * SECOND) };
    let ask = |bench: &mut Bench| match bench.ask(Request::Receive(named.clone())) {
        Some(Reply::Received { messages, .. }) => messages[0].receipt,
        other => panic!("{other:?}"),
    };
    // Its client hangs up before it hears, and has asked again when that is noticed.
    let receipt = ask(&mut bench);
    assert_eq!(ask(&mut bench), receipt);
    let unclaim = Request::Unclaim { subscription: 0, receipts: vec![receipt] };
    bench.ask(unclaim);
    assert_eq!(bench.received(1), [0_i64; 0], "it is held by who has asked again");
    assert_eq!(bench.delete(&[receipt]), [ReceiptOutcome::Done]);
}

#[test]
fn a_leadership_that_was_read_late_does_not_run_the_clock_on() {
    let at = |seconds| Time(0) + seconds * SECOND;
    let now = |seconds| Now { time: at(seconds), wall: Timestamp(0) };
    let mut follower = Deliveries::new(Arc::new(standard()));
    follower.apply(&Record::Ticked { at: QueueTime(1_000) });
    follower.folded_at(at(1));
    let resumes = |follower: &Deliveries, seconds| match &follower.resume(now(seconds)).records[0] {
        Record::Runs { at, .. } => *at,
        other => panic!("{other:?}"),
    };
    assert_eq!(resumes(&follower, 4), QueueTime(4_000), "what has passed since counts");
    // Somebody led anew for a moment, after three seconds without a leader; that is read only now.
    follower.apply(&Record::Resumed { at: QueueTime(1_000), end: Offset(0) });
    follower.apply(&Record::Ticked { at: QueueTime(1_500) });
    assert_eq!(resumes(&follower, 5), QueueTime(1_500), "leases given since would end early");
}

#[test]
fn there_is_a_limit_to_what_is_held() {
    let mut bench = Bench::new(DeliveryConfig { in_flight_max: 2, ..standard() });
    bench.send(5);
    assert_eq!(bench.received(10), [0, 1]);
    assert_eq!(bench.ask(Request::Receive(receive(1, MINUTE))), Some(Reply::OverLimit));
    let mut bench = Bench::new(DeliveryConfig { in_flight_max: 2, ..fifo() });
    bench.send_with(["a", "b", "c"].map(in_group).to_vec());
    let held = bench.receive(10, MINUTE);
    assert_eq!(held.len(), 2);
    assert_eq!(bench.received(1), [0_i64; 0]);
    let wait_until = Some(bench.now.time + 20 * SECOND);
    let waits = bench.ask(Request::Receive(Receive { wait_until, ..receive(1, MINUTE) }));
    assert_eq!((waits, bench.stats().receivers), (None, 1));
    bench.delete(&held[..1]);
    assert_eq!((bench.stats().receivers, bench.stats().in_flight), (0, 2));
}

#[test]
fn there_is_a_limit_to_subscriptions() {
    let mut bench = Bench::new(standard());
    let subscribe = |name: String| Request::Subscribe {
        name: Arc::from(name),
        from_start: false,
        partitions: 1,
    };
    for n in 0..crate::SUBSCRIPTIONS_MAX {
        let number = u32::try_from(n + 1).unwrap();
        assert_eq!(bench.ask(subscribe(format!("s{n}"))), Some(Reply::Subscribed(number)));
    }
    assert_eq!(bench.ask(subscribe("more".into())), Some(Reply::OverLimit));
    assert_eq!(bench.ask(subscribe("s7".into())), Some(Reply::Subscribed(8)));
    bench.ask(Request::Unsubscribe { name: Arc::from("s7"), partitions: 1 });
    assert!(matches!(bench.ask(subscribe("more".into())), Some(Reply::Subscribed(_))));
}

#[test]
fn subscriptions_do_not_see_each_other() {
    let mut bench = Bench::new(standard());
    bench.send(2);
    let subscribe = |name: &str, from_start| Request::Subscribe {
        name: name.into(),
        from_start,
        partitions: 1,
    };
    assert_eq!(bench.ask(subscribe("audit", true)), Some(Reply::Subscribed(1)));
    assert_eq!(bench.ask(subscribe("late", false)), Some(Reply::Subscribed(2)));
    assert_eq!(bench.ask(subscribe("audit", false)), Some(Reply::Subscribed(1)));
    let own = bench.receive(10, MINUTE);
    bench.delete(&own);
    assert_eq!(bench.leader.settled_start(), Offset(0));
    bench.send(1);
    let of = |bench: &mut Bench, subscription| {
        let asked = Receive { subscription, ..receive(10, MINUTE) };
        match bench.ask(Request::Receive(asked)) {
            Some(Reply::Received { messages, .. }) => messages.len(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((of(&mut bench, 1), of(&mut bench, 2)), (3, 1));
    let gone = Request::Unsubscribe { name: Arc::from("audit"), partitions: 1 };
    assert_eq!(bench.ask(gone), Some(Reply::Done));
    let asked = Request::Receive(Receive { subscription: 1, ..receive(1, MINUTE) });
    assert_eq!(bench.ask(asked), Some(Reply::UnknownSubscription));
    assert_eq!(bench.leader.settled_start(), Offset(2));
}

#[test]
fn a_partition_that_was_added_settles_nothing_before_it_has_all_subscriptions() {
    let subscribe =
        |partitions| Request::Subscribe { name: "late".into(), from_start: true, partitions };
    let high = Facts { priority: Some(9), ..Facts::default() };
    let mut bench = Bench::of_no_subscriptions(standard());
    bench.send_with(vec![Facts::default(), high]);
    let own = bench.receive(2, MINUTE);
    bench.delete(&own);
    assert_eq!(bench.leader.settled_for_good(), Offset(0));
    bench.ask(Request::Forget { to: Offset(2) });
    assert_eq!(
        bench.leader.void().count_within(Offset(0)..Offset(2)),
        0,
        "a subscription may want them"
    );
    assert_eq!(bench.ask(subscribe(3)), Some(Reply::NotTakenOver));
    let unsubscribe = Request::Unsubscribe { name: "audit".into(), partitions: 3 };
    assert_eq!(bench.ask(unsubscribe), Some(Reply::NotTakenOver));

    let names = vec![Arc::from("audit"), Arc::from("mailer")];
    let take_over = Request::TakeOver { names: names.clone(), partitions: 3 };
    assert_eq!(bench.ask(take_over), Some(Reply::TakenOver(names)));
    bench.fail_over();
    assert_eq!(bench.leader.settled_for_good(), Offset(0));
    for subscription in [1, 2] {
        let asked = Receive { subscription, ..receive(2, MINUTE) };
        let Some(Reply::Received { messages, .. }) = bench.ask(Request::Receive(asked)) else {
            panic!("nothing is received")
        };
        let receipts: Vec<Receipt> = messages.iter().map(|message| message.receipt).collect();
        assert_eq!(receipts[0].offset, Offset(1), "its priority is still known");
        bench.outcomes(Request::Delete { subscription, receipts });
    }
    assert_eq!(bench.leader.settled_for_good(), Offset(2));
    bench.snapshot();
    bench.restart(Duration::ZERO);
    assert_eq!(bench.leader.settled_for_good(), Offset(2));
    assert_eq!(bench.ask(subscribe(3)), Some(Reply::Subscribed(3)));
}

#[test]
fn who_has_taken_over_takes_no_change_that_is_not_told_to_all_partitions() {
    let mut bench = Bench::new(standard());
    let subscribe =
        |partitions| Request::Subscribe { name: "audit".into(), from_start: true, partitions };
    assert_eq!(bench.ask(subscribe(1)), Some(Reply::Subscribed(1)));
    let audit = vec![Arc::from("audit")];
    let take_over = |names, partitions| Request::TakeOver { names, partitions };
    assert_eq!(bench.ask(take_over(Vec::new(), 2)), Some(Reply::TakenOver(audit.clone())));
    bench.restart(Duration::ZERO);
    assert_eq!(bench.ask(subscribe(1)), Some(Reply::MorePartitions));
    let unsubscribe = |partitions| Request::Unsubscribe { name: "audit".into(), partitions };
    assert_eq!(bench.ask(unsubscribe(1)), Some(Reply::MorePartitions));
    assert_eq!(bench.ask(unsubscribe(2)), Some(Reply::Done));
    // What has ended does not come back because a takeover is asked for again.
    assert_eq!(bench.ask(take_over(audit, 2)), Some(Reply::TakenOver(Vec::new())));
}

#[test]
fn a_subscription_that_begins_late_gets_what_is_a_message_where_it_belongs() {
    let control = Facts { is_control: true, ..Facts::default() };
    let late = Facts { delay: Some(Delay::For(MINUTE)), ..Facts::default() };
    let high = Facts { priority: Some(9), ..Facts::default() };
    let subscribe =
        Request::Subscribe { name: Arc::from("audit"), from_start: true, partitions: 1 };
    let received = |bench: &mut Bench| {
        let asked = Receive { subscription: 1, ..receive(10, SECOND) };
        match bench.ask(Request::Receive(asked)) {
            Some(Reply::Received { messages, .. }) => {
                messages.iter().map(|message| message.receipt.offset.0).collect::<Vec<_>>()
            }
            other => panic!("{other:?}"),
        }
    };
    let mut bench = Bench::new(standard());
    bench.send_with(vec![with_id("x"), with_id("x"), control, late, high, Facts::default()]);
    bench.ask(Request::Skip { to: Offset(9) });
    bench.records_end = Offset(9);
    bench.snapshot();
    bench.restart(Duration::ZERO);
    assert_eq!(bench.ask(subscribe.clone()), Some(Reply::Subscribed(1)));
    assert_eq!(received(&mut bench), [4, 0, 5]);
    bench.wait(MINUTE);
    assert_eq!(received(&mut bench), [4, 0, 3, 5]);

    let mut bench = Bench::new(fifo());
    bench.send_with(vec![in_group("a"), in_group("b"), in_group("a")]);
    bench.ask(subscribe.clone());
    assert_eq!(received(&mut bench), [0, 2, 1]);

    // What all others are done with is nobody's any more where order matters: its groups are not known.
    let mut bench = Bench::new(fifo());
    bench.send_with(vec![in_group("a"), in_group("a"), in_group("a"), in_group("b")]);
    let receipts = bench.receive(2, MINUTE);
    bench.ask(Request::Delete { subscription: 0, receipts });
    bench.ask(subscribe);
    assert_eq!(received(&mut bench), [2, 3]);
}

#[test]
fn what_was_lost_with_its_records_was_never_there() {
    let mut bench = Bench::new(fifo());
    bench.send_with(vec![in_group("a"); 3]);
    bench.receive(1, MINUTE);
    bench.send_with(vec![with_id("x"), in_group("b")]);
    bench.records_end = Offset(2);
    bench.fail_over();
    assert_eq!(bench.leader.admitted_to(), Offset(2));
    bench.send_with(vec![with_id("x")]);
    assert_eq!(bench.received(10), [2], "its group is another one than that of those before");
    bench.wait(MINUTE);
    assert_eq!(bench.received(10), [0, 1, 2]);
}

#[test]
fn what_cannot_be_decoded_is_a_dead_letter_and_control_records_are_no_messages() {
    let facts = || {
        let lost = Facts { is_undecodable: true, ..Facts::default() };
        vec![lost, Facts { is_control: true, ..Facts::default() }, Facts::default()]
    };
    let mut bench = Bench::new(with_dead_letters(3));
    bench.send_with(facts());
    assert_eq!(bench.received(10), [2]);
    let moves: Vec<_> = bench.leader.moves(0).map(|(at, way)| (at, way.reason)).collect();
    assert_eq!(moves, [(Offset(0), crate::DeadReason::Undecodable)]);
    let mut bench = Bench::new(standard());
    bench.send_with(facts());
    assert_eq!(bench.received(10), [2]);
}

#[test]
fn where_there_are_no_records_there_are_no_messages() {
    let mut bench = Bench::new(standard());
    // A topic of many records, of which almost all are gone, becomes a queue.
    let to = Offset(5_000_000_000);
    let admitted_to = Some(Reply::Admitted { admitted_to: to });
    assert_eq!(bench.ask(Request::Skip { to }), admitted_to);
    bench.records_end = to;
    bench.send(2);
    let held = bench.receive(1, MINUTE);
    bench.ask(Request::Skip { to: to + 10 });
    assert_eq!(bench.ask(Request::Skip { to }), Some(Reply::Admitted { admitted_to: to + 10 }));
    bench.records_end = to + 10;
    bench.send(1);
    bench.delete(&held);
    bench.restart(SECOND);
    assert_eq!(bench.received(9), [to.0 + 1, to.0 + 10]);
    assert!(bench.leader.to_bytes().len() < 200);
}

#[test]
fn a_look_takes_nothing() {
    let mut bench = Bench::new(standard());
    let late = Facts { delay: Some(Delay::For(MINUTE)), ..Facts::default() };
    bench.send_with(vec![Facts::default(), late, Facts::default()]);
    bench.receive(1, MINUTE);
    bench.wait(3 * SECOND);
    let look = |bench: &Bench, filter| {
        let (found, _) = bench.leader.peek(bench.now, 0, Offset(0), filter, 9, 99);
        found.into_iter().map(|each| (each.offset.0, each.state)).collect::<Vec<_>>()
    };
    let held = look(&bench, PeekFilter::Held);
    let PeekState::Held { holder, held_for, left } = &held[0].1 else { panic!("{held:?}") };
    assert_eq!((&**holder, *held_for, *left), ("worker", 3 * SECOND, 57 * SECOND));
    assert_eq!(look(&bench, PeekFilter::Delayed), [(1, PeekState::Delayed { left: 57 * SECOND })]);
    assert_eq!(look(&bench, PeekFilter::Ready), [(2, PeekState::Ready)]);
    let stats = bench.stats();
    assert_eq!((stats.ready, stats.in_flight, stats.delayed), (1, 1, 1));
    assert_eq!(stats.oldest, Some(3 * SECOND));
}

#[test]
fn a_million_messages_delayed_by_a_day_take_a_few_bytes_each() {
    let mut engine = Deliveries::new(Arc::new(standard()));
    let at = crate::QueueTime(1);
    for base in (0..1_000_000_i64).step_by(1_000) {
        let special = |index: u32| crate::Special {
            index,
            not_before: Some(at + 24 * 60 * MINUTE + index * Duration::from_millis(7)),
            ..crate::Special::default()
        };
        let specials = (0..1_000).map(special).collect();
        engine.apply(&Record::Admitted { at, base: Offset(base), count: 1_000, specials });
    }
    let stats = engine.stats(Now::default(), 0).unwrap();
    assert_eq!((stats.delayed, stats.ready), (1_000_000, 0));
    assert!(engine.delay_bytes() < 4 << 20, "{} bytes", engine.delay_bytes());
}

#[test]
fn a_million_settled_behind_one_that_is_stuck_cost_nothing() {
    let config = Arc::new(standard());
    let mut engine = Deliveries::new(config);
    let at = crate::QueueTime(1);
    let admit =
        |base: i64, count| Record::Admitted { at, base: Offset(base), count, specials: vec![] };
    engine.apply(&admit(0, 1_000_000));
    engine.apply(&Record::Purged { at, subscription: 0, end: Offset(5) });
    for base in (6..1_000_000_i64).step_by(100_000) {
        let offsets = (base..(base + 100_000).min(1_000_000)).map(Offset).collect();
        let how = crate::Settlement::Deleted;
        engine.apply(&Record::Settled { at, subscription: 0, how, offsets });
    }
    assert_eq!(engine.settled_start(), Offset(5));
    assert!(engine.to_bytes().len() < 200, "{} bytes", engine.to_bytes().len());
}

fn redrive(offsets: &[i64], held_too: bool) -> Request {
    Request::Dispose {
        subscription: 0,
        offsets: offsets.iter().copied().map(Offset).collect(),
        to: Some((Arc::from("orders"), crate::DeadReason::Redriven)),
        note: Some(Arc::from("task 7")),
        held_too,
    }
}

#[test]
fn what_somebody_holds_is_not_taken_away_unless_that_is_wanted() {
    let mut bench = Bench::new(standard());
    bench.send(4);
    assert_eq!(bench.receive(1, MINUTE).len(), 1);
    // Twice, and one that is not there.
    let reply = bench.ask(redrive(&[0, 1, 1, 9], false));
    assert_eq!(reply, Some(Reply::Disposed { gone: 1, held: 1 }));
    let (at, way) = bench.leader.moves(0).next().unwrap();
    assert_eq!((at, &*way.to, way.note.as_deref()), (Offset(1), "orders", Some("task 7")));
    assert_eq!(bench.ask(redrive(&[0, 1], true)), Some(Reply::Disposed { gone: 1, held: 0 }));
    let drop = Request::Dispose {
        subscription: 0,
        offsets: vec![Offset(2)],
        to: None,
        note: None,
        held_too: false,
    };
    assert_eq!(bench.ask(drop), Some(Reply::Disposed { gone: 1, held: 0 }));
    assert_eq!(bench.received(10), [3]);
}

#[test]
fn what_goes_to_one_queue_does_not_hide_what_goes_to_another() {
    let mut bench = Bench::new(standard());
    bench.send(6);
    bench.ask(redrive(&[0, 1, 2], false));
    let to = Some((Arc::from("other"), crate::DeadReason::Redriven));
    let offsets = vec![Offset(3), Offset(4)];
    bench.ask(Request::Dispose { subscription: 0, offsets, to, note: None, held_too: false });
    let reply = bench.ask(Request::Moves { subscription: 0, to: Arc::from("other"), max: 1 });
    let Some(Reply::Moves(departures)) = &reply else { panic!("{reply:?}") };
    let offsets: Vec<Offset> = departures.iter().map(|departure| departure.offset).collect();
    assert_eq!(offsets, [Offset(3)]);
    let ways = [(0, Arc::from("orders")), (0, Arc::from("other"))];
    assert!(bench.leader.ways().into_iter().eq(ways));
}

#[test]
fn a_delayed_message_that_is_settled_or_goes_elsewhere_counts_once() {
    let mut bench = Bench::new(fifo());
    let late = |group| Facts { delay: Some(Delay::For(MINUTE)), ..in_group(group) };
    let subscribe =
        Request::Subscribe { name: Arc::from("audit"), from_start: true, partitions: 1 };
    bench.send_with(vec![late("a"), in_group("b"), late("b")]);
    bench.ask(subscribe);
    bench.send_with(vec![late("c"), in_group("d")]);
    let places = |bench: &Bench, subscription| {
        let stats = bench.leader.stats(bench.now, subscription).unwrap();
        (stats.ready, stats.in_flight, stats.delayed, stats.moving)
    };
    assert_eq!((places(&bench, 0), places(&bench, 1)), ((2, 0, 3, 0), (2, 0, 3, 0)));
    bench.ask(Request::Purge { subscription: 1 });
    bench.ask(redrive(&[0, 2], true));
    assert_eq!((places(&bench, 0), places(&bench, 1)), ((2, 0, 1, 2), (0, 0, 0, 0)));
    // One of them cannot go there, and is delayed anew.
    let (offsets, note) = (vec![Offset(0)], Arc::from("too large"));
    bench.ask(Request::MoveFailed { subscription: 0, offsets, note, is_for_good: false });
    assert_eq!(places(&bench, 0), (2, 0, 2, 1));
    bench.snapshot();
    bench.restart(SECOND);
    assert_eq!((places(&bench, 0), places(&bench, 1)), ((2, 0, 2, 1), (0, 0, 0, 0)));
    bench.records_end = Offset(3);
    bench.fail_over();
    assert_eq!((places(&bench, 0), places(&bench, 1)), ((1, 0, 1, 1), (0, 0, 0, 0)));
    bench.wait(MINUTE);
    assert_eq!(places(&bench, 0), (2, 0, 0, 1));
}

#[test]
fn behind_a_delayed_message_of_its_group_nothing_is_there_to_be_taken() {
    let mut bench = Bench::new(fifo());
    let late = Facts { delay: Some(Delay::For(MINUTE)), ..in_group("a") };
    bench.send_with(vec![late, in_group("a"), in_group("b")]);
    let (seen, _) = bench.leader.peek(bench.now, 0, Offset(0), PeekFilter::Any, 9, 9);
    let states: Vec<PeekState> = seen.into_iter().map(|each| each.state).collect();
    let delayed = PeekState::Delayed { left: MINUTE };
    assert_eq!(states, [delayed, PeekState::Blocked, PeekState::Ready]);
    let reply = bench.ask(redrive(&[0, 1, 2], false));
    assert_eq!(reply, Some(Reply::Disposed { gone: 1, held: 2 }), "order is kept by an order too");
    let because = |reason| bench.leader.moving_because(0, &[reason]);
    let reasons = [crate::DeadReason::Redriven, crate::DeadReason::QueueDeleted];
    assert_eq!(reasons.map(because), [1, 0]);
}
