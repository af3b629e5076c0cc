//! Finds records by time, exact to the record, without the lock of the partition.
//!
//! ```text
//!  lock ─▶ Log::time_lookup: which segments may hold it ─▶ unlock
//!          TimeLookup::advance: walks headers, reads one batch    ◀─┐  waits for the device, or says
//!          TimeLookup::look:    decompresses it                   ──┘  that it would have to
//!  lock ─▶ Log::has_seen: the segments were still those
//! ```
//!
//! Timestamps need not rise with offsets: "the first record that is not older than t" means the
//! lowest offset. The time index skips what is certainly older, batch headers skip the rest but
//! one, and that batch is decompressed, in memory that the caller owns.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use towpath_model::{LeaderEpoch, Offset, Timestamp, TopicPartition};
use towpath_records::{BatchHeader, CompressionError, RecordsError, Scratch, records};

use crate::damage::DamageList;
use crate::disk::Disk;
use crate::envelope::{read_full, read_resident};
use crate::error::{LogError, ReadError};
use crate::files::OpenSegment;
use crate::index::SparseIndex;
use crate::log::Log;
use crate::place::FileKind;
use crate::read::{open_sealed, walk_from};
use crate::scan::{Found, LARGE_BUFFER, SMALL_BUFFER, Scan};
use crate::segment::Summary;
use crate::warm_up::Warmed;

/// Most bytes that a batch may have after decompression, here as in the validation of producers'
/// batches: a lookup must not be the way to exhaust memory.
pub const LOOKUP_PLAIN_BYTES_MAX: usize = 256 << 20;

/// Segments that one lookup takes along. The first one nearly always has the record.
const CANDIDATES_MAX: usize = 4;

/// A record's time, offset and leader epoch.
pub type AtRecord = (Timestamp, Offset, LeaderEpoch);

/// Which record is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeQuery {
    /// The first whose timestamp is this or later.
    AtOrAfter(Timestamp),
    /// The one with the largest timestamp, the first of them (KIP-734); none without a timestamp.
    Newest,
}

/// What a step of a lookup may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// Reads only what is in memory, at most so many bytes for headers and so many for a batch.
    Hasty(u64),
    /// Waits for the device, for as much as it takes.
    Patient,
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeStep {
    /// [`TimeLookup::look`] at the batch that was read.
    Look,
    /// Nothing: [`TimeLookup::found`] says what there is.
    Done,
}

/// A search for a record by its time. It holds no lock, and the files that it has opened.
pub struct TimeLookup<D: Disk> {
    disk: D,
    path: Arc<Path>,
    partition: TopicPartition,
    interval: u32,
    query: TimeQuery,
    /// Only records in `[log_start, end)` count.
    log_start: Offset,
    end: Offset,
    damage: DamageList,
    /// What is still to be searched, in order.
    candidates: VecDeque<Candidate<D>>,
    /// Where segments begin that are not among them.
    rest: Option<Offset>,
    walk: Option<Walk<D>>,
    /// A batch that was read and has to be looked at.
    batch: Option<(BatchHeader, Vec<u8>)>,
    found: Option<AtRecord>,
    /// Segments that had to be opened by name: they may have been others by then.
    named: Vec<Summary>,
    opened: Vec<Warmed<D>>,
}

struct Candidate<D: Disk> {
    summary: Summary,
    source: Source<D>,
    job: Job,
}

enum Source<D: Disk> {
    /// The active segment, and where its walk begins.
    Active(Arc<D::File>, u64),
    Open(OpenSegment<D::File>),
    Closed,
}

/// What is looked for in one segment.
#[derive(Debug, Clone, Copy)]
enum Job {
    AtOrAfter(Timestamp),
    /// The newest of records that are only partly within the bounds, or not committed yet.
    Newest,
    /// The newest, which lies in a batch that is known, and has this time.
    NewestIn(Offset, Timestamp),
}

struct Walk<D: Disk> {
    summary: Summary,
    file: Arc<D::File>,
    scan: Scan,
    job: Job,
    /// The batch within the bounds that has the newest record so far.
    newest: Option<(BatchHeader, u64)>,
    /// A batch that has to be read.
    wanted: Option<(BatchHeader, u64)>,
    is_over: bool,
}

