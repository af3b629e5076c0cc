//! `GET /topics/{topic}/partitions/{p}/messages`: read from an offset, or from where a group has
//! committed. Waits for records when asked to.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use towpath_driver::{Condition, FetchRefusal, OffsetQuery, Position, ReadLimits, Slice};
use towpath_model::{Offset, TopicPartition};
use towpath_records::Scratch;
use towpath_server::disk::NodeDisk;

use crate::answer::Json;
use crate::api_error::{ApiError, Code};
use crate::app::{App, TopicView};
use crate::body::parse_query;
use crate::captured::Captured;
use crate::committed_offsets::committed_offset;
use crate::decode::{Decoded, Decoding, read_bytes};
use crate::limits::{
    PLAIN_BYTES_MAX, READ_BYTES_DEFAULT, READ_BYTES_MAX, READ_WAIT_MAX, SMALL_PLAIN_BYTES_MAX,
};
use crate::message::ReadMessage;
use crate::refusals;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Query {
    offset: Option<String>,
    group: Option<String>,
    max_bytes: Option<usize>,
    wait_ms: Option<u64>,
}

#[derive(Serialize)]
struct Messages {
    messages: Vec<ReadMessage>,
    next_offset: i64,
    high_watermark: i64,
}

/// JSON escapes a byte as six, at the worst; usually it is one.
const ANSWER_PER_RECORD_BYTE: usize = 2;

pub(crate) async fn handle(
    State(app): State<App>,
    Captured((topic, partition)): Captured<(String, String)>,
    uri: Uri,
) -> Result<Response, ApiError> {
    let query: Query = parse_query(&uri)?;
    let topic = app.topic(&topic)?;
    let id = topic.partition_in_path(&partition)?;
    let limits = limits(&query)?;
    let from = starting_point(&app, &topic, id, &query).await?;
    let deadline = Instant::now() + Duration::from_millis(query.wait_ms.unwrap_or(0));

    let mut next = from;
    loop {
        let position = position(&app, id)?;
        if next < position.log_start_offset || position.high_watermark < next {
            // An offset that is written but not committed is as unknown to readers as any beyond.
            return Err(refusals::of_fetch(&FetchRefusal::OutOfRange { position }));
        }
        let decoded = read(&app, id, next, limits).await?;
        if let Some(decoded) = decoded {
            next = decoded.next_offset;
            if !decoded.messages.is_empty() {
                return answer(&app, decoded.messages, next, decoded.high_watermark).await;
            }
            // Everything there has been compacted away: go on behind it.
            continue;
        }
        if !wait_for_records(&app, id, next, deadline).await {
            return answer(&app, Vec::new(), next, position.high_watermark).await;
        }
    }
}

fn limits(query: &Query) -> Result<ReadLimits, ApiError> {
    let invalid = |message: String| Err(ApiError::new(Code::InvalidParameter, message));
    let max_bytes = query.max_bytes.unwrap_or(READ_BYTES_DEFAULT);
    if max_bytes == 0 || READ_BYTES_MAX < max_bytes {
        return invalid(format!("max_bytes is 1 to {READ_BYTES_MAX}"));
    }
    let wait_ms_max = READ_WAIT_MAX.as_millis();
    if wait_ms_max < u128::from(query.wait_ms.unwrap_or(0)) {
        return invalid(format!("wait_ms is 0 to {wait_ms_max}"));
    }
    Ok(ReadLimits { max_bytes, at_least_one_batch: true })
}

fn position(app: &App, id: TopicPartition) -> Result<Position, ApiError> {
    app.node.driver().position(id, None).map_err(|refusal| refusals::of_fetch(&refusal))
}

/// Where to begin: the offset, or what the group committed, or the first record there is.
async fn starting_point(
    app: &App,
    topic: &TopicView,
    id: TopicPartition,
    query: &Query,
) -> Result<Offset, ApiError> {
    match (query.offset.as_deref(), query.group.as_deref()) {
        (Some(_), Some(_)) => Err(ApiError::new(
            Code::InvalidParameter,
            "offset and group exclude each other: a group starts where it has committed",
        )),
        (None, None) | (Some("earliest"), None) => at(app, id, OffsetQuery::Earliest).await,
        (Some("latest"), None) => at(app, id, OffsetQuery::Latest).await,
        (Some(text), None) => match text.parse::<i64>() {
            Ok(offset) if 0 <= offset => Ok(Offset(offset)),
            _ => Err(ApiError::new(
                Code::InvalidParameter,
                format!("offset is a number from 0 on, earliest or latest, and not {text:?}"),
            )),
        },
        (None, Some(group)) => match committed_offset(app, topic, id.partition, group).await? {
            Some(offset) => Ok(offset),
            None => at(app, id, OffsetQuery::Earliest).await,
        },
    }
}

