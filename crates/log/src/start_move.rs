//! A log start on its way up, in steps, so that nobody waits for the disk under the partition's lock.
//!
//! ```text
//!  locked    begin    which offset, and what must be on the disk for it
//!            save     that, what is known of producers, and the checkpoint: from here on no crash
//!                     takes the start back
//!  locked    finish   the log begins there; segments below it are not known any more
//!            remove   their files
//! ```
//!
//! A crash between two steps leaves files below the start, which the next recovery removes.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use towpath_model::mutant::{self, Mutant};
use towpath_model::{LeaderEpoch, Offset, TopicPartition};

use crate::checkpoint::{Checkpoints, Point};
use crate::commit::Piece;
use crate::directory::{DataDirectory, lock_of};
use crate::disk::Disk;
use crate::error::LogError;
use crate::log::Log;
use crate::producers::Snapshots;
use crate::recover::remove_segment_files;

/// A log start that is to move.
pub struct StartMove<D: Disk> {
    directory: DataDirectory<D>,
    offset: Offset,
    generation: u64,
    current_generation: Arc<AtomicU64>,
    checkpoints: Arc<Mutex<Checkpoints<D>>>,
    /// Durable once `unsynced` and `names` are.
    durable: Point,
    epochs: Vec<(LeaderEpoch, Offset)>,
    unsynced: Vec<Piece<D>>,
    names: Vec<PathBuf>,
    /// What is known of producers as of `durable`, where records that tell of some of them go.
    producers: Option<(Snapshots<D>, Vec<u8>)>,
    is_saved: bool,
}

/// Files below a log start that has moved.
#[must_use = "the files stay until they are removed"]
pub struct Removal<D: Disk> {
    directory: DataDirectory<D>,
    partition: TopicPartition,
    path: Arc<Path>,
    damage_saved: Result<(), LogError>,
    segments: Vec<Offset>,
    snapshots: Option<Snapshots<D>>,
    log_start: Offset,
}

impl<D: Disk> StartMove<D> {
    /// Makes it certain that the log starts there. To be called without the partition's lock.
    ///
    /// # Errors
    /// When the disk fails: the start has then moved or not, and nothing is removed.
    pub fn save(&mut self) -> Result<(), LogError> {
        self.directory.check()?;
        self.sync().inspect_err(|error| self.directory.fail(error))?;
        self.save_producers()?;
        if mutant::is_on(Mutant::LogStartNotDurable) {
            self.is_saved = true;
            return Ok(());
        }
        let mut checkpoints = lock_of(&self.checkpoints);
        if self.offset <= checkpoints.latest.log_start {
            self.is_saved = true;
            return Ok(());
        }
        let before = checkpoints.latest.clone();
        let latest = &mut checkpoints.latest;
        // A truncation cuts nothing that is committed, so never below the new start; but what was to be
        // durable above it may be cut.
        let is_superseded = self.generation != self.current_generation.load(Ordering::Acquire);
        // Only where it must: a compaction may have moved the place of that offset meanwhile.
        if !is_superseded && latest.durable.offset < self.offset {
            latest.durable = self.durable;
            latest.epochs.clone_from(&self.epochs);
        }
        if latest.durable.offset < self.offset {
            // Cut meanwhile, and not yet durable again: whoever asked tries again.
            return Ok(());
        }
        latest.log_start = self.offset;
        forget_epochs_below(&mut latest.epochs, self.offset, latest.durable.offset);
        checkpoints.save().inspect_err(|error| {
            checkpoints.latest = before;
            if !error.is_disk_full() {
                self.directory.fail(error);
            }
        })?;
        self.is_saved = true;
        Ok(())
    }

    /// Without room for it the records go all the same: they make room.
    fn save_producers(&self) -> Result<(), LogError> {
        let Some((snapshots, payload)) = &self.producers else { return Ok(()) };
        if self.generation != self.current_generation.load(Ordering::Acquire) {
            return Ok(());
        }
        match snapshots.save(self.durable.offset, payload) {
            Err(error) if error.is_disk_full() => Ok(()),
            saved => saved.inspect_err(|error| self.directory.fail(error)),
        }
    }

    fn sync(&self) -> Result<(), LogError> {
        for directory in &self.names {
            let failed = LogError::io("sync names in", directory);
            self.directory.inner.disk.sync_dir(directory).map_err(failed)?;
        }
        for piece in &self.unsynced {
            piece.sync()?;
        }
        Ok(())
    }
}

