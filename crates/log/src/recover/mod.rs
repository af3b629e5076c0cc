//! Opens a log: finds its end, cuts what was torn, and reports what was lost.
//!
//! ```text
//!  segments ──trusted──┬── scanned, checksum by checksum ──▶ first invalid batch at p
//!                      └ durable point of the checkpoint
//!
//!  p < known durable   damage: never cut, reads of the range are refused
//!  p ≥ known durable   torn or reordered writes that nobody was promised: cut at p
//! ```
//!
//! What is known to have been durable is the checkpoint's durable offset, or what the write-ahead
//! file said, whichever is later. After a stop that was not clean everything was synced before the
//! first log is opened ([`crate::DataDirectory::open`]), and what a scan reads is read from the
//! disk, not from a cache that may show more: so what it finds is durable. It writes nothing unless
//! it has changed something; the next commit writes the checkpoint.

mod walk;

use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use towpath_model::mutant::{self, Mutant};
use towpath_model::{LeaderEpoch, Offset, TopicPartition};
use towpath_records::BatchHeader;

use crate::checkpoint::{self, Checkpoints, Point};
use crate::compact;
use crate::damage::{Damage, DamageCause, DamageList, DamagedRange, Loaded};
use crate::directory::DataDirectory;
use crate::disk::{Disk, DiskFile};
use crate::error::LogError;
use crate::files::{OpenSegment, OpenSegments};
use crate::identity::LastStop;
use crate::index::{self, SparseIndex};
use crate::log::{Active, Log, LogConfig, note_epoch};
use crate::place::{FileKind, LogPlace};
use crate::scan::{LARGE_BUFFER, Scan};
use crate::segment::Summary;
use walk::{Step, Walk};

/// Reserved space up to this size is read to see that it is zeros; more is cut off unread.
const ZEROS_READ_MAX: u64 = 1 << 20;

/// The end of a log that was cut because nobody had been promised what followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// The new log end offset.
    pub at: Offset,
    /// Bytes behind it that were not zeros, at least.
    pub bytes: u64,
    /// Whole batches were found behind the first invalid one: writes that reached the disk out of
    /// order.
    pub was_reordered: bool,
    /// The invalid batch does not look torn: none of its sectors is missing. It may be damage.
    pub is_suspect: bool,
}

/// What opening a log found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovery {
    /// Whose log.
    pub partition: TopicPartition,
    /// The end that was cut off, if one was.
    pub cut: Option<Cut>,
    /// Records that were durable and are unreadable, found now or before.
    pub damage: Vec<DamagedRange>,
    /// How many of these ranges nobody knew of before.
    pub new_damage: usize,
    /// Bytes that were read.
    pub scanned_bytes: u64,
}

impl Recovery {
    /// For logs that are of no use with a hole in them.
    ///
    /// # Errors
    /// [`LogError::Corrupt`] with the first damaged range.
    pub fn refuse_damage(&self) -> Result<(), LogError> {
        match self.damage.first() {
            None => Ok(()),
            Some(range) => Err(LogError::Corrupt {
                partition: self.partition,
                from: range.offsets.start,
                to: range.offsets.end,
            }),
        }
    }
}

