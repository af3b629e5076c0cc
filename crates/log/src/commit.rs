//! Group commit: one round makes the newest bytes of many logs durable. ADR 0001 says how and why.
//!
//! A round vouches only for bytes that were written before [`Log::take_dirty`]; the logs go on
//! appending meanwhile. A truncation raises a log's generation, so that a round that was begun
//! before it vouches for nothing after it.
//!
//! [`Log::take_dirty`]: crate::Log::take_dirty

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use thiserror::Error;
use towpath_model::mutant::{self, Mutant};
use towpath_model::{LeaderEpoch, Offset, TopicPartition};

use crate::checkpoint::{Checkpoints, Point};
use crate::directory::{DataDirectory, lock_of};
use crate::disk::{Disk, DiskFile};
use crate::error::LogError;
use crate::index;
use crate::place::FileKind;
use crate::write_ahead::WriteAhead;
use crate::write_ahead::frame::{Frame, FrameKind, PAYLOAD_BYTES_MAX};

/// What a log has written and not yet made durable.
pub struct Dirty<D: Disk> {
    pub(crate) partition: TopicPartition,
    pub(crate) generation: u64,
    pub(crate) current_generation: Arc<AtomicU64>,
    /// Durable up to here before this round.
    pub(crate) from: Offset,
    /// Durable up to here with this round.
    pub(crate) to: Point,
    pub(crate) pieces: Vec<Piece<D>>,
    /// Directories whose names are new, innermost first.
    pub(crate) new_names: Vec<PathBuf>,
    pub(crate) checkpoint: Option<CheckpointPlan<D>>,
}

/// Bytes of one segment.
pub(crate) struct Piece<D: Disk> {
    pub(crate) segment: Offset,
    pub(crate) file: Arc<D::File>,
    /// The log's directory.
    pub(crate) directory: Arc<Path>,
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) first_offset: Offset,
    pub(crate) next_offset: Offset,
}

/// A checkpoint that is due once the round is durable; and the indexes that it lets a start trust:
/// of segments sealed since the last one, and of the active segment as of this round.
pub(crate) struct CheckpointPlan<D: Disk> {
    pub(crate) checkpoints: Arc<Mutex<Checkpoints<D>>>,
    pub(crate) epochs: Vec<(LeaderEpoch, Offset)>,
    pub(crate) indexes: Vec<index::Files>,
}

impl<D: Disk> Dirty<D> {
    /// Whose bytes these are.
    #[must_use]
    pub fn partition(&self) -> TopicPartition {
        self.partition
    }

    fn is_superseded(&self) -> bool {
        self.generation != self.current_generation.load(Ordering::Acquire)
    }
}

impl<D: Disk> Piece<D> {
    pub(crate) fn sync(&self) -> Result<(), LogError> {
        self.file.sync_data().map_err(|error| {
            let path = FileKind::Segment.path(&self.directory, self.segment);
            LogError::io("sync", &path)(error)
        })
    }

    fn bytes(&self) -> u64 {
        self.to - self.from
    }
}

impl<D: Disk> std::fmt::Debug for Dirty<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dirty")
            .field("partition", &self.partition)
            .field("from", &self.from)
            .field("to", &self.to.offset)
            .finish_non_exhaustive()
    }
}

/// Why a round made nothing certain. The same for every log of it: the directory has failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct CommitError(pub String);

/// How a round ended for one log; [`Log::committed`] takes it back.
///
/// [`Log::committed`]: crate::Log::committed
#[derive(Debug, Clone)]
pub struct Committed {
    pub(crate) partition: TopicPartition,
    pub(crate) generation: u64,
    pub(crate) to: Point,
    pub(crate) result: Result<(), CommitError>,
}

impl Committed {
    /// Whose bytes they were.
    #[must_use]
    pub fn partition(&self) -> TopicPartition {
        self.partition
    }

    /// The log's generation when the bytes were taken.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// First offset that is not yet durable, when the round succeeded.
    #[must_use]
    pub fn durable_offset(&self) -> Offset {
        self.to.offset
    }

    /// Whether the round succeeded.
    ///
    /// # Errors
    /// When the data directory has failed.
    pub fn result(&self) -> Result<(), CommitError> {
        self.result.clone()
    }
}

impl<D: Disk> DataDirectory<D> {
    /// Makes everything in `round` durable, without any partition's lock. After a failed sync the
    /// directory has failed, and nothing in the round counts: what of it reached the disk is not
    /// known.
    ///
    /// Rounds are made one after the other, by one thread.
    #[must_use]
    pub fn commit(&self, round: Vec<Dirty<D>>) -> Vec<Committed> {
        let running = lock_of(&self.inner.round);
        let mut result = self.check().and_then(|()| self.make_durable(&round));
        if mutant::is_on(Mutant::SyncRetried) && result.is_err() {
            result = self.check().and_then(|()| self.make_durable(&round));
        }
        drop(running);
        let result = result.map_err(|error| {
            self.fail(&error);
            CommitError(error.to_string())
        });
        round
            .into_iter()
            .map(|dirty| Committed {
                partition: dirty.partition,
                generation: dirty.generation,
                to: dirty.to,
                result: result.clone(),
            })
            .collect()
    }

    /// Does a part of what keeps the write-ahead file short. Call it after a round has been
    /// published; otherwise the next round does it first.
    pub fn tidy(&self) {
        if self.is_failed() {
            return;
        }
        let tidied = self.write_ahead().tidy();
        if let Err(error) = tidied {
            self.fail(&error);
        }
    }

