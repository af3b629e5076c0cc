//! `towpath task ls`.

use clap::Args;

use super::count;
use crate::broker_api::BrokerApi;
use crate::failure::{Exit, Outcome};
use crate::output::{Cell, Report, Table};
use crate::session::Session;

/// Flags of `task ls`.
#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// Only tasks that take from this queue
    #[arg(long, value_name = "QUEUE")]
    source: Option<String>,
    /// Only tasks that stand so
    #[arg(long, value_parser = ["running", "paused", "cancelled", "done", "failed"])]
    state: Option<String>,
}

pub(crate) async fn run(session: &Session, args: &LsArgs) -> Outcome {
    let api = BrokerApi::of_any(session).await;
    let tasks = api.tasks(args.source.as_deref(), args.state.as_deref()).await?;
    let columns = ["id", "kind", "source", "destination", "state", "moved", "looked_at", "by"];
    let mut table = Table::new("tasks", &columns);
    for task in tasks {
        table.row(vec![
            task.id.into(),
            task.kind.into(),
            task.source.into(),
            Cell::or_none(task.destination),
            task.state.into(),
            count(task.moved),
            count(task.looked_at),
            task.by.into(),
        ]);
    }
    session.print(&Report::new().table(table))?;
    Ok(Exit::Ok)
}