/// Opens the log at `place`. `replayed` is up to where the write-ahead file made it durable.
pub(crate) fn open<D: Disk>(
    directory: DataDirectory<D>,
    place: &LogPlace,
    config: LogConfig,
    replayed: Option<Offset>,
) -> Result<(Log<D>, Recovery), LogError> {
    let path: Arc<Path> = directory.inner.root.join(place.path()).into();
    let disk = directory.inner.disk.clone();
    let has_directory = disk.exists(&path).map_err(LogError::io("look for", &path))?;
    // A log without a directory was deleted: its name was certain before anything in it was.
    let replayed = replayed.filter(|_| has_directory);
    let shows_cached = directory.inner.last_stop == LastStop::ProcessEnded
        && !mutant::is_on(Mutant::CacheBelieved);
    let (checkpoints, found) = Checkpoints::load(disk.clone(), Arc::clone(&path), shows_cached)?;
    let mut recover = Recover {
        config,
        was_clean: directory.inner.last_stop == LastStop::Clean,
        shows_cached,
        readable: (found == checkpoint::Found::Readable).then_some(checkpoints.latest.durable),
        known: None,
        log_start: checkpoints.latest.log_start,
        gaps_below: checkpoints.latest.gaps_below,
        expected: Offset::ZERO,
        epochs: checkpoints.latest.epochs.clone(),
        segments: Vec::new(),
        last: None,
        damage: DamageList::default(),
        new_damage: 0,
        gap_cause: None,
        unsaved_indexes: Vec::new(),
        cut: None,
        scanned_bytes: 0,
        has_changed: false,
        disk,
        path,
    };
    // The first checkpoint was torn while it was written: that none was written before it shows in
    // the first segment, which no retention has removed. A clean stop has torn nothing.
    let first = FileKind::Segment.path(&recover.path, Offset::ZERO);
    let begins_at_zero =
        has_directory && recover.disk.exists(&first).map_err(LogError::io("look for", &first))?;
    recover.known = match found {
        checkpoint::Found::Nothing => Some(replayed.unwrap_or_default()),
        checkpoint::Found::Readable => Some(checkpoints.latest.durable.offset).max(replayed),
        checkpoint::Found::FirstUnreadable if begins_at_zero && !recover.was_clean => {
            Some(replayed.unwrap_or_default())
        }
        checkpoint::Found::FirstUnreadable | checkpoint::Found::Damaged => None,
    };
    if recover.known.is_none() {
        recover.gaps_below = Offset(i64::MAX);
    }
    if has_directory {
        match DamageList::load(&recover.disk, &recover.path, shows_cached)? {
            Loaded::Nothing => {}
            Loaded::Known(list) => recover.damage = list,
            // Every batch is looked at.
            Loaded::Unreadable => {
                recover.readable = None;
                recover.has_changed = true;
            }
        }
        recover.run()?;
    }
    recover.finish(directory, place, checkpoints, has_directory)
}

struct Recover<D: Disk> {
    disk: D,
    path: Arc<Path>,
    config: LogConfig,
    was_clean: bool,
    /// A read may show what the disk lacks, unless it is told not to.
    shows_cached: bool,
    /// The durable point of a readable checkpoint: what lies in segments before it is trusted.
    readable: Option<Point>,
    /// Everything before it was durable. `None` when there were checkpoints and none is readable:
    /// then nothing that has something valid behind it is cut.
    known: Option<Offset>,
    log_start: Offset,
    /// A compaction may have left gaps between batches that end at or before it.
    gaps_below: Offset,
    /// The offset that must come next: the log end so far.
    expected: Offset,
    epochs: Vec<(LeaderEpoch, Offset)>,
    segments: Vec<Summary>,
    /// File and index of the last of `segments`.
    last: Option<(D::File, SparseIndex)>,
    /// What was known and what was found.
    damage: DamageList,
    new_damage: usize,
    /// What is wrong with the end of the segment before, which the next one shows to lack something.
    gap_cause: Option<DamageCause>,
    /// Indexes of segments with damage: not to be trusted before that is written down.
    unsaved_indexes: Vec<index::Files>,
    cut: Option<Cut>,
    scanned_bytes: u64,
    /// Something was found that the checkpoint does not say.
    has_changed: bool,
}

/// Whether the walk goes on to the next segment.
enum Next {
    Segment,
    Nothing,
}

impl<D: Disk> Recover<D> {
    fn run(&mut self) -> Result<(), LogError> {
        let bases = self.segments_on_disk()?;
        let Some(first) = bases.first() else { return Ok(()) };
        // A log start that ever moved is in a checkpoint. Where none was written it is 0, and a
        // first segment that begins later only lacks those that a crash took.
        if self.known.is_none() {
            self.log_start = *first;
        }
        self.expected = *first;
        if self.log_start < *first {
            self.expected = self.log_start;
        }
        for (at, base) in bases.iter().enumerate() {
            let next_base = bases.get(at + 1).copied();
            let next = self.segment(*base, next_base)?;
            if let Next::Nothing = next {
                self.remove_segments(&bases[at + 1..])?;
                break;
            }
        }
        Ok(())
    }

