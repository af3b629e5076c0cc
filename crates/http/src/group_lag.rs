//! `GET /groups/{group}/lag`: how far a group is behind, how long it has until retention overtakes
//! it, and what it has lost.

use axum::extract::State;
use axum::http::Uri;
use serde::Serialize;
use towpath_coordinator::groups::{Reply, Request};
use towpath_driver::{GroupLag, Lags, Loss};
use towpath_server::Unavailable;

use crate::answer::Json;
use crate::api_error::{ApiError, Code};
use crate::app::{App, refuse_query};
use crate::captured::Captured;
use crate::limits::LAGS_MAX;
use crate::refusals;

#[derive(Serialize)]
pub(crate) struct ShownLag {
    group: String,
    /// By topic and partition.
    partitions: Vec<PartitionLag>,
    /// Partitions beyond what one answer shows.
    omitted: usize,
    /// Newest first.
    losses: Vec<LossView>,
}

#[derive(Serialize)]
struct PartitionLag {
    topic: String,
    partition: i32,
    committed_offset: i64,
    committed_at: i64,
    /// Null, as everything after it, when the partition is not served here.
    log_start_offset: Option<i64>,
    high_watermark: Option<i64>,
    lag_records: Option<i64>,
    lag_seconds: Option<f64>,
    lag_bytes: Option<u64>,
    retention_ratio: Option<f64>,
    time_to_loss_seconds: Option<u64>,
    lost_records: Option<i64>,
}

impl PartitionLag {
    fn of(row: &GroupLag) -> PartitionLag {
        let (standing, lag) = row.here.unzip();
        PartitionLag {
            topic: row.topic.as_str().to_owned(),
            partition: row.partition.0,
            committed_offset: row.committed.0,
            committed_at: row.committed_at.0,
            log_start_offset: standing.map(|standing| standing.log_start_offset.0),
            high_watermark: standing.map(|standing| standing.high_watermark.0),
            lag_records: lag.map(|lag| lag.records),
            lag_seconds: lag.and_then(|lag| lag.age_seconds()),
            lag_bytes: lag.map(|lag| lag.bytes),
            retention_ratio: lag.and_then(|lag| lag.rounded_ratio()),
            time_to_loss_seconds: lag.and_then(|lag| lag.seconds_to_loss()),
            lost_records: lag.map(|lag| lag.lost_records),
        }
    }
}

/// Records that were deleted before a group had read them.
#[derive(Serialize)]
pub(crate) struct LossView {
    group: String,
    topic: String,
    partition: i32,
    first_offset: i64,
    last_offset: i64,
    records: i64,
    /// When the first and the last of them were deleted.
    since: i64,
    at: i64,
    cause: &'static str,
}

impl LossView {
    pub(crate) fn of(loss: &Loss) -> LossView {
        LossView {
            group: loss.group.as_ref().to_owned(),
            topic: loss.topic.as_str().to_owned(),
            partition: loss.partition.0,
            first_offset: loss.from.0,
            last_offset: loss.to.0 - 1,
            records: loss.records(),
            since: loss.since.0,
            at: loss.at.0,
            cause: loss.cause.as_str(),
        }
    }
}

pub(crate) async fn handle(
    State(app): State<App>,
    Captured(group): Captured<String>,
    uri: Uri,
) -> Result<Json<ShownLag>, ApiError> {
    refuse_query(&uri)?;
    let lags = lags(&app, Some(group.clone())).await?;
    if lags.rows.is_empty() && !exists(&app, &group).await? {
        return Err(ApiError::new(Code::GroupNotFound, format!("group {group:?} does not exist"))
            .with_help("GET /groups lists the groups"));
    }
    let losses = app.node.driver().losses(Some(&group));
    Ok(Json(ShownLag {
        partitions: lags.rows.iter().map(PartitionLag::of).collect(),
        omitted: lags.omitted,
        losses: losses.iter().rev().map(LossView::of).collect(),
        group,
    }))
}

/// Looks at one group or at all of them. Records' headers are read from the disk for it, so not on
/// a thread that serves sockets.
pub(crate) async fn lags(app: &App, group: Option<String>) -> Result<Lags, ApiError> {
    let node = std::sync::Arc::clone(&app.node);
    let look = move || node.driver().lags(group.as_deref(), LAGS_MAX);
    let looked = tokio::task::spawn_blocking(look).await;
    looked.map_err(|_| ApiError::new(Code::Internal, "the lag could not be computed"))
}

async fn exists(app: &App, group: &str) -> Result<bool, ApiError> {
    match app.node.ask_group(group, Request::Describe { group: group.into() }).await {
        Ok(Reply::Describe(description)) => Ok(description.is_some()),
        Ok(_) => Err(ApiError::new(Code::Internal, "the group gave an answer out of turn")),
        // No group has ever committed anything.
        Err(Unavailable::NotCoordinator(towpath_driver::NotCoordinator::NoTopic)) => Ok(false),
        Err(unavailable) => Err(refusals::of_unavailable(unavailable)),
    }
}
