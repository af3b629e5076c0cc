//! Publishing for a caller who numbers its messages: each is published once, however often it is
//! sent, across restarts too.
//!
//! ```text
//! Begin ─▶ Append(intent), logged ─▶ append as its Kafka producer ─▶ durable ─▶ Finish(result)
//!       ─▶ Repeat(result)                                              └─▶ answer
//!       ─▶ Resolve(intent) ─▶ does the partition hold it? ─▶ Finish ─▶ Begin again
//! ```
//!
//! The broker that leads the state does this, and asks others for partitions that it does not lead.
//! The state decides (`towpath_coordinator::publishers`); this carries out. The answer does not
//! wait until `Finish` is durable: without it, the next `Begin` after a crash resolves the intent
//! from the partition itself, with the same result.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::http::Method;
use bytes::Bytes;
use tokio::time::{Instant, sleep};
use towpath_coordinator::publishers::{Intent, Outcome, Published, Publisher, Reply, Request};
use towpath_driver::{Clock, ProduceFailure};
use towpath_metadata as metadata;
use towpath_model::{
    BrokerId, Offset, PartitionIndex, ProducerId, Timestamp, TopicName, TopicPartition,
};
use towpath_records::{BatchBuilder, Compression};
use towpath_replication::Acks;
use towpath_server::PublishError;

use crate::api_error::{ApiError, Code};
use crate::app::{App, TopicView};
use crate::append_batch::AppendedBatch;
use crate::forward::{NotAsked, ask as ask_broker, ask_value, leader_of, read_value};
use crate::limits::{COMMIT_WAIT_MAX, PRODUCER_WAIT_MAX};
use crate::message::{NewMessage, PublishedMessage};
use crate::publish_elsewhere::Elsewhere;
use crate::publish_messages::add;
use crate::refusals;
use crate::show_producer::{self, ShownProducer};

/// Pauses while another request of the same producer is under way: doubled from first to last.
const BUSY_PAUSE_MIN: Duration = Duration::from_millis(1);
const BUSY_PAUSE_MAX: Duration = Duration::from_millis(100);
/// Between two looks whether an earlier attempt is committed.
const COMMITTED_LOOK_EVERY: Duration = Duration::from_millis(20);

/// A message with its place in the request.
pub(crate) struct Sequenced {
    pub(crate) index: usize,
    pub(crate) sequence: i64,
    pub(crate) partition: PartitionIndex,
    pub(crate) message: NewMessage,
}

/// Takes out the messages of producers whose results other brokers keep. The place for results is made,
/// should there be none.
pub(crate) async fn kept_elsewhere(
    app: &App,
    topic: &TopicView,
    sequenced: &mut BTreeMap<String, Vec<Sequenced>>,
) -> Result<Vec<Elsewhere>, ApiError> {
    if sequenced.is_empty() {
        return Ok(Vec::new());
    }
    app.node.ensure_publishers_topic().await.map_err(refusals::of_unavailable)?;
    let driver = app.node.driver();
    let mut elsewhere = Vec::new();
    sequenced.retain(|producer, messages| {
        let publisher = Publisher { topic: topic.id, name: producer.as_str().into() };
        // Without a place it is refused where it is asked.
        let Ok(by) = driver.publisher_place(&publisher) else { return true };
        let is_here = leader_of(app, by).is_none_or(|leader| leader == driver.broker_id());
        if !is_here {
            elsewhere.extend(messages.iter().map(|one| Elsewhere {
                at: one.index,
                partition: one.partition,
                by,
            }));
        }
        is_here
    });
    Ok(elsewhere)
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
        duplicate_of: None,
    }
}

async fn ask(app: &App, publisher: &Publisher, request: Request) -> Result<Reply, ApiError> {
    let asked = app.node.ask_publisher_creating(publisher, request).await;
    asked.map_err(refusals::of_unavailable)
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
    let bytes = builder.build();
    let appended = match led_by_another(app, topic.partition(intent.partition)) {
        Some(leader) => append_at(app, leader, topic, intent.partition, bytes).await,
        None => append_here(app, topic, intent.partition, bytes).await,
    };
    match appended {
        Ok(appended) => {
            let published = Published {
                partition: intent.partition,
                offset: Offset(appended.offset),
                timestamp: appended.append_time.map_or(timestamp, Timestamp),
            };
            let outcome =
                Outcome::Appended { offset: published.offset, timestamp: published.timestamp };
            finish(app, publisher, intent.number, outcome);
            Ok(answer(&published))
        }
        Err(NotPublished::NotAppended(error)) => {
            finish(app, publisher, intent.number, Outcome::NotAppended);
            Err(error)
        }
        // The next Begin resolves it.
        Err(NotPublished::InDoubt(error)) => Err(error),
    }
}

