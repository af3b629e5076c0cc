//! Start and stop: from a data directory to led partitions, and back to a clean directory.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, RwLock};

use towpath_broker::{Host, Outcome, State};
use towpath_log::disk::Disk;
use towpath_log::{DataDirectory, Identity, LogConfig, LogError, LogPlace};
use towpath_metadata::{Image, Metadata, Topic};
use towpath_model::{PartitionIndex, TopicId, TopicName, TopicPartition, Uuid};

use crate::cell::Cell;
use crate::config::log_config;
use crate::driver::{Driver, Inner, Settings};
use crate::recover::{RecoverError, lead, replay, state_of_topic};
use crate::world::{Clock, Net};

/// Why a broker does not start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The data directory as a whole.
    #[error(transparent)]
    Directory(#[from] towpath_log::OpenError),
    /// The metadata log.
    #[error("the metadata log cannot be used: {0}")]
    Metadata(#[source] RecoverError),
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
        new_identity: impl FnOnce() -> Identity,
        boot_id: &str,
        settings: Settings,
        clock: C,
        net: N,
    ) -> Result<Self, OpenError> {
        let (directory, report) = DataDirectory::open(disk, path, new_identity, boot_id)?;
        tracing::debug!(?report, "data directory opened");
        let metadata = open_metadata(&directory, &settings, &clock).map_err(OpenError::Metadata)?;
        let image = match metadata.lock().partition.state() {
            State::Metadata(host) => host.machine().image().clone(),
            _ => unreachable!("the metadata partition holds the metadata"),
        };
        let driver = Driver::from_inner(Inner {
            clock,
            net,
            settings,
            directory,
            cells: RwLock::new(BTreeMap::new()),
            metadata,
            image: RwLock::new(image.clone()),
            unsynced: Mutex::new(Vec::new()),
            unflushed: Mutex::new(Vec::new()),
            deadlines: Mutex::new(BTreeMap::new()),
            doomed: Mutex::new(Vec::new()),
        });
        for topic in image.topics() {
            for partition in (0i32..).take(topic.partitions.len()) {
                driver.open_if_led(&image, topic, PartitionIndex(partition))?;
            }
        }
        driver.quarantine_strangers(&image)?;
        driver.resume(&driver.metadata);
        for cell in driver.cells() {
            driver.resume(&cell);
        }
        Ok(driver)
    }
}

fn open_metadata<D: Disk, C: Clock>(
    directory: &DataDirectory<D>,
    settings: &Settings,
    clock: &C,
) -> Result<Arc<Cell<D>>, RecoverError> {
    let (log, recovery) = directory.open_log(LogPlace::Metadata, LogConfig::default())?;
    recovery.refuse_damage()?;
    let machine = replay(Metadata::new(settings.broker_id, settings.statics.clone()), &log)?;
    let leadership = machine.image().metadata_leadership(settings.broker_id);
    let config = Arc::new(machine.image().internal_config());
    let state = State::Metadata(Box::new(Host::new(machine)));
    let partition = lead(metadata_id(), settings.broker_id, &leadership, &config, state, &log, clock.now())?;
    let topic = TopicName::new(METADATA_TOPIC).expect("a valid name");
    Ok(Arc::new(Cell::new(metadata_id(), topic, partition, log, config)))
}

impl<D: Disk, C: Clock, N: Net> Inner<D, C, N> {
    /// Opens a partition of `topic` if this broker leads it and has not opened it yet.
    pub(crate) fn open_if_led(
        &self,
        image: &Image,
        topic: &Topic,
        partition: PartitionIndex,
    ) -> Result<Option<Arc<Cell<D>>>, OpenError> {
        let id = TopicPartition { topic: topic.id, partition };
        let at = usize::try_from(partition.0).unwrap_or(usize::MAX);
        let Some(leadership) = topic.partitions.get(at) else { return Ok(None) };
        if leadership.leader != Some(self.settings.broker_id) || self.cell(id).is_some() {
            return Ok(None);
        }
        let config = Arc::new(image.effective_config(topic));
        let opened = self.open_partition(id, image, topic, leadership, &config);
        let cell = opened.map_err(|source| OpenError::Partition {
            topic: topic.name.clone(),
            partition,
            source,
        })?;
        self.cells.write().expect("no panic holds the map").insert(id, Arc::clone(&cell));
        Ok(Some(cell))
    }

    fn open_partition(
        &self,
        id: TopicPartition,
        image: &Image,
        topic: &Topic,
        leadership: &towpath_metadata::PartitionState,
        config: &Arc<towpath_model::properties::TopicConfig>,
    ) -> Result<Arc<Cell<D>>, RecoverError> {
        let place = place_of(id, &topic.name);
        let (log, recovery) = self.directory.open_log(place, log_config(config, id.partition))?;
        recovery.report(&topic.name, id.partition);
        let state = state_of_topic(&topic.name, &image.broker_config(), &log)?;
        let me = self.settings.broker_id;
        let partition = lead(id, me, leadership, config, state, &log, self.clock.now())?;
        Ok(Arc::new(Cell::new(id, topic.name.clone(), partition, log, Arc::clone(config))))
    }

    pub(crate) fn resume(&self, cell: &Arc<Cell<D>>) {
        self.step(cell, |slot, now, out| slot.partition.resume(now, out));
    }

    /// Data whose topic the metadata does not know is set aside, never deleted: a lost metadata
    /// record must not cost records (the way a streaming system once lost whole streams).
    fn quarantine_strangers(&self, image: &Image) -> Result<(), OpenError> {
        let known = |topic: TopicId| image.topic_by_id(topic).is_some();
        for found in self.directory.logs_on_disk().map_err(OpenError::storage)? {
            if known(found.topic) || self.was_deleted(image, found.topic) {
                continue;
            }
            tracing::warn!(path = %found.path.display(),
                "the metadata does not know this partition's topic: its directory is set aside");
            self.directory.quarantine(&found).map_err(OpenError::storage)?;
        }
        Ok(())
    }

    fn was_deleted(&self, image: &Image, topic: TopicId) -> bool {
        image.is_deleted(topic)
    }

    /// Stops leading everything, flushes, and leaves a clean mark. Nothing is served afterwards.
    ///
    /// # Errors
    /// When the directory cannot be flushed; it is then dirty, which costs a scan at the next start
    /// and no data.
    pub fn close_cleanly(&self) -> Result<(), LogError> {
        self.sync_round();
        self.flush_relaxed();
        let mut cells = self.cells();
        cells.push(Arc::clone(&self.metadata));
        for cell in &cells {
            self.save_snapshot(cell);
            self.close(cell, Outcome::NotLeader);
        }
        let mut slots: Vec<_> = cells.iter().map(|cell| cell.lock()).collect();
        self.directory.close(slots.iter_mut().map(|slot| &mut slot.log))
    }
}

impl OpenError {
    fn storage(error: LogError) -> OpenError {
        OpenError::Metadata(RecoverError::Log(error))
    }
}

pub(crate) fn place_of(id: TopicPartition, name: &TopicName) -> LogPlace {
    LogPlace::Partition { topic: id.topic, name: name.clone(), partition: id.partition }
}
