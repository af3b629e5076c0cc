//! `towpath queue purge`.

use clap::Args;
use clap_complete::engine::ArgValueCompleter;

use super::count;
use crate::broker_api::BrokerApi;
use crate::complete;
use crate::confirm::{Decision, confirm};
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Format, Report};
use crate::session::Session;
use crate::units::plural;

/// Flags of `queue purge`.
#[derive(Debug, Args)]
pub(crate) struct PurgeArgs {
    /// The queue
    #[arg(add = ArgValueCompleter::new(complete::queues))]
    queue: String,
}

pub(crate) async fn run(session: &Session, args: &PurgeArgs) -> Outcome {
    let api = BrokerApi::of_any(session).await;
    let name = &args.queue;
    let stats = api.queue_stats(name).await;
    let stats = stats.map_err(|failure| Failure { command: None, ..failure })?;
    let words = |messages: u64| plural(i64::try_from(messages).unwrap_or(i64::MAX), "message");
    let what = format!(
        "forget {} of {name}, {} of which are held by receivers",
        words(stats.depth()),
        stats.in_flight
    );
    let mut purged = stats.depth();
    if confirm(session, &what, name)? == Decision::Go {
        purged = api.purge_queue(name).await?;
        session.say(format!("forgot {} of {name}", words(purged)));
    }
    if matches!(session.global.output, Some(Format::Json | Format::Jsonl | Format::Tsv)) {
        let report = Report::new().field("queue", name.as_str()).field("purged", count(purged));
        session.print(&report)?;
    }
    Ok(Exit::Ok)
}