/// Why a message is not known to be published.
enum NotPublished {
    /// It is not in the partition.
    NotAppended(ApiError),
    /// It may be there, or come yet.
    InDoubt(ApiError),
}

fn led_by_another(app: &App, id: TopicPartition) -> Option<BrokerId> {
    leader_of(app, id).filter(|leader| *leader != app.node.driver().broker_id())
}

async fn append_here(
    app: &App,
    topic: &TopicView,
    partition: PartitionIndex,
    mut bytes: Vec<u8>,
) -> Result<AppendedBatch, NotPublished> {
    let id = topic.partition(partition);
    let appended = match app.node.append(id, &topic.config, &mut bytes, Acks::All) {
        Ok(appended) => appended,
        // An earlier attempt may have been appended.
        Err(error @ PublishError::NotAppended(ProduceFailure::Stalled(_))) => {
            return Err(NotPublished::InDoubt(refusals::of_publish(&error)));
        }
        Err(error) => return Err(NotPublished::NotAppended(refusals::of_publish(&error))),
    };
    match app.node.acknowledged(appended, COMMIT_WAIT_MAX).await {
        Ok(acknowledged) => Ok(AppendedBatch {
            offset: acknowledged.base_offset.0,
            append_time: acknowledged.append_time.map(|time| time.0),
        }),
        Err(error) => {
            let may_still_be = matches!(
                error,
                PublishError::TimedOut(_) | PublishError::TooFewInSync(_) | PublishError::Stopping
            );
            if !may_still_be {
                tracing::warn!(topic = %topic.name, %error, "a message from HTTP is in doubt");
            }
            Err(NotPublished::InDoubt(refusals::of_publish(&error)))
        }
    }
}

/// Appends at the leader of the partition, which may not lead it any more when it hears of it.
async fn append_at(
    app: &App,
    leader: BrokerId,
    topic: &TopicView,
    partition: PartitionIndex,
    bytes: Vec<u8>,
) -> Result<AppendedBatch, NotPublished> {
    let path = format!("/topics/{}/partitions/{}/batches", topic.name, partition.0);
    let answer = match ask_broker(app, leader, &Method::POST, &path, bytes.into()).await {
        Ok(answer) => answer,
        Err(NotAsked::NotSent(error)) => return Err(NotPublished::NotAppended(error)),
        Err(NotAsked::NotAnswered(error)) => return Err(NotPublished::InDoubt(error)),
    };
    let status = answer.status();
    match read_value(leader, &path, answer).await {
        Ok(appended) => Ok(appended),
        Err(error) if status.is_client_error() || is_before_append(error.code) => {
            Err(NotPublished::NotAppended(error))
        }
        Err(error) => Err(NotPublished::InDoubt(error)),
    }
}

/// Whether a broker says so before it appends anything.
fn is_before_append(code: Code) -> bool {
    matches!(code, Code::NotEnoughReplicas | Code::DiskFull | Code::Overloaded)
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
    let deadline = Instant::now() + COMMIT_WAIT_MAX;
    loop {
        let known = producer_at(app, topic, intent).await?;
        let is_current = known.epoch == Some(intent.producer_epoch.0);
        let mut batches = known.batches.into_iter();
        let same = batches.find(|batch| batch.base_sequence == intent.producer_sequence.0);
        let Some(batch) = same.filter(|_| is_current) else { return Ok(Outcome::NotAppended) };
        if batch.end_offset <= known.high_watermark {
            let (offset, timestamp) = (Offset(batch.base_offset), Timestamp(batch.timestamp));
            return Ok(Outcome::Appended { offset, timestamp });
        }
        if deadline <= Instant::now() {
            return Err(refusals::of_publish(&PublishError::TimedOut(COMMIT_WAIT_MAX)));
        }
        sleep(COMMITTED_LOOK_EVERY).await;
    }
}

/// What the intent's partition remembers of its producer, as the leader says.
async fn producer_at(
    app: &App,
    topic: &TopicView,
    intent: &Intent,
) -> Result<ShownProducer, ApiError> {
    let id = topic.partition(intent.partition);
    let Some(leader) = led_by_another(app, id) else {
        return show_producer::look(app, id, intent.producer_id);
    };
    let (partition, producer) = (intent.partition.0, intent.producer_id.0);
    let path = format!("/topics/{}/partitions/{partition}/producers/{producer}", topic.name);
    ask_value(app, leader, &Method::GET, &path, Bytes::new()).await
}
