//! Sparse index of one segment: offset → position and timestamp → offset, in memory and as files.
//!
//! ```text
//! offsets:  (o, p)   the batch at position p has base offset o
//! times:    (t, o)   every record before o has a timestamp ≤ t
//! ```
//!
//! Offsets are kept relative to the segment's base. The index of the active segment lives in memory
//! and must stay small however large the segment gets: past [`ENTRIES_MAX`] every second entry goes
//! and the interval doubles. A lookup then walks a little further; nothing else changes.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};

use towpath_model::{Offset, Timestamp};

use crate::disk::{Disk, DiskFile};
use crate::envelope::{self, HEADER_LEN, Kind, Payload};
use crate::error::LogError;
use crate::place::FileKind;
use crate::segment::Summary;

const SUMMARY: Kind = *b"TPix";
const OFFSETS: Kind = *b"TPie";
const TIMES: Kind = *b"TPtx";
const SUMMARY_LEN: usize = 65;
/// Flags in a summary's last byte.
const SEALED: u8 = 1;
const HAS_EMPTY_BATCHES: u8 = 2;
/// Bytes of the first envelope of an `.index` file: enough to know the segment without its entries.
pub(crate) const SUMMARY_FILE_LEN: usize = HEADER_LEN + SUMMARY_LEN;
/// Most entries of each kind.
pub(crate) const ENTRIES_MAX: usize = 16_384;
/// Most bytes that an index file of ours can have.
pub(crate) const FILE_BYTES_MAX: u64 = (256 + 12 * (ENTRIES_MAX + 1)) as u64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct OffsetEntry {
    relative: u32,
    position: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TimeEntry {
    timestamp: i64,
    relative: u32,
}

/// A sparse index.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SparseIndex {
    interval_bytes: u64,
    bytes_since_entry: u64,
    offsets: Vec<OffsetEntry>,
    times: Vec<TimeEntry>,
}

/// A batch as the index sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Indexed {
    /// Base offset of the segment.
    pub(crate) segment: Offset,
    /// Base offset of the batch.
    pub(crate) base_offset: Offset,
    /// Where the batch begins.
    pub(crate) position: u64,
    /// Its size.
    pub(crate) bytes: u64,
    /// Maximum timestamp of everything before it in the segment.
    pub(crate) max_timestamp_before: Timestamp,
}

fn relative(segment: Offset, offset: Offset) -> u32 {
    u32::try_from(offset - segment).expect("a segment spans fewer than 2^32 offsets")
}

impl SparseIndex {
    pub(crate) fn new(interval_bytes: u32) -> SparseIndex {
        SparseIndex { interval_bytes: u64::from(interval_bytes), ..SparseIndex::default() }
    }

    /// Takes note of a batch that was appended.
    pub(crate) fn note(&mut self, batch: &Indexed) {
        if 0 < batch.position && self.interval_bytes <= self.bytes_since_entry {
            self.add(batch);
            self.bytes_since_entry = 0;
        }
        self.bytes_since_entry += batch.bytes;
    }

    fn add(&mut self, batch: &Indexed) {
        let relative = relative(batch.segment, batch.base_offset);
        let position = u32::try_from(batch.position).expect("a segment has fewer than 2^31 bytes");
        self.offsets.push(OffsetEntry { relative, position });
        let timestamp = batch.max_timestamp_before.0;
        if self.times.last().is_none_or(|last| last.timestamp < timestamp) {
            self.times.push(TimeEntry { timestamp, relative });
        }
        if ENTRIES_MAX < self.offsets.len() {
            keep_every_second(&mut self.offsets);
            keep_every_second(&mut self.times);
            self.interval_bytes *= 2;
        }
    }

    /// The next batch gets an entry, however near the last one is.
    pub(crate) fn expect_entry(&mut self) {
        self.bytes_since_entry = self.interval_bytes;
    }

    /// A batch at or before `offset`: its offset and position, to walk on from.
    pub(crate) fn at_or_before(&self, segment: Offset, offset: Offset) -> (Offset, u64) {
        let wanted = offset - segment;
        let after = self.offsets.partition_point(|entry| i64::from(entry.relative) <= wanted);
        self.entry_before(segment, after)
    }

    /// The last indexed batch that begins at or before `position`.
    pub(crate) fn at_or_before_position(&self, segment: Offset, position: u64) -> (Offset, u64) {
        let after = self.offsets.partition_point(|entry| u64::from(entry.position) <= position);
        self.entry_before(segment, after)
    }

