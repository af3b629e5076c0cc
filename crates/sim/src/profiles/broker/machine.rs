//! One simulated machine: a disk, clocks, and at most one broker process, the real driver.
//!
//! The profiles `broker` and `groups` both run on it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use towpath_driver::{
    Clock, CompactionWork, Driver, OpenError, Place, Room, Round, ScrubTotals, ScrubWork, Settings,
    VolumeIndex,
};
use towpath_log::{Identity, WriteAheadLimits};
use towpath_metadata::{Address, Overrides};
use towpath_model::{BrokerId, Now, Token, Uuid};

use super::shell::{Mailbox, ProcessClock, SharedClock, lock};
use crate::clock::SimClock;
use crate::disk::SimDisk;
use crate::events::Events;
use crate::profile::{Violation, ensure};
use crate::rng::Rng;
use crate::trace::Trace;

/// The real driver in the simulated world.
pub(in crate::profiles) type SimDriver = Driver<SimDisk, ProcessClock, Mailbox>;

/// The data directory.
pub(in crate::profiles) const ROOT: &str = "/srv/towpath/data";

/// This broker.
const ME: BrokerId = BrokerId(1);

/// The usual reserve would be most of what a simulated disk holds.
fn with_small_reserve(mut statics: Overrides) -> Overrides {
    statics.entry("disk.reserve.bytes".to_owned()).or_insert_with(|| "3000".to_owned());
    statics
}

/// How a process came to its end; the worst comes last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::profiles) enum Ending {
    /// It stopped orderly.
    Closed,
    /// It was killed; the page cache survived.
    Killed,
    /// The power went, or a sync had failed before: what was not synced may be gone.
    PowerLost,
}

/// A broker process.
#[derive(Clone)]
pub(in crate::profiles) struct Process {
    pub(in crate::profiles) driver: Arc<SimDriver>,
    pub(in crate::profiles) mailbox: Mailbox,
    pub(in crate::profiles) clock: ProcessClock,
}

/// What processes leave to their successors, and the one that runs.
pub(in crate::profiles) struct Machine {
    pub(in crate::profiles) disk: SimDisk,
    pub(in crate::profiles) trace: Trace,
    clock: SharedClock,
    /// Broker properties given at start.
    statics: Overrides,
    limits: WriteAheadLimits,
    boots: u64,
    starts: u64,
    tokens: u64,
    ids: Rng,
    running: Option<Process>,
    /// The data directories of the next start.
    roots: Vec<PathBuf>,
    /// The sync rounds that are under way, and whether the disk is done with them.
    rounds: BTreeMap<VolumeIndex, (Round<SimDisk>, bool)>,
    /// How badly processes have ended since somebody looked at what is left.
    ending: Ending,
    /// The process that runs has opened everything.
    serves: bool,
    /// The last process that served ended without a word.
    must_lead_anew: bool,
    /// Failed syncs when the process started.
    syncs_failed_before: u64,
}

impl Machine {
    /// A machine that has never run a broker.
    pub(in crate::profiles) fn new(
        rng: &mut Rng,
        trace: Trace,
        limits: WriteAheadLimits,
        statics: Overrides,
    ) -> Machine {
        let mut clock = SimClock::new();
        clock.set_drift(rng.weighted(&[(2, 0), (1, 50), (1, -50)]));
        let disk = SimDisk::new(rng.draw(), trace.clone());
        disk.set_copies_on_write(rng.percent(30));
        Machine {
            disk,
            trace,
            clock: Arc::new(Mutex::new(clock)),
            statics: with_small_reserve(statics),
            limits,
            boots: 0,
            starts: 0,
            tokens: 0,
            ids: rng.fork(),
            running: None,
            roots: vec![PathBuf::from(ROOT)],
            rounds: BTreeMap::new(),
            ending: Ending::Closed,
            serves: false,
            must_lead_anew: false,
            syncs_failed_before: 0,
        }
    }

    /// The next start is given these data directories.
    pub(in crate::profiles) fn set_roots(&mut self, roots: Vec<PathBuf>) {
        self.roots = roots;
    }

