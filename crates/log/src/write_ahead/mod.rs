//! The write-ahead file of a data directory: where small appends become durable.
//!
//! ```text
//!  current   frames ... │ zeros, written before      what is acknowledged from
//!  previous  frames ...                              its segments are being synced, a few at a time
//!  spare     old frames                              all its segments are synced: next in turn
//! ```
//!
//! A file's blocks are written before they are needed, because a sync of a growing file commits the
//! file system's journal (ADR 0001). So old frames lie behind the valid ones; the number of the
//! file's use, which each frame carries, tells them apart.
//!
//! A file that goes takes with it what its frames say about durability. What no checkpoint says yet
//! is therefore repeated at the head of the next one, as a mark per log: a start can tell the loss
//! of an acknowledged record from an unfinished write, however long ago the checkpoint was.

mod aside;
pub(crate) mod frame;
mod replay;

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use towpath_model::mutant::{self, Mutant};
use towpath_model::{Offset, TopicPartition, Uuid};

use crate::disk::{Disk, DiskFile};
use crate::envelope::{self, Kind, Payload};
use crate::error::LogError;
use frame::{FIRST_FRAME_AT, Frame, FrameKind, Use, frame_bytes};

pub(crate) use replay::{Durable, Replayed, replay};

const HEAD: Kind = *b"TPwl";
/// Frames are gathered up to this size before they are written.
const BUFFER_BYTES: usize = 1 << 20;
/// The first step in which a file grows.
const FIRST_STEP: u64 = 256 << 10;

/// A segment file that frames have bytes of.
pub(crate) type SegmentId = (TopicPartition, Offset);

/// The write-ahead files of one data directory.
pub(crate) struct WriteAhead<D: Disk> {
    disk: D,
    directory: PathBuf,
    directory_id: Uuid,
    bytes_max: u64,
    next_number: u64,
    current: Option<Turn<D>>,
    previous: Option<Turn<D>>,
    spare: Option<Turn<D>>,
    buffer: Vec<u8>,
    /// The file of frames that were set aside; it is left alone.
    aside: Option<u64>,
    /// How far logs are durable, where their checkpoints do not say so yet.
    ends: BTreeMap<TopicPartition, Durable>,
    /// Bytes appended since segments of the previous turn were last synced.
    owed_bytes: u64,
}

/// One use of a file.
struct Turn<D: Disk> {
    file_use: Use,
    path: PathBuf,
    file: D::File,
    /// Where the next frame goes.
    end: u64,
    /// Everything before it has been written at least once, in this use or an earlier one.
    written: u64,
    /// Everything before it is synced.
    synced: u64,
    /// Segments whose bytes only this file keeps for certain.
    covered: BTreeMap<SegmentId, Arc<D::File>>,
}

fn file_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:020}.wal"))
}

fn file_number(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".wal")?;
    (digits.len() == 20 && digits.bytes().all(|c| c.is_ascii_digit()))
        .then(|| digits.parse().ok())
        .flatten()
}

fn head(number: u64, directory_id: Uuid) -> Vec<u8> {
    let mut payload = number.to_be_bytes().to_vec();
    payload.extend_from_slice(&directory_id.0);
    let mut out = envelope::seal(HEAD, &payload);
    out.resize(FIRST_FRAME_AT as usize, 0);
    out
}

fn number_in_head(bytes: &[u8], directory_id: Uuid) -> Option<u64> {
    let mut payload = Payload(envelope::open(HEAD, bytes).ok()?);
    let number = payload.u64()?;
    (payload.array() == Some(directory_id.0)).then_some(number)
}

impl<D: Disk> WriteAhead<D> {
    /// After a replay: no files, and numbers that were never used.
    pub(crate) fn new(
        disk: D,
        directory: PathBuf,
        directory_id: Uuid,
        bytes_max: u64,
        next_number: u64,
    ) -> Self {
        WriteAhead {
            disk,
            directory,
            directory_id,
            bytes_max,
            next_number,
            current: None,
            previous: None,
            spare: None,
            buffer: Vec::new(),
            aside: None,
            ends: BTreeMap::new(),
            owed_bytes: 0,
        }
    }

