//! Every API in every version: a plain request gets an answer that the version can read.
//!
//! An answer that sets a field which its version lacks does not encode, and the connection closes;
//! that is what this finds.

use towpath_protocol::messages::*;
use towpath_protocol::{ApiKey, Blob, Request, Uuid};

use crate::broker::Broker;
use crate::wire::{Wire, batch, fetch_request};

const GROUP: &str = "group";

/// Asks every version, and that the answer decodes.
struct Check<'b> {
    broker: &'b Broker,
    checked: Vec<ApiKey>,
}

impl Check<'_> {
    fn every<'a, R: Request<'a>>(&mut self, make: impl Fn(i16) -> R) {
        let api_key = ApiKey::try_from(R::API_KEY).unwrap();
        for version in api_key.versions() {
            // A connection each, so that a closed one is told with its version.
            let mut wire = self.broker.connect();
            wire.send(version, &make(version));
            let frame = wire.receive_frame();
            assert!(frame.is_some(), "{} version {version} has no answer", api_key.name());
            let answer = wire.ask(version, &make(version));
            let _: R::Response<'_> = answer.read();
        }
        self.checked.push(api_key);
    }
}

#[test]
fn every_version_of_every_api_answers() {
    let broker = Broker::start();
    let mut wire = broker.connect();
    let topic_id = wire.create("topic", 2, &[]);
    wire.produce("topic", &batch(&["a", "b"]));
    let member = join(&mut wire);
    let mut check = Check { broker: &broker, checked: Vec::new() };

    topics(&mut check);
    records(&mut check, topic_id);
    groups(&mut check, topic_id, &member);
    configs(&mut check);
    cluster(&mut check);

    check.checked.sort_unstable();
    assert_eq!(check.checked, ApiKey::ALL);
}

/// A member that stays, so that describing and listing have something to say.
fn join(wire: &mut Wire) -> String {
    let request = join_request("");
    let answer = wire.ask(3, &request);
    let answer: JoinGroupResponse<'_> = answer.read();
    answer.member_id.to_owned()
}

fn join_request(member_id: &str) -> JoinGroupRequest<'_> {
    JoinGroupRequest {
        group_id: GROUP,
        session_timeout_ms: 30_000,
        rebalance_timeout_ms: 1_000,
        member_id,
        protocol_type: "consumer",
        protocols: vec![JoinGroupRequestProtocol { name: "range", metadata: b"" }],
        ..Default::default()
    }
}

fn topics(check: &mut Check<'_>) {
    check.every(|version| MetadataRequest {
        topics: Some(vec![
            MetadataRequestTopic { name: Some("topic"), ..Default::default() },
            MetadataRequestTopic { name: Some("absent"), ..Default::default() },
            MetadataRequestTopic { name: Some("not a name"), ..Default::default() },
        ]),
        allow_auto_topic_creation: version < 4,
        include_topic_authorized_operations: 8 <= version,
        ..Default::default()
    });
    check.every(|_| DescribeTopicPartitionsRequest {
        topics: vec![DescribeTopicPartitionsRequestTopicRequest { name: "topic" }],
        response_partition_limit: 1,
        ..Default::default()
    });
    check.every(|_| CreateTopicsRequest {
        topics: ["new", "topic", "not a name"]
            .map(|name| CreatableTopic {
                name,
                num_partitions: 1,
                replication_factor: 1,
                configs: vec![CreatableTopicConfig { name: "retention.ms", value: Some("1000") }],
                ..Default::default()
            })
            .to_vec(),
        timeout_ms: 1_000,
        ..Default::default()
    });
    check.every(|version| {
        let names = vec!["new", "absent too"];
        let states =
            names.iter().map(|name| DeleteTopicState { name: Some(name), ..Default::default() });
        let topics = if 6 <= version { states.collect() } else { Vec::new() };
        let topic_names = if version < 6 { names } else { Vec::new() };
        DeleteTopicsRequest { topics, topic_names, timeout_ms: 1_000 }
    });
    check.every(|version| CreatePartitionsRequest {
        topics: vec![
            CreatePartitionsTopic {
                name: "topic",
                count: 3 + i32::from(version),
                assignments: None,
            },
            CreatePartitionsTopic { name: "absent", count: 2, assignments: None },
        ],
        timeout_ms: 1_000,
        validate_only: false,
    });
    check.every(|_| DeleteRecordsRequest {
        topics: vec![DeleteRecordsTopic {
            name: "topic",
            partitions: [0, 99]
                .map(|partition_index| DeleteRecordsPartition { partition_index, offset: 0 })
                .to_vec(),
        }],
        timeout_ms: 1_000,
    });
}

