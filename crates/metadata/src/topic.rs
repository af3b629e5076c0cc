//! A topic and its partitions as the cluster knows them.

use serde::{Deserialize, Serialize};
use towpath_model::{
    BrokerId, LeaderEpoch, PartitionIndex, TopicId, TopicName, TopicPartition, Uuid,
};

use crate::record::Overrides;

/// Who leads a partition and who holds it.
///
/// Invariant: in_sync and eligible are disjoint subsets of replicas, and so are adding and removing;
/// a leader is in sync; directories has one element for each of replicas.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionState {
    /// Who leads, if anybody can.
    pub leader: Option<BrokerId>,
    /// Number of the leadership; rises with every change of leader, with every election (also of
    /// the one who led before) and when a replica is taken away.
    pub leader_epoch: LeaderEpoch,
    /// Rises with every change of this state; fences changes that rest on an older one (KIP-497).
    pub partition_epoch: i32,
    /// Who holds a replica, the preferred leader first; those that are to go stand last.
    pub replicas: Vec<BrokerId>,
    /// In which of its holder's data directories each replica lies, in the order of `replicas`;
    /// zero where that has not been told (KIP-858).
    pub directories: Vec<Uuid>,
    /// Who counts for the high watermark, in the order of `replicas`.
    pub in_sync: Vec<BrokerId>,
    /// Who is not in sync any more and yet holds everything that is committed (KIP-966), in the
    /// order of `replicas`.
    pub eligible: Vec<BrokerId>,
    /// Replicas that come: they count when the reassignment is complete (KIP-455).
    pub adding: Vec<BrokerId>,
    /// Replicas that go when the reassignment is complete.
    pub removing: Vec<BrokerId>,
    /// Whether this leader was elected although it may lack committed records.
    pub unclean: bool,
    /// Whether somebody chose where the replicas lie: then no balance of the cluster's own moves them.
    pub placed_by_hand: bool,
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
            directories: vec![Uuid::ZERO; replicas.len()],
            replicas,
            eligible: Vec::new(),
            adding: Vec::new(),
            removing: Vec::new(),
            unclean: false,
            placed_by_hand: false,
        }
    }

    /// In which directory a broker's replica lies; zero where that has not been told.
    #[must_use]
    pub fn directory_of(&self, broker: BrokerId) -> Uuid {
        let at = self.replicas.iter().position(|replica| *replica == broker);
        at.and_then(|at| self.directories.get(at)).copied().unwrap_or(Uuid::ZERO)
    }

    /// Whether replicas come or go.
    #[must_use]
    pub fn is_reassigning(&self) -> bool {
        !self.adding.is_empty() || !self.removing.is_empty()
    }

    /// Who holds a replica once the reassignment is complete.
    #[must_use]
    pub fn target(&self) -> Vec<BrokerId> {
        self.replicas.iter().copied().filter(|id| !self.removing.contains(id)).collect()
    }

    /// How many replicas the partition has, those that are only coming not counted.
    #[must_use]
    pub fn settled_replicas(&self) -> usize {
        self.replicas.len().saturating_sub(self.adding.len())
    }

    /// How many must be in sync for the high watermark to move and for `acks=all`, where
    /// `configured` are asked for: never more than there are replicas.
    #[must_use]
    pub fn min_in_sync(&self, configured: u32) -> usize {
        self.settled_replicas().min(configured as usize)
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
    /// Whether the number of its replicas was left to the cluster, which then raises it as brokers
    /// join.
    pub grows: bool,
    /// Its partitions; the index is the partition's.
    pub partitions: Vec<PartitionState>,
    /// What was configured for it, by property name.
    pub overrides: Overrides,
}

impl Topic {
    /// Its partitions, each with its name.
    pub fn numbered(&self) -> impl Iterator<Item = (TopicPartition, &PartitionState)> {
        (0..).zip(&self.partitions).map(|(index, state)| {
            (TopicPartition { topic: self.id, partition: PartitionIndex(index) }, state)
        })
    }

    /// How many replicas each partition has (the first one's number; a reassignment may differ for
    /// a while), those that are only coming not counted.
    #[must_use]
    pub fn replication_factor(&self) -> usize {
        self.partitions.first().map_or(0, PartitionState::settled_replicas)
    }
}
