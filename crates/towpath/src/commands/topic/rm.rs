//! `towpath topic rm`.

use clap::Args;
use clap_complete::engine::ArgValueCompleter;

use crate::complete;
use crate::confirm::{Decision, confirm};
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Cell, Format, Report, Table};
use crate::session::{Session, partitions_of};
use crate::units::{bytes_in_words, plural};

/// Flags of `topic rm`.
#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// The topics
    #[arg(required = true, add = ArgValueCompleter::new(complete::topics))]
    topics: Vec<String>,
    /// A topic that does not exist is fine
    #[arg(long)]
    if_exists: bool,
}

pub(crate) async fn run(session: &Session, args: &RmArgs) -> Outcome {
    let mut table = Table::new("deleted", &["name", "records", "bytes"]);
    for name in &args.topics {
        let topic = match session.topic(name).await {
            Err(failure) if args.if_exists && failure.code == "UNKNOWN_TOPIC" => {
                session.say(format!("{name} does not exist"));
                continue;
            }
            // Creating it would be odd advice here.
            topic => topic.map_err(|failure| Failure { command: None, ..failure })?,
        };
        let extents = session.extents(&partitions_of(&topic)).await?;
        let records: i64 = extents.values().map(|extent| extent.records()).sum();
        let bytes: u64 = session.stored_bytes(Some(name)).await?.values().sum();
        let readers = readers(session, name).await?;
        let mut what = format!(
            "delete topic {name} with {} ({})",
            plural(records, "record"),
            bytes_in_words(bytes)
        );
        if !readers.is_empty() {
            what += &format!(", which {} read", readers.join(", "));
        }
        if confirm(session, &what, name)? == Decision::Go {
            session.admin.delete_topic(name).await?;
            session.say(format!("deleted {name}"));
        }
        table.row(vec![name.as_str().into(), Cell::count(records), Cell::bytes(bytes)]);
    }
    if matches!(session.global.output, Some(Format::Json | Format::Jsonl | Format::Tsv)) {
        session.print(&Report::new().table(table))?;
    }
    Ok(Exit::Ok)
}

/// Groups that have committed in the topic. Looking at very many would take too long.
async fn readers(session: &Session, topic: &str) -> Outcome<Vec<String>> {
    const GROUPS_MAX: usize = 100;
    let mut readers = Vec::new();
    for listing in session.admin.groups().await?.into_iter().take(GROUPS_MAX) {
        let offsets = session.admin.group_offsets(&listing.group).await?;
        if offsets.keys().any(|place| &*place.topic == topic) {
            readers.push(listing.group);
        }
    }
    Ok(readers)
}
