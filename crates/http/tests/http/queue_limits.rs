//! What a queue does at its limits: one test for each limit and each policy.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::queues::{create_named, first_of, queue, receipts, receive, send, settle, stats};
use crate::support::Broker;

/// Sends messages at once; says how many were taken, and the first refusal.
async fn send_many(broker: &Broker, count: usize, value: &str) -> (usize, Option<Value>) {
    let messages: Vec<Value> = (0..count).map(|_| json!({"value": value})).collect();
    let body = json!({"messages": messages}).to_string();
    let answer = broker.post("/queues/q/messages?wait_ms=0", &body).await.json();
    let results = answer["results"].as_array().unwrap();
    let mut refusals = results.iter().filter_map(|result| result.get("error"));
    (results.iter().filter(|result| result.get("id").is_some()).count(), refusals.next().cloned())
}

async fn work(broker: &Broker, max: usize) -> usize {
    let received = receive(broker, json!({"max": max})).await;
    settle(broker, "delete", json!({"receipts": receipts(&received)})).await;
    received.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_refuses_and_takes_again_what_fits() {
    let broker = queue(json!({"limit_messages": 5})).await;
    assert_eq!(send_many(&broker, 3, "v").await, (3, None));
    let (taken, refused) = send_many(&broker, 4, "v").await;
    assert_eq!(taken, 2, "{refused:?}");
    let one = json!({"value": "v"}).to_string();
    let answer = broker.post("/queues/q/messages", &one).await;
    assert!(answer.head.contains("retry-after: 1"), "{}", answer.head);
    let error = answer.refused(429, "QUEUE_FULL");
    let text = error["error"]["message"].as_str().unwrap();
    assert!(text.contains("\"q\"") && text.contains("holds 5 messages"), "{text}");
    assert!(text.contains("queue.limit.messages is 5"), "{text}");
    assert!(error["error"]["help"].as_str().unwrap().contains("more receivers"), "{error}");
    // As a log it is no less full.
    broker.post("/topics/q/messages", &one).await.refused(429, "QUEUE_FULL");
    assert_eq!(work(&broker, 2).await, 2);
    assert_eq!(send_many(&broker, 3, "v").await.0, 2);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_have_a_limit() {
    let broker = queue(json!({"limit_bytes": 10_000})).await;
    let large = "x".repeat(4_000);
    let (taken, refused) = send_many(&broker, 3, &large).await;
    let refused = refused.unwrap();
    assert_eq!((taken, &refused["code"]), (2, &json!("QUEUE_FULL")), "{refused}");
    assert!(
        refused["message"].as_str().unwrap().contains("queue.limit.bytes is 10000"),
        "{refused}"
    );
    assert_eq!(work(&broker, 1).await, 1);
    assert_eq!(send_many(&broker, 1, &large).await, (1, None));
    let (taken, refused) = send_many(&broker, 2, &"x".repeat(11_000)).await;
    let refused = refused.unwrap();
    assert_eq!((taken, &refused["code"]), (0, &json!("MESSAGE_TOO_LARGE")), "{refused}");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backlog_that_grows_old_sheds_what_comes() {
    let broker = queue(json!({"limit_age_ms": 700})).await;
    assert_eq!(send_many(&broker, 2, "v").await, (2, None));
    tokio::time::sleep(Duration::from_millis(1_000)).await;
    let (taken, refused) = send_many(&broker, 1, "v").await;
    let text = refused.unwrap()["message"].as_str().unwrap().to_owned();
    assert_eq!(taken, 0);
    assert!(
        text.contains("has waited for") && text.contains("queue.limit.age.ms is 700"),
        "{text}"
    );
    // What a receiver holds does not wait.
    assert_eq!(work(&broker, 2).await, 2);
    assert_eq!(send_many(&broker, 1, "v").await, (1, None));
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn near_its_limit_a_queue_takes_ever_fewer_where_it_samples() {
    let broker = queue(json!({"limit_messages": 200, "limit_policy": "sample"})).await;
    assert_eq!(send_many(&broker, 160, "v").await, (160, None));
    let (near, refused) = send_many(&broker, 60, "v").await;
    assert!(20 < near && near < 60, "{near} of 60");
    let refused = refused.unwrap();
    assert!(refused["message"].as_str().unwrap().contains("a part of what is sent"), "{refused}");
    for _ in 0..5 {
        send_many(&broker, 60, "v").await;
    }
    let ready = stats(&broker).await["ready"].as_u64().unwrap();
    assert!((185..=200).contains(&ready), "{ready}");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_send_waits_for_room_where_the_queue_lets_it() {
    let broker = Arc::new(queue(json!({"limit_messages": 1, "limit_policy": "block"})).await);
    send(&broker, json!({"value": "a"})).await;
    let started = Instant::now();
    let body = json!({"value": "late"}).to_string();
    broker.post("/queues/q/messages?wait_ms=400", &body).await.refused(429, "QUEUE_FULL");
    assert!(Duration::from_millis(300) <= started.elapsed());
    let sending = tokio::spawn({
        let broker = Arc::clone(&broker);
        async move { send(&broker, json!({"value": "b"})).await }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!sending.is_finished());
    assert_eq!(work(&broker, 1).await, 1);
    assert_eq!(sending.await.unwrap()["id"], "0-1");
    let too_long = broker.post("/queues/q/messages?wait_ms=20001", &body).await;
    too_long.refused(400, "INVALID_PARAMETER");
    let Ok(broker) = Arc::try_unwrap(broker) else { panic!("nobody else has it") };
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_partitions_take_together_what_their_queue_does() {
    let broker = Broker::start().await;
    let settings = json!({"limit_messages": 10});
    let wanted = json!({"name": "q", "partitions": 3, "settings": settings}).to_string();
    assert_eq!(broker.post("/queues", &wanted).await.status, 201);
    let mut taken = 0;
    for _ in 0..4 {
        taken += send_many(&broker, 4, "v").await.0;
    }
    assert_eq!(taken, 10, "what one partition has no room for goes to another one");
    assert_eq!(work(&broker, 10).await, 10);
    assert_eq!(send_many(&broker, 12, "v").await.0, 10);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_wait_for_room_and_are_not_lost() {
    let broker = queue(json!({"dead_letter_queue": "dead"})).await;
    create_named(&broker, "dead").await;
    let limited = json!({"settings": {"limit_messages": 1}}).to_string();
    assert_eq!(broker.request("PATCH", "/queues/dead", &limited).await.status, 200);
    for value in ["a", "b"] {
        send(&broker, json!({"value": value})).await;
    }
    let received = receive(&broker, json!({"max": 2})).await;
    settle(&broker, "reject", json!({"receipts": receipts(&received), "note": "no"})).await;
    let first = first_of(&broker, "dead").await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let waiting = stats(&broker).await;
    assert_eq!([&waiting["moving"], &waiting["dead"]], [1, 1], "{waiting}");
    let done = json!({"receipts": [first["receipt"]]}).to_string();
    broker.post("/queues/dead/delete", &done).await.ok();
    let second = first_of(&broker, "dead").await;
    let values = [&first["value"], &second["value"]];
    assert!(values == ["a", "b"] || values == ["b", "a"], "{values:?}");
    assert_eq!(stats(&broker).await["moving"], 0);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqs_says_over_limit() {
    let broker = queue(json!({"limit_messages": 1})).await;
    let entries = json!([{"Id": "a", "MessageBody": "1"}, {"Id": "b", "MessageBody": "2"}]);
    let batch = json!({"QueueUrl": "q", "Entries": entries});
    let sent = crate::sqs_support::ok(&broker, "SendMessageBatch", batch).await;
    assert_eq!([&sent["Successful"][0]["Id"], &sent["Failed"][0]["Id"]], ["a", "b"], "{sent}");
    assert!(sent["Failed"][0]["Code"].as_str().unwrap().ends_with("OverLimit"), "{sent}");
    let one = json!({"QueueUrl": "q", "MessageBody": "3"});
    let (kind, text) = crate::sqs_support::refused(&broker, "SendMessage", one).await;
    assert!(kind.ends_with("OverLimit"), "{kind}");
    assert!(text.contains("queue.limit.messages is 1"), "{text}");
    broker.stop().await;
}
