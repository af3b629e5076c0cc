//! `GET /losses`: what groups have lost since the broker started, newest first.

use axum::extract::State;
use axum::http::Uri;
use serde::Serialize;

use crate::answer::Json;
use crate::api_error::ApiError;
use crate::app::{App, refuse_query};
use crate::group_lag::LossView;

#[derive(Serialize)]
pub(crate) struct Losses {
    losses: Vec<LossView>,
}

pub(crate) async fn handle(State(app): State<App>, uri: Uri) -> Result<Json<Losses>, ApiError> {
    refuse_query(&uri)?;
    let losses = app.node.driver().losses(None);
    Ok(Json(Losses { losses: losses.iter().rev().map(LossView::of).collect() }))
}
