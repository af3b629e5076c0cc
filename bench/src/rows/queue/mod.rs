//! Work queues: the whole cycle of a message, send, receive, delete; what many messages cost that are held or
//! settled, how soon one is received, and how soon all are there again after a crash.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use crate::broker::Broker;
use crate::http::HttpConnection;
use crate::row::{Goal, Measured, Of, Plan, Row, Sample, Work, measured};

mod latency;
mod many;
mod polls;
mod restart;
mod sqs;
mod versus;

pub(crate) use sqs::SqsWorker;

/// Clients that work at the same time, each on a connection of its own.
const CONNECTIONS: usize = 8;
/// Bytes of a message.
const MESSAGE_BYTES: usize = 256;
/// Messages that Towpath's own API takes in one request here.
const BATCH: usize = 100;
const JSON: &str = "content-type: application/json\r\n";
/// How long a receiver waits that is to find something.
const WAIT_MS: u64 = 5_000;

pub(super) fn rows() -> Vec<Row> {
    let mut rows = vec![Row {
        id: "Q1",
        title: "work queue, own API, 256 B, batches of 100: send, receive, delete, synced",
        is_optional: false,
        work: Work::Single(|_, broker, plan| {
            let queue = OwnQueue::create(broker, &json!({}))?;
            let load = queue.cycles(broker, plan)?;
            Ok(figures(&load))
        }),
        goals: const {
            &[
                Goal::at_most("CPU µs/message", Of::Ours, 16.0, 8.0),
                Goal::at_least("messages/s", Of::Ours, 50_000.0, 100_000.0),
            ]
        },
    }];
    rows.extend(many::rows());
    rows.extend(polls::rows());
    rows.extend(restart::rows());
    rows.extend(latency::rows());
    rows.extend(sqs::rows());
    rows.extend(versus::rows());
    rows
}

/// Clients of one thread.
fn runtime() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// A queue of our own API.
struct OwnQueue {
    address: SocketAddr,
    name: String,
    runtime: Runtime,
}

impl OwnQueue {
    /// A new one, of one partition; every sample has its own.
    fn create(broker: &Broker, settings: &Value) -> Result<OwnQueue> {
        OwnQueue::create_at(broker.http(), settings)
    }

    fn create_at(address: SocketAddr, settings: &Value) -> Result<OwnQueue> {
        static QUEUES: AtomicU32 = AtomicU32::new(0);
        let name = format!("queue-{}", QUEUES.fetch_add(1, Ordering::Relaxed));
        let runtime = runtime()?;
        runtime.block_on(create(address, &name, settings))?;
        Ok(OwnQueue { address, name, runtime })
    }

    /// How many receivers wait.
    fn receivers(&self) -> Result<u64> {
        let stats =
            towpath_process::http::get(self.address, &format!("/queues/{}/stats", self.name));
        stats?.success()?["receivers"].as_u64().context("statistics count receivers")
    }

    async fn workers(&self) -> Result<Vec<OwnWorker>> {
        let mut workers = Vec::new();
        for _ in 0..CONNECTIONS {
            workers.push(OwnWorker::open(self.address, &self.name).await?);
        }
        Ok(workers)
    }

    /// What whole cycles cost, in batches.
    fn cycles(&self, broker: &Broker, plan: &Plan) -> Result<Measured<Cycled>> {
        let workers = self.runtime.block_on(self.workers())?;
        let span = plan.span;
        let workers =
            self.runtime.block_on(go(workers, Until::Time(span / 10), own_cycle))?.workers;
        measured(broker, || self.runtime.block_on(go(workers, Until::Time(span), own_cycle)))
    }

    /// Does something with so many messages, in batches.
    fn each<F, C>(&self, messages: u64, cycle: C) -> Result<()>
    where
        C: Fn(OwnWorker) -> F + Copy + Send + 'static,
        F: Future<Output = Result<(OwnWorker, u64)>> + Send,
    {
        let workers = self.runtime.block_on(self.workers())?;
        self.runtime.block_on(go(workers, Until::Messages(messages), cycle)).map(|_| ())
    }
}

/// A queue of one partition.
async fn create(address: SocketAddr, name: &str, settings: &Value) -> Result<()> {
    let body = json!({"name": name, "partitions": 1, "settings": settings}).to_string();
    let mut connection = HttpConnection::open(address).await?;
    connection.post("/queues", JSON, body.as_bytes()).await.context("create the queue")?;
    Ok(())
}