    /// Base offsets of the segments, without those that lie below the log start; unfinished files
    /// are removed.
    fn segments_on_disk(&mut self) -> Result<Vec<Offset>, LogError> {
        let names = self.disk.list(&self.path).map_err(LogError::io("list", &self.path))?;
        for name in names.iter().filter(|name| name.ends_with(".tmp")) {
            let path = self.path.join(name);
            self.disk.remove_file(&path).map_err(LogError::io("remove", &path))?;
        }
        let names = if compact::finish(&self.disk, &self.path, &names)? {
            self.has_changed = true;
            self.disk.list(&self.path).map_err(LogError::io("list", &self.path))?
        } else {
            names
        };
        let of_kind = |kind: FileKind| names.iter().filter_map(move |name| kind.offset_in(name));
        let mut bases: Vec<Offset> = of_kind(FileKind::Segment).collect();
        bases.sort_unstable();
        for stray in of_kind(FileKind::Index).chain(of_kind(FileKind::TimeIndex)) {
            if bases.binary_search(&stray).is_err() {
                remove_index_files(&self.disk, &self.path, stray)?;
            }
        }
        if self.readable.is_some() {
            let start = self.log_start;
            let below = bases.windows(2).take_while(|pair| pair[1] <= start).count();
            self.remove_segments(&bases[..below])?;
            bases.drain(..below);
        }
        Ok(bases)
    }

    /// Newest first, so that what a crash leaves has no hole.
    fn remove_segments(&mut self, bases: &[Offset]) -> Result<(), LogError> {
        for base in bases.iter().rev() {
            remove_segment_files(&self.disk, &self.path, *base)?;
            self.has_changed = true;
        }
        Ok(())
    }

    fn segment(&mut self, base: Offset, next_base: Option<Offset>) -> Result<Next, LogError> {
        if base != self.expected
            && let Next::Nothing = self.gap(base)
        {
            self.remove_segments(&[base])?;
            return Ok(Next::Nothing);
        }
        let path = FileKind::Segment.path(&self.path, base);
        let failed = |source| LogError::io("read", &path)(source);
        let file = self.disk.open(&path).map_err(failed)?;
        if self.shows_cached {
            index::drop_cached(&self.disk, &self.path, base)?;
        }
        let length = file.len().map_err(failed)?;
        if let Some(summary) = self.trusted(base, next_base, length)? {
            self.expected = summary.next_offset;
            self.segments.push(summary);
            self.last = None;
            return Ok(Next::Segment);
        }
        let (summary, index) = self.begin_of_scan(base, length)?;
        if self.shows_cached {
            file.drop_cached(summary.bytes, u64::MAX).map_err(failed)?;
        }
        let length = file.len().map_err(failed)?;
        let scan = Scan::bodies(summary.bytes, length, LARGE_BUFFER);
        let scanned_from = summary.bytes;
        let mut walk = Walk { path, file, length, next_base, summary, index, scan, damaged: false };
        let next = self.walk(&mut walk)?;
        self.scanned_bytes += walk.scan.bytes_read();
        self.keep(walk, scanned_from)?;
        Ok(next)
    }

    /// The summary of a sealed segment that lies wholly before the checkpoint's durable point.
    fn trusted(
        &self,
        base: Offset,
        next_base: Option<Offset>,
        length: u64,
    ) -> Result<Option<Summary>, LogError> {
        let durable_in = self.readable.and_then(|point| point.segment);
        if durable_in.is_none_or(|segment| segment <= base) {
            return Ok(None);
        }
        let summary = index::load_summary(&self.disk, &self.path, base)?;
        Ok(summary.filter(|summary| {
            let has_all = Some(summary.next_offset) == next_base
                || next_base.is_some_and(|next| self.is_known_gone(summary.next_offset, next));
            summary.is_sealed && summary.bytes <= length && has_all
        }))
    }

