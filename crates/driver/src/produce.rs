//! A producer's batch on its way into a log.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use towpath_broker::Output;
use towpath_log::disk::Disk;
use towpath_model::mutant::{self, Mutant};
use towpath_model::{BrokerId, Now, Offset, Timestamp, Token, TopicPartition};
use towpath_records::{BatchHeader, TimestampType, Validated};
use towpath_replication::{Acks, Admission, ProduceRefusal};

use crate::driver::Driver;
use crate::queue_limits::{QueueFull, QueueGivenUp};
use crate::room::Room;
use crate::volume::{Volume, VolumeIndex};
use crate::world::{Clock, Net};

/// A batch that was appended, or had been before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Produced {
    /// Offset of its first record.
    pub base_offset: Offset,
    /// First offset after it.
    pub end_offset: Offset,
    /// The broker's time, where the topic stamps records with it.
    pub append_time: Option<Timestamp>,
    /// Where the partition starts.
    pub log_start_offset: Offset,
    /// It had been appended before: the producer repeated it.
    pub is_duplicate: bool,
    /// The acknowledgement must wait: it is delivered to the token.
    pub is_pending: bool,
}

/// A data directory is below its high watermark.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "broker {broker} takes no records for this partition: its data directory {} has {} MiB free, and \
     the last {} MiB are kept back (disk.high.watermark); it takes them again once more is free",
    directory.display(),
    free_bytes >> 20,
    kept_bytes >> 20
)]
pub struct NoRoom {
    /// Which broker.
    pub broker: BrokerId,
    /// Which of its data directories.
    pub directory: PathBuf,
    /// Free bytes of its file system.
    pub free_bytes: u64,
    /// Free bytes below which nothing is taken.
    pub kept_bytes: u64,
}

