//! Scrub: reads at leisure what lies still, so that damage is found before somebody needs the records.
//!
//! ```text
//!  a pass over all partitions of a directory ─┐
//!                                             ├─▶ one segment, a piece at a time ─▶ damage noted for good,
//!  segments that a reader has met damage in ──┘    without the partition's lock     wrong indexes replaced
//! ```
//!
//! Each data directory has its own, so that a disk that does not answer keeps no other from being read.
//! A pass is not remembered over a restart; the first one begins at another partition each time and
//! goes round, so that a broker that restarts often still gets everywhere.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use towpath_log::disk::Disk;
use towpath_log::{DamagedRange, ScrubJob, ScrubReport, ScrubStep, Scrubbed};
use towpath_model::properties::BrokerConfig;
use towpath_model::{Now, Offset, Time, Timestamp, TopicPartition};

use crate::cell::Cell;
use crate::driver::Driver;
use crate::volume::{Volume, VolumeIndex};
use crate::world::{Clock, Net};

/// Bytes that one call reads.
const PIECE_BYTES: u64 = 1024 * 1024;
/// How often a scrub that rests looks whether a reader has met damage.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Most segments that wait for a look out of turn; the next pass comes to any others.
const DOUBTS_MAX: usize = 1000;

/// What a call of [`Driver::scrub_in`] has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScrubWork {
    /// Nothing is to be read before then.
    Idle {
        /// When to call again.
        until: Time,
    },
    /// Something was read, and there may be more.
    Worked {
        /// Bytes read.
        bytes: u64,
    },
}

/// What scrubs have done in this process, in all data directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ScrubTotals {
    /// Passes over everything in a data directory that came to their end.
    pub passes: u64,
    /// Segments read to their end.
    pub segments: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Ranges of damaged records found that were not known.
    pub damaged_ranges: u64,
    /// Segments whose indexes were wrong and were written anew.
    pub rebuilt_indexes: u64,
    /// Segments that the disk could not read.
    pub unreadable_segments: u64,
    /// When a pass last ended.
    pub last_pass: Option<Timestamp>,
}

/// Where the scrub of a data directory stands.
pub(crate) struct Scrubber<D: Disk> {
    running: Option<Running<D>>,
    pass: Pass,
}

/// Where a pass is.
#[derive(Debug, Clone, Copy)]
enum Pass {
    /// None has begun in this process.
    Never,
    /// Under way.
    At(Progress),
    /// The last one ended then.
    EndedAt(Time),
}

/// How far a pass has come.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    /// In this partition; before the first one.
    at: Option<TopicPartition>,
    /// Behind this segment of it.
    after: Option<Offset>,
    /// Where it began, if there are partitions before that to come.
    rest_until: Option<TopicPartition>,
    /// It is in those.
    has_wrapped: bool,
}

struct Running<D: Disk> {
    cell: Arc<Cell<D>>,
    job: ScrubJob<D>,
}

impl<D: Disk> Default for Scrubber<D> {
    fn default() -> Self {
        Scrubber { running: None, pass: Pass::Never }
    }
}

