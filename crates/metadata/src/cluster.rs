//! What brokers and operators ask of the controller about the cluster itself.

use serde::{Deserialize, Serialize};
use towpath_model::{BrokerId, LeaderEpoch, PartitionIndex, TopicPartition, Uuid};

use crate::broker::{Address, Role};
use crate::refusal::Refusal;
use crate::topic::PartitionState;

/// A broker that has started.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Registration {
    /// Its number.
    pub id: BrokerId,
    /// A random id of this process; the same one again is the same registration.
    pub incarnation: Uuid,
    /// What it is there for.
    pub role: Role,
    /// Where it stands.
    pub rack: Option<String>,
    /// Where it listens.
    pub addresses: Vec<Address>,
    /// Its data directories, those included that are offline. Replicas in one that it had and that
    /// is not here any more are lost.
    pub directories: Vec<Uuid>,
    /// Those of its directories that failed or are absent.
    pub offline: Vec<Uuid>,
    /// The newest level of formats that its program reads and writes; 0 is the first one.
    pub format_level: u16,
    /// The epoch of the registration after which it stopped orderly, with everything synced: what
    /// its marker on disk says. Without one it may have lost what it had not synced.
    pub clean_since: Option<i64>,
    /// Whether what it had written and not synced is gone: its machine has started anew since the
    /// process that registered last, or that is not known. A process that was killed leaves it in
    /// the page cache. A process that lost power and ended before it was registered, in whatever
    /// way, leaves the loss to be told by the next one.
    pub lost_power: bool,
}

/// A broker is there.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Which one.
    pub broker: BrokerId,
    /// The epoch of its registration.
    pub epoch: i64,
    /// Rises with each heartbeat of a registration; one that comes late counts for nothing.
    pub sequence: u64,
    /// Up to where it has applied the metadata log.
    pub applied: u64,
    /// Whether its own registration is among that, and it has looked through its directories: it
    /// may be unfenced.
    pub is_ready: bool,
    /// Whether it is asked to stop, and hands over first.
    pub wants_shutdown: bool,
    /// Those of its directories that failed or are absent.
    pub offline: Vec<Uuid>,
}

/// What a broker is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beat {
    /// Whether it counts as gone.
    pub is_fenced: bool,
    /// Whether it can stop without anybody missing it.
    pub may_shut_down: bool,
}

/// In-sync sets that a leader proposes (KIP-497).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlterPartitions {
    /// The leader.
    pub broker: BrokerId,
    /// The epoch of its registration.
    pub broker_epoch: i64,
    /// One for each partition.
    pub changes: Vec<ProposedInSync>,
}

/// An in-sync set that a leader proposes for one partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProposedInSync {
    /// Which one.
    pub partition: TopicPartition,
    /// The epoch of the leadership.
    pub leader_epoch: LeaderEpoch,
    /// The epoch of the state that the proposal rests on.
    pub partition_epoch: i32,
    /// Who is in sync, each with the epoch of the registration under which it was judged so
    /// (KIP-903). A repeated proposal carries the epochs that were judged, not newer ones.
    pub in_sync: Vec<(BrokerId, i64)>,
}

/// Outcome of each partition of an [`AlterPartitions`]: the state in force then.
pub type AlteredPartitions = Vec<(TopicPartition, Result<PartitionState, Refusal>)>;

/// A partition as Kafka's tools name it.
pub type NamedPartition = (String, PartitionIndex);

/// Where a partition's replicas are to lie (KIP-455).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reassignment {
    /// Which partition.
    pub partition: NamedPartition,
    /// Its replicas, the preferred leader first; `None` takes back what is under way.
    pub target: Option<Vec<BrokerId>>,
}

/// Which election an operator wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ElectionKind {
    /// The first replica leads, if it is in sync.
    Preferred,
    /// Where nobody leads, a replica does that may lack committed records: they are lost.
    Unclean,
}

/// Outcomes by partition, in the order of the request.
pub type PartitionOutcomes = Vec<(NamedPartition, Result<(), Refusal>)>;
