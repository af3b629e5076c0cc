//! One partition's log: append, roll, and what is known of its durability.
//!
//! ```text
//!  log_start_offset ≤ durable_offset ≤ taken ≤ log_end_offset
//!                     what a commit    what a commit
//!                     has published    may be at work on
//! ```
//!
//! It is a value without threads; whoever owns the partition locks it. Reading, truncating, time
//! lookups and retention are in modules of their own.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use towpath_model::mutant::{self, Mutant};
use towpath_model::{LeaderEpoch, Now, Offset, Timestamp, TopicPartition};
use towpath_records::BatchHeader;

use crate::checkpoint::{Checkpoints, Point};
use crate::commit::{CheckpointPlan, Committed, Dirty, Piece};
use crate::damage::{Damage, DamageList, DamagedRange};
use crate::directory::DataDirectory;
use crate::disk::{Disk, DiskFile};
use crate::error::{LogError, is_full};
use crate::files::{OpenSegment, OpenSegments};
use crate::index::{self, Indexed, SparseIndex};
use crate::place::FileKind;
use crate::segment::Summary;

/// The first space that a segment reserves.
const FIRST_ALLOCATION: u64 = 64 << 10;
/// The largest step in which it grows.
const ALLOCATION_STEP_MAX: u64 = 64 << 20;
/// A checkpoint is due after so many bytes: a recovery scans at most about as many per log.
const CHECKPOINT_EVERY_BYTES: u64 = 16 << 20;

/// How a log is kept; from the topic's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogConfig {
    /// Largest segment (`segment.bytes`).
    pub segment_bytes: u32,
    /// Age at which a segment is rolled (`segment.ms`).
    pub segment_age: Duration,
    /// Bytes between two entries of the index (`index.interval.bytes`).
    pub index_interval_bytes: u32,
}

impl Default for LogConfig {
    /// Kafka's defaults.
    fn default() -> Self {
        LogConfig {
            segment_bytes: 1 << 30,
            segment_age: Duration::from_secs(7 * 24 * 3600),
            index_interval_bytes: 4096,
        }
    }
}

/// What an append did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Offset of the first record.
    pub base_offset: Offset,
    /// First offset after the batch.
    pub next_offset: Offset,
    /// A new segment was begun for it.
    pub rolled: bool,
}

/// One partition's log.
pub struct Log<D: Disk> {
    pub(crate) directory: DataDirectory<D>,
    pub(crate) partition: TopicPartition,
    pub(crate) path: Arc<Path>,
    /// Whether `path` exists.
    pub(crate) has_directory: bool,
    pub(crate) config: LogConfig,
    pub(crate) generation: Arc<AtomicU64>,
    pub(crate) checkpoints: Arc<Mutex<Checkpoints<D>>>,
    /// Invariant: log_start <= log_end; durable.offset <= taken.offset <= log_end.
    pub(crate) log_start: Offset,
    pub(crate) log_end: Offset,
    pub(crate) durable: Point,
    pub(crate) taken: Point,
    /// Oldest first. Invariant: their offsets rise without overlap, and only the last may be
    /// unsealed, which it is exactly when `active` is there.
    pub(crate) segments: Vec<Summary>,
    pub(crate) active: Option<Box<Active<D>>>,
    /// Files of sealed segments that are not durable yet.
    pub(crate) sealed_unsynced: Vec<(Offset, Arc<D::File>)>,
    /// Indexes of sealed segments that are not on the disk yet.
    pub(crate) unsaved_indexes: Vec<index::Files>,
    /// Segments whose indexes a round has taken along and not yet brought back: what it will write
    /// is about their batches of now.
    pub(crate) taken_indexes: Vec<Offset>,
    /// Up to where the log was compacted; never beyond its end.
    pub(crate) clean: Offset,
    /// When the last tombstone that the newest compaction has left may go.
    pub(crate) horizon: Option<Timestamp>,
    pub(crate) open: OpenSegments<D::File>,
    /// Leader epochs and their first offsets; both rise.
    pub(crate) epochs: Vec<(LeaderEpoch, Offset)>,
    /// Records that were durable and are unreadable.
    pub(crate) damage: DamageList,
    /// Directories that must be synced before anything new in them counts.
    pub(crate) new_names: Vec<PathBuf>,
    /// Those of them that a round has taken along and not yet brought back.
    pub(crate) taken_names: Vec<PathBuf>,
    pub(crate) last_batch: Option<LastBatch>,
    pub(crate) checkpoint_is_due: bool,
    pub(crate) bytes_since_checkpoint: u64,
    /// Log end offset at which the index files were last written.
    pub(crate) indexed_to: Option<Offset>,
    pub(crate) bytes_since_snapshot: u64,
    /// See [`crate::Snapshots`].
    pub(crate) snapshots_turn: Arc<Mutex<()>>,
}

