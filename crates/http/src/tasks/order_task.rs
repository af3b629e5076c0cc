//! `GET /tasks/{task}`, and `POST /tasks/{task}/pause`, `/resume`, `/cancel`: how a task stands, and what becomes of it.

use axum::extract::State;
use axum::http::Uri;
use serde::Deserialize;
use towpath_metadata::TaskOrder;
use towpath_model::Uuid;

use crate::answer::Json;
use crate::api_error::{ApiError, Code};
use crate::app::{App, refuse_query};
use crate::body::parse_query;
use crate::captured::Captured;

use super::service::{NotDone, find, order};
use super::start_task::SOMEBODY;
use super::view::TaskView;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Query {
    by: Option<String>,
}

pub(super) async fn show(
    State(app): State<App>,
    Captured(id): Captured<String>,
    uri: Uri,
) -> Result<Json<TaskView>, ApiError> {
    refuse_query(&uri)?;
    Ok(Json(TaskView::of(&find(&app, read_id(&id)?).map_err(NotDone::into_error)?)))
}

pub(super) async fn pause(
    app: State<App>,
    id: Captured<String>,
    uri: Uri,
) -> Result<Json<TaskView>, ApiError> {
    carry_out(TaskOrder::Pause, app, id, uri).await
}

pub(super) async fn resume(
    app: State<App>,
    id: Captured<String>,
    uri: Uri,
) -> Result<Json<TaskView>, ApiError> {
    carry_out(TaskOrder::Resume, app, id, uri).await
}

pub(super) async fn cancel(
    app: State<App>,
    id: Captured<String>,
    uri: Uri,
) -> Result<Json<TaskView>, ApiError> {
    carry_out(TaskOrder::Cancel, app, id, uri).await
}

async fn carry_out(
    asked: TaskOrder,
    State(app): State<App>,
    Captured(id): Captured<String>,
    uri: Uri,
) -> Result<Json<TaskView>, ApiError> {
    let query: Query = parse_query(&uri)?;
    let by = query.by.unwrap_or_else(|| SOMEBODY.to_owned());
    let task = order(&app, read_id(&id)?, asked, by).await.map_err(NotDone::into_error)?;
    Ok(Json(TaskView::of(&task)))
}

fn read_id(text: &str) -> Result<Uuid, ApiError> {
    text.parse().map_err(|_| ApiError::new(Code::TaskNotFound, format!("there is no task {text}")))
}
