//! Looking at replicas whatever their role: for those who compare them, not for those who serve.

use std::collections::BTreeMap;

use towpath_broker::Partition;
use towpath_log::Log;
use towpath_log::disk::Disk;
use towpath_metadata::raft::LogIndex;
use towpath_model::TopicPartition;

use crate::driver::Driver;
use crate::volume::VolumeIndex;
use crate::world::{Clock, Net};

/// What lies in a data directory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stored {
    /// Replicas, led or followed.
    pub replicas: usize,
    /// Bytes that their logs take.
    pub bytes: u64,
}

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// Reads something off a replica that this broker holds, led or followed. `None`: it holds none,
    /// or has closed it. The replica is locked meanwhile.
    pub fn with_replica<R>(
        &self,
        id: TopicPartition,
        read: impl FnOnce(&Partition, &Log<D>) -> R,
    ) -> Option<R> {
        let cell = self.cell(id)?;
        let slot = self.lock_in_time(&cell)?;
        (!slot.closed).then(|| read(&slot.partition, &slot.log))
    }

    /// The newest entry of the metadata log that this broker acts on.
    pub fn metadata_applied(&self) -> LogIndex {
        self.quorum.lock().applied()
    }

    /// What lies where; a directory without replicas is missing. A replica whose lock is not free in
    /// time counts without its bytes.
    pub fn stored(&self) -> BTreeMap<VolumeIndex, Stored> {
        let mut stored: BTreeMap<VolumeIndex, Stored> = BTreeMap::new();
        for cell in self.cells() {
            let bytes = self.lock_in_time(&cell).map_or(0, |slot| slot.log.size_bytes());
            let here = stored.entry(cell.volume).or_default();
            here.replicas += usize::from(!cell.id.is_delivery_log());
            here.bytes += bytes;
        }
        stored
    }
}
