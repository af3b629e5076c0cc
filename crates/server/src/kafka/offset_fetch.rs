//! OffsetFetch: where one or several groups are.

use towpath_coordinator::groups::{FetchOffsets, FetchTopic, FetchedTopic, Reply, Request};
use towpath_driver::NotCoordinator;
use towpath_model::{PartitionIndex, Uuid};
use towpath_protocol::ErrorCode;
use towpath_protocol::messages::{
    OffsetFetchRequest, OffsetFetchResponse, OffsetFetchResponseGroup,
    OffsetFetchResponsePartition, OffsetFetchResponsePartitions, OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
};

use super::{Handled, Incoming, distinct, errors, topic_id, wire_id};
use crate::node::{Node, Unavailable};

/// From this version on several groups can be asked (KIP-709).
const GROUPS_SINCE: i16 = 8;
/// From this version on topics are named by id.
const IDS_SINCE: i16 = 10;
/// Before this version errors stand beside each partition.
const TOP_LEVEL_ERROR_SINCE: i16 = 2;

/// One group's question.
struct Ask<'a> {
    group: &'a str,
    topics: Option<Vec<FetchTopic>>,
    /// Topics asked for by an id that does not exist.
    unknown: Vec<(Uuid, Vec<i32>)>,
}

/// One group's answer.
struct Answer<'a> {
    group: &'a str,
    error: ErrorCode,
    topics: Vec<FetchedTopic>,
    unknown: Vec<(Uuid, Vec<i32>)>,
}

pub(super) async fn handle(node: &Node, incoming: &Incoming) -> Handled {
    let request: OffsetFetchRequest<'_> = incoming.decode()?;
    let mut answers = Vec::new();
    for ask in asks(node, incoming.version, &request) {
        answers.push(fetch(node, ask, request.require_stable).await);
    }
    if incoming.version < GROUPS_SINCE {
        return answer_one(incoming, &request, answers.first());
    }
    let groups = answers.iter().map(|answer| OffsetFetchResponseGroup {
        group_id: answer.group,
        error_code: answer.error.into(),
        topics: group_topics(answer),
    });
    incoming.answer(&OffsetFetchResponse { groups: groups.collect(), ..Default::default() })
}

fn asks<'a>(node: &Node, version: i16, request: &'a OffsetFetchRequest<'a>) -> Vec<Ask<'a>> {
    let image = node.driver().image();
    let by_name = |name: &str, partitions: &[i32]| FetchTopic {
        name: name.into(),
        id: image.topic(name).map_or(Uuid::ZERO, |topic| topic.id),
        partitions: partitions.iter().copied().map(PartitionIndex).collect(),
    };
    if version < GROUPS_SINCE {
        let topics = request.topics.as_ref().map(|topics| {
            topics.iter().map(|topic| by_name(topic.name, &topic.partition_indexes)).collect()
        });
        return vec![Ask { group: request.group_id, topics, unknown: Vec::new() }];
    }
    let mut asks = Vec::with_capacity(request.groups.len());
    for group in distinct(&request.groups, |group| group.group_id) {
        let mut unknown = Vec::new();
        let topics = group.topics.as_ref().map(|topics| {
            let mut known = Vec::with_capacity(topics.len());
            for topic in topics {
                if version < IDS_SINCE {
                    known.push(by_name(topic.name, &topic.partition_indexes));
                    continue;
                }
                let id = topic_id(topic.topic_id);
                match image.topic_by_id(id) {
                    Some(found) => {
                        let asked = by_name(found.name.as_str(), &topic.partition_indexes);
                        known.push(FetchTopic { id, ..asked });
                    }
                    None => unknown.push((id, topic.partition_indexes.clone())),
                }
            }
            known
        });
        asks.push(Ask { group: group.group_id, topics, unknown });
    }
    asks
}

async fn fetch<'a>(node: &Node, ask: Ask<'a>, require_stable: bool) -> Answer<'a> {
    let Ask { group, topics, unknown } = ask;
    let nothing = || nothing_committed(topics.as_deref());
    let fetch = FetchOffsets { group: group.into(), topics: topics.clone(), require_stable };
    let (error, topics) = match node.ask_group(group, Request::FetchOffsets(fetch)).await {
        Ok(Reply::FetchOffsets(topics)) => (ErrorCode::None, of_living_topics(node, topics)),
        Ok(_) => (ErrorCode::UnknownServerError, Vec::new()),
        // No group has ever committed anything here.
        Err(Unavailable::NotCoordinator(NotCoordinator::NoTopic)) => (ErrorCode::None, nothing()),
        Err(unavailable) => (errors::of_unavailable_coordinator(unavailable), Vec::new()),
    };
    Answer { group, error, topics, unknown }
}

