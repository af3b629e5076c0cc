//! Produce: batches, single records, synced ones, many partitions.

use anyhow::Result;

use super::{nothing, nothing_left};
use crate::batch::Batch;
use crate::broker::{Broker, Durability, Lab};
use crate::java;
use crate::load::{Closed, figures};
use crate::row::{Goal, Of, Plan, Row, Sample, Work, measured};

/// Bytes after which one load ends: what the kernel writes back lazily must stay small.
const BYTES_MAX: u64 = 2 << 30;

pub(super) fn rows() -> Vec<Row> {
    let row = |id, title, is_optional, sample, goals| {
        let work = Work::Shared { setup: nothing, sample, teardown: nothing_left };
        Row { id, title, is_optional, work, goals }
    };
    vec![
        row(
            "P1",
            "produce, 64 KiB batches of 1 KB records, 8 connections × 5 in flight, page cache",
            false,
            |_, broker, plan| batched(broker, plan, 64 << 10),
            const {
                &[
                    Goal::at_most("CPU-s/GB", Of::Ratio, 1.0, 0.5),
                    Goal::at_most("CPU-s/GB", Of::Ours, f64::INFINITY, 0.55),
                ]
            },
        ),
        row(
            "P1-16k",
            "produce, 16 KiB batches, 8 × 5, page cache",
            true,
            |_, broker, plan| batched(broker, plan, 16 << 10),
            &[],
        ),
        row(
            "P1-1m",
            "produce, 1 MiB batches, 8 × 5, page cache",
            true,
            |_, broker, plan| batched(broker, plan, 1 << 20),
            &[],
        ),
        row(
            "P1-java",
            "Kafka's ProducerPerformance, idempotent, batch.size 64 KiB, linger 5 ms, page cache",
            false,
            with_tool,
            const { &[Goal::at_most("CPU-s/GB", Of::Ratio, 1.0, 0.5)] },
        ),
        row(
            "P2-1",
            "one 1 KB record per request, 1 connection, 1 in flight, page cache",
            false,
            |_, broker, plan| single(broker, plan, 1, Durability::PageCache),
            const { &[Goal::at_most("CPU µs/request", Of::Ratio, 0.5, 0.33)] },
        ),
        row(
            "P2-8",
            "one 1 KB record per request, 8 connections × 1, page cache",
            false,
            |_, broker, plan| single(broker, plan, 8, Durability::PageCache),
            const {
                &[
                    Goal::at_most("CPU µs/request", Of::Ratio, 0.5, 0.33),
                    Goal::at_most("CPU µs/request", Of::Ours, f64::INFINITY, 20.0),
                ]
            },
        ),
        row(
            "P2-64",
            "one 1 KB record per request, 64 connections × 1, page cache",
            false,
            |_, broker, plan| single(broker, plan, 64, Durability::PageCache),
            const {
                &[
                    Goal::at_most("CPU µs/request", Of::Ratio, 0.5, 0.33),
                    Goal::at_most("CPU µs/request", Of::Ours, f64::INFINITY, 20.0),
                ]
            },
        ),
        row(
            "P2-1000",
            "one 1 KB record per request, 1,000 connections × 1, page cache",
            false,
            |_, broker, plan| single(broker, plan, 1_000, Durability::PageCache),
            const { &[Goal::at_most("CPU µs/request", Of::Ratio, 0.5, 0.33)] },
        ),
        row(
            "S-1",
            "synced before ack, one 1 KB record per request, 1 connection × 1",
            false,
            |_, broker, plan| single(broker, plan, 1, Durability::Synced),
            &[],
        ),
        row(
            "S-64",
            "synced before ack, one 1 KB record per request, 64 connections × 1",
            false,
            |_, broker, plan| single(broker, plan, 64, Durability::Synced),
            const { &[Goal::at_least("requests/s", Of::Ratio, 2.0, 5.0)] },
        ),
        row(
            "S-1m",
            "synced before ack, one producer, 1 MiB batches, 5 in flight",
            false,
            one_synced,
            const { &[Goal::at_least("MB/s", Of::Ours, f64::NEG_INFINITY, 300.0)] },
        ),
        Row {
            id: "P4",
            title: "synced, one 1 KB record per request, 100 connections × 10: 1 and 1,000 partitions",
            is_optional: false,
            work: Work::Shared {
                setup: |broker, _| {
                    broker.create_topic("p4-1", 1, Durability::Synced)?;
                    broker.create_topic("p4-1000", 1_000, Durability::Synced)
                },
                sample: partitions,
                teardown: |broker| {
                    broker.delete_topic("p4-1")?;
                    broker.delete_topic("p4-1000")
                },
            },
            goals: const {
                &[
                    Goal::at_most("CPU per request, 1,000 ÷ 1", Of::Ours, 4.0, 2.0),
                    Goal::at_most(
                        "p50 ms, saturated, 1,000 partitions",
                        Of::Ours,
                        f64::INFINITY,
                        10.0,
                    ),
                ]
            },
        },
    ]
}