/// Segments that somebody has met damage in: partition and an offset.
pub(crate) type Doubts = BTreeSet<(TopicPartition, Offset)>;

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// Reads about a MiB of what lies still in a data directory, or says when there will be
    /// something to read. To be called by one thread for each directory.
    pub fn scrub_in(&self, volume: VolumeIndex) -> ScrubWork {
        let volume = self.volume(volume);
        let mut scrubber = volume.scrubber.lock().expect("no panic holds the scrubber");
        let now = self.clock.now();
        if volume.directory.is_failed() {
            scrubber.running = None;
            return ScrubWork::Idle { until: now.time + LOOK_EVERY };
        }
        if scrubber.running.is_none() {
            let config = self.image().broker_config();
            scrubber.running = self
                .next_doubtful(volume)
                .or_else(|| self.next_of_pass(volume, &mut scrubber.pass, &config, now));
        }
        let Some(mut running) = scrubber.running.take() else {
            return ScrubWork::Idle { until: now.time + LOOK_EVERY };
        };
        let (goes_on, bytes) = self.read_on(&mut running);
        self.scrub_totals().bytes += bytes;
        if goes_on {
            scrubber.running = Some(running);
        }
        ScrubWork::Worked { bytes }
    }

    /// What scrubs have done so far.
    pub fn scrubbed_so_far(&self) -> ScrubTotals {
        *self.scrub_totals()
    }

    /// Says that somebody has met records that cannot be read: their segment is read next, so that
    /// the damage is noted for good, with its limits. A segment that is still written to ends for that.
    pub fn doubt(&self, id: TopicPartition, offset: Offset) {
        let Some(cell) = self.cell(id) else { return };
        self.doubt_cell(&cell, offset);
    }

    pub(crate) fn doubt_cell(&self, cell: &Cell<D>, offset: Offset) {
        let volume = self.volume(cell.volume);
        let mut doubts = volume.doubts.lock().expect("no panic holds the doubts");
        if doubts.len() < DOUBTS_MAX {
            doubts.insert((cell.id, offset));
        }
    }

    fn scrub_totals(&self) -> MutexGuard<'_, ScrubTotals> {
        self.scrub_totals.lock().expect("no panic holds the totals")
    }

    fn next_doubtful(&self, volume: &Volume<D>) -> Option<Running<D>> {
        let doubts = || volume.doubts.lock().expect("no panic holds the doubts");
        let mut not_durable = Vec::new();
        let next = loop {
            let Some((id, offset)) = doubts().pop_first() else { break None };
            let Some(cell) = self.cell(id) else { continue };
            let mut slot = cell.lock();
            let is_known = slot.log.damaged().iter().any(|known| known.offsets.contains(&offset));
            if slot.closed || is_known {
                continue;
            }
            slot.log.seal_doubted(offset);
            if let Some(job) = slot.log.scrub_of(offset) {
                drop(slot);
                break Some(Running { cell, job });
            }
            if slot.log.will_lie_still(offset) {
                not_durable.push((id, offset));
            }
        };
        doubts().extend(not_durable);
        next
    }

    /// The segment that a pass comes to next; `None` when it has ended, or none is due.
    fn next_of_pass(
        &self,
        volume: &Volume<D>,
        pass: &mut Pass,
        config: &BrokerConfig,
        now: Now,
    ) -> Option<Running<D>> {
        let interval = config.scrub_interval?;
        let mut progress = match *pass {
            Pass::Never => {
                let first = self.somewhere(volume, now);
                Progress { at: first, rest_until: first, ..Progress::default() }
            }
            Pass::At(progress) => progress,
            Pass::EndedAt(ended) if ended + interval <= now.time => Progress::default(),
            Pass::EndedAt(_) => return None,
        };
        // The partition where the pass is, unless it is through with it, and those behind it.
        let mut may_be_same = true;
        loop {
            let next = self.cell_from(volume, progress.at, may_be_same);
            let is_over = |cell: &Arc<Cell<D>>| {
                progress.has_wrapped && progress.rest_until.is_some_and(|end| end <= cell.id)
            };
            let Some(cell) = next.filter(|cell| !is_over(cell)) else {
                if progress.has_wrapped || progress.rest_until.is_none() {
                    break;
                }
                progress = Progress { at: None, after: None, has_wrapped: true, ..progress };
                may_be_same = true;
                continue;
            };
            may_be_same = false;
            if progress.at != Some(cell.id) {
                (progress.at, progress.after) = (Some(cell.id), None);
            }
            let slot = cell.lock();
            let job = slot.log.next_to_scrub(progress.after).filter(|_| !slot.closed);
            drop(slot);
            if let Some(job) = job {
                *pass = Pass::At(Progress { after: Some(job.segment()), ..progress });
                return Some(Running { cell, job });
            }
        }
        *pass = Pass::EndedAt(now.time);
        let mut totals = self.scrub_totals();
        totals.passes += 1;
        totals.last_pass = Some(now.wall);
        None
    }

    /// The first partition of a directory at or behind one.
    fn cell_from(
        &self,
        volume: &Volume<D>,
        at: Option<TopicPartition>,
        may_be_same: bool,
    ) -> Option<Arc<Cell<D>>> {
        let from = match at {
            None => Bound::Unbounded,
            Some(at) if may_be_same => Bound::Included(at),
            Some(at) => Bound::Excluded(at),
        };
        let cells = self.cells.read().expect("no panic holds the map");
        let mut behind = cells.range((from, Bound::Unbounded)).map(|(_, cell)| cell);
        behind.find(|cell| cell.volume == volume.index).cloned()
    }

    /// A partition of the directory that depends on the hour of the start.
    fn somewhere(&self, volume: &Volume<D>, now: Now) -> Option<TopicPartition> {
        let cells = self.cells.read().expect("no panic holds the map");
        let here: Vec<_> = cells.values().filter(|cell| cell.volume == volume.index).collect();
        let at = usize::try_from(now.wall.0.unsigned_abs()).unwrap_or(0) % here.len().max(1);
        here.get(at).map(|cell| cell.id)
    }

    /// One step, without the partition's lock; false when that was the last one of this segment.
    fn read_on(&self, running: &mut Running<D>) -> (bool, u64) {
        let Running { cell, job } = running;
        if cell.lock().closed {
            return (false, 0);
        }
        match job.step(PIECE_BYTES) {
            Ok((ScrubStep::More, bytes)) => (true, bytes),
            Ok((ScrubStep::Gone, bytes)) => (false, bytes),
            Ok((ScrubStep::Done(scrubbed), bytes)) => {
                self.scrub_totals().segments += 1;
                self.take_over(cell, scrubbed);
                (false, bytes)
            }
            Err(error) => {
                self.scrub_totals().unreadable_segments += 1;
                tracing::error!(topic = %cell.topic, partition = %cell.id.partition, %error,
                    "the disk cannot read a segment: look at the disk, and move its partitions away");
                (false, 0)
            }
        }
    }

    fn take_over(&self, cell: &Cell<D>, scrubbed: Box<Scrubbed>) {
        let mut slot = cell.lock();
        if slot.closed {
            return;
        }
        let result = slot.log.scrubbed(scrubbed);
        drop(slot);
        match result {
            Ok(ScrubReport { new_damage, has_rebuilt_index }) => {
                let mut totals = self.scrub_totals();
                totals.damaged_ranges += new_damage.len() as u64;
                totals.rebuilt_indexes += u64::from(has_rebuilt_index);
                drop(totals);
                if has_rebuilt_index {
                    tracing::warn!(topic = %cell.topic, partition = %cell.id.partition,
                        "the index of a segment was wrong on the disk and was written anew");
                }
                if !new_damage.is_empty() {
                    self.suspect(cell.id);
                }
                new_damage.iter().for_each(|range| tell(cell, range));
            }
            Err(error) => {
                tracing::error!(topic = %cell.topic, partition = %cell.id.partition, %error,
                    "what a scrub has found could not be written down");
            }
        }
    }
}

fn tell<D: Disk>(cell: &Cell<D>, range: &DamagedRange) {
    tracing::error!(topic = %cell.topic, partition = %cell.id.partition,
        from = %range.offsets.start, to = %range.offsets.end, cause = %range.cause,
        "damaged records: they are refused from now on, everything else is served");
}
