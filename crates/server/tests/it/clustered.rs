//! What clients are told of a cluster, whichever of its brokers they ask.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use towpath_model::BrokerId;
use towpath_protocol::messages::*;
use towpath_protocol::{ApiKey, ErrorCode};

use crate::cluster::{Cluster, ClusterOptions};
use crate::wire::{batch, code, fetch_request, produce_request};

/// Brokers as Metadata lists them: number, port, rack.
type Listed = Vec<(i32, u16, Option<String>)>;

fn listed(cluster: &Cluster, ask: i32) -> (Listed, i32) {
    let answer = cluster.connect(ask).ask(12, &MetadataRequest::default());
    let answer: MetadataResponse<'_> = answer.read();
    let brokers = answer.brokers.iter().map(|broker| {
        assert_eq!(broker.host, "127.0.0.1");
        let port = u16::try_from(broker.port).unwrap();
        (broker.node_id, port, broker.rack.map(str::to_owned))
    });
    (brokers.collect(), answer.controller_id)
}

#[test]
fn every_broker_names_all_brokers_leaders_and_coordinators() {
    let racks = vec!["a", "b", "c"];
    let cluster = Cluster::start_with(3, ClusterOptions { racks, ..Default::default() });
    cluster.create("topic", &[&[1, 2, 3], &[2, 3, 1], &[3, 1, 2]], &[]);

    let rack = |id: i32| Some(["a", "b", "c"][usize::try_from(id).unwrap() - 1].to_owned());
    let expected: Listed = (1..=3).map(|id| (id, cluster.kafka(id).port(), rack(id))).collect();
    let mut controllers = BTreeSet::new();
    let mut coordinators = BTreeSet::new();
    for ask in 1..=3 {
        let (brokers, controller) = listed(&cluster, ask);
        assert_eq!(brokers, expected, "as broker {ask} says");
        assert!((1..=3).contains(&controller), "{controller}");
        controllers.insert(controller);

        let mut wire = cluster.connect(ask);
        let request = DescribeClusterRequest { include_fenced_brokers: true, ..Default::default() };
        let answer = wire.ask(2, &request);
        let answer: DescribeClusterResponse<'_> = answer.read();
        let described = answer.brokers.iter().map(|b| (b.broker_id, b.rack, b.is_fenced));
        let known = [(1, Some("a"), false), (2, Some("b"), false), (3, Some("c"), false)];
        assert!(described.eq(known), "{:?}", answer.brokers);
        controllers.insert(answer.controller_id);

        let topic = MetadataRequestTopic { name: Some("topic"), ..Default::default() };
        let request = MetadataRequest { topics: Some(vec![topic]), ..Default::default() };
        let answer = wire.ask(12, &request);
        let answer: MetadataResponse<'_> = answer.read();
        let leaders = answer.topics[0].partitions.iter().map(|p| (p.leader_id, p.error_code));
        assert!(leaders.eq([(1, 0), (2, 0), (3, 0)]), "{:?}", answer.topics[0].partitions);

        let keys = vec!["one", "two", "three", "four"];
        let request = FindCoordinatorRequest { coordinator_keys: keys, ..Default::default() };
        let answer = wire.ask(4, &request);
        let answer: FindCoordinatorResponse<'_> = answer.read();
        let found = answer.coordinators.iter().map(|c| {
            assert_eq!(code(c.error_code), ErrorCode::None);
            assert_eq!(c.port, i32::from(cluster.kafka(c.node_id).port()));
            (c.key.to_owned(), c.node_id)
        });
        coordinators.insert(found.collect::<Vec<_>>());
    }
    assert_eq!(controllers.len(), 1, "all name the same controller: {controllers:?}");
    assert_eq!(coordinators.len(), 1, "all name the same coordinators: {coordinators:?}");
}

