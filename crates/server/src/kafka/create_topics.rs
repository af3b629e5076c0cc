//! CreateTopics.

use towpath_metadata::{CreatedTopic, NewTopic, Refusal, Reply, Request};
use towpath_model::{BrokerId, PartitionIndex};
use towpath_protocol::ErrorCode;
use towpath_protocol::messages::{
    CreatableTopic, CreatableTopicConfigs, CreatableTopicResult, CreateTopicsRequest,
    CreateTopicsResponse,
};

use super::{Handled, Incoming, errors, wire_id};
use crate::node::{Node, random_uuid};

pub(super) async fn handle(node: &Node, incoming: &Incoming) -> Handled {
    let request: CreateTopicsRequest<'_> = incoming.decode()?;
    if request.timeout_ms <= 0 {
        return refuse_all(incoming, &request, ErrorCode::RequestTimedOut);
    }
    let topics = request.topics.iter().map(to_new_topic).collect();
    let create = Request::CreateTopics { topics, validate_only: request.validate_only };
    match node.ask_metadata(create).await {
        Ok(Reply::CreatedTopics(results)) => answer(incoming, &results),
        Ok(_) => refuse_all(incoming, &request, ErrorCode::UnknownServerError),
        Err(unavailable) => {
            refuse_all(incoming, &request, errors::of_unavailable_controller(unavailable))
        }
    }
}

fn to_new_topic(topic: &CreatableTopic<'_>) -> NewTopic {
    NewTopic {
        partitions: topic.num_partitions,
        replication_factor: topic.replication_factor,
        assignments: topic
            .assignments
            .iter()
            .map(|assignment| {
                let brokers = assignment.broker_ids.iter().copied().map(BrokerId).collect();
                (PartitionIndex(assignment.partition_index), brokers)
            })
            .collect(),
        configs: topic
            .configs
            .iter()
            .map(|config| (config.name.to_owned(), config.value.map(str::to_owned)))
            .collect(),
        ..NewTopic::named(topic.name, random_uuid())
    }
}

fn answer(incoming: &Incoming, results: &[(String, Result<CreatedTopic, Refusal>)]) -> Handled {
    let messages: Vec<Option<String>> =
        results.iter().map(|(_, result)| result.as_ref().err().map(Refusal::to_string)).collect();
    let topics = results.iter().zip(&messages).map(|((name, result), message)| match result {
        Ok(created) => CreatableTopicResult {
            name,
            topic_id: wire_id(created.id),
            num_partitions: created.partitions,
            replication_factor: created.replication_factor,
            configs: Some(
                created
                    .configs
                    .iter()
                    .map(|config| CreatableTopicConfigs {
                        name: config.name(),
                        value: config.value.as_deref(),
                        read_only: config.read_only,
                        config_source: config.source.wire_id(),
                        is_sensitive: config.is_sensitive(),
                    })
                    .collect(),
            ),
            error_message: None,
            ..Default::default()
        },
        Err(refusal) => CreatableTopicResult {
            name,
            error_code: errors::of_metadata_refusal(refusal).into(),
            error_message: message.as_deref(),
            num_partitions: -1,
            replication_factor: -1,
            configs: Some(Vec::new()),
            ..Default::default()
        },
    });
    incoming.answer(&CreateTopicsResponse { topics: topics.collect(), ..Default::default() })
}

fn refuse_all(incoming: &Incoming, request: &CreateTopicsRequest<'_>, error: ErrorCode) -> Handled {
    let topics = request.topics.iter().map(|topic| CreatableTopicResult {
        name: topic.name,
        error_code: error.into(),
        error_message: None,
        num_partitions: -1,
        replication_factor: -1,
        configs: Some(Vec::new()),
        ..Default::default()
    });
    incoming.answer(&CreateTopicsResponse { topics: topics.collect(), ..Default::default() })
}
