//! What a user waits for, open loop: from the moment a record is due to its acknowledgement, and
//! to its arrival at a reader who waits for it.

use std::io::Write;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result};
use hdrhistogram::Histogram;

use super::{nothing, nothing_left};
use crate::batch::Batch;
use crate::broker::{Broker, Durability, Lab};
use crate::load::{histogram, micros, millis};
use crate::open_loop::{Schedule, connect, produce, receive};
use crate::row::{Goal, Of, Plan, Row, Sample, Work, measured};
use crate::wire::{fetch_frame, fetched};

const TOPIC: &str = "end-to-end";
/// Records per second: few enough that no broker queues them.
const RATE: u32 = 200;
/// Requests per second of the open-loop produce row.
const PRODUCE_RATE: u32 = 2_000;

pub(super) fn rows() -> Vec<Row> {
    let row = |id, title, sample, goals| {
        let work = Work::Shared { setup: nothing, sample, teardown: nothing_left };
        Row { id, title, is_optional: false, work, goals }
    };
    vec![
        row(
            "P2-open",
            "one 1 KB record per request, open loop, 2,000/s on one connection, page cache",
            acknowledged,
            &[],
        ),
        row(
            "E2E",
            "publish to consume, open loop, 200 records/s of 1 KB: page cache, and synced",
            both,
            const {
                &[
                    Goal::at_most("p50 ms, page cache", Of::Ratio, 1.0, 0.5),
                    Goal::at_most("p50 ms, synced", Of::Ratio, 1.0, 0.5),
                ]
            },
        ),
    ]
}

fn acknowledged(_: &Lab, broker: &Broker, plan: &Plan) -> Result<Sample> {
    broker.create_topic(TOPIC, 1, Durability::PageCache)?;
    let batch = Batch::single()?;
    let load = measured(broker, || {
        let schedule = Schedule::new(PRODUCE_RATE, plan.span);
        produce(broker, TOPIC, &batch.bytes, schedule, &AtomicBool::new(false))
    })?;
    broker.delete_topic(TOPIC)?;
    let mut sample = load.sample();
    let requests = load.value.len() as f64;
    sample.set("p50 ms", millis(&load.value, 50.0));
    sample.set("p99 ms", millis(&load.value, 99.0));
    sample.set("CPU µs/request", load.broker_cpu.as_secs_f64() * 1e6 / requests);
    Ok(sample)
}

fn both(_: &Lab, broker: &Broker, plan: &Plan) -> Result<Sample> {
    let mut sample = published_and_consumed(broker, plan, Durability::PageCache, "page cache")?;
    sample.absorb(&published_and_consumed(broker, plan, Durability::Synced, "synced")?, "");
    Ok(sample)
}

fn published_and_consumed(
    broker: &Broker,
    plan: &Plan,
    durability: Durability,
    name: &str,
) -> Result<Sample> {
    broker.create_topic(TOPIC, 1, durability)?;
    let batch = Batch::single()?;
    let load = measured(broker, || {
        let schedule = Schedule::new(RATE, plan.span);
        thread::scope(|scope| {
            let reader = scope.spawn(|| consume(broker, schedule));
            let acknowledged =
                produce(broker, TOPIC, &batch.bytes, schedule, &AtomicBool::new(false))?;
            let consumed = reader.join().ok().context("the reader panicked")??;
            Ok((acknowledged, consumed))
        })
    })?;
    broker.delete_topic(TOPIC)?;
    let (acknowledged, consumed) = &load.value;
    let mut sample = load.sample();
    sample.set(&format!("p50 ms, {name}"), millis(consumed, 50.0));
    sample.set(&format!("p99 ms, {name}"), millis(consumed, 99.0));
    sample.set(&format!("ack p50 ms, {name}"), millis(acknowledged, 50.0));
    Ok(sample)
}

/// Waits for every record of the schedule; in a new topic a record's offset is its number.
fn consume(broker: &Broker, schedule: Schedule) -> Result<Histogram<u64>> {
    let mut socket = connect(broker)?;
    let (mut latency, mut buffer) = (histogram(), Vec::new());
    let mut offset = 0;
    while offset < i64::from(schedule.count) {
        socket.write_all(&fetch_frame(TOPIC, 0, offset, 1 << 20)?)?;
        let answer = receive(&mut socket, &mut buffer)?;
        let now = Instant::now();
        let next = fetched(answer, offset)?.next_offset;
        for at in offset..next {
            let due = schedule.due(u32::try_from(at)?);
            latency.saturating_record(micros(now.saturating_duration_since(due)));
        }
        offset = next;
    }
    Ok(latency)
}