#[test]
fn who_asks_the_wrong_broker_is_told_the_right_one() {
    let cluster = Cluster::start();
    let id = cluster.create("topic", &[&[2, 1, 3]], &[]);
    let port = i32::from(cluster.kafka(2).port());
    let mut wire = cluster.connect(1);
    let good = batch(&["a"]);

    let answer = wire.ask(10, &produce_request("topic", 0, -1, &good));
    let answer: ProduceResponse<'_> = answer.read();
    let partition = &answer.responses[0].partition_responses[0];
    assert_eq!(code(partition.error_code), ErrorCode::NotLeaderOrFollower);
    let leader = (partition.current_leader.leader_id, partition.current_leader.leader_epoch);
    assert_eq!(leader, (2, 0));
    let endpoints = answer.node_endpoints.iter().map(|node| (node.node_id, node.host, node.port));
    assert!(endpoints.eq([(2, "127.0.0.1", port)]), "{:?}", answer.node_endpoints);

    let mut request = fetch_request("topic", 0, 0, Duration::ZERO);
    request.topics[0].topic_id = id;
    request.topics[0].partitions[0].current_leader_epoch = -1;
    let answer = wire.ask(10, &request);
    let answer: FetchResponse<'_> = answer.read();
    let refused = answer.responses[0].partitions[0].error_code;
    assert_eq!(code(refused), ErrorCode::NotLeaderOrFollower, "followers serve from version 11 on");

    // An election, so that there is an older epoch to be fenced.
    cluster.in_sync("topic", 0, &[1, 2, 3]);
    let mut cluster = cluster;
    cluster.kill(2);
    cluster.eventually("another one leads", |image| {
        image.topic("topic").is_some_and(|t| t.partitions[0].leader.is_some_and(|l| l.0 != 2))
    });
    let leader = cluster.leader_of("topic", 0);
    let epoch = cluster.state("topic", 0).leader_epoch.0;
    request.topics[0].partitions[0].current_leader_epoch = 0;
    let mut wire = cluster.connect(leader);
    let is_told = || {
        let answer = wire.ask(16, &request);
        let answer: FetchResponse<'_> = answer.read();
        let partition = &answer.responses[0].partitions[0];
        if code(partition.error_code) == ErrorCode::NotLeaderOrFollower {
            // It learns only now that it leads.
            return false;
        }
        assert_eq!(code(partition.error_code), ErrorCode::FencedLeaderEpoch);
        let told = (partition.current_leader.leader_id, partition.current_leader.leader_epoch);
        assert_eq!(told, (leader, epoch));
        assert_eq!(answer.node_endpoints.len(), 1);
        assert_eq!(answer.node_endpoints[0].port, i32::from(cluster.kafka(leader).port()));
        true
    };
    crate::peer_transport::eventually(is_told);
}

#[test]
fn a_consumer_is_sent_to_a_replica_in_its_rack_and_served_there() {
    let racks = vec!["a", "b", "c"];
    let cluster = Cluster::start_with(3, ClusterOptions { racks, ..Default::default() });
    cluster.create("topic", &[&[1, 2, 3]], &[("min.insync.replicas", "3")]);
    cluster.in_sync("topic", 0, &[1, 2, 3]);
    let mut leader = cluster.connect(1);
    assert_eq!(leader.produce("topic", &batch(&["a", "b"])).error, ErrorCode::None);

    let from = |rack: &'static str, offset: i64| {
        let mut request = fetch_request("topic", offset, 0, Duration::ZERO);
        request.rack_id = rack;
        request
    };
    for (rack, preferred) in [("", -1), ("a", -1), ("b", 2), ("c", 3), ("elsewhere", -1)] {
        let answer = leader.ask(11, &from(rack, 0));
        let answer: FetchResponse<'_> = answer.read();
        let partition = &answer.responses[0].partitions[0];
        assert_eq!(code(partition.error_code), ErrorCode::None);
        assert_eq!(partition.preferred_read_replica, preferred, "rack {rack}");
        let bytes = partition.records.and_then(|records| records.bytes()).unwrap_or_default();
        assert_eq!(bytes.is_empty(), 0 <= preferred, "rack {rack}");
    }

    // Waits there until the follower hears that the records are committed.
    let mut follower = cluster.connect(2);
    let mut waiting = fetch_request("topic", 0, 1, Duration::from_secs(15));
    waiting.rack_id = "b";
    let answer = follower.ask(11, &waiting);
    let answer: FetchResponse<'_> = answer.read();
    let fetched = crate::wire::fetched(&answer.responses[0].partitions[0]);
    assert_eq!((fetched.error, fetched.values()), (ErrorCode::None, vec!["a".into(), "b".into()]));
    assert_eq!(fetched.high_watermark, 2);

    let at = |follower: &mut crate::wire::Wire, offset: i64| {
        let answer = follower.ask(11, &from("b", offset));
        let answer: FetchResponse<'_> = answer.read();
        code(answer.responses[0].partitions[0].error_code)
    };
    assert_eq!(at(&mut follower, 2), ErrorCode::None);
    assert_eq!(at(&mut follower, 3), ErrorCode::OffsetOutOfRange);
}