    /// Starts a broker.
    ///
    /// # Errors
    /// When it does not open; the caller judges whether it had to.
    pub(in crate::profiles) fn start(&mut self) -> Result<(), OpenError> {
        self.starts += 1;
        self.syncs_failed_before = self.disk.events().count("disk: sync failed");
        let incarnation = self.new_id();
        self.trace.event("start", &[self.starts]);
        let process = self.open(&self.disk, incarnation)?;
        self.running = Some(process);
        self.serves = true;
        Ok(())
    }

    /// Starts a broker on a copy of the disk, to see what is there.
    pub(in crate::profiles) fn start_on_copy(
        &mut self,
        disk: &SimDisk,
    ) -> Result<Process, OpenError> {
        let incarnation = self.new_id();
        self.open(disk, incarnation)
    }

    fn open(&self, disk: &SimDisk, incarnation: Uuid) -> Result<Process, OpenError> {
        let mut named = 0;
        let identity = || {
            // One more directory is a new one, whichever start makes it.
            let mut id = if self.roots.len() == 1 { [7; 16] } else { incarnation.0 };
            id[0] ^= named;
            named += 1;
            Identity { cluster_id: "sim".to_owned(), node_id: ME, directory_id: Uuid(id) }
        };
        let address =
            Address { listener: "PLAINTEXT".to_owned(), host: "sim".to_owned(), port: 9092 };
        let settings = Settings {
            broker_id: ME,
            statics: self.statics.clone(),
            incarnation,
            addresses: vec![address],
            forgotten_directories: Vec::new(),
            rack: None,
            role: towpath_metadata::Role::Broker,
            formation: towpath_driver::Formation::Alone,
        };
        let clock = ProcessClock::start(&self.clock);
        let mailbox = Mailbox::default();
        let boot = format!("boot-{}", self.boots);
        let place = |path: &PathBuf| Place { disk: disk.clone(), path: path.clone() };
        let driver = Driver::open_in(
            self.roots.iter().map(place).collect(),
            self.limits,
            identity,
            &boot,
            settings,
            clock.clone(),
            mailbox.clone(),
        )?;
        Ok(Process { driver, mailbox, clock })
    }

    /// The process that runs.
    ///
    /// # Panics
    /// When none does: a fault of the profile.
    pub(in crate::profiles) fn process(&self) -> Process {
        self.running.clone().expect("a profile asks a broker that it has started")
    }

    /// Whether a process runs.
    pub(in crate::profiles) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// The driver of the process that runs.
    pub(in crate::profiles) fn driver(&self) -> Arc<SimDriver> {
        self.process().driver
    }

    /// Whether the machine has stopped in the middle of a call. Nothing the driver said since then
    /// was said.
    pub(in crate::profiles) fn has_stopped(&self) -> bool {
        self.disk.has_crashed()
    }

    /// Whether a sync has failed since the last start: what was not synced may be gone.
    pub(in crate::profiles) fn has_sync_failed(&self) -> bool {
        self.syncs_failed_before < self.disk.events().count("disk: sync failed")
    }

    /// Stops orderly, if it can; says whether it could.
    pub(in crate::profiles) fn close(&mut self) -> bool {
        if self.running.is_some() {
            self.finish_rounds();
        }
        let Some(process) = self.running.take() else { return false };
        // From here on the mark of a clean stop may be there, whether or not this returns.
        self.serves = false;
        self.must_lead_anew = false;
        self.trace.event("close", &[]);
        process.driver.close_cleanly().is_ok() && !self.has_stopped()
    }

    /// The process ends, and the next one may start: after a power loss, or after a kill.
    pub(in crate::profiles) fn end(&mut self, was_closed: bool, loses_power: bool) -> Ending {
        self.running = None;
        self.rounds.clear();
        if loses_power {
            self.disk.lose_power();
            self.boots += 1;
        } else {
            self.disk.kill();
        }
        let ending = match (was_closed, loses_power || self.has_sync_failed()) {
            (true, _) => Ending::Closed,
            (false, true) => Ending::PowerLost,
            (false, false) => Ending::Killed,
        };
        self.disk.restart();
        self.must_lead_anew |= std::mem::take(&mut self.serves);
        self.ending = self.ending.max(ending);
        ending
    }

