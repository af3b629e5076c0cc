//! `GET /tasks`: tasks, the newest first; `source` and `state` choose among them.

use axum::extract::State;
use axum::http::Uri;
use serde::{Deserialize, Serialize};

use crate::answer::Json;
use crate::api_error::{ApiError, Code};
use crate::app::App;
use crate::body::parse_query;

use super::service::list;
use super::view::TaskView;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Query {
    source: Option<String>,
    state: Option<String>,
}

#[derive(Serialize)]
pub(super) struct Tasks {
    tasks: Vec<TaskView>,
}

pub(super) async fn handle(State(app): State<App>, uri: Uri) -> Result<Json<Tasks>, ApiError> {
    let query: Query = parse_query(&uri)?;
    const STATES: [&str; 5] = ["running", "paused", "cancelled", "done", "failed"];
    if query.state.as_deref().is_some_and(|state| !STATES.contains(&state)) {
        let message = format!("state is one of {}", STATES.join(", "));
        return Err(ApiError::new(Code::InvalidParameter, message));
    }
    let tasks = list(&app, query.source.as_deref());
    let wanted = tasks
        .iter()
        .filter(|task| query.state.as_deref().is_none_or(|state| task.state.name() == state));
    Ok(Json(Tasks { tasks: wanted.map(TaskView::of).collect() }))
}
