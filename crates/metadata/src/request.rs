//! What the metadata is asked, and what it answers. The edges turn these into Kafka's messages.

use serde::{Deserialize, Serialize};
use towpath_model::{
    BrokerId, PartitionIndex, ProducerId, TopicId, TopicName, TopicPartition, Uuid,
};

use crate::accept_loss::{AcceptedLoss, LossAcceptance};
use crate::cluster::{
    AlterPartitions, AlteredPartitions, Beat, ElectionKind, Heartbeat, NamedPartition,
    PartitionOutcomes, Reassignment, Registration,
};
use crate::configs::ConfigEntry;
use crate::refusal::Refusal;
use crate::task::{NewTask, Task, TaskOrder, TaskReport};

/// Outcomes by partition of a [`Request::DoubtReplicas`].
pub type DoubtedReplicas = Vec<(TopicPartition, Result<(), Refusal>)>;

/// A change that somebody wants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// CreateTopics, and creation on first use.
    CreateTopics {
        /// The topics.
        topics: Vec<NewTopic>,
        /// Only answer whether it would work.
        validate_only: bool,
    },
    /// DeleteTopics.
    DeleteTopics(Vec<TopicRef>),
    /// CreatePartitions.
    CreatePartitions {
        /// The topics.
        topics: Vec<MorePartitions>,
        /// Only answer whether it would work.
        validate_only: bool,
    },
    /// AlterConfigs: each resource gets exactly these values.
    ReplaceConfigs {
        /// Resources with property names and values.
        resources: Vec<(Resource, ConfigValues)>,
        /// Only answer whether it would work.
        validate_only: bool,
    },
    /// IncrementalAlterConfigs: each resource keeps what is not named.
    AlterConfigs {
        /// Resources with changes.
        resources: Vec<(Resource, Vec<ConfigChange>)>,
        /// Only answer whether it would work.
        validate_only: bool,
    },
    /// InitProducerId without a transactional id.
    AllocateProducerId,
    /// A broker has started.
    RegisterBroker(Registration),
    /// All brokers can read this level of formats; it never goes down.
    SetFormatLevel(u16),
    /// A broker is there.
    Heartbeat(Heartbeat),
    /// Another broker's port refuses connections.
    BrokerSilent(BrokerId),
    /// A leader's in-sync sets (KIP-497).
    AlterPartitions(AlterPartitions),
    /// A broker has put replicas into directories (KIP-858).
    AssignDirectories {
        /// Which one.
        broker: BrokerId,
        /// The epoch of its registration.
        epoch: i64,
        /// Where each replica lies.
        directories: Vec<(TopicPartition, Uuid)>,
    },
    /// AlterPartitionReassignments (KIP-455).
    AlterReassignments {
        /// What is to move, or not to.
        reassignments: Vec<Reassignment>,
        /// Whether a partition may get more or fewer replicas than it has.
        factor_may_change: bool,
        /// Whether somebody chose the targets, and no balance is to change them.
        by_hand: bool,
    },
    /// ElectLeaders (KIP-460).
    ElectLeaders {
        /// Which election.
        kind: ElectionKind,
        /// Where; `None` is everywhere.
        partitions: Option<Vec<NamedPartition>>,
    },
    /// UnregisterBroker: it does not come back.
    UnregisterBroker(BrokerId),
    /// A broker's replicas are to go elsewhere, or may come back.
    DrainBroker {
        /// Which one.
        broker: BrokerId,
        /// Whether it is to be empty.
        drained: bool,
    },
    /// The cluster's first controller draws a name for it.
    NameCluster(String),
    /// A broker no longer trusts these replicas that it holds.
    DoubtReplicas {
        /// Which one.
        broker: BrokerId,
        /// The epoch of its registration.
        epoch: i64,
        /// Whose replicas.
        partitions: Vec<TopicPartition>,
    },
    /// A broker that holds nothing leaves for good.
    RemoveBroker(BrokerId),
    /// An operator accepts that records of a partition are lost.
    AcceptLoss(LossAcceptance),
    /// Somebody wants long work done on a queue.
    StartTask(NewTask),
    /// Somebody orders something of a task.
    OrderTask {
        /// Of which one.
        id: Uuid,
        /// What.
        order: TaskOrder,
        /// Who, for people.
        by: String,
    },
    /// A broker is to work on a task from now on.
    TakeTask {
        /// Which one.
        id: Uuid,
        /// The run that it saw; another one since then, and somebody else has it.
        run: u32,
    },
    /// A broker says how far a task is.
    ReportTask(TaskReport),
}

