//! What a client may ask of a group coordinator, one struct per Kafka API.
//!
//! Every request names one group: a caller with several (DescribeGroups, OffsetFetch v8,
//! DeleteGroups) asks once for each, because their groups may live in different partitions.

use std::sync::Arc;
use std::time::Duration;

use towpath_model::{Generation, LeaderEpoch, Offset, PartitionIndex, TopicId, Uuid};

/// One request to the groups of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// JoinGroup: take part in the next generation.
    Join(Join),
    /// SyncGroup: hand in (the leader) and fetch (everyone) the assignment of a generation.
    Sync(Sync),
    /// Heartbeat: a member says that it lives.
    Heartbeat(Heartbeat),
    /// LeaveGroup: members go, without waiting for their session to run out.
    Leave(Leave),
    /// OffsetCommit.
    CommitOffsets(CommitOffsets),
    /// OffsetFetch, for one group.
    FetchOffsets(FetchOffsets),
    /// DescribeGroups, for one group.
    Describe {
        /// The group.
        group: Arc<str>,
    },
    /// ListGroups: those in one of `states` and of one of `types` (any letter case); an empty
    /// list asks for all.
    List {
        /// Names of states, such as `Stable`.
        states: Vec<Arc<str>>,
        /// Names of types; ours is `classic`.
        types: Vec<Arc<str>>,
    },
    /// DeleteGroups, for one group.
    Delete {
        /// The group.
        group: Arc<str>,
    },
    /// OffsetDelete.
    DeleteOffsets {
        /// The group.
        group: Arc<str>,
        /// Which offsets.
        topics: Vec<(Arc<str>, Vec<PartitionIndex>)>,
    },
    /// The cluster deleted a topic: its offsets go, in every group. To be repeated until none is left.
    TopicDeleted {
        /// Its name.
        name: Arc<str>,
        /// Its id; offsets that were committed to an earlier or later topic of this name stay.
        id: TopicId,
    },
}

/// JoinGroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Join {
    /// The group.
    pub group: Arc<str>,
    /// The caller's id; empty before the coordinator gave it one.
    pub member_id: Arc<str>,
    /// `group.instance.id` of a static member (KIP-345).
    pub group_instance_id: Option<Arc<str>>,
    /// The request's client id; the first part of a dynamic member's id.
    pub client_id: Arc<str>,
    /// Where it calls from, as Kafka prints it: `/127.0.0.1`.
    pub client_host: Arc<str>,
    /// How long the member may be silent.
    pub session_timeout: Duration,
    /// How long the member may take to rejoin (and to hand in what it owns) in a rebalance.
    /// Version 0 has no such field: the server passes the session timeout.
    pub rebalance_timeout: Duration,
    /// `consumer`, `connect`, …: all members of a group agree on it.
    pub protocol_type: Arc<str>,
    /// What the member can do, best first, each with the metadata for whoever assigns.
    pub protocols: Vec<(Arc<str>, Arc<[u8]>)>,
    /// Version 4 and above: a new dynamic member first learns its id and joins again with it.
    pub requires_known_member_id: bool,
    /// Version 9 and above: a rejoining static leader may be told to skip the assignment
    /// (KIP-814).
    pub supports_skipping_assignment: bool,
    /// Why the client joins (KIP-800), for people.
    pub reason: Option<Arc<str>>,
    /// Randomness for the id of a new member.
    pub new_member_suffix: Uuid,
}

/// SyncGroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sync {
    /// The group.
    pub group: Arc<str>,
    /// The generation that the join answered.
    pub generation: Generation,
    /// The caller.
    pub member_id: Arc<str>,
    /// `group.instance.id` of a static member.
    pub group_instance_id: Option<Arc<str>>,
    /// Version 5 and above: must be the group's when given. Those versions must give type and
    /// protocol; that they do is the server's to check.
    pub protocol_type: Option<Arc<str>>,
    /// Version 5 and above: must be the generation's when given.
    pub protocol: Option<Arc<str>>,
    /// From the leader: member id and assignment; others send none.
    pub assignments: Vec<(Arc<str>, Arc<[u8]>)>,
}

/// Heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat {
    /// The group.
    pub group: Arc<str>,
    /// The generation that the member believes in.
    pub generation: Generation,
    /// The caller.
    pub member_id: Arc<str>,
    /// `group.instance.id` of a static member.
    pub group_instance_id: Option<Arc<str>>,
}

/// LeaveGroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leave {
    /// The group.
    pub group: Arc<str>,
    /// Who leaves; before version 3 exactly one.
    pub members: Vec<Leaving>,
}

/// One member that leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaving {
    /// Its id; empty when an administrator removes a static member by its instance id.
    pub member_id: Arc<str>,
    /// `group.instance.id` of a static member.
    pub group_instance_id: Option<Arc<str>>,
    /// Why (KIP-800), for people.
    pub reason: Option<Arc<str>>,
}

/// OffsetCommit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitOffsets {
    /// The group.
    pub group: Arc<str>,
    /// The caller; empty for one that only keeps its offsets here (a simple consumer, an
    /// administrator).
    pub member_id: Arc<str>,
    /// `group.instance.id` of a static member.
    pub group_instance_id: Option<Arc<str>>,
    /// The caller's generation; `None` (−1 on the wire) for a simple consumer.
    pub generation: Option<Generation>,
    /// How long to keep the offsets; `None` (and every version after 4) means as configured.
    pub retention: Option<Duration>,
    /// Version 9 and above: a group that does not exist is answered by
    /// [`Refusal::GroupIdNotFound`](super::Refusal::GroupIdNotFound); earlier versions say
    /// [`Refusal::IllegalGeneration`](super::Refusal::IllegalGeneration).
    pub knows_group_id_not_found: bool,
    /// What to commit, per topic.
    pub topics: Vec<CommitTopic>,
}

/// The offsets to commit in one topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitTopic {
    /// The topic's name.
    pub name: Arc<str>,
    /// The topic's id; [`TopicId::ZERO`] when the caller knows none.
    pub id: TopicId,
    /// One entry per partition.
    pub partitions: Vec<CommitPartition>,
}

/// The offset to commit in one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitPartition {
    /// Which partition.
    pub partition: PartitionIndex,
    /// The first offset not yet processed.
    pub offset: Offset,
    /// The leader epoch of the last record consumed (KIP-320).
    pub leader_epoch: Option<LeaderEpoch>,
    /// The caller's note; bounded by `offset_metadata_max`.
    pub metadata: Arc<str>,
}

/// OffsetFetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchOffsets {
    /// The group.
    pub group: Arc<str>,
    /// Which topics; `None` asks for all that have offsets.
    pub topics: Option<Vec<FetchTopic>>,
    /// The caller wants no offset that a pending transaction may still change (KIP-447). Without
    /// transactions every committed offset is stable.
    pub require_stable: bool,
}

/// The partitions of one topic whose offsets are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchTopic {
    /// The topic's name.
    pub name: Arc<str>,
    /// The topic's id; [`TopicId::ZERO`] when the caller knows none. An offset that was committed
    /// to another topic of the same name is not answered.
    pub id: TopicId,
    /// Which partitions.
    pub partitions: Vec<PartitionIndex>,
}
