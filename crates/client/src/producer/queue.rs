//! The batches of one partition: what waits, what is on its way, and under which sequence.
//!
//! ```text
//!   waiting:  [stamped again, after a failure] [stamped …] [new, unstamped …]   oldest first
//!   flying:   up to 5, stamped, oldest first
//! ```
//!
//! Order and exactly-once rest on three rules. A new batch is stamped only when everything before it
//! is on its way or done. A batch that failed flies again only when nothing older flies, with its old
//! stamp, so that the broker recognises what it already has. Stamps change only when the broker has
//! shown that it has *not* appended: its refusal of the oldest outstanding batch as out of order
//! means that neither that batch nor any after it is in the log.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;
use towpath_model::Sequence;

use super::batch::{Batch, Held, Identity, Stamp};
use crate::error::Error;

/// Batches of one idempotent producer and partition that a broker remembers, so that it recognises
/// repeats (Kafka's `ProducerStateEntry.NUM_BATCHES_TO_RETAIN`).
pub(super) const FLYING_MAX: usize = 5;

#[derive(Default)]
pub(super) struct PartitionQueue {
    waiting: VecDeque<Batch>,
    flying: Vec<Flight>,
    buffered: u64,
    identity: Option<Identity>,
    next_sequence: Sequence,
    wants_new_epoch: bool,
    /// Whether the broker has acknowledged a batch under this identity. Until then it takes any
    /// sequence as the first, so a second batch on the way could overtake the first.
    is_confirmed: bool,
    not_before: Option<Instant>,
    /// Why the last attempt failed, for the words at the end.
    pub(super) last_error: Option<Error>,
}

/// The part of a batch on its way that may change meanwhile.
struct Flight {
    first: u64,
    record_count: i32,
    stamp: Option<Stamp>,
}

/// What decides whether a batch leaves.
#[derive(Debug, Clone, Copy)]
pub(super) struct Readiness {
    pub(super) linger: Duration,
    pub(super) batch_bytes: usize,
    /// Somebody flushes, closes, or waits for room: do not linger.
    pub(super) is_urgent: bool,
    pub(super) is_idempotent: bool,
}

impl PartitionQueue {
    /// Buffers a record. Returns whether that filled or started a batch, so that the sender wants
    /// to look.
    pub(super) fn append(&mut self, held: Held, now: Instant, batch_bytes: usize) -> bool {
        self.buffered += 1;
        if let Some(open) = self.waiting.back_mut()
            && open.attempts == 0
            && open.stamp.is_none()
            && open.bytes + held.bytes <= batch_bytes
        {
            open.bytes += held.bytes;
            open.records.push(held);
            return batch_bytes <= open.bytes;
        }
        self.waiting.push_back(Batch {
            first: self.buffered - 1,
            bytes: held.bytes,
            records: vec![held],
            created: now,
            attempts: 0,
            stamp: None,
            is_uncertain: false,
        });
        true
    }

    /// When the oldest batch may leave, as far as time decides; `None` while something else must
    /// happen first.
    pub(super) fn ready_at(&self, readiness: Readiness) -> Option<Instant> {
        let oldest = self.waiting.front()?;
        if !self.may_fly(oldest, readiness.is_idempotent) {
            return None;
        }
        let is_full = readiness.batch_bytes <= oldest.bytes || 1 < self.waiting.len();
        let lingers = !(is_full || readiness.is_urgent || 0 < oldest.attempts);
        let ripe = if lingers { oldest.created + readiness.linger } else { oldest.created };
        Some(self.not_before.map_or(ripe, |not_before| ripe.max(not_before)))
    }

    fn may_fly(&self, oldest: &Batch, is_idempotent: bool) -> bool {
        if !is_idempotent {
            // Without sequences the broker cannot keep the order of several batches on the way.
            return self.flying.is_empty();
        }
        match oldest.stamp {
            _ if self.wants_new_epoch => false,
            Some(_) => self.flying.iter().all(|flight| oldest.first < flight.first),
            None if !self.is_confirmed => self.flying.is_empty(),
            None => self.flying.len() < FLYING_MAX,
        }
    }

    /// Takes the oldest batch out to send it, stamped if the producer has an identity. `None` while
    /// the partition must first finish what it has under an older identity.
    pub(super) fn take(&mut self, identity: Option<Identity>) -> Option<Batch> {
        let oldest = self.waiting.front_mut()?;
        if let Some(identity) = identity.filter(|_| oldest.stamp.is_none()) {
            if self.identity != Some(identity) {
                if !self.flying.is_empty() {
                    return None;
                }
                self.identity = Some(identity);
                self.is_confirmed = false;
                self.next_sequence = Sequence(0);
            }
            oldest.stamp = Some(Stamp { identity, sequence: self.next_sequence });
            self.next_sequence = self.next_sequence.advance(oldest.record_count());
        }
        let mut batch = self.waiting.pop_front()?;
        batch.attempts += 1;
        let flight =
            Flight { first: batch.first, record_count: batch.record_count(), stamp: batch.stamp };
        let at = self.flying.partition_point(|other| other.first < flight.first);
        self.flying.insert(at, flight);
        Some(batch)
    }

