//! `towpath cluster upgrade`: which level of formats is in force, and which could be; raises it.

use clap::Args;

use crate::broker_api::BrokerApi;
use crate::confirm::{Decision, confirm};
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Cell, Report, Table};
use crate::session::Session;

/// Flags of `cluster upgrade`.
#[derive(Debug, Args)]
#[command(
    after_help = "Replace the program on every node, towpath cluster restart, look whether all is well; then --finalize."
)]
pub(crate) struct UpgradeArgs {
    /// Write the newest formats that every node reads; no node can go back to an older program then
    #[arg(long)]
    finalize: bool,
}

pub(crate) async fn run(session: &Session, args: &UpgradeArgs) -> Outcome {
    let api = BrokerApi::of_any(session).await;
    let cluster = api.cluster().await?;
    let (current, possible) = (cluster.format_level, cluster.format_level_max);
    let mut nodes = Table::new("nodes", &["node", "version", "format_level_max"]);
    for node in api.nodes().await? {
        let version = Cell::or_none(node.version);
        nodes.row(vec![node.node.into(), version, Cell::or_none(node.format_level_max)]);
    }
    let mut level = current;
    if args.finalize {
        if possible <= current {
            let message = format!(
                "format level {current} is in force, and not every node reads {}",
                current + 1
            );
            return Err(Failure::new(message).with_try("towpath cluster upgrade"));
        }
        let what = format!(
            "raise the format level from {current} to {possible}: nodes cannot go back to programs that do \
             not read it"
        );
        if confirm(session, &what, &possible.to_string())? == Decision::Go {
            level = api.raise_format_level(possible).await?;
            session.say(format!("format level {level} is in force"));
        }
    }
    let report =
        Report::new().field("format_level", level).field("format_level_max", possible).table(nodes);
    session.print(&report)?;
    Ok(Exit::Ok)
}
