//! Group commit: one round makes everything durable that waited when it began.
//!
//! No timer: while one round runs, the next one gathers. A round holds no partition's lock while
//! the disk works; what is appended meanwhile belongs to the next round. Each data directory has
//! its own rounds.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use towpath_broker::{Outcome, State};
use towpath_log::disk::Disk;
use towpath_log::{Committed, Dirty};
use towpath_model::TopicPartition;
use towpath_model::mutant::{self, Mutant};

use crate::cell::{Cell, Slot};
use crate::driver::Driver;
use crate::quorum::QuorumRound;
use crate::replicas::{Positions, collect};
use crate::volume::{Volume, VolumeIndex};
use crate::world::{Clock, Net};

/// Most log starts that move in one round.
const STARTS_MAX: usize = 16;

/// What one round did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SyncReport {
    /// Partitions that had something to make durable.
    pub partitions: usize,
    /// Partitions whose sync failed; they take no writes any more.
    pub failed: usize,
    /// How long it took to make the round durable; nothing when there was nothing to do.
    pub taken: Duration,
}

/// A round that is under way. Three moments, with appends, deletions and everything else between
/// them: taken under each partition's lock, durable, published.
pub struct Round<D: Disk> {
    volume: VolumeIndex,
    /// Partitions whose start is to follow that of others.
    starts: Vec<Arc<Cell<D>>>,
    /// What the metadata quorum has in it.
    quorum: Option<QuorumRound<D>>,
    /// Whose bytes they are; the other two follow its order.
    cells: Vec<Arc<Cell<D>>>,
    dirty: Vec<Dirty<D>>,
    committed: Vec<Committed>,
    taken: Duration,
}

