//! A cluster of real processes: it begins, loses brokers, gets them back, and grows.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use towpath_process::kafka::KafkaConnection;
use towpath_process::{Addresses, BrokerProcess, Finished, Start, free_addresses, http};

use crate::support::{eventually, stop};

const SECRET: &str = "what only brokers of this cluster know";
/// How long a cluster may take to be whole again, in an unoptimised build on a busy machine.
pub(crate) const WHOLE_PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Place {
    pub(crate) id: i32,
    pub(crate) addresses: Addresses,
    pub(crate) peer: SocketAddr,
    pub(crate) data: PathBuf,
}

pub(crate) struct Cluster {
    _directory: TempDir,
    pub(crate) places: Vec<Place>,
}

fn free_address() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

impl Cluster {
    pub(crate) fn of(brokers: i32) -> Cluster {
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
    pub(crate) fn start(&self, id: i32) -> Start {
        let place = self.places.iter().find(|place| place.id == id).unwrap();
        Start::serve(&place.data)
            .at(place.addresses)
            .arguments(["--node-id", &id.to_string(), "--peer", &place.peer.to_string(), "-v"])
            .variable("TOWPATH_PEER_SECRET", SECRET)
    }

    /// One of the first three.
    pub(crate) fn member(&self, id: i32) -> Start {
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

    /// The first three, begun together and ready.
    pub(crate) fn first_three(&self) -> Vec<BrokerProcess> {
        let starting: Vec<_> = (1..=3).map(|id| self.member(id).begin().unwrap()).collect();
        starting.into_iter().map(|broker| broker.ready(WHOLE_PATIENCE).unwrap()).collect()
    }

    /// Runs a command that knows the first three brokers, however it ends.
    pub(crate) fn try_run(&self, name: &str, arguments: &[&str]) -> Finished {
        let first = self.places.iter().take(3);
        let servers: Vec<String> = first.map(|p| p.addresses.kafka.to_string()).collect();
        let start = Start::command(name).arguments(arguments);
        let start = start.arguments(["--timeout", "25s", "--server", &servers.join(",")]);
        start.run(WHOLE_PATIENCE).unwrap()
    }

    /// Runs a command that succeeds.
    pub(crate) fn run(&self, name: &str, arguments: &[&str]) -> String {
        let finished = self.try_run(name, arguments);
        assert!(finished.status.success(), "towpath {name} {arguments:?}: {finished:#?}");
        finished.stdout
    }

    pub(crate) fn send(&self, values: std::ops::Range<u32>) {
        for value in values {
            self.run("send", &["t", &value.to_string()]);
        }
    }

    /// Waits until so many brokers are there and every replica is in sync.
    pub(crate) fn wait_until_whole(&self, brokers: usize) {
        eventually(WHOLE_PATIENCE, || {
            let status: Value = serde_json::from_str(&self.run("status", &["-o", "json"])).unwrap();
            let is_whole = status["under_replicated"] == 0 && status["leaderless"] == 0;
            let there = status["nodes"].as_array().map_or(0, Vec::len);
            (is_whole && there == brokers).then_some(())
        });
    }

    /// Every broker knows of every partition and group, whoever leads and coordinates them.
    fn check_any_broker_tells_everything(&self) {
        self.run("topic", &["create", "everywhere", "--partitions", "6"]);
        let at = |id: usize| self.places[id - 1].addresses.http;
        for partition in 0..6 {
            let message = json!({ "value": "v", "partition": partition });
            let answer = http::post(at(1), "/topics/everywhere/messages", &message);
            answer.and_then(|answer| answer.success()).unwrap();
        }
        let commits: Vec<Value> = (0..6)
            .map(|partition| json!({ "topic": "everywhere", "partition": partition, "offset": 0 }))
            .collect();
        for group in ["one", "two", "three", "four"] {
            // The first commit of a cluster makes the place for all of them.
            let path = format!("/groups/{group}/offsets");
            let answer = http::post(at(2), &path, &json!({ "offsets": commits }));
            answer.and_then(|answer| answer.success()).unwrap();
        }
        for id in 1..=3 {
            let get = |path: &str| http::get(at(id), path).and_then(|a| a.success()).unwrap();
            let lag = get("/groups/two/lag");
            let partitions = lag["partitions"].as_array().unwrap();
            assert_eq!(partitions.len(), 6, "{lag}");
            assert!(partitions.iter().all(|p| p["lag_records"] == 1), "broker {id}: {lag}");
            let groups = get("/groups");
            let named: Vec<&Value> =
                groups["groups"].as_array().unwrap().iter().map(|group| &group["group"]).collect();
            assert_eq!(named, ["four", "one", "three", "two"], "broker {id}");
            assert_eq!(groups["groups"][1]["lag_records"], 6, "{groups}");
            let page = get("/groups?limit=2&after=four");
            assert_eq!(page["next"], "three", "{page}");
            let ends = get("/topics/everywhere/offsets");
            let ends = ends["partition_offsets"].as_array().unwrap();
            assert!(ends.len() == 6 && ends.iter().all(|end| end["offset"] == 1), "{ends:?}");
            let shown = get("/topics/everywhere");
            let shown = shown["partitions"].as_array().unwrap();
            assert!(
                shown.len() == 6 && shown.iter().all(|p| p["high_watermark"] == 1),
                "{shown:?}"
            );
            assert_eq!(get("/losses")["losses"], json!([]));
        }
    }

    /// A producer that numbers its messages is known to every broker, wherever its partitions are.
    fn check_any_broker_knows_producers(&self) {
        self.run("topic", &["create", "once", "--partitions", "6"]);
        let publish = |place: &Place, producer: i64, sequence: i64| {
            let message = json!({ "value": "v", "partition": sequence, "producer_id": producer,
                "sequence": sequence });
            let answer = http::post(place.addresses.http, "/topics/once/messages", &message);
            answer.and_then(|answer| answer.success()).unwrap()
        };
        for producer in 0..3 {
            for sequence in 0..6 {
                let mut asked = self.places.iter().take(3);
                let first = publish(asked.next().unwrap(), producer, sequence);
                assert_eq!(first["offset"], producer, "{first}");
                assert!(asked.all(|place| publish(place, producer, sequence) == first));
            }
        }
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

    /// Kills all of three. Who is back before a majority is does not know what is committed, and says
    /// of no topic that it does not exist.
    fn check_return_of_all(
        &self,
        brokers: Vec<Option<BrokerProcess>>,
    ) -> Vec<Option<BrokerProcess>> {
        brokers.into_iter().flatten().for_each(|broker| broker.kill().unwrap());
        let first = self.member(1).begin().unwrap();
        let alone = self.places[0].addresses;
        eventually(WHOLE_PATIENCE, || {
            let answer = http::get(alone.http, "/readyz").ok()?;
            let said = String::from_utf8_lossy(&answer.body).into_owned();
            said.contains("known to the cluster").then_some(())
        });
        assert_eq!(http::get(alone.http, "/topics/t").unwrap().status, 503);
        let others = [2, 3].map(|id| self.member(id).begin().unwrap());
        let topics = eventually(WHOLE_PATIENCE, || {
            KafkaConnection::open(alone.kafka).and_then(|mut connection| connection.topics()).ok()
        });
        assert!(topics.contains("t"), "{topics:?}");
        let all = [first].into_iter().chain(others);
        let brokers = all.map(|starting| Some(starting.ready(WHOLE_PATIENCE).unwrap())).collect();
        self.wait_until_whole(3);
        brokers
    }

    pub(crate) fn check_records(&self, count: u32) {
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
    cluster.check_any_broker_tells_everything();
    cluster.check_any_broker_knows_producers();

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

    brokers = cluster.check_return_of_all(brokers);

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

pub(crate) fn leader_of_first(topic: &Value) -> usize {
    let leader = topic["partitions"][0]["leader"].as_u64();
    usize::try_from(leader.unwrap_or_else(|| panic!("no leader: {topic}"))).unwrap()
}
