//! `towpath queue create`.

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::{Settings, parse_setting};
use crate::broker_api::BrokerApi;
use crate::failure::{Exit, Outcome};
use crate::output::{Format, Report, Table};
use crate::session::Session;
use crate::units::{parse_duration, plural};

/// Flags of `queue create`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: towpath queue create orders --dlq orders-dead --receives 5 --visibility 2m"
)]
pub(crate) struct CreateArgs {
    /// The names
    #[arg(required = true)]
    queues: Vec<String>,
    /// Messages of a group keep their order, and one receiver at a time has them
    #[arg(long)]
    fifo: bool,
    /// How long a received message is hidden from others
    #[arg(long, value_parser = parse_duration, value_name = "DURATION")]
    visibility: Option<Duration>,
    /// Where messages go that cannot be worked; has to be a queue by the time they do
    #[arg(long, value_name = "QUEUE")]
    dlq: Option<String>,
    /// After so many receives they do
    #[arg(long, requires = "dlq", value_parser = clap::value_parser!(u32).range(1..))]
    receives: Option<u32>,
    /// How many partitions; one per broker, up to three, if not given
    #[arg(short, long, value_parser = clap::value_parser!(i32).range(1..))]
    partitions: Option<i32>,
    /// A setting, as `queue show` names them; may be repeated
    #[arg(short = 'c', long = "setting", value_name = "NAME=VALUE", value_parser = parse_setting)]
    settings: Vec<(String, Value)>,
    /// A queue that exists already is fine
    #[arg(long)]
    if_not_exists: bool,
}

pub(crate) async fn run(session: &Session, args: &CreateArgs) -> Outcome {
    let api = BrokerApi::of_any(session).await;
    let mut table = Table::new("created", &["name", "partitions", "fifo"]);
    for name in &args.queues {
        if session.global.dry_run {
            session.say(format!("would create {name}"));
            continue;
        }
        match api.create_queue(&body(args, name)).await {
            Ok(queue) => {
                let partitions = i64::try_from(queue.partitions).unwrap_or(i64::MAX);
                session.say(format!("created {name} with {}", plural(partitions, "partition")));
                let fifo = queue.is_fifo();
                table.row(vec![name.as_str().into(), queue.partitions.into(), fifo.into()]);
            }
            Err(failure) if failure.code == "TOPIC_EXISTS" && args.if_not_exists => {
                // A topic that is no queue would not be fine.
                api.queue(name).await?;
                session.say(format!("{name} exists already"));
            }
            Err(failure) if failure.code == "TOPIC_EXISTS" => {
                return Err(failure.with_try(format!("towpath queue show {name}")));
            }
            Err(failure) => return Err(failure),
        }
    }
    if matches!(session.global.output, Some(Format::Json | Format::Jsonl | Format::Tsv)) {
        session.print(&Report::new().table(table))?;
    }
    Ok(Exit::Ok)
}

fn body(args: &CreateArgs, name: &str) -> Value {
    let mut settings: Settings = args.settings.iter().cloned().collect();
    let mut say = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            settings.insert(name.to_owned(), value);
        }
    };
    say("fifo", args.fifo.then_some(Value::Bool(true)));
    let visibility =
        args.visibility.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    say("visibility_timeout_ms", visibility.map(Into::into));
    say("dead_letter_queue", args.dlq.clone().map(Into::into));
    say("dead_letter_receives", args.receives.map(Into::into));
    let mut body = json!({ "name": name, "settings": settings });
    if let Some(partitions) = args.partitions {
        body["partitions"] = partitions.into();
    }
    body
}
