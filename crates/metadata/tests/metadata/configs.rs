//! Altering and describing configuration (docs/kafka-behaviour.md §6).

use towpath_metadata::ConfigOperation::{Append, Delete, Expect, Set, Subtract};
use towpath_metadata::{ConfigChange, Reply, Request, Resource, ResourceKind};
use towpath_model::Durability;

use crate::support::{World, broker, group, told, topic};

fn world() -> World {
    let mut world = World::new();
    world.create_named("t");
    world
}

#[test]
fn a_topics_own_value_comes_before_what_it_inherits() {
    let mut world = world();
    let retention = |world: &World| world.described(topic("t"), "retention.ms");
    assert_eq!(retention(&world), "604800000 Default");
    world.set(broker(""), "log.retention.ms", "888888").unwrap();
    assert_eq!(
        retention(&world),
        "888888 AllBrokers; log.retention.ms=888888 AllBrokers; log.retention.hours=168 Default"
    );
    world.set(broker("1"), "log.retention.ms", "777777").unwrap();
    world.set(topic("t"), "retention.ms", "5").unwrap();
    assert_eq!(
        retention(&world),
        "5 Topic; retention.ms=5 Topic; log.retention.ms=777777 Broker; log.retention.ms=888888 AllBrokers; log.retention.hours=168 Default"
    );
    assert_eq!(
        world.described(broker("1"), "log.retention.ms"),
        "777777 Broker; log.retention.ms=777777 Broker; log.retention.ms=888888 AllBrokers; log.retention.hours=168 Default"
    );
    world.alter(topic("t"), &[("retention.ms", Delete, None)]).unwrap();
    let config = world.image().effective_config(world.image().topic("t").unwrap());
    assert_eq!(config.retention_ms, Some(777_777));
}

#[test]
fn a_value_may_be_expected() {
    let mut world = world();
    let mut alter = |expected: Option<&str>, value: &str| {
        let expect = ("queue.tags", Expect, expected);
        world.alter(topic("t"), &[expect, ("queue.tags", Set, Some(value))])
    };
    alter(None, "a").unwrap();
    let refused = alter(None, "b").unwrap_err().to_string();
    assert!(refused.contains("queue.tags has been changed by somebody else"), "{refused}");
    alter(Some("a"), "b").unwrap();
    alter(Some("a"), "c").unwrap_err();
    world.alter(topic("t"), &[("queue.tags", Delete, None)]).unwrap();
    world
        .alter(topic("t"), &[("queue.tags", Expect, Some("")), ("retention.ms", Set, Some("9"))])
        .unwrap();
    assert_eq!(world.described(topic("t"), "queue.tags"), " Default");
}

#[test]
fn what_the_operator_wrote_is_inherited_in_the_topics_unit() {
    let mut world = World::configured(&[("log.retention.hours", "24"), ("log.roll.hours", "2")]);
    world.create_named("t");
    assert_eq!(
        world.described(topic("t"), "retention.ms"),
        "86400000 Static; log.retention.hours=24 Static; log.retention.hours=168 Default"
    );
    let config = world.image().effective_config(world.image().topic("t").unwrap());
    assert_eq!(config.segment_ms, 7_200_000);
    assert_eq!(
        world.described(broker("1"), "log.retention.minutes").split(';').next(),
        Some("1440 Static")
    );

    let mut world = World::configured(&[("log.retention.hours", "-1")]);
    world.create_named("t");
    let config = world.image().effective_config(world.image().topic("t").unwrap());
    assert_eq!(config.retention_ms, None, "for ever in any unit");
}

#[test]
fn lists_are_appended_to_and_taken_from() {
    let mut world = world();
    let policy = |world: &World| {
        let described = world.described(topic("t"), "cleanup.policy");
        described.split(';').next().unwrap().to_owned()
    };
    let change = |operation, value| [("cleanup.policy", operation, Some(value))];
    world.alter(topic("t"), &change(Append, "delete")).unwrap();
    assert_eq!(policy(&world), "delete Default", "nothing new, so nothing is set");
    world.alter(topic("t"), &change(Append, "compact")).unwrap();
    assert_eq!(policy(&world), "delete,compact Topic");
    world.alter(topic("t"), &change(Subtract, "delete")).unwrap();
    assert_eq!(policy(&world), "compact Topic");
    world.alter(topic("t"), &change(Subtract, "compact")).unwrap();
    assert_eq!(policy(&world), " Topic", "the empty list is a value");
    world.alter(topic("t"), &change(Subtract, "delete")).unwrap();
    assert_eq!(policy(&world), " Topic");
    assert!(world.alter(topic("t"), &change(Append, "shred")).is_err());
}

