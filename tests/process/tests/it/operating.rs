//! What an operator does to a cluster while it serves: nodes start anew one after the other, replicas
//! move as fast as they may, load is spread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};
use towpath_client::{ClientConfig, Cluster as Client, OutgoingRecord, Producer, ProducerConfig};
use towpath_process::kafka::KafkaConnection;
use towpath_process::{Start, http};

use crate::cluster::{Cluster, WHOLE_PATIENCE};
use crate::support::{eventually, stop};

/// How long a command that goes through all nodes may take, in an unoptimised build on a busy machine.
const OPERATION_PATIENCE: Duration = Duration::from_secs(240);

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

impl Cluster {
    fn servers(&self) -> String {
        let first = self.places.iter().take(3);
        first.map(|place| place.addresses.kafka.to_string()).collect::<Vec<_>>().join(",")
    }

    /// Runs `towpath cluster …`, which may take long.
    fn operate(&self, arguments: &[&str]) -> Value {
        let start = Start::command("cluster").arguments(arguments);
        let start =
            start.arguments(["--timeout", "25s", "--server", &self.servers(), "-o", "json"]);
        let finished = start.run(OPERATION_PATIENCE).unwrap();
        assert!(finished.status.success(), "towpath cluster {arguments:?}: {finished:#?}");
        println!("{}", finished.stderr);
        json(&finished.stdout)
    }

    /// Creates a topic whose partitions lie on these brokers.
    fn create_on(&self, topic: &str, layout: &[Vec<i32>]) {
        let mut kafka = KafkaConnection::open(self.places[0].addresses.kafka).unwrap();
        kafka.create_placed_topic(topic, layout).unwrap();
    }

    /// The epoch of each node's registration.
    fn epochs(&self) -> Vec<i64> {
        let nodes = json(&self.run("node", &["ls", "-o", "json"]));
        let nodes = nodes["nodes"].as_array().unwrap().clone();
        let shown = nodes.iter().map(|node| {
            json(&self.run("node", &["show", &node["node"].to_string(), "-o", "json"]))
        });
        shown.map(|node| node["broker_epoch"].as_i64().unwrap()).collect()
    }
}

/// A producer at work: numbers, one after the other, spread over the partitions of a topic.
struct Load {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<u32>,
}

