//! `towpath cluster show`.

use clap::Args;

use crate::broker_api::BrokerApi;
use crate::cluster_api::{Cluster, QuorumMember};
use crate::failure::{Exit, Outcome};
use crate::output::{Cell, Report, Table};
use crate::session::Session;

/// Flags of `cluster show`.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {}

pub(crate) async fn run(session: &Session, _args: &ShowArgs) -> Outcome {
    let Cluster {
        cluster_id,
        controller,
        format_level,
        format_level_max,
        quorum,
        nodes,
        topics,
        partitions,
        moves,
    } = BrokerApi::of_any(session).await.cluster().await?;
    let states = nodes.states.iter().map(|(state, count)| format!("{count} {state}"));
    let mut members = Table::new("metadata_quorum", &["node", "part", "member", "lag_entries"]);
    let mut rows = |part: &'static str, of: Vec<QuorumMember>| {
        for member in of {
            let is_leader = Some(member.node) == controller && part == "voter";
            members.row(vec![
                member.node.into(),
                if is_leader { "controller" } else { part }.into(),
                member.member.into(),
                Cell::or_none(member.lag),
            ]);
        }
    };
    rows("voter", quorum.voters);
    rows("learner", quorum.learners);
    let report = Report::new()
        .field("cluster_id", cluster_id)
        .field("controller", Cell::or_none(controller))
        .field("nodes", nodes.registered)
        .field("node_states", Cell::list(states))
        .field("topics", topics)
        .field("partitions", partitions.count)
        .field("offline", partitions.offline)
        .field("under_replicated", partitions.under_replicated)
        .field("under_min_in_sync", partitions.under_min_in_sync)
        .field("moves", moves)
        .field("format_level", format_level)
        .field("format_level_max", format_level_max)
        .table(members);
    session.print(&report)?;
    Ok(Exit::Ok)
}
