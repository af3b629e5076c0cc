//! Which replica is nearest to a reader (KIP-392).
//!
//! A reader that says in which rack it stands is sent to a follower there, if the leader stands
//! elsewhere and the follower is in sync and has what is asked for. Of several, the one that has the
//! most.

use std::cmp::Reverse;

use towpath_log::disk::Disk;
use towpath_model::{BrokerId, Offset, TopicPartition};

use crate::driver::Driver;
use crate::world::{Clock, Net};

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// The follower from which a reader in `rack` should take what begins at `from`; `None` where that is
    /// this broker, which leads the partition, or where it does not lead it.
    pub fn closest_replica(
        &self,
        id: TopicPartition,
        rack: &str,
        from: Offset,
    ) -> Option<BrokerId> {
        let nearby: Vec<BrokerId> = {
            let image = self.image();
            let is_nearby = |id: &BrokerId| {
                image.broker(*id).is_some_and(|b| b.is_active() && b.rack.as_deref() == Some(rack))
            };
            let state = image.partition(id)?;
            if state.leader.is_none_or(|leader| is_nearby(&leader)) {
                return None;
            }
            state.in_sync.iter().copied().filter(is_nearby).collect()
        };
        if nearby.is_empty() {
            return None;
        }
        let cell = self.cell(id)?;
        let slot = self.lock_in_time(&cell)?;
        let leader = slot.leader().ok()?;
        if from < leader.log_start_offset() {
            return None;
        }
        let ends = leader.followers().filter_map(|(id, view)| Some((view.log_end_offset?, id)));
        let can = ends.filter(|(end, id)| from <= *end && nearby.contains(id));
        can.max_by_key(|(end, id)| (*end, Reverse(*id))).map(|(_, id)| id)
    }
}
