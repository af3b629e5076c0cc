//! `GET /nodes/{node}/self`: what only the node itself knows: its version, and how its data
//! directories do. Any broker passes the question on to it.

use std::time::Duration;

use axum::extract::State;
use axum::http::{Method, Uri};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::timeout;
use towpath_driver::{Room, VolumeStatus, format_level};
use towpath_model::BrokerId;

use crate::answer::Json;
use crate::api_error::{ApiError, Code};
use crate::app::{App, refuse_query};
use crate::captured::Captured;
use crate::forward::ask_value;
use crate::node_view::node_in_path;

/// How long others may take to tell of themselves before a listing goes without it.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// A node in its own words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeSelf {
    pub(crate) node: i32,
    pub(crate) version: String,
    /// The newest level of formats that it reads and writes.
    pub(crate) format_level_max: u16,
    /// Since when it runs, in milliseconds since 1970.
    pub(crate) started_at: i64,
    pub(crate) directories: Vec<DataDirectory>,
}

/// A data directory of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DataDirectory {
    path: Option<String>,
    /// `ok`, `low`, `full`, `stalled`, `failed` or `missing`.
    state: String,
    /// Why, where it is not `ok`.
    problem: Option<String>,
    /// Replicas in it, and the bytes that their logs take.
    replicas: usize,
    pub(crate) stored_bytes: u64,
    /// What its file system has left, and has in all.
    free_bytes: Option<u64>,
    total_bytes: Option<u64>,
}

pub(crate) async fn handle(
    State(app): State<App>,
    Captured(node): Captured<String>,
    uri: Uri,
) -> Result<Json<NodeSelf>, ApiError> {
    refuse_query(&uri)?;
    let asked = node_in_path(&app, &node)?;
    if asked != app.node.driver().broker_id() {
        // Its question would have been passed on, were the node known.
        let message = format!("node {asked} cannot be asked");
        return Err(ApiError::new(Code::Unavailable, message));
    }
    Ok(Json(look(&app)))
}

/// This node.
fn look(app: &App) -> NodeSelf {
    let driver = app.node.driver();
    let stored = driver.stored();
    let open = driver.volume_statuses().into_iter().map(|status| {
        let here = stored.get(&status.index).copied().unwrap_or_default();
        let (state, problem) = state_of(&status);
        DataDirectory {
            path: Some(status.path.display().to_string()),
            state: state.to_owned(),
            problem,
            replicas: here.replicas,
            stored_bytes: here.bytes,
            free_bytes: Some(status.space.free_bytes),
            total_bytes: Some(status.space.total_bytes),
        }
    });
    let missing = driver.missing_volumes().iter().map(|missing| DataDirectory {
        path: missing.path.as_ref().map(|path| path.display().to_string()),
        state: "missing".to_owned(),
        problem: Some(missing.reason.clone()),
        replicas: 0,
        stored_bytes: 0,
        free_bytes: None,
        total_bytes: None,
    });
    NodeSelf {
        node: driver.broker_id().0,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        format_level_max: format_level(),
        started_at: i64::try_from(app.started_at.as_millis()).unwrap_or(i64::MAX),
        directories: open.chain(missing).collect(),
    }
}

fn state_of(status: &VolumeStatus) -> (&'static str, Option<String>) {
    if let Some(failure) = &status.failure {
        return ("failed", Some(failure.clone()));
    }
    if let Some(stalled_for) = status.stalled_for {
        let problem = format!("nothing has come back from its disk for {stalled_for:.1?}");
        return ("stalled", Some(problem));
    }
    match status.room {
        Room::Full => ("full", Some("producing is refused".to_owned())),
        Room::Low => ("low", Some("it has less room than disk.low.watermark.bytes".to_owned())),
        Room::Ample => ("ok", None),
    }
}

/// These nodes in their own words, as far as they answer in time.
pub(crate) async fn of_all(app: &App, nodes: Vec<BrokerId>) -> Vec<NodeSelf> {
    let me = app.node.driver().broker_id();
    let mut asked = JoinSet::new();
    for node in nodes.iter().copied().filter(|node| *node != me) {
        let app = app.clone();
        asked.spawn(async move { timeout(ANSWER_MAX, of_other(&app, node)).await.ok().flatten() });
    }
    let mut told: Vec<NodeSelf> = asked.join_all().await.into_iter().flatten().collect();
    if nodes.contains(&me) {
        told.push(look(app));
    }
    told
}

async fn of_other(app: &App, node: BrokerId) -> Option<NodeSelf> {
    let path = format!("/nodes/{node}/self");
    let told = ask_value::<NodeSelf>(app, node, &Method::GET, &path, Bytes::new()).await.ok()?;
    (told.node == node.0).then_some(told)
}
