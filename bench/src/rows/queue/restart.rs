//! How soon a queue with a million live messages is there again after kill -9: on the broker that was killed,
//! or on another one that takes over.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;

use super::many::hold_a_million;
use super::{OwnQueue, OwnWorker, runtime};
use crate::broker::{Kind, Lab, Patience};
use crate::row::{Goal, Of, Plan, Row, Sample, Work};

/// Longer than any of this may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// Between two tries.
const AGAIN_AFTER: Duration = Duration::from_millis(10);

pub(super) fn rows() -> Vec<Row> {
    vec![
        Row {
            id: "Q5",
            title: "work queue, a million held, kill -9: until the next message is received, same broker",
            is_optional: true,
            work: Work::Own(restart),
            goals: const { &[Goal::at_most("s", Of::Ours, 5.0, 2.0)] },
        },
        Row {
            id: "Q6",
            title: "work queue, a million held, kill -9 of the leader: until the next message is received, three brokers",
            is_optional: true,
            work: Work::Own(failover),
            goals: const { &[Goal::at_most("s", Of::Ours, 5.0, 2.0)] },
        },
    ]
}

fn settings() -> serde_json::Value {
    json!({"in_flight_max": 2_000_000})
}

/// One message that nobody holds.
fn one_more(queue: &OwnQueue) -> Result<()> {
    queue
        .runtime
        .block_on(async { OwnWorker::open(queue.address, &queue.name).await?.send(1).await })
}

fn restart(lab: &Lab, kind: Kind, plan: &Plan) -> Result<Vec<Sample>> {
    let mut broker = lab.start(kind)?;
    let queue = OwnQueue::create(&broker, &settings())?;
    hold_a_million(&queue, plan)?;
    let mut samples = Vec::new();
    for _ in 0..plan.pairs {
        one_more(&queue)?;
        broker.kill()?;
        let mut sample = Sample::default();
        let began = Instant::now();
        broker.start()?;
        until_received(&[broker.http()], &queue.name, began)?;
        sample.set("s", began.elapsed().as_secs_f64());
        sample.set("start s", broker.ready.as_secs_f64());
        sample.set("resident MB", broker.cost()?.resident_bytes as f64 / 1e6);
        samples.push(sample);
    }
    Ok(samples)
}

fn failover(lab: &Lab, kind: Kind, plan: &Plan) -> Result<Vec<Sample>> {
    let mut samples = Vec::new();
    for _ in 0..plan.pairs.min(3) {
        let mut trio = lab.start_trio(kind, Patience::Default)?;
        let queue = OwnQueue::create_at(trio.http(1), &settings())?;
        hold_a_million(&queue, plan)?;
        one_more(&queue)?;
        let leader = trio.leader_of(&queue.name, 0)?;
        let others: Vec<_> = (1..=3).filter(|id| *id != leader).map(|id| trio.http(id)).collect();
        let began = Instant::now();
        trio.node(leader).kill()?;
        until_received(&others, &queue.name, began)?;
        let mut sample = Sample::default();
        sample.set("s", began.elapsed().as_secs_f64());
        samples.push(sample);
    }
    Ok(samples)
}

/// Receives one message from whoever answers.
fn until_received(from: &[std::net::SocketAddr], queue: &str, began: Instant) -> Result<()> {
    let runtime = runtime()?;
    for address in from.iter().cycle() {
        let received = runtime.block_on(async {
            OwnWorker::open(*address, queue).await?.receive(1, json!({"wait_ms": 200})).await
        });
        if received.is_ok() {
            return Ok(());
        }
        ensure!(began.elapsed() < PATIENCE, "nothing was received: {received:?}");
        std::thread::sleep(AGAIN_AFTER);
    }
    Ok(())
}
