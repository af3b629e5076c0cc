//! Many messages: a million held at once, ten million settled behind one that is stuck: neither may cost what
//! is done with the others anything. And a million that are delayed, which may not cost memory.

use anyhow::Result;
use serde_json::json;

use super::{BATCH, OwnQueue, OwnWorker, figures, own_cycle};
use crate::broker::{Broker, Kind, Lab};
use crate::row::{Goal, Of, Plan, Row, Sample, Work};

/// How long what is held stays so.
const HOURS_MS: u64 = 6 * 3_600_000;
const DAY_MS: u64 = 24 * 3_600_000;
/// Messages of one receive that are to be held.
const HELD_AT_ONCE: usize = 500;

pub(super) fn rows() -> Vec<Row> {
    vec![
        Row {
            id: "Q2",
            title: "work queue, as Q1, while a million messages are held",
            is_optional: true,
            work: Work::Own(|lab, kind, plan| beside(lab, kind, plan, hold_a_million)),
            goals: const { &[Goal::at_most("times the plain cost", Of::Ours, 1.5, 1.1)] },
        },
        Row {
            id: "Q3",
            title: "work queue, as Q1, behind one stuck message and ten million settled",
            is_optional: true,
            work: Work::Own(|lab, kind, plan| beside(lab, kind, plan, settle_ten_million)),
            goals: const { &[Goal::at_most("times the plain cost", Of::Ours, 1.5, 1.1)] },
        },
        Row {
            id: "Q12",
            title: "work queue, a million messages delayed by a day",
            is_optional: true,
            work: Work::Own(delayed),
            goals: const { &[Goal::at_most("bytes/message", Of::Ours, 64.0, 16.0)] },
        },
    ]
}

/// What a broker's memory grows by.
fn delayed(lab: &Lab, kind: Kind, plan: &Plan) -> Result<Vec<Sample>> {
    let messages: u64 = if plan.is_quick { 20_000 } else { 1_000_000 };
    let one = |_| {
        let broker = lab.start(kind)?;
        let queue = OwnQueue::create(&broker, &json!({"delay_ms": DAY_MS}))?;
        let send = |mut worker: OwnWorker| async move {
            worker.send(BATCH).await?;
            Ok((worker, BATCH as u64))
        };
        queue.each(messages / 10, send)?;
        let before = broker.cost()?;
        queue.each(messages, send)?;
        let after = broker.cost()?;
        let grown = after.anonymous_bytes.saturating_sub(before.anonymous_bytes) as f64;
        let mut sample = Sample::default();
        sample.set("MB", grown / 1e6);
        sample.set("bytes/message", grown / messages as f64);
        Ok(sample)
    };
    (0..plan.pairs.min(3)).map(one).collect()
}

/// Samples of two queues of one broker in turn: one that is plain, and one to which something has happened.
fn beside(
    lab: &Lab,
    kind: Kind,
    plan: &Plan,
    happen: fn(&OwnQueue, &Plan) -> Result<()>,
) -> Result<Vec<Sample>> {
    let broker = lab.start(kind)?;
    let settings = json!({"in_flight_max": 2_000_000});
    let (plain, other) =
        (OwnQueue::create(&broker, &settings)?, OwnQueue::create(&broker, &settings)?);
    happen(&other, plan)?;
    (0..plan.pairs).map(|round| pair(&broker, plan, &plain, &other, round % 2 == 1)).collect()
}

fn pair(
    broker: &Broker,
    plan: &Plan,
    plain: &OwnQueue,
    other: &OwnQueue,
    other_first: bool,
) -> Result<Sample> {
    let cost = |queue: &OwnQueue| anyhow::Ok(figures(&queue.cycles(broker, plan)?));
    let (plain, other) = match other_first {
        false => (cost(plain)?, cost(other)?),
        true => {
            let other = cost(other)?;
            (cost(plain)?, other)
        }
    };
    let mut sample = Sample::default();
    sample.absorb(&other, "");
    sample.absorb(&plain, ", plain");
    let of = |sample: &Sample| sample.get("CPU µs/message").unwrap_or(f64::NAN);
    sample.set("times the plain cost", of(&other) / of(&plain));
    Ok(sample)
}

pub(super) fn hold_a_million(queue: &OwnQueue, plan: &Plan) -> Result<()> {
    let held = if plan.is_quick { 20_000 } else { 1_000_000 };
    queue.each(held, |mut worker: OwnWorker| async move {
        worker.send(HELD_AT_ONCE).await?;
        let receipts = worker.receive(HELD_AT_ONCE, json!({"visibility_ms": HOURS_MS})).await?;
        Ok((worker, receipts.len() as u64))
    })
}

fn settle_ten_million(queue: &OwnQueue, plan: &Plan) -> Result<()> {
    queue.runtime.block_on(async {
        let mut worker = OwnWorker::open(queue.address, &queue.name).await?;
        worker.send(1).await?;
        worker.receive(1, json!({"visibility_ms": HOURS_MS})).await
    })?;
    queue.each(if plan.is_quick { 20_000 } else { 10_000_000 }, own_cycle)
}
