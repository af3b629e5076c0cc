//! Committed offsets of a group: written, and read back.

use std::collections::BTreeMap;
use std::time::Duration;

use towpath_model::{LeaderEpoch, Offset};
use towpath_protocol::ErrorCode;
use towpath_protocol::messages::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
    OffsetCommitResponse, OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic,
    OffsetFetchRequestTopics, OffsetFetchResponse,
};

use crate::cluster::{Cluster, Lane};
use crate::error::{Error, Result};
use crate::record::TopicPartition;

/// A committed position: the offset of the next record to process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// The position.
    pub offset: Offset,
    /// The leadership of the record before it, where that is known.
    pub leader_epoch: Option<LeaderEpoch>,
    /// A note of the committer.
    pub metadata: String,
}

impl Committed {
    /// A position and nothing else.
    #[must_use]
    pub fn at(offset: Offset) -> Committed {
        Committed { offset, leader_epoch: None, metadata: String::new() }
    }
}

/// In whose name offsets are committed.
#[derive(Debug, Clone)]
pub(crate) struct Committer {
    pub(crate) group: String,
    pub(crate) member_id: String,
    pub(crate) instance_id: Option<String>,
    /// −1 for one who is no member.
    pub(crate) generation: i32,
}

impl Committer {
    /// Somebody outside of the group, which must have no members then.
    pub(crate) fn outsider(group: &str) -> Committer {
        Committer {
            group: group.to_owned(),
            member_id: String::new(),
            instance_id: None,
            generation: -1,
        }
    }
}

/// The last versions that name topics by name; ids come with version 10 and buy nothing here.
const BY_NAME: i16 = 9;
/// The first version of OffsetFetch that asks for several groups (KIP-709).
const BY_GROUPS: i16 = 8;

/// Commits the positions. Tries again while the coordinator moves or loads.
pub(crate) async fn commit(
    cluster: &Cluster,
    committer: &Committer,
    offsets: &BTreeMap<TopicPartition, Committed>,
    patience: Duration,
) -> Result<()> {
    if offsets.is_empty() {
        return Ok(());
    }
    let mut retries = cluster.retries(patience);
    loop {
        let Err(error) = commit_once(cluster, committer, offsets).await else { return Ok(()) };
        cluster.forget_coordinator_on(&committer.group, &error);
        retries.after(error).await?;
    }
}

async fn commit_once(
    cluster: &Cluster,
    committer: &Committer,
    offsets: &BTreeMap<TopicPartition, Committed>,
) -> Result<()> {
    let mut topics: Vec<OffsetCommitRequestTopic<'_>> = Vec::new();
    for (partition, committed) in offsets {
        let entry = OffsetCommitRequestPartition {
            partition_index: partition.partition.0,
            committed_offset: committed.offset.0,
            committed_leader_epoch: committed.leader_epoch.map_or(-1, |epoch| epoch.0),
            committed_metadata: Some(&committed.metadata),
        };
        match topics.last_mut().filter(|topic| topic.name == &*partition.topic) {
            Some(topic) => topic.partitions.push(entry),
            None => topics.push(OffsetCommitRequestTopic {
                name: &partition.topic,
                partitions: vec![entry],
                ..Default::default()
            }),
        }
    }
    let request = OffsetCommitRequest {
        group_id: &committer.group,
        generation_id_or_member_epoch: committer.generation,
        member_id: &committer.member_id,
        group_instance_id: committer.instance_id.as_deref(),
        topics,
        ..Default::default()
    };
    let coordinator = cluster.coordinator(&committer.group).await?;
    let connection = cluster.broker(coordinator, Lane::Group).await?;
    let version = connection.version_up_to::<OffsetCommitRequest<'_>>(BY_NAME)?;
    let answer = connection.call_version(version, &request).await?;
    let response: OffsetCommitResponse<'_> = answer.read()?;
    for topic in &response.topics {
        for partition in &topic.partitions {
            let code = ErrorCode::from(partition.error_code);
            if !code.is_ok() {
                let place = TopicPartition::new(topic.name, partition.partition_index);
                return Err(refusal(&committer.group, &place, code));
            }
        }
    }
    Ok(())
}

