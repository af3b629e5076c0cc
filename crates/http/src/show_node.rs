//! `GET /nodes/{node}`: one node of the cluster.

use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use towpath_model::BrokerId;

use crate::answer::Json;
use crate::api_error::ApiError;
use crate::app::{App, refuse_query};
use crate::captured::Captured;
use crate::forward::by_controller;
use crate::list_nodes::views;
use crate::node_view::{NodeView, no_node, node_in_path};

pub(crate) async fn handle(
    State(app): State<App>,
    Captured(node): Captured<String>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, ApiError> {
    refuse_query(&uri)?;
    if let Some(answer) = by_controller(&app, &headers, &uri).await {
        return Ok(answer);
    }
    let id = node_in_path(&app, &node)?;
    show(&app, id).await.map(|view| Json(view).into_response())
}

/// The node as it is now.
pub(crate) async fn show(app: &App, id: BrokerId) -> Result<NodeView, ApiError> {
    views(app, vec![id]).await.pop().ok_or_else(|| no_node(id))
}
