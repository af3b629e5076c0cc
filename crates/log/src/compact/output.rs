//! A new segment while it is written, beside those whose place it will take.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use towpath_model::mutant::{self, Mutant};
use towpath_model::{Offset, TopicPartition};
use towpath_records::{BatchHeader, without_records};

use super::CompactionError;
use super::names;
use crate::disk::{Disk, DiskFile};
use crate::error::LogError;
use crate::index::{Indexed, SparseIndex};
use crate::place::FileKind;
use crate::segment::Summary;

/// Bytes that are gathered before they are written.
const BUFFER_BYTES: usize = 256 << 10;
/// Positions in a segment are told in 31 bits.
const SEGMENT_BYTES_MAX: u64 = i32::MAX as u64;

pub(super) struct Output<D: Disk> {
    disk: D,
    directory: PathBuf,
    path: PathBuf,
    file: Arc<D::File>,
    buffer: Vec<u8>,
    summary: Summary,
    index: SparseIndex,
    inputs: Vec<Summary>,
    /// The last batch that left nothing, without its records: written if no other follows it.
    tail: Option<BatchHeader>,
    /// Whether anything but the borders of segments will be different.
    is_changed: bool,
}

/// A new segment, whole and durable under a name that a start removes. [`crate::Log::replace`] gives
/// it its place.
pub struct Replacement<D: Disk> {
    pub(crate) partition: TopicPartition,
    pub(crate) generation: u64,
    /// What it replaces; contiguous.
    pub(crate) inputs: Vec<Summary>,
    pub(crate) summary: Summary,
    pub(crate) file: Arc<D::File>,
    pub(crate) index: Arc<SparseIndex>,
}

impl<D: Disk> Replacement<D> {
    /// Whose segments are replaced.
    #[must_use]
    pub fn partition(&self) -> TopicPartition {
        self.partition
    }

    /// How many segments it replaces.
    #[must_use]
    pub fn replaced(&self) -> usize {
        self.inputs.len()
    }

    pub(crate) fn end(&self) -> Offset {
        self.summary.next_offset
    }
}

impl<D: Disk> std::fmt::Debug for Replacement<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replacement")
            .field("partition", &self.partition)
            .field("inputs", &self.inputs.len())
            .field("summary", &self.summary)
            .finish_non_exhaustive()
    }
}

impl<D: Disk> Output<D> {
    pub(super) fn begin(
        disk: &D,
        directory: &Path,
        base: Offset,
        index_interval_bytes: u32,
    ) -> Result<Self, LogError> {
        let path = names::cleaned(FileKind::Segment, directory, base);
        let file = create(disk, &path).map_err(LogError::io("create", &path))?;
        Ok(Output {
            disk: disk.clone(),
            directory: directory.to_owned(),
            path,
            file: Arc::new(file),
            buffer: Vec::new(),
            summary: Summary::empty(base),
            index: SparseIndex::new(index_interval_bytes),
            inputs: Vec::new(),
            tail: None,
            is_changed: false,
        })
    }

    /// What follows comes from this segment.
    pub(super) fn begin_input(&mut self, input: &Summary) {
        self.inputs.push(*input);
    }

    /// Whether a further segment fits, if all of it stays.
    pub(super) fn has_room_for(&self, input: &Summary, segment_bytes: u32) -> bool {
        let bytes = self.summary.bytes + input.bytes;
        let span = input.next_offset - self.summary.base_offset;
        bytes <= u64::from(segment_bytes).min(SEGMENT_BYTES_MAX) && span <= i64::from(i32::MAX)
    }

    /// Base offset of the new segment.
    pub(super) fn base_offset(&self) -> Offset {
        self.summary.base_offset
    }

    /// Bytes of the new segment so far.
    pub(super) fn bytes(&self) -> u64 {
        self.summary.bytes
    }

    pub(super) fn copy(
        &mut self,
        header: &BatchHeader,
        batch: &[u8],
    ) -> Result<(), CompactionError> {
        self.tail = None;
        self.put(header, batch)
    }

