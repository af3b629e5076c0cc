//! Finds the file region that holds some records.
//!
//! Whole batches, as stored, inside one segment: so that a fetch answer can be sent from the file
//! without a copy. A lookup walks from an index entry, at most an index interval; the newest
//! batch, which most readers wait for, is found without any read.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use towpath_model::{LeaderEpoch, Offset};
use towpath_records::BatchHeader;

use crate::damage::DamageList;
use crate::disk::{Disk, DiskFile};
use crate::envelope::{read_full, read_resident};
use crate::error::{LogError, ReadError};
use crate::files::OpenSegment;
use crate::index::{self, Indexed, SparseIndex};
use crate::log::Log;
use crate::place::FileKind;
use crate::scan::{Found, SMALL_BUFFER, Scan};
use crate::segment::Summary;
use crate::warm_up::{WarmUp, Warmed};

/// What was appended last is in memory: it was written a moment ago.
const RECENT_BYTES: u64 = 32 << 20;

/// A region of a segment file that holds whole batches. It stays readable while it is held, even
/// when the segment is removed.
pub struct Slice<D: Disk> {
    /// The segment's file.
    pub file: Arc<D::File>,
    /// Where the region begins.
    pub position: u64,
    /// Its length in bytes, at least one batch.
    pub len: usize,
    /// Base offset of its first batch; may lie before the offset that was asked for.
    pub first_offset: Offset,
    /// First offset after it.
    pub next_offset: Offset,
}

impl<D: Disk> Slice<D> {
    /// Reads the region.
    ///
    /// # Errors
    /// When the disk fails or the file was cut meanwhile.
    pub fn read(&self) -> std::io::Result<Bytes> {
        self.read_by(|bytes| read_full(&*self.file, bytes, self.position))
    }

    /// As [`Slice::read`], but fails with `WouldBlock` before it waits for the device.
    ///
    /// # Errors
    /// Those of [`Slice::read`], and that one.
    pub fn read_resident(&self) -> std::io::Result<Bytes> {
        self.read_by(|bytes| read_resident(&*self.file, bytes, self.position))
    }

    fn read_by(
        &self,
        read: impl FnOnce(&mut [u8]) -> std::io::Result<usize>,
    ) -> std::io::Result<Bytes> {
        let mut bytes = vec![0; self.len];
        if read(&mut bytes)? < self.len {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        Ok(bytes.into())
    }
}

impl<D: Disk> Clone for Slice<D> {
    fn clone(&self) -> Self {
        Slice { file: Arc::clone(&self.file), ..*self }
    }
}

impl<D: Disk> std::fmt::Debug for Slice<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slice")
            .field("position", &self.position)
            .field("len", &self.len)
            .field("first_offset", &self.first_offset)
            .field("next_offset", &self.next_offset)
            .finish_non_exhaustive()
    }
}

/// A segment that can be read.
pub(crate) struct Opened<'l, D: Disk> {
    pub(crate) summary: Summary,
    pub(crate) file: Arc<D::File>,
    pub(crate) index: IndexOf<'l>,
    /// Positions before this are read only if they are in memory.
    pub(crate) resident_only_before: u64,
}

/// The active segment's index belongs to the log, a sealed one's is shared.
pub(crate) enum IndexOf<'l> {
    Active(&'l SparseIndex),
    Sealed(Arc<SparseIndex>),
}

impl Deref for IndexOf<'_> {
    type Target = SparseIndex;

    fn deref(&self) -> &SparseIndex {
        match self {
            IndexOf::Active(index) => index,
            IndexOf::Sealed(index) => index,
        }
    }
}

/// A batch that was found.
#[derive(Debug, Clone, Copy)]
struct Start {
    base_offset: Offset,
    next_offset: Offset,
    position: u64,
    bytes: u64,
}

impl Start {
    fn of(header: &BatchHeader, position: u64) -> Start {
        Start {
            base_offset: header.base_offset(),
            next_offset: header.next_offset(),
            position,
            bytes: header.size_in_bytes() as u64,
        }
    }
}

