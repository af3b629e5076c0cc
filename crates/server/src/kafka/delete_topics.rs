//! DeleteTopics, by name or by id.

use towpath_metadata::{DeletedTopic, Refusal, Reply, Request, TopicRef};
use towpath_model::Uuid;
use towpath_protocol::ErrorCode;
use towpath_protocol::messages::{DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse};

use super::{Handled, Incoming, errors, topic_id, wire_id};
use crate::node::Node;

/// From this version on topics can be named by id.
const IDS_SINCE: i16 = 6;

pub(super) async fn handle(node: &Node, incoming: &Incoming) -> Handled {
    let request: DeleteTopicsRequest<'_> = incoming.decode()?;
    let topics = named(incoming.version, &request);
    if request.timeout_ms <= 0 {
        return refuse_all(incoming, &topics, ErrorCode::RequestTimedOut);
    }
    match node.ask_metadata(Request::DeleteTopics(topics.clone())).await {
        Ok(Reply::DeletedTopics(results)) => answer(incoming, &results),
        Ok(_) => refuse_all(incoming, &topics, ErrorCode::UnknownServerError),
        Err(unavailable) => {
            refuse_all(incoming, &topics, errors::of_unavailable_controller(unavailable))
        }
    }
}

fn named(version: i16, request: &DeleteTopicsRequest<'_>) -> Vec<TopicRef> {
    if version < IDS_SINCE {
        let names = request.topic_names.iter();
        return names.map(|n| TopicRef { name: Some((*n).to_owned()), id: None }).collect();
    }
    let topics = request.topics.iter().map(|topic| TopicRef {
        name: topic.name.map(str::to_owned),
        id: Some(topic_id(topic.topic_id)).filter(|id| !id.is_zero()),
    });
    topics.collect()
}

fn answer(incoming: &Incoming, results: &[(TopicRef, Result<DeletedTopic, Refusal>)]) -> Handled {
    let messages: Vec<Option<String>> =
        results.iter().map(|(_, result)| result.as_ref().err().map(Refusal::to_string)).collect();
    let responses = results.iter().zip(&messages).map(|((asked, result), message)| match result {
        Ok(deleted) => DeletableTopicResult {
            name: Some(deleted.name.as_str()),
            topic_id: wire_id(deleted.id),
            error_message: None,
            ..Default::default()
        },
        Err(refusal) => DeletableTopicResult {
            name: asked.name.as_deref(),
            topic_id: wire_id(asked.id.unwrap_or(Uuid::ZERO)),
            error_code: errors::of_metadata_refusal(refusal).into(),
            error_message: message.as_deref(),
        },
    });
    let responses = responses.collect();
    incoming.answer(&DeleteTopicsResponse { responses, ..Default::default() })
}

fn refuse_all(incoming: &Incoming, topics: &[TopicRef], error: ErrorCode) -> Handled {
    let responses = topics.iter().map(|topic| DeletableTopicResult {
        name: topic.name.as_deref(),
        topic_id: wire_id(topic.id.unwrap_or(Uuid::ZERO)),
        error_code: error.into(),
        error_message: None,
    });
    let responses = responses.collect();
    incoming.answer(&DeleteTopicsResponse { responses, ..Default::default() })
}