/// The segment that is appended to.
pub(crate) struct Active<D: Disk> {
    pub(crate) file: Arc<D::File>,
    /// Length of the file; beyond the segment's bytes it is zeros.
    pub(crate) allocated: u64,
    pub(crate) index: SparseIndex,
}

/// The newest batch, which most readers ask for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LastBatch {
    pub(crate) base_offset: Offset,
    pub(crate) position: u64,
}

impl<D: Disk> Log<D> {
    /// Appends one batch. Its base offset must be the log end offset, its leader epoch is set, and
    /// its checksum has been verified: the caller has done all that. It is not durable before a
    /// [`DataDirectory::commit`].
    ///
    /// # Errors
    /// When the disk refuses; the log is as before. A full disk may have room later; any other
    /// failure fails the directory.
    ///
    /// # Panics
    /// When the batch is not the next one, or not as long as its header says.
    pub fn append(
        &mut self,
        batch: &[u8],
        header: &BatchHeader,
        now: Now,
    ) -> Result<Appended, LogError> {
        assert_eq!(header.base_offset(), self.log_end);
        assert_eq!(header.size_in_bytes(), batch.len());
        self.directory.check()?;
        let rolled = self.must_roll_for(header, now.wall);
        if rolled {
            self.seal();
        }
        if self.active.is_none() {
            self.begin_segment()?;
        }
        let position = self.write(batch)?;
        self.note(header, position, now.wall);
        self.assert_order();
        let (base_offset, next_offset) = (header.base_offset(), header.next_offset());
        Ok(Appended { base_offset, next_offset, rolled })
    }

    fn must_roll_for(&self, header: &BatchHeader, wall: Timestamp) -> bool {
        self.active_summary().is_some_and(|active| self.is_full_for(active, header, wall))
    }

    /// Whether a batch that follows those of `active` begins a new segment.
    pub(crate) fn is_full_for(
        &self,
        active: &Summary,
        header: &BatchHeader,
        wall: Timestamp,
    ) -> bool {
        if active.bytes == 0 {
            return false;
        }
        let bytes = active.bytes + header.size_in_bytes() as u64;
        let span = header.last_offset() - active.base_offset;
        u64::from(self.config.segment_bytes.min(i32::MAX as u32)) < bytes
            || i64::from(i32::MAX) < span
            || self.is_too_old(active, wall)
            // Old records that come late roll by their own time, or a whole year of them would
            // share one segment and one retention. Times in the future count as now.
            || self.spans_too_much(active, header.max_timestamp().min(wall))
    }

    fn is_too_old(&self, segment: &Summary, wall: Timestamp) -> bool {
        segment.first_append.is_some_and(|at| at + self.config.segment_age <= wall)
    }

    fn spans_too_much(&self, segment: &Summary, newest: Timestamp) -> bool {
        Timestamp(0) <= segment.first_timestamp
            && segment.first_timestamp + self.config.segment_age < newest
    }

