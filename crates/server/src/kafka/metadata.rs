//! Metadata: which topics there are, and who leads their partitions.
//!
//! A topic that is asked for and missing is created first where auto-creation is on; the answer
//! then already has it, where Kafka would make the client ask again.

use std::collections::HashMap;

use towpath_metadata::{Image, NewTopic, PartitionState, Refusal, Topic};
use towpath_model::{BrokerId, TopicName, Uuid, is_internal_topic};
use towpath_protocol::ErrorCode;
use towpath_protocol::messages::{
    MetadataRequest, MetadataResponse, MetadataResponseBroker, MetadataResponsePartition,
    MetadataResponseTopic,
};

use super::brokers::{self, Brokers};
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
    // Not while the image is held: whoever changes it holds the quorum.
    let controller = node.driver().controller();
    let offline = node.driver().offline_partitions();
    let image = node.driver().image();
    let brokers = Brokers::of(node, &incoming.peer, &image);
    let view = View { image: &image, brokers: &brokers, request, version: incoming.version };
    let mut topics: Vec<MetadataResponseTopic<'_>> = match wanted {
        Wanted::All => image.topics().map(|topic| view.found(topic)).collect(),
        Wanted::Names(names) => names.iter().map(|name| view.by_name(name, uncreated)).collect(),
        Wanted::Ids(ids) => ids.iter().map(|id| view.by_id(*id)).collect(),
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
    let me = node.driver().broker_id().0;
    for offline in offline {
        let topic = topics.iter_mut().find(|topic| topic.topic_id == wire_id(offline.id.topic));
        let partitions = topic.into_iter().flat_map(|topic| &mut topic.partitions);
        for partition in partitions.filter(|p| p.partition_index == offline.id.partition.0) {
            if !partition.offline_replicas.contains(&me) {
                partition.offline_replicas.push(me);
            }
        }
    }
    let listed = brokers.active().map(|(id, broker)| MetadataResponseBroker {
        node_id: id.0,
        host: &broker.host,
        port: broker.port,
        rack: broker.rack.as_deref(),
    });
    incoming.answer(&MetadataResponse {
        brokers: listed.collect(),
        cluster_id: Some(&node.driver().identity().cluster_id),
        controller_id: brokers.number(controller),
        topics,
        cluster_authorized_operations: if request.include_cluster_authorized_operations {
            ALL_CLUSTER_OPERATIONS
        } else {
            i32::MIN
        },
        ..Default::default()
    })
}

/// What an answer is made from.
struct View<'a> {
    image: &'a Image,
    brokers: &'a Brokers,
    request: &'a MetadataRequest<'a>,
    version: i16,
}

impl<'a> View<'a> {
    fn by_name(
        &self,
        name: &'a str,
        uncreated: &HashMap<String, ErrorCode>,
    ) -> MetadataResponseTopic<'a> {
        if let Some(topic) = self.image.topic(name) {
            return self.found(topic);
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

    fn by_id(&self, id: Uuid) -> MetadataResponseTopic<'a> {
        match self.image.topic_by_id(id) {
            Some(topic) => self.found(topic),
            None => MetadataResponseTopic {
                error_code: ErrorCode::UnknownTopicId.into(),
                name: None,
                topic_id: wire_id(id),
                ..Default::default()
            },
        }
    }

    fn found(&self, topic: &'a Topic) -> MetadataResponseTopic<'a> {
        MetadataResponseTopic {
            name: Some(topic.name.as_str()),
            topic_id: wire_id(topic.id),
            is_internal: topic.internal,
            partitions: (0..).zip(&topic.partitions).map(|(at, p)| self.partition(at, p)).collect(),
            topic_authorized_operations: if self.request.include_topic_authorized_operations {
                ALL_TOPIC_OPERATIONS
            } else {
                i32::MIN
            },
            ..Default::default()
        }
    }

    fn partition(&self, index: i32, state: &PartitionState) -> MetadataResponsePartition {
        let leader_id = self.brokers.number(state.leader);
        // The first version names only replicas that are there, and says when it leaves some out.
        let is_listed = |id: &&BrokerId| self.version != 0 || self.brokers.get(**id).is_some();
        let listed = |ids: &[BrokerId]| ids.iter().filter(is_listed).map(|id| id.0).collect();
        let replica_nodes: Vec<i32> = listed(&state.replicas);
        let error = if leader_id < 0 {
            ErrorCode::LeaderNotAvailable
        } else if replica_nodes.len() < state.replicas.len() {
            ErrorCode::ReplicaNotAvailable
        } else {
            ErrorCode::None
        };
        MetadataResponsePartition {
            error_code: error.into(),
            partition_index: index,
            leader_id,
            leader_epoch: state.leader_epoch.0,
            replica_nodes,
            isr_nodes: listed(&state.in_sync),
            offline_replicas: brokers::offline_replicas(self.image, state),
        }
    }
}
