//! `POST /queues/{queue}/partitions/0/subscriptions`: partitions that were added to a queue take over its subscriptions.
//!
//! ```text
//! leader of the new one ─▶ partition 0: notes how many partitions are told of changes from now on, names what there is
//!                       ─▶ the new one: has those from their beginning; what is settled there is settled for good
//! ```
//!
//! Until then the new partition keeps everything, for a subscription that it has not heard of may want it, and takes no
//! change. Each step is one record of a delivery log, and may be repeated; why no change is lost between them
//! stands at [`Request::TakeOver`]. Whoever leads the partition does this, soon after it was added, or at once when
//! somebody wants to change or use a subscription there.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Method};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::sleep;
use towpath_model::{PartitionIndex, TopicId, TopicPartition};
use towpath_queue::{Reply, Request};

use crate::answer::Json;
use crate::api_error::{ApiError, Code};
use crate::app::{App, TopicView};
use crate::body::{parse_json, read_body};
use crate::captured::Captured;
use crate::forward::{ask_value, leader_of, misdirected};

use super::place::no_leader;
use super::subscriptions::{FIRST, Subscriptions, ask, out_of_turn};

/// How often it is looked for partitions that have something to take over.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Partitions that do so at once.
const AT_ONCE_MAX: usize = 16;

/// Who is going to take over.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    /// The queue; one that had its name before, or has it since, is another one.
    topic: TopicId,
    /// How many partitions it has, as who asks knows it.
    partitions: u32,
}

/// Takes over subscriptions until the broker stops.
pub(crate) async fn take_over_subscriptions(app: App) {
    let mut stop = app.stop.clone();
    let mut underway: JoinSet<TopicPartition> = JoinSet::new();
    let mut taken: BTreeSet<TopicPartition> = BTreeSet::new();
    loop {
        tokio::select! {
            _ = stop.changed() => return,
            () = sleep(LOOK_EVERY) => {}
        }
        while let Some(ended) = underway.try_join_next() {
            if let Ok(id) = ended {
                taken.remove(&id);
            }
        }
        for id in app.node.driver().without_subscriptions() {
            if AT_ONCE_MAX <= underway.len() || !taken.insert(id) {
                continue;
            }
            let app = app.clone();
            underway.spawn(async move {
                take_over_in(&app, id).await;
                id
            });
        }
    }
}

async fn take_over_in(app: &App, id: TopicPartition) {
    let name = app.node.driver().image().topic_by_id(id.topic).map(|topic| topic.name.clone());
    let queue = name.and_then(|name| app.queue(name.as_str()).ok());
    let Some(queue) = queue.filter(|queue| queue.id == id.topic) else { return };
    if let Err(error) = take_over(app, &queue, id.partition).await {
        tracing::debug!(queue = %queue.name, partition = %id.partition, reason = %error.message,
            "subscriptions are not taken over now; tried again in a moment");
    }
}

/// A partition that is led here takes over the queue's subscriptions, if it has not.
///
/// # Errors
/// While one of the two partitions has no leader, or this broker is no more it.
pub(super) async fn take_over(
    app: &App,
    queue: &TopicView,
    partition: PartitionIndex,
) -> Result<(), ApiError> {
    let names = match partition {
        FIRST => Subscriptions::of_names(std::iter::empty()),
        _ => names_at_first(app, queue).await?,
    };
    let (names, partitions) = (names.into_names(), queue.partitions.get());
    let request = Request::TakeOver { names, partitions };
    match ask(app, queue.partition(partition), request).await? {
        Reply::TakenOver(names) => {
            tracing::info!(queue = %queue.name, %partition, subscriptions = names.len(),
                "a partition knows all subscriptions of its queue");
            Ok(())
        }
        _ => Err(out_of_turn()),
    }
}

/// What partition 0 has, which hears from now on of the others.
async fn names_at_first(app: &App, queue: &TopicView) -> Result<Subscriptions, ApiError> {
    let me = app.node.driver().broker_id();
    match leader_of(app, queue.partition(FIRST)) {
        Some(leader) if leader == me => names_here(app, queue).await,
        Some(leader) => {
            let path = format!("/queues/{}/partitions/{FIRST}/subscriptions", queue.name);
            let wanted = Wanted { topic: queue.id, partitions: queue.partitions.get() };
            let body = serde_json::to_vec(&wanted).expect("numbers are JSON");
            ask_value(app, leader, &Method::POST, &path, body.into()).await
        }
        None => Err(no_leader(queue)),
    }
}

async fn names_here(app: &App, queue: &TopicView) -> Result<Subscriptions, ApiError> {
    let (names, partitions) = (Vec::new(), queue.partitions.get());
    let request = Request::TakeOver { names, partitions };
    match ask(app, queue.partition(FIRST), request).await? {
        Reply::TakenOver(names) => Ok(Subscriptions::of_names(names.iter().map(|name| &**name))),
        _ => Err(out_of_turn()),
    }
}

pub(super) async fn handle(
    State(app): State<App>,
    Captured((name, partition)): Captured<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Subscriptions>, ApiError> {
    let queue = app.queue(&name)?;
    if queue.partition_in_path(&partition)?.partition != FIRST {
        let message = "which subscriptions there are is known by partition 0";
        return Err(ApiError::new(Code::InvalidParameter, message));
    }
    let (bytes, _share) = read_body(&app.memory, &headers, body).await?;
    let Wanted { topic, partitions } = parse_json(&bytes)?;
    // What this broker does not know of yet it cannot note.
    if topic != queue.id || queue.partitions.get() < partitions {
        return Err(misdirected(app.node.driver().broker_id()));
    }
    names_here(&app, &queue).await.map(Json)
}