/// The answer to a [`Request`] of the same name, entries in the order of the request; where it
/// names the same thing twice, one refusal stands at the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// To [`Request::CreateTopics`].
    CreatedTopics(Vec<(String, Result<CreatedTopic, Refusal>)>),
    /// To [`Request::DeleteTopics`].
    DeletedTopics(Vec<(TopicRef, Result<DeletedTopic, Refusal>)>),
    /// To [`Request::CreatePartitions`]: the new number of partitions.
    CreatedPartitions(Vec<(String, Result<i32, Refusal>)>),
    /// To [`Request::ReplaceConfigs`] and [`Request::AlterConfigs`]; every entry of the request has
    /// its own answer, a repeated one too.
    AlteredConfigs(Vec<(Resource, Result<(), Refusal>)>),
    /// To [`Request::AllocateProducerId`]: an id that nobody has had or will have.
    AllocatedProducerId(ProducerId),
    /// To [`Request::RegisterBroker`]: the epoch of this registration.
    RegisteredBroker(Result<i64, Refusal>),
    /// To [`Request::SetFormatLevel`]: the level in force.
    FormatLevelSet(Result<u16, Refusal>),
    /// To [`Request::Heartbeat`].
    Beat(Result<Beat, Refusal>),
    /// To [`Request::BrokerSilent`].
    Noted,
    /// To [`Request::AlterPartitions`].
    AlteredPartitions(Result<AlteredPartitions, Refusal>),
    /// To [`Request::AssignDirectories`].
    AssignedDirectories(Result<(), Refusal>),
    /// To [`Request::AlterReassignments`].
    AlteredReassignments(PartitionOutcomes),
    /// To [`Request::ElectLeaders`].
    ElectedLeaders(PartitionOutcomes),
    /// To [`Request::UnregisterBroker`].
    UnregisteredBroker(Result<(), Refusal>),
    /// To [`Request::DrainBroker`].
    DrainedBroker(Result<(), Refusal>),
    /// To [`Request::NameCluster`]: the name in force.
    NamedCluster(Result<String, Refusal>),
    /// To [`Request::DoubtReplicas`]: whether each counts for nothing any more.
    DoubtedReplicas(Result<DoubtedReplicas, Refusal>),
    /// To [`Request::RemoveBroker`].
    RemovedBroker(Result<(), Refusal>),
    /// To [`Request::AcceptLoss`].
    AcceptedLoss(Result<AcceptedLoss, Refusal>),
    /// To [`Request::StartTask`] and whatever else is asked of a task: how it stands now.
    Task(Result<Box<Task>, Refusal>),
}

/// Property names and values as a client wrote them, unchecked.
pub type ConfigValues = Vec<(String, Option<String>)>;

/// A topic that somebody wants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewTopic {
    /// Its name, unchecked.
    pub name: String,
    /// How many partitions; −1 takes the default, or follows from the assignments.
    pub partitions: i32,
    /// How many replicas each; −1 takes the default, or follows from the assignments.
    pub replication_factor: i16,
    /// Which brokers hold which partition; empty leaves it to the cluster.
    pub assignments: Vec<(PartitionIndex, Vec<BrokerId>)>,
    /// Property names and values; of a repeated name the last counts.
    pub configs: ConfigValues,
    /// A random id that the caller drew for it.
    pub candidate_id: TopicId,
    /// Whether the cluster itself asks, for a topic that it keeps for itself.
    pub internal: bool,
}

impl NewTopic {
    /// A topic with everything left to the cluster.
    #[must_use]
    pub fn named(name: &str, candidate_id: TopicId) -> NewTopic {
        NewTopic {
            name: name.to_owned(),
            partitions: -1,
            replication_factor: -1,
            assignments: Vec::new(),
            configs: Vec::new(),
            candidate_id,
            internal: false,
        }
    }
}

/// A topic that has been created, or would have been.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreatedTopic {
    /// Its id.
    pub id: TopicId,
    /// How many partitions.
    pub partitions: i32,
    /// How many replicas each.
    pub replication_factor: i16,
    /// Its whole configuration, by name.
    #[serde(with = "crate::wire")]
    pub configs: Vec<ConfigEntry>,
}

/// A topic by name or by id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TopicRef {
    /// Its name.
    pub name: Option<String>,
    /// Its id; `None` where the wire has zeros.
    pub id: Option<TopicId>,
}

/// A topic that has been deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeletedTopic {
    /// Its name.
    pub name: TopicName,
    /// Its id.
    pub id: TopicId,
}

/// A topic that is to have more partitions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MorePartitions {
    /// The topic's name.
    pub name: String,
    /// How many partitions it is to have in all.
    pub count: i32,
    /// Which brokers hold the additional ones; `None` leaves it to the cluster.
    pub assignments: Option<Vec<Vec<BrokerId>>>,
}

/// What kinds of things can be configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ResourceKind {
    /// A topic.
    Topic,
    /// A broker, or all of them.
    Broker,
    /// A group.
    Group,
    /// Something else, by its number on the wire.
    Other(i8),
}

impl ResourceKind {
    /// By its number on the wire.
    #[must_use]
    pub fn from_wire(kind: i8) -> ResourceKind {
        match kind {
            2 => ResourceKind::Topic,
            4 => ResourceKind::Broker,
            32 => ResourceKind::Group,
            other => ResourceKind::Other(other),
        }
    }
}

/// Something that can be configured, as a client names it; unchecked.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Resource {
    /// What kind of thing.
    pub kind: ResourceKind,
    /// A topic's or group's name, a broker's number, or empty for all brokers.
    pub name: String,
}

/// One step of an incremental change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigChange {
    /// The property.
    pub name: String,
    /// What to do.
    pub operation: ConfigOperation,
    /// With which value.
    pub value: Option<String>,
}

/// What is done to a property's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConfigOperation {
    /// It gets a value.
    Set,
    /// It loses its value and has the default again.
    Delete,
    /// Elements join a list.
    Append,
    /// Elements leave a list.
    Subtract,
    /// It keeps its value, and nothing of the resource is changed unless it is this one; none is as good as an empty one.
    /// For brokers: Kafka's clients have no such operation.
    Expect,
}

impl ConfigOperation {
    /// By its number on the wire.
    #[must_use]
    pub fn from_wire(operation: i8) -> Option<ConfigOperation> {
        match operation {
            0 => Some(ConfigOperation::Set),
            1 => Some(ConfigOperation::Delete),
            2 => Some(ConfigOperation::Append),
            3 => Some(ConfigOperation::Subtract),
            _ => None,
        }
    }
}
