//! One cluster under load, from its first broker to the last comparison.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use fastrand::Rng;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use super::campaign::{Kind, kept};
use super::node::{NODES, Nodes};
use super::replicas;
use crate::history::{Report, Violation};
use crate::load::{self, Load};

/// Writers that last, and writers that come and go.
const WRITERS: [bool; 4] = [true, true, false, false];
/// The longest pause of a writer between two bursts: what is compared after every fault grows.
const WRITERS_PAUSE_MAX: Duration = Duration::from_millis(100);
/// How long everything that was sent may take to have an answer: records are given up after two
/// minutes, and an attempt that is on its way then is still waited for.
const ANSWERS_PATIENCE: Duration = Duration::from_secs(180);
/// How long the group may take to read to the end.
const DRAIN_PATIENCE: Duration = Duration::from_secs(60);

/// Brokers, clients, and what was promised.
pub(super) struct Round {
    pub(super) nodes: Nodes,
    pub(super) load: Arc<Load>,
    runtime: Runtime,
    writing: JoinSet<()>,
    reading: JoinSet<()>,
}

impl Round {
    /// Starts the brokers, creates the topics, and begins the load.
    pub(super) fn begin(kind: Kind, rng: &mut Rng) -> Result<Round> {
        let mut nodes = Nodes::start()?;
        nodes.wait_until_whole()?;
        let mut connection = nodes.connect(NODES[0])?;
        for (topic, partitions) in replicas::CHECKED {
            connection.create_replicated_topic(topic, partitions, 3, kind.topic())?;
        }
        nodes.wait_until_whole()?;
        let load = Arc::new(Load::new(nodes.servers(), kind.manners(), WRITERS_PAUSE_MAX));
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let mut round =
            Round { nodes, load, runtime, writing: JoinSet::new(), reading: JoinSet::new() };
        round.spawn_clients(kind, rng);
        Ok(round)
    }

    fn spawn_clients(&mut self, kind: Kind, rng: &mut Rng) {
        let _inside = self.runtime.enter();
        if kind == Kind::Moves {
            self.writing.spawn(load::write_steadily(self.load.clone()));
        } else {
            for lasts in WRITERS {
                self.writing.spawn(load::write(self.load.clone(), rng.u64(..), lasts));
            }
        }
        for first in 0..2 {
            let member = load::read_as_member(self.load.clone(), rng.u64(..), first, first == 0);
            self.reading.spawn(member);
        }
        self.reading.spawn(load::read(self.load.clone(), rng.u64(..)));
    }

    /// Waits until all is well again, and compares everything. Returns how long it took until all
    /// replicas were in sync.
    pub(super) fn settle(&mut self) -> Result<Duration> {
        let whole = self.nodes.wait_until_whole()?;
        self.runtime.block_on(self.load.pause(ANSWERS_PATIENCE))?;
        self.compare()?;
        self.load.resume();
        Ok(whole)
    }

    /// Compares what lies on the disks with itself and with what clients were promised.
    pub(super) fn compare(&mut self) -> Result<Report> {
        self.nodes.wait_until_whole()?;
        let found = replicas::equal(&self.nodes)?;
        let report = self.load.writers().check(&found);
        let group = self.load.group();
        let broken: Vec<String> = report
            .violations
            .iter()
            .chain(group.violations())
            .map(Violation::to_string)
            .chain(self.load.failures())
            .collect();
        if !broken.is_empty() {
            bail!(
                "{} lost, {} duplicated, {} reordered of {} acknowledged:\n{}",
                report.lost,
                report.duplicated,
                report.reordered,
                report.acked,
                broken.join("\n")
            );
        }
        Ok(report)
    }

    /// Fails when a client gave anything up: those with default settings never need to here.
    pub(super) fn nobody_gave_up(&self) -> Result<()> {
        let (times, first) = self.load.given_up();
        ensure!(
            times == 0,
            "clients with default settings gave up {times} times, first: {}",
            first.unwrap_or_default()
        );
        Ok(())
    }

    /// Ends the load, waits until the group has read everything, kills all brokers once more and
    /// compares for the last time.
    pub(super) fn end(mut self, keep: &Path) -> Result<Report> {
        match self.finish() {
            Err(error) => Err(kept(&self.nodes, keep, error)),
            Ok(report) => {
                let Round { nodes, runtime, .. } = self;
                runtime.shutdown_timeout(Duration::from_secs(5));
                nodes.take_down()?;
                Ok(report)
            }
        }
    }

    fn finish(&mut self) -> Result<Report> {
        self.load.end_writing();
        self.runtime.block_on(async { while self.writing.join_next().await.is_some() {} });
        self.compare()?;
        self.drain()?;
        self.load.end_reading();
        self.runtime.block_on(async { while self.reading.join_next().await.is_some() {} });
        for id in NODES {
            self.nodes.kill(id)?;
        }
        self.nodes.start_all()?;
        let report = self.compare()?;
        ensure!(0 < report.acked, "nothing was acknowledged: the load never reached the brokers");
        ensure!(0 < self.load.group().resumed(), "no member ever read anything");
        Ok(report)
    }

    fn drain(&self) -> Result<()> {
        let found = replicas::equal(&self.nodes)?;
        let deadline = std::time::Instant::now() + DRAIN_PATIENCE;
        loop {
            let behind: Vec<String> = {
                let group = self.load.group();
                let end_of = |place| group.delivered_end(place);
                let read_by_group = found.iter().filter(|(place, _)| place.topic == load::ORDERS);
                read_by_group
                    .filter(|(place, records)| end_of(place) < records.len() as i64)
                    .map(|(place, all)| format!("{place} {} of {}", end_of(place), all.len()))
                    .collect()
            };
            if behind.is_empty() {
                return Ok(());
            }
            if deadline <= std::time::Instant::now() {
                bail!("INV-C4: the group does not read to the end: {}", behind.join(", "));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