/// When workers stop.
#[derive(Debug, Clone, Copy)]
enum Until {
    Time(Duration),
    /// All of them together have had so many.
    Messages(u64),
}

/// What workers did.
struct Cycled<W = OwnWorker> {
    workers: Vec<W>,
    messages: u64,
    elapsed: Duration,
}

fn figures<W>(load: &Measured<Cycled<W>>) -> Sample {
    let Cycled { messages, elapsed, .. } = &load.value;
    let count = *messages as f64;
    let mut sample = load.sample();
    sample.set("CPU µs/message", load.broker_cpu.as_secs_f64() * 1e6 / count);
    sample.set("messages/s", count / elapsed.as_secs_f64());
    sample.set("client CPU µs/message", load.client_cpu.as_secs_f64() * 1e6 / count);
    sample
}

/// Lets workers go round.
async fn go<W, F, C>(workers: Vec<W>, until: Until, cycle: C) -> Result<Cycled<W>>
where
    W: Send + 'static,
    C: Fn(W) -> F + Copy + Send + 'static,
    F: Future<Output = Result<(W, u64)>> + Send,
{
    let began = Instant::now();
    let each = workers.len().max(1) as u64;
    let mut running = JoinSet::new();
    for mut worker in workers {
        running.spawn(async move {
            let mut messages = 0;
            while match until {
                Until::Time(span) => began.elapsed() < span,
                Until::Messages(all) => messages < all.div_ceil(each),
            } {
                let done;
                (worker, done) = cycle(worker).await?;
                messages += done;
            }
            anyhow::Ok((worker, messages))
        });
    }
    let (mut workers, mut messages) = (Vec::new(), 0);
    while let Some(ended) = running.join_next().await {
        let (worker, done) = ended.context("a worker panicked")??;
        workers.push(worker);
        messages += done;
    }
    Ok(Cycled { workers, messages, elapsed: began.elapsed() })
}

/// One client of our own API.
pub(crate) struct OwnWorker {
    connection: HttpConnection,
    queue: String,
}

impl OwnWorker {
    async fn open(address: SocketAddr, queue: &str) -> Result<OwnWorker> {
        let connection = HttpConnection::open(address).await?;
        Ok(OwnWorker { connection, queue: queue.to_owned() })
    }

    /// With a queue of its own.
    pub(crate) async fn create(address: SocketAddr) -> Result<OwnWorker> {
        create(address, "costs", &json!({})).await?;
        OwnWorker::open(address, "costs").await
    }

    /// Sends, receives, deletes.
    pub(crate) async fn cycle(self) -> Result<(OwnWorker, u64)> {
        own_cycle(self).await
    }

    async fn ask(&mut self, verb: &str, body: &Value) -> Result<Value> {
        let path = format!("/queues/{}/{verb}", self.queue);
        let answer = self.connection.post(&path, JSON, body.to_string().as_bytes()).await?;
        Ok(serde_json::from_slice(&answer)?)
    }

    async fn send(&mut self, count: usize) -> Result<()> {
        let value = "x".repeat(MESSAGE_BYTES);
        let messages: Vec<Value> = (0..count).map(|_| json!({"value": value})).collect();
        let sent = self.ask("messages", &json!({"messages": messages})).await?;
        let refused =
            sent["results"].as_array().into_iter().flatten().find(|it| it["error"].is_object());
        ensure!(refused.is_none(), "not sent: {refused:?}");
        Ok(())
    }

    /// Receipts of what was received.
    async fn receive(&mut self, count: usize, more: Value) -> Result<Vec<Value>> {
        let mut wanted = json!({"max": count, "wait_ms": WAIT_MS});
        if let (Value::Object(wanted), Value::Object(more)) = (&mut wanted, more) {
            wanted.extend(more);
        }
        let received = self.ask("receive", &wanted).await?;
        let messages = received["messages"].as_array().context("no list of messages")?;
        ensure!(!messages.is_empty(), "nothing was received");
        Ok(messages.iter().map(|message| message["receipt"].clone()).collect())
    }

    async fn delete(&mut self, receipts: &[Value]) -> Result<()> {
        self.ask("delete", &json!({"receipts": receipts})).await.map(|_| ())
    }
}

async fn own_cycle(mut worker: OwnWorker) -> Result<(OwnWorker, u64)> {
    worker.send(BATCH).await?;
    let receipts = worker.receive(BATCH, json!({})).await?;
    worker.delete(&receipts).await?;
    Ok((worker, receipts.len() as u64))
}