#[test]
fn topic_changes_are_refused_as_kafka_refuses_them() {
    let mut world = world();
    for (resource, change, expected) in [
        ("t", ("nope", Set, Some("1")), "InvalidConfig: Unknown topic config name: nope"),
        ("t", ("nope", Delete, None), "()"),
        (
            "t",
            ("retention.ms", Set, Some("abc")),
            "InvalidConfig: Invalid value abc for configuration retention.ms: Not a number of type LONG",
        ),
        (
            "t",
            ("retention.ms", Append, Some("5")),
            "InvalidConfig: Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (
            "t",
            ("retention.ms", Subtract, Some("5")),
            "InvalidConfig: Can't SUBTRACT to key retention.ms because its type is not LIST.",
        ),
        (
            "t",
            ("nope", Append, Some("5")),
            "InvalidConfig: Can't APPEND to key nope because its type is not LIST.",
        ),
        (
            "t",
            ("retention.ms", Set, None),
            "InvalidRequest: Null value not supported for : retention.ms",
        ),
        (
            "t",
            ("cleanup.policy", Append, None),
            "InvalidRequest: Null value not supported for : cleanup.policy",
        ),
        ("x", ("retention.ms", Set, Some("5")), "UnknownTopic: The topic 'x' does not exist."),
        (
            "x",
            ("retention.ms", Set, Some("abc")),
            "InvalidConfig: Invalid value abc for configuration retention.ms: Not a number of type LONG",
        ),
        (
            "",
            ("retention.ms", Set, Some("5")),
            "InvalidRequest: Default topic resources are not allowed.",
        ),
        (
            "a b",
            ("retention.ms", Set, Some("5")),
            "InvalidTopic: Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
        ),
    ] {
        assert_eq!(told(world.alter(topic(resource), &[change])), expected);
    }
    let twice = [("retention.ms", Set, Some("5")), ("retention.ms", Delete, None)];
    assert_eq!(
        told(world.alter(topic("t"), &twice)),
        "InvalidRequest: Error due to duplicate config keys"
    );
    let mixed = [("retention.ms", Set, Some("5")), ("segment.ms", Set, Some("x"))];
    assert!(world.alter(topic("t"), &mixed).is_err());
    assert!(world.image().topic("t").unwrap().overrides.is_empty(), "all of it or nothing");
}

#[test]
fn broker_changes_are_refused_as_kafka_refuses_them() {
    let mut world = world();
    for (resource, name, value, expected) in [
        (
            "1",
            "num.partitions",
            "5",
            "InvalidRequest: Cannot update these configs dynamically: [num.partitions]",
        ),
        (
            "",
            "auto.create.topics.enable",
            "false",
            "InvalidRequest: Cannot update these configs dynamically: [auto.create.topics.enable]",
        ),
        (
            "1",
            "log.retention.ms",
            "abc",
            "InvalidRequest: Invalid value abc for configuration log.retention.ms: Not a number of type LONG",
        ),
        (
            "7",
            "log.retention.ms",
            "5",
            "InvalidRequest: Unexpected broker id, expected 1, but received 7",
        ),
        ("x", "log.retention.ms", "5", "InvalidRequest: Node id must be an integer, but it is: x"),
        // Kafka keeps an unknown name for plug-ins, which we do not have.
        ("1", "nope", "5", "InvalidConfig: Unknown broker config name: nope"),
        ("", "max.connections", "100", "()"),
    ] {
        assert_eq!(told(world.set(broker(resource), name, value)), expected);
    }
    assert_eq!(world.image().broker_config().connections_max, 100);
    let described = |name: &str| told(world.image().describe(&broker(name)).map(|all| all.len()));
    assert_eq!(described(""), "1");
    assert_eq!(
        described("9"),
        "InvalidRequest: Unexpected broker id, expected 1 or empty string, but received 9"
    );
    assert_eq!(described("abc"), "InvalidRequest: Broker id must be an integer, but it is: abc");
    let entries = world.image().describe(&broker("1")).unwrap();
    let read_only = |name: &str| entries.iter().find(|e| e.name() == name).unwrap().read_only;
    assert!(read_only("num.partitions") && !read_only("max.connections"));
}

