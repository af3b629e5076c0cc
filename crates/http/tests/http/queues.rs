//! Work queues over HTTP: one test per promise of `docs/http.md`, with one broker; `tests/process` has several.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::Broker;

pub(crate) async fn queue(settings: Value) -> Broker {
    let broker = Broker::start().await;
    create(&broker, settings).await;
    broker
}

pub(crate) async fn create(broker: &Broker, settings: Value) {
    let wanted = json!({"name": "q", "settings": settings});
    let created = broker.post("/queues", &wanted.to_string()).await;
    assert_eq!(created.status, 201, "{}", created.body);
}

pub(crate) async fn send(broker: &Broker, message: Value) -> Value {
    broker.post("/queues/q/messages", &message.to_string()).await.ok()
}

pub(crate) async fn receive(broker: &Broker, wanted: Value) -> Vec<Value> {
    let received = broker.post("/queues/q/receive", &wanted.to_string()).await.ok();
    received["messages"].as_array().unwrap().clone()
}

pub(crate) async fn settle(broker: &Broker, verb: &str, body: Value) -> Value {
    broker.post(&format!("/queues/q/{verb}"), &body.to_string()).await.json()
}

pub(crate) fn values(messages: &[Value]) -> Vec<&str> {
    messages.iter().map(|message| message["value"].as_str().unwrap()).collect()
}

pub(crate) fn receipts(messages: &[Value]) -> Vec<&str> {
    messages.iter().map(|message| message["receipt"].as_str().unwrap()).collect()
}

