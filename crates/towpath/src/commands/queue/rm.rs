//! `towpath queue rm`.

use clap::Args;
use clap_complete::engine::ArgValueCompleter;

use super::count;
use crate::broker_api::BrokerApi;
use crate::complete;
use crate::confirm::{Decision, confirm};
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Format, Report, Table};
use crate::session::Session;
use crate::units::plural;

/// Flags of `queue rm`.
#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// The queues
    #[arg(required = true, add = ArgValueCompleter::new(complete::queues))]
    queues: Vec<String>,
    /// A queue that does not exist is fine
    #[arg(long)]
    if_exists: bool,
}

pub(crate) async fn run(session: &Session, args: &RmArgs) -> Outcome {
    let api = BrokerApi::of_any(session).await;
    let mut table = Table::new("deleted", &["name", "messages"]);
    for name in &args.queues {
        let stats = match api.queue_stats(name).await {
            Err(failure) if args.if_exists && failure.code == "QUEUE_NOT_FOUND" => {
                session.say(format!("{name} does not exist"));
                continue;
            }
            // Creating it would be odd advice here.
            stats => stats.map_err(|failure| Failure { command: None, ..failure })?,
        };
        let depth = plural(i64::try_from(stats.depth()).unwrap_or(i64::MAX), "message");
        let what = format!("delete queue {name} with {depth}, and the log behind it");
        if confirm(session, &what, name)? == Decision::Go {
            api.delete_queue(name).await?;
            session.say(format!("deleted {name}"));
        }
        table.row(vec![name.as_str().into(), count(stats.depth())]);
    }
    if matches!(session.global.output, Some(Format::Json | Format::Jsonl | Format::Tsv)) {
        session.print(&Report::new().table(table))?;
    }
    Ok(Exit::Ok)
}
