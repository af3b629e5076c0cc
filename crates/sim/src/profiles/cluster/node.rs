//! One machine of the cluster: a disk, clocks, and at most one broker process, the real driver.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use towpath_driver::{Driver, Formation, OpenError, Place, Round, Settings, VolumeIndex};
use towpath_log::{Identity, WriteAheadLimits};
use towpath_metadata::Overrides;
use towpath_metadata::raft::LogIndex;
use towpath_model::{BrokerId, Time, Uuid};

use super::outbox::Outbox;
use crate::clock::SimClock;
use crate::disk::SimDisk;
use crate::profiles::broker::shell::{ProcessClock, SharedClock, lock};
use crate::rng::Rng;
use crate::trace::Trace;

/// The real driver in the simulated cluster.
pub(super) type SimDriver = Driver<SimDisk, ProcessClock, Outbox>;

/// The data directory.
pub(super) const ROOT: &str = "/srv/towpath/data";

/// The cluster.
const CLUSTER: &str = "sim-cluster";

/// A broker process.
pub(super) struct Process {
    pub(super) driver: Arc<SimDriver>,
    pub(super) outbox: Outbox,
    pub(super) clock: ProcessClock,
    /// Global time when it started: its own clock begins there.
    started_at: Time,
    /// The next call of [`Driver::expire_due`] that is on the agenda.
    pub(super) alarm: Option<Time>,
    pub(super) round: Rounds,
    /// Somebody waits for the round after the one that is under way.
    pub(super) wants_more: bool,
    /// It was asked to stop orderly.
    pub(super) is_stopping: bool,
    /// Its directory was seen to have failed.
    pub(super) has_failed: bool,
    /// Its disk was full.
    pub(super) was_full: bool,
    /// How far it had come in the metadata when it was looked at last.
    pub(super) applied: Option<LogIndex>,
    /// How far anybody had come when views of topics that are gone were forgotten last.
    pub(super) tidied: Option<LogIndex>,
    /// The epoch under which its own metadata knows this process.
    pub(super) registered: Option<i64>,
}

/// Where the process's sync thread is.
pub(super) enum Rounds {
    /// It sleeps.
    Idle,
    /// It was woken and has not begun.
    Due,
    /// It has taken what is to be made durable.
    Begun(Round<SimDisk>),
    /// It is in the middle of one of these.
    Busy,
    /// The disk is done.
    Committed(Round<SimDisk>),
}

/// How a disk does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pace {
    /// A round takes at least and at most so long.
    pub(super) round: (Duration, Duration),
}

impl Pace {
    pub(super) const HEALTHY: Pace =
        Pace { round: (Duration::from_micros(200), Duration::from_millis(3)) };
}

/// A machine.
pub(super) struct Node {
    pub(super) id: BrokerId,
    pub(super) disk: SimDisk,
    /// The id of its data directory; another one after the disk was replaced.
    pub(super) directory: Uuid,
    clock: SharedClock,
    /// Global time that its clock has seen.
    seen: Time,
    pub(super) process: Option<Process>,
    /// Processes so far; names the one that runs.
    pub(super) starts: u64,
    boots: u64,
    /// The process is stopped (SIGSTOP) until then; its clock goes on.
    pub(super) paused_until: Option<Time>,
    pub(super) pace: Pace,
    pub(super) is_full: bool,
    /// How the process comes to its quorum when its directory is empty.
    pub(super) formation: Formation,
    /// The machine itself is off: nobody refuses connections there.
    pub(super) is_dark: bool,
    /// The disk's failed syncs when the process started.
    syncs_failed: u64,
    /// Ids of processes.
    ids: Rng,
    pub(super) incarnation: Uuid,
}

impl Node {
    pub(super) fn new(id: BrokerId, rng: &mut Rng, trace: &Trace) -> Node {
        let mut clock = SimClock::new();
        clock.set_drift(rng.weighted(&[(2, 0), (1, 50), (1, -50)]));
        let disk = SimDisk::new(rng.draw(), trace.clone());
        let mut ids = rng.fork();
        let directory = random_id(&mut ids);
        Node {
            id,
            disk,
            directory,
            clock: Arc::new(Mutex::new(clock)),
            seen: Time(0),
            process: None,
            starts: 0,
            boots: 0,
            paused_until: None,
            pace: Pace::HEALTHY,
            is_full: false,
            formation: Formation::Joining,
            is_dark: false,
            syncs_failed: 0,
            incarnation: random_id(&mut ids),
            ids,
        }
    }

