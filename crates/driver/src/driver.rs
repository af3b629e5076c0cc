//! The driver itself: its partitions, the committed metadata, and how outputs are carried out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard};
use std::time::Duration;

use towpath_broker::{Output, Partition};
use towpath_log::disk::{Disk, Space};
use towpath_metadata::{Address, Image, Overrides, Role};
use towpath_model::mutant::{self, Mutant};
use towpath_model::{
    BrokerId, KeyValue, Now, PartitionIndex, Time, Token, TopicId, TopicPartition, Uuid,
};
use towpath_records::{BatchBuilder, BatchHeader, Compression};

use crate::cell::{Cell, Slot};
use crate::compact::{CompactionTotals, Compactor};
use crate::config::NewestConfig;
use crate::deadlines::Deadlines;
use crate::lag::LagWatch;
use crate::locate::Found;
use crate::offline::Offline;
use crate::open::OpenError;
use crate::quorum::{Doorkeeper, Formation, Quorum, Removed, Station, own_number};
use crate::replicas::{
    Early, Feeds, InSyncChanges, Proposals, RemoteReaders, Rounds, Suspects, Throttle, Watched,
};
use crate::retire::GuardBook;
use crate::room::Room;
use crate::scrub::ScrubTotals;
use crate::volume::{MissingVolume, Volume, VolumeIndex, VolumeStatus};
use crate::world::{Clock, Delivery, Net};

/// How long time waits after it could not act, because the disk is full or broken: the deadline has
/// passed already, and without a pause the timer would try again at once, for ever.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What the driver is told at start and never asks again.
#[derive(Debug, Clone)]
pub struct Settings {
    /// This broker.
    pub broker_id: BrokerId,
    /// Broker properties given by file, environment or flag, already checked; what is configured
    /// at run time lies over them.
    pub statics: Overrides,
    /// A random id of this process.
    pub incarnation: Uuid,
    /// Where this broker listens.
    pub addresses: Vec<Address>,
    /// Data directories that are gone for good, and with them what they held.
    pub forgotten_directories: Vec<Uuid>,
    /// Where this broker stands.
    pub rack: Option<String>,
    /// What it is there for.
    pub role: Role,
    /// How it comes to its quorum, where the data directory does not know yet.
    pub formation: Formation,
}

