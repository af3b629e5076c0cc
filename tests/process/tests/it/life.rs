//! Stopping, starting again, and what a second broker is told.

use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use towpath_process::kafka::KafkaConnection;
use towpath_process::{Finished, Start, http};

use crate::support::{COMMAND_PATIENCE, dev, output_of, stop, write};

/// Starts a broker that must refuse, and gives back what it said.
fn refusal_of(start: &Start) -> String {
    let Finished { status, stdout, stderr } = start.run(COMMAND_PATIENCE).unwrap();
    assert!(!status.success(), "it started");
    assert!(!stdout.contains("\"kafka\""), "it said that it is ready: {stdout}");
    assert!(!stderr.contains("panicked"), "{stderr}");
    stderr
}

fn any_port(start: Start) -> Start {
    start.arguments(["--kafka", "127.0.0.1:0", "--ready-json"])
}

#[test]
fn sigterm_stops_cleanly_and_everything_is_there_after_a_start() {
    let directory = TempDir::with_prefix("towpath-process-").unwrap();
    let start = Start::dev(&directory.path().join("data"));
    let broker = start.ready().unwrap();
    let mut kafka = KafkaConnection::open(broker.addresses.kafka).unwrap();
    kafka.create_topic("kept", 3, &[("retention.ms", "123456")]).unwrap();
    for partition in 0..3 {
        kafka.produce("kept", partition, &[b"a", b"b"]).unwrap();
    }
    stop(broker);

    let broker = start.ready().unwrap();
    let mut kafka = KafkaConnection::open(broker.addresses.kafka).unwrap();
    for partition in 0..3 {
        let (records, end) = kafka.read_all("kept", partition, 0).unwrap();
        assert_eq!((records.len(), end), (2, 2));
    }
    assert_eq!(kafka.produce("kept", 2, &[b"c"]).unwrap(), 2);
    let shown = output_of(&broker, "topic", &["show", "kept", "-o", "json"]);
    assert!(shown.contains("123456"), "{shown}");
    stop(broker);
}

#[test]
fn a_stop_does_not_wait_for_clients_that_stay() {
    let (broker, _data) = dev();
    let _idle = KafkaConnection::open(broker.addresses.kafka).unwrap();
    let _half = std::net::TcpStream::connect(broker.addresses.http).unwrap();
    let mut waiting = KafkaConnection::open(broker.addresses.kafka).unwrap();
    waiting.create_topic("empty", 1, &[]).unwrap();
    let mut fetch = towpath_process::kafka::fetch_request("empty", 0, 0);
    (fetch.max_wait_ms, fetch.min_bytes) = (30_000, 1);
    let frame = waiting.frame(&fetch, 12).unwrap();
    waiting.send(&frame).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    stop(broker);
}

#[test]
fn what_was_acknowledged_survives_kill_9() {
    let directory = TempDir::with_prefix("towpath-process-").unwrap();
    let start = Start::dev(&directory.path().join("data"));
    let broker = start.ready().unwrap();
    let mut kafka = KafkaConnection::open(broker.addresses.kafka).unwrap();
    kafka.create_topic("kept", 1, &[]).unwrap();
    let values: Vec<Vec<u8>> = (0..100_u32).map(|n| n.to_string().into_bytes()).collect();
    for value in &values {
        kafka.produce("kept", 0, &[value]).unwrap();
    }
    broker.kill().unwrap();

    let broker = start.ready().unwrap();
    let mut kafka = KafkaConnection::open(broker.addresses.kafka).unwrap();
    let (records, end) = kafka.read_all("kept", 0, 0).unwrap();
    let found: Vec<Vec<u8>> = records.into_iter().filter_map(|record| record.value).collect();
    assert_eq!((found, end), (values, 100));
}

#[test]
fn a_group_resumes_where_it_had_committed() {
    let directory = TempDir::with_prefix("towpath-process-").unwrap();
    let start = Start::dev(&directory.path().join("data"));
    let mut broker = start.ready().unwrap();
    let mut kafka = KafkaConnection::open(broker.addresses.kafka).unwrap();
    kafka.create_topic("jobs", 1, &[]).unwrap();
    kafka.produce("jobs", 0, &[b"one", b"two", b"three"]).unwrap();
    let commit = json!({ "topic": "jobs", "partition": 0, "offset": 2 });
    let committed = http::post(broker.addresses.http, "/groups/crew/offsets", &commit).unwrap();
    committed.success().unwrap();

    for ending in ["kill -9", "SIGTERM"] {
        match ending {
            "SIGTERM" => stop(broker),
            _ => broker.kill().unwrap(),
        }
        broker = start.ready().unwrap();
        let path = "/topics/jobs/partitions/0/messages?group=crew";
        let read = http::get(broker.addresses.http, path).unwrap().success().unwrap();
        let values: Vec<_> =
            read["messages"].as_array().unwrap().iter().map(|m| &m["value"]).collect();
        assert_eq!(values, ["three"], "after {ending}");
        let lag = output_of(&broker, "group", &["show", "crew", "-o", "json"]);
        assert!(lag.contains("jobs"), "{lag}");
    }
}

