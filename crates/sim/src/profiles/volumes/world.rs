//! Everything of one run: the machine, its directories, the partitions, and who waits.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use towpath_driver::{
    Delivery, FetchRefusal, Outcome, ProduceFailure, ReadLimits, VolumeIndex, VolumeStatus,
};
use towpath_log::WriteAheadLimits;
use towpath_metadata as metadata;
use towpath_model::{Offset, PartitionIndex, Token, TopicPartition};
use towpath_records::{BatchBuilder, Compression};
use towpath_replication::Acks;

use super::super::broker::machine::Machine;
use super::super::broker::validate;
use super::partitions::PartitionModel;
use crate::events::Events;
use crate::profile::{Violation, ensure};
use crate::rng::Rng;
use crate::steps::Parted;
use crate::trace::Trace;

const FIRST: &str = "/srv/towpath/first";
const SECOND: &str = "/srv/towpath/second";
/// Where nothing was ever written: a mount point without its disk.
const EMPTY: &str = "/srv/towpath/empty";

/// Most topics of a run.
const TOPICS_MAX: u64 = 5;

/// Longer than a disk may take to answer before it counts as stalled.
const STALL: Duration = Duration::from_secs(7);

/// Why the second directory is not there at a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Absence {
    /// Its disk answers with errors.
    Unreadable,
    /// There is an empty directory in its place.
    NotMounted,
    /// The configuration does not name it.
    NotNamed,
}

/// One step of a life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    Produce,
    Read,
    CreateTopic,
    SyncRound,
    SyncPart,
    Stall,
    FailSync,
    Tick,
    Upkeep,
    LetTimePass,
}

/// Who waits for an answer.
#[derive(Debug, Clone)]
pub(super) enum Waiting {
    Produce { id: TopicPartition, end: Offset },
    Create { name: String },
}

pub(super) struct World {
    pub(super) rng: Rng,
    pub(super) machine: Machine,
    pub(super) events: Events,
    pub(super) waits: BTreeMap<Token, Waiting>,
    pub(super) ops: Vec<(u64, Op)>,
    pub(super) steps_max: u64,
    pub(super) crashes_percent: u64,
    partitions: BTreeMap<TopicPartition, PartitionModel>,
    /// Topics whose creation was acknowledged.
    created: BTreeSet<String>,
    names_given: u64,
    absence: Option<Absence>,
    /// Directories of which a sync was made to fail in this life.
    spoilt: BTreeSet<PathBuf>,
    /// Partitions that were refused because of a stall.
    held_up: BTreeSet<TopicPartition>,
}

impl Parted for World {
    fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    fn trace(&self) -> &Trace {
        &self.machine.trace
    }
}

impl World {
    pub(super) fn new(seed: u64, trace: Trace) -> World {
        trace.begin_world();
        let mut rng = Rng::new(seed);
        let property = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let statics = BTreeMap::from([
            property("log.segment.bytes", "3000"),
            property("log.index.interval.bytes", "400"),
            property("log.retention.check.interval.ms", "1000"),
        ]);
        let limits = WriteAheadLimits {
            file_bytes_max: rng.between(4, 64) << 10,
            direct_bytes_min: rng.weighted(&[(1, 600), (2, 4 << 10)]),
        };
        let machine = Machine::new(&mut rng, trace, limits, statics);
        let mut world = World {
            machine,
            events: Events::new(),
            waits: BTreeMap::new(),
            ops: draw_ops(&mut rng),
            steps_max: rng.between(40, 150),
            crashes_percent: rng.weighted(&[(1, 0), (3, 50), (1, 90)]),
            partitions: BTreeMap::new(),
            created: BTreeSet::new(),
            names_given: 0,
            absence: None,
            spoilt: BTreeSet::new(),
            held_up: BTreeSet::new(),
            rng,
        };
        world.choose_directories(None);
        world
    }

    pub(super) fn into_events(mut self) -> Events {
        self.events.merge(&self.machine.disk_events());
        self.events
    }