    fn entry_before(&self, segment: Offset, after: usize) -> (Offset, u64) {
        match after.checked_sub(1) {
            None => (segment, 0),
            Some(at) => {
                let entry = self.offsets[at];
                (segment + i64::from(entry.relative), u64::from(entry.position))
            }
        }
    }

    /// An offset before which every record is older than `at`.
    pub(crate) fn all_older_before(&self, segment: Offset, at: Timestamp) -> Offset {
        let after = self.times.partition_point(|entry| entry.timestamp < at.0);
        match after.checked_sub(1) {
            None => segment,
            Some(before) => segment + i64::from(self.times[before].relative),
        }
    }

    /// Content of the `.index` file.
    pub(crate) fn encode_offsets(&self, summary: &Summary) -> Vec<u8> {
        let mut out = envelope::seal(SUMMARY, &encode_summary(summary));
        let mut entries = Vec::with_capacity(8 * self.offsets.len());
        for entry in &self.offsets {
            entries.extend_from_slice(&entry.relative.to_be_bytes());
            entries.extend_from_slice(&entry.position.to_be_bytes());
        }
        out.extend_from_slice(&envelope::seal(OFFSETS, &entries));
        out
    }

    /// Content of the `.timeindex` file.
    pub(crate) fn encode_times(&self) -> Vec<u8> {
        let mut entries = Vec::with_capacity(12 * self.times.len());
        for entry in &self.times {
            entries.extend_from_slice(&entry.timestamp.to_be_bytes());
            entries.extend_from_slice(&entry.relative.to_be_bytes());
        }
        envelope::seal(TIMES, &entries)
    }

    /// Reads both files; `None` when they are damaged or not about this prefix.
    pub(crate) fn decode(
        summary: &Summary,
        index_file: &[u8],
        time_file: &[u8],
        interval_bytes: u32,
    ) -> Option<SparseIndex> {
        let written = decode_summary(index_file)?;
        let is_same = (written.base_offset, written.bytes, written.next_offset)
            == (summary.base_offset, summary.bytes, summary.next_offset);
        if !is_same {
            return None;
        }
        let mut payload =
            Payload(envelope::open(OFFSETS, index_file.get(SUMMARY_FILE_LEN..)?).ok()?);
        let mut index = SparseIndex::new(interval_bytes);
        while !payload.0.is_empty() {
            let entry = OffsetEntry { relative: payload.u32()?, position: payload.u32()? };
            let rises = index.offsets.last().is_none_or(|last| {
                last.relative < entry.relative && last.position < entry.position
            });
            if !rises || summary.bytes <= u64::from(entry.position) {
                return None;
            }
            index.offsets.push(entry);
        }
        let mut payload = Payload(envelope::open(TIMES, time_file).ok()?);
        while !payload.0.is_empty() {
            let entry = TimeEntry { timestamp: payload.i64()?, relative: payload.u32()? };
            let rises = index.times.last().is_none_or(|last| {
                last.timestamp < entry.timestamp && last.relative < entry.relative
            });
            if !rises {
                return None;
            }
            index.times.push(entry);
        }
        if ENTRIES_MAX < index.offsets.len() || ENTRIES_MAX < index.times.len() {
            return None;
        }
        // The interval that the writer had come to; at least the one asked for.
        let average = summary.bytes / (index.offsets.len() as u64 + 1);
        while index.interval_bytes * 2 <= average && ENTRIES_MAX / 4 < index.offsets.len() {
            index.interval_bytes *= 2;
        }
        index.expect_entry();
        Some(index)
    }
}

/// Compares an index with the batches of its segment, in their order.
#[derive(Debug)]
pub(crate) struct IndexCheck {
    index: SparseIndex,
    offset_at: usize,
    time_at: usize,
}

impl IndexCheck {
    pub(crate) fn new(index: SparseIndex) -> IndexCheck {
        IndexCheck { index, offset_at: 0, time_at: 0 }
    }

    /// Whether what the index says about this batch, or about places before it, is true.
    pub(crate) fn agrees_with(&mut self, batch: &Indexed) -> bool {
        let at = relative(batch.segment, batch.base_offset);
        let mut agrees = true;
        while let Some(entry) = self.index.offsets.get(self.offset_at)
            && u64::from(entry.position) <= batch.position
        {
            agrees &= u64::from(entry.position) == batch.position && entry.relative == at;
            self.offset_at += 1;
        }
        while let Some(entry) = self.index.times.get(self.time_at)
            && entry.relative <= at
        {
            agrees &= batch.max_timestamp_before.0 <= entry.timestamp;
            self.time_at += 1;
        }
        agrees
    }

