//! Tasks over HTTP: dead letters that go back, or are dropped; `tests/process` has several brokers.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::{Answer, Broker};

/// The queue `q`, whose dead letters come to `dead`, and `other`.
async fn queues() -> Broker {
    let broker = Broker::start().await;
    for name in ["dead", "other"] {
        create(&broker, name, json!({})).await;
    }
    create(&broker, "q", json!({"dead_letter_queue": "dead"})).await;
    broker
}

async fn create(broker: &Broker, name: &str, settings: Value) {
    let wanted = json!({"name": name, "settings": settings, "partitions": 2}).to_string();
    let created = broker.post("/queues", &wanted).await;
    assert_eq!(created.status, 201, "{}", created.body);
}

async fn send(broker: &Broker, queue: &str, values: impl Iterator<Item = String>) -> Vec<Value> {
    let messages: Vec<Value> = values.map(|value| json!({ "value": value })).collect();
    let path = format!("/queues/{queue}/messages");
    let sent = broker.post(&path, &json!({ "messages": messages }).to_string()).await.ok();
    sent["results"].as_array().unwrap().clone()
}

async fn receive(broker: &Broker, queue: &str, wanted: Value) -> Vec<Value> {
    let path = format!("/queues/{queue}/receive");
    let received = broker.post(&path, &wanted.to_string()).await.ok();
    received["messages"].as_array().unwrap().clone()
}

/// Rejects what can be received from `q`, and waits until it lies in `dead`.
async fn reject_all(broker: &Broker, note: &str) {
    let before = ready(broker, "dead").await;
    let mut many = 0;
    loop {
        let received = receive(broker, "q", json!({"max": 500})).await;
        if received.is_empty() {
            break;
        }
        many += received.len() as u64;
        let receipts: Vec<&Value> = received.iter().map(|message| &message["receipt"]).collect();
        let reject = json!({"receipts": receipts, "note": note}).to_string();
        broker.post("/queues/q/reject", &reject).await.ok();
    }
    wait_for(broker, "dead", before + many).await;
}

async fn ready(broker: &Broker, queue: &str) -> u64 {
    let stats = broker.get(&format!("/queues/{queue}/stats")).await.ok();
    stats["ready"].as_u64().unwrap()
}

async fn wait_for(broker: &Broker, queue: &str, many: u64) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while ready(broker, queue).await != many {
        assert!(
            Instant::now() < deadline,
            "{queue} has {}, not {many}",
            ready(broker, queue).await
        );
        sleep(Duration::from_millis(50)).await;
    }
}

async fn start(broker: &Broker, verb: &str, wanted: Value) -> Answer {
    broker.post(&format!("/queues/dead/{verb}"), &wanted.to_string()).await
}

async fn started(broker: &Broker, verb: &str, wanted: Value) -> String {
    let answer = start(broker, verb, wanted).await;
    assert_eq!(answer.status, 201, "{}", answer.body);
    answer.json()["id"].as_str().unwrap().to_owned()
}

async fn task(broker: &Broker, id: &str) -> Value {
    broker.get(&format!("/tasks/{id}")).await.ok()
}

async fn ended(broker: &Broker, id: &str) -> Value {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let task = task(broker, id).await;
        if task["state"] != "running" {
            return task;
        }
        assert!(Instant::now() < deadline, "{task}");
        sleep(Duration::from_millis(50)).await;
    }
}

fn counts(task: &Value) -> [u64; 5] {
    ["looked_at", "moved", "passed_over", "guarded", "stranded"]
        .map(|name| task[name].as_u64().unwrap())
}

fn header<'m>(message: &'m Value, name: &str) -> Option<&'m str> {
    let headers = message["headers"].as_array().unwrap();
    let found = headers.iter().find(|header| header["name"] == name);
    found.map(|header| header["value"].as_str().unwrap())
}

