//! How soon a message reaches a receiver that waits for it, counted in rounds: a round is what a
//! record takes to be on the disks of all three replicas.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::{JSON, OwnQueue, OwnWorker};
use crate::broker::Trio;
use crate::http::HttpConnection;
use crate::load::{histogram, micros, millis};
use crate::row::{Goal, Of, Plan, Row, Sample, Work};

/// Time for a receiver to be there before something is sent.
const BETWEEN: Duration = Duration::from_millis(5);

pub(super) fn rows() -> Vec<Row> {
    vec![Row {
        id: "Q7",
        title: "work queue, three brokers: from send to receive, with a receiver that waits",
        is_optional: true,
        work: Work::Trios(|_, trio, plan| send_to_receive(trio, plan)),
        goals: const { &[Goal::at_most("rounds, p50", Of::Ours, 2.0, 1.0)] },
    }]
}

fn send_to_receive(trio: &Trio, plan: &Plan) -> Result<Sample> {
    let queue = OwnQueue::create_at(trio.http(1), &json!({}))?;
    let leader = trio.http(trio.leader_of(&queue.name, 0)?);
    let until = Instant::now() + plan.span;
    let (receives, sends) = queue.runtime.block_on(async {
        let mut sender = HttpConnection::open(leader).await?;
        let mut receiver = OwnWorker::open(leader, &queue.name).await?;
        let (mut receives, mut sends) = (histogram(), histogram());
        while Instant::now() < until {
            one(&mut sender, &mut receiver, &mut receives).await?;
            plain(&mut sender, &queue.name, &mut sends).await?;
        }
        anyhow::Ok((receives, sends))
    })?;
    let mut sample = Sample::default();
    sample.set("send to receive ms, p50", millis(&receives, 50.0));
    sample.set("send to receive ms, p99", millis(&receives, 99.0));
    sample.set("send ms, p50", millis(&sends, 50.0));
    sample.set("rounds, p50", millis(&receives, 50.0) / millis(&sends, 50.0));
    Ok(sample)
}

async fn one(
    sender: &mut HttpConnection,
    receiver: &mut OwnWorker,
    took: &mut Histogram<u64>,
) -> Result<()> {
    let path = format!("/queues/{}/receive", receiver.queue);
    let wanted = json!({"max": 1, "wait_ms": super::WAIT_MS}).to_string();
    receiver.connection.send(&path, JSON, wanted.as_bytes()).await?;
    tokio::time::sleep(BETWEEN).await;
    let began = Instant::now();
    let path = format!("/queues/{}/messages", receiver.queue);
    sender.send(&path, JSON, br#"{"value":"work"}"#).await?;
    let received = receiver.connection.receive().await?;
    took.saturating_record(micros(began.elapsed()));
    sender.receive().await?;
    let received: Value = serde_json::from_slice(&received)?;
    let receipt = received["messages"][0]["receipt"].as_str().context("nothing was received")?;
    receiver.delete(&[receipt.into()]).await
}

/// A send that nobody waits for: one round. It is taken away at once.
async fn plain(sender: &mut HttpConnection, queue: &str, took: &mut Histogram<u64>) -> Result<()> {
    tokio::time::sleep(BETWEEN).await;
    let began = Instant::now();
    let path = format!("/queues/{queue}/messages");
    sender.post(&path, JSON, br#"{"value":"work","delay_ms":3600000}"#).await?;
    took.saturating_record(micros(began.elapsed()));
    Ok(())
}
