//! One pass over a log, in steps: first the keys of what is dirty, if it goes by keys, then every segment anew.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use towpath_model::mutant::{self, Mutant};
use towpath_model::{Offset, Timestamp, TopicPartition};
use towpath_records::{
    BatchHeader, Fate, Record, Remainder, RetainError, Scratch, records, retain,
};

use super::key_map::KeyMap;
use super::output::{Output, Replacement, remove_cleaned};
use super::{Compacted, CompactionError, CompactionRules};
use crate::checkpoint::Checkpoints;
use crate::directory::{DataDirectory, lock_of};
use crate::disk::{Disk, DiskFile};
use crate::error::LogError;
use crate::place::FileKind;
use crate::scan::{Found, LARGE_BUFFER, Scan};
use crate::segment::Summary;

/// A step is over when it has read or written so much.
const STEP_BYTES: u64 = 1 << 20;
/// Most bytes that a batch may have after decompression, as in the validation of producers' batches.
const RECORDS_BYTES_MAX: usize = 256 << 20;

/// What is compacted, as it was when the compaction began.
pub(super) struct Range<D: Disk> {
    pub(super) directory: DataDirectory<D>,
    pub(super) partition: TopicPartition,
    pub(super) path: PathBuf,
    pub(super) generation: u64,
    pub(super) current_generation: Arc<AtomicU64>,
    pub(super) checkpoints: Arc<Mutex<Checkpoints<D>>>,
    pub(super) segments: Vec<Summary>,
    /// First offset that may be dirty.
    pub(super) clean: Offset,
    /// First offset behind the segments.
    pub(super) end: Offset,
    pub(super) segment_bytes: u32,
    pub(super) index_interval_bytes: u32,
}

/// A compaction under way. It reads and writes files of its own and needs no lock; dropped half way
/// it leaves unfinished files, which [`Compaction::abandon`] or the next start removes.
pub struct Compaction<D: Disk> {
    range: Range<D>,
    judge: Judge,
    rule: Rule,
    scratch: Scratch,
    phase: Phase,
    /// Which segment of the range is read.
    nth: usize,
    input: Option<Input<D>>,
    output: Option<Output<D>>,
    io_bytes: u64,
    bytes_before: u64,
    bytes_after: u64,
}

/// What a step has come to.
#[derive(Debug)]
pub enum Step<D: Disk> {
    /// There is more to do.
    Worked,
    /// A group of segments is written: [`crate::Log::replace`] puts it in place, then goes it on.
    Replace(Replacement<D>),
    /// The end; [`crate::Log::compacted`] takes note.
    Finished(Compacted),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Reads the keys of what is dirty.
    Mapping,
    /// Writes segments anew.
    Writing,
    Finished,
}

struct Input<D: Disk> {
    file: D::File,
    path: PathBuf,
    scan: Scan,
    expected: Offset,
}

/// Whether the record at an offset goes.
type IsGone = Box<dyn Fn(Offset) -> bool + Send>;

/// Which records go.
enum Rule {
    /// Those that are not the newest of their key.
    ByKey(KeyMap),
    /// Those at the offsets that somebody names.
    At(IsGone),
}

/// What decides about a record.
struct Judge {
    now: Timestamp,
    /// Delete horizon of tombstones that have none yet.
    horizon: Timestamp,
    kept_batches: BTreeSet<Offset>,
    /// Records from here on are not in the map.
    mapped_to: Offset,
    /// The record before it stays, whatever it is.
    end: Offset,
    last_horizon: Option<Timestamp>,
    records_removed: u64,
    keyless_removed: u64,
}

