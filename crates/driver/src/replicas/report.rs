//! How replication does, for whoever watches this broker.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use towpath_log::disk::Disk;
use towpath_metadata::{Image, Load, PartitionState};
use towpath_model::{BrokerId, TopicPartition};

use crate::driver::Driver;
use crate::world::{Clock, Net};

/// How replication does, as one broker sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplicationReport {
    /// Whether this broker is the controller.
    pub is_controller: bool,
    /// Partitions that it leads.
    pub led: usize,
    /// Partitions that it holds a replica of, those that it leads included.
    pub held: usize,
    /// Partitions that it leads and of which a replica is not in sync.
    pub under_replicated: usize,
    /// Partitions that it leads and to which `acks=all` is refused.
    pub under_min_in_sync: usize,
    /// Partitions of the whole cluster that nobody leads.
    pub leaderless: usize,
    /// How often a replica has left an in-sync set while this broker led.
    pub in_sync_shrinks: u64,
    /// How often one has joined.
    pub in_sync_expands: u64,
    /// By follower, what it lacks of the partition that it lacks most of: records that this broker has
    /// written and the follower has not told to be durable.
    pub lags: BTreeMap<BrokerId, u64>,
}

/// How often in-sync sets of partitions led here have changed.
#[derive(Debug, Default)]
pub(crate) struct InSyncChanges {
    shrinks: AtomicU64,
    expands: AtomicU64,
}

impl InSyncChanges {
    /// A partition's state is about to become `after`.
    pub(crate) fn note(&self, image: &Image, id: TopicPartition, after: &PartitionState) {
        let Some(before) = image.partition(id) else { return };
        if after.leader != Some(image.me()) {
            return;
        }
        if before.in_sync.iter().any(|broker| !after.in_sync.contains(broker)) {
            self.shrinks.fetch_add(1, Ordering::Relaxed);
        }
        if after.in_sync.iter().any(|broker| !before.in_sync.contains(broker)) {
            self.expands.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// How replication does.
    pub fn replication_report(&self) -> ReplicationReport {
        let mut report = ReplicationReport {
            is_controller: self.is_controller(),
            in_sync_shrinks: self.in_sync_changes.shrinks.load(Ordering::Relaxed),
            in_sync_expands: self.in_sync_changes.expands.load(Ordering::Relaxed),
            ..ReplicationReport::default()
        };
        {
            let image = self.image();
            let me = image.me();
            let Load { leaders, replicas, .. } = image.load(me);
            (report.led, report.held) = (leaders, replicas);
            for (topic, _, state) in image.partitions() {
                report.leaderless += usize::from(state.leader.is_none());
                if state.leader == Some(me) {
                    let in_sync = state.in_sync.len();
                    report.under_replicated += usize::from(in_sync < state.settled_replicas());
                    let min = image.min_in_sync(topic, state);
                    report.under_min_in_sync += usize::from(in_sync < min);
                }
            }
        }
        for cell in self.cells() {
            if !cell.led.load(Ordering::Relaxed) {
                continue;
            }
            let Some(slot) = self.lock_in_time(&cell) else { continue };
            let Ok(leader) = slot.leader() else { continue };
            let (start, end) = (leader.log_start_offset(), leader.log_end_offset());
            for (follower, view) in leader.followers() {
                let held = view.durable_offset.unwrap_or(start).max(start);
                let lacks = u64::try_from(end - held).unwrap_or_default();
                let most = report.lags.entry(follower).or_default();
                *most = lacks.max(*most);
            }
        }
        report
    }
}
