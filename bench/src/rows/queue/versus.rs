//! The whole cycle beside other work queues: RabbitMQ's quorum queues and NATS JetStream. Towpath has every step on
//! disk before it answers; RabbitMQ has publishes; NATS writes and syncs every two minutes.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use serde_json::json;

use super::{BATCH, CONNECTIONS, Cycled, MESSAGE_BYTES, OwnQueue, Until, figures, go, runtime};
use crate::broker::Broker;
use crate::peer::{AmqpConnection, AmqpEvent, NatsConnection, Peer, PeerKind};
use crate::row::{Measured, Plan, Row, Sample, Work, measured_by};

pub(super) fn rows() -> Vec<Row> {
    vec![
        Row {
            id: "Q8",
            title: "work queue, 256 B, by a hundred: own API beside RabbitMQ's quorum queues",
            is_optional: true,
            work: Work::Versus { peer: PeerKind::RabbitMq, ours, theirs: rabbitmq },
            goals: &[],
        },
        Row {
            id: "Q9",
            title: "work queue, 256 B, by a hundred: own API beside NATS JetStream",
            is_optional: true,
            work: Work::Versus { peer: PeerKind::Nats, ours, theirs: nats },
            goals: &[],
        },
    ]
}

fn ours(broker: &Broker, plan: &Plan) -> Result<Sample> {
    Ok(figures(&OwnQueue::create(broker, &json!({}))?.cycles(broker, plan)?))
}

/// A number that no other queue or client has.
fn next() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

struct RabbitWorker {
    connection: AmqpConnection,
    queue: String,
    published: u64,
    confirmed: u64,
}

fn rabbitmq(peer: &Peer, plan: &Plan) -> Result<Sample> {
    let runtime = runtime()?;
    let queue = format!("queue-{}", next());
    let workers = runtime.block_on(async {
        let mut workers = Vec::new();
        for _ in 0..CONNECTIONS {
            let mut connection = AmqpConnection::open(peer.address()).await?;
            connection.declare(&queue).await?;
            connection.work(&queue, u16::try_from(BATCH)?).await?;
            let (published, confirmed) = (0, 0);
            workers.push(RabbitWorker { connection, queue: queue.clone(), published, confirmed });
        }
        anyhow::Ok(workers)
    })?;
    let workers =
        runtime.block_on(go(workers, Until::Time(plan.span / 10), rabbitmq_cycle))?.workers;
    let load: Measured<Cycled<_>> = measured_by(
        || peer.cost(),
        || runtime.block_on(go(workers, Until::Time(plan.span), rabbitmq_cycle)),
    )?;
    Ok(figures(&load))
}

async fn rabbitmq_cycle(mut worker: RabbitWorker) -> Result<(RabbitWorker, u64)> {
    let body = [b'x'; MESSAGE_BYTES];
    for _ in 0..BATCH {
        worker.connection.publish(&worker.queue, &body).await?;
    }
    worker.connection.flush().await?;
    worker.published += BATCH as u64;
    let (mut delivered, mut newest) = (0, None);
    // Those of other workers may come too, and ours go to them.
    while worker.confirmed < worker.published || newest.is_none() {
        match worker.connection.next().await? {
            AmqpEvent::Confirmed { tag, all_before: true } => worker.confirmed = tag,
            AmqpEvent::Confirmed { .. } => worker.confirmed += 1,
            AmqpEvent::Delivered { tag } => {
                delivered += 1;
                newest = Some(tag);
            }
            AmqpEvent::Other => {}
        }
    }
    worker.connection.acknowledge(newest.context("something came")?).await?;
    Ok((worker, delivered))
}

struct NatsWorker {
    connection: NatsConnection,
    queue: String,
}

fn nats(peer: &Peer, plan: &Plan) -> Result<Sample> {
    let runtime = runtime()?;
    let queue = format!("queue-{}", next());
    let workers = runtime.block_on(async {
        let mut workers = Vec::new();
        for number in 0..CONNECTIONS {
            let mut connection = NatsConnection::open(peer.address(), next()).await?;
            if number == 0 {
                create(&mut connection, &queue).await?;
            }
            workers.push(NatsWorker { connection, queue: queue.clone() });
        }
        anyhow::Ok(workers)
    })?;
    let workers = runtime.block_on(go(workers, Until::Time(plan.span / 10), nats_cycle))?.workers;
    let load: Measured<Cycled<_>> = measured_by(
        || peer.cost(),
        || runtime.block_on(go(workers, Until::Time(plan.span), nats_cycle)),
    )?;
    Ok(figures(&load))
}

async fn create(connection: &mut NatsConnection, queue: &str) -> Result<()> {
    let stream = json!({
        "name": queue, "subjects": [queue], "retention": "workqueue", "storage": "file",
        "num_replicas": 1,
    });
    connection.api(&format!("$JS.API.STREAM.CREATE.{queue}"), &stream.to_string()).await?;
    let consumer = json!({
        "stream_name": queue,
        "config": {"durable_name": "work", "ack_policy": "explicit", "max_ack_pending": 100_000},
    });
    let create = format!("$JS.API.CONSUMER.DURABLE.CREATE.{queue}.work");
    connection.api(&create, &consumer.to_string()).await
}

async fn nats_cycle(mut worker: NatsWorker) -> Result<(NatsWorker, u64)> {
    let body = [b'x'; MESSAGE_BYTES];
    for _ in 0..BATCH {
        worker.connection.publish(&worker.queue, &body, true).await?;
    }
    worker.connection.flush().await?;
    for _ in 0..BATCH {
        worker.connection.next().await?;
    }
    let next = format!("$JS.API.CONSUMER.MSG.NEXT.{}.work", worker.queue);
    let wanted = json!({"batch": BATCH, "expires": 1_000_000_000}).to_string();
    worker.connection.publish(&next, wanted.as_bytes(), true).await?;
    worker.connection.flush().await?;
    let mut done = 0;
    while done < BATCH as u64 {
        let message = worker.connection.next().await?;
        if message.is_status {
            break;
        }
        let reply = message.reply.context("a message says where it is acknowledged")?;
        worker.connection.publish(&reply, b"+ACK", false).await?;
        done += 1;
    }
    worker.connection.flush().await?;
    Ok((worker, done))
}
