//! What Prometheus gets: well-formed text, the names that dashboards know, and nothing that costs a
//! scrape dearly.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use crate::open_metrics::{self, Family};
use crate::support::Broker;

/// A broker with something of everything: a group behind, a group that has lost, a refused request.
async fn lively() -> Broker {
    let broker = Broker::start().await;
    let create = |name: &str| {
        json!({"name": name, "partitions": 2, "configs": {"retention.ms": 600_000}}).to_string()
    };
    assert_eq!(broker.post("/topics", &create("orders")).await.status, 201);
    for partition in 0..2 {
        let body = json!({"messages": [{"value": "a", "partition": partition}, {"value": "b", "partition": partition}]});
        broker.post("/topics/orders/messages", &body.to_string()).await.ok();
    }
    broker.get("/topics/orders/partitions/0/messages").await.ok();
    let commit = r#"{"topic":"orders","partition":0,"offset":1}"#;
    broker.post("/groups/billing/offsets", commit).await.ok();
    broker
}

async fn scrape(broker: &Broker, path: &str) -> BTreeMap<String, Family> {
    let answer = broker.get(path).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(answer.head.contains("application/openmetrics-text; version=1.0.0"));
    open_metrics::parse(&answer.body).unwrap_or_else(|error| panic!("{error}\n{}", answer.body))
}

fn value(
    families: &BTreeMap<String, Family>,
    family: &str,
    labels: &[(&str, &str)],
) -> Option<f64> {
    let wanted: BTreeMap<String, String> =
        labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let samples = &families.get(family)?.samples;
    samples.iter().find(|sample| sample.labels == wanted).map(|sample| sample.value)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_well_formed_and_groups_have_the_numbers_of_the_api() {
    let broker = lively().await;
    let families = scrape(&broker, "/metrics").await;
    let place = [("group", "billing"), ("topic", "orders"), ("partition", "0")];
    let of = |name: &str| value(&families, name, &place);
    assert_eq!(of("towpath_group_lag_records"), Some(1.0));
    assert_eq!(of("towpath_group_lost_records"), Some(0.0));
    assert!(of("towpath_group_lag_seconds").is_some_and(|seconds| (0.0..60.0).contains(&seconds)));
    assert!(of("towpath_group_retention_ratio").is_some_and(|ratio| (0.0..0.5).contains(&ratio)));
    assert!(of("towpath_group_time_to_loss_seconds").is_some_and(|left| 500.0 < left));
    let topic = [("topic", "orders")];
    assert_eq!(value(&families, "towpath_topic_in_records", &topic), Some(4.0));
    assert!(value(&families, "towpath_topic_out_bytes", &topic).is_some_and(|out| 0.0 < out));
    assert_eq!(value(&families, "towpath_groups", &[]), Some(1.0));
    assert!(value(&families, "process_cpu_seconds", &[]).is_some());
    broker.stop().await;
}

/// Names and labels as kafka_exporter's source has them (danielqsj/kafka_exporter, `setup`).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kafka_exporters_names_have_its_labels() {
    let broker = lively().await;
    let families = scrape(&broker, "/metrics?names=kafka_exporter").await;
    let partition = ["partition", "topic"].as_slice();
    let group = ["consumergroup", "partition", "topic"].as_slice();
    let expected = BTreeMap::from([
        ("kafka_brokers", [].as_slice()),
        ("kafka_broker_info", &["address", "id"]),
        ("kafka_topic_partitions", &["topic"]),
        ("kafka_topic_partition_current_offset", partition),
        ("kafka_topic_partition_oldest_offset", partition),
        ("kafka_topic_partition_leader", partition),
        ("kafka_topic_partition_replicas", partition),
        ("kafka_topic_partition_in_sync_replica", partition),
        ("kafka_topic_partition_leader_is_preferred", partition),
        ("kafka_topic_partition_under_replicated_partition", partition),
        ("kafka_consumergroup_current_offset", group),
        ("kafka_consumergroup_current_offset_sum", &["consumergroup", "topic"]),
        ("kafka_consumergroup_lag", group),
        ("kafka_consumergroup_lag_sum", &["consumergroup", "topic"]),
        ("kafka_consumergroup_members", &["consumergroup"]),
    ]);
    assert!(families.keys().eq(expected.keys()), "{:?}", families.keys());
    for (name, labels) in expected {
        let family = &families[name];
        assert_eq!(family.kind, "gauge", "{name}");
        assert!(!family.samples.is_empty(), "{name}");
        for sample in &family.samples {
            assert!(sample.labels.keys().eq(labels), "{name}: {sample:?}");
        }
    }
    let lag = |partition| {
        let labels = [("consumergroup", "billing"), ("topic", "orders"), ("partition", partition)];
        value(&families, "kafka_consumergroup_lag", &labels)
    };
    assert_eq!((lag("0"), lag("1")), (Some(1.0), Some(-1.0)), "-1 where nothing is committed");
    let sum = [("consumergroup", "billing"), ("topic", "orders")];
    assert_eq!(value(&families, "kafka_consumergroup_lag_sum", &sum), Some(1.0));
    assert_eq!(value(&families, "kafka_consumergroup_current_offset_sum", &sum), Some(1.0));
    let ours = scrape(&broker, "/metrics?names=towpath").await;
    assert!(ours.keys().all(|name| !name.starts_with("kafka_")), "{:?}", ours.keys());
    broker.get("/metrics?names=everything").await.refused(400, "INVALID_PARAMETER");
    broker.stop().await;
}

