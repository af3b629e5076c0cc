//! `towpath dlq`: one file per verb.

mod drop;
mod filter;
mod ls;
mod redrive;

use std::time::Duration;

use clap::{Args, Subcommand};

use crate::failure::{Exit, Outcome};
use crate::output::{Cell, Report, Table};
use crate::session::Session;
use crate::task_api::Forecast;
use crate::units::parse_duration;

/// The verbs of `dlq`.
#[derive(Debug, Subcommand)]
pub(crate) enum DlqCommand {
    /// List dead-letter queues: whose they are, how many messages they have, how old the oldest is
    #[command(alias = "list", alias = "get")]
    Ls(ls::LsArgs),
    /// Bring messages back to the queues that they came from, or to another one
    #[command(alias = "replay")]
    Redrive(redrive::RedriveArgs),
    /// Drop messages for good
    #[command(alias = "rm", alias = "delete")]
    Drop(drop::DropArgs),
}

pub(crate) async fn run(session: &Session, command: DlqCommand) -> Outcome {
    match command {
        DlqCommand::Ls(args) => ls::run(session, &args).await,
        DlqCommand::Redrive(args) => redrive::run(session, &args).await,
        DlqCommand::Drop(args) => drop::run(session, &args).await,
    }
}

/// How fast, and how long it is waited for.
#[derive(Debug, Args)]
struct Pace {
    /// No more than so many messages
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    max: Option<u64>,
    /// No more than so many messages per second; as fast as it goes if not given
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    /// Wait until it is over; say how far it is
    #[arg(short, long)]
    wait: bool,
    /// Wait no longer than this; what was ordered goes on
    #[arg(long, requires = "wait", value_parser = parse_duration, value_name = "DURATION")]
    wait_max: Option<Duration>,
}

/// Prints what a task would do.
fn print_forecast(session: &Session, forecast: &Forecast) -> Outcome {
    let Forecast { would_move, looked_at, passed_over, guarded, stranded, .. } = *forecast;
    let mut examples =
        Table::new("examples", &["id", "sent_ms", "reason", "source", "group", "value"]);
    for message in &forecast.examples {
        examples.row(vec![
            message.id.as_str().into(),
            message.sent_ms.into(),
            Cell::or_none(message.header("towpath-dead-reason")),
            Cell::or_none(message.header("towpath-dead-source")),
            Cell::or_none(message.group.as_deref()),
            Cell::or_none(message.value.as_deref()),
        ]);
    }
    let report = Report::new()
        .field("would_move", would_move)
        .field("looked_at", looked_at)
        .field("passed_over", passed_over)
        .field("guarded", guarded)
        .field("stranded", stranded)
        .field("complete", forecast.complete)
        .table(examples);
    session.print(&report)?;
    Ok(Exit::Ok)
}
