//! What an operator's tools ask of a cluster: elections, moves of replicas, the quorum.

use std::time::{Duration, Instant};

use towpath_protocol::ErrorCode;
use towpath_protocol::messages::*;

use crate::cluster::{Cluster, ClusterOptions};
use crate::wire::{Wire, batch, code};

/// Moves the replicas of partition 0, or takes that back.
fn reassign(wire: &mut Wire, topic: &str, replicas: Option<&[i32]>) -> ErrorCode {
    let replicas = replicas.map(<[i32]>::to_vec);
    let request = AlterPartitionReassignmentsRequest {
        allow_replication_factor_change: false,
        topics: vec![ReassignableTopic {
            name: topic,
            partitions: vec![ReassignablePartition { partition_index: 0, replicas }],
        }],
        ..Default::default()
    };
    let answer = wire.ask(1, &request);
    let answer: AlterPartitionReassignmentsResponse<'_> = answer.read();
    assert_eq!(code(answer.error_code), ErrorCode::None);
    assert!(!answer.allow_replication_factor_change);
    code(answer.responses[0].partitions[0].error_code)
}

/// Replicas of partition 0 of the one topic that moves, with those that come and go; `None`: none moves.
fn moving(wire: &mut Wire) -> Option<(Vec<i32>, Vec<i32>, Vec<i32>)> {
    let answer = wire.ask(0, &ListPartitionReassignmentsRequest::default());
    let answer: ListPartitionReassignmentsResponse<'_> = answer.read();
    assert_eq!(code(answer.error_code), ErrorCode::None);
    let partition = &answer.topics.first()?.partitions[0];
    assert_eq!(partition.partition_index, 0);
    let (adding, removing) = (&partition.adding_replicas, &partition.removing_replicas);
    Some((partition.replicas.clone(), adding.clone(), removing.clone()))
}

fn elect(wire: &mut Wire, kind: i8, topic: &str) -> ErrorCode {
    let request = ElectLeadersRequest {
        election_type: kind,
        topic_partitions: Some(vec![TopicPartitions { topic, partitions: vec![0] }]),
        ..Default::default()
    };
    let answer = wire.ask(2, &request);
    let answer: ElectLeadersResponse<'_> = answer.read();
    if code(answer.error_code) != ErrorCode::None {
        return code(answer.error_code);
    }
    let result = &answer.replica_election_results[0];
    assert_eq!(result.topic, topic);
    code(result.partition_result[0].error_code)
}

#[test]
fn replicas_move_and_the_preferred_leader_leads_when_it_is_asked_for() {
    let cluster = Cluster::start();
    cluster.create("moves", &[&[1, 2]], &[]);
    let values = ["a", "b", "c"];
    assert_eq!(cluster.connect(1).produce("moves", &batch(&values)).error, ErrorCode::None);
    // The same from any broker: who is not the controller passes it on.
    for ask in 1..=3 {
        let mut wire = cluster.connect(ask);
        assert_eq!(reassign(&mut wire, "moves", None), ErrorCode::NoReassignmentInProgress);
        let unknown = reassign(&mut wire, "moves", Some(&[1, 9]));
        assert_eq!(unknown, ErrorCode::InvalidReplicaAssignment);
        let more = reassign(&mut wire, "moves", Some(&[1, 2, 3]));
        assert_eq!(more, ErrorCode::InvalidReplicationFactor);
        assert_eq!(reassign(&mut wire, "absent", None), ErrorCode::UnknownTopicOrPartition);
        assert_eq!(elect(&mut wire, 0, "moves"), ErrorCode::ElectionNotNeeded);
        assert_eq!(elect(&mut wire, 1, "moves"), ErrorCode::ElectionNotNeeded);
        assert_eq!(elect(&mut wire, 0, "absent"), ErrorCode::UnknownTopicOrPartition);
        assert_eq!(elect(&mut wire, 7, "moves"), ErrorCode::InvalidRequest);
    }
    assert_eq!(reassign(&mut cluster.connect(2), "moves", Some(&[3, 1])), ErrorCode::None);
    cluster.in_sync("moves", 0, &[1, 3]);
    let state = cluster.state("moves", 0);
    assert_eq!(state.replicas.iter().map(|id| id.0).collect::<Vec<_>>(), [3, 1]);
    assert_eq!(moving(&mut cluster.connect(2)), None);

    let elected = elect(&mut cluster.connect(2), 0, "moves");
    assert!(matches!(elected, ErrorCode::None | ErrorCode::ElectionNotNeeded), "{elected:?}");
    cluster.eventually("the preferred leader leads", |image| {
        image.topic("moves").is_some_and(|t| t.partitions[0].leader.is_some_and(|l| l.0 == 3))
    });
    crate::peer_transport::eventually(|| {
        let fetched = cluster.connect(3).fetch("moves", 0);
        fetched.error == ErrorCode::None && fetched.values() == values
    });
}

