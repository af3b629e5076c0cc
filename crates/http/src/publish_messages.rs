//! `POST /topics/{topic}/messages`: publish one message or several, acknowledged when they are
//! safe (`acks=all`, always).
//!
//! Messages without a producer are gathered into one batch per partition, in their order. Those
//! with one go through `publisher.rs`, one after the other per producer.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use tokio::task::JoinSet;
use towpath_driver::{Clock, ProduceFailure};
use towpath_model::{Offset, PartitionIndex, Timestamp, TopicPartition};
use towpath_queue::{DEDUP_ID, DedupKey};
use towpath_records::{BatchBuilder, BuilderRefusal, Compression};
use towpath_replication::Acks;
use towpath_server::{Appended, PublishError};

use crate::answer::Json;
use crate::api_error::{ApiError, Code};
use crate::app::{App, TopicView};
use crate::batch_answer::answer_many;
use crate::body::read_body;
use crate::captured::Captured;
use crate::forward::{is_hop, leader_of, misdirected};
use crate::limits::COMMIT_WAIT_MAX;
use crate::message::{NewMessage, Publish, PublishedMessage};
use crate::partition_choice::choose;
use crate::publish_elsewhere::{self, Elsewhere};
use crate::publisher::{self, Sequenced};
use crate::refusals;

/// Producers of one request that publish at the same time.
const PRODUCERS_AT_ONCE: usize = 64;

/// What a record takes beyond its key, value and headers, at most, so that batches are split in
/// time.
const RECORD_OVERHEAD_BYTES: usize = 64;

pub(crate) type Results = Vec<Option<Result<PublishedMessage, ApiError>>>;

pub(crate) async fn handle(
    State(app): State<App>,
    Captured(topic): Captured<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let (bytes, share) = read_body(&app.memory, &headers, body).await?;
    let publish = Publish::parse(&bytes)?;
    let topic = app.topic_to_publish_to(&topic).await?;
    let (messages, is_one) = match publish {
        Publish::One(message) => (vec![message], true),
        Publish::Many(messages) => (messages, false),
    };
    let started = std::time::Instant::now();
    let written = (!is_hop(&headers)).then_some(bytes);
    let results = publish_all(&app, &topic, messages, written).await?;
    app.metrics.publish_seconds.observe(started.elapsed().as_secs_f64());
    drop(share);
    if is_one {
        let result = results.into_iter().next().expect("one message has one result");
        return Ok(Json(result?).into_response());
    }
    Ok(answer_many(results))
}

/// Publishes all messages; the results are in their order. Nothing is published when one of them
/// names a partition that does not exist. `written`: the body, where other brokers may be asked.
async fn publish_all(
    app: &App,
    topic: &TopicView,
    messages: Vec<NewMessage>,
    written: Option<Bytes>,
) -> Result<Vec<Result<PublishedMessage, ApiError>>, ApiError> {
    let turn = app.turns.next();
    let mut results: Results = messages.iter().map(|_| None).collect();
    let mut plain: BTreeMap<PartitionIndex, Vec<(usize, NewMessage)>> = BTreeMap::new();
    let mut sequenced: BTreeMap<String, Vec<Sequenced>> = BTreeMap::new();
    for (index, message) in messages.into_iter().enumerate() {
        let partition = choose(&message, topic.partitions, turn)
            .ok_or_else(|| topic.no_partition(message.partition.unwrap_or_default()))?;
        match message.producer.clone() {
            None => plain.entry(partition).or_default().push((index, message)),
            Some((producer, sequence)) => {
                let one = Sequenced { index, sequence, partition, message };
                sequenced.entry(producer).or_default().push(one);
            }
        }
    }
    let mut elsewhere = led_elsewhere(app, topic, &mut plain);
    elsewhere.extend(publisher::kept_elsewhere(app, topic, &mut sequenced).await?);
    match written {
        None if !elsewhere.is_empty() => return Err(misdirected(app.node.driver().broker_id())),
        None => publish_plain(app, topic, plain, &mut results).await,
        Some(body) => {
            let (published, ()) = tokio::join!(
                publish_elsewhere::publish(app, topic, &body, elsewhere),
                publish_plain(app, topic, plain, &mut results)
            );
            published.into_iter().for_each(|(index, result)| results[index] = Some(result));
        }
    }
    publish_sequenced(app, topic, sequenced, &mut results).await;
    let lost = || Err(ApiError::new(Code::Internal, "the message was not published"));
    Ok(results.into_iter().map(|result| result.unwrap_or_else(lost)).collect())
}