impl<D: Disk> Log<D> {
    /// Begins to look for a record before `end`, in segments from `from` on. Reads nothing.
    #[must_use]
    pub fn time_lookup(&self, query: TimeQuery, from: Offset, end: Offset) -> TimeLookup<D> {
        let mut lookup = TimeLookup {
            disk: self.disk().clone(),
            path: Arc::clone(&self.path),
            partition: self.partition,
            interval: self.config.index_interval_bytes,
            query,
            log_start: self.log_start,
            end,
            damage: self.damage.clone(),
            candidates: VecDeque::new(),
            rest: None,
            walk: None,
            batch: None,
            found: None,
            named: Vec::new(),
            opened: Vec::new(),
        };
        let within = self.segments.iter().filter(|segment| {
            from <= segment.base_offset
                && segment.base_offset < end
                && self.log_start < segment.next_offset
        });
        match query {
            TimeQuery::AtOrAfter(at) => {
                let mut may_hold = within.filter(|segment| at <= segment.max_timestamp);
                let first = may_hold.by_ref().take(CANDIDATES_MAX);
                lookup.candidates = first.map(|s| self.candidate(s, Job::AtOrAfter(at))).collect();
                lookup.rest = may_hold.next().map(|segment| segment.base_offset);
            }
            TimeQuery::Newest => lookup.candidates = self.newest_candidates(within, end),
        }
        lookup
    }

    /// Of the segments whose newest record is known, the one that has the newest; and those, at most
    /// the first and the last, of which only a part counts.
    fn newest_candidates<'s>(
        &self,
        within: impl Iterator<Item = &'s Summary>,
        end: Offset,
    ) -> VecDeque<Candidate<D>> {
        let mut known: Option<&Summary> = None;
        let mut chosen: Vec<(&Summary, Job)> = Vec::new();
        for segment in within {
            if end < segment.next_offset || segment.max_timestamp_batch < self.log_start {
                chosen.push((segment, Job::Newest));
            } else if known.is_none_or(|known| known.max_timestamp < segment.max_timestamp) {
                known = Some(segment);
            }
        }
        if let Some(known) = known.filter(|known| Timestamp(0) <= known.max_timestamp) {
            chosen.push((known, Job::NewestIn(known.max_timestamp_batch, known.max_timestamp)));
        }
        chosen.sort_by_key(|(segment, _)| segment.base_offset);
        chosen.into_iter().map(|(segment, job)| self.candidate(segment, job)).collect()
    }

    fn candidate(&self, summary: &Summary, job: Job) -> Candidate<D> {
        let base = summary.base_offset;
        let source = match &self.active {
            Some(active) if !summary.is_sealed => {
                let from = job.begins_at(&active.index, base, self.log_start);
                let position = walk_from(&active.index, &self.damage, base, from);
                Source::Active(Arc::clone(&active.file), position)
            }
            _ => self.open.get(base).map_or(Source::Closed, Source::Open),
        };
        Candidate { summary: *summary, source, job }
    }

    /// Keeps what a lookup has opened. Whether every segment was still the one that it was to look at:
    /// otherwise it has to be begun anew.
    pub fn has_seen(&self, lookup: &mut TimeLookup<D>) -> bool {
        let opened = std::mem::take(&mut lookup.opened);
        opened.into_iter().for_each(|warmed| self.keep_open(warmed));
        lookup.named.iter().all(|seen| self.segments.contains(seen))
    }
}

impl Job {
    /// At which offset of a segment its walk begins.
    fn begins_at(self, index: &SparseIndex, base: Offset, log_start: Offset) -> Offset {
        match self {
            Job::AtOrAfter(at) => index.all_older_before(base, at).max(log_start),
            Job::Newest => log_start.max(base),
            Job::NewestIn(batch, _) => batch,
        }
    }
}

impl<D: Disk> TimeLookup<D> {
    /// The record, as far as the lookup has come.
    #[must_use]
    pub fn found(&self) -> Option<AtRecord> {
        self.found
    }

    /// When it is done: where another lookup has to go on.
    #[must_use]
    pub fn goes_on_at(&self) -> Option<Offset> {
        self.rest.filter(|_| self.found.is_none())
    }

    /// Size of the batch that has to be looked at, as it is stored.
    #[must_use]
    pub fn batch_bytes(&self) -> usize {
        self.batch.as_ref().map_or(0, |(_, bytes)| bytes.len())
    }

