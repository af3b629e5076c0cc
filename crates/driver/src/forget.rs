//! Records of a queue-only topic go when every subscription is done with their messages.
//!
//! ```text
//! leader    much of a sealed segment is done with ─▶ Forget ─▶ delivery log
//! replicas  what a committed Forget says ─▶ those segments are written anew without it
//! ```
//!
//! Each replica writes its own segments anew, as compaction does, and by what the delivery log says up to its high
//! watermark: a message whose deletion a failover takes back keeps its record. What lies at the beginning of the log
//! goes by whole segments (`retire.rs`), and is not written anew before that.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use towpath_log::disk::Disk;
use towpath_log::{Compaction, CompactionError, SealedSegment};
use towpath_model::mutant::{self, Mutant};
use towpath_model::properties::RetentionGuard;
use towpath_model::{LeaderEpoch, Now, Offset};
use towpath_queue::{Deliveries, Request, SettledSet};

use crate::cell::{Cell, Slot};
use crate::compact::{kept_batches, limit};
use crate::driver::Driver;
use crate::manage::NOBODY;
use crate::world::{Clock, Net};

/// Most segments of one pass: what is to go from them is in memory.
const SEGMENTS_MAX: usize = 16;
/// A neighbour of a segment that is written anew is written with it, if it is smaller than this part of a segment:
/// otherwise a queue with one stuck message a day would have as many files as days.
const SMALL_PART: u64 = 8;

/// On a delivery log that is led: what may go, once the log is committed up to an offset.
#[derive(Debug)]
pub(crate) struct Agreed {
    epoch: LeaderEpoch,
    needs: Offset,
    void: SettledSet,
}

/// Segments that are worth being written anew.
#[derive(Debug)]
pub(crate) struct Plan {
    within: Range<Offset>,
    /// Which records of them go.
    gone: Vec<Range<Offset>>,
    /// The largest part of a segment that goes.
    pub(crate) share: f64,
}

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// What is worth being removed from a replica of a queue-only topic; nothing for other topics. A leader also
    /// decides what may go.
    pub(crate) fn plan_forgetting(&self, cell: &Arc<Cell<D>>) -> Option<Plan> {
        let (segments, removed, ratio, size) = {
            let slot = self.lock_in_time(cell)?;
            // Whoever holds records for readers of the log must not lose some of them.
            let holds = slot.config.retention_guard == RetentionGuard::Hold;
            if slot.closed || slot.failed || holds || !slot.config.is_queue_only() {
                return None;
            }
            let segments = slot.log.sealed_segments(limit(&slot.partition));
            let removed = slot.forgotten.as_deref().cloned().unwrap_or_default();
            let size = u64::from(slot.config.segment_bytes);
            (segments, removed, slot.config.min_cleanable_dirty_ratio, size)
        };
        let end = segments.last()?.offsets.end;
        let deliveries = self.cell(cell.id.delivery_log())?;
        let look = |known: &Deliveries| {
            let forgettable = |of: &Range<Offset>| {
                known.forgettable_within(of.clone()) + known.void().count_within(of.clone())
            };
            let start = known.settled_start();
            segments.iter().any(|segment| {
                start < segment.offsets.end
                    && ratio < share(segment, forgettable(&segment.offsets), &removed)
                    && 0 < known.forgettable_within(segment.offsets.clone())
            })
        };
        let is_worth_it = {
            let slot = self.lock_in_time(&deliveries)?;
            let serving = slot.partition.deliveries().filter(|it| slot.leads() && it.is_serving());
            serving.is_some_and(look)
        };
        if is_worth_it {
            // Another look comes; until then nothing goes that has not been agreed on before.
            let _ = self.ask_deliveries(cell.id, NOBODY, Request::Forget { to: end });
        }
        let void = self.lock_in_time(&deliveries)?.committed_void()?;
        plan(&segments, &void, &removed, ratio, size / SMALL_PART)
    }
}

impl<D: Disk> Slot<D> {
    /// The offsets of a delivery log's partition of which a committed record says that there is no message.
    fn committed_void(&mut self) -> Option<SettledSet> {
        if !self.leads() {
            self.agreed = None;
            return self.followed.as_ref().map(|followed| followed.deliveries().void().clone());
        }
        let serving = self.partition.deliveries().filter(|it| it.is_serving())?;
        let epoch = self.partition.leader_epoch();
        if mutant::is_on(Mutant::ForgottenEarly) {
            return Some(serving.void().clone());
        }
        let known = self.agreed.take().filter(|agreed| agreed.epoch == epoch);
        let high_watermark = self.partition.high_watermark();
        let is_committed = |agreed: &Agreed| agreed.needs <= high_watermark;
        let (void, still_open) = match known {
            Some(agreed) if is_committed(&agreed) => (Some(agreed.void), None),
            open => (None, open),
        };
        let needs = self.partition.log_end_offset();
        self.agreed = still_open
            .or_else(|| Some(Box::new(Agreed { epoch, needs, void: serving.void().clone() })));
        void
    }

