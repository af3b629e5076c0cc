//! What a log knows for certain about itself, in two files of alternating generations.
//!
//! A torn write damages the generation that was being written, and the other one is what was true
//! before. Two threads write checkpoints (the sync thread after a roll, the partition's own thread
//! when the log start moves), so the writer keeps the newest of every part and sits behind a lock.

use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;

use towpath_model::{LeaderEpoch, Offset};

use crate::disk::{Disk, DiskFile};
use crate::envelope::{self, Kind, Payload};
use crate::error::LogError;

const CHECKPOINT: Kind = *b"TPck";
/// Epochs are i32, but a log with a million leaderships has a checkpoint of 12 MB.
const BYTES_MAX: u64 = 64 << 20;
const NAMES: [&str; 2] = ["checkpoint.0", "checkpoint.1"];

/// An offset, and where it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Point {
    /// The offset.
    pub(crate) offset: Offset,
    /// Base offset of the segment it lies in or ends; `None` when the log has no segment.
    pub(crate) segment: Option<Offset>,
    /// Position in that segment.
    pub(crate) position: u64,
}

impl Point {
    /// The start of a log without segments.
    pub(crate) fn without_segment(offset: Offset) -> Point {
        Point { offset, segment: None, position: 0 }
    }
}

/// Invariant: `log_start <= durable.offset`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    /// First offset kept.
    pub(crate) log_start: Offset,
    /// Everything before it is on disk.
    pub(crate) durable: Point,
    /// Up to where the log was compacted: no key has two records before it.
    pub(crate) clean: Offset,
    /// Batches before it need not follow each other without a gap: a compaction has begun there, here
    /// or in the leader's log. May lie beyond the end.
    pub(crate) gaps_below: Offset,
    /// Leader epochs and their first offsets; both rise.
    pub(crate) epochs: Vec<(LeaderEpoch, Offset)>,
}

impl Checkpoint {
    fn encode(&self, generation: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(60 + 12 * self.epochs.len());
        out.extend_from_slice(&generation.to_be_bytes());
        out.extend_from_slice(&self.log_start.0.to_be_bytes());
        out.extend_from_slice(&self.durable.offset.0.to_be_bytes());
        out.extend_from_slice(&self.durable.segment.map_or(-1, |base| base.0).to_be_bytes());
        out.extend_from_slice(&self.durable.position.to_be_bytes());
        out.extend_from_slice(&self.clean.0.to_be_bytes());
        out.extend_from_slice(&self.gaps_below.0.to_be_bytes());
        out.extend_from_slice(&(self.epochs.len() as u32).to_be_bytes());
        for (epoch, start) in &self.epochs {
            out.extend_from_slice(&epoch.0.to_be_bytes());
            out.extend_from_slice(&start.0.to_be_bytes());
        }
        envelope::seal(CHECKPOINT, &out)
    }

    fn decode(bytes: &[u8]) -> Option<(u64, Checkpoint)> {
        let mut payload = Payload(envelope::open(CHECKPOINT, bytes).ok()?);
        let generation = payload.u64()?;
        let log_start = Offset(payload.i64()?);
        let offset = Offset(payload.i64()?);
        let segment = Some(Offset(payload.i64()?)).filter(|base| Offset::ZERO <= *base);
        let position = payload.u64()?;
        let clean = Offset(payload.i64()?);
        let gaps_below = Offset(payload.i64()?);
        let count = payload.u32()? as usize;
        if payload.0.len() != count.checked_mul(12)? {
            return None;
        }
        let mut epochs = Vec::with_capacity(count);
        for _ in 0..count {
            epochs.push((LeaderEpoch(payload.i32()?), Offset(payload.i64()?)));
        }
        let durable = Point { offset, segment, position };
        let makes_sense = Offset::ZERO <= log_start && log_start <= offset;
        let checkpoint = Checkpoint { log_start, durable, clean, gaps_below, epochs };
        makes_sense.then_some((generation, checkpoint))
    }
}

/// Writer of a log's checkpoints, and what the newest one says.
#[derive(Debug)]
pub(crate) struct Checkpoints<D> {
    disk: D,
    directory: Arc<Path>,
    generation: u64,
    /// Which of the two files have a name that is certain.
    named: [bool; 2],
    /// Up to where the newest generation on the disk says that the log is durable.
    saved: Option<Offset>,
    pub(crate) latest: Checkpoint,
}