fn refusal(group: &str, place: &TopicPartition, code: ErrorCode) -> Error {
    match code {
        ErrorCode::IllegalGeneration | ErrorCode::UnknownMemberId => Error::LostMembership {
            group: group.to_owned(),
            reason: format!("the group rebalanced before {place} was committed ({})", code.name()),
        },
        code => Error::refused(format!("committing {place} for group {group:?}"), code, None),
    }
}

/// The committed positions of `partitions`, or of everything the group has committed. Partitions
/// without one are missing from the result.
pub(crate) async fn committed(
    cluster: &Cluster,
    group: &str,
    partitions: Option<&[TopicPartition]>,
) -> Result<BTreeMap<TopicPartition, Committed>> {
    let mut retries = cluster.retries(cluster.config().request_timeout);
    loop {
        let error = match committed_once(cluster, group, partitions).await {
            Ok(found) => return Ok(found),
            Err(error) => error,
        };
        cluster.forget_coordinator_on(group, &error);
        retries.after(error).await?;
    }
}

async fn committed_once(
    cluster: &Cluster,
    group: &str,
    partitions: Option<&[TopicPartition]>,
) -> Result<BTreeMap<TopicPartition, Committed>> {
    let coordinator = cluster.coordinator(group).await?;
    let connection = cluster.broker(coordinator, Lane::Group).await?;
    let version = connection.version_up_to::<OffsetFetchRequest<'_>>(BY_NAME)?;
    let by_topic = partitions.map(|partitions| {
        let mut by_topic: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
        for partition in partitions {
            by_topic.entry(&partition.topic).or_default().push(partition.partition.0);
        }
        by_topic
    });
    let request = if version < BY_GROUPS {
        let topic = |(name, partition_indexes)| OffsetFetchRequestTopic { name, partition_indexes };
        OffsetFetchRequest {
            group_id: group,
            topics: by_topic.map(|topics| topics.into_iter().map(topic).collect()),
            ..Default::default()
        }
    } else {
        let topic = |(name, partition_indexes)| OffsetFetchRequestTopics {
            name,
            partition_indexes,
            ..Default::default()
        };
        OffsetFetchRequest {
            groups: vec![OffsetFetchRequestGroup {
                group_id: group,
                topics: by_topic.map(|topics| topics.into_iter().map(topic).collect()),
                ..Default::default()
            }],
            ..Default::default()
        }
    };
    let answer = connection.call_version(version, &request).await?;
    let response: OffsetFetchResponse<'_> = answer.read()?;
    let doing = || format!("reading the committed offsets of group {group:?}");
    let mut found = Found { doing: doing(), offsets: BTreeMap::new() };
    if version < BY_GROUPS {
        found.check(response.error_code)?;
        for topic in &response.topics {
            for p in &topic.partitions {
                let place = TopicPartition::new(topic.name, p.partition_index);
                let (offset, epoch) = (p.committed_offset, p.committed_leader_epoch);
                found.add(place, p.error_code, offset, epoch, p.metadata)?;
            }
        }
    }
    for group in &response.groups {
        found.check(group.error_code)?;
        for topic in &group.topics {
            for p in &topic.partitions {
                let place = TopicPartition::new(topic.name, p.partition_index);
                let (offset, epoch) = (p.committed_offset, p.committed_leader_epoch);
                found.add(place, p.error_code, offset, epoch, p.metadata)?;
            }
        }
    }
    Ok(found.offsets)
}

struct Found {
    doing: String,
    offsets: BTreeMap<TopicPartition, Committed>,
}

impl Found {
    fn check(&self, code: i16) -> Result<()> {
        let code = ErrorCode::from(code);
        if code.is_ok() { Ok(()) } else { Err(Error::refused(self.doing.clone(), code, None)) }
    }

    fn add(
        &mut self,
        place: TopicPartition,
        code: i16,
        offset: i64,
        epoch: i32,
        metadata: Option<&str>,
    ) -> Result<()> {
        self.check(code)?;
        if 0 <= offset {
            let committed = Committed {
                offset: Offset(offset),
                leader_epoch: (0 <= epoch).then_some(LeaderEpoch(epoch)),
                metadata: metadata.unwrap_or_default().to_owned(),
            };
            self.offsets.insert(place, committed);
        }
        Ok(())
    }
}
