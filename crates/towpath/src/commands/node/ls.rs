//! `towpath node ls`.

use clap::Args;

use super::{part_of, seconds_since};
use crate::broker_api::BrokerApi;
use crate::failure::{Exit, Outcome};
use crate::output::{Cell, Report, Table};
use crate::session::Session;

/// Flags of `node ls`.
#[derive(Debug, Args)]
pub(crate) struct LsArgs {}

pub(crate) async fn run(session: &Session, _args: &LsArgs) -> Outcome {
    let columns = [
        "node",
        "state",
        "absent_seconds",
        "address",
        "rack",
        "metadata",
        "leads",
        "replicas",
        "out_of_sync",
        "stored_bytes",
        "version",
    ];
    let mut table = Table::new("nodes", &columns);
    for node in BrokerApi::of_any(session).await.nodes().await? {
        table.row(vec![
            node.node.into(),
            node.state.as_str().into(),
            seconds_since(node.absent_since),
            Cell::or_none(node.addresses.get("kafka").cloned()),
            Cell::or_none(node.rack.clone()),
            part_of(&node),
            node.partitions_led.into(),
            node.replicas.into(),
            node.replicas_out_of_sync.into(),
            node.stored_bytes.map_or_else(Cell::none, Cell::bytes),
            Cell::or_none(node.version),
        ]);
    }
    session.print(&Report::new().table(table))?;
    Ok(Exit::Ok)
}
