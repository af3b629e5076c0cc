//! `towpath cluster moves`: replicas that come and go, and how much is left to copy.

use clap::Args;

use crate::broker_api::BrokerApi;
use crate::cluster_api::Move;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Cell, Report, Table};
use crate::session::Session;

/// Flags of `cluster moves`.
#[derive(Debug, Args)]
#[command(after_help = "Example: towpath cluster moves --cancel orders:3")]
pub(crate) struct MovesArgs {
    /// Take this move back: the replicas stay where they were
    #[arg(long, value_name = "TOPIC:PARTITION", value_parser = parse_partition)]
    cancel: Option<(String, i32)>,
}

pub(crate) async fn run(session: &Session, args: &MovesArgs) -> Outcome {
    let api = BrokerApi::of_any(session).await;
    if let Some((topic, partition)) = &args.cancel {
        return cancel(session, &api, topic, *partition).await;
    }
    session.print(&Report::new().table(table(&api.moves().await?)))?;
    Ok(Exit::Ok)
}

async fn cancel(session: &Session, api: &BrokerApi, topic: &str, partition: i32) -> Outcome {
    if session.global.dry_run {
        session.say(format!("would take back the move of partition {partition} of {topic}"));
        return Ok(Exit::Ok);
    }
    api.cancel_move(topic, partition).await?;
    session.say(format!("partition {partition} of {topic} stays where it was"));
    Ok(Exit::Ok)
}

/// A row for each replica that comes, or for each partition where replicas only go.
fn table(moves: &[Move]) -> Table {
    let columns = [
        "topic",
        "partition",
        "leader",
        "replicas",
        "adding",
        "removing",
        "records_left",
        "bytes_left",
    ];
    let mut table = Table::new("moves", &columns);
    for moving in moves {
        let mut row = |adding: Cell, records_left: Cell, bytes_left: Cell| {
            table.row(vec![
                moving.topic.as_str().into(),
                moving.partition.into(),
                Cell::or_none(moving.leader),
                Cell::list(moving.replicas.iter().copied()),
                adding,
                Cell::list(moving.removing.iter().copied()),
                records_left,
                bytes_left,
            ]);
        };
        if moving.adding.is_empty() {
            row(Cell::none(), Cell::none(), Cell::none());
        }
        for coming in &moving.adding {
            let bytes = coming.bytes_left.map_or_else(Cell::none, Cell::bytes);
            row(coming.node.into(), Cell::or_none(coming.records_left), bytes);
        }
    }
    table
}

/// `TOPIC:PARTITION`, as a person types it.
pub(crate) fn parse_partition(text: &str) -> Result<(String, i32), String> {
    let parsed = text.rsplit_once(':').and_then(|(topic, partition)| {
        let partition: i32 = partition.parse().ok().filter(|partition| 0 <= *partition)?;
        (!topic.is_empty()).then(|| (topic.to_owned(), partition))
    });
    parsed.ok_or_else(|| "write TOPIC:PARTITION, such as orders:3".to_owned())
}

/// What is left of these moves, in bytes; what leaders do not tell counts as nothing.
pub(super) fn bytes_left(moves: &[Move]) -> u64 {
    moves.iter().flat_map(|moving| &moving.adding).filter_map(|coming| coming.bytes_left).sum()
}

/// A step of something long did not come to its end in time.
pub(super) fn timed_out(what: impl Into<String>) -> Failure {
    Failure { code: "TIMED_OUT".to_owned(), ..Failure::new(what) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_named_as_people_type_them() {
        assert_eq!(parse_partition("orders:3"), Ok(("orders".to_owned(), 3)));
        for wrong in ["orders", ":3", "orders:", "orders:-1", "orders:x"] {
            assert!(parse_partition(wrong).is_err(), "{wrong}");
        }
    }
}