    /// A batch in another form than it had.
    pub(super) fn put_changed(
        &mut self,
        header: &BatchHeader,
        batch: &[u8],
    ) -> Result<(), CompactionError> {
        self.is_changed = true;
        self.copy(header, batch)
    }

    /// A batch of which nothing stays.
    pub(super) fn skip(&mut self, header: &BatchHeader) {
        self.is_changed = true;
        self.tail = Some(*header);
    }

    fn put(&mut self, header: &BatchHeader, batch: &[u8]) -> Result<(), CompactionError> {
        let position = self.summary.bytes;
        if SEGMENT_BYTES_MAX < position + batch.len() as u64 {
            return Err(CompactionError::TooLarge { base: self.summary.base_offset });
        }
        self.index.note(&Indexed {
            segment: self.summary.base_offset,
            base_offset: header.base_offset(),
            position,
            bytes: batch.len() as u64,
            max_timestamp_before: self.summary.max_timestamp,
        });
        self.summary.note(header);
        self.buffer.extend_from_slice(batch);
        if BUFFER_BYTES <= self.buffer.len() {
            self.write()?;
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), LogError> {
        let position = self.summary.bytes - self.buffer.len() as u64;
        self.file
            .write_at(&[IoSlice::new(&self.buffer)], position)
            .map_err(LogError::io("write", &self.path))?;
        self.buffer.clear();
        Ok(())
    }

    /// Makes the new segment whole and durable, with its indexes. `None`: it is the only segment
    /// that it is made of, and its files are gone again.
    pub(super) fn finish(
        mut self,
        partition: TopicPartition,
        generation: u64,
    ) -> Result<Option<Replacement<D>>, CompactionError> {
        if let Some(tail) = self.tail.take() {
            let batch = without_records(&tail);
            let header = BatchHeader::parse(&batch).expect("made from a header");
            self.put(&header, &batch)?;
        }
        if !self.is_changed && self.inputs.len() == 1 {
            self.abandon();
            return Ok(None);
        }
        self.write()?;
        if !mutant::is_on(Mutant::SwapBeforeSync) {
            self.file.sync_data().map_err(LogError::io("sync", &self.path))?;
        }
        self.summary.is_sealed = true;
        self.summary.first_append = self.inputs.iter().filter_map(|input| input.first_append).min();
        self.summary.last_append = self.inputs.iter().filter_map(|input| input.last_append).max();
        self.write_indexes()?;
        Ok(Some(Replacement {
            partition,
            generation,
            inputs: self.inputs,
            summary: self.summary,
            file: self.file,
            index: Arc::new(self.index),
        }))
    }

    fn write_indexes(&self) -> Result<(), LogError> {
        let files = [
            (FileKind::Index, self.index.encode_offsets(&self.summary)),
            (FileKind::TimeIndex, self.index.encode_times()),
        ];
        for (kind, bytes) in files {
            let path = names::cleaned(kind, &self.directory, self.summary.base_offset);
            let write = || {
                let file = create(&self.disk, &path)?;
                file.write_at(&[IoSlice::new(&bytes)], 0)?;
                file.sync_data()
            };
            write().map_err(LogError::io("write", &path))?;
        }
        Ok(())
    }

    /// Removes what was written, as far as that works; a start removes the rest.
    pub(super) fn abandon(&self) {
        remove_cleaned(&self.disk, &self.directory, self.summary.base_offset);
    }
}

/// Removes the unfinished files of the new segment at `base`, as far as that works.
pub(super) fn remove_cleaned<D: Disk>(disk: &D, directory: &Path, base: Offset) {
    for kind in [FileKind::Segment, FileKind::Index, FileKind::TimeIndex] {
        let path = names::cleaned(kind, directory, base);
        if disk.exists(&path).unwrap_or(false) {
            let _ = disk.remove_file(&path);
        }
    }
}

/// A new file; one that an earlier attempt has left is emptied.
fn create<D: Disk>(disk: &D, path: &Path) -> io::Result<D::File> {
    if !disk.exists(path)? {
        return disk.create(path);
    }
    let file = disk.open(path)?;
    file.truncate(0)?;
    Ok(file)
}
