//! Three brokers, three replicas, `acks=all`: what a gigabyte costs all of them together.

use anyhow::Result;

use crate::broker::{Durability, Lab, Trio};
use crate::java;
use crate::machine::{self, Look};
use crate::row::{Goal, Of, Plan, Row, Sample, Work};

const RECORD_BYTES: f64 = 1_000.0;

pub(super) fn rows() -> Vec<Row> {
    let row = |id, title, sample, goals| Row {
        id,
        title,
        is_optional: true,
        work: Work::Trios(sample),
        goals,
    };
    vec![
        row(
            "R3",
            "three replicas, Kafka's ProducerPerformance, idempotent, batch.size 64 KiB, 6 partitions, \
             page cache",
            |lab, trio, plan| produce(lab, trio, plan, Durability::PageCache),
            const {
                &[
                    Goal::at_most("CPU-s/GB", Of::Ratio, 1.0, 0.6),
                    Goal::at_most("CPU, three replicas ÷ one", Of::Ours, f64::INFINITY, 4.5),
                ]
            },
        ),
        row(
            "R3-synced",
            "the same, synced on every replica before the acknowledgement",
            |lab, trio, plan| produce(lab, trio, plan, Durability::Synced),
            const {
                &[
                    Goal::at_most("CPU-s/GB", Of::Ratio, 1.0, 0.3),
                    Goal::at_least("MB/s", Of::Ours, 0.0, 80.0),
                ]
            },
        ),
    ]
}

/// Three replicas, then one replica of the same on the same brokers: what replication costs is the
/// difference.
fn produce(lab: &Lab, trio: &Trio, plan: &Plan, durability: Durability) -> Result<Sample> {
    if lab.class_path().is_none() {
        // The tool comes with Kafka: alone there is nothing to measure with.
        return Ok(Sample::default());
    }
    let three = produce_to(lab, trio, plan, durability, 3)?;
    let one = produce_to(lab, trio, plan, durability, 1)?;
    let mut sample = Sample { figures: three.figures.clone(), noise: three.noise };
    sample.absorb(&one, ", one replica");
    if let (Some(three), Some(one)) = (three.get("CPU-s/GB"), one.get("CPU-s/GB")) {
        sample.set("CPU, three replicas ÷ one", three / one);
    }
    Ok(sample)
}

fn produce_to(
    lab: &Lab,
    trio: &Trio,
    plan: &Plan,
    durability: Durability,
    replicas: i16,
) -> Result<Sample> {
    let records: u64 = if plan.is_quick { 50_000 } else { 300_000 };
    let topic = if replicas == 1 { "alone" } else { "replicated" };
    trio.first().create_replicated_topic(topic, 6, replicas, durability)?;
    let look = Look::now();
    let (brokers, client) = (trio.cpu()?, machine::own_cpu());
    let rate = java::produce(lab, trio.first(), topic, records, 64 << 10)?;
    let brokers = trio.cpu()?.saturating_sub(brokers);
    let client = machine::own_cpu().saturating_sub(client);
    trio.first().delete_topic(topic)?;
    let mut sample = Sample { figures: Vec::new(), noise: look.noise_since(brokers + client) };
    let gigabytes = records as f64 * RECORD_BYTES / 1e9;
    sample.set("CPU-s/GB", brokers.as_secs_f64() / gigabytes);
    sample.set("MB/s", rate * RECORD_BYTES / 1e6);
    Ok(sample)
}
