//! `DELETE /nodes/{node}`: a node that holds nothing leaves the cluster for good. The answer comes when its
//! process may stop.

use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use towpath_metadata::Refusal;
use towpath_model::BrokerId;
use towpath_server::RemovalFailure;

use crate::api_error::{ApiError, Code};
use crate::app::{App, refuse_query};
use crate::captured::Captured;
use crate::node_view::node_in_path;
use crate::refusals;

/// How long the voters of the metadata quorum may take to note that it is gone.
const REMOVAL_WAIT_MAX: Duration = Duration::from_secs(20);

pub(crate) async fn handle(
    State(app): State<App>,
    Captured(node): Captured<String>,
    uri: Uri,
) -> Result<StatusCode, ApiError> {
    refuse_query(&uri)?;
    let id = node_in_path(&app, &node).or_else(|error| half_removed(&app, &node).ok_or(error))?;
    let removed = app.node.remove_broker(id, REMOVAL_WAIT_MAX).await;
    removed.map(|()| StatusCode::NO_CONTENT).map_err(|failure| error_of(id, failure))
}

/// A node that is not registered any more and may still count in the quorum: an earlier request was not
/// waited for.
fn half_removed(app: &App, node: &str) -> Option<BrokerId> {
    let id = BrokerId(node.parse().ok()?);
    let is_retired = app.node.driver().image().retired().any(|(broker, _)| broker == id);
    is_retired.then_some(id)
}

fn error_of(id: BrokerId, failure: RemovalFailure) -> ApiError {
    match failure {
        RemovalFailure::Refused(refusal) => {
            let error = refusals::of_metadata(&refusal);
            match refusal {
                Refusal::BrokerHoldsReplicas { .. } | Refusal::BrokerThere(_) => error
                    .with_help(format!("POST /nodes/{id}/drain (towpath node drain {id} --wait)")),
                _ => error,
            }
        }
        RemovalFailure::Unavailable(unavailable) => refusals::of_unavailable(unavailable),
        RemovalFailure::NotDurable { .. } => {
            ApiError::new(Code::NotCommittedInTime, failure.to_string())
                .with_help("let its process go on, and repeat the request to wait for them")
        }
    }
}
