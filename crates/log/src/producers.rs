//! Snapshots of the producer state, so that a start replays only the headers behind the newest one.
//!
//! What is in them is the replication crate's business. They can always be rebuilt from the log, so
//! they are written aside and renamed, and a damaged one is passed over.

use std::path::Path;

use towpath_model::Offset;
use towpath_model::mutant::{self, Mutant};

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

impl<D: Disk> Log<D> {
    /// Keeps `payload` as the state of all batches below `at`, and drops older snapshots.
    ///
    /// # Errors
    /// When the disk refuses; older snapshots are then still there.
    pub fn save_producers(&mut self, at: Offset, payload: &[u8]) -> Result<(), LogError> {
        self.directory.check()?;
        if !self.has_directory {
            return Ok(());
        }
        let mut bytes = at.0.to_be_bytes().to_vec();
        bytes.extend_from_slice(payload);
        let path = FileKind::Producers.path(&self.path, at);
        envelope::replace_file(self.disk(), &path, &envelope::seal(PRODUCERS, &bytes))?;
        self.bytes_since_snapshot = 0;
        let saved = self.producers_on_disk()?;
        let obsolete = saved.len().saturating_sub(KEPT);
        self.remove_producers(&saved[..obsolete])
    }

    /// The newest readable snapshot of an offset in `[log start, at_most]`.
    #[must_use]
    pub fn load_producers(&self, at_most: Offset) -> Option<(Offset, Vec<u8>)> {
        let saved = self.producers_on_disk().ok()?;
        let usable = saved.iter().rev().filter(|at| self.log_start <= **at && **at <= at_most);
        usable.filter_map(|at| Some((*at, self.read_producers(*at)?))).next()
    }

    fn read_producers(&self, at: Offset) -> Option<Vec<u8>> {
        read(self.disk(), &self.path, at).ok()?
    }

    fn producers_on_disk(&self) -> Result<Vec<Offset>, LogError> {
        if !self.has_directory {
            return Ok(Vec::new());
        }
        let names = self.disk().list(&self.path).map_err(LogError::io("list", &self.path))?;
        let mut saved: Vec<Offset> =
            names.iter().filter_map(|name| FileKind::Producers.offset_in(name)).collect();
        saved.sort_unstable();
        Ok(saved)
    }

    fn remove_producers(&self, offsets: &[Offset]) -> Result<(), LogError> {
        for at in offsets {
            let path = FileKind::Producers.path(&self.path, *at);
            self.disk().remove_file(&path).map_err(LogError::io("remove", &path))?;
        }
        Ok(())
    }

    /// States of a log that has been cut since.
    pub(crate) fn remove_producers_above(&self, end: Offset) -> Result<(), LogError> {
        if mutant::is_on(Mutant::CutSnapshotKept) {
            return Ok(());
        }
        let saved = self.producers_on_disk()?;
        self.remove_producers(&saved[saved.partition_point(|at| *at <= end)..])
    }

    /// States that no start will use; the newest one stays, for it may be the only one.
    pub(crate) fn remove_producers_below(&self, start: Offset) -> Result<(), LogError> {
        let saved = self.producers_on_disk()?;
        let below = saved.partition_point(|at| *at < start);
        self.remove_producers(&saved[..below.min(saved.len().saturating_sub(1))])
    }
}
