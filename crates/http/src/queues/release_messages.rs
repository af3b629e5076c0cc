//! `POST /queues/{queue}/release`: messages could not be worked now, and come back.

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde::Deserialize;

use crate::api_error::{ApiError, Code};
use crate::app::App;
use crate::body::{AtMost, parse_json, read_body};
use crate::captured::Captured;
use crate::limits::QUEUE_MESSAGES_MAX;

use super::message::duration;
use super::settle::{Verb, answer, check_note, read_receipts};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    receipts: AtMost<QUEUE_MESSAGES_MAX, String>,
    /// When they come back; nothing: when the queue's retry policy says.
    #[serde(default)]
    delay_ms: Option<u64>,
    /// What went wrong.
    #[serde(default)]
    note: Option<String>,
    /// Nobody has begun to work them: they come back at once, and were not received.
    #[serde(default)]
    uncounted: bool,
}

pub(super) async fn handle(
    State(app): State<App>,
    Captured(name): Captured<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let queue = app.queue(&name)?;
    let (bytes, _share) = read_body(&app.memory, &headers, body).await?;
    let Wanted { receipts: AtMost(receipts), delay_ms, note, uncounted } = parse_json(&bytes)?;
    check_note(note.as_deref())?;
    let verb = match uncounted {
        false => {
            let delay = delay_ms.map(|ms| duration("delay_ms", ms)).transpose()?;
            Verb::Release { delay, note: note.map(Into::into) }
        }
        true if delay_ms.is_none() && note.is_none() => Verb::GiveBack,
        true => {
            let message = "uncounted goes without delay_ms and note";
            return Err(ApiError::new(Code::InvalidRequest, message));
        }
    };
    answer(&app, &queue, &verb, read_receipts(receipts)?, &headers).await
}