fn records(check: &mut Check<'_>, id: Uuid) {
    let good = batch(&["record"]);
    check.every(|version| ProduceRequest {
        acks: -1,
        timeout_ms: 1_000,
        topic_data: vec![TopicProduceData {
            name: if version < 13 { "topic" } else { "" },
            topic_id: if version < 13 { Uuid::ZERO } else { id },
            partition_data: [(0, &good[..]), (1, &b"nonsense"[..]), (99, &good[..])]
                .map(|(index, bytes)| PartitionProduceData {
                    index,
                    records: Some(Blob::Bytes(bytes)),
                })
                .to_vec(),
        }],
        ..Default::default()
    });
    check.every(|version| {
        let mut request = fetch_request("topic", 0, 1, std::time::Duration::ZERO);
        if version < 7 {
            request.session_epoch = FetchRequest::default().session_epoch;
        }
        let topic = &mut request.topics[0];
        let mut beyond = topic.partitions[0].clone();
        (beyond.partition, beyond.fetch_offset) = (1, 77);
        topic.partitions.push(beyond);
        if 13 <= version {
            (topic.topic, topic.topic_id) = ("", id);
        }
        request
    });
    check.every(|_| ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic {
            name: "topic",
            partitions: [(0, -1), (1, -2), (99, 0)]
                .map(|(partition_index, timestamp)| ListOffsetsPartition {
                    partition_index,
                    timestamp,
                    ..Default::default()
                })
                .to_vec(),
        }],
        ..Default::default()
    });
    check.every(|_| OffsetForLeaderEpochRequest {
        topics: vec![OffsetForLeaderTopic {
            topic: "topic",
            partitions: [0, 99]
                .map(|partition| OffsetForLeaderPartition { partition, ..Default::default() })
                .to_vec(),
        }],
        ..Default::default()
    });
    check.every(|_| InitProducerIdRequest { transactional_id: None, ..Default::default() });
    check.every(|_| DescribeProducersRequest {
        topics: vec![DescribeProducersRequestTopicRequest {
            name: "topic",
            partition_indexes: vec![0, 99],
        }],
    });
}

fn groups(check: &mut Check<'_>, id: Uuid, member: &str) {
    check.every(|version| {
        let keys = vec!["group", "other"];
        FindCoordinatorRequest {
            key: if version < 4 { "group" } else { "" },
            coordinator_keys: if version < 4 { Vec::new() } else { keys },
            ..Default::default()
        }
    });
    check.every(|_| HeartbeatRequest {
        group_id: GROUP,
        generation_id: 1,
        member_id: member,
        ..Default::default()
    });
    check.every(|_| SyncGroupRequest {
        group_id: GROUP,
        generation_id: 1,
        member_id: member,
        assignments: vec![SyncGroupRequestAssignment { member_id: member, assignment: b"all" }],
        ..Default::default()
    });
    let offsets = |version: i16, name| OffsetCommitRequestTopic {
        name: if version < 10 { name } else { "" },
        topic_id: if version < 10 { Uuid::ZERO } else { id },
        partitions: [0, 99]
            .map(|partition_index| OffsetCommitRequestPartition {
                partition_index,
                committed_offset: 1,
                committed_metadata: Some("note"),
                ..Default::default()
            })
            .to_vec(),
    };
    check.every(|version| OffsetCommitRequest {
        group_id: GROUP,
        generation_id_or_member_epoch: 1,
        member_id: member,
        topics: vec![offsets(version, "topic")],
        ..Default::default()
    });
    check.every(offset_fetch(id));
    check.every(|_| DescribeGroupsRequest { groups: vec![GROUP, "absent"], ..Default::default() });
    check.every(|_| ListGroupsRequest::default());
    check.every(|_| OffsetDeleteRequest {
        group_id: GROUP,
        topics: vec![OffsetDeleteRequestTopic {
            name: "topic",
            partitions: vec![OffsetDeleteRequestPartition { partition_index: 1 }],
        }],
    });
    check.every(|_| DeleteGroupsRequest { groups_names: vec![GROUP, "absent"] });
    // A stranger's id: an answer at once.
    check.every(|_| join_request("stranger"));
    check.every(|version| LeaveGroupRequest {
        group_id: GROUP,
        member_id: if version < 3 { "stranger" } else { "" },
        members: if version < 3 {
            Vec::new()
        } else {
            vec![MemberIdentity { member_id: "stranger", ..Default::default() }]
        },
    });
}