    /// After a replay: says what it has found durable, and removes the files that said so before.
    pub(crate) fn take_over(&mut self, replayed: &Replayed) -> Result<(), LogError> {
        self.ends.clone_from(&replayed.durable);
        let marked = if self.ends.is_empty() { Ok(()) } else { self.make_room(0) };
        match marked.and_then(|()| self.sync()) {
            // They are a help for the judgement of damage, no promise.
            Err(error) if error.is_disk_full() => self.give_up_unwritten(),
            marked => marked?,
        }
        self.aside = replayed.aside;
        if 1 < replayed.done_below {
            let done_below = replayed.done_below;
            remove_files(&self.disk, &self.directory, |number| number < done_below)?;
        }
        Ok(())
    }

    /// A checkpoint says that the log is durable up to `offset`.
    pub(crate) fn checkpointed(&mut self, partition: TopicPartition, offset: Offset) {
        if self.ends.get(&partition).is_some_and(|end| end.next_offset <= offset) {
            self.ends.remove(&partition);
        }
    }

    /// Whether any frame may be replayed after a crash.
    pub(crate) fn has_frames(&self) -> bool {
        self.current.is_some() || self.previous.is_some()
    }

    /// Adds bytes of a segment; durable after [`Self::sync`]. Reads them from `file`, where they
    /// were appended: they are in the page cache.
    pub(crate) fn append(
        &mut self,
        frame: Frame,
        bytes: usize,
        file: &Arc<D::File>,
    ) -> Result<(), LogError> {
        let position = frame.position;
        self.add(frame, bytes, |to| match envelope::read_full(&**file, to, position)? {
            read if read == to.len() => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        })?;
        let current = self.current.as_mut().expect("`add` has begun a turn");
        current.covered.insert((frame.partition, frame.segment), Arc::clone(file));
        self.ends.insert(frame.partition, frame.end(bytes));
        Ok(())
    }

    /// Notes that a log was durable without any frame. Needs no sync.
    pub(crate) fn mark(
        &mut self,
        partition: TopicPartition,
        segment: Offset,
        position: u64,
        next_offset: Offset,
    ) -> Result<(), LogError> {
        let kind = FrameKind::Mark;
        let offset = next_offset;
        let frame = Frame { kind, partition, segment, position, offset, next_offset };
        self.add(frame, 0, |_| Ok(()))?;
        self.ends.insert(partition, frame.end(0));
        Ok(())
    }

    /// Makes certain that no replay brings back what lies at or behind the place; durable when
    /// this returns.
    ///
    /// # Errors
    /// When the disk is full: nothing is forgotten then. When it fails: then that is not known.
    pub(crate) fn forget(
        &mut self,
        partition: TopicPartition,
        segment: Offset,
        position: u64,
        offset: Offset,
    ) -> Result<(), LogError> {
        self.ends.remove(&partition);
        if !self.has_frames() || mutant::is_on(Mutant::ForgetFrameMissing) {
            return Ok(());
        }
        let kind = FrameKind::Forget;
        let frame = Frame { kind, partition, segment, position, offset, next_offset: offset };
        let forgotten = self.add(frame, 0, |_| Ok(())).and_then(|()| self.sync());
        if forgotten.as_ref().is_err_and(LogError::is_disk_full) {
            // Nothing is to be forgotten yet, and later it may be something else.
            self.give_up_unwritten();
        }
        forgotten
    }

    /// Makes certain that no replay writes into the segments `[from, to)` what lay there until now;
    /// durable when this returns. Their files have been synced.
    pub(crate) fn replaced(
        &mut self,
        partition: TopicPartition,
        from: Offset,
        to: Offset,
    ) -> Result<(), LogError> {
        self.uncover(|(covered, base)| *covered == partition && from <= *base && *base < to);
        if !self.has_frames() {
            return Ok(());
        }
        let kind = FrameKind::Replaced;
        let frame =
            Frame { kind, partition, segment: from, position: 0, offset: from, next_offset: to };
        self.add(frame, 0, |_| Ok(()))?;
        self.sync()
    }

    /// Drops what was covered of segments that are about to go.
    pub(crate) fn uncover(&mut self, is_gone: impl Fn(&SegmentId) -> bool) {
        for turn in [&mut self.current, &mut self.previous].into_iter().flatten() {
            turn.covered.retain(|segment, _| !is_gone(segment));
        }
    }

