//! Start and stop: from data directories to led partitions, and back to clean directories.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use towpath_broker::Outcome;
use towpath_log::disk::Disk;
use towpath_log::{
    DamagedRange, DataDirectory, Identity, LastStop, LogError, LogPlace, Recovery, WriteAheadLimits,
};
use towpath_metadata::raft::LogIndex;
use towpath_metadata::{self as metadata, Image, PartitionState, Topic};
use towpath_model::mutant::{self, Mutant};
use towpath_model::properties::TopicConfig;
use towpath_model::{BrokerId, PartitionIndex, TopicName, TopicPartition, Uuid};

use crate::cell::Cell;
use crate::config::{NewestConfig, log_config};
use crate::driver::{Driver, Settings};
use crate::locate::{Found, Located, open_others};
use crate::pair::{lock_order, logs_of};
use crate::queues::SNAPSHOT_BYTES;
use crate::quorum::{Opened, Station};
use crate::recover::{Held, RecoverError, follow, lead, state_of_deliveries, state_of_topic};
use crate::replicas::{Feeds, InSyncChanges, Throttle, Watched, min_in_sync, resume_after_loss};
use crate::volume::{Volume, VolumeIndex};
use crate::world::{Clock, Net};

/// A data directory and the disk that it is on.
#[derive(Debug, Clone)]
pub struct Place<D> {
    /// The disk.
    pub disk: D,
    /// The directory.
    pub path: PathBuf,
}

/// Why a broker does not start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The data directory as a whole.
    #[error(transparent)]
    Directory(#[from] towpath_log::OpenError),
    /// The first data directory belongs to another broker of the cluster.
    #[error("data directory {} belongs to broker {node}, and this is broker {me}: start it with \
        --node-id {node} (node.id), or name another data directory", path.display())]
    OtherBroker {
        /// Which directory.
        path: PathBuf,
        /// Whose it is.
        node: BrokerId,
        /// Who wanted to use it.
        me: BrokerId,
    },
    /// One of several data directories belongs to somebody else.
    #[error("data directory {} belongs to broker {node} of cluster {cluster_id}, not to this one \
        (broker {} of cluster {})", path.display(), me.node_id, me.cluster_id)]
    Foreign {
        /// Which directory.
        path: PathBuf,
        /// Whose cluster it is of.
        cluster_id: String,
        /// Whose broker it is of.
        node: BrokerId,
        /// Whom the first directory belongs to.
        me: Identity,
    },
    /// The metadata log.
    #[error("the metadata log cannot be used: {0}")]
    Metadata(#[source] RecoverError),
    /// The metadata log ends before what this broker has told others to be durable.
    #[error(
        "the metadata log has lost entries that were durable: it ends at entry {last}, and the \
        cluster counts on entry {known} here. Do not trust this disk: start the broker with an \
        empty data directory, and it copies what it held from the others"
    )]
    MetadataLost {
        /// Up to where the controller knows it durable.
        known: LogIndex,
        /// Where the log ends.
        last: LogIndex,
    },
    /// The metadata log takes no writes.
    #[error("this broker cannot be registered: the metadata log takes no writes")]
    NotRegistered,
    /// The cluster writes what this program does not read.
    #[error("{0}")]
    ProgramTooOld(towpath_metadata::Refusal),
    /// A partition's log.
    #[error("partition {topic}-{partition} cannot be used: {source}")]
    Partition {
        /// The topic's name.
        topic: TopicName,
        /// Which of its partitions.
        partition: PartitionIndex,
        /// What is wrong.
        source: RecoverError,
    },
}

