//! `towpath topic ls`.

use std::collections::BTreeMap;

use clap::Args;
use towpath_client::Topic;

use crate::failure::{Exit, Outcome};
use crate::output::{Cell, Report, Table};
use crate::session::{Session, partitions_of};

/// Flags of `topic ls`.
#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// Only names that begin with this
    prefix: Option<String>,
    /// Also topics that the server keeps for itself
    #[arg(short, long)]
    all: bool,
}

pub(crate) async fn run(session: &Session, args: &LsArgs) -> Outcome {
    let topics = session.admin.topics().await?;
    let prefix = args.prefix.as_deref().unwrap_or_default();
    let shown: Vec<_> = topics
        .values()
        .filter(|topic| args.all || !topic.is_internal)
        .filter(|topic| topic.name.starts_with(prefix))
        .collect();
    let is_led = |topic: &Topic| topic.partitions.iter().all(|p| p.leader.is_some());
    let places: Vec<_> =
        shown.iter().filter(|topic| is_led(topic)).flat_map(|topic| partitions_of(topic)).collect();
    let extents = session.extents(&places).await?;
    let bytes = session.stored_bytes(None).await?;
    let mut records_by_topic: BTreeMap<&str, i64> = BTreeMap::new();
    for (place, extent) in &extents {
        *records_by_topic.entry(&place.topic).or_default() += extent.records();
    }
    let mut table = Table::new("topics", &["name", "partitions", "replicas", "records", "bytes"]);
    for topic in shown {
        let replicas = topic.partitions.iter().map(|p| p.replicas.len()).min().unwrap_or(0);
        let stored: u64 =
            bytes.iter().filter(|(place, _)| place.topic == topic.name).map(|(_, b)| b).sum();
        table.row(vec![
            (*topic.name).into(),
            topic.partitions.len().into(),
            replicas.into(),
            records_by_topic.get(&*topic.name).map_or_else(Cell::none, |n| Cell::count(*n)),
            Cell::bytes(stored),
        ]);
    }
    session.print(&Report::new().table(table))?;
    Ok(Exit::Ok)
}
