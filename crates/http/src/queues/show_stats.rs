//! `GET /queues/{queue}/stats`: how many messages are where, and how old the oldest is.

use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use serde::Deserialize;

use crate::answer::Json;
use crate::api_error::ApiError;
use crate::app::App;
use crate::body::parse_query;
use crate::captured::Captured;
use crate::forward::is_hop;

use super::look::{QueueStats, stats};

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
) -> Result<Json<QueueStats>, ApiError> {
    let queue = app.queue(&name)?;
    let query: Query = parse_query(&uri)?;
    stats(&app, &queue, query.subscription.as_deref(), !is_hop(&headers)).await.map(Json)
}