    fn is_known_gone(&self, from: Offset, to: Offset) -> bool {
        self.damage.at(from).is_some_and(|damage| to <= damage.to)
    }

    /// What is known of the segment already: the prefix that its index describes, when the
    /// checkpoint says that this prefix is durable.
    fn begin_of_scan(
        &mut self,
        base: Offset,
        length: u64,
    ) -> Result<(Summary, SparseIndex), LogError> {
        let interval = self.config.index_interval_bytes;
        if let Some(point) = self.readable
            && point.segment == Some(base)
            && let Some(summary) = index::load_summary(&self.disk, &self.path, base)?
            && summary.next_offset == point.offset
            && summary.bytes == point.position
            && summary.bytes <= length
            && let Some(index) = index::load(&self.disk, &self.path, &summary, interval)?
        {
            self.expected = summary.next_offset;
            return Ok((summary, index));
        }
        Ok((Summary::empty(base), SparseIndex::new(interval)))
    }

    fn walk(&mut self, walk: &mut Walk<D>) -> Result<Next, LogError> {
        loop {
            match walk.step()? {
                Step::Batch(header, position)
                    if self.follows(&header, walk.next_base)
                        && fits_segment(&header, walk.summary.base_offset) =>
                {
                    walk.note(&header, position);
                    note_epoch(&mut self.epochs, &header);
                    self.expected = header.next_offset();
                }
                Step::End if !self.is_missing_something(walk.next_base) => {
                    return Ok(Next::Segment);
                }
                Step::Batch(_, at) | Step::Invalid(at) => {
                    if let Some(next) = self.invalid(walk, at)? {
                        return Ok(next);
                    }
                }
                Step::End => {
                    let at = walk.scan.position();
                    if let Some(next) = self.invalid(walk, at)? {
                        return Ok(next);
                    }
                }
            }
        }
    }

    /// Whether a batch may come next. Where a compaction has been there may be a gap before it.
    fn follows(&self, header: &BatchHeader, next_base: Option<Offset>) -> bool {
        let (base, next) = (header.base_offset(), header.next_offset());
        let may_have_gap = next <= self.gaps_below;
        let is_next = base == self.expected || (self.expected < base && may_have_gap);
        is_next && next_base.is_none_or(|next_base| next <= next_base)
    }

    fn is_missing_something(&self, next_base: Option<Offset>) -> bool {
        match self.known {
            Some(known) => self.expected < known && next_base != Some(self.expected),
            None => next_base.is_some_and(|next_base| self.expected != next_base),
        }
    }

    /// No batch that may come next lies at `at`. `None`: one lies further on, and the walk resumes
    /// there.
    fn invalid(&mut self, walk: &mut Walk<D>, at: u64) -> Result<Option<Next>, LogError> {
        let was_durable = self.known.is_none_or(|known| self.expected < known)
            && !mutant::is_on(Mutant::DamageCut);
        walk.scan = Scan::bodies(at, walk.length, LARGE_BUFFER);
        let (expected, next_base, known) = (self.expected, walk.next_base, self.known);
        let base = walk.summary.base_offset;
        let is_plausible = |header: &BatchHeader| {
            let is_in_segment = next_base.is_none_or(|next| header.next_offset() <= next);
            expected <= header.base_offset() && is_in_segment && fits_segment(header, base)
        };
        let resumed = walk.resynchronise(is_plausible)?;
        if was_durable {
            let resumed =
                resumed.filter(|header| known.is_none_or(|known| header.base_offset() <= known));
            if let Some(header) = resumed {
                let resume = Some((walk.summary.base_offset, walk.scan.position()));
                let cause = walk.cause_at(at)?;
                self.note_damage(header.base_offset(), resume, cause);
                walk.damaged = true;
                walk.index.expect_entry();
                return Ok(None);
            }
            return self.lost_to_the_end(walk, at).map(Some);
        }
        self.cut(walk, at, resumed.is_some())?;
        Ok(Some(Next::Nothing))
    }

