//! `DELETE /queues/{queue}`: delete a queue with all of its messages; with `unsettled=move`, once they lie in its
//! dead-letter queue.

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use crate::answer::Json;
use crate::api_error::ApiError;
use crate::app::App;
use crate::body::parse_query;
use crate::captured::Captured;
use crate::{delete_topic, tasks};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Query {
    #[serde(default)]
    unsettled: Unsettled,
    by: Option<String>,
}

/// What becomes of messages that nobody has deleted.
#[derive(Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Unsettled {
    #[default]
    Drop,
    Move,
}

pub(super) async fn handle(
    State(app): State<App>,
    Captured(name): Captured<String>,
    uri: Uri,
) -> Result<Response, ApiError> {
    let query: Query = parse_query(&uri)?;
    let queue = app.queue(&name)?;
    match query.unsettled {
        Unsettled::Drop => Ok(delete_topic::delete(&app, queue.id).await?.into_response()),
        Unsettled::Move => {
            let task = tasks::retire(&app, &queue, query.by).await?;
            Ok((StatusCode::ACCEPTED, Json(task)).into_response())
        }
    }
}