    /// Walks on to the next batch that has to be looked at, and reads it.
    ///
    /// # Errors
    /// [`ReadError::NotResident`] when that takes more than its patience: the next call goes on
    /// there. Otherwise the disk has failed.
    pub fn advance(&mut self, patience: Patience) -> Result<TimeStep, ReadError> {
        loop {
            if self.batch.is_some() {
                return Ok(TimeStep::Look);
            }
            let Some(walk) = &mut self.walk else {
                let Some(candidate) = self.candidates.pop_front() else {
                    return Ok(TimeStep::Done);
                };
                self.begin(candidate, patience)?;
                continue;
            };
            if let Some((header, position)) = walk.wanted {
                let bytes = walk.read_batch(&header, position, patience);
                let path = FileKind::Segment.path(&self.path, walk.summary.base_offset);
                let bytes = bytes.map_err(LogError::io("read", &path))?;
                walk.wanted = None;
                self.batch = Some((header, bytes));
                continue;
            }
            if walk.is_over {
                self.walk = None;
                continue;
            }
            self.walk_on(patience)?;
        }
    }

    fn begin(&mut self, candidate: Candidate<D>, patience: Patience) -> Result<(), ReadError> {
        let Candidate { summary, source, job } = candidate;
        if let (Job::NewestIn(_, time), Some((found, ..))) = (job, self.found)
            && time < found
        {
            return Ok(());
        }
        let base = summary.base_offset;
        let open = match source {
            Source::Active(file, position) => {
                self.walk = Some(Walk::new(summary, file, position, job));
                return Ok(());
            }
            Source::Open(open) => open,
            Source::Closed if patience != Patience::Patient => {
                self.candidates.push_front(Candidate { summary, source: Source::Closed, job });
                return Err(ReadError::NotResident);
            }
            Source::Closed => {
                self.named.push(summary);
                let open = open_sealed(&self.disk, &self.path, &summary, self.interval)?;
                self.opened.push(Warmed { summary, open: open.clone() });
                open
            }
        };
        let from = job.begins_at(&open.index, base, self.log_start);
        let position = walk_from(&open.index, &self.damage, base, from);
        self.walk = Some(Walk::new(summary, open.file, position, job));
        Ok(())
    }

    /// One header further.
    fn walk_on(&mut self, patience: Patience) -> Result<(), ReadError> {
        let Some(walk) = &mut self.walk else { return Ok(()) };
        if let Patience::Hasty(bytes_max) = patience {
            walk.scan.read_only_resident_before(walk.summary.bytes);
            if bytes_max < walk.scan.bytes_read() {
                return Err(ReadError::NotResident);
            }
        } else {
            walk.scan.read_only_resident_before(0);
        }
        let header = walk.next_header(&self.damage).map_err(|source| {
            let path = FileKind::Segment.path(&self.path, walk.summary.base_offset);
            LogError::io("read", &path)(source)
        })?;
        let Some((header, position)) = header.filter(|(h, _)| h.base_offset() < self.end) else {
            walk.is_over = true;
            // What is as new lies in an earlier batch than what was found at the end.
            let newest = walk.newest.filter(|(header, _)| {
                self.found.is_none_or(|(found, ..)| found <= header.max_timestamp())
            });
            walk.wanted = newest;
            return Ok(());
        };
        if header.record_count() == 0 || header.next_offset() <= self.log_start {
            return Ok(());
        }
        let is_whole = self.log_start <= header.base_offset() && header.next_offset() <= self.end;
        let time = header.max_timestamp();
        match walk.job {
            Job::AtOrAfter(at) if time < at => {}
            Job::AtOrAfter(_) => walk.wanted = Some((header, position)),
            Job::NewestIn(batch, _) if header.base_offset() < batch => {}
            Job::NewestIn(..) => {
                walk.is_over = true;
                walk.wanted = Some((header, position));
            }
            // The maximum in its header may be that of a record outside.
            Job::Newest if !is_whole => walk.wanted = Some((header, position)),
            Job::Newest => {
                let newest =
                    walk.newest.map_or(Timestamp(-1), |(header, _)| header.max_timestamp());
                if newest < time {
                    walk.newest = Some((header, position));
                }
            }
        }
        Ok(())
    }