/// For whom batches are looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reader {
    Client,
    Replica,
}

impl Reader {
    fn sees(self, header: &BatchHeader) -> bool {
        self == Reader::Replica || 0 < header.record_count()
    }
}

/// How much is looked up.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    end: Offset,
    max_bytes: usize,
    at_least_one_batch: bool,
    by: Reader,
}

impl Wanted {
    fn by_replica(max_bytes: usize) -> Wanted {
        let end = Offset(i64::MAX);
        Wanted { end, max_bytes, at_least_one_batch: true, by: Reader::Replica }
    }
}

impl<D: Disk> Log<D> {
    /// Finds records from `from` on: whole batches that end at or below `end` and have at most
    /// `max_bytes` together, beginning with the batch that contains `from`. When already the first
    /// one is larger, it is returned alone if `at_least_one_batch`. `None` when there is nothing
    /// to return.
    ///
    /// Batches in which a compaction has left no record are passed over: several clients (kafkajs,
    /// kafka-go, older kafka-python) stop at one for ever. A replica needs them:
    /// [`Log::read_for_replica`].
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn read(
        &self,
        from: Offset,
        end: Offset,
        max_bytes: usize,
        at_least_one_batch: bool,
    ) -> Result<Option<Slice<D>>, ReadError> {
        let wanted = Wanted { end, max_bytes, at_least_one_batch, by: Reader::Client };
        self.find(from, wanted, true)
    }

    /// As [`Log::read`], but waits for no device: [`ReadError::NotResident`] says that the records, or
    /// what leads to them, must be brought into memory first, by [`Log::warm_up`].
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn read_resident(
        &self,
        from: Offset,
        end: Offset,
        max_bytes: usize,
        at_least_one_batch: bool,
    ) -> Result<Option<Slice<D>>, ReadError> {
        let wanted = Wanted { end, max_bytes, at_least_one_batch, by: Reader::Client };
        self.find(from, wanted, false)
    }

    /// Finds what a replica whose log ends at `from` lacks, up to the end of this log: whole batches,
    /// also those without records, the first one at or after `from`. At most `max_bytes` together,
    /// but at least one batch. `None` when there is nothing. A replica may begin before the log
    /// start, at [`Log::first_batch_offset`].
    ///
    /// # Errors
    /// [`ReadError`]; `OutOfRange` also where `from` lies inside of a batch: no log that agrees with
    /// this one ends there.
    pub fn read_for_replica(
        &self,
        from: Offset,
        max_bytes: usize,
    ) -> Result<Option<Slice<D>>, ReadError> {
        self.find(from, Wanted::by_replica(max_bytes), true)
    }

