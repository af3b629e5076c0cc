//! Batches that another broker has written: a run of them, as a leader sends it to a follower.
//!
//! ```text
//!  bytes ─▶ Run::check (no lock) ─▶ append_run … append_run (the partition's lock, one write each)
//! ```
//!
//! They go into the log byte by byte as they are, so that replicas are equal. Between two of them may
//! be a gap, where the leader's log was compacted. A start must know of it before it meets it, or it
//! takes what follows for writes that came out of order: so the checkpoint tells first.

use bytes::Bytes;
use thiserror::Error;
use towpath_model::{LeaderEpoch, Now, Offset};
use towpath_records::{BatchHeader, HeaderError, Tail, split_batches};

use crate::disk::Disk;
use crate::error::LogError;
use crate::log::{Log, note_epoch_start};

/// How many offsets ahead a checkpoint allows gaps when one has come: most runs of a compacted log
/// have some.
const GAPS_AHEAD: i64 = 1 << 16;

/// Whole batches that continue a log. Invariant: at least one; offsets rise without overlap, leader
/// epochs do not fall, checksums fit.
#[derive(Debug, Clone)]
pub struct Run {
    bytes: Bytes,
    headers: Vec<BatchHeader>,
    /// How many have been appended, and where the next one begins in `bytes`.
    done: usize,
    position: usize,
}

/// Why bytes are no run of batches that continues a log. Whoever sent them is asked again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RunRefusal {
    /// There is no batch, or one is cut off.
    #[error("the bytes end inside of a batch, at {position}")]
    CutOff {
        /// Where the batch begins.
        position: usize,
    },
    /// Something is no batch.
    #[error("no batch begins at {position}: {error}")]
    NotABatch {
        /// Where it should begin.
        position: usize,
        /// What is wrong.
        error: HeaderError,
    },
    /// Changed on its way, or where it was read.
    #[error("the checksum of the batch at offset {offset} does not fit")]
    Checksum {
        /// Its base offset.
        offset: Offset,
    },
    /// It begins before the one before it ends, or ends before it begins.
    #[error("a batch begins at offset {offset}, where {expected} or later was expected")]
    Overlap {
        /// Its base offset.
        offset: Offset,
        /// The least that it could be.
        expected: Offset,
    },
    /// It is of an older leadership than the batch before it, or of a later one than its sender.
    #[error("the batch at offset {offset} is of leader epoch {epoch}, outside {from}..={to}")]
    Epoch {
        /// Its base offset.
        offset: Offset,
        /// Its leader epoch.
        epoch: LeaderEpoch,
        /// The least that it could be.
        from: LeaderEpoch,
        /// The leadership that sent it.
        to: LeaderEpoch,
    },
    /// It is of another leadership than its sender said: bytes that are sent from a file may have been
    /// written anew since, by the next leadership.
    #[error(
        "the batch at offset {offset} is of leader epoch {epoch}, and was said to be of {said}"
    )]
    OtherEpoch {
        /// Its base offset.
        offset: Offset,
        /// Its leader epoch.
        epoch: LeaderEpoch,
        /// What was said.
        said: LeaderEpoch,
    },
}

impl Run {
    /// Looks at all of `bytes`, checksums too: to be called without the partition's lock. `from` is
    /// where the log ends, `last_epoch` the leader epoch of its last batch, `leader_epoch` that of
    /// the sender, `starts` the leaderships that it says began among the batches.
    ///
    /// # Errors
    /// [`RunRefusal`].
    pub fn check(
        bytes: Bytes,
        from: Offset,
        last_epoch: Option<LeaderEpoch>,
        leader_epoch: LeaderEpoch,
        starts: &[(LeaderEpoch, Offset)],
    ) -> Result<Run, RunRefusal> {
        let mut headers = Vec::new();
        let mut expected = from;
        let mut least = last_epoch.unwrap_or(LeaderEpoch(0));
        let mut batches = split_batches(&bytes);
        for batch in batches.by_ref() {
            let header = batch.header;
            let (offset, epoch) = (header.base_offset(), header.leader_epoch());
            if offset < expected || header.next_offset() <= offset {
                return Err(RunRefusal::Overlap { offset, expected });
            }
            if epoch < least || leader_epoch < epoch {
                return Err(RunRefusal::Epoch { offset, epoch, from: least, to: leader_epoch });
            }
            let begun = starts.iter().rev().find(|(_, start)| *start <= offset);
            let said = begun.map(|(epoch, _)| *epoch).or(last_epoch);
            if let Some(said) = said.filter(|said| *said != epoch) {
                return Err(RunRefusal::OtherEpoch { offset, epoch, said });
            }
            batch.check_crc().map_err(|_| RunRefusal::Checksum { offset })?;
            (expected, least) = (header.next_offset(), epoch);
            headers.push(header);
        }
        match batches.tail() {
            Tail::Clean if headers.is_empty() => Err(RunRefusal::CutOff { position: 0 }),
            Tail::Clean => Ok(Run { bytes, headers, done: 0, position: 0 }),
            Tail::Partial { position, .. } => Err(RunRefusal::CutOff { position }),
            Tail::Damaged { position, error } => Err(RunRefusal::NotABatch { position, error }),
        }
    }

