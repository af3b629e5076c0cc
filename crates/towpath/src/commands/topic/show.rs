//! `towpath topic show`: what a topic promises, in words, and what is in it.

use std::collections::BTreeMap;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use towpath_client::{ConfigEntry, LogDir, Partition, Resource, Topic, TopicPartition};

use crate::broker_api::{BrokerApi, Compaction, ShownPartition};
use crate::commands::config::config_table;
use crate::complete;
use crate::failure::{Exit, Outcome};
use crate::output::{Cell, Report, Table};
use crate::session::{Session, partitions_of, stored_bytes};
use crate::when::format_millis;

/// Flags of `topic show`.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The topic
    #[arg(add = ArgValueCompleter::new(complete::topics))]
    topic: String,
    /// The whole configuration, not only what was set on the topic
    #[arg(short, long)]
    all: bool,
}

pub(crate) async fn run(session: &Session, args: &ShowArgs) -> Outcome {
    let topic = session.topic(&args.topic).await?;
    let configs = session.admin.configs(&Resource::Topic(args.topic.clone()), false).await?;
    let led: Vec<_> = partitions_of(&topic)
        .into_iter()
        .filter(|place| topic.partition(place.partition).is_some_and(|p| p.is_served()))
        .collect();
    let extents = session.extents(&led).await?;
    let dirs = session.admin.log_dirs(Some(&args.topic)).await?;
    let bytes = stored_bytes(&dirs);
    // Brokers of others do not all tell.
    let eligible = session.admin.eligible_leaders(&args.topic).await.unwrap_or_default();
    let shown = shown_by_leaders(session, &topic).await;

    let columns = [
        "partition",
        "leader",
        "replicas",
        "in_sync",
        "eligible",
        "start_offset",
        "end_offset",
        "records",
        "bytes",
        "state",
    ];
    let mut partitions = Table::new("partitions", &columns);
    for partition in &topic.partitions {
        let place = TopicPartition { topic: topic.name.clone(), partition: partition.index };
        let extent = extents.get(&place).copied();
        partitions.row(vec![
            partition.index.0.into(),
            Cell::or_none(partition.leader.map(|id| id.0)),
            Cell::list(partition.replicas.iter().map(|id| id.0)),
            Cell::list(partition.in_sync.iter().map(|id| id.0)),
            Cell::list(eligible.get(&partition.index).into_iter().flatten().map(|id| id.0)),
            Cell::or_none(extent.map(|extent| extent.start.0)),
            Cell::or_none(extent.map(|extent| extent.end.0)),
            extent.map_or_else(Cell::none, |extent| Cell::count(extent.records())),
            bytes.get(&place).map_or_else(Cell::none, |bytes| Cell::bytes(*bytes)),
            state_in_words(partition, &place, &dirs).into(),
        ]);
    }
    let replicas = topic.partitions.iter().map(|p| p.replicas.len()).min().unwrap_or(0);
    let records: i64 = extents.values().map(|extent| extent.records()).sum();
    let id = (!topic.id.is_zero()).then(|| topic.id.to_string());
    let report = Report::new()
        .field("name", args.topic.as_str())
        .field("id", Cell::or_none(id))
        .field("partition_count", topic.partitions.len())
        .field("replicas", replicas)
        .field("records", Cell::count(records))
        .field("bytes", Cell::bytes(bytes.values().sum()))
        .field("durability", promise(&topic, &configs))
        .field("records_acks_0", weak(&shown, |partition| partition.records_acks_none))
        .field("records_acks_1", weak(&shown, |partition| partition.records_acks_leader))
        .table(partitions)
        .table(compaction_table(shown, &configs))
        .table(config_table(configs.iter().filter(|entry| args.all || entry.is_override())));
    session.print(&report)?;
    Ok(Exit::Ok)
}

/// What the leaders of a topic's partitions tell over HTTP; nothing of those that do not. Any broker asks
/// them.
async fn shown_by_leaders(session: &Session, topic: &Topic) -> Vec<ShownPartition> {
    let api = BrokerApi::of_any(session).await;
    api.partitions(&topic.name).await.unwrap_or_default()
}

/// Records that were acknowledged for less than the topic promises, since their leaders serve them;
/// nothing where no leader tells.
fn weak(shown: &[ShownPartition], of: fn(&ShownPartition) -> i64) -> Cell {
    if shown.is_empty() { Cell::none() } else { Cell::count(shown.iter().map(of).sum()) }
}

