//! `towpath dlq drop`: drops messages for good, and says first how many.

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use serde_json::json;

use super::filter::FilterArgs;
use super::{Pace, print_forecast};
use crate::broker_api::BrokerApi;
use crate::commands::task::{By, print, wait};
use crate::complete;
use crate::confirm::{Decision, confirm};
use crate::failure::{Exit, Outcome};
use crate::session::Session;
use crate::units::plural;

/// Flags of `dlq drop`.
#[derive(Debug, Args)]
#[command(after_help = "Example: towpath dlq drop orders-dead --dead-before -30d --dry-run")]
pub(crate) struct DropArgs {
    /// The queue that has them
    #[arg(add = ArgValueCompleter::new(complete::queues))]
    queue: String,
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    pace: Pace,
    #[command(flatten)]
    by: By,
}

pub(crate) async fn run(session: &Session, args: &DropArgs) -> Outcome {
    let order = json!({
        "filter": args.filter.as_json(),
        "max": args.pace.max,
        "rate": args.pace.rate,
        "by": args.by.name(),
    });
    let api = BrokerApi::of_any(session).await.with_patience(session.global.timeout);
    let forecast = api.foresee_task(&args.queue, "drop", &order).await?;
    let least = if forecast.complete { "" } else { "at least " };
    let many = plural(i64::try_from(forecast.would_move).unwrap_or(i64::MAX), "message");
    let what = format!("drop {least}{many} of {}, for good", args.queue);
    if session.global.dry_run {
        print_forecast(session, &forecast)?;
    }
    if confirm(session, &what, &args.queue)? == Decision::SayOnly {
        return Ok(Exit::Ok);
    }
    let mut task = api.start_task(&args.queue, "drop", &order).await?;
    if args.pace.wait {
        task = wait(session, task, args.pace.wait_max).await?;
    }
    print(session, &task)
}
