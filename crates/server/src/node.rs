//! One running broker: the driver, its threads, and what requests need besides.
//!
//! Each data directory has a thread for its sync rounds and one for its upkeep, so that a disk that does
//! not answer holds up no other one. Deadlines have a thread that waits for no disk but the first
//! one, where the states that have deadlines are.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use towpath_broker::peer::PeerPlace;
use towpath_coordinator::{groups, publishers};
use towpath_driver::{
    Clock, CompactionWork, Delivery, Driver, NotCoordinator, OpenError, Place, QUORUM_TICK,
    QuorumReport, ScrubWork, Settings, VolumeIndex,
};
use towpath_log::{Identity, WriteAheadLimits};
use towpath_metadata as metadata;
use towpath_model::{BrokerId, TopicPartition, Uuid};

use crate::clock::SystemClock;
use crate::cold_reads::ColdReads;
use crate::complaints::Complaints;
use crate::disk::NodeDisk;
use crate::guard::Guard;
use crate::health;
use crate::kafka::FetchSessions;
use crate::limits::{Ledger, Limits};
use crate::metrics::{Metrics, SyncTimes};
use crate::peer::{Class, PeerAddress, PeerMetrics};
use crate::plain_memory::{PlainMemory, PlainTurn};
use crate::progress::Progress;
use crate::restart_order::RestartOrder;
use crate::waiters::{Wait, Waiters};

/// The driver over real disks, clocks and sockets.
pub type SystemDriver = Arc<Driver<NodeDisk, SystemClock, Waiters>>;

/// How a node is started.
#[derive(Debug, Clone)]
pub struct NodeSettings {
    /// The data directories; the metadata lives in the first. At least one.
    pub data: Vec<PathBuf>,
    /// The disk that they are on.
    pub disk: NodeDisk,
    /// This broker, and the properties it was given.
    pub driver: Settings,
    /// Host and port for Kafka clients; `None`: whatever each client has dialled.
    pub advertised: Option<(String, u16)>,
    /// Bounds of the Kafka listener.
    pub limits: Limits,
    /// Topics come into being when they are published to or asked for over HTTP.
    pub http_creates_topics: bool,
    /// What a new first data directory is called; drawn, where there is nothing to say.
    pub identity: Option<Identity>,
}

/// What a node that has peers is given beside its settings.
#[derive(Clone, Default)]
pub struct Surroundings {
    /// Who waits for what, and the way to peers.
    pub waiters: Waiters,
    /// What goes over the connections to peers.
    pub peers: PeerMetrics,
}

/// Between two looks for something to compact, whatever was configured: no busy loop, and a change of
/// the configuration is seen.
const COMPACTION_REST_MIN: Duration = Duration::from_millis(100);
/// How many times as long as it has read a scrub rests.
const SCRUB_REST: u32 = 9;
const COMPACTION_REST_MAX: Duration = Duration::from_secs(15);

/// The name of the HTTP listener in a broker's registration.
const HTTP_LISTENER: &str = "HTTP";

/// Between two rounds of upkeep.
const UPKEEP_EVERY: Duration = Duration::from_secs(1);
/// Between two looks at how the disks do.
const HEALTH_EVERY: Duration = Duration::from_secs(1);
/// How often a broker without others looks whether that is still so.
const ALONE_TICK: Duration = Duration::from_secs(1);
/// The timer looks at least this often.
const TIMER_PAUSE_MAX: Duration = Duration::from_secs(60);

/// Why a state was not asked, or did not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// The state is not here.
    #[error(transparent)]
    NotCoordinator(#[from] NotCoordinator),
    /// The partition stopped being led here meanwhile.
    #[error("this broker stopped leading the partition while the request was under way")]
    Resigned,
    /// The data directory failed; whether the request took effect is open.
    #[error("the data directory failed while the request was under way")]
    Storage,
    /// The broker is stopping.
    #[error("the broker is stopping")]
    Stopping,
}

