//! A cluster of real processes: it begins, loses brokers, gets them back, and grows.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use towpath_process::{Addresses, BrokerProcess, Start, free_addresses, http};

use crate::support::{COMMAND_PATIENCE, eventually, stop};

const SECRET: &str = "what only brokers of this cluster know";
/// How long a cluster may take to be whole again, in an unoptimised build on a busy machine.
const WHOLE_PATIENCE: Duration = Duration::from_secs(60);

struct Place {
    id: i32,
    addresses: Addresses,
    peer: SocketAddr,
    data: PathBuf,
}

struct Cluster {
    _directory: TempDir,
    places: Vec<Place>,
}

fn free_address() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

impl Cluster {
    fn of(brokers: i32) -> Cluster {
        let directory = TempDir::with_prefix("towpath-process-").unwrap();
        let place = |id| Place {
            id,
            addresses: free_addresses().unwrap(),
            peer: free_address(),
            data: directory.path().join(format!("data-{id}")),
        };
        let places = (1..=brokers).map(place).collect();
        Cluster { _directory: directory, places }
    }

    /// How the broker with this number is started, but for how it comes to its cluster.
    fn start(&self, id: i32) -> Start {
        let place = self.places.iter().find(|place| place.id == id).unwrap();
        Start::serve(&place.data)
            .at(place.addresses)
            .arguments(["--node-id", &id.to_string(), "--peer", &place.peer.to_string(), "-v"])
            .variable("TOWPATH_PEER_SECRET", SECRET)
    }

    /// One of the first three.
    fn member(&self, id: i32) -> Start {
        let first = self.places.iter().take(3);
        let all: Vec<String> = first.map(|place| format!("{}@{}", place.id, place.peer)).collect();
        self.start(id).arguments(["--cluster", &all.join(",")])
    }

    /// One more. It names all members: the controller has to hear of it.
    fn joiner(&self, id: i32) -> Start {
        let first = self.places.iter().take(3);
        let all: Vec<String> = first.map(|place| place.peer.to_string()).collect();
        self.start(id).arguments(["--join", &all.join(",")])
    }

    /// Runs a command that knows the first three brokers.
    fn run(&self, name: &str, arguments: &[&str]) -> String {
        let first = self.places.iter().take(3);
        let servers: Vec<String> = first.map(|p| p.addresses.kafka.to_string()).collect();
        let start = Start::command(name).arguments(arguments);
        let start = start.arguments(["--timeout", "25s", "--server", &servers.join(",")]);
        let finished = start.run(COMMAND_PATIENCE).unwrap();
        assert!(finished.status.success(), "towpath {name} {arguments:?}: {finished:#?}");
        finished.stdout
    }

    fn send(&self, values: std::ops::Range<u32>) {
        for value in values {
            self.run("send", &["t", &value.to_string()]);
        }
    }

    /// Waits until so many brokers are there and every replica is in sync.
    fn wait_until_whole(&self, brokers: usize) {
        eventually(WHOLE_PATIENCE, || {
            let status: Value = serde_json::from_str(&self.run("status", &["-o", "json"])).unwrap();
            let is_whole = status["under_replicated"] == 0 && status["leaderless"] == 0;
            let there = status["nodes"].as_array().map_or(0, Vec::len);
            (is_whole && there == brokers).then_some(())
        });
    }

    /// Only one broker leads the partition: the others pass on what they are asked over HTTP.
    fn check_any_broker_answers(&self) {
        self.run("topic", &["create", "h", "--partitions", "1"]);
        for place in self.places.iter().take(3) {
            let message = json!({ "value": format!("by {}", place.id) });
            http::post(place.addresses.http, "/topics/h/messages", &message)
                .and_then(|answer| answer.success())
                .unwrap();
        }
        for place in self.places.iter().take(3) {
            let answer = http::get(place.addresses.http, "/topics/h/partitions/0/messages");
            let read = answer.and_then(|answer| answer.success()).unwrap();
            let messages = read["messages"].as_array().unwrap();
            let values: Vec<&str> = messages.iter().filter_map(|m| m["value"].as_str()).collect();
            assert_eq!(values, ["by 1", "by 2", "by 3"], "asked at broker {}", place.id);
        }
    }

