//! What happens to fields that a version does not have, and what fields are before anyone sets
//! them.

use towpath_protocol::messages::*;
use towpath_protocol::{
    ApiKey, EncodeError, Message, decode_exact, decode_versioned, encode_record_key,
    encode_versioned,
};

use crate::support::encode;

#[test]
fn a_field_that_matters_is_refused_where_the_version_lacks_it() {
    let request = JoinGroupRequest { group_instance_id: Some("a"), ..Default::default() };
    let field = "JoinGroupRequest.group_instance_id";
    let error = EncodeError::FieldNotInVersion { field, version: 4 };
    assert_eq!(encode(&request, 4), Err(error));
    assert!(encode(&request, 5).is_ok());

    let forgotten = ForgottenTopic { topic: "orders", ..Default::default() };
    let request = FetchRequest { forgotten_topics_data: vec![forgotten], ..Default::default() };
    let field = "FetchRequest.forgotten_topics_data";
    assert_eq!(encode(&request, 6), Err(EncodeError::FieldNotInVersion { field, version: 6 }));
}

#[test]
fn a_tagged_field_that_matters_is_refused_where_the_version_lacks_it() {
    let diverging_epoch = FetchResponseEpochEndOffset { epoch: 3, end_offset: 100 };
    let partition = FetchResponsePartitionData { diverging_epoch, ..Default::default() };
    let topic = FetchableTopicResponse { partitions: vec![partition], ..Default::default() };
    let response = FetchResponse { responses: vec![topic], ..Default::default() };
    let field = "FetchResponsePartitionData.diverging_epoch";
    assert_eq!(encode(&response, 11), Err(EncodeError::FieldNotInVersion { field, version: 11 }));
    assert!(encode(&response, 12).is_ok());
}

#[test]
fn an_ignorable_field_is_left_out_in_silence() {
    let request = FetchRequest { rack_id: "rack-1", ..Default::default() };
    let bytes = encode(&request, 10).expect("it is valid");
    let back: FetchRequest = decode_exact(10, &bytes).expect("it was encoded");
    assert_eq!(back.rack_id, "");
}

#[test]
fn null_is_refused_where_the_version_does_not_allow_it() {
    let request = MetadataRequest { topics: None, ..Default::default() };
    let field = "MetadataRequest.topics";
    assert_eq!(encode(&request, 0), Err(EncodeError::NullNotAllowed { field }));
    assert!(encode(&request, 1).is_ok());
}

#[test]
fn defaults_are_those_of_the_schema() {
    let request = FetchRequest::default();
    assert_eq!((request.replica_id, request.max_bytes), (-1, i32::MAX));
    assert_eq!((request.session_id, request.session_epoch), (0, -1));
    assert_eq!(FetchPartition::default().high_watermark, i64::MAX);
    assert!(MetadataRequest::default().allow_auto_topic_creation);
    assert_eq!(MetadataRequest::default().topics, Some(Vec::new()));
    assert_eq!(OffsetFetchRequest::default().groups, Vec::new());
    assert_eq!(FetchResponsePartitionData::default().records, None);
    assert_eq!(DescribeTopicPartitionsResponse::default().next_cursor, None);
}

#[test]
fn versions_are_those_of_kafka_4_4() {
    let versions = |key: ApiKey| (*key.versions().start(), *key.versions().end());
    let expected = [
        (ApiKey::Produce, (3, 13), Some(9)),
        (ApiKey::Fetch, (4, 18), Some(12)),
        (ApiKey::ListOffsets, (1, 11), Some(6)),
        (ApiKey::Metadata, (0, 13), Some(9)),
        (ApiKey::OffsetCommit, (2, 10), Some(8)),
        (ApiKey::OffsetFetch, (1, 10), Some(6)),
        (ApiKey::FindCoordinator, (0, 6), Some(3)),
        (ApiKey::JoinGroup, (0, 9), Some(6)),
        (ApiKey::Heartbeat, (0, 4), Some(4)),
        (ApiKey::LeaveGroup, (0, 5), Some(4)),
        (ApiKey::SyncGroup, (0, 5), Some(4)),
        (ApiKey::DescribeGroups, (0, 6), Some(5)),
        (ApiKey::ListGroups, (0, 5), Some(3)),
        (ApiKey::ApiVersions, (0, 5), Some(3)),
        (ApiKey::CreateTopics, (2, 7), Some(5)),
        (ApiKey::DeleteTopics, (1, 6), Some(4)),
        (ApiKey::DeleteRecords, (0, 2), Some(2)),
        (ApiKey::InitProducerId, (0, 5), Some(2)),
        (ApiKey::OffsetForLeaderEpoch, (2, 4), Some(4)),
        (ApiKey::DescribeConfigs, (1, 4), Some(4)),
        (ApiKey::AlterConfigs, (0, 2), Some(2)),
        (ApiKey::DescribeLogDirs, (1, 5), Some(2)),
        (ApiKey::CreatePartitions, (0, 3), Some(2)),
        (ApiKey::DeleteGroups, (0, 3), Some(2)),
        (ApiKey::ElectLeaders, (0, 2), Some(2)),
        (ApiKey::IncrementalAlterConfigs, (0, 1), Some(1)),
        (ApiKey::AlterPartitionReassignments, (0, 1), Some(0)),
        (ApiKey::ListPartitionReassignments, (0, 0), Some(0)),
        (ApiKey::OffsetDelete, (0, 0), None),
        (ApiKey::DescribeQuorum, (0, 2), Some(0)),
        (ApiKey::DescribeCluster, (0, 2), Some(0)),
        (ApiKey::DescribeProducers, (0, 0), Some(0)),
        (ApiKey::UnregisterBroker, (0, 0), Some(0)),
        (ApiKey::DescribeTopicPartitions, (0, 0), Some(0)),
    ];
    assert_eq!(expected.map(|(key, ..)| key), ApiKey::ALL);
    for (key, range, first_flexible) in expected {
        assert_eq!((versions(key), key.first_flexible()), (range, first_flexible), "{key}");
        assert_eq!(ApiKey::try_from(key.key()), Ok(key));
    }
}

#[test]
fn records_of_the_offsets_topic_begin_with_their_type_or_version() {
    let key = OffsetCommitKey { group: "g", topic: "t", partition: 7 };
    let bytes = encode_record_key(&key).expect("it is valid");
    assert_eq!(bytes[..], [0, 1, 0, 1, b'g', 0, 1, b't', 0, 0, 0, 7]);

    let value = OffsetCommitValue { offset: 5, leader_epoch: 2, ..Default::default() };
    let bytes = encode_versioned(3, &value).expect("it is valid");
    assert_eq!(decode_versioned(&bytes), Ok((3, value)));
    assert_eq!(GroupMetadataKey::API_KEY, 2);
}

/// Kafka 4.4.0 reads these bytes to the same effect.
#[test]
fn tags_may_repeat_and_stand_in_any_order() {
    let head = [0, 0, 1, 0, 0, 0, 0];
    let epoch = |epoch| [1, 8, 0, 0, 0, 0, 0, 0, 0, epoch];
    let repeated = [&head[..], &[2], &epoch(5), &epoch(6)].concat();
    let read: ApiVersionsResponse = decode_exact(3, &repeated).expect("Kafka takes it");
    assert_eq!(read.finalized_features_epoch, 6);

    let unordered = [&head[..], &[2, 3, 1, 1], &epoch(6)].concat();
    let read: ApiVersionsResponse = decode_exact(3, &unordered).expect("Kafka takes it");
    assert_eq!((read.finalized_features_epoch, read.zk_migration_ready), (6, true));
}
