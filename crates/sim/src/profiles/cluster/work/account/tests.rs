//! Histories that no queue may have, and the promise that each breaks.

use super::*;
use towpath_model::{PartitionIndex, Uuid};

const SECOND: Duration = Duration::from_secs(1);

fn partition() -> TopicPartition {
    TopicPartition { topic: Uuid::from_random_bytes([1; 16]), partition: PartitionIndex(0) }
}

fn place() -> Place {
    (partition(), 0)
}

fn at(seconds: u64) -> Time {
    Time(0) + Duration::from_secs(seconds)
}

/// A queue with two acknowledged messages of one group, at 0 and 1.
fn account(is_fifo: bool) -> Account {
    let mut account = Account::default();
    let dedup_window = 300 * SECOND;
    account
        .serves(partition(), Rules { is_fifo, dedup_window, subscriptions: 1, ..Rules::default() });
    for number in [0, 1] {
        send(&mut account, number, number, None);
    }
    account
}

fn send(account: &mut Account, number: u64, offset: u64, delay: Option<Duration>) {
    let message = Message { group: Some(0), delay, ttl: None, has_id: true, sent_at: at(0) };
    account.sends(number, message);
    let offset = Offset(offset as i64);
    let claim = account.appended(partition(), offset, &written(number), at(0));
    account.acknowledged(partition(), offset, claim, at(0)).unwrap();
}

fn written(number: u64) -> Written {
    Written { number, group: Some(0), from: None, dead_receives: None }
}

/// Somebody receives for ten seconds; the answer leaves at once.
fn receive(account: &mut Account, now: Time, given: &[(u64, u64, u32)]) -> Result<(), Violation> {
    let mut asked = account.receive_asked(place(), now, 10 * SECOND, None);
    account.receive_left(&mut asked, now, false);
    let handed = given.iter().map(|(offset, lease, receives)| Handed {
        receipt: Receipt { offset: Offset(*offset as i64), lease: *lease },
        receives: *receives,
        written: written(*offset),
    });
    account.received(asked, handed.collect()).map(drop)
}

fn broken(result: Result<(), Violation>) -> &'static str {
    result.unwrap_err().invariant
}

#[test]
fn a_second_holder_is_found_and_one_that_comes_after_the_first_is_right() {
    let mut account = account(false);
    receive(&mut account, at(1), &[(0, 1, 1)]).unwrap();
    receive(&mut account, at(11), &[(0, 2, 2)]).unwrap();
    assert_eq!(broken(receive(&mut account, at(20), &[(0, 3, 3)])), "INV-Q2");
}

#[test]
fn a_lease_that_may_have_been_given_back_is_over() {
    let mut account = account(false);
    receive(&mut account, at(1), &[(0, 1, 1)]).unwrap();
    let receipt = [Receipt { offset: Offset(0), lease: 1 }];
    account.settle_asked(place(), Act::Release(None), &receipt, at(2));
    receive(&mut account, at(3), &[(0, 2, 2)]).unwrap();
    // The receipt of the first delivery is worth nothing now.
    account.settle_asked(place(), Act::Release(None), &receipt, at(4));
    assert_eq!(broken(receive(&mut account, at(5), &[(0, 3, 3)])), "INV-Q2");
}

#[test]
fn what_was_deleted_does_not_come_back_and_no_old_receipt_deletes() {
    let mut account = account(false);
    receive(&mut account, at(1), &[(0, 1, 1), (1, 2, 1)]).unwrap();
    let answered = |account: &mut Account, offset, lease, now| {
        let receipt = [Receipt { offset: Offset(offset), lease }];
        let call = account.settle_asked(place(), Act::Delete, &receipt, now);
        let done = [towpath_queue::ReceiptOutcome::Done];
        account.settle_answered(place(), Act::Delete, &receipt, &done, call, now, true)
    };
    answered(&mut account, 0, 1, at(2)).unwrap();
    receive(&mut account, at(12), &[(1, 3, 2)]).unwrap();
    assert_eq!(broken(answered(&mut account, 1, 2, at(13))), "INV-Q4");
    assert_eq!(broken(receive(&mut account, at(30), &[(0, 4, 2)])), "INV-Q4");
}

#[test]
fn who_was_replaced_tells_late_what_was_given_back_before_somebody_else_got_it() {
    for (act, is_newest, is_right) in [
        (Act::Release(None), true, false),
        (Act::Release(None), false, true),
        (Act::Delete, false, false),
    ] {
        let mut account = account(false);
        receive(&mut account, at(1), &[(0, 1, 1)]).unwrap();
        let receipt = [Receipt { offset: Offset(0), lease: 1 }];
        let call = account.settle_asked(place(), act, &receipt, at(2));
        receive(&mut account, at(12), &[(0, 2, 2)]).unwrap();
        let done = [towpath_queue::ReceiptOutcome::Done];
        let told = account.settle_answered(place(), act, &receipt, &done, call, at(13), is_newest);
        assert_eq!(told.is_ok(), is_right, "{act:?} {is_newest}");
    }
}