    fn check_records(&self, count: u32) {
        let read = self.run("read", &["t", "-o", "tsv", "--from", "earliest"]);
        let mut values: Vec<u32> =
            read.lines().filter_map(|line| line.rsplit('\t').next()?.parse().ok()).collect();
        values.sort_unstable();
        assert!(values.iter().copied().eq(0..count), "{values:?} of {count}: {read}");
    }
}

#[test]
fn a_cluster_loses_brokers_gets_them_back_and_grows() {
    let cluster = Cluster::of(5);
    let first = cluster.member(1).begin().unwrap();
    let second = cluster.member(2).begin().unwrap();
    let health = cluster.places[1].addresses.http;
    eventually(WHOLE_PATIENCE, || {
        let answer = http::get(health, "/readyz").ok()?;
        let said = String::from_utf8_lossy(&answer.body).into_owned();
        (answer.status == 503 && said.contains("waiting for broker 3")).then_some(())
    });
    let third = cluster.member(3).ready().unwrap();
    let mut brokers: Vec<Option<BrokerProcess>> = vec![
        Some(first.ready(WHOLE_PATIENCE).unwrap()),
        Some(second.ready(WHOLE_PATIENCE).unwrap()),
        Some(third),
    ];

    cluster.run("topic", &["create", "t", "--partitions", "3"]);
    cluster.send(0..6);
    let shown: Value =
        serde_json::from_str(&cluster.run("topic", &["show", "t", "-o", "json"])).unwrap();
    assert_eq!(shown["partitions"][0]["replicas"].as_array().map(Vec::len), Some(3), "{shown}");

    cluster.check_any_broker_answers();

    // Whoever leads is killed, and comes back.
    let leader = leader_of_first(&shown);
    brokers[leader - 1].take().unwrap().kill().unwrap();
    cluster.send(6..12);
    let id = i32::try_from(leader).unwrap();
    brokers[leader - 1] = Some(cluster.member(id).ready().unwrap());
    cluster.wait_until_whole(3);
    cluster.check_records(12);

    // Orderly stops, one after the other.
    for id in 1..=3 {
        let at = usize::try_from(id - 1).unwrap();
        stop(brokers[at].take().unwrap());
        cluster.send(12 + 2 * (id as u32 - 1)..14 + 2 * (id as u32 - 1));
        brokers[at] = Some(cluster.member(id).ready().unwrap());
        cluster.wait_until_whole(3);
    }
    cluster.check_records(18);

    // A stranger stays outside, a fourth broker comes in.
    let stranger = cluster.joiner(5).variable("TOWPATH_PEER_SECRET", "what somebody else knows");
    let stranger = stranger.begin().unwrap();
    let log = eventually(WHOLE_PATIENCE, || Some(stranger.log()).filter(|l| l.contains("secret")));
    assert!(!log.contains("ready kafka"), "{log}");
    stranger.kill().unwrap();
    let _fourth = cluster.joiner(4).ready().unwrap();
    cluster.wait_until_whole(4);

    // One disk is lost: the broker comes back as a new member and copies what it held.
    brokers[2].take().unwrap().kill().unwrap();
    std::fs::remove_dir_all(&cluster.places[2].data).unwrap();
    cluster.send(18..20);
    brokers[2] = Some(cluster.member(3).ready().unwrap());
    cluster.wait_until_whole(4);
    cluster.check_records(20);
}

fn leader_of_first(topic: &Value) -> usize {
    let leader = topic["partitions"][0]["leader"].as_u64();
    usize::try_from(leader.unwrap_or_else(|| panic!("no leader: {topic}"))).unwrap()
}