    /// Durable records are gone, and nothing valid follows them in their segment.
    fn lost_to_the_end(&mut self, walk: &mut Walk<D>, at: u64) -> Result<Next, LogError> {
        let cause = walk.cause_at(at)?;
        self.gap_cause = Some(cause);
        match (self.known, walk.next_base) {
            // The next segment tells how far the hole goes.
            (None, Some(_)) => {
                walk.damaged = true;
                Ok(Next::Segment)
            }
            (Some(known), Some(next_base)) if next_base <= known => {
                walk.damaged = true;
                Ok(Next::Segment)
            }
            (None, None) => {
                self.cut(walk, at, false)?;
                Ok(Next::Nothing)
            }
            (Some(known), _) => {
                walk.damaged = true;
                self.note_damage(known, None, cause);
                Ok(Next::Nothing)
            }
        }
    }

    fn note_damage(&mut self, to: Offset, resume: Option<(Offset, u64)>, cause: DamageCause) {
        if self.expected < to {
            let damage = Damage { from: self.expected, to, resume, cause };
            // Nobody misses what lies below the log start.
            if self.log_start < to && self.damage.add(damage) {
                self.new_damage += 1;
                self.has_changed = true;
            }
            self.expected = to;
        }
    }

    /// The segment at `base` does not begin where the one before ended.
    fn gap(&mut self, base: Offset) -> Next {
        let known = self.known.unwrap_or(base);
        if base < self.expected {
            return Next::Nothing;
        }
        let cause = self.gap_cause.take().unwrap_or(DamageCause::Missing);
        if base <= known {
            self.note_damage(base, None, cause);
            return Next::Segment;
        }
        if self.expected < known {
            self.note_damage(known, None, cause);
        } else {
            let at = self.expected;
            self.cut.get_or_insert(Cut { at, bytes: 0, was_reordered: true, is_suspect: false });
        }
        Next::Nothing
    }

    fn cut(&mut self, walk: &mut Walk<D>, at: u64, is_followed: bool) -> Result<(), LogError> {
        let (bytes, looks_torn) = walk.look_at_tail(at)?;
        let was_reordered = is_followed || walk.next_base.is_some();
        self.cut = Some(Cut {
            at: self.expected,
            bytes,
            was_reordered,
            is_suspect: !looks_torn && !was_reordered,
        });
        walk.truncate(at)?;
        self.has_changed = true;
        Ok(())
    }

    fn keep(&mut self, mut walk: Walk<D>, scanned_from: u64) -> Result<(), LogError> {
        // Nobody else appends behind what is damaged: the next segment begins after it.
        let is_last = walk.next_base.is_none() || self.cut.is_some();
        walk.summary.is_sealed |= !is_last || walk.damaged;
        if is_last && !walk.damaged {
            walk.summary.is_sealed &= scanned_from == walk.summary.bytes;
            self.trim(&mut walk)?;
        }
        let is_uncertain = self.known.is_none_or(|known| known < walk.summary.next_offset);
        if is_uncertain && !mutant::is_on(Mutant::PageCacheTrusted) {
            // The one sync of everything has covered it. Some file systems only seem to have one.
            walk.file.sync_data().map_err(LogError::io("sync", &walk.path))?;
        }
        let base = walk.summary.base_offset;
        if is_last && !walk.damaged && walk.summary.bytes == 0 {
            // Its name may not be certain, and nothing vouches for it: the next append creates it.
            return self.remove_segments(&[base]);
        }
        if walk.damaged {
            self.unsaved_indexes.push(index::Files::new(&self.path, &walk.index, &walk.summary));
        } else if walk.summary.is_sealed && scanned_from < walk.summary.bytes {
            let files = index::Files::new(&self.path, &walk.index, &walk.summary);
            self.save_index(&files)?;
        }
        self.segments.push(walk.summary);
        self.last = Some((walk.file, walk.index));
        Ok(())
    }

    /// Without room there is none, and no older one either.
    fn save_index(&self, files: &index::Files) -> Result<(), LogError> {
        match files.save(&self.disk) {
            Err(error) if error.is_disk_full() => {
                remove_index_files(&self.disk, &self.path, files.segment)
            }
            saved => saved,
        }
    }

