//! Either product as a process, pinned to the broker's CPU, and what it costs.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use towpath_process::Cost;
use towpath_process::kafka::KafkaConnection;

use crate::machine;
use crate::peer::{Peer, PeerKind};
use crate::sqs;

/// How long a start may take: a JVM on one busy CPU, after a crash with gigabytes to check.
const START_MAX: Duration = Duration::from_secs(240);
/// How long an orderly stop may take.
const STOP_MAX: Duration = Duration::from_secs(60);
/// Between two looks at a broker that starts.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Whose broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Kind {
    Towpath,
    Kafka,
}

impl Kind {
    pub(crate) const BOTH: [Kind; 2] = [Kind::Towpath, Kind::Kafka];

    /// Samples of three brokers that are not counted: a JVM's cost falls for as many as these.
    pub(crate) fn warm_ups(self) -> usize {
        match self {
            Kind::Towpath => 1,
            Kind::Kafka => 6,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Towpath => "Towpath",
            Kind::Kafka => "Kafka",
        }
    }
}

/// When a record counts as written: the same for both in one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// In the page cache: Kafka's default.
    PageCache,
    /// On the disk before it is acknowledged.
    Synced,
}

/// What is needed to start brokers.
pub(crate) struct Lab {
    towpath: PathBuf,
    class_path: Option<String>,
    elasticmq: Option<String>,
    /// RabbitMQ and NATS are installed.
    has_peers: bool,
    data: PathBuf,
}

impl Lab {
    pub(crate) fn new(
        towpath: &Path,
        class_path: Option<&str>,
        elasticmq: Option<&str>,
        has_peers: bool,
        data: &Path,
    ) -> Result<Lab> {
        ensure!(towpath.is_file(), "{} is not there", towpath.display());
        fs::create_dir_all(data).with_context(|| format!("create {}", data.display()))?;
        remove_leftovers(data)?;
        let class_path = class_path.map(str::to_owned);
        let elasticmq = elasticmq.map(str::to_owned);
        let (towpath, data) = (towpath.to_owned(), data.to_owned());
        Ok(Lab { towpath, class_path, elasticmq, has_peers, data })
    }

    pub(crate) fn class_path(&self) -> Option<&str> {
        self.class_path.as_deref()
    }

    pub(crate) fn elasticmq(&self) -> Option<&str> {
        self.elasticmq.as_deref()
    }

    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    /// A broker on an empty directory, ready to serve.
    pub(crate) fn start(&self, kind: Kind) -> Result<Broker> {
        let home = TempDir::with_prefix_in(format!("{}-", kind.name()), &self.data)?;
        // Both ports stay the same over restarts.
        let mut broker = self.broker(kind, home, free_port()?, free_port()?, None);
        broker.prepare()?;
        broker.start()?;
        Ok(broker)
    }

    /// Another work queue, where it is known where that is.
    pub(crate) fn peer(&self, kind: PeerKind) -> Result<Option<Peer>> {
        let is_there = match kind {
            PeerKind::ElasticMq => self.elasticmq.is_some(),
            PeerKind::RabbitMq | PeerKind::Nats => self.has_peers,
        };
        is_there.then(|| Peer::start(self, kind)).transpose()
    }

    fn broker(
        &self,
        kind: Kind,
        home: TempDir,
        port: u16,
        second: u16,
        place: Option<Place>,
    ) -> Broker {
        Broker {
            kind,
            home,
            port,
            second,
            place,
            child: None,
            towpath: self.towpath.clone(),
            class_path: self.class_path.clone(),
            ready: Duration::ZERO,
        }
    }

    /// Three brokers that are one cluster, on empty directories, ready to serve.
    pub(crate) fn start_trio(&self, kind: Kind, patience: Patience) -> Result<Trio> {
        let quorum = [free_port()?, free_port()?, free_port()?];
        let mut brokers = Vec::new();
        for number in 1..=quorum.len() {
            let home = TempDir::with_prefix_in(format!("{}-", kind.name()), &self.data)?;
            let second = match kind {
                Kind::Towpath => free_port()?,
                Kind::Kafka => quorum[number - 1],
            };
            let place = Place { number, quorum, patience };
            let broker = self.broker(kind, home, free_port()?, second, Some(place));
            broker.prepare()?;
            brokers.push(broker);
        }
        // None of them answers before a majority is there.
        brokers.iter_mut().try_for_each(Broker::spawn)?;
        brokers.iter_mut().try_for_each(Broker::wait)?;
        Ok(Trio { brokers })
    }
}

