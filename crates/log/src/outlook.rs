//! What lies before a reader, and what retention will make of it: the facts from which lag in
//! seconds and the time to loss are computed. Cheap: at most one lookup in an index.
//!
//! Since when a record waits is the broker's knowledge and the producer's claim together. Its own
//! timestamp counts as far as it lies between the first and the last append to its segment by the
//! broker's clock; a timestamp outside is garbage, or an old record that was imported today, and
//! counts as the nearer of the two.

use std::time::Duration;

use towpath_model::{Offset, Timestamp};
use towpath_records::{BatchHeader, TimestampType};

use crate::disk::Disk;
use crate::error::LogError;
use crate::log::Log;
use crate::scan::{Found, SMALL_BUFFER, Scan};
use crate::segment::Summary;

/// The rate of appends is that of the newest segments that reach so far back.
const RATE_WINDOW: Duration = Duration::from_secs(600);

/// What is known about the records from an offset on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outlook {
    /// Since when the first of them has been in the log; `None` when nobody knows.
    pub waiting_since: Option<Timestamp>,
    /// The time from which `retention.ms` counts for it: that of its segment.
    pub expires_from: Option<Timestamp>,
    /// Bytes from it to the end; inside its segment estimated by offsets.
    pub unread_bytes: u64,
    /// Bytes of the log up to the end of its segment: retention by size removes it with them.
    pub bytes_to_segment_end: u64,
    /// Bytes of the log.
    pub size_bytes: u64,
}

impl<D: Disk> Log<D> {
    /// What lies before a reader that has read everything below `from`, with records visible below
    /// `end`. `None`: nothing.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn outlook(&self, from: Offset, end: Offset) -> Result<Option<Outlook>, LogError> {
        let from = from.max(self.log_start);
        if end.min(self.log_end) <= from {
            return Ok(None);
        }
        let at = self.segments.partition_point(|segment| segment.next_offset <= from);
        let Some(segment) = self.segments.get(at) else { return Ok(None) };
        let newer: u64 = self.segments[at + 1..].iter().map(|segment| segment.bytes).sum();
        let size_bytes = self.size_bytes();
        Ok(Some(Outlook {
            waiting_since: self.waiting_since(at, from)?,
            expires_from: segment.age_from(),
            unread_bytes: newer + bytes_behind(segment, from),
            bytes_to_segment_end: size_bytes - newer,
            size_bytes,
        }))
    }

    fn waiting_since(&self, at: usize, from: Offset) -> Result<Option<Timestamp>, LogError> {
        // A compacted segment may end before its last offsets: then the next one has the record.
        for (nth, segment) in self.segments.iter().enumerate().skip(at) {
            let opened = self.open_segment(nth)?;
            let position = self.walk_from(&opened, from);
            let mut scan = Scan::headers(position, opened.summary.bytes, SMALL_BUFFER);
            while let Found::Batch { header, .. } = self.step(&mut scan, &opened)? {
                // A compaction may have left batches without records.
                if from < header.next_offset() && 0 < header.record_count() {
                    return Ok(bounded(claimed_time(&header, from), segment));
                }
            }
        }
        Ok(None)
    }

    /// Bytes per second that have been appended lately, by the newest segments.
    #[must_use]
    pub fn append_rate(&self, now: Timestamp) -> f64 {
        let (mut bytes, mut span_ms) = (0, 0);
        for segment in self.segments.iter().rev() {
            let Some(begun) = segment.first_append else { break };
            bytes += segment.bytes;
            span_ms = now.0.saturating_sub(begun.0).max(1);
            if RATE_WINDOW.as_millis() <= u128::from(span_ms.unsigned_abs()) {
                break;
            }
        }
        if span_ms == 0 { 0.0 } else { bytes as f64 * 1000.0 / span_ms as f64 }
    }
}

/// What a batch says about the time of its record at `from`; `None`: nothing. A record in the middle
/// of a batch counts as old as the first.
fn claimed_time(header: &BatchHeader, from: Offset) -> Option<Timestamp> {
    let is_alone = header.base_offset() <= from && header.last_offset() == header.base_offset();
    let time = match header.timestamp_type() {
        TimestampType::LogAppendTime => header.max_timestamp(),
        TimestampType::CreateTime if is_alone => header.max_timestamp(),
        TimestampType::CreateTime => header.base_timestamp(),
    };
    (Timestamp(0) <= time).then_some(time)
}

/// The claimed time, as far as the broker's own clock allows it.
fn bounded(claimed: Option<Timestamp>, segment: &Summary) -> Option<Timestamp> {
    let time = claimed.or(segment.first_append)?;
    let not_before = segment.first_append.map_or(time, |at| at.max(time));
    Some(segment.last_append.map_or(not_before, |at| at.min(not_before)))
}

/// Bytes of a segment from `from` on, as if its records were of one size.
fn bytes_behind(segment: &Summary, from: Offset) -> u64 {
    let span = (segment.next_offset - segment.base_offset).max(1) as u64;
    let behind = (segment.next_offset - from.max(segment.base_offset)).max(0) as u64;
    let bytes = u128::from(segment.bytes) * u128::from(behind) / u128::from(span);
    u64::try_from(bytes).unwrap_or(segment.bytes).min(segment.bytes)
}
