//! A work queue on three real brokers: any of them serves it, and what it knows survives a kill.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use towpath_process::http;
use towpath_process::kafka::{KafkaConnection, now};
use towpath_records::{BatchBuilder, Compression};

use crate::cluster::{Cluster, WHOLE_PATIENCE};
use crate::support::{dev, eventually, stop};

impl Cluster {
    fn ask(&self, id: usize, path: &str, body: &Value) -> anyhow::Result<Value> {
        http::post(self.places[id - 1].addresses.http, path, body)?.success()
    }

    fn send_to(&self, id: usize, queue: &str, message: &Value) -> Value {
        self.ask(id, &format!("/queues/{queue}/messages"), message).unwrap()
    }

    fn receive_at(&self, id: usize, queue: &str, wanted: &Value) -> Vec<Value> {
        let received = self.ask(id, &format!("/queues/{queue}/receive"), wanted).unwrap();
        received["messages"].as_array().unwrap().clone()
    }

    fn stats_at(&self, id: usize, queue: &str) -> Option<Value> {
        let path = format!("/queues/{queue}/stats");
        http::get(self.places[id - 1].addresses.http, &path).ok()?.success().ok()
    }

    /// Receives until nothing comes, at one broker.
    fn drain(&self, id: usize, queue: &str) -> Vec<Value> {
        let mut all = Vec::new();
        loop {
            let some = self.receive_at(id, queue, &json!({"max": 500, "visibility_ms": 600_000}));
            if some.is_empty() {
                return all;
            }
            all.extend(some);
        }
    }
}

fn values(messages: &[Value]) -> BTreeSet<String> {
    messages.iter().map(|message| message["value"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_queue_is_served_by_any_broker_and_survives_a_kill() {
    let cluster = Cluster::of(3);
    let mut brokers: Vec<_> = cluster.first_three().into_iter().map(Some).collect();
    cluster.wait_until_whole(3);
    cluster.ask(2, "/queues", &json!({"name": "q"})).unwrap();
    cluster.wait_until_whole(3);
    let shown = http::get(cluster.places[2].addresses.http, "/queues/q").unwrap();
    assert_eq!(shown.success().unwrap()["partitions"], 3);

    // Sent anywhere, received anywhere, settled anywhere.
    let sent: BTreeSet<String> = (0..60).map(|n| n.to_string()).collect();
    for (n, value) in sent.iter().enumerate() {
        cluster.send_to(n % 3 + 1, "q", &json!({ "value": value }));
    }
    assert_eq!(cluster.stats_at(1, "q").unwrap()["ready"], 60);
    let peeked = http::get(cluster.places[1].addresses.http, "/queues/q/peek?max=500");
    let peeked = peeked.unwrap().success().unwrap();
    assert_eq!(values(peeked["messages"].as_array().unwrap()), sent);
    let received = cluster.drain(3, "q");
    assert_eq!((received.len(), values(&received)), (60, sent));
    let receipts: Vec<&Value> = received.iter().map(|message| &message["receipt"]).collect();
    let deleted = cluster.ask(1, "/queues/q/delete", &json!({ "receipts": receipts[..50] }));
    assert_eq!(deleted.unwrap()["results"].as_array().unwrap().len(), 50);

    // A receiver waits at all of them.
    for id in 1..=3 {
        let started = Instant::now();
        let wanted = json!({"wait_ms": 10_000});
        let woken = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| cluster.receive_at(id % 3 + 1, "q", &wanted));
            std::thread::sleep(Duration::from_millis(300));
            cluster.send_to(id, "q", &json!({"value": "wake"}));
            waiting.join().unwrap()
        });
        assert_eq!(values(&woken), BTreeSet::from(["wake".to_owned()]));
        assert!(started.elapsed() < Duration::from_secs(8));
        let receipts = json!({ "receipts": [woken[0]["receipt"]] });
        cluster.ask(id, "/queues/q/delete", &receipts).unwrap();
    }

    // Killed: sends go on at once, and what was held stays held, by the same receipts.
    brokers[1].take().unwrap().kill().unwrap();
    for value in 0..10 {
        cluster.send_to(1, "q", &json!({ "value": format!("after {value}") }));
    }
    eventually(WHOLE_PATIENCE, || {
        let stats = cluster.stats_at(3, "q")?;
        let is_whole = stats.get("partitions_missing").is_none();
        (is_whole && stats["in_flight"] == 10 && stats["ready"] == 10).then_some(())
    });
    let others = cluster.drain(3, "q");
    assert!(others.iter().all(|message| message["value"].as_str().unwrap().starts_with("after")));
    assert_eq!(others.len(), 10);
    let rest = json!({ "receipts": receipts[50..] });
    cluster.ask(3, "/queues/q/delete", &rest).unwrap();
    assert_eq!(cluster.stats_at(1, "q").unwrap()["in_flight"], 10);
    brokers.into_iter().flatten().for_each(stop);
}

