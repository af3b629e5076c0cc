use tokio::sync::oneshot;
use towpath_model::{ProducerEpoch, ProducerId, Timestamp};

use super::*;
use crate::record::OutgoingRecord;

const FIRST: Identity = Identity { id: ProducerId(7), epoch: ProducerEpoch(0) };
const SECOND: Identity = Identity { id: ProducerId(7), epoch: ProducerEpoch(1) };

fn held(bytes: usize) -> Held {
    let record = OutgoingRecord::new("t", vec![b'x'; bytes]);
    Held { record, timestamp: Timestamp(0), bytes, reply: oneshot::channel().0 }
}

/// A queue of `batches` batches with two records each.
fn queue(batches: usize) -> PartitionQueue {
    let mut queue = PartitionQueue::default();
    for _ in 0..batches * 2 {
        queue.append(held(10), Instant::now(), 20);
    }
    queue
}

fn readiness() -> Readiness {
    Readiness { linger: Duration::ZERO, batch_bytes: 20, is_urgent: false, is_idempotent: true }
}

fn sequence(batch: &Batch) -> i32 {
    batch.stamp.expect("it was stamped").sequence.0
}

#[test]
fn records_fill_batches_up_to_the_limit() {
    let mut queue = PartitionQueue::default();
    let now = Instant::now();
    assert!(queue.append(held(10), now, 20), "a new batch has to be looked at");
    assert!(queue.append(held(10), now, 20), "a full batch has to be looked at");
    assert!(queue.append(held(50), now, 20), "a record above the limit travels alone");
    assert_eq!(queue.waiting.len(), 2);
}

#[test]
fn a_batch_lingers_until_it_is_full_or_urgent() {
    let mut queue = PartitionQueue::default();
    let now = Instant::now();
    let lingering = Readiness { linger: Duration::from_secs(5), ..readiness() };
    queue.append(held(10), now, 20);
    assert_eq!(queue.ready_at(lingering), Some(now + Duration::from_secs(5)));
    assert_eq!(queue.ready_at(Readiness { is_urgent: true, ..lingering }), Some(now));
    queue.append(held(10), now, 20);
    assert_eq!(queue.ready_at(lingering), Some(now));
}

#[test]
fn five_batches_fly_and_the_sixth_waits() {
    let mut queue = queue(7);
    let mut first = queue.take(Some(FIRST)).unwrap();
    assert_eq!(queue.ready_at(readiness()), None, "the broker does not know the producer yet");
    queue.landed(&mut first);
    queue.confirm(&first);
    for expected in [2, 4, 6, 8, 10] {
        assert!(queue.ready_at(readiness()).is_some());
        assert_eq!(sequence(&queue.take(Some(FIRST)).unwrap()), expected);
    }
    assert_eq!(queue.ready_at(readiness()), None);
}

#[test]
fn without_idempotence_one_batch_flies_at_a_time() {
    let mut queue = queue(2);
    let plain = Readiness { is_idempotent: false, ..readiness() };
    let mut batch = queue.take(None).unwrap();
    assert_eq!(batch.stamp, None);
    assert_eq!(queue.ready_at(plain), None);
    queue.landed(&mut batch);
    assert!(queue.ready_at(plain).is_some());
}

#[test]
fn a_failed_batch_flies_again_first_and_with_its_old_stamp() {
    let mut queue = queue(3);
    let mut a = queue.take(Some(FIRST)).unwrap();
    let mut b = queue.take(Some(FIRST)).unwrap();
    queue.landed(&mut a);
    queue.put_back(a, None);
    let a = queue.take(Some(FIRST)).unwrap();
    assert_eq!(sequence(&a), 0);

    queue.landed(&mut b);
    assert!(!queue.is_oldest(&b));
    queue.put_back(b, None);
    assert_eq!(queue.ready_at(readiness()), None, "b waits for a");
}

#[test]
fn later_batches_move_up_when_one_is_certainly_not_in_the_log() {
    let mut queue = queue(4);
    let mut a = queue.take(Some(FIRST)).unwrap();
    let mut b = queue.take(Some(FIRST)).unwrap();
    let mut c = queue.take(Some(FIRST)).unwrap();
    queue.landed(&mut a);
    queue.close_gap(&a);
    queue.landed(&mut c);
    queue.landed(&mut b);
    assert_eq!((sequence(&b), sequence(&c)), (0, 2));
    queue.put_back(c, None);
    queue.put_back(b, None);
    assert_eq!(sequence(&queue.take(Some(FIRST)).unwrap()), 0);
    assert_eq!(sequence(&queue.take(Some(FIRST)).unwrap()), 2);
    assert_eq!(sequence(&queue.take(Some(FIRST)).unwrap()), 4);
}

#[test]
fn an_uncertain_batch_that_expires_leaves_later_sequences_alone() {
    let mut queue = queue(2);
    let mut a = queue.take(Some(FIRST)).unwrap();
    let mut b = queue.take(Some(FIRST)).unwrap();
    queue.landed(&mut a);
    queue.landed(&mut b);
    a.is_uncertain = true;
    b.created += Duration::from_secs(60);
    queue.put_back(a, None);
    queue.put_back(b, None);
    let expired = queue.expire(Instant::now() + Duration::from_secs(2), Duration::from_secs(1));
    assert_eq!(expired.len(), 1);
    let b = queue.take(Some(FIRST)).unwrap();
    assert_eq!(sequence(&b), 2);
}

#[test]
fn a_new_epoch_waits_until_nothing_flies_and_starts_at_zero() {
    let mut queue = queue(3);
    let mut a = queue.take(Some(FIRST)).unwrap();
    let mut b = queue.take(Some(FIRST)).unwrap();
    queue.landed(&mut a);
    assert!(queue.is_oldest(&a));
    queue.want_new_epoch();
    queue.put_back(a, None);
    assert!(!queue.awaits_new_epoch());
    assert_eq!(queue.ready_at(readiness()), None);

    queue.landed(&mut b);
    queue.put_back(b, None);
    assert!(queue.awaits_new_epoch());
    queue.start_over(SECOND);
    for expected in [0, 2, 4] {
        let stamp = queue.take(Some(SECOND)).unwrap().stamp.unwrap();
        assert_eq!((stamp.identity, stamp.sequence.0), (SECOND, expected));
    }
}

#[test]
fn a_partition_changes_identity_only_when_nothing_flies() {
    let mut queue = queue(2);
    let mut a = queue.take(Some(FIRST)).unwrap();
    assert!(queue.take(Some(SECOND)).is_none());
    queue.landed(&mut a);
    let b = queue.take(Some(SECOND)).unwrap();
    assert_eq!(b.stamp.unwrap(), Stamp { identity: SECOND, sequence: Sequence(0) });
}

#[test]
fn halves_of_a_batch_keep_order_and_sequence() {
    let mut queue = queue(1);
    let mut batch = queue.take(Some(FIRST)).unwrap();
    queue.landed(&mut batch);
    let (first, second) = batch.split().unwrap();
    assert_eq!((sequence(&first), sequence(&second)), (0, 1));
    assert_eq!((first.first, second.first), (0, 1));
    assert!(first.split().is_none());
}