/// Takes out the messages whose partitions other brokers lead.
fn led_elsewhere(
    app: &App,
    topic: &TopicView,
    plain: &mut BTreeMap<PartitionIndex, Vec<(usize, NewMessage)>>,
) -> Vec<Elsewhere> {
    let me = app.node.driver().broker_id();
    let is_elsewhere = |partition: &PartitionIndex| {
        leader_of(app, topic.partition(*partition)).is_some_and(|leader| leader != me)
    };
    let elsewhere = plain.extract_if(.., |partition, _| is_elsewhere(partition));
    let indices = |(partition, messages): (PartitionIndex, Vec<(usize, NewMessage)>)| {
        let by = topic.partition(partition);
        messages.into_iter().map(move |(at, _)| Elsewhere { at, partition, by })
    };
    elsewhere.flat_map(indices).collect()
}

async fn publish_sequenced(
    app: &App,
    topic: &TopicView,
    sequenced: BTreeMap<String, Vec<Sequenced>>,
    results: &mut Results,
) {
    let mut producers = sequenced.into_iter();
    let mut running = JoinSet::new();
    loop {
        while running.len() < PRODUCERS_AT_ONCE {
            let Some((producer, messages)) = producers.next() else { break };
            let published = publisher::publish(app.clone(), topic.name.clone(), producer, messages);
            // Behind the set, which cancels what is in it when the caller hangs up.
            running.spawn(tokio::spawn(published));
        }
        match running.join_next().await {
            None => return,
            Some(Ok(Ok(published))) => {
                published.into_iter().for_each(|(index, result)| results[index] = Some(result));
            }
            // A panic ends the process; nothing cancels these tasks but the stop of the runtime.
            Some(_) => {}
        }
    }
}

/// A message of a batch.
struct Member {
    /// Its place in the request.
    index: usize,
    timestamp: Timestamp,
    /// What a repeated send of it would say too, where the topic is a queue.
    dedup: Option<DedupKey>,
}

/// Messages of one partition that became one batch.
struct Batch {
    members: Vec<Member>,
    appended: Result<Appended, ApiError>,
    /// Refused because of what one of its messages is, or because not all of them are taken.
    is_divisible: bool,
}

pub(crate) async fn publish_plain(
    app: &App,
    topic: &TopicView,
    plain: BTreeMap<PartitionIndex, Vec<(usize, NewMessage)>>,
    results: &mut Results,
) {
    let mut batches = Vec::new();
    for (partition, messages) in plain {
        append_in_batches(app, topic, partition, &messages, &mut |batch| {
            batches.push((partition, batch));
        });
    }
    for (partition, batch) in batches {
        let acknowledged = match batch.appended {
            Ok(appended) => {
                let acknowledged = app.node.acknowledged(appended, COMMIT_WAIT_MAX).await;
                acknowledged.map_err(|error| refusals::of_publish(&error))
            }
            Err(error) => Err(error),
        };
        let id = topic.partition(partition);
        for (at, member) in batch.members.iter().enumerate() {
            results[member.index] = Some(match &acknowledged {
                Err(error) => Err(error.clone()),
                Ok(acknowledged) => {
                    let at = i64::try_from(at).expect("messages of a request are few");
                    let offset = acknowledged.base_offset + at;
                    let first = member.dedup.as_ref().and_then(|key| first_with(app, id, key));
                    Ok(PublishedMessage {
                        partition: partition.0,
                        offset: offset.0,
                        timestamp: acknowledged.append_time.unwrap_or(member.timestamp).0,
                        duplicate_of: first.filter(|first| *first < offset).map(|first| first.0),
                    })
                }
            });
        }
    }
}

/// The message that was sent first with this key, as far as that is remembered.
fn first_with(app: &App, id: TopicPartition, key: &DedupKey) -> Option<Offset> {
    app.node.driver().with_deliveries(id, |deliveries, now| deliveries.first_with(now, key)).ok()?
}

