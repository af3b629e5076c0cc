//! What a group coordinator answers.

use std::sync::Arc;

use towpath_model::{Generation, LeaderEpoch, Offset, PartitionIndex, Timestamp, TopicId};

/// Why a request was refused. Each is one Kafka error code; the server holds the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The group id is empty or longer than [`super::NAME_BYTES_MAX`].
    #[error("the group id is not valid")]
    InvalidGroupId,
    /// A name, an instance id or a member's metadata is longer than we keep.
    #[error("the request holds a name or metadata that is too long")]
    InvalidRequest,
    /// The session timeout lies outside of the configured bounds.
    #[error("the session timeout is outside of the allowed range")]
    InvalidSessionTimeout,
    /// The coordinator does not know this member of this group.
    #[error("the member is not known in this group")]
    UnknownMemberId,
    /// Join again with the member id in this answer (KIP-394).
    #[error("join again with the member id in this answer")]
    MemberIdRequired,
    /// The member's generation is not the group's.
    #[error("the generation is not the current one")]
    IllegalGeneration,
    /// Another member has taken over this `group.instance.id`.
    #[error("another member uses this group.instance.id")]
    FencedInstanceId,
    /// The member's protocols or protocol type do not fit those of the group.
    #[error("the member's protocols do not fit the group's")]
    InconsistentGroupProtocol,
    /// A rebalance is under way; the member must join again.
    #[error("the group is rebalancing; join again")]
    RebalanceInProgress,
    /// The group (or its waiting room) is full.
    #[error("the group is full")]
    GroupMaxSizeReached,
    /// There is no such group.
    #[error("the group does not exist")]
    GroupIdNotFound,
    /// The group has members, and this may be done only to one without.
    #[error("the group is not empty")]
    NonEmptyGroup,
    /// A member of the group is subscribed to the topic.
    #[error("the group is subscribed to the topic")]
    GroupSubscribedToTopic,
    /// The note beside a committed offset is longer than configured.
    #[error("the metadata of the offset is too large")]
    OffsetMetadataTooLarge,
    /// The records of one commit would be larger than one append should be. Kafka:
    /// INVALID_COMMIT_OFFSET_SIZE.
    #[error("there are too many offsets in one commit")]
    CommitTooLarge,
    /// The assignment of the group does not fit into one record of the internal topic. Kafka says
    /// UNKNOWN_SERVER_ERROR.
    #[error("the group's assignment does not fit into one record")]
    AssignmentTooLarge,
    /// This partition of the internal topic holds as many groups as it may. Kafka has no such
    /// bound; POLICY_VIOLATION is the code that clients report and do not retry.
    #[error("there are too many groups")]
    TooManyGroups,
}

/// The answer to one [`super::Request`], by its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// JoinGroup.
    Join(Result<Joined, JoinRefusal>),
    /// SyncGroup.
    Sync(Result<Synced, Refusal>),
    /// Heartbeat.
    Heartbeat(Result<(), Refusal>),
    /// LeaveGroup: one result per member that was named, in that order; the outer refusal is the
    /// whole request's.
    Leave(Result<Vec<Left>, Refusal>),
    /// OffsetCommit: the results follow the order of the request; a refusal of the whole is
    /// repeated for every partition by the server.
    CommitOffsets(Result<Vec<CommittedTopic>, Refusal>),
    /// OffsetFetch. There is no refusal: a group without offsets is answered by "none" for each.
    FetchOffsets(Vec<FetchedTopic>),
    /// DescribeGroups; `None`: no such group.
    Describe(Option<Description>),
    /// ListGroups.
    List(Vec<Listing>),
    /// DeleteGroups.
    Delete(Result<(), Refusal>),
    /// OffsetDelete, in the order of the request.
    DeleteOffsets(Result<Vec<DeletedTopic>, Refusal>),
    /// A step's worth of a deleted topic's offsets is gone; how many they were. None: all are.
    TopicDeleted {
        /// Number of removed offsets.
        offsets: usize,
    },
}

/// A member is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    /// The generation it is in.
    pub generation: Generation,
    /// The group's protocol type.
    pub protocol_type: Option<Arc<str>>,
    /// The protocol that all members can do.
    pub protocol: Option<Arc<str>>,
    /// Who assigns.
    pub leader: Arc<str>,
    /// Whether the leader must not assign again (KIP-814).
    pub skip_assignment: bool,
    /// The member's id.
    pub member_id: Arc<str>,
    /// For the leader: everyone; for others empty.
    pub members: Vec<JoinedMember>,
}

/// What the leader learns about one member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinedMember {
    /// The member.
    pub member_id: Arc<str>,
    /// `group.instance.id` of a static member.
    pub group_instance_id: Option<Arc<str>>,
    /// Its metadata for the selected protocol.
    pub metadata: Arc<[u8]>,
}