/// Words in a PromQL expression that begin like a metric of ours.
fn names_in(text: &str) -> BTreeSet<String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c: char| !is_word(c));
    let prefixes = ["towpath_", "kafka_", "process_"];
    let names = words.filter(|word| prefixes.iter().any(|prefix| word.starts_with(prefix)));
    names.map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn alert_rules_and_dashboard_name_only_what_is_served() {
    let broker = lively().await;
    let families = scrape(&broker, "/metrics").await;
    let mut served = BTreeSet::new();
    for (name, family) in &families {
        for suffix in open_metrics::suffixes(&family.kind) {
            served.insert(format!("{name}{suffix}"));
        }
    }
    let alerts = include_str!("../../../../docs/monitoring/alerts.yml");
    let dashboard = include_str!("../../../../docs/monitoring/grafana-dashboard.json");
    let parsed: serde_json::Value = serde_json::from_str(dashboard).unwrap();
    assert!(10 < parsed["panels"].as_array().unwrap().len());
    let mut named = names_in(alerts);
    assert!(10 < named.len());
    named.extend(names_in(dashboard));
    let missing: Vec<_> = named.difference(&served).collect();
    assert_eq!(missing, Vec::<&String>::new());
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scrape_of_a_thousand_partitions_and_a_hundred_groups_is_cheap() {
    let broker = Broker::start().await;
    let body = json!({"name": "wide", "partitions": 1_000, "configs": {}}).to_string();
    assert_eq!(broker.post("/topics", &body).await.status, 201);
    // Each has a file open, and a test may not open a thousand.
    for chunk in 0..4 {
        let messages: Vec<_> =
            (0..100).map(|n| json!({"value": "x", "partition": chunk * 100 + n})).collect();
        let body = json!({"messages": messages}).to_string();
        broker.post("/topics/wide/messages", &body).await.ok();
    }
    for group in 0..100 {
        let offsets: Vec<_> = (0..10)
            .map(|n| json!({"topic": "wide", "partition": group * 10 + n, "offset": 0}))
            .collect();
        let body = json!({"offsets": offsets}).to_string();
        broker.post(&format!("/groups/group-{group}/offsets"), &body).await.ok();
    }
    let families = scrape(&broker, "/metrics").await;
    assert_eq!(families["towpath_group_lag_records"].samples.len(), 1_000);
    assert!(1_000 < families["kafka_topic_partition_current_offset"].samples.len());
    let shown = families["kafka_consumergroup_lag"].samples.iter();
    let committed = shown.filter(|sample| 0.0 <= sample.value).count();
    assert_eq!(committed, 1_000, "no offset gives way to one that is missing");
    let cpu = |families: &BTreeMap<String, Family>| {
        value(families, "process_cpu_seconds", &[]).unwrap_or_default()
    };
    let before = cpu(&scrape(&broker, "/metrics").await);
    let mut last = before;
    const SCRAPES: u32 = 5;
    for _ in 0..SCRAPES {
        let answer = broker.get("/metrics").await;
        println!("{} bytes", answer.body.len());
        last = cpu(&open_metrics::parse(&answer.body).unwrap());
    }
    let each = (last - before) / f64::from(SCRAPES);
    // With parsing, in an unoptimised build. It only tells a scrape that is quadratic from one that
    // is not.
    println!("{:.0} ms of CPU per scrape, its parsing included", each * 1_000.0);
    assert!(each < 3.0, "{each} s");
    broker.stop().await;
}
