//! `GET /losses`: what groups have lost since the brokers started, newest first. Whoever leads a partition
//! has seen what was deleted in it, so every broker is asked.

use axum::extract::State;
use axum::http::{HeaderMap, Method, Uri};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use towpath_driver::LOSSES_MAX;

use crate::answer::Json;
use crate::api_error::ApiError;
use crate::app::{App, refuse_query};
use crate::forward::{ask_each, is_hop, others_there};
use crate::group_lag::LossView;

#[derive(Serialize, Deserialize)]
pub(crate) struct Losses {
    losses: Vec<LossView>,
}

pub(crate) async fn handle(
    State(app): State<App>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Json<Losses>, ApiError> {
    refuse_query(&uri)?;
    let losses = if is_hop(&headers) { here(&app) } else { everywhere(&app).await };
    Ok(Json(Losses { losses }))
}

fn here(app: &App) -> Vec<LossView> {
    app.node.driver().losses(None).iter().rev().map(LossView::of).collect()
}

/// Of all brokers that answer, newest first.
pub(crate) async fn everywhere(app: &App) -> Vec<LossView> {
    let mut losses = here(app);
    let others = others_there(app).into_iter().map(|broker| (broker, Bytes::new()));
    for (broker, told) in ask_each::<Losses>(app, &Method::GET, "/losses", others).await {
        match told {
            Ok(told) => losses.extend(told.losses),
            Err(error) => {
                tracing::debug!(%broker, error = %error.message, "its losses are not known");
            }
        }
    }
    losses.sort_by_key(|loss| std::cmp::Reverse(loss.at));
    losses.truncate(LOSSES_MAX);
    losses
}