/// A join that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinRefusal {
    /// Why.
    pub refusal: Refusal,
    /// The member id of the answer: the caller's, the new one with
    /// [`Refusal::MemberIdRequired`], or empty.
    pub member_id: Arc<str>,
}

/// A member's share of a generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Synced {
    /// The group's protocol type.
    pub protocol_type: Option<Arc<str>>,
    /// The generation's protocol.
    pub protocol: Option<Arc<str>>,
    /// What the leader gave to this member; empty when it gave nothing.
    pub assignment: Arc<[u8]>,
}

/// What became of one member that was to leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// The id in the request.
    pub member_id: Arc<str>,
    /// The instance id in the request.
    pub group_instance_id: Option<Arc<str>>,
    /// Whether it left.
    pub result: Result<(), Refusal>,
}

/// What became of the commits to one topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommittedTopic {
    /// The topic's name.
    pub name: Arc<str>,
    /// The topic's id in the request.
    pub id: TopicId,
    /// One result per partition of the request.
    pub partitions: Vec<(PartitionIndex, Result<(), Refusal>)>,
}

/// The committed offsets of one topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedTopic {
    /// The topic's name.
    pub name: Arc<str>,
    /// The topic's id: that of the request, or the one it was committed with.
    pub id: TopicId,
    /// One entry per partition.
    pub partitions: Vec<FetchedPartition>,
}

/// The committed offset of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedPartition {
    /// Which partition.
    pub partition: PartitionIndex,
    /// `None`: nothing is committed (−1 on the wire, without an error).
    pub committed: Option<CommittedOffset>,
}

/// One committed offset, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommittedOffset {
    /// The first offset not yet processed.
    pub offset: Offset,
    /// The leader epoch of the last record consumed.
    pub leader_epoch: Option<LeaderEpoch>,
    /// The committer's note.
    pub metadata: Arc<str>,
    /// When it was committed.
    pub committed_at: Timestamp,
    /// When it expires, if the committer said so (OffsetCommit up to version 4).
    pub expires_at: Option<Timestamp>,
    /// The topic it belongs to; [`TopicId::ZERO`] when the committer knew none.
    pub topic_id: TopicId,
}

/// One group, for people and administrators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// The group.
    pub group: Arc<str>,
    /// Its state.
    pub state: GroupState,
    /// Since when it is in it.
    pub state_since: Option<Timestamp>,
    /// `consumer`, `connect`, … or empty.
    pub protocol_type: Arc<str>,
    /// The protocol of the generation; empty unless the group is stable.
    pub protocol: Arc<str>,
    /// The current generation.
    pub generation: Generation,
    /// Who assigns.
    pub leader: Option<Arc<str>>,
    /// The latest rebalance since this process leads, and why it began.
    pub last_rebalance: Option<Rebalance>,
    /// The members, in the order of joining.
    pub members: Vec<DescribedMember>,
    /// New members that have an id and have not used it yet.
    pub pending_members: usize,
}

/// Why and when a rebalance began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rebalance {
    /// When.
    pub at: Timestamp,
    /// Why, in words.
    pub reason: Arc<str>,
}

/// One member, for people and administrators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribedMember {
    /// Its id.
    pub member_id: Arc<str>,
    /// `group.instance.id` of a static member.
    pub group_instance_id: Option<Arc<str>>,
    /// The client's name for itself.
    pub client_id: Arc<str>,
    /// Where it calls from.
    pub client_host: Arc<str>,
    /// Its metadata for the generation's protocol; empty unless the group is stable.
    pub metadata: Arc<[u8]>,
    /// Its assignment.
    pub assignment: Arc<[u8]>,
}

/// Where a group stands. The names are Kafka's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GroupState {
    /// No members; offsets perhaps.
    Empty,
    /// Members are joining.
    PreparingRebalance,
    /// All have joined; the leader has not handed in the assignment.
    CompletingRebalance,
    /// Every member has its assignment (or can fetch it).
    Stable,
}

impl GroupState {
    /// Kafka's name of the state. `Dead` is a group that does not exist, and is the server's to
    /// say.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            GroupState::Empty => "Empty",
            GroupState::PreparingRebalance => "PreparingRebalance",
            GroupState::CompletingRebalance => "CompletingRebalance",
            GroupState::Stable => "Stable",
        }
    }
}

/// One line of a list of groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// The group.
    pub group: Arc<str>,
    /// `consumer`, `connect`, … or empty.
    pub protocol_type: Arc<str>,
    /// Its state.
    pub state: GroupState,
    /// How many members it has.
    pub members: usize,
}

/// The name of the only type of group there is so far.
pub const GROUP_TYPE: &str = "classic";

/// What became of the offsets of one topic that were to be deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeletedTopic {
    /// The topic's name.
    pub name: Arc<str>,
    /// One result per partition of the request.
    pub partitions: Vec<(PartitionIndex, Result<(), Refusal>)>,
}
