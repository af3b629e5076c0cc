//! Group commit: one round makes everything durable that waited when it began.
//!
//! No timer: while one round runs, the next one gathers. A round holds no partition's lock while
//! the disk works; what is appended meanwhile belongs to the next round.

use std::sync::Arc;

use towpath_broker::Outcome;
use towpath_log::disk::Disk;
use towpath_log::{Committed, Dirty};
use towpath_model::TopicPartition;

use crate::cell::Cell;
use crate::driver::Driver;
use crate::world::{Clock, Net};

/// What one round did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SyncReport {
    /// Partitions that had something to make durable.
    pub partitions: usize,
    /// Partitions whose sync failed; they are closed.
    pub failed: usize,
}

/// A round that is under way. Three moments, with appends, deletions and everything else between
/// them: taken under each partition's lock, durable, published.
pub struct Round<D: Disk> {
    /// Whose bytes they are; the other two follow its order.
    cells: Vec<Arc<Cell<D>>>,
    dirty: Vec<Dirty<D>>,
    committed: Vec<Committed>,
}

impl<D: Disk> Round<D> {
    /// The partitions that it makes durable; those of an empty round are none.
    pub fn partitions(&self) -> impl Iterator<Item = TopicPartition> + '_ {
        self.cells.iter().map(|cell| cell.id)
    }
}

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// Whether a round would have work.
    pub fn has_unsynced(&self) -> bool {
        !self.unsynced.lock().expect("no panic holds the list").is_empty()
    }

    /// Makes durable whatever waits now. Called by one thread only.
    pub fn sync_round(&self) -> SyncReport {
        let mut round = self.begin_round();
        self.commit_round(&mut round);
        let report = self.finish_round(round);
        self.directory.tidy();
        report
    }

    /// Puts relaxed partitions, which nobody waits for, into the next round: only the thread that
    /// runs rounds makes anything durable.
    pub(crate) fn want_flush(&self) {
        let waiting = std::mem::take(&mut *self.unflushed.lock().expect("no panic holds the list"));
        if !waiting.is_empty() {
            self.unsynced.lock().expect("no panic holds the list").extend(waiting);
            self.clock.sync_wanted();
        }
    }

    /// Takes what waits now from its partitions. A round that was begun is committed and finished
    /// before the next one begins, or dropped with the whole process.
    pub fn begin_round(&self) -> Round<D> {
        let waiting = std::mem::take(&mut *self.unsynced.lock().expect("no panic holds the list"));
        let mut round = Round { cells: Vec::new(), dirty: Vec::new(), committed: Vec::new() };
        round.cells.reserve(waiting.len());
        round.dirty.reserve(waiting.len());
        for cell in waiting {
            let mut slot = cell.lock();
            slot.awaits_sync = false;
            let dirty = if slot.closed { None } else { slot.log.take_dirty() };
            drop(slot);
            match dirty {
                Some(dirty) => {
                    round.dirty.push(dirty);
                    round.cells.push(cell);
                }
                // Whoever moved the log start has synced it meanwhile.
                None => self.publish_durable(&cell, None),
            }
        }
        round
    }

    /// Lets the disk make it durable, with no partition's lock held. Nobody hears of it yet.
    pub fn commit_round(&self, round: &mut Round<D>) {
        let dirty = std::mem::take(&mut round.dirty);
        if !dirty.is_empty() {
            round.committed = self.directory.commit(dirty);
        }
    }

    /// Tells the partitions what became of it.
    pub fn finish_round(&self, round: Round<D>) -> SyncReport {
        let Round { cells, committed, .. } = round;
        let mut report = SyncReport { partitions: committed.len(), failed: 0 };
        for (cell, committed) in cells.iter().zip(committed) {
            assert_eq!(cell.id, committed.partition());
            match committed.result() {
                Ok(()) => self.publish_durable(cell, Some(&committed)),
                Err(error) => {
                    tracing::error!(partition = %cell.id, topic = %cell.topic, %error,
                        "sync failed: the partition stops taking writes");
                    report.failed += 1;
                    self.close(cell, Outcome::StorageFailed);
                }
            }
        }
        report
    }

    fn publish_durable(&self, cell: &Arc<Cell<D>>, committed: Option<&Committed>) {
        self.step(cell, |slot, _, out| {
            if !slot.closed {
                if let Some(committed) = committed {
                    slot.log.committed(committed);
                }
                let durable_offset = slot.log.durable_offset();
                slot.partition.synced(durable_offset, out);
            }
        });
    }

    /// Stops leading a partition; who waits for it is told why.
    pub(crate) fn close(&self, cell: &Arc<Cell<D>>, outcome: Outcome) {
        self.step(cell, |slot, _, out| {
            slot.closed = true;
            slot.partition.resign(outcome, out);
        });
    }
}