pub(crate) async fn stats(broker: &Broker) -> Value {
    broker.get("/queues/q/stats").await.ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_is_hidden_while_it_is_held_and_gone_when_it_is_deleted() {
    let broker = queue(json!({})).await;
    let message = json!({"value": "it works", "headers": {"trace": "1"}, "priority": 5});
    let sent = send(&broker, message).await;
    assert_eq!(sent["id"], "0-0", "{sent}");

    let received = receive(&broker, json!({"max": 10, "holder": "me"})).await;
    let message = &received[0];
    assert_eq!(received.len(), 1);
    assert_eq!(
        [&message["id"], &message["value"], &message["receives"], &message["sent_ms"]],
        [&sent["id"], &json!("it works"), &json!(1), &sent["sent_ms"]]
    );
    assert_eq!(message["headers"], json!([{"name": "trace", "value": "1"}]));
    let hidden = message["visible_again_ms"].as_i64().unwrap();
    let first = message["first_received_ms"].as_i64().unwrap();
    assert!((29_000..=30_100).contains(&(hidden - first)), "{message}");
    assert!(receive(&broker, json!({})).await.is_empty());

    let counts = stats(&broker).await;
    assert_eq!((&counts["ready"], &counts["in_flight"]), (&json!(0), &json!(1)));
    let seen = broker.get("/queues/q/peek?state=held").await.ok();
    let held = &seen["messages"][0];
    assert_eq!((&held["holder"], &held["value"]), (&json!("me"), &json!("it works")), "{seen}");
    assert_eq!(broker.get("/queues/q/peek?state=ready").await.ok()["messages"], json!([]));

    let done = settle(&broker, "delete", json!({"receipts": receipts(&received)})).await;
    assert_eq!(done, json!({"results": [{}]}));
    let again = settle(&broker, "delete", json!({"receipts": receipts(&received)})).await;
    assert_eq!(again, done);
    let late = json!({"receipts": receipts(&received), "visibility_ms": 1000});
    let late = settle(&broker, "extend", late).await;
    assert_eq!(late["results"][0]["error"]["code"], "RECEIPT_STALE");
    assert_eq!(stats(&broker).await["in_flight"], 0);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_comes_back_and_its_old_receipt_is_worth_nothing() {
    let broker = queue(json!({"visibility_timeout_ms": 300})).await;
    send(&broker, json!({"value": "v"})).await;
    let first = receive(&broker, json!({})).await;
    let started = Instant::now();
    let second = receive(&broker, json!({"wait_ms": 5000, "visibility_ms": 60000})).await;
    assert!(started.elapsed() < Duration::from_secs(3));
    assert_eq!((values(&second), &second[0]["receives"]), (vec!["v"], &json!(2)));
    let old = settle(&broker, "delete", json!({"receipts": receipts(&first)})).await;
    assert_eq!(old["error"]["code"], "RECEIPT_STALE", "{old}");

    // Given back uncounted, it was received once; given back with a note, it says so.
    let uncounted = json!({"receipts": receipts(&second), "uncounted": true});
    assert_eq!(settle(&broker, "release", uncounted).await["results"], json!([{}]));
    let third = receive(&broker, json!({"holder": "w"})).await;
    assert_eq!(third[0]["receives"], 2);
    let failed = json!({"receipts": receipts(&third), "delay_ms": 60000, "note": "no database"});
    assert_eq!(settle(&broker, "release", failed).await["results"], json!([{}]));
    let seen = broker.get("/queues/q/peek").await.ok();
    let message = &seen["messages"][0];
    assert_eq!(message["state"], "delayed", "{seen}");
    let last = message["history"].as_array().unwrap().last().unwrap();
    assert_eq!((&last["why"], &last["note"]), (&json!("failed"), &json!("no database")));
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receipts_are_answered_one_by_one() {
    let broker = queue(json!({})).await;
    send(&broker, json!({"messages": [{"value": "a"}, {"value": "b"}]})).await;
    let received = receive(&broker, json!({"max": 2})).await;
    let mut receipts = receipts(&received);
    receipts.insert(1, "no receipt");
    let answer = broker.post("/queues/q/delete", &json!({"receipts": receipts}).to_string()).await;
    let answer = answer.refused(400, "INVALID_RECEIPT");
    assert_eq!((&answer["results"][0], &answer["results"][2]), (&json!({}), &json!({})));
    assert_eq!(answer["results"][1]["error"]["code"], "INVALID_RECEIPT");

    // One of a queue that was deleted and created again.
    send(&broker, json!({"value": "c"})).await;
    let received = receive(&broker, json!({})).await;
    assert_eq!(broker.request("DELETE", "/queues/q", "").await.status, 204);
    create(&broker, json!({})).await;
    let foreign = json!({"receipts": [received[0]["receipt"]]});
    assert_eq!(settle(&broker, "delete", foreign).await["error"]["code"], "INVALID_RECEIPT");
    broker.post("/queues/q/delete", r#"{"receipts":[]}"#).await.refused(400, "INVALID_REQUEST");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_waits_and_wakes_when_something_is_sent() {
    let broker = queue(json!({})).await;
    let started = Instant::now();
    assert!(receive(&broker, json!({"wait_ms": 300})).await.is_empty());
    assert!(Duration::from_millis(250) < started.elapsed());
    let started = Instant::now();
    let later = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        send(&broker, json!({"value": "v"})).await;
    };
    let (received, ()) = tokio::join!(receive(&broker, json!({"wait_ms": 20000})), later);
    assert_eq!(values(&received), ["v"]);
    assert!(started.elapsed() < Duration::from_secs(5));
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_hangs_up_is_given_nothing() {
    let broker = queue(json!({})).await;
    let waiting = tokio::time::timeout(
        Duration::from_millis(300),
        receive(&broker, json!({"wait_ms": 20000, "visibility_ms": 60000})),
    );
    assert!(waiting.await.is_err());
    let deadline = Instant::now() + Duration::from_secs(5);
    while stats(&broker).await["receivers"] != 0 {
        assert!(Instant::now() < deadline, "it waits although nobody is there");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    send(&broker, json!({"value": "v"})).await;
    let received = receive(&broker, json!({})).await;
    assert_eq!((values(&received), &received[0]["receives"]), (vec!["v"], &json!(1)));
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delays_and_times_to_live_are_kept() {
    let broker = queue(json!({})).await;
    send(&broker, json!({"value": "late", "delay_ms": 3000})).await;
    send(&broker, json!({"value": "short", "ttl_ms": 50})).await;
    assert_eq!(stats(&broker).await["delayed"], 1);
    // It ends within a second after its time.
    tokio::time::sleep(Duration::from_millis(1300)).await;
    assert!(receive(&broker, json!({"max": 10})).await.is_empty());
    let received = receive(&broker, json!({"max": 10, "wait_ms": 10000})).await;
    assert_eq!(values(&received), ["late"]);
    let late = received[0]["first_received_ms"].as_i64().unwrap();
    assert!(3000 <= late - received[0]["sent_ms"].as_i64().unwrap(), "{received:?}");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_group_goes_in_order_to_one_receiver_at_a_time() {
    let broker = queue(json!({"fifo": true})).await;
    for n in 0..3 {
        send(&broker, json!({"value": format!("a{n}"), "group": "a"})).await;
        send(&broker, json!({"value": format!("b{n}"), "group": "b"})).await;
    }
    let first = receive(&broker, json!({"max": 2})).await;
    let group = first[0]["group"].as_str().unwrap();
    let other = if group == "a" { "b" } else { "a" };
    assert_eq!(values(&first), [format!("{group}0"), format!("{group}1")]);
    let second = receive(&broker, json!({"max": 10})).await;
    assert_eq!(values(&second), [0, 1, 2].map(|n| format!("{other}{n}")));
    assert!(receive(&broker, json!({"max": 10})).await.is_empty());
    assert_eq!(
        broker.get("/queues/q/peek?state=ready").await.ok()["messages"][0]["state"],
        "blocked"
    );
    settle(&broker, "delete", json!({"receipts": receipts(&first)})).await;
    assert_eq!(values(&receive(&broker, json!({"max": 10})).await), [format!("{group}2")]);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeat_is_answered_with_the_first_ones_id_and_not_delivered() {
    let broker = queue(json!({})).await;
    let message = json!({"value": "v", "dedup_id": "once"});
    let first = send(&broker, message.clone()).await;
    let second = send(&broker, message.clone()).await;
    assert_eq!((&second["id"], &second["duplicate"]), (&first["id"], &json!(true)));
    assert_eq!(first.get("duplicate"), None);
    assert_eq!(receive(&broker, json!({"max": 10})).await.len(), 1);
    let both = send(&broker, json!({"messages": [message, {"value": "w"}]})).await;
    assert_eq!(both["results"][0]["id"], first["id"]);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_and_counts_survive_a_restart() {
    let broker = queue(json!({})).await;
    send(&broker, json!({"messages": [{"value": "a"}, {"value": "b"}]})).await;
    let received = receive(&broker, json!({"visibility_ms": 60000})).await;
    let broker = broker.restart().await;
    let counts = stats(&broker).await;
    assert_eq!((&counts["ready"], &counts["in_flight"]), (&json!(1), &json!(1)), "{counts}");
    let others = receive(&broker, json!({"max": 10})).await;
    assert_eq!((values(&received), values(&others)), (vec!["a"], vec!["b"]));
    let done = settle(&broker, "delete", json!({"receipts": receipts(&received)})).await;
    assert_eq!(done["results"], json!([{}]));
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_has_a_bound_and_what_does_not_fit_is_not_counted() {
    let broker = queue(json!({})).await;
    let large = "x".repeat(900_000);
    for _ in 0..8 {
        send(&broker, json!({"value": large})).await;
    }
    let received = receive(&broker, json!({"max": 8})).await;
    assert!((4..8).contains(&received.len()), "{}", received.len());
    let rest = receive(&broker, json!({"max": 8, "wait_ms": 5000})).await;
    assert_eq!(received.len() + rest.len(), 8);
    assert!(rest.iter().all(|message| message["receives"] == 1));
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_partitions_are_one_queue() {
    let broker = Broker::start().await;
    broker.post("/queues", r#"{"name":"q","partitions":3}"#).await;
    for n in 0..9 {
        send(&broker, json!({"value": n.to_string()})).await;
    }
    assert_eq!(stats(&broker).await["ready"], 9);
    let first = broker.get("/queues/q/peek?max=4").await.ok();
    let next = first["next"].as_str().unwrap();
    let second = broker.get(&format!("/queues/q/peek?max=500&from={next}")).await.ok();
    let all = [&first, &second].map(|page| page["messages"].as_array().unwrap().len());
    assert_eq!((all, &second["next"]), ([4, 5], &Value::Null));
    let received = receive(&broker, json!({"max": 500})).await;
    assert_eq!(received.len(), 9);
    assert_eq!(broker.post("/queues/q/purge", "").await.ok(), json!({"purged": 9}));
    assert_eq!(stats(&broker).await["in_flight"], 0);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queues_are_created_listed_configured_and_deleted() {
    let broker = queue(json!({"delay_ms": 5000})).await;
    broker.post("/topics", r#"{"name":"t"}"#).await;
    let listed = broker.get("/queues").await.ok();
    assert_eq!(listed, json!({"queues": [{"name": "q", "fifo": false}], "next": null}));
    let shown = broker.get("/queues/q").await.ok();
    assert_eq!(shown["settings"]["delay_ms"], 5000);
    assert_eq!(shown["settings"]["visibility_timeout_ms"], 30000);
    let changed = json!({"settings": {"delay_ms": null, "dead_letter_receives": 5}});
    let changed = broker.request("PATCH", "/queues/q", &changed.to_string()).await.ok();
    assert_eq!(
        (&changed["settings"]["delay_ms"], &changed["settings"]["dead_letter_receives"]),
        (&json!(0), &json!(5))
    );
    let unknown = r#"{"settings":{"colour":"red"}}"#;
    broker.request("PATCH", "/queues/q", unknown).await.refused(400, "INVALID_CONFIG");
    broker.post("/queues", r#"{"name":"q"}"#).await.refused(409, "TOPIC_EXISTS");
    let help = broker.post("/queues", r#"{"name":"t"}"#).await.refused(409, "TOPIC_EXISTS");
    assert!(help["error"]["help"].as_str().unwrap().contains("queue.enable"), "{help}");

    broker.get("/queues/t").await.refused(409, "NOT_A_QUEUE");
    broker.post("/queues/t/receive", "").await.refused(409, "NOT_A_QUEUE");
    let missing = broker.post("/queues/x/messages", r#"{"value":"v"}"#).await;
    let missing = missing.refused(404, "QUEUE_NOT_FOUND");
    assert!(missing["error"]["help"].as_str().unwrap().contains("POST /queues"), "{missing}");
    let enable = r#"{"configs":{"queue.enable":true}}"#;
    broker.request("PATCH", "/queues/t", enable).await.ok();
    broker.post("/queues/t/messages", r#"{"value":"v"}"#).await.ok();
    let other = r#"{"subscription":"audit"}"#;
    broker.post("/queues/q/receive", other).await.refused(404, "SUBSCRIPTION_NOT_FOUND");
    broker.get("/queues/q/stats?subscription=audit").await.refused(404, "SUBSCRIPTION_NOT_FOUND");
    assert_eq!(broker.request("DELETE", "/queues/q", "").await.status, 204);
    broker.get("/queues/q").await.refused(404, "QUEUE_NOT_FOUND");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_is_a_log_as_well() {
    let broker = queue(json!({})).await;
    send(&broker, json!({"value": "v", "delay_ms": 60000})).await;
    let read = broker.get("/topics/q/partitions/0/messages").await.ok();
    assert_eq!(read["messages"][0]["value"], "v");
    let published = json!({"value": "w", "headers": {"towpath-priority": "9"}});
    broker.post("/topics/q/messages", &published.to_string()).await.ok();
    assert_eq!(values(&receive(&broker, json!({})).await), ["w"]);
    broker.stop().await;
}

pub(crate) async fn create_named(broker: &Broker, name: &str) {
    let created = broker.post("/queues", &json!({"name": name}).to_string()).await;
    assert_eq!(created.status, 201, "{}", created.body);
}

/// The first message that can be received from a queue, within some seconds.
pub(crate) async fn first_of(broker: &Broker, name: &str) -> Value {
    let wanted = json!({"wait_ms": 8000}).to_string();
    let received = broker.post(&format!("/queues/{name}/receive"), &wanted).await.ok();
    received["messages"][0].clone()
}

fn header<'m>(message: &'m Value, name: &str) -> &'m str {
    let headers = message["headers"].as_array().unwrap();
    let found = headers.iter().find(|header| header["name"] == name);
    found.unwrap_or_else(|| panic!("no {name}: {message}"))["value"].as_str().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_fails_too_often_lies_in_the_dead_letter_queue_with_its_story() {
    let broker = queue(json!({"dead_letter_queue": "dead", "dead_letter_receives": 2})).await;
    create_named(&broker, "dead").await;
    let sent = send(&broker, json!({"value": "poison", "headers": {"trace": "7"}})).await;
    for _ in 0..2 {
        let received = receive(&broker, json!({"holder": "w1"})).await;
        let failed = json!({"receipts": receipts(&received), "note": "no such customer"});
        assert_eq!(settle(&broker, "release", failed).await["results"], json!([{}]));
    }
    assert!(receive(&broker, json!({})).await.is_empty());
    let dead = first_of(&broker, "dead").await;
    assert_eq!((&dead["value"], &dead["id"]), (&json!("poison"), &sent["id"]));
    assert_eq!(header(&dead, "trace"), "7");
    assert_eq!(header(&dead, "towpath-dead-source"), "q");
    assert_eq!(header(&dead, "towpath-dead-reason"), "too-many-receives");
    assert_eq!(header(&dead, "towpath-dead-receives"), "2");
    let attempt = header(&dead, "towpath-dead-attempt");
    assert!(attempt.starts_with("w1 held it for "), "{attempt}");
    assert!(attempt.ends_with("failed: no such customer"), "{attempt}");
    let counts = stats(&broker).await;
    assert_eq!((&counts["ready"], &counts["in_flight"]), (&json!(0), &json!(0)), "{counts}");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejected_message_waits_until_there_is_a_dead_letter_queue() {
    let broker = queue(json!({"dead_letter_queue": "dead"})).await;
    send(&broker, json!({"value": "bad"})).await;
    let received = receive(&broker, json!({})).await;
    let reject = json!({"receipts": receipts(&received), "note": "not JSON"});
    assert_eq!(settle(&broker, "reject", reject).await["results"], json!([{}]));
    // There is no such queue: the message is not lost, and comes back to its workers.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let seen = broker.get("/queues/q/peek").await.ok();
    assert_eq!(seen["messages"][0]["state"], "delayed", "{seen}");
    create_named(&broker, "dead").await;
    let again = receive(&broker, json!({"wait_ms": 10000})).await;
    let reject = json!({"receipts": receipts(&again), "note": "not JSON"});
    assert_eq!(settle(&broker, "reject", reject).await["results"], json!([{}]));
    let dead = first_of(&broker, "dead").await;
    assert_eq!(header(&dead, "towpath-dead-reason"), "rejected");
    assert_eq!(header(&dead, "towpath-dead-note"), "not JSON");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_message_holds_up_no_other_and_counts_as_received() {
    let dead = json!({"dead_letter_queue": "dead", "dead_letter_receives": 1});
    let broker = queue(dead).await;
    create_named(&broker, "dead").await;
    for value in ["one", "the-damaged-one", "three"] {
        send(&broker, json!({"value": value})).await;
    }
    broker.damage(b"the-damaged-one");
    let short = json!({"max": 10, "visibility_ms": 2000, "wait_ms": 5000});
    let first = receive(&broker, short).await;
    assert_eq!(values(&first), ["one", "three"]);
    assert_eq!(stats(&broker).await["in_flight"], 3, "nobody else tries the damaged one yet");
    let long = json!({"receipts": receipts(&first)});
    settle(&broker, "delete", long).await;

    // Who waits is told nothing of it, and gets what comes.
    let sends = async {
        tokio::time::sleep(Duration::from_millis(2500)).await;
        send(&broker, json!({"value": "four"})).await;
    };
    let (second, ()) = tokio::join!(receive(&broker, json!({"max": 10, "wait_ms": 10000})), sends);
    assert_eq!(values(&second), ["four"]);
    assert_eq!(stats(&broker).await["in_flight"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_that_cannot_go_hold_up_no_other() {
    let broker = Broker::start().await;
    let small = json!({"queue.enable": "true", "max.message.bytes": "2000"});
    let dead = json!({"name": "dead", "partitions": 1, "configs": small});
    broker.post("/topics", &dead.to_string()).await.ok();
    let settings = json!({"dead_letter_queue": "dead"});
    let queue = json!({"name": "q", "partitions": 1, "settings": settings});
    broker.post("/queues", &queue.to_string()).await;
    send(&broker, json!({"value": "the-damaged-one"})).await;
    for n in 0..110 {
        let value = if n < 109 { "x".repeat(3000) } else { "small".to_owned() };
        send(&broker, json!({ "value": value })).await;
    }
    let received = receive(&broker, json!({"max": 500})).await;
    assert_eq!(received.len(), 111);
    broker.damage(b"the-damaged-one");
    let reject = json!({"receipts": receipts(&received), "note": "not JSON"});
    settle(&broker, "reject", reject).await;
    assert_eq!(first_of(&broker, "dead").await["value"], "small");
    // They are where they were, for a while.
    let began = Instant::now();
    while stats(&broker).await["delayed"] != 110 {
        assert!(began.elapsed() < Duration::from_secs(4), "{}", stats(&broker).await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // What is counted and shown says so.
    assert_eq!(stats(&broker).await["unmovable"], 110);
    let seen = broker.get("/queues/q/peek?state=delayed&from=0-1&max=1").await.ok();
    let last = &seen["messages"][0]["history"][0];
    assert_eq!(last["why"], "move failed", "{seen}");
    assert!(last["note"].as_str().unwrap().contains("the topic allows 2000"), "{last}");
    let metrics = broker.get("/metrics").await.body;
    assert!(metrics.contains("towpath_queue_unmovable_messages{queue=\"q\"} 110"), "{metrics}");

    // Nor can the queue be given up, and its task says why.
    let begun = broker.request("DELETE", "/queues/q?unsettled=move", "").await.json();
    let task = format!("/tasks/{}", begun["id"].as_str().unwrap());
    let began = Instant::now();
    let mut task_now = broker.get(&task).await.ok();
    while task_now["state"] == "running" {
        assert!(began.elapsed() < Duration::from_secs(20), "{task_now}");
        tokio::time::sleep(Duration::from_millis(50)).await;
        task_now = broker.get(&task).await.ok();
    }
    let reason = task_now["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("does not take what is left"), "{task_now}");
    send(&broker, json!({"value": "it takes messages again"})).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_partition_of_which_all_is_held_ends_no_wait_at_the_others() {
    let broker = Broker::start().await;
    let configs = json!({"queue.enable": "true", "queue.in.flight.max": "1"});
    let topic = json!({"name": "q", "partitions": 2, "configs": configs});
    broker.post("/topics", &topic.to_string()).await.ok();
    send(&broker, json!({"value": "held"})).await;
    assert_eq!(receive(&broker, json!({})).await.len(), 1);
    let begun = Instant::now();
    assert!(receive(&broker, json!({"wait_ms": 1500})).await.is_empty());
    assert!(Duration::from_millis(1500) <= begun.elapsed());

    // Some of them lie where something may be received.
    for n in 0..8 {
        send(&broker, json!({"value": n.to_string()})).await;
    }
    let more = receive(&broker, json!({"max": 10, "wait_ms": 10000})).await;
    assert_eq!(more.len(), 1);
    let begun = Instant::now();
    let none = broker.post("/queues/q/receive", r#"{"wait_ms":10000}"#).await;
    none.refused(422, "LIMIT_REACHED");
    assert!(begun.elapsed() < Duration::from_secs(5), "all of them say so");
}
