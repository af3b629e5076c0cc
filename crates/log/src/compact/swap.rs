//! Puts a new segment in the place of those that it was made of; a crash at any call leaves the old
//! ones or the new one.
//!
//! ```text
//!  B.log.cleaned           new, synced; frames about the old segments are void
//!   │ old indexes go; rename ─▶ B-E.swap; sync names         from here on the new one counts
//!   │ the other old segments go; sync names
//!   │ rename ─▶ B.log, indexes ─▶ their names; sync names
//!  B.log
//! ```
//!
//! A start removes what is `.cleaned`, and does the rest where a `.swap` is.

use std::path::Path;

use towpath_model::Offset;

use super::Compacted;
use super::names::{self, CLEANED};
use super::output::{Replacement, remove_cleaned};
use crate::checkpoint::Point;
use crate::disk::Disk;
use crate::error::LogError;
use crate::files::OpenSegment;
use crate::log::Log;
use crate::place::FileKind;
use crate::recover::{remove_index_files, remove_segment_files};

impl<D: Disk> Log<D> {
    /// Puts a group of segments in its place. `false`: the log has changed since the compaction
    /// began, and what it wrote is gone; abandon it then. Whoever reads the old segments goes on.
    ///
    /// # Errors
    /// When the disk fails; then the directory has failed.
    pub fn replace(&mut self, replacement: &Replacement<D>) -> Result<bool, LogError> {
        self.directory.check()?;
        let Some(at) = self.place_of(replacement) else {
            remove_cleaned(self.disk(), &self.path, replacement.summary.base_offset);
            return Ok(false);
        };
        self.swap_files(replacement).inspect_err(|error| self.directory.fail(error))?;
        let gone = at..at + replacement.inputs.len();
        for input in self.segments.splice(gone, [replacement.summary]) {
            self.open.forget(input.base_offset);
            self.unsaved_indexes.retain(|index| index.segment != input.base_offset);
        }
        let base = replacement.summary.base_offset;
        let (file, index) = (replacement.file.clone(), replacement.index.clone());
        self.open.put(base, OpenSegment { file, index });
        for point in [&mut self.durable, &mut self.taken] {
            if point.offset == replacement.end() {
                let position = replacement.summary.bytes;
                *point = Point { segment: Some(base), position, ..*point };
            }
        }
        self.checkpoint_is_due = true;
        self.assert_invariants();
        Ok(true)
    }

    /// Takes note of a compaction's end.
    pub fn compacted(&mut self, compacted: &Compacted) {
        if compacted.generation != self.generation() {
            return;
        }
        self.clean = self.clean.max(compacted.clean).min(self.log_end);
        self.horizon = compacted.horizon;
        self.checkpoints().latest.clean = self.clean;
        self.checkpoint_is_due = true;
    }

    /// Where the replaced segments are, if all of them are as they were.
    fn place_of(&self, replacement: &Replacement<D>) -> Option<usize> {
        let inputs = &replacement.inputs;
        let base = replacement.summary.base_offset;
        let at = self.segments.binary_search_by_key(&base, |segment| segment.base_offset).ok()?;
        let held = self.segments.get(at..at + inputs.len())?;
        let is_same = held.iter().zip(inputs).all(|(held, input)| {
            held.is_sealed
                && (held.base_offset, held.next_offset, held.bytes)
                    == (input.base_offset, input.next_offset, input.bytes)
        });
        (is_same && replacement.generation == self.generation() && self.damage.is_empty())
            .then_some(at)
    }

    fn swap_files(&self, replacement: &Replacement<D>) -> Result<(), LogError> {
        let disk = self.disk();
        let (base, end) = (replacement.summary.base_offset, replacement.end());
        for input in &replacement.inputs {
            remove_index_files(disk, &self.path, input.base_offset)?;
        }
        let written = names::cleaned(FileKind::Segment, &self.path, base);
        let swap = names::swap(&self.path, base, end);
        disk.rename(&written, &swap).map_err(LogError::io("rename", &written))?;
        sync_names(disk, &self.path)?;
        for input in replacement.inputs.iter().skip(1) {
            remove_segment_files(disk, &self.path, input.base_offset)?;
        }
        put_in_place(disk, &self.path, base, end, 1 < replacement.inputs.len())
    }
}

/// The last part, here and in a start: the old segments but the first are gone.
fn put_in_place<D: Disk>(
    disk: &D,
    directory: &Path,
    base: Offset,
    end: Offset,
    has_removed: bool,
) -> Result<(), LogError> {
    if has_removed {
        // Not before they are gone for good: beside the new segment they would be a log of their own.
        sync_names(disk, directory)?;
    }
    let swap = names::swap(directory, base, end);
    let segment = FileKind::Segment.path(directory, base);
    disk.rename(&swap, &segment).map_err(LogError::io("rename", &swap))?;
    for kind in [FileKind::Index, FileKind::TimeIndex] {
        let written = names::cleaned(kind, directory, base);
        if disk.exists(&written).map_err(LogError::io("look for", &written))? {
            let path = kind.path(directory, base);
            disk.rename(&written, &path).map_err(LogError::io("rename", &written))?;
        }
    }
    sync_names(disk, directory)
}

/// After a stop that came in the middle: removes what was not finished, finishes what was. Whether
/// it has changed anything.
pub(crate) fn finish<D: Disk>(
    disk: &D,
    directory: &Path,
    file_names: &[String],
) -> Result<bool, LogError> {
    let mut has_changed = false;
    for name in file_names.iter().filter(|name| name.ends_with(CLEANED)) {
        let path = directory.join(name);
        disk.remove_file(&path).map_err(LogError::io("remove", &path))?;
        has_changed = true;
    }
    for (base, end) in file_names.iter().filter_map(|name| names::swap_range(name)) {
        // The process may have been killed before the name was certain.
        sync_names(disk, directory)?;
        remove_index_files(disk, directory, base)?;
        let bases = file_names.iter().filter_map(|name| FileKind::Segment.offset_in(name));
        for replaced in bases.filter(|old| base < *old && *old < end) {
            remove_segment_files(disk, directory, replaced)?;
        }
        put_in_place(disk, directory, base, end, true)?;
        has_changed = true;
    }
    Ok(has_changed)
}

fn sync_names<D: Disk>(disk: &D, directory: &Path) -> Result<(), LogError> {
    disk.sync_dir(directory).map_err(LogError::io("sync names in", directory))
}
