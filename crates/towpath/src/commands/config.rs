//! `towpath config`: what the cluster or one broker is configured to do.

use clap::{Args, Subcommand};
use towpath_client::{BrokerId, ConfigChange, ConfigEntry, Resource};

use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Cell, Report, Table};
use crate::session::Session;

/// The verbs of `config`.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// List values and where they come from
    #[command(alias = "list", alias = "get", alias = "show")]
    Ls(LsArgs),
    /// Change values at run time: NAME=VALUE, NAME+=ITEM, NAME-=ITEM, NAME- for the default
    #[command(alias = "alter", alias = "edit")]
    Set(SetArgs),
}

/// Flags of `config ls`.
#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// One broker; if not given, the first of the cluster
    #[arg(long, value_name = "ID")]
    broker: Option<i32>,
    /// Only what differs from the default
    #[arg(long)]
    changed: bool,
    /// Also say what each value does
    #[arg(long)]
    explain: bool,
}

/// Flags of `config set`.
#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// One broker; if not given, all of them
    #[arg(long, value_name = "ID")]
    broker: Option<i32>,
    /// The changes
    #[arg(required = true, value_parser = parse_change, value_name = "NAME=VALUE", allow_hyphen_values = false)]
    changes: Vec<ConfigChange>,
}

/// Reads one change; the errors are for people.
pub(crate) fn parse_change(text: &str) -> Result<ConfigChange, String> {
    let invalid =
        || format!("{text:?} is no change: write NAME=VALUE, NAME+=ITEM, NAME-=ITEM or NAME-");
    let owned = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let Some((name, value)) = text.split_once('=') else {
        let name = text.strip_suffix('-').filter(|name| !name.is_empty()).ok_or_else(invalid)?;
        return Ok(ConfigChange::Reset(name.to_owned()));
    };
    let (change, name): (fn(String, String) -> ConfigChange, &str) =
        if let Some(name) = name.strip_suffix('+') {
            (ConfigChange::Append, name)
        } else if let Some(name) = name.strip_suffix('-') {
            (ConfigChange::Subtract, name)
        } else {
            (ConfigChange::Set, name)
        };
    if name.is_empty() {
        return Err(invalid());
    }
    let (name, value) = owned(name, value);
    Ok(change(name, value))
}

/// The change in words.
pub(crate) fn change_in_words(change: &ConfigChange) -> String {
    match change {
        ConfigChange::Set(name, value) => format!("{name} = {value}"),
        ConfigChange::Reset(name) => format!("{name} back to its default"),
        ConfigChange::Append(name, item) => format!("{name} with {item}"),
        ConfigChange::Subtract(name, item) => format!("{name} without {item}"),
    }
}

/// Rows of values, for this command and for topics.
pub(crate) fn config_table<'e>(entries: impl IntoIterator<Item = &'e ConfigEntry>) -> Table {
    let mut table = Table::new("configs", &["name", "value", "source"]);
    for entry in entries {
        table.row(vec![
            entry.name.as_str().into(),
            Cell::or_none(entry.value.clone()),
            entry.source.words().into(),
        ]);
    }
    table
}

pub(crate) async fn run(session: &Session, command: ConfigCommand) -> Outcome {
    match command {
        ConfigCommand::Ls(args) => ls(session, &args).await,
        ConfigCommand::Set(args) => set(session, &args).await,
    }
}

async fn ls(session: &Session, args: &LsArgs) -> Outcome {
    let first = session.cluster.image().brokers.keys().next().copied();
    let broker = args.broker.map(BrokerId).or(first);
    let broker = broker.ok_or_else(|| Failure::new("the cluster lists no broker"))?;
    let mut entries = session.admin.configs(&Resource::Broker(broker), args.explain).await?;
    if args.changed {
        entries.retain(|entry| entry.source != towpath_client::ConfigSource::Default);
    }
    if !args.explain {
        return session.print(&Report::new().table(config_table(&entries))).map(|()| Exit::Ok);
    }
    let mut table = Table::new("configs", &["name", "value", "source", "documentation"]);
    for entry in &entries {
        table.row(vec![
            entry.name.as_str().into(),
            Cell::or_none(entry.value.clone()),
            entry.source.words().into(),
            Cell::or_none(entry.documentation.clone()),
        ]);
    }
    session.print(&Report::new().table(table)).map(|()| Exit::Ok)
}

async fn set(session: &Session, args: &SetArgs) -> Outcome {
    let resource = args.broker.map_or(Resource::Cluster, |id| Resource::Broker(BrokerId(id)));
    let dry_run = session.global.dry_run;
    session.admin.alter_configs(&resource, &args.changes, dry_run).await?;
    for change in &args.changes {
        let verb = if dry_run { "would set" } else { "set" };
        session.say(format!("{verb} {}", change_in_words(change)));
    }
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_read_in_all_four_forms() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        for (text, expected) in [
            ("a=b=c", {
                let (n, v) = pair("a", "b=c");
                ConfigChange::Set(n, v)
            }),
            ("a+=x", {
                let (n, v) = pair("a", "x");
                ConfigChange::Append(n, v)
            }),
            ("a-=x", {
                let (n, v) = pair("a", "x");
                ConfigChange::Subtract(n, v)
            }),
            ("a-", ConfigChange::Reset("a".to_owned())),
            ("a=", {
                let (n, v) = pair("a", "");
                ConfigChange::Set(n, v)
            }),
        ] {
            assert_eq!(parse_change(text), Ok(expected), "{text}");
        }
        for text in ["a", "=b", "-", "+=x"] {
            assert!(parse_change(text).is_err(), "{text}");
        }
    }
}