    fn add(
        &mut self,
        frame: Frame,
        bytes: usize,
        payload: impl FnOnce(&mut [u8]) -> io::Result<()>,
    ) -> Result<(), LogError> {
        let needed = frame_bytes(bytes) as u64;
        self.make_room(needed)?;
        let buffered = self.buffer.len() as u64;
        let current = self.current.as_ref().expect("`make_room` has begun a turn");
        let (file_use, synced) = (current.file_use, current.synced);
        frame
            .encode(file_use, synced, bytes, &mut self.buffer, payload)
            .map_err(LogError::io("read back for", &current.path))?;
        assert_eq!(self.buffer.len() as u64, buffered + needed);
        self.owed_bytes += needed;
        if BUFFER_BYTES <= self.buffer.len() {
            self.write_buffer()?;
        }
        Ok(())
    }

    fn make_room(&mut self, needed: u64) -> Result<(), LogError> {
        let buffered = self.buffer.len() as u64;
        if let Some(current) = &self.current {
            let is_first = current.end == FIRST_FRAME_AT && buffered == 0;
            if is_first || current.end + buffered + needed <= self.bytes_max {
                return Ok(());
            }
            self.sync()?;
            self.sync_covered(usize::MAX)?;
            self.previous = self.current.take();
            self.owed_bytes = 0;
        }
        self.current = Some(self.begin_turn()?);
        self.repeat_ends()
    }

    /// So many that they would fill the file are left out: they help to judge damage, no more.
    fn repeat_ends(&mut self) -> Result<(), LogError> {
        let Some(current) = &self.current else { return Ok(()) };
        if self.bytes_max / 4 < (self.ends.len() * frame_bytes(0)) as u64 {
            return Ok(());
        }
        for (partition, end) in &self.ends {
            let frame = Frame {
                kind: FrameKind::Mark,
                partition: *partition,
                segment: end.segment,
                position: end.position,
                offset: end.next_offset,
                next_offset: end.next_offset,
            };
            let nothing = |_: &mut [u8]| Ok(());
            frame
                .encode(current.file_use, current.synced, 0, &mut self.buffer, nothing)
                .map_err(LogError::io("read back for", &current.path))?;
        }
        Ok(())
    }

    fn begin_turn(&mut self) -> Result<Turn<D>, LogError> {
        // Also when it fails: what it has left must not be in the way of the next attempt.
        let number = self.next_number;
        self.next_number += 1;
        let path = file_path(&self.directory, number);
        let (file, written) = self.name_file(&path).map_err(LogError::io("begin", &path))?;
        let end = FIRST_FRAME_AT;
        let file_use = Use::new(self.directory_id, number);
        let covered = BTreeMap::new();
        let mut turn: Turn<D> = Turn { file_use, path, file, end, written, synced: end, covered };
        // Its new name is certain before any frame counts on it.
        let sync_name = || match mutant::is_on(Mutant::WriteAheadNameNotSynced) {
            true => Ok(()),
            false => self.disk.sync_dir(&self.directory),
        };
        let begun = sync_name().and_then(|()| {
            let file: &D::File = &turn.file;
            file.write_at(&[IoSlice::new(&head(number, self.directory_id))], 0)
        });
        if let Err(error) = begun {
            let error = LogError::io("begin", &turn.path)(error);
            // Its head names another use, or none: no frame in it counts.
            self.spare = Some(turn);
            return Err(error);
        }
        turn.written = turn.written.max(end);
        Ok(turn)
    }

    /// A file of this name: the spare one, renamed, or a new one; and how much of it was written.
    fn name_file(&mut self, path: &Path) -> io::Result<(D::File, u64)> {
        let Some(spare) = self.spare.take() else {
            return Ok((self.disk.create(path)?, 0));
        };
        match self.disk.rename(&spare.path, path) {
            Ok(()) => Ok((spare.file, spare.written)),
            Err(error) => {
                self.spare = Some(spare);
                Err(error)
            }
        }
    }