    /// Whether every entry lies within the batches that were shown.
    pub(crate) fn is_used_up(&self) -> bool {
        self.offset_at == self.index.offsets.len() && self.time_at == self.index.times.len()
    }
}

/// Both index files of a segment, ready to be written.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) segment: Offset,
    files: [(PathBuf, Vec<u8>); 2],
}

impl Files {
    pub(crate) fn new(directory: &Path, index: &SparseIndex, summary: &Summary) -> Files {
        let segment = summary.base_offset;
        Files {
            segment,
            files: [
                (FileKind::Index.path(directory, segment), index.encode_offsets(summary)),
                (FileKind::TimeIndex.path(directory, segment), index.encode_times()),
            ],
        }
    }

    /// Writes and syncs them. A checkpoint that lets a start trust them comes after this: an older
    /// index under the same name may describe batches that a crash has replaced since.
    pub(crate) fn save<D: Disk>(&self, disk: &D) -> Result<(), LogError> {
        for (path, bytes) in &self.files {
            let write = || -> io::Result<()> {
                let file = if disk.exists(path)? { disk.open(path)? } else { disk.create(path)? };
                file.write_at(&[IoSlice::new(bytes)], 0)?;
                file.sync_data()
            };
            write().map_err(LogError::io("write", path))?;
        }
        Ok(())
    }
}

/// Reads the index of a segment; `None` when it is missing, damaged or about another prefix.
pub(crate) fn load<D: Disk>(
    disk: &D,
    directory: &Path,
    summary: &Summary,
    interval_bytes: u32,
) -> Result<Option<SparseIndex>, LogError> {
    let read = |kind: FileKind| {
        let path = kind.path(directory, summary.base_offset);
        envelope::read_file(disk, &path, FILE_BYTES_MAX)
    };
    let Some(offsets) = read(FileKind::Index)? else { return Ok(None) };
    let Some(times) = read(FileKind::TimeIndex)? else { return Ok(None) };
    Ok(SparseIndex::decode(summary, &offsets, &times, interval_bytes))
}

/// Lets the next reads of a segment's index files show what the disk has.
pub(crate) fn drop_cached<D: Disk>(
    disk: &D,
    directory: &Path,
    base: Offset,
) -> Result<(), LogError> {
    envelope::drop_cached(disk, &FileKind::Index.path(directory, base))?;
    envelope::drop_cached(disk, &FileKind::TimeIndex.path(directory, base))
}

/// Whether the index files of a segment, as far as they exist, are what was written.
pub(crate) fn are_readable<D: Disk>(
    disk: &D,
    directory: &Path,
    base: Offset,
) -> Result<bool, LogError> {
    let read =
        |kind: FileKind| envelope::read_file(disk, &kind.path(directory, base), FILE_BYTES_MAX);
    let offsets = read(FileKind::Index)?.is_none_or(|bytes| {
        let entries = bytes.get(SUMMARY_FILE_LEN..).unwrap_or_default();
        decode_summary(&bytes).is_some() && envelope::open(OFFSETS, entries).is_ok()
    });
    let times =
        read(FileKind::TimeIndex)?.is_none_or(|bytes| envelope::open(TIMES, &bytes).is_ok());
    Ok(offsets && times)
}

/// Reads only the summary of a segment's index.
pub(crate) fn load_summary<D: Disk>(
    disk: &D,
    directory: &Path,
    base: Offset,
) -> Result<Option<Summary>, LogError> {
    let path = FileKind::Index.path(directory, base);
    let failed = |source| LogError::io("read", &path)(source);
    if !disk.exists(&path).map_err(failed)? {
        return Ok(None);
    }
    let file = disk.open(&path).map_err(failed)?;
    let mut head = [0; SUMMARY_FILE_LEN];
    let read = envelope::read_full(&file, &mut head, 0).map_err(failed)?;
    Ok(decode_summary(&head[..read]).filter(|summary| summary.base_offset == base))
}

fn keep_every_second<T: Copy>(entries: &mut Vec<T>) {
    let mut nth = 0;
    entries.retain(|_| {
        nth += 1;
        nth % 2 == 0
    });
}

