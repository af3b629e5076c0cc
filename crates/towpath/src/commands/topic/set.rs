//! `towpath topic set`.

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use towpath_client::{ConfigChange, ErrorCode, Resource};

use crate::commands::config::{change_in_words, config_table, parse_change};
use crate::complete;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Format, Report};
use crate::session::Session;
use crate::suggest::closest;

/// Flags of `topic set`.
#[derive(Debug, Args)]
#[command(after_help = "Example: towpath topic set orders retention.ms=3600000 cleanup.policy-")]
pub(crate) struct SetArgs {
    /// The topic
    #[arg(add = ArgValueCompleter::new(complete::topics))]
    topic: String,
    /// The changes
    #[arg(required = true, value_parser = parse_change, value_name = "NAME=VALUE")]
    changes: Vec<ConfigChange>,
}

pub(crate) async fn run(session: &Session, args: &SetArgs) -> Outcome {
    session.topic(&args.topic).await?;
    let resource = Resource::Topic(args.topic.clone());
    let dry_run = session.global.dry_run;
    if let Err(error) = session.admin.alter_configs(&resource, &args.changes, dry_run).await {
        return Err(explain(session, &resource, &args.changes, error).await);
    }
    for change in &args.changes {
        let verb = if dry_run { "would set" } else { "set" };
        session.say(format!("{verb} {} of {}", change_in_words(change), args.topic));
    }
    if matches!(session.global.output, Some(Format::Json | Format::Jsonl | Format::Tsv)) {
        let entries = session.admin.configs(&resource, false).await?;
        let changed = entries.iter().filter(|e| args.changes.iter().any(|c| name(c) == e.name));
        session.print(&Report::new().table(config_table(changed)))?;
    }
    Ok(Exit::Ok)
}

fn name(change: &ConfigChange) -> &str {
    match change {
        ConfigChange::Set(name, _)
        | ConfigChange::Reset(name)
        | ConfigChange::Append(name, _)
        | ConfigChange::Subtract(name, _) => name,
    }
}

/// A refused name may be a slip of a known one.
async fn explain(
    session: &Session,
    resource: &Resource,
    changes: &[ConfigChange],
    error: towpath_client::Error,
) -> Failure {
    let is_invalid =
        matches!(error.code(), Some(ErrorCode::InvalidConfig | ErrorCode::InvalidRequest));
    let failure = Failure::from(error);
    let Ok(known) = session.admin.configs(resource, false).await else { return failure };
    let slip = changes.iter().map(name).find(|name| known.iter().all(|entry| entry.name != *name));
    let meant = slip
        .filter(|_| is_invalid)
        .and_then(|slip| closest(slip, known.iter().map(|entry| entry.name.as_str())));
    match meant {
        Some(meant) => failure.with_help(format!("did you mean {meant}?")),
        None => failure,
    }
}
