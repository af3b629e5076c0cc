//! Group commit: one round makes everything durable that waited when it began.
//!
//! No timer: while one round runs, the next one gathers. A round holds no partition's lock while
//! the disk works; what is appended meanwhile belongs to the next round.

use std::sync::Arc;

use towpath_broker::Outcome;
use towpath_log::Committed;
use towpath_log::disk::Disk;

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

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// Whether a round would have work.
    pub fn has_unsynced(&self) -> bool {
        !self.unsynced.lock().expect("no panic holds the list").is_empty()
    }

    /// Makes durable whatever waits now. Called by one thread only.
    pub fn sync_round(&self) -> SyncReport {
        let waiting = std::mem::take(&mut *self.unsynced.lock().expect("no panic holds the list"));
        let report = self.make_durable(waiting);
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

    fn make_durable(&self, waiting: Vec<Arc<Cell<D>>>) -> SyncReport {
        let mut cells = Vec::with_capacity(waiting.len());
        let mut round = Vec::with_capacity(waiting.len());
        for cell in waiting {
            let mut slot = cell.lock();
            slot.awaits_sync = false;
            let dirty = if slot.closed { None } else { slot.log.take_dirty() };
            drop(slot);
            match dirty {
                Some(dirty) => {
                    round.push(dirty);
                    cells.push(cell);
                }
                // Whoever moved the log start has synced it meanwhile.
                None => self.publish_durable(&cell, None),
            }
        }
        let mut report = SyncReport { partitions: round.len(), failed: 0 };
        if round.is_empty() {
            return report;
        }
        for (cell, committed) in cells.iter().zip(self.directory.commit(round)) {
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
