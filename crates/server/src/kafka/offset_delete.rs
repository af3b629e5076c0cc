//! OffsetDelete: forget offsets of topics that no member of the group is subscribed to (KIP-496).

use std::sync::Arc;

use towpath_coordinator::groups::{DeletedTopic, Reply, Request};
use towpath_model::PartitionIndex;
use towpath_protocol::ErrorCode;
use towpath_protocol::messages::{
    OffsetDeleteRequest, OffsetDeleteResponse, OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
};

use super::{Handled, Incoming, errors};
use crate::node::Node;

pub(super) async fn handle(node: &Node, incoming: &Incoming) -> Handled {
    let request: OffsetDeleteRequest<'_> = incoming.decode()?;
    let topics: Vec<(Arc<str>, Vec<PartitionIndex>)> = request
        .topics
        .iter()
        .map(|topic| {
            let partitions = topic.partitions.iter().map(|p| PartitionIndex(p.partition_index));
            (topic.name.into(), partitions.collect())
        })
        .collect();
    let delete = Request::DeleteOffsets { group: request.group_id.into(), topics };
    match node.ask_group(request.group_id, delete).await {
        Ok(Reply::DeleteOffsets(Ok(deleted))) => answer(node, incoming, &deleted),
        Ok(Reply::DeleteOffsets(Err(refusal))) => {
            refuse(incoming, errors::of_group_refusal(refusal))
        }
        Ok(_) => refuse(incoming, ErrorCode::UnknownServerError),
        Err(unavailable) => refuse(incoming, errors::of_unavailable_coordinator(unavailable)),
    }
}

fn answer(node: &Node, incoming: &Incoming, deleted: &[DeletedTopic]) -> Handled {
    let topics = deleted.iter().map(|topic| OffsetDeleteResponseTopic {
        name: &topic.name,
        partitions: topic
            .partitions
            .iter()
            .map(|(partition, result)| {
                let exists = node.driver().partition_of(&topic.name, *partition).is_some();
                let error = match result {
                    Err(refusal) => errors::of_group_refusal(*refusal),
                    Ok(()) if exists => ErrorCode::None,
                    Ok(()) => ErrorCode::UnknownTopicOrPartition,
                };
                OffsetDeleteResponsePartition {
                    partition_index: partition.0,
                    error_code: error.into(),
                }
            })
            .collect(),
    });
    incoming.answer(&OffsetDeleteResponse { topics: topics.collect(), ..Default::default() })
}

fn refuse(incoming: &Incoming, error: ErrorCode) -> Handled {
    incoming.answer(&OffsetDeleteResponse { error_code: error.into(), ..Default::default() })
}
