use std::collections::BTreeMap;
use std::time::Duration;

use super::*;

fn refusal(property: Option<&Property>, value: &str) -> String {
    property.unwrap().check(value).unwrap_err().to_string()
}

#[test]
fn tables_are_sorted_so_that_names_are_found() {
    for table in [topics(), brokers(), groups()] {
        assert!(table.windows(2).all(|pair| pair[0].name < pair[1].name));
    }
}

#[test]
fn every_default_and_example_is_a_value_the_property_takes() {
    for property in topics().iter().chain(brokers()).chain(groups()) {
        for value in property.default.iter().chain([&property.example]) {
            assert_eq!(property.check(value), Ok(()), "{}", property.name);
        }
        assert!(property.documentation.ends_with('.'), "{}", property.name);
    }
}

#[test]
fn synonyms_are_broker_properties() {
    for property in topics().iter().chain(brokers()) {
        for synonym in property.synonyms {
            assert!(broker(synonym).is_some(), "{} of {}", synonym, property.name);
        }
    }
}

/// Read from a Kafka 4.4.0 broker by IncrementalAlterConfigs with `validate_only`.
#[test]
fn refusals_say_what_kafkas_say() {
    for (name, value, expected) in [
        ("retention.ms", "abc", "Not a number of type LONG"),
        ("retention.ms", "", "Not a number of type LONG"),
        ("retention.ms", "-5", "Value must be at least -1"),
        ("retention.ms", "9223372036854775808", "Not a number of type LONG"),
        ("segment.bytes", "1048575", "Value must be at least 1048576"),
        ("segment.bytes", "2147483648", "Not a number of type INT"),
        ("min.cleanable.dirty.ratio", "1.1", "Value must be no more than 1"),
        ("min.cleanable.dirty.ratio", "-0.1", "Value must be at least 0"),
        ("min.cleanable.dirty.ratio", "x", "Not a number of type DOUBLE"),
        ("cleanup.policy", "foo", "String must be one of: compact, delete"),
        (
            "message.timestamp.type",
            "createtime",
            "String must be one of: CreateTime, LogAppendTime",
        ),
        ("preallocate", "foo", "Expected value to be either true or false"),
        ("compression.gzip.level", "0", "Value must be between 1 and 9 or equal to -1"),
        ("compression.lz4.level", "18", "Value must be no more than 17"),
    ] {
        assert_eq!(
            refusal(topic(name), value),
            format!("Invalid value {value} for configuration {name}: {expected}")
        );
    }
}

#[test]
fn an_endless_value_is_refused_and_not_repeated() {
    let message = refusal(topic("retention.ms"), &"0".repeat(5000));
    assert!(message.contains("no longer than 4096 bytes"));
    assert!(message.len() < 400);
}

#[test]
fn what_kafka_accepts_is_accepted() {
    for (name, value) in [
        ("retention.ms", " 5 "),
        ("retention.bytes", "-2"),
        ("cleanup.policy", ""),
        ("cleanup.policy", "compact,delete"),
        ("cleanup.policy", "delete,delete"),
        ("cleanup.policy", " compact"),
        ("min.insync.replicas", "9"),
        ("preallocate", "TRUE"),
        ("unclean.leader.election.enable", "FALSE"),
        ("segment.index.bytes", "4"),
    ] {
        assert_eq!(topic(name).unwrap().check(value), Ok(()), "{name}={value}");
    }
}

#[test]
fn what_is_not_served_is_refused_by_name() {
    assert_eq!(
        refusal(topic("remote.storage.enable"), "true"),
        "Invalid value true for configuration remote.storage.enable: not served yet, the only value is \"false\": records live on this cluster's own disks only"
    );
    let throttled = topic("leader.replication.throttled.replicas");
    assert_eq!(throttled.unwrap().check("0:1,1:1"), Ok(()));
    assert_eq!(throttled.unwrap().check(&"1234:1,".repeat(2_000)), Ok(()), "a large topic");
    assert!(refusal(topic("leader.replication.throttled.replicas"), "x").contains("must be '*'"));
    assert!(refusal(group("consumer.session.timeout.ms"), "50000").contains("not served"));
}

#[test]
fn topics_have_kafkas_defaults() {
    let config = TopicConfig::default();
    assert_eq!(config.cleanup_policy, CleanupPolicy { delete: true, compact: false });
    assert_eq!(config.retention_ms, Some(604_800_000));
    assert_eq!(config.retention_bytes, None);
    assert_eq!(config.flush_ms, None);
    assert_eq!(config.max_message_bytes, 1_048_588);
    assert_eq!(config.message_timestamp_after_max_ms, Some(3_600_000));
    assert_eq!(config.message_timestamp_before_max_ms, None);
    assert_eq!(config.durability, Durability::Synced);
}

#[test]
fn a_value_of_a_later_version_falls_back_to_the_default() {
    let config = TopicConfig::resolve(|property| match property.name {
        "compression.type" => Some("brotli".into()),
        "retention.ms" => Some("-1".into()),
        _ => None,
    });
    assert_eq!(config.compression_type, CompressionType::Producer);
    assert_eq!(config.retention_ms, None);
}

#[test]
fn jitter_shortens_a_segments_life_but_never_to_nothing() {
    let mut config = TopicConfig { segment_ms: 10, segment_jitter_ms: 100, ..Default::default() };
    assert!((0..1000).all(|seed| (1..=10).contains(&config.segment_ms_with_jitter(seed))));
    config.segment_jitter_ms = 0;
    assert_eq!(config.segment_ms_with_jitter(7), 10);
}

#[test]
fn brokers_refuse_unknown_names_and_contradictions() {
    let overrides = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let config = BrokerConfig::from_overrides(&overrides(&[
        ("group.initial.rebalance.delay.ms", "0"),
        ("log.retention.hours", "24"),
        ("default.replication.factor", "3"),
    ]))
    .unwrap();
    assert_eq!(config.group_initial_rebalance_delay, Duration::ZERO);
    assert_eq!(config.offsets_retention, Duration::from_secs(7 * 24 * 3600));
    assert_eq!(config.default_replication_factor, Some(3));

    let unknown = BrokerConfig::from_overrides(&overrides(&[("log.retentoin.ms", "5")]));
    assert!(unknown.unwrap_err().to_string().contains("log.retentoin.ms"));
    let crossed =
        BrokerConfig::from_overrides(&overrides(&[("group.min.session.timeout.ms", "2000000")]));
    assert!(crossed.unwrap_err().to_string().contains("group.max.session.timeout.ms"));
}