impl Load {
    fn begin(servers: &str, topic: &'static str, partitions: i32) -> Load {
        let is_over = Arc::new(AtomicBool::new(false));
        let config = ClientConfig::new(servers).unwrap();
        let told = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(publish(config, topic, partitions, &told))
        });
        Load { is_over, thread }
    }

    /// How many numbers were published, each of them acknowledged.
    fn end(self) -> u32 {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

async fn publish(config: ClientConfig, topic: &str, partitions: i32, is_over: &AtomicBool) -> u32 {
    let client = Client::connect(config).await.unwrap();
    let producer = Producer::new(client, ProducerConfig::default()).unwrap();
    let mut number = 0;
    let mut sent = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let partition = i32::try_from(number).unwrap() % partitions;
        let record = OutgoingRecord::new(topic, number.to_string().into_bytes());
        let record = record.partition(partition);
        sent.push(producer.send(record).await.unwrap());
        number += 1;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for delivery in sent {
        delivery.await.expect("retries are the client's business; nothing else may fail");
    }
    number
}

/// Every number once, and in order within its partition.
fn check_numbers(cluster: &Cluster, topic: &str, partitions: u32, count: u32) {
    let read = cluster.run("read", &[topic, "-o", "jsonl", "--from", "earliest"]);
    let mut next: Vec<u32> = (0..partitions).collect();
    for line in read.lines() {
        let record = json(line);
        let partition = usize::try_from(record["partition"].as_u64().unwrap()).unwrap();
        let number: u32 = record["value"].as_str().unwrap().parse().unwrap();
        assert_eq!(number, next[partition], "in partition {partition}, of {count}");
        next[partition] += partitions;
    }
    assert!(next.iter().all(|next| count <= *next), "{next:?} of {count}");
}

#[test]
fn load_is_spread_and_moves_are_seen_and_taken_back() {
    let cluster = Cluster::of(3);
    let brokers = cluster.first_three();
    let large = "x".repeat(400_000);
    // Brokers hold 11, 10 and 9 replicas and lead 11, 4 and none: not enough for the controller to move
    // any by itself.
    let mut layout = vec![vec![1, 2]; 6];
    layout.extend(vec![vec![1, 3]; 5]);
    layout.extend(vec![vec![2, 3]; 4]);
    cluster.create_on("t", &layout);
    for partition in (0..15).flat_map(|partition| [partition; 4]) {
        let message = json!({ "value": large, "partition": partition });
        // On a busy machine this broker may hear of the topic a moment later, or leaders may change.
        let publish = || {
            let at = cluster.places[2].addresses.http;
            http::post(at, "/topics/t/messages", &message).and_then(|answer| answer.success()).ok()
        };
        eventually(WHOLE_PATIENCE, publish);
    }
    let slow = "reassignment.max.bytes.per.second=50000";
    cluster.run("config", &["set", slow]);
    let plan = cluster.operate(&["balance", "--plan"]);
    assert_eq!(plan["moves"].as_array().map(Vec::len), Some(1), "{plan}");
    assert!(!plan["leaders"].as_array().unwrap().is_empty(), "{plan}");
    let ordered = cluster.operate(&["balance"]);
    assert_eq!(ordered["moves"], plan["moves"]);

    // They are on their way, and whoever is asked knows how far.
    let moving = eventually(WHOLE_PATIENCE, || {
        let moves = cluster.operate(&["moves"]);
        let moves = moves["moves"].as_array().unwrap().clone();
        let left = moves.iter().map(|moving| moving["bytes_left"].as_u64().unwrap_or(0));
        (left.min() > Some(0)).then_some(moves)
    });
    for place in cluster.places.iter().take(3) {
        let told = http::get(place.addresses.http, "/cluster/moves").unwrap().success().unwrap();
        let told = told["moves"].as_array().unwrap();
        assert!(told.iter().all(|moving| moving["adding"][0]["bytes_left"].is_u64()), "{told:?}");
    }
    let named = format!("t:{}", moving[0]["partition"]);
    cluster.run("cluster", &["moves", "--cancel", &named]);
    let left = cluster.operate(&["moves"]);
    assert_eq!(left["moves"], json!([]), "{left}");
    let again = cluster.try_run("cluster", &["moves", "--cancel", &named]);
    assert_eq!(again.status.code(), Some(1), "{again:#?}");

    let fast = "reassignment.max.bytes.per.second=100000000";
    cluster.run("config", &["set", fast]);
    cluster.operate(&["balance", "--wait", "--wait-max", "120s"]);
    let plan = cluster.operate(&["balance", "--plan"]);
    assert_eq!((&plan["moves"], &plan["leaders"]), (&json!([]), &json!([])), "{plan}");
    let nodes = json(&cluster.run("node", &["ls", "-o", "json"]));
    let held = nodes["nodes"].as_array().unwrap().iter().map(|node| node["replicas"].as_u64());
    let held: Vec<u64> = held.map(Option::unwrap).collect();
    assert!(held.iter().max().unwrap() - held.iter().min().unwrap() <= 1, "{nodes}");
    brokers.into_iter().for_each(stop);
}

#[test]
fn nodes_start_anew_under_load_and_no_record_is_lost_or_out_of_order() {
    let cluster = Cluster::of(3);
    let brokers = cluster.first_three();
    cluster.run("topic", &["create", "load", "--partitions", "3"]);
    cluster.wait_until_whole(3);
    let before = cluster.epochs();
    let pids: Vec<u32> = brokers.iter().map(|broker| broker.pid()).collect();

    let load = Load::begin(&cluster.servers(), "load", 3);
    let restarted = cluster.operate(&["restart"]);
    let count = load.end();
    assert_eq!(restarted["restarted"].as_array().map(Vec::len), Some(3), "{restarted}");
    assert!(100 < count, "{count} records are no load");
    let after = cluster.epochs();
    assert!(before.iter().max() < after.iter().min(), "{before:?}, then {after:?}");
    check_numbers(&cluster, "load", 3, count);
    for (mut broker, pid) in brokers.into_iter().zip(pids) {
        broker.check_running().unwrap();
        assert_eq!(broker.pid(), pid, "whoever supervises the process sees no end");
    }
}

/// Publishes so many messages to partition 0, asking broker 1; the offset of the last.
fn publish_some(cluster: &Cluster, topic: &str, count: usize) -> i64 {
    let path = format!("/topics/{topic}/messages");
    let mut last = -1;
    for _ in 0..count {
        last = eventually(WHOLE_PATIENCE, || {
            let message = json!({ "value": "v", "partition": 0 });
            let answer = http::post(cluster.places[0].addresses.http, &path, &message).ok()?;
            answer.success().ok()?["offset"].as_i64()
        });
    }
    last
}

fn wait_until_led(cluster: &Cluster, topic: &str, is_led: bool) {
    eventually(WHOLE_PATIENCE, || {
        let shown = cluster.try_run("topic", &["show", topic, "-o", "json"]);
        let shown: Value = serde_json::from_str(&shown.stdout).ok()?;
        (shown["partitions"][0]["leader"].is_i64() == is_led).then_some(())
    });
}

#[test]
fn the_loss_of_a_partition_is_accepted_by_name_and_stays_on_record() {
    let cluster = Cluster::of(3);
    let mut brokers = cluster.first_three();
    cluster.create_on("pair", &[vec![2, 3]]);
    cluster.create_on("single", &[vec![2]]);
    cluster.run("topic", &["set", "pair", "min.insync.replicas=1"]);
    let shared = publish_some(&cluster, "pair", 5);
    publish_some(&cluster, "single", 7);
    cluster.wait_until_whole(3);

    // Broker 3 falls behind; broker 2, which alone holds everything, goes away.
    brokers.pop().unwrap().kill().unwrap();
    let known = publish_some(&cluster, "pair", 3);
    // One whose answer was lost has been sent again.
    assert!(4 <= shared && shared < known, "{shared}, {known}");
    brokers.pop().unwrap().kill().unwrap();
    brokers.push(cluster.member(3).begin().unwrap().ready(WHOLE_PATIENCE).unwrap());
    wait_until_led(&cluster, "pair", false);

    let accept = ["accept-loss", "pair:0", "--by", "ada", "--yes", "-o", "json"];
    let refused = cluster.try_run("topic", &accept);
    assert_eq!(refused.status.code(), Some(1), "{refused:#?}");
    assert!(refused.stderr.contains("broker 2 holds a replica"), "{refused:#?}");
    assert!(refused.stderr.contains("--even-if-returning"), "{refused:#?}");
    let insisted = [&accept[..], &["--even-if-returning"]].concat();
    let accepted = json(&cluster.run("topic", &insisted));
    let loss = &accepted["accepted"][0];
    assert_eq!((&loss["node"], &loss["lost_from"]), (&json!(3), &json!(shared + 1)), "{accepted}");
    wait_until_led(&cluster, "pair", true);
    assert_eq!(publish_some(&cluster, "pair", 1), shared + 1, "new records follow what is left");

    // Broker 2 comes back with an empty disk: of `single` nothing is left anywhere.
    std::fs::remove_dir_all(&cluster.places[1].data).unwrap();
    brokers.push(cluster.member(2).begin().unwrap().ready(WHOLE_PATIENCE).unwrap());
    wait_until_led(&cluster, "single", false);
    let accept = ["accept-loss", "single:0", "--by", "ada", "--yes", "-o", "json"];
    let refused = cluster.try_run("topic", &accept);
    assert_eq!(refused.status.code(), Some(1), "{refused:#?}");
    assert!(refused.stderr.contains("--next-offset"), "{refused:#?}");
    cluster.run("topic", &[&accept[..], &["--next-offset", "1000"]].concat());
    wait_until_led(&cluster, "single", true);
    assert!(1000 <= publish_some(&cluster, "single", 1), "no offset is given out twice");

    let told = cluster.operate(&["losses"]);
    let told = told["losses"].as_array().unwrap();
    let named: Vec<&Value> = told.iter().map(|loss| &loss["topic"]).collect();
    assert_eq!(named, ["single", "pair"], "{told:?}");
    assert!(told.iter().all(|loss| loss["by"] == "ada"), "{told:?}");
    cluster.wait_until_whole(3);
    brokers.into_iter().for_each(stop);
}

// Only an unoptimised program can be told to be of a later level.
#[cfg(debug_assertions)]
#[test]
fn nodes_of_two_levels_run_together_until_the_newer_one_is_made_final() {
    const LEVEL: &str = "TOWPATH_TEST_FORMAT_LEVEL";
    let cluster = Cluster::of(3);
    let begin = |id: i32, level: &str| cluster.member(id).variable(LEVEL, level).begin().unwrap();
    let starting = [begin(1, "2"), begin(2, "2"), begin(3, "1")];
    let mut brokers: Vec<_> =
        starting.into_iter().map(|broker| broker.ready(WHOLE_PATIENCE).unwrap()).collect();
    cluster.run("topic", &["create", "t", "--partitions", "3"]);
    cluster.send(0..6);
    let shown = cluster.operate(&["upgrade"]);
    assert_eq!((&shown["format_level"], &shown["format_level_max"]), (&json!(1), &json!(1)));
    let refused = cluster.try_run("cluster", &["upgrade", "--finalize", "--yes"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:#?}");
    let path = "/cluster/format-level?level=2";
    let answer = http::post(cluster.places[0].addresses.http, path, &json!({})).unwrap();
    let said = String::from_utf8_lossy(&answer.body).into_owned();
    assert!(said.contains("broker 3 runs a program"), "{said}");

    stop(brokers.pop().unwrap());
    brokers.push(begin(3, "2").ready(WHOLE_PATIENCE).unwrap());
    let raised = cluster.operate(&["upgrade", "--finalize", "--yes"]);
    assert_eq!(raised["format_level"], 2, "{raised}");
    cluster.send(6..9);

    // There is no way back.
    stop(brokers.pop().unwrap());
    let older = cluster.member(3).variable(LEVEL, "1").run(WHOLE_PATIENCE).unwrap();
    assert_eq!(older.status.code(), Some(1), "{older:#?}");
    assert!(older.stderr.contains("reads levels up to 1 only"), "{older:#?}");
    brokers.push(begin(3, "2").ready(WHOLE_PATIENCE).unwrap());
    cluster.wait_until_whole(3);
    cluster.check_records(9);
    brokers.into_iter().for_each(stop);
}