    /// Has zeros, or nothing, behind the last batch. Bytes that reached the disk behind a batch
    /// that did not would otherwise follow the next append.
    fn trim(&mut self, walk: &mut Walk<D>) -> Result<(), LogError> {
        let is_untouched = self.was_clean
            && self.readable.is_some_and(|point| point.offset == walk.summary.next_offset);
        if is_untouched || walk.length == walk.summary.bytes {
            return Ok(());
        }
        if walk.length - walk.summary.bytes <= ZEROS_READ_MAX {
            let (bytes, _) = walk.look_at_tail(walk.summary.bytes)?;
            if bytes == 0 {
                return Ok(());
            }
            let at = self.expected;
            self.cut.get_or_insert(Cut { at, bytes, was_reordered: true, is_suspect: false });
        }
        self.has_changed = true;
        walk.truncate(walk.summary.bytes)
    }

    fn finish(
        mut self,
        directory: DataDirectory<D>,
        place: &LogPlace,
        mut checkpoints: Checkpoints<D>,
        has_directory: bool,
    ) -> Result<(Log<D>, Recovery), LogError> {
        if self.segments.is_empty() {
            self.expected = self.expected.max(self.log_start);
            let known = self.known.unwrap_or(self.log_start);
            self.note_damage(known, None, DamageCause::Missing);
        }
        self.drop_empty_end()?;
        if self.expected < self.log_start {
            let bases: Vec<Offset> = self.segments.drain(..).map(|s| s.base_offset).collect();
            self.remove_segments(&bases)?;
            self.last = None;
            self.expected = self.log_start;
        }
        let log_start = self.log_start;
        // What lies beyond the end was cut: other records have its offsets.
        self.has_changed |= self.damage.clip(log_start, self.expected);
        let durable = Point {
            offset: self.expected,
            segment: self.segments.last().map(|last| last.base_offset),
            position: self.segments.last().map_or(0, |last| last.bytes),
        };
        self.remove_producers_beyond_end(has_directory)?;
        let epoch_starts = self.epochs.partition_point(|(_, start)| *start < self.expected);
        self.epochs.truncate(epoch_starts);
        let open = OpenSegments::new();
        let active = self.active(&open)?;
        let clean = checkpoints.latest.clean.min(self.expected);
        checkpoints.latest.clean = clean;
        checkpoints.latest.gaps_below = self.gaps_below.min(self.expected);
        let is_behind = has_directory && self.readable != Some(durable);
        self.has_changed |= is_behind && self.known.is_none();
        if self.has_changed && has_directory {
            let failed = LogError::io("sync names in", &self.path);
            self.disk.sync_dir(&self.path).map_err(failed)?;
            self.damage.save(&self.disk, &self.path)?;
            for files in &self.unsaved_indexes {
                self.save_index(files)?;
            }
            self.save(&mut checkpoints, &active, durable)?;
        } else {
            checkpoints.latest.log_start = self.log_start;
            checkpoints.latest.durable = durable;
            checkpoints.latest.epochs.clone_from(&self.epochs);
        }
        let checkpoint_is_due = is_behind && !self.has_changed;
        let partition = place.partition();
        let recovery = Recovery {
            partition,
            cut: self.cut,
            damage: self.damage.ranges(),
            new_damage: self.new_damage,
            scanned_bytes: self.scanned_bytes,
        };
        let log = Log {
            directory,
            partition,
            path: self.path,
            has_directory,
            config: self.config,
            generation: Arc::new(AtomicU64::new(0)),
            checkpoints: Arc::new(Mutex::new(checkpoints)),
            log_start: self.log_start,
            log_end: self.expected,
            durable,
            taken: durable,
            segments: self.segments,
            active: active.map(Box::new),
            sealed_unsynced: Vec::new(),
            unsaved_indexes: Vec::new(),
            taken_indexes: Vec::new(),
            clean,
            horizon: None,
            open,
            epochs: self.epochs,
            damage: self.damage,
            new_names: Vec::new(),
            taken_names: Vec::new(),
            last_batch: None,
            checkpoint_is_due,
            bytes_since_checkpoint: 0,
            indexed_to: (!is_behind || self.has_changed).then_some(self.expected),
            bytes_since_snapshot: 0,
            snapshots_turn: Arc::default(),
        };
        log.assert_invariants();
        Ok((log, recovery))
    }

