//! Metadata: which topics there are, and who leads their partitions.
//!
//! A topic that is asked for and missing is created first where auto-creation is on; the answer
//! then already has it, where Kafka would make the client ask again.

use std::collections::HashMap;

use towpath_metadata::{Image, NewTopic, PartitionState, Refusal, Topic};
use towpath_model::{TopicName, Uuid, is_internal_topic};
use towpath_protocol::ErrorCode;
use towpath_protocol::messages::{
    MetadataRequest, MetadataResponse, MetadataResponseBroker, MetadataResponsePartition,
    MetadataResponseTopic,
};

use super::{Handled, Incoming, errors, topic_id, wire_id};
use crate::node::{Node, random_uuid};

/// Up to this version every request may create topics.
const ALWAYS_CREATES_UNTIL: i16 = 3;
/// From this version on topics can be asked for by id.
const BY_ID_SINCE: i16 = 12;
/// From this version on an id can be given, but not yet used.
const HAS_ID_SINCE: i16 = 10;

/// What everybody may do to the cluster and to topics while there are no ACLs, as Kafka answers
/// without an authorizer.
pub(super) const ALL_CLUSTER_OPERATIONS: i32 = 8096;
pub(super) const ALL_TOPIC_OPERATIONS: i32 = 3576;

/// Which topics are asked for.
enum Wanted<'a> {
    All,
    Names(Vec<&'a str>),
    Ids(Vec<Uuid>),
    /// The request as a whole makes no sense: its topics get this error.
    Refused(ErrorCode, Vec<(Option<&'a str>, Uuid)>),
}

pub(super) async fn handle(node: &Node, incoming: &Incoming) -> Handled {
    let request: MetadataRequest<'_> = incoming.decode()?;
    let wanted = wanted(incoming.version, &request);
    let mut uncreated = HashMap::new();
    if let Wanted::Names(names) = &wanted
        && (incoming.version <= ALWAYS_CREATES_UNTIL || request.allow_auto_topic_creation)
        && node.broker_config().auto_create_topics
    {
        uncreated = create_missing(node, names).await;
    }
    answer(node, incoming, &request, &wanted, &uncreated)
}

fn wanted<'a>(version: i16, request: &MetadataRequest<'a>) -> Wanted<'a> {
    let Some(topics) = &request.topics else { return Wanted::All };
    if topics.is_empty() && version == 0 {
        return Wanted::All;
    }
    let has_id = topics.iter().any(|topic| !topic.topic_id.is_zero());
    let has_null = topics.iter().any(|topic| topic.name.is_none());
    let entries = || topics.iter().map(|t| (t.name, topic_id(t.topic_id))).collect();
    if (HAS_ID_SINCE..BY_ID_SINCE).contains(&version) && (has_id || has_null) {
        return Wanted::Refused(ErrorCode::InvalidRequest, entries());
    }
    if topics.iter().any(|topic| topic.name.is_none() && topic.topic_id.is_zero()) {
        return Wanted::Refused(ErrorCode::UnknownServerError, entries());
    }
    if has_id {
        // As in Kafka, the id counts where there are ids, and entries without one are left out.
        let mut ids: Vec<Uuid> = topics
            .iter()
            .filter(|topic| !topic.topic_id.is_zero())
            .map(|topic| topic_id(topic.topic_id))
            .collect();
        ids.sort_unstable();
        ids.dedup();
        return Wanted::Ids(ids);
    }
    let mut names: Vec<&str> = topics.iter().filter_map(|topic| topic.name).collect();
    names.sort_unstable();
    names.dedup();
    Wanted::Names(names)
}

/// Creates what is missing; returns what could not be, and why.
async fn create_missing(node: &Node, names: &[&str]) -> HashMap<String, ErrorCode> {
    let missing: Vec<NewTopic> = {
        let image = node.driver().image();
        names
            .iter()
            .filter(|name| image.topic(name).is_none() && TopicName::new(name).is_ok())
            .filter(|name| !is_internal_topic(name))
            .map(|name| NewTopic::named(name, random_uuid()))
            .collect()
    };
    if missing.is_empty() {
        return HashMap::new();
    }
    let asked: Vec<String> = missing.iter().map(|topic| topic.name.clone()).collect();
    match node.create_topics(missing).await {
        Ok(results) => results
            .into_iter()
            .filter_map(|(name, result)| match result {
                Ok(_) | Err(Refusal::TopicExists(_)) => None,
                Err(refusal) => Some((name, errors::of_metadata_refusal(&refusal))),
            })
            .collect(),
        Err(_) => {
            // The client asks again; by then there may be a controller.
            asked.into_iter().map(|name| (name, ErrorCode::LeaderNotAvailable)).collect()
        }
    }
}

