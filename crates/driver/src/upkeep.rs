//! What must happen although nobody asks: deadlines, rolls, retention, flushes, snapshots.

use std::sync::Arc;
use std::time::Duration;

use towpath_log::disk::Disk;
use towpath_model::{Now, Time};

use crate::cell::{Cell, Slot};
use crate::driver::Driver;
use crate::open::place_of;
use crate::recover::encode_snapshot;
use crate::world::{Clock, Net};

/// A snapshot saves re-reading at the next start; one per this many appended bytes is plenty.
const SNAPSHOT_EVERY_BYTES: u64 = 64 * 1024 * 1024;

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// When [`Driver::expire_due`] has something to do.
    pub fn next_deadline(&self) -> Option<Time> {
        self.deadlines.lock().expect("no panic holds the deadlines").earliest()
    }

    /// Lets time act on every state whose deadline has passed.
    pub fn expire_due(&self) {
        let now = self.clock.now().time;
        let due = self.deadlines.lock().expect("no panic holds the deadlines").due(now);
        for id in due {
            let cell = if id == self.metadata.id {
                Some(Arc::clone(&self.metadata))
            } else {
                self.cell(id)
            };
            match cell {
                Some(cell) => self.step(&cell, |slot, now, out| {
                    if !slot.closed {
                        slot.partition.expire(now, out);
                    }
                }),
                None => self.schedule(id, None),
            }
        }
    }

    /// Flushes relaxed partitions, removes deleted topics from disk and warns of groups that are
    /// far behind; every
    /// `log.retention.check.interval.ms` also rolls and retires segments and forgets idle
    /// producers. To be called about once a second.
    pub fn upkeep(&self) {
        self.remove_doomed();
        self.want_flush();
        self.watch_lags();
        let config = self.image().broker_config();
        let now = self.clock.now();
        let mut kept_up_at = self.kept_up_at.lock().expect("only upkeep locks this");
        if kept_up_at.is_some_and(|at| now.time < at + config.retention_check) {
            return;
        }
        *kept_up_at = Some(now.time);
        drop(kept_up_at);
        for cell in self.cells() {
            self.keep_up(&cell, now, config.producer_idle_max);
        }
        self.retire_all(now);
    }

    fn remove_doomed(&self) {
        let doomed = std::mem::take(&mut *self.doomed.lock().expect("no panic holds the list"));
        for cell in doomed {
            let (id, topic) = (cell.id, cell.topic.clone());
            // A log must be gone before its files: a round that still had it would vouch for them.
            if let Err(still_used) = Arc::try_unwrap(cell).map(drop) {
                self.doomed.lock().expect("no panic holds the list").push(still_used);
                continue;
            }
            if let Err(error) = self.directory.delete_log(place_of(id, &topic)) {
                tracing::warn!(%topic, partition = %id.partition, %error,
                    "a deleted topic's files could not be removed; the next start tries again");
            }
        }
    }

    fn keep_up(&self, cell: &Arc<Cell<D>>, now: Now, idle: Duration) {
        self.step(cell, |slot, _, _| {
            if slot.closed {
                return;
            }
            slot.partition.expire_producers(now, idle);
            if SNAPSHOT_EVERY_BYTES <= slot.log.bytes_since_snapshot() {
                snapshot(slot);
            }
        });
    }

    pub(crate) fn save_snapshot(&self, cell: &Arc<Cell<D>>) {
        snapshot(&mut cell.lock());
    }
}

fn snapshot<D: Disk>(slot: &mut Slot<D>) {
    let leader = slot.partition.leader();
    let at = leader.log_end_offset();
    let payload = encode_snapshot(leader);
    if let Err(error) = slot.log.save_producers(at, &payload) {
        tracing::warn!(%error, "a snapshot of producers could not be written; the log has it all");
    }
}
