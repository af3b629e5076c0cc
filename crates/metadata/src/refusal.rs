//! Why a change of the metadata is refused. The texts are the ones Kafka's users and tools know;
//! each kind is one of Kafka's error codes.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use towpath_model::properties::InvalidValue;
use towpath_model::{BrokerId, InvalidName, LeaderEpoch, Uuid};

use crate::queue::QueueRefusal;

/// A kind of refusal: one code of Kafka's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefusalKind {
    /// UNKNOWN_TOPIC_OR_PARTITION (3).
    UnknownTopic,
    /// INVALID_TOPIC_EXCEPTION (17).
    InvalidTopic,
    /// UNSUPPORTED_VERSION (35).
    UnsupportedVersion,
    /// TOPIC_ALREADY_EXISTS (36).
    TopicExists,
    /// INVALID_PARTITIONS (37).
    InvalidPartitions,
    /// INVALID_REPLICATION_FACTOR (38).
    InvalidReplicationFactor,
    /// INVALID_REPLICA_ASSIGNMENT (39).
    InvalidReplicaAssignment,
    /// INVALID_CONFIG (40).
    InvalidConfig,
    /// INVALID_REQUEST (42).
    InvalidRequest,
    /// POLICY_VIOLATION (44): a limit of this cluster.
    PolicyViolation,
    /// TOPIC_DELETION_DISABLED (73).
    TopicDeletionDisabled,
    /// FENCED_LEADER_EPOCH (74).
    FencedLeaderEpoch,
    /// UNKNOWN_LEADER_EPOCH (75).
    UnknownLeaderEpoch,
    /// STALE_BROKER_EPOCH (77).
    StaleBrokerEpoch,
    /// PREFERRED_LEADER_NOT_AVAILABLE (80).
    PreferredLeaderNotAvailable,
    /// ELIGIBLE_LEADERS_NOT_AVAILABLE (83).
    EligibleLeadersNotAvailable,
    /// ELECTION_NOT_NEEDED (84).
    ElectionNotNeeded,
    /// NO_REASSIGNMENT_IN_PROGRESS (85).
    NoReassignmentInProgress,
    /// INVALID_UPDATE_VERSION (95).
    InvalidUpdateVersion,
    /// UNKNOWN_TOPIC_ID (100).
    UnknownTopicId,
    /// DUPLICATE_BROKER_REGISTRATION (101).
    DuplicateBrokerRegistration,
    /// BROKER_ID_NOT_REGISTERED (102).
    BrokerIdNotRegistered,
    /// INELIGIBLE_REPLICA (107).
    IneligibleReplica,
}

