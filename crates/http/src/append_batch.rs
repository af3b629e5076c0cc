//! `POST /topics/{topic}/partitions/{partition}/batches`: append one record batch of Kafka's format, as a
//! Kafka producer does. Brokers use it among each other: whoever keeps the results of an HTTP producer need
//! not lead the partitions that it publishes to.

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use serde::{Deserialize, Serialize};
use towpath_replication::Acks;

use crate::answer::Json;
use crate::api_error::ApiError;
use crate::app::{App, refuse_internal};
use crate::body::read_body;
use crate::captured::Captured;
use crate::limits::COMMIT_WAIT_MAX;
use crate::refusals;

/// Where a batch went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AppendedBatch {
    pub(crate) offset: i64,
    /// The broker's time, where the topic stamps records with it.
    pub(crate) append_time: Option<i64>,
}

pub(crate) async fn handle(
    State(app): State<App>,
    Captured((topic, partition)): Captured<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<AppendedBatch>, ApiError> {
    refuse_internal(&topic)?;
    let (bytes, _share) = read_body(&app.memory, &headers, body).await?;
    let topic = app.topic(&topic)?;
    let id = topic.partition_in_path(&partition)?;
    let appended = app.node.append(id, &topic.config, &mut bytes.to_vec(), Acks::All);
    let appended = appended.map_err(|error| refusals::of_publish(&error))?;
    let acknowledged = app.node.acknowledged(appended, COMMIT_WAIT_MAX).await;
    let acknowledged = acknowledged.map_err(|error| refusals::of_publish(&error))?;
    Ok(Json(AppendedBatch {
        offset: acknowledged.base_offset.0,
        append_time: acknowledged.append_time.map(|time| time.0),
    }))
}
