//! Snapshots of the producer state, so that a start replays only the headers behind the newest one.
//!
//! What is in them is the replication crate's business. They can always be rebuilt from the log, so
//! they are written aside and renamed, and a damaged one is passed over.

use std::path::Path;
use std::sync::{Arc, Mutex};

use towpath_model::Offset;
use towpath_model::mutant::{self, Mutant};

use crate::directory::{DataDirectory, lock_of};
use crate::disk::Disk;
use crate::envelope::{self, Kind, Payload};
use crate::error::LogError;
use crate::log::Log;
use crate::place::FileKind;

const PRODUCERS: Kind = *b"TPpr";
const BYTES_MAX: u64 = 256 << 20;
/// Snapshots that are kept: the newest, and one in case it is damaged or truncated away.
const KEPT: usize = 2;

/// Whether a snapshot is what was written.
pub(crate) fn is_readable<D: Disk>(
    disk: &D,
    directory: &Path,
    at: Offset,
) -> Result<bool, LogError> {
    Ok(read(disk, directory, at)?.is_some())
}

fn read<D: Disk>(disk: &D, directory: &Path, at: Offset) -> Result<Option<Vec<u8>>, LogError> {
    let path = FileKind::Producers.path(directory, at);
    let Some(bytes) = envelope::read_file(disk, &path, BYTES_MAX)? else { return Ok(None) };
    let Ok(payload) = envelope::open(PRODUCERS, &bytes) else { return Ok(None) };
    let mut payload = Payload(payload);
    Ok((payload.i64() == Some(at.0)).then(|| payload.0.to_vec()))
}

/// Where a log keeps its snapshots. It works without the partition's lock. Several may be at work at
/// once (the upkeep, retention, whoever deletes records), and take turns.
pub struct Snapshots<D: Disk> {
    directory: DataDirectory<D>,
    path: Arc<Path>,
    /// What of the log was durable.
    durable: Offset,
    /// Held while files are written or removed: of two that write the same snapshot, one would rename
    /// the other's unfinished file.
    turn: Arc<Mutex<()>>,
}

impl<D: Disk> Snapshots<D> {
    /// Keeps `payload` as the state of all batches below `at`, and drops older snapshots.
    ///
    /// # Errors
    /// When the disk refuses; older snapshots are then still there.
    pub fn save(&self, at: Offset, payload: &[u8]) -> Result<(), LogError> {
        let _turn = lock_of(&self.turn);
        self.directory.check()?;
        let mut bytes = at.0.to_be_bytes().to_vec();
        bytes.extend_from_slice(payload);
        let path = FileKind::Producers.path(&self.path, at);
        envelope::replace_file(self.disk(), &path, &envelope::seal(PRODUCERS, &bytes))?;
        let saved = self.on_disk()?;
        // One of an offset that is not durable is of no use when the records before it are lost.
        let durable = saved.partition_point(|saved| *saved <= self.durable).max(1) - 1;
        let obsolete = saved.len().saturating_sub(KEPT).min(durable);
        self.remove(&saved[..obsolete])
    }

    /// States of a log that has been cut since.
    fn remove_above(&self, end: Offset) -> Result<(), LogError> {
        if mutant::is_on(Mutant::CutSnapshotKept) {
            return Ok(());
        }
        let _turn = lock_of(&self.turn);
        let saved = self.on_disk()?;
        self.remove(&saved[saved.partition_point(|at| *at <= end)..])
    }

    /// States that no start will use; the newest one stays, for it may be the only one.
    pub(crate) fn remove_below(&self, start: Offset) -> Result<(), LogError> {
        let _turn = lock_of(&self.turn);
        let saved = self.on_disk()?;
        let below = saved.partition_point(|at| *at < start);
        self.remove(&saved[..below.min(saved.len().saturating_sub(1))])
    }

    fn read(&self, at: Offset) -> Option<Vec<u8>> {
        read(self.disk(), &self.path, at).ok()?
    }

    fn on_disk(&self) -> Result<Vec<Offset>, LogError> {
        let names = self.disk().list(&self.path).map_err(LogError::io("list", &self.path))?;
        let mut saved: Vec<Offset> =
            names.iter().filter_map(|name| FileKind::Producers.offset_in(name)).collect();
        saved.sort_unstable();
        Ok(saved)
    }

    fn remove(&self, offsets: &[Offset]) -> Result<(), LogError> {
        for at in offsets {
            let path = FileKind::Producers.path(&self.path, *at);
            self.disk().remove_file(&path).map_err(LogError::io("remove", &path))?;
        }
        Ok(())
    }

    fn disk(&self) -> &D {
        &self.directory.inner.disk
    }
}

impl<D: Disk> Log<D> {
    /// Where this log's snapshots are; `None` when it has no directory yet. Whoever asks saves one.
    pub fn snapshots_to_save(&mut self) -> Option<Snapshots<D>> {
        self.bytes_since_snapshot = 0;
        self.snapshots()
    }

    pub(crate) fn snapshots(&self) -> Option<Snapshots<D>> {
        let (directory, path) = (self.directory.clone(), Arc::clone(&self.path));
        let (durable, turn) = (self.durable.offset, Arc::clone(&self.snapshots_turn));
        self.has_directory.then_some(Snapshots { directory, path, durable, turn })
    }

    /// Keeps `payload` as the state of all batches below `at`, and drops older snapshots.
    ///
    /// # Errors
    /// When the disk refuses; older snapshots are then still there.
    pub fn save_producers(&mut self, at: Offset, payload: &[u8]) -> Result<(), LogError> {
        self.snapshots_to_save().map_or(Ok(()), |snapshots| snapshots.save(at, payload))
    }

    /// The newest readable snapshot of an offset in `[log start, at_most]`.
    #[must_use]
    pub fn load_producers(&self, at_most: Offset) -> Option<(Offset, Vec<u8>)> {
        let snapshots = self.snapshots()?;
        let saved = snapshots.on_disk().ok()?;
        let usable = saved.iter().rev().filter(|at| self.log_start <= **at && **at <= at_most);
        usable.filter_map(|at| Some((*at, snapshots.read(*at)?))).next()
    }

    /// States of a log that has been cut since.
    pub(crate) fn remove_producers_above(&self, end: Offset) -> Result<(), LogError> {
        self.snapshots().map_or(Ok(()), |snapshots| snapshots.remove_above(end))
    }
}