impl<D: Disk> Compaction<D> {
    /// Keeps the newest record of each key.
    pub(super) fn by_key(
        range: Range<D>,
        rules: &CompactionRules,
        now: Timestamp,
        kept_batches: BTreeSet<Offset>,
    ) -> Self {
        let nth = range.segments.partition_point(|segment| segment.next_offset <= range.clean);
        let rule = Rule::ByKey(KeyMap::new(rules.key_bytes_max));
        let horizon = now + rules.tombstones_kept;
        let begun = Compaction::begin(range, rule, (now, horizon), kept_batches);
        Compaction { nth, phase: Phase::Mapping, ..begun }
    }

    /// Removes the records at `gone`.
    pub(super) fn of(
        range: Range<D>,
        gone: IsGone,
        now: Timestamp,
        kept_batches: BTreeSet<Offset>,
    ) -> Self {
        Compaction::begin(range, Rule::At(gone), (now, now), kept_batches)
    }

    fn begin(
        range: Range<D>,
        rule: Rule,
        (now, horizon): (Timestamp, Timestamp),
        kept_batches: BTreeSet<Offset>,
    ) -> Self {
        let judge = Judge {
            now,
            horizon,
            kept_batches,
            mapped_to: range.end,
            end: range.end,
            last_horizon: None,
            records_removed: 0,
            keyless_removed: 0,
        };
        Compaction {
            range,
            judge,
            rule,
            scratch: Scratch::new(),
            phase: Phase::Writing,
            nth: 0,
            input: None,
            output: None,
            io_bytes: 0,
            bytes_before: 0,
            bytes_after: 0,
        }
    }

    /// Whose log this is.
    #[must_use]
    pub fn partition(&self) -> TopicPartition {
        self.range.partition
    }

    /// Bytes that were read and written so far.
    #[must_use]
    pub fn io_bytes(&self) -> u64 {
        self.io_bytes
    }

    /// Bytes that the key map takes now.
    #[must_use]
    pub fn key_bytes(&self) -> usize {
        self.rule.map().map_or(0, KeyMap::bytes)
    }

    /// Does about a MiB of work.
    ///
    /// # Errors
    /// [`CompactionError`]; abandon it then.
    pub fn step(&mut self) -> Result<Step<D>, CompactionError> {
        self.range.directory.check()?;
        if self.range.is_superseded() {
            return Err(CompactionError::Superseded);
        }
        match self.phase {
            Phase::Mapping => self.map(),
            Phase::Writing => self.write(),
            Phase::Finished => Ok(Step::Finished(self.result())),
        }
    }

    /// Gives it up, and removes what it has written and not handed over, as far as that works.
    pub fn abandon(self) {
        if let Some(output) = &self.output {
            output.abandon();
        }
    }

    fn result(&self) -> Compacted {
        Compacted {
            generation: self.range.generation,
            clean: self.judge.mapped_to,
            horizon: self.judge.last_horizon,
            bytes_before: self.bytes_before,
            bytes_after: self.bytes_after,
            records_removed: self.judge.records_removed,
            keys: self.rule.map().map_or(0, |map| map.len() as u64),
            keyless_removed: self.judge.keyless_removed,
        }
    }

    fn map(&mut self) -> Result<Step<D>, CompactionError> {
        let Rule::ByKey(map) = &mut self.rule else { return Ok(self.end_mapping()) };
        let Some(segment) = self.range.segments.get(self.nth).copied() else {
            return Ok(self.end_mapping());
        };
        let input = match &mut self.input {
            Some(input) => input,
            None => self.input.insert(self.range.open(&segment)?),
        };
        let before = input.scan.bytes_read();
        let mut is_full = false;
        let mut is_at_end = false;
        while !is_full && !is_at_end && input.scan.bytes_read() < before + STEP_BYTES {
            let Some((header, bytes)) = input.next(&segment)? else {
                is_at_end = true;
                continue;
            };
            if header.next_offset() <= self.range.clean || !is_compacted(&header) {
                continue;
            }
            let clean = self.range.clean;
            if let Some(unmapped) = map_batch(map, &mut self.scratch, clean, bytes)? {
                self.judge.mapped_to = unmapped;
                is_full = true;
            }
        }
        self.io_bytes += input.scan.bytes_read() - before;
        if is_full {
            return Ok(self.end_mapping());
        }
        if is_at_end {
            self.nth += 1;
            self.input = None;
        }
        Ok(Step::Worked)
    }