    /// How badly it ended since this was last asked; from now on nothing has.
    pub(in crate::profiles) fn take_ending(&mut self) -> Ending {
        std::mem::replace(&mut self.ending, Ending::Closed)
    }

    /// Whether the last process that served may have lost what it was told: the next one has to lead
    /// anew. One that ended before it served has told nobody anything.
    pub(in crate::profiles) fn must_lead_anew(&self) -> bool {
        self.must_lead_anew
    }

    /// How badly it has ended since somebody looked.
    pub(in crate::profiles) fn ending(&self) -> Ending {
        self.ending
    }

    /// The number of the process that runs, or ran last.
    pub(in crate::profiles) fn incarnation(&self) -> u64 {
        self.starts
    }

    /// A token nobody has had.
    pub(in crate::profiles) fn token(&mut self) -> Token {
        self.tokens += 1;
        Token(self.tokens)
    }

    /// A random id.
    pub(in crate::profiles) fn new_id(&mut self) -> Uuid {
        let mut bytes = [0; 16];
        self.ids.fill(&mut bytes);
        Uuid::from_random_bytes(bytes)
    }

    /// Both clocks, as the process that runs reads them.
    pub(in crate::profiles) fn now(&self) -> Now {
        self.process().clock.now()
    }

    /// How often the wall clock has jumped.
    pub(in crate::profiles) fn jumps(&self) -> u64 {
        lock(&self.clock).jumps()
    }

    /// Lets time pass.
    pub(in crate::profiles) fn advance(&mut self, wait: Duration) {
        lock(&self.clock).advance(wait);
    }

    /// Moves the wall clock.
    pub(in crate::profiles) fn jump_wall(&mut self, rng: &mut Rng) {
        lock(&self.clock).jump_wall(rng);
    }

    /// One round of the sync thread, if anybody wants one; says whether.
    pub(in crate::profiles) fn sync_if_wanted(&mut self) -> bool {
        self.finish_rounds();
        let process = self.process();
        let wanted = process.clock.take_sync_wishes();
        for volume in &wanted {
            process.driver.sync_round_in(*volume);
        }
        !wanted.is_empty()
    }

    /// One round of the sync thread of one data directory, if anybody wants one.
    pub(in crate::profiles) fn sync_volume_if_wanted(&mut self, volume: VolumeIndex) {
        self.finish_round(volume);
        let Process { driver, clock, .. } = self.process();
        if clock.take_sync_wish(volume) {
            driver.sync_round_in(volume);
        }
    }

    /// Begins a round in a data directory, if none is under way and anybody wants one; says whether
    /// one is under way now.
    pub(in crate::profiles) fn begin_round_if_wanted(&mut self, volume: VolumeIndex) -> bool {
        let Process { driver, clock, .. } = self.process();
        if !self.rounds.contains_key(&volume) && clock.take_sync_wish(volume) {
            self.rounds.insert(volume, (driver.begin_round(volume), false));
        }
        self.rounds.contains_key(&volume)
    }

    /// Whether the broker knows of a data directory with less room than it keeps back.
    pub(in crate::profiles) fn is_out_of_room(&self) -> bool {
        let statuses = self.driver().volume_statuses();
        statuses.iter().any(|status| status.room == Room::Full)
    }

    /// Whether the disk of a data directory has not answered for long.
    pub(in crate::profiles) fn is_stalled(&self) -> bool {
        let statuses = self.driver().volume_statuses();
        statuses.iter().any(|status| status.stalled_for.is_some())
    }

    /// A few turns of the compaction thread; says how many compactions have ended in them.
    pub(in crate::profiles) fn compact(&mut self, turns: u64) -> u64 {
        let driver = &self.process().driver;
        let before = driver.compaction_totals().runs;
        for _ in 0..turns {
            if let CompactionWork::Idle { .. } = driver.compact() {
                break;
            }
        }
        driver.compaction_totals().runs - before
    }

