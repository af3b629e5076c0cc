//! `towpath queue`: one file per verb.

mod create;
mod ls;
mod purge;
mod rm;
mod set;
mod show;
mod why;

use std::collections::BTreeMap;

use clap::Subcommand;
use serde_json::Value;

use crate::failure::Outcome;
use crate::output::Cell;
use crate::session::Session;

/// The verbs of `queue`.
#[derive(Debug, Subcommand)]
pub(crate) enum QueueCommand {
    /// List queues, and how many messages are where
    #[command(alias = "list", alias = "get")]
    Ls(ls::LsArgs),
    /// Show one queue: what is in it, how it is worked, how it is configured
    #[command(alias = "describe", alias = "info")]
    Show(show::ShowArgs),
    /// Create queues
    #[command(alias = "add", alias = "new")]
    Create(create::CreateArgs),
    /// Change a queue's settings: NAME=VALUE, NAME- for the default
    #[command(alias = "alter", alias = "edit")]
    Set(set::SetArgs),
    /// Delete queues and everything in them
    #[command(alias = "delete", alias = "remove")]
    Rm(rm::RmArgs),
    /// Forget every message of a queue, held or not
    Purge(purge::PurgeArgs),
    /// Say in plain words why a queue does not move
    Why(why::WhyArgs),
}

pub(crate) async fn run(session: &Session, command: QueueCommand) -> Outcome {
    match command {
        QueueCommand::Ls(args) => ls::run(session, &args).await,
        QueueCommand::Show(args) => show::run(session, &args).await,
        QueueCommand::Create(args) => create::run(session, &args).await,
        QueueCommand::Set(args) => set::run(session, &args).await,
        QueueCommand::Rm(args) => rm::run(session, &args).await,
        QueueCommand::Purge(args) => purge::run(session, &args).await,
        QueueCommand::Why(args) => why::run(session, &args).await,
    }
}

/// A setting and its value, in the words of the HTTP API or of the topic's property.
fn parse_setting(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok((setting_name(name), Value::from(value)))
}

/// `queue.visibility.timeout.ms` and `visibility-timeout-ms` are `visibility_timeout_ms`.
fn setting_name(name: &str) -> String {
    name.strip_prefix("queue.").unwrap_or(name).replace(['.', '-'], "_")
}

/// Milliseconds in words.
pub(super) fn age(ms: Option<u64>) -> Cell {
    ms.map_or_else(Cell::none, |ms| Cell::seconds(ms as f64 / 1_000.0))
}

/// So many, of what cannot be less than none.
pub(super) fn count(count: u64) -> Cell {
    Cell::count(i64::try_from(count).unwrap_or(i64::MAX))
}

/// Settings by name, as a table's rows are made of them.
type Settings = BTreeMap<String, Value>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_known_by_the_topics_words_too() {
        let parsed =
            |text: &str| parse_setting(text).map(|(name, value)| (name, value.to_string()));
        let expected = ("visibility_timeout_ms".to_owned(), "\"5\"".to_owned());
        assert_eq!(parsed("visibility_timeout_ms=5").unwrap(), expected);
        assert_eq!(parsed("queue.visibility.timeout.ms=5").unwrap(), expected);
        assert!(parsed("fifo").is_err());
    }
}