#[test]
fn groups_and_strangers() {
    let mut world = world();
    assert_eq!(world.image().describe(&group("g")).unwrap().len(), 21);
    assert_eq!(told(world.set(group("g"), "consumer.session.timeout.ms", "45000")), "()");
    assert!(
        told(world.set(group("g"), "consumer.session.timeout.ms", "50000")).contains("not served")
    );
    assert_eq!(
        told(world.set(group("g"), "nope", "5")),
        "InvalidConfig: Unknown group config name: nope"
    );
    assert_eq!(
        told(world.set(group(""), "nope", "5")),
        "InvalidRequest: Default group resources are not allowed."
    );
    let stranger = Resource { kind: ResourceKind::from_wire(99), name: "x".to_owned() };
    assert_eq!(
        told(world.set(stranger.clone(), "a", "b")),
        "InvalidRequest: Unknown resource type 99"
    );
    assert_eq!(
        told(world.image().describe(&stranger).map(|_| ())),
        "InvalidRequest: Unknown resource type 99"
    );
    assert_eq!(
        told(world.image().describe(&topic("x")).map(|_| ())).split(':').next(),
        Some("UnknownTopic")
    );
}

#[test]
fn replacing_sets_back_what_is_not_named() {
    let mut world = world();
    world.replace(topic("t"), &[("retention.ms", Some("9")), ("segment.ms", Some("8"))]).unwrap();
    world.replace(topic("t"), &[("segment.ms", Some("7"))]).unwrap();
    let overrides = |world: &World| format!("{:?}", world.image().topic("t").unwrap().overrides);
    assert_eq!(overrides(&world), r#"{"segment.ms": "7"}"#);
    assert_eq!(
        told(world.replace(topic("t"), &[("nope", Some("7"))])),
        "InvalidConfig: Unknown topic config name: nope"
    );
    assert_eq!(
        told(world.replace(topic("t"), &[("retention.ms", None)])),
        "InvalidRequest: Null value not supported for : retention.ms"
    );
    let twice = [("retention.ms", Some("1")), ("retention.ms", Some("2"))];
    assert_eq!(
        told(world.replace(topic("t"), &twice)),
        "InvalidRequest: Error due to duplicate config keys"
    );
    assert_eq!(overrides(&world), r#"{"segment.ms": "7"}"#);
    world.replace(topic("t"), &[]).unwrap();
    assert_eq!(overrides(&world), "{}");
}

#[test]
fn a_resource_twice_is_refused_each_time_and_no_change_is_no_record() {
    let mut world = world();
    let change = || {
        let change = ConfigChange {
            name: "retention.ms".to_owned(),
            operation: Set,
            value: Some("5".to_owned()),
        };
        (topic("t"), vec![change])
    };
    let resources = vec![change(), change()];
    let Reply::AlteredConfigs(results) =
        world.ask(Request::AlterConfigs { resources, validate_only: false })
    else {
        panic!()
    };
    assert!(results.iter().all(|(_, result)| told(result.clone())
        == "InvalidRequest: Each resource must appear at most once."));
    assert_eq!(results.len(), 2);
    let alter = |validate_only| Request::AlterConfigs { resources: vec![change()], validate_only };
    assert_eq!(world.decide(alter(true)).0.len(), 0);
    assert_eq!(world.decide(alter(false)).0.len(), 1);
    assert_eq!(world.decide(alter(false)).0.len(), 0);
}

/// `topic-configs.json` is what a Kafka 4.4.0 broker answers for a topic that nobody configured.
#[test]
fn a_new_topic_is_described_as_kafka_describes_it() {
    let kafkas = include_str!("../../../../tests/clients/oracle/topic-configs.json");
    let kafkas: Vec<serde_json::Value> = serde_json::from_str(kafkas).unwrap();
    let world = world();
    let ours = world.image().describe(&topic("t")).unwrap();
    for kafka in &kafkas {
        let name = kafka["name"].as_str().unwrap();
        let entry = ours.iter().find(|entry| entry.name() == name).expect(name);
        assert_eq!(entry.value.as_deref(), kafka["value"].as_str(), "{name}");
        assert_eq!(i64::from(entry.kind().wire_id()), kafka["type"].as_i64().unwrap(), "{name}");
        assert_eq!(entry.read_only, kafka["read_only"].as_bool().unwrap(), "{name}");
        assert_eq!(entry.is_sensitive(), kafka["sensitive"].as_bool().unwrap(), "{name}");
        // Kafka's formatting tool sets it for the whole cluster; ours follows from the topic.
        if name == "min.insync.replicas" {
            continue;
        }
        assert_eq!(i64::from(entry.source.wire_id()), kafka["source"].as_i64().unwrap(), "{name}");
        let synonyms: Vec<_> = entry
            .synonyms
            .iter()
            .map(|synonym| {
                serde_json::json!([synonym.name, synonym.value, synonym.source.wire_id()])
            })
            .collect();
        assert_eq!(serde_json::Value::Array(synonyms), kafka["synonyms"], "{name}");
    }
    let names = |name: &str| kafkas.iter().any(|kafka| kafka["name"] == name);
    let own = ours.iter().map(|e| e.name()).filter(|name| !names(name));
    let own: Vec<_> = own.filter(|name| !name.starts_with("queue.")).collect();
    let ours = ["durability", "retention.guard", "retention.guard.max.bytes"];
    assert_eq!(own, ours, "all others are Kafka's, or about queues");
}

#[test]
fn a_queue_stays_one_and_loses_no_records_by_its_configuration() {
    let mut world = world();
    let no = "InvalidConfig: Invalid value for configuration queue.enable: ";
    let refused =
        |told: String, why: &str| assert!(told.starts_with(&format!("{no}{why}")), "{told}");
    let enable = ("queue.enable", Set, Some("true"));
    let compact = ("cleanup.policy", Set, Some("compact,delete"));
    let relaxed = ("durability", Set, Some("relaxed"));
    let alter = |world: &mut World, changes: &[_]| told(world.alter(topic("t"), changes));
    refused(alter(&mut world, &[enable, compact]), "with cleanup.policy=compact");
    refused(alter(&mut world, &[enable, relaxed]), "with durability=relaxed");
    assert_eq!(alter(&mut world, &[("queue.enable", Set, Some("false"))]), "()");
    assert_eq!(alter(&mut world, &[("queue.enable", Set, Some(" TRUE "))]), "()");
    assert!(world.image().effective_config(world.image().topic("t").unwrap()).queue_enable);

    refused(alter(&mut world, &[("queue.enable", Set, Some("false"))]), "it stays true");
    refused(alter(&mut world, &[("queue.enable", Delete, None)]), "it stays true");
    refused(alter(&mut world, &[compact]), "with cleanup.policy=compact");
    refused(alter(&mut world, &[relaxed]), "with durability=relaxed");
    assert_eq!(alter(&mut world, &[("retention.ms", Set, Some("5"))]), "()");
}

#[test]
fn what_brokers_are_told_for_all_topics_does_not_break_queues() {
    let mut world = world();
    world.create_named("u");
    world.set(broker(""), "log.durability", "relaxed").unwrap();
    world.alter(topic("t"), &[("queue.enable", Set, Some("true"))]).unwrap();
    let of = |world: &World, name: &str| {
        world.image().effective_config(world.image().topic(name).unwrap())
    };
    assert_eq!(of(&world, "u").durability, Durability::Relaxed);
    assert_eq!(of(&world, "t").durability, Durability::Synced);
    assert_eq!(
        world.described(topic("t"), "durability"),
        "synced Default; log.durability=synced Default"
    );

    world.set(broker(""), "log.cleanup.policy", "compact").unwrap();
    assert!(!of(&world, "t").cleanup_policy.compact);
    let told = told(world.alter(topic("u"), &[("queue.enable", Set, Some("true"))]));
    assert!(
        told.contains("with cleanup.policy=compact"),
        "its records would begin to expire: {told}"
    );
}