    /// Seals the active segment when it is older than `segment.ms`, so that an idle partition's
    /// records can expire. Returns whether it did.
    ///
    /// # Errors
    /// When the directory has failed.
    pub fn roll_if_due(&mut self, now: Now) -> Result<bool, LogError> {
        self.directory.check()?;
        self.learn_times(now.wall);
        let due = self
            .active_summary()
            .is_some_and(|active| 0 < active.bytes && self.is_too_old(active, now.wall));
        if due {
            self.seal();
        }
        Ok(due)
    }

    /// Seals the active segment if it holds `offset`: somebody has met damage there, and only what lies
    /// still is looked at and written down as damaged. Returns whether it did.
    pub fn seal_doubted(&mut self, offset: Offset) -> bool {
        let holds = |active: &Summary| {
            active.base_offset <= offset && offset < active.next_offset && 0 < active.bytes
        };
        let is_due = self.active_summary().is_some_and(holds) && !self.directory.is_failed();
        if is_due {
            self.seal();
        }
        is_due
    }

    /// Recovered segments do not know when the broker wrote them: their records' own times stand
    /// in, as far as they are not in the future.
    pub(crate) fn learn_times(&mut self, wall: Timestamp) {
        for segment in self.segments.iter_mut().filter(|segment| 0 < segment.bytes) {
            let stand_in = |at: Timestamp| if at < Timestamp(0) { wall } else { at.min(wall) };
            segment.first_append.get_or_insert(stand_in(segment.first_timestamp));
            segment.last_append.get_or_insert(stand_in(segment.max_timestamp));
        }
    }

    /// Ends the active segment. Cannot fail: its indexes are written with the next checkpoint, and
    /// the zeros behind its batches may stay.
    pub(crate) fn seal(&mut self) {
        let Some(active) = self.active.take() else { return };
        let summary = self.segments.last_mut().expect("the active segment is the last one");
        summary.is_sealed = true;
        let summary = *summary;
        self.unsaved_indexes.push(index::Files::new(&self.path, &active.index, &summary));
        if summary.bytes < active.allocated {
            let _ = active.file.truncate(summary.bytes);
        }
        let base = summary.base_offset;
        if self.durable.offset < summary.next_offset {
            self.sealed_unsynced.push((base, Arc::clone(&active.file)));
        }
        let index = Arc::new(active.index);
        self.open.put(base, OpenSegment { file: active.file, index });
        self.last_batch = None;
        self.checkpoint_is_due = true;
    }