    /// Looks at the records of the batch that was read, in at most `plain_bytes_max` bytes of memory.
    /// `false`: they take more, and the batch is kept.
    ///
    /// # Errors
    /// When the records are damaged, or take more than [`LOOKUP_PLAIN_BYTES_MAX`].
    pub fn look(
        &mut self,
        plain_bytes_max: usize,
        scratch: &mut Scratch,
    ) -> Result<bool, LogError> {
        let Some((header, batch)) = self.batch.take() else { return Ok(true) };
        let corrupt = || LogError::Corrupt {
            partition: self.partition,
            from: header.base_offset(),
            to: header.next_offset(),
        };
        let found = match records(&batch, plain_bytes_max, scratch) {
            Err(RecordsError::Compression(CompressionError::TooLarge { .. }))
                if plain_bytes_max < LOOKUP_PLAIN_BYTES_MAX =>
            {
                self.batch = Some((header, batch));
                return Ok(false);
            }
            found => found.map_err(|_| corrupt())?,
        };
        let mut best = self.found;
        for record in found {
            let record = record.map_err(|_| corrupt())?;
            let offset = header.offset_of(record.offset_delta);
            if self.log_start <= offset && offset < self.end {
                let timestamp = header.timestamp_of(record.timestamp_delta);
                let record = (timestamp, offset, header.leader_epoch());
                if self.query.prefers(record, best) {
                    best = Some(record);
                }
            }
        }
        self.found = best;
        if best.is_some() && self.query != TimeQuery::Newest {
            self.candidates.clear();
            self.walk = None;
        }
        Ok(true)
    }
}

impl TimeQuery {
    /// Whether a record is a better answer than the best so far.
    fn prefers(self, record: AtRecord, best: Option<AtRecord>) -> bool {
        match (self, best) {
            (TimeQuery::AtOrAfter(at), None) => at <= record.0,
            (TimeQuery::AtOrAfter(_), Some(_)) => false,
            (TimeQuery::Newest, None) => Timestamp(0) <= record.0,
            (TimeQuery::Newest, Some(best)) => {
                best.0 < record.0 || (best.0 == record.0 && record.1 < best.1)
            }
        }
    }
}

impl<D: Disk> Walk<D> {
    fn new(summary: Summary, file: Arc<D::File>, position: u64, job: Job) -> Walk<D> {
        let buffer = if matches!(job, Job::Newest) { LARGE_BUFFER } else { SMALL_BUFFER };
        let scan = Scan::headers(position, summary.bytes, buffer);
        Walk { summary, file, scan, job, newest: None, wanted: None, is_over: false }
    }

    /// The next batch; damage is passed over where it is known what lies behind it.
    fn next_header(&mut self, damage: &DamageList) -> std::io::Result<Option<(BatchHeader, u64)>> {
        loop {
            match self.scan.next(&*self.file) {
                Ok(Found::Batch { header, position, .. }) => return Ok(Some((header, position))),
                Ok(Found::End) => return Ok(None),
                Ok(Found::Invalid) => {}
                Err(error) => {
                    // What its buffer holds now is nothing.
                    self.scan = self.scan.again_from(self.scan.position());
                    return Err(error);
                }
            }
            let (base, at) = (self.summary.base_offset, self.scan.position());
            let resumed = damage.iter().filter_map(|damage| damage.resume);
            let behind = resumed.filter(|(segment, position)| *segment == base && at < *position);
            let Some((_, position)) = behind.min() else { return Ok(None) };
            self.scan = self.scan.again_from(position);
        }
    }

    fn read_batch(
        &self,
        header: &BatchHeader,
        position: u64,
        patience: Patience,
    ) -> std::io::Result<Vec<u8>> {
        let size = header.size_in_bytes();
        if matches!(patience, Patience::Hasty(bytes_max) if bytes_max < size as u64) {
            return Err(std::io::ErrorKind::WouldBlock.into());
        }
        let mut batch = vec![0; size];
        let read = match patience {
            Patience::Hasty(_) => read_resident(&*self.file, &mut batch, position)?,
            Patience::Patient => read_full(&*self.file, &mut batch, position)?,
        };
        batch.truncate(read);
        Ok(batch)
    }
}
