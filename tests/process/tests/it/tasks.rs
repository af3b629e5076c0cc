//! A task on three real brokers: the one that works on it is killed, and every message is moved once.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use towpath_process::http;

use crate::cluster::{Cluster, WHOLE_PATIENCE, leader_of_first};
use crate::support::{eventually, stop};

const MESSAGES: u64 = 600;

impl Cluster {
    fn look(&self, id: usize, path: &str) -> Option<Value> {
        http::get(self.places[id - 1].addresses.http, path).ok()?.success().ok()
    }

    fn order(&self, id: usize, path: &str, body: &Value) -> Value {
        http::post(self.places[id - 1].addresses.http, path, body).unwrap().success().unwrap()
    }

    /// How often each value is in a queue.
    fn values_in(&self, id: usize, queue: &str) -> BTreeMap<String, usize> {
        let mut values = BTreeMap::new();
        let mut from = "0-0".to_owned();
        loop {
            let seen = self.look(id, &format!("/queues/{queue}/peek?max=500&from={from}")).unwrap();
            assert_eq!(seen.get("partitions_missing"), None, "{seen}");
            for message in seen["messages"].as_array().unwrap() {
                *values.entry(message["value"].to_string()).or_default() += 1;
            }
            match seen["next"].as_str() {
                Some(next) => next.clone_into(&mut from),
                None => return values,
            }
        }
    }
}

#[test]
fn a_task_outlives_the_broker_that_works_on_it_and_moves_every_message_once() {
    let cluster = Cluster::of(3);
    let mut brokers: Vec<_> = cluster.first_three().into_iter().map(Some).collect();
    cluster.wait_until_whole(3);
    for name in ["dead", "orders"] {
        cluster.order(1, "/queues", &json!({ "name": name }));
    }
    cluster.wait_until_whole(3);
    for part in 0..MESSAGES / 200 {
        let values = (0..200).map(|n| json!({ "value": format!("m{}", 200 * part + n) }));
        let messages: Vec<Value> = values.collect();
        cluster.order(1, "/queues/dead/messages", &json!({ "messages": messages }));
    }
    let task = cluster.order(2, "/queues/dead/redrive", &json!({"to": "orders", "rate": 100}));
    let path = format!("/tasks/{}", task["id"].as_str().unwrap());
    let moved = |id: usize| cluster.look(id, &path)?["moved"].as_u64();
    eventually(Duration::from_secs(30), || (1..=3).find_map(moved).filter(|moved| 100 <= *moved));

    // Whoever leads the first partition works on it.
    let shown = cluster.run("topic", &["show", "dead", "-o", "json"]);
    let worker = leader_of_first(&serde_json::from_str(&shown).unwrap());
    brokers[worker - 1].take().unwrap().kill().unwrap();
    let other = worker % 3 + 1;
    let before = eventually(Duration::from_secs(10), || moved(other));
    assert!(before < MESSAGES, "it was done before the kill: {before}");
    let done = eventually(WHOLE_PATIENCE, || {
        cluster.look(other, &path).filter(|task| task["state"] != "running")
    });
    assert_eq!((&done["state"], &done["moved"]), (&json!("done"), &json!(MESSAGES)), "{done}");

    let id = i32::try_from(worker).unwrap();
    brokers[worker - 1] = Some(cluster.member(id).ready().unwrap());
    cluster.wait_until_whole(3);
    let there = cluster.values_in(worker, "orders");
    assert_eq!(there.len() as u64, MESSAGES);
    assert!(there.values().all(|times| *times == 1), "{there:?}");
    assert_eq!(cluster.values_in(other, "dead"), BTreeMap::new());
    brokers.into_iter().flatten().for_each(stop);
}
