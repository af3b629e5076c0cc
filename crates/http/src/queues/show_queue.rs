//! `GET /queues/{queue}`: how a queue is configured.

use axum::extract::State;
use axum::http::Uri;

use crate::answer::Json;
use crate::api_error::ApiError;
use crate::app::{App, refuse_query};
use crate::captured::Captured;

use super::place::no_queue;
use super::settings::ShownQueue;

pub(super) async fn handle(
    State(app): State<App>,
    Captured(name): Captured<String>,
    uri: Uri,
) -> Result<Json<ShownQueue>, ApiError> {
    refuse_query(&uri)?;
    show(&app, &name).map(Json)
}

/// The queue as it is now.
pub(crate) fn show(app: &App, name: &str) -> Result<ShownQueue, ApiError> {
    app.queue(name)?;
    let image = app.node.driver().image();
    image.topic(name).map(ShownQueue::of).ok_or_else(|| no_queue(name))
}
