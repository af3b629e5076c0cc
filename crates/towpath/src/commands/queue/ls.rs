//! `towpath queue ls`.

use clap::Args;

use super::{age, count};
use crate::broker_api::BrokerApi;
use crate::failure::{Exit, Outcome};
use crate::output::{Cell, Report, Table};
use crate::session::Session;

/// Flags of `queue ls`.
#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// Only names that begin with this
    prefix: Option<String>,
}

pub(crate) async fn run(session: &Session, args: &LsArgs) -> Outcome {
    let api = BrokerApi::of_any(session).await;
    let prefix = args.prefix.as_deref().unwrap_or_default();
    let mut queues = api.queues().await?;
    queues.retain(|queue| queue.name.starts_with(prefix));
    let names = queues.iter().map(|queue| queue.name.clone()).collect();
    let all = api.stats_of_each(names).await;
    let columns =
        ["name", "fifo", "ready", "in_flight", "delayed", "dead", "oldest_seconds", "receivers"];
    let mut table = Table::new("queues", &columns);
    for (queue, stats) in queues.iter().zip(all) {
        let mut row = vec![queue.name.as_str().into(), queue.fifo.into()];
        match stats {
            Ok(stats) => row.extend([
                count(stats.ready),
                count(stats.in_flight),
                count(stats.delayed),
                stats.dead.map_or_else(Cell::none, count),
                age(stats.oldest_ms),
                count(stats.receivers),
            ]),
            Err(failure) => {
                session.say(format!("{}: {}", queue.name, failure.message));
                row.resize_with(columns.len(), Cell::none);
            }
        }
        table.row(row);
    }
    session.print(&Report::new().table(table))?;
    Ok(Exit::Ok)
}
