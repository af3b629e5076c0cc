//! AlterPartitionReassignments (KIP-455, KIP-860): replicas move to other brokers, or do not after all.

use towpath_metadata::{Reassignment, Reply, Request};
use towpath_model::{BrokerId, PartitionIndex};
use towpath_protocol::ErrorCode;
use towpath_protocol::messages::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse, ReassignableTopicResponse,
};

use super::outcomes::by_topic;
use super::{Handled, Incoming, errors};
use crate::node::Node;

pub(super) async fn handle(node: &Node, incoming: &Incoming) -> Handled {
    let request: AlterPartitionReassignmentsRequest<'_> = incoming.decode()?;
    let factor_may_change = request.allow_replication_factor_change;
    let reassignments = request.topics.iter().flat_map(|topic| {
        topic.partitions.iter().map(|partition| Reassignment {
            partition: (topic.name.to_owned(), PartitionIndex(partition.partition_index)),
            target: partition
                .replicas
                .as_ref()
                .map(|brokers| brokers.iter().copied().map(BrokerId).collect()),
        })
    });
    let reassignments = reassignments.collect();
    let alter = Request::AlterReassignments { reassignments, factor_may_change, by_hand: true };
    let error = match node.ask_metadata(alter).await {
        Ok(Reply::AlteredReassignments(outcomes)) => {
            let topics = by_topic(&outcomes);
            let responses = topics.iter().map(|(name, partitions)| ReassignableTopicResponse {
                name,
                partitions: partitions
                    .iter()
                    .map(|outcome| ReassignablePartitionResponse {
                        partition_index: outcome.index,
                        error_code: outcome.error.into(),
                        error_message: outcome.message.as_deref(),
                    })
                    .collect(),
            });
            return incoming.answer(&AlterPartitionReassignmentsResponse {
                allow_replication_factor_change: factor_may_change,
                responses: responses.collect(),
                ..Default::default()
            });
        }
        Ok(_) => ErrorCode::UnknownServerError,
        Err(unavailable) => errors::of_unavailable_controller(unavailable),
    };
    incoming.answer(&AlterPartitionReassignmentsResponse {
        allow_replication_factor_change: factor_may_change,
        error_code: error.into(),
        ..Default::default()
    })
}
