//! Closed-loop produce: every connection keeps so many requests under way and sends the next one
//! when an answer arrives. It gives capacity and cost. Its latencies are those of a saturated
//! broker, no user's; [`crate::open_loop`] measures what a user sees.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use tokio::task::JoinSet;

use crate::batch::Batch;
use crate::broker::Broker;
use crate::row::{Measured, Sample, measured};
use crate::wire::{Connection, check_produced, number, produce_frame};

/// The load of one sample.
pub(crate) struct Closed<'a> {
    pub(crate) topic: &'a str,
    /// Connection `i` writes to partition `i % partitions`, and moves on with every request when
    /// there are more partitions than connections.
    pub(crate) partitions: usize,
    pub(crate) connections: usize,
    /// Requests under way per connection.
    pub(crate) depth: usize,
    pub(crate) batch: &'a Batch,
    pub(crate) span: Duration,
    /// The load ends early after so many bytes.
    pub(crate) bytes_max: u64,
}

/// What a load did.
pub(crate) struct Load {
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
    pub(crate) elapsed: Duration,
    /// Microseconds from the sending of a request to its answer.
    pub(crate) latency: Histogram<u64>,
}

/// A histogram of microseconds up to ten minutes, three significant digits.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 600_000_000, 3).expect("bounds and digits are allowed")
}

/// A percentile in milliseconds.
pub(crate) fn millis(histogram: &Histogram<u64>, percentile: f64) -> f64 {
    histogram.value_at_quantile(percentile / 100.0) as f64 / 1_000.0
}

impl Closed<'_> {
    /// Opens the connections, runs a tenth of the load unmeasured, then the load.
    pub(crate) fn run(&self, broker: &Broker) -> Result<Measured<Load>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut workers = runtime.block_on(self.connect(broker.address()))?;
        let warm_up = self.span / 10;
        workers = runtime.block_on(go(workers, warm_up, self.bytes_max / 10))?.0;
        measured(broker, || {
            let began = Instant::now();
            let (workers, requests, latency) =
                runtime.block_on(go(workers, self.span, self.bytes_max))?;
            let elapsed = began.elapsed();
            drop(workers);
            let bytes = requests * self.batch.bytes.len() as u64;
            Ok(Load { requests, bytes, elapsed, latency })
        })
    }

    async fn connect(&self, address: SocketAddr) -> Result<Vec<Worker>> {
        let mut workers = Vec::with_capacity(self.connections);
        for at in 0..self.connections {
            let step = self.connections.max(1);
            let mine = (at % self.partitions..self.partitions).step_by(step);
            let frames = mine.map(|partition| {
                produce_frame(self.topic, i32::try_from(partition)?, &self.batch.bytes)
            });
            let frames = frames.collect::<Result<Vec<_>>>()?;
            let connection = Connection::open(address).await?;
            workers.push(Worker { connection, frames, depth: self.depth, sent: 0 });
        }
        Ok(workers)
    }
}

struct Worker {
    connection: Connection,
    /// One request per partition, sent in turn.
    frames: Vec<Vec<u8>>,
    depth: usize,
    sent: usize,
}

async fn go(
    workers: Vec<Worker>,
    span: Duration,
    bytes_max: u64,
) -> Result<(Vec<Worker>, u64, Histogram<u64>)> {
    let until = Instant::now() + span;
    let count = workers.len().max(1) as u64;
    let mut running = JoinSet::new();
    for worker in workers {
        let bytes = worker.frames.first().map_or(1, Vec::len) as u64;
        let requests_max = (bytes_max / count).div_ceil(bytes).max(1);
        running.spawn(worker.run(until, requests_max));
    }
    let (mut workers, mut requests, mut latency) = (Vec::new(), 0, histogram());
    while let Some(ended) = running.join_next().await {
        let (worker, done, one) = ended.context("a worker panicked")??;
        workers.push(worker);
        requests += done;
        latency.add(&one)?;
    }
    Ok((workers, requests, latency))
}

impl Worker {
    async fn run(
        mut self,
        until: Instant,
        requests_max: u64,
    ) -> Result<(Worker, u64, Histogram<u64>)> {
        let mut latency = histogram();
        let mut under_way: VecDeque<Instant> = VecDeque::with_capacity(self.depth);
        let (mut begun, mut done) = (0, 0);
        loop {
            while under_way.len() < self.depth && begun < requests_max {
                let now = Instant::now();
                if until <= now {
                    break;
                }
                let at = self.sent % self.frames.len();
                let frame = &mut self.frames[at];
                number(frame, i32::try_from(self.sent & 0x7fff_ffff)?);
                self.connection.send(frame).await?;
                self.sent += 1;
                begun += 1;
                under_way.push_back(now);
            }
            let Some(sent_at) = under_way.pop_front() else { return Ok((self, done, latency)) };
            check_produced(self.connection.receive().await?)?;
            latency.saturating_record(micros(sent_at.elapsed()));
            done += 1;
        }
    }
}

pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX).max(1)
}

/// The figures that every produce row has.
pub(crate) fn figures(load: &Measured<Load>) -> Sample {
    let what = &load.value;
    let wall = what.elapsed.as_secs_f64();
    let gigabytes = what.bytes as f64 / 1e9;
    let mut sample = load.sample();
    sample.set("CPU-s/GB", load.broker_cpu.as_secs_f64() / gigabytes);
    sample.set("CPU µs/request", load.broker_cpu.as_secs_f64() * 1e6 / what.requests as f64);
    sample.set("requests/s", what.requests as f64 / wall);
    sample.set("MB/s", what.bytes as f64 / 1e6 / wall);
    sample.set("p50 ms, saturated", millis(&what.latency, 50.0));
    sample.set("p99 ms, saturated", millis(&what.latency, 99.0));
    sample.set("client CPU-s/GB", load.client_cpu.as_secs_f64() / gigabytes);
    sample
}
