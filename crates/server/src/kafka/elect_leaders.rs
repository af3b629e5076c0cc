//! ElectLeaders (KIP-183, KIP-460): preferred leaders lead again, or, where nobody can lead without
//! loss, somebody does all the same.

use towpath_metadata::{ElectionKind, Reply, Request};
use towpath_model::PartitionIndex;
use towpath_protocol::ErrorCode;
use towpath_protocol::messages::{
    ElectLeadersRequest, ElectLeadersResponse, PartitionResult, ReplicaElectionResult,
};

use super::outcomes::by_topic;
use super::{Handled, Incoming, errors};
use crate::node::Node;

/// From this version on there is an error for the request as a whole.
const ERROR_SINCE: i16 = 1;

pub(super) async fn handle(node: &Node, incoming: &Incoming) -> Handled {
    let request: ElectLeadersRequest<'_> = incoming.decode()?;
    let kind = match request.election_type {
        0 => ElectionKind::Preferred,
        1 => ElectionKind::Unclean,
        _ => return refuse(incoming, &request, ErrorCode::InvalidRequest),
    };
    let partitions = request.topic_partitions.as_ref().map(|topics| {
        let named = topics.iter().flat_map(|topic| {
            let name = |index: &i32| (topic.topic.to_owned(), PartitionIndex(*index));
            topic.partitions.iter().map(name)
        });
        named.collect()
    });
    match node.ask_metadata(Request::ElectLeaders { kind, partitions }).await {
        Ok(Reply::ElectedLeaders(outcomes)) => {
            let topics = by_topic(&outcomes);
            let results = topics.iter().map(|(topic, partitions)| ReplicaElectionResult {
                topic,
                partition_result: partitions
                    .iter()
                    .map(|outcome| PartitionResult {
                        partition_id: outcome.index,
                        error_code: outcome.error.into(),
                        error_message: outcome.message.as_deref(),
                    })
                    .collect(),
            });
            let replica_election_results = results.collect();
            incoming
                .answer(&ElectLeadersResponse { replica_election_results, ..Default::default() })
        }
        Ok(_) => refuse(incoming, &request, ErrorCode::UnknownServerError),
        Err(unavailable) => {
            refuse(incoming, &request, errors::of_unavailable_controller(unavailable))
        }
    }
}

fn refuse(incoming: &Incoming, request: &ElectLeadersRequest<'_>, error: ErrorCode) -> Handled {
    let topics = request.topic_partitions.iter().flatten();
    let results = topics.map(|topic| ReplicaElectionResult {
        topic: topic.topic,
        partition_result: topic
            .partitions
            .iter()
            .map(|index| PartitionResult {
                partition_id: *index,
                error_code: error.into(),
                error_message: None,
            })
            .collect(),
    });
    let whole = if ERROR_SINCE <= incoming.version { error } else { ErrorCode::None };
    incoming.answer(&ElectLeadersResponse {
        error_code: whole.into(),
        replica_election_results: results.collect(),
        ..Default::default()
    })
}
