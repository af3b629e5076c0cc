//! Lag, retention and losses, as an operator sees them: command line, HTTP and metrics agree, and a
//! loss has a name.

use std::time::Duration;

use serde_json::{Value, json};
use towpath_process::kafka::KafkaConnection;
use towpath_process::{BrokerProcess, http};

use crate::support::{command, eventually, output_of, serve};

fn commit(broker: &BrokerProcess, group: &str, topic: &str, offset: i64) {
    let body = json!({ "topic": topic, "partition": 0, "offset": offset });
    let path = format!("/groups/{group}/offsets");
    http::post(broker.addresses.http, &path, &body).unwrap().success().unwrap();
}

fn printed(broker: &BrokerProcess, arguments: &[&str]) -> Value {
    let all: Vec<&str> = arguments.iter().copied().chain(["-o", "json"]).collect();
    serde_json::from_str(&output_of(broker, all[0], &all[1..])).unwrap()
}

/// The value of a sample by the beginning of its line.
fn sample(broker: &BrokerProcess, start: &str) -> f64 {
    let answer = http::get(broker.addresses.http, "/metrics").unwrap();
    let text = String::from_utf8(answer.body).unwrap();
    let found = text.lines().find_map(|line| line.strip_prefix(start)).unwrap_or_else(|| {
        panic!("{start} is missing in\n{text}");
    });
    found.trim().parse().unwrap()
}

#[test]
fn the_command_line_http_and_the_metrics_show_the_same_lag() {
    let (broker, _data) = serve("[broker]\nlog.retention.check.interval.ms = 100\n");
    let mut kafka = KafkaConnection::open(broker.addresses.kafka).unwrap();
    kafka
        .create_topic("jobs", 1, &[("retention.ms", "3600000"), ("retention.bytes", "800")])
        .unwrap();
    kafka.produce("jobs", 0, &[[b'x'; 100].as_slice(); 4]).unwrap();
    commit(&broker, "crew", "jobs", 1);

    let shown = printed(&broker, &["group", "lag", "crew"]);
    let row = &shown["offsets"][0];
    let told = http::get(broker.addresses.http, "/groups/crew/lag").unwrap().success().unwrap();
    let told = &told["partitions"][0];
    for name in ["lag_records", "lost_records", "retention_ratio"] {
        assert_eq!(row[name], told[name], "{name}: {shown}");
    }
    assert_eq!(row["lag_records"], 3);
    // Three quarters of 500 bytes or so, of 800 that are kept.
    let ratio = row["retention_ratio"].as_f64().unwrap();
    assert!((0.3..0.7).contains(&ratio), "{shown}");
    let seconds = row["lag_seconds"].as_f64().unwrap();
    assert!((0.0..60.0).contains(&seconds), "{shown}");
    let labels = "{group=\"crew\",topic=\"jobs\",partition=\"0\"}";
    assert!((sample(&broker, &format!("towpath_group_lag_records{labels}")) - 3.0).abs() < 0.1);
    assert!(
        (sample(&broker, &format!("towpath_group_retention_ratio{labels}")) - ratio).abs() < 1e-6
    );
    let name = "kafka_consumergroup_lag{consumergroup=\"crew\",topic=\"jobs\",partition=\"0\"}";
    assert!((sample(&broker, name) - 3.0).abs() < 0.1);

    assert_eq!(printed(&broker, &["group", "ls"])["groups"][0]["retention_ratio"], ratio);
    let status = printed(&broker, &["status"]);
    assert_eq!(
        (&status["worst_group"], &status["worst_retention_ratio"]),
        (&json!("crew"), &json!(ratio))
    );
    for (condition, exit) in
        [("records>=3", 5), ("records>3", 0), ("seconds>3000", 0), ("ratio>0.1", 5), ("lost>0", 0)]
    {
        let ended = command(&broker, "group", &["lag", "crew", "--fail-if", condition]);
        assert_eq!(ended.status.code(), Some(exit), "{condition}: {ended:#?}");
    }
}

#[test]
fn what_a_group_loses_is_named_on_the_command_line_and_in_the_log() {
    let (broker, _data) = serve("[broker]\nlog.retention.check.interval.ms = 100\n");
    let mut kafka = KafkaConnection::open(broker.addresses.kafka).unwrap();
    kafka.create_topic("held", 1, &[("retention.ms", "1"), ("retention.guard", "hold")]).unwrap();
    commit(&broker, "crew", "held", 0);
    kafka.produce("held", 0, &[b"one", b"two", b"three"]).unwrap();
    broker.wait_for_log("retention.guard holds", Duration::from_secs(20)).unwrap();
    assert!(0.0 < sample(&broker, "towpath_retention_held_bytes{topic=\"held\"}"));
    assert_eq!(printed(&broker, &["group", "show", "crew"])["losses"], json!([]));

    // An order is an order, and has a name too.
    output_of(&broker, "topic", &["trim", "held", "--before", "offset:2", "--yes"]);
    let shown = printed(&broker, &["group", "show", "crew"]);
    let loss = &shown["losses"][0];
    assert_eq!((&loss["first_offset"], &loss["last_offset"]), (&json!(0), &json!(1)), "{shown}");
    assert_eq!((&loss["topic"], &loss["cause"]), (&json!("held"), &json!("delete_records")));
    assert_eq!(shown["lost_records"], 2);
    broker
        .wait_for_log("records were deleted before a group had read them", Duration::from_secs(5))
        .unwrap();

    output_of(&broker, "topic", &["set", "held", "retention.guard=warn"]);
    eventually(Duration::from_secs(20), || {
        let shown = printed(&broker, &["group", "show", "crew"]);
        let losses = shown["losses"].as_array().unwrap();
        losses
            .iter()
            .any(|loss| loss["cause"] == "retention_time" && loss["last_offset"] == 2)
            .then_some(())
    });
    let lost = "towpath_retention_lost_records_total{cause=\"retention_time\"}";
    assert!((sample(&broker, lost) - 1.0).abs() < 0.1);
}
