//! Committed offsets: who may commit, what is kept, and when it goes.
//!
//! An offset changes only by a commit, and goes only by a tombstone: of an administrator, of the
//! end of its topic, or of its retention after the group fell silent (KIP-211).

use std::collections::BTreeMap;
use std::sync::Arc;

use towpath_model::mutant::{self, Mutant};
use towpath_model::{Decision, Now, PartitionIndex, Timestamp, Token, TopicId};

use super::config::NAME_BYTES_MAX;
use super::group::{Group, Phase};
use super::record::Record;
use super::reply::{
    CommittedOffset, CommittedTopic, DeletedTopic, FetchedPartition, FetchedTopic, Refusal, Reply,
};
use super::request::{CommitOffsets, CommitPartition, CommitTopic, FetchOffsets};
use super::{GroupDecision, Groups, is_group_id};

/// The committed offsets of one group: topic, partition, offset.
pub(super) type GroupOffsets = BTreeMap<Arc<str>, BTreeMap<PartitionIndex, CommittedOffset>>;

/// What the record format can hold, whatever is configured.
const METADATA_BYTES_MAX: usize = i16::MAX as usize;

/// Most bytes of one commit's records. Each names the group and the topic anew, so that a request
/// of a few bytes per offset would become thousands; Kafka's bound is `max.message.bytes` of the
/// internal topic, which is a sixteenth of this.
const COMMIT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// What a record of an offset has besides group, topic and metadata, about.
const OFFSET_RECORD_BYTES: usize = 64;

/// Most offsets that one step removes, of those that have expired or whose topic is gone; the rest
/// is for the next step, at once.
const TOMBSTONES_PER_STEP: usize = 1_000;

impl Groups {
    pub(super) fn commit(&self, now: Now, token: Token, request: CommitOffsets) -> GroupDecision {
        if let Err(refusal) = self.check_commit(&request) {
            return Decision::reply(token, Reply::CommitOffsets(Err(refusal)));
        }
        let mut records = Vec::new();
        let mut results = Vec::new();
        for topic in request.topics {
            let mut partitions = Vec::new();
            for partition in topic.partitions {
                let index = partition.partition;
                if self.is_too_large(&partition.metadata) {
                    partitions.push((index, Err(Refusal::OffsetMetadataTooLarge)));
                    continue;
                }
                let expires_at = request.retention.map(|retention| now.wall + retention);
                records.push(Record::OffsetCommitted {
                    group: request.group.clone(),
                    topic: topic.name.clone(),
                    partition: index,
                    committed: committed(now, topic.id, partition, expires_at),
                });
                partitions.push((index, Ok(())));
            }
            results.push(CommittedTopic { name: topic.name, id: topic.id, partitions });
        }
        records.extend(self.heard_from(now, &request.group, &request.member_id));
        Decision { records, replies: vec![(token, Reply::CommitOffsets(Ok(results)))] }
    }

    fn check_commit(&self, request: &CommitOffsets) -> Result<(), Refusal> {
        // Unlike elsewhere, the empty name is a group here: simple consumers have used it.
        if NAME_BYTES_MAX < request.group.len() {
            return Err(Refusal::InvalidGroupId);
        }
        if request.topics.iter().any(|topic: &CommitTopic| NAME_BYTES_MAX < topic.name.len()) {
            return Err(Refusal::InvalidRequest);
        }
        if COMMIT_BYTES_MAX < bytes_of(request) {
            return Err(Refusal::CommitTooLarge);
        }
        if !self.exists(&request.group) {
            return match request.generation {
                None if self.is_full() => Err(Refusal::TooManyGroups),
                None => Ok(()),
                Some(_) if request.knows_group_id_not_found => Err(Refusal::GroupIdNotFound),
                Some(_) => Err(Refusal::IllegalGeneration),
            };
        }
        let phase = self.live.get(&request.group).map_or(Phase::Empty, |group| group.phase);
        if request.generation.is_none() && phase == Phase::Empty {
            return Ok(());
        }
        let instance = request.group_instance_id.as_deref();
        let group = self.live.get(&request.group).ok_or(Refusal::UnknownMemberId)?;
        if request.generation.is_none() && request.member_id.is_empty() && instance.is_none() {
            // A simple consumer may not commit into the hands of members.
            return Err(Refusal::UnknownMemberId);
        }
        if instance.is_none() || !mutant::is_on(Mutant::StaticMemberNotFenced) {
            group.check_member(&request.member_id, instance)?;
        }
        let is_current = request.generation == Some(group.generation);
        if !is_current && !mutant::is_on(Mutant::OldGenerationCommits) {
            return Err(Refusal::IllegalGeneration);
        }
        match phase {
            // The member has no assignment of this generation, so it can have processed nothing.
            Phase::Completing => Err(Refusal::RebalanceInProgress),
            Phase::Empty | Phase::Preparing { .. } | Phase::Stable => Ok(()),
        }
    }

