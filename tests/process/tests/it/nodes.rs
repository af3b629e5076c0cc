//! Nodes of a cluster, as its operator handles them: listed, joined through any of them, drained, removed.

use std::process::Command;

use serde_json::Value;
use towpath_process::{BrokerProcess, http};

use crate::cluster::{Cluster, WHOLE_PATIENCE};
use crate::support::{eventually, stop};

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

impl Cluster {
    fn node(&self, id: i32) -> Value {
        json(&self.run("node", &["show", &id.to_string(), "-o", "json"]))
    }

    fn controller(&self) -> i32 {
        eventually(WHOLE_PATIENCE, || {
            let shown = json(&self.run("cluster", &["show", "-o", "json"]));
            shown["controller"].as_i64().and_then(|id| i32::try_from(id).ok())
        })
    }

    /// One more broker, which knows a single one of the others: not the controller.
    fn joined_by_one(&self, id: i32) -> BrokerProcess {
        let controller = self.controller();
        let known = self.places.iter().take(3).find(|place| place.id != controller).unwrap();
        let joiner = self.start(id).arguments(["--join", &known.peer.to_string()]);
        joiner.begin().unwrap().ready(WHOLE_PATIENCE).unwrap()
    }

    /// What every broker says over HTTP.
    fn states(&self, brokers: &[i32]) -> Vec<(i64, String)> {
        let ask = |id: &i32| {
            let place = self.places.iter().find(|place| place.id == *id).unwrap();
            let told =
                http::get(place.addresses.http, "/nodes").and_then(|answer| answer.success());
            let told = told.unwrap();
            let nodes = told["nodes"].as_array().unwrap();
            let state = |node: &Value| {
                (node["node"].as_i64().unwrap(), node["state"].as_str().unwrap().to_owned())
            };
            nodes.iter().map(state).collect::<Vec<_>>()
        };
        let first = ask(&brokers[0]);
        for other in &brokers[1..] {
            assert_eq!(ask(other), first, "brokers {} and {other} differ", brokers[0]);
        }
        first
    }

    fn refused(&self, arguments: &[&str], code: &str) -> String {
        let finished = self.try_run("node", &[arguments, &["-o", "json"]].concat());
        assert_eq!(finished.status.code(), Some(1), "{finished:#?}");
        assert_eq!(json(&finished.stdout)["error"]["code"], code, "{finished:#?}");
        finished.stderr
    }
}

fn all_live(ids: &[i64]) -> Vec<(i64, String)> {
    ids.iter().map(|id| (*id, "live".to_owned())).collect()
}

