//! `POST /topics/{topic}/produce`, `…/poll` and `…/ack`: a queue by three verbs, for who wants to know no more.
//!
//! A group is a named subscription, which a poll makes where it is not there yet; the group of the topic's own
//! name is the queue itself. What surprises: an `ack` names a message and no delivery, so it deletes the
//! message for the whole group, whoever holds it now; who wants a proof of its own uses receipts.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::json;
use towpath_model::{BrokerId, Offset, PartitionIndex};
use towpath_queue::{Deliveries, Holding};

use crate::answer::Json;
use crate::api_error::{ApiError, Code};
use crate::app::{App, TopicView};
use crate::batch_answer::{Asked, answer_many, ask_many};
use crate::body::{AtMost, nullable, parse_json, read_body};
use crate::captured::Captured;
use crate::encoding::{Encoded, Encoding};
use crate::forward::{is_hop, leader_of, misdirected};
use crate::limits::QUEUE_MESSAGES_MAX;

use super::message::{NewQueueMessage, message_id};
use super::place::{no_leader, not_asked};
use super::receipt::QueueReceipt;
use super::receive::{Handed, WrittenReceive, receive};
use super::send::send;
use super::settle::{Named, Settled, Verb, settle};
use super::subscriptions::{From, number_in, subscribe};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenProduce {
    #[serde(default)]
    key: Option<String>,
    #[serde(default)]
    key_encoding: Encoding,
    #[serde(deserialize_with = "nullable")]
    payload: Option<String>,
    #[serde(default)]
    payload_encoding: Encoding,
}

/// What a message is called.
#[derive(Serialize)]
pub(super) struct Produced {
    message_id: String,
}

