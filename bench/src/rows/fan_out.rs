//! Fetch: many readers of the same records, which lie in the page cache.

use std::time::Instant;

use anyhow::{Result, ensure};

use crate::batch::Batch;
use crate::broker::{Broker, Durability, Lab};
use crate::java;
use crate::load::Closed;
use crate::reader::{Reading, read};
use crate::row::{Goal, Of, Plan, Row, Sample, Work, measured};

const TOPIC: &str = "fan-out";
/// What is in the topic, in bytes.
const BYTES: u64 = 400 << 20;
const BYTES_QUICK: u64 = 32 << 20;

pub(super) fn rows() -> Vec<Row> {
    let row = |id, title, sample, goals| {
        let work = Work::Shared { setup: fill, sample, teardown: |b| b.delete_topic(TOPIC) };
        Row { id, title, is_optional: false, work, goals }
    };
    vec![
        row(
            "F1-1x1m",
            "fetch, 1 reader, 1 MiB per fetch",
            |_, broker, plan| fan_out(broker, plan, 1, 1 << 20),
            &[],
        ),
        row(
            "F1-8x1m",
            "fetch, 8 readers of the same, 1 MiB per fetch",
            |_, broker, plan| fan_out(broker, plan, 8, 1 << 20),
            const { &[Goal::at_most("CPU-s/GB", Of::Ratio, 1.1, 0.9)] },
        ),
        row(
            "F1-1x64k",
            "fetch, 1 reader, 64 KiB per fetch",
            |_, broker, plan| fan_out(broker, plan, 1, 64 << 10),
            &[],
        ),
        row(
            "F1-8x64k",
            "fetch, 8 readers of the same, 64 KiB per fetch",
            |_, broker, plan| fan_out(broker, plan, 8, 64 << 10),
            const { &[Goal::at_most("CPU-s/GB", Of::Ratio, 1.1, 0.6)] },
        ),
        row("F1-java", "Kafka's ConsumerPerformance, 1 MiB per fetch", with_tool, &[]),
    ]
}

fn bytes_of(plan: &Plan) -> u64 {
    if plan.is_quick { BYTES_QUICK } else { BYTES }
}

/// Batches of 16 KiB, so that a fetch of 64 KiB brings three or four.
fn batch() -> Result<Batch> {
    Batch::filled(16 << 10)
}

fn fill(broker: &Broker, plan: &Plan) -> Result<()> {
    broker.create_topic(TOPIC, 1, Durability::PageCache)?;
    let batch = batch()?;
    let load = Closed {
        topic: TOPIC,
        partitions: 1,
        connections: 4,
        depth: 5,
        batch: &batch,
        span: std::time::Duration::from_secs(120),
        bytes_max: bytes_of(plan),
    };
    let written = load.run(broker)?.value.bytes;
    // The load has run a tenth of it before, unmeasured.
    ensure!(bytes_of(plan) <= written + written / 10, "the topic is not full");
    Ok(())
}

/// The offset that every reader reads to: what was certainly written, in whole batches.
fn end_offset(plan: &Plan) -> Result<i64> {
    let batch = batch()?;
    let batches = bytes_of(plan) / batch.bytes.len() as u64;
    Ok(i64::try_from(batches * batch.records as u64)?)
}

fn fan_out(broker: &Broker, plan: &Plan, readers: usize, fetch_bytes: i32) -> Result<Sample> {
    let reading = Reading {
        address: broker.address(),
        topic: TOPIC.to_owned(),
        partitions: 0..1,
        end_offset: end_offset(plan)?,
        fetch_bytes,
    };
    let began = Instant::now();
    // A lone reader reads twice, so that there is enough to measure.
    let rounds = if readers == 1 { 2 } else { 1 };
    let load =
        measured(broker, || (0..rounds).map(|_| read(readers, &reading)).sum::<Result<u64>>())?;
    let gigabytes = load.value as f64 / 1e9;
    let mut sample = load.sample();
    sample.set("CPU-s/GB", load.broker_cpu.as_secs_f64() / gigabytes);
    sample.set("MB/s", gigabytes * 1e3 / began.elapsed().as_secs_f64());
    sample.set("client CPU-s/GB", load.client_cpu.as_secs_f64() / gigabytes);
    Ok(sample)
}

fn with_tool(lab: &Lab, broker: &Broker, plan: &Plan) -> Result<Sample> {
    if lab.class_path().is_none() {
        return Ok(Sample::default());
    }
    let records = u64::try_from(end_offset(plan)?)?;
    let load = measured(broker, || java::consume(lab, broker, TOPIC, records))?;
    let gigabytes = bytes_of(plan) as f64 / 1e9;
    let mut sample = load.sample();
    sample.set("CPU-s/GB", load.broker_cpu.as_secs_f64() / gigabytes);
    sample.set("records/s", load.value);
    sample.set("client CPU-s/GB", load.client_cpu.as_secs_f64() / gigabytes);
    Ok(sample)
}