async fn at(app: &App, id: TopicPartition, query: OffsetQuery) -> Result<Offset, ApiError> {
    let found = app.node.find_offset(id, None, false, query).await;
    let found = found.map_err(|refusal| refusals::of_fetch(&refusal))?;
    Ok(found.map_or(Offset::ZERO, |found| found.offset))
}

/// Reads and decodes what is committed from `from` on; `None`: nothing yet.
async fn read(
    app: &App,
    id: TopicPartition,
    from: Offset,
    limits: ReadLimits,
) -> Result<Option<Decoded>, ApiError> {
    let read = app.node.read(id, from, limits).await;
    let read = read.map_err(|refusal| refusals::of_fetch(&refusal))?;
    let high_watermark = read.position.high_watermark;
    let Some(slice) = read.slice.filter(|slice| 0 < slice.len) else { return Ok(None) };
    let turn = app.decodes.acquire().await;
    let _turn = turn.expect("the semaphore is never closed");
    // The bytes as they are stored, and the messages in them, which are as many.
    let _share = app.memory.take(slice.len + limits.max_bytes).await?;
    app.node.metrics().record_bytes_fetched.inc_by(slice.len as u64);
    match decode(app, slice, from, limits.max_bytes, high_watermark).await {
        Err(error) => {
            // What is read together lies in one segment.
            if error.code == Code::RecordsDamaged {
                app.node.driver().doubt(id, from);
            }
            Err(error)
        }
        Ok(decoded) => Ok(Some(decoded)),
    }
}

/// Reading may have to wait for the disk, and decompressing takes its time: neither may hold up the
/// connections of this worker. Batches that are large in the clear are decompressed one at a time.
async fn decode(
    app: &App,
    slice: Slice<NodeDisk>,
    from: Offset,
    max_bytes: usize,
    high_watermark: Offset,
) -> Result<Decoded, ApiError> {
    let stopping = |_| ApiError::new(Code::Stopping, "the broker is stopping");
    let decoding = Decoding { from, max_bytes, high_watermark };
    let read = move || {
        let bytes = read_bytes(&*slice.file, slice.position, slice.len)?;
        let decoded = decoding.decode(&bytes, SMALL_PLAIN_BYTES_MAX, &mut Scratch::new())?;
        Ok((bytes, decoded))
    };
    let (bytes, decoded) = tokio::task::spawn_blocking(read).await.map_err(stopping)??;
    if let Some(decoded) = decoded {
        return Ok(decoded);
    }
    let node = Arc::clone(&app.node);
    let again = async move {
        let mut turn = node.plain_turn().await;
        let decode = move || decoding.decode(&bytes, PLAIN_BYTES_MAX, turn.scratch());
        tokio::task::spawn_blocking(decode).await
    };
    // In a task of its own: a turn that has come must be used at once.
    let decoded = tokio::spawn(again).await.map_err(stopping)?.map_err(stopping)??;
    decoded.ok_or_else(|| {
        let message = format!("a record batch at or behind offset {from} is too large to be read");
        ApiError::new(Code::RecordsDamaged, message)
    })
}

/// Waits until there is a committed record at `next`. `false`: the time is up, or the broker stops.
async fn wait_for_records(app: &App, id: TopicPartition, next: Offset, deadline: Instant) -> bool {
    if deadline <= Instant::now() || *app.stop.borrow() {
        return false;
    }
    let driver = app.node.driver();
    let mut wait = app.node.wait();
    let condition = Condition::HighWatermark(next.next());
    if driver.watch(id, wait.token(), condition) {
        return true;
    }
    let token = wait.token();
    let _unwatch = Unwatch { app, id, token, condition };
    let mut stop = app.stop.clone();
    tokio::select! {
        answered = tokio::time::timeout_at(deadline, wait.answer()) => answered.is_ok(),
        _ = stop.changed() => false,
    }
}

/// Gives up a watch, also when the client hangs up and the handler is dropped.
struct Unwatch<'a> {
    app: &'a App,
    id: TopicPartition,
    token: towpath_model::Token,
    condition: Condition,
}

impl Drop for Unwatch<'_> {
    fn drop(&mut self) {
        self.app.node.driver().unwatch(self.id, self.token, self.condition);
    }
}

async fn answer(
    app: &App,
    messages: Vec<ReadMessage>,
    next_offset: Offset,
    high_watermark: Offset,
) -> Result<Response, ApiError> {
    let text = |encoded: &Option<crate::encoding::Encoded>| {
        encoded.as_ref().map_or(0, |encoded| encoded.text.len())
    };
    let bytes: usize = messages.iter().map(|m| text(&m.key) + text(&m.value) + 64).sum();
    let share = app.memory.take(bytes * ANSWER_PER_RECORD_BYTE).await?;
    let answer =
        Messages { messages, next_offset: next_offset.0, high_watermark: high_watermark.0 };
    Ok(Json(answer).charged(share))
}