/// How many ticks of its clock a quorum of one may need to elect itself.
const ELECTION_TICKS_MAX: usize = 100;

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// Recovers everything in `path` and begins to lead it. On an empty or missing directory,
    /// `new_identity` names the new cluster.
    ///
    /// # Errors
    /// [`OpenError`] names what cannot be used; nothing has been deleted.
    pub fn open(
        disk: D,
        path: &Path,
        new_identity: impl FnMut() -> Identity,
        boot_id: &str,
        settings: Settings,
        clock: C,
        net: N,
    ) -> Result<Arc<Self>, OpenError> {
        let limits = WriteAheadLimits::default();
        let places = vec![Place { disk, path: path.to_owned() }];
        Self::open_in(places, limits, new_identity, boot_id, settings, clock, net)
    }

    /// [`Self::open`] of several directories, the metadata in the first, and with write-ahead files of
    /// another size: small ones make a simulation turn them often. A directory other than the first
    /// that cannot be read keeps its partitions offline, and the broker serves the others.
    ///
    /// # Errors
    /// As [`Self::open`].
    ///
    /// # Panics
    /// When `places` names no directory.
    pub fn open_in(
        places: Vec<Place<D>>,
        limits: WriteAheadLimits,
        mut new_identity: impl FnMut() -> Identity,
        boot_id: &str,
        settings: Settings,
        clock: C,
        net: N,
    ) -> Result<Arc<Self>, OpenError> {
        let mut places = places.into_iter();
        let Place { disk, path } = places.next().expect("there is a first data directory");
        refuse_another_brokers(&disk, &path, settings.broker_id)?;
        let (directory, report) =
            DataDirectory::open_with(disk, &path, &mut new_identity, boot_id, limits)?;
        match report.last_stop {
            LastStop::Never | LastStop::Clean => tracing::debug!(?report, "data directory opened"),
            LastStop::ProcessEnded | LastStop::SystemEnded => tracing::info!(
                last_stop = ?report.last_stop,
                frames = report.replayed_frames,
                repaired_bytes = report.repaired_bytes,
                "the last stop was not clean: everything was synced and is checked"
            ),
        }
        if 0 < report.damaged_places {
            tracing::error!(path = %path.display(), places = report.damaged_places,
                "the write-ahead file has places that were synced and are unreadable");
        }
        let Opened { quorum, image, newest, removed } =
            Opened::open(&directory, &settings).map_err(OpenError::Metadata)?;
        // What was registered with another first directory was another disk: it is gone, and with it
        // what the broker had then.
        let first = directory.identity().directory_id;
        let last = newest
            .broker(settings.broker_id)
            .filter(|broker| broker.directories.is_empty() || broker.directories.contains(&first));
        let last_epoch = last.map(|broker| broker.epoch);
        let mut known = last.map_or_else(Vec::new, |broker| broker.directories.clone());
        known.retain(|id| !settings.forgotten_directories.contains(id));
        let new_id = || new_identity().directory_id;
        let others = open_others(&directory, places.collect(), &known, limits, new_id, boot_id)?;
        for missing in &others.missing {
            tracing::error!(
                reason = missing.reason,
                "a data directory is not there: partitions that may lie in it are offline"
            );
        }
        let mut volumes = vec![Volume::new(VolumeIndex::FIRST, path, directory)];
        volumes.extend(others.volumes);
        let found = Found::look(&volumes, &newest).map_err(OpenError::storage)?;
        let was_clean = report.was_clean() && others.were_clean;
        let registration = metadata::Registration {
            id: settings.broker_id,
            incarnation: settings.incarnation,
            role: settings.role,
            rack: settings.rack.clone(),
            addresses: settings.addresses.clone(),
            directories: directory_ids(&volumes, &known),
            offline: others.missing.iter().filter_map(|missing| missing.id).collect(),
            format_level: crate::level::format_level(),
            // The mark of a clean stop is removed at every start, so the process that left it was the
            // last one that registered.
            clean_since: last_epoch.filter(|_| was_clean),
            lost_power: !was_clean && !report.registered_in_this_boot,
        };
        let driver = Arc::new(Driver {
            clock,
            net,
            settings,
            volumes,
            missing: others.missing,
            found,
            cells: RwLock::new(BTreeMap::new()),
            quorum,
            station: Mutex::new(Station::new(registration)),
            doorkeeper: Mutex::default(),
            removed: Mutex::new(removed),
            unserved: Mutex::default(),
            feeds: Feeds::default(),
            lines_due: Mutex::default(),
            watched: Watched::default(),
            early: Mutex::default(),
            rounds: Mutex::default(),
            throttle: Throttle::default(),
            in_sync_changes: InSyncChanges::default(),
            proposals: Mutex::default(),
            suspects: Mutex::default(),
            leaving: Mutex::default(),
            remote_readers: Mutex::default(),
            directories_at: Mutex::default(),
            image: RwLock::new(image),
            publishing: Mutex::new(()),
            deadlines: Mutex::default(),
            offline: Mutex::default(),
            compactor: Mutex::default(),
            scrub_totals: Mutex::default(),
            compaction_totals: Mutex::default(),
            guard_book: Mutex::default(),
            lag_watch: Mutex::default(),
            disk_pressed: AtomicBool::new(false),
            deliveries_bytes: AtomicU64::new(SNAPSHOT_BYTES),
            newest_config: NewestConfig::default(),
        });
        driver.volumes().for_each(|volume| driver.look_at_room(volume));
        // What is certain already: who takes part, for one.
        driver.quorum_step(|_, _, _| ());
        driver.sync_all();
        if driver.quorum.lock().is_sole_voter() {
            driver.start_alone()?;
        }
        Ok(driver)
    }

    /// A quorum of one elects itself, registers, and leads what it has, before anybody asks.
    fn start_alone(&self) -> Result<(), OpenError> {
        for _ in 0..ELECTION_TICKS_MAX {
            self.quorum_step(|slot, _, _| slot.tick_once());
            self.sync_all();
            if self.is_controller() {
                break;
            }
        }
        self.register();
        self.sync_all();
        if let Some(error) = self.take_unserved() {
            return Err(error);
        }
        if self.broker_epoch().is_none() {
            return Err(OpenError::NotRegistered);
        }
        Ok(())
    }

    fn sync_all(&self) {
        while self.has_unsynced() {
            self.sync_round();
        }
    }

    /// This broker cannot serve: whoever runs it ends it.
    pub(crate) fn note_unserved(&self, error: OpenError) {
        *self.unserved.lock().expect("no panic holds the error") = Some(error);
    }

    /// Why this broker cannot serve what it holds, if so: it serves nothing then.
    pub fn take_unserved(&self) -> Option<OpenError> {
        self.unserved.lock().expect("no panic holds the error").take()
    }
}