    fn write_buffer(&mut self) -> Result<(), LogError> {
        let Some(current) = self.current.as_mut() else { return Ok(()) };
        let end = current.end + self.buffer.len() as u64;
        let grown = if current.written < end {
            end.max(FIRST_STEP).next_power_of_two().min(self.bytes_max.max(end))
        } else {
            current.written
        };
        // The frames last: when there is no room, the last of them is not whole, and counts for nothing.
        let write = |file: &D::File| {
            write_zeros(file, end.max(current.written)..grown)?;
            file.write_at(&[IoSlice::new(&self.buffer)], current.end)
        };
        write(&current.file).map_err(LogError::io("write", &current.path))?;
        current.end = end;
        current.written = grown.max(current.written);
        self.buffer.clear();
        Ok(())
    }

    /// Makes all frames durable.
    pub(crate) fn sync(&mut self) -> Result<(), LogError> {
        self.write_buffer()?;
        let Some(current) = self.current.as_mut() else { return Ok(()) };
        if current.synced < current.end && !mutant::is_on(Mutant::WriteAheadNotSynced) {
            current.file.sync_data().map_err(LogError::io("sync", &current.path))?;
            current.synced = current.end;
        }
        Ok(())
    }

    /// Writes frames that need no sync, so that they survive the end of the process.
    pub(crate) fn write_unsynced(&mut self) -> Result<(), LogError> {
        self.write_buffer()
    }

    /// There is no room: frames that were not written yet will not be.
    pub(crate) fn give_up_unwritten(&mut self) {
        self.buffer.clear();
    }

    /// A segment file was synced by itself: no frame before now is needed for it.
    pub(crate) fn segment_synced(&mut self, segment: SegmentId) {
        for turn in [&mut self.current, &mut self.previous].into_iter().flatten() {
            turn.covered.remove(&segment);
        }
    }

    /// Syncs some segments of the previous turn, so that it is done before the current one is full.
    pub(crate) fn tidy(&mut self) -> Result<(), LogError> {
        let Some((previous, current)) = self.previous.as_ref().zip(self.current.as_ref()) else {
            self.owed_bytes = 0;
            return Ok(());
        };
        let left = self.bytes_max.saturating_sub(current.end).max(1);
        let segments = previous.covered.len() as u64;
        let owed = (segments * self.owed_bytes).div_ceil(left).min(segments);
        self.owed_bytes = 0;
        self.sync_covered(owed as usize)
    }

    fn sync_covered(&mut self, segments_max: usize) -> Result<(), LogError> {
        let Some(previous) = self.previous.as_mut() else { return Ok(()) };
        for _ in 0..segments_max {
            let Some((_, file)) = previous.covered.pop_first() else { break };
            if mutant::is_on(Mutant::WriteAheadReusedEarly) {
                continue;
            }
            file.sync_data().map_err(LogError::io("sync segments of", &previous.path))?;
        }
        if previous.covered.is_empty() {
            self.spare = self.previous.take();
        }
        Ok(())
    }

    /// Syncs every covered segment and removes the files: nothing is left to replay.
    pub(crate) fn close(&mut self) -> Result<(), LogError> {
        self.sync()?;
        self.sync_covered(usize::MAX)?;
        self.previous = self.current.take();
        self.sync_covered(usize::MAX)?;
        remove_files(&self.disk, &self.directory, |number| Some(number) != self.aside)?;
        self.spare = None;
        self.ends.clear();
        Ok(())
    }
}

/// Zeros that are written at a time.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

fn write_zeros<F: DiskFile>(file: &F, range: Range<u64>) -> io::Result<()> {
    let mut at = range.start;
    while at < range.end {
        let left = usize::try_from(range.end - at).unwrap_or(usize::MAX);
        let step = &ZEROS[..left.min(ZEROS.len())];
        file.write_at(&[IoSlice::new(step)], at)?;
        at += step.len() as u64;
    }
    Ok(())
}

/// Removes write-ahead files; durable when this returns.
fn remove_files<D: Disk>(
    disk: &D,
    directory: &Path,
    goes: impl Fn(u64) -> bool,
) -> Result<(), LogError> {
    let remove = || {
        for name in disk.list(directory)? {
            if file_number(&name).is_some_and(&goes) {
                disk.remove_file(&directory.join(name))?;
            }
        }
        disk.sync_dir(directory)
    };
    remove().map_err(LogError::io("empty", directory))
}
