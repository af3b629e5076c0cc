//! `towpath queue set`.

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use serde_json::Value;

use super::show::settings_table;
use super::{Settings, parse_setting, setting_name};
use crate::broker_api::BrokerApi;
use crate::complete;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Format, Report};
use crate::session::Session;
use crate::suggest::closest;

/// Flags of `queue set`.
#[derive(Debug, Args)]
#[command(after_help = "Example: towpath queue set orders visibility_timeout_ms=120000 delay_ms-")]
pub(crate) struct SetArgs {
    /// The queue
    #[arg(add = ArgValueCompleter::new(complete::queues))]
    queue: String,
    /// The changes
    #[arg(required = true, value_parser = parse_change, value_name = "NAME=VALUE")]
    changes: Vec<(String, Value)>,
}

/// `NAME-` brings the default back.
fn parse_change(text: &str) -> Result<(String, Value), String> {
    match text.strip_suffix('-').filter(|name| !name.is_empty() && !name.contains('=')) {
        Some(name) => Ok((setting_name(name), Value::Null)),
        None => parse_setting(text),
    }
}

pub(crate) async fn run(session: &Session, args: &SetArgs) -> Outcome {
    let api = BrokerApi::of_any(session).await;
    let changes: Settings = args.changes.iter().cloned().collect();
    let before = api.queue(&args.queue).await?;
    let known = || before.settings.keys().map(String::as_str);
    if let Some(slip) = changes.keys().find(|name| !before.settings.contains_key(*name)) {
        let failure = Failure {
            code: "INVALID_CONFIG".to_owned(),
            ..Failure::new(format!("a queue has no setting {slip}"))
        };
        return Err(match closest(slip, known()) {
            Some(meant) => failure.with_help(format!("did you mean {meant}?")),
            None => failure
                .with_help(format!("settings are {}", known().collect::<Vec<_>>().join(", "))),
        });
    }
    let verb = if session.global.dry_run { "would set" } else { "set" };
    let after = match session.global.dry_run {
        true => before,
        false => api.set_queue(&args.queue, &changes).await?,
    };
    for (name, value) in &changes {
        let words = match value {
            Value::Null => format!("{name} to its default"),
            Value::String(text) => format!("{name} to {text}"),
            value => format!("{name} to {value}"),
        };
        session.say(format!("{verb} {words} of {}", args.queue));
    }
    if matches!(session.global.output, Some(Format::Json | Format::Jsonl | Format::Tsv)) {
        let mut shown = after.settings;
        shown.retain(|name, _| changes.contains_key(name));
        session.print(&Report::new().table(settings_table(&shown)))?;
    }
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_sets_or_takes_back() {
        assert_eq!(parse_change("delay_ms-").unwrap(), ("delay_ms".to_owned(), Value::Null));
        assert_eq!(parse_change("queue.delay.ms=5-").unwrap().1, Value::from("5-"));
        assert!(parse_change("delay_ms").is_err() && parse_change("-").is_err());
    }
}