    /// What the next start is given.
    pub(super) fn choose_directories(&mut self, absence: Option<Absence>) {
        self.absence = absence;
        self.machine.disk.make_readable();
        let (first, second) = (PathBuf::from(FIRST), PathBuf::from(SECOND));
        let roots = match absence {
            None => vec![first, second],
            Some(Absence::Unreadable) => {
                self.events.note("volumes: directory unreadable at a start");
                self.machine.disk.make_unreadable(&second);
                vec![first, second]
            }
            Some(Absence::NotMounted) => {
                self.events.note("volumes: directory empty in place of a missing one");
                vec![first, PathBuf::from(EMPTY)]
            }
            Some(Absence::NotNamed) => {
                self.events.note("volumes: directory not named at a start");
                vec![first]
            }
        };
        self.machine.set_roots(roots);
    }

    pub(super) fn step(&mut self, op: Op) -> Result<(), Violation> {
        self.machine.trace.event("op", &[op as u64]);
        match op {
            Op::Produce => self.with_partition(World::produce)?,
            Op::Read => self.with_partition(World::read)?,
            Op::CreateTopic => self.create_topic(),
            Op::SyncRound => {
                let volume = self.random_volume();
                self.machine.sync_volume_if_wanted(volume);
            }
            Op::SyncPart => {
                let volume = self.random_volume();
                self.machine.sync_a_part_of(volume, &mut self.events);
            }
            Op::Stall => self.stall(),
            Op::FailSync => {
                let root = PathBuf::from(self.rng.weighted(&[(1, FIRST), (4, SECOND)]));
                self.machine.disk.fail_sync_under(&root);
                self.spoilt.insert(root);
            }
            Op::Tick => self.machine.tick(),
            Op::Upkeep => {
                self.machine.driver().watch_disks();
                self.machine.driver().upkeep();
            }
            Op::LetTimePass => {
                let pause = self.rng.weighted(&[(4, 300), (2, 1_500)]);
                self.machine.advance(Duration::from_millis(pause));
            }
        }
        self.settle()
    }

    fn with_partition(
        &mut self,
        act: impl FnOnce(&mut World, TopicPartition) -> Result<(), Violation>,
    ) -> Result<(), Violation> {
        let ids = self.all_ids();
        if ids.is_empty() {
            return Ok(());
        }
        let id = ids[self.rng.index(ids.len())];
        act(self, id)
    }

    fn random_volume(&mut self) -> VolumeIndex {
        let count = self.machine.driver().volumes().count();
        VolumeIndex(self.rng.index(count))
    }

    /// A round begins, and its disk does not answer for long.
    fn stall(&mut self) {
        let volume = self.random_volume();
        if self.machine.begin_round_if_wanted(volume) {
            self.machine.advance(STALL);
        }
    }

    /// Partitions of topics that the broker knows.
    pub(super) fn all_ids(&self) -> Vec<TopicPartition> {
        let driver = self.machine.driver();
        let image = driver.image();
        let topics = image.topics().filter(|topic| !topic.internal);
        let ids = topics.flat_map(|topic| {
            let indexes = (0i32..).take(topic.partitions.len()).map(PartitionIndex);
            indexes.map(|partition| TopicPartition { topic: topic.id, partition })
        });
        ids.collect()
    }

    pub(super) fn has_topics(&self) -> bool {
        !self.created.is_empty()
    }

    fn status_of(&self, volume: VolumeIndex) -> Option<VolumeStatus> {
        self.machine.driver().volume_statuses().into_iter().find(|status| status.index == volume)
    }

    pub(super) fn failure_of(&self, volume: VolumeIndex) -> Option<String> {
        self.status_of(volume)?.failure
    }

    /// The state of the directory in which a partition is led; `None`: it is not.
    fn home_status(&self, id: TopicPartition) -> Option<VolumeStatus> {
        self.status_of(self.machine.driver().volume_of(id)?)
    }

