//! ListPartitionReassignments (KIP-455): which replicas are on their way.

use std::collections::{BTreeMap, BTreeSet};

use towpath_metadata::{Image, PartitionState};
use towpath_model::{BrokerId, PartitionIndex, TopicPartition};
use towpath_protocol::messages::{
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment, OngoingTopicReassignment,
};

use super::{Handled, Incoming};
use crate::node::Node;

pub(super) fn handle(node: &Node, incoming: &Incoming) -> Handled {
    let request: ListPartitionReassignmentsRequest<'_> = incoming.decode()?;
    let image = node.driver().image();
    let mut topics: BTreeMap<&str, Vec<OngoingPartitionReassignment>> = BTreeMap::new();
    match &request.topics {
        None => {
            for (topic, id, state) in image.reassignments() {
                topics.entry(topic.name.as_str()).or_default().push(ongoing(id.partition, state));
            }
        }
        Some(asked) => {
            let named = asked.iter().flat_map(|topic| {
                topic.partition_indexes.iter().map(|index| (topic.name, PartitionIndex(*index)))
            });
            for (name, index) in named.collect::<BTreeSet<_>>() {
                if let Some((name, state)) = reassigning(&image, name, index) {
                    topics.entry(name).or_default().push(ongoing(index, state));
                }
            }
        }
    }
    let topics = topics
        .into_iter()
        .map(|(name, partitions)| OngoingTopicReassignment { name, partitions })
        .collect();
    incoming.answer(&ListPartitionReassignmentsResponse {
        error_message: None,
        topics,
        ..Default::default()
    })
}

/// A partition whose replicas come or go; what is not there is passed over, as in Kafka.
fn reassigning<'i>(
    image: &'i Image,
    name: &str,
    partition: PartitionIndex,
) -> Option<(&'i str, &'i PartitionState)> {
    let topic = image.topic(name)?;
    let state = image.partition(TopicPartition { topic: topic.id, partition })?;
    state.is_reassigning().then_some((topic.name.as_str(), state))
}

fn ongoing(index: PartitionIndex, state: &PartitionState) -> OngoingPartitionReassignment {
    let ids = |brokers: &[BrokerId]| brokers.iter().map(|broker| broker.0).collect();
    OngoingPartitionReassignment {
        partition_index: index.0,
        replicas: ids(&state.replicas),
        adding_replicas: ids(&state.adding),
        removing_replicas: ids(&state.removing),
    }
}
