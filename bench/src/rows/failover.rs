//! Three brokers that are a cluster: what they cost idle, and what happens when one is killed.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use towpath_process::kafka::KafkaConnection;
use towpath_protocol::messages::{MetadataRequest, MetadataRequestTopic, MetadataResponse};

use crate::broker::{Kind, Lab, Patience, Trio};
use crate::row::{Goal, Of, Plan, Row, Sample, Work};

const NODES: usize = 3;
/// After this a cluster has done what it does after a start.
const SETTLE: Duration = Duration::from_secs(5);
/// How long idle brokers are watched.
const WATCH: Duration = Duration::from_secs(5);
/// Between two attempts to write, and between two looks at a cluster.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// How long anything here may take.
const WAIT_MAX: Duration = Duration::from_secs(120);

pub(super) fn rows() -> Vec<Row> {
    vec![Row {
        id: "R3-life",
        title: "three brokers: idle; the leader of a partition killed (kill -9), then started again; \
                session timeouts as both products ship",
        is_optional: true,
        work: Work::Own(life),
        goals: const {
            &[
                Goal::at_most("idle CPU ms/s, all three", Of::Ratio, 1.0, 0.5),
                Goal::at_most("ms from kill to acknowledgement", Of::Ratio, 1.0, 0.5),
                Goal::at_most("ms from start to in sync", Of::Ratio, 1.0, 0.5),
            ]
        },
    }]
}

fn life(lab: &Lab, kind: Kind, plan: &Plan) -> Result<Vec<Sample>> {
    let mut trio = lab.start_trio(kind, Patience::Default)?;
    let mut samples = Vec::new();
    for round in 0..plan.pairs {
        let mut sample = Sample::default();
        thread::sleep(SETTLE);
        let before = trio.cpu()?;
        thread::sleep(WATCH);
        let idle = trio.cpu()?.saturating_sub(before);
        sample.set("idle CPU ms/s, all three", idle.as_secs_f64() * 1e3 / WATCH.as_secs_f64());
        // Each in turn: one of them is the controller too.
        kill_leader(&mut trio, 1 + round % NODES, &format!("failover-{round}"), &mut sample)?;
        samples.push(sample);
    }
    Ok(samples)
}

/// Kills the leader of a new partition, writes to it as soon as somebody takes it, and starts the
/// killed broker again.
fn kill_leader(trio: &mut Trio, victim: usize, topic: &str, sample: &mut Sample) -> Result<()> {
    let others = trio.addresses_beside(victim);
    let first = i32::try_from(victim)?;
    let replicas: Vec<i32> = (first..=3).chain(1..first).collect();
    let leader = trio.node(victim).address();
    trio.node(victim).connect()?.create_placed_topic(topic, &[replicas])?;
    write(topic, &mut [Writer::to(leader)]).context("before the kill")?;
    wait_in_sync(others[0], topic)?;

    let mut survivors: Vec<Writer> = others.iter().map(|address| Writer::to(*address)).collect();
    survivors.iter_mut().try_for_each(|writer| writer.connection().map(drop))?;
    let killed = Instant::now();
    trio.node(victim).kill()?;
    write(topic, &mut survivors).context("after the kill")?;
    sample.set("ms from kill to acknowledgement", killed.elapsed().as_secs_f64() * 1e3);

    let started = Instant::now();
    trio.node(victim).start()?;
    sample.set("ms from start to first answer", started.elapsed().as_secs_f64() * 1e3);
    wait_in_sync(others[0], topic)?;
    sample.set("ms from start to in sync", started.elapsed().as_secs_f64() * 1e3);
    Ok(())
}

/// Writes to one broker, over a connection that is dialled again when it broke.
struct Writer {
    address: SocketAddr,
    open: Option<KafkaConnection>,
}

impl Writer {
    fn to(address: SocketAddr) -> Writer {
        Writer { address, open: None }
    }

    fn connection(&mut self) -> Result<&mut KafkaConnection> {
        if self.open.is_none() {
            self.open = Some(KafkaConnection::open(self.address)?);
        }
        self.open.as_mut().context("just opened")
    }

    fn write(&mut self, topic: &str) -> Result<()> {
        let written = self.connection()?.produce(topic, 0, &[b"record"]);
        if written.as_ref().is_err_and(|error| error.is::<std::io::Error>()) {
            self.open = None;
        }
        written.map(drop)
    }
}

/// Until one of them acknowledges a record.
fn write(topic: &str, writers: &mut [Writer]) -> Result<()> {
    let begun = Instant::now();
    loop {
        let mut refused = None;
        for writer in &mut *writers {
            match writer.write(topic) {
                Ok(()) => return Ok(()),
                Err(error) => refused = Some(error),
            }
        }
        let why = refused.context("somebody is asked")?;
        ensure!(begun.elapsed() < WAIT_MAX, "nobody takes records for {topic}: {why:#}");
        thread::sleep(LOOK_EVERY);
    }
}

/// Until a broker says that all replicas of a topic's only partition are in sync.
fn wait_in_sync(at: SocketAddr, topic: &str) -> Result<()> {
    let begun = Instant::now();
    let mut connection = KafkaConnection::open(at)?;
    while in_sync(&mut connection, topic)? < NODES {
        ensure!(begun.elapsed() < WAIT_MAX, "the replicas of {topic} do not come in sync");
        thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

fn in_sync(connection: &mut KafkaConnection, topic: &str) -> Result<usize> {
    let asked = MetadataRequestTopic { name: Some(topic), ..MetadataRequestTopic::default() };
    let request = MetadataRequest { topics: Some(vec![asked]), ..MetadataRequest::default() };
    let answer = connection.call(&request, 9)?;
    let answer: MetadataResponse<'_> = answer.read()?;
    let partition = answer.topics.first().and_then(|topic| topic.partitions.first());
    Ok(partition.map_or(0, |partition| partition.isr_nodes.len()))
}