/// Removes what brokers of a run that was interrupted have left.
fn remove_leftovers(data: &Path) -> Result<()> {
    for entry in fs::read_dir(data)? {
        let entry = entry?;
        let name = entry.file_name();
        let peers = [PeerKind::ElasticMq, PeerKind::RabbitMq, PeerKind::Nats];
        let names = Kind::BOTH.iter().map(|kind| kind.name()).chain(peers.map(PeerKind::name));
        let mut prefixes = names.map(|name| format!("{name}-"));
        if prefixes.any(|prefix| name.to_string_lossy().starts_with(&prefix)) {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

/// The options of Kafka's own start script, and a heap that stays the same.
pub(crate) const JVM_OPTIONS: &str = "-Xms1g -Xmx1g -server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 \
    -XX:InitiatingHeapOccupancyPercent=35 -XX:+ExplicitGCInvokesConcurrent -XX:MaxInlineLevel=15 \
    -Djava.awt.headless=true";

/// A command that ends with this process, also when nobody is left to end it.
pub(crate) fn tied(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}

pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// How long Kafka's controller waits for a silent broker. Towpath's waits as long as it always does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// So long that a busy machine ends no session: where work is measured.
    Long,
    /// Kafka's default: where failovers are.
    Default,
}

/// One broker of three: its number, and where the three find each other.
#[derive(Debug, Clone, Copy)]
struct Place {
    number: usize,
    quorum: [u16; 3],
    patience: Patience,
}

/// Three brokers of one cluster, on the brokers' CPU together.
pub(crate) struct Trio {
    brokers: Vec<Broker>,
}

impl Trio {
    /// One of them; clients find the others.
    pub(crate) fn first(&self) -> &Broker {
        &self.brokers[0]
    }

    /// The one with this node id, from 1 on.
    pub(crate) fn node(&mut self, id: usize) -> &mut Broker {
        &mut self.brokers[id - 1]
    }

    /// Where the others than this node are.
    pub(crate) fn addresses_beside(&self, id: usize) -> Vec<SocketAddr> {
        let others = (1..).zip(&self.brokers).filter(|(other, _)| *other != id);
        others.map(|(_, broker)| broker.address()).collect()
    }

    /// Where this node serves HTTP, if it is one of ours.
    pub(crate) fn http(&self, id: usize) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.brokers[id - 1].second))
    }

    /// Which node leads a partition, once one does.
    pub(crate) fn leader_of(&self, topic: &str, partition: i32) -> Result<usize> {
        let deadline = Instant::now() + START_MAX;
        loop {
            let leader = self.first().connect()?.leader_of(topic, partition)?;
            if let Some(id) = leader.and_then(|id| usize::try_from(id).ok()) {
                return Ok(id);
            }
            ensure!(Instant::now() < deadline, "{topic}-{partition} gets no leader");
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Memory of all three.
    pub(crate) fn resident_bytes(&self) -> Result<u64> {
        self.brokers.iter().map(|broker| Ok(broker.cost()?.resident_bytes)).sum()
    }

    /// Processor time of all three.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        self.brokers.iter().map(|broker| Ok(broker.cost()?.cpu)).sum()
    }
}

/// The brokers that most rows share, so that a JVM is warm.
pub(crate) struct Pair {
    pub(crate) brokers: Vec<Broker>,
}

impl Pair {
    pub(crate) fn start(lab: &Lab, kinds: &[Kind]) -> Result<Pair> {
        let brokers = kinds.iter().map(|kind| lab.start(*kind)).collect::<Result<_>>()?;
        Ok(Pair { brokers })
    }

    pub(crate) fn get(&mut self, kind: Kind) -> Result<&mut Broker> {
        let found = self.brokers.iter_mut().find(|broker| broker.kind == kind);
        found.context("only brokers that were started are measured")
    }
}

/// A broker with its directory; both are gone when this is dropped.
pub(crate) struct Broker {
    pub(crate) kind: Kind,
    home: TempDir,
    port: u16,
    second: u16,
    /// Its place among three, if it is one of them.
    place: Option<Place>,
    child: Option<Child>,
    towpath: PathBuf,
    class_path: Option<String>,
    /// How long the last start took, from the birth of the process to its first answer.
    pub(crate) ready: Duration,
}