/// Everything one broker does to its disk, for any clock and any net. Shared by everybody who
/// serves requests.
pub struct Driver<D: Disk, C: Clock, N: Net> {
    pub(crate) clock: C,
    pub(crate) net: N,
    pub(crate) settings: Settings,
    /// The data directories, the first one first. Never empty.
    pub(crate) volumes: Vec<Volume<D>>,
    /// Data directories that are not there.
    pub(crate) missing: Vec<MissingVolume>,
    /// What lay where when the broker started.
    pub(crate) found: Found,
    /// Every partition that is open, led or followed.
    pub(crate) cells: RwLock<BTreeMap<TopicPartition, Arc<Cell<D>>>>,
    pub(crate) quorum: Quorum<D>,
    pub(crate) station: Mutex<Station>,
    pub(crate) doorkeeper: Mutex<Doorkeeper>,
    /// What the metadata said of partitions that were removed, for those whose files are still there.
    pub(crate) removed: Mutex<Removed>,
    /// Why this broker could not open what it holds.
    pub(crate) unserved: Mutex<Option<OpenError>>,
    pub(crate) feeds: Feeds,
    /// Partitions whose followers are to be told its lines.
    pub(crate) lines_due: Mutex<Vec<Arc<Cell<D>>>>,
    pub(crate) early: Mutex<Early>,
    pub(crate) rounds: Mutex<Rounds>,
    pub(crate) throttle: Throttle,
    pub(crate) in_sync_changes: InSyncChanges,
    pub(crate) proposals: Mutex<Proposals>,
    pub(crate) watched: Watched<D>,
    /// When it is looked next whether the controller knows where replicas lie.
    pub(crate) directories_at: Mutex<Option<Time>>,
    /// What other brokers have said of the groups that they coordinate.
    pub(crate) remote_readers: Mutex<RemoteReaders>,
    /// Partitions whose files are about to be removed: they are not opened before that is done.
    pub(crate) leaving: Mutex<BTreeSet<TopicPartition>>,
    /// Partitions of which records were found damaged.
    pub(crate) suspects: Mutex<Suspects>,
    /// Committed metadata, for readers.
    pub(crate) image: RwLock<Image>,
    /// Held from a step of the quorum until what follows from it is carried out. Without it, a request
    /// that comes when a record is committed and not yet published is told of a topic that nobody
    /// can find.
    pub(crate) publishing: Mutex<()>,
    /// When which partition's state wants to be called.
    pub(crate) deadlines: Mutex<Deadlines>,
    /// Held by the one thread that compacts.
    pub(crate) compactor: Mutex<Compactor<D>>,
    pub(crate) compaction_totals: Mutex<CompactionTotals>,
    pub(crate) scrub_totals: Mutex<ScrubTotals>,
    /// Partitions that should be led here and are not served.
    pub(crate) offline: Mutex<BTreeMap<TopicPartition, Offline>>,
    /// What retention's guard holds, and what groups have lost.
    pub(crate) guard_book: Mutex<GuardBook>,
    /// Which groups were warned of, and when.
    pub(crate) lag_watch: Mutex<LagWatch>,
    /// Somebody says that the disk fills up.
    pub(crate) disk_pressed: AtomicBool,
    /// Bytes of a delivery log after which its state is logged as a whole.
    pub(crate) deliveries_bytes: AtomicU64,
    pub(crate) newest_config: NewestConfig,
}

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// The committed metadata. Hold it briefly, and ask neither for it again nor the metadata for
    /// anything meanwhile: changes wait for it, and both would wait for them.
    pub fn image(&self) -> RwLockReadGuard<'_, Image> {
        self.image.read().expect("a panic while metadata is published ends the process")
    }

    /// This broker.
    pub fn broker_id(&self) -> BrokerId {
        self.settings.broker_id
    }

    /// Identity of the first data directory and of the cluster it belongs to.
    pub fn identity(&self) -> &towpath_log::Identity {
        self.first().directory.identity()
    }

    /// The clock.
    pub fn clock(&self) -> &C {
        &self.clock
    }

    /// The net.
    pub fn net(&self) -> &N {
        &self.net
    }

    /// What the first data directory's file system has left. Asks the disk.
    ///
    /// # Errors
    /// As the disk says.
    pub fn space(&self) -> std::io::Result<Space> {
        self.first().directory.space()
    }

    /// Says that the disk needs room more than groups need the expired records that retention's
    /// guard holds for them, whatever the watermarks say.
    pub fn set_disk_pressed(&self, is_pressed: bool) {
        self.disk_pressed.store(is_pressed, Ordering::Relaxed);
    }

    pub(crate) fn is_disk_pressed(&self) -> bool {
        let is_low = |volume: &Volume<D>| volume.room() != Room::Ample;
        self.disk_pressed.load(Ordering::Relaxed) || self.volumes.iter().any(is_low)
    }

    /// Whether the first data directory has failed: neither metadata nor offsets can be written any
    /// more.
    pub fn is_failed(&self) -> bool {
        self.first().directory.is_failed()
    }

    /// The data directories that are open.
    pub fn volumes(&self) -> impl Iterator<Item = VolumeIndex> + use<D, C, N> {
        (0..self.volumes.len()).map(VolumeIndex)
    }

    /// How every open data directory does.
    pub fn volume_statuses(&self) -> Vec<VolumeStatus> {
        let now = self.clock.now().time;
        self.volumes.iter().map(|volume| volume.status(now)).collect()
    }

    /// Looks whether rounds and writes to memory come forward. To be called about once a second, by a
    /// thread that waits for no disk.
    pub fn watch_disks(&self) {
        let now = self.clock.now().time;
        self.volumes.iter().for_each(|volume| volume.watch(now));
    }

    /// Data directories that are configured, or were known, and could not be opened at the start.
    pub fn missing_volumes(&self) -> &[MissingVolume] {
        &self.missing
    }

    /// Whether a write to some data directory may block, because its disk is behind. The time is
    /// asked for only while a round is under way.
    pub fn is_any_slow(&self, now: impl Fn() -> Time) -> bool {
        self.volumes.iter().any(|volume| volume.is_waited_for() && volume.is_slow(now()))
    }

    /// In which data directory a led partition lies.
    pub fn volume_of(&self, id: TopicPartition) -> Option<VolumeIndex> {
        self.records_cell(id).map(|cell| cell.volume)
    }

    pub(crate) fn first(&self) -> &Volume<D> {
        &self.volumes[0]
    }

    pub(crate) fn volume(&self, index: VolumeIndex) -> &Volume<D> {
        &self.volumes[index.0]
    }

    pub(crate) fn cell(&self, id: TopicPartition) -> Option<Arc<Cell<D>>> {
        self.cells.read().expect("no panic holds the map").get(&id).cloned()
    }

    /// As [`Driver::cell`], for what clients ask: a delivery log is not there for them, by whatever number
    /// they ask for it.
    pub(crate) fn records_cell(&self, id: TopicPartition) -> Option<Arc<Cell<D>>> {
        if id.is_delivery_log() { None } else { self.cell(id) }
    }

    /// Every log that is open here, delivery logs among them.
    pub(crate) fn cells(&self) -> Vec<Arc<Cell<D>>> {
        self.cells.read().expect("no panic holds the map").values().cloned().collect()
    }

    /// Every delivery log that is open here: few, where there may be a hundred thousand others.
    pub(crate) fn delivery_cells(&self) -> Vec<Arc<Cell<D>>> {
        let cells = self.cells.read().expect("no panic holds the map");
        cells.values().filter(|cell| cell.id.is_delivery_log()).cloned().collect()
    }

    /// The partitions of one topic, in order of their index, without delivery logs.
    pub(crate) fn cells_of(&self, topic: TopicId) -> Vec<Arc<Cell<D>>> {
        self.cells_from(topic, PartitionIndex(0))
    }

    /// The partitions of one topic, and their delivery logs.
    pub(crate) fn logs_of_topic(&self, topic: TopicId) -> Vec<Arc<Cell<D>>> {
        self.cells_from(topic, PartitionIndex(i32::MIN))
    }

    fn cells_from(&self, topic: TopicId, first: PartitionIndex) -> Vec<Arc<Cell<D>>> {
        let first = TopicPartition { topic, partition: first };
        let last = TopicPartition { topic, partition: PartitionIndex(i32::MAX) };
        let cells = self.cells.read().expect("no panic holds the map");
        cells.range(first..=last).map(|(_, cell)| Arc::clone(cell)).collect()
    }

    /// Those of them that this broker leads.
    pub(crate) fn led_cells_of(&self, topic: TopicId) -> Vec<Arc<Cell<D>>> {
        let mut cells = self.cells_of(topic);
        cells.retain(|cell| cell.led.load(Ordering::Relaxed));
        cells
    }

    /// Lets a partition's core do one step: decide under the lock, append what it orders there,
    /// and carry out the rest after the lock.
    ///
    /// The deadline is noted under the lock: of two threads that have left the partition one after
    /// the other, the first could otherwise overwrite the deadline of the second with its own, and
    /// whoever waits for that one would wait for ever.
    pub(crate) fn step<R>(
        &self,
        cell: &Arc<Cell<D>>,
        act: impl FnOnce(&mut Slot<D>, Now, &mut Vec<Output>) -> R,
    ) -> R {
        self.step_in(cell, || Some(cell.lock()), act).expect("a lock that waits is given")
    }

    /// [`Driver::step`] with a lock that may not be given: `None` then, and nothing has been done.
    pub(crate) fn step_in<'c, R>(
        &self,
        cell: &'c Arc<Cell<D>>,
        lock: impl FnOnce() -> Option<MutexGuard<'c, Slot<D>>>,
        act: impl FnOnce(&mut Slot<D>, Now, &mut Vec<Output>) -> R,
    ) -> Option<R> {
        let (result, wants_round) = self.step_once(cell, lock, act)?;
        self.order_rounds(wants_round.then_some(cell.volume));
        Some(result)
    }

    /// [`Driver::step`], but orders no sync round: `true` says that somebody has to, by
    /// [`Driver::order_rounds`]. For who appends more that is to become durable together with this.
    pub(crate) fn step_without_round<R>(
        &self,
        cell: &Arc<Cell<D>>,
        act: impl FnOnce(&mut Slot<D>, Now, &mut Vec<Output>) -> R,
    ) -> (R, bool) {
        self.step_once(cell, || Some(cell.lock()), act).expect("a lock that waits is given")
    }

    fn step_once<'c, R>(
        &self,
        cell: &'c Arc<Cell<D>>,
        lock: impl FnOnce() -> Option<MutexGuard<'c, Slot<D>>>,
        act: impl FnOnce(&mut Slot<D>, Now, &mut Vec<Output>) -> R,
    ) -> Option<(R, bool)> {
        let now = self.clock.now();
        let mut out = Vec::new();
        let mut slot = lock()?;
        let lines = (slot.partition.high_watermark(), slot.partition.log_start_offset());
        let result = act(&mut slot, now, &mut out);
        self.append_ordered(cell, &mut slot, now, &mut out);
        self.reschedule(cell.id, &mut slot);
        self.watch_followers(cell, &mut slot);
        let mut fed = Vec::new();
        if !slot.armed.is_empty() {
            if lines != (slot.partition.high_watermark(), slot.partition.log_start_offset()) {
                self.want_lines(cell, &mut slot);
            }
            fed = slot.take_fed();
        }
        let wants_round = std::mem::take(&mut slot.wants_round);
        drop(slot);
        for (follower, position) in fed {
            self.feed(follower, vec![(cell.id, position)], Vec::new());
        }
        self.carry_out(out);
        Some((result, wants_round))
    }

    /// Carries out the one order that must happen under the lock.
    fn append_ordered(
        &self,
        cell: &Arc<Cell<D>>,
        slot: &mut Slot<D>,
        now: Now,
        out: &mut Vec<Output>,
    ) {
        let Some(at) = out.iter().position(|order| matches!(order, Output::Append(_))) else {
            return;
        };
        let Output::Append(records) = out.remove(at) else { unreachable!("just matched") };
        if !self.append_records(cell, slot, now, &records, out) {
            slot.partition.records_not_appended(out);
        }
    }

    /// Appends records of this broker's own, as one batch; says whether they are written. Space that is
    /// kept back is theirs.
    pub(crate) fn append_records(
        &self,
        cell: &Arc<Cell<D>>,
        slot: &mut Slot<D>,
        now: Now,
        records: &[KeyValue],
        out: &mut Vec<Output>,
    ) -> bool {
        let end = slot.partition.log_end_offset();
        let mut builder = BatchBuilder::new(Compression::None, now.wall);
        let fits = records.iter().all(|record| {
            let value = record.value.as_deref();
            builder.append(now.wall, Some(&record.key), value, std::iter::empty()).is_ok()
        });
        if !fits {
            tracing::error!(partition = %cell.id, topic = %cell.topic, records = records.len(),
                "a change of state does not fit into one batch");
        }
        let written = fits
            && slot.leads()
            && {
                let mut batch = builder.build();
                towpath_records::set_base_offset(&mut batch, end);
                towpath_records::set_leader_epoch(&mut batch, slot.partition.leader_epoch());
                let header =
                    BatchHeader::parse(&batch).expect("what the builder made is well formed");
                let volume = self.volume(cell.volume);
                let mut append = || volume.write(|| slot.log.append(&batch, &header, now));
                let mut appended = append();
                if appended.as_ref().is_err_and(towpath_log::LogError::is_disk_full)
                    && self.release_reserve(volume)
                {
                    appended = append();
                }
                match appended {
                    Ok(_) => {
                        slot.partition.records_appended(now, &header, out);
                        self.want_sync(cell, slot);
                        true
                    }
                    Err(error) => {
                        if slot.retry_at.is_none_or(|at| at <= now.time) {
                            tracing::error!(partition = %cell.id, topic = %cell.topic, %error, "cannot write state");
                        }
                        false
                    }
                }
            };
        slot.retry_at = (!written).then_some(now.time + RETRY_AFTER);
        written
    }

    /// Puts the partition on the list of the next sync round, which is ordered when the step is over.
    pub(crate) fn want_sync(&self, cell: &Arc<Cell<D>>, slot: &mut Slot<D>) {
        if std::mem::replace(&mut slot.awaits_sync, true) {
            return;
        }
        let relaxed = slot.config.durability == towpath_model::Durability::Relaxed;
        let volume = self.volume(cell.volume);
        let list = if relaxed { &volume.unflushed } else { &volume.unsynced };
        list.lock().expect("no panic holds the list").push(Arc::clone(cell));
        slot.wants_round |= !relaxed;
    }

    /// Has what waits in data directories made durable.
    pub(crate) fn order_rounds(&self, volumes: impl IntoIterator<Item = VolumeIndex>) {
        if !mutant::is_on(Mutant::SyncNotAsked) {
            volumes.into_iter().for_each(|volume| self.clock.sync_wanted(volume));
        }
    }

    /// Notes a partition's deadline when it has changed; most have none, ever.
    pub(crate) fn reschedule(&self, id: TopicPartition, slot: &mut Slot<D>) {
        let deadline = slot.next_deadline();
        if std::mem::replace(&mut slot.scheduled, deadline) != deadline {
            self.schedule(id, deadline);
        }
    }

    pub(crate) fn schedule(&self, id: TopicPartition, deadline: Option<Time>) {
        let mut deadlines = self.deadlines.lock().expect("no panic holds the deadlines");
        let is_earliest = deadlines.set(id, deadline);
        drop(deadlines);
        if let Some(at) = deadline.filter(|_| is_earliest) {
            self.clock.wake_at(at);
        }
    }

    /// Carries out orders, in order, with no lock held.
    pub(crate) fn carry_out(&self, out: Vec<Output>) {
        for order in out {
            match order {
                Output::Append(_) => unreachable!("appended under the lock"),
                Output::Wake(token, outcome) => self.deliver(token, Delivery::Wait(outcome)),
                Output::GroupsReply(token, reply) => self.deliver(token, Delivery::Groups(reply)),
                Output::PublishersReply(token, reply) => {
                    self.deliver(token, Delivery::Publishers(reply));
                }
                Output::DeliveriesReply(token, reply) => {
                    self.deliver(token, Delivery::Deliveries(reply));
                }
            }
        }
    }

    pub(crate) fn deliver(&self, token: Token, delivery: Delivery) {
        match own_number(token) {
            Some(number) => self.own_answer(number, delivery),
            None => self.net.deliver(token, delivery),
        }
    }

    /// A partition that the metadata says is led here, looked up by name.
    pub fn partition_of(&self, topic: &str, partition: PartitionIndex) -> Option<TopicPartition> {
        let image = self.image();
        let topic = image.topic(topic)?;
        let known = usize::try_from(partition.0).is_ok_and(|at| at < topic.partitions.len());
        known.then_some(TopicPartition { topic: topic.id, partition })
    }

    /// Reads something off a partition's core.
    pub fn with_partition<R>(
        &self,
        id: TopicPartition,
        read: impl FnOnce(&Partition) -> R,
    ) -> Option<R> {
        let cell = self.records_cell(id)?;
        let slot = self.lock_in_time(&cell)?;
        slot.leads().then(|| read(&slot.partition))
    }
}
