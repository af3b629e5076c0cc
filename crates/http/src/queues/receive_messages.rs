//! `POST /queues/{queue}/receive`: messages for a worker, hidden from others until its time has run out.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;

use crate::answer::Json;
use crate::api_error::ApiError;
use crate::app::App;
use crate::body::{parse_json, read_body};
use crate::captured::Captured;
use crate::forward::is_hop;

use super::receive::{Received, ReceivedMessage, WrittenReceive, receive};

pub(super) async fn handle(
    State(app): State<App>,
    Captured(name): Captured<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let queue = Arc::new(app.queue(&name)?);
    let (bytes, share) = read_body(&app.memory, &headers, body).await?;
    let wanted: WrittenReceive = parse_json(if bytes.is_empty() { b"{}" } else { &bytes })?;
    wanted.check()?;
    let asks_others = !is_hop(&headers);
    // They hold the buffer that the request was read into, and this may wait for long.
    drop((headers, bytes, share));
    let handout = receive(&app, &queue, &wanted, asks_others).await?;
    let (handed, shares) = handout.take();
    let messages =
        handed.iter().map(|handed| ReceivedMessage::of(handed, wanted.all_headers)).collect();
    Ok(Json(Received { messages }).charged_all(shares))
}