pub(super) async fn produce(
    State(app): State<App>,
    Captured(name): Captured<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Produced>, ApiError> {
    let queue = app.queue(&name)?;
    let (bytes, share) = read_body(&app.memory, &headers, body).await?;
    let wanted: WrittenProduce = parse_json(&bytes)?;
    let decode = |payload| wanted.payload_encoding.decode("payload", payload);
    let message = NewQueueMessage {
        value: wanted.payload.map(decode).transpose()?,
        group: wanted.key.map(|key| wanted.key_encoding.decode("key", key)).transpose()?,
        ..NewQueueMessage::default()
    };
    let sent = send(&app, &queue, vec![message]).await;
    drop(share);
    let lost = || Err(ApiError::new(Code::Internal, "the message was not sent"));
    let sent = sent.into_iter().next().unwrap_or_else(lost)?;
    let message_id = message_id(PartitionIndex(sent.partition), sent.offset);
    Ok(Json(Produced { message_id }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenPoll {
    group: String,
    #[serde(default = "one")]
    max: u32,
    #[serde(default)]
    timeout_ms: u64,
    /// How long the messages are hidden from others of the group; nothing: as the queue has it.
    #[serde(default)]
    visibility_ms: Option<u64>,
}

fn one() -> u32 {
    1
}

#[derive(Serialize)]
struct Polled {
    messages: Vec<PolledMessage>,
}

/// A message as a group gets it.
#[derive(Serialize)]
struct PolledMessage {
    message_id: String,
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_encoding: Option<Encoding>,
    payload: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_encoding: Option<Encoding>,
    /// How often the group was given it, with this time.
    receives: u32,
    visible_again_ms: i64,
}

impl PolledMessage {
    fn of(handed: &Handed) -> PolledMessage {
        let text = |bytes: Option<&[u8]>| {
            let encoded = bytes.map(Encoded::of);
            let encoding = encoded.as_ref().and_then(|encoded| encoded.encoding);
            (encoded.map(|encoded| encoded.text), encoding)
        };
        let QueueReceipt { partition, receipt, .. } = handed.receipt;
        let (key, key_encoding) = text(handed.stored.key.as_deref());
        let (payload, payload_encoding) = text(handed.stored.value.as_deref());
        PolledMessage {
            message_id: message_id(partition, receipt.offset.0),
            key,
            key_encoding,
            payload,
            payload_encoding,
            receives: handed.receives,
            visible_again_ms: handed.visible_again_ms,
        }
    }
}

pub(super) async fn poll(
    State(app): State<App>,
    Captured(name): Captured<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let queue = Arc::new(app.queue(&name)?);
    let (bytes, share) = read_body(&app.memory, &headers, body).await?;
    let WrittenPoll { group, max, timeout_ms, visibility_ms } = parse_json(&bytes)?;
    drop(share);
    let wanted = WrittenReceive {
        max,
        wait_ms: timeout_ms,
        visibility_ms,
        subscription: Some(group.clone()),
        holder: None,
        attempt_id: None,
        all_headers: false,
        repeats_only: false,
    };
    wanted.check()?;
    let handout = match receive(&app, &queue, &wanted, true).await {
        Err(error) if error.code == Code::SubscriptionNotFound => {
            // Whoever polls first wants what was there before.
            subscribe(&app, &queue, &group, From::Start).await?;
            receive(&app, &queue, &wanted, true).await?
        }
        received => received?,
    };
    let (messages, shares) = handout.take();
    let messages = messages.iter().map(PolledMessage::of).collect();
    Ok(Json(Polled { messages }).charged_all(shares))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenAck {
    group: String,
    #[serde(default)]
    message_id: Option<String>,
    #[serde(default)]
    message_ids: Option<AtMost<QUEUE_MESSAGES_MAX, String>>,
}

impl WrittenAck {
    fn ids(self) -> Result<Vec<String>, ApiError> {
        match (self.message_id, self.message_ids) {
            (Some(id), None) => Ok(vec![id]),
            (None, Some(AtMost(ids))) if !ids.is_empty() => Ok(ids),
            _ => {
                let message = "message_id or message_ids says what has been worked";
                Err(ApiError::new(Code::InvalidRequest, message))
            }
        }
    }
}

pub(super) async fn ack(
    State(app): State<App>,
    Captured(name): Captured<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let queue = app.queue(&name)?;
    let (bytes, _share) = read_body(&app.memory, &headers, body).await?;
    let wanted: WrittenAck = parse_json(&bytes)?;
    let group = wanted.group.clone();
    let mut acks = Acks::new(&app, &queue, &group, wanted.ids()?);
    acks.here().await;
    let asks_others = !is_hop(&headers);
    acks.elsewhere(asks_others).await;
    let results = acks.results();
    let is_misdirected = |result: &Result<Settled, ApiError>| matches!(result, Err(e) if e.code == Code::Misdirected);
    if !asks_others && results.iter().all(is_misdirected) {
        return Err(misdirected(app.node.driver().broker_id()));
    }
    Ok(answer_many(results))
}

/// Messages that a group is done with, by where they are.
struct Acks<'a> {
    app: &'a App,
    queue: &'a TopicView,
    group: &'a str,
    here: Vec<(usize, PartitionIndex, Offset)>,
    elsewhere: BTreeMap<BrokerId, Vec<(usize, String)>>,
    results: Vec<Option<Result<Settled, ApiError>>>,
}

impl<'a> Acks<'a> {
    fn new(app: &'a App, queue: &'a TopicView, group: &'a str, ids: Vec<String>) -> Acks<'a> {
        let mut acks = Acks {
            app,
            queue,
            group,
            here: Vec::new(),
            elsewhere: BTreeMap::new(),
            results: ids.iter().map(|_| None).collect(),
        };
        let me = app.node.driver().broker_id();
        for (at, id) in ids.into_iter().enumerate() {
            let Some((partition, offset)) = place_of(queue, &id) else {
                let message = format!("{id:?} is no message of {:?}", queue.name.as_str());
                acks.results[at] = Some(Err(ApiError::new(Code::InvalidReceipt, message)));
                continue;
            };
            match leader_of(app, queue.partition(partition)) {
                Some(leader) if leader == me => acks.here.push((at, partition, offset)),
                Some(leader) => acks.elsewhere.entry(leader).or_default().push((at, id)),
                None => acks.results[at] = Some(Err(no_leader(queue))),
            }
        }
        acks
    }

    async fn here(&mut self) {
        let (mut places, mut named) = (Vec::new(), Vec::new());
        for (at, partition, offset) in std::mem::take(&mut self.here) {
            match self.held(partition, offset).await {
                Ok(Some(held)) => {
                    places.push(at);
                    named.push(Ok(held));
                }
                Ok(None) => self.results[at] = Some(Ok(Settled {})),
                Err(error) => self.results[at] = Some(Err(error)),
            }
        }
        let settled = settle(self.app, self.queue, &Verb::Delete, named, false).await;
        for (at, result) in places.into_iter().zip(settled) {
            self.results[at] = Some(result);
        }
    }

    /// The delivery that is under way; nothing when the message is settled already.
    async fn held(
        &self,
        partition: PartitionIndex,
        offset: Offset,
    ) -> Result<Option<Named>, ApiError> {
        let subscription = number_in(self.app, self.queue, partition, Some(self.group)).await?;
        let id = self.queue.partition(partition);
        let look = |deliveries: &Deliveries, _| deliveries.holding(subscription, offset);
        let holding = self.app.node.driver().with_deliveries(id, look).map_err(not_asked)?;
        match holding {
            Holding::Settled => Ok(None),
            Holding::Held(receipt) => {
                let topic = self.queue.id;
                let receipt = QueueReceipt { topic, partition, subscription, receipt };
                Ok(Some(Named { receipt, visibility: std::time::Duration::ZERO }))
            }
            Holding::Free => {
                let id = message_id(partition, offset.0);
                let message = format!("nobody of group {:?} holds message {id}", self.group);
                Err(ApiError::new(Code::ReceiptStale, message)
                    .with_help("poll it again: it is given to who asks next"))
            }
        }
    }

    async fn elsewhere(&mut self, asks_others: bool) {
        for (leader, ids) in std::mem::take(&mut self.elsewhere) {
            if !asks_others {
                ids.iter().for_each(|(at, _)| self.results[*at] = Some(Err(misdirected(leader))));
                continue;
            }
            let names: Vec<&str> = ids.iter().map(|(_, id)| id.as_str()).collect();
            let body = json!({ "group": self.group, "message_ids": names }).to_string();
            let path = format!("/topics/{}/ack", self.queue.name);
            let error = match ask_many(self.app, leader, &path, body.into()).await {
                Asked::Answered(Ok(told)) if told.len() == ids.len() => {
                    for ((at, _), result) in ids.iter().zip(told) {
                        self.results[*at] = Some(result);
                    }
                    continue;
                }
                Asked::Answered(Err(error)) => error,
                Asked::InDoubt(error) => {
                    error.with_help("it may have been done or not: a repeat is safe")
                }
                Asked::NotTaken | Asked::Answered(Ok(_)) => no_leader(self.queue),
            };
            ids.iter().for_each(|(at, _)| self.results[*at] = Some(Err(error.clone())));
        }
    }

    fn results(self) -> Vec<Result<Settled, ApiError>> {
        let lost = || Err(ApiError::new(Code::Internal, "the message was not acknowledged"));
        self.results.into_iter().map(|result| result.unwrap_or_else(lost)).collect()
    }
}

/// Where the message of this name lies.
fn place_of(queue: &TopicView, id: &str) -> Option<(PartitionIndex, Offset)> {
    let (partition, offset) = id.split_once('-')?;
    let (partition, offset) = (PartitionIndex(partition.parse().ok()?), offset.parse().ok()?);
    let exists = queue.partition_indexes().any(|index| index == partition) && 0 <= offset;
    exists.then_some((partition, Offset(offset)))
}
