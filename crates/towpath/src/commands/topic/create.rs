//! `towpath topic create`.

use std::collections::BTreeMap;

use clap::Args;
use towpath_client::{ErrorCode, NewTopic};

use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Cell, Format, Report, Table};
use crate::session::Session;
use crate::units::plural;

/// Flags of `topic create`.
#[derive(Debug, Args)]
#[command(after_help = "Example: towpath topic create orders -p 12 -c retention.ms=86400000")]
pub(crate) struct CreateArgs {
    /// The names
    #[arg(required = true)]
    topics: Vec<String>,
    /// How many partitions; the server's default if not given
    #[arg(short, long, value_parser = clap::value_parser!(i32).range(1..))]
    partitions: Option<i32>,
    /// How many replicas of each; the server's default if not given
    #[arg(short, long, alias = "replication-factor", value_parser = clap::value_parser!(i16).range(1..))]
    replicas: Option<i16>,
    /// Configuration; may be repeated
    #[arg(short, long = "config", value_name = "NAME=VALUE", value_parser = parse_config)]
    configs: Vec<(String, String)>,
    /// A topic that exists already is fine
    #[arg(long)]
    if_not_exists: bool,
}

fn parse_config(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

pub(crate) async fn run(session: &Session, args: &CreateArgs) -> Outcome {
    let configs: BTreeMap<String, String> = args.configs.iter().cloned().collect();
    let mut table = Table::new("created", &["name", "id", "partitions", "replicas"]);
    let dry_run = session.global.dry_run;
    for name in &args.topics {
        let new = NewTopic {
            name: name.clone(),
            partitions: args.partitions,
            replicas: args.replicas,
            configs: configs.clone(),
        };
        let created = match session.admin.create_topic(&new, dry_run).await {
            Ok(created) => created,
            Err(error) if error.code() == Some(ErrorCode::TopicAlreadyExists) => {
                if args.if_not_exists {
                    session.say(format!("{name} exists already"));
                    continue;
                }
                return Err(Failure::from(error).with_try(format!("towpath topic show {name}")));
            }
            Err(error) => return Err(error.into()),
        };
        let verb = if dry_run { "would create" } else { "created" };
        session.say(match created.partitions {
            n if n > 0 => format!("{verb} {name} with {}", plural(i64::from(n), "partition")),
            _ => format!("{verb} {name}"),
        });
        let id = (!created.id.is_zero()).then(|| created.id.to_string());
        table.row(vec![
            name.as_str().into(),
            Cell::or_none(id),
            Cell::or_none((created.partitions > 0).then_some(created.partitions)),
            Cell::or_none((created.replicas > 0).then_some(created.replicas)),
        ]);
    }
    if matches!(session.global.output, Some(Format::Json | Format::Jsonl | Format::Tsv)) {
        session.print(&Report::new().table(table))?;
    }
    Ok(Exit::Ok)
}
