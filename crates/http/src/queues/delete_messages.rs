//! `POST /queues/{queue}/delete`: messages have been worked, and do not come back.

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde::Deserialize;

use crate::api_error::ApiError;
use crate::app::App;
use crate::body::{AtMost, parse_json, read_body};
use crate::captured::Captured;
use crate::limits::QUEUE_MESSAGES_MAX;

use super::settle::{Verb, answer, read_receipts};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    receipts: AtMost<QUEUE_MESSAGES_MAX, String>,
}

pub(super) async fn handle(
    State(app): State<App>,
    Captured(name): Captured<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let queue = app.queue(&name)?;
    let (bytes, _share) = read_body(&app.memory, &headers, body).await?;
    let Wanted { receipts: AtMost(receipts) } = parse_json(&bytes)?;
    answer(&app, &queue, &Verb::Delete, read_receipts(receipts)?, &headers).await
}
