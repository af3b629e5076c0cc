//! Three broker processes, up or down, and what can be done to them.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::disk::Disk;
use super::rig::Rig;
use super::tool;
use super::view::{View, quorum_lacks};
use crate::broker_process::{BrokerProcess, ENDED_EARLY, READY_PATIENCE, Start, Starting};
use crate::history::Place;
use crate::kafka::KafkaConnection;

/// The numbers of the brokers.
pub(super) const NODES: [u8; 3] = [1, 2, 3];
/// Large enough for an hour of load.
const DISK_BYTES: u64 = 768 << 20;
/// How long a broker may take to stop when asked to, under load.
const STOP_PATIENCE: Duration = Duration::from_secs(40);
/// How long a cluster may take to be whole again when nothing is wrong any more. Seconds are
/// expected; a replica that is stuck is stuck after two minutes as well.
pub(super) const WHOLE_PATIENCE: Duration = Duration::from_secs(120);

#[derive(Debug)]
enum Process {
    Down,
    Starting(Starting),
    Up(BrokerProcess),
}

/// The cluster.
#[derive(Debug)]
pub(super) struct Nodes {
    /// Before what they stand on: fields are dropped in this order.
    processes: Vec<Process>,
    starts: Vec<Start>,
    pub(super) rig: Rig,
}

impl Nodes {
    /// Builds everything and starts all brokers.
    pub(super) fn start() -> Result<Nodes> {
        let rig = Rig::build(DISK_BYTES)?;
        let secret = rig.directory().join("secret");
        fs::write(&secret, "what only brokers of this cluster know")?;
        let all: Vec<String> = NODES.iter().map(|id| format!("{id}@{}", rig.peer(*id))).collect();
        let start = |id: u8| {
            Start::serve(&rig.disks[index(id)].data())
                .at(rig.addresses(id))
                .arguments(["--node-id", &id.to_string(), "--cluster", &all.join(",")])
                .arguments(["--peer-secret-file", &secret.to_string_lossy(), "--insecure", "-v"])
                .arguments(["--set", "group.initial.rebalance.delay.ms=0"])
                // Damage is looked for all the time.
                .arguments(["--set", "log.scrub.interval.ms=1000"])
                .in_namespace(&rig.namespace(id))
                .logging_to(&rig.directory().join(format!("node-{id}.log")))
        };
        let starts = NODES.map(start).into();
        let processes = NODES.map(|_| Process::Down).into();
        let mut nodes = Nodes { rig, processes, starts };
        nodes.start_all()?;
        Ok(nodes)
    }

    /// The Kafka listeners, separated by commas.
    pub(super) fn servers(&self) -> String {
        NODES.map(|id| self.rig.addresses(id).kafka.to_string()).join(",")
    }

    /// A connection to a broker.
    pub(super) fn connect(&self, id: u8) -> Result<KafkaConnection> {
        KafkaConnection::open(self.rig.addresses(id).kafka)
    }

    /// Where a broker listens for HTTP callers.
    pub(super) fn http(&self, id: u8) -> SocketAddr {
        self.rig.addresses(id).http
    }

    /// A broker's disk.
    pub(super) fn disk(&self, id: u8) -> &Disk {
        &self.rig.disks[index(id)]
    }

    fn process(&mut self, id: u8) -> &mut Process {
        &mut self.processes[index(id)]
    }

    /// Starts a broker that is down, and does not wait.
    pub(super) fn begin(&mut self, id: u8) -> Result<()> {
        if matches!(self.process(id), Process::Down) {
            *self.process(id) = Process::Starting(self.starts[index(id)].begin()?);
        }
        Ok(())
    }

    /// Starts all that are down, and waits until all are ready.
    pub(super) fn start_all(&mut self) -> Result<()> {
        NODES.into_iter().try_for_each(|id| self.begin(id))?;
        NODES.into_iter().try_for_each(|id| self.wait_until_ready(id))
    }

    /// Starts a broker that is down. Where it refuses what is on its disk, it gets an empty one, as
    /// an operator would give it. Returns whether that was so.
    pub(super) fn start_or_replace(&mut self, id: u8) -> Result<bool> {
        self.begin(id)?;
        let Err(error) = self.wait_until_ready(id) else { return Ok(false) };
        if !format!("{error:#}").contains(ENDED_EARLY) {
            return Err(error);
        }
        fs::remove_dir_all(self.disk(id).data())?;
        self.begin(id)?;
        self.wait_until_ready(id)?;
        Ok(true)
    }

    fn wait_until_ready(&mut self, id: u8) -> Result<()> {
        let process = self.process(id);
        if let Process::Starting(_) = process {
            let Process::Starting(starting) = std::mem::replace(process, Process::Down) else {
                return Ok(());
            };
            let broker = starting.ready(READY_PATIENCE).with_context(|| format!("broker {id}"))?;
            *process = Process::Up(broker);
        }
        Ok(())
    }

    /// Kills it with signal 9, if it runs.
    pub(super) fn kill(&mut self, id: u8) -> Result<()> {
        match std::mem::replace(self.process(id), Process::Down) {
            Process::Down => Ok(()),
            Process::Starting(starting) => starting.kill(),
            Process::Up(broker) => broker.kill().with_context(|| format!("broker {id}")),
        }
    }

    /// Asks it to stop and waits, if it is up. Returns how long it took.
    pub(super) fn terminate(&mut self, id: u8) -> Result<Duration> {
        self.wait_until_ready(id)?;
        match std::mem::replace(self.process(id), Process::Down) {
            Process::Up(broker) => {
                let (status, took, _) = broker.terminate(STOP_PATIENCE)?;
                ensure!(status.success(), "broker {id} was asked to stop and ended with {status}");
                Ok(took)
            }
            Process::Down | Process::Starting(_) => bail!("broker {id} is not up"),
        }
    }