/// A running broker. Shared by every connection; stopped once, by its owner.
pub struct Node {
    driver: SystemDriver,
    waiters: Waiters,
    settings: NodeSettings,
    limits: Limits,
    ledger: Ledger,
    plain_memory: Arc<PlainMemory>,
    sessions: FetchSessions,
    metrics: Metrics,
    complaints: Complaints,
    /// Where HTTP is served, once it is.
    http_address: OnceLock<SocketAddr>,
    guard: Guard,
    restart: RestartOrder,
    /// Who may wait for a device to read, by data directory.
    cold_reads: Vec<ColdReads>,
    stopping: Arc<AtomicBool>,
    threads: std::sync::Mutex<Vec<JoinHandle<()>>>,
}

impl Node {
    /// Recovers the data directory and begins to lead what is in it. Blocks on the disk.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn start(settings: NodeSettings) -> Result<Arc<Node>, OpenError> {
        Self::start_with(settings, Surroundings::default(), &Progress::default())
    }

    /// [`Self::start`], which others can watch.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn start_with(
        settings: NodeSettings,
        surroundings: Surroundings,
        progress: &Progress,
    ) -> Result<Arc<Node>, OpenError> {
        let clock = SystemClock::start_with(settings.data.len(), progress.clone());
        let Surroundings { waiters, peers } = surroundings;
        let mut given = settings.identity.clone();
        let broker_id = settings.driver.broker_id;
        let place = |path: &PathBuf| Place { disk: settings.disk.clone(), path: path.clone() };
        let driver = Driver::open_in(
            settings.data.iter().map(place).collect(),
            WriteAheadLimits::default(),
            || given.take().unwrap_or_else(|| new_identity(broker_id)),
            &boot_id(),
            settings.driver.clone(),
            clock.clone(),
            waiters.clone(),
        )?;
        let stopping = Arc::new(AtomicBool::new(false));
        let plain_memory = Arc::new(PlainMemory::default());
        let metrics = Metrics { peers, ..Metrics::default() };
        let threads = begin_threads(&driver, &clock, &stopping, &metrics, &plain_memory);
        let limits = settings.limits.clone();
        let slots = driver.image().broker_config().fetch_sessions_max;
        Ok(Arc::new(Node {
            driver,
            waiters,
            ledger: Ledger::new(limits.request_memory_bytes),
            limits,
            plain_memory,
            sessions: FetchSessions::new(slots),
            metrics,
            complaints: Complaints::default(),
            guard: Guard::new(1 < settings.data.len()),
            restart: RestartOrder::default(),
            cold_reads: settings.data.iter().map(|_| ColdReads::new()).collect(),
            settings,
            http_address: OnceLock::new(),
            stopping,
            threads: std::sync::Mutex::new(threads),
        }))
    }

    /// Stops all threads, flushes everything and leaves a clean mark. Blocks on the disk.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.driver.clock().ring_all();
        let threads = std::mem::take(&mut *self.threads.lock().expect("only stop() locks this"));
        for thread in threads {
            // A thread that panicked has already ended the process.
            let _ = thread.join();
        }
        if let Err(error) = self.driver.close_cleanly() {
            tracing::error!(%error, "the data directory could not be closed cleanly; \
                the next start checks it");
        }
    }

    /// The driver.
    pub fn driver(&self) -> &SystemDriver {
        &self.driver
    }

    /// Counters and gauges.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The order to start anew, for those who give it and who carry it out.
    pub fn restart(&self) -> &RestartOrder {
        &self.restart
    }

    /// The data directories, as they were configured.
    pub fn data_directories(&self) -> &[PathBuf] {
        &self.settings.data
    }

    /// Says where HTTP is served; the first one counts.
    pub fn set_http_address(&self, address: SocketAddr) {
        let _ = self.http_address.set(address);
    }

    /// Every listener of this broker, as Kafka writes them: `NAME://host:port`.
    pub(crate) fn listeners(&self) -> String {
        let kafka = self.settings.driver.addresses.iter();
        let kafka = kafka.map(|at| format!("{}://{}", at.listener, host_port(&at.host, at.port)));
        let is_named = self.settings.driver.addresses.iter().any(|at| at.listener == HTTP_LISTENER);
        let http = self.http_address.get().filter(|_| !is_named);
        let http = http.map(|address| format!("{HTTP_LISTENER}://{address}"));
        kafka.chain(http).collect::<Vec<_>>().join(",")
    }

    pub(crate) fn cold_reads(&self, volume: VolumeIndex) -> &ColdReads {
        &self.cold_reads[volume.0]
    }

    /// Does what may touch a disk, so that it holds up no other work for long.
    pub fn guarded<R>(&self, act: impl FnOnce() -> R) -> R {
        let is_slow = || self.driver.is_any_slow(|| self.driver.clock().time());
        self.guard.pass(is_slow, act)
    }

    /// Whether HTTP publishing creates topics.
    pub fn http_creates_topics(&self) -> bool {
        self.settings.http_creates_topics
    }

    /// Fresh properties of the broker: dynamic ones over those given at start.
    pub fn broker_config(&self) -> towpath_model::properties::BrokerConfig {
        self.driver.image().broker_config()
    }

    /// Whether a log line about a stranger may be written now, and how many were left out.
    pub fn may_complain(&self) -> Option<u64> {
        let allowed = self.complaints.allow(self.driver.clock().now().time);
        if allowed.is_none() {
            self.metrics.complaints_suppressed.inc();
        }
        allowed
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub(crate) fn plain_memory(&self) -> &Arc<PlainMemory> {
        &self.plain_memory
    }

    /// Waits for the memory in which large batches are looked at. To be awaited in a task that does
    /// nothing else meanwhile, and to be used at once.
    pub async fn plain_turn(&self) -> PlainTurn {
        self.plain_memory.turn().await
    }

    pub(crate) fn sessions(&self) -> &FetchSessions {
        &self.sessions
    }

    pub(crate) fn advertised(&self) -> Option<&(String, u16)> {
        self.settings.advertised.as_ref()
    }

    /// Begins to wait on a new token.
    pub fn wait(&self) -> Wait {
        Wait::begin(&self.waiters)
    }

    /// Asks the metadata and waits for the committed answer.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn ask_metadata(
        &self,
        request: metadata::Request,
    ) -> Result<metadata::Reply, Unavailable> {
        let mut wait = self.wait();
        self.driver.ask_metadata(wait.token(), request)?;
        match wait.answer().await {
            Some(Delivery::Metadata(reply)) => Ok(reply),
            other => Err(unavailable(other)),
        }
    }

    /// How the metadata quorum stands: as its leader says, if that answers within `limit`.
    pub async fn ask_quorum(&self, limit: Duration) -> QuorumReport {
        let mut wait = self.wait();
        self.driver.ask_quorum(wait.token());
        match tokio::time::timeout(limit, wait.answer()).await {
            Ok(Some(Delivery::Quorum(report))) => report,
            _ => self.driver.quorum_report(),
        }
    }

    /// What a member of the metadata quorum knows of it, if that answers within `limit`.
    pub async fn ask_member(&self, member: BrokerId, limit: Duration) -> Option<QuorumReport> {
        let mut wait = self.wait();
        self.driver.ask_member(member, wait.token());
        match tokio::time::timeout(limit, wait.answer()).await {
            Ok(Some(Delivery::Quorum(report))) => Some(report),
            _ => None,
        }
    }

    /// Whether messages reach another broker, as far as is known.
    pub(crate) fn is_connected(&self, broker: BrokerId) -> bool {
        self.waiters.peers().is_some_and(|peers| peers.is_connected(broker, Class::Control))
    }

    /// Somebody says where a broker listens for others.
    pub(crate) fn hear_of(&self, broker: BrokerId, place: &PeerPlace) {
        if let Some(peers) = self.waiters.peers() {
            let PeerPlace { host, port } = place.clone();
            peers.hear_of(broker, PeerAddress { host, port });
        }
    }

    /// Asks a group's coordinator and waits for the committed answer.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn ask_group(
        &self,
        group: &str,
        request: groups::Request,
    ) -> Result<groups::Reply, Unavailable> {
        let place = self.driver.group_place(group)?;
        self.ask_groups_at(place, request).await
    }

    /// Asks one partition of the groups.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn ask_groups_at(
        &self,
        place: TopicPartition,
        request: groups::Request,
    ) -> Result<groups::Reply, Unavailable> {
        let mut wait = self.wait();
        self.driver.ask_groups_at(place, wait.token(), request)?;
        match wait.answer().await {
            Some(Delivery::Groups(reply)) => Ok(reply),
            other => Err(unavailable(other)),
        }
    }

    /// Asks the state of an HTTP publisher and waits for the committed answer.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn ask_publisher(
        &self,
        publisher: &publishers::Publisher,
        request: publishers::Request,
    ) -> Result<publishers::Reply, Unavailable> {
        let mut wait = self.wait();
        self.driver.ask_publisher(publisher, wait.token(), request)?;
        match wait.answer().await {
            Some(Delivery::Publishers(reply)) => Ok(reply),
            other => Err(unavailable(other)),
        }
    }
}

