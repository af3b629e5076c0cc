//! What somebody sees who has just found Towpath: one command, then a message three ways.

use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use towpath_process::kafka::KafkaConnection;
use towpath_process::{Start, http};

use crate::support::{dev, output_of};

#[test]
fn a_message_goes_through_the_command_line_http_and_kafka_and_all_see_it() {
    let (broker, _data) = dev();
    let said = output_of(&broker, "send", &["hello", "it works"]);
    assert!(said.is_empty() || said.contains('0'), "{said}");
    assert_eq!(output_of(&broker, "read", &["hello", "--format", "%v\\n"]), "it works\n");

    let path = "/topics/hello/messages";
    let published =
        http::post(broker.addresses.http, path, &json!({ "value": "by HTTP" })).unwrap();
    let published = published.success().unwrap();
    assert_eq!((&published["partition"], &published["offset"]), (&json!(0), &json!(1)));

    let mut kafka = KafkaConnection::open(broker.addresses.kafka).unwrap();
    assert_eq!(kafka.produce("hello", 0, &[b"by Kafka"]).unwrap(), 2);

    let expected = ["it works", "by HTTP", "by Kafka"];
    let (records, end) = kafka.read_all("hello", 0, 0).unwrap();
    let values: Vec<_> = records.iter().map(|r| r.value.as_deref().unwrap()).collect();
    assert_eq!(values, expected.map(str::as_bytes));
    assert_eq!(end, 3);

    let path = "/topics/hello/partitions/0/messages?offset=0";
    let read = http::get(broker.addresses.http, path).unwrap().success().unwrap();
    let values: Vec<_> = read["messages"].as_array().unwrap().iter().map(|m| &m["value"]).collect();
    assert_eq!(values, expected);
    assert_eq!((&read["next_offset"], &read["high_watermark"]), (&json!(3), &json!(3)));

    let values = output_of(&broker, "read", &["hello", "--format", "%v\\n"]);
    assert_eq!(values, "it works\nby HTTP\nby Kafka\n");
}

#[test]
fn the_ready_line_comes_when_both_listeners_are_up() {
    for _ in 0..3 {
        let (broker, _data) = dev();
        let patience = Duration::from_millis(500);
        TcpStream::connect_timeout(&broker.addresses.kafka, patience).unwrap();
        TcpStream::connect_timeout(&broker.addresses.http, patience).unwrap();
        let ready = http::get(broker.addresses.http, "/readyz").unwrap();
        assert_eq!(ready.status, 200, "{ready:?}");
    }
}

#[test]
fn a_broker_that_tested_itself_shows_no_topic_for_it() {
    let (broker, _data) = dev();
    let topics = KafkaConnection::open(broker.addresses.kafka).unwrap().topics().unwrap();
    let visible: Vec<_> = topics.iter().filter(|name| !name.starts_with("__")).collect();
    assert!(visible.is_empty(), "{topics:?}");
    let listed = http::get(broker.addresses.http, "/topics").unwrap().success().unwrap();
    assert!(!listed.to_string().contains("selftest"), "{listed}");
}

#[test]
fn one_port_that_is_zero_makes_the_unnamed_one_zero_as_well() {
    let data = TempDir::with_prefix("towpath-process-").unwrap();
    let start = Start::dev(&data.path().join("data")).arguments(["--http", "127.0.0.1:0"]);
    let broker = start.ready().unwrap();
    assert_ne!(broker.addresses.kafka.port(), 9092);
    assert_ne!(broker.addresses.http.port(), 8080);
}

#[test]
fn an_ephemeral_broker_leaves_nothing_behind() {
    let directory = TempDir::with_prefix("towpath-process-").unwrap();
    let (home, temporary) = (directory.path().join("home"), directory.path().join("tmp"));
    std::fs::create_dir(&home).unwrap();
    std::fs::create_dir(&temporary).unwrap();
    let broker = Start::ephemeral()
        .in_directory(&home)
        .variable("TMPDIR", &temporary.to_string_lossy())
        .ready()
        .unwrap();
    output_of(&broker, "send", &["hello", "gone soon"]);
    crate::support::stop(broker);
    for place in [home, temporary] {
        let left: Vec<_> = std::fs::read_dir(&place).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}
