//! One campaign: a data directory, a load, so many kills, and the reckoning.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::task::{JoinSet, spawn_blocking};

use super::chaos::{self, Done};
use super::{churn, publishers};
use crate::broker_process::{Addresses, BrokerProcess, free_addresses};
use crate::history::{FoundRecord, Place, Report};
use crate::kafka::KafkaConnection;
use crate::load::{self, CHECKED, GROUP, Load, Manners, ORDERS, ORDERS_PARTITIONS};

/// The longest pause of a writer between two bursts.
const WRITERS_PAUSE_MAX: Duration = Duration::from_millis(20);
/// How long the group may take to read to the end once the broker stays up.
const DRAIN_PATIENCE: Duration = Duration::from_secs(60);

/// What to do.
#[derive(Debug, Clone)]
pub struct Plan {
    /// How often to kill.
    pub times: u64,
    /// Decides when and how; the load itself depends on timing as well.
    pub seed: u64,
    /// The data directory; a temporary one if there is none, which is left there on failure.
    pub data: Option<PathBuf>,
}

/// What happened.
#[derive(Debug, Clone)]
pub struct Summary {
    /// The plan's seed.
    pub seed: u64,
    /// Kills of a ready broker, kills of a starting one, and stops with SIGTERM.
    pub kills: (u64, u64, u64),
    /// The comparison.
    pub report: Report,
    /// Topics that were created meanwhile; half of them were deleted again.
    pub topics: u64,
    /// How often a member took a partition up.
    pub resumed: u64,
    /// Restarts until ready: the median and the longest.
    pub restarts: (Duration, Duration),
    /// How long it all took.
    pub took: Duration,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kills, while_starting, stops) = self.kills;
        let report = &self.report;
        write!(
            f,
            "kill: seed {}: {} kills ({while_starting} while starting), {stops} stops; {} acked, \
             {} checked, {} lost, {} duplicated, {} reordered; {} topics churned, {} resumes; \
             restart p50 {} ms, max {} ms; {} s",
            self.seed,
            kills + while_starting,
            report.acked,
            report.checked,
            report.lost,
            report.duplicated,
            report.reordered,
            self.topics,
            self.resumed,
            self.restarts.0.as_millis(),
            self.restarts.1.as_millis(),
            self.took.as_secs(),
        )
    }
}

/// Runs a campaign. An error is a broken promise; it names the seed and the data directory.
pub fn run(plan: &Plan) -> Result<Summary> {
    let temporary = tempfile::Builder::new().prefix("towpath-kill-").tempdir()?;
    let data = plan.data.clone().unwrap_or_else(|| temporary.path().join("data"));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let outcome = runtime.block_on(campaign(plan, &data));
    runtime.shutdown_timeout(Duration::from_secs(5));
    outcome.with_context(|| {
        let kept = temporary.keep();
        let data = plan.data.as_ref().map_or(kept, Clone::clone);
        format!("kill: seed {} failed; the data directory is in {}", plan.seed, data.display())
    })
}