#[test]
fn a_node_joins_by_any_other_and_is_drained_and_removed() {
    let cluster = Cluster::of(4);
    let mut brokers: Vec<Option<BrokerProcess>> =
        cluster.first_three().into_iter().map(Some).collect();
    brokers.push(Some(cluster.joined_by_one(4)));
    cluster.wait_until_whole(4);
    assert_eq!(cluster.states(&[1, 2, 3, 4]), all_live(&[1, 2, 3, 4]));

    cluster.run("topic", &["create", "t", "--partitions", "6"]);
    cluster.send(0..6);
    let leaves = cluster.controller();
    let number = leaves.to_string();
    let before = cluster.node(leaves);
    assert_eq!(before["metadata"], "controller", "{before}");
    assert!(0 < before["replicas"].as_i64().unwrap(), "{before}");
    assert!(before["directories"][0]["stored_bytes"].is_u64(), "{before}");
    assert_eq!(before["version"], env!("CARGO_PKG_VERSION"), "{before}");
    cluster.refused(&["rm", &number, "--yes"], "NODE_LIVE");
    cluster.refused(&["show", "77"], "NODE_NOT_FOUND");

    // It gives away everything, its office and its vote too, and takes work again.
    cluster.run("node", &["drain", &number, "--wait"]);
    let drained = cluster.node(leaves);
    assert_eq!((&drained["state"], &drained["leads"]), (&"drained".into(), &0.into()));
    assert_eq!(drained["replicas"], 0);
    eventually(WHOLE_PATIENCE, || (cluster.node(leaves)["metadata"] == "learner").then_some(()));
    cluster.send(6..8);
    cluster.run("node", &["undrain", &number]);
    eventually(WHOLE_PATIENCE, || {
        let node = cluster.node(leaves);
        (node["state"] == "live" && node["replicas"] != 0).then_some(())
    });

    // Emptied again, it leaves while it runs, and does not come back by itself.
    cluster.refused(&["rm", &number, "--yes"], "NODE_LIVE");
    cluster.run("node", &["drain", &number, "--wait"]);
    cluster.run("node", &["rm", &number, "--yes"]);
    let left: Vec<i32> = (1..=4).filter(|id| *id != leaves).collect();
    let live: Vec<i64> = left.iter().map(|id| i64::from(*id)).collect();
    assert_eq!(cluster.states(&left), all_live(&live));
    let removed = brokers[usize::try_from(leaves - 1).unwrap()].take().unwrap();
    let http = removed.addresses.http;
    eventually(WHOLE_PATIENCE, || {
        let answer = http::get(http, "/readyz").ok()?;
        let said = String::from_utf8_lossy(&answer.body).into_owned();
        (answer.status == 503 && said.contains("[-] not removed from the cluster")).then_some(())
    });
    stop(removed);
    cluster.wait_until_whole(3);
    cluster.send(8..10);
    cluster.check_records(10);

    // Three replicas on three nodes: none of them can be emptied, and the topic is named.
    let stays = left[0].to_string();
    let said = cluster.refused(&["drain", &stays, "--wait"], "DRAIN_STUCK");
    assert!(said.contains("t (6 partitions with 3 replicas)"), "{said}");
    let shown = cluster.node(left[0]);
    assert_eq!((&shown["state"], &shown["leads"]), (&"draining".into(), &0.into()));
    assert_eq!(shown["cannot_leave"][0]["topic"], "t", "{shown}");
    cluster.run("node", &["undrain", &stays]);
    assert_eq!(cluster.states(&left), all_live(&live));
}

#[test]
fn a_node_that_is_gone_is_shown_as_absent_and_can_be_removed() {
    let cluster = Cluster::of(4);
    let brokers = cluster.first_three();
    let fourth = cluster.joined_by_one(4);
    cluster.wait_until_whole(4);
    fourth.kill().unwrap();
    eventually(WHOLE_PATIENCE, || {
        let node = cluster.node(4);
        (node["state"] == "absent" && node["absent_seconds"].is_f64()).then_some(())
    });
    cluster.run("node", &["rm", "4", "--yes"]);
    assert_eq!(cluster.states(&[1, 2, 3]), all_live(&[1, 2, 3]));
    // With the directory that it had it stays outside.
    let back = cluster.start(4).arguments(["--join", &cluster.places[0].peer.to_string()]);
    let back = back.begin().unwrap();
    eventually(WHOLE_PATIENCE, || {
        back.log().contains("this broker was removed from the cluster").then_some(())
    });
    assert_eq!(cluster.states(&[1, 2, 3]), all_live(&[1, 2, 3]));
    back.kill().unwrap();
    drop(brokers);
}

/// A disk that was put back from a backup has forgotten what the others count on.
#[test]
fn a_disk_that_lost_metadata_is_refused() {
    let cluster = Cluster::of(3);
    let mut brokers = cluster.first_three();
    let controller = cluster.controller();
    let id = (1..=3).find(|id| *id != controller).unwrap();
    let at = usize::try_from(id - 1).unwrap();
    let data = &cluster.places[at].data;
    let backup = data.with_extension("backup");
    stop(brokers.remove(at));
    let copied = Command::new("cp").arg("-a").args([data, &backup]).status().unwrap();
    assert!(copied.success());
    brokers.insert(at, cluster.member(id).ready().unwrap());
    cluster.run("topic", &["create", "t"]);
    cluster.wait_until_whole(3);
    brokers.remove(at).kill().unwrap();
    std::fs::remove_dir_all(data).unwrap();
    std::fs::rename(&backup, data).unwrap();
    let refused = cluster.member(id).ready().unwrap_err().to_string();
    assert!(refused.contains("the metadata log has lost entries"), "{refused}");
    std::fs::remove_dir_all(data).unwrap();
    brokers.insert(at, cluster.member(id).ready().unwrap());
    cluster.wait_until_whole(3);
    brokers.into_iter().for_each(stop);
}
