//! `POST /nodes/{node}/drain` and `…/undrain`: a node gives away what it leads and holds, or takes work
//! again. Leaderships go at once, replicas step by step; `GET /nodes/{node}` says how far it is.

use axum::extract::State;
use axum::http::Uri;
use towpath_metadata::{Reply, Request};

use crate::answer::Json;
use crate::api_error::{ApiError, Code};
use crate::app::{App, refuse_query};
use crate::captured::Captured;
use crate::node_view::{NodeView, node_in_path};
use crate::refusals;
use crate::show_node::show;

pub(crate) async fn drain(
    State(app): State<App>,
    Captured(node): Captured<String>,
    uri: Uri,
) -> Result<Json<NodeView>, ApiError> {
    refuse_query(&uri)?;
    order(&app, &node, true).await
}

pub(crate) async fn undrain(
    State(app): State<App>,
    Captured(node): Captured<String>,
    uri: Uri,
) -> Result<Json<NodeView>, ApiError> {
    refuse_query(&uri)?;
    order(&app, &node, false).await
}

/// The node as it is once the order is committed.
async fn order(app: &App, node: &str, drained: bool) -> Result<Json<NodeView>, ApiError> {
    let id = node_in_path(app, node)?;
    let request = Request::DrainBroker { broker: id, drained };
    match app.node.ask_metadata(request).await.map_err(refusals::of_unavailable)? {
        Reply::DrainedBroker(result) => {
            result.map_err(|refusal| refusals::of_metadata(&refusal))?
        }
        _ => return Err(ApiError::new(Code::Internal, "the metadata gave an answer out of turn")),
    }
    show(app, id).await.map(Json)
}
