//! `POST /nodes/{node}/restart`: a node lets others lead, stops and starts anew, in the same process. It
//! does not look whether the cluster can do without it: `towpath cluster restart` does, node by node.

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::answer::Json;
use crate::api_error::{ApiError, Code};
use crate::app::{App, refuse_query};
use crate::captured::Captured;
use crate::forward::misdirected;
use crate::node_view::node_in_path;

#[derive(Serialize)]
struct Ordered {
    node: i32,
    /// Of the process that ends; it is back when this has risen.
    broker_epoch: Option<i64>,
}

pub(crate) async fn handle(
    State(app): State<App>,
    Captured(node): Captured<String>,
    uri: Uri,
) -> Result<Response, ApiError> {
    refuse_query(&uri)?;
    let id = node_in_path(&app, &node)?;
    let driver = app.node.driver();
    if id != driver.broker_id() {
        return Err(misdirected(driver.broker_id()));
    }
    let broker_epoch = driver.standing().broker_epoch;
    app.node.restart().give().map_err(|refusal| {
        let message = format!("node {id} cannot be started anew: {refusal}");
        ApiError::new(Code::InvalidRequest, message)
    })?;
    Ok((StatusCode::ACCEPTED, Json(Ordered { node: id.0, broker_epoch })).into_response())
}