    /// A topic with a partition or more for each directory.
    pub(super) fn create_topic(&mut self) {
        if TOPICS_MAX <= self.names_given {
            return;
        }
        self.names_given += 1;
        let name = format!("orders-{}", self.names_given);
        let topic = metadata::NewTopic {
            partitions: self.rng.between(2, 3) as i32,
            ..metadata::NewTopic::named(&name, self.machine.new_id())
        };
        let token = self.machine.token();
        self.waits.insert(token, Waiting::Create { name });
        let request = metadata::Request::CreateTopics { topics: vec![topic], validate_only: false };
        if self.machine.driver().ask_metadata(token, request).is_err() {
            self.waits.remove(&token);
        }
    }

    pub(super) fn produce(&mut self, id: TopicPartition) -> Result<(), Violation> {
        let wall = self.machine.now().wall;
        let mut builder = BatchBuilder::new(Compression::None, wall);
        for _ in 0..self.rng.between(1, 3) {
            let mut value = vec![0; self.rng.between(10, 700) as usize];
            self.rng.fill(&mut value);
            builder.append(wall, None, Some(&value), []).expect("a small record fits");
        }
        let mut bytes = builder.build();
        let validated = validate(&bytes)?;
        let token = self.machine.token();
        let before = self.home_status(id);
        let result = self.machine.driver().produce(id, &mut bytes, &validated, Acks::All, token);
        if self.machine.has_stopped() {
            return Ok(());
        }
        let refusal = match (&before, &result) {
            (None, Err(ProduceFailure::Offline(_))) => {
                self.check_may_be_offline(id)?;
                "volumes: batch refused by a missing directory"
            }
            (Some(status), Err(ProduceFailure::Storage(_) | ProduceFailure::Stalled(_)))
                if status.failure.is_some() =>
            {
                "volumes: batch refused by a failed directory"
            }
            (Some(status), Err(ProduceFailure::Stalled(_))) if status.stalled_for.is_some() => {
                self.held_up.insert(id);
                "volumes: batch refused by a stalled directory"
            }
            (Some(status), Ok(produced)) => {
                ensure!(status.failure.is_none(), "INV-F7", "{id}: {status:?} takes a batch");
                ensure!(status.stalled_for.is_none(), "INV-F8", "{id}: {status:?} takes a batch");
                ensure!(produced.is_pending, "INV-R2", "{id}: acknowledged before any sync");
                let end = self.partitions.entry(id).or_default().appended(&bytes)?;
                self.waits.insert(token, Waiting::Produce { id, end });
                if !self.held_up.remove(&id) {
                    return Ok(());
                }
                "volumes: batch taken after a stall"
            }
            // What failed may be told by this very call.
            (Some(_), Err(_)) if self.home_status(id).is_some_and(|now| now.failure.is_some()) => {
                return Ok(());
            }
            _ => {
                let detail = format!("{id} in {before:?} answers {result:?}");
                return Err(Violation::new("INV-F7", detail));
            }
        };
        self.events.note(refusal);
        Ok(())
    }

    /// A partition that is not led may lie in a directory that is not there.
    fn check_may_be_offline(&self, id: TopicPartition) -> Result<(), Violation> {
        let home = self.partitions.get(&id).and_then(|model| model.home.as_ref());
        let is_there = home.is_some_and(|home| home.starts_with(FIRST));
        ensure!(
            self.absence.is_some() && !is_there,
            "INV-F7",
            "{id} of {home:?} is offline, absent is {:?}",
            self.absence
        );
        Ok(())
    }

