//! `towpath dlq redrive`: brings dead letters back.

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use serde_json::json;

use super::filter::FilterArgs;
use super::{Pace, print_forecast};
use crate::broker_api::BrokerApi;
use crate::commands::task::{By, print, wait};
use crate::complete;
use crate::failure::Outcome;
use crate::session::Session;

/// Flags of `dlq redrive`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  towpath dlq redrive orders-dead --dry-run
  towpath dlq redrive orders-dead --reason too-many-receives --rate 50 --wait
  towpath dlq redrive orders-dead --header 'tenant=acme' --to orders-again")]
pub(crate) struct RedriveArgs {
    /// The queue that has them
    #[arg(add = ArgValueCompleter::new(complete::queues))]
    queue: String,
    /// To this queue; if not given, each message goes back to the queue that it came from
    #[arg(long, value_name = "QUEUE", add = ArgValueCompleter::new(complete::queues))]
    to: Option<String>,
    /// Leave messages alone that came back so often already
    #[arg(long, default_value_t = 3, value_name = "TIMES")]
    redrives_max: u32,
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    pace: Pace,
    #[command(flatten)]
    by: By,
}

pub(crate) async fn run(session: &Session, args: &RedriveArgs) -> Outcome {
    let order = json!({
        "to": args.to,
        "filter": args.filter.as_json(),
        "max": args.pace.max,
        "rate": args.pace.rate,
        "redrives_max": args.redrives_max,
        "by": args.by.name(),
    });
    let api = BrokerApi::of_any(session).await.with_patience(session.global.timeout);
    if session.global.dry_run {
        return print_forecast(session, &api.foresee_task(&args.queue, "redrive", &order).await?);
    }
    let mut task = api.start_task(&args.queue, "redrive", &order).await?;
    session.say(format!("task {} brings messages back from {}", task.id, args.queue));
    if args.pace.wait {
        task = wait(session, task, args.pace.wait_max).await?;
    }
    print(session, &task)
}
