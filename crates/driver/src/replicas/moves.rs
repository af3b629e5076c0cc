//! How far replicas are that are being added to partitions which this broker leads.

use towpath_log::disk::Disk;
use towpath_model::{BrokerId, TopicPartition};

use crate::driver::Driver;
use crate::world::{Clock, Net};

/// A replica that is being added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ComingReplica {
    /// Of which partition.
    pub partition: TopicPartition,
    /// Who is to hold it.
    pub broker: BrokerId,
    /// Records of the leader that it has not told to be durable.
    pub records_left: u64,
    /// About how many bytes these are.
    pub bytes_left: u64,
}

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// Replicas that are being added to partitions which this broker leads. A partition whose lock is
    /// not free in time is missing.
    pub fn coming_replicas(&self) -> Vec<ComingReplica> {
        let me = self.broker_id();
        let moving: Vec<_> = {
            let image = self.image();
            let led = image.reassignments().filter(|(.., state)| state.leader == Some(me));
            led.map(|(_, partition, state)| (partition, state.adding.clone())).collect()
        };
        let mut coming = Vec::new();
        for (partition, adding) in moving {
            let Some(cell) = self.cell(partition) else { continue };
            let Some(slot) = self.lock_in_time(&cell) else { continue };
            let Ok(leader) = slot.leader() else { continue };
            let (start, end) = (leader.log_start_offset(), leader.log_end_offset());
            for broker in adding {
                let view = leader.followers().find(|(id, _)| *id == broker).map(|(_, view)| view);
                let held = view.and_then(|view| view.durable_offset).unwrap_or(start).max(start);
                coming.push(ComingReplica {
                    partition,
                    broker,
                    records_left: u64::try_from(end - held).unwrap_or_default(),
                    bytes_left: slot.log.size_bytes_from(held),
                });
            }
        }
        coming
    }
}
