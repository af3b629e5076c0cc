//! `GET /queues/{queue}/subscriptions` and `GET`, `PUT`, `DELETE /queues/{queue}/subscriptions/{subscription}`:
//! named subscriptions, each of which gets every message of a queue, whatever the others do with it.
//!
//! A subscription is there once partition 0 has it, which is told last, and is gone once partition 0 has it
//! no more, which is told first. A partition that has not heard of one that is there was added later, and
//! takes it over with all that is in it ([`number_in`]).

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Method, Uri};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use towpath_model::{BrokerId, PartitionIndex, TopicPartition};
use towpath_queue::{OWN_SUBSCRIPTION, Reply, Request};

use crate::answer::Json;
use crate::api_error::{ApiError, Code};
use crate::app::{App, TopicView, refuse_query};
use crate::body::{parse_json, parse_query, read_body};
use crate::captured::Captured;
use crate::forward::{ask_value, is_hop, leader_of, misdirected};
use crate::limits::SUBSCRIPTIONS_MAX;
use crate::refusals;

use super::look::percent_encoded;
use super::place::{no_leader, no_subscription, not_asked};

/// The partition that knows which subscriptions there are.
const FIRST: PartitionIndex = PartitionIndex(0);
/// A partition has room for all that a queue may have, and some more.
const _: () = assert!(SUBSCRIPTIONS_MAX < towpath_queue::SUBSCRIPTIONS_MAX);
/// The longest name of one.
const NAME_BYTES_MAX: usize = 249;

/// With which messages a subscription begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum From {
    /// Those that are sent from now on.
    #[default]
    Now,
    /// All that are there.
    Start,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    #[serde(default)]
    from: From,
}

/// Which partitions one broker asks another about.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Query {
    partition: Option<i32>,
}

/// A subscription.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Subscription {
    name: String,
}

/// The subscriptions of a queue, besides its own.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Subscriptions {
    subscriptions: Vec<Subscription>,
}

/// Whether there was something to end.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Unsubscribed {
    existed: bool,
}

