//! One queue's load does not slow another: told by counts, not by the clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::{Value, json};

use crate::queues::{create_named, receipts};
use crate::support::Broker;

/// Callers that work the busy queue without a pause.
const BUSY: u64 = 8;
/// Messages that go through the quiet queue, one after the other, each by three requests.
const QUIET: u64 = 20;

async fn cycle(broker: &Broker, queue: &str, count: usize, answered: &AtomicU64) -> usize {
    let messages: Vec<Value> = (0..count).map(|_| json!({"value": "v"})).collect();
    let send = json!({"messages": messages}).to_string();
    broker.post(&format!("/queues/{queue}/messages"), &send).await.ok();
    answered.fetch_add(1, Ordering::Relaxed);
    let receive = json!({"max": count, "wait_ms": 5000}).to_string();
    let received = broker.post(&format!("/queues/{queue}/receive"), &receive).await.ok();
    answered.fetch_add(1, Ordering::Relaxed);
    let messages = received["messages"].as_array().unwrap();
    if !messages.is_empty() {
        let delete = json!({"receipts": receipts(messages)}).to_string();
        broker.post(&format!("/queues/{queue}/delete"), &delete).await.ok();
        answered.fetch_add(1, Ordering::Relaxed);
    }
    messages.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quiet_queue_is_served_beside_a_busy_one() {
    let broker = Arc::new(Broker::start().await);
    create_named(&broker, "busy").await;
    create_named(&broker, "quiet").await;
    let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut busy = tokio::task::JoinSet::new();
    for _ in 0..BUSY {
        let (broker, stop, answered) =
            (Arc::clone(&broker), Arc::clone(&stop), Arc::clone(&answered));
        busy.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                cycle(&broker, "busy", 200, &answered).await;
            }
        });
    }
    while answered.load(Ordering::Relaxed) < 10 * BUSY {
        tokio::task::yield_now().await;
    }
    let before = answered.load(Ordering::Relaxed);
    let own = AtomicU64::new(0);
    for _ in 0..QUIET {
        assert_eq!(cycle(&broker, "quiet", 1, &own).await, 1);
    }
    let meanwhile = answered.load(Ordering::Relaxed) - before;
    stop.store(true, Ordering::Relaxed);
    while let Some(ended) = busy.join_next().await {
        ended.unwrap();
    }
    // In turn, each busy caller would be answered once for each request of the quiet one.
    let turns = meanwhile as f64 / (BUSY * own.load(Ordering::Relaxed)) as f64;
    assert!(turns < 3.0, "each busy caller had {turns:.1} answers for one of the quiet caller");
    let Ok(broker) = Arc::try_unwrap(broker) else { panic!("nobody else has it") };
    broker.stop().await;
}
