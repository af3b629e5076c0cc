//! Much data: a reader that catches up from the disk beside a live producer, and restarts after a
//! crash. Both need gigabytes, which are written once.

use std::fs::{self, File};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::fs::{Advice, fadvise, sync};

use crate::batch::Batch;
use crate::broker::{Broker, Durability, Kind, Lab};
use crate::load::{Closed, millis};
use crate::open_loop::{Schedule, produce};
use crate::reader::{Reading, read};
use crate::row::{Goal, Of, Plan, Row, Sample, Work, measured};

const TOPIC: &str = "bulk";
const LIVE: &str = "live";
const PARTITIONS: i32 = 100;
const BYTES: u64 = 10 << 30;
const BYTES_QUICK: u64 = 200 << 20;
/// What is appended before each crash.
const FRESH_BYTES: u64 = 64 << 20;
/// Batches of 64 KiB per second: 50 MB/s.
const LIVE_RATE: u32 = 760;
/// A live producer without end; the reader stops it.
const LIVE_MAX: Duration = Duration::from_secs(120);
const BATCH_BYTES: usize = 64 << 10;

pub(super) fn rows() -> Vec<Row> {
    vec![Row {
        id: "F2-R1",
        title: "10 GiB in 100 partitions: catch-up from disk beside 50 MB/s live; kill -9, restart",
        is_optional: false,
        work: Work::Own(bulk),
        goals: const {
            &[
                Goal::at_most("live p50, catch-up ÷ alone", Of::Ours, 2.0, 1.5),
                Goal::at_most("s from kill -9 to serving", Of::Ours, 5.0, 2.0),
            ]
        },
    }]
}

fn bulk(lab: &Lab, kind: Kind, plan: &Plan) -> Result<Vec<Sample>> {
    let mut broker = lab.start(kind)?;
    let bytes = if plan.is_quick { BYTES_QUICK } else { BYTES };
    broker.create_topic(TOPIC, PARTITIONS, Durability::PageCache)?;
    broker.create_topic(LIVE, 1, Durability::PageCache)?;
    super::warm_up(&broker, plan)?;
    append(&broker, bytes)?;
    let mut samples = Vec::new();
    for round in 0..plan.pairs {
        samples.push(catch_up(&broker, plan, round, bytes)?);
    }
    // A JVM's restart takes long and differs little.
    let restarts = if kind == Kind::Kafka { plan.pairs.min(3) } else { plan.pairs };
    for sample in samples.iter_mut().take(restarts) {
        restart(&mut broker, sample)?;
    }
    Ok(samples)
}

fn append(broker: &Broker, bytes: u64) -> Result<()> {
    let batch = Batch::filled(BATCH_BYTES)?;
    let load = Closed {
        topic: TOPIC,
        partitions: usize::try_from(PARTITIONS)?,
        connections: 10,
        depth: 2,
        batch: &batch,
        span: Duration::from_secs(600),
        bytes_max: bytes,
    };
    load.run(broker)?;
    Ok(())
}

/// The live producer alone, then beside a reader of partitions that nobody has read yet.
fn catch_up(broker: &Broker, plan: &Plan, round: usize, bytes: u64) -> Result<Sample> {
    let batch = Batch::filled(BATCH_BYTES)?;
    let stop = AtomicBool::new(false);
    let alone = measured(broker, || {
        produce(broker, LIVE, &batch.bytes, Schedule::new(LIVE_RATE, plan.span), &stop)
    })?;

    sync();
    forget_pages(&broker.logs())?;
    let share = PARTITIONS / i32::try_from(plan.pairs)?;
    let first = share * i32::try_from(round)?;
    let in_each = bytes / u64::try_from(PARTITIONS)? / batch.bytes.len() as u64;
    let reading = Reading {
        address: broker.address(),
        topic: TOPIC.to_owned(),
        partitions: first..first + share,
        end_offset: i64::try_from((in_each * batch.records as u64).saturating_sub(1000))?,
        fetch_bytes: 1 << 20,
    };
    let began = Instant::now();
    let beside = measured(broker, || {
        let schedule = Schedule::new(LIVE_RATE, LIVE_MAX);
        thread::scope(|scope| {
            let live = scope.spawn(|| produce(broker, LIVE, &batch.bytes, schedule, &stop));
            // Both clients share a CPU: what is measured is how the broker shares its own.
            let reader = scope.spawn(|| {
                let _ = rustix::process::setpriority_process(None, 19);
                let got = read(1, &reading);
                stop.store(true, Ordering::Relaxed);
                got
            });
            let got = reader.join().ok().context("the reader panicked")??;
            let latency = live.join().ok().context("the producer panicked")??;
            Ok((got, latency))
        })
    })?;
    let wall = began.elapsed().as_secs_f64();
    let (got, latency) = &beside.value;
    let mut sample = beside.sample();
    let (p50, p50_alone) = (millis(latency, 50.0), millis(&alone.value, 50.0));
    sample.set("live p50, catch-up ÷ alone", p50 / p50_alone);
    sample.set("live p50 ms, alone", p50_alone);
    sample.set("live p50 ms, catch-up", p50);
    sample.set("live p99 ms, alone", millis(&alone.value, 99.0));
    sample.set("live p99 ms, catch-up", millis(latency, 99.0));
    sample.set("catch-up MB/s", *got as f64 / 1e6 / wall);
    Ok(sample)
}

/// Lets the kernel drop what it caches of the files below `directory`.
fn forget_pages(directory: &Path) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            forget_pages(&path)?;
        } else if let Ok(file) = File::open(&path) {
            fadvise(&file, 0, None, Advice::DontNeed)?;
        }
    }
    Ok(())
}

/// Appends a little, ends the process as a crash does, and waits until both ends of the topic can
/// be read and written again.
fn restart(broker: &mut Broker, sample: &mut Sample) -> Result<()> {
    append(broker, FRESH_BYTES)?;
    broker.kill()?;
    let began = Instant::now();
    broker.start()?;
    let single = Batch::single()?;
    for partition in [0, PARTITIONS - 1] {
        // Kafka answers before it leads; every attempt dials anew.
        while broker
            .connect()
            .and_then(|mut connection| connection.produce_batch(TOPIC, partition, &single.bytes))
            .is_err()
        {
            anyhow::ensure!(began.elapsed() < LIVE_MAX, "{TOPIC}-{partition} stays away");
            thread::sleep(Duration::from_millis(2));
        }
    }
    sample.set("s from kill -9 to serving", began.elapsed().as_secs_f64());
    sample.set("s from kill -9 to the first answer", broker.ready.as_secs_f64());
    sample.set("CPU s of the restart", broker.cost()?.cpu.as_secs_f64());
    Ok(())
}