    /// Begins what was planned.
    pub(crate) fn begin_forgetting(
        &mut self,
        plan: &Plan,
        now: Now,
    ) -> Result<Option<Compaction<D>>, CompactionError> {
        let kept: BTreeSet<Offset> = kept_batches(self);
        let limit = limit(&self.partition);
        self.log.begin_removal(plan.within.clone(), plan.gone.clone(), now, limit, kept)
    }

    /// What was planned is done.
    pub(crate) fn forgotten(&mut self, plan: &Plan) {
        let removed = self.forgotten.get_or_insert_default();
        removed.insert_run(Offset::ZERO..self.log.log_start_offset());
        plan.gone.iter().for_each(|run| removed.insert_run(run.clone()));
    }
}

/// Which part of a segment would go, of what is left of it.
fn share(segment: &SealedSegment, void: u64, removed: &SettledSet) -> f64 {
    let span = (segment.offsets.end - segment.offsets.start).unsigned_abs();
    let removed = removed.count_within(segment.offsets.clone());
    let left = span.saturating_sub(removed);
    if left == 0 { 0.0 } else { void.saturating_sub(removed) as f64 / left as f64 }
}

/// The first run of segments of which more than `ratio` would go, with those beside it that are smaller than
/// `small_bytes`.
fn plan(
    segments: &[SealedSegment],
    void: &SettledSet,
    removed: &SettledSet,
    ratio: f64,
    small_bytes: u64,
) -> Option<Plan> {
    let share_of = |segment: &SealedSegment| {
        share(segment, void.count_within(segment.offsets.clone()), removed)
    };
    // What is done with at the beginning goes as a whole.
    let from = segments.partition_point(|segment| segment.offsets.end <= void.start());
    let segments = &segments[from..];
    let is_due = |segment: &SealedSegment| ratio < share_of(segment);
    let first = segments.iter().position(is_due)?;
    let is_small = |segment: &SealedSegment| segment.bytes < small_bytes;
    let before = segments[..first].iter().rev().take_while(|one| is_small(one)).count();
    let begin = first - before.min(SEGMENTS_MAX / 2);
    let goes_too = |segment: &&SealedSegment| is_due(segment) || is_small(segment);
    let run = segments[begin..].iter().take(SEGMENTS_MAX).take_while(goes_too);
    let run: Vec<&SealedSegment> = run.collect();
    let within = run.first()?.offsets.start..run.last()?.offsets.end;
    let share = run.iter().map(|segment| share_of(segment)).fold(0.0, f64::max);
    Some(Plan { gone: void.runs_within(within.clone()).collect(), within, share })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(offsets: Range<i64>, bytes: u64) -> SealedSegment {
        SealedSegment { offsets: Offset(offsets.start)..Offset(offsets.end), bytes, newest: None }
    }

    fn set(runs: &[(i64, i64)]) -> SettledSet {
        let mut set = SettledSet::default();
        runs.iter().for_each(|(start, end)| set.insert_run(Offset(*start)..Offset(*end)));
        set
    }

    fn planned(
        segments: &[SealedSegment],
        void: &[(i64, i64)],
        removed: &[(i64, i64)],
    ) -> Option<Range<i64>> {
        let plan = plan(segments, &set(void), &set(removed), 0.5, 10)?;
        Some(plan.within.start.0..plan.within.end.0)
    }

    #[test]
    fn what_is_half_done_with_is_written_anew_with_small_neighbours() {
        let segments = [
            segment(0..10, 100),
            segment(10..20, 5),
            segment(20..30, 100),
            segment(30..40, 5),
            segment(40..50, 100),
        ];
        assert_eq!(planned(&segments, &[(20, 25)], &[]), None, "half of it is left");
        assert_eq!(planned(&segments, &[(20, 26)], &[]), Some(10..40));
        assert_eq!(
            planned(&segments, &[(20, 26)], &[(20, 22)]),
            None,
            "six of ten are not half of eight"
        );
        assert_eq!(planned(&segments, &[(20, 28)], &[(20, 22)]), Some(10..40));
        assert_eq!(
            planned(&segments, &[(0, 12), (41, 50)], &[]),
            Some(30..50),
            "the first one goes as a whole"
        );
        assert_eq!(planned(&segments, &[(1, 10)], &[(1, 10)]), None, "it is done");
    }
}
