//! What a queue tells of itself: statistics, advice and metrics.

use std::time::Duration;

use serde_json::{Value, json};

use crate::open_metrics;
use crate::queues::{create_named, queue, receipts, receive, send, settle, stats};
use crate::support::Broker;

async fn work(broker: &Broker, count: usize, visibility: Duration, takes: Duration) {
    let messages: Vec<Value> = (0..count).map(|_| json!({"value": "v"})).collect();
    send(broker, json!({"messages": messages})).await;
    let visibility_ms = visibility.as_millis() as u64;
    let received = receive(broker, json!({"max": count, "visibility_ms": visibility_ms})).await;
    assert_eq!(received.len(), count);
    tokio::time::sleep(takes).await;
    settle(broker, "delete", json!({"receipts": receipts(&received)})).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statistics_say_how_deliveries_went_and_what_follows() {
    let broker = queue(json!({"dead_letter_queue": "dead", "visibility_timeout_ms": 1000})).await;
    create_named(&broker, "dead").await;
    send(
        &broker,
        json!({"messages": [{"value": "a", "dedup_id": "x"}, {"value": "a", "dedup_id": "x"}]}),
    )
    .await;
    let received = receive(&broker, json!({})).await;
    let reject = json!({"receipts": receipts(&received), "note": "bad"});
    settle(&broker, "reject", reject).await;
    work(&broker, 120, Duration::from_secs(60), Duration::from_millis(300)).await;
    let told = loop {
        let told = stats(&broker).await;
        // It lies there before its way is over.
        if told["dead"] == 1 && told["moving"] == 0 {
            break told;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    let counts = &told["counts"];
    assert_eq!([&counts["admitted"], &counts["duplicates"]], [121, 1], "{told}");
    assert_eq!([&counts["received"], &counts["receives"]["1"]], [121, 120], "{told}");
    assert_eq!([&counts["settled"]["deleted"], &counts["moved"]["rejected"]], [120, 1], "{told}");
    assert!(0.0 < told["arrivals_per_second"].as_f64().unwrap(), "{told}");
    let slowest = told["processing_p999_ms"].as_u64().unwrap();
    assert!((300..60_000).contains(&slowest), "{told}");
    // Half as much again: one second is enough only if nothing took longer than two thirds of it.
    let fitting = told["suggested_visibility_timeout_ms"].as_u64().unwrap();
    assert_eq!(fitting, (slowest * 3 / 2).div_ceil(1_000) * 1_000, "{told}");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletes_that_come_too_late_are_a_verdict_on_the_visibility_timeout() {
    let broker = queue(json!({"visibility_timeout_ms": 200})).await;
    work(&broker, 3, Duration::from_millis(200), Duration::from_millis(600)).await;
    let told = stats(&broker).await;
    assert_eq!(
        [&told["recent"]["late_deletes"], &told["recent"]["leases_ended"]],
        [3, 3],
        "{told}"
    );
    assert_eq!(told["counts"]["returned"]["lease-expired"], 3, "{told}");
    let notice = &told["notices"][0];
    assert_eq!(notice["code"], "VISIBILITY_TIMEOUT_TOO_SHORT", "{told}");
    let text = notice["message"].as_str().unwrap();
    assert!(text.contains("0.2 s is too short: 3 of 3 messages"), "{text}");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn order_that_keeps_receivers_waiting_is_named() {
    let broker = std::sync::Arc::new(queue(json!({"fifo": true})).await);
    let of_one_group: Vec<Value> = (0..3).map(|_| json!({"value": "v", "group": "g"})).collect();
    send(&broker, json!({"messages": of_one_group})).await;
    assert_eq!(receive(&broker, json!({"max": 1})).await.len(), 1);
    let waiting = tokio::spawn({
        let broker = std::sync::Arc::clone(&broker);
        async move { receive(&broker, json!({"wait_ms": 3000})).await }
    });
    let told = loop {
        let told = stats(&broker).await;
        if told["receivers"] == 1 {
            break told;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(told["notices"][0]["code"], "ORDER_LIMITS_RECEIVERS", "{told}");
    assert!(waiting.await.unwrap().is_empty());
    let Ok(broker) = std::sync::Arc::try_unwrap(broker) else { panic!("nobody else has it") };
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_age_of_a_backlog_grows_while_nobody_reads() {
    let broker = queue(json!({})).await;
    send(&broker, json!({"value": "v"})).await;
    let age = |told: &Value| told["oldest_waiting_ms"].as_u64().unwrap();
    let before = age(&stats(&broker).await);
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let told = stats(&broker).await;
    assert!(before + 1_400 <= age(&told), "{before}, {told}");
    assert_eq!(told["oldest_ms"], told["oldest_waiting_ms"]);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prometheus_is_told_the_same_with_a_bounded_number_of_series() {
    let broker = queue(json!({"dead_letter_queue": "dead"})).await;
    create_named(&broker, "dead").await;
    work(&broker, 5, Duration::from_secs(60), Duration::from_millis(20)).await;
    let answer = broker.get("/metrics?names=towpath").await;
    let families = open_metrics::parse(&answer.body).unwrap();
    let value = |family: &str, suffix: &str, labels: &[(&str, &str)]| {
        let samples = families[family].samples.iter();
        let mut found = samples.filter(|sample| {
            sample.suffix == suffix
                && labels.iter().all(|(name, value)| sample.labels[*name] == *value)
        });
        let value = found.next().map(|sample| sample.value);
        assert!(found.next().is_none(), "{family} {labels:?}");
        value
    };
    let q = ("queue", "q");
    assert_eq!(value("towpath_queue_in_messages", "_total", &[q]), Some(5.0));
    let deleted = [q, ("how", "deleted")];
    assert_eq!(value("towpath_queue_settled_messages", "_total", &deleted), Some(5.0));
    let redriven = [q, ("reason", "redriven")];
    assert_eq!(value("towpath_queue_moved_messages", "_total", &redriven), Some(0.0));
    assert_eq!(value("towpath_queue_processing_seconds", "_count", &[q]), Some(5.0));
    let short = [q, ("le", "0.016")];
    assert_eq!(value("towpath_queue_processing_seconds", "_bucket", &short), Some(0.0));
    let once = [q, ("le", "1.0")];
    assert_eq!(value("towpath_queue_receives", "_bucket", &once), Some(5.0));
    assert_eq!(value("towpath_queue_visibility_timeout_seconds", "", &[q]), Some(30.0));
    // Only a queue that is another one's dead-letter queue has dead letters.
    assert_eq!(value("towpath_queue_dead_messages", "", &[("queue", "dead")]), Some(0.0));
    assert_eq!(value("towpath_queue_dead_messages", "", &[q]), None);
    let of_queues = families.iter().filter(|(name, _)| name.starts_with("towpath_queue_"));
    let of_q = |family: &open_metrics::Family| {
        family.samples.iter().filter(|sample| sample.labels["queue"] == "q").count()
    };
    let series: usize = of_queues.map(|(_, family)| of_q(family)).sum();
    assert!(series < 70, "{series} series for one queue");
    broker.stop().await;
}
