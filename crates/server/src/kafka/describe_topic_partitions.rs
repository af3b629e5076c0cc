//! DescribeTopicPartitions: topics page by page, with eligible leader replicas (KIP-966).

use std::collections::BTreeSet;

use towpath_metadata::{Image, PartitionState};
use towpath_model::{PartitionIndex, TopicName, TopicPartition, is_internal_topic};
use towpath_protocol::ErrorCode;
use towpath_protocol::messages::{
    DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor, DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
};

use super::brokers::{self, Brokers};
use super::metadata::ALL_TOPIC_OPERATIONS;
use super::{Handled, Incoming, wire_id};
use crate::node::Node;

pub(super) fn handle(node: &Node, incoming: &Incoming) -> Handled {
    let request: DescribeTopicPartitionsRequest<'_> = incoming.decode()?;
    let most = node.broker_config().described_partitions_max.max(1);
    let image = node.driver().image();
    let mut names: BTreeSet<&str> = if request.topics.is_empty() {
        image.topics().map(|topic| topic.name.as_str()).collect()
    } else {
        request.topics.iter().map(|topic| topic.name).collect()
    };
    let mut first = 0;
    if let Some(cursor) = &request.cursor {
        if cursor.partition_index < 0 || !names.contains(cursor.topic_name) {
            return refuse(incoming, &names);
        }
        names = names.split_off(cursor.topic_name);
        first = usize::try_from(cursor.partition_index).unwrap_or(usize::MAX);
    }
    let limit = usize::try_from(request.response_partition_limit).unwrap_or(1).clamp(1, most);
    let brokers = Brokers::of(node, &incoming.peer, &image);
    page(node, incoming, &image, &brokers, &names, first, limit)
}

fn page(
    node: &Node,
    incoming: &Incoming,
    image: &Image,
    brokers: &Brokers,
    names: &BTreeSet<&str>,
    mut first: usize,
    limit: usize,
) -> Handled {
    let (mut topics, mut left, mut next) = (Vec::new(), limit, None);
    for name in names {
        let from = std::mem::take(&mut first);
        let Some(topic) = image.topic(name) else {
            topics.push(missing(name));
            continue;
        };
        if left == 0 {
            next = Some((*name, 0));
            break;
        }
        let listed = topic.partitions.iter().enumerate().skip(from).take(left);
        let mut partitions: Vec<_> =
            listed.map(|(at, state)| partition(image, brokers, at, state)).collect();
        for partition in &mut partitions {
            let index = PartitionIndex(partition.partition_index);
            let id = TopicPartition { topic: topic.id, partition: index };
            let me = node.driver().broker_id().0;
            let is_known = partition.offline_replicas.contains(&me);
            if !is_known && node.driver().offline(id).is_some() {
                partition.offline_replicas.push(me);
            }
        }
        let end = from.saturating_add(partitions.len());
        left -= partitions.len();
        topics.push(DescribeTopicPartitionsResponseTopic {
            name: Some(name),
            topic_id: wire_id(topic.id),
            is_internal: topic.internal,
            partitions,
            topic_authorized_operations: ALL_TOPIC_OPERATIONS,
            ..Default::default()
        });
        if end < topic.partitions.len() {
            next = Some((*name, end));
            break;
        }
    }
    let next_cursor = next.map(|(topic_name, at)| DescribeTopicPartitionsResponseCursor {
        topic_name,
        partition_index: i32::try_from(at).unwrap_or(i32::MAX),
    });
    let response = DescribeTopicPartitionsResponse { topics, next_cursor, ..Default::default() };
    incoming.answer(&response)
}

fn missing(name: &str) -> DescribeTopicPartitionsResponseTopic<'_> {
    let error = if TopicName::new(name).is_err() {
        ErrorCode::InvalidTopicException
    } else {
        ErrorCode::UnknownTopicOrPartition
    };
    DescribeTopicPartitionsResponseTopic {
        error_code: error.into(),
        name: Some(name),
        is_internal: is_internal_topic(name),
        topic_authorized_operations: ALL_TOPIC_OPERATIONS,
        ..Default::default()
    }
}

fn partition(
    image: &Image,
    brokers: &Brokers,
    index: usize,
    state: &PartitionState,
) -> DescribeTopicPartitionsResponsePartition {
    let ids = |brokers: &[towpath_model::BrokerId]| brokers.iter().map(|b| b.0).collect();
    let leader_id = brokers.number(state.leader);
    let error = if leader_id < 0 { ErrorCode::LeaderNotAvailable } else { ErrorCode::None };
    DescribeTopicPartitionsResponsePartition {
        error_code: error.into(),
        partition_index: i32::try_from(index).unwrap_or(i32::MAX),
        leader_id,
        leader_epoch: state.leader_epoch.0,
        replica_nodes: ids(&state.replicas),
        isr_nodes: ids(&state.in_sync),
        eligible_leader_replicas: Some(ids(&state.eligible)),
        last_known_elr: Some(Vec::new()),
        offline_replicas: brokers::offline_replicas(image, state),
    }
}

fn refuse(incoming: &Incoming, names: &BTreeSet<&str>) -> Handled {
    let topics = names.iter().map(|name| DescribeTopicPartitionsResponseTopic {
        error_code: ErrorCode::InvalidRequest.into(),
        name: Some(name),
        ..Default::default()
    });
    let topics = topics.collect();
    incoming.answer(&DescribeTopicPartitionsResponse { topics, ..Default::default() })
}