    /// Reads from somewhere. What was durable is read wherever its directory is there.
    pub(super) fn read(&mut self, id: TopicPartition) -> Result<(), Violation> {
        let promised = self.partitions.entry(id).or_default().promised;
        if promised == Offset::ZERO {
            return Ok(());
        }
        let from = Offset(self.rng.below(promised.0.unsigned_abs()) as i64);
        let limits = ReadLimits { max_bytes: 2_000, at_least_one_batch: true };
        let status = self.home_status(id);
        let read = self.machine.driver().read(id, None, from, false, limits);
        if self.machine.has_stopped() {
            return Ok(());
        }
        let Some(status) = status else {
            let refusal = read.err();
            ensure!(
                matches!(refusal, Some(FetchRefusal::Offline(_))),
                "INV-F7",
                "{id} is in no directory, and it answers {refusal:?}"
            );
            return self.check_may_be_offline(id);
        };
        let unread = |what: String| {
            let state = (&status.failure, status.stalled_for);
            Violation::new("INV-F7", format!("{id} at {from} of {promised}, {state:?}: {what}"))
        };
        let read = read.map_err(|error| unread(error.to_string()))?;
        let slice = read.slice.ok_or_else(|| unread("nothing to read".to_owned()))?;
        let bytes = slice.read().map_err(|error| unread(error.to_string()))?;
        self.partitions.entry(id).or_default().read(slice.first_offset, &bytes)?;
        if status.failure.is_some() {
            self.events.note("volumes: read from a failed directory");
        } else if status.stalled_for.is_some() {
            self.events.note("volumes: read from a stalled directory");
        }
        Ok(())
    }

    /// Delivers what was answered, and looks at every directory.
    pub(super) fn settle(&mut self) -> Result<(), Violation> {
        let mailbox = self.machine.process().mailbox;
        while !self.machine.has_stopped() {
            let Some((token, delivery)) = mailbox.take() else { break };
            self.machine.trace.event("delivered", &[token.0]);
            match self.waits.remove(&token) {
                None => {}
                Some(Waiting::Produce { id, end }) => self.produced(id, end, &delivery)?,
                Some(Waiting::Create { name }) => self.topic_created(name, &delivery)?,
            }
        }
        if self.machine.has_stopped() {
            return Ok(());
        }
        self.machine.check_wishes()?;
        for status in self.machine.driver().volume_statuses() {
            let is_explained = status.failure.is_none() || self.spoilt.contains(&status.path);
            ensure!(is_explained, "INV-F7", "{status:?} has failed, and no sync there has");
        }
        Ok(())
    }

    fn produced(
        &mut self,
        id: TopicPartition,
        end: Offset,
        delivery: &Delivery,
    ) -> Result<(), Violation> {
        let status = self.home_status(id);
        let failed = status.as_ref().is_some_and(|status| status.failure.is_some());
        if !matches!(delivery, Delivery::Wait(Outcome::Reached)) {
            ensure!(failed, "INV-F7", "{id} in {status:?}: a batch is answered {delivery:?}");
            return Ok(());
        }
        let lines = self.machine.driver().position(id, None);
        let lines = lines.map_err(|e| Violation::new("INV-R2", format!("{id}: {e}")))?;
        let mark = lines.high_watermark;
        ensure!(end <= mark, "INV-R2", "{id}: {end} is acknowledged, committed is {mark}");
        let model = self.partitions.entry(id).or_default();
        model.promised = model.promised.max(end);
        model.home = status.as_ref().map(|status| status.path.clone());
        let others = self.machine.driver().volume_statuses();
        let mut others =
            others.iter().filter(|o| Some(o.index) != status.as_ref().map(|s| s.index));
        if self.absence.is_some() {
            self.events.note("volumes: acknowledged while another directory was missing");
        } else if let Some(other) = others.next() {
            if other.failure.is_some() {
                self.events.note("volumes: acknowledged while another directory had failed");
            } else if other.stalled_for.is_some() {
                self.events.note("volumes: acknowledged while another directory was stalled");
            }
        }
        Ok(())
    }

