//! `towpath dlq ls`: queues to which others send their dead letters.

use std::collections::BTreeMap;

use clap::Args;

use crate::broker_api::BrokerApi;
use crate::failure::{Exit, Outcome};
use crate::output::{Cell, Report, Table};
use crate::session::Session;

/// Flags of `dlq ls`.
#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// Only names that begin with this
    prefix: Option<String>,
}

pub(crate) async fn run(session: &Session, args: &LsArgs) -> Outcome {
    let api = BrokerApi::of_any(session).await;
    let queues = api.queues().await?;
    let mut sources: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for queue in &queues {
        if let Some(dead) = queue.dead_letter_queue() {
            sources.entry(dead).or_default().push(&queue.name);
        }
    }
    let prefix = args.prefix.as_deref().unwrap_or_default();
    let columns = ["queue", "sources", "ready", "in_flight", "moving", "oldest_seconds"];
    let mut table = Table::new("queues", &columns);
    let mut missing = Vec::new();
    for (name, sources) in sources.into_iter().filter(|(name, _)| name.starts_with(prefix)) {
        if !queues.iter().any(|queue| queue.name == name) {
            missing.push(format!("{name}, which {} names", sources.join(", ")));
            continue;
        }
        let stats = api.queue_stats(name).await?;
        let count = |count: u64| Cell::count(i64::try_from(count).unwrap_or(i64::MAX));
        table.row(vec![
            name.into(),
            Cell::list(sources),
            count(stats.ready),
            count(stats.in_flight),
            count(stats.moving),
            Cell::or_none(stats.oldest_ms.map(|ms| Cell::seconds(ms as f64 / 1000.0))),
        ]);
    }
    session.print(&Report::new().table(table))?;
    for name in missing {
        session.say(format!("there is no queue {name}: dead letters wait for it"));
    }
    Ok(Exit::Ok)
}