/// What was found when the checkpoints were loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// No checkpoint was ever written.
    Nothing,
    /// At least one generation is readable.
    Readable,
    /// There is one file, which is not readable: the first write was torn, or it is damaged.
    FirstUnreadable,
    /// There are both files, and none is readable.
    Damaged,
}

impl<D: Disk> Checkpoints<D> {
    /// For a log that has no checkpoint yet and may have no directory.
    pub(crate) fn new(disk: D, directory: Arc<Path>, latest: Checkpoint) -> Self {
        Checkpoints { disk, directory, generation: 0, named: [false; 2], saved: None, latest }
    }

    /// Loads the newest readable generation. `shows_cached`: a read may show what the disk lacks,
    /// unless it is told not to.
    pub(crate) fn load(
        disk: D,
        directory: Arc<Path>,
        shows_cached: bool,
    ) -> Result<(Self, Found), LogError> {
        let empty = Checkpoint {
            log_start: Offset::ZERO,
            durable: Point::without_segment(Offset::ZERO),
            clean: Offset::ZERO,
            gaps_below: Offset::ZERO,
            epochs: Vec::new(),
        };
        let mut checkpoints = Checkpoints::new(disk, directory, empty);
        let (mut readable, mut unreadable) = (0, 0);
        for (slot, name) in NAMES.into_iter().enumerate() {
            let path = checkpoints.directory.join(name);
            if shows_cached {
                envelope::drop_cached(&checkpoints.disk, &path)?;
            }
            let Some(bytes) = envelope::read_file(&checkpoints.disk, &path, BYTES_MAX)? else {
                continue;
            };
            checkpoints.named[slot] = true;
            let Some((generation, checkpoint)) = Checkpoint::decode(&bytes) else {
                unreadable += 1;
                continue;
            };
            readable += 1;
            if checkpoints.generation < generation {
                checkpoints.generation = generation;
                checkpoints.saved = Some(checkpoint.durable.offset);
                checkpoints.latest = checkpoint;
            }
        }
        let found = match (readable, unreadable) {
            (0, 0) => Found::Nothing,
            (0, 1) => Found::FirstUnreadable,
            (0, _) => Found::Damaged,
            _ => Found::Readable,
        };
        Ok((checkpoints, found))
    }

    /// Names of the files that are there and are not what was written.
    pub(crate) fn unreadable(disk: &D, directory: &Path) -> Result<Vec<&'static str>, LogError> {
        let mut unreadable = Vec::new();
        for name in NAMES {
            let path = directory.join(name);
            envelope::drop_cached(disk, &path)?;
            let bytes = envelope::read_file(disk, &path, BYTES_MAX)?;
            if bytes.is_some_and(|bytes| Checkpoint::decode(&bytes).is_none()) {
                unreadable.push(name);
            }
        }
        Ok(unreadable)
    }

    /// Writes `latest` as the next generation; durable when this returns.
    pub(crate) fn save(&mut self) -> Result<(), LogError> {
        assert!(self.latest.log_start <= self.latest.durable.offset);
        let generation = self.generation + 1;
        let slot = (generation % 2) as usize;
        let path = self.directory.join(NAMES[slot]);
        let write = || {
            let file = if self.disk.exists(&path)? {
                self.disk.open(&path)?
            } else {
                self.disk.create(&path)?
            };
            file.write_at(&[IoSlice::new(&self.latest.encode(generation))], 0)?;
            file.sync_data()?;
            if !self.named[slot] {
                self.disk.sync_dir(&self.directory)?;
            }
            Ok(())
        };
        write().map_err(LogError::io("write", &path))?;
        self.named[slot] = true;
        self.generation = generation;
        self.saved = Some(self.latest.durable.offset);
        Ok(())
    }

    /// Whether the disk has a checkpoint that says that the log is durable up to `offset`.
    pub(crate) fn is_saved_up_to(&self, offset: Offset) -> bool {
        self.saved.is_some_and(|saved| offset <= saved)
    }
}
