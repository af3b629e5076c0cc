//! Reads what lies still, so that damage is found while there is time to repair it.
//!
//! ```text
//!  Log::next_to_scrub ─▶ ScrubJob ── step, step … (no lock, a piece at a time) ─▶ Log::scrubbed
//! ```
//!
//! Only segments that are sealed and durable, one after the other. Reads go through the page cache
//! without dropping anything from it: what others have read lately is not read from the disk again,
//! and is looked at the next time. Whatever changes meanwhile (a truncation, a compaction, retention)
//! makes the result void.

use std::path::PathBuf;
use std::sync::Arc;

use towpath_model::Offset;
use towpath_model::mutant::{self, Mutant};

use crate::damage::DamagedRange;
use crate::disk::Disk;
use crate::error::LogError;
use crate::examine::{Examine, Examined, Expected};
use crate::index;
use crate::log::Log;
use crate::place::FileKind;
use crate::segment::Summary;

/// One segment that is to be read.
pub struct ScrubJob<D: Disk> {
    disk: D,
    path: PathBuf,
    generation: u64,
    expected: Expected,
    open: Option<(Arc<D::File>, Examine)>,
    should_fit: bool,
}

/// Where a [`ScrubJob`] stands.
pub enum ScrubStep {
    /// There is more to read.
    More,
    /// Everything was read.
    Done(Box<Scrubbed>),
    /// The segment is gone.
    Gone,
}

/// What a scrub has found in a segment, for [`Log::scrubbed`].
pub struct Scrubbed {
    generation: u64,
    before: Summary,
    examined: Examined,
    /// There was an index of this segment to be wrong.
    should_fit: bool,
}

/// What a scrub has changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// Damage that was not known.
    pub new_damage: Vec<DamagedRange>,
    /// The segment's indexes were wrong and were written anew. Where there were none, or
    /// those of a part of it, because a compaction that was to replace the segment was given up or the
    /// disk was full, they are written without a word.
    pub has_rebuilt_index: bool,
}

impl<D: Disk> std::fmt::Debug for ScrubJob<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScrubJob")
            .field("path", &self.path)
            .field("segment", &self.expected.summary.base_offset)
            .finish_non_exhaustive()
    }
}

impl<D: Disk> ScrubJob<D> {
    /// Base offset of its segment.
    #[must_use]
    pub fn segment(&self) -> Offset {
        self.expected.summary.base_offset
    }

    /// Reads about `bytes` more; also says how many were read.
    ///
    /// # Errors
    /// When the disk cannot read the segment.
    pub fn step(&mut self, bytes: u64) -> Result<(ScrubStep, u64), LogError> {
        let base = self.segment();
        let path = FileKind::Segment.path(&self.path, base);
        if self.open.is_none() {
            if !self.disk.exists(&path).map_err(LogError::io("read", &path))? {
                return Ok((ScrubStep::Gone, 0));
            }
            let file = self.disk.open(&path).map_err(LogError::io("open", &path))?;
            let exists = |kind: FileKind| {
                let path = kind.path(&self.path, base);
                self.disk.exists(&path).map_err(LogError::io("look for", &path))
            };
            let has_index = exists(FileKind::Index)? && exists(FileKind::TimeIndex)?;
            let interval = self.expected.index_interval_bytes;
            let summary = &self.expected.summary;
            let stored = index::load_summary(&self.disk, &self.path, base)?;
            let is_of_less = stored.is_some_and(|stored| stored.next_offset < summary.next_offset);
            self.should_fit = has_index && !is_of_less;
            let is_about_it = stored.is_some_and(|stored| {
                (stored.max_timestamp, stored.max_timestamp_batch, stored.first_timestamp)
                    == (summary.max_timestamp, summary.max_timestamp_batch, summary.first_timestamp)
            });
            let stored = index::load(&self.disk, &self.path, summary, interval)?;
            let examine = Examine::new(self.expected, stored.filter(|_| is_about_it));
            self.open = Some((Arc::new(file), examine));
        }
        let (file, examine) = self.open.as_mut().expect("just opened");
        let before = examine.bytes_read();
        let is_done = examine.step(&**file, bytes).map_err(LogError::io("read", &path))?;
        let read = examine.bytes_read() - before;
        if !is_done {
            return Ok((ScrubStep::More, read));
        }
        let (_, examine) = self.open.take().expect("it is open");
        let (generation, before) = (self.generation, self.expected.summary);
        let examined = examine.finish();
        let should_fit = self.should_fit;
        let scrubbed = Scrubbed { generation, before, examined, should_fit };
        Ok((ScrubStep::Done(Box::new(scrubbed)), read))
    }
}

