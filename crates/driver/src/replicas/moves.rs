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
    /// Records of the leader, deliveries included, that it has not told to be durable.
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
            let Some(left) = self.left_of(partition, &adding) else { continue };
            let deliveries = self.left_of(partition.delivery_log(), &adding).unwrap_or_default();
            for (nth, broker) in adding.into_iter().enumerate() {
                let (records_left, bytes_left) = left[nth];
                let (more_records, more_bytes) = deliveries.get(nth).copied().unwrap_or_default();
                coming.push(ComingReplica {
                    partition,
                    broker,
                    records_left: records_left + more_records,
                    bytes_left: bytes_left + more_bytes,
                });
            }
        }
        coming
    }

    /// Records and bytes of one log that each of these followers has not told to be durable.
    fn left_of(&self, log: TopicPartition, followers: &[BrokerId]) -> Option<Vec<(u64, u64)>> {
        let cell = self.cell(log)?;
        let slot = self.lock_in_time(&cell)?;
        let leader = slot.leader().ok()?;
        let (start, end) = (leader.log_start_offset(), leader.log_end_offset());
        let left = followers.iter().map(|broker| {
            let view = leader.followers().find(|(id, _)| id == broker).map(|(_, view)| view);
            let held = view.and_then(|view| view.durable_offset).unwrap_or(start).max(start);
            (u64::try_from(end - held).unwrap_or_default(), slot.log.size_bytes_from(held))
        });
        Some(left.collect())
    }
}
