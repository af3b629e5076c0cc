//! `GET /queues/{queue}/subscriptions` and `GET`, `PUT`, `DELETE /queues/{queue}/subscriptions/{subscription}`:
//! named subscriptions, each of which gets every message of a queue, whatever the others do with it.
//!
//! A subscription is there once partition 0 has it, which is told last, and is gone once partition 0 has it
//! no more, which is told first. A partition that was added later takes over those that are there
//! (`take_over.rs`) before it is told of any change; and partition 0 takes no change that is not told to
//! every partition that has begun to.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Method, Uri};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::time::sleep;
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
use super::place::{no_leader, no_queue, no_subscription, not_asked};
use super::take_over::take_over;

/// The partition that knows which subscriptions there are.
pub(super) const FIRST: PartitionIndex = PartitionIndex(0);
/// A partition has room for all that a queue may have, and some more.
const _: () = assert!(SUBSCRIPTIONS_MAX < towpath_queue::SUBSCRIPTIONS_MAX);
/// The longest name of one.
const NAME_BYTES_MAX: usize = 249;
/// How often a change is told anew where partitions have come, or have other leaders, meanwhile.
const TELLS_MAX: u32 = 20;
/// How long the metadata has to follow in between.
const TELL_AGAIN_AFTER: Duration = Duration::from_millis(100);

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
    /// How many partitions are told.
    #[serde(default)]
    partitions: u32,
}

/// What all partitions are told of a subscription.
#[derive(Clone, Copy)]
enum Change {
    Begins(From),
    Ends,
}

/// One partition that is told, and how many are.
#[derive(Clone, Copy)]
struct Told {
    partition: PartitionIndex,
    partitions: u32,
}

/// A subscription.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Subscription {
    name: String,
}

impl Told {
    /// All partitions that are known here are told.
    fn all(queue: &TopicView, partition: PartitionIndex) -> Told {
        Told { partition, partitions: queue.partitions.get() }
    }
}

/// The subscriptions of a queue, besides its own.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Subscriptions {
    subscriptions: Vec<Subscription>,
}

