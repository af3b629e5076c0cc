//! Named subscriptions over HTTP, and the verbs produce, poll and ack that stand on them; with one broker.

use serde_json::{Value, json};

use crate::queues::{queue, receive, send, settle, stats, values};
use crate::support::Broker;

async fn receive_all(broker: &Broker, subscription: &str) -> Vec<String> {
    let received = receive(broker, json!({"max": 100, "subscription": subscription})).await;
    let mut values: Vec<String> = values(&received).into_iter().map(str::to_owned).collect();
    values.sort();
    values
}

async fn subscribe(broker: &Broker, name: &str, body: &str) -> Value {
    broker.request("PUT", &format!("/queues/q/subscriptions/{name}"), body).await.ok()
}

async fn verb(broker: &Broker, verb: &str, body: Value) -> Value {
    broker.post(&format!("/topics/q/{verb}"), &body.to_string()).await.ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_subscription_gets_every_message_whatever_others_do_with_it() {
    let broker = queue(json!({})).await;
    send(&broker, json!({"value": "a"})).await;
    assert_eq!(subscribe(&broker, "audit", "").await, json!({"name": "audit"}));
    subscribe(&broker, "all%20of%20it", r#"{"from":"start"}"#).await;
    // Again is no other subscription.
    subscribe(&broker, "audit", r#"{"from":"start"}"#).await;
    send(&broker, json!({"value": "b"})).await;
    let listed = broker.get("/queues/q/subscriptions").await.ok();
    assert_eq!(listed, json!({"subscriptions": [{"name": "audit"}, {"name": "all of it"}]}));
    broker.get("/queues/q/subscriptions/all%20of%20it").await.ok();

    let own = receive(&broker, json!({"max": 100})).await;
    assert_eq!(values(&own), ["a", "b"]);
    let receipts: Vec<&Value> = own.iter().map(|message| &message["receipt"]).collect();
    settle(&broker, "delete", json!({ "receipts": receipts })).await;
    assert_eq!(receive_all(&broker, "audit").await, ["b"]);
    assert_eq!(receive_all(&broker, "all of it").await, ["a", "b"]);
    let audit = broker.get("/queues/q/stats?subscription=audit").await.ok();
    assert_eq!((&audit["in_flight"], &stats(&broker).await["in_flight"]), (&json!(1), &json!(0)));

    let broker = broker.restart().await;
    assert_eq!(broker.get("/queues/q/subscriptions").await.ok(), listed);
    let path = "/queues/q/subscriptions/audit";
    assert_eq!(broker.request("DELETE", path, "").await.ok(), json!({"existed": true}));
    broker.get(path).await.refused(404, "SUBSCRIPTION_NOT_FOUND");
    broker.request("DELETE", path, "").await.refused(404, "SUBSCRIPTION_NOT_FOUND");
    let wanted = r#"{"subscription":"audit"}"#;
    broker.post("/queues/q/receive", wanted).await.refused(404, "SUBSCRIPTION_NOT_FOUND");
    let own = "/queues/q/subscriptions/q";
    broker.request("PUT", own, "").await.refused(400, "INVALID_PARAMETER");
    let path = "/queues/q/subscriptions/x?partition=0";
    broker.request("PUT", path, "").await.refused(400, "INVALID_PARAMETER");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_has_so_many_subscriptions() {
    let broker = queue(json!({})).await;
    for n in 0..100 {
        subscribe(&broker, &format!("s{n}"), "").await;
    }
    let path = "/queues/q/subscriptions/one-more";
    broker.request("PUT", path, "").await.refused(422, "LIMIT_REACHED");
    subscribe(&broker, "s7", "").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_as_a_broker_gets_no_more_subscriptions_than_others() {
    let broker = queue(json!({})).await;
    let put = async |name: &str| {
        let head =
            "host: localhost\r\nconnection: close\r\ncontent-length: 0\r\ntowpath-forwarded-by: 1";
        let path = format!("/queues/q/subscriptions/{name}?partition=0&partitions=1");
        broker.raw(format!("PUT {path} HTTP/1.1\r\n{head}\r\n\r\n").as_bytes()).await
    };
    put(&"n".repeat(250)).await.refused(400, "INVALID_PARAMETER");
    put("q").await.refused(400, "INVALID_PARAMETER");
    for n in 0..towpath_queue::SUBSCRIPTIONS_MAX {
        put(&format!("s{n}")).await.ok();
    }
    put("one-more").await.refused(422, "LIMIT_REACHED");
    put("s7").await.ok();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn produce_poll_and_ack_are_a_queue_by_three_verbs() {
    let broker = queue(json!({})).await;
    let produced = verb(&broker, "produce", json!({"key": "k", "payload": "a"})).await;
    let id = produced["message_id"].as_str().unwrap();

    // Each group gets it, although none was there before.
    for group in ["mailer", "audit", "q"] {
        let polled = verb(&broker, "poll", json!({"group": group, "max": 10})).await;
        let message = &polled["messages"][0];
        assert_eq!(
            [&message["message_id"], &message["key"], &message["payload"], &message["receives"]],
            [&json!(id), &json!("k"), &json!("a"), &json!(1)]
        );
        let nothing = verb(&broker, "poll", json!({"group": group})).await;
        assert_eq!(nothing["messages"], json!([]));
    }
    let acked = verb(&broker, "ack", json!({"group": "mailer", "message_id": id})).await;
    assert_eq!(acked, json!({"results": [{}]}));
    // Again is no error, and other groups still have it.
    verb(&broker, "ack", json!({"group": "mailer", "message_ids": [id]})).await;
    let audit = broker.get("/queues/q/stats?subscription=audit").await.ok();
    assert_eq!(audit["in_flight"], 1);
    verb(&broker, "ack", json!({"group": "q", "message_id": id})).await;
    assert_eq!(stats(&broker).await["in_flight"], 0);

    // What nobody holds cannot be acknowledged.
    let free = verb(&broker, "produce", json!({"payload": "b"})).await;
    let ack = json!({"group": "mailer", "message_id": free["message_id"]});
    broker.post("/topics/q/ack", &ack.to_string()).await.refused(409, "RECEIPT_STALE");
    let ack = json!({"group": "mailer", "message_id": "7-x"});
    broker.post("/topics/q/ack", &ack.to_string()).await.refused(400, "INVALID_RECEIPT");
    let ack = json!({"group": "mailer"});
    broker.post("/topics/q/ack", &ack.to_string()).await.refused(400, "INVALID_REQUEST");
    broker.post("/topics", r#"{"name":"log"}"#).await.ok();
    broker.post("/topics/log/poll", r#"{"group":"g"}"#).await.refused(409, "NOT_A_QUEUE");
}
