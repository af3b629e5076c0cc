//! Consumer groups of one partition of `__consumer_offsets`, with their committed offsets: Kafka's
//! classic protocol.
//!
//! ```text
//!   logged                              the leader's memory only
//!   stored   last generation  ─resume─▶ live   members, timers, waiting requests
//!   offsets  per partition
//! ```
//!
//! A follower folds the left side. A new leader builds the right side from it once
//! ([`StateMachine::resume`]), giving every member a fresh session; what it cannot know (who was
//! about to join, which generation had begun) the members repeat. What is not here: the wire, the
//! log, the clock, and what an assignment means (that is the clients').

mod config;
mod describe;
mod draft;
mod encoding;
mod expire;
mod group;
mod heartbeat;
mod join;
mod leave;
mod member;
mod offsets;
mod readers;
mod rebalance;
mod record;
mod reply;
mod request;
mod subscription;
mod sync;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use towpath_model::{Decision, Now, StateMachine, Time, Token};

pub use config::{GroupsConfig, NAME_BYTES_MAX};
pub use group::Group;
pub use member::Member;
pub use readers::{PartitionReaders, Reader, Readers};
pub use record::{Record, StoredGroup, StoredMember};
pub use reply::{
    CommittedOffset, CommittedTopic, DeletedTopic, DescribedMember, Description, FetchedPartition,
    FetchedTopic, GROUP_TYPE, GroupState, JoinRefusal, Joined, JoinedMember, Left, Listing,
    Rebalance, Refusal, Reply, Synced,
};
pub use request::{
    CommitOffsets, CommitPartition, CommitTopic, FetchOffsets, FetchTopic, Heartbeat, Join, Leave,
    Leaving, Request, Sync,
};

use draft::Draft;
use group::Phase;
use offsets::GroupOffsets;

/// What [`Groups`] decides.
pub type GroupDecision = Decision<Record, Reply>;

/// The groups of one partition.
#[derive(Debug, Clone)]
pub struct Groups {
    config: GroupsConfig,
    /// Logged: the last generation of every group that ever had one.
    stored: BTreeMap<Arc<str>, StoredGroup>,
    /// Logged: offsets, by group. A group here that is not in `stored` never had members.
    offsets: BTreeMap<Arc<str>, GroupOffsets>,
    /// Since `resume`, every group of `stored` and every one that members are about to join.
    live: BTreeMap<Arc<str>, Arc<Group>>,
    /// When each live group is to be looked at.
    deadlines: BTreeSet<(Time, Arc<str>)>,
    /// When expired offsets are looked for; `None` before `resume`.
    offsets_check_at: Option<Time>,
    /// Rebalances that have begun since `resume`.
    rebalances: u64,
}

/// Which partition of the internal topic holds `group`: Kafka's rule, which clients and tools know
/// too (the hash of a Java string, without its sign). `partitions` is the topic's, at least one.
#[must_use]
pub fn group_partition(group: &str, partitions: i32) -> i32 {
    let step = |hash: i32, unit: u16| hash.wrapping_mul(31).wrapping_add(unit.into());
    let hash = group.encode_utf16().fold(0, step);
    (hash & i32::MAX) % partitions.max(1)
}

/// Whether a group may have this name. Only commits accept the empty one.
fn is_group_id(group: &str) -> bool {
    !group.is_empty() && group.len() <= NAME_BYTES_MAX
}

impl Groups {
    /// No groups yet.
    #[must_use]
    pub fn new(config: GroupsConfig) -> Groups {
        Groups {
            config,
            stored: BTreeMap::new(),
            offsets: BTreeMap::new(),
            live: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            offsets_check_at: None,
            rebalances: 0,
        }
    }

