//! `towpath peek`: look at the messages of a queue without taking any.

use clap::{Args, ValueEnum};
use clap_complete::engine::ArgValueCompleter;

use crate::broker_api::BrokerApi;
use crate::commands::queue::age;
use crate::complete;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Cell, Format, Report, Table};
use crate::queue_api::{LOOK_MAX, PeekedMessage};
use crate::session::Session;

/// The headers that a dead letter has.
const SOURCE: &str = "towpath-dead-source";
const REASON: &str = "towpath-dead-reason";
const NOTE: &str = "towpath-dead-note";
/// Letters of a value in a table.
const LETTERS_MAX: usize = 60;

/// Flags of `peek`.
#[derive(Debug, Args)]
#[command(after_help = "Example: towpath peek orders --state held")]
pub(crate) struct PeekArgs {
    /// The queue
    #[arg(add = ArgValueCompleter::new(complete::queues))]
    queue: String,
    /// Only messages in this state
    #[arg(long, value_enum)]
    state: Option<StateWord>,
    /// Most messages
    #[arg(short = 'n', long, default_value_t = 20, value_name = "COUNT")]
    count: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StateWord {
    /// Can be received, or wait for an earlier one of their group
    Ready,
    /// Somebody has them
    #[value(alias = "inflight")]
    Held,
    /// Are not delivered yet
    Delayed,
    /// Go to another queue
    Moving,
    /// Lie in the queue's dead-letter queue
    Dead,
}

impl StateWord {
    fn word(self) -> Option<&'static str> {
        match self {
            StateWord::Ready => Some("ready"),
            StateWord::Held => Some("held"),
            StateWord::Delayed => Some("delayed"),
            StateWord::Moving => Some("moving"),
            StateWord::Dead => None,
        }
    }
}

pub(crate) async fn run(session: &Session, args: &PeekArgs) -> Outcome {
    let api = BrokerApi::of_any(session).await;
    if args.state == Some(StateWord::Dead) {
        let seen = dead_letters(session, &api, args).await?;
        session.print(&Report::new().table(dead_table(&seen, session.format())))?;
        return Ok(Exit::Ok);
    }
    let state = args.state.and_then(StateWord::word);
    let seen = api.peek(&args.queue, state, args.count).await?;
    if !seen.partitions_missing.is_empty() {
        let missing = &seen.partitions_missing;
        session.say(format!("partitions {missing:?} could not be looked into"));
    }
    if seen.next.is_some() {
        session.say(format!("there may be more than {}: -n shows more", args.count));
    }
    session.print(&Report::new().table(table(&seen.messages, session.format())))?;
    Ok(Exit::Ok)
}

/// What lies in the dead-letter queue and came from this one.
async fn dead_letters(
    session: &Session,
    api: &BrokerApi,
    args: &PeekArgs,
) -> Outcome<Vec<PeekedMessage>> {
    let queue = api.queue(&args.queue).await?;
    let Some(dead) = queue.dead_letter_queue() else {
        let failure = Failure::new(format!("queue {:?} has no dead-letter queue", args.queue));
        return Err(
            failure.with_try(format!("towpath queue set {} dead_letter_queue=NAME", args.queue))
        );
    };
    // Others may send there as well.
    let seen = api.peek(dead, None, LOOK_MAX.max(args.count)).await?;
    let mut found = seen.messages;
    found.retain(|message| message.header(SOURCE).is_none_or(|source| source == args.queue));
    if args.count < found.len() || seen.next.is_some() {
        session.say(format!("there may be more than {}: towpath peek {dead}", args.count));
    }
    found.truncate(args.count);
    Ok(found)
}

fn table(messages: &[PeekedMessage], format: Format) -> Table {
    let columns = [
        "id",
        "state",
        "age_seconds",
        "receives",
        "holder",
        "held_seconds",
        "left_seconds",
        "group",
        "value",
    ];
    let mut table = Table::new("messages", &columns);
    for message in messages {
        table.row(vec![
            message.id.as_str().into(),
            message.state.as_str().into(),
            age(Some(message.age_ms)),
            message.receives.into(),
            Cell::or_none(message.holder.clone()),
            age(message.held_ms),
            age(message.left_ms),
            Cell::or_none(message.group.clone()),
            value(message, format),
        ]);
    }
    table
}

fn dead_table(messages: &[PeekedMessage], format: Format) -> Table {
    let columns = ["id", "age_seconds", "source", "reason", "note", "group", "value"];
    let mut table = Table::new("messages", &columns);
    for message in messages {
        let header = |name| Cell::or_none(message.header(name).map(str::to_owned));
        table.row(vec![
            message.id.as_str().into(),
            age(Some(message.age_ms)),
            header(SOURCE),
            header(REASON),
            header(NOTE),
            Cell::or_none(message.group.clone()),
            value(message, format),
        ]);
    }
    table
}

/// The value; people get its beginning on one line.
fn value(message: &PeekedMessage, format: Format) -> Cell {
    match &message.value {
        None => Cell::none(),
        Some(value) if format == Format::Table => shortened(value).into(),
        Some(value) => value.as_str().into(),
    }
}

fn shortened(value: &str) -> String {
    let line: String = value.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match line.char_indices().nth(LETTERS_MAX) {
        None => line,
        Some((end, _)) => format!("{}…", &line[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_one_short_line_for_people() {
        assert_eq!(shortened("a\nb\tc"), "a b c");
        let long = "ü".repeat(100);
        assert_eq!(shortened(&long), format!("{}…", "ü".repeat(60)));
    }
}
