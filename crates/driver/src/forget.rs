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
use crate::config::log_config;
use crate::driver::Driver;
use crate::manage::NOBODY;
use crate::world::{Clock, Net};

/// Most segments of one pass: what is to go from them is in memory.
const SEGMENTS_MAX: usize = 16;
/// A neighbour of a segment that is written anew is written with it, if it is smaller than this part of a segment:
/// otherwise a queue with one stuck message a day would have as many files as days.
const SMALL_PART: u64 = 8;

/// On a delivery log that is led: what may go.
#[derive(Debug)]
pub(crate) struct Agreed {
    epoch: LeaderEpoch,
    /// By records that are committed.
    known: Option<Void>,
    /// By those before an offset, once they are.
    next: Option<(Offset, Void)>,
}

/// The offsets without a message of which a committed record says so.
#[derive(Debug, Clone)]
pub(crate) struct Void {
    offsets: Arc<SettledSet>,
    /// Before it their records may go. Behind it there may be some that are not committed themselves: a repeat is
    /// known as one before its record is.
    to: Offset,
}

impl Void {
    fn of(deliveries: &Deliveries) -> Void {
        let to = deliveries.forgotten_to();
        Void { offsets: Arc::new(deliveries.void().clone()), to }
    }

    fn count_within(&self, within: &Range<Offset>) -> u64 {
        self.offsets.count_within(within.start..within.end.min(self.to))
    }
}

/// Which records this process has removed from a log that was cut so many times. After a start nothing is known, and a
/// segment is written anew once more, small as it is by then.
#[derive(Debug, Default)]
pub(crate) struct Forgotten {
    generation: u64,
    removed: SettledSet,
}

/// Segments that are worth being written anew.
#[derive(Debug)]
pub(crate) struct Plan {
    within: Range<Offset>,
    /// What goes from them.
    void: Void,
    /// The largest part of a segment that goes.
    pub(crate) share: f64,
}

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// What is worth being removed from a replica of a queue-only topic; nothing for other topics. A leader also
    /// decides what may go.
    pub(crate) fn plan_forgetting(&self, cell: &Arc<Cell<D>>) -> Option<Plan> {
        let (segments, removed, ratio, segment_bytes) = {
            let slot = self.lock_in_time(cell)?;
            // Whoever holds records for readers of the log must not lose some of them.
            let holds = slot.config.retention_guard == RetentionGuard::Hold;
            let is_out = slot.closed || slot.failed || slot.compactions.stopped.is_some();
            if is_out || holds || !slot.config.is_queue_only() {
                return None;
            }
            let segments = slot.log.sealed_segments(limit(&slot.partition));
            let removed = slot.removed().cloned().unwrap_or_default();
            let segment_bytes = u64::from(log_config(&slot.config, cell.id).segment_bytes);
            (segments, removed, slot.config.min_cleanable_dirty_ratio, segment_bytes)
        };
        let end = segments.last()?.offsets.end;
        let deliveries = self.cell(cell.id.delivery_log())?;
        let look = |known: &Deliveries| {
            let start = known.settled_start();
            segments.iter().filter(|segment| start < segment.offsets.end).any(|segment| {
                let within = &segment.offsets;
                let more = known.forgettable_within(within.clone());
                let all = more + known.void().count_within(within.clone());
                0 < more && ratio < share(segment, all, &removed)
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
        plan(&segments, void, &removed, ratio, segment_bytes / SMALL_PART)
    }
}

impl<D: Disk> Slot<D> {
    /// The offsets of a delivery log's partition of which a committed record says that there is no message.
    fn committed_void(&mut self) -> Option<Void> {
        if !self.leads() {
            self.agreed = None;
            return self.folded_as_committed().map(Void::of);
        }
        let serving = self.partition.deliveries().filter(|it| it.is_serving())?;
        if mutant::is_on(Mutant::ForgottenEarly) {
            return Some(Void::of(serving));
        }
        let epoch = self.partition.leader_epoch();
        let (end, high_watermark) =
            (self.partition.log_end_offset(), self.partition.high_watermark());
        let before = self.agreed.take().filter(|agreed| agreed.epoch == epoch);
        let mut agreed =
            before.unwrap_or_else(|| Box::new(Agreed { epoch, known: None, next: None }));
        if let Some((_, void)) = agreed.next.take_if(|(needs, _)| *needs <= high_watermark) {
            agreed.known = Some(void);
        }
        agreed.next.get_or_insert_with(|| (end, Void::of(serving)));
        let known = agreed.known.clone();
        self.agreed = Some(agreed);
        known
    }

    /// What this process has removed from a log of records.
    fn removed(&self) -> Option<&SettledSet> {
        let generation = self.log.generation();
        let forgotten = self.forgotten.as_deref().filter(|it| it.generation == generation);
        forgotten.map(|forgotten| &forgotten.removed)
    }

    /// Begins what was planned.
    pub(crate) fn begin_forgetting(
        &mut self,
        plan: &Plan,
        now: Now,
    ) -> Result<Option<Compaction<D>>, CompactionError> {
        let kept: BTreeSet<Offset> = kept_batches(self);
        let limit = limit(&self.partition);
        let Void { offsets, to } = plan.void.clone();
        let is_gone = move |offset| offset < to && offsets.contains(offset);
        self.log.begin_removal(plan.within.clone(), is_gone, now, limit, kept)
    }

    /// What was planned is done.
    pub(crate) fn forgotten(&mut self, plan: &Plan) {
        let generation = self.log.generation();
        let forgotten = self.forgotten.get_or_insert_default();
        if forgotten.generation != generation {
            **forgotten = Forgotten { generation, removed: SettledSet::default() };
        }
        let removed = &mut forgotten.removed;
        removed.insert_run(Offset::ZERO..self.log.log_start_offset());
        let Range { start, end } = plan.within;
        removed.add_common(&[&plan.void.offsets], start..end.min(plan.void.to));
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
    void: Void,
    removed: &SettledSet,
    ratio: f64,
    small_bytes: u64,
) -> Option<Plan> {
    let share_of =
        |segment: &SealedSegment| share(segment, void.count_within(&segment.offsets), removed);
    // What is done with at the beginning goes as a whole.
    let void_start = void.offsets.start();
    let from = segments.partition_point(|segment| segment.offsets.end <= void_start);
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
    Some(Plan { within, void, share })
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
        let void = Void { offsets: Arc::new(set(void)), to: Offset(1_000) };
        let plan = plan(segments, void, &set(removed), 0.5, 10)?;
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
