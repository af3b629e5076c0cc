//! Tasks on real brokers: one that works on a task is killed, and every message is moved once; and what the command line
//! makes of dead letters and tasks.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use towpath_process::{BrokerProcess, http};

use crate::cluster::{Cluster, WHOLE_PATIENCE, leader_of_first};
use crate::support::{command, eventually, output_of, serve, stop};

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

fn post(broker: &BrokerProcess, path: &str, body: &Value) -> Value {
    http::post(broker.addresses.http, path, body).unwrap().success().unwrap()
}

fn printed(broker: &BrokerProcess, words: &str) -> Value {
    let words: Vec<&str> = words.split(' ').chain(["-o", "json"]).collect();
    serde_json::from_str(&output_of(broker, words[0], &words[1..])).unwrap()
}

#[test]
fn the_command_line_brings_dead_letters_back_and_drops_them() {
    let (broker, _data) = serve("");
    post(&broker, "/queues", &json!({"name": "dead"}));
    let settings = json!({"dead_letter_queue": "dead"});
    post(&broker, "/queues", &json!({"name": "jobs", "settings": settings}));
    for (value, note) in [("a", "no customer"), ("b", "no customer"), ("c", "card declined")] {
        post(&broker, "/queues/jobs/messages", &json!({ "value": value }));
        let wanted = json!({"wait_ms": 5000});
        let received = post(&broker, "/queues/jobs/receive", &wanted);
        let receipt = &received["messages"][0]["receipt"];
        post(&broker, "/queues/jobs/reject", &json!({"receipts": [receipt], "note": note}));
    }
    let listed = eventually(Duration::from_secs(20), || {
        let listed = printed(&broker, "dlq ls");
        (listed["queues"][0]["ready"] == 3).then_some(listed)
    });
    assert_eq!(listed["queues"][0]["sources"], json!(["jobs"]), "{listed}");

    let foreseen = printed(&broker, "dlq redrive dead --note-contains customer --dry-run");
    assert_eq!((&foreseen["would_move"], &foreseen["looked_at"]), (&json!(2), &json!(3)));
    assert_eq!(foreseen["examples"][0]["reason"], "rejected", "{foreseen}");
    assert_eq!(printed(&broker, "task ls")["tasks"], json!([]));
    let done = printed(&broker, "dlq redrive dead --note-contains customer --by ada --wait");
    assert_eq!((&done["state"], &done["moved"]), (&json!("done"), &json!(2)), "{done}");
    let id = done["id"].as_str().unwrap();
    assert_eq!(printed(&broker, &format!("task show {id}")), done);
    let tasks = printed(&broker, "task ls --source dead --state done");
    assert_eq!((&tasks["tasks"][0]["id"], &tasks["tasks"][0]["by"]), (&json!(id), &json!("ada")));
    let over = command(&broker, "task", &["pause", id]);
    assert_eq!(over.status.code(), Some(1), "{over:?}");
    assert!(over.stderr.contains("is done"), "{over:?}");

    let asked = command(&broker, "dlq", &["drop", "dead"]);
    assert_eq!(asked.status.code(), Some(2), "{asked:?}");
    assert!(asked.stderr.contains("drop 1 message of dead, for good"), "{asked:?}");
    let slow = printed(&broker, "dlq drop dead --rate 1 --yes");
    let slow = slow["id"].as_str().unwrap();
    assert_eq!(printed(&broker, &format!("task pause {slow}"))["state"], "paused");
    assert_eq!(printed(&broker, &format!("task resume {slow}"))["state"], "running");
    assert_eq!(printed(&broker, &format!("task cancel {slow}"))["state"], "cancelled");
    let dropped = printed(&broker, "dlq drop dead --yes --wait");
    assert_eq!((&dropped["kind"], &dropped["state"]), (&json!("drop"), &json!("done")));
    assert_eq!(printed(&broker, "dlq ls")["queues"][0]["ready"], 0);
    let gone = command(&broker, "task", &["show", "nothing"]);
    assert_eq!(gone.status.code(), Some(1), "{gone:?}");
    stop(broker);
}
