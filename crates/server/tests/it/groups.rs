//! Groups: two members, one leaves, offsets.

use std::time::{Duration, Instant};

use towpath_protocol::messages::*;
use towpath_protocol::{ApiKey, ErrorCode};

use crate::broker::{Broker, Options};
use crate::wire::{Wire, code};

/// Commits without being a member.
pub(crate) fn commit(
    wire: &mut Wire,
    group: &str,
    topic: &str,
    offset: i64,
    note: &str,
) -> ErrorCode {
    let request = OffsetCommitRequest {
        group_id: group,
        topics: vec![OffsetCommitRequestTopic {
            name: topic,
            partitions: vec![OffsetCommitRequestPartition {
                committed_offset: offset,
                committed_metadata: Some(note),
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let answer = wire.ask(8, &request);
    let answer: OffsetCommitResponse<'_> = answer.read();
    code(answer.topics[0].partitions[0].error_code)
}

/// What is committed for partition 0.
pub(crate) fn committed(wire: &mut Wire, group: &str, topic: &str) -> (i64, String) {
    let request = OffsetFetchRequest {
        group_id: group,
        topics: Some(vec![OffsetFetchRequestTopic { name: topic, partition_indexes: vec![0] }]),
        ..Default::default()
    };
    let answer = wire.ask(7, &request);
    let answer: OffsetFetchResponse<'_> = answer.read();
    assert_eq!(answer.error_code, 0);
    let partition = &answer.topics[0].partitions[0];
    (partition.committed_offset, partition.metadata.unwrap_or_default().to_owned())
}

fn join_request(member_id: &str) -> JoinGroupRequest<'_> {
    JoinGroupRequest {
        group_id: "group",
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 10_000,
        member_id,
        protocol_type: "consumer",
        protocols: vec![JoinGroupRequestProtocol { name: "range", metadata: b"topics" }],
        ..Default::default()
    }
}

/// What a member was told when it joined.
#[derive(Debug, PartialEq, Eq)]
struct Joined {
    generation: i32,
    member_id: String,
    is_leader: bool,
    members: usize,
}

fn joined(wire: &mut Wire) -> Joined {
    let answer = wire.receive(ApiKey::JoinGroup, 5);
    let answer: JoinGroupResponse<'_> = answer.read();
    assert_eq!(code(answer.error_code), ErrorCode::None);
    Joined {
        generation: answer.generation_id,
        member_id: answer.member_id.to_owned(),
        is_leader: answer.leader == answer.member_id,
        members: answer.members.len(),
    }
}

/// The id that a new member is to join with.
fn required_id(wire: &mut Wire) -> String {
    let answer = wire.ask(5, &join_request(""));
    let answer: JoinGroupResponse<'_> = answer.read();
    assert_eq!(code(answer.error_code), ErrorCode::MemberIdRequired);
    answer.member_id.to_owned()
}

fn sync(wire: &mut Wire, member: &Joined, assignments: &[(&str, &[u8])]) {
    let request = SyncGroupRequest {
        group_id: "group",
        generation_id: member.generation,
        member_id: &member.member_id,
        assignments: assignments
            .iter()
            .map(|(member_id, assignment)| SyncGroupRequestAssignment { member_id, assignment })
            .collect(),
        ..Default::default()
    };
    wire.send(3, &request);
}

fn assigned(wire: &mut Wire) -> Vec<u8> {
    let answer = wire.receive(ApiKey::SyncGroup, 3);
    let answer: SyncGroupResponse<'_> = answer.read();
    assert_eq!(code(answer.error_code), ErrorCode::None);
    answer.assignment.to_vec()
}

fn heartbeat(wire: &mut Wire, member: &Joined) -> ErrorCode {
    let request = HeartbeatRequest {
        group_id: "group",
        generation_id: member.generation,
        member_id: &member.member_id,
        ..Default::default()
    };
    let answer = wire.ask(3, &request);
    let answer: HeartbeatResponse = answer.read();
    code(answer.error_code)
}

#[test]
fn two_members_share_and_the_one_that_stays_gets_all() {
    let broker = Broker::start();
    let (mut a, mut b) = (broker.connect(), broker.connect());
    let a_id = required_id(&mut a);
    a.send(5, &join_request(&a_id));
    let alone = joined(&mut a);
    assert_eq!((alone.generation, alone.is_leader, alone.members), (1, true, 1));
    sync(&mut a, &alone, &[(&a_id, b"all")]);
    assert_eq!(assigned(&mut a), b"all");

    let b_id = required_id(&mut b);
    b.send(5, &join_request(&b_id));
    while heartbeat(&mut a, &alone) == ErrorCode::None {}
    a.send(5, &join_request(&a_id));
    let (first, second) = (joined(&mut a), joined(&mut b));
    assert_eq!((first.generation, first.is_leader, first.members), (2, true, 2));
    assert_eq!((second.generation, second.is_leader, second.members), (2, false, 0));
    // The follower's answer waits for the leader's assignment.
    sync(&mut b, &second, &[]);
    sync(&mut a, &first, &[(&a_id, b"left"), (&b_id, b"right")]);
    assert_eq!(assigned(&mut a), b"left");
    assert_eq!(assigned(&mut b), b"right");
    assert_eq!(heartbeat(&mut b, &second), ErrorCode::None);

    let leave = LeaveGroupRequest {
        group_id: "group",
        members: vec![MemberIdentity { member_id: &a_id, ..Default::default() }],
        ..Default::default()
    };
    let answer = a.ask(3, &leave);
    let answer: LeaveGroupResponse<'_> = answer.read();
    assert_eq!(answer.error_code, 0);
    assert_eq!(heartbeat(&mut b, &second), ErrorCode::RebalanceInProgress);
    b.send(5, &join_request(&b_id));
    let last = joined(&mut b);
    assert_eq!((last.generation, last.is_leader, last.members), (3, true, 1));
    assert_eq!(heartbeat(&mut a, &first), ErrorCode::UnknownMemberId);
}

#[test]
fn offsets_of_a_deleted_topic_are_gone() {
    let broker = Broker::start();
    let mut wire = broker.connect();
    wire.create("topic", 1, &[]);
    commit(&mut wire, "group", "topic", 7, "");
    wire.delete("topic");
    wire.create("topic", 1, &[]);
    let deadline = Instant::now() + Duration::from_secs(5);
    while committed(&mut wire, "group", "topic").0 != -1 {
        assert!(Instant::now() < deadline, "the old topic's offset is still there");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn an_unknown_topic_cannot_be_committed() {
    let broker = Broker::start();
    let mut wire = broker.connect();
    assert_eq!(commit(&mut wire, "group", "absent", 7, ""), ErrorCode::UnknownTopicOrPartition);
    assert_eq!(committed(&mut wire, "group", "absent").0, -1);
}

#[test]
fn an_old_commit_with_a_retention_of_its_own_expires_with_its_group() {
    let properties = vec![("offsets.retention.check.interval.ms", "100")];
    let broker = Broker::start_with(Options { properties, ..Options::default() });
    let mut wire = broker.connect();
    wire.create("topic", 1, &[]);
    commit(&mut wire, "lasting", "topic", 7, "");
    let request = OffsetCommitRequest {
        group_id: "group",
        retention_time_ms: 1,
        topics: vec![OffsetCommitRequestTopic {
            name: "topic",
            partitions: vec![OffsetCommitRequestPartition {
                committed_offset: 7,
                committed_metadata: Some(""),
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let answer = wire.ask(2, &request);
    let answer: OffsetCommitResponse<'_> = answer.read();
    assert_eq!(answer.topics[0].partitions[0].error_code, 0);
    let deadline = Instant::now() + Duration::from_secs(10);
    while committed(&mut wire, "group", "topic").0 != -1 {
        assert!(Instant::now() < deadline, "the offset is still there");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(committed(&mut wire, "lasting", "topic").0, 7);
    let answer = wire.ask(0, &ListGroupsRequest::default());
    let answer: ListGroupsResponse<'_> = answer.read();
    let groups: Vec<&str> = answer.groups.iter().map(|group| group.group_id).collect();
    assert_eq!(groups, ["lasting"]);
}