    /// What lies behind the last mapped segment need not be written anew.
    fn end_mapping(&mut self) -> Step<D> {
        let mapped_to = self.judge.mapped_to;
        self.range.segments.retain(|segment| segment.base_offset < mapped_to);
        self.judge.end = self.range.segments.last().map_or(mapped_to, |last| last.next_offset);
        self.phase = Phase::Writing;
        self.nth = 0;
        self.input = None;
        Step::Worked
    }

    fn write(&mut self) -> Result<Step<D>, CompactionError> {
        let Some(segment) = self.range.segments.get(self.nth).copied() else {
            return match self.output.take() {
                Some(output) => self.finish_group(output),
                None => {
                    self.phase = Phase::Finished;
                    Ok(Step::Worked)
                }
            };
        };
        if self.input.is_none() {
            let segment_bytes = self.range.segment_bytes;
            let is_full = |output: &mut Output<D>| !output.has_room_for(&segment, segment_bytes);
            if let Some(output) = self.output.take_if(is_full) {
                return self.finish_group(output);
            }
            self.begin_input(&segment)?;
        }
        self.write_some(&segment)?;
        Ok(Step::Worked)
    }

    fn begin_input(&mut self, segment: &Summary) -> Result<(), CompactionError> {
        self.input = Some(self.range.open(segment)?);
        let output = match &mut self.output {
            Some(output) => output,
            None => self.output.insert(self.range.begin_output(segment.base_offset)?),
        };
        output.begin_input(segment);
        self.bytes_before += segment.bytes;
        Ok(())
    }

    fn write_some(&mut self, segment: &Summary) -> Result<(), CompactionError> {
        let (Some(input), Some(output)) = (&mut self.input, &mut self.output) else {
            unreachable!("both were begun");
        };
        let before = input.scan.bytes_read() + output.bytes();
        let mut is_at_end = false;
        while !is_at_end && input.scan.bytes_read() + output.bytes() < before + STEP_BYTES {
            match input.next(segment)? {
                Some((header, batch)) => {
                    self.judge.judge(&self.rule, &mut self.scratch, &header, batch, output)?;
                }
                None => is_at_end = true,
            }
        }
        self.io_bytes += input.scan.bytes_read() + output.bytes() - before;
        if is_at_end {
            self.nth += 1;
            self.input = None;
        }
        Ok(())
    }

    /// The new segment becomes durable, and what lies in the old ones void, in this order: until then
    /// they may be all that keeps their records.
    fn finish_group(&mut self, output: Output<D>) -> Result<Step<D>, CompactionError> {
        let base = output.base_offset();
        self.bytes_after += output.bytes();
        let finished =
            output.finish(self.range.partition, self.range.generation).and_then(|replacement| {
                match replacement {
                    Some(replacement) => {
                        self.range.make_replaceable(&replacement)?;
                        Ok(Step::Replace(replacement))
                    }
                    None => Ok(Step::Worked),
                }
            });
        finished.inspect_err(|_| {
            remove_cleaned(&self.range.directory.inner.disk, &self.range.path, base);
        })
    }
}

impl<D: Disk> std::fmt::Debug for Compaction<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compaction")
            .field("partition", &self.range.partition)
            .field("segments", &self.range.segments.len())
            .field("clean", &self.range.clean)
            .field("end", &self.range.end)
            .finish_non_exhaustive()
    }
}

impl<D: Disk> Range<D> {
    fn is_superseded(&self) -> bool {
        self.generation != self.current_generation.load(Ordering::Acquire)
    }

