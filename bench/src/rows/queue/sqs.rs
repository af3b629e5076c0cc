//! The whole cycle as SQS clients speak it, beside ElasticMQ: which has everything in memory, while Towpath has every
//! step on disk before it answers.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use towpath_process::Cost;

use super::{CONNECTIONS, MESSAGE_BYTES, Until, go, runtime};
use crate::peer::PeerKind;
use crate::row::{Goal, Of, Plan, Row, Sample, Work, measured_by};
use crate::sqs::SqsClient;

pub(super) fn rows() -> Vec<Row> {
    vec![
        Row {
            id: "Q10",
            title: "work queue, SQS JSON, 256 B, batches of 10: send, receive, delete, beside ElasticMQ",
            is_optional: true,
            work: Work::Versus {
                peer: PeerKind::ElasticMq,
                ours: |broker, plan| cycles(broker.http(), || broker.cost(), plan, 10),
                theirs: |peer, plan| cycles(peer.address(), || peer.cost(), plan, 10),
            },
            goals: const { &[Goal::at_least("messages per CPU s", Of::Ratio, 4.0, 10.0)] },
        },
        Row {
            id: "Q11",
            title: "work queue, SQS JSON, 256 B, one by one: send, receive, delete, beside ElasticMQ",
            is_optional: true,
            work: Work::Versus {
                peer: PeerKind::ElasticMq,
                ours: |broker, plan| cycles(broker.http(), || broker.cost(), plan, 1),
                theirs: |peer, plan| cycles(peer.address(), || peer.cost(), plan, 1),
            },
            goals: const { &[Goal::at_least("messages per CPU s", Of::Ratio, 2.0, 4.0)] },
        },
    ]
}

/// One client of SQS.
pub(crate) struct SqsWorker {
    client: SqsClient,
    url: String,
    batch: usize,
}

impl SqsWorker {
    async fn open(address: SocketAddr, queue: &str, batch: usize) -> Result<SqsWorker> {
        let mut client = SqsClient::open(address).await?;
        let created = client.call("CreateQueue", &json!({"QueueName": queue})).await?;
        let url = created["QueueUrl"].as_str().context("no URL of the queue")?.to_owned();
        Ok(SqsWorker { client, url, batch })
    }

    /// With a queue of its own, one message at a time.
    pub(crate) async fn create(address: SocketAddr) -> Result<SqsWorker> {
        SqsWorker::open(address, "costs", 1).await
    }

    /// Sends, receives, deletes.
    pub(crate) async fn cycle(self) -> Result<(SqsWorker, u64)> {
        cycle(self).await
    }
}

fn cycles(
    address: SocketAddr,
    cost: impl Fn() -> Result<Cost>,
    plan: &Plan,
    batch: usize,
) -> Result<Sample> {
    static QUEUES: AtomicUsize = AtomicUsize::new(0);
    let name = format!("sqs-{}", QUEUES.fetch_add(1, Ordering::Relaxed));
    let runtime = runtime()?;
    let workers = runtime.block_on(async {
        let mut workers = Vec::new();
        for _ in 0..CONNECTIONS {
            workers.push(SqsWorker::open(address, &name, batch).await?);
        }
        anyhow::Ok(workers)
    })?;
    let workers = runtime.block_on(go(workers, Until::Time(plan.span / 10), cycle))?.workers;
    let load = measured_by(cost, || runtime.block_on(go(workers, Until::Time(plan.span), cycle)))?;
    let count = load.value.messages as f64;
    let mut sample = load.sample();
    sample.set("messages per CPU s", count / load.broker_cpu.as_secs_f64());
    sample.set("CPU µs/message", load.broker_cpu.as_secs_f64() * 1e6 / count);
    sample.set("messages/s", count / load.value.elapsed.as_secs_f64());
    Ok(sample)
}

async fn cycle(mut worker: SqsWorker) -> Result<(SqsWorker, u64)> {
    let body = "x".repeat(MESSAGE_BYTES);
    let SqsWorker { client, url, batch } = &mut worker;
    if *batch == 1 {
        client.call("SendMessage", &json!({"QueueUrl": url, "MessageBody": body})).await?;
    } else {
        let entries: Vec<Value> =
            (0..*batch).map(|id| json!({"Id": id.to_string(), "MessageBody": body})).collect();
        let sent =
            client.call("SendMessageBatch", &json!({"QueueUrl": url, "Entries": entries})).await?;
        let failed = sent["Failed"].as_array().map_or(0, Vec::len);
        ensure!(failed == 0, "not sent: {sent}");
    }
    let wanted = json!({"QueueUrl": url, "MaxNumberOfMessages": *batch, "WaitTimeSeconds": 5});
    let received = client.call("ReceiveMessage", &wanted).await?;
    let messages = received["Messages"].as_array().context("nothing was received")?;
    let handles: Vec<&Value> = messages.iter().map(|message| &message["ReceiptHandle"]).collect();
    if *batch == 1 {
        client
            .call("DeleteMessage", &json!({"QueueUrl": url, "ReceiptHandle": handles[0]}))
            .await?;
    } else {
        let entries: Vec<Value> = handles
            .iter()
            .enumerate()
            .map(|(id, handle)| json!({"Id": id.to_string(), "ReceiptHandle": handle}))
            .collect();
        let wanted = json!({"QueueUrl": url, "Entries": entries});
        let deleted = client.call("DeleteMessageBatch", &wanted).await?;
        let failed = deleted["Failed"].as_array().map_or(0, Vec::len);
        ensure!(failed == 0, "not deleted: {deleted}");
    }
    let count = handles.len() as u64;
    Ok((worker, count))
}
