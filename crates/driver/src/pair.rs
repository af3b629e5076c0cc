//! The two logs of a queue's partition: its records and its deliveries (ADR 0021).
//!
//! Each is a cell of its own, with its own lock, core and position at the leader. They have one leadership
//! and one in-sync set, because the metadata knows them as one partition; so whatever the metadata says is
//! carried out for both, and whatever this broker says of a partition it says for both. Where both locks
//! are held, the records' is taken first.

use std::sync::Arc;

use towpath_log::disk::Disk;
use towpath_model::{PartitionIndex, TopicId, TopicPartition};

use crate::cell::{Cell, Slot};
use crate::driver::Driver;
use crate::world::{Clock, Net};

/// The logs of a partition, the deliveries first: who finds the records open finds both.
pub(crate) fn logs_of(id: TopicPartition, is_queue: bool) -> Vec<TopicPartition> {
    let records = id.records();
    if is_queue { vec![records.delivery_log(), records] } else { vec![records] }
}

/// In which order locks of several partitions are taken: by partition, records before deliveries.
pub(crate) fn lock_order(id: TopicPartition) -> (TopicId, PartitionIndex, bool) {
    (id.topic, id.records().partition, id.is_delivery_log())
}

/// Both logs of a partition, locked; the deliveries where there are any.
pub(crate) struct Pair<'s, D: Disk> {
    /// Which partition.
    pub(crate) id: TopicPartition,
    pub(crate) records: &'s mut Slot<D>,
    pub(crate) deliveries: Option<&'s mut Slot<D>>,
}

impl<D: Disk> Pair<'_, D> {
    /// A log that should be there is not: nothing can be said of the partition as a whole.
    pub(crate) fn lacks_deliveries(&self) -> bool {
        self.records.config.queue_enable && self.deliveries.is_none()
    }

    /// One of the two.
    pub(crate) fn slot(&mut self, id: TopicPartition) -> &mut Slot<D> {
        match &mut self.deliveries {
            Some(deliveries) if id.is_delivery_log() => deliveries,
            _ => self.records,
        }
    }
}

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// The log beside this one, if it is open here.
    pub(crate) fn other_log(&self, cell: &Cell<D>) -> Option<Arc<Cell<D>>> {
        let id = if cell.id.is_delivery_log() { cell.id.records() } else { cell.id.delivery_log() };
        self.cell(id)
    }

    /// Locks both logs of the partition that `cell` belongs to. `None`, and nothing has been done: one of
    /// them is held by somebody who waits for a disk that does not answer, or the records are not open.
    pub(crate) fn with_pair<R>(
        &self,
        cell: &Arc<Cell<D>>,
        act: impl FnOnce(Pair<'_, D>) -> R,
    ) -> Option<R> {
        let id = cell.id.records();
        let records = if cell.id == id { Arc::clone(cell) } else { self.cell(id)? };
        let deliveries = self.cell(id.delivery_log());
        let mut records = self.lock_in_time(&records)?;
        let mut deliveries = match &deliveries {
            Some(deliveries) => Some(self.lock_in_time(deliveries)?),
            None => None,
        };
        Some(act(Pair { id, records: &mut records, deliveries: deliveries.as_deref_mut() }))
    }
}
