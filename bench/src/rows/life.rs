//! A broker's life: its start, its memory when idle, per partition, per connection.

use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use anyhow::Result;

use crate::batch::Batch;
use crate::broker::{Broker, Durability, Kind, Lab};
use crate::load::Closed;
use crate::row::{Goal, Of, Plan, Row, Sample, Work};

/// After this a broker has done what it does after a start.
const SETTLE: Duration = Duration::from_secs(2);

pub(super) fn rows() -> Vec<Row> {
    vec![
        Row {
            id: "S1",
            title: "start on an empty directory, to the first answer",
            is_optional: false,
            work: Work::Own(starts),
            goals: &[],
        },
        Row {
            id: "M1",
            title: "memory: idle, per open partition with records, per idle connection",
            is_optional: false,
            work: Work::Own(memory),
            goals: const {
                &[
                    Goal::at_most("idle MB", Of::Ours, 20.0, 15.0),
                    Goal::at_most("KB/partition", Of::Ours, 30.0, 12.0),
                    Goal::at_most("KB/connection", Of::Ours, 30.0, 12.0),
                ]
            },
        },
    ]
}

fn starts(lab: &Lab, kind: Kind, plan: &Plan) -> Result<Vec<Sample>> {
    let mut samples = Vec::new();
    for _ in 0..plan.pairs {
        let mut broker = lab.start(kind)?;
        let mut sample = Sample::default();
        let cost = broker.cost()?;
        sample.set("ms to the first answer", broker.ready.as_secs_f64() * 1e3);
        sample.set("CPU ms", cost.cpu.as_secs_f64() * 1e3);
        sample.set("threads", cost.threads as f64);
        broker.stop()?;
        broker.start()?;
        sample.set("ms after a clean stop", broker.ready.as_secs_f64() * 1e3);
        samples.push(sample);
    }
    Ok(samples)
}

fn resident(broker: &Broker) -> Result<f64> {
    thread::sleep(SETTLE);
    Ok(broker.cost()?.resident_bytes as f64)
}

fn memory(lab: &Lab, kind: Kind, plan: &Plan) -> Result<Vec<Sample>> {
    let (partitions, connections) = if plan.is_quick { (100, 200) } else { (1_000, 2_000) };
    let mut samples = Vec::new();
    for _ in 0..plan.pairs.min(3) {
        let broker = lab.start(kind)?;
        let mut sample = Sample::default();
        let idle = resident(&broker)?;
        sample.set("idle MB", idle / 1e6);
        let before = broker.cost()?.cpu;
        thread::sleep(SETTLE);
        let idle_cpu = broker.cost()?.cpu.saturating_sub(before);
        sample.set("idle CPU ms/s", idle_cpu.as_secs_f64() * 1e3 / SETTLE.as_secs_f64());

        broker.create_topic("wide", partitions, Durability::Synced)?;
        let batch = Batch::single()?;
        let load = Closed {
            topic: "wide",
            partitions: usize::try_from(partitions)?,
            connections: 4,
            depth: 1,
            batch: &batch,
            span: Duration::from_secs(120),
            // Twice round all partitions.
            bytes_max: 2 * u64::try_from(partitions)? * 1_200,
        };
        load.run(&broker)?;
        let wide = resident(&broker)?;
        sample.set("KB/partition", (wide - idle) / 1e3 / f64::from(partitions));

        let mut open = Vec::new();
        for _ in 0..connections {
            open.push(TcpStream::connect(broker.address())?);
        }
        let crowded = resident(&broker)?;
        sample.set("KB/connection", (crowded - wide) / 1e3 / f64::from(connections));
        drop(open);
        samples.push(sample);
    }
    Ok(samples)
}