#[test]
fn a_stranger_who_calls_himself_a_replica_gets_nothing() {
    let cluster = Cluster::start();
    cluster.create("topic", &[&[1, 2, 3]], &[]);
    let mut leader = cluster.connect(1);
    assert_eq!(leader.produce("topic", &batch(&["a"])).error, ErrorCode::None);
    let mut request = fetch_request("topic", 0, 0, Duration::ZERO);
    request.replica_id = 2;
    let answer = leader.ask(11, &request);
    let answer: FetchResponse<'_> = answer.read();
    let partition = &answer.responses[0].partitions[0];
    assert_eq!(code(partition.error_code), ErrorCode::TopicAuthorizationFailed);
    assert_eq!(partition.high_watermark, -1);
}

#[test]
fn a_broker_that_is_gone_is_fenced_its_replicas_offline_and_still_eligible() {
    let mut cluster = Cluster::start();
    cluster.create("topic", &[&[1, 2, 3]], &[("min.insync.replicas", "3")]);
    cluster.in_sync("topic", 0, &[1, 2, 3]);
    cluster.kill(3);
    cluster.in_sync("topic", 0, &[1, 2]);
    let leader = cluster.leader_of("topic", 0);
    let mut wire = cluster.connect(leader);

    let request = DescribeTopicPartitionsRequest {
        topics: vec![DescribeTopicPartitionsRequestTopicRequest { name: "topic" }],
        response_partition_limit: 10,
        ..Default::default()
    };
    let answer = wire.ask(0, &request);
    let answer: DescribeTopicPartitionsResponse<'_> = answer.read();
    let partition = &answer.topics[0].partitions[0];
    assert_eq!(partition.leader_id, leader);
    assert_eq!(partition.isr_nodes, [1, 2]);
    assert_eq!(partition.eligible_leader_replicas.as_deref(), Some(&[3][..]));
    assert_eq!(partition.offline_replicas, [3]);

    let answer = wire.ask(12, &MetadataRequest { topics: None, ..Default::default() });
    let answer: MetadataResponse<'_> = answer.read();
    assert_eq!(answer.brokers.iter().map(|b| b.node_id).collect::<Vec<_>>(), [1, 2]);
    let topic = answer.topics.iter().find(|topic| topic.name == Some("topic")).unwrap();
    assert_eq!(topic.partitions[0].offline_replicas, [3]);
    for (fenced_too, expected) in [(false, vec![1, 2]), (true, vec![1, 2, 3])] {
        let request =
            DescribeClusterRequest { include_fenced_brokers: fenced_too, ..Default::default() };
        let answer = wire.ask(2, &request);
        let answer: DescribeClusterResponse<'_> = answer.read();
        assert_eq!(answer.brokers.iter().map(|b| b.broker_id).collect::<Vec<_>>(), expected);
    }

    // Too few are in sync for what the topic asks.
    let refused = wire.ask(9, &produce_request("topic", 0, -1, &batch(&["refused"])));
    assert_eq!(crate::wire::produced(&refused).error, ErrorCode::NotEnoughReplicas);
    let taken = wire.ask(9, &produce_request("topic", 0, 1, &batch(&["taken"])));
    assert_eq!(crate::wire::produced(&taken).error, ErrorCode::None);

    cluster.start_again(3);
    cluster.in_sync("topic", 0, &[1, 2, 3]);
    assert_eq!(wire.produce("topic", &batch(&["again"])).error, ErrorCode::None);
}