#[test]
fn a_broker_has_the_number_it_was_given_and_its_data_is_no_others() {
    let directory = TempDir::with_prefix("towpath-process-").unwrap();
    let data = directory.path().join("data");
    let broker = Start::dev(&data).arguments(["--node-id", "7"]).ready().unwrap();
    output_of(&broker, "send", &["orders", "one"]);
    let read = output_of(&broker, "read", &["orders", "--group", "crew", "--format", "%v\\n"]);
    assert_eq!(read, "one\n");
    let status = output_of(&broker, "status", &["-o", "json"]);
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["nodes"][0]["id"], json!(7), "{status}");
    let shown = output_of(&broker, "topic", &["show", "orders", "-o", "json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["partitions"][0]["leader"], json!(7), "{shown}");
    stop(broker);

    let said = refusal_of(&any_port(Start::dev(&data)));
    let expected = format!("{} belongs to broker 7, and this is broker 1", data.display());
    assert!(said.contains(&expected), "{said}");
    // The refusal touched nothing: the next start still finds a clean stop.
    let start = Start::dev(&data).variable("TOWPATH_BROKER__NODE_ID", "7").arguments(["-v"]);
    let broker = start.ready().unwrap();
    assert_eq!(output_of(&broker, "read", &["orders", "--format", "%v\\n"]), "one\n");
    let log = broker.log();
    assert!(!log.contains("not clean"), "{log}");
    stop(broker);
}

#[test]
fn a_data_directory_that_is_missing_is_named_by_status() {
    let directory = TempDir::with_prefix("towpath-process-").unwrap();
    let [first, second] = ["one", "two"].map(|name| directory.path().join(name));
    let more = second.to_string_lossy().into_owned();
    let start = Start::dev(&first).arguments(["--data", &more]);
    let broker = start.ready().unwrap();
    let healthy = output_of(&broker, "status", &["--check", "-o", "json"]);
    let healthy: serde_json::Value = serde_json::from_str(&healthy).unwrap();
    assert_eq!(healthy["data_directory_problems"], json!([]), "{healthy}");
    stop(broker);

    // Its disk is not mounted: an empty directory is in its place.
    std::fs::rename(&second, directory.path().join("elsewhere")).unwrap();
    std::fs::create_dir(&second).unwrap();
    let broker = start.ready().unwrap();
    let status = crate::support::command(&broker, "status", &["--check"]);
    assert_eq!(status.status.code(), Some(5), "{status:#?}");
    let expected = format!("{} is empty, but this broker had a data directory", second.display());
    assert!(status.stdout.contains(&expected), "{status:#?}");
    stop(broker);
}

#[test]
fn a_second_broker_on_the_same_data_is_refused_by_name() {
    let (broker, directory) = dev();
    let data = directory.path().join("data");
    let said = refusal_of(&any_port(Start::dev(&data)));
    assert!(said.contains(&*data.to_string_lossy()), "the directory is not named: {said}");
    assert!(said.contains("in use") || said.contains("another"), "{said}");
    // The first one has not noticed.
    output_of(&broker, "send", &["hello", "still here"]);
}

#[test]
fn a_port_in_use_is_named_with_a_way_out() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let directory = TempDir::with_prefix("towpath-process-").unwrap();
    for flag in ["--kafka", "--http"] {
        let other = if flag == "--kafka" { "--http" } else { "--kafka" };
        let start = Start::dev(&directory.path().join("data")).arguments([
            flag,
            &address,
            other,
            "127.0.0.1:0",
            "--ready-json",
        ]);
        let said = refusal_of(&start);
        assert!(said.contains(&taken.local_addr().unwrap().port().to_string()), "{said}");
        assert!(said.contains(flag), "no flag to change it with: {said}");
    }
}

#[test]
fn serve_listens_beyond_loopback_only_when_told_that_it_is_insecure() {
    let directory = TempDir::with_prefix("towpath-process-").unwrap();
    let data = directory.path().join("data");
    for flag in ["--kafka", "--http"] {
        let start = Start::serve(&data).arguments([flag, "0.0.0.0:0", "--ready-json"]);
        let said = refusal_of(&start);
        assert!(said.contains("--insecure"), "{said}");
        assert!(!Path::new(&data).join("towpath.lock").exists(), "it touched the data first");
    }
    let start = Start::serve(&data).arguments(["--kafka", "0.0.0.0:0", "--insecure"]);
    let broker = start.ready().unwrap();
    assert_ne!(broker.addresses.kafka.port(), 0);
}

#[test]
fn a_configuration_that_is_wrong_names_the_line() {
    let directory = TempDir::with_prefix("towpath-process-").unwrap();
    let text = "kafka = \"127.0.0.1:0\"\n\n[broker]\n\"num.partitions\" = \"many\"\n";
    let file = write(directory.path(), "towpath.toml", text);
    let start =
        Start::serve(&directory.path().join("data")).arguments(["--config", &file, "--ready-json"]);
    let said = refusal_of(&start);
    assert!(said.contains("num.partitions"), "{said}");
    assert!(said.contains("line 4") || said.contains(":4"), "the line is not named: {said}");
}
