//! `POST /queues/{queue}/messages`: send one message or several, answered when they are safe.

use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use towpath_model::PartitionIndex;

use crate::answer::Json;
use crate::api_error::{ApiError, Code};
use crate::app::App;
use crate::batch_answer::answer_many;
use crate::body::{parse_query, read_body};
use crate::captured::Captured;
use crate::message::PublishedMessage;

use super::message::{Send, message_id};
use super::send::{send, send_within};

/// Where a message went.
#[derive(Serialize)]
struct Sent {
    id: String,
    sent_ms: i64,
    /// It repeats the message of this id, and is not delivered.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    duplicate: bool,
}

impl Sent {
    /// A repeat is told what the first one was told.
    fn of(published: &PublishedMessage) -> Sent {
        let offset = published.duplicate_of.unwrap_or(published.offset);
        Sent {
            id: message_id(PartitionIndex(published.partition), offset),
            sent_ms: published.timestamp,
            duplicate: published.duplicate_of.is_some(),
        }
    }
}

/// How long a send waits for room at most, where the queue lets it.
const WAIT_MS_MAX: u64 = 20_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Query {
    wait_ms: Option<u64>,
}

/// Nothing where nothing is said.
fn wait_of(query: &Query) -> Result<Option<Duration>, ApiError> {
    match query.wait_ms {
        None => Ok(None),
        Some(ms) if ms <= WAIT_MS_MAX => Ok(Some(Duration::from_millis(ms))),
        Some(ms) => {
            let message = format!("wait_ms is {ms}, and at most {WAIT_MS_MAX}");
            Err(ApiError::new(Code::InvalidParameter, message))
        }
    }
}

pub(super) async fn handle(
    State(app): State<App>,
    Captured(name): Captured<String>,
    headers: HeaderMap,
    uri: Uri,
    body: Body,
) -> Result<Response, ApiError> {
    let queue = app.queue(&name)?;
    let query: Query = parse_query(&uri)?;
    let wait = wait_of(&query)?;
    let (bytes, share) = read_body(&app.memory, &headers, body).await?;
    let (messages, is_one) = match Send::parse(&bytes)? {
        Send::One(message) => (vec![*message], true),
        Send::Many(messages) => (messages, false),
    };
    let results = match wait {
        None => send(&app, &queue, messages).await,
        Some(wait) => send_within(&app, &queue, messages, wait).await,
    };
    drop(share);
    let mut results = results.into_iter().map(|result| result.map(|sent| Sent::of(&sent)));
    if is_one {
        let lost = || Err(ApiError::new(Code::Internal, "the message was not sent"));
        return Ok(Json(results.next().unwrap_or_else(lost)?).into_response());
    }
    Ok(answer_many(results.collect()))
}
