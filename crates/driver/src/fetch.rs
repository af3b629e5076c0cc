//! Reading: where a log may be read, and where its records lie.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use towpath_broker::Condition;
use towpath_log::disk::Disk;
use towpath_log::{LogError, ReadError, Slice};
use towpath_model::mutant::{self, Mutant};
use towpath_model::{LeaderEpoch, Offset, Token, TopicPartition};
use towpath_replication::{EpochRefusal, Leader};

use crate::cell::{Cell, Slot};
use crate::driver::Driver;
use crate::world::{Clock, Net};

/// How much to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadLimits {
    /// Most bytes.
    pub max_bytes: usize,
    /// Return the first batch whole even if it is larger (KIP-74): otherwise a reader would stand
    /// still before it for ever.
    pub at_least_one_batch: bool,
}

/// What a reader of a partition asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reader {
    /// The leader epoch that it knows, if it tells.
    pub epoch: Option<LeaderEpoch>,
    /// First offset that it wants.
    pub from: Offset,
    /// Only what lies below the last stable offset.
    pub stable_only: bool,
    /// How much.
    pub limits: ReadLimits,
}

/// The lines of a partition at one moment; ends are exclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// First offset kept.
    pub log_start_offset: Offset,
    /// First offset of the oldest open transaction, or the high watermark.
    pub last_stable_offset: Offset,
    /// First offset not yet durable on all in-sync replicas.
    pub high_watermark: Offset,
    /// First offset not yet written.
    pub log_end_offset: Offset,
    /// In which epoch this broker leads.
    pub leader_epoch: LeaderEpoch,
}

/// Records found by a read.
pub struct Read<D: Disk> {
    /// Where they lie; `None` when there is nothing below the high watermark.
    pub slice: Option<Slice<D>>,
    /// The lines when it was read.
    pub position: Position,
}

/// Why nothing can be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FetchRefusal {
    /// This broker does not lead the partition.
    #[error("this broker does not lead the partition")]
    NotLeader,
    /// The reader's idea of the leader epoch is not ours.
    #[error(transparent)]
    Epoch(#[from] EpochRefusal),
    /// This broker leads only since a moment ago, and does not know yet how much of what it began with
    /// is committed: readers may have seen more than it could tell.
    #[error("the new leader does not know yet where the committed records end")]
    NotAvailable,
    /// Before the start or after the end.
    #[error("the offset is outside [{}, {}]", position.log_start_offset, position.log_end_offset)]
    OutOfRange {
        /// What there is.
        position: Position,
    },
    /// The partition should be led here and cannot be.
    #[error("{0}")]
    Offline(String),
    /// They have to be fetched from the device first: [`Driver::warm_up`].
    #[error("the records are not in memory")]
    NotResident,
    /// The bytes there are damaged.
    #[error("the records there are damaged: {0}")]
    Corrupt(String),
    /// The disk fails.
    #[error("the records cannot be read: {0}")]
    Storage(String),
}

impl<D: Disk> Slot<D> {
    /// The leader's core, if this broker leads the partition.
    pub(crate) fn leader(&self) -> Result<&Leader, FetchRefusal> {
        self.partition.leader().filter(|_| !self.closed).ok_or(FetchRefusal::NotLeader)
    }

    /// Whether a reader's idea of the leader epoch is that of the leader or follower here.
    fn check_replica(&self, epoch: Option<LeaderEpoch>) -> Result<(), FetchRefusal> {
        if let Ok(leader) = self.leader() {
            return Ok(leader.check_epoch(epoch)?);
        }
        let replica = self.partition.replica().filter(|_| !self.closed);
        let current = replica.ok_or(FetchRefusal::NotLeader)?.leader_epoch();
        match epoch {
            Some(asked) if asked < current => Err(EpochRefusal::Fenced { current }.into()),
            Some(asked) if current < asked => Err(EpochRefusal::Unknown { current }.into()),
            _ => Ok(()),
        }
    }

