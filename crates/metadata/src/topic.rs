//! A topic and its partitions as the cluster knows them.

use towpath_model::{BrokerId, LeaderEpoch, TopicId, TopicName};

use crate::record::Overrides;

/// Who leads a partition and who holds it.
///
/// Invariant: in_sync and eligible are disjoint subsets of replicas; a leader is in sync.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionState {
    /// Who leads, if anybody can.
    pub leader: Option<BrokerId>,
    /// Number of the leadership; rises with every change of leader and with every start of a leader
    /// that may have lost what it had not synced.
    pub leader_epoch: LeaderEpoch,
    /// Rises with every change of this state; fences changes that rest on an older one (KIP-497).
    pub partition_epoch: i32,
    /// Who holds a replica, the preferred leader first.
    pub replicas: Vec<BrokerId>,
    /// Who counts for the high watermark.
    pub in_sync: Vec<BrokerId>,
    /// Who is not in sync any more and yet holds everything that is committed (KIP-966).
    pub eligible: Vec<BrokerId>,
}

impl PartitionState {
    /// A new partition: its first replica leads, and all are in sync, since there is nothing yet.
    #[must_use]
    pub fn new(replicas: Vec<BrokerId>) -> PartitionState {
        PartitionState {
            leader: replicas.first().copied(),
            leader_epoch: LeaderEpoch(0),
            partition_epoch: 0,
            in_sync: replicas.clone(),
            replicas,
            eligible: Vec::new(),
        }
    }
}

/// A topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topic {
    /// Its name.
    pub name: TopicName,
    /// Its permanent identity.
    pub id: TopicId,
    /// Whether the cluster keeps it for itself.
    pub internal: bool,
    /// Its partitions; the index is the partition's.
    pub partitions: Vec<PartitionState>,
    /// What was configured for it, by property name.
    pub overrides: Overrides,
}

impl Topic {
    /// How many replicas each partition has (the first one's number; a reassignment may differ for
    /// a while).
    #[must_use]
    pub fn replication_factor(&self) -> usize {
        self.partitions.first().map_or(0, |partition| partition.replicas.len())
    }
}
