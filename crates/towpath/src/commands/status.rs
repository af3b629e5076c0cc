//! `towpath status`: the cluster on one screen.

use std::cmp::Ordering;

use clap::Args;
use towpath_client::{BrokerId, LogDir, Topic};

use crate::broker_api::BrokerApi;
use crate::failure::{Exit, Outcome};
use crate::output::{Cell, Report, Table};
use crate::session::{Session, partitions_of};

/// Flags of `status`.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// End with 5 when a partition has no leader, lacks a replica, is offline or has damaged records, or
    /// when a data directory does not take records
    #[arg(long)]
    check: bool,
}

pub(crate) async fn run(session: &Session, args: &StatusArgs) -> Outcome {
    let topics = session.admin.topics().await?;
    let image = session.cluster.image();
    let dirs = session.admin.log_dirs(None).await?;
    let groups = session.admin.groups().await?;
    let count = |is: fn(&towpath_client::Partition) -> bool| {
        let counted = |topic: &Topic| topic.partitions.iter().filter(|p| is(p)).count();
        topics.values().map(|topic| counted(topic)).sum::<usize>()
    };
    let leaderless = count(|p| p.leader.is_none());
    let offline = count(|p| p.leader.is_some() && !p.is_served());
    let under_replicated = count(|p| p.in_sync.len() < p.replicas.len());
    let users: Vec<_> = topics.values().filter(|topic| !topic.is_internal).collect();
    let partitions: usize = users.iter().map(|topic| topic.partitions.len()).sum();
    let led: Vec<_> = users
        .iter()
        .flat_map(|topic| partitions_of(topic))
        .filter(|place| {
            let topic = topics.get(&place.topic);
            topic.and_then(|t| t.partition(place.partition)).is_some_and(|p| p.is_served())
        })
        .collect();
    let records: i64 = session.extents(&led).await?.values().map(|extent| extent.records()).sum();
    let stored = |broker: Option<BrokerId>| -> u64 {
        let of = dirs.iter().filter(|dir| broker.is_none_or(|id| dir.broker == id));
        of.flat_map(|dir| &dir.partitions).map(|stored| stored.bytes).sum()
    };

    let mut nodes = Table::new(
        "nodes",
        &["id", "address", "rack", "leads", "stored_bytes", "free_bytes", "directories"],
    );
    for broker in image.brokers.values() {
        let mine = || dirs.iter().filter(|dir| dir.broker == broker.id);
        let leads = topics
            .values()
            .flat_map(|topic| &topic.partitions)
            .filter(|partition| partition.leader == Some(broker.id))
            .count();
        let free = mine().filter_map(|dir| dir.usable_bytes).min();
        let paths = mine().map(|dir| match dir.error {
            Some(error) => format!("{} ({error})", dir.path),
            None => dir.path.clone(),
        });
        nodes.row(vec![
            broker.id.0.into(),
            broker.address().into(),
            Cell::or_none(broker.rack.clone()),
            leads.into(),
            Cell::bytes(stored(Some(broker.id))),
            free.map_or_else(Cell::none, Cell::bytes),
            Cell::list(paths),
        ]);
    }
    // Without the broker's HTTP API it is not known; `group lag` says why.
    let lags = BrokerApi::of_any(session).await.groups().await.unwrap_or_default();
    let worst = lags.into_iter().filter(|group| group.retention_ratio.is_some()).max_by(|a, b| {
        a.retention_ratio.partial_cmp(&b.retention_ratio).unwrap_or(Ordering::Equal)
    });
    let worst_ratio = worst.as_ref().and_then(|group| group.retention_ratio);
    let (damage, damaged) = damage_table(&dirs);
    let (problems, amiss) = problem_table(session, &dirs).await;
    let report = Report::new()
        .field("server", session.global.server.as_str())
        .field("cluster_id", Cell::or_none(image.cluster_id.clone()))
        .field("topics", users.len())
        .field("partitions", partitions)
        .field("leaderless", leaderless)
        .field("offline", offline)
        .field("under_replicated", under_replicated)
        .field("records", Cell::count(records))
        .field("stored_bytes", Cell::bytes(stored(None)))
        .field("groups", groups.len())
        .field("worst_group", Cell::or_none(worst.as_ref().map(|group| group.group.clone())))
        .field("worst_retention_ratio", worst_ratio.map_or_else(Cell::none, Cell::retention_ratio))
        .table(nodes)
        .table(problems)
        .table(damage);
    session.print(&report)?;
    let is_bad = 0 < leaderless + offline + under_replicated + damaged + amiss;
    Ok(if args.check && is_bad { Exit::CheckHolds } else { Exit::Ok })
}

/// Data directories that have failed, are stalled, full or missing, in their brokers' words; and how
/// many problems there are. A broker that has no words of its own gives Kafka's name of the error.
async fn problem_table(session: &Session, dirs: &[LogDir]) -> (Table, usize) {
    let mut table = Table::new("data_directory_problems", &["broker", "problem"]);
    let mut count = 0;
    for broker in session.cluster.image().brokers.keys() {
        let told = BrokerApi::of(session, *broker).await.directory_problems().await;
        let named = || {
            let mine = dirs.iter().filter(|dir| dir.broker == *broker);
            mine.filter_map(|dir| Some(format!("{}: {}", dir.path, dir.error?))).collect()
        };
        for problem in told.unwrap_or_else(|_| named()) {
            count += 1;
            table.row(vec![broker.0.into(), problem.into()]);
        }
    }
    (table, count)
}

/// Acknowledged records that cannot be read any more, by name; and how many ranges there are.
fn damage_table(dirs: &[LogDir]) -> (Table, usize) {
    let columns = ["broker", "topic", "partition", "first_offset", "end_offset"];
    let mut table = Table::new("damaged_records", &columns);
    let mut count = 0;
    for (dir, stored) in dirs.iter().flat_map(|dir| dir.partitions.iter().map(move |p| (dir, p))) {
        for range in &stored.damaged {
            count += 1;
            table.row(vec![
                dir.broker.0.into(),
                stored.partition.topic.to_string().into(),
                stored.partition.partition.0.into(),
                range.start.0.into(),
                range.end.0.into(),
            ]);
        }
    }
    (table, count)
}