/// The leader has the batch when it learns that a follower is gone.
#[test]
fn replication_is_reported_and_a_batch_that_too_few_replicas_hold_is_named_so() {
    let mut cluster = Cluster::start();
    cluster.create("topic", &[&[1, 2, 3]], &[("min.insync.replicas", "3")]);
    cluster.in_sync("topic", 0, &[1, 2, 3]);
    assert_eq!(cluster.connect(1).produce("topic", &batch(&["a"])).error, ErrorCode::None);
    let controllers = (1..=3).filter(|id| cluster.replication(*id).is_controller);
    assert_eq!(controllers.count(), 1);
    let before = cluster.replication(1);
    assert_eq!((before.under_replicated, before.under_min_in_sync, before.leaderless), (0, 0, 0));
    assert_eq!((before.led, before.held), (1, 1));
    let none = [(BrokerId(2), 0), (BrokerId(3), 0)];
    crate::peer_transport::eventually(|| cluster.replication(1).lags == BTreeMap::from(none));

    cluster.kill(3);
    // Not refused at once: the leader still believes that three are in sync.
    let mut waiting = cluster.connect(1);
    let late = batch(&["b"]);
    let mut request = produce_request("topic", 0, -1, &late);
    request.timeout_ms = 8_000;
    waiting.send(9, &request);
    cluster.in_sync("topic", 0, &[1, 2]);
    let answer = waiting.receive(ApiKey::Produce, 9);
    let error = crate::wire::produced(&answer).error;
    assert_eq!(error, ErrorCode::NotEnoughReplicasAfterAppend);

    let after = cluster.replication(1);
    assert_eq!((after.under_replicated, after.under_min_in_sync, after.leaderless), (1, 1, 0));
    assert_eq!(after.in_sync_shrinks, before.in_sync_shrinks + 1);
    assert_eq!(after.lags[&BrokerId(3)], 1);
    cluster.start_again(3);
    cluster.in_sync("topic", 0, &[1, 2, 3]);
    let again = cluster.replication(1);
    assert_eq!(again.in_sync_expands, before.in_sync_expands + 1);
    assert_eq!((again.under_replicated, again.under_min_in_sync), (0, 0));
}

/// The segment is the newest one, to which everything is written.
#[test]
fn a_replica_whose_newest_records_are_damaged_is_copied_anew_without_a_restart() {
    let cluster = Cluster::start();
    cluster.create("topic", &[&[1, 2, 3]], &[]);
    cluster.in_sync("topic", 0, &[1, 2, 3]);
    let whole = vec![b'w'; 10_000];
    let whole = String::from_utf8(whole).unwrap();
    for _ in 0..3 {
        let produced = cluster.connect(1).produce("topic", &batch(&[&whole]));
        assert_eq!(produced.error, ErrorCode::None);
    }
    let rotten = segment_below(cluster.data(1)).expect("broker 1 has a replica");
    let file = std::fs::OpenOptions::new().write(true).open(&rotten).unwrap();
    file.write_all_at(b"XYZ", 15_000).unwrap();
    cluster.doubt(1, "topic", 1);
    cluster.eventually("another broker leads", |image| {
        let state = &image.topic("topic").unwrap().partitions[0];
        state.leader.is_some_and(|leader| leader != BrokerId(1))
    });
    cluster.in_sync("topic", 0, &[1, 2, 3]);
    let bytes = |id: i32| std::fs::read(segment_below(cluster.data(id)).unwrap()).unwrap();
    let end = bytes(2).iter().rposition(|byte| *byte != 0).unwrap() + 1;
    crate::peer_transport::eventually(|| bytes(1).get(..end) == bytes(2).get(..end));
}

/// The first segment of a user's topic below a data directory.
fn segment_below(directory: &Path) -> Option<PathBuf> {
    for entry in std::fs::read_dir(directory).ok()?.flatten() {
        let path = entry.path();
        let found = if path.is_dir() { segment_below(&path) } else { None };
        let is_it = entry.file_name() == "00000000000000000000.log"
            && path.components().any(|at| at.as_os_str() == "topics");
        if found.is_some() || is_it {
            return found.or(Some(path));
        }
    }
    None
}
