//! What a queue takes, asked under the lock of its records before anything is appended: a repeat of what is
//! there already is never refused, and what was appended and is not admitted yet counts.
//!
//! Each partition asks for itself. Together they take what the queue does (`Limits::share_of`); no broker has to
//! know what is in partitions that others lead.

use std::sync::atomic::Ordering;

use towpath_log::disk::Disk;
use towpath_model::{Offset, PartitionIndex, TopicPartition};
use towpath_queue::{Fill, Limits, OverLimit};
use towpath_records::BatchHeader;

use crate::cell::{Cell, Slot};
use crate::config::limits;
use crate::driver::Driver;
use crate::world::{Clock, Net};

/// A queue takes no more now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("partition {partition} of queue {queue:?} takes no more messages now: {over}")]
pub struct QueueFull {
    /// Which queue.
    pub queue: String,
    /// Which of its partitions.
    pub partition: PartitionIndex,
    /// What there is too much of.
    pub over: OverLimit,
}

/// A queue takes no more ever.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "queue {queue:?} is given up and takes no more messages: a task moves what is in it to another queue, and \
     then it is deleted; cancel that task, or send to another queue"
)]
pub struct QueueGivenUp {
    /// Which queue.
    pub queue: String,
}

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// Whether a queue whose records' `slot` is locked takes messages at all.
    pub(crate) fn check_open(&self, cell: &Cell<D>, slot: &Slot<D>) -> Result<(), QueueGivenUp> {
        match slot.config.queue.given_up {
            true => Err(QueueGivenUp { queue: cell.topic.to_string() }),
            false => Ok(()),
        }
    }

    /// Where the records of a queue's partition end for good that is led here; nothing while it takes any: the order
    /// to give the queue up may not have come here yet.
    pub fn given_up_at(&self, id: TopicPartition) -> Option<Offset> {
        let cell = self.records_cell(id)?;
        let slot = self.lock_in_time(&cell)?;
        let is_over = slot.leads() && slot.config.queue.given_up;
        is_over.then(|| slot.log.log_end_offset())
    }

    /// Whether a batch may be appended to a queue's partition, whose records' `slot` is locked.
    pub(crate) fn check_limits(
        &self,
        cell: &Cell<D>,
        slot: &Slot<D>,
        header: &BatchHeader,
        (batch_bytes, partitions): (usize, u64),
    ) -> Result<(), QueueFull> {
        let limits = limits(&slot.config);
        if !limits.is_limited() || header.is_control() {
            return Ok(());
        }
        // Records before deliveries, as wherever both are locked (`pair.rs`).
        let Some(fill) = self.fill(cell.id, slot) else { return Ok(()) };
        let share = share_of(cell.id, limits, partitions);
        let messages = u64::try_from(header.record_count()).unwrap_or_default();
        // Equal messages that are sent at the same moment are not all taken or all refused.
        let refused = cell.counted.records_refused.load(Ordering::Relaxed);
        let tried = (slot.log.log_end_offset().0 as u64).wrapping_add(refused);
        let hash = header.crc().wrapping_add((tried as u32).wrapping_mul(0x85eb_ca6b));
        let admitted = share.admit(&fill, (messages, batch_bytes as u64), hash);
        if admitted.is_err() {
            cell.counted.records_refused.fetch_add(messages, Ordering::Relaxed);
        }
        admitted.map_err(|over| QueueFull {
            queue: cell.topic.to_string(),
            partition: cell.id.partition,
            over,
        })
    }

    /// How many partitions share what a queue takes. Never asked under a partition's lock: whoever publishes metadata
    /// holds it and takes those.
    pub(crate) fn sharing_partitions(&self, id: TopicPartition) -> u64 {
        if self.cell(id.delivery_log()).is_none() {
            return 1;
        }
        self.image().topic_by_id(id.topic).map_or(1, |topic| topic.partitions.len() as u64)
    }

    /// How full a partition is; nothing while nobody decides on its deliveries.
    fn fill(&self, id: TopicPartition, slot: &Slot<D>) -> Option<Fill> {
        let now = self.clock.now();
        let (mut fill, start, void, admitted_to) = {
            let deliveries = self.cell(id.delivery_log())?;
            let deliveries = self.lock_in_time(&deliveries)?;
            let deliveries = deliveries.partition.deliveries().filter(|it| it.is_serving())?;
            let (fill, start) = deliveries.fill(now);
            let void = deliveries.void().count_from(start);
            (fill, start, void, deliveries.admitted_to())
        };
        let end = slot.log.log_end_offset();
        fill.messages += u64::try_from(end - admitted_to).unwrap_or_default();
        // Where there are no records any more there are no bytes.
        let span = u64::try_from(end - start).unwrap_or_default().saturating_sub(void).max(1);
        let bytes = u128::from(slot.log.size_bytes_from(start)) * u128::from(fill.messages);
        fill.bytes = u64::try_from(bytes / u128::from(span)).unwrap_or(u64::MAX);
        Some(fill)
    }

    /// How full a queue's partition is that is led here, and its share of what the queue takes.
    pub fn queue_fill(&self, id: TopicPartition) -> Option<(Fill, Limits)> {
        let cell = self.records_cell(id)?;
        let partitions = self.sharing_partitions(id);
        let slot = self.lock_in_time(&cell)?;
        let fill = self.fill(id, &slot)?;
        let share = share_of(id, limits(&slot.config), partitions);
        Some((fill, share))
    }
}

fn share_of(id: TopicPartition, limits: Limits, partitions: u64) -> Limits {
    let index = u64::try_from(id.partition.0).unwrap_or_default();
    limits.share_of(index, partitions)
}