#[test]
fn a_message_that_comes_too_late_for_its_receiver_goes_to_the_next_one() {
    let cluster = Cluster::of(3);
    let brokers = cluster.first_three();
    cluster.wait_until_whole(3);
    cluster.ask(1, "/queues", &json!({"name": "q", "partitions": 3})).unwrap();
    cluster.wait_until_whole(3);
    // Both of the others answer at once to whoever wants one message of the first.
    let wanted = json!({"wait_ms": 5_000, "visibility_ms": 600_000});
    for round in 0..20 {
        for id in [2, 3] {
            cluster.send_to(id, "q", &json!({"value": format!("{round} {id}")}));
        }
        let mut received = cluster.receive_at(1, "q", &wanted);
        received.extend(cluster.receive_at(1, "q", &wanted));
        let both = BTreeSet::from([2, 3].map(|id| format!("{round} {id}")));
        assert_eq!(values(&received), both);
        assert!(received.iter().all(|message| message["receives"] == 1), "{received:?}");
    }
    brokers.into_iter().for_each(stop);
}

#[test]
fn a_subscription_is_in_partitions_that_are_added_later() {
    let cluster = Cluster::of(3);
    let brokers = cluster.first_three();
    cluster.wait_until_whole(3);
    cluster.ask(1, "/queues", &json!({ "name": "q", "partitions": 1 })).unwrap();
    cluster.wait_until_whole(3);
    // A poll makes the group.
    let poll = |id: usize| {
        let wanted =
            json!({"group": "g", "max": 100, "timeout_ms": 1000, "visibility_ms": 600_000});
        let polled = cluster.ask(id, "/topics/q/poll", &wanted).unwrap();
        polled["messages"].as_array().unwrap().clone()
    };
    assert!(poll(2).is_empty());
    cluster.run("topic", &["partitions", "add", "q", "5", "--yes"]);
    cluster.wait_until_whole(3);
    // Without ids, which would keep them in the partition that the queue had.
    for n in 0..60 {
        cluster.send_to(1 + n % 3, "q", &json!({"value": n.to_string()}));
    }
    let mut polled = Vec::new();
    for id in (1..=3).cycle().take(60) {
        let some = poll(id);
        polled.extend(some);
        if polled.len() == 60 {
            break;
        }
        assert!(polled.len() < 60, "a message was given to a group twice");
    }
    let path = "/queues/q/stats?subscription=g";
    let told = || http::get(cluster.places[0].addresses.http, path).unwrap().success().unwrap();
    assert_eq!(polled.len(), 60, "{}", told());
    let partition = |message: &Value| {
        message["message_id"].as_str().unwrap().split('-').next().unwrap().to_owned()
    };
    let partitions: BTreeSet<String> = polled.iter().map(partition).collect();
    assert!(1 < partitions.len(), "messages lie in several partitions: {partitions:?}");
    // Acknowledged at any broker.
    let ids: Vec<&Value> = polled.iter().map(|message| &message["message_id"]).collect();
    let acked = cluster.ask(2, "/topics/q/ack", &json!({"group": "g", "message_ids": ids}));
    assert_eq!(acked.unwrap()["results"].as_array().unwrap().len(), 60);
    let left = told();
    assert_eq!((&left["in_flight"], &left["ready"]), (&json!(0), &json!(0)), "{left}");
    assert_eq!(cluster.stats_at(1, "q").unwrap()["ready"], 60);
    brokers.into_iter().for_each(stop);
}

#[test]
fn subscriptions_that_begin_while_partitions_are_added_are_in_all_of_them() {
    let cluster = Cluster::of(3);
    let brokers = cluster.first_three();
    cluster.wait_until_whole(3);
    cluster.ask(1, "/queues", &json!({ "name": "q", "partitions": 1 })).unwrap();
    cluster.wait_until_whole(3);
    // A poll makes the group, at whichever broker.
    let poll = |id: usize, group: usize| {
        let wanted = json!({"group": format!("g{group}"), "max": 1});
        eventually(WHOLE_PATIENCE, || cluster.ask(id, "/topics/q/poll", &wanted).ok());
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for partitions in 2..=6 {
                cluster.run("topic", &["partitions", "add", "q", &partitions.to_string(), "--yes"]);
            }
        });
        (0..24).zip((1..=3).cycle()).for_each(|(group, id)| poll(id, group));
    });
    cluster.wait_until_whole(3);
    // One by one, and at each broker: those of one request stay together in one partition.
    for n in 0..60 {
        cluster.send_to(1 + n % 3, "q", &json!({"value": n.to_string()}));
    }
    for group in 0..24 {
        let path = format!("/queues/q/stats?subscription=g{group}");
        eventually(WHOLE_PATIENCE, || {
            let told = http::get(cluster.places[1].addresses.http, &path).ok()?.success().ok()?;
            // A partition that lacks the subscription is missing in its statistics.
            (told["ready"] == 60 && told["partitions_missing"].is_null()).then_some(())
        });
    }
    brokers.into_iter().for_each(stop);
}