/// Runs a load on a topic of its own.
fn on_new_topic(
    broker: &Broker,
    durability: Durability,
    load: impl FnOnce(&str) -> Result<Sample>,
) -> Result<Sample> {
    let topic = "produce";
    broker.create_topic(topic, 1, durability)?;
    let sample = load(topic)?;
    broker.delete_topic(topic)?;
    Ok(sample)
}

fn batched(broker: &Broker, plan: &Plan, bytes: usize) -> Result<Sample> {
    let batch = Batch::filled(bytes)?;
    let span = plan.span;
    on_new_topic(broker, Durability::PageCache, |topic| {
        let load = Closed {
            topic,
            partitions: 1,
            connections: 8,
            depth: 5,
            batch: &batch,
            span,
            bytes_max: BYTES_MAX,
        };
        Ok(figures(&load.run(broker)?))
    })
}

fn single(
    broker: &Broker,
    plan: &Plan,
    connections: usize,
    durability: Durability,
) -> Result<Sample> {
    let batch = Batch::single()?;
    let span = plan.span;
    on_new_topic(broker, durability, |topic| {
        let load = Closed {
            topic,
            partitions: 1,
            connections,
            depth: 1,
            batch: &batch,
            span,
            bytes_max: BYTES_MAX,
        };
        Ok(figures(&load.run(broker)?))
    })
}

fn one_synced(_: &Lab, broker: &Broker, plan: &Plan) -> Result<Sample> {
    let batch = Batch::filled(1 << 20)?;
    let span = plan.span;
    on_new_topic(broker, Durability::Synced, |topic| {
        let load = Closed {
            topic,
            partitions: 1,
            connections: 1,
            depth: 5,
            batch: &batch,
            span,
            bytes_max: BYTES_MAX,
        };
        Ok(figures(&load.run(broker)?))
    })
}

fn partitions(_: &Lab, broker: &Broker, plan: &Plan) -> Result<Sample> {
    let batch = Batch::single()?;
    let run = |topic, partitions| -> Result<Sample> {
        let load = Closed {
            topic,
            partitions,
            connections: 100,
            depth: 10,
            batch: &batch,
            span: plan.span,
            bytes_max: BYTES_MAX,
        };
        Ok(figures(&load.run(broker)?))
    };
    let (one, many) = (run("p4-1", 1)?, run("p4-1000", 1_000)?);
    let mut sample = Sample::default();
    let cost = "CPU µs/request";
    if let Some((many, one)) = many.get(cost).zip(one.get(cost)) {
        sample.set("CPU per request, 1,000 ÷ 1", many / one);
    }
    sample.absorb(&one, ", 1 partition");
    sample.absorb(&many, ", 1,000 partitions");
    Ok(sample)
}

fn with_tool(lab: &Lab, broker: &Broker, plan: &Plan) -> Result<Sample> {
    if lab.class_path().is_none() {
        // The tool comes with Kafka: alone there is nothing to measure with.
        return Ok(Sample::default());
    }
    let records: u64 = if plan.is_quick { 100_000 } else { 1_000_000 };
    on_new_topic(broker, Durability::PageCache, |topic| {
        let load = measured(broker, || java::produce(lab, broker, topic, records, 64 << 10))?;
        let gigabytes = records as f64 * 1_000.0 / 1e9;
        let mut sample = load.sample();
        sample.set("CPU-s/GB", load.broker_cpu.as_secs_f64() / gigabytes);
        sample.set("records/s", load.value);
        sample.set("client CPU-s/GB", load.client_cpu.as_secs_f64() / gigabytes);
        Ok(sample)
    })
}
