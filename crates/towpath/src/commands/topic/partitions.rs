//! `towpath topic partitions add`.

use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;

use crate::complete;
use crate::confirm::{Decision, confirm};
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Format, Report, Table};
use crate::session::Session;
use crate::units::plural;

/// The verbs of `topic partitions`.
#[derive(Debug, Subcommand)]
pub(crate) enum PartitionsCommand {
    /// Give a topic more partitions
    Add(AddArgs),
}

/// Flags of `topic partitions add`.
#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// The topic
    #[arg(add = ArgValueCompleter::new(complete::topics))]
    topic: String,
    /// How many more
    #[arg(value_parser = clap::value_parser!(i32).range(1..), required_unless_present = "to")]
    count: Option<i32>,
    /// How many there shall be in the end, instead of how many more
    #[arg(long, value_name = "TOTAL", conflicts_with = "count")]
    to: Option<i32>,
}

pub(crate) async fn run(session: &Session, command: PartitionsCommand) -> Outcome {
    let PartitionsCommand::Add(args) = command;
    let topic = session.topic(&args.topic).await?;
    let before = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
    let total = args.to.unwrap_or_else(|| before.saturating_add(args.count.unwrap_or(0)));
    if total <= before {
        let message = format!("topic {:?} has {before} partitions already", args.topic);
        return Err(Failure::usage(message).with_help("partitions cannot be taken away"));
    }
    let what = format!(
        "raise {} from {} to {total}; keys then map to other partitions than before, so records of \
         one key that come later are not ordered behind those that are there",
        args.topic,
        plural(i64::from(before), "partition")
    );
    let decision = confirm(session, &what, &args.topic)?;
    session.admin.create_partitions(&args.topic, total, decision == Decision::SayOnly).await?;
    if decision == Decision::Go {
        session.say(format!("{} has {total} partitions", args.topic));
    }
    if matches!(session.global.output, Some(Format::Json | Format::Jsonl | Format::Tsv)) {
        let mut table = Table::new("topics", &["name", "partitions_before", "partitions"]);
        table.row(vec![args.topic.as_str().into(), before.into(), total.into()]);
        session.print(&Report::new().table(table))?;
    }
    Ok(Exit::Ok)
}
