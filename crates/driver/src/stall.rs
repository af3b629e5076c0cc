//! What is done about partitions whose disk does not answer.
//!
//! Whoever appends holds the partition's lock while the bytes go to memory, and a disk that is far
//! behind can make that last. Everybody else who wants the lock would wait with it. So as long as a disk is
//! stalled nothing new is begun there, and who finds a partition locked is told at once; and threads that
//! serve other disks too leave what they have to do there to the directory's own upkeep.

use std::sync::{Arc, MutexGuard};

use towpath_broker::Output;
use towpath_broker::guard::Verdict;
use towpath_log::disk::Disk;
use towpath_model::mutant::{self, Mutant};
use towpath_model::{Now, Timestamp};

use crate::cell::{Cell, Slot};
use crate::driver::Driver;
use crate::replicas::min_in_sync;
use crate::volume::{Volume, VolumeIndex};
use crate::world::{Clock, Net};

/// How often a thread that must not wait tries to lock a partition: whoever works with it, and not for
/// its disk, is through by then.
const TRIES: usize = 1_000;

/// Something that a directory's upkeep does as soon as it can.
pub(crate) enum Deferred<D: Disk> {
    /// The topic's configuration has changed.
    Configure(Arc<Cell<D>>),
    /// The topic was deleted.
    Forget(Arc<Cell<D>>),
    /// Records have expired, as of then.
    Retire(Arc<Cell<D>>, Verdict, Timestamp),
}

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// Whether the disk of a data directory does not answer.
    pub(crate) fn is_stalled(&self, volume: &Volume<D>) -> bool {
        let is_stalled = |volume: &Volume<D>| {
            volume.is_waited_for() && volume.stalled_for(self.clock.now().time).is_some()
        };
        let spreads = mutant::is_on(Mutant::StallSpreads);
        is_stalled(volume) || (spreads && self.volumes.iter().any(is_stalled))
    }

    /// What is said of partitions there.
    pub(crate) fn stalled_reason(&self, volume: &Volume<D>) -> String {
        let (broker, path) = (self.settings.broker_id, volume.path.display());
        format!(
            "the disk of data directory {path} of broker {broker} does not answer at the moment"
        )
    }

    /// Locks a partition; `None`: whoever holds it waits for a disk that does not answer.
    pub(crate) fn lock_in_time<'c>(
        &self,
        cell: &'c Arc<Cell<D>>,
    ) -> Option<MutexGuard<'c, Slot<D>>> {
        if self.is_stalled(self.volume(cell.volume)) { cell.try_lock() } else { Some(cell.lock()) }
    }

    /// Does a step in a partition from a thread that serves other directories as well. `false`: somebody
    /// holds the partition for longer than it takes.
    pub(crate) fn step_soon(
        &self,
        cell: &Arc<Cell<D>>,
        act: impl FnOnce(&mut Slot<D>, Now, &mut Vec<Output>),
    ) -> bool {
        // The first directory's own threads are these.
        if cell.volume == VolumeIndex::FIRST {
            self.step(cell, act);
            return true;
        }
        let lock = || {
            (0..TRIES).find_map(|_| {
                let slot = cell.try_lock();
                if slot.is_none() {
                    std::thread::yield_now();
                }
                slot
            })
        };
        self.step_in(cell, lock, act).is_some()
    }

    /// Leaves something to the upkeep of the partition's directory.
    pub(crate) fn defer(&self, volume: VolumeIndex, deferred: Deferred<D>) {
        let list = &self.volume(volume).deferred;
        list.lock().expect("no panic holds the list").push(deferred);
    }

    /// Does what was left to this directory's upkeep.
    pub(crate) fn do_deferred(&self, volume: &Volume<D>) {
        let all = std::mem::take(&mut *volume.deferred.lock().expect("no panic holds the list"));
        for deferred in all {
            match deferred {
                Deferred::Configure(cell) => {
                    let config = {
                        let image = self.image();
                        let topic = image.topic_by_id(cell.id.topic);
                        topic.zip(image.partition(cell.id.records())).map(|(topic, state)| {
                            let min = min_in_sync(&image, topic, state);
                            (self.newest_config.shared(image.effective_config(topic)), min)
                        })
                    };
                    if let Some((config, min)) = config {
                        self.step(&cell, |slot, _, out| slot.configure(cell.id, &config, min, out));
                        if config.queue_enable {
                            self.open_delivery_logs(cell.id.topic);
                        }
                    }
                }
                Deferred::Retire(cell, verdict, at) => {
                    self.carry_out_verdict(&cell, &verdict, at);
                }
                Deferred::Forget(cell) => {
                    self.close(&cell, towpath_broker::Outcome::NotLeader);
                    volume.doomed.lock().expect("no panic holds the list").push(cell);
                }
            }
        }
    }
}