    /// Its clocks see what time it is.
    pub(super) fn catch_up(&mut self, now: Time) {
        if self.seen < now {
            lock(&self.clock).advance(now - self.seen);
            self.seen = now;
        }
    }

    /// Its monotonic clock runs too fast by so many thousandths, or too slow.
    pub(super) fn set_rate(&mut self, per_mille: i64) {
        lock(&self.clock).set_rate(per_mille);
    }

    /// Its wall clock jumps.
    pub(super) fn jump_wall(&mut self, rng: &mut Rng) {
        lock(&self.clock).jump_wall(rng);
    }

    /// What people's clocks on this machine say.
    pub(super) fn wall(&self) -> towpath_model::Timestamp {
        lock(&self.clock).now().wall
    }

    /// Whether a process runs that is not paused.
    pub(super) fn is_awake(&self, now: Time) -> bool {
        self.process.is_some() && self.paused_until.is_none_or(|until| until <= now)
    }

    /// Whether a process runs, paused or not.
    pub(super) fn is_up(&self) -> bool {
        self.process.is_some()
    }

    /// Starts a process.
    ///
    /// # Errors
    /// When it does not open.
    pub(super) fn start(
        &mut self,
        now: Time,
        statics: &Overrides,
        limits: WriteAheadLimits,
        snapshot_bytes: u64,
    ) -> Result<(), OpenError> {
        self.catch_up(now);
        self.starts += 1;
        self.is_dark = false;
        self.paused_until = None;
        self.syncs_failed = self.disk.events().count("disk: sync failed");
        self.incarnation = random_id(&mut self.ids);
        let (id, directory_id) = (self.id, self.directory);
        let identity = || Identity { cluster_id: CLUSTER.to_owned(), node_id: id, directory_id };
        let settings = Settings {
            broker_id: id,
            statics: statics.clone(),
            incarnation: self.incarnation,
            addresses: Vec::new(),
            forgotten_directories: Vec::new(),
            rack: None,
            role: towpath_metadata::Role::Broker,
            formation: self.formation.clone(),
        };
        let clock = ProcessClock::start(&self.clock);
        let outbox = Outbox::default();
        let boot = format!("boot-{}-{}", self.id, self.boots);
        let driver = Driver::open_in(
            vec![Place { disk: self.disk.clone(), path: PathBuf::from(ROOT) }],
            limits,
            identity,
            &boot,
            settings,
            clock.clone(),
            outbox.clone(),
        )?;
        driver.snapshot_metadata_every(snapshot_bytes);
        self.process = Some(Process {
            driver,
            outbox,
            clock,
            started_at: now,
            alarm: None,
            round: Rounds::Idle,
            wants_more: false,
            is_stopping: false,
            has_failed: false,
            was_full: self.is_full,
            applied: None,
            tidied: None,
            registered: None,
        });
        Ok(())
    }

    /// The process is gone, by itself or with its machine's power.
    pub(super) fn end(&mut self, loses_power: bool) {
        self.process = None;
        self.paused_until = None;
        if loses_power {
            self.disk.lose_power();
            self.boots += 1;
            self.is_dark = true;
        } else {
            self.disk.kill();
        }
        self.disk.restart();
    }

    /// Another disk takes the place of this machine's; whatever was on it is gone.
    pub(super) fn replace_disk(&mut self, rng: &mut Rng, trace: &Trace) {
        self.disk = SimDisk::new(rng.draw(), trace.clone());
        self.directory = random_id(&mut self.ids);
        self.formation = Formation::Joining;
        self.is_full = false;
    }

    /// Whether a sync has failed since the process started.
    pub(super) fn has_sync_failed(&self) -> bool {
        self.syncs_failed < self.disk.events().count("disk: sync failed")
    }
}

impl Process {
    /// Global time of a deadline of the process.
    pub(super) fn global(&self, deadline: Time) -> Time {
        self.started_at + self.clock.takes(deadline - Time(0))
    }

    /// Whether anybody waits for a round that has not begun; says so once.
    pub(super) fn takes_sync_wish(&self) -> bool {
        self.clock.take_sync_wish(VolumeIndex::FIRST)
    }
}

pub(super) fn random_id(rng: &mut Rng) -> Uuid {
    let mut bytes = [0; 16];
    rng.fill(&mut bytes);
    Uuid::from_random_bytes(bytes)
}
