//! OffsetCommit: where a group is, kept in the internal topic.
//!
//! Entries for topics or partitions that do not exist are answered here; the others go to the
//! coordinator in one request, and one bad entry does not keep the others from being committed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use towpath_coordinator::groups::{CommitOffsets, CommitPartition, CommitTopic, Reply, Request};
use towpath_model::{Generation, LeaderEpoch, Offset, PartitionIndex};
use towpath_protocol::ErrorCode;
use towpath_protocol::messages::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitResponse,
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};

use super::{Handled, Incoming, errors, topic_id};
use crate::node::Node;

/// From this version on topics are named by id (KIP-848's second half).
const IDS_SINCE: i16 = 10;
/// From this version on a missing group has an error of its own.
const GROUP_ID_NOT_FOUND_SINCE: i16 = 9;

/// Results by the topic's place in the request, then by partition.
type Results = BTreeMap<(usize, i32), ErrorCode>;

pub(super) async fn handle(node: &Node, incoming: &Incoming) -> Handled {
    let request: OffsetCommitRequest<'_> = incoming.decode()?;
    let (topics, places, mut results) = sort_out(node, incoming.version, &request);
    if !topics.is_empty() {
        let whole = commit(node, incoming.version, &request, topics, &places, &mut results).await;
        if let Some(error) = whole {
            results.values_mut().filter(|e| **e == ErrorCode::None).for_each(|e| *e = error);
        }
    }
    let topics = request.topics.iter().enumerate().map(|(at, topic)| OffsetCommitResponseTopic {
        name: topic.name,
        topic_id: topic.topic_id,
        partitions: topic
            .partitions
            .iter()
            .map(|partition| OffsetCommitResponsePartition {
                partition_index: partition.partition_index,
                error_code: results[&(at, partition.partition_index)].into(),
            })
            .collect(),
    });
    incoming.answer(&OffsetCommitResponse { topics: topics.collect(), ..Default::default() })
}

/// Divides the request into what the coordinator is asked and what is refused here. The numbers
/// say which topic of the request each asked topic is.
fn sort_out(
    node: &Node,
    version: i16,
    request: &OffsetCommitRequest<'_>,
) -> (Vec<CommitTopic>, Vec<usize>, Results) {
    let image = node.driver().image();
    let (mut asked, mut places, mut results) = (Vec::new(), Vec::new(), Results::new());
    for (at, topic) in request.topics.iter().enumerate() {
        let (found, missing) = if IDS_SINCE <= version {
            (image.topic_by_id(topic_id(topic.topic_id)), ErrorCode::UnknownTopicId)
        } else {
            (image.topic(topic.name), ErrorCode::UnknownTopicOrPartition)
        };
        let mut partitions = Vec::new();
        for partition in &topic.partitions {
            let index = usize::try_from(partition.partition_index).ok();
            let error = match found {
                None => missing,
                Some(found) if index.is_none_or(|index| found.partitions.len() <= index) => {
                    ErrorCode::UnknownTopicOrPartition
                }
                Some(_) => {
                    partitions.push(to_commit(partition));
                    ErrorCode::None
                }
            };
            results.insert((at, partition.partition_index), error);
        }
        if let Some(found) = found.filter(|_| !partitions.is_empty()) {
            // The id is kept for clients that know only names too: a topic that is created again
            // under this name does not inherit the offsets.
            let name = found.name.as_str().into();
            asked.push(CommitTopic { name, id: found.id, partitions });
            places.push(at);
        }
    }
    (asked, places, results)
}

fn to_commit(partition: &OffsetCommitRequestPartition<'_>) -> CommitPartition {
    let epoch = partition.committed_leader_epoch;
    CommitPartition {
        partition: PartitionIndex(partition.partition_index),
        offset: Offset(partition.committed_offset),
        leader_epoch: (0 <= epoch).then_some(LeaderEpoch(epoch)),
        metadata: partition.committed_metadata.unwrap_or_default().into(),
    }
}

/// Commits; an error of the whole request is returned.
async fn commit(
    node: &Node,
    version: i16,
    request: &OffsetCommitRequest<'_>,
    topics: Vec<CommitTopic>,
    places: &[usize],
    results: &mut Results,
) -> Option<ErrorCode> {
    let generation = request.generation_id_or_member_epoch;
    let retention = u64::try_from(request.retention_time_ms).ok().map(Duration::from_millis);
    let commit = CommitOffsets {
        group: request.group_id.into(),
        member_id: request.member_id.into(),
        group_instance_id: request.group_instance_id.map(Arc::from),
        generation: (0 <= generation).then_some(Generation(generation)),
        retention,
        knows_group_id_not_found: GROUP_ID_NOT_FOUND_SINCE <= version,
        topics,
    };
    match node.ask_group_creating(request.group_id, Request::CommitOffsets(commit)).await {
        Ok(Reply::CommitOffsets(Ok(committed))) => {
            for (topic, at) in committed.iter().zip(places) {
                for (partition, result) in &topic.partitions {
                    let error = result.map_or_else(errors::of_group_refusal, |()| ErrorCode::None);
                    results.insert((*at, partition.0), error);
                }
            }
            None
        }
        Ok(Reply::CommitOffsets(Err(refusal))) => Some(errors::of_group_refusal(refusal)),
        Ok(_) => Some(ErrorCode::UnknownServerError),
        Err(unavailable) => Some(errors::of_unavailable_coordinator(unavailable)),
    }
}
