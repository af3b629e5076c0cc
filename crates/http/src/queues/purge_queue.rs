//! `POST /queues/{queue}/purge`: everything that was sent until now is forgotten, held or not.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Method};
use serde::{Deserialize, Serialize};
use towpath_queue::{Reply, Request};

use crate::answer::Json;
use crate::api_error::{ApiError, Code};
use crate::app::{App, TopicView};
use crate::body::{parse_json, read_body};
use crate::captured::Captured;
use crate::forward::{ask_each, is_hop};
use crate::refusals;

use super::place::{Places, no_leader, no_subscription};
use super::subscriptions::number_in;

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    subscription: Option<String>,
}

/// How many messages it was.
#[derive(Serialize, Deserialize)]
pub(crate) struct Purged {
    purged: u64,
}

pub(super) async fn handle(
    State(app): State<App>,
    Captured(name): Captured<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Purged>, ApiError> {
    let queue = app.queue(&name)?;
    let (bytes, _share) = read_body(&app.memory, &headers, body).await?;
    let wanted: Wanted = if bytes.is_empty() { Wanted::default() } else { parse_json(&bytes)? };
    purge(&app, &queue, wanted.subscription, !is_hop(&headers)).await.map(Json)
}

/// Purges a queue, or what one of its subscriptions has not worked. `asks_others`: also in partitions that
/// other brokers lead.
pub(crate) async fn purge(
    app: &App,
    queue: &TopicView,
    subscription: Option<String>,
    asks_others: bool,
) -> Result<Purged, ApiError> {
    let places = Places::of(app, queue);
    if asks_others && !places.nowhere.is_empty() {
        // Rather nothing at all than a part, as far as that is known.
        return Err(no_leader(queue));
    }
    let mut purged = 0;
    for partition in places.here {
        let id = queue.partition(partition);
        let number = number_in(app, queue, partition, subscription.as_deref()).await?;
        let purge = Request::Purge { subscription: number };
        match app.node.ask_deliveries(id, purge).await.map_err(refusals::of_unavailable)? {
            Reply::Count(count) => purged += count,
            Reply::UnknownSubscription => return Err(no_subscription(subscription)),
            _ => {
                let message = "the deliveries gave an answer out of turn";
                return Err(ApiError::new(Code::Internal, message));
            }
        }
    }
    if asks_others {
        let body = serde_json::to_string(&Wanted { subscription }).expect("a text is JSON");
        let asked = places.elsewhere.into_keys().map(|leader| (leader, body.clone().into()));
        let path = format!("/queues/{}/purge", queue.name);
        for (_, told) in ask_each::<Purged>(app, &Method::POST, &path, asked).await {
            purged += told?.purged;
        }
    }
    Ok(Purged { purged })
}
