//! `GET /groups/{group}/lag`: how far a group is behind, how long it has until retention overtakes
//! it, and what it has lost. The broker that coordinates the group answers, and asks those that lead the
//! partitions.

use axum::extract::State;
use axum::http::Uri;
use serde::{Deserialize, Serialize};
use towpath_coordinator::groups::{Reply, Request};
use towpath_driver::{GroupLag, Lags, Loss};
use towpath_server::Unavailable;

use crate::answer::Json;
use crate::api_error::{ApiError, Code};
use crate::app::{App, refuse_query};
use crate::captured::Captured;
use crate::limits::LAGS_MAX;
use crate::list_losses;
use crate::measure_lag::{Measured, measured};
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
    #[serde(flatten)]
    measured: Measured,
}

impl PartitionLag {
    fn of((row, measured): (&GroupLag, Measured)) -> PartitionLag {
        PartitionLag {
            topic: row.topic.as_str().to_owned(),
            partition: row.partition.0,
            committed_offset: row.committed.0,
            committed_at: row.committed_at.0,
            measured,
        }
    }
}

/// Records that were deleted before a group had read them.
#[derive(Serialize, Deserialize)]
pub(crate) struct LossView {
    pub(crate) group: String,
    topic: String,
    partition: i32,
    first_offset: i64,
    last_offset: i64,
    records: i64,
    /// When the first and the last of them were deleted.
    since: i64,
    pub(crate) at: i64,
    cause: String,
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
            cause: loss.cause.as_str().to_owned(),
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
    let measured = measured(&app, &lags.rows).await;
    let losses = list_losses::everywhere(&app).await;
    Ok(Json(ShownLag {
        partitions: lags.rows.iter().zip(measured).map(PartitionLag::of).collect(),
        omitted: lags.omitted,
        losses: losses.into_iter().filter(|loss| loss.group == group).collect(),
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
