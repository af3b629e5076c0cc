//! Three brokers that hold very many partitions without a record: what one of them costs, and how soon
//! a controller and a broker are back.
//!
//! Kafka makes a directory and two files for each of them, so it gets fewer: figures are per partition.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use towpath_process::http;
use towpath_process::kafka::KafkaConnection;

use crate::broker::{Kind, Lab, Patience, Trio};
use crate::row::{Goal, Of, Plan, Row, Sample, Work};

const NODES: usize = 3;
const REPLICAS: i16 = 3;
/// Topics that are created at the same time.
const ASKERS: usize = 8;
/// After this a cluster has done what follows from a change.
const SETTLE: Duration = Duration::from_secs(15);
/// How long idle brokers are watched.
const WATCH: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long anything here may take.
const WAIT_MAX: Duration = Duration::from_secs(300);

pub(super) fn rows() -> Vec<Row> {
    vec![Row {
        id: "R3-scale",
        title: "three brokers with 10,000 topics of 10 partitions, three replicas each, without records \
                (Kafka: 100 topics)",
        is_optional: true,
        work: Work::Own(scale),
        goals: const {
            &[
                Goal::at_most("KB per partition and broker", Of::Ours, 4.0, 1.0),
                Goal::at_most("idle CPU ms/s, each", Of::Ours, 100.0, 10.0),
            ]
        },
    }]
}

fn scale(lab: &Lab, kind: Kind, plan: &Plan) -> Result<Vec<Sample>> {
    let (topics, partitions) = match (kind, plan.is_quick) {
        (Kind::Kafka, _) | (Kind::Towpath, true) => (100, 10),
        // One short: the last one is created when the controller is gone, and there may be no more.
        (Kind::Towpath, false) => (9_999, 10),
    };
    let mut trio = lab.start_trio(kind, Patience::Default)?;
    let mut sample = Sample::default();
    thread::sleep(SETTLE);
    let empty = trio.resident_bytes()?;
    let created = Instant::now();
    create_all(&trio, topics, partitions)?;
    let count = f64::from(topics) * f64::from(partitions);
    sample.set("partitions created per second", count / created.elapsed().as_secs_f64());
    thread::sleep(SETTLE);
    let grown = trio.resident_bytes()?.saturating_sub(empty) as f64;
    sample.set("KB per partition and broker", grown / 1e3 / count / NODES as f64);
    let before = trio.cpu()?;
    thread::sleep(WATCH);
    let idle = trio.cpu()?.saturating_sub(before);
    sample
        .set("idle CPU ms/s, each", idle.as_secs_f64() * 1e3 / WATCH.as_secs_f64() / NODES as f64);
    if kind == Kind::Towpath {
        lose_controller(&mut trio, &mut sample)?;
    }
    Ok(vec![sample])
}

fn name(number: u32) -> String {
    format!("team-{}.app.topic-{number}", number % 50)
}

/// Creates all of them, several at a time.
fn create_all(trio: &Trio, topics: u32, partitions: i32) -> Result<()> {
    let left = Mutex::new(0..topics);
    let ask = || -> Result<()> {
        let mut connection = trio.first().connect()?;
        loop {
            let next = left.lock().map_err(|_| anyhow!("another one failed"))?.next();
            let Some(number) = next else { return Ok(()) };
            connection.create_replicated_topic(&name(number), partitions, REPLICAS, &[])?;
        }
    };
    thread::scope(|scope| {
        let askers: Vec<_> = (0..ASKERS).map(|_| scope.spawn(ask)).collect();
        askers.into_iter().try_for_each(|asker| {
            asker.join().map_err(|_| anyhow!("a thread that creates topics panicked"))?
        })
    })
}

/// Kills the controller, creates a topic as soon as another one does, and starts the broker again.
fn lose_controller(trio: &mut Trio, sample: &mut Sample) -> Result<()> {
    let mut nodes = 1..=NODES;
    let victim = nodes.find(|id| metric(trio, *id, "towpath_controller_active") == Some(1.0));
    let victim = victim.context("nobody is the controller")?;
    let others = trio.addresses_beside(victim);
    let killed = Instant::now();
    trio.node(victim).kill()?;
    until("another controller", || {
        let created = others.iter().any(|at| {
            let connection = KafkaConnection::open(*at);
            connection.is_ok_and(|mut c| c.create_replicated_topic("after", 1, 2, &[]).is_ok())
        });
        Ok(created)
    })?;
    sample.set("ms from kill of the controller to a new topic", millis(killed));

    let started = Instant::now();
    trio.node(victim).start()?;
    sample.set("ms from start to first answer", millis(started));
    sample.set("CPU ms of that start", trio.node(victim).cost()?.cpu.as_secs_f64() * 1e3);
    until("every replica in sync", || {
        let behind = |id| metric(trio, id, "towpath_under_replicated_partitions");
        Ok((1..=NODES).all(|id| behind(id) == Some(0.0)))
    })?;
    sample.set("ms from start to in sync", millis(started));
    Ok(())
}

/// What a broker's metrics say under this name; none where it does not answer.
fn metric(trio: &Trio, id: usize, name: &str) -> Option<f64> {
    let answer = http::get(trio.http(id), "/metrics").ok()?;
    let text = String::from_utf8(answer.body).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line?.trim().parse().ok()
}

fn millis(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

fn until(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let begun = Instant::now();
    while !is_so()? {
        ensure!(begun.elapsed() < WAIT_MAX, "waited {WAIT_MAX:?} for {what}");
        thread::sleep(LOOK_EVERY);
    }
    Ok(())
}
