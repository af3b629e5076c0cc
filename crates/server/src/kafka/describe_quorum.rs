//! DescribeQuorum (KIP-595, KIP-836, KIP-853): who decides on metadata, and how far its followers are.
//!
//! Kafka's partition of the metadata stands for our log of entries: its offsets are one below our
//! indexes, so that an end here is the number of the last entry. The leader of the quorum is asked,
//! since only it knows how far the others are; where it does not answer, they are unknown (−1).

use std::time::Duration;

use towpath_driver::{Clock, QuorumReport, ReportedMember};
use towpath_metadata::Image;
use towpath_model::BrokerId;
use towpath_protocol::ErrorCode;
use towpath_protocol::messages::{
    DescribeQuorumRequest, DescribeQuorumResponse, DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseReplicaState, DescribeQuorumResponseTopicData, Listener,
    Node as QuorumNode,
};

use super::{Handled, Incoming, wire_id};
use crate::node::Node;

const METADATA_TOPIC: &str = "__cluster_metadata";
/// From this version on members are named with their directories and addresses.
const ADDRESSES_SINCE: i16 = 2;
/// The name under which brokers register where other brokers reach them.
const PEER_LISTENER: &str = "PEER";
/// How long the leader of the quorum may take to say how far the others are.
const ASK_MAX: Duration = Duration::from_secs(2);

pub(super) async fn handle(node: &Node, incoming: &Incoming) -> Handled {
    let request: DescribeQuorumRequest<'_> = incoming.decode()?;
    if !is_about_metadata(&request) {
        return refuse(incoming, &request);
    }
    let report = node.ask_quorum(ASK_MAX).await;
    let image = node.driver().image();
    let now = node.driver().clock().now().wall.0;
    let states = |voters: bool| {
        let members = report.members.iter().filter(move |member| member.is_voter == voters);
        let state = |member| replica_state(&image, &report, member, now, incoming.version);
        members.map(state).collect()
    };
    let voters = report.members.iter().filter(|member| member.is_voter);
    let addresses = voters.filter_map(|member| {
        let at = image.broker(member.id.broker())?.address(PEER_LISTENER)?;
        let listener = Listener { name: PEER_LISTENER, host: &at.host, port: at.port };
        Some(QuorumNode { node_id: member.id.broker().0, listeners: vec![listener] })
    });
    let nodes = if ADDRESSES_SINCE <= incoming.version { addresses.collect() } else { Vec::new() };
    let partition = DescribeQuorumResponsePartitionData {
        leader_id: report.leader.map_or(-1, |leader| leader.broker().0),
        leader_epoch: i32::try_from(report.term.0).unwrap_or(i32::MAX),
        high_watermark: as_offset(report.commit.0),
        current_voters: states(true),
        observers: states(false),
        error_message: None,
        ..Default::default()
    };
    let topic =
        DescribeQuorumResponseTopicData { topic_name: METADATA_TOPIC, partitions: vec![partition] };
    incoming.answer(&DescribeQuorumResponse {
        error_message: None,
        topics: vec![topic],
        nodes,
        ..Default::default()
    })
}

fn is_about_metadata(request: &DescribeQuorumRequest<'_>) -> bool {
    let [topic] = &request.topics[..] else { return false };
    let [partition] = &topic.partitions[..] else { return false };
    topic.topic_name == METADATA_TOPIC && partition.partition_index == 0
}

fn replica_state(
    image: &Image,
    report: &QuorumReport,
    member: &ReportedMember,
    now: i64,
    version: i16,
) -> DescribeQuorumResponseReplicaState {
    let broker = member.id.broker();
    let is_caught_up = member.matched.is_some_and(|matched| report.last_index <= matched);
    DescribeQuorumResponseReplicaState {
        replica_id: broker.0,
        replica_directory_id: if ADDRESSES_SINCE <= version {
            directory_of(image, broker)
        } else {
            towpath_protocol::Uuid::ZERO
        },
        log_end_offset: member.matched.map_or(-1, |matched| as_offset(matched.0)),
        last_caught_up_timestamp: if is_caught_up { now } else { -1 },
        ..Default::default()
    }
}

/// The directory that the metadata lies in: the first one.
fn directory_of(image: &Image, broker: BrokerId) -> towpath_protocol::Uuid {
    let directory = image.broker(broker).and_then(|broker| broker.directories.first().copied());
    directory.map_or(towpath_protocol::Uuid::ZERO, wire_id)
}

fn as_offset(index: u64) -> i64 {
    i64::try_from(index).unwrap_or(i64::MAX)
}

fn refuse(incoming: &Incoming, request: &DescribeQuorumRequest<'_>) -> Handled {
    let topics = request.topics.iter().map(|topic| DescribeQuorumResponseTopicData {
        topic_name: topic.topic_name,
        partitions: topic
            .partitions
            .iter()
            .map(|partition| DescribeQuorumResponsePartitionData {
                partition_index: partition.partition_index,
                error_code: ErrorCode::UnknownTopicOrPartition.into(),
                error_message: None,
                ..Default::default()
            })
            .collect(),
    });
    incoming.answer(&DescribeQuorumResponse {
        error_message: None,
        topics: topics.collect(),
        ..Default::default()
    })
}