/// Leaves out offsets of an earlier topic of the same name.
fn of_living_topics(node: &Node, mut topics: Vec<FetchedTopic>) -> Vec<FetchedTopic> {
    let image = node.driver().image();
    topics.retain(|topic| {
        let current = image.topic(&topic.name).map(|topic| topic.id);
        topic.id.is_zero() || current.is_none_or(|current| current == topic.id)
    });
    topics
}

fn nothing_committed(topics: Option<&[FetchTopic]>) -> Vec<FetchedTopic> {
    use towpath_coordinator::groups::FetchedPartition;
    let topics = topics.unwrap_or_default().iter().map(|topic| FetchedTopic {
        name: topic.name.clone(),
        id: topic.id,
        partitions: topic
            .partitions
            .iter()
            .map(|partition| FetchedPartition { partition: *partition, committed: None })
            .collect(),
    });
    topics.collect()
}

fn group_topics<'a>(answer: &'a Answer<'_>) -> Vec<OffsetFetchResponseTopics<'a>> {
    let known = answer.topics.iter().map(|topic| OffsetFetchResponseTopics {
        name: &topic.name,
        topic_id: wire_id(topic.id),
        partitions: topic
            .partitions
            .iter()
            .map(|partition| {
                let committed = partition.committed.as_ref();
                OffsetFetchResponsePartitions {
                    partition_index: partition.partition.0,
                    committed_offset: committed.map_or(-1, |c| c.offset.0),
                    committed_leader_epoch: committed
                        .and_then(|c| c.leader_epoch)
                        .map_or(-1, |epoch| epoch.0),
                    metadata: Some(committed.map_or("", |c| &c.metadata)),
                    error_code: 0,
                }
            })
            .collect(),
    });
    let unknown = answer.unknown.iter().map(|(id, partitions)| OffsetFetchResponseTopics {
        topic_id: wire_id(*id),
        partitions: partitions
            .iter()
            .map(|partition| OffsetFetchResponsePartitions {
                partition_index: *partition,
                committed_offset: -1,
                committed_leader_epoch: -1,
                metadata: Some(""),
                error_code: ErrorCode::UnknownTopicId.into(),
            })
            .collect(),
        ..Default::default()
    });
    known.chain(unknown).collect()
}

fn answer_one(
    incoming: &Incoming,
    request: &OffsetFetchRequest<'_>,
    answer: Option<&Answer<'_>>,
) -> Handled {
    let Some(answer) = answer else { return incoming.answer(&OffsetFetchResponse::default()) };
    if answer.error != ErrorCode::None && TOP_LEVEL_ERROR_SINCE <= incoming.version {
        let error_code = answer.error.into();
        return incoming.answer(&OffsetFetchResponse { error_code, ..Default::default() });
    }
    if answer.error != ErrorCode::None {
        return answer_each(incoming, request, answer.error);
    }
    let topics = group_topics(answer).into_iter().map(|topic| OffsetFetchResponseTopic {
        name: topic.name,
        partitions: topic
            .partitions
            .into_iter()
            .map(|p| OffsetFetchResponsePartition {
                partition_index: p.partition_index,
                committed_offset: p.committed_offset,
                committed_leader_epoch: p.committed_leader_epoch,
                metadata: p.metadata,
                error_code: p.error_code,
            })
            .collect(),
    });
    incoming.answer(&OffsetFetchResponse { topics: topics.collect(), ..Default::default() })
}

fn answer_each(incoming: &Incoming, request: &OffsetFetchRequest<'_>, error: ErrorCode) -> Handled {
    let topics = request.topics.iter().flatten().map(|topic| OffsetFetchResponseTopic {
        name: topic.name,
        partitions: topic
            .partition_indexes
            .iter()
            .map(|partition| OffsetFetchResponsePartition {
                partition_index: *partition,
                committed_offset: -1,
                metadata: Some(""),
                error_code: error.into(),
                ..Default::default()
            })
            .collect(),
    });
    incoming.answer(&OffsetFetchResponse { topics: topics.collect(), ..Default::default() })
}
