//! The changes of state of groups: three kinds that are logged, four that are not.
//!
//! | record | in the log |
//! |---|---|
//! | `Stored` | GroupMetadata: the last generation that was begun or finished, or a tombstone |
//! | `OffsetCommitted`, `OffsetRemoved` | OffsetCommit: value or tombstone |
//! | `Live`, `Member`, `Heartbeat`, `CheckOffsetsAt` | never: the leader's memory |
//!
//! The two halves of the state do not mix: logged records change only what a follower has too,
//! the others only what [`resume`](towpath_model::StateMachine::resume) builds from it.

use std::sync::Arc;
use std::time::Duration;

use towpath_model::{FoldError, FoldRecord, Generation, KeyValue, PartitionIndex, Time, Timestamp};

use super::encoding;
use super::group::Group;
use super::member::Member;
use super::reply::CommittedOffset;

/// One change of [`super::Groups`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// What the log knows about a group; `None` forgets it.
    Stored {
        /// The group.
        group: Arc<str>,
        /// Its last generation.
        value: Option<StoredGroup>,
    },
    /// An offset was committed.
    OffsetCommitted {
        /// The group.
        group: Arc<str>,
        /// The topic's name.
        topic: Arc<str>,
        /// Which partition.
        partition: PartitionIndex,
        /// What was committed.
        committed: CommittedOffset,
    },
    /// An offset expired or was deleted.
    OffsetRemoved {
        /// The group.
        group: Arc<str>,
        /// The topic's name.
        topic: Arc<str>,
        /// Which partition.
        partition: PartitionIndex,
    },
    /// Not logged: what the leader knows about a group now; `None` forgets it.
    Live {
        /// The group.
        group: Arc<str>,
        /// Its members, timers and waiting requests.
        value: Option<Arc<Group>>,
    },
    /// Not logged: one member of a group has changed, and nothing else: it joined, or said something
    /// new, and waits for others, or it has fetched its assignment.
    Member {
        /// The group.
        group: Arc<str>,
        /// The member.
        member_id: Arc<str>,
        /// What it is now.
        value: Arc<Member>,
    },
    /// Not logged: a member has shown that it lives.
    Heartbeat {
        /// The group.
        group: Arc<str>,
        /// The member.
        member_id: Arc<str>,
        /// When its session ends if it shows nothing more.
        session_ends: Time,
    },
    /// Not logged: when expired offsets are looked for next.
    CheckOffsetsAt(Time),
}

/// The logged part of a group: its last generation.
///
/// Without members it is the number of the last generation only: the group is empty, or the
/// generation has begun and nobody has an assignment yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredGroup {
    /// `consumer`, `connect`, …; empty when the group never had a member.
    pub protocol_type: Arc<str>,
    /// The last generation that any member was told.
    pub generation: Generation,
    /// The generation's protocol.
    pub protocol: Option<Arc<str>>,
    /// The generation's leader.
    pub leader: Option<Arc<str>>,
    /// Since when the group is as it is; unknown in records of version 0 and 1.
    pub since: Option<Timestamp>,
    /// Its members, in the order of joining.
    pub members: Vec<StoredMember>,
}

/// The logged part of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredMember {
    /// Its id.
    pub member_id: Arc<str>,
    /// `group.instance.id` of a static member.
    pub group_instance_id: Option<Arc<str>>,
    /// The client's name for itself.
    pub client_id: Arc<str>,
    /// Where it called from.
    pub client_host: Arc<str>,
    /// How long it may take to rejoin; whole milliseconds.
    pub rebalance_timeout: Duration,
    /// How long it may be silent; whole milliseconds.
    pub session_timeout: Duration,
    /// Its metadata for the generation's protocol.
    pub subscription: Arc<[u8]>,
    /// Its share of the generation.
    pub assignment: Arc<[u8]>,
}

impl FoldRecord for Record {
    fn encode(&self) -> Option<KeyValue> {
        match self {
            Record::Stored { group, value } => Some(KeyValue {
                key: encoding::group_key(group),
                value: value.as_ref().map(encoding::group_value),
            }),
            Record::OffsetCommitted { group, topic, partition, committed } => Some(KeyValue {
                key: encoding::offset_key(group, topic, *partition),
                value: Some(encoding::offset_value(committed)),
            }),
            Record::OffsetRemoved { group, topic, partition } => {
                Some(KeyValue { key: encoding::offset_key(group, topic, *partition), value: None })
            }
            Record::Live { .. }
            | Record::Member { .. }
            | Record::Heartbeat { .. }
            | Record::CheckOffsetsAt(_) => None,
        }
    }

    fn is_logged(&self) -> bool {
        match self {
            Record::Stored { .. }
            | Record::OffsetCommitted { .. }
            | Record::OffsetRemoved { .. } => true,
            Record::Live { .. }
            | Record::Member { .. }
            | Record::Heartbeat { .. }
            | Record::CheckOffsetsAt(_) => false,
        }
    }

    fn decode(key: &[u8], value: Option<&[u8]>) -> Result<Option<Record>, FoldError> {
        encoding::decode(key, value)
    }
}
