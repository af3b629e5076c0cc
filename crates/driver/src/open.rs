//! Start and stop: from data directories to led partitions, and back to clean directories.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use towpath_broker::{Host, Outcome, State};
use towpath_log::disk::Disk;
use towpath_log::{
    DamagedRange, DataDirectory, Identity, LastStop, LogConfig, LogError, LogPlace, Recovery,
    WriteAheadLimits,
};
use towpath_metadata::{self as metadata, Image, Metadata, PartitionState, Topic};
use towpath_model::mutant::{self, Mutant};
use towpath_model::properties::TopicConfig;
use towpath_model::{BrokerId, PartitionIndex, TopicName, TopicPartition, Uuid};

use crate::cell::Cell;
use crate::config::log_config;
use crate::driver::{Driver, Settings};
use crate::locate::{Found, Located, open_others};
use crate::manage::NOBODY;
use crate::recover::{Leadership, RecoverError, lead, replay, state_of_topic};
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
    /// The metadata log takes no writes.
    #[error("this broker cannot be registered: the metadata log takes no writes")]
    NotRegistered,
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

/// The name under which the metadata log appears in messages.
pub(crate) const METADATA_TOPIC: &str = "__cluster_metadata";

/// Partitions that a record says were removed, with their topics' names.
type Removed = BTreeMap<TopicPartition, TopicName>;

fn metadata_id() -> TopicPartition {
    TopicPartition { topic: Uuid::METADATA_TOPIC, partition: PartitionIndex(0) }
}

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
        let (metadata, removed) =
            open_metadata(&directory, &settings, &clock).map_err(OpenError::Metadata)?;
        let image = match metadata.lock().partition.state() {
            State::Metadata(host) => host.machine().image().clone(),
            _ => unreachable!("the metadata partition holds the metadata"),
        };
        let mut known =
            image.broker(settings.broker_id).map_or_else(Vec::new, |b| b.directories.clone());
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
        let found = Found::look(&volumes, &image).map_err(OpenError::storage)?;
        let driver = Arc::new(Driver {
            clock,
            net,
            settings,
            volumes,
            missing: others.missing,
            found,
            cells: RwLock::new(BTreeMap::new()),
            metadata,
            image: RwLock::new(image.clone()),
            publishing: Mutex::new(()),
            deadlines: Mutex::default(),
            offline: Mutex::default(),
            compactor: Mutex::default(),
            scrub_totals: Mutex::default(),
            compaction_totals: Mutex::default(),
            guard_book: Mutex::default(),
            lag_watch: Mutex::default(),
            disk_pressed: AtomicBool::new(false),
        });
        driver.volumes().for_each(|volume| driver.look_at_room(volume));
        // Opens partitions whose leader epoch it raises.
        driver.register(report.was_clean() && others.were_clean, &known)?;
        let image = driver.image().clone();
        driver.open_all(&image)?;
        driver.sort_out_strangers(&image, &removed)?;
        Ok(driver)
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

