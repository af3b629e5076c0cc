//! `towpath queue show`.

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use serde_json::Value;

use super::{Settings, age, count};
use crate::broker_api::BrokerApi;
use crate::complete;
use crate::failure::{Exit, Outcome};
use crate::output::{Cell, Report, Table};
use crate::queue_api::{QueueStats, ShownQueue};
use crate::session::Session;

/// Flags of `queue show`.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The queue
    #[arg(add = ArgValueCompleter::new(complete::queues))]
    queue: String,
}

pub(crate) async fn run(session: &Session, args: &ShowArgs) -> Outcome {
    let api = BrokerApi::of_any(session).await;
    let queue = api.queue(&args.queue).await?;
    let stats = api.queue_stats(&args.queue).await?;
    for notice in &stats.notices {
        session.say(&notice.message);
    }
    let missing = &stats.partitions_missing;
    if !missing.is_empty() {
        session.say(format!(
            "partitions {missing:?} could not be asked: what is in them is not counted"
        ));
    }
    session.print(&report(&queue, &stats))?;
    Ok(Exit::Ok)
}

fn report(queue: &ShownQueue, stats: &QueueStats) -> Report {
    Report::new()
        .field("name", queue.name.as_str())
        .field("partitions", queue.partitions)
        .field("ready", count(stats.ready))
        .field("in_flight", count(stats.in_flight))
        .field("delayed", count(stats.delayed))
        .field("moving", count(stats.moving))
        .field("dead", stats.dead.map_or_else(Cell::none, count))
        .field("oldest_seconds", age(stats.oldest_ms))
        .field("oldest_waiting_seconds", age(stats.oldest_waiting_ms))
        .field("receivers", count(stats.receivers))
        .field("arrivals_per_second", rate(stats.arrivals_per_second))
        .field("served_per_second", rate(stats.served_per_second))
        .field("processing_p50_ms", Cell::or_none(stats.processing_p50_ms))
        .field("processing_p99_ms", Cell::or_none(stats.processing_p99_ms))
        .field(
            "suggested_visibility_timeout_ms",
            Cell::or_none(stats.suggested_visibility_timeout_ms),
        )
        .table(settings_table(&queue.settings))
}

fn rate(per_second: f64) -> Cell {
    // More digits say nothing: it is the mean of a minute.
    ((per_second * 100.0).round() / 100.0).into()
}

pub(super) fn settings_table(settings: &Settings) -> Table {
    let mut table = Table::new("settings", &["setting", "value"]);
    for (name, value) in settings {
        let value = match value {
            Value::String(text) if text.is_empty() => Cell::none(),
            value => value.clone().into(),
        };
        table.row(vec![name.as_str().into(), value]);
    }
    table
}