    pub(crate) fn begin_segment(&mut self) -> Result<(), LogError> {
        self.ensure_directory()?;
        let path = FileKind::Segment.path(&self.path, self.log_end);
        let disk = self.disk();
        let create = || match disk.create(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let file = disk.open(&path)?;
                file.truncate(0)?;
                Ok(file)
            }
            created => created,
        };
        let file = Arc::new(create().map_err(LogError::io("create", &path))?);
        self.new_names.push(self.path.to_path_buf());
        let index = SparseIndex::new(self.config.index_interval_bytes);
        self.active = Some(Box::new(Active { file, allocated: 0, index }));
        self.segments.push(Summary::empty(self.log_end));
        Ok(())
    }

    pub(crate) fn ensure_directory(&mut self) -> Result<(), LogError> {
        if self.has_directory {
            return Ok(());
        }
        let failed = LogError::io("create", &self.path);
        self.disk().create_dir_all(&self.path).map_err(failed)?;
        self.has_directory = true;
        let root = self.directory.inner.root.clone();
        let new = self.path.ancestors().skip(1).take_while(|above| above.starts_with(&root));
        self.new_names.extend(new.map(Path::to_owned));
        Ok(())
    }

    /// Writes whole batches at the end of the active segment; returns where.
    pub(crate) fn write(&mut self, batches: &[u8]) -> Result<u64, LogError> {
        let summary = self.segments.last().expect("a segment was begun");
        let active = self.active.as_mut().expect("a segment was begun");
        let position = summary.bytes;
        let path = || FileKind::Segment.path(&self.path, summary.base_offset);
        let end = position + batches.len() as u64;
        if active.allocated < end {
            let ahead = allocation(active.allocated, end, self.config.segment_bytes);
            let target = if self.directory.is_thrifty() { end } else { ahead };
            let reserved = reserve(&*active.file, active.allocated, target, end);
            active.allocated =
                reserved.map_err(|error| LogError::io("reserve space in", &path())(error))?;
        }
        let Err(error) = active.file.write_at(&[IoSlice::new(batches)], position) else {
            return Ok(position);
        };
        // Some of it may have been written. It must not lie there when the next batch does: what
        // looks like a batch behind a torn one would be taken for one.
        active.allocated = position;
        let is_cut =
            mutant::is_on(Mutant::TornAppendKept) || active.file.truncate(position).is_ok();
        let is_harmless = is_cut && is_full(&error) && !mutant::is_on(Mutant::FullDiskFails);
        let error = LogError::io("append to", &path())(error);
        if !is_harmless {
            self.directory.fail(&error);
        }
        Err(error)
    }

    pub(crate) fn note(&mut self, header: &BatchHeader, position: u64, wall: Timestamp) {
        let summary = self.segments.last_mut().expect("a segment was begun");
        let active = self.active.as_mut().expect("a segment was begun");
        active.index.note(&Indexed {
            segment: summary.base_offset,
            base_offset: header.base_offset(),
            position,
            bytes: header.size_in_bytes() as u64,
            max_timestamp_before: summary.max_timestamp,
        });
        summary.note(header);
        summary.first_append.get_or_insert(wall);
        summary.last_append = summary.last_append.max(Some(wall));
        self.log_end = header.next_offset();
        self.last_batch = Some(LastBatch { base_offset: header.base_offset(), position });
        note_epoch(&mut self.epochs, header);
        let bytes = header.size_in_bytes() as u64;
        self.bytes_since_snapshot += bytes;
        self.bytes_since_checkpoint += bytes;
        self.checkpoint_is_due |= CHECKPOINT_EVERY_BYTES <= self.bytes_since_checkpoint;
    }

    /// Everything that was appended since the last call, for the next commit round. Cheap: call it
    /// under the partition's lock. `None` when there is nothing.
    pub fn take_dirty(&mut self) -> Option<Dirty<D>> {
        if self.taken.offset == self.log_end {
            return None;
        }
        let to = self.end_point();
        let dirty = Dirty {
            partition: self.partition,
            generation: self.generation(),
            current_generation: Arc::clone(&self.generation),
            from: self.taken.offset,
            to,
            pieces: self.pieces_from(self.taken),
            new_names: self.take_names(),
            checkpoint: self.take_checkpoint_plan(),
        };
        self.taken = to;
        Some(dirty)
    }

    fn take_names(&mut self) -> Vec<PathBuf> {
        let names = std::mem::take(&mut self.new_names);
        self.taken_names.extend_from_slice(&names);
        names
    }

    /// The bytes from `point` to the end, segment by segment. `point` is not below the durable
    /// offset, so the files are at hand.
    pub(crate) fn pieces_from(&self, point: Point) -> Vec<Piece<D>> {
        let behind = self.segments.partition_point(|segment| segment.next_offset <= point.offset);
        let newer = &self.segments[behind..];
        newer.iter().filter(|segment| 0 < segment.bytes).map(|s| self.piece(s, point)).collect()
    }

    fn piece(&self, segment: &Summary, point: Point) -> Piece<D> {
        let base = segment.base_offset;
        let is_begun = point.segment == Some(base);
        let file = if segment.is_sealed {
            let held = self.sealed_unsynced.iter().find(|(sealed, _)| *sealed == base);
            &held.expect("the file of a segment that is not durable is kept open").1
        } else {
            &self.active.as_ref().expect("only the active segment is unsealed").file
        };
        Piece {
            segment: base,
            file: Arc::clone(file),
            directory: Arc::clone(&self.path),
            from: if is_begun { point.position } else { 0 },
            to: segment.bytes,
            first_offset: base.max(point.offset),
            next_offset: segment.next_offset,
        }
    }

    fn take_checkpoint_plan(&mut self) -> Option<CheckpointPlan<D>> {
        if !std::mem::take(&mut self.checkpoint_is_due) {
            return None;
        }
        self.bytes_since_checkpoint = 0;
        let checkpoints = Arc::clone(&self.checkpoints);
        let indexes = self.take_indexes();
        self.taken_indexes.extend(indexes.iter().map(|index| index.segment));
        Some(CheckpointPlan { checkpoints, epochs: self.epochs.clone(), indexes })
    }

    fn take_indexes(&mut self) -> Vec<index::Files> {
        let mut indexes = std::mem::take(&mut self.unsaved_indexes);
        indexes.extend(self.active_index_files());
        self.indexed_to = Some(self.log_end);
        indexes
    }

    fn active_index_files(&self) -> Option<index::Files> {
        let active = self.active.as_ref()?;
        let summary = self.segments.last()?;
        Some(index::Files::new(&self.path, &active.index, summary))
    }

    /// Takes a commit's result back: publishes the durable offset, unless a truncation since then
    /// has made the result void. Then what is left is dirty again.
    pub fn committed(&mut self, committed: &Committed) {
        assert_eq!(committed.partition, self.partition);
        let is_void = committed.generation != self.generation()
            && !mutant::is_on(Mutant::OldGenerationSynced);
        if committed.result.is_err() || is_void {
            return;
        }
        if self.durable.offset < committed.to.offset {
            self.set_durable(committed.to);
        }
        if committed.to == self.taken {
            // No later round is under way, so these are the names that this one has synced.
            self.taken_names.clear();
            self.taken_indexes.clear();
        }
        self.assert_order();
    }

    pub(crate) fn set_durable(&mut self, durable: Point) {
        self.durable = durable;
        let segments = &self.segments;
        let is_dirty = |base: Offset| {
            segments.iter().any(|s| s.base_offset == base && durable.offset < s.next_offset)
        };
        self.sealed_unsynced.retain(|(base, _)| is_dirty(*base));
    }

    /// Syncs whatever is not durable, without the write-ahead file, and writes a checkpoint, so
    /// that the next start has nothing to scan.
    ///
    /// # Errors
    /// When the disk fails; then the directory has failed.
    pub fn save_checkpoint(&mut self) -> Result<(), LogError> {
        self.sync_and_checkpoint()
    }

    /// Files with bytes that are not durable. Whoever writes them back before a round makes that round
    /// short.
    #[must_use]
    pub fn unsynced_files(&self) -> Vec<(PathBuf, Arc<D::File>)> {
        let pieces = self.pieces_from(self.durable);
        let path = |base| FileKind::Segment.path(&self.path, base);
        pieces.into_iter().map(|piece| (path(piece.segment), piece.file)).collect()
    }

    pub(crate) fn sync_and_checkpoint(&mut self) -> Result<(), LogError> {
        self.sync_all()?;
        let is_saved = !self.checkpoint_is_due
            && self.unsaved_indexes.is_empty()
            && self.indexed_to == Some(self.log_end)
            && self.checkpoints().is_saved_up_to(self.log_end);
        if !self.has_directory || is_saved {
            return Ok(());
        }
        self.checkpoint_is_due = false;
        self.bytes_since_checkpoint = 0;
        for index in self.take_indexes() {
            index.save(self.disk()).inspect_err(|error| self.fail_unless_full(error))?;
        }
        self.write_checkpoint()
    }

    /// Syncs everything that is not durable, file by file.
    pub(crate) fn sync_all(&mut self) -> Result<(), LogError> {
        self.directory.check()?;
        let result = self.sync_files();
        result.inspect_err(|error| self.directory.fail(error))
    }

    fn sync_files(&mut self) -> Result<(), LogError> {
        let mut names = std::mem::take(&mut self.new_names);
        names.append(&mut self.taken_names);
        for directory in names {
            let failed = LogError::io("sync names in", &directory);
            self.disk().sync_dir(&directory).map_err(failed)?;
        }
        for piece in self.pieces_from(self.durable) {
            piece.sync()?;
            self.directory.write_ahead().segment_synced((self.partition, piece.segment));
        }
        let end = self.end_point();
        self.set_durable(end);
        self.taken = end;
        Ok(())
    }

    /// Writes what is known now as the newest checkpoint. When that fails the newest one is what it
    /// was: a round must not write later what was refused now.
    pub(crate) fn write_checkpoint(&self) -> Result<(), LogError> {
        let mut checkpoints = self.checkpoints();
        let before = checkpoints.latest.clone();
        // A start that is on its way up may be saved already.
        checkpoints.latest.log_start = checkpoints.latest.log_start.max(self.log_start);
        checkpoints.latest.durable = self.durable;
        checkpoints.latest.clean = self.clean;
        checkpoints.latest.epochs.clone_from(&self.epochs);
        checkpoints.save().inspect_err(|error| {
            checkpoints.latest = before;
            self.fail_unless_full(error);
        })?;
        drop(checkpoints);
        self.directory.write_ahead().checkpointed(self.partition, self.durable.offset);
        Ok(())
    }

    /// A failed sync leaves unknown what the disk holds; a full disk is only full.
    pub(crate) fn fail_unless_full(&self, error: &LogError) {
        if !error.is_disk_full() {
            self.directory.fail(error);
        }
    }

    pub(crate) fn checkpoints(&self) -> MutexGuard<'_, Checkpoints<D>> {
        self.checkpoints.lock().expect("nothing panics while it writes a checkpoint")
    }

    pub(crate) fn disk(&self) -> &D {
        &self.directory.inner.disk
    }

    pub(crate) fn active_summary(&self) -> Option<&Summary> {
        self.active.as_ref().and(self.segments.last())
    }

    /// The end of the log and where it lies.
    pub(crate) fn end_point(&self) -> Point {
        match self.segments.last() {
            None => Point::without_segment(self.log_end),
            Some(last) => Point {
                offset: self.log_end,
                segment: Some(last.base_offset),
                position: last.bytes,
            },
        }
    }

    /// Which partition this is.
    #[must_use]
    pub fn partition(&self) -> TopicPartition {
        self.partition
    }

    /// First offset kept.
    #[must_use]
    pub fn log_start_offset(&self) -> Offset {
        self.log_start
    }

    /// First offset not yet written.
    #[must_use]
    pub fn log_end_offset(&self) -> Offset {
        self.log_end
    }

    /// First offset not yet durable, as far as commits were taken back.
    #[must_use]
    pub fn durable_offset(&self) -> Offset {
        self.durable.offset
    }

    /// Records that were durable and are unreadable, as far as anybody has noticed.
    #[must_use]
    pub fn damaged(&self) -> Vec<DamagedRange> {
        self.damage.ranges()
    }

    /// Notes damage that was found, for good; returns whether it was not known. Who reads there is
    /// refused from now on, whatever becomes of the file.
    ///
    /// # Errors
    /// When it cannot be written down.
    pub(crate) fn note_damage(&mut self, found: &[Damage]) -> Result<bool, LogError> {
        let mut is_news = false;
        for damage in found {
            is_news |= self.damage.add(*damage);
        }
        is_news |= self.damage.clip(self.log_start, self.log_end);
        if is_news && !self.directory.is_failed() {
            self.damage.save(self.disk(), &self.path)?;
        }
        Ok(is_news)
    }

    /// Whether a round or the next checkpoint still has to write a segment's indexes.
    pub(crate) fn has_unsaved_index(&self, base: Offset) -> bool {
        self.unsaved_indexes.iter().any(|files| files.segment == base)
            || self.taken_indexes.contains(&base)
    }

    /// Bytes of all batches, those below the log start offset in the oldest segment included.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    /// About how many bytes the batches from `offset` on have: exact where a segment begins, in
    /// proportion to its offsets inside of one.
    #[must_use]
    pub fn size_bytes_from(&self, offset: Offset) -> u64 {
        self.segments.iter().map(|segment| segment.bytes_from(offset)).sum()
    }

    /// Segments that have batches.
    #[must_use]
    pub fn segment_count(&self) -> usize {
        self.segments.iter().filter(|segment| 0 < segment.bytes).count()
    }

    /// How often the log was truncated since it was opened.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Bytes appended since [`Log::save_producers`].
    #[must_use]
    pub fn bytes_since_snapshot(&self) -> u64 {
        self.bytes_since_snapshot
    }

    /// Leader epochs of the batches in the log, each with its first offset.
    #[must_use]
    pub fn leader_epochs(&self) -> &[(LeaderEpoch, Offset)] {
        &self.epochs
    }

    /// Changes the configuration. What is written already stays as it is.
    pub fn set_config(&mut self, config: LogConfig) {
        self.config = config;
    }

    pub(crate) fn assert_order(&self) {
        assert!(self.log_start <= self.log_end);
        assert!(self.durable.offset <= self.taken.offset);
        assert!(self.taken.offset <= self.log_end);
        if let Some(last) = self.segments.last() {
            assert!(last.next_offset <= self.log_end);
            assert_eq!(last.is_sealed, self.active.is_none());
        }
    }

    /// # Panics
    /// When an invariant is broken: a bug.
    pub fn assert_invariants(&self) {
        self.assert_order();
        for pair in self.segments.windows(2) {
            assert!(pair[0].base_offset < pair[1].base_offset);
            assert!(pair[0].next_offset <= pair[1].base_offset);
        }
    }
}