    /// Has all brokers start anew, as an operator does: by `towpath cluster restart`. Returns how long
    /// each of them took.
    pub(super) fn restart_by_command(&self) -> Result<Vec<Duration>> {
        let command = Start::command("cluster").arguments(["restart", "--server", &self.servers()]);
        let finished = command.arguments(["--output", "json"]).run(WHOLE_PATIENCE)?;
        let (status, said) = (finished.status, finished.stderr);
        ensure!(status.success(), "`towpath cluster restart` ended with {status}:\n{said}");
        let told: serde_json::Value = serde_json::from_str(&finished.stdout)?;
        let rows = told["restarted"].as_array();
        let took = rows.into_iter().flatten().filter_map(|row| row["seconds"].as_f64());
        let took: Vec<Duration> = took.map(Duration::from_secs_f64).collect();
        ensure!(took.len() == NODES.len(), "not every node was started anew: {told}\n{said}");
        Ok(took)
    }

    /// Stops it where it is, if it is up.
    pub(super) fn pause(&self, id: u8) -> Result<()> {
        match &self.processes[index(id)] {
            Process::Up(broker) => broker.pause(),
            Process::Down | Process::Starting(_) => Ok(()),
        }
    }

    /// Lets it go on.
    pub(super) fn resume(&self, id: u8) -> Result<()> {
        match &self.processes[index(id)] {
            Process::Up(broker) => broker.resume(),
            Process::Down | Process::Starting(_) => Ok(()),
        }
    }

    /// Makes its disk slow, if it runs.
    pub(super) fn slow(&self, id: u8) -> Result<()> {
        let pid = match &self.processes[index(id)] {
            Process::Down => return Ok(()),
            Process::Starting(starting) => starting.pid(),
            Process::Up(broker) => broker.pid(),
        };
        self.disk(id).slow(pid)
    }

    /// Waits until all know of all, every partition has a leader, every replica is in sync and every
    /// broker is a voter on metadata.
    /// Returns how long it took.
    pub(super) fn wait_until_whole(&mut self) -> Result<Duration> {
        let began = Instant::now();
        loop {
            self.check_running()?;
            let Some(lacks) = self.lacks() else { return Ok(began.elapsed()) };
            if WHOLE_PATIENCE <= began.elapsed() {
                bail!("INV-R14: after {WHOLE_PATIENCE:?} without a fault: {lacks}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// What is not as it should be, as the brokers see it.
    fn lacks(&self) -> Option<String> {
        let mut lacks = Vec::new();
        let mut views: Vec<View> = Vec::new();
        for id in NODES {
            match self.connect(id).and_then(|mut connection| View::of(&mut connection)) {
                Err(error) => lacks.push(format!("broker {id}: {error:#}")),
                Ok(view) => {
                    let what = view.lacks(NODES.len());
                    // One that has just come may not have heard of the newest topic.
                    let what = what.or_else(|| views.first().and_then(|first| view.differs(first)));
                    lacks.extend(what.map(|what| format!("broker {id} says: {what}")));
                    views.push(view);
                }
            }
        }
        if lacks.is_empty() {
            match quorum_lacks(self.rig.addresses(NODES[0]).http, NODES.len()) {
                Ok(what) => lacks.extend(what.map(|what| format!("the metadata: {what}"))),
                Err(error) => lacks.push(format!("the metadata: {error:#}")),
            }
        }
        (!lacks.is_empty()).then(|| lacks.join("; "))
    }

    /// Who leads what, as the first who answers knows it.
    pub(super) fn leaders(&self) -> BTreeMap<Place, i32> {
        let view = NODES.into_iter().find_map(|id| View::of(&mut self.connect(id).ok()?).ok());
        view.map(|view| view.leaders).unwrap_or_default()
    }

    /// Fails when a broker has ended by itself or panicked.
    pub(super) fn check_running(&mut self) -> Result<()> {
        for id in NODES {
            if let Process::Up(broker) = self.process(id) {
                broker.check_running().with_context(|| format!("broker {id}"))?;
            }
            let log = fs::read(self.log(id)).unwrap_or_default();
            if let Some(at) = find(&log, b"panicked") {
                let said = String::from_utf8_lossy(&log[at.saturating_sub(200)..]).into_owned();
                bail!("broker {id} panicked: {}", said.chars().take(2_000).collect::<String>());
            }
        }
        Ok(())
    }

    /// Copies the brokers' logs and data to a directory, for whoever has to understand a failure.
    pub(super) fn keep(&self, directory: &Path) -> Result<()> {
        std::fs::create_dir_all(directory)?;
        let to = directory.to_string_lossy();
        let from = self.rig.directory();
        for id in NODES {
            let log = from.join(format!("node-{id}.log"));
            tool::run("cp", &[&log.to_string_lossy(), &to])?;
            let data = self.disk(id).data();
            let copy = directory.join(format!("data-{id}"));
            tool::run("cp", &["-r", &data.to_string_lossy(), &copy.to_string_lossy()])?;
        }
        Ok(())
    }

    /// Kills all and takes everything down.
    pub(super) fn take_down(self) -> Result<()> {
        let Nodes { rig, processes, .. } = self;
        drop(processes);
        rig.take_down()
    }

    fn log(&self, id: u8) -> std::path::PathBuf {
        self.rig.directory().join(format!("node-{id}.log"))
    }
}

/// Where things of a broker lie in lists.
fn index(id: u8) -> usize {
    usize::from(id - NODES[0])
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}