    pub(crate) fn position(&self) -> Position {
        let partition = &self.partition;
        Position {
            log_start_offset: partition.log_start_offset(),
            last_stable_offset: partition.last_stable_offset(),
            high_watermark: partition.high_watermark(),
            log_end_offset: partition.log_end_offset(),
            leader_epoch: partition.leader_epoch(),
        }
    }
}

pub(crate) fn refused(error: &LogError) -> FetchRefusal {
    match error {
        LogError::Corrupt { .. } => FetchRefusal::Corrupt(error.to_string()),
        _ => FetchRefusal::Storage(error.to_string()),
    }
}

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    pub(crate) fn led(&self, id: TopicPartition) -> Result<Arc<Cell<D>>, FetchRefusal> {
        self.records_cell(id).ok_or_else(|| match self.offline(id) {
            Some(offline) => FetchRefusal::Offline(offline.to_string()),
            None => FetchRefusal::NotLeader,
        })
    }

    pub(crate) fn locked<'c>(
        &self,
        cell: &'c Arc<Cell<D>>,
    ) -> Result<MutexGuard<'c, Slot<D>>, FetchRefusal> {
        let stalled = || FetchRefusal::Storage(self.stalled_reason(self.volume(cell.volume)));
        self.lock_in_time(cell).ok_or_else(stalled)
    }

    /// The lines of a partition.
    ///
    /// # Errors
    /// [`FetchRefusal::NotLeader`], or a leader epoch that is not ours.
    pub fn position(
        &self,
        id: TopicPartition,
        epoch: Option<LeaderEpoch>,
    ) -> Result<Position, FetchRefusal> {
        let cell = self.led(id)?;
        let slot = self.locked(&cell)?;
        slot.leader()?.check_epoch(epoch)?;
        Ok(slot.position())
    }

    /// Finds records from `from` on, below the high watermark (or below the last stable offset
    /// when `stable_only`), whole batches, inside one file.
    ///
    /// # Errors
    /// [`FetchRefusal`].
    pub fn read(
        &self,
        id: TopicPartition,
        epoch: Option<LeaderEpoch>,
        from: Offset,
        stable_only: bool,
        limits: ReadLimits,
    ) -> Result<Read<D>, FetchRefusal> {
        let reader = Reader { epoch, from, stable_only, limits };
        self.find_records(id, &reader, false, true)
    }

    /// As [`Driver::read`], but without waiting for a device.
    ///
    /// # Errors
    /// [`FetchRefusal::NotResident`] when it would have to be waited for; then
    /// [`Driver::warm_up`] and a [`Driver::read`] are next.
    pub fn read_resident(
        &self,
        id: TopicPartition,
        epoch: Option<LeaderEpoch>,
        from: Offset,
        stable_only: bool,
        limits: ReadLimits,
    ) -> Result<Read<D>, FetchRefusal> {
        let reader = Reader { epoch, from, stable_only, limits };
        self.find_records(id, &reader, false, false)
    }

    /// As [`Driver::read`] where this broker leads the partition; where it follows, the records that it
    /// knows to be committed (KIP-392). What it has of its leader's high watermark may be old: a
    /// reader that has come further gets nothing yet. Without `may_wait` as
    /// [`Driver::read_resident`].
    ///
    /// # Errors
    /// [`FetchRefusal`].
    pub fn read_replica(
        &self,
        id: TopicPartition,
        reader: &Reader,
        may_wait: bool,
    ) -> Result<Read<D>, FetchRefusal> {
        self.find_records(id, reader, true, may_wait)
    }

    /// Brings about `max_bytes` of records into memory, from `from` on. Waits for the device, without
    /// the partition's lock.
    ///
    /// # Errors
    /// [`FetchRefusal`].
    pub fn warm_up(
        &self,
        id: TopicPartition,
        from: Offset,
        max_bytes: usize,
    ) -> Result<(), FetchRefusal> {
        let cell = self.led(id)?;
        let warm_up = self.locked(&cell)?.log.warm_up(from, max_bytes);
        let Some(warm_up) = warm_up else { return Ok(()) };
        if let Some(warmed) = warm_up.run().map_err(|error| refused(&error))? {
            cell.lock().log.keep_open(warmed);
        }
        Ok(())
    }

    fn find_records(
        &self,
        id: TopicPartition,
        reader: &Reader,
        may_follow: bool,
        may_wait: bool,
    ) -> Result<Read<D>, FetchRefusal> {
        let Reader { epoch, from, stable_only, limits } = *reader;
        let cell = self.led(id)?;
        let slot = self.locked(&cell)?;
        if may_follow {
            slot.check_replica(epoch)?;
        } else {
            slot.leader()?.check_epoch(epoch)?;
        }
        let position = slot.position();
        if from < position.log_start_offset || position.log_end_offset < from {
            return Err(FetchRefusal::OutOfRange { position });
        }
        let end = if stable_only { position.last_stable_offset } else { position.high_watermark };
        let end = match mutant::is_on(Mutant::ReadAboveHighWatermark) {
            true => position.log_end_offset,
            false => end,
        };
        if end <= from {
            return Ok(Read { slice: None, position });
        }
        // What a failed sync left behind may still be in the page cache, and is not on the disk.
        let certain = slot.log.durable_offset();
        let end = if slot.failed { end.min(certain) } else { end };
        if end <= from {
            let reason = "the data directory failed before these records were durable";
            return Err(FetchRefusal::Storage(reason.to_owned()));
        }
        let (max_bytes, at_least_one) = (limits.max_bytes, limits.at_least_one_batch);
        let read = if may_wait {
            slot.log.read(from, end, max_bytes, at_least_one)
        } else {
            slot.log.read_resident(from, end, max_bytes, at_least_one)
        };
        let slice = read.map_err(|error| match error {
            ReadError::OutOfRange { .. } => FetchRefusal::OutOfRange { position },
            ReadError::CorruptBatch { from, .. } => {
                self.doubt_cell(&cell, from);
                FetchRefusal::Corrupt(error.to_string())
            }
            ReadError::NotResident => FetchRefusal::NotResident,
            other => FetchRefusal::Storage(other.to_string()),
        })?;
        if let Some(slice) = &slice {
            cell.counted.bytes_out.fetch_add(slice.len as u64, Ordering::Relaxed);
        }
        Ok(Read { slice, position })
    }

    /// Calls `token` once when `condition` holds on the partition, or when it is no longer led
    /// here. `true`: it holds already, or will never, and nobody will be called.
    pub fn watch(&self, id: TopicPartition, token: Token, condition: Condition) -> bool {
        self.watch_slot(id, token, condition, Slot::leads)
    }

    /// As [`Driver::watch`], also where this broker follows.
    pub fn watch_replica(&self, id: TopicPartition, token: Token, condition: Condition) -> bool {
        self.watch_slot(id, token, condition, |slot| !slot.closed)
    }

    fn watch_slot(
        &self,
        id: TopicPartition,
        token: Token,
        condition: Condition,
        is_served: impl FnOnce(&Slot<D>) -> bool,
    ) -> bool {
        let Some(cell) = self.records_cell(id) else { return true };
        let Some(mut slot) = self.lock_in_time(&cell) else { return true };
        !is_served(&slot) || slot.partition.watch(token, condition)
    }

    /// Gives up a [`Driver::watch`].
    pub fn unwatch(&self, id: TopicPartition, token: Token, condition: Condition) {
        let Some(cell) = self.records_cell(id) else { return };
        // Where it cannot be given up, it ends with the first thing that happens there.
        if let Some(mut slot) = self.lock_in_time(&cell) {
            slot.partition.unwatch(token, condition);
        }
    }
}