fn host_port(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

pub(crate) fn unavailable(delivery: Option<Delivery>) -> Unavailable {
    use towpath_driver::Outcome;
    match delivery {
        Some(Delivery::Wait(Outcome::StorageFailed)) => Unavailable::Storage,
        Some(_) => Unavailable::Resigned,
        None => Unavailable::Stopping,
    }
}

fn begin_threads(
    driver: &SystemDriver,
    clock: &SystemClock,
    stopping: &Arc<AtomicBool>,
    metrics: &Metrics,
    plain_memory: &Arc<PlainMemory>,
) -> Vec<JoinHandle<()>> {
    let threads =
        || Threads { driver: driver.clone(), clock: clock.clone(), stopping: Arc::clone(stopping) };
    let mut all = Vec::new();
    for volume in driver.volumes() {
        let number = volume.0;
        let times = metrics.sync_seconds.clone();
        let sync = threads();
        all.push(spawn(&format!("towpath-sync-{number}"), move || sync.sync(volume, &times)));
        let upkeep = threads();
        all.push(spawn(&format!("towpath-keep-{number}"), move || upkeep.upkeep(volume)));
        let scrub = threads();
        all.push(spawn(&format!("towpath-scrub-{number}"), move || scrub.scrub(volume)));
    }
    let (timer, watch, plain_memory) = (threads(), threads(), Arc::clone(plain_memory));
    all.push(spawn("towpath-timer", move || timer.timer()));
    let quorum = threads();
    all.push(spawn("towpath-quorum", move || quorum.tick()));
    let compact = threads();
    all.push(spawn("towpath-compact", move || compact.compact()));
    all.push(spawn("towpath-health", move || watch.health(&plain_memory)));
    all
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(body).expect("a process that cannot start its threads cannot serve")
}

/// What each of the node's threads works with, until the node stops.
struct Threads {
    driver: SystemDriver,
    clock: SystemClock,
    stopping: Arc<AtomicBool>,
}

impl Threads {
    fn is_over(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// One round whenever something waits for the disk.
    fn sync(&self, volume: VolumeIndex, times: &SyncTimes) {
        let paths = self.driver.volume_statuses();
        let times = times.of(&paths[volume.0].path);
        while !self.is_over() {
            self.clock.wait_for_sync(volume);
            while self.driver.has_unsynced_in(volume) {
                let report = self.driver.sync_round_in(volume);
                if 0 < report.partitions {
                    times.observe(report.taken.as_secs_f64());
                }
            }
        }
    }

    /// Upkeep once a second; a look at the room that is left more often where it is little.
    fn upkeep(&self, volume: VolumeIndex) {
        let mut next_upkeep = self.clock.now().time + UPKEEP_EVERY;
        while !self.is_over() {
            let pause = (next_upkeep - self.clock.time()).min(self.driver.look_again_after(volume));
            self.clock.wait_for_upkeep(volume, pause);
            if next_upkeep <= self.clock.time() {
                self.driver.upkeep_in(volume);
                next_upkeep = self.clock.time() + UPKEEP_EVERY;
            } else {
                self.driver.look_at_room(volume);
            }
        }
    }

    /// Lets the quorum's clock tick, and whatever hangs on it. A broker without others has little to
    /// do.
    fn tick(&self) {
        while !self.is_over() {
            self.driver.tick();
            let pause = if self.driver.has_peers() { QUORUM_TICK } else { ALONE_TICK };
            self.clock.wait_for_tick(pause);
        }
    }

    /// Compaction, which rests at least as long as it has worked, so that it never takes more than half
    /// a core from those who wait for answers.
    fn compact(&self) {
        while !self.is_over() {
            let began = self.clock.time();
            let rest = match self.driver.compact() {
                CompactionWork::Idle { until } => {
                    (until - self.clock.time()).clamp(COMPACTION_REST_MIN, COMPACTION_REST_MAX)
                }
                CompactionWork::Worked { bytes } => {
                    let worked = self.clock.time() - began;
                    let config = self.driver.image().broker_config();
                    let rate = config.compaction_bytes_per_second_max;
                    let due = rate.map_or(0.0, |rate| bytes as f64 / rate as f64);
                    worked.max(Duration::from_secs_f64(due).saturating_sub(worked))
                }
            };
            self.clock.rest(rest);
        }
    }

    /// Scrub, at the pace that is configured, and never more than a tenth of the time.
    fn scrub(&self, volume: VolumeIndex) {
        while !self.is_over() {
            let began = self.clock.time();
            let rest = match self.driver.scrub_in(volume) {
                ScrubWork::Idle { until } => until - self.clock.time(),
                ScrubWork::Worked { bytes } => {
                    let worked = self.clock.time() - began;
                    let rate = self.driver.image().broker_config().scrub_bytes_per_second_max;
                    let due = Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
                    due.saturating_sub(worked).max(worked * SCRUB_REST)
                }
            };
            self.clock.rest_from_scrub(volume, rest);
        }
    }

    /// Deadlines when they come.
    fn timer(&self) {
        while !self.is_over() {
            let now = self.clock.time();
            let pause = self.driver.next_deadline().map_or(TIMER_PAUSE_MAX, |at| at - now);
            if !pause.is_zero() {
                self.clock.wait_for_deadline(pause.min(TIMER_PAUSE_MAX));
            }
            self.driver.expire_due();
        }
    }

    /// Says when a disk stops to answer, and when it does again; gives idle memory back.
    fn health(&self, plain_memory: &PlainMemory) {
        let mut watch = health::Watch::default();
        while !self.is_over() {
            self.clock.wait_for_health(HEALTH_EVERY);
            self.driver.watch_disks();
            watch.look(&self.driver.volume_statuses());
            plain_memory.release_idle();
        }
    }
}

fn new_identity(broker_id: BrokerId) -> Identity {
    Identity {
        cluster_id: random_uuid().to_string(),
        node_id: broker_id,
        directory_id: random_uuid(),
    }
}

/// A random id.
///
/// # Panics
/// When the system has no randomness to give, which it does before anything else starts.
pub fn random_uuid() -> Uuid {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the system has randomness");
    Uuid::from_random_bytes(bytes)
}

/// Tells one boot of the machine from another: what was only in memory is gone after a new one.
/// Empty where the system does not tell.
fn boot_id() -> String {
    let read = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    read.map_or_else(|_| String::new(), |id| id.trim().to_owned())
}
