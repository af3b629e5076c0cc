mod properties;
mod scenario;

use std::sync::Arc;
use std::time::Duration;

use super::*;

/// Small limits, so that tests reach them.
fn config() -> GroupsConfig {
    GroupsConfig {
        initial_rebalance_delay: Duration::ZERO,
        session_timeout_min: Duration::from_secs(6),
        session_timeout_max: Duration::from_secs(1800),
        group_members_max: 100,
        group_metadata_bytes_max: 10_000,
        groups_max: 100,
        offset_metadata_max: 16,
        offsets_retention: Some(Duration::from_secs(3600)),
        offsets_check_interval: Duration::from_secs(600),
        record_bytes_max: 4_000,
    }
}

#[test]
fn group_partition_is_kafkas() {
    // "foo".hashCode() is 101574.
    assert_eq!(group_partition("foo", 50), 101_574 % 50);
    assert_eq!(group_partition("", 50), 0);
    // A negative hash loses its sign bit only, as Kafka's `abs` does it.
    assert_eq!(group_partition("polygenelubricants", 50), 0);
    assert_eq!(group_partition("grüße", 1), 0);
}

#[test]
fn looking_for_the_next_deadline_reads_one_entry() {
    let mut groups = Groups::new(config());
    assert_eq!(groups.next_deadline(), None);
    groups.apply(&Record::CheckOffsetsAt(Time(70)));
    let group = |at| {
        let mut group = Group::empty();
        group.check_at = Some(Time(at));
        Record::Live { group: Arc::from(format!("g{at}")), value: Some(Arc::new(group)) }
    };
    groups.apply(&group(90));
    assert_eq!(groups.next_deadline(), Some(Time(70)));
    groups.apply(&group(50));
    assert_eq!(groups.next_deadline(), Some(Time(50)));
    groups.apply(&Record::Live { group: "g50".into(), value: None });
    assert_eq!(groups.next_deadline(), Some(Time(70)));
}

#[test]
fn metadata_that_no_record_can_hold_is_refused_whatever_is_configured() {
    let generous = GroupsConfig { offset_metadata_max: usize::MAX, ..config() };
    let mut machine = crate::machine::Machine::new(move || Groups::new(generous.clone()));
    let mut commit = |metadata: usize| {
        let partition = CommitPartition {
            partition: towpath_model::PartitionIndex(0),
            offset: towpath_model::Offset(1),
            leader_epoch: None,
            metadata: "x".repeat(metadata).into(),
        };
        let id = towpath_model::TopicId::ZERO;
        let topics = vec![CommitTopic { name: "t".into(), id, partitions: vec![partition] }];
        let (_, decision) = machine.ask(Request::CommitOffsets(CommitOffsets {
            group: "g".into(),
            member_id: "".into(),
            group_instance_id: None,
            generation: None,
            // The version with an expiry has the shorter length field.
            retention: Some(Duration::from_secs(60)),
            knows_group_id_not_found: true,
            topics,
        }));
        match &decision.replies[0].1 {
            Reply::CommitOffsets(Ok(topics)) => topics[0].partitions[0].1,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(commit(32_767), Ok(()));
    assert_eq!(commit(32_768), Err(Refusal::OffsetMetadataTooLarge));
}

#[test]
fn a_commit_whose_records_would_dwarf_the_request_is_refused_as_a_whole() {
    let mut machine = crate::machine::Machine::new(|| Groups::new(config()));
    let mut commit = |offsets: usize| {
        let partition = CommitPartition {
            partition: towpath_model::PartitionIndex(0),
            offset: towpath_model::Offset(1),
            leader_epoch: None,
            metadata: "".into(),
        };
        let id = towpath_model::TopicId::ZERO;
        let partitions = vec![partition; offsets];
        let (_, decision) = machine.ask(Request::CommitOffsets(CommitOffsets {
            group: "g".repeat(NAME_BYTES_MAX).into(),
            member_id: "".into(),
            group_instance_id: None,
            generation: None,
            retention: None,
            knows_group_id_not_found: true,
            topics: vec![CommitTopic { name: "t".into(), id, partitions }],
        }));
        match &decision.replies[0].1 {
            Reply::CommitOffsets(result) => (result.clone().err(), decision.records.len()),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(commit(2_000).0, None);
    assert_eq!(commit(2_100), (Some(Refusal::CommitTooLarge), 0));
}

#[test]
fn a_deleted_topic_that_very_many_read_is_forgotten_step_by_step() {
    let mut machine = crate::machine::Machine::new(|| Groups::new(config()));
    let id = towpath_model::TopicId::ZERO;
    for group in 0..3 {
        let partition = |index| CommitPartition {
            partition: towpath_model::PartitionIndex(index),
            offset: towpath_model::Offset(1),
            leader_epoch: None,
            metadata: "".into(),
        };
        let partitions = (0..500).map(partition).collect();
        machine.ask(Request::CommitOffsets(CommitOffsets {
            group: format!("g{group}").into(),
            member_id: "".into(),
            group_instance_id: None,
            generation: None,
            retention: None,
            knows_group_id_not_found: true,
            topics: vec![CommitTopic { name: "t".into(), id, partitions }],
        }));
    }
    let mut removed = Vec::new();
    while removed.last() != Some(&0) {
        let (_, decision) = machine.ask(Request::TopicDeleted { name: "t".into(), id });
        removed.push(decision.records.len());
    }
    assert_eq!(removed, [1_000, 500, 0]);
}
