//! Publishing for a caller who numbers its messages: each is published once, however often it is
//! sent, across restarts too.
//!
//! ```text
//! Begin ─▶ Append(intent), logged ─▶ append as its Kafka producer ─▶ durable ─▶ Finish(result)
//!       ─▶ Repeat(result)                                              └─▶ answer
//!       ─▶ Resolve(intent) ─▶ does the partition hold it? ─▶ Finish ─▶ Begin again
//! ```
//!
//! The state decides (`towpath_coordinator::publishers`); this carries out. The answer does not
//! wait until `Finish` is durable: without it, the next `Begin` after a crash resolves the intent
//! from the partition itself, with the same result.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use towpath_coordinator::publishers::{Intent, Outcome, Published, Publisher, Reply, Request};
use towpath_driver::{Clock, Condition, NotCoordinator, ProduceFailure};
use towpath_metadata as metadata;
use towpath_model::{Offset, PartitionIndex, ProducerId, TopicName, TopicPartition};
use towpath_records::{BatchBuilder, Compression};
use towpath_replication::Acks;
use towpath_server::{PublishError, Unavailable};

use crate::api_error::{ApiError, Code};
use crate::app::{App, TopicView};
use crate::limits::{COMMIT_WAIT_MAX, PRODUCER_WAIT_MAX};
use crate::message::{NewMessage, PublishedMessage};
use crate::publish_messages::add;
use crate::refusals;

/// Pauses while another request of the same producer is under way: doubled from first to last.
const BUSY_PAUSE_MIN: Duration = Duration::from_millis(1);
const BUSY_PAUSE_MAX: Duration = Duration::from_millis(100);

/// A message with its place in the request.
pub(crate) struct Sequenced {
    pub(crate) index: usize,
    pub(crate) sequence: i64,
    pub(crate) partition: PartitionIndex,
    pub(crate) message: NewMessage,
}

/// Publishes one producer's messages of a request, in their order. Runs as a task of its own, so
/// that a caller who hangs up does not leave an intent behind; it ends by itself, since every wait
/// in it has a deadline. After a failure that may pass, the rest is not tried: it would overtake.
pub(crate) async fn publish(
    app: App,
    topic: TopicName,
    producer: String,
    messages: Vec<Sequenced>,
) -> Vec<(usize, Result<PublishedMessage, ApiError>)> {
    let mut results = Vec::with_capacity(messages.len());
    let mut failed: Option<ApiError> = None;
    for one in messages {
        let result = match &failed {
            Some(error) => Err(error.clone()),
            None => publish_one(&app, &topic, &producer, &one).await,
        };
        if let Err(error) = &result
            && error.code.status().is_server_error()
        {
            failed = Some(error.clone());
        }
        results.push((one.index, result));
    }
    results
}

async fn publish_one(
    app: &App,
    topic: &TopicName,
    producer: &str,
    one: &Sequenced,
) -> Result<PublishedMessage, ApiError> {
    let deadline = Instant::now() + PRODUCER_WAIT_MAX;
    let topic = app.topic(topic.as_str())?;
    let publisher = Publisher { topic: topic.id, name: producer.into() };
    let mut producer_id = None;
    let (mut pause, mut is_resolving) = (BUSY_PAUSE_MIN, false);
    while Instant::now() < deadline {
        let begin = Request::Begin {
            publisher: publisher.clone(),
            sequence: one.sequence,
            partition: one.partition,
            producer_id,
        };
        match ask(app, &publisher, begin).await? {
            Reply::Append(intent) => {
                return append(app, &topic, &publisher, &intent, &one.message).await;
            }
            Reply::Repeat(published) => return Ok(answer(&published)),
            Reply::Resolve(intent) => {
                let outcome = fate(app, &topic, &intent).await?;
                finish(app, &publisher, intent.number, outcome);
                // Where the result cannot be noted (a full disk), the next answer is the same.
                if is_resolving {
                    sleep(pause).await;
                    pause = (pause * 2).min(BUSY_PAUSE_MAX);
                }
                is_resolving = true;
            }
            Reply::NeedsProducerId => producer_id = Some(new_producer_id(app).await?),
            Reply::Busy => {
                sleep(pause).await;
                pause = (pause * 2).min(BUSY_PAUSE_MAX);
            }
            other => return Err(refused(&other, producer, one.sequence)),
        }
    }
    let message = format!("another request of producer {producer:?} is still under way");
    Err(ApiError::new(Code::ProducerBusy, message)
        .with_help("send the messages of one producer one request after the other"))
}

fn refused(reply: &Reply, producer: &str, sequence: i64) -> ApiError {
    match reply {
        Reply::Stale => {
            let message = format!(
                "sequence {sequence} of producer {producer:?} is older than what is remembered"
            );
            ApiError::new(Code::SequenceStale, message).with_help(
                "sequences only rise; the last 100 results of a producer are kept for 24 hours",
            )
        }
        Reply::InvalidName => ApiError::new(Code::InvalidProducer, "the producer_id is not valid"),
        Reply::TooManyPublishers => {
            ApiError::new(Code::LimitReached, "there are too many producers")
                .with_help("those idle for 24 hours are forgotten; use fewer, longer-lived ids")
        }
        _ => ApiError::new(Code::Internal, "the producer's state gave an answer out of turn"),
    }
}

fn answer(published: &Published) -> PublishedMessage {
    PublishedMessage {
        partition: published.partition.0,
        offset: published.offset.0,
        timestamp: published.timestamp.0,
    }
}