#[test]
fn a_group_keeps_its_order_and_has_one_holder() {
    let mut fifo = account(true);
    assert_eq!(broken(receive(&mut fifo, at(1), &[(1, 1, 1)])), "INV-Q5");
    let mut fifo = account(true);
    receive(&mut fifo, at(1), &[(0, 1, 1)]).unwrap();
    assert_eq!(broken(receive(&mut fifo, at(2), &[(1, 2, 1)])), "INV-Q5");
    receive(&mut account(true), at(1), &[(0, 1, 1), (1, 2, 1)]).unwrap();
    receive(&mut account(false), at(1), &[(1, 1, 1)]).unwrap();
}

#[test]
fn a_count_grows_by_one_and_by_more_where_answers_are_missing() {
    let mut lost = account(false);
    receive(&mut lost, at(1), &[(0, 1, 1)]).unwrap();
    assert_eq!(broken(receive(&mut lost, at(12), &[(0, 2, 1)])), "INV-Q6");
    let mut skipped = account(false);
    assert_eq!(broken(receive(&mut skipped, at(1), &[(0, 1, 2)])), "INV-Q6");
    let mut unheard = account(false);
    let asked = unheard.receive_asked(place(), at(1), SECOND, None);
    unheard.receive_unknown(&asked).unwrap();
    receive(&mut unheard, at(3), &[(0, 2, 2)]).unwrap();
}

#[test]
fn a_repeat_is_delivered_once_and_a_delay_is_kept() {
    let mut repeated = account(false);
    let claim = repeated.appended(partition(), Offset(2), &written(0), at(1));
    repeated.acknowledged(partition(), Offset(2), claim, at(1)).unwrap();
    receive(&mut repeated, at(2), &[(0, 1, 1)]).unwrap();
    let mut asked = repeated.receive_asked(place(), at(3), SECOND, None);
    repeated.receive_left(&mut asked, at(3), false);
    let receipt = Receipt { offset: Offset(2), lease: 2 };
    let twice = vec![Handed { receipt, receives: 1, written: written(0) }];
    assert_eq!(broken(repeated.received(asked, twice).map(drop)), "INV-Q7");

    let mut delayed = account(false);
    send(&mut delayed, 2, 2, Some(5 * SECOND));
    assert_eq!(broken(receive(&mut delayed, at(4), &[(2, 1, 1)])), "INV-Q8");
}

#[test]
fn answers_are_looked_at_in_the_order_in_which_they_left() {
    let mut account = account(false);
    let mut first = account.receive_asked(place(), at(1), SECOND, None);
    let mut second = account.receive_asked(place(), at(3), SECOND, None);
    account.receive_left(&mut first, at(3), false);
    account.receive_left(&mut second, at(3), false);
    let handed = |lease, receives| {
        let receipt = Receipt { offset: Offset(0), lease };
        vec![Handed { receipt, receives, written: written(0) }]
    };
    assert_eq!(account.received(second, handed(2, 2)).unwrap().len(), 0);
    assert_eq!(account.received(first, handed(1, 1)).unwrap().len(), 2);
}

#[test]
fn a_promise_is_open_until_its_message_has_come_to_its_end() {
    let mut account = account(false);
    assert!(account.open(at(9)).is_some_and(|open| open.contains("message at 0")));
    account.purge_asked(place(), at(9));
    assert_eq!(account.open(at(9)), None);
}

#[test]
fn a_subscription_from_the_start_is_owed_what_was_there_and_one_from_now_on_is_not() {
    for (from_start, removes_settled, is_owed) in
        [(true, false, true), (true, true, false), (false, false, false)]
    {
        let mut account = account(false);
        account.rules.get_mut(&partition()).unwrap().removes_settled = removes_settled;
        account.purge_asked(place(), at(1));
        assert_eq!(account.open(at(1)), None);
        let named = (partition(), 1);
        account.subscribed(named, Some(from_start), at(2), at(2)).unwrap();
        assert_eq!(account.open(at(3)).is_some(), is_owed, "{from_start} {removes_settled}");
        send(&mut account, 7, 7, None);
        assert!(account.open(at(3)).is_some());
        account.end_asked(named, at(4));
        account.purge_asked(place(), at(4));
        assert_eq!(account.open(at(4)), None);
    }
}

#[test]
fn a_subscription_gives_nothing_after_its_end_and_no_other_gets_its_number() {
    let mut account = account(false);
    assert_eq!(broken(account.not_found(place())), "INV-Q1");
    account.end_asked(place(), at(1));
    account.not_found(place()).unwrap();
    receive(&mut account, at(2), &[(0, 1, 1)]).unwrap();
    account.ended(place(), at(3));
    assert_eq!(broken(receive(&mut account, at(3), &[(1, 2, 1)])), "INV-Q4");
    assert_eq!(broken(account.subscribed(place(), Some(true), at(4), at(4))), "INV-Q4");
}