    /// A batch came back, whatever its fate: it no longer flies, and has the stamp that is right
    /// for it by now.
    pub(super) fn landed(&mut self, batch: &mut Batch) {
        let at = self.flying.iter().position(|flight| flight.first == batch.first);
        let at = at.expect("a batch lands once, after it was taken");
        batch.stamp = self.flying.remove(at).stamp;
    }

    /// The broker has a batch: it knows the producer from now on.
    pub(super) fn confirm(&mut self, batch: &Batch) {
        if batch.stamp.is_some_and(|stamp| Some(stamp.identity) == self.identity) {
            self.is_confirmed = true;
        }
    }

    /// Whether nothing older than `batch` is outstanding: then the broker's opinion about its
    /// sequence is about this batch.
    pub(super) fn is_oldest(&self, batch: &Batch) -> bool {
        self.flying.first().is_none_or(|flight| batch.first < flight.first)
            && self.waiting.front().is_none_or(|other| batch.first < other.first)
    }

    /// Puts a batch back that has landed and is to fly again.
    pub(super) fn put_back(&mut self, batch: Batch, not_before: Option<Instant>) {
        let at = self.waiting.partition_point(|other| other.first < batch.first);
        self.waiting.insert(at, batch);
        self.not_before = self.not_before.max(not_before);
    }

    /// A stamped batch was given up that the broker certainly does not have: what follows moves up,
    /// so that no gap remains. Batches on their way under the old numbers will be refused and fly
    /// again under the new ones.
    pub(super) fn close_gap(&mut self, batch: &Batch) {
        let Some(gone) = batch.stamp.filter(|stamp| Some(stamp.identity) == self.identity) else {
            return;
        };
        let mut next = gone.sequence;
        let flying = self
            .flying
            .iter_mut()
            .map(|flight| (flight.first, flight.record_count, &mut flight.stamp));
        let waiting = self
            .waiting
            .iter_mut()
            .map(|waiting| (waiting.first, waiting.record_count(), &mut waiting.stamp));
        let mut later: Vec<_> = flying
            .chain(waiting)
            .filter(|(first, _, stamp)| batch.first < *first && stamp.is_some())
            .collect();
        later.sort_by_key(|(first, _, _)| *first);
        for (_, record_count, stamp) in later {
            *stamp = Some(Stamp { sequence: next, ..gone });
            next = next.advance(record_count);
        }
        self.next_sequence = next;
    }

    /// The broker lost track of our sequences: start over under a new epoch, once nothing flies.
    pub(super) fn want_new_epoch(&mut self) {
        self.wants_new_epoch = true;
    }

    /// Whether it waits for a new epoch and is ready for it.
    pub(super) fn awaits_new_epoch(&self) -> bool {
        self.wants_new_epoch && self.flying.is_empty()
    }

    /// Whether its sequences are counted under this identity.
    pub(super) fn counts_under(&self, identity: Identity) -> bool {
        self.identity == Some(identity)
    }

    /// Numbers everything outstanding from 0 under a new identity.
    pub(super) fn start_over(&mut self, identity: Identity) {
        assert!(self.flying.is_empty(), "sequences on the wire cannot be changed");
        self.identity = Some(identity);
        self.is_confirmed = false;
        self.wants_new_epoch = false;
        let mut next = Sequence(0);
        for batch in self.waiting.iter_mut().filter(|batch| batch.stamp.is_some()) {
            batch.stamp = Some(Stamp { identity, sequence: next });
            next = next.advance(batch.record_count());
        }
        self.next_sequence = next;
    }

    /// Takes out what waited longer than `patience`.
    pub(super) fn expire(&mut self, now: Instant, patience: Duration) -> Vec<Batch> {
        let mut expired = Vec::new();
        while self.waiting.front().is_some_and(|batch| batch.created + patience <= now) {
            let batch = self.waiting.pop_front().expect("it was just looked at");
            if !batch.is_uncertain {
                self.close_gap(&batch);
            }
            expired.push(batch);
        }
        expired
    }

    /// Takes out everything that waits.
    pub(super) fn drain(&mut self) -> Vec<Batch> {
        self.waiting.drain(..).collect()
    }

    /// When the oldest waiting batch runs out of patience.
    pub(super) fn expires_at(&self, patience: Duration) -> Option<Instant> {
        Some(self.waiting.front()?.created + patience)
    }

    /// Records ever taken in.
    pub(super) fn buffered(&self) -> u64 {
        self.buffered
    }

    /// Whether the fate of the first `end` records was told.
    pub(super) fn is_settled_before(&self, end: u64) -> bool {
        let outstanding = self.flying.first().map(|flight| flight.first);
        let waiting = self.waiting.front().map(|batch| batch.first);
        outstanding.into_iter().chain(waiting).all(|first| end <= first)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.flying.is_empty()
    }
}

#[cfg(test)]
mod tests;
