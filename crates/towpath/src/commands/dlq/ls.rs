//! `towpath dlq ls`: queues to which others send their dead letters.

use std::collections::BTreeMap;

use clap::Args;

use crate::broker_api::BrokerApi;
use crate::commands::queue::{age, count};
use crate::failure::{Exit, Outcome};
use crate::output::{Cell, Report, Table};
use crate::queue_api::{LOOK_MAX, PeekedMessage};
use crate::session::Session;

/// Flags of `dlq ls`.
#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// Only names that begin with this
    prefix: Option<String>,
    /// End with 5 when there are dead letters
    #[arg(long)]
    check: bool,
}

/// The header that says why a message is a dead letter.
const REASON: &str = "towpath-dead-reason";

pub(crate) async fn run(session: &Session, args: &LsArgs) -> Outcome {
    let api = BrokerApi::of_any(session).await;
    let names = api.queues().await?.into_iter().map(|queue| queue.name).collect();
    let queues = api.each_queue(names).await.into_iter().collect::<Outcome<Vec<_>>>()?;
    let mut sources: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for queue in &queues {
        if let Some(dead) = queue.dead_letter_queue() {
            sources.entry(dead).or_default().push(&queue.name);
        }
    }
    let prefix = args.prefix.as_deref().unwrap_or_default();
    let columns = ["queue", "sources", "ready", "in_flight", "moving", "oldest_seconds", "reasons"];
    let mut table = Table::new("queues", &columns);
    let (mut missing, mut dead_letters) = (Vec::new(), 0);
    for (name, sources) in sources.into_iter().filter(|(name, _)| name.starts_with(prefix)) {
        if !queues.iter().any(|queue| queue.name == name) {
            missing.push(format!("{name}, which {} names", sources.join(", ")));
            continue;
        }
        let stats = api.queue_stats(name).await?;
        let seen = api.peek(name, None, LOOK_MAX).await?;
        dead_letters += stats.depth();
        table.row(vec![
            name.into(),
            Cell::list(sources),
            count(stats.ready),
            count(stats.in_flight),
            count(stats.moving),
            age(stats.oldest_ms),
            Cell::list(reasons(&seen.messages)),
        ]);
    }
    session.print(&Report::new().table(table))?;
    for name in missing {
        session.say(format!("there is no queue {name}: dead letters wait for it"));
    }
    Ok(if args.check && 0 < dead_letters { Exit::CheckHolds } else { Exit::Ok })
}

/// Why they are there, with how many of those looked at.
fn reasons(messages: &[PeekedMessage]) -> Vec<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for message in messages {
        *counts.entry(message.header(REASON).unwrap_or("sent")).or_default() += 1;
    }
    counts.into_iter().map(|(reason, count)| format!("{reason}:{count}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue_api::PeekedHeader;

    #[test]
    fn reasons_are_counted_and_what_has_none_was_sent_there() {
        let header =
            |value: &str| PeekedHeader { name: REASON.to_owned(), value: Some(value.to_owned()) };
        let with = |headers| PeekedMessage { headers, ..PeekedMessage::default() };
        let seen = [with(vec![header("rejected")]), with(vec![]), with(vec![header("rejected")])];
        assert_eq!(reasons(&seen), ["rejected:2", "sent:1"]);
    }
}
