//! `towpath tail`: records as they arrive, from many topics, until it is interrupted.

use std::time::Duration;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use towpath_client::{Bound, FetchConfig, Reader};

use super::read::{Printer, explained};
use crate::complete;
use crate::failure::{Exit, Outcome};
use crate::record_format::{RecordFormat, parse_record_format};
use crate::session::{Session, partitions_of};
use crate::when::{When, parse_when};

/// Flags of `tail`.
#[derive(Debug, Args)]
pub(crate) struct TailArgs {
    /// The topics
    #[arg(required = true, add = ArgValueCompleter::new(complete::topics))]
    topics: Vec<String>,
    /// Where to begin: latest, earliest, offset:N, -15m, or a time in RFC 3339
    #[arg(long, default_value = "latest", value_parser = parse_when, allow_hyphen_values = true, value_name = "WHEN")]
    from: When,
    /// Begin so many records before the end of each partition
    #[arg(long, value_name = "N", conflicts_with = "from")]
    last: Option<u32>,
    /// Stop after so many records
    #[arg(short = 'n', long = "count", value_name = "N")]
    count: Option<u64>,
    /// How to print: %k %v %t %p %o %T %h
    #[arg(short, long, value_parser = parse_record_format, value_name = "FORMAT")]
    format: Option<RecordFormat>,
}

pub(crate) async fn run(session: &Session, args: TailArgs) -> Outcome {
    let topics = session.topics(&args.topics).await?;
    let partitions: Vec<_> = topics.iter().flat_map(|topic| partitions_of(topic)).collect();
    let from = match args.last {
        Some(records) => Bound::BeforeEnd(i64::from(records)),
        None => args.from.bound(),
    };
    let mut printer = Printer::for_tail(session, args.format, args.count, topics.len())?;
    let fetch = FetchConfig::default();
    let mut reader = Reader::open(&session.cluster, &partitions, from, Bound::Never, fetch).await?;
    session.say(format!("following {}; stop with Ctrl-C", args.topics.join(", ")));
    while printer.wants_more() {
        match reader.next(Duration::from_secs(1)).await {
            Ok(Some(records)) => _ = printer.print(&records)?,
            Ok(None) => break,
            Err(error) => return Err(explained(session, error, None).await),
        }
    }
    Ok(Exit::Ok)
}
