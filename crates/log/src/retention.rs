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
use crate::recover::remove_segment_files;
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
    /// log start changes nothing.
    ///
    /// # Errors
    /// When the disk fails: the start has then moved or not, and no record at or above it is gone.
    ///
    /// # Panics
    /// When `offset` is beyond the log end offset.
    pub fn start_moves_to(&mut self, offset: Offset) -> Result<(), LogError> {
        assert!(offset <= self.log_end);
        self.directory.check()?;
        if offset <= self.log_start {
            return Ok(());
        }
        if self.durable.offset < offset {
            self.sync_all()?;
        }
        let before = std::mem::replace(&mut self.log_start, offset);
        let epochs = self.epochs.clone();
        self.forget_epochs_below_start();
        if !mutant::is_on(Mutant::LogStartNotDurable)
            && let Err(error) = self.write_checkpoint()
        {
            self.log_start = before;
            self.epochs = epochs;
            return Err(error);
        }
        if self.damage.clip(offset, self.log_end) {
            self.damage.save(self.disk(), &self.path)?;
        }
        self.remove_below_start()
    }

    /// Keeps the epoch of the first record, as beginning there.
    fn forget_epochs_below_start(&mut self) {
        let begun = self.epochs.partition_point(|(_, first)| *first <= self.log_start);
        if 0 < begun {
            self.epochs.drain(..begun - 1);
            self.epochs[0].1 = self.log_start;
        }
        if self.log_start == self.log_end {
            self.epochs.clear();
        }
    }

    fn remove_below_start(&mut self) -> Result<(), LogError> {
        let below = self.segments.partition_point(|segment| segment.next_offset <= self.log_start);
        if below == self.segments.len() && self.active.is_some() {
            // Nothing is kept of the active segment either: the next append begins a new one.
            self.active = None;
            self.last_batch = None;
            if let Some(last) = self.segments.last_mut() {
                last.is_sealed = true;
            }
        }
        let gone: Vec<Offset> = self.segments.drain(..below).map(|s| s.base_offset).collect();
        if self.segments.is_empty() {
            self.durable = self.end_point();
            self.taken = self.durable;
        }
        self.sealed_unsynced.retain(|(base, _)| !gone.contains(base));
        self.unsaved_indexes.retain(|index| !gone.contains(&index.segment));
        for base in gone {
            self.open.forget(base);
            let partition = self.partition;
            let covered = (partition, base);
            self.directory.write_ahead().uncover(|segment| *segment == covered);
            remove_segment_files(self.disk(), &self.path, base)?;
        }
        self.remove_producers_below(self.log_start)
    }
}

fn is_too_old(segment: &Summary, now: Timestamp, keep: Option<Duration>) -> bool {
    let Some((keep, newest)) = keep.zip(segment.age_from()) else { return false };
    if mutant::is_on(Mutant::RetentionByFirstRecord) {
        return segment.first_timestamp + keep < now;
    }
    newest + keep < now
}
