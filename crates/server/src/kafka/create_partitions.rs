//! CreatePartitions: more partitions for a topic. Keys then map to other partitions than before.

use towpath_metadata::{MorePartitions, Refusal, Reply, Request};
use towpath_model::BrokerId;
use towpath_protocol::ErrorCode;
use towpath_protocol::messages::{
    CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopicResult,
};

use super::{Handled, Incoming, errors};
use crate::node::Node;

pub(super) async fn handle(node: &Node, incoming: &Incoming) -> Handled {
    let request: CreatePartitionsRequest<'_> = incoming.decode()?;
    let topics = request.topics.iter().map(|topic| MorePartitions {
        name: topic.name.to_owned(),
        count: topic.count,
        assignments: topic.assignments.as_ref().map(|assignments| {
            let brokers = assignments.iter().map(|a| a.broker_ids.iter().copied().map(BrokerId));
            brokers.map(Iterator::collect).collect()
        }),
    });
    let topics = topics.collect();
    let create = Request::CreatePartitions { topics, validate_only: request.validate_only };
    match node.ask_metadata(create).await {
        Ok(Reply::CreatedPartitions(results)) => answer(incoming, &results),
        Ok(_) => refuse_all(incoming, &request, ErrorCode::UnknownServerError),
        Err(unavailable) => {
            refuse_all(incoming, &request, errors::of_unavailable_controller(unavailable))
        }
    }
}

fn answer(incoming: &Incoming, results: &[(String, Result<i32, Refusal>)]) -> Handled {
    let messages: Vec<Option<String>> =
        results.iter().map(|(_, result)| result.as_ref().err().map(Refusal::to_string)).collect();
    let results = results.iter().zip(&messages).map(|((name, result), message)| {
        let error = result.as_ref().err().map_or(ErrorCode::None, errors::of_metadata_refusal);
        CreatePartitionsTopicResult {
            name,
            error_code: error.into(),
            error_message: message.as_deref(),
        }
    });
    let results = results.collect();
    incoming.answer(&CreatePartitionsResponse { results, ..Default::default() })
}

fn refuse_all(
    incoming: &Incoming,
    request: &CreatePartitionsRequest<'_>,
    error: ErrorCode,
) -> Handled {
    let results = request.topics.iter().map(|topic| CreatePartitionsTopicResult {
        name: topic.name,
        error_code: error.into(),
        error_message: None,
    });
    let results = results.collect();
    incoming.answer(&CreatePartitionsResponse { results, ..Default::default() })
}