/// How far each partition of a compacted topic is; empty for other topics, and where the broker does
/// not tell.
fn compaction_table(shown: Vec<ShownPartition>, configs: &[ConfigEntry]) -> Table {
    let columns = ["partition", "clean_offset", "dirty_ratio", "last_compaction", "stopped"];
    let mut table = Table::new("compaction", &columns);
    let policy = configs.iter().find(|entry| entry.name == "cleanup.policy");
    let policy = policy.and_then(|entry| entry.value.as_deref()).unwrap_or_default();
    if !policy.split(',').any(|word| word.trim() == "compact") {
        return table;
    }
    let found: BTreeMap<i32, Compaction> =
        shown.into_iter().filter_map(|p| Some((p.partition, p.compaction?))).collect();
    for (partition, Compaction { clean_offset, dirty_ratio, last_run_ms, stopped }) in found {
        table.row(vec![
            partition.into(),
            clean_offset.into(),
            dirty_ratio.into(),
            Cell::or_none(last_run_ms.map(format_millis)),
            Cell::or_none(stopped),
        ]);
    }
    table
}

/// Whether a partition is served as a whole, and if not, what is missing.
fn state_in_words(partition: &Partition, place: &TopicPartition, dirs: &[LogDir]) -> String {
    if partition.leader.is_none() {
        return "no leader".to_owned();
    }
    if !partition.is_served() {
        return "offline: its files cannot be read, the broker's log says why".to_owned();
    }
    let stored = dirs.iter().flat_map(|dir| &dir.partitions).filter(|p| p.partition == *place);
    let ranges: Vec<String> = stored
        .flat_map(|stored| &stored.damaged)
        .map(|range| format!("[{}, {})", range.start, range.end))
        .collect();
    if ranges.is_empty() { "ok".to_owned() } else { format!("damaged: {}", ranges.join(", ")) }
}

/// What an acknowledged record survives, in words.
fn promise(topic: &Topic, configs: &[ConfigEntry]) -> String {
    let value = |name: &str| {
        let entry = configs.iter().find(|entry| entry.name == name)?;
        entry.value.as_deref()
    };
    let replicas = topic.partitions.iter().map(|p| p.replicas.len()).min().unwrap_or(0);
    let in_sync_min = value("min.insync.replicas").and_then(|n| n.parse().ok()).unwrap_or(1);
    promise_in_words(value("durability"), in_sync_min, replicas)
}

fn promise_in_words(durability: Option<&str>, in_sync_min: usize, replicas: usize) -> String {
    // So many of those replicas may be lost without losing what was acknowledged.
    let lost = in_sync_min.min(replicas).saturating_sub(1);
    let several = in_sync_min.min(replicas).max(1);
    let place = match (durability, several) {
        (Some("synced"), 1) => "on the leader's disk".to_owned(),
        (Some("synced"), n) => format!("on the disks of at least {n} of {replicas} replicas"),
        (Some("relaxed"), 1) => "in the leader's memory, not yet on disk,".to_owned(),
        (Some("relaxed"), n) => {
            format!("in memory of at least {n} of {replicas} replicas, not yet on disk,")
        }
        (_, 1) => "with the leader (the server does not say whether on disk)".to_owned(),
        (_, n) => {
            format!(
                "with at least {n} of {replicas} replicas (the server does not say whether on disk)"
            )
        }
    };
    let survives = match (durability, lost) {
        (Some("synced"), 0) => "it survives a power cut, but not the loss of that disk".to_owned(),
        (Some("synced"), n) => {
            format!("it survives a power cut everywhere, and the loss of any {n} of those disks")
        }
        (Some("relaxed"), 0) => {
            "it survives a crash of the process, but not a power cut".to_owned()
        }
        (Some("relaxed"), n) => {
            format!("it survives the loss of any {n} of those brokers, but not a power cut of all")
        }
        (_, 0) => "it may not survive a power cut".to_owned(),
        (_, n) => format!("it survives the loss of any {n} of those brokers"),
    };
    format!("an acks=all record is {place} before it is acknowledged: {survives}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_promise_says_what_a_record_survives() {
        for (durability, in_sync_min, replicas, words) in [
            ("synced", 1, 1, "survives a power cut, but not the loss of that disk"),
            ("synced", 2, 3, "on the disks of at least 2 of 3 replicas"),
            ("synced", 2, 3, "the loss of any 1 of those disks"),
            ("relaxed", 1, 1, "not a power cut"),
            ("relaxed", 2, 3, "the loss of any 1 of those brokers, but not a power cut of all"),
            ("", 1, 1, "may not survive a power cut"),
        ] {
            let text = promise_in_words(Some(durability), in_sync_min, replicas);
            assert!(text.contains(words), "{text}");
        }
    }
}