#[test]
fn a_move_to_a_broker_that_is_gone_is_listed_and_taken_back() {
    let mut cluster = Cluster::start();
    cluster.create("stuck", &[&[1, 2]], &[]);
    cluster.in_sync("stuck", 0, &[1, 2]);
    cluster.kill(3);
    cluster.eventually("it is fenced", |image| {
        image.brokers().any(|broker| broker.id.0 == 3 && broker.fenced)
    });
    let mut wire = cluster.connect(1);
    assert_eq!(reassign(&mut wire, "stuck", Some(&[1, 3])), ErrorCode::None);
    assert_eq!(moving(&mut wire), Some((vec![1, 3, 2], vec![3], vec![2])));
    assert_eq!(reassign(&mut wire, "stuck", None), ErrorCode::None);
    assert_eq!(moving(&mut wire), None);
    let state = cluster.state("stuck", 0);
    assert_eq!(state.replicas.iter().map(|id| id.0).collect::<Vec<_>>(), [1, 2]);

    for (expected, text) in [(ErrorCode::None, false), (ErrorCode::BrokerIdNotRegistered, true)] {
        let answer = wire.ask(0, &UnregisterBrokerRequest { broker_id: 3 });
        let answer: UnregisterBrokerResponse<'_> = answer.read();
        assert_eq!(code(answer.error_code), expected);
        assert_eq!(answer.error_message.is_some(), text);
    }
    let request = DescribeClusterRequest { include_fenced_brokers: true, ..Default::default() };
    let answer = wire.ask(2, &request);
    let answer: DescribeClusterResponse<'_> = answer.read();
    assert_eq!(answer.brokers.iter().map(|broker| broker.broker_id).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn the_quorum_is_described_by_every_broker_as_its_leader_sees_it() {
    let cluster = Cluster::start();
    for ask in 1..=3 {
        let mut wire = cluster.connect(ask);
        let describe = |topic_name| DescribeQuorumRequest {
            topics: vec![DescribeQuorumRequestTopicData {
                topic_name,
                partitions: vec![DescribeQuorumRequestPartitionData { partition_index: 0 }],
            }],
        };
        let answer = wire.ask(2, &describe("__cluster_metadata"));
        let answer: DescribeQuorumResponse<'_> = answer.read();
        assert_eq!(code(answer.error_code), ErrorCode::None);
        let quorum = &answer.topics[0].partitions[0];
        assert_eq!(code(quorum.error_code), ErrorCode::None);
        assert!(1 <= quorum.leader_epoch && 1 <= quorum.high_watermark, "{quorum:?}");
        let voters: Vec<i32> = quorum.current_voters.iter().map(|v| v.replica_id).collect();
        assert_eq!(voters, [1, 2, 3]);
        assert!(quorum.current_voters.iter().all(|v| 0 < v.log_end_offset), "{quorum:?}");
        assert!(quorum.current_voters.iter().all(|v| !v.replica_directory_id.is_zero()));
        assert!(quorum.observers.is_empty());
        let named: Vec<i32> = answer.nodes.iter().map(|node| node.node_id).collect();
        assert_eq!(named, [1, 2, 3]);

        let described = wire.ask(0, &DescribeClusterRequest::default());
        let described: DescribeClusterResponse<'_> = described.read();
        assert_eq!(described.controller_id, quorum.leader_id);

        let answer = wire.ask(0, &describe("elsewhere"));
        let answer: DescribeQuorumResponse<'_> = answer.read();
        let refused = answer.topics[0].partitions[0].error_code;
        assert_eq!(code(refused), ErrorCode::UnknownTopicOrPartition);
    }
}

/// Sets a property of a broker, or of all (`""`), asking broker `ask`.
fn alter_broker(cluster: &Cluster, ask: i32, broker: &str, name: &str, value: &str) -> ErrorCode {
    let request = IncrementalAlterConfigsRequest {
        resources: vec![IncrementalAlterConfigsRequestAlterConfigsResource {
            resource_type: 4,
            resource_name: broker,
            configs: vec![IncrementalAlterConfigsRequestAlterableConfig {
                name,
                config_operation: 0,
                value: Some(value),
            }],
        }],
        ..Default::default()
    };
    let answer = cluster.connect(ask).ask(1, &request);
    let answer: IncrementalAlterConfigsResponse<'_> = answer.read();
    code(answer.responses[0].error_code)
}

/// A cluster in which a busy machine does not make anybody lead instead of broker 1.
fn patient_cluster() -> Cluster {
    let properties = vec![("broker.session.timeout.ms", "60000")];
    Cluster::start_with(3, ClusterOptions { properties, ..Default::default() })
}

/// Bytes of records that a move in these tests has to copy.
const MOVED_BYTES: usize = 2_400_000;
/// How many of them may come in a second: an answer alone may have a megabyte.
const RATE: &str = "800000";

/// A topic on brokers 1 and 2 that holds [`MOVED_BYTES`].
fn filled_topic(cluster: &Cluster, name: &str) {
    cluster.create(name, &[&[1, 2]], &[]);
    cluster.in_sync(name, 0, &[1, 2]);
    let large = "x".repeat(50_000);
    let mut wire = cluster.connect(1);
    for _ in 0..MOVED_BYTES / 50_000 {
        assert_eq!(wire.produce(name, &batch(&[&large])).error, ErrorCode::None);
    }
}

/// Moves partition 0 from broker 2 to broker 3, and waits until it is there; says how long that took.
/// Records that are produced meanwhile are not held up.
fn timed_move(cluster: &Cluster, topic: &str) -> Duration {
    let began = Instant::now();
    assert_eq!(reassign(&mut cluster.connect(2), topic, Some(&[1, 3])), ErrorCode::None);
    let mut wire = cluster.connect(1);
    let mut least_left = u64::MAX;
    while moving(&mut wire).is_some() {
        let sent = Instant::now();
        assert_eq!(wire.produce(topic, &batch(&["small"])).error, ErrorCode::None);
        assert!(sent.elapsed() < Duration::from_secs(1), "brokers 1 and 2 serve all the while");
        for coming in cluster.coming(1) {
            assert_eq!(coming.broker.0, 3);
            assert!(
                coming.bytes_left <= least_left.saturating_add(50_000),
                "{coming:?} after {least_left}"
            );
            least_left = coming.bytes_left;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{least_left} bytes are left");
        std::thread::sleep(Duration::from_millis(100));
    }
    cluster.in_sync(topic, 0, &[1, 3]);
    assert!(cluster.coming(1).is_empty());
    began.elapsed()
}

#[test]
fn a_move_is_fed_no_faster_than_the_cluster_allows() {
    let cluster = patient_cluster();
    filled_topic(&cluster, "slow");
    let set = alter_broker(&cluster, 2, "", "reassignment.max.bytes.per.second", RATE);
    assert_eq!(set, ErrorCode::None);
    cluster.settle();
    let took = timed_move(&cluster, "slow");
    assert!(Duration::from_secs(2) < took, "{MOVED_BYTES} bytes have come in {took:?}");
}

#[test]
fn a_move_is_fed_no_faster_than_kafkas_tools_say() {
    for (property, rate, broker) in [
        ("leader.replication.throttled.replicas", "leader.replication.throttled.rate", "1"),
        ("follower.replication.throttled.replicas", "follower.replication.throttled.rate", "3"),
    ] {
        let cluster = patient_cluster();
        filled_topic(&cluster, "slow");
        let replicas = format!("0:{broker}");
        assert_eq!(cluster.connect(2).alter("slow", property, Some(&replicas)), ErrorCode::None);
        // Whichever broker is the controller, and whichever is asked.
        for ask in 1..=3 {
            assert_eq!(alter_broker(&cluster, ask, broker, rate, RATE), ErrorCode::None);
        }
        cluster.settle();
        let took = timed_move(&cluster, "slow");
        assert!(Duration::from_secs(2) < took, "{rate}: all has come in {took:?}");
    }
}