async fn ask(app: &App, publisher: &Publisher, request: Request) -> Result<Reply, ApiError> {
    match app.node.ask_publisher(publisher, request.clone()).await {
        Err(Unavailable::NotCoordinator(NotCoordinator::NoTopic)) => {
            app.node.ensure_publishers_topic().await.map_err(refusals::of_unavailable)?;
            let asked = app.node.ask_publisher(publisher, request).await;
            asked.map_err(refusals::of_unavailable)
        }
        asked => asked.map_err(refusals::of_unavailable),
    }
}

async fn new_producer_id(app: &App) -> Result<ProducerId, ApiError> {
    match app.node.ask_metadata(metadata::Request::AllocateProducerId).await {
        Ok(metadata::Reply::AllocatedProducerId(id)) => Ok(id),
        Ok(_) => Err(ApiError::new(Code::Internal, "no producer id was given out")),
        Err(unavailable) => Err(refusals::of_unavailable(unavailable)),
    }
}

async fn append(
    app: &App,
    topic: &TopicView,
    publisher: &Publisher,
    intent: &Intent,
    message: &NewMessage,
) -> Result<PublishedMessage, ApiError> {
    let timestamp = message.timestamp.unwrap_or_else(|| app.node.driver().clock().now().wall);
    let mut builder = BatchBuilder::new(Compression::None, timestamp);
    builder.set_producer(intent.producer_id, intent.producer_epoch, intent.producer_sequence);
    if let Err(refusal) = add(&mut builder, message, timestamp) {
        finish(app, publisher, intent.number, Outcome::NotAppended);
        return Err(ApiError::new(Code::InvalidMessage, refusal.to_string()));
    }
    let mut bytes = builder.build();
    let id = topic.partition(intent.partition);
    let appended = match app.node.append(id, &topic.config, &mut bytes, Acks::All) {
        Ok(appended) => appended,
        // An earlier attempt may have been appended: the next Begin resolves it.
        Err(error @ PublishError::NotAppended(ProduceFailure::Stalled(_))) => {
            return Err(refusals::of_publish(&error));
        }
        Err(error) => {
            finish(app, publisher, intent.number, Outcome::NotAppended);
            return Err(refusals::of_publish(&error));
        }
    };
    match app.node.acknowledged(appended, COMMIT_WAIT_MAX).await {
        Ok(acknowledged) => {
            let published = Published {
                partition: intent.partition,
                offset: acknowledged.base_offset,
                timestamp: acknowledged.append_time.unwrap_or(timestamp),
            };
            let outcome =
                Outcome::Appended { offset: published.offset, timestamp: published.timestamp };
            finish(app, publisher, intent.number, outcome);
            Ok(answer(&published))
        }
        Err(error) => {
            // Its fate is not known: the next Begin resolves it.
            let may_still_be = matches!(
                error,
                PublishError::TimedOut(_) | PublishError::TooFewInSync(_) | PublishError::Stopping
            );
            if !may_still_be {
                tracing::warn!(topic = %topic.name, %error, "a message from HTTP is in doubt");
            }
            Err(refusals::of_publish(&error))
        }
    }
}

/// Tells the state, and does not wait: see the top of this file.
fn finish(app: &App, publisher: &Publisher, number: u64, outcome: Outcome) {
    let wait = app.node.wait();
    let request = Request::Finish { publisher: publisher.clone(), number, outcome };
    if let Err(error) = app.node.driver().ask_publisher(publisher, wait.token(), request) {
        let producer = &*publisher.name;
        tracing::debug!(producer, %error, "a result is not noted; a repeat resolves it");
    }
}

/// Whether the record of an earlier attempt is in its partition, durably.
async fn fate(app: &App, topic: &TopicView, intent: &Intent) -> Result<Outcome, ApiError> {
    let id = topic.partition(intent.partition);
    let found = app.node.driver().with_partition(id, |partition| {
        let producers = partition.producers();
        let is_current = producers
            .get(intent.producer_id)
            .is_some_and(|known| known.epoch == intent.producer_epoch);
        let batches = producers.batches(intent.producer_id).iter();
        let mut same = batches.filter(|batch| batch.base_sequence == intent.producer_sequence);
        same.next().copied().filter(|_| is_current)
    });
    let found = found.ok_or_else(|| {
        ApiError::new(Code::Unavailable, "the partition is not served here").with_help("try again")
    })?;
    let Some(batch) = found else { return Ok(Outcome::NotAppended) };
    until_committed(app, id, batch.end_offset()).await?;
    Ok(Outcome::Appended { offset: batch.base_offset, timestamp: batch.timestamp })
}

async fn until_committed(app: &App, id: TopicPartition, end: Offset) -> Result<(), ApiError> {
    let driver = app.node.driver();
    let condition = Condition::HighWatermark(end);
    let mut wait = app.node.wait();
    if !driver.watch(id, wait.token(), condition)
        && tokio::time::timeout(COMMIT_WAIT_MAX, wait.answer()).await.is_err()
    {
        driver.unwatch(id, wait.token(), condition);
        return Err(refusals::of_publish(&PublishError::TimedOut(COMMIT_WAIT_MAX)));
    }
    // The wait also ends when the partition stops being led here.
    let position = driver.position(id, None).map_err(|refusal| refusals::of_fetch(&refusal))?;
    if position.high_watermark < end {
        return Err(refusals::of_publish(&PublishError::Resigned));
    }
    Ok(())
}