    /// Headers of all batches.
    #[must_use]
    pub fn headers(&self) -> &[BatchHeader] {
        &self.headers
    }

    /// First offset after the last batch.
    #[must_use]
    pub fn next_offset(&self) -> Offset {
        self.headers.last().expect("a run has a batch").next_offset()
    }

    /// Headers of the batches that are not appended yet.
    fn left(&self) -> &[BatchHeader] {
        &self.headers[self.done..]
    }
}

impl<D: Disk> Log<D> {
    /// Appends the next batches of `run`, as many as go into one segment, in one write; returns
    /// their headers, none when the run is done. Not durable before a
    /// [`DataDirectory::commit`](crate::DataDirectory::commit). `epochs` are the leaderships that the
    /// leader says began in the run, whose first batches a compaction may have removed.
    ///
    /// # Errors
    /// When the disk refuses; the log is as before. A full disk may have room later; any other
    /// failure fails the directory.
    ///
    /// # Panics
    /// When the run does not continue this log: it was checked against another end.
    pub fn append_run<'r>(
        &mut self,
        run: &'r mut Run,
        epochs: &[(LeaderEpoch, Offset)],
        now: Now,
    ) -> Result<&'r [BatchHeader], LogError> {
        let Some(first) = run.left().first().copied() else { return Ok(&[]) };
        assert!(self.log_end <= first.base_offset(), "a run continues the log");
        self.directory.check()?;
        self.allow_gaps(run)?;
        if self.active_summary().is_some_and(|active| self.is_full_for(active, &first, now.wall)) {
            self.seal();
        }
        if self.active.is_none() {
            self.begin_segment()?;
        }
        let (count, bytes) = self.fitting(run.left(), now);
        let batches = &run.bytes[run.position..run.position + bytes];
        let mut position = self.write(batches)?;
        let appended = run.done..run.done + count;
        for header in &run.headers[appended.clone()] {
            for (epoch, start) in epochs {
                if (self.log_end..=header.base_offset()).contains(start)
                    && *epoch <= header.leader_epoch()
                {
                    note_epoch_start(&mut self.epochs, *epoch, *start);
                }
            }
            self.note(header, position, now.wall);
            position += header.size_in_bytes() as u64;
        }
        self.assert_order();
        run.done += count;
        run.position += bytes;
        Ok(&run.headers[appended])
    }

    /// How many of `headers` go into the active segment, and how many bytes they have; at least one.
    fn fitting(&self, headers: &[BatchHeader], now: Now) -> (usize, usize) {
        let mut ahead = *self.active_summary().expect("a segment was begun");
        let before = ahead.bytes;
        let mut count = 0;
        for header in headers {
            if 0 < count && self.is_full_for(&ahead, header, now.wall) {
                break;
            }
            ahead.note(header);
            ahead.first_append.get_or_insert(now.wall);
            count += 1;
        }
        (count, (ahead.bytes - before) as usize)
    }

    /// Says in the checkpoint that there may be gaps up to the end of `run`, if there are.
    fn allow_gaps(&mut self, run: &Run) -> Result<(), LogError> {
        let mut expected = self.log_end;
        let mut has_gap = false;
        for header in run.left() {
            has_gap |= expected != header.base_offset();
            expected = header.next_offset();
        }
        if !has_gap || expected <= self.checkpoints().latest.gaps_below {
            return Ok(());
        }
        self.ensure_directory()?;
        let mut checkpoints = self.checkpoints();
        let allowed = Offset(expected.0.saturating_add(GAPS_AHEAD));
        let before = std::mem::replace(&mut checkpoints.latest.gaps_below, allowed);
        let saved = checkpoints.save();
        saved.inspect_err(|error| {
            checkpoints.latest.gaps_below = before;
            self.fail_unless_full(error);
        })
    }
}
