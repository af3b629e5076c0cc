//! `GET /queues/{queue}/stats`: how many messages are where, how old the oldest is, how their
//! deliveries went, and what follows from that.

use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use serde::Deserialize;

use crate::answer::Json;
use crate::api_error::ApiError;
use crate::app::App;
use crate::body::parse_query;
use crate::captured::Captured;
use crate::forward::is_hop;

use super::advice::ShownStats;
use super::look::stats;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Query {
    subscription: Option<String>,
}

pub(super) async fn handle(
    State(app): State<App>,
    Captured(name): Captured<String>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Json<ShownStats>, ApiError> {
    let queue = app.queue(&name)?;
    let query: Query = parse_query(&uri)?;
    let asks_others = !is_hop(&headers);
    let stats = stats(&app, &queue, query.subscription.as_deref(), asks_others).await?;
    let mut shown = ShownStats::of(&queue.config.queue, stats);
    if asks_others {
        shown.look_at_growth(&queue.config.queue, queue.partitions.get());
        shown.look_for_dead_letters(&app, &queue.config.queue).await;
    }
    Ok(Json(shown))
}
