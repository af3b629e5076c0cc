//! CreateTopics. The texts were read from a Kafka 4.4 broker (docs/kafka-behaviour.md §5).

use towpath_metadata::{ConfigOperation, ConfigSource, NewTopic, PartitionState, Reply, Request};
use towpath_model::{BrokerId, PartitionIndex};

use crate::support::{World, told, topic};

fn refused(change: impl FnOnce(&mut NewTopic)) -> String {
    let mut world = World::new();
    let mut topic = world.topic("t");
    change(&mut topic);
    told(world.create(topic))
}

fn named(name: &str) -> String {
    refused(|topic| topic.name = name.to_owned())
}

fn with_config(name: &str, value: Option<&str>) -> String {
    refused(|topic| topic.configs = vec![(name.to_owned(), value.map(str::to_owned))])
}

fn assigned(assignments: &[(i32, &[i32])]) -> String {
    refused(|topic| {
        let brokers = |ids: &[i32]| ids.iter().map(|id| BrokerId(*id)).collect();
        let assign = |(index, ids): &(i32, &[i32])| (PartitionIndex(*index), brokers(ids));
        topic.assignments = assignments.iter().map(assign).collect();
    })
}

#[test]
fn names_are_refused_as_kafka_refuses_them() {
    assert_eq!(named(""), "InvalidTopic: Topic name is invalid: the empty string is not allowed");
    assert_eq!(named("."), "InvalidTopic: Topic name is invalid: '.' is not allowed");
    assert_eq!(named(".."), "InvalidTopic: Topic name is invalid: '..' is not allowed");
    assert_eq!(
        named("a b"),
        "InvalidTopic: Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    );
    assert!(named(&"x".repeat(250)).ends_with("is longer than the max allowed length 249"));
    for name in ["__cluster_metadata", "__consumer_offsets", "__towpath_publishers"] {
        let expected = format!("InvalidRequest: Creation of internal topic {name} is prohibited.");
        assert_eq!(named(name), expected);
    }
}

#[test]
fn names_that_share_metrics_collide_also_within_one_request() {
    let mut world = World::new();
    world.create_named("a.b");
    let again = world.topic("a.b");
    assert_eq!(told(world.create(again)), "TopicExists: Topic 'a.b' already exists.");
    let collides = world.topic("a_b");
    assert_eq!(
        told(world.create(collides)),
        "InvalidTopic: Topic 'a_b' collides with existing topic: a.b"
    );
    let topics = vec![world.topic("x.y"), world.topic("x_y")];
    let Reply::CreatedTopics(results) =
        world.ask(Request::CreateTopics { topics, validate_only: false })
    else {
        panic!()
    };
    assert!(results[0].1.is_ok() && results[1].1.is_err());
}

#[test]
fn numbers_are_refused_as_kafka_refuses_them() {
    for partitions in [0, -2, i32::MIN] {
        assert_eq!(
            refused(|topic| topic.partitions = partitions),
            "InvalidPartitions: Number of partitions was set to an invalid non-positive value."
        );
    }
    for factor in [0, -2] {
        assert_eq!(
            refused(|topic| topic.replication_factor = factor),
            "InvalidReplicationFactor: Replication factor must be larger than 0, or -1 to use the default value."
        );
    }
    assert_eq!(
        refused(|topic| topic.replication_factor = 2),
        "InvalidReplicationFactor: Unable to replicate the partition 2 time(s): The target replication factor of 2 cannot be reached because only 1 broker(s) are registered."
    );
    for partitions in [10_001, i32::MAX] {
        assert_eq!(
            refused(|topic| topic.partitions = partitions),
            "PolicyViolation: Excessively large number of partitions per request."
        );
    }
}

#[test]
fn assignments_are_refused_as_kafka_refuses_them() {
    assert_eq!(assigned(&[(0, &[1]), (1, &[1])]), "2");
    assert_eq!(assigned(&[(1, &[1]), (0, &[1])]), "2");
    for (assignments, expected) in [
        (
            &[(0, &[9][..])][..],
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (&[(1, &[1][..])][..], "partitions should be a consecutive 0-based integer sequence"),
        (
            &[(-1, &[1][..]), (0, &[1][..])][..],
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            &[(0, &[1, 1][..])][..],
            "The manual partition assignment includes the broker 1 more than once.",
        ),
        (&[(0, &[][..])][..], "The manual partition assignment includes an empty replica list."),
        (
            &[(0, &[1][..]), (0, &[1][..])][..],
            "Found multiple manual partition assignments for partition 0",
        ),
    ] {
        assert_eq!(assigned(assignments), format!("InvalidReplicaAssignment: {expected}"));
    }
    let mut world = World::new();
    let mut topic = world.topic("t");
    topic.assignments = vec![(PartitionIndex(0), vec![BrokerId(1)])];
    topic.partitions = 1;
    assert_eq!(
        told(world.create(topic.clone())),
        "InvalidRequest: A manual partition assignment was specified, but numPartitions was not set to -1."
    );
    topic.partitions = -1;
    topic.replication_factor = 1;
    assert_eq!(
        told(world.create(topic)),
        "InvalidRequest: A manual partition assignment was specified, but replication factor was not set to -1."
    );
}

#[test]
fn configuration_is_refused_as_kafka_refuses_it() {
    assert_eq!(with_config("nope", Some("1")), "InvalidConfig: Unknown topic config name: nope");
    assert_eq!(
        with_config("retention.ms", Some("abc")),
        "InvalidConfig: Invalid value abc for configuration retention.ms: Not a number of type LONG"
    );
    assert_eq!(
        with_config("retention.ms", None),
        "InvalidConfig: Null value not supported for topic configs: retention.ms"
    );
    assert!(with_config("remote.storage.enable", Some("true")).contains("not served yet"));
    assert_eq!(with_config("min.insync.replicas", Some(" 9 ")), "1");
}

#[test]
fn a_name_twice_in_a_request_is_one_refusal_after_the_others() {
    let mut world = World::new();
    let topics = vec![world.topic("d"), world.topic("d"), world.topic("e")];
    let Reply::CreatedTopics(results) =
        world.ask(Request::CreateTopics { topics, validate_only: false })
    else {
        panic!()
    };
    let told: Vec<_> = results
        .into_iter()
        .map(|(name, result)| format!("{name} {}", told(result.map(|topic| topic.partitions))))
        .collect();
    assert_eq!(told, ["e 1", "d InvalidRequest: Duplicate topic name."]);
    assert!(world.image().topic("d").is_none());
}

#[test]
fn validating_answers_the_same_and_changes_nothing() {
    let mut world = World::new();
    let topics = vec![world.topic("t")];
    let request = |validate_only| Request::CreateTopics { topics: topics.clone(), validate_only };
    let (records, validated) = world.decide(request(true));
    assert!(records.is_empty());
    let (_, created) = world.decide(request(false));
    assert_eq!(validated, created);
    assert_eq!(world.image().topic_count(), 1);
}

#[test]
fn a_topic_that_is_created_as_a_queue_is_nothing_else_unless_it_says_so() {
    let mut world = World::new();
    let all: [(&str, &[(&str, &str)]); 3] = [
        ("jobs", &[("queue.enable", "true")]),
        ("both", &[("queue.enable", "true"), ("queue.only", "false")]),
        ("log", &[]),
    ];
    for (name, configs) in all {
        let mut topic = world.topic(name);
        let configs = configs.iter();
        topic.configs =
            configs.map(|(name, value)| ((*name).into(), Some((*value).into()))).collect();
        world.ask(Request::CreateTopics { topics: vec![topic], validate_only: false });
    }
    let enable = ("queue.enable", ConfigOperation::Set, Some("true"));
    world.alter(topic("log"), &[enable]).unwrap();
    let is_only = |name: &str| {
        let topic = world.image().topic(name).unwrap();
        world.image().effective_config(topic).is_queue_only()
    };
    assert_eq!(["jobs", "both", "log"].map(is_only), [true, false, false]);
}

#[test]
fn a_new_topic_is_led_by_its_first_replica_with_all_in_sync() {
    let mut world = World::new();
    let mut topic = world.topic("orders");
    topic.partitions = 3;
    topic.configs = vec![
        ("retention.ms".to_owned(), Some("1".to_owned())),
        ("retention.ms".to_owned(), Some("2".to_owned())),
    ];
    let reply = world.ask(Request::CreateTopics { topics: vec![topic], validate_only: false });
    let Reply::CreatedTopics(results) = reply else { panic!() };
    let created = results[0].1.as_ref().unwrap();
    assert_eq!((created.partitions, created.replication_factor), (3, 1));
    let names: Vec<_> = created.configs.iter().map(|entry| entry.name()).collect();
    assert!(names.is_sorted() && names.contains(&"durability"));
    let set: Vec<_> =
        created.configs.iter().filter(|entry| entry.source == ConfigSource::Topic).collect();
    assert_eq!(set.len(), 1);
    assert_eq!(set[0].value.as_deref(), Some("2"), "of a repeated name the last counts");

    let topic = world.image().topic("orders").unwrap();
    assert_eq!(world.image().topic_by_id(created.id), Some(topic));
    let new = PartitionState {
        directories: vec![crate::support::directory(1)],
        ..PartitionState::new(vec![BrokerId(1)])
    };
    assert_eq!(topic.partitions, vec![new; 3]);
    assert_eq!(topic.partitions[0].leader, Some(BrokerId(1)));
    assert_eq!(world.image().partition_count(), 3);
}

#[test]
fn the_clusters_own_topics_are_created_the_same_way() {
    let mut world = World::new();
    let mut offsets = world.topic("__consumer_offsets");
    offsets.internal = true;
    offsets.partitions = 50;
    offsets.configs = vec![
        ("cleanup.policy".to_owned(), Some("compact".to_owned())),
        ("segment.bytes".to_owned(), Some("104857600".to_owned())),
    ];
    assert_eq!(told(world.create(offsets)), "50");
    let topic = world.image().topic("__consumer_offsets").unwrap();
    assert!(topic.internal);
    let config = world.image().effective_config(topic);
    assert!(config.cleanup_policy.compact && !config.cleanup_policy.delete);
    assert_eq!(config.segment_bytes, 104_857_600);

    let mut stranger = world.topic("mine");
    stranger.internal = true;
    assert!(world.create(stranger).is_err(), "only reserved names are internal");
}

#[test]
fn replication_defaults_to_three_or_to_the_brokers_there_are() {
    for (brokers, expected) in [(1, 1), (2, 2), (3, 3), (5, 3)] {
        let mut world = World::new();
        for id in 2..=brokers {
            world.register(id);
        }
        world.create_named("t");
        let topic = world.image().topic("t").unwrap();
        assert_eq!(topic.replication_factor(), expected);
        let config = world.image().effective_config(topic);
        assert_eq!(config.min_insync_replicas, expected.min(2) as u32);
    }
    let mut world = World::configured(&[("default.replication.factor", "2")]);
    let topic = world.topic("t");
    assert!(told(world.create(topic)).starts_with("InvalidReplicationFactor"));
}

#[test]
fn limits_are_refused_precisely_and_counted_within_a_request() {
    let mut world = World::configured(&[
        ("topics.max", "3"),
        ("partitions.max", "8"),
        ("topic.partitions.max", "5"),
        ("num.partitions", "2"),
    ]);
    let mut wide = world.topic("wide");
    wide.partitions = 6;
    assert_eq!(
        told(world.create(wide)),
        "PolicyViolation: Topic 'wide' would have 6 partitions; topic.partitions.max allows 5."
    );
    let mut topics: Vec<_> = ["a", "b", "c", "d"].map(|name| world.topic(name)).into();
    topics[2].partitions = 5;
    let reply = world.ask(Request::CreateTopics { topics, validate_only: false });
    let Reply::CreatedTopics(results) = reply else { panic!() };
    let told: Vec<_> =
        results.into_iter().map(|(_, result)| told(result.map(|topic| topic.partitions))).collect();
    assert_eq!(
        told,
        [
            "2",
            "2",
            "PolicyViolation: The cluster would have 9 partitions; partitions.max allows 8.",
            "2",
        ]
    );
    let more = world.topic("more");
    assert_eq!(
        crate::support::told(world.create(more)),
        "PolicyViolation: The cluster has 3 topics, as many as topics.max allows."
    );
}

#[test]
fn an_id_is_never_used_twice() {
    let mut world = World::new();
    let topic = world.topic("t");
    let id = topic.candidate_id;
    world.create(topic).unwrap();
    assert!(world.create(NewTopic::named("u", id)).is_err());
}