impl Broker {
    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// Where it serves HTTP, if it is one of ours.
    pub(crate) fn http(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.second))
    }

    /// Where its logs lie.
    pub(crate) fn logs(&self) -> PathBuf {
        self.home.path().join("data")
    }

    pub(crate) fn pid(&self) -> Result<u32> {
        Ok(self.child.as_ref().context("the broker does not run")?.id())
    }

    pub(crate) fn cost(&self) -> Result<Cost> {
        Cost::of(self.pid()?)
    }

    pub(crate) fn connect(&self) -> Result<KafkaConnection> {
        KafkaConnection::open(self.address())
    }

    /// A new topic, with one replica.
    pub(crate) fn create_topic(
        &self,
        name: &str,
        partitions: i32,
        durability: Durability,
    ) -> Result<()> {
        self.create_replicated_topic(name, partitions, 1, durability)
    }

    /// A new topic with so many replicas, most of which must have a record before it is acknowledged.
    pub(crate) fn create_replicated_topic(
        &self,
        name: &str,
        partitions: i32,
        replicas: i16,
        durability: Durability,
    ) -> Result<()> {
        let mut configs = vec![("max.message.bytes", "4194304")];
        match (self.kind, durability) {
            (Kind::Towpath, Durability::PageCache) => configs.push(("durability", "relaxed")),
            (Kind::Towpath, Durability::Synced) => configs.push(("durability", "synced")),
            (Kind::Kafka, Durability::PageCache) => {}
            (Kind::Kafka, Durability::Synced) => configs.push(("flush.messages", "1")),
        }
        if self.kind == Kind::Kafka {
            configs.push(("file.delete.delay.ms", "500"));
        }
        let Some(_) = self.place else {
            let created = self.connect()?.create_topic(name, partitions, &configs);
            created.with_context(|| format!("create {name} in {}", self.kind.name()))?;
            return self.wait_for_leaders(name, partitions);
        };
        // Leaders lie elsewhere; clients ask until they are there.
        let majority = (replicas / 2 + 1).to_string();
        configs.push(("min.insync.replicas", &majority));
        let created = self.connect()?.create_replicated_topic(name, partitions, replicas, &configs);
        created.with_context(|| format!("create {name} in {}", self.kind.name()))
    }

    /// Kafka answers before the partitions can be written to.
    fn wait_for_leaders(&self, name: &str, partitions: i32) -> Result<()> {
        let deadline = Instant::now() + START_MAX;
        let mut connection = self.connect()?;
        for partition in 0..partitions {
            while connection.read_all(name, partition, 0).is_err() {
                ensure!(Instant::now() < deadline, "{name}-{partition} gets no leader");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(())
    }

    pub(crate) fn delete_topic(&self, name: &str) -> Result<()> {
        self.connect()?.delete_topic(name)
    }

    fn prepare(&self) -> Result<()> {
        if self.kind == Kind::Towpath {
            return Ok(());
        }
        fs::write(self.home.path().join("server.properties"), self.kafka_properties())?;
        fs::write(self.home.path().join("log4j2.properties"), KAFKA_LOGGING)?;
        let mut format = self.java("kafka.tools.StorageTool")?;
        format.args(["format", "--cluster-id", "AAAAAAAAAAAAAAAAAAAAAQ"]);
        if self.place.is_none() {
            format.arg("--standalone");
        }
        let formatted = format
            .arg("-c")
            .arg(self.home.path().join("server.properties"))
            .output()
            .context("java is needed to run Kafka")?;
        ensure!(
            formatted.status.success(),
            "formatting failed: {}",
            String::from_utf8_lossy(&formatted.stderr)
        );
        Ok(())
    }

    /// Starts the process and waits for its first answer.
    pub(crate) fn start(&mut self) -> Result<()> {
        let begun = Instant::now();
        self.spawn()?;
        self.wait()?;
        self.ready = begun.elapsed();
        Ok(())
    }

    pub(crate) fn spawn(&mut self) -> Result<()> {
        let log =
            File::options().create(true).append(true).open(self.home.path().join("broker.log"))?;
        let mut command = match self.kind {
            Kind::Towpath => self.towpath_command(),
            Kind::Kafka => {
                let mut command = self.java("kafka.Kafka")?;
                command.arg(self.home.path().join("server.properties"));
                command
            }
        };
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        // A child inherits the CPU of the thread that starts it.
        machine::pin(machine::BROKER_CPU)?;
        let child = command.spawn();
        machine::pin(machine::CLIENT_CPU)?;
        self.child = Some(child.with_context(|| format!("{} did not start", self.kind.name()))?);
        Ok(())
    }

    fn wait(&mut self) -> Result<()> {
        let begun = Instant::now();
        while !self.answers() {
            let child = self.child.as_mut().context("it was just started")?;
            if let Some(status) = child.try_wait()? {
                bail!("{} ended ({status}): {}", self.kind.name(), self.last_words());
            }
            ensure!(begun.elapsed() < START_MAX, "{} does not answer", self.kind.name());
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    fn answers(&self) -> bool {
        self.connect().and_then(|mut connection| connection.topics()).is_ok()
    }

    fn last_words(&self) -> String {
        let Ok(log) = File::open(self.home.path().join("broker.log")) else {
            return String::new();
        };
        let lines: Vec<String> = BufReader::new(log).lines().map_while(Result::ok).collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    fn towpath_command(&self) -> Command {
        let mut command = tied(&self.towpath);
        command
            .args(["serve", "--kafka", &format!("127.0.0.1:{}", self.port)])
            .args(["--http", &format!("127.0.0.1:{}", self.second)])
            .arg("--data")
            .arg(self.logs())
            .env("TOWPATH_SQS_KEYS", sqs::KEYS)
            .env("TOWPATH_LOG", "warn");
        if let Some(Place { number, quorum, .. }) = self.place {
            let member = |(number, port)| format!("{number}@127.0.0.1:{port}");
            let members: Vec<String> = (1..).zip(quorum).map(member).collect();
            command
                .args(["--node-id", &number.to_string()])
                .args(["--peer", &format!("127.0.0.1:{}", quorum[number - 1])])
                .args(["--cluster", &members.join(",")]);
        }
        command
    }

    /// Kafka as its own start script runs it, with a heap that stays the same.
    fn java(&self, main: &str) -> Result<Command> {
        let class_path = self.class_path.as_deref().context("Kafka's class path is unknown")?;
        let mut command = tied(Path::new("java"));
        command
            .args(JVM_OPTIONS.split(' '))
            .arg(format!(
                "-Dlog4j2.configurationFile={}",
                self.home.path().join("log4j2.properties").display()
            ))
            .args(["-cp", class_path, main]);
        Ok(command)
    }

    /// Its defaults, but for what one node needs, and mostly a session that a busy machine cannot end:
    /// a broker that is late with its heartbeat to itself would lose its partitions.
    fn kafka_properties(&self) -> String {
        let (port, controller, logs) = (self.port, self.second, self.logs());
        let (number, quorum, replicas, patience) = match self.place {
            None => {
                let quorum = format!("controller.quorum.bootstrap.servers=127.0.0.1:{controller}");
                (1, quorum, 1, Patience::Long)
            }
            Some(Place { number, quorum, patience }) => {
                let voter = |(number, port)| format!("{number}@127.0.0.1:{port}");
                let voters: Vec<String> = (1..).zip(quorum).map(voter).collect();
                (number, format!("controller.quorum.voters={}", voters.join(",")), 3, patience)
            }
        };
        let session = match patience {
            Patience::Long => "broker.session.timeout.ms=60000\n",
            Patience::Default => "",
        };
        format!(
            "process.roles=broker,controller\n\
             node.id={number}\n\
             {quorum}\n\
             listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
             advertised.listeners=PLAINTEXT://127.0.0.1:{port},\
             CONTROLLER://127.0.0.1:{controller}\n\
             controller.listener.names=CONTROLLER\n\
             inter.broker.listener.name=PLAINTEXT\n\
             log.dirs={logs}\n\
             auto.create.topics.enable=false\n\
             offsets.topic.replication.factor={replicas}\n\
             offsets.topic.num.partitions=4\n\
             transaction.state.log.replication.factor={replicas}\n\
             transaction.state.log.min.isr=1\n\
             share.coordinator.state.topic.replication.factor=1\n\
             share.coordinator.state.topic.min.isr=1\n\
             group.initial.rebalance.delay.ms=0\n\
             {session}",
            logs = logs.display()
        )
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.pid()?)?).context("a process id is positive")?;
        Ok(kill_process(pid, signal)?)
    }

    /// Ends the process at once, as a crash does.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.signal(Signal::KILL)?;
        if let Some(mut child) = self.child.take() {
            child.wait()?;
        }
        Ok(())
    }

    /// Lets the process end in order.
    pub(crate) fn stop(&mut self) -> Result<()> {
        self.signal(Signal::TERM)?;
        let deadline = Instant::now() + STOP_MAX;
        let Some(mut child) = self.child.take() else { return Ok(()) };
        while child.try_wait()?.is_none() {
            if deadline < Instant::now() {
                child.kill()?;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

const KAFKA_LOGGING: &str = "rootLogger.level=ERROR
rootLogger.appenderRef.console.ref=console
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=[%d] %p %m (%c)%n
";
