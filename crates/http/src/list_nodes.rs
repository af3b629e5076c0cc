//! `GET /nodes`: every node of the cluster, by number. The controller answers, for only it hears who is
//! silent; it asks each node for what that one alone knows.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use towpath_model::BrokerId;

use crate::answer::Json;
use crate::api_error::ApiError;
use crate::app::{App, refuse_query};
use crate::forward::by_controller;
use crate::node_self;
use crate::node_view::{NodeView, Sources};

/// How long the leader of the quorum may take to say how far the others are.
pub(crate) const QUORUM_ANSWER_MAX: Duration = Duration::from_secs(2);

#[derive(Serialize)]
struct Nodes {
    nodes: Vec<NodeView>,
}

pub(crate) async fn handle(
    State(app): State<App>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, ApiError> {
    refuse_query(&uri)?;
    if let Some(answer) = by_controller(&app, &headers, &uri).await {
        return Ok(answer);
    }
    let all = app.node.driver().image().brokers().map(|broker| broker.id).collect();
    Ok(Json(Nodes { nodes: views(&app, all).await }).into_response())
}

/// These nodes, as far as they are registered.
pub(crate) async fn views(app: &App, nodes: Vec<BrokerId>) -> Vec<NodeView> {
    let sources = Sources::look(app, app.node.ask_quorum(QUORUM_ANSWER_MAX).await);
    // Who does not count as there would only be waited for.
    let is_there = |id: &BrokerId| {
        let image = app.node.driver().image();
        image.broker(*id).is_some_and(|broker| !broker.fenced)
    };
    let there = nodes.iter().copied().filter(is_there).collect();
    let told = node_self::of_all(app, there).await;
    let mut told: BTreeMap<i32, _> = told.into_iter().map(|told| (told.node, told)).collect();
    let image = app.node.driver().image();
    let brokers = nodes.iter().filter_map(|id| image.broker(*id));
    brokers.map(|broker| sources.view(&image, broker, told.remove(&broker.id.0))).collect()
}
