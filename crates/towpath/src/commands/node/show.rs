//! `towpath node show`.

use clap::Args;

use super::{NodeNumber, part_of, seconds_since};
use crate::broker_api::BrokerApi;
use crate::cluster_api::{DataDirectory, Drain, Node};
use crate::failure::{Exit, Outcome};
use crate::output::{Cell, Report, Table};
use crate::session::Session;

/// Flags of `node show`.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    node: NodeNumber,
}

pub(crate) async fn run(session: &Session, args: &ShowArgs) -> Outcome {
    let node = BrokerApi::of_any(session).await.node(args.node.node).await?;
    session.print(&report(&node))?;
    if node.directories.is_none() && node.state != "absent" {
        session.say(format!(
            "node {} does not answer over HTTP: its version and its directories are not known",
            node.node
        ));
    }
    Ok(Exit::Ok)
}

/// Everything that is known of a node.
pub(super) fn report(node: &Node) -> Report {
    let mut addresses = Table::new("addresses", &["listener", "address"]);
    for (listener, address) in &node.addresses {
        addresses.row(vec![listener.as_str().into(), address.as_str().into()]);
    }
    fields(node)
        .table(addresses)
        .table(directories(node.directories.as_deref().unwrap_or_default()))
        .table(stuck(node.drain.as_ref()))
}

fn fields(node: &Node) -> Report {
    Report::new()
        .field("node", node.node)
        .field("state", node.state.as_str())
        .field("absent_seconds", seconds_since(node.absent_since))
        .field("role", node.role.as_str())
        .field("rack", Cell::or_none(node.rack.clone()))
        .field("metadata", part_of(node))
        .field("broker_epoch", node.broker_epoch)
        .field("leads", node.partitions_led)
        .field("replicas", node.replicas)
        .field("out_of_sync", node.replicas_out_of_sync)
        .field("stored_bytes", node.stored_bytes.map_or_else(Cell::none, Cell::bytes))
        .field("version", Cell::or_none(node.version.clone()))
        .field("format_level_max", Cell::or_none(node.format_level_max))
        .field("up_seconds", seconds_since(node.started_at))
}

fn directories(directories: &[DataDirectory]) -> Table {
    let columns = ["path", "state", "replicas", "stored_bytes", "free_bytes", "total_bytes"];
    let mut table = Table::new("directories", &[&columns[..], &["problem"]].concat());
    for directory in directories {
        table.row(vec![
            Cell::or_none(directory.path.clone()),
            directory.state.as_str().into(),
            directory.replicas.into(),
            Cell::bytes(directory.stored_bytes),
            directory.free_bytes.map_or_else(Cell::none, Cell::bytes),
            directory.total_bytes.map_or_else(Cell::none, Cell::bytes),
            Cell::or_none(directory.problem.clone()),
        ]);
    }
    table
}

/// What keeps a node from being emptied.
fn stuck(drain: Option<&Drain>) -> Table {
    let mut table = Table::new("cannot_leave", &["topic", "partitions", "replication_factor"]);
    for stuck in drain.iter().flat_map(|drain| &drain.stuck) {
        table.row(vec![
            stuck.topic.as_str().into(),
            stuck.partitions.into(),
            stuck.replication_factor.into(),
        ]);
    }
    table
}