    fn open(&self, segment: &Summary) -> Result<Input<D>, CompactionError> {
        let path = FileKind::Segment.path(&self.path, segment.base_offset);
        let opened = self.directory.inner.disk.open(&path);
        let file = opened.map_err(LogError::io("open", &path)).map_err(superseded_if_gone)?;
        let scan = Scan::bodies(0, segment.bytes, LARGE_BUFFER);
        Ok(Input { file, path, scan, expected: segment.base_offset })
    }

    fn begin_output(&self, base: Offset) -> Result<Output<D>, LogError> {
        Output::begin(&self.directory.inner.disk, &self.path, base, self.index_interval_bytes)
    }

    fn make_replaceable(&self, replacement: &Replacement<D>) -> Result<(), CompactionError> {
        {
            // So that a start which finds the gaps knows that a compaction may have left them.
            let mut checkpoints = lock_of(&self.checkpoints);
            if self.is_superseded() {
                return Err(CompactionError::Superseded);
            }
            if checkpoints.latest.gaps_below < self.end {
                let before = std::mem::replace(&mut checkpoints.latest.gaps_below, self.end);
                let saved = checkpoints.save();
                if let Err(error) = saved {
                    checkpoints.latest.gaps_below = before;
                    return Err(self.fail_unless_full(error).into());
                }
            }
        }
        for input in &replacement.inputs {
            let path = FileKind::Segment.path(&self.path, input.base_offset);
            let opened = self.directory.inner.disk.open(&path);
            let file = opened.map_err(LogError::io("open", &path)).map_err(superseded_if_gone)?;
            // A failed sync leaves unknown what the disk has.
            let synced = file.sync_data().map_err(LogError::io("sync", &path));
            synced.inspect_err(|error| self.directory.fail(error))?;
        }
        let from = replacement.summary.base_offset;
        let mut write_ahead = self.directory.write_ahead();
        write_ahead.replaced(self.partition, from, replacement.end()).map_err(|error| {
            if error.is_disk_full() {
                write_ahead.give_up_unwritten();
            }
            self.fail_unless_full(error).into()
        })
    }

    fn fail_unless_full(&self, error: LogError) -> LogError {
        if !error.is_disk_full() {
            self.directory.fail(&error);
        }
        error
    }
}

/// Retention may have taken the file.
fn superseded_if_gone(error: LogError) -> CompactionError {
    match &error {
        LogError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            CompactionError::Superseded
        }
        _ => error.into(),
    }
}

impl<D: Disk> Input<D> {
    /// The next batch, its checksum verified; `None` at the end of the segment.
    fn next(&mut self, segment: &Summary) -> Result<Option<(BatchHeader, &[u8])>, CompactionError> {
        let (from, to) = (self.expected, segment.next_offset);
        let damaged = CompactionError::Damaged { from, to, reason: None };
        match self.scan.next(&self.file).map_err(LogError::io("read", &self.path))? {
            Found::Batch { header, bytes, .. }
                if from <= header.base_offset() && header.next_offset() <= to =>
            {
                self.expected = header.next_offset();
                Ok(Some((header, bytes)))
            }
            Found::End if from == to => Ok(None),
            _ => Err(damaged),
        }
    }
}

impl Rule {
    fn map(&self) -> Option<&KeyMap> {
        match self {
            Rule::ByKey(map) => Some(map),
            Rule::At(_) => None,
        }
    }
}

/// Batches of transactions and their markers stay as they are: whether their records count is not
/// said in them.
fn is_compacted(header: &BatchHeader) -> bool {
    !header.is_control() && !header.is_transactional()
}

fn unreadable(header: &BatchHeader, reason: impl Into<RetainError>) -> CompactionError {
    let (from, to) = (header.base_offset(), header.next_offset());
    CompactionError::Damaged { from, to, reason: Some(reason.into()) }
}