fn answer(
    node: &Node,
    incoming: &Incoming,
    request: &MetadataRequest<'_>,
    wanted: &Wanted<'_>,
    uncreated: &HashMap<String, ErrorCode>,
) -> Handled {
    let image = node.driver().image();
    let mut topics: Vec<MetadataResponseTopic<'_>> = match wanted {
        Wanted::All => image.topics().map(|topic| found(topic, request)).collect(),
        Wanted::Names(names) => {
            names.iter().map(|name| by_name(&image, name, request, uncreated)).collect()
        }
        Wanted::Ids(ids) => ids.iter().map(|id| by_id(&image, *id, request)).collect(),
        Wanted::Refused(error, entries) => {
            let refused = entries.iter().map(|(name, id)| MetadataResponseTopic {
                error_code: (*error).into(),
                name: name.or(Some("")),
                topic_id: wire_id(*id),
                ..Default::default()
            });
            let topics = refused.collect();
            return incoming.answer(&MetadataResponse { topics, ..Default::default() });
        }
    };
    let (host, port) = incoming.peer.address_of(node);
    let node_id = node.driver().broker_id().0;
    for offline in node.driver().offline_partitions() {
        let topic = topics.iter_mut().find(|topic| topic.topic_id == wire_id(offline.id.topic));
        let partitions = topic.into_iter().flat_map(|topic| &mut topic.partitions);
        for partition in partitions.filter(|p| p.partition_index == offline.id.partition.0) {
            partition.offline_replicas.push(node_id);
        }
    }
    incoming.answer(&MetadataResponse {
        brokers: vec![MetadataResponseBroker { node_id, host: &host, port, rack: None }],
        cluster_id: Some(&node.driver().identity().cluster_id),
        controller_id: node_id,
        topics,
        cluster_authorized_operations: if request.include_cluster_authorized_operations {
            ALL_CLUSTER_OPERATIONS
        } else {
            i32::MIN
        },
        ..Default::default()
    })
}

fn by_name<'a>(
    image: &'a Image,
    name: &'a str,
    request: &MetadataRequest<'_>,
    uncreated: &HashMap<String, ErrorCode>,
) -> MetadataResponseTopic<'a> {
    if let Some(topic) = image.topic(name) {
        return found(topic, request);
    }
    let error = match uncreated.get(name) {
        Some(error) => *error,
        None if TopicName::new(name).is_err() => ErrorCode::InvalidTopicException,
        None => ErrorCode::UnknownTopicOrPartition,
    };
    MetadataResponseTopic {
        error_code: error.into(),
        name: Some(name),
        is_internal: is_internal_topic(name),
        ..Default::default()
    }
}

fn by_id<'a>(
    image: &'a Image,
    id: Uuid,
    request: &MetadataRequest<'_>,
) -> MetadataResponseTopic<'a> {
    match image.topic_by_id(id) {
        Some(topic) => found(topic, request),
        None => MetadataResponseTopic {
            error_code: ErrorCode::UnknownTopicId.into(),
            name: None,
            topic_id: wire_id(id),
            ..Default::default()
        },
    }
}

fn found<'a>(topic: &'a Topic, request: &MetadataRequest<'_>) -> MetadataResponseTopic<'a> {
    MetadataResponseTopic {
        name: Some(topic.name.as_str()),
        topic_id: wire_id(topic.id),
        is_internal: topic.internal,
        partitions: (0..).zip(&topic.partitions).map(|(at, p)| partition(at, p)).collect(),
        topic_authorized_operations: if request.include_topic_authorized_operations {
            ALL_TOPIC_OPERATIONS
        } else {
            i32::MIN
        },
        ..Default::default()
    }
}

fn partition(index: i32, state: &PartitionState) -> MetadataResponsePartition {
    let error =
        if state.leader.is_none() { ErrorCode::LeaderNotAvailable } else { ErrorCode::None };
    MetadataResponsePartition {
        error_code: error.into(),
        partition_index: index,
        leader_id: state.leader.map_or(-1, |leader| leader.0),
        leader_epoch: state.leader_epoch.0,
        replica_nodes: state.replicas.iter().map(|replica| replica.0).collect(),
        isr_nodes: state.in_sync.iter().map(|replica| replica.0).collect(),
        offline_replicas: Vec::new(),
    }
}
