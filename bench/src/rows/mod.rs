//! The rows, in the order of a run: those that share warm brokers first.

use std::time::Duration;

use anyhow::Result;

use crate::batch::Batch;
use crate::broker::{Broker, Durability, Kind};
use crate::load::Closed;
use crate::reader::{Reading, read};
use crate::row::{Plan, Row};

mod bulk;
mod connections;
mod end_to_end;
mod failover;
mod fan_out;
mod group;
mod life;
mod produce;
mod queue;
mod replicated;
mod scale;

pub(crate) use queue::{OwnWorker, SqsWorker};

/// A JVM needs so long until its code is compiled, per kind of work.
const WARM_UP: Duration = Duration::from_secs(12);

/// Every row.
pub(crate) fn all() -> Vec<Row> {
    let mut rows = produce::rows();
    rows.extend(fan_out::rows());
    rows.extend(end_to_end::rows());
    rows.extend(group::rows());
    rows.extend(life::rows());
    rows.extend(connections::rows());
    rows.extend(bulk::rows());
    rows.extend(queue::rows());
    rows.extend(replicated::rows());
    rows.extend(failover::rows());
    rows.extend(scale::rows());
    rows
}

/// Makes a broker do what the rows will ask of it, unmeasured.
pub(crate) fn warm_up(broker: &Broker, plan: &Plan) -> Result<()> {
    let span = match broker.kind {
        Kind::Kafka if !plan.is_quick => WARM_UP,
        _ => plan.span / 2,
    };
    let topic = "warm-up";
    broker.create_topic(topic, 4, Durability::PageCache)?;
    let load = |batch: &Batch, connections| {
        let load =
            Closed { topic, partitions: 4, connections, depth: 5, batch, span, bytes_max: 2 << 30 };
        load.run(broker)
    };
    load(&Batch::single()?, 8)?;
    let batch = Batch::filled(64 << 10)?;
    let requests = load(&batch, 8)?.value.requests;
    let reading = Reading {
        address: broker.address(),
        topic: topic.to_owned(),
        partitions: 0..4,
        end_offset: i64::try_from(requests * batch.records as u64 / 16)?,
        fetch_bytes: 64 << 10,
    };
    read(8, &reading)?;
    broker.delete_topic(topic)
}

/// For rows without preparations.
fn nothing(_: &Broker, _: &Plan) -> Result<()> {
    Ok(())
}

/// For rows that leave nothing.
fn nothing_left(_: &Broker) -> Result<()> {
    Ok(())
}