fn open_metadata<D: Disk, C: Clock>(
    directory: &DataDirectory<D>,
    settings: &Settings,
    clock: &C,
) -> Result<(Arc<Cell<D>>, Removed), RecoverError> {
    let (log, recovery) = directory.open_log(LogPlace::Metadata, LogConfig::default())?;
    recovery.refuse_damage()?;
    let (mut names, mut removed) = (BTreeMap::new(), Removed::new());
    let empty = Metadata::new(settings.broker_id, settings.statics.clone());
    let machine = replay(empty, &log, |record| match record {
        metadata::Record::Topic { id, name, .. } => {
            names.insert(*id, name.clone());
        }
        metadata::Record::PartitionRemoved { partition } => {
            removed.extend(names.get(&partition.topic).map(|name| (*partition, name.clone())));
        }
        _ => {}
    })?;
    let partition = PartitionState::new(vec![settings.broker_id]);
    let config = Arc::new(TopicConfig::default());
    let state = State::Metadata(Box::new(Host::new(machine)));
    let leadership = Leadership {
        id: metadata_id(),
        me: settings.broker_id,
        partition: &partition,
        config: &config,
        // Nobody produces here.
        producers_max: 1,
    };
    let partition = lead(&leadership, state, &log, clock.now())?;
    let topic = TopicName::new(METADATA_TOPIC).expect("a valid name");
    let volume = VolumeIndex::FIRST;
    Ok((Arc::new(Cell::new(metadata_id(), topic, volume, partition, log, config)), removed))
}

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// Says that this broker has started, before it leads anything: after a stop that was not clean
    /// its partitions get a new leader epoch. Returns when that is durable.
    fn register(&self, was_clean: bool, known: &[Uuid]) -> Result<(), OpenError> {
        self.resume(&self.metadata);
        let me = self.settings.broker_id;
        // The mark of a clean stop is removed at every start, so the process that left it was the
        // last one that registered.
        let last = self.image().broker(me).map(|broker| broker.epoch);
        let registration = metadata::Registration {
            id: me,
            incarnation: self.settings.incarnation,
            role: metadata::Role::Broker,
            rack: None,
            addresses: self.settings.addresses.clone(),
            directories: self.directory_ids(known),
            clean_since: last.filter(|_| was_clean),
            offline: Vec::new(),
            // Where nobody could lead meanwhile, it makes no difference.
            lost_power: true,
        };
        let asked = self.ask_metadata(NOBODY, metadata::Request::RegisterBroker(registration));
        while self.has_unsynced() {
            self.sync_round();
        }
        // An earlier process of this broker has left a registration too: only a newer one says that
        // the leader epochs were raised.
        let registered = self.image().broker(me).map(|broker| broker.epoch);
        if asked.is_err() || registered <= last {
            return Err(OpenError::NotRegistered);
        }
        Ok(())
    }

    /// Opens every partition that is led here; one that cannot be read keeps no other from it. Where
    /// the disk takes no writes, that is the error.
    fn open_all(&self, image: &Image) -> Result<(), OpenError> {
        let mut all = Vec::new();
        for topic in image.topics() {
            all.extend((0i32..).take(topic.partitions.len()).map(|partition| (topic, partition)));
        }
        let failed = Mutex::new(BTreeMap::new());
        self.clock.for_each(all.len(), &|nth| {
            let (topic, partition) = all[nth];
            if let Err(error) = self.open_if_led(image, topic, PartitionIndex(partition)) {
                failed.lock().expect("no panic holds the errors").insert(nth, error);
            }
        });
        let failed = failed.into_inner().expect("no panic holds the errors");
        failed.into_values().next().map_or(Ok(()), Err)
    }

    /// The ids of the data directories that there are, and of those that there were and that nobody
    /// has given up.
    fn directory_ids(&self, known: &[Uuid]) -> Vec<Uuid> {
        let open = self.volumes.iter().map(|volume| volume.directory.identity().directory_id);
        let mut ids: Vec<Uuid> = open.collect();
        let absent: Vec<Uuid> = known.iter().copied().filter(|id| !ids.contains(id)).collect();
        ids.extend(absent);
        ids
    }

    /// Opens a partition of `topic` if this broker leads it and has not opened it yet. Its state
    /// has begun to lead before anybody can ask it.
    pub(crate) fn open_if_led(
        &self,
        image: &Image,
        topic: &Topic,
        partition: PartitionIndex,
    ) -> Result<(), OpenError> {
        let id = TopicPartition { topic: topic.id, partition };
        let at = usize::try_from(partition.0).unwrap_or(usize::MAX);
        let Some(leadership) = topic.partitions.get(at) else { return Ok(()) };
        if leadership.leader != Some(self.settings.broker_id) || self.cell(id).is_some() {
            return Ok(());
        }
        let volume = match self.located(id, topic.internal) {
            Located::In(volume) => volume,
            Located::Nowhere => self.place_for_new(topic.internal),
            Located::Unknown(reason) => {
                self.take_offline(id, topic.name.clone(), &reason);
                return Ok(());
            }
        };
        let config = Arc::new(image.effective_config(topic));
        let opened = self.open_partition(id, volume, image, topic, leadership, &config);
        let cell = match opened {
            Ok(cell) => cell,
            Err(error) if error.is_of_one_partition() => {
                self.take_offline(id, topic.name.clone(), &error.to_string());
                return Ok(());
            }
            Err(source) => {
                return Err(OpenError::Partition { topic: topic.name.clone(), partition, source });
            }
        };
        self.back_online(id);
        self.volume(volume).partitions.fetch_add(1, Ordering::Relaxed);
        if !topic.internal {
            self.volume(volume).placed.fetch_add(1, Ordering::Relaxed);
        }
        self.resume(&cell);
        self.cells.write().expect("no panic holds the map").insert(id, Arc::clone(&cell));
        // The timer passes over a deadline of a partition that it does not find.
        let mut slot = cell.lock();
        slot.scheduled = slot.next_deadline();
        self.schedule(id, slot.scheduled);
        Ok(())
    }

    fn open_partition(
        &self,
        id: TopicPartition,
        volume: VolumeIndex,
        image: &Image,
        topic: &Topic,
        leadership: &PartitionState,
        config: &Arc<TopicConfig>,
    ) -> Result<Arc<Cell<D>>, RecoverError> {
        let place = place_of(id, &topic.name);
        let directory = &self.volume(volume).directory;
        let (log, recovery) = directory.open_log(place, log_config(config, id))?;
        report(&recovery, &topic.name);
        let broker_config = image.broker_config();
        let state = state_of_topic(&topic.name, &broker_config, &log)?;
        let leadership = Leadership {
            id,
            me: self.settings.broker_id,
            partition: leadership,
            config,
            producers_max: broker_config.producers_per_partition_max,
        };
        let partition = lead(&leadership, state, &log, self.clock.now())?;
        let (name, config) = (topic.name.clone(), Arc::clone(config));
        Ok(Arc::new(Cell::new(id, name, volume, partition, log, config)))
    }

    pub(crate) fn resume(&self, cell: &Arc<Cell<D>>) {
        self.step(cell, |slot, now, out| slot.partition.resume(now, out));
    }

    /// Data whose topic the metadata does not know is set aside, never deleted: a lost metadata
    /// record must not cost records (the way a streaming system once lost whole streams). What a
    /// record says was removed is removed, if a crash came between that record and the disk.
    fn sort_out_strangers(&self, image: &Image, removed: &Removed) -> Result<(), OpenError> {
        let found_in = |volume: &Volume<D>| volume.directory.logs_on_disk();
        for volume in &self.volumes {
            for found in found_in(volume).map_err(OpenError::storage)? {
                let id = TopicPartition { topic: found.topic, partition: found.partition };
                if self.cell(id).is_some() || image.topic_by_id(found.topic).is_some() {
                    continue;
                }
                let directory = &volume.directory;
                if let Some(name) = removed.get(&id)
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
        let mut cells = self.cells();
        cells.push(Arc::clone(&self.metadata));
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
        let here = cells.iter().filter(|cell| cell.volume == volume.index);
        let mut slots: Vec<_> = here.map(|cell| cell.lock()).collect();
        volume.directory.close(slots.iter_mut().map(|slot| &mut slot.log))
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
