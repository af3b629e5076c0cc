//! What members ask a coordinator, and the bytes that are theirs alone: subscriptions and
//! assignments.

use std::sync::Arc;
use std::time::Duration;

use towpath_coordinator::groups::{
    CommitOffsets, CommitPartition, CommitTopic, FetchOffsets, FetchTopic, Heartbeat, Join,
    JoinedMember, Leave, Leaving, Request, Sync,
};
use towpath_model::{Generation, Offset, PartitionIndex, TopicId, Uuid};

use super::members::Member;

/// The group.
pub(super) const GROUP: &str = "billing";

/// What it reads.
pub(super) const TOPIC: &str = "orders";

/// How long a member may take to rejoin.
pub(super) const REBALANCE_TIMEOUT: Duration = Duration::from_secs(8);

fn group() -> Arc<str> {
    GROUP.into()
}

/// The head of Kafka's ConsumerProtocolSubscription: version, topics, no user data.
fn subscription() -> Arc<[u8]> {
    let mut out = vec![0, 0, 0, 0, 0, 1, 0, TOPIC.len() as u8];
    out.extend_from_slice(TOPIC.as_bytes());
    out.extend_from_slice(&[0xff; 4]);
    out.into()
}

pub(super) fn join(member: &Member, suffix: Uuid, requires_known_member_id: bool) -> Request {
    Request::Join(Join {
        group: group(),
        member_id: member.id.clone(),
        group_instance_id: member.instance.clone(),
        client_id: "sim".into(),
        client_host: "/127.0.0.1".into(),
        session_timeout: member.session,
        rebalance_timeout: REBALANCE_TIMEOUT,
        protocol_type: "consumer".into(),
        protocols: vec![("range".into(), subscription())],
        requires_known_member_id,
        supports_skipping_assignment: true,
        reason: None,
        new_member_suffix: suffix,
    })
}

/// Everybody's share, when the leader hands it in.
pub(super) fn assign(members: &[JoinedMember], partitions: i32) -> Vec<(Arc<str>, Arc<[u8]>)> {
    let share = |at: usize| -> Arc<[u8]> {
        let mine = (0..partitions).filter(|partition| *partition as usize % members.len() == at);
        mine.map(|partition| partition as u8).collect()
    };
    members.iter().enumerate().map(|(at, member)| (member.member_id.clone(), share(at))).collect()
}

/// The partitions in a share.
pub(super) fn share(assignment: &[u8]) -> Vec<PartitionIndex> {
    assignment.iter().map(|partition| PartitionIndex(i32::from(*partition))).collect()
}

pub(super) fn sync(member: &Member, assignments: Vec<(Arc<str>, Arc<[u8]>)>) -> Request {
    Request::Sync(Sync {
        group: group(),
        generation: member.generation,
        member_id: member.id.clone(),
        group_instance_id: member.instance.clone(),
        protocol_type: Some("consumer".into()),
        protocol: Some("range".into()),
        assignments,
    })
}

pub(super) fn heartbeat(member: &Member) -> Request {
    Request::Heartbeat(Heartbeat {
        group: group(),
        generation: member.generation,
        member_id: member.id.clone(),
        group_instance_id: member.instance.clone(),
    })
}

pub(super) fn leave(member: &Member) -> Request {
    let leaving = Leaving {
        member_id: member.id.clone(),
        group_instance_id: member.instance.clone(),
        reason: None,
    };
    Request::Leave(Leave { group: group(), members: vec![leaving] })
}

pub(super) fn commit(
    member: &Member,
    generation: Generation,
    topic: TopicId,
    partition: PartitionIndex,
    offset: Offset,
) -> Request {
    let partitions =
        vec![CommitPartition { partition, offset, leader_epoch: None, metadata: "".into() }];
    Request::CommitOffsets(CommitOffsets {
        group: group(),
        member_id: member.id.clone(),
        group_instance_id: member.instance.clone(),
        generation: Some(generation),
        retention: None,
        knows_group_id_not_found: true,
        topics: vec![CommitTopic { name: TOPIC.into(), id: topic, partitions }],
    })
}

pub(super) fn fetch(topic: TopicId, partitions: Vec<PartitionIndex>) -> Request {
    Request::FetchOffsets(FetchOffsets {
        group: group(),
        topics: Some(vec![FetchTopic { name: TOPIC.into(), id: topic, partitions }]),
        require_stable: true,
    })
}