impl<D: Disk> Round<D> {
    /// The partitions that it makes durable; those of an empty round are none.
    pub fn partitions(&self) -> impl Iterator<Item = TopicPartition> + '_ {
        self.cells.iter().map(|cell| cell.id)
    }
}

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// Whether a round in any data directory would have work.
    pub fn has_unsynced(&self) -> bool {
        self.volumes().any(|volume| self.has_unsynced_in(volume))
    }

    /// Whether a round in this data directory would have work.
    pub fn has_unsynced_in(&self, volume: VolumeIndex) -> bool {
        let is_empty = |list: &Mutex<Vec<Arc<Cell<D>>>>| {
            list.lock().expect("no panic holds the list").is_empty()
        };
        let lists = self.volume(volume);
        !is_empty(&lists.unsynced)
            || !is_empty(&lists.starts_due)
            || volume == VolumeIndex::FIRST && self.quorum.lock().awaits_sync
    }

    /// One round in every data directory, one after the other.
    pub fn sync_round(&self) -> SyncReport {
        let mut all = SyncReport::default();
        for volume in self.volumes() {
            let report = self.sync_round_in(volume);
            all.partitions += report.partitions;
            all.failed += report.failed;
            all.taken += report.taken;
        }
        all
    }

    /// Makes durable whatever waits now in one data directory. Called by one thread only for each.
    pub fn sync_round_in(&self, volume: VolumeIndex) -> SyncReport {
        let mut round = self.begin_round(volume);
        let volume = self.volume(volume);
        self.commit_round(&mut round);
        let report = self.publish_round(round);
        volume.directory.tidy();
        volume.round_ends();
        self.tell_failure(volume);
        report
    }

    /// Puts a data directory's relaxed partitions, which nobody waits for, into its next round: only
    /// the thread that runs rounds makes anything durable.
    pub(crate) fn want_flush(&self, volume: &Volume<D>) {
        let waiting =
            std::mem::take(&mut *volume.unflushed.lock().expect("no panic holds the list"));
        if !waiting.is_empty() {
            volume.unsynced.lock().expect("no panic holds the list").extend(waiting);
            self.clock.sync_wanted(volume.index);
        }
    }

    /// Takes what waits now in a data directory from its partitions. A round that was begun is
    /// committed and finished before the next one there begins, or dropped with the whole process.
    pub fn begin_round(&self, volume: VolumeIndex) -> Round<D> {
        let unsynced = &self.volume(volume).unsynced;
        let waiting = std::mem::take(&mut *unsynced.lock().expect("no panic holds the list"));
        let mut round = Round {
            volume,
            starts: self.take_starts(volume),
            quorum: self.begin_quorum_round(volume),
            cells: Vec::new(),
            dirty: Vec::new(),
            committed: Vec::new(),
            taken: Duration::ZERO,
        };
        let positions = Mutex::default();
        round.cells.reserve(waiting.len());
        round.dirty.reserve(waiting.len());
        for cell in waiting {
            let mut slot = cell.lock();
            slot.awaits_sync = false;
            let is_over = slot.closed || slot.failed;
            let dirty = if is_over { None } else { slot.log.take_dirty() };
            drop(slot);
            match dirty {
                Some(dirty) => {
                    round.dirty.push(dirty);
                    round.cells.push(cell);
                }
                // Whoever moved the log start has synced it meanwhile.
                None => self.publish_durable(&cell, None, &positions),
            }
        }
        self.tell_durable(positions.into_inner().expect("no panic holds a list of positions"));
        if !round.dirty.is_empty() || !round.starts.is_empty() || round.quorum.is_some() {
            self.volume(volume).round_begins(self.clock.now().time);
        }
        round
    }

    /// A few of the starts that are due: others wait for this round.
    fn take_starts(&self, volume: VolumeIndex) -> Vec<Arc<Cell<D>>> {
        let due = &self.volume(volume).starts_due;
        let mut due = due.lock().expect("no panic holds the list");
        let left = due.len().saturating_sub(STARTS_MAX);
        if 0 < left {
            self.clock.sync_wanted(volume);
        }
        due.split_off(left)
    }

    /// Lets the disk make it durable, with no partition's lock held. Nobody hears of it yet.
    pub fn commit_round(&self, round: &mut Round<D>) {
        let mut dirty = std::mem::take(&mut round.dirty);
        if dirty.is_empty() && round.starts.is_empty() && round.quorum.is_none() {
            return;
        }
        let began = self.clock.now().time;
        self.follow_log_starts(&std::mem::take(&mut round.starts));
        let directory = &self.volume(round.volume).directory;
        let mut has_entries = false;
        if let Some(quorum) = &mut round.quorum {
            self.save_vote(quorum);
            let entries = quorum.take_dirty();
            has_entries = entries.is_some();
            dirty.extend(entries);
        }
        if !dirty.is_empty() {
            round.committed = directory.commit(dirty);
        }
        if let Some(quorum) = &mut round.quorum {
            quorum.committed = if has_entries { round.committed.pop() } else { None };
        }
        round.taken = self.clock.now().time - began;
    }

    /// Tells the partitions what became of it; the round is over.
    pub fn finish_round(&self, round: Round<D>) -> SyncReport {
        let volume = round.volume;
        let report = self.publish_round(round);
        self.volume(volume).round_ends();
        report
    }

    fn publish_round(&self, round: Round<D>) -> SyncReport {
        let Round { cells, committed, taken, quorum, .. } = round;
        let mut report = SyncReport { partitions: committed.len(), failed: 0, taken };
        if let Some(quorum) = quorum {
            report.partitions += 1;
            report.failed += usize::from(!self.publish_quorum_round(quorum));
        }
        let positions = Mutex::default();
        for (cell, committed) in cells.iter().zip(committed) {
            assert_eq!(cell.id, committed.partition());
            match committed.result() {
                Ok(()) => self.publish_durable(cell, Some(&committed), &positions),
                Err(error) => {
                    tracing::error!(partition = %cell.id, topic = %cell.topic, %error,
                        "sync failed: the partition takes no writes");
                    report.failed += 1;
                    self.fail(cell);
                }
            }
        }
        self.tell_durable(positions.into_inner().expect("no panic holds a list of positions"));
        report
    }

    fn publish_durable(
        &self,
        cell: &Arc<Cell<D>>,
        committed: Option<&Committed>,
        positions: &Mutex<Positions>,
    ) {
        self.step(cell, |slot, now, out| {
            if !slot.closed && !self.has_failed(cell, slot) {
                if let Some(committed) = committed {
                    slot.log.committed(committed);
                }
                let durable_offset = slot.log.durable_offset();
                slot.partition.synced(now, durable_offset, out);
                collect(slot, cell.id, positions);
                self.want_snapshot(cell, slot);
            }
        });
    }

    /// When a data directory has failed: none of its partitions takes writes, and everybody who waits
    /// for one is told. A sync that failed is never tried again: the pages that it could not write may
    /// count as clean, and the next sync would vouch for what the disk does not have.
    pub(crate) fn tell_failure(&self, volume: &Volume<D>) {
        if !volume.take_news_of_failure() {
            return;
        }
        let mut cells = self.cells();
        cells.retain(|cell| cell.volume == volume.index);
        tracing::error!(directory = %volume.path.display(), partitions = cells.len(),
            reason = volume.directory.failure().unwrap_or_default(),
            "a data directory has failed: its partitions take no writes, what had become durable is \
             still read; check its disk, then restart the broker");
        cells.iter().for_each(|cell| self.fail(cell));
        if volume.index == VolumeIndex::FIRST {
            let reason = volume.directory.failure().unwrap_or_default();
            self.quorum_step(|slot, _, orders| self.quorum_failed(slot, reason, orders));
        }
    }

    /// Whether the partition takes no writes any more, whether or not it was told already. What its log
    /// says of itself then is of no use to anybody: a cut may have failed in its middle.
    pub(crate) fn has_failed(&self, cell: &Cell<D>, slot: &Slot<D>) -> bool {
        slot.failed || self.volume(cell.volume).directory.is_failed()
    }

    /// The partition takes no writes any more, neither records nor deliveries: a replica holds both or
    /// counts for none.
    fn fail(&self, cell: &Arc<Cell<D>>) {
        self.fail_log(cell);
        if let Some(other) = self.other_log(cell) {
            self.fail_log(&other);
        }
    }

    /// Who waits for a log is told why. A state cannot be asked either: what it would say may rest on
    /// records that are lost.
    fn fail_log(&self, cell: &Arc<Cell<D>>) {
        self.step(cell, |slot, _, out| {
            let is_first_news = !slot.closed && !std::mem::replace(&mut slot.failed, true);
            if is_first_news {
                slot.closed = !matches!(slot.partition.state(), State::None);
                let outcome = match mutant::is_on(Mutant::FailedDirectoryAcks) {
                    true => Outcome::Reached,
                    false => Outcome::StorageFailed,
                };
                slot.partition.resign(outcome, out);
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
