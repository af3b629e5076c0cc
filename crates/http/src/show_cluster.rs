//! `GET /cluster`: the cluster as a whole: who decides, and how partitions do.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use towpath_driver::{QuorumReport, ReportedMember};

use crate::answer::Json;
use crate::api_error::ApiError;
use crate::app::{App, refuse_query};
use crate::forward::by_controller;
use crate::list_nodes::QUORUM_ANSWER_MAX;
use crate::node_view::Sources;

#[derive(Serialize)]
struct ShownCluster {
    cluster_id: String,
    /// Null while one is elected.
    controller: Option<i32>,
    /// The level of formats in force, and the newest that every node reads.
    format_level: u16,
    format_level_max: u16,
    quorum: Quorum,
    nodes: Nodes,
    topics: usize,
    partitions: Partitions,
    /// Partitions whose replicas come or go.
    moves: usize,
}

/// Who decides on metadata.
#[derive(Serialize)]
struct Quorum {
    term: u64,
    /// The last entry that is known to be committed.
    committed: u64,
    voters: Vec<Member>,
    learners: Vec<Member>,
}

#[derive(Serialize)]
struct Member {
    node: i32,
    /// The node and its first data directory: with another disk it is another member.
    member: String,
    /// The last entry that it holds, and how many it lacks of what is committed; null where the
    /// leader of the quorum does not say.
    holds: Option<u64>,
    lag: Option<u64>,
}

#[derive(Serialize)]
struct Nodes {
    registered: usize,
    /// How many are in each state.
    states: BTreeMap<&'static str, usize>,
}

#[derive(Serialize)]
struct Partitions {
    count: usize,
    offline: usize,
    under_replicated: usize,
    under_min_in_sync: usize,
}

impl Member {
    fn of(quorum: &QuorumReport, member: &ReportedMember) -> Member {
        Member {
            node: member.id.broker().0,
            member: member.id.to_string(),
            holds: member.matched.map(|at| at.0),
            lag: member.matched.map(|at| quorum.commit.0.saturating_sub(at.0)),
        }
    }
}

impl Quorum {
    fn of(report: &QuorumReport) -> Quorum {
        let members = |voters: bool| {
            let members = report.members.iter().filter(move |member| member.is_voter == voters);
            members.map(|member| Member::of(report, member)).collect()
        };
        Quorum {
            term: report.term.0,
            committed: report.commit.0,
            voters: members(true),
            learners: members(false),
        }
    }
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
    let sources = Sources::look(&app, app.node.ask_quorum(QUORUM_ANSWER_MAX).await);
    let image = app.node.driver().image();
    let mut states = BTreeMap::new();
    for broker in image.brokers() {
        *states.entry(sources.state(&image, broker).as_str()).or_default() += 1;
    }
    let Sources { survey, quorum, .. } = &sources;
    let shown = ShownCluster {
        cluster_id: app.node.driver().identity().cluster_id.clone(),
        controller: quorum.leader.map(|leader| leader.broker().0),
        format_level: image.format_level(),
        format_level_max: image.format_level_max().0,
        quorum: Quorum::of(quorum),
        nodes: Nodes { registered: image.broker_count(), states },
        topics: image.topics().filter(|topic| !topic.internal).count(),
        partitions: Partitions {
            count: survey.partitions,
            offline: survey.offline,
            under_replicated: survey.under_replicated,
            under_min_in_sync: survey.under_min_in_sync,
        },
        moves: image.reassignment_count(),
    };
    Ok(Json(shown).into_response())
}