/// Before anything in it is touched. What cannot be read is for the opening to tell.
fn refuse_another_brokers<D: Disk>(disk: &D, path: &Path, me: BrokerId) -> Result<(), OpenError> {
    match DataDirectory::identity_at(disk, path) {
        Ok(Some(found)) if found.node_id != me => {
            Err(OpenError::OtherBroker { path: path.to_owned(), node: found.node_id, me })
        }
        _ => Ok(()),
    }
}

/// The ids of the data directories that there are, and of those that there were and that nobody has
/// given up.
fn directory_ids<D: Disk>(volumes: &[Volume<D>], known: &[Uuid]) -> Vec<Uuid> {
    let mut ids: Vec<Uuid> =
        volumes.iter().map(|volume| volume.directory.identity().directory_id).collect();
    let absent: Vec<Uuid> = known.iter().copied().filter(|id| !ids.contains(id)).collect();
    ids.extend(absent);
    ids
}

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// This process is registered: from now on what the metadata says of this broker is about it.
    /// Opens whatever it holds, and sets aside what nobody knows.
    pub(crate) fn begin_to_serve(&self) {
        let image = self.image().clone();
        match self.open_all(&image).and_then(|()| self.sort_out_strangers(&image)) {
            Ok(()) => {
                if let Err(error) = self.first().directory.note_registered() {
                    tracing::warn!(%error, "the next start will take it that the power was lost");
                }
                self.note_ready();
            }
            Err(error) => {
                tracing::error!(%error, "this broker cannot serve what it holds");
                self.note_unserved(error);
            }
        }
    }

    /// Brings everything in line with an image that came as a whole.
    pub(crate) fn follow_whole_image(&self) {
        let image = self.image().clone();
        let ids = self.cells().into_iter().map(|cell| cell.id);
        ids.filter(|id| !id.is_delivery_log()).for_each(|id| self.follow_image(id));
        for topic in image.topics() {
            self.reconfigure(topic.id);
        }
        if let Err(error) = self.open_all(&image) {
            tracing::error!(%error, "partitions of this broker cannot be opened");
        }
    }

    /// Opens every partition that lies here; one that cannot be read keeps no other from it. Where
    /// the disk takes no writes, that is the error.
    fn open_all(&self, image: &Image) -> Result<(), OpenError> {
        let mut all = Vec::new();
        for topic in image.topics() {
            all.extend((0i32..).take(topic.partitions.len()).map(|partition| (topic, partition)));
        }
        let failed = Mutex::new(BTreeMap::new());
        self.clock.for_each(all.len(), &|nth| {
            let (topic, partition) = all[nth];
            let partition = PartitionIndex(partition);
            if let Err(error) = self.open_if_held(image, topic, partition) {
                failed.lock().expect("no panic holds the errors").insert(nth, error);
            }
            self.resume_deliveries(TopicPartition { topic: topic.id, partition });
        });
        let failed = failed.into_inner().expect("no panic holds the errors");
        failed.into_values().next().map_or(Ok(()), Err)
    }

    /// Opens a partition of `topic`, and the delivery log of a queue's, if this broker holds a replica and
    /// has not opened it yet; one of the two alone is not served. Where it leads, its state has begun to
    /// lead before anybody can ask it; deliveries do so by [`Driver::resume_deliveries`], which whoever opens
    /// calls once it has let go of the image: it takes the locks of partitions, and may read a whole backlog.
    pub(crate) fn open_if_held(
        &self,
        image: &Image,
        topic: &Topic,
        partition: PartitionIndex,
    ) -> Result<(), OpenError> {
        let id = TopicPartition { topic: topic.id, partition };
        let at = usize::try_from(partition.0).unwrap_or(usize::MAX);
        let Some(state) = topic.partitions.get(at) else { return Ok(()) };
        let mut unopened = logs_of(id, topic.is_queue());
        unopened.retain(|log| self.cell(*log).is_none());
        let is_held = state.replicas.contains(&self.settings.broker_id);
        if !is_held || unopened.is_empty() || self.is_leaving(id) {
            return Ok(());
        }
        let records = self.cell(id);
        let located = match &records {
            Some(records) => Located::In(records.volume),
            None => self.located(id, topic.internal),
        };
        let volume = match located {
            Located::In(volume) => volume,
            Located::Nowhere => self.place_for_new(topic.internal),
            Located::Unknown(reason) => {
                self.take_offline(id, topic.name.clone(), &reason);
                return Ok(());
            }
        };
        let config = self.newest_config.shared(image.effective_config(topic));
        let opened = unopened
            .into_iter()
            .map(|log| self.open_log(log, volume, image, topic, state, &config))
            .collect();
        let opened: Vec<Arc<Cell<D>>> = match opened {
            Ok(opened) => opened,
            Err(error) if RecoverError::is_of_one_partition(&error) => {
                self.take_offline(id, topic.name.clone(), &error.to_string());
                if records.is_some() {
                    // Records without deliveries are no replica: it is copied anew, if it can be.
                    self.suspect(id);
                }
                return Ok(());
            }
            Err(source) => {
                return Err(OpenError::Partition { topic: topic.name.clone(), partition, source });
            }
        };
        self.back_online(id);
        if records.is_none() {
            self.volume(volume).partitions.fetch_add(1, Ordering::Relaxed);
            if !topic.internal {
                self.volume(volume).placed.fetch_add(1, Ordering::Relaxed);
            }
        }
        for cell in &opened {
            let leads = cell.lock().leads();
            if leads {
                self.resume(cell);
            }
        }
        self.show_opened(records.as_ref(), &opened);
        for cell in &opened {
            // The timer passes over a deadline of a partition that it does not find.
            let mut slot = cell.lock();
            slot.scheduled = slot.next_deadline();
            self.schedule(cell.id, slot.scheduled);
            let leads = slot.leads();
            drop(slot);
            if leads {
                self.hear_early(cell.id);
            }
            self.ask_leader_of(cell, state.leader);
        }
        Ok(())
    }

    /// From now on these logs are found. `records` have been open before, where only their delivery log
    /// was opened: whoever may be in sync there by now, because this leader has asked for it, counts for
    /// the deliveries too, and their lock keeps anybody from asking for more meanwhile.
    fn show_opened(&self, records: Option<&Arc<Cell<D>>>, opened: &[Arc<Cell<D>>]) {
        let records = records.map(|records| records.lock());
        if let Some(leader) = records.as_ref().and_then(|records| records.partition.leader()) {
            let counts = leader.maximal_in_sync();
            opened.iter().for_each(|cell| cell.lock().partition.count_also(&counts));
        }
        let mut cells = self.cells.write().expect("no panic holds the map");
        cells.extend(opened.iter().map(|cell| (cell.id, Arc::clone(cell))));
    }

    /// Files of this partition, or of its delivery log, are about to be removed.
    fn is_leaving(&self, id: TopicPartition) -> bool {
        let leaving = self.leaving.lock().expect("no panic holds the list");
        leaving.contains(&id) || leaving.contains(&id.delivery_log())
    }

    fn open_log(
        &self,
        id: TopicPartition,
        volume: VolumeIndex,
        image: &Image,
        topic: &Topic,
        partition: &PartitionState,
        config: &Arc<TopicConfig>,
    ) -> Result<Arc<Cell<D>>, RecoverError> {
        let place = place_of(id, &topic.name);
        let directory = &self.volume(volume).directory;
        let (mut log, recovery) = directory.open_log(place, log_config(config, id))?;
        report(&recovery, &topic.name);
        if !log.damaged().is_empty() {
            self.suspect(id);
        }
        let broker_config = image.broker_config();
        let me = self.settings.broker_id;
        let producers_max = broker_config.producers_per_partition_max;
        let min_in_sync = min_in_sync(image, topic, partition);
        let held = Held { id, me, partition, config, min_in_sync, producers_max };
        let partition = if partition.leader == Some(me) {
            // A delivery log that is lost begins anew, and empty.
            resume_after_loss(&mut log, image.resumes_at(id))?;
            let state = if id.is_delivery_log() {
                state_of_deliveries(config, &log)?
            } else {
                state_of_topic(&topic.name, &broker_config, &log)?
            };
            lead(&held, state, &log, self.clock.now())?
        } else {
            follow(&held, &log, self.clock.now())?
        };
        let (name, config) = (topic.name.clone(), Arc::clone(config));
        Ok(Arc::new(Cell::new(id, name, volume, partition, log, config)))
    }

    pub(crate) fn resume(&self, cell: &Arc<Cell<D>>) {
        self.step(cell, |slot, now, out| slot.partition.resume(now, out));
    }

    /// Data whose topic the metadata does not know is set aside, never deleted: a lost metadata
    /// record must not cost records (the way a streaming system once lost whole streams). What a
    /// record says was removed is removed, if a crash came between that record and the disk.
    ///
    /// A replica that was moved away is removed too: the metadata names the partition, and others as
    /// those who hold it.
    fn sort_out_strangers(&self, image: &Image) -> Result<(), OpenError> {
        let removed = std::mem::take(&mut *self.removed.lock().expect("no panic holds the list"));
        let found_in = |volume: &Volume<D>| volume.directory.logs_on_disk();
        for volume in &self.volumes {
            for found in found_in(volume).map_err(OpenError::storage)? {
                let id = TopicPartition { topic: found.topic, partition: found.partition };
                let directory = &volume.directory;
                if let Some(topic) = image.topic_by_id(found.topic) {
                    let at = usize::try_from(id.records().partition.0).unwrap_or(usize::MAX);
                    let me = self.settings.broker_id;
                    if topic.partitions.get(at).is_some_and(|held| !held.replicas.contains(&me)) {
                        let place = place_of(id, &topic.name);
                        directory.delete_log(place).map_err(OpenError::storage)?;
                    }
                    continue;
                }
                if self.cell(id).is_some() {
                    continue;
                }
                if let Some(name) = removed.get(&id.records())
                    && !mutant::is_on(Mutant::DeletionNotFinished)
                {
                    directory.delete_log(place_of(id, name)).map_err(OpenError::storage)?;
                    continue;
                }
                tracing::warn!(path = %found.path.display(),
                    "the metadata does not know this partition's topic: its directory is set aside");
                directory.quarantine(&found).map_err(OpenError::storage)?;
            }
        }
        Ok(())
    }

    /// Stops leading everything, flushes, and leaves a clean mark. Nothing is served afterwards.
    ///
    /// # Errors
    /// When the directory cannot be flushed; it is then dirty, which costs a scan at the next start
    /// and no data.
    pub fn close_cleanly(&self) -> Result<(), LogError> {
        self.stop_compacting();
        self.volumes.iter().for_each(|volume| self.want_flush(volume));
        self.sync_round();
        let cells = self.cells();
        self.quorum_step(|slot, _, orders| slot.leave(orders));
        if self.broker_epoch().is_none() {
            // The mark would speak for a process that was registered before and may have ended
            // otherwise.
            return Ok(());
        }
        for cell in &cells {
            self.save_snapshot(cell);
            self.close(cell, Outcome::NotLeader);
        }
        // A directory that has failed must not keep the others from their mark.
        let closed: Vec<Result<(), LogError>> =
            self.volumes.iter().map(|volume| self.close_volume(volume, &cells)).collect();
        closed.into_iter().collect()
    }

    fn close_volume(&self, volume: &Volume<D>, cells: &[Arc<Cell<D>>]) -> Result<(), LogError> {
        let mut here: Vec<_> = cells.iter().filter(|cell| cell.volume == volume.index).collect();
        here.sort_unstable_by_key(|cell| lock_order(cell.id));
        let mut slots: Vec<_> = here.into_iter().map(|cell| cell.lock()).collect();
        let mut quorum = (volume.index == VolumeIndex::FIRST).then(|| self.quorum.lock());
        let metadata = quorum.iter_mut().map(|slot| &mut slot.log);
        volume.directory.close(slots.iter_mut().map(|slot| &mut slot.log).chain(metadata))
    }
}

