//! `towpath cluster losses`: what operators have given up, newest first.

use clap::Args;

use crate::broker_api::BrokerApi;
use crate::cluster_api::AcceptedLoss;
use crate::failure::{Exit, Outcome};
use crate::output::{Report, Table};
use crate::session::Session;

/// Flags of `cluster losses`.
#[derive(Debug, Args)]
pub(crate) struct LossesArgs {}

pub(crate) async fn run(session: &Session, _args: &LossesArgs) -> Outcome {
    let losses = BrokerApi::of_any(session).await.accepted_losses().await?;
    session.print(&Report::new().table(losses_table("losses", &losses)))?;
    Ok(Exit::Ok)
}

/// Losses, a row each.
pub(crate) fn losses_table(name: &'static str, losses: &[AcceptedLoss]) -> Table {
    let columns =
        ["topic", "partition", "node", "leader_epoch", "lost_from", "resume_at", "at", "by"];
    let mut table = Table::new(name, &columns);
    for loss in losses {
        table.row(vec![
            loss.topic.as_str().into(),
            loss.partition.into(),
            loss.node.into(),
            loss.leader_epoch.into(),
            loss.lost_from.into(),
            loss.resume_at.into(),
            loss.at.into(),
            loss.by.as_str().into(),
        ]);
    }
    table
}