    fn is_too_large(&self, metadata: &str) -> bool {
        METADATA_BYTES_MAX < metadata.len()
            || self.config.offset_metadata_max < metadata.encode_utf16().count()
    }

    /// The committed offsets that are asked for, in that order.
    #[must_use]
    pub fn fetch_offsets(&self, request: &FetchOffsets) -> Vec<FetchedTopic> {
        let none = GroupOffsets::new();
        let offsets = self.offsets.get(&request.group).unwrap_or(&none);
        let Some(topics) = &request.topics else { return fetch_all(offsets) };
        let fetch = |topic: &super::request::FetchTopic| {
            let committed = offsets.get(&topic.name);
            let find = |partition: PartitionIndex| {
                let found = committed.and_then(|partitions| partitions.get(&partition));
                found.filter(|committed| is_same_topic(committed.topic_id, topic.id)).cloned()
            };
            let partitions = topic.partitions.iter();
            let partitions =
                partitions.map(|p| FetchedPartition { partition: *p, committed: find(*p) });
            FetchedTopic {
                name: topic.name.clone(),
                id: topic.id,
                partitions: partitions.collect(),
            }
        };
        topics.iter().map(fetch).collect()
    }

    pub(super) fn delete_offsets(
        &self,
        token: Token,
        group: &Arc<str>,
        topics: Vec<(Arc<str>, Vec<PartitionIndex>)>,
    ) -> GroupDecision {
        let live = self.live.get(group);
        let refusal = if !is_group_id(group) {
            Some(Refusal::InvalidGroupId)
        } else if !self.exists(group) {
            Some(Refusal::GroupIdNotFound)
        } else if live.is_some_and(|g| g.phase != Phase::Empty && !g.is_consumer_group()) {
            Some(Refusal::NonEmptyGroup)
        } else {
            None
        };
        if let Some(refusal) = refusal {
            return Decision::reply(token, Reply::DeleteOffsets(Err(refusal)));
        }
        let mut records = Vec::new();
        let mut results = Vec::new();
        for (topic, partitions) in topics {
            let is_subscribed = live.is_some_and(|live| live.is_subscribed(&topic));
            let result = if is_subscribed { Err(Refusal::GroupSubscribedToTopic) } else { Ok(()) };
            let committed = self.offsets.get(group).and_then(|offsets| offsets.get(&topic));
            for partition in &partitions {
                if result.is_ok() && committed.is_some_and(|at| at.contains_key(partition)) {
                    records.push(removed(group, &topic, *partition));
                }
            }
            let partitions = partitions.into_iter().map(|partition| (partition, result)).collect();
            results.push(DeletedTopic { name: topic, partitions });
        }
        Decision { records, replies: vec![(token, Reply::DeleteOffsets(Ok(results)))] }
    }

    pub(super) fn delete_group(&self, token: Token, group: &Arc<str>) -> GroupDecision {
        let refusal = if !self.exists(group) {
            Some(Refusal::GroupIdNotFound)
        } else if self.live.get(group).is_some_and(|live| live.phase != Phase::Empty) {
            Some(Refusal::NonEmptyGroup)
        } else {
            None
        };
        if let Some(refusal) = refusal {
            return Decision::reply(token, Reply::Delete(Err(refusal)));
        }
        let offsets = self.offsets.get(group).into_iter().flatten();
        let offsets = offsets.flat_map(|(topic, partitions)| {
            partitions.keys().map(move |partition| removed(group, topic, *partition))
        });
        let mut records: Vec<Record> = offsets.collect();
        records.extend(self.forget(group));
        Decision { records, replies: vec![(token, Reply::Delete(Ok(())))] }
    }

    /// Removes at most a step's worth: a topic may be read by very many groups.
    pub(super) fn topic_deleted(&self, token: Token, name: &str, id: TopicId) -> GroupDecision {
        let of_topic = self.offsets.iter().filter_map(|(group, offsets)| {
            offsets.get_key_value(name).map(|(topic, partitions)| (group, topic, partitions))
        });
        let removals = of_topic.flat_map(|(group, topic, partitions)| {
            let of_id = partitions.iter().filter(|(_, at)| is_same_topic(at.topic_id, id));
            of_id.map(move |(partition, _)| removed(group, topic, *partition))
        });
        let records: Vec<Record> = removals.take(TOMBSTONES_PER_STEP).collect();
        let reply = Reply::TopicDeleted { offsets: records.len() };
        Decision { records, replies: vec![(token, reply)] }
    }