impl OpenError {
    fn storage(error: LogError) -> OpenError {
        OpenError::Metadata(RecoverError::Log(error))
    }
}

/// What a recovery found, for people.
fn report(recovery: &Recovery, topic: &TopicName) {
    let partition = recovery.partition.partition;
    if let Some(cut) = recovery.cut.as_ref().filter(|cut| cut.is_suspect) {
        tracing::warn!(%topic, %partition, log_end_offset = %cut.at, bytes = cut.bytes,
            "bytes at the end of the log were cut that nobody had been promised, and that do not look \
             like an unfinished write: every sector of them is there, their checksum is wrong. If this \
             happens again, look at the disk and the memory of this machine");
    } else if let Some(cut) = &recovery.cut {
        tracing::info!(%topic, %partition, log_end_offset = %cut.at, bytes = cut.bytes,
            "an unfinished write at the end of the log was cut; nobody had been promised it");
    }
    report_damage(topic, recovery.partition.partition, &recovery.damage);
}

pub(crate) fn report_damage(topic: &TopicName, partition: PartitionIndex, damage: &[DamagedRange]) {
    for DamagedRange { offsets, cause } in damage {
        tracing::error!(%topic, %partition, from = %offsets.start, to = %offsets.end, %cause,
            "records that were acknowledged are damaged. Reading them is refused, all others are \
             served; a reader goes on behind them by seeking to the end of the range. Restore them \
             from a copy, or delete the records up to there once nobody needs what is before");
    }
}

pub(crate) fn place_of(id: TopicPartition, name: &TopicName) -> LogPlace {
    LogPlace::Partition { topic: id.topic, name: name.clone(), partition: id.partition }
}