    fn make_durable(&self, round: &[Dirty<D>]) -> Result<(), LogError> {
        // Logs that were truncated or deleted since: the former are taken again, with their names.
        let round: Vec<&Dirty<D>> = round.iter().filter(|dirty| !dirty.is_superseded()).collect();
        if mutant::is_on(Mutant::CheckpointBeforeData) {
            round.iter().try_for_each(|dirty| self.save_checkpoint(dirty))?;
        }
        self.sync_names(&round)?;
        let (direct, small) = self.split(&round);
        self.sync_directly(&direct)?;
        self.write_ahead().tidy()?;
        let logged = log_small(&mut self.write_ahead(), &small);
        match logged {
            // No room for the write-ahead file: the segments have theirs already.
            Err(error) if error.is_disk_full() => {
                self.write_ahead().give_up_unwritten();
                self.sync_directly(&small)?;
                log_direct(&mut self.write_ahead(), &small)?;
            }
            logged => logged?,
        }
        self.disk_has_answered();
        log_direct(&mut self.write_ahead(), &direct)?;
        for dirty in round {
            self.save_checkpoint(dirty)?;
            self.disk_has_answered();
        }
        Ok(())
    }

    /// How many calls that wait for the disk have come back in rounds so far: while this rises, a
    /// round that takes long is one that has much to write, and the disk answers.
    pub fn disk_calls(&self) -> u64 {
        self.inner.calls.load(Ordering::Relaxed)
    }

    fn disk_has_answered(&self) {
        self.inner.calls.fetch_add(1, Ordering::Relaxed);
    }

    fn sync_directly(&self, pieces: &[(&Dirty<D>, &Piece<D>)]) -> Result<(), LogError> {
        for (_, piece) in pieces.iter().filter(|_| !mutant::is_on(Mutant::ExtentNotSynced)) {
            piece.sync()?;
            self.disk_has_answered();
        }
        Ok(())
    }

    fn sync_names(&self, round: &[&Dirty<D>]) -> Result<(), LogError> {
        if mutant::is_on(Mutant::NamesNotSynced) {
            return Ok(());
        }
        let new: Vec<&PathBuf> = round.iter().flat_map(|dirty| &dirty.new_names).collect();
        let mut synced = BTreeSet::new();
        for directory in new {
            if synced.insert(directory) {
                let failed = LogError::io("sync names in", directory);
                self.inner.disk.sync_dir(directory).map_err(failed)?;
                self.disk_has_answered();
            }
        }
        Ok(())
    }

    /// Large extents, and a single small one, are synced directly; the others go through the
    /// write-ahead file.
    fn split<'r>(&self, round: &[&'r Dirty<D>]) -> (Pieces<'r, D>, Pieces<'r, D>) {
        let direct_min = self.inner.limits.direct_bytes_min.min(PAYLOAD_BYTES_MAX as u64);
        let pieces = round.iter().flat_map(|dirty| dirty.pieces.iter().map(move |p| (*dirty, p)));
        let (direct, small): (Pieces<'r, D>, Pieces<'r, D>) =
            pieces.partition(|(_, piece)| direct_min <= piece.bytes());
        if small.len() == 1 {
            let all = direct.into_iter().chain(small).collect();
            return (all, Vec::new());
        }
        (direct, small)
    }

    fn save_checkpoint(&self, dirty: &Dirty<D>) -> Result<(), LogError> {
        let Some(plan) = &dirty.checkpoint else { return Ok(()) };
        let mut checkpoints = lock_of(&plan.checkpoints);
        // A truncation locks the checkpoints too, after it has raised the generation.
        if dirty.is_superseded() || dirty.to.offset < checkpoints.latest.durable.offset {
            return Ok(());
        }
        let saved = plan.indexes.iter().try_for_each(|index| index.save(&self.inner.disk));
        checkpoints.latest.durable = dirty.to;
        checkpoints.latest.epochs.clone_from(&plan.epochs);
        match saved.and_then(|()| checkpoints.save()) {
            // The round is durable all the same; a start only has more to scan.
            Err(error) if error.is_disk_full() => return Ok(()),
            saved => saved?,
        }
        drop(checkpoints);
        self.write_ahead().checkpointed(dirty.partition, dirty.to.offset);
        Ok(())
    }
}

type Pieces<'r, D> = Vec<(&'r Dirty<D>, &'r Piece<D>)>;

fn log_small<D: Disk>(
    write_ahead: &mut WriteAhead<D>,
    small: &[(&Dirty<D>, &Piece<D>)],
) -> Result<(), LogError> {
    for (dirty, piece) in small {
        // A truncation raises the generation while it holds the write-ahead file, so no frame of
        // bytes that are gone can follow its forget frame.
        if dirty.is_superseded() {
            continue;
        }
        let frame = Frame {
            kind: FrameKind::Append,
            partition: dirty.partition,
            segment: piece.segment,
            position: piece.from,
            offset: piece.first_offset,
            next_offset: piece.next_offset,
        };
        let bytes = usize::try_from(piece.bytes()).expect("a small extent");
        write_ahead.append(frame, bytes, &piece.file)?;
    }
    if small.is_empty() { Ok(()) } else { write_ahead.sync() }
}

/// Notes what was synced without the write-ahead file. The marks are a help for the judgement of
/// damage, no promise: without room they are left out.
fn log_direct<D: Disk>(
    write_ahead: &mut WriteAhead<D>,
    direct: &[(&Dirty<D>, &Piece<D>)],
) -> Result<(), LogError> {
    let mut mark = || {
        for (dirty, piece) in direct {
            if dirty.is_superseded() {
                continue;
            }
            write_ahead.segment_synced((dirty.partition, piece.segment));
            write_ahead.mark(dirty.partition, piece.segment, piece.to, piece.next_offset)?;
        }
        write_ahead.write_unsynced()
    };
    match mark() {
        Err(error) if error.is_disk_full() => {
            write_ahead.give_up_unwritten();
            Ok(())
        }
        marked => marked,
    }
}