pub(super) async fn list(
    State(app): State<App>,
    Captured(name): Captured<String>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Json<Subscriptions>, ApiError> {
    refuse_query(&uri)?;
    let queue = app.queue(&name)?;
    names(&app, &queue, !is_hop(&headers)).await.map(Json)
}

/// The names of a queue's subscriptions, besides its own.
///
/// # Errors
/// When nobody who knows them can be asked.
pub(super) async fn names_of(app: &App, queue: &TopicView) -> Result<Vec<String>, ApiError> {
    let there = names(app, queue, true).await?;
    Ok(there.subscriptions.into_iter().map(|one| one.name).collect())
}

pub(super) async fn show(
    State(app): State<App>,
    Captured((name, subscription)): Captured<(String, String)>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Json<Subscription>, ApiError> {
    refuse_query(&uri)?;
    let queue = app.queue(&name)?;
    let there = names(&app, &queue, !is_hop(&headers)).await?;
    let found = there.subscriptions.into_iter().find(|one| one.name == subscription);
    found.map(Json).ok_or_else(|| no_subscription(&subscription))
}

pub(super) async fn put(
    State(app): State<App>,
    Captured((name, subscription)): Captured<(String, String)>,
    headers: HeaderMap,
    uri: Uri,
    body: Body,
) -> Result<Json<Subscription>, ApiError> {
    let queue = app.queue(&name)?;
    let (bytes, _share) = read_body(&app.memory, &headers, body).await?;
    let Wanted { from } = if bytes.is_empty() { Wanted::default() } else { parse_json(&bytes)? };
    match partition_of_hop(&queue, &headers, &uri)? {
        Some(partition) => {
            subscribe_in(&app, &queue, partition, &subscription, from).await?;
        }
        None => subscribe(&app, &queue, &subscription, from).await?,
    }
    Ok(Json(Subscription { name: subscription }))
}

pub(super) async fn delete(
    State(app): State<App>,
    Captured((name, subscription)): Captured<(String, String)>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Json<Unsubscribed>, ApiError> {
    let queue = app.queue(&name)?;
    if let Some(partition) = partition_of_hop(&queue, &headers, &uri)? {
        let existed = unsubscribe_in(&app, &queue, partition, &subscription).await?;
        return Ok(Json(Unsubscribed { existed }));
    }
    let mut existed = false;
    for partition in queue.partition_indexes() {
        existed |= unsubscribe_at(&app, &queue, partition, &subscription).await?;
    }
    match existed {
        true => Ok(Json(Unsubscribed { existed })),
        false => Err(no_subscription(&subscription)),
    }
}

/// The one partition that another broker asks about.
fn partition_of_hop(
    queue: &TopicView,
    headers: &HeaderMap,
    uri: &Uri,
) -> Result<Option<PartitionIndex>, ApiError> {
    let Query { partition } = parse_query(uri)?;
    let named = partition.map(PartitionIndex);
    let exists = named.is_none_or(|named| queue.partition_indexes().any(|index| index == named));
    if named.is_some() == is_hop(headers) && exists {
        return Ok(named);
    }
    Err(ApiError::new(Code::InvalidParameter, "partition is for brokers among each other"))
}

/// Which subscriptions there are: what partition 0 says.
async fn names(app: &App, queue: &TopicView, asks_others: bool) -> Result<Subscriptions, ApiError> {
    let id = queue.partition(FIRST);
    let me = app.node.driver().broker_id();
    match leader_of(app, id) {
        Some(leader) if leader == me => {
            let look = |deliveries: &towpath_queue::Deliveries, _| -> Vec<Subscription> {
                let names = deliveries.subscription_names();
                names.map(|name| Subscription { name: name.to_owned() }).collect()
            };
            let found = app.node.driver().with_deliveries(id, look);
            Ok(Subscriptions { subscriptions: found.map_err(not_asked)? })
        }
        Some(leader) if asks_others => {
            let path = format!("/queues/{}/subscriptions", queue.name);
            ask_value(app, leader, &Method::GET, &path, Bytes::new()).await
        }
        Some(_) => Err(misdirected(me)),
        None => Err(no_leader(queue)),
    }
}

/// Makes a subscription; one that is there stays as it is.
pub(crate) async fn subscribe(
    app: &App,
    queue: &TopicView,
    name: &str,
    from: From,
) -> Result<(), ApiError> {
    check_name(queue, name)?;
    let there = names(app, queue, true).await?.subscriptions;
    if there.iter().all(|one| one.name != name) && SUBSCRIPTIONS_MAX <= there.len() {
        return Err(too_many());
    }
    let others = queue.partition_indexes().filter(|partition| *partition != FIRST);
    for partition in others.chain([FIRST]) {
        subscribe_at(app, queue, partition, name, from).await?;
    }
    Ok(())
}

fn too_many() -> ApiError {
    let message = format!("a queue has at most {SUBSCRIPTIONS_MAX} subscriptions");
    ApiError::new(Code::LimitReached, message)
}

fn check_name(queue: &TopicView, name: &str) -> Result<(), ApiError> {
    if name.is_empty() || NAME_BYTES_MAX < name.len() {
        let message = format!("the name of a subscription has 1 to {NAME_BYTES_MAX} bytes");
        return Err(ApiError::new(Code::InvalidParameter, message));
    }
    if name == queue.name.as_str() {
        let message = "the subscription of the queue's own name is the queue itself";
        return Err(ApiError::new(Code::InvalidParameter, message));
    }
    Ok(())
}

/// At whoever leads the partition.
async fn subscribe_at(
    app: &App,
    queue: &TopicView,
    partition: PartitionIndex,
    name: &str,
    from: From,
) -> Result<(), ApiError> {
    match leader(app, queue, partition)? {
        None => subscribe_in(app, queue, partition, name, from).await.map(drop),
        Some(leader) => {
            let body = serde_json::to_string(&Wanted { from }).expect("a name is JSON");
            let path = path(queue, partition, name);
            let told = ask_value(app, leader, &Method::PUT, &path, body.into()).await;
            told.map(|Subscription { .. }| ())
        }
    }
}

async fn unsubscribe_at(
    app: &App,
    queue: &TopicView,
    partition: PartitionIndex,
    name: &str,
) -> Result<bool, ApiError> {
    match leader(app, queue, partition)? {
        None => unsubscribe_in(app, queue, partition, name).await,
        Some(leader) => {
            let path = path(queue, partition, name);
            let told = ask_value(app, leader, &Method::DELETE, &path, Bytes::new()).await;
            told.map(|Unsubscribed { existed }| existed)
        }
    }
}

/// Another broker that leads the partition; nothing: this one does.
fn leader(
    app: &App,
    queue: &TopicView,
    partition: PartitionIndex,
) -> Result<Option<BrokerId>, ApiError> {
    let leader = leader_of(app, queue.partition(partition)).ok_or_else(|| no_leader(queue))?;
    Ok(Some(leader).filter(|leader| *leader != app.node.driver().broker_id()))
}

fn path(queue: &TopicView, partition: PartitionIndex, name: &str) -> String {
    let name = percent_encoded(name);
    format!("/queues/{}/subscriptions/{name}?partition={}", queue.name, partition.0)
}

/// In a partition that is led here; its number there. Here everything is checked once more: who asks as a broker
/// asks has not looked.
async fn subscribe_in(
    app: &App,
    queue: &TopicView,
    partition: PartitionIndex,
    name: &str,
    from: From,
) -> Result<u32, ApiError> {
    check_name(queue, name)?;
    let request = Request::Subscribe { name: name.into(), from_start: from == From::Start };
    match ask(app, queue.partition(partition), request).await? {
        Reply::Subscribed(number) => Ok(number),
        // More came at once than there was room for when they looked.
        Reply::OverLimit => Err(too_many()),
        _ => Err(out_of_turn()),
    }
}

async fn unsubscribe_in(
    app: &App,
    queue: &TopicView,
    partition: PartitionIndex,
    name: &str,
) -> Result<bool, ApiError> {
    let request = Request::Unsubscribe { name: name.into() };
    match ask(app, queue.partition(partition), request).await? {
        Reply::Done => Ok(true),
        Reply::UnknownSubscription => Ok(false),
        _ => Err(out_of_turn()),
    }
}

async fn ask(app: &App, id: TopicPartition, request: Request) -> Result<Reply, ApiError> {
    app.node.ask_deliveries(id, request).await.map_err(refusals::of_unavailable)
}

fn out_of_turn() -> ApiError {
    ApiError::new(Code::Internal, "the deliveries gave an answer out of turn")
}

/// The number of a subscription in a partition that is led here; without a name, or by the queue's name, that
/// of the queue itself.
pub(crate) async fn number_in(
    app: &App,
    queue: &TopicView,
    partition: PartitionIndex,
    name: Option<&str>,
) -> Result<u32, ApiError> {
    let Some(name) = name.filter(|name| *name != queue.name.as_str()) else {
        return Ok(OWN_SUBSCRIPTION);
    };
    let id = queue.partition(partition);
    let found =
        app.node.driver().with_deliveries(id, |deliveries, _| deliveries.subscription(name));
    if let Some(number) = found.map_err(not_asked)? {
        return Ok(number);
    }
    let is_there = partition != FIRST
        && names(app, queue, true).await?.subscriptions.iter().any(|one| one.name == name);
    match is_there {
        // Whatever is in a partition was sent after it was added, and so after the subscription began.
        true => subscribe_in(app, queue, partition, name, From::Start).await,
        false => Err(no_subscription(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subscription_begins_now_if_nothing_is_said() {
        let read = |text: &str| parse_json::<Wanted>(text.as_bytes()).map(|wanted| wanted.from);
        assert_eq!(read("{}").unwrap(), From::Now);
        assert_eq!(read(r#"{"from":"start"}"#).unwrap(), From::Start);
        assert!(read(r#"{"from":"yesterday"}"#).is_err());
    }
}