    /// As [`Log::read_for_replica`], but waits for no device.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn read_resident_for_replica(
        &self,
        from: Offset,
        max_bytes: usize,
    ) -> Result<Option<Slice<D>>, ReadError> {
        self.find(from, Wanted::by_replica(max_bytes), false)
    }

    /// Base offset of the batch that holds the record at the log start, where a replica that holds
    /// nothing begins; the log start, where that is the beginning of a batch or no batch holds it.
    ///
    /// # Errors
    /// When the batch cannot be read.
    pub fn first_batch_offset(&self) -> Result<Offset, ReadError> {
        let start = self.log_start;
        let first = self.segments.partition_point(|segment| segment.next_offset <= start);
        match self.segments.get(first) {
            Some(segment) if segment.base_offset < start && self.damage.at(start).is_none() => {
                let opened = self.open_segment(first)?;
                let found = self.batch_at(&opened, start, Reader::Replica)?;
                Ok(found.map_or(start, |found| found.base_offset.min(start)))
            }
            _ => Ok(start),
        }
    }

    /// Leader epoch of the last record before `offset`; `None` where the log has none.
    #[must_use]
    pub fn leader_epoch_before(&self, offset: Offset) -> Option<LeaderEpoch> {
        let begun = self.epochs.partition_point(|(_, first)| *first < offset);
        let last = begun.checked_sub(1).filter(|_| self.log_start < offset)?;
        Some(self.epochs[last].0)
    }

    fn find(
        &self,
        from: Offset,
        wanted: Wanted,
        may_wait: bool,
    ) -> Result<Option<Slice<D>>, ReadError> {
        let Wanted { end, by, .. } = wanted;
        let out_of_range = || ReadError::OutOfRange { start: self.log_start, end: self.log_end };
        if self.log_end < from || (from < self.log_start && by == Reader::Client) {
            return Err(out_of_range());
        }
        if let Some(damage) = self.damage.at(from) {
            return Err(ReadError::CorruptBatch { from: damage.from, to: damage.to });
        }
        let next_damage = self.damage.next_after(from);
        let readable = end.min(self.log_end);
        let end = readable.min(next_damage.unwrap_or(self.log_end));
        if end <= from {
            return Ok(None);
        }
        // Not silence, where only batches without records lie before the damage.
        let nothing = || match self.damage.iter().find(|damage| damage.from == end) {
            Some(damage) if end < readable => {
                Err(ReadError::CorruptBatch { from: damage.from, to: damage.to })
            }
            _ if from < self.log_start => Err(out_of_range()),
            _ => Ok(None),
        };
        let first = self.segments.partition_point(|segment| segment.next_offset <= from);
        for at in first..self.segments.len() {
            let opened = if may_wait { self.open_segment(at)? } else { self.open_resident(at)? };
            let resident_only_before = opened.resident_only_before;
            let Some(start) = self.batch_at(&opened, from, by)? else { continue };
            if by == Reader::Replica && (start.base_offset < from || self.is_deleted(from, &start))
            {
                return Err(out_of_range());
            }
            if end < start.next_offset {
                return nothing();
            }
            let segment_end = opened.summary.next_offset;
            let slice = self.slice(opened, start, Wanted { end, ..wanted })?;
            // Headers are walked without their checksums: damage since the last check must not
            // send a reader back, or beyond what it may see.
            if slice.as_ref().is_some_and(|s| s.next_offset <= from || end < s.next_offset) {
                return Err(ReadError::CorruptBatch { from, to: segment_end });
            }
            if let Some(slice) = slice.as_ref().filter(|s| s.position < resident_only_before) {
                // The walk has seen its beginning, and not always its end.
                let last = slice.position + slice.len as u64 - 1;
                let probed = slice.file.read_resident_at(&mut [0], last);
                let path = FileKind::Segment.path(&self.path, self.segments[at].base_offset);
                probed.map_err(LogError::io("read", &path))?;
            }
            return Ok(slice);
        }
        nothing()
    }

    /// Whether a replica that ends at `from`, below the log start, would miss what lies between.
    fn is_deleted(&self, from: Offset, found: &Start) -> bool {
        from < self.log_start && (found.base_offset != from || found.next_offset <= self.log_start)
    }

    fn slice(
        &self,
        opened: Opened<'_, D>,
        start: Start,
        wanted: Wanted,
    ) -> Result<Option<Slice<D>>, ReadError> {
        let (mut to, mut next_offset) = self.last_fitting(&opened, start, wanted)?;
        if to == start.position {
            if !wanted.at_least_one_batch {
                return Ok(None);
            }
            (to, next_offset) = (start.position + start.bytes, start.next_offset);
        }
        Ok(Some(Slice {
            file: opened.file,
            position: start.position,
            len: usize::try_from(to - start.position).expect("a segment has fewer than 2^31 bytes"),
            first_offset: start.base_offset,
            next_offset,
        }))
    }

    /// The batch of a segment that contains `from`, or the first one after it.
    fn batch_at(
        &self,
        opened: &Opened<'_, D>,
        from: Offset,
        by: Reader,
    ) -> Result<Option<Start>, ReadError> {
        if let Some(last) = self.last_batch
            && !opened.summary.is_sealed
            && last.base_offset == from
        {
            return Ok(Some(Start {
                base_offset: from,
                next_offset: self.log_end,
                position: last.position,
                bytes: opened.summary.bytes - last.position,
            }));
        }
        let position = self.walk_from(opened, from);
        let mut scan = Scan::headers(position, opened.summary.bytes, SMALL_BUFFER);
        loop {
            match self.step(&mut scan, opened)? {
                Found::Batch { header, position, .. }
                    if from < header.next_offset() && by.sees(&header) =>
                {
                    return Ok(Some(Start::of(&header, position)));
                }
                Found::Batch { .. } => {}
                Found::End => return Ok(None),
                Found::Invalid => {
                    let to = opened.summary.next_offset;
                    return Err(ReadError::CorruptBatch { from, to });
                }
            }
        }
    }

    /// A position at or before the batch that contains `offset`, behind any damage before it.
    pub(crate) fn walk_from(&self, opened: &Opened<'_, D>, offset: Offset) -> u64 {
        walk_from(&opened.index, &self.damage, opened.summary.base_offset, offset)
    }

    /// Where the longest run of whole batches from `start` ends that fits, and the offset after it.
    fn last_fitting(
        &self,
        opened: &Opened<'_, D>,
        start: Start,
        wanted: Wanted,
    ) -> Result<(u64, Offset), ReadError> {
        let Wanted { end, max_bytes, by, .. } = wanted;
        let summary = &opened.summary;
        let limit = start.position.saturating_add(max_bytes as u64);
        let is_dense = by == Reader::Replica || !summary.has_empty_batches;
        if is_dense && summary.next_offset <= end && summary.bytes <= limit {
            return Ok((summary.bytes, summary.next_offset));
        }
        let base = summary.base_offset;
        let by_bytes = opened.index.at_or_before_position(base, limit);
        let by_offset = opened.index.at_or_before(base, end);
        let (offset, position) = if by_bytes.1 < by_offset.1 { by_bytes } else { by_offset };
        let mut fitting = if is_dense && start.position < position {
            (position, offset)
        } else {
            (start.position, start.base_offset)
        };
        let mut scan = Scan::headers(fitting.0, summary.bytes, SMALL_BUFFER);
        while let Found::Batch { header, position, .. } = self.step(&mut scan, opened)? {
            let to = position + header.size_in_bytes() as u64;
            let follows = fitting.1 <= header.base_offset() && by.sees(&header);
            if !follows || end < header.next_offset() || limit < to {
                break;
            }
            fitting = (to, header.next_offset());
        }
        Ok(fitting)
    }

    pub(crate) fn step<'s>(
        &self,
        scan: &'s mut Scan,
        opened: &Opened<'_, D>,
    ) -> Result<Found<'s>, LogError> {
        scan.read_only_resident_before(opened.resident_only_before);
        scan.next(&*opened.file).map_err(|source| {
            let path = FileKind::Segment.path(&self.path, opened.summary.base_offset);
            LogError::io("read", &path)(source)
        })
    }

    /// Opens the `at`-th segment, unless it is open.
    pub(crate) fn open_segment(&self, at: usize) -> Result<Opened<'_, D>, LogError> {
        let summary = self.segments[at];
        if let (false, Some(active)) = (summary.is_sealed, &self.active) {
            let (file, index) = (Arc::clone(&active.file), IndexOf::Active(&active.index));
            return Ok(Opened { summary, file, index, resident_only_before: 0 });
        }
        let base = summary.base_offset;
        let open = match self.open.get(base) {
            Some(open) => open,
            None => {
                let interval = self.config.index_interval_bytes;
                let open = open_sealed(self.disk(), &self.path, &summary, interval)?;
                self.open.put(base, open.clone());
                open
            }
        };
        let (file, index) = (open.file, IndexOf::Sealed(open.index));
        Ok(Opened { summary, file, index, resident_only_before: 0 })
    }

    /// The `at`-th segment, if nothing of it has to be fetched for that. What was appended last is in
    /// memory and needs no probe.
    fn open_resident(&self, at: usize) -> Result<Opened<'_, D>, ReadError> {
        let summary = &self.segments[at];
        if summary.is_sealed && self.open.get(summary.base_offset).is_none() {
            return Err(ReadError::NotResident);
        }
        let later = &self.segments[at + 1..];
        let later_bytes = match later.len() {
            0..=2 => later.iter().map(|segment| segment.bytes).sum(),
            _ => RECENT_BYTES,
        };
        let recent = RECENT_BYTES.saturating_sub(later_bytes);
        let mut opened = self.open_segment(at)?;
        opened.resident_only_before = opened.summary.bytes.saturating_sub(recent);
        Ok(opened)
    }

    /// What it takes to bring about `max_bytes` of records from `from` on into memory. `None`: there
    /// are none.
    #[must_use]
    pub fn warm_up(&self, from: Offset, max_bytes: usize) -> Option<WarmUp<D>> {
        let at = self.segments.partition_point(|segment| segment.next_offset <= from);
        let summary = *self.segments.get(at)?;
        let base = summary.base_offset;
        let active = match &self.active {
            Some(active) if !summary.is_sealed => {
                let (_, position) = active.index.at_or_before(base, from.max(base));
                Some((Arc::clone(&active.file), position))
            }
            _ => None,
        };
        Some(WarmUp {
            disk: self.disk().clone(),
            path: Arc::clone(&self.path),
            interval: self.config.index_interval_bytes,
            sealed: self.open.get(base),
            active,
            summary,
            from: from.max(base),
            bytes: max_bytes as u64,
        })
    }

    /// Keeps what a [`WarmUp`] has opened, unless the segment has been replaced meanwhile: the index of
    /// one and the file of the other do not belong together.
    pub fn keep_open(&self, warmed: Warmed<D>) {
        if self.segments.contains(&warmed.summary) {
            self.open.put(warmed.summary.base_offset, warmed.open);
        }
    }
}

