//! Moves the log start: what has expired, or was deleted by order, goes segment by segment.
//!
//! The new start is durable before anything is removed. A segment is judged by its newest record,
//! so no record goes early; a producer's clock in the future cannot keep a segment for ever,
//! because the broker's own clock bounds it (see [`Summary::age_from`]).

use std::time::Duration;

use towpath_model::mutant::{self, Mutant};
use towpath_model::{Offset, Timestamp};

use crate::disk::Disk;
use crate::error::LogError;
use crate::log::Log;
use crate::segment::Summary;

/// How long records are kept. Without any limit they are kept for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retention {
    /// Age at which records expire (`retention.ms`).
    pub time: Option<Duration>,
    /// Bytes that are kept at least (`retention.bytes`): the oldest segment goes while the others
    /// have as many.
    pub bytes: Option<u64>,
}

/// A segment that retention does not keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expired {
    /// First offset after it: where the log start may move.
    pub end_offset: Offset,
    /// Its bytes.
    pub bytes: u64,
    /// The time of its newest record, as retention sees it.
    pub newest: Timestamp,
    /// Which limit it is beyond.
    pub by: ExpiredBy,
}

/// A limit of retention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpiredBy {
    /// `retention.ms`.
    Time,
    /// `retention.bytes`.
    Size,
}

impl<D: Disk> Log<D> {
    /// Where the log start may move, if it may: past [`Log::expired_segments`].
    #[must_use]
    pub fn expired(&self, now: Timestamp, retention: &Retention, limit: Offset) -> Option<Offset> {
        self.expired_segments(now, retention, limit).last().map(|expired| expired.end_offset)
    }

    /// The segments that have expired by time, or that are more than the size allows; none that
    /// reaches beyond `limit`, the high watermark. Whole segments only, oldest first; the first one
    /// that must stay keeps all that follow.
    #[must_use]
    pub fn expired_segments(
        &self,
        now: Timestamp,
        retention: &Retention,
        limit: Offset,
    ) -> Vec<Expired> {
        let mut excess = retention.bytes.map(|keep| self.size_bytes().saturating_sub(keep));
        let mut expired = Vec::new();
        for segment in self.segments.iter().filter(|segment| 0 < segment.bytes) {
            let is_too_much = excess.is_some_and(|excess| 0 < excess && segment.bytes <= excess);
            let is_too_old = is_too_old(segment, now, retention.time);
            let is_committed =
                segment.next_offset <= limit || mutant::is_on(Mutant::RetentionUnlimited);
            if !(is_too_much || is_too_old) || !is_committed {
                break;
            }
            excess = excess.map(|excess| excess.saturating_sub(segment.bytes));
            if self.log_start < segment.next_offset {
                expired.push(Expired {
                    end_offset: segment.next_offset,
                    bytes: segment.bytes,
                    newest: segment.age_from().unwrap_or(now),
                    by: if is_too_old { ExpiredBy::Time } else { ExpiredBy::Size },
                });
            }
        }
        expired
    }

    /// Moves the log start offset up to `offset`, durably, and removes the segments that lie below
    /// it as a whole. Readers that hold a [`crate::Slice`] of them can finish. An offset below the
    /// log start changes nothing. For whoever owns the log alone; [`Log::begin_start_move`] is for
    /// partitions that others wait for.
    ///
    /// # Errors
    /// When the disk fails: the start has then moved or not, and no record at or above it is gone.
    ///
    /// # Panics
    /// When `offset` is beyond the log end offset.
    pub fn start_moves_to(&mut self, offset: Offset) -> Result<(), LogError> {
        let Some(mut moved) = self.begin_start_move(offset, None)? else { return Ok(()) };
        moved.save()?;
        self.finish_start_move(moved).run()
    }
}

fn is_too_old(segment: &Summary, now: Timestamp, keep: Option<Duration>) -> bool {
    let Some((keep, newest)) = keep.zip(segment.age_from()) else { return false };
    if mutant::is_on(Mutant::RetentionByFirstRecord) {
        return segment.first_timestamp + keep < now;
    }
    newest + keep < now
}
