//! `POST /queues/{queue}/reject`: messages cannot be worked, ever. They go to the dead-letter queue, if the
//! queue has one.

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

use super::settle::{Verb, answer, check_note, read_receipts};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    receipts: AtMost<QUEUE_MESSAGES_MAX, String>,
    /// Why, for whoever looks at the dead letters.
    note: String,
}

pub(super) async fn handle(
    State(app): State<App>,
    Captured(name): Captured<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let queue = app.queue(&name)?;
    let (bytes, _share) = read_body(&app.memory, &headers, body).await?;
    let Wanted { receipts: AtMost(receipts), note } = parse_json(&bytes)?;
    check_note(Some(&note))?;
    answer(&app, &queue, &Verb::Reject { note: note.into() }, read_receipts(receipts)?, &headers)
        .await
}
