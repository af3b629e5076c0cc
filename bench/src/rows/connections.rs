//! Many connections: what one costs that rests, how fast they are taken, and what the active tenth of
//! them pays for the others.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::batch::Batch;
use crate::broker::{Broker, Durability, Kind, Lab};
use crate::load::{Closed, figures};
use crate::row::{Goal, Of, Plan, Row, Sample, Work};

/// After this a broker has done what it does after connections were opened.
const SETTLE: Duration = Duration::from_secs(2);
const TOPIC: &str = "crowd";

pub(super) fn rows() -> Vec<Row> {
    vec![Row {
        id: "P5",
        title: "10, 1,000 and 10,000 connections, all idle, then a tenth of them active (1 KB, synced)",
        is_optional: true,
        work: Work::Own(crowds),
        goals: const { &[Goal::at_most("KB/connection, 10000", Of::Ours, 30.0, 12.0)] },
    }]
}

fn crowds(lab: &Lab, kind: Kind, plan: &Plan) -> Result<Vec<Sample>> {
    let sizes: &[usize] = if plan.is_quick { &[10, 200] } else { &[10, 1_000, 10_000] };
    let mut samples = Vec::new();
    for _ in 0..plan.pairs.min(3) {
        let broker = lab.start(kind)?;
        broker.create_topic(TOPIC, 16, Durability::Synced)?;
        let mut sample = Sample::default();
        for size in sizes {
            crowd(&broker, *size, plan, &mut sample)?;
        }
        samples.push(sample);
    }
    Ok(samples)
}

/// Connections that have asked something and were answered, as every client's have.
fn crowd(broker: &Broker, size: usize, plan: &Plan, sample: &mut Sample) -> Result<()> {
    thread::sleep(SETTLE);
    let alone = broker.cost()?;
    let began = Instant::now();
    let mut idle = Vec::with_capacity(size);
    for _ in 0..size {
        let mut connection = broker.connect()?;
        connection.topics()?;
        idle.push(connection);
    }
    sample.set(&format!("accepted/s, {size}"), size as f64 / began.elapsed().as_secs_f64());
    thread::sleep(SETTLE);
    let crowded = broker.cost()?;
    let grown = crowded.resident_bytes as f64 - alone.resident_bytes as f64;
    sample.set(&format!("KB/connection, {size}"), grown / 1e3 / size as f64);
    thread::sleep(SETTLE);
    let resting = broker.cost()?.cpu.saturating_sub(crowded.cpu);
    let idle_cpu = resting.as_secs_f64() * 1e3 / SETTLE.as_secs_f64();
    sample.set(&format!("idle CPU ms/s, {size}"), idle_cpu);

    let active = (size / 10).max(1);
    idle.truncate(size - active);
    let batch = Batch::single()?;
    let load = Closed {
        topic: TOPIC,
        partitions: 16,
        connections: active,
        depth: 1,
        batch: &batch,
        span: plan.span,
        bytes_max: 4 << 30,
    };
    let loaded = figures(&load.run(broker)?);
    for metric in ["CPU µs/request", "requests/s"] {
        if let Some(value) = loaded.get(metric) {
            sample.set(&format!("{metric}, {active} of {size} active"), value);
        }
    }
    Ok(())
}
