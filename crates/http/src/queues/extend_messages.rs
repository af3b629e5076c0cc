//! `POST /queues/{queue}/extend`: messages are kept for so long from now on.

use std::time::Duration;

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

use super::receive::read_visibility;
use super::settle::{Named, ReceiptFor, Verb, WrittenReceipt, answer, refuse_none};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    receipts: AtMost<QUEUE_MESSAGES_MAX, WrittenReceipt>,
    /// For all that do not say it themselves.
    #[serde(default)]
    visibility_ms: Option<u64>,
}

pub(super) async fn handle(
    State(app): State<App>,
    Captured(name): Captured<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let queue = app.queue(&name)?;
    let (bytes, _share) = read_body(&app.memory, &headers, body).await?;
    let Wanted { receipts: AtMost(receipts), visibility_ms } = parse_json(&bytes)?;
    refuse_none(receipts.len())?;
    let named = receipts.into_iter().map(|written| read(written, visibility_ms)).collect();
    answer(&app, &queue, &Verb::Extend, named, &headers).await
}

fn read(written: WrittenReceipt, visibility_ms: Option<u64>) -> Result<Named, ApiError> {
    let (text, own) = match written {
        WrittenReceipt::Text(text) => (text, None),
        WrittenReceipt::For(ReceiptFor { receipt, visibility_ms }) => {
            (receipt, Some(visibility_ms))
        }
    };
    let visibility: Option<Duration> = read_visibility(own.or(visibility_ms))?;
    let missing = || ApiError::new(Code::InvalidRequest, "visibility_ms is missing");
    Ok(Named { receipt: text.parse()?, visibility: visibility.ok_or_else(missing)? })
}
