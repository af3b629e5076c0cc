//! Receivers that wait for messages of a queue in which there are none.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;

use super::{JSON, OwnQueue};
use crate::broker::{Kind, Lab};
use crate::http::HttpConnection;
use crate::row::{Goal, Of, Plan, Row, Sample, Work};

/// After this a broker has done what it does when connections were opened.
const SETTLE: Duration = Duration::from_secs(2);
/// How long all of them may take to wait; nobody's wait ends meanwhile.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long it is looked at; nobody's wait ends meanwhile.
const LOOK: Duration = Duration::from_secs(5);

pub(super) fn rows() -> Vec<Row> {
    vec![Row {
        id: "Q4",
        title: "work queue, 10,000 idle long polls",
        is_optional: true,
        work: Work::Own(idle),
        goals: const {
            &[
                Goal::at_most("MB", Of::Ours, 300.0, 100.0),
                Goal::at_most("% of a core", Of::Ours, 5.0, 1.0),
            ]
        },
    }]
}

fn idle(lab: &Lab, kind: Kind, plan: &Plan) -> Result<Vec<Sample>> {
    let polls = if plan.is_quick { 200 } else { 10_000 };
    (0..plan.pairs.min(3)).map(|_| one(lab, kind, polls)).collect()
}

fn one(lab: &Lab, kind: Kind, polls: usize) -> Result<Sample> {
    let broker = lab.start(kind)?;
    let queue = OwnQueue::create(&broker, &json!({}))?;
    let path = format!("/queues/{}/receive", queue.name);
    let wanted = json!({"max": 10, "wait_ms": 20_000}).to_string();
    let before = broker.cost()?;
    let waiting = queue.runtime.block_on(async {
        let mut waiting = Vec::new();
        for _ in 0..polls {
            let mut connection = HttpConnection::open(queue.address).await?;
            connection.send(&path, JSON, wanted.as_bytes()).await?;
            waiting.push(connection);
        }
        anyhow::Ok(waiting)
    })?;
    let deadline = Instant::now() + PATIENCE;
    while queue.receivers()? < polls as u64 {
        ensure!(Instant::now() < deadline, "{} of {polls} receivers wait", queue.receivers()?);
        thread::sleep(Duration::from_millis(50));
    }
    thread::sleep(SETTLE);
    let settled = broker.cost()?;
    thread::sleep(LOOK);
    let looked = broker.cost()?;
    drop(waiting);
    let mut sample = Sample::default();
    let grown = looked.resident_bytes as f64 - before.resident_bytes as f64;
    sample.set("MB", grown / 1e6);
    sample.set("KB/poll", grown / 1e3 / polls as f64);
    let cpu = looked.cpu.saturating_sub(settled.cpu);
    sample.set("% of a core", cpu.as_secs_f64() * 100.0 / LOOK.as_secs_f64());
    Ok(sample)
}