    /// A few turns of the scrub thread.
    pub(in crate::profiles) fn scrub(&mut self, turns: u64) -> ScrubTotals {
        let driver = &self.process().driver;
        for _ in 0..turns {
            if let ScrubWork::Idle { .. } = driver.scrub_in(VolumeIndex::FIRST) {
                break;
            }
        }
        driver.scrubbed_so_far()
    }

    /// As [`Self::sync_a_part_of`], of the only directory.
    pub(in crate::profiles) fn sync_a_part(&mut self, events: &mut Events) {
        self.sync_a_part_of(VolumeIndex::FIRST, events);
    }

    /// The sync thread comes one step further: it takes a round, lets the disk make it durable, or
    /// publishes it. Whatever happens between two calls of this happens in the middle of a round.
    pub(in crate::profiles) fn sync_a_part_of(&mut self, volume: VolumeIndex, events: &mut Events) {
        let driver = self.driver();
        self.trace.event("sync part", &[]);
        match self.rounds.remove(&volume) {
            None => {
                self.begin_round_if_wanted(volume);
            }
            Some((mut round, false)) => {
                if driver.has_unsynced_in(volume) {
                    events.note("sync: made durable after more appends");
                }
                driver.commit_round(&mut round);
                self.rounds.insert(volume, (round, true));
            }
            Some((round, true)) => {
                if driver.has_unsynced_in(volume) {
                    events.note("sync: published after more appends");
                }
                if round.partitions().any(|id| driver.position(id, None).is_err()) {
                    events.note("sync: published after a partition was closed");
                }
                driver.finish_round(round);
            }
        }
    }

    fn finish_rounds(&mut self) {
        while let Some(volume) = self.rounds.keys().next().copied() {
            self.finish_round(volume);
        }
    }

    /// Finishes a round that is under way, as the end of the sync thread does.
    fn finish_round(&mut self, volume: VolumeIndex) {
        let driver = self.driver();
        let Some((mut round, is_committed)) = self.rounds.remove(&volume) else { return };
        if !is_committed {
            driver.commit_round(&mut round);
        }
        driver.finish_round(round);
    }

    /// One turn of the timer thread: lets due deadlines act, and sets the alarm for the next.
    pub(in crate::profiles) fn tick(&mut self) {
        let process = self.process();
        if process.clock.take_alarm() {
            process.driver.expire_due();
            if let Some(next) = process.driver.next_deadline() {
                process.clock.wake_at(next);
            }
        }
    }

    /// Leaves at least `spare` bytes free, and not much more.
    pub(in crate::profiles) fn fill_disk(&mut self, spare: u64) {
        self.disk.set_capacity(None);
        let Ok(space) = self.driver().space() else { return };
        self.disk.set_capacity(Some(space.total_bytes - space.free_bytes + spare));
    }

    /// The driver has told its clock whatever it waits for; otherwise it would wait for ever.
    ///
    /// # Errors
    /// When it has not.
    pub(in crate::profiles) fn check_wishes(&self) -> Result<(), Violation> {
        let Process { driver, clock, .. } = self.process();
        let is_asked = |volume| !driver.has_unsynced_in(volume) || clock.is_sync_wanted(volume);
        ensure!(
            driver.volumes().all(is_asked),
            "INV-F1",
            "something waits for a sync round that nobody asked for"
        );
        let (deadline, alarm) = (driver.next_deadline(), clock.alarm());
        let is_set = deadline.is_none_or(|at| alarm.is_some_and(|alarm| alarm <= at));
        ensure!(is_set, "INV-F1", "deadline {deadline:?}, but the alarm is set to {alarm:?}");
        Ok(())
    }

    /// Whether an open that failed had a reason.
    pub(in crate::profiles) fn excuses_failure(&self, is_full: bool) -> bool {
        self.has_stopped() || self.has_sync_failed() || is_full
    }

    /// What happened on the disk.
    pub(in crate::profiles) fn disk_events(&self) -> Events {
        self.disk.events()
    }
}