impl<D: Disk> Log<D> {
    /// The next segment to read after the one with base offset `after`; `None` when that was the
    /// last one that lies still.
    #[must_use]
    pub fn next_to_scrub(&self, after: Option<Offset>) -> Option<ScrubJob<D>> {
        let is_next = |segment: &Summary| after.is_none_or(|after| after < segment.base_offset);
        let mut still = self.segments.iter().filter(|segment| self.lies_still(segment));
        Some(self.scrub_job(still.find(|segment| is_next(segment))?))
    }

    /// To read the segment that holds `offset`, if it lies still.
    #[must_use]
    pub fn scrub_of(&self, offset: Offset) -> Option<ScrubJob<D>> {
        let segment = self.segment_of(offset)?;
        self.lies_still(segment).then(|| self.scrub_job(segment))
    }

    /// Whether the segment that holds `offset` lies still as soon as it is durable.
    #[must_use]
    pub fn will_lie_still(&self, offset: Offset) -> bool {
        let is_due = |segment: &Summary| segment.is_sealed && !self.lies_still(segment);
        self.segment_of(offset).is_some_and(is_due)
    }

    fn segment_of(&self, offset: Offset) -> Option<&Summary> {
        let holds =
            |segment: &&Summary| segment.base_offset <= offset && offset < segment.next_offset;
        self.segments.iter().find(holds)
    }

    fn lies_still(&self, segment: &Summary) -> bool {
        segment.is_sealed && 0 < segment.bytes && segment.next_offset <= self.durable.offset
    }

    fn scrub_job(&self, segment: &Summary) -> ScrubJob<D> {
        let gaps_below = self.checkpoints().latest.gaps_below;
        let index_interval_bytes = self.config.index_interval_bytes;
        ScrubJob {
            disk: self.disk().clone(),
            path: self.path.to_path_buf(),
            generation: self.generation(),
            expected: Expected { summary: *segment, gaps_below, index_interval_bytes },
            open: None,
            should_fit: false,
        }
    }

    /// Takes over what a scrub has found, unless the segment is another one by now: damage is
    /// written down, and refused from now on; wrong indexes are replaced.
    ///
    /// # Errors
    /// When that cannot be written.
    pub fn scrubbed(&mut self, scrubbed: Box<Scrubbed>) -> Result<ScrubReport, LogError> {
        let Scrubbed { generation, before, examined, should_fit } = *scrubbed;
        let base = before.base_offset;
        let at = self.segments.iter().position(|segment| *segment == before);
        let Some(at) = at.filter(|_| generation == self.generation()) else {
            return Ok(ScrubReport::default());
        };
        if mutant::is_on(Mutant::ScrubPassesOver) {
            return Ok(ScrubReport::default());
        }
        let known = self.damage.clone();
        let is_news = self.note_damage(&examined.damage)?;
        let mut report = ScrubReport::default();
        if is_news {
            let is_new = |range: &DamagedRange| !known.ranges().contains(range);
            report.new_damage = self.damage.ranges().into_iter().filter(is_new).collect();
        }
        // An index of a damaged segment passes it over already when its damage was known.
        let is_waiting = self.has_unsaved_index(base);
        let is_wrong = examined.is_index_wrong && (is_news || examined.damage.is_empty());
        if is_wrong && !is_waiting && !self.directory.is_failed() {
            let files = index::Files::new(&self.path, &examined.index, &examined.summary);
            files.save(self.disk())?;
            self.segments[at] = examined.summary;
            self.open.forget(base);
            report.has_rebuilt_index = should_fit;
        }
        Ok(report)
    }
}
