//! `towpath node rm`.

use std::time::Duration;

use clap::Args;

use super::NodeNumber;
use crate::broker_api::BrokerApi;
use crate::confirm::{Decision, confirm};
use crate::failure::{Exit, Outcome};
use crate::output::{Format, Report, Table};
use crate::session::Session;

/// How long the voters of the metadata quorum may take to note it; the server answers before.
const PATIENCE: Duration = Duration::from_secs(40);

/// Flags of `node rm`.
#[derive(Debug, Args)]
#[command(after_help = "Drain it first: towpath node drain 3 --wait && towpath node rm 3")]
pub(crate) struct RmArgs {
    #[command(flatten)]
    node: NodeNumber,
}

pub(crate) async fn run(session: &Session, args: &RmArgs) -> Outcome {
    let number = args.node.node;
    let api = BrokerApi::of_any(session).await;
    let node = api.node(number).await?;
    let what = format!(
        "remove node {number} ({}) from the cluster; with its data directories it does not come back",
        node.state
    );
    if confirm(session, &what, &number.to_string())? == Decision::Go {
        api.with_patience(PATIENCE).remove(number).await?;
        session.say(format!(
            "removed node {number}: stop its process if it runs; its data directories can be deleted"
        ));
    }
    if matches!(session.global.output, Some(Format::Json | Format::Jsonl | Format::Tsv)) {
        let mut table = Table::new("removed", &["node"]);
        table.row(vec![number.into()]);
        session.print(&Report::new().table(table))?;
    }
    Ok(Exit::Ok)
}