/// A refusal with what a client needs to know.
#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum Refusal {
    /// Not a topic's name.
    #[error(transparent)]
    InvalidTopicName(InvalidName),
    /// `a_b` beside `a.b`.
    #[error("Topic '{name}' collides with existing topic: {existing}")]
    Collision {
        /// The name asked for.
        name: String,
        /// The topic that stands in its way.
        existing: String,
    },
    /// It is there.
    #[error("Topic '{0}' already exists.")]
    TopicExists(String),
    /// A topic that the cluster keeps for itself.
    #[error("Creation of internal topic {0} is prohibited.")]
    InternalTopicCreation(String),
    /// A topic that the cluster keeps for itself.
    #[error("Deletion of internal topic {0} is prohibited.")]
    InternalTopicDeletion(String),
    /// A topic that the cluster keeps for itself, whose partitions are the cluster's own business.
    #[error("Internal topic {0} cannot have more partitions.")]
    InternalTopicGrowth(String),
    /// Named twice in one request.
    #[error("Duplicate topic name.")]
    DuplicateTopicName,
    /// Named twice in one request.
    #[error("Duplicate topic id.")]
    DuplicateTopicId,
    /// Named twice in one request, once each way.
    #[error("The provided topic name maps to an ID that was already supplied.")]
    DuplicateTopicNameAndId,
    /// The random id drawn for it belongs to another topic.
    #[error("The id drawn for topic '{0}' is taken; try again.")]
    TopicIdTaken(String),
    /// No topic of this name, answered without a text.
    #[error("This server does not host this topic-partition.")]
    UnknownTopic,
    /// No topic of this name, in a request about its configuration.
    #[error("The topic '{0}' does not exist.")]
    UnknownTopicToConfigure(String),
    /// No topic of this id.
    #[error("This server does not host this topic ID.")]
    UnknownTopicId,
    /// Nothing that names a topic.
    #[error("Neither topic name nor id were specified.")]
    NeitherNameNorId,
    /// Two things that name a topic.
    #[error("You may not specify both topic name and topic id.")]
    BothNameAndId,
    /// `delete.topic.enable=false`.
    #[error("Topic deletion is disabled.")]
    TopicDeletionDisabled,
    /// Zero partitions, or fewer.
    #[error("Number of partitions was set to an invalid non-positive value.")]
    NoPartitions,
    /// Fewer partitions than before.
    #[error(
        "The topic {topic} currently has {current} partition(s); {asked} would not be an increase."
    )]
    FewerPartitions {
        /// The topic.
        topic: String,
        /// What it has.
        current: usize,
        /// What was asked for.
        asked: i32,
    },
    /// As many partitions as before.
    #[error("Topic already has {0} partition(s).")]
    SamePartitions(usize),
    /// Zero replicas, or fewer.
    #[error("Replication factor must be larger than 0, or -1 to use the default value.")]
    NoReplicas,
    /// More replicas than brokers.
    #[error(
        "Unable to replicate the partition {asked} time(s): The target replication factor of {asked} cannot be reached because only {brokers} broker(s) are registered."
    )]
    TooFewBrokers {
        /// Replicas asked for.
        asked: i16,
        /// Brokers there are.
        brokers: usize,
    },
    /// Assignments and a number of partitions.
    #[error("A manual partition assignment was specified, but numPartitions was not set to -1.")]
    AssignmentsAndPartitions,
    /// Assignments and a number of replicas.
    #[error(
        "A manual partition assignment was specified, but replication factor was not set to -1."
    )]
    AssignmentsAndReplication,
    /// Assignments that leave a partition out.
    #[error("partitions should be a consecutive 0-based integer sequence")]
    AssignmentsNotConsecutive,
    /// Assignments that name a partition twice.
    #[error("Found multiple manual partition assignments for partition {0}")]
    AssignmentRepeated(i32),
    /// An assignment without a broker.
    #[error("The manual partition assignment includes an empty replica list.")]
    AssignmentEmpty,
    /// An assignment that names a broker twice.
    #[error("The manual partition assignment includes the broker {0} more than once.")]
    AssignmentRepeatsBroker(BrokerId),
    /// An assignment to a broker that is not there.
    #[error(
        "The manual partition assignment includes broker {0}, but no such broker is registered."
    )]
    AssignmentToUnknownBroker(BrokerId),
    /// Assignments with differing numbers of replicas.
    #[error(
        "The manual partition assignment includes a partition with {found} replica(s), but this is not consistent with previous partitions, which have {expected} replica(s)."
    )]
    AssignmentsUneven {
        /// Replicas of the partition.
        found: usize,
        /// Replicas of those before.
        expected: usize,
    },
    /// Assignments for more or fewer partitions than are added.
    #[error(
        "Attempted to add {added} additional partition(s), but only {assigned} assignment(s) were specified."
    )]
    AssignmentsMiscounted {
        /// Partitions to add.
        added: usize,
        /// Assignments given.
        assigned: usize,
    },
    /// `request.partitions.max`.
    #[error("Excessively large number of partitions per request.")]
    TooManyPartitionsPerRequest,
    /// `request.partitions.max`, while growing.
    #[error("Excessively large number of additional partitions per request.")]
    TooManyMorePartitionsPerRequest,
    /// `topic.partitions.max`.
    #[error("Topic '{topic}' would have {asked} partitions; topic.partitions.max allows {most}.")]
    TooManyPartitionsPerTopic {
        /// The topic.
        topic: String,
        /// What it would have.
        asked: usize,
        /// The limit.
        most: usize,
    },
    /// `partitions.max`.
    #[error("The cluster would have {asked} partitions; partitions.max allows {most}.")]
    TooManyPartitions {
        /// What it would have.
        asked: usize,
        /// The limit.
        most: usize,
    },
    /// `topics.max`.
    #[error("The cluster has {0} topics, as many as topics.max allows.")]
    TooManyTopics(usize),
    /// No topic property of this name.
    #[error("Unknown topic config name: {0}")]
    UnknownTopicConfig(String),
    /// No group property of this name.
    #[error("Unknown group config name: {0}")]
    UnknownGroupConfig(String),
    /// No broker property of this name. (Kafka keeps it for plug-ins; we have none.)
    #[error("Unknown broker config name: {0}")]
    UnknownBrokerConfig(String),
    /// A value that a topic's or group's property does not take.
    #[error(transparent)]
    InvalidValue(InvalidValue),
    /// A value that a broker's property does not take; Kafka has another code for it.
    #[error(transparent)]
    InvalidBrokerValue(InvalidValue),
    /// A property without a value, at creation.
    #[error("Null value not supported for topic configs: {0}")]
    NullTopicValue(String),
    /// A property without a value.
    #[error("Null value not supported for : {0}")]
    NullValue(String),
    /// A list operation on something else.
    #[error("Can't {operation} to key {name} because its type is not LIST.")]
    NotAList {
        /// `APPEND` or `SUBTRACT`.
        operation: String,
        /// The property.
        name: String,
    },
    /// A property has another value than whoever changes it has seen.
    #[error(
        "{0} has been changed by somebody else meanwhile: read it again, and repeat the change"
    )]
    ConfigChanged(String),
    /// A property named twice for one resource.
    #[error("Error due to duplicate config keys")]
    DuplicateConfigName,
    /// A resource named twice.
    #[error("Each resource must appear at most once.")]
    DuplicateResource,
    /// Properties of a broker that need a restart.
    #[error("Cannot update these configs dynamically: [{0}]")]
    NotDynamic(String),
    /// The name of no topic.
    #[error("Default topic resources are not allowed.")]
    NoDefaultTopic,
    /// The name of no group.
    #[error("Default group resources are not allowed.")]
    NoDefaultGroup,
    /// A broker's number that is none.
    #[error("{what} id must be an integer, but it is: {name}")]
    NotABrokerId {
        /// `Node` or `Broker`, as the request calls it.
        what: String,
        /// What was given.
        name: String,
    },
    /// Another broker's configuration.
    #[error("Unexpected broker id, expected {expected}, but received {got}")]
    OtherBroker {
        /// Whose configuration is here.
        expected: String,
        /// What was given.
        got: i32,
    },
    /// Something that has no configuration here.
    #[error("Unknown resource type {0}")]
    UnknownResourceType(i8),
    /// A level of formats that this program cannot write, or that lies below the one in force.
    #[error(
        "format level {asked} is not between {current}, the one in force, and {most}, the newest known"
    )]
    FormatLevel {
        /// What was asked for.
        asked: u16,
        /// The one in force.
        current: u16,
        /// The newest that this program knows.
        most: u16,
    },
    /// No broker of this number.
    #[error("Broker ID {0} is not currently registered")]
    BrokerNotRegistered(BrokerId),
    /// Another process with this number is there, with other data.
    #[error(
        "Another broker is running as number {0}, with other data directories: give this one another node.id."
    )]
    DuplicateBroker(BrokerId),
    /// The sender has been replaced by a later process.
    #[error("Expected broker epoch {current} of broker {broker}, but received {asked}.")]
    StaleBrokerEpoch {
        /// Whose.
        broker: BrokerId,
        /// The one that was named.
        asked: i64,
        /// The one in force.
        current: i64,
    },
    /// Somebody leads since, or nobody.
    #[error("Leader epoch {asked} is over; {current} is in force.")]
    FencedLeaderEpoch {
        /// The one that was named.
        asked: LeaderEpoch,
        /// The one in force.
        current: LeaderEpoch,
    },
    /// An epoch that has not begun here.
    #[error("Leader epoch {asked} is not known; {current} is in force.")]
    UnknownLeaderEpoch {
        /// The one that was named.
        asked: LeaderEpoch,
        /// The one in force.
        current: LeaderEpoch,
    },
    /// The partition has changed since.
    #[error("Partition epoch {asked} is over; {current} is in force.")]
    InvalidUpdateVersion {
        /// The one that was named.
        asked: i32,
        /// The one in force.
        current: i32,
    },
    /// A broker that cannot be in sync now, or not under the epoch that it was judged under.
    #[error("Broker {0} cannot be in sync now: it is fenced, stopping, or has started anew.")]
    IneligibleReplica(BrokerId),
    /// Nobody else holds all that is committed.
    #[error(
        "The replica of broker {0} stays: no other one that can serve holds all that is committed."
    )]
    LastReplica(BrokerId),
    /// Not a set of replicas with the leader among them.
    #[error("Broker {0} is no replica, named twice, or the leader and missing.")]
    InvalidInSyncSet(BrokerId),
    /// A partition that is named twice in one request.
    #[error("The partition is named more than once.")]
    RepeatedPartition,
    /// Nothing is under way that could be taken back.
    #[error("No partition reassignment is in progress.")]
    NoReassignment,
    /// What is under way cannot be taken back: those who would stay lack committed records.
    #[error(
        "The reassignment cannot be taken back: without the replicas that it adds, fewer than min.insync.replicas are in sync. Wait until the others have caught up."
    )]
    OnlyComingInSync,
    /// More or fewer replicas than there were.
    #[error(
        "The replication factor would change from {current} to {asked}, which the request does not allow."
    )]
    FactorChange {
        /// Replicas asked for.
        asked: usize,
        /// Replicas there are.
        current: usize,
    },
    /// The leader is the one asked for.
    #[error("Leader election not needed for topic partition.")]
    ElectionNotNeeded,
    /// The first replica cannot lead.
    #[error("The preferred leader was not available.")]
    PreferredLeaderNotAvailable,
    /// No replica can lead.
    #[error("No replica of the partition can lead: none of their brokers is there.")]
    EligibleLeadersNotAvailable,
    /// The last broker cannot go.
    #[error("Broker {0} is the last one that can hold partitions.")]
    LastBroker(BrokerId),
    /// A data directory that the broker did not name when it registered.
    #[error("Data directory {0} is not one of the broker's.")]
    UnknownDirectory(Uuid),
    /// Not a cluster's name.
    #[error("A cluster's id has 1 to 249 bytes.")]
    InvalidClusterId,
    /// Its replicas would be lost.
    #[error(
        "Broker {broker} holds {replicas} replica(s), among them of topic {topic:?}: drain it, and \
         remove it once it holds nothing."
    )]
    BrokerHoldsReplicas {
        /// Which broker.
        broker: BrokerId,
        /// How many it holds.
        replicas: usize,
        /// A topic that some of them belong to.
        topic: String,
    },
    /// It would go on, and be missed.
    #[error("Broker {0} is there and was not drained: drain it first, or stop it.")]
    BrokerThere(BrokerId),
    /// It was removed, and would not be the broker that it was.
    #[error(
        "Broker {0} was removed from the cluster, and its data directories with it: to add it again, \
         start it with an empty one."
    )]
    BrokerRetired(BrokerId),
    /// Somebody leads the partition: there is nothing to accept.
    #[error("broker {leader} leads the partition: no loss has to be accepted")]
    NothingLost {
        /// Who.
        leader: BrokerId,
    },
    /// A replica that holds everything that is committed may come back.
    #[error("broker {0} holds a replica with everything that is committed, and may come back")]
    MayReturn(BrokerId),
    /// What is to be accepted makes no sense.
    #[error("the loss does not say by whom it is accepted, or its offsets contradict each other")]
    InvalidLoss,
    /// A broker's program does not read a level of formats.
    #[error(
        "broker {broker} runs a program that reads format levels up to {most}, not {asked}: replace its \
         program first, or remove it if it is gone for good"
    )]
    FormatLevelNotRead {
        /// What was asked for.
        asked: u16,
        /// Which broker.
        broker: BrokerId,
        /// The newest that its program reads.
        most: u16,
    },
    /// A broker's program is older than what the cluster writes.
    #[error(
        "format level {current} is in force in this cluster, and the program of broker {broker} reads \
         levels up to {level} only: start it with the program that the other brokers run"
    )]
    ProgramTooOld {
        /// Which broker.
        broker: BrokerId,
        /// The newest level that its program reads.
        level: u16,
        /// The level in force.
        current: u16,
    },
    /// No queue of this name.
    #[error("queue {0:?} does not exist")]
    UnknownQueue(String),
    /// A topic that is not worked as a queue.
    #[error("topic {0:?} is not worked as a queue")]
    NotAQueue(String),
    /// No task of this id, or one that is not kept any more.
    #[error("there is no task {0}")]
    UnknownTask(Uuid),
    /// Another task takes from the same queue.
    #[error(
        "task {task} takes from queue {queue:?} already, and only one may: cancel it, or wait until it is over"
    )]
    TaskActive {
        /// The queue.
        queue: String,
        /// The other task.
        task: Uuid,
    },
    /// The messages would go round.
    #[error(
        "messages would go in a circle: task {task} brings those of the destination to the source"
    )]
    TaskCircle {
        /// The other task.
        task: Uuid,
    },
    /// A queue's messages cannot go to itself.
    #[error("queue {0:?} is the source and the destination")]
    TaskToItself(String),
    /// As many tasks as there may be.
    #[error("{0} tasks are active, more there may not be")]
    TooManyTasks(usize),
    /// The task has ended.
    #[error("task {task} is {state}")]
    TaskOver {
        /// Which one.
        task: Uuid,
        /// How it stands.
        state: String,
    },
    /// Another broker works on the task by now.
    #[error("task {task} is in run {run}: another broker works on it")]
    TaskTaken {
        /// Which one.
        task: Uuid,
        /// The run that it is in.
        run: u32,
    },
    /// The random id drawn for it belongs to another task.
    #[error("the id drawn for the task is taken; try again")]
    TaskIdTaken,
    /// What is asked makes no sense.
    #[error("the task does not say who wants it, in up to 249 bytes, or its filter is too long")]
    InvalidTask,
    /// A topic that cannot be worked as a queue, or that is one.
    #[error("Invalid value for configuration queue.enable: {0}")]
    Queue(QueueRefusal),
}