impl<D: Disk> Removal<D> {
    /// Removes the files. To be called without the partition's lock.
    ///
    /// # Errors
    /// When the disk refuses; the next start tries again.
    pub fn run(self) -> Result<(), LogError> {
        self.damage_saved?;
        let (partition, segments) = (self.partition, &self.segments);
        if segments.is_empty() {
            return Ok(());
        }
        let is_gone =
            |(of, base): &(TopicPartition, Offset)| *of == partition && segments.contains(base);
        self.directory.write_ahead().uncover(is_gone);
        for base in segments {
            remove_segment_files(&self.directory.inner.disk, &self.path, *base)?;
        }
        self.snapshots.map_or(Ok(()), |snapshots| snapshots.remove_below(self.log_start))
    }
}

impl<D: Disk> Log<D> {
    /// Begins to move the log start offset up to `offset`. `None`: it is there already. `producers`
    /// is what is known of producers as of the log end, where the records that go are all that a
    /// start could learn of one of them: it is kept, durably, before they go.
    ///
    /// # Errors
    /// When the directory has failed.
    ///
    /// # Panics
    /// When `offset` is beyond the log end offset.
    pub fn begin_start_move(
        &self,
        offset: Offset,
        producers: Option<Vec<u8>>,
    ) -> Result<Option<StartMove<D>>, LogError> {
        assert!(offset <= self.log_end);
        self.directory.check()?;
        if offset <= self.log_start {
            return Ok(None);
        }
        let producers = self.snapshots().zip(producers);
        let needed = if producers.is_some() { self.log_end } else { offset };
        let is_durable = needed <= self.durable.offset;
        let names = self.taken_names.iter().chain(&self.new_names).cloned();
        Ok(Some(StartMove {
            directory: self.directory.clone(),
            offset,
            generation: self.generation(),
            current_generation: Arc::clone(&self.generation),
            checkpoints: Arc::clone(&self.checkpoints),
            durable: if is_durable { self.durable } else { self.end_point() },
            epochs: self.epochs.clone(),
            unsynced: if is_durable { Vec::new() } else { self.pieces_from(self.durable) },
            names: if is_durable { Vec::new() } else { names.collect() },
            producers,
            is_saved: false,
        }))
    }

    /// The log starts where the move says, once that has been saved. What it returns is to be run after the
    /// partition's lock.
    pub fn finish_start_move(&mut self, moved: StartMove<D>) -> Removal<D> {
        let mut segments = Vec::new();
        let mut damage_saved = Ok(());
        if moved.is_saved && self.log_start < moved.offset {
            self.log_start = moved.offset;
            forget_epochs_below(&mut self.epochs, self.log_start, self.log_end);
            let is_superseded = moved.generation != self.generation();
            if !is_superseded && self.durable.offset < moved.durable.offset {
                self.set_durable(moved.durable);
                if self.taken.offset < moved.durable.offset {
                    self.taken = moved.durable;
                }
            }
            // Under the lock, as everything about damage; there rarely is any.
            if self.damage.clip(self.log_start, self.log_end) {
                damage_saved = self.damage.save(self.disk(), &self.path);
            }
            segments = self.forget_segments_below_start();
        }
        Removal {
            directory: self.directory.clone(),
            partition: self.partition,
            path: Arc::clone(&self.path),
            damage_saved,
            segments,
            snapshots: self.snapshots(),
            log_start: self.log_start,
        }
    }

    /// Segments that hold nothing from the log start on. None of them has the name that a segment
    /// appended to from now on will have.
    fn forget_segments_below_start(&mut self) -> Vec<Offset> {
        let is_empty =
            |segment: &crate::segment::Summary| segment.base_offset == segment.next_offset;
        let start = self.log_start;
        let gone = |s: &&crate::segment::Summary| s.next_offset <= start && !is_empty(s);
        let below = self.segments.iter().take_while(gone).count();
        if below == self.segments.len() && self.active.is_some() {
            // Nothing is kept of the active segment either: the next append begins a new one.
            self.active = None;
            self.last_batch = None;
            if let Some(last) = self.segments.last_mut() {
                last.is_sealed = true;
            }
        }
        let gone: Vec<Offset> = self.segments.drain(..below).map(|s| s.base_offset).collect();
        if self.segments.is_empty() {
            self.durable = self.end_point();
            self.taken = self.durable;
        }
        self.sealed_unsynced.retain(|(base, _)| !gone.contains(base));
        self.unsaved_indexes.retain(|index| !gone.contains(&index.segment));
        gone.iter().for_each(|base| self.open.forget(*base));
        gone
    }
}

/// Keeps the epoch of the first record, as beginning there.
fn forget_epochs_below(epochs: &mut Vec<(LeaderEpoch, Offset)>, start: Offset, end: Offset) {
    let begun = epochs.partition_point(|(_, first)| *first <= start);
    if 0 < begun {
        epochs.drain(..begun - 1);
        epochs[0].1 = start;
    }
    if start == end {
        epochs.clear();
    }
}