/// Why a batch was not appended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProduceFailure {
    /// This broker does not lead the partition.
    #[error("this broker does not lead the partition")]
    NotLeader,
    /// The partition should be led here and cannot be.
    #[error("{0}")]
    Offline(String),
    /// The replication core refuses.
    #[error(transparent)]
    Refused(#[from] ProduceRefusal),
    /// There is no room left for records. Nothing was appended; later there may be.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// The queue takes no more. Nothing was appended.
    #[error(transparent)]
    QueueFull(#[from] QueueFull),
    /// The queue takes nothing any more. Nothing was appended.
    #[error(transparent)]
    QueueGivenUp(#[from] QueueGivenUp),
    /// The disk does not answer at the moment, and it was not looked whether an earlier attempt had
    /// been appended. This one was not.
    #[error("the batch is not taken now: {0}")]
    Stalled(String),
    /// The disk does. Nothing was appended.
    #[error("the batch cannot be stored: {0}")]
    Storage(String),
}

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// Appends one batch that was validated. Its place, its leadership and the broker's timestamps
    /// are set in `batch` here, under the partition's lock.
    ///
    /// When the answer says `is_pending`, `token` hears when `acks` is fulfilled.
    ///
    /// # Errors
    /// [`ProduceFailure`]; the batch is then not in the log, unless an earlier attempt has put it there
    /// and the disk has stalled.
    pub fn produce(
        &self,
        id: TopicPartition,
        batch: &mut [u8],
        validated: &Validated,
        acks: Acks,
        token: Token,
    ) -> Result<Produced, ProduceFailure> {
        let cell = self.records_cell(id).ok_or_else(|| match self.offline(id) {
            Some(offline) => ProduceFailure::Offline(offline.to_string()),
            None => ProduceFailure::NotLeader,
        })?;
        let volume = self.volume(cell.volume);
        if self.is_stalled(volume) {
            // It would only wait in a longer queue.
            return Err(ProduceFailure::Stalled(self.stalled_reason(volume)));
        }
        let partitions = self.sharing_partitions(id);
        let mut is_worked = false;
        let (produced, wants_round) = self.step_without_round(&cell, |slot, now, out| {
            is_worked = slot.config.queue_enable;
            if !slot.leads() {
                return Err(ProduceFailure::NotLeader);
            }
            let admission = slot.partition.produce(now, &validated.header, acks)?;
            let is_duplicate = matches!(admission, Admission::Duplicate { .. });
            let (base_offset, end_offset, append_time) = match admission {
                Admission::Duplicate { base_offset, end_offset, append_time } => {
                    (base_offset, end_offset, Some(append_time))
                }
                Admission::Append { base_offset, leader_epoch } => {
                    self.check_room(cell.volume)?;
                    if slot.config.queue_enable {
                        self.check_open(&cell, slot)?;
                        let size = (batch.len(), partitions);
                        self.check_limits(&cell, slot, &validated.header, size)?;
                    }
                    validated.stamp(batch, base_offset, leader_epoch);
                    let header = BatchHeader::parse(batch)
                        .map_err(|error| ProduceFailure::Storage(error.to_string()))?;
                    volume.write(|| self.append(slot, &header, batch, now, out))?;
                    self.want_sync(&cell, slot);
                    let records = u64::try_from(header.record_count()).unwrap_or_default();
                    cell.counted.records_in.fetch_add(records, Ordering::Relaxed);
                    let weakly = match acks {
                        Acks::None => Some(&cell.counted.records_acks_none),
                        Acks::Leader => Some(&cell.counted.records_acks_leader),
                        Acks::All => None,
                    };
                    if let Some(weakly) = weakly {
                        weakly.fetch_add(records, Ordering::Relaxed);
                    }
                    cell.counted.bytes_in.fetch_add(batch.len() as u64, Ordering::Relaxed);
                    let stamped = header.timestamp_type() == TimestampType::LogAppendTime;
                    (base_offset, header.next_offset(), stamped.then(|| header.max_timestamp()))
                }
            };
            let condition = slot.partition.acknowledgement(acks, end_offset);
            let is_early = is_duplicate && mutant::is_on(Mutant::RepeatAckedAtOnce);
            let condition = condition.filter(|_| !is_early);
            let is_pending = condition.is_some_and(|wanted| !slot.partition.watch(token, wanted));
            let log_start_offset = slot.partition.log_start_offset();
            Ok(Produced {
                base_offset,
                end_offset,
                append_time,
                log_start_offset,
                is_duplicate,
                is_pending,
            })
        });
        let mut rounds = [wants_round.then_some(cell.volume), None];
        if is_worked && produced.as_ref().is_ok_and(|produced| !produced.is_duplicate) {
            rounds[1] = self.admit_appended(id, batch).filter(|other| Some(*other) != rounds[0]);
        }
        self.order_rounds(rounds.into_iter().flatten());
        produced
    }

    /// Only for what is new: a repeat takes no room, and its producer must learn that it is there.
    fn check_room(&self, volume: VolumeIndex) -> Result<(), NoRoom> {
        let volume = self.volume(volume);
        let is_ignored = mutant::is_on(Mutant::WatermarkIgnored);
        if volume.room() < Room::Full || is_ignored { Ok(()) } else { Err(self.no_room(volume)) }
    }

    #[cold]
    fn no_room(&self, volume: &Volume<D>) -> NoRoom {
        NoRoom {
            broker: self.settings.broker_id,
            directory: volume.path.clone(),
            free_bytes: volume.space().free_bytes,
            kept_bytes: volume.kept_bytes(),
        }
    }

    fn append(
        &self,
        slot: &mut crate::cell::Slot<D>,
        header: &BatchHeader,
        batch: &[u8],
        now: Now,
        out: &mut Vec<Output>,
    ) -> Result<(), ProduceFailure> {
        let appended = slot.log.append(batch, header, now);
        appended.map_err(|error| ProduceFailure::Storage(error.to_string()))?;
        slot.partition.appended(now, header, out);
        Ok(())
    }
}