/// Puts the keys of a batch's records from `clean` on into the map. The offset of the first one that
/// finds no room, if there is one.
fn map_batch(
    map: &mut KeyMap,
    scratch: &mut Scratch,
    clean: Offset,
    batch: &[u8],
) -> Result<Option<Offset>, CompactionError> {
    let header = BatchHeader::parse(batch).expect("a scan has parsed it");
    let iter =
        records(batch, RECORDS_BYTES_MAX, scratch).map_err(|error| unreadable(&header, error))?;
    for record in iter {
        let record = record.map_err(|error| unreadable(&header, error))?;
        let offset = header.offset_of(record.offset_delta);
        let Some(key) = record.key.filter(|key| clean <= offset && map.can_hold(key)) else {
            continue;
        };
        if map.put(key, offset).is_err() {
            return Ok(Some(offset));
        }
    }
    Ok(None)
}

impl Judge {
    /// Passes on what is to stay of a batch.
    fn judge<D: Disk>(
        &mut self,
        rule: &Rule,
        scratch: &mut Scratch,
        header: &BatchHeader,
        batch: &[u8],
        output: &mut Output<D>,
    ) -> Result<(), CompactionError> {
        if !is_compacted(header) {
            return output.copy(header, batch);
        }
        let mut removed = 0;
        let new_horizon = self.horizon;
        let left = retain(batch, RECORDS_BYTES_MAX, new_horizon, scratch, |header, record| {
            let fate = self.fate(rule, header, record);
            removed += u64::from(fate == Fate::Dropped);
            fate
        });
        self.records_removed += removed;
        match left.map_err(|error| unreadable(header, error))? {
            Remainder::Same if 0 < header.record_count() => output.copy(header, batch),
            Remainder::Changed(bytes) => {
                let header = BatchHeader::parse(&bytes).expect("what was encoded is well formed");
                output.put_changed(&header, &bytes)
            }
            // A batch that had no records any more when this began, or has none now.
            Remainder::Same if self.kept_batches.contains(&header.base_offset()) => {
                output.copy(header, batch)
            }
            Remainder::Nothing if self.kept_batches.contains(&header.base_offset()) => {
                let bytes = towpath_records::without_records(header);
                let header = BatchHeader::parse(&bytes).expect("made from a header");
                output.put_changed(&header, &bytes)
            }
            Remainder::Same | Remainder::Nothing => {
                output.skip(header);
                Ok(())
            }
        }
    }

    fn fate(&mut self, rule: &Rule, header: &BatchHeader, record: &Record<'_>) -> Fate {
        let offset = header.offset_of(record.offset_delta);
        if self.mapped_to <= offset || offset.next() == self.end {
            return Fate::Kept;
        }
        match rule {
            Rule::ByKey(map) => self.fate_by_key(map, header, record, offset),
            Rule::At(is_gone) if is_gone(offset) => Fate::Dropped,
            Rule::At(_) => Fate::Kept,
        }
    }

    fn fate_by_key(
        &mut self,
        map: &KeyMap,
        header: &BatchHeader,
        record: &Record<'_>,
        offset: Offset,
    ) -> Fate {
        let Some(key) = record.key else {
            self.keyless_removed += 1;
            return Fate::Dropped;
        };
        if !map.can_hold(key) {
            return Fate::Kept;
        }
        let is_mutant = mutant::is_on(Mutant::NewestRecordDropped);
        if map.get(key).is_some_and(|newest| offset < newest || is_mutant) {
            return Fate::Dropped;
        }
        if record.value.is_some() {
            return Fate::Kept;
        }
        let horizon =
            if header.has_delete_horizon() { header.base_timestamp() } else { self.horizon };
        let is_early = mutant::is_on(Mutant::TombstoneDroppedEarly);
        if (header.has_delete_horizon() && horizon <= self.now) || is_early {
            return Fate::Dropped;
        }
        self.last_horizon = self.last_horizon.max(Some(horizon));
        Fate::KeptUntilHorizon
    }
}