/// What a broker keeps of each in memory is a few bytes.
#[test]
fn a_million_messages_delayed_by_a_day_take_little_memory() {
    let (mut broker, _data) = dev();
    let mut kafka = KafkaConnection::open(broker.addresses.kafka).unwrap();
    kafka.create_topic("reminders", 1, &[("queue.enable", "true")]).unwrap();
    let mut builder = BatchBuilder::new(Compression::None, now());
    for n in 0..10_000 {
        let value = format!("reminder {n}");
        let header = (&b"towpath-deliver-after"[..], Some(&b"1d"[..]));
        builder.append(now(), None, Some(value.as_bytes()), [header]).unwrap();
    }
    let batch = builder.build();
    kafka.produce_batch("reminders", 0, &batch).unwrap();
    let before = broker.cost().unwrap().anonymous_bytes;
    for _ in 1..100 {
        kafka.produce_batch("reminders", 0, &batch).unwrap();
    }
    let http = broker.addresses.http;
    let delayed = || -> Option<u64> {
        let stats = http::get(http, "/queues/reminders/stats").ok()?.success().ok()?;
        stats["delayed"].as_u64()
    };
    eventually(Duration::from_secs(60), || delayed().filter(|delayed| *delayed == 1_000_000));
    let grown = broker.cost().unwrap().anonymous_bytes.saturating_sub(before);
    println!("a million delayed messages take {} KiB of memory", grown >> 10);
    assert!(grown < 32 << 20, "{grown} bytes");
    let received = http::post(http, "/queues/reminders/receive", &json!({"max": 10})).unwrap();
    assert_eq!(received.success().unwrap()["messages"], json!([]));
    broker.check_running().unwrap();
}

#[test]
fn a_busy_queue_gets_partitions_and_gives_every_message_to_every_subscription_once() {
    let cluster = Cluster::of(3);
    let brokers = cluster.first_three();
    cluster.wait_until_whole(3);
    let settings = json!({"growth_rate": 5, "growth_after_ms": 1000, "partitions_max": 3});
    let queue = json!({"name": "q", "partitions": 1, "settings": settings});
    cluster.ask(1, "/queues", &queue).unwrap();
    cluster.wait_until_whole(3);
    let poll = json!({"group": "audit", "max": 1});
    assert_eq!(cluster.ask(2, "/topics/q/poll", &poll).unwrap()["messages"], json!([]));

    // Each is sent twice by the same id, the second time perhaps after partitions were added.
    let began = Instant::now();
    let (mut sent, mut late) = (0_u32, 0);
    while late < 100 {
        let value =
            |n: u32| json!({"messages": [{"value": n.to_string(), "dedup_id": n.to_string()}]});
        cluster.send_to(1 + sent as usize % 3, "q", &value(sent));
        cluster.send_to(1 + (sent as usize + 1) % 3, "q", &value(sent.saturating_sub(50)));
        // What may go anywhere goes to the new ones.
        cluster.send_to(1 + sent as usize % 3, "q", &json!({"value": format!("free {sent}")}));
        sent += 1;
        if sent % 20 == 0 {
            let shown = http::get(cluster.places[0].addresses.http, "/queues/q").unwrap();
            assert!(began.elapsed() < WHOLE_PATIENCE, "{sent} messages, and it does not grow");
            if shown.success().unwrap()["partitions"] == 3 {
                late += 20;
            }
        }
    }
    let told = cluster.stats_at(1, "q").unwrap();
    let is_at_max = |notice: &Value| notice["code"] == "PARTITIONS_AT_MAX";
    assert!(told["notices"].as_array().unwrap().iter().any(is_at_max), "{told}");
    let shown = http::get(cluster.places[0].addresses.http, "/queues/q").unwrap();
    let shown = shown.success().unwrap();
    assert_eq!(shown["settings"]["dedup_partitions"], 1, "{shown}");

    cluster.wait_until_whole(3);
    let numbers = (0..sent).map(|n| n.to_string());
    let wanted: BTreeSet<String> = numbers.chain((0..sent).map(|n| format!("free {n}"))).collect();
    for group in ["q", "audit"] {
        let (mut values, mut partitions) = (BTreeSet::new(), BTreeSet::new());
        eventually(WHOLE_PATIENCE, || {
            let poll =
                json!({"group": group, "max": 100, "timeout_ms": 500, "visibility_ms": 600_000});
            let polled = cluster.ask(3, "/topics/q/poll", &poll).ok()?;
            for message in polled["messages"].as_array()? {
                let value = message["payload"].as_str()?.to_owned();
                assert!(values.insert(value), "{message} was given to {group} twice");
                let id = message["message_id"].as_str()?;
                partitions.insert(id.split('-').next()?.to_owned());
            }
            (values.len() == wanted.len()).then_some(())
        });
        assert_eq!(values, wanted);
        assert!(1 < partitions.len(), "messages lie in several partitions: {partitions:?}");
    }
    brokers.into_iter().for_each(stop);
}