impl Refusal {
    /// Which of Kafka's codes it is.
    #[must_use]
    pub fn kind(&self) -> RefusalKind {
        use Refusal as R;
        use RefusalKind as K;
        match self {
            R::InvalidTopicName(_) | R::Collision { .. } => K::InvalidTopic,
            R::TopicExists(_) => K::TopicExists,
            R::UnknownTopic | R::UnknownTopicToConfigure(_) => K::UnknownTopic,
            R::UnknownQueue(_) => K::UnknownTopic,
            R::UnknownTopicId => K::UnknownTopicId,
            R::TopicDeletionDisabled => K::TopicDeletionDisabled,
            R::NoPartitions | R::FewerPartitions { .. } | R::SamePartitions(_) => {
                K::InvalidPartitions
            }
            R::NoReplicas | R::TooFewBrokers { .. } | R::FactorChange { .. } => {
                K::InvalidReplicationFactor
            }
            R::AssignmentsNotConsecutive
            | R::AssignmentRepeated(_)
            | R::AssignmentEmpty
            | R::AssignmentRepeatsBroker(_)
            | R::AssignmentToUnknownBroker(_)
            | R::AssignmentsUneven { .. }
            | R::AssignmentsMiscounted { .. }
            | R::OnlyComingInSync => K::InvalidReplicaAssignment,
            R::TooManyPartitionsPerRequest
            | R::TooManyMorePartitionsPerRequest
            | R::TooManyPartitionsPerTopic { .. }
            | R::TooManyPartitions { .. }
            | R::TooManyTasks(_)
            | R::TooManyTopics(_) => K::PolicyViolation,
            R::UnknownTopicConfig(_)
            | R::UnknownGroupConfig(_)
            | R::UnknownBrokerConfig(_)
            | R::InvalidValue(_)
            | R::NullTopicValue(_)
            | R::NotAList { .. }
            | R::ConfigChanged(_)
            | R::Queue(_) => K::InvalidConfig,
            R::FormatLevel { .. } | R::FormatLevelNotRead { .. } | R::ProgramTooOld { .. } => {
                K::UnsupportedVersion
            }
            R::FencedLeaderEpoch { .. } => K::FencedLeaderEpoch,
            R::UnknownLeaderEpoch { .. } => K::UnknownLeaderEpoch,
            R::StaleBrokerEpoch { .. } => K::StaleBrokerEpoch,
            R::PreferredLeaderNotAvailable => K::PreferredLeaderNotAvailable,
            R::MayReturn(_) | R::EligibleLeadersNotAvailable => K::EligibleLeadersNotAvailable,
            R::NothingLost { .. } | R::ElectionNotNeeded => K::ElectionNotNeeded,
            R::NoReassignment => K::NoReassignmentInProgress,
            R::InvalidUpdateVersion { .. } => K::InvalidUpdateVersion,
            R::DuplicateBroker(_) => K::DuplicateBrokerRegistration,
            R::BrokerNotRegistered(_) => K::BrokerIdNotRegistered,
            R::IneligibleReplica(_) | R::LastReplica(_) => K::IneligibleReplica,
            R::InternalTopicCreation(_)
            | R::InternalTopicDeletion(_)
            | R::InternalTopicGrowth(_)
            | R::DuplicateTopicName
            | R::DuplicateTopicId
            | R::DuplicateTopicNameAndId
            | R::TopicIdTaken(_)
            | R::NeitherNameNorId
            | R::BothNameAndId
            | R::AssignmentsAndPartitions
            | R::AssignmentsAndReplication
            | R::InvalidBrokerValue(_)
            | R::NullValue(_)
            | R::DuplicateConfigName
            | R::DuplicateResource
            | R::NotDynamic(_)
            | R::NoDefaultTopic
            | R::NoDefaultGroup
            | R::NotABrokerId { .. }
            | R::OtherBroker { .. }
            | R::UnknownResourceType(_)
            | R::InvalidInSyncSet(_)
            | R::RepeatedPartition
            | R::LastBroker(_)
            | R::BrokerHoldsReplicas { .. }
            | R::BrokerThere(_)
            | R::BrokerRetired(_)
            | R::UnknownDirectory(_)
            | R::InvalidLoss
            | R::NotAQueue(_)
            | R::UnknownTask(_)
            | R::TaskActive { .. }
            | R::TaskCircle { .. }
            | R::TaskToItself(_)
            | R::TaskOver { .. }
            | R::TaskTaken { .. }
            | R::TaskIdTaken
            | R::InvalidTask
            | R::InvalidClusterId => K::InvalidRequest,
        }
    }
}
