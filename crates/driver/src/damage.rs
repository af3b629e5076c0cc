//! Which acknowledged records can no longer be read, for whoever looks after the broker.

use towpath_log::DamagedRange;
use towpath_log::disk::Disk;
use towpath_model::{TopicName, TopicPartition};

use crate::driver::Driver;
use crate::world::{Clock, Net};

/// A partition with damage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damaged {
    /// Which one.
    pub id: TopicPartition,
    /// Its topic's name.
    pub topic: TopicName,
    /// What cannot be read.
    pub ranges: Vec<DamagedRange>,
}

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// The damaged ranges of a partition that is led here.
    pub fn damage(&self, id: TopicPartition) -> Vec<DamagedRange> {
        self.cell(id).map_or_else(Vec::new, |cell| cell.lock().log.damaged())
    }

    /// Every partition here that has damage.
    pub fn damaged_partitions(&self) -> Vec<Damaged> {
        let damaged = self.cells().into_iter().filter_map(|cell| {
            let ranges = cell.lock().log.damaged();
            let (id, topic) = (cell.id, cell.topic.clone());
            (!ranges.is_empty()).then_some(Damaged { id, topic, ranges })
        });
        damaged.collect()
    }
}