/// A position of the segment at `base` at or before the batch that contains `offset`, behind any
/// damage before it.
pub(crate) fn walk_from(
    index: &SparseIndex,
    damage: &DamageList,
    base: Offset,
    offset: Offset,
) -> u64 {
    let (_, indexed) = index.at_or_before(base, offset.max(base));
    let behind_damage = damage.iter().filter(|damage| damage.to <= offset);
    let resumed = behind_damage.filter_map(|damage| damage.resume).filter(|(s, _)| *s == base);
    resumed.map(|(_, position)| position).fold(indexed, u64::max)
}

pub(crate) fn open_sealed<D: Disk>(
    disk: &D,
    directory: &Path,
    summary: &Summary,
    interval_bytes: u32,
) -> Result<OpenSegment<D::File>, LogError> {
    let path = FileKind::Segment.path(directory, summary.base_offset);
    let file = disk.open(&path).map_err(LogError::io("open", &path))?;
    let index = match index::load(disk, directory, summary, interval_bytes)? {
        Some(index) => index,
        None => index_of(&file, summary, interval_bytes).map_err(LogError::io("read", &path))?,
    };
    Ok(OpenSegment { file: Arc::new(file), index: Arc::new(index) })
}

/// Builds an index by walking a segment's headers.
pub(crate) fn index_of(
    file: &impl DiskFile,
    summary: &Summary,
    interval_bytes: u32,
) -> std::io::Result<SparseIndex> {
    let mut index = SparseIndex::new(interval_bytes);
    let mut walked = Summary::empty(summary.base_offset);
    let mut scan = Scan::headers(0, summary.bytes, crate::scan::LARGE_BUFFER);
    while let Found::Batch { header, position, .. } = scan.next(file)? {
        // A damaged header may say anything; an index only names places inside the segment.
        if header.base_offset() < walked.next_offset || summary.next_offset < header.next_offset() {
            break;
        }
        index.note(&Indexed {
            segment: summary.base_offset,
            base_offset: header.base_offset(),
            position,
            bytes: header.size_in_bytes() as u64,
            max_timestamp_before: walked.max_timestamp,
        });
        walked.note(&header);
    }
    Ok(index)
}