impl Subscriptions {
    pub(super) fn of_names<'n>(names: impl Iterator<Item = &'n str>) -> Subscriptions {
        let subscriptions = names.map(|name| Subscription { name: name.to_owned() });
        Subscriptions { subscriptions: subscriptions.collect() }
    }

    pub(super) fn into_names(self) -> Vec<Arc<str>> {
        self.subscriptions.into_iter().map(|one| Arc::from(one.name)).collect()
    }
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
pub(crate) async fn names_of(app: &App, queue: &TopicView) -> Result<Vec<String>, ApiError> {
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
    match told_by_hop(&queue, &headers, &uri)? {
        Some(told) => subscribe_in(&app, &queue, told, &subscription, from).await?,
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
    if let Some(told) = told_by_hop(&queue, &headers, &uri)? {
        let existed = unsubscribe_in(&app, &queue, told, &subscription).await?;
        return Ok(Json(Unsubscribed { existed }));
    }
    match tell_all(&app, &queue, &subscription, Change::Ends).await? {
        true => Ok(Json(Unsubscribed { existed: true })),
        false => Err(no_subscription(&subscription)),
    }
}

/// Tells all partitions; anew, as long as there are some that were not known here, or other brokers lead them now.
/// Says whether the subscription was in any of them.
async fn tell_all(
    app: &App,
    queue: &TopicView,
    name: &str,
    change: Change,
) -> Result<bool, ApiError> {
    let mut existed = false;
    let mut told = tell_each(app, queue, name, change, &mut existed).await;
    for _ in 1..TELLS_MAX {
        match told {
            Err(error) if error.code == Code::Misdirected => {}
            told => return told.map(|()| existed),
        }
        sleep(TELL_AGAIN_AFTER).await;
        let newest = app.queue(queue.name.as_str())?;
        if newest.id != queue.id {
            return Err(no_queue(queue.name.as_str()));
        }
        told = tell_each(app, &newest, name, change, &mut existed).await;
    }
    told.map(|()| existed)
}

async fn tell_each(
    app: &App,
    queue: &TopicView,
    name: &str,
    change: Change,
    existed: &mut bool,
) -> Result<(), ApiError> {
    match change {
        Change::Begins(from) => {
            let others = queue.partition_indexes().filter(|partition| *partition != FIRST);
            for partition in others.chain([FIRST]) {
                subscribe_at(app, queue, partition, name, from).await?;
            }
        }
        Change::Ends => {
            for partition in queue.partition_indexes() {
                *existed |= unsubscribe_at(app, queue, partition, name).await?;
            }
        }
    }
    Ok(())
}

/// The one partition that another broker asks about.
fn told_by_hop(
    queue: &TopicView,
    headers: &HeaderMap,
    uri: &Uri,
) -> Result<Option<Told>, ApiError> {
    let Query { partition, partitions } = parse_query(uri)?;
    let named = partition.map(PartitionIndex);
    let exists = named.is_none_or(|named| queue.partition_indexes().any(|index| index == named));
    if named.is_some() == is_hop(headers) {
        return match exists {
            true => Ok(named.map(|partition| Told { partition, partitions })),
            // It was added a moment ago.
            false => Err(more_partitions(queue)),
        };
    }
    Err(ApiError::new(Code::InvalidParameter, "partition is for brokers among each other"))
}

/// Which subscriptions there are: what partition 0 says.
async fn names(app: &App, queue: &TopicView, asks_others: bool) -> Result<Subscriptions, ApiError> {
    let id = queue.partition(FIRST);
    let me = app.node.driver().broker_id();
    match leader_of(app, id) {
        Some(leader) if leader == me => {
            let found = app.node.driver().with_deliveries(id, |deliveries, _| {
                Subscriptions::of_names(deliveries.subscription_names())
            });
            found.map_err(not_asked)
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
    tell_all(app, queue, name, Change::Begins(from)).await.map(drop)
}

fn more_partitions(queue: &TopicView) -> ApiError {
    let message = format!("queue {:?} has just got more partitions", queue.name.as_str());
    ApiError::new(Code::Misdirected, message).with_help("try again")
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
        None => subscribe_in(app, queue, Told::all(queue, partition), name, from).await,
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
        None => unsubscribe_in(app, queue, Told::all(queue, partition), name).await,
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
    let (partition, partitions) = (partition.0, queue.partitions);
    let query = format!("partition={partition}&partitions={partitions}");
    format!("/queues/{}/subscriptions/{name}?{query}", queue.name)
}

/// In a partition that is led here. Here everything is checked once more: who asks as a broker
/// asks has not looked.
async fn subscribe_in(
    app: &App,
    queue: &TopicView,
    told: Told,
    name: &str,
    from: From,
) -> Result<(), ApiError> {
    check_name(queue, name)?;
    // As its leader knows, which is who refuses sends.
    if app.node.driver().given_up_at(queue.partition(told.partition)).is_some() {
        return Err(refusals::of_queue_given_up(queue.name.as_str()));
    }
    let (name, from_start) = (name.into(), from == From::Start);
    let request = Request::Subscribe { name, from_start, partitions: told.partitions };
    match change(app, queue, told.partition, request).await? {
        Reply::Subscribed(_) => Ok(()),
        // More came at once than there was room for when they looked.
        Reply::OverLimit => Err(too_many()),
        _ => Err(out_of_turn()),
    }
}

async fn unsubscribe_in(
    app: &App,
    queue: &TopicView,
    told: Told,
    name: &str,
) -> Result<bool, ApiError> {
    let request = Request::Unsubscribe { name: name.into(), partitions: told.partitions };
    match change(app, queue, told.partition, request).await? {
        Reply::Done => Ok(true),
        Reply::UnknownSubscription => Ok(false),
        _ => Err(out_of_turn()),
    }
}

/// A partition that has not taken over what there is does so before anything changes.
async fn change(
    app: &App,
    queue: &TopicView,
    partition: PartitionIndex,
    request: Request,
) -> Result<Reply, ApiError> {
    let id = queue.partition(partition);
    let mut reply = ask(app, id, request.clone()).await?;
    if reply == Reply::NotTakenOver {
        take_over(app, queue, partition).await?;
        reply = ask(app, id, request).await?;
    }
    match reply {
        Reply::MorePartitions => Err(more_partitions(queue)),
        reply => Ok(reply),
    }
}

pub(super) async fn ask(
    app: &App,
    id: TopicPartition,
    request: Request,
) -> Result<Reply, ApiError> {
    app.node.ask_deliveries(id, request).await.map_err(refusals::of_unavailable)
}

pub(super) fn out_of_turn() -> ApiError {
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
    let find = || {
        let found = app.node.driver().with_deliveries(id, |deliveries, _| {
            (deliveries.subscription(name), deliveries.has_taken_over())
        });
        found.map_err(not_asked)
    };
    let (mut found, has_all) = find()?;
    if found.is_none() && !has_all {
        // Of its own: who waits for messages has no room for it.
        Box::pin(take_over(app, queue, partition)).await?;
        (found, _) = find()?;
    }
    found.ok_or_else(|| no_subscription(name))
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