    /// A segment without bytes, because what followed it was not kept either: the next append
    /// begins one with the same name.
    fn drop_empty_end(&mut self) -> Result<(), LogError> {
        while let Some(last) = self.segments.pop_if(|last| last.bytes == 0) {
            self.remove_segments(&[last.base_offset])?;
            self.last = None;
        }
        Ok(())
    }

    /// States of records that a crash took: other records will have their offsets.
    fn remove_producers_beyond_end(&mut self, has_directory: bool) -> Result<(), LogError> {
        if !has_directory || mutant::is_on(Mutant::CutSnapshotKept) {
            return Ok(());
        }
        let names = self.disk.list(&self.path).map_err(LogError::io("list", &self.path))?;
        let saved = names.iter().filter_map(|name| FileKind::Producers.offset_in(name));
        for beyond in saved.filter(|at| self.expected < *at) {
            remove_if_there(&self.disk, &FileKind::Producers.path(&self.path, beyond))?;
            self.has_changed = true;
        }
        Ok(())
    }

    /// The last segment, when it can be appended to.
    fn active(&mut self, open: &OpenSegments<D::File>) -> Result<Option<Active<D>>, LogError> {
        let Some(last) = self.segments.last_mut() else { return Ok(None) };
        let Some((file, index)) = self.last.take() else {
            last.is_sealed = true;
            return Ok(None);
        };
        let file = Arc::new(file);
        let is_appendable = !last.is_sealed && last.next_offset == self.expected;
        last.is_sealed = !is_appendable;
        if !is_appendable {
            let index = Arc::new(index);
            open.put(last.base_offset, OpenSegment { file, index });
            return Ok(None);
        }
        let path = FileKind::Segment.path(&self.path, last.base_offset);
        let allocated = file.len().map_err(LogError::io("read", &path))?;
        Ok(Some(Active { file, allocated, index }))
    }

    fn save(
        &self,
        checkpoints: &mut Checkpoints<D>,
        active: &Option<Active<D>>,
        durable: Point,
    ) -> Result<(), LogError> {
        if let (Some(active), Some(last)) = (active, self.segments.last()) {
            self.save_index(&index::Files::new(&self.path, &active.index, last))?;
        }
        checkpoints.latest.log_start = self.log_start;
        checkpoints.latest.durable = durable;
        checkpoints.latest.epochs.clone_from(&self.epochs);
        match checkpoints.save() {
            // Without room the next start scans again.
            Err(error) if error.is_disk_full() => Ok(()),
            saved => saved,
        }
    }
}

/// Removes a segment and its indexes; not durable before a sync of the directory.
pub(crate) fn remove_segment_files<D: Disk>(
    disk: &D,
    directory: &std::path::Path,
    base: Offset,
) -> Result<(), LogError> {
    remove_index_files(disk, directory, base)?;
    remove_if_there(disk, &FileKind::Segment.path(directory, base))
}

pub(crate) fn remove_index_files<D: Disk>(
    disk: &D,
    directory: &std::path::Path,
    base: Offset,
) -> Result<(), LogError> {
    for kind in [FileKind::Index, FileKind::TimeIndex] {
        remove_if_there(disk, &kind.path(directory, base))?;
    }
    Ok(())
}

fn remove_if_there<D: Disk>(disk: &D, path: &std::path::Path) -> Result<(), LogError> {
    let remove = || if disk.exists(path)? { disk.remove_file(path) } else { Ok(()) };
    remove().map_err(LogError::io("remove", path))
}

/// A segment spans fewer than 2^31 offsets: a base offset, which no checksum covers, that says
/// otherwise is damage.
fn fits_segment(header: &BatchHeader, base_offset: Offset) -> bool {
    header.last_offset() - base_offset <= i64::from(i32::MAX)
}
