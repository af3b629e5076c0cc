//! `POST /queues/{queue}/partitions/{partition}/dispose`: messages of one partition begin to go to another queue, or are
//! dropped; those that cannot be received now stay. Whoever leads the partition carries it out.
//!
//! Repeating it is safe: what has gone already, or is on its way, goes once.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use serde::{Deserialize, Serialize};
use towpath_metadata::IN_HAND_MAX;
use towpath_model::{Offset, PartitionIndex, TopicPartition};
use towpath_queue::{DeadReason, OWN_SUBSCRIPTION, Reply, Request};

use crate::answer::Json;
use crate::api_error::{ApiError, Code};
use crate::app::{App, TopicView};
use crate::body::{parse_json, read_body};
use crate::captured::Captured;
use crate::limits::QUEUE_ANSWER_BYTES;
use crate::queues::{not_asked, read_each};
use crate::refusals;

use super::select::home_of;

/// Where messages go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Destination {
    /// To this queue.
    Queue(String),
    /// Each to the queue that it came from.
    Home,
    /// Nowhere: they are dropped.
    Nowhere,
}

/// What is to go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    pub(crate) offsets: Vec<i64>,
    pub(crate) to: Destination,
    /// By whose order, for people.
    pub(crate) by: String,
    /// Their queue is about to be deleted: those that cannot be received now go too, and all are dead letters.
    #[serde(default)]
    pub(crate) retires: bool,
}

/// What has become of it.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Disposed {
    /// Messages that stay: they cannot be received now, or have nowhere to go.
    pub(crate) kept: u64,
    /// Messages of this partition that an order has sent to another queue, and that are not there yet.
    pub(crate) underway: u64,
}

pub(super) async fn handle(
    State(app): State<App>,
    Captured((name, partition)): Captured<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Disposed>, ApiError> {
    let queue = app.queue(&name)?;
    let partition = queue.partition_in_path(&partition)?.partition;
    let (bytes, _share) = read_body(&app.memory, &headers, body).await?;
    let wanted: Wanted = parse_json(&bytes)?;
    if IN_HAND_MAX < wanted.offsets.len() {
        let message = format!("at most {IN_HAND_MAX} offsets");
        return Err(ApiError::new(Code::InvalidRequest, message));
    }
    if let Destination::Queue(to) = &wanted.to
        && app.queue(to)?.id == queue.id
    {
        return Err(ApiError::new(Code::InvalidRequest, "messages cannot go to their own queue"));
    }
    dispose_here(&app, &queue, partition, wanted).await.map(Json)
}

/// Carries it out in a partition that is led here.
pub(super) async fn dispose_here(
    app: &App,
    queue: &TopicView,
    partition: PartitionIndex,
    wanted: Wanted,
) -> Result<Disposed, ApiError> {
    let id = queue.partition(partition);
    let offsets: Vec<Offset> = wanted.offsets.into_iter().map(Offset).collect();
    let mut disposed = Disposed::default();
    let mut by_queue: BTreeMap<Option<String>, Vec<Offset>> = BTreeMap::new();
    match wanted.to {
        Destination::Nowhere => drop(by_queue.insert(None, offsets)),
        Destination::Queue(to) => drop(by_queue.insert(Some(to), offsets)),
        Destination::Home => {
            let _reading = app.memory.take(2 * QUEUE_ANSWER_BYTES).await?;
            let read = read_each(app, id, &offsets, usize::MAX).await;
            let read = read.map_err(|error| refusals::of_read_messages(&error))?;
            disposed.kept += read.damaged.len() as u64;
            for (offset, message) in &read.found {
                match home_of(app, queue, message) {
                    Some(home) => by_queue.entry(Some(home)).or_default().push(*offset),
                    None => disposed.kept += 1,
                }
            }
        }
    }
    for (to, offsets) in by_queue.into_iter().filter(|(_, offsets)| !offsets.is_empty()) {
        disposed.kept += send_away(app, id, offsets, to, (&wanted.by, wanted.retires)).await?;
    }
    let ordered = [DeadReason::Redriven, DeadReason::QueueDeleted];
    let count = app
        .node
        .driver()
        .with_deliveries(id, |deliveries, _| deliveries.moving_because(OWN_SUBSCRIPTION, &ordered));
    disposed.underway = count.map_err(not_asked)?;
    Ok(disposed)
}

/// Says how many stay.
async fn send_away(
    app: &App,
    id: TopicPartition,
    offsets: Vec<Offset>,
    to: Option<String>,
    (by, retires): (&str, bool),
) -> Result<u64, ApiError> {
    let reason = if retires { DeadReason::QueueDeleted } else { DeadReason::Redriven };
    let request = Request::Dispose {
        subscription: OWN_SUBSCRIPTION,
        offsets,
        to: to.map(|to| (Arc::from(to), reason)),
        note: Some(Arc::from(by)),
        held_too: retires,
    };
    match app.node.ask_deliveries(id, request).await.map_err(refusals::of_unavailable)? {
        Reply::Disposed { held, .. } => Ok(held),
        _ => Err(ApiError::new(Code::Internal, "the deliveries gave an answer out of turn")),
    }
}