fn offset_fetch(id: Uuid) -> impl Fn(i16) -> OffsetFetchRequest<'static> {
    move |version| {
        if version < 8 {
            return OffsetFetchRequest {
                group_id: GROUP,
                topics: Some(vec![OffsetFetchRequestTopic {
                    name: "topic",
                    partition_indexes: vec![0, 99],
                }]),
                ..Default::default()
            };
        }
        let topic = OffsetFetchRequestTopics {
            name: if version < 10 { "topic" } else { "" },
            topic_id: if version < 10 { Uuid::ZERO } else { id },
            partition_indexes: vec![0, 99],
        };
        let group =
            |group_id, topics| OffsetFetchRequestGroup { group_id, topics, ..Default::default() };
        OffsetFetchRequest {
            groups: vec![group(GROUP, Some(vec![topic])), group("absent", None)],
            topics: Some(Vec::new()),
            ..Default::default()
        }
    }
}

/// Resources by kind and name: one that is there, one that is not, and a broker.
const RESOURCES: [(i8, &str); 3] = [(2, "topic"), (2, "absent"), (4, "1")];

fn configs(check: &mut Check<'_>) {
    check.every(|_| DescribeConfigsRequest {
        resources: RESOURCES
            .map(|(resource_type, resource_name)| DescribeConfigsResource {
                resource_type,
                resource_name,
                configuration_keys: None,
            })
            .to_vec(),
        include_synonyms: true,
        ..Default::default()
    });
    check.every(|_| AlterConfigsRequest {
        resources: RESOURCES
            .map(|(resource_type, resource_name)| AlterConfigsRequestAlterConfigsResource {
                resource_type,
                resource_name,
                configs: Vec::new(),
            })
            .to_vec(),
        validate_only: false,
    });
    check.every(|_| IncrementalAlterConfigsRequest {
        resources: RESOURCES
            .map(|(resource_type, resource_name)| {
                IncrementalAlterConfigsRequestAlterConfigsResource {
                    resource_type,
                    resource_name,
                    configs: vec![IncrementalAlterConfigsRequestAlterableConfig {
                        name: "no.such",
                        config_operation: 0,
                        value: Some("1"),
                    }],
                }
            })
            .to_vec(),
        validate_only: false,
    });
}

fn cluster(check: &mut Check<'_>) {
    check.every(|_| ApiVersionsRequest {
        client_software_name: "it",
        client_software_version: "1",
        ..Default::default()
    });
    check.every(|_| DescribeClusterRequest {
        include_cluster_authorized_operations: true,
        ..Default::default()
    });
    check.every(|_| DescribeLogDirsRequest { topics: None });
    check.every(|_| ElectLeadersRequest {
        topic_partitions: Some(
            ["absent", "topic"]
                .map(|topic| TopicPartitions { topic, partitions: vec![0, 99] })
                .to_vec(),
        ),
        ..Default::default()
    });
    check.every(|_| AlterPartitionReassignmentsRequest {
        topics: ["absent", "topic"]
            .map(|name| ReassignableTopic {
                name,
                partitions: [None, Some(vec![1]), Some(vec![7])]
                    .map(|replicas| ReassignablePartition { partition_index: 0, replicas })
                    .to_vec(),
            })
            .to_vec(),
        ..Default::default()
    });
    check.every(|_| ListPartitionReassignmentsRequest::default());
    check.every(|_| DescribeQuorumRequest {
        topics: vec![DescribeQuorumRequestTopicData {
            topic_name: "__cluster_metadata",
            partitions: vec![DescribeQuorumRequestPartitionData { partition_index: 0 }],
        }],
    });
    check.every(|_| UnregisterBrokerRequest { broker_id: 7 });
}