async fn campaign(plan: &Plan, data: &Path) -> Result<Summary> {
    let began = Instant::now();
    let addresses = free_addresses()?;
    let load = Load::new(addresses.kafka.to_string(), Manners::Quick, WRITERS_PAUSE_MAX);
    let load = Arc::new(load);
    let start = chaos::start(data, addresses);
    let broker = spawn_blocking({
        let start = start.clone();
        move || -> Result<BrokerProcess> {
            let broker = start.ready()?;
            let mut connection = KafkaConnection::open(broker.addresses.kafka)?;
            for (topic, partitions) in CHECKED {
                connection.create_topic(topic, partitions, &[])?;
            }
            Ok(broker)
        }
    })
    .await??;

    let mut rng = fastrand::Rng::with_seed(plan.seed);
    let mut writing = JoinSet::new();
    for number in 0..4 {
        writing.spawn(load::write(load.clone(), rng.u64(..), number < 2));
    }
    for _ in 0..2 {
        let (load, seed) = (load.clone(), rng.u64(..));
        writing.spawn_blocking(move || publishers::run(&load, addresses.http, seed));
    }
    let churning = spawn_blocking({
        let (load, seed) = (load.clone(), rng.u64(..));
        move || churn::run(&load, addresses.kafka, seed)
    });
    let mut reading = JoinSet::new();
    for first in 0..2 {
        reading.spawn(load::read_as_member(load.clone(), rng.u64(..), first, first == 0));
    }

    let times = plan.times;
    let seed = rng.u64(..);
    let (broker, mut done) = spawn_blocking({
        let (load, start) = (load.clone(), start.clone());
        move || chaos::run(&load, &start, broker, times, seed)
    })
    .await??;

    load.end_writing();
    while writing.join_next().await.transpose()?.is_some() {}
    let churned = churning.await?;
    if let Some(failure) = load.failures().first() {
        bail!("{failure}\n{}", broker.log());
    }
    drain(&load, addresses).await.with_context(|| broker.log())?;
    load.end_reading();
    while reading.join_next().await.transpose()?.is_some() {}

    // Everything must be on disk, not only in this broker's memory.
    let (broker, done) = spawn_blocking(move || -> Result<_> {
        broker.kill()?;
        done.kills += 1;
        Ok((chaos::restart(&start, &mut done)?, done))
    })
    .await??;
    let reckoning = spawn_blocking({
        let load = load.clone();
        move || -> Result<(Report, u64)> {
            let mut connection = KafkaConnection::open(addresses.kafka)?;
            let found = read_everything(&mut connection)?;
            let report = load.writers().check(&found);
            let topics = churn::check(&churned, &mut connection)?;
            Ok((report, topics))
        }
    });
    let (report, topics) = reckoning.await?.with_context(|| broker.log())?;
    judge(&load, &report)?;
    Ok(Summary {
        seed: plan.seed,
        kills: (done.kills, done.kills_while_starting, done.stops),
        report,
        topics,
        resumed: load.group().resumed(),
        restarts: median_and_max(&done),
        took: began.elapsed(),
    })
}

/// Waits until the group was given everything.
async fn drain(load: &Arc<Load>, addresses: Addresses) -> Result<()> {
    let ends = spawn_blocking(move || -> Result<BTreeMap<Place, i64>> {
        let mut connection = KafkaConnection::open(addresses.kafka)?;
        (0..ORDERS_PARTITIONS)
            .map(|partition| {
                let (_, end) = connection.read_all(ORDERS, partition, 0)?;
                Ok((Place::new(ORDERS, partition), end))
            })
            .collect()
    })
    .await??;
    let deadline = Instant::now() + DRAIN_PATIENCE;
    loop {
        let behind: Vec<String> = {
            let group = load.group();
            let behind = ends.iter().filter(|(place, end)| group.delivered_end(place) < **end);
            behind
                .map(|(place, end)| format!("{place} {} of {end}", group.delivered_end(place)))
                .collect()
        };
        if behind.is_empty() {
            return Ok(());
        }
        if let Some(failure) = load.failures().first() {
            bail!("{failure}");
        }
        if deadline <= Instant::now() {
            bail!("INV-C4: group {GROUP} does not read to the end: {}", behind.join(", "));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn read_everything(connection: &mut KafkaConnection) -> Result<BTreeMap<Place, Vec<FoundRecord>>> {
    let mut found = BTreeMap::new();
    for (topic, partitions) in CHECKED {
        for partition in 0..partitions {
            let (records, _) = connection.read_all(topic, partition, 0)?;
            let records = records.into_iter().map(|record| FoundRecord {
                offset: record.offset,
                value: record.value.unwrap_or_default(),
            });
            found.insert(Place::new(topic, partition), records.collect());
        }
    }
    Ok(found)
}

fn judge(load: &Load, report: &Report) -> Result<()> {
    let group = load.group();
    let broken: Vec<String> = report
        .violations
        .iter()
        .chain(group.violations())
        .map(ToString::to_string)
        .chain(load.failures())
        .collect();
    if !broken.is_empty() {
        bail!(
            "{} lost, {} duplicated, {} reordered of {} acked:\n{}",
            report.lost,
            report.duplicated,
            report.reordered,
            report.acked,
            broken.join("\n")
        );
    }
    if report.acked == 0 {
        bail!("nothing was acknowledged: the load never reached the broker");
    }
    if group.resumed() == 0 {
        bail!("no member ever read anything");
    }
    Ok(())
}

fn median_and_max(done: &Done) -> (Duration, Duration) {
    let mut sorted = done.restarts.clone();
    sorted.sort_unstable();
    let median = sorted.get(sorted.len() / 2).copied().unwrap_or_default();
    (median, sorted.last().copied().unwrap_or_default())
}