    /// Removes what has expired, at most a step's worth, and groups that have nothing left.
    pub(super) fn expire_offsets(&self, now: Now) -> GroupDecision {
        let mut records = Vec::new();
        let names = self.live.keys().chain(self.offsets.keys());
        let names: std::collections::BTreeSet<&Arc<str>> = names.collect();
        for group in names {
            if TOMBSTONES_PER_STEP <= records.len() {
                return Decision { records, replies: Vec::new() };
            }
            let live = self.live.get(group);
            let offsets = self.offsets.get(group).into_iter().flatten();
            let offsets = offsets.flat_map(|(topic, partitions)| {
                partitions.iter().map(move |(partition, committed)| (topic, partition, committed))
            });
            let (mut kept, mut expired) = (0, 0);
            for (topic, partition, committed) in offsets {
                let room = records.len() < TOMBSTONES_PER_STEP;
                if room && self.is_expired(now, live.map(|live| &**live), topic, committed) {
                    records.push(removed(group, topic, *partition));
                    expired += 1;
                } else {
                    kept += 1;
                }
            }
            let is_silent = live.is_none_or(|g| g.phase == Phase::Empty && g.pending.is_empty());
            if kept == 0 && is_silent && (live.is_some() || expired != 0) {
                records.extend(self.forget(group));
            }
        }
        records.push(Record::CheckOffsetsAt(now.time + self.config.offsets_check_interval));
        Decision { records, replies: Vec::new() }
    }

    fn is_expired(
        &self,
        now: Now,
        group: Option<&Group>,
        topic: &str,
        committed: &CommittedOffset,
    ) -> bool {
        let silent_since = match group {
            Some(group) if group.is_subscribed(topic) => return false,
            Some(group) if group.protocol_type.is_some() => match group.phase {
                Phase::Empty => group.since.unwrap_or(committed.committed_at),
                Phase::Stable if group.subscribed.is_some() => committed.committed_at,
                _ => return false,
            },
            _ => committed.committed_at,
        };
        match (committed.expires_at, self.config.offsets_retention) {
            (Some(expires_at), _) => expires_at <= now.wall,
            (None, Some(retention)) => silent_since + retention <= now.wall,
            (None, None) => false,
        }
    }

    /// The records after which nothing but offsets is known of a group.
    fn forget(&self, group: &Arc<str>) -> Vec<Record> {
        let mut records = Vec::new();
        if self.stored.contains_key(group) {
            records.push(Record::Stored { group: group.clone(), value: None });
        }
        if self.live.contains_key(group) {
            records.push(Record::Live { group: group.clone(), value: None });
        }
        records
    }
}

/// Bytes that the records of a commit will have.
fn bytes_of(request: &CommitOffsets) -> usize {
    let topic = |topic: &CommitTopic| {
        let each = request.group.len() + topic.name.len() + OFFSET_RECORD_BYTES;
        let metadata: usize = topic.partitions.iter().map(|p| p.metadata.len()).sum();
        each * topic.partitions.len() + metadata
    };
    request.topics.iter().map(topic).sum()
}

/// What is kept of a commit. The format that has room for an expiry has none for the epoch and the
/// topic's id, so they are dropped here: a replay must find what was applied.
fn committed(
    now: Now,
    topic_id: TopicId,
    partition: CommitPartition,
    expires_at: Option<Timestamp>,
) -> CommittedOffset {
    let names_expiry = expires_at.is_some();
    CommittedOffset {
        offset: partition.offset,
        leader_epoch: partition.leader_epoch.filter(|epoch| !names_expiry && 0 <= epoch.0),
        metadata: partition.metadata,
        committed_at: now.wall,
        expires_at,
        topic_id: if names_expiry { TopicId::ZERO } else { topic_id },
    }
}

fn removed(group: &Arc<str>, topic: &Arc<str>, partition: PartitionIndex) -> Record {
    Record::OffsetRemoved { group: group.clone(), topic: topic.clone(), partition }
}

/// Whether an offset of topic `committed` may be answered to someone who asks about `asked`: yes,
/// unless both are known and differ.
fn is_same_topic(committed: TopicId, asked: TopicId) -> bool {
    committed.is_zero()
        || asked.is_zero()
        || committed == asked
        || mutant::is_on(Mutant::OffsetsOfOldTopic)
}

fn fetch_all(offsets: &GroupOffsets) -> Vec<FetchedTopic> {
    let fetch = |(name, partitions): (&Arc<str>, &BTreeMap<PartitionIndex, CommittedOffset>)| {
        let id = partitions.values().map(|committed| committed.topic_id).max();
        let partitions = partitions.iter().map(|(partition, committed)| FetchedPartition {
            partition: *partition,
            committed: Some(committed.clone()),
        });
        FetchedTopic {
            name: name.clone(),
            id: id.unwrap_or(TopicId::ZERO),
            partitions: partitions.collect(),
        }
    };
    offsets.iter().map(fetch).collect()
}
