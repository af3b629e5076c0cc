//! `POST /queues/{queue}/messages`: send one message or several, answered when they are safe.

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use towpath_model::PartitionIndex;

use crate::answer::Json;
use crate::api_error::{ApiError, Code};
use crate::app::App;
use crate::batch_answer::answer_many;
use crate::body::read_body;
use crate::captured::Captured;
use crate::message::PublishedMessage;

use super::message::{Send, message_id};
use super::send::send;

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

pub(super) async fn handle(
    State(app): State<App>,
    Captured(name): Captured<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let queue = app.queue(&name)?;
    let (bytes, share) = read_body(&app.memory, &headers, body).await?;
    let (messages, is_one) = match Send::parse(&bytes)? {
        Send::One(message) => (vec![*message], true),
        Send::Many(messages) => (messages, false),
    };
    let results = send(&app, &queue, messages).await;
    drop(share);
    let mut results = results.into_iter().map(|result| result.map(|sent| Sent::of(&sent)));
    if is_one {
        let lost = || Err(ApiError::new(Code::Internal, "the message was not sent"));
        return Ok(Json(results.next().unwrap_or_else(lost)?).into_response());
    }
    Ok(answer_many(results.collect()))
}
