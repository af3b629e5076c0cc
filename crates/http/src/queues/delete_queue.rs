//! `DELETE /queues/{queue}`: delete a queue with all of its messages.

use axum::extract::State;
use axum::http::{StatusCode, Uri};

use crate::api_error::ApiError;
use crate::app::{App, refuse_query};
use crate::captured::Captured;
use crate::delete_topic;

pub(super) async fn handle(
    State(app): State<App>,
    Captured(name): Captured<String>,
    uri: Uri,
) -> Result<StatusCode, ApiError> {
    refuse_query(&uri)?;
    delete_topic::delete(&app, app.queue(&name)?.id).await
}
