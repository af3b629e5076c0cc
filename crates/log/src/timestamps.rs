//! Finds records by time, exact to the record.
//!
//! Timestamps need not rise with offsets: "the first record that is not older than t" means the
//! lowest offset. The time index skips what is certainly older, batch headers skip the rest but
//! one, and that batch is decompressed.

use towpath_model::{LeaderEpoch, Offset, Timestamp};
use towpath_records::{BatchHeader, Scratch, records};

use crate::disk::Disk;
use crate::envelope::read_full;
use crate::error::LogError;
use crate::log::Log;
use crate::place::FileKind;
use crate::read::Opened;
use crate::scan::{Found, LARGE_BUFFER, SMALL_BUFFER, Scan};
use crate::segment::Summary;

/// Most bytes that a batch may have after decompression, here as in the validation of producers'
/// batches: a lookup must not be the way to exhaust memory.
const RECORDS_BYTES_MAX: usize = 256 << 20;

/// A record's time, offset and leader epoch.
type AtRecord = (Timestamp, Offset, LeaderEpoch);

impl<D: Disk> Log<D> {
    /// The first record before `end` whose timestamp is `at` or later. `None`: there is none.
    ///
    /// # Errors
    /// When the disk fails or the records are damaged.
    pub fn offset_for_timestamp(
        &self,
        at: Timestamp,
        end: Offset,
    ) -> Result<Option<AtRecord>, LogError> {
        let may_hold =
            |segment: &Summary| at <= segment.max_timestamp && self.log_start < segment.next_offset;
        for (nth, _) in self.segments.iter().enumerate().filter(|(_, s)| may_hold(s)) {
            let opened = self.open_segment(nth)?;
            let older = opened.index.all_older_before(opened.summary.base_offset, at);
            let mut walk = self.walk_headers(&opened, older.max(self.log_start), SMALL_BUFFER);
            while let Some((header, position)) = self.next_header(&mut walk, &opened)? {
                if end <= header.base_offset() {
                    return Ok(None);
                }
                let is_older = header.max_timestamp() < at || header.record_count() == 0;
                if is_older || header.next_offset() <= self.log_start {
                    continue;
                }
                let first = |found: &mut Option<AtRecord>, record: AtRecord| {
                    if found.is_none() && at <= record.0 {
                        *found = Some(record);
                    }
                };
                if let Some(found) = self.search(&opened, &header, position, end, first)? {
                    return Ok(Some(found));
                }
            }
        }
        Ok(None)
    }

    /// The record before `end` with the largest timestamp, the first of them (KIP-734). `None`
    /// when no record has a timestamp.
    ///
    /// # Errors
    /// When the disk fails or the records are damaged.
    pub fn max_timestamp(&self, end: Offset) -> Result<Option<AtRecord>, LogError> {
        let mut best: Option<(Timestamp, usize, Offset)> = None;
        for (nth, segment) in self.segments.iter().enumerate() {
            if end <= segment.base_offset {
                break;
            }
            if segment.next_offset <= self.log_start {
                continue;
            }
            let (timestamp, batch) = self.max_timestamp_of(nth, segment, end)?;
            let is_better = best.is_none_or(|(newest, _, _)| newest < timestamp);
            if Timestamp(0) <= timestamp && is_better {
                best = Some((timestamp, nth, batch));
            }
        }
        let Some((_, nth, batch)) = best else { return Ok(None) };
        let opened = self.open_segment(nth)?;
        let mut walk = self.walk_headers(&opened, batch, SMALL_BUFFER);
        while let Some((header, position)) = self.next_header(&mut walk, &opened)? {
            if header.base_offset() < batch || header.record_count() == 0 {
                continue;
            }
            return self.search(&opened, &header, position, end, newest);
        }
        Ok(None)
    }

    /// The largest timestamp of a segment's batches before `end`, and the first batch that has it.
    fn max_timestamp_of(
        &self,
        nth: usize,
        segment: &Summary,
        end: Offset,
    ) -> Result<(Timestamp, Offset), LogError> {
        if segment.next_offset <= end && self.log_start <= segment.max_timestamp_batch {
            return Ok((segment.max_timestamp, segment.max_timestamp_batch));
        }
        let opened = self.open_segment(nth)?;
        let from = self.log_start.max(segment.base_offset);
        let mut walk = self.walk_headers(&opened, from, LARGE_BUFFER);
        let mut best = (Timestamp(-1), segment.base_offset);
        while let Some((header, position)) = self.next_header(&mut walk, &opened)? {
            if end <= header.base_offset() {
                break;
            }
            if header.record_count() == 0 {
                continue;
            }
            let is_whole = self.log_start <= header.base_offset() && header.next_offset() <= end;
            let timestamp = if is_whole {
                header.max_timestamp()
            } else {
                // The maximum in its header may be that of a record outside.
                let found = self.search(&opened, &header, position, end, newest)?;
                found.map_or(Timestamp(-1), |(timestamp, _, _)| timestamp)
            };
            if best.0 < timestamp {
                best = (timestamp, header.base_offset());
            }
        }
        Ok(best)
    }

    fn walk_headers(&self, opened: &Opened<'_, D>, from: Offset, buffer: usize) -> Scan {
        Scan::headers(self.walk_from(opened, from), opened.summary.bytes, buffer)
    }

    fn next_header(
        &self,
        walk: &mut Scan,
        opened: &Opened<'_, D>,
    ) -> Result<Option<(BatchHeader, u64)>, LogError> {
        match self.step(walk, opened)? {
            Found::Batch { header, position, .. } => Ok(Some((header, position))),
            Found::End => Ok(None),
            Found::Invalid => {
                let base = opened.summary.base_offset;
                let at = walk.position();
                let resumed = self.damage.iter().filter_map(|damage| damage.resume);
                let behind =
                    resumed.filter(|(segment, position)| *segment == base && at < *position);
                let Some((_, position)) = behind.min() else { return Ok(None) };
                *walk = Scan::headers(position, opened.summary.bytes, SMALL_BUFFER);
                self.next_header(walk, opened)
            }
        }
    }

    /// Shows `look` the records of a batch that lie in `[log start, end)`, in order.
    fn search(
        &self,
        opened: &Opened<'_, D>,
        header: &BatchHeader,
        position: u64,
        end: Offset,
        look: impl Fn(&mut Option<AtRecord>, AtRecord),
    ) -> Result<Option<AtRecord>, LogError> {
        let path = FileKind::Segment.path(&self.path, opened.summary.base_offset);
        let mut batch = vec![0; header.size_in_bytes()];
        let read = read_full(&*opened.file, &mut batch, position);
        let read = read.map_err(LogError::io("read", &path))?;
        let corrupt = || LogError::Corrupt {
            partition: self.partition,
            from: header.base_offset(),
            to: header.next_offset(),
        };
        let mut scratch = Scratch::default();
        let found = records(&batch[..read], RECORDS_BYTES_MAX, &mut scratch);
        let mut best = None;
        for record in found.map_err(|_| corrupt())? {
            let record = record.map_err(|_| corrupt())?;
            let offset = header.offset_of(record.offset_delta);
            if self.log_start <= offset && offset < end {
                let timestamp = header.timestamp_of(record.timestamp_delta);
                look(&mut best, (timestamp, offset, header.leader_epoch()));
            }
        }
        Ok(best)
    }
}

/// Keeps the record with the largest timestamp, the first of them.
fn newest(found: &mut Option<AtRecord>, record: AtRecord) {
    if found.is_none_or(|(timestamp, _, _)| timestamp < record.0) {
        *found = Some(record);
    }
}