    /// A new topic's partitions are in directories that work.
    fn topic_created(&mut self, name: String, delivery: &Delivery) -> Result<(), Violation> {
        if !matches!(delivery, Delivery::Metadata(_)) {
            let failed = self.failure_of(VolumeIndex::FIRST).is_some();
            // A controller whose disk does not answer decides nothing.
            let statuses = self.machine.driver().volume_statuses();
            let stalled = statuses[VolumeIndex::FIRST.0].stalled_for.is_some()
                && matches!(delivery, Delivery::Wait(Outcome::NotLeader));
            if stalled {
                self.events.note("volumes: creation refused by a controller that cannot decide");
            }
            ensure!(
                failed || stalled,
                "INV-M1",
                "the creation of {name} is answered by {delivery:?}"
            );
            return Ok(());
        }
        let driver = self.machine.driver();
        let statuses = driver.volume_statuses();
        let is_whole = self.absence.is_none() && statuses.iter().all(|s| s.failure.is_none());
        let id = driver.image().topic(&name).map(|topic| topic.id);
        let id = id.ok_or_else(|| Violation::new("INV-M1", format!("{name} is not there")))?;
        for partition in self.all_ids().into_iter().filter(|partition| partition.topic == id) {
            let Some(status) = self.home_status(partition) else {
                return Err(Violation::new("INV-F7", format!("new {partition} is not led")));
            };
            // A directory may fail while it is made; then nobody had been told.
            let is_new_failure = status.failure.is_some() && self.spoilt.contains(&status.path);
            ensure!(
                status.failure.is_none() || is_new_failure,
                "INV-F7",
                "new {partition} goes to {status:?}"
            );
        }
        if !is_whole {
            self.events.note("volumes: topic created while a directory was failed or missing");
        }
        self.created.insert(name);
        Ok(())
    }

    /// A process has started: every partition whose directory is there is served, with all that was
    /// promised; the others are offline, and none is begun anew.
    pub(super) fn check_recovered(&mut self) -> Result<(), Violation> {
        let driver = self.machine.driver();
        for name in &self.created {
            ensure!(driver.image().topic(name).is_some(), "INV-M1", "{name} is gone");
        }
        for id in self.all_ids() {
            let mut model = self.partitions.remove(&id).unwrap_or_default();
            let is_promised = Offset::ZERO < model.promised;
            if driver.offline(id).is_some() {
                self.check_may_be_offline(id)?;
                let lines = driver.position(id, None);
                let is_refused = matches!(lines, Err(FetchRefusal::Offline(_)));
                ensure!(is_refused, "INV-F7", "{id} is offline, and has {lines:?}");
                if is_promised {
                    self.events.note("volumes: partition offline with its directory");
                }
                model.was_offline |= is_promised;
                self.partitions.insert(id, model);
                continue;
            }
            model.recovered(&driver, id)?;
            if std::mem::take(&mut model.was_offline) {
                self.events.note("volumes: partition back with its directory");
            }
            let path = self.home_status(id).map(|status| status.path);
            let moved = model.home.as_ref().is_some_and(|home| Some(home) != path.as_ref());
            ensure!(!moved, "INV-T4", "{id} of {:?} is led in {path:?}", model.home);
            if Offset::ZERO < model.promised {
                model.home = path;
            }
            self.partitions.insert(id, model);
        }
        Ok(())
    }

    /// The process is gone, and with it everything that was not answered.
    pub(super) fn process_ended(&mut self) {
        self.waits.clear();
        self.spoilt.clear();
        self.held_up.clear();
    }
}

/// Clients and the broker's threads always run; each fault is off in every other seed.
fn draw_ops(rng: &mut Rng) -> Vec<(u64, Op)> {
    const SOMETIMES: [(u64, Op); 3] = [(2, Op::Stall), (1, Op::FailSync), (1, Op::CreateTopic)];
    let mut ops = vec![
        (rng.between(15, 40), Op::Produce),
        (rng.between(5, 15), Op::Read),
        (1, Op::CreateTopic),
        (rng.between(5, 20), Op::SyncRound),
        (rng.between(2, 15), Op::SyncPart),
        (2, Op::Tick),
        (4, Op::Upkeep),
        (2, Op::LetTimePass),
    ];
    ops.extend(SOMETIMES.iter().filter(|_| rng.percent(50)));
    ops
}