/// What two sends of the same message to a queue have in common.
fn dedup_key(topic: &TopicView, message: &NewMessage) -> Option<DedupKey> {
    if !topic.config.queue_enable {
        return None;
    }
    let (_, id) = message.headers.iter().rfind(|(name, _)| name == DEDUP_ID)?;
    let id: Arc<[u8]> = id.as_deref().filter(|id| !id.is_empty())?.into();
    let queue = &topic.config.queue;
    let is_by_group = queue.fifo && queue.dedup_by_group;
    let group = is_by_group.then(|| message.key.as_deref().unwrap_or_default().into());
    Some(DedupKey::Id { group, id })
}

/// Appends messages in order, in batches that the topic takes. A batch that is refused because of
/// one message, or that a queue has not enough room for, is tried again message by message, so that the others
/// get through.
fn append_in_batches(
    app: &App,
    topic: &TopicView,
    partition: PartitionIndex,
    messages: &[(usize, NewMessage)],
    done: &mut dyn FnMut(Batch),
) {
    let batch_bytes_max = usize::try_from(topic.config.max_message_bytes).unwrap_or(usize::MAX);
    let mut rest = messages;
    while !rest.is_empty() {
        let count = how_many_fit(rest, batch_bytes_max);
        let (now, after) = rest.split_at(count);
        rest = after;
        let batch = append(app, topic, partition, now);
        if batch.is_divisible && 1 < count {
            now.chunks(1).for_each(|one| done(append(app, topic, partition, one)));
        } else {
            done(batch);
        }
    }
}

/// How many of the first messages fit one batch; at least one.
fn how_many_fit(messages: &[(usize, NewMessage)], batch_bytes_max: usize) -> usize {
    let mut bytes = towpath_records::HEADER_LEN;
    let fits = |(_, message): &&(usize, NewMessage)| {
        bytes += size(message);
        bytes <= batch_bytes_max
    };
    messages.iter().take_while(fits).count().max(1)
}

fn size(message: &NewMessage) -> usize {
    let len = |bytes: &Option<Vec<u8>>| bytes.as_ref().map_or(0, Vec::len);
    let headers = message.headers.iter().map(|(name, value)| name.len() + len(value) + 10);
    len(&message.key) + len(&message.value) + headers.sum::<usize>() + RECORD_OVERHEAD_BYTES
}

fn append(
    app: &App,
    topic: &TopicView,
    partition: PartitionIndex,
    messages: &[(usize, NewMessage)],
) -> Batch {
    let now = app.node.driver().clock().now().wall;
    let time_of = |message: &NewMessage| message.timestamp.unwrap_or(now);
    let member = |(index, message): &(usize, NewMessage)| Member {
        index: *index,
        timestamp: time_of(message),
        dedup: dedup_key(topic, message),
    };
    let members: Vec<_> = messages.iter().map(member).collect();
    let mut builder = BatchBuilder::new(Compression::None, members[0].timestamp);
    let mut fit = messages.iter().zip(&members);
    let added =
        fit.try_for_each(|((_, message), member)| add(&mut builder, message, member.timestamp));
    if let Err(refusal) = added {
        let error = ApiError::new(Code::InvalidMessage, refusal.to_string());
        return Batch { members, appended: Err(error), is_divisible: true };
    }
    let id = topic.partition(partition);
    let appended = app.node.append(id, &topic.config, &mut builder.build(), Acks::All);
    let is_divisible = matches!(
        appended,
        Err(PublishError::Invalid(_) | PublishError::NotAppended(ProduceFailure::QueueFull(_)))
    );
    Batch { members, appended: appended.map_err(|e| refusals::of_publish(&e)), is_divisible }
}

/// Adds a message to a batch.
pub(crate) fn add(
    builder: &mut BatchBuilder,
    message: &NewMessage,
    timestamp: Timestamp,
) -> Result<(), BuilderRefusal> {
    let headers = message.headers.iter().map(|(name, value)| (name.as_slice(), value.as_deref()));
    builder.append(timestamp, message.key.as_deref(), message.value.as_deref(), headers)
}
