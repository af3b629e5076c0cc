//! What of a log may be compacted, and whether it should be.
//!
//! Only sealed segments that are wholly durable and below the limit (high watermark and last stable
//! offset), whose indexes no commit round is about to write, and whose newest record is old enough.

use std::collections::BTreeSet;
use std::ops;
use std::sync::Arc;
use std::time::Duration;

use towpath_model::mutant::{self, Mutant};
use towpath_model::{Now, Offset, Timestamp};

use super::pass::{Compaction, Range};
use super::{CompactionError, CompactionRules, CompactionState, SealedSegment};
use crate::disk::Disk;
use crate::log::Log;
use crate::segment::Summary;

impl<D: Disk> Log<D> {
    /// How much could be compacted below `limit`.
    pub fn compaction_state(
        &mut self,
        rules: &CompactionRules,
        now: Now,
        limit: Offset,
    ) -> CompactionState {
        self.learn_times(now.wall);
        let segments = self.compactable(rules.min_lag, now.wall, limit);
        let clean = self.clean_offset();
        let first_dirty = segments.partition_point(|segment| segment.next_offset <= clean);
        let (behind, dirty) = segments.split_at(first_dirty);
        let bytes = |segments: &[Summary]| segments.iter().map(|segment| segment.bytes).sum();
        let mut state = CompactionState {
            clean,
            clean_bytes: bytes(behind),
            dirty_bytes: bytes(dirty),
            is_due: false,
        };
        let is_too_old = |segment: &Summary| {
            let lag = rules.max_lag.map(|lag| lag.max(rules.min_lag));
            lag.zip(segment.first_append).is_some_and(|(lag, at)| at + lag <= now.wall)
        };
        let is_dirty_enough = 0 < state.dirty_bytes && rules.min_dirty_ratio < state.dirty_ratio();
        let has_old_tombstones =
            0 < state.clean_bytes && self.horizon.is_some_and(|horizon| horizon <= now.wall);
        state.is_due = is_dirty_enough || dirty.iter().any(is_too_old) || has_old_tombstones;
        state
    }

    /// Begins a compaction of what lies below `limit`; the caller holds the log's lock now, and needs
    /// it again only for [`Log::replace`] and [`Log::compacted`]. Of the batches that begin at
    /// `kept_batches` at least the header stays. `None`: nothing may be compacted.
    ///
    /// # Errors
    /// When records of the log are damaged, or the directory has failed.
    pub fn begin_compaction(
        &mut self,
        rules: &CompactionRules,
        now: Now,
        limit: Offset,
        kept_batches: BTreeSet<Offset>,
    ) -> Result<Option<Compaction<D>>, CompactionError> {
        self.check_whole()?;
        self.learn_times(now.wall);
        let segments = self.compactable(rules.min_lag, now.wall, limit).to_vec();
        let Some(range) = self.take(segments) else { return Ok(None) };
        Ok(Some(Compaction::by_key(range, rules, now.wall, kept_batches)))
    }

    /// Begins to remove the records whose offsets are `gone` from those of the segments `within` that may be
    /// written anew below `limit`; otherwise as [`Log::begin_compaction`]. `None`: there is no such segment.
    ///
    /// # Errors
    /// When records of the log are damaged, or the directory has failed.
    pub fn begin_removal(
        &mut self,
        within: ops::Range<Offset>,
        gone: impl Fn(Offset) -> bool + Send + 'static,
        now: Now,
        limit: Offset,
        kept_batches: BTreeSet<Offset>,
    ) -> Result<Option<Compaction<D>>, CompactionError> {
        self.check_whole()?;
        let is_meant = |segment: &&Summary| {
            within.start <= segment.base_offset && segment.next_offset <= within.end
        };
        let all = self.compactable(Duration::ZERO, now.wall, limit);
        let segments = all.iter().filter(is_meant).copied().collect();
        let Some(range) = self.take(segments) else { return Ok(None) };
        Ok(Some(Compaction::of(range, Box::new(gone), now.wall, kept_batches)))
    }

    /// The segments that may be written anew below `limit`, oldest first.
    pub fn sealed_segments(&self, limit: Offset) -> Vec<SealedSegment> {
        let all = self.compactable(Duration::ZERO, Timestamp::default(), limit);
        let sealed = |segment: &Summary| SealedSegment {
            offsets: segment.base_offset..segment.next_offset,
            bytes: segment.bytes,
            newest: segment.age_from(),
        };
        all.iter().map(sealed).collect()
    }

    /// Whether a segment takes no more records.
    pub fn has_sealed_segment(&self) -> bool {
        self.segments.first().is_some_and(|first| first.is_sealed && 0 < first.bytes)
            || 1 < self.segments.len()
    }

    fn check_whole(&self) -> Result<(), CompactionError> {
        self.directory.check()?;
        match self.damage.first() {
            Some(damage) => {
                let (from, to) = (damage.from, damage.to);
                Err(CompactionError::Damaged { from, to, reason: None })
            }
            None => Ok(()),
        }
    }

    /// What a pass over `segments` needs of the log.
    fn take(&mut self, segments: Vec<Summary>) -> Option<Range<D>> {
        let start = segments.first()?.base_offset;
        let end = segments.last()?.next_offset;
        // What is still to be written of them is about what they are now.
        self.unsaved_indexes.retain(|index| index.segment < start || end <= index.segment);
        Some(Range {
            directory: self.directory.clone(),
            partition: self.partition,
            path: self.path.to_path_buf(),
            generation: self.generation(),
            current_generation: Arc::clone(&self.generation),
            checkpoints: Arc::clone(&self.checkpoints),
            segments,
            clean: self.clean_offset(),
            end,
            segment_bytes: self.config.segment_bytes,
            index_interval_bytes: self.config.index_interval_bytes,
        })
    }

    /// Where a key can have two records from on.
    pub(crate) fn clean_offset(&self) -> Offset {
        self.clean.max(self.log_start).min(self.log_end)
    }

    fn compactable(&self, min_lag: Duration, now: Timestamp, limit: Offset) -> &[Summary] {
        let end = match mutant::is_on(Mutant::CompactionUnlimited) {
            true => self.log_end,
            false => limit.min(self.durable.offset),
        };
        let clean = self.clean_offset();
        let mut expected = None;
        let may_be = |segment: &&Summary| {
            let follows = expected.is_none_or(|expected| expected == segment.base_offset);
            expected = Some(segment.next_offset);
            follows
                && segment.is_sealed
                && 0 < segment.bytes
                && segment.next_offset <= end
                && !self.taken_indexes.contains(&segment.base_offset)
                && (segment.next_offset <= clean || is_old_enough(segment, min_lag, now))
        };
        let count = self.segments.iter().take_while(may_be).count();
        &self.segments[..count]
    }
}

fn is_old_enough(segment: &Summary, min_lag: Duration, now: Timestamp) -> bool {
    min_lag.is_zero() || segment.age_from().is_some_and(|newest| newest + min_lag <= now)
}