/// How often each value is in a queue, received or not.
async fn values(broker: &Broker, queue: &str) -> BTreeMap<String, usize> {
    let mut values = BTreeMap::new();
    let mut from = "0-0".to_owned();
    loop {
        let seen = broker.get(&format!("/queues/{queue}/peek?max=500&from={from}")).await.ok();
        for message in seen["messages"].as_array().unwrap() {
            *values.entry(message["value"].as_str().unwrap().to_owned()).or_default() += 1;
        }
        match seen["next"].as_str() {
            Some(next) => next.clone_into(&mut from),
            None => return values,
        }
    }
}

fn numbers(many: usize) -> impl Iterator<Item = String> {
    (0..many).map(|number| number.to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_letter_goes_back_to_where_it_came_from_and_begins_anew() {
    let broker = queues().await;
    let sent = send(&broker, "q", ["poison".to_owned()].into_iter()).await;
    reject_all(&broker, "no such customer").await;
    let id = started(&broker, "redrive", json!({"by": "ada"})).await;
    let done = ended(&broker, &id).await;
    assert_eq!((&done["state"], counts(&done)), (&json!("done"), [1, 1, 0, 0, 0]), "{done}");
    assert_eq!((&done["by"], &done["destination"]), (&json!("ada"), &Value::Null));

    let back = receive(&broker, "q", json!({"wait_ms": 5000})).await;
    let back = &back[0];
    assert_eq!(
        [&back["value"], &back["id"], &back["sent_ms"], &back["receives"]],
        [&json!("poison"), &sent[0]["id"], &sent[0]["sent_ms"], &json!(1)]
    );
    for gone in ["towpath-dead-reason", "towpath-dead-source", "towpath-dead-note"] {
        assert_eq!(header(back, gone), None, "{back}");
    }
    assert_eq!(header(back, "towpath-redrives"), Some("1"));
    let trail = format!("task {id} from dead: rejected");
    assert_eq!(header(back, "towpath-redriven-by"), Some(&*trail));
    assert_eq!(values(&broker, "dead").await.len(), 0);
    let listed = broker.get("/tasks?source=dead&state=done").await.ok();
    assert_eq!(listed["tasks"][0], done);
    assert_eq!(broker.get("/tasks?source=q").await.ok()["tasks"], json!([]));
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_the_filter_wants_goes_and_a_dry_run_says_what_that_is() {
    let broker = queues().await;
    send(&broker, "q", numbers(3)).await;
    reject_all(&broker, "no such customer").await;
    send(&broker, "q", ["card".to_owned()].into_iter()).await;
    reject_all(&broker, "card declined").await;
    send(&broker, "dead", ["not a dead letter".to_owned()].into_iter()).await;

    let filter = json!({"note_contains": "customer", "source": "q"});
    let dry = json!({"filter": filter, "dry_run": true, "max": 2});
    let foreseen = start(&broker, "redrive", dry).await.ok();
    assert_eq!((&foreseen["would_move"], &foreseen["dry_run"]), (&json!(2), &json!(true)));
    assert_eq!(foreseen["examples"].as_array().unwrap().len(), 2, "{foreseen}");
    let foreseen = start(&broker, "redrive", json!({"dry_run": true})).await.ok();
    assert_eq!([&foreseen["would_move"], &foreseen["stranded"]], [4, 1], "{foreseen}");
    assert_eq!((ready(&broker, "dead").await, ready(&broker, "q").await), (5, 0));
    assert_eq!(broker.get("/tasks").await.ok()["tasks"], json!([]));

    let two = started(&broker, "redrive", json!({"filter": filter, "max": 2})).await;
    assert_eq!(ended(&broker, &two).await["moved"], 2);
    wait_for(&broker, "q", 2).await;
    let rest = started(&broker, "redrive", json!({ "filter": filter })).await;
    assert_eq!(counts(&ended(&broker, &rest).await), [3, 1, 2, 0, 0]);
    wait_for(&broker, "q", 3).await;
    let left = values(&broker, "dead").await;
    assert!(left.keys().eq(["card", "not a dead letter"]), "{left:?}");

    let filter = json!({"value_contains": "card"});
    let dropped = started(&broker, "drop", json!({ "filter": filter })).await;
    let dropped = ended(&broker, &dropped).await;
    assert_eq!((&dropped["kind"], counts(&dropped)), (&json!("drop"), [2, 1, 1, 0, 0]));
    assert!(values(&broker, "dead").await.keys().eq(["not a dead letter"]));
    let all = started(&broker, "drop", json!({})).await;
    assert_eq!(counts(&ended(&broker, &all).await), [1, 1, 0, 0, 0]);
    assert!(values(&broker, "dead").await.is_empty());
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_came_back_too_often_stays() {
    let broker = queues().await;
    send(&broker, "q", ["poison".to_owned()].into_iter()).await;
    for round in 1..=2 {
        reject_all(&broker, "again").await;
        let id = started(&broker, "redrive", json!({"redrives_max": 2})).await;
        assert_eq!(counts(&ended(&broker, &id).await), [1, 1, 0, 0, 0]);
        wait_for(&broker, "q", 1).await;
        let seen = broker.get("/queues/q/peek").await.ok();
        assert_eq!(header(&seen["messages"][0], "towpath-redrives"), Some(&*round.to_string()));
    }
    reject_all(&broker, "again").await;
    let id = started(&broker, "redrive", json!({"redrives_max": 2})).await;
    assert_eq!(counts(&ended(&broker, &id).await), [1, 0, 0, 1, 0]);
    assert_eq!(ready(&broker, "dead").await, 1);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_somebody_holds_or_sends_later_is_left_alone() {
    let broker = queues().await;
    send(&broker, "dead", numbers(4)).await;
    let held = receive(&broker, "dead", json!({"visibility_ms": 60_000})).await;
    let held = held[0]["value"].as_str().unwrap();
    // Everything of the first second is there at once; what comes meanwhile is not the task's.
    let id = started(&broker, "redrive", json!({"to": "other", "rate": 2})).await;
    sleep(Duration::from_millis(700)).await;
    send(&broker, "dead", ["late".to_owned()].into_iter()).await;
    let done = ended(&broker, &id).await;
    assert_eq!((&done["destination"], counts(&done)), (&json!("other"), [3, 3, 0, 0, 0]), "{done}");
    let left = values(&broker, "dead").await;
    assert_eq!(left, BTreeMap::from([(held.to_owned(), 1), ("late".to_owned(), 1)]));
    assert_eq!(values(&broker, "other").await.len(), 3);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_keeps_its_rate_and_goes_on_after_a_restart_with_nothing_lost_or_twice() {
    let broker = queues().await;
    send(&broker, "dead", numbers(250)).await;
    let begun = Instant::now();
    let id = started(&broker, "redrive", json!({"to": "other", "rate": 50})).await;
    let moved = |task: &Value| task["moved"].as_u64().unwrap();
    while moved(&task(&broker, &id).await) < 50 {
        sleep(Duration::from_millis(50)).await;
    }
    let broker = broker.restart().await;
    let midway = task(&broker, &id).await;
    assert_eq!(midway["state"], "running", "{midway}");
    let most = 50 * (begun.elapsed().as_secs() + 2);
    assert!(moved(&midway) < 250.min(most), "{midway} after {:?}", begun.elapsed());
    let done = ended(&broker, &id).await;
    // The first second, and that after the restart, only wait.
    assert!(Duration::from_secs(5) <= begun.elapsed(), "{:?}", begun.elapsed());
    assert_eq!(counts(&done), [250, 250, 0, 0, 0], "{done}");
    let there = values(&broker, "other").await;
    assert_eq!((there.len(), there.values().max()), (250, Some(&1)));
    assert!(values(&broker, "dead").await.is_empty());
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_is_paused_resumed_and_cancelled_within_a_second() {
    let broker = queues().await;
    send(&broker, "dead", numbers(200)).await;
    let id = started(&broker, "redrive", json!({"to": "other", "rate": 20})).await;
    sleep(Duration::from_millis(1500)).await;
    let paused = broker.post(&format!("/tasks/{id}/pause?by=eve"), "").await.ok();
    assert_eq!((&paused["state"], &paused["changed_by"]), (&json!("paused"), &json!("eve")));
    sleep(Duration::from_secs(1)).await;
    let moved = ready(&broker, "other").await;
    assert!((1..=60).contains(&moved), "{moved}");
    sleep(Duration::from_millis(1500)).await;
    let paused = task(&broker, &id).await;
    assert_eq!((ready(&broker, "other").await, &paused["moved"]), (moved, &json!(moved)));

    // The queue stays its own meanwhile.
    let refused = start(&broker, "redrive", json!({})).await.refused(409, "TASK_ACTIVE");
    assert!(refused["error"]["message"].as_str().unwrap().contains(&id), "{refused}");
    let back = broker.post("/queues/other/redrive", r#"{"to":"dead"}"#).await;
    back.refused(409, "TASK_ACTIVE");

    broker.post(&format!("/tasks/{id}/resume"), "").await.ok();
    sleep(Duration::from_millis(2500)).await;
    assert!(moved < ready(&broker, "other").await);
    let cancelled = broker.post(&format!("/tasks/{id}/cancel"), "").await.ok();
    assert_eq!(cancelled["state"], "cancelled");
    sleep(Duration::from_secs(1)).await;
    let moved = ready(&broker, "other").await;
    sleep(Duration::from_millis(1500)).await;
    let cancelled = task(&broker, &id).await;
    assert_eq!((ready(&broker, "other").await, &cancelled["moved"]), (moved, &json!(moved)));
    assert_eq!(ready(&broker, "dead").await, 200 - moved);
    broker.post(&format!("/tasks/{id}/resume"), "").await.refused(409, "TASK_OVER");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_fails_with_its_queues_and_says_so() {
    let broker = queues().await;
    send(&broker, "dead", numbers(40)).await;
    let id = started(&broker, "redrive", json!({"to": "other", "rate": 5})).await;
    sleep(Duration::from_millis(1500)).await;
    assert_eq!(broker.request("DELETE", "/queues/other", "").await.status, 204);
    let failed = task(&broker, &id).await;
    assert_eq!(failed["state"], "failed", "{failed}");
    assert_eq!(failed["reason"], "the destination queue was deleted");
    let again = started(&broker, "redrive", json!({"to": "q", "rate": 1})).await;
    assert_eq!(broker.request("DELETE", "/queues/dead", "").await.status, 204);
    assert_eq!(task(&broker, &again).await["reason"], "the source queue was deleted");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_is_given_up_with_nothing_lost() {
    let broker = queues().await;
    send(&broker, "q", numbers(5)).await;
    let held = receive(&broker, "q", json!({"visibility_ms": 600_000, "max": 2})).await;
    assert!(!held.is_empty());
    let delayed = json!({"value": "later", "delay_ms": 600_000}).to_string();
    broker.post("/queues/q/messages", &delayed).await.ok();
    let unclear = broker.request("DELETE", "/queues/q?unsettled=keep", "").await;
    unclear.refused(400, "INVALID_PARAMETER");
    let homeless = broker.request("DELETE", "/queues/other?unsettled=move", "").await;
    homeless.refused(400, "INVALID_REQUEST");

    broker.request("PUT", "/queues/q/subscriptions/audit", "").await.ok();
    let shared = broker.request("DELETE", "/queues/q?unsettled=move", "").await;
    assert!(
        shared.refused(400, "INVALID_REQUEST")["error"]["message"].to_string().contains("audit")
    );
    broker.request("DELETE", "/queues/q/subscriptions/audit", "").await.ok();

    let answer = broker.request("DELETE", "/queues/q?unsettled=move&by=ada", "").await;
    assert_eq!(answer.status, 202, "{}", answer.body);
    let begun = answer.json();
    let done = ended(&broker, begun["id"].as_str().unwrap()).await;
    assert_eq!((&done["kind"], &done["state"]), (&json!("retire"), &json!("done")), "{done}");
    assert_eq!((&done["moved"], &done["by"]), (&json!(6), &json!("ada")));
    broker.get("/queues/q").await.refused(404, "QUEUE_NOT_FOUND");
    let there = values(&broker, "dead").await;
    assert!(there.keys().eq(["0", "1", "2", "3", "4", "later"]), "{there:?}");
    assert!(there.values().all(|times| *times == 1), "{there:?}");
    let seen = broker.get("/queues/dead/peek").await.ok();
    assert_eq!(header(&seen["messages"][0], "towpath-dead-reason"), Some("queue-deleted"));
    assert_eq!(header(&seen["messages"][0], "towpath-dead-source"), Some("q"));

    // There is nobody any more to bring them back to.
    let id = started(&broker, "redrive", json!({})).await;
    assert_eq!(counts(&ended(&broker, &id).await), [6, 0, 0, 0, 6]);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_queue_took_before_it_was_given_up_is_moved_and_it_takes_nothing_after() {
    let broker = queues().await;
    let sends = async {
        let mut taken = Vec::new();
        for at in 0.. {
            let body = json!({"messages": [{ "value": at.to_string() }]}).to_string();
            let answer = broker.post("/queues/q/messages", &body).await.json();
            let code = match &answer["error"] {
                Value::Null => &answer["results"][0]["error"]["code"],
                error => &error["code"],
            };
            match code.as_str() {
                None => taken.push(at.to_string()),
                Some("QUEUE_GIVEN_UP" | "QUEUE_NOT_FOUND") => break,
                other => panic!("{other:?}: {answer}"),
            }
        }
        taken
    };
    let gives_up = async {
        sleep(Duration::from_millis(300)).await;
        let begun = broker.request("DELETE", "/queues/q?unsettled=move", "").await.json();
        broker
            .post("/topics/q/messages", r#"{"value":"late"}"#)
            .await
            .refused(409, "QUEUE_GIVEN_UP");
        // Nobody would move what it has not worked.
        broker
            .request("PUT", "/queues/q/subscriptions/audit", r#"{"from":"start"}"#)
            .await
            .refused(409, "QUEUE_GIVEN_UP");
        begun
    };
    let (taken, begun) = tokio::join!(sends, gives_up);
    let done = ended(&broker, begun["id"].as_str().unwrap()).await;
    assert_eq!((&done["state"], &done["moved"]), (&json!("done"), &json!(taken.len())), "{done}");
    assert!(!taken.is_empty());
    let there = values(&broker, "dead").await;
    assert!(taken.iter().all(|value| there.get(value) == Some(&1)), "{there:?}");
    assert_eq!(there.len(), taken.len());
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_possible_is_refused() {
    let broker = queues().await;
    broker.post("/topics", r#"{"name":"log"}"#).await;
    for (wanted, status, code) in [
        (json!({"to": "gone"}), 404, "QUEUE_NOT_FOUND"),
        (json!({"to": "log"}), 409, "NOT_A_QUEUE"),
        (json!({"to": "dead"}), 400, "INVALID_REQUEST"),
        (json!({"rate": 0}), 400, "INVALID_REQUEST"),
        (json!({"by": " "}), 400, "INVALID_REQUEST"),
        (json!({"filter": {"colour": "red"}}), 400, "INVALID_JSON"),
    ] {
        start(&broker, "redrive", wanted).await.refused(status, code);
    }
    start(&broker, "drop", json!({"to": "other"})).await.refused(400, "INVALID_REQUEST");
    broker.post("/queues/gone/redrive", "").await.refused(404, "QUEUE_NOT_FOUND");
    broker.get("/tasks/gone").await.refused(404, "TASK_NOT_FOUND");
    broker.post("/tasks/AAAAAAAAAAAAAAAAAAAAAA/pause", "").await.refused(404, "TASK_NOT_FOUND");
    broker.get("/tasks?state=asleep").await.refused(400, "INVALID_PARAMETER");
    broker.stop().await;
}