impl<D: Disk> std::fmt::Debug for Log<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log")
            .field("partition", &self.partition)
            .field("log_start", &self.log_start)
            .field("durable", &self.durable.offset)
            .field("log_end", &self.log_end)
            .field("segments", &self.segments.len())
            .finish_non_exhaustive()
    }
}

/// Takes note of a batch's leader epoch.
pub(crate) fn note_epoch(epochs: &mut Vec<(LeaderEpoch, Offset)>, header: &BatchHeader) {
    note_epoch_start(epochs, header.leader_epoch(), header.base_offset());
}

/// Takes note of where a leader epoch began, unless it is known.
pub(crate) fn note_epoch_start(
    epochs: &mut Vec<(LeaderEpoch, Offset)>,
    epoch: LeaderEpoch,
    start: Offset,
) {
    if LeaderEpoch(0) <= epoch && epochs.last().is_none_or(|(last, _)| *last < epoch) {
        epochs.push((epoch, start));
    }
}

/// Grows a file to `target` bytes, or to the `needed` ones if there is not as much room. Returns its
/// length.
fn reserve(file: &impl DiskFile, held: u64, target: u64, needed: u64) -> io::Result<u64> {
    match file.allocate(target) {
        Ok(()) => Ok(target),
        Err(error) if is_full(&error) && needed < target => {
            // What it got before the room ran out is what others may need now.
            file.truncate(held)?;
            file.allocate(needed)?;
            Ok(needed)
        }
        Err(error) => Err(error),
    }
}

/// Length to which a segment file grows so that it holds `needed` bytes.
fn allocation(allocated: u64, needed: u64, segment_bytes: u32) -> u64 {
    let doubled = allocated.max(FIRST_ALLOCATION / 2) * 2;
    let step = doubled.min(allocated + ALLOCATION_STEP_MAX);
    step.min(u64::from(segment_bytes)).max(needed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_doubles_from_64_kib_and_never_passes_the_segment_size() {
        assert_eq!(allocation(0, 100, 1 << 30), 64 << 10);
        assert_eq!(allocation(64 << 10, 70_000, 1 << 30), 128 << 10);
        assert_eq!(allocation(0, 1 << 20, 1 << 30), 1 << 20);
        assert_eq!(allocation(256 << 20, (256 << 20) + 1, 1 << 30), 320 << 20);
        assert_eq!(allocation(512 << 10, 600 << 10, 1 << 20), 1 << 20);
        assert_eq!(allocation(0, 100, 50), 100);
    }
}