fn encode_summary(summary: &Summary) -> Vec<u8> {
    let mut out = Vec::with_capacity(SUMMARY_LEN);
    out.extend_from_slice(&summary.base_offset.0.to_be_bytes());
    out.extend_from_slice(&summary.bytes.to_be_bytes());
    out.extend_from_slice(&summary.next_offset.0.to_be_bytes());
    out.extend_from_slice(&summary.first_timestamp.0.to_be_bytes());
    out.extend_from_slice(&summary.max_timestamp.0.to_be_bytes());
    out.extend_from_slice(&summary.max_timestamp_batch.0.to_be_bytes());
    out.extend_from_slice(&summary.first_append.map_or(-1, |at| at.0).to_be_bytes());
    out.extend_from_slice(&summary.last_append.map_or(-1, |at| at.0).to_be_bytes());
    out.push(
        if summary.is_sealed { SEALED } else { 0 }
            | if summary.has_empty_batches { HAS_EMPTY_BATCHES } else { 0 },
    );
    out
}

/// The summary at the start of an `.index` file.
pub(crate) fn decode_summary(index_file: &[u8]) -> Option<Summary> {
    let mut payload = Payload(envelope::open(SUMMARY, index_file).ok()?);
    let known = |at: i64| (0 <= at).then_some(Timestamp(at));
    let mut summary = Summary {
        base_offset: Offset(payload.i64()?),
        bytes: payload.u64()?,
        next_offset: Offset(payload.i64()?),
        first_timestamp: Timestamp(payload.i64()?),
        max_timestamp: Timestamp(payload.i64()?),
        max_timestamp_batch: Offset(payload.i64()?),
        first_append: known(payload.i64()?),
        last_append: known(payload.i64()?),
        is_sealed: false,
        has_empty_batches: false,
    };
    let [flags] = payload.array()?;
    summary.is_sealed = flags & SEALED != 0;
    summary.has_empty_batches = flags & HAS_EMPTY_BATCHES != 0;
    let is_known = flags <= (SEALED | HAS_EMPTY_BATCHES);
    (is_known && summary.base_offset <= summary.next_offset).then_some(summary)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(batches: i64, bytes: u64) -> (SparseIndex, Summary) {
        let mut index = SparseIndex::new(100);
        let segment = Offset(1000);
        for n in 0..batches {
            index.note(&Indexed {
                segment,
                base_offset: segment + n,
                position: n as u64 * bytes,
                bytes,
                max_timestamp_before: Timestamp(n - 1),
            });
        }
        let mut summary = Summary::empty(segment);
        summary.bytes = batches as u64 * bytes;
        summary.next_offset = segment + batches;
        (index, summary)
    }

    #[test]
    fn lookups_find_an_indexed_batch_at_or_before() {
        let (index, _) = filled(100, 60);
        for n in 0..100 {
            let (offset, position) = index.at_or_before(Offset(1000), Offset(1000 + n));
            assert!(offset <= Offset(1000 + n));
            assert!(n - (offset - Offset(1000)) < 3, "two batches fill the interval");
            assert_eq!(position, (offset - Offset(1000)) as u64 * 60);
            let by_position = index.at_or_before_position(Offset(1000), n as u64 * 60 + 59);
            assert_eq!(by_position, (offset, position));
            let older = index.all_older_before(Offset(1000), Timestamp(n));
            assert!(older <= Offset(1000 + n));
        }
    }

    #[test]
    fn a_large_segment_thins_its_index_out() {
        let (index, _) = filled(200_000, 100);
        assert!(index.offsets.len() <= ENTRIES_MAX);
        assert!(ENTRIES_MAX / 4 < index.offsets.len());
        let (offset, _) = index.at_or_before(Offset(1000), Offset(1000 + 150_000));
        assert!(Offset(1000 + 150_000 - 64) < offset);
    }

    #[test]
    fn files_come_back_as_they_were_and_damage_is_seen() {
        let (index, summary) = filled(1000, 60);
        let (offsets, times) = (index.encode_offsets(&summary), index.encode_times());
        let back = SparseIndex::decode(&summary, &offsets, &times, 100).unwrap();
        assert_eq!(back.offsets, index.offsets);
        assert_eq!(back.times, index.times);
        assert_eq!(decode_summary(&offsets), Some(summary));
        for at in 0..offsets.len() {
            let mut flipped = offsets.clone();
            flipped[at] ^= 0x10;
            assert!(SparseIndex::decode(&summary, &flipped, &times, 100).is_none(), "byte {at}");
        }
    }
}
