//! What partitions and groups look like to whoever watches the broker.

use std::sync::atomic::Ordering;

use towpath_broker::State;
use towpath_coordinator::groups::Listing;
use towpath_log::disk::Disk;
use towpath_model::TopicPartition;

use crate::cell::Counted;
use crate::driver::Driver;
use crate::fetch::Position;
use crate::world::{Clock, Net};

/// What went through a partition since it was opened here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Records that producers appended.
    pub records_in: u64,
    /// Those of them with `acks=0`: nobody was told whether they were written.
    pub records_acks_none: u64,
    /// Those with `acks=1`: lost with the leader, if nobody else has them yet.
    pub records_acks_leader: u64,
    /// Records that were not taken, because their queue was full.
    pub records_refused: u64,
    /// Bytes of their batches.
    pub bytes_in: u64,
    /// Bytes of batches that were read.
    pub bytes_out: u64,
}

/// A partition at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionReport {
    /// Its lines.
    pub position: Position,
    /// Bytes that it takes on disk, its delivery log included.
    pub size_bytes: u64,
    /// What went through it.
    pub traffic: Traffic,
}

/// The groups that are coordinated here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupReport {
    /// Each of them, by name.
    pub groups: Vec<Listing>,
    /// Rebalances that have begun since this broker coordinates them.
    pub rebalances: u64,
}

fn traffic_of(counted: &Counted) -> Traffic {
    Traffic {
        records_in: counted.records_in.load(Ordering::Relaxed),
        records_acks_none: counted.records_acks_none.load(Ordering::Relaxed),
        records_acks_leader: counted.records_acks_leader.load(Ordering::Relaxed),
        records_refused: counted.records_refused.load(Ordering::Relaxed),
        bytes_in: counted.bytes_in.load(Ordering::Relaxed),
        bytes_out: counted.bytes_out.load(Ordering::Relaxed),
    }
}

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// A partition, if it is led here.
    pub fn report(&self, id: TopicPartition) -> Option<PartitionReport> {
        let cell = self.records_cell(id)?;
        let position = {
            let slot = cell.lock();
            slot.leads().then(|| slot.position())?
        };
        let size_bytes = self.size_bytes(id)?;
        Some(PartitionReport { position, size_bytes, traffic: traffic_of(&cell.counted) })
    }

    /// What went through a partition that is open here.
    pub fn traffic(&self, id: TopicPartition) -> Option<Traffic> {
        self.records_cell(id).map(|cell| traffic_of(&cell.counted))
    }

    /// Every group here. As it is, committed or not: for numbers that people watch.
    pub fn groups(&self) -> GroupReport {
        let mut report = GroupReport::default();
        for cell in self.offsets_cells() {
            let slot = cell.lock();
            if let State::Groups(host) = slot.partition.state() {
                report.groups.extend(host.machine().list(&[], &[]));
                report.rebalances += host.machine().rebalances();
            }
        }
        report.groups.sort_by(|a, b| a.group.cmp(&b.group));
        report
    }
}