    /// The records from which a new value gets the same logged state: for a snapshot.
    pub fn logged_state(&self) -> impl Iterator<Item = Record> + '_ {
        let stored = self.stored.iter();
        let stored = stored.map(|(group, value)| Record::Stored {
            group: group.clone(),
            value: Some(value.clone()),
        });
        let offsets = self.offsets.iter().flat_map(|(group, topics)| {
            topics.iter().flat_map(move |(topic, partitions)| {
                partitions.iter().map(move |(partition, committed)| Record::OffsetCommitted {
                    group: group.clone(),
                    topic: topic.clone(),
                    partition: *partition,
                    committed: committed.clone(),
                })
            })
        });
        stored.chain(offsets)
    }

    /// How many rebalances have begun since this state began to lead.
    #[must_use]
    pub fn rebalances(&self) -> u64 {
        self.rebalances
    }

    fn exists(&self, group: &Arc<str>) -> bool {
        self.live.contains_key(group) || self.offsets.contains_key(group)
    }

    fn is_full(&self) -> bool {
        self.config.groups_max <= self.live.len().max(self.offsets.len())
    }

    /// Ends a decision: the group as it has become is its last record.
    fn finish(&self, mut draft: Draft<'_>) -> GroupDecision {
        if draft.is_changed {
            let earliest = draft.group().earliest_deadline();
            let group = draft.edit();
            group.check_at = earliest;
            group.assert_invariants();
            let is_idle = group.phase == Phase::Empty && group.pending.is_empty();
            let is_logged = !draft.records.is_empty() || self.stored.contains_key(&draft.id);
            let group = draft.id.clone();
            let (mut records, replies) =
                (std::mem::take(&mut draft.records), std::mem::take(&mut draft.replies));
            let value = (!is_idle || is_logged).then(|| draft.into_group());
            records.push(Record::Live { group, value });
            return Decision { records, replies };
        }
        Decision { records: draft.records, replies: draft.replies }
    }

    fn set_live(&mut self, id: &Arc<str>, value: Option<Arc<Group>>) {
        let deadline = value.as_ref().and_then(|group| group.check_at);
        let rebalance = value.as_ref().and_then(|group| group.last_rebalance.clone());
        let before = match value {
            Some(group) => self.live.insert(id.clone(), group),
            None => self.live.remove(id),
        };
        let known = before.as_ref().and_then(|group| group.last_rebalance.as_ref());
        if rebalance.is_some() && rebalance.as_ref() != known {
            self.rebalances += 1;
        }
        if let Some(before) = before.and_then(|group| group.check_at) {
            self.deadlines.remove(&(before, id.clone()));
        }
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, id.clone()));
        }
    }

    fn put_member(&mut self, id: &Arc<str>, member_id: &Arc<str>, value: &Arc<Member>) {
        let Some(group) = self.live.get_mut(id).map(Arc::make_mut) else { return };
        let before = group.check_at;
        group.put(member_id, value);
        let after = group.check_at;
        if before != after {
            self.deadlines.extend(after.map(|deadline| (deadline, id.clone())));
            if let Some(before) = before {
                self.deadlines.remove(&(before, id.clone()));
            }
        }
    }

    fn remove_offset(
        &mut self,
        group: &Arc<str>,
        topic: &Arc<str>,
        partition: towpath_model::PartitionIndex,
    ) {
        let Some(topics) = self.offsets.get_mut(group) else { return };
        if let Some(partitions) = topics.get_mut(topic) {
            partitions.remove(&partition);
            if partitions.is_empty() {
                topics.remove(topic);
            }
        }
        if topics.is_empty() {
            self.offsets.remove(group);
        }
    }
}

impl StateMachine for Groups {
    type Request = Request;
    type Record = Record;
    type Reply = Reply;

    fn decide(&self, now: Now, token: Token, request: Request) -> GroupDecision {
        assert!(self.offsets_check_at.is_some(), "a leader resumes before it decides");
        match request {
            Request::Join(request) => self.join(now, token, request),
            Request::Sync(request) => self.sync(now, token, request),
            Request::Heartbeat(request) => self.heartbeat(now, token, request),
            Request::Leave(request) => self.leave(now, token, request),
            Request::CommitOffsets(request) => self.commit(now, token, request),
            Request::FetchOffsets(request) => {
                Decision::reply(token, Reply::FetchOffsets(self.fetch_offsets(&request)))
            }
            Request::Describe { group } => {
                Decision::reply(token, Reply::Describe(self.describe(&group)))
            }
            Request::List { states, types } => {
                Decision::reply(token, Reply::List(self.list(&states, &types)))
            }
            Request::Delete { group } => self.delete_group(token, &group),
            Request::DeleteOffsets { group, topics } => self.delete_offsets(token, &group, topics),
            Request::TopicDeleted { name, id } => self.topic_deleted(token, &name, id),
        }
    }

    fn expire(&self, now: Now) -> GroupDecision {
        match self.offsets_check_at {
            Some(check_at) if check_at <= now.time => self.expire_offsets(now),
            _ => self.expire_groups(now),
        }
    }

    fn resume(&self, now: Now) -> GroupDecision {
        let mut all = Decision::default();
        for (id, stored) in &self.stored {
            let group = Arc::new(Group::load(now, stored));
            let mut draft = Draft::new(&self.config, now, id.clone(), group);
            draft.edit();
            if self.config.group_members_max < draft.group().members.len() {
                draft.prepare_rebalance("the group is larger than group.max.size");
            }
            let decision = self.finish(draft);
            all.records.extend(decision.records);
        }
        all.records.push(Record::CheckOffsetsAt(now.time + self.config.offsets_check_interval));
        all
    }

    fn apply(&mut self, record: &Record) {
        match record {
            Record::Stored { group, value: Some(value) } => {
                self.stored.insert(group.clone(), value.clone());
            }
            Record::Stored { group, value: None } => {
                self.stored.remove(group);
            }
            Record::OffsetCommitted { group, topic, partition, committed } => {
                let topics = self.offsets.entry(group.clone()).or_default();
                let partitions = topics.entry(topic.clone()).or_default();
                partitions.insert(*partition, committed.clone());
            }
            Record::OffsetRemoved { group, topic, partition } => {
                self.remove_offset(group, topic, *partition);
            }
            Record::Live { group, value } => self.set_live(group, value.clone()),
            Record::Member { group, member_id, value } => self.put_member(group, member_id, value),
            Record::Heartbeat { group, member_id, session_ends } => {
                if let Some(live) = self.live.get_mut(group).map(Arc::make_mut) {
                    live.renew(member_id, *session_ends);
                }
            }
            Record::CheckOffsetsAt(at) => self.offsets_check_at = Some(*at),
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        let group = self.deadlines.first().map(|(deadline, _)| *deadline);
        self.offsets_check_at.into_iter().chain(group).min()
    }
}

#[cfg(test)]
mod tests;
