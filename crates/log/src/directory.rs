//! A data directory: one lock, one identity, one write-ahead file, many logs.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use towpath_model::mutant::{self, Mutant};
use towpath_model::{Offset, TopicPartition, Uuid};

use crate::disk::{Disk, DiskFile, Space};
use crate::error::{LogError, OpenError};
use crate::identity::{self, Identity, LastStop};
use crate::log::{Log, LogConfig};
use crate::place::{FoundLog, LogPlace, METADATA, TOPICS, directory_name, partition_of, topic_of};
use crate::recover::{self, Recovery};
use crate::write_ahead::{self, Replayed, WriteAhead};

const FORMAT: &str = "format";
const LOCK: &str = "lock";
const CLEAN: &str = "clean";
const BOOT: &str = "boot";
const REGISTERED: &str = "registered";
const WRITE_AHEAD: &str = "wal";
const DELETED: &str = "deleted";
const QUARANTINE: &str = "quarantine";

/// How large the two write-ahead files may become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteAheadLimits {
    /// Bytes of each file. More means fewer syncs of segments, and a longer replay after a crash.
    pub file_bytes_max: u64,
    /// Bytes from which an extent of one partition is synced directly instead.
    pub direct_bytes_min: u64,
}

impl Default for WriteAheadLimits {
    /// The figures of ADR 0001.
    fn default() -> Self {
        WriteAheadLimits { file_bytes_max: 128 << 20, direct_bytes_min: 256 << 10 }
    }
}

/// What opening a data directory found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// How the last process ended.
    pub last_stop: LastStop,
    /// Write-ahead frames that were replayed.
    pub replayed_frames: u64,
    /// Bytes that segments lacked and got from them.
    pub repaired_bytes: u64,
    /// Whether [`DataDirectory::note_registered`] was last called in this boot of the system. If not,
    /// whatever was not synced then may be gone, however many starts there were since.
    pub registered_in_this_boot: bool,
    /// Places in write-ahead files that had been synced and are unreadable. What they held may
    /// still be in the segments; if not, the logs report it.
    pub damaged_places: u64,
}

impl OpenReport {
    /// Whether the last stop was clean, so that there was nothing to replay.
    #[must_use]
    pub fn was_clean(&self) -> bool {
        self.last_stop == LastStop::Clean
    }
}

/// An open data directory. Cheap to clone; the last clone gives the lock back.
pub struct DataDirectory<D: Disk> {
    pub(crate) inner: Arc<Inner<D>>,
}

impl<D: Disk> Clone for DataDirectory<D> {
    fn clone(&self) -> Self {
        DataDirectory { inner: Arc::clone(&self.inner) }
    }
}

impl<D: Disk> std::fmt::Debug for DataDirectory<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("DataDirectory").field(&self.inner.root).finish()
    }
}

pub(crate) struct Inner<D: Disk> {
    pub(crate) disk: D,
    pub(crate) root: PathBuf,
    pub(crate) limits: WriteAheadLimits,
    identity: Identity,
    boot_id: String,
    pub(crate) last_stop: LastStop,
    failure: OnceLock<String>,
    is_thrifty: AtomicBool,
    /// Calls of rounds that have waited for the disk, and come back.
    pub(crate) calls: AtomicU64,
    /// Held during a round, and while a log is moved out of its place.
    pub(crate) round: Mutex<()>,
    write_ahead: Mutex<WriteAhead<D>>,
    /// Generations of the logs that were opened and not deleted since.
    generations: Mutex<BTreeMap<TopicPartition, Arc<AtomicU64>>>,
    /// Up to where the write-ahead file says logs are durable, until they are opened.
    replayed: Mutex<BTreeMap<TopicPartition, Offset>>,
    /// Logs whose newest records wait in the write-ahead files for a start that can read their
    /// segments, and why this one could not.
    unreplayed: BTreeMap<TopicPartition, String>,
    _lock: Box<dyn Send + Sync>,
}

impl<D: Disk> DataDirectory<D> {
    /// Opens `path`, or makes it a new data directory of `new_identity` when it is empty or
    /// missing. Writes the write-ahead file's frames into their segments and syncs them.
    ///
    /// # Errors
    /// [`OpenError`]; nothing has been removed then.
    pub fn open(
        disk: D,
        path: &Path,
        new_identity: impl FnOnce() -> Identity,
        boot_id: &str,
    ) -> Result<(Self, OpenReport), OpenError> {
        Self::open_with(disk, path, new_identity, boot_id, WriteAheadLimits::default())
    }

    /// [`Self::open`] with other limits: small ones make a simulation turn files often.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_with(
        disk: D,
        path: &Path,
        new_identity: impl FnOnce() -> Identity,
        boot_id: &str,
        limits: WriteAheadLimits,
    ) -> Result<(Self, OpenReport), OpenError> {
        create_root(&disk, path)?;
        let lock = lock(&disk, path)?;
        let format = path.join(FORMAT);
        let (identity, is_new) = match Identity::load(&disk, &format)? {
            Some(identity) => (identity, false),
            None if has_data(&disk, path)? => return Err(OpenError::NoFormat(path.to_owned())),
            None => {
                let identity = new_identity();
                identity.save(&disk, &format)?;
                (identity, true)
            }
        };
        let directory_id = identity.directory_id;
        let last_stop = last_stop(&disk, path, directory_id, is_new, boot_id)?;
        create_parts(&disk, path)?;
        remove_deleted(&disk, path)?;
        let shows_cached =
            last_stop == LastStop::ProcessEnded && !mutant::is_on(Mutant::CacheBelieved);
        let replayed = replay(&disk, path, directory_id, shows_cached)?;
        let report = OpenReport {
            last_stop,
            registered_in_this_boot: identity::is_of_boot(
                &disk,
                &path.join(REGISTERED),
                boot_id,
                directory_id,
            )?,
            replayed_frames: replayed.frames,
            repaired_bytes: replayed.repaired_bytes,
            damaged_places: replayed.damaged,
        };
        let mut write_ahead = WriteAhead::new(
            disk.clone(),
            path.join(WRITE_AHEAD),
            directory_id,
            limits.file_bytes_max,
            replayed.next_number,
        );
        write_ahead.take_over(&replayed)?;
        let durable = replayed.durable.iter().map(|(log, to)| (*log, to.next_offset)).collect();
        let inner = Inner {
            disk,
            root: path.to_owned(),
            limits,
            identity,
            boot_id: boot_id.to_owned(),
            last_stop,
            failure: OnceLock::new(),
            is_thrifty: AtomicBool::new(false),
            calls: AtomicU64::new(0),
            round: Mutex::new(()),
            write_ahead: Mutex::new(write_ahead),
            generations: Mutex::new(BTreeMap::new()),
            replayed: Mutex::new(durable),
            unreplayed: replayed.unreplayed,
            _lock: lock,
        };
        Ok((DataDirectory { inner: Arc::new(inner) }, report))
    }

    /// Says that this process has told the cluster of itself: from now on its successors answer for
    /// what it did. Never synced: where a power loss takes the mark, there is another boot.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn note_registered(&self) -> Result<(), LogError> {
        let Inner { disk, root, boot_id, identity: of, .. } = &*self.inner;
        let path = root.join(REGISTERED);
        identity::enter_boot(disk, &path, boot_id, of.directory_id).map(|_| ())
    }

    /// Whose directory this is.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.inner.identity
    }

    /// Partitions of topics, and delivery logs, that have a directory.
    ///
    /// # Errors
    /// When the disk cannot be listed.
    pub fn logs_on_disk(&self) -> Result<Vec<FoundLog>, LogError> {
        let topics = self.inner.root.join(TOPICS);
        let mut found = Vec::new();
        for (topic, path) in topic_directories(&self.inner.disk, &topics)? {
            let names = self.inner.disk.list(&path).map_err(LogError::io("list", &path))?;
            for partition in names.iter().filter_map(|name| partition_of(name)) {
                let path = path.join(directory_name(partition));
                found.push(FoundLog { topic, partition, path });
            }
        }
        Ok(found)
    }

    /// Moves a partition's directory out of the way, where it stays: what no metadata names is
    /// never removed on our own.
    ///
    /// # Errors
    /// When it cannot be moved; it is then where it was.
    pub fn quarantine(&self, found: &FoundLog) -> Result<(), LogError> {
        let quarantine = self.inner.root.join(QUARANTINE);
        let topic = found.path.parent().and_then(Path::file_name).unwrap_or_default();
        let topic = topic.to_string_lossy();
        let name = format!("{topic}-{}", directory_name(found.partition));
        self.check()?;
        let partition = TopicPartition { topic: found.topic, partition: found.partition };
        let _round = lock_of(&self.inner.round);
        self.supersede(partition);
        self.move_aside(&found.path, &quarantine, &name)?;
        self.forget(partition)
    }

    /// Opens a log and recovers it. Creates nothing on the disk before the first append.
    ///
    /// # Errors
    /// When the disk fails. Damaged records are no error: [`Recovery`] names them.
    pub fn open_log(
        &self,
        place: LogPlace,
        config: LogConfig,
    ) -> Result<(Log<D>, Recovery), LogError> {
        let partition = place.partition();
        if let Some(reason) = self.inner.unreplayed.get(&partition) {
            return Err(LogError::Unreplayed { reason: reason.clone() });
        }
        let replayed = lock_of(&self.inner.replayed).get(&partition).copied();
        let (log, recovery) = recover::open(self.clone(), &place, config, replayed)?;
        self.mark_recovered(&log, replayed)?;
        // Not before: an attempt that failed leaves it to the next one, which must not cut what the
        // write-ahead file has made durable.
        lock_of(&self.inner.replayed).remove(&partition);
        self.supersede(partition);
        lock_of(&self.inner.generations).insert(partition, Arc::clone(&log.generation));
        Ok((log, recovery))
    }

    /// The write-ahead file remembers what a recovery has found durable beyond the checkpoint, so
    /// that a checkpoint can wait for the next commit.
    fn mark_recovered(&self, log: &Log<D>, replayed: Option<Offset>) -> Result<(), LogError> {
        let durable = log.durable;
        let is_known = log.checkpoints().is_saved_up_to(durable.offset)
            || replayed.is_some_and(|replayed| durable.offset <= replayed);
        let Some(segment) = durable.segment.filter(|_| !is_known) else { return Ok(()) };
        let mut write_ahead = self.write_ahead();
        let marked = write_ahead.mark(log.partition, segment, durable.position, durable.offset);
        match marked {
            Err(error) if error.is_disk_full() => {
                write_ahead.give_up_unwritten();
                Ok(())
            }
            marked => marked,
        }
    }

    /// What was taken from a log that is gone vouches for nothing.
    fn supersede(&self, partition: TopicPartition) {
        if let Some(generation) = lock_of(&self.inner.generations).remove(&partition) {
            generation.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Whether every log was recovered, by this start or before the last clean stop.
    fn is_all_recovered(&self) -> Result<bool, LogError> {
        if matches!(self.inner.last_stop, LastStop::Clean | LastStop::Never) {
            return Ok(true);
        }
        let metadata = self.inner.root.join(METADATA);
        let has_metadata =
            self.inner.disk.exists(&metadata).map_err(LogError::io("look for", &metadata))?;
        let found = self.logs_on_disk()?;
        let opened = lock_of(&self.inner.generations);
        let is_opened = |log: &FoundLog| {
            let partition = TopicPartition { topic: log.topic, partition: log.partition };
            opened.contains_key(&partition)
        };
        let is_metadata_opened = opened.contains_key(&LogPlace::Metadata.partition());
        Ok((is_metadata_opened || !has_metadata) && found.iter().all(is_opened))
    }

    /// Removes a log. Once this returns no crash brings it back.
    ///
    /// # Errors
    /// When the disk fails; the log is then there as a whole or not at all.
    pub fn delete_log(&self, place: LogPlace) -> Result<(), LogError> {
        let path = self.inner.root.join(place.path());
        let failed = |source| LogError::io("delete", &path)(source);
        if !self.inner.disk.exists(&path).map_err(failed)? {
            return Ok(());
        }
        self.check()?;
        // Rounds wait only for the move: files of a long log take a disk a while to remove.
        let round = lock_of(&self.inner.round);
        self.supersede(place.partition());
        let deleted = self.inner.root.join(DELETED);
        let aside = self.move_aside(&path, &deleted, "log")?;
        drop(round);
        // First the files, which may be the only room there is: a replay passes over frames whose
        // segments are gone.
        remove_tree(&self.inner.disk, &aside).map_err(LogError::io("delete", &aside))?;
        self.forget(place.partition())?;
        let topic = path.parent().expect("a log's directory has a parent");
        let is_topic = matches!(place, LogPlace::Partition { .. });
        if is_topic && self.inner.disk.list(topic).map_err(failed)?.is_empty() {
            self.inner.disk.remove_dir(topic).map_err(failed)?;
        }
        Ok(())
    }

    /// Frames of a log that is gone are never replayed into a new one in its place. Not before it
    /// is gone: until then they may be all that keeps its newest records.
    fn forget(&self, partition: TopicPartition) -> Result<(), LogError> {
        lock_of(&self.inner.replayed).remove(&partition);
        let mut write_ahead = self.write_ahead();
        write_ahead.uncover(|(covered, _)| *covered == partition);
        let forgotten = write_ahead.forget(partition, Offset::ZERO, 0, Offset::ZERO);
        forgotten.inspect_err(|error| {
            // A full disk passes; the log is gone from its place all the same.
            if error.is_disk_full() {
                write_ahead.give_up_unwritten();
            } else {
                self.fail(error);
            }
        })
    }

    fn move_aside(&self, path: &Path, into: &Path, name: &str) -> Result<PathBuf, LogError> {
        let disk = &self.inner.disk;
        let rename = || {
            if !disk.exists(into)? {
                disk.create_dir_all(into)?;
                disk.sync_dir(&self.inner.root)?;
            }
            let taken = disk.list(into)?;
            let number = |name: &String| name.split('-').next().and_then(|n| n.parse::<u64>().ok());
            let next = taken.iter().filter_map(number).max().map_or(1, |last| last + 1);
            let to = into.join(format!("{next}-{name}"));
            disk.rename(path, &to)?;
            if mutant::is_on(Mutant::DeletionNotSynced) {
                return Ok(to);
            }
            disk.sync_dir(into)?;
            disk.sync_dir(path.parent().expect("a log's directory has a parent"))?;
            Ok(to)
        };
        rename().map_err(LogError::io("move aside", path))
    }

    /// Whether a write or sync failed. Nothing is written any more then; reads still work.
    #[must_use]
    pub fn is_failed(&self) -> bool {
        self.inner.failure.get().is_some()
    }

    /// The first failure, after which nothing is written.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.inner.failure.get().map(String::as_str)
    }

    /// Where it is.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.inner.root
    }

    /// The disk it lies on.
    #[must_use]
    pub fn disk(&self) -> &D {
        &self.inner.disk
    }

    /// Whose directory lies at `path`, without opening it. `None`: nothing lies there.
    ///
    /// # Errors
    /// When there is something that is no readable data directory.
    pub fn identity_at(disk: &D, path: &Path) -> Result<Option<Identity>, OpenError> {
        match Identity::load(disk, &path.join(FORMAT))? {
            None if has_data(disk, path)? => Err(OpenError::NoFormat(path.to_owned())),
            identity => Ok(identity),
        }
    }

    /// From now on logs take no more room than their records need.
    pub fn set_thrifty(&self, is_thrifty: bool) {
        self.inner.is_thrifty.store(is_thrifty, Ordering::Relaxed);
    }

    pub(crate) fn is_thrifty(&self) -> bool {
        self.inner.is_thrifty.load(Ordering::Relaxed)
    }

    /// Writes files back, without any promise about logs: the round that follows finds less to do.
    ///
    /// # Errors
    /// When a sync fails; then the directory has failed.
    pub fn write_back(&self, files: &[(PathBuf, Arc<D::File>)]) -> Result<(), LogError> {
        self.check()?;
        for (path, file) in files {
            let synced = file.sync_data().map_err(LogError::io("sync", path));
            synced.inspect_err(|error| self.fail(error))?;
        }
        Ok(())
    }

    /// Room on the directory's file system.
    ///
    /// # Errors
    /// When the disk does not tell.
    pub fn space(&self) -> io::Result<Space> {
        self.inner.disk.space(&self.inner.root)
    }

    /// Makes `logs` durable, writes their checkpoints, empties the write-ahead file, and leaves the
    /// mark of a clean stop. Nothing may be appended afterwards. `logs` are all that are open. There
    /// is no mark when a log was not recovered since the last stop that was not clean.
    ///
    /// # Errors
    /// When the disk fails: there is no mark then, and the next start recovers.
    pub fn close<'l>(
        &self,
        logs: impl IntoIterator<Item = &'l mut Log<D>>,
    ) -> Result<(), LogError> {
        self.check()?;
        for log in logs {
            log.sync_and_checkpoint()?;
        }
        self.write_ahead().close().inspect_err(|error| self.fail(error))?;
        if !self.is_all_recovered()? {
            return Ok(());
        }
        let mark = self.inner.root.join(CLEAN);
        let directory_id = self.inner.identity.directory_id;
        identity::save_clean_mark(&self.inner.disk, &mark, &self.inner.boot_id, directory_id)
    }

    /// Refuses when the directory has failed.
    pub(crate) fn check(&self) -> Result<(), LogError> {
        match self.inner.failure.get() {
            None => Ok(()),
            Some(reason) => Err(LogError::DirectoryFailed {
                path: self.inner.root.clone(),
                reason: reason.clone(),
            }),
        }
    }

    /// From now on nothing is written: what the disk holds is no longer certain.
    pub fn fail(&self, error: &LogError) {
        if mutant::is_on(Mutant::SyncFailureForgotten) {
            return;
        }
        self.inner.failure.get_or_init(|| error.to_string());
    }

    pub(crate) fn write_ahead(&self) -> MutexGuard<'_, WriteAhead<D>> {
        lock_of(&self.inner.write_ahead)
    }
}

pub(crate) fn lock_of<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("a panic while this is locked is a bug that ends the process")
}

/// How the last process ended. After an end that was not clean everything in the directory is
/// durable when this returns, whatever that process has left unsynced: what is read from here on may
/// be relied on. It also empties the cache of a drive that lost its system and kept its power.
fn last_stop<D: Disk>(
    disk: &D,
    root: &Path,
    directory_id: Uuid,
    is_new: bool,
    boot_id: &str,
) -> Result<LastStop, LogError> {
    let was_clean = identity::take_clean_mark(disk, &root.join(CLEAN), directory_id)?;
    let is_other_boot = identity::enter_boot(disk, &root.join(BOOT), boot_id, directory_id)?;
    if is_new {
        return Ok(LastStop::Never);
    }
    if was_clean {
        return Ok(LastStop::Clean);
    }
    if !mutant::is_on(Mutant::PageCacheTrusted) {
        disk.sync_all(root).map_err(LogError::io("sync everything in", root))?;
    }
    Ok(if is_other_boot { LastStop::SystemEnded } else { LastStop::ProcessEnded })
}

/// Creates the directory. Until it has been named once, by its `format` file, every directory
/// above it may be as new as it is, so all their names are made certain.
fn create_root<D: Disk>(disk: &D, root: &Path) -> Result<(), LogError> {
    let create = || {
        disk.create_dir_all(root)?;
        if disk.exists(&root.join(FORMAT))? {
            return Ok(());
        }
        for above in root.ancestors().skip(1) {
            let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
            match disk.sync_dir(above) {
                // Not ours, so we have not created anything in it.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
                synced => synced?,
            }
        }
        Ok(())
    };
    create().map_err(LogError::io("create", root))
}

fn lock<D: Disk>(disk: &D, root: &Path) -> Result<Box<dyn Send + Sync>, OpenError> {
    let path = root.join(LOCK);
    disk.lock(&path).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => OpenError::Locked(root.to_owned()),
        _ => OpenError::Disk(LogError::io("lock", &path)(error)),
    })
}

fn has_data<D: Disk>(disk: &D, root: &Path) -> Result<bool, LogError> {
    for part in [TOPICS, METADATA, WRITE_AHEAD, FORMAT] {
        if disk.exists(&root.join(part)).map_err(LogError::io("look into", root))? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn create_parts<D: Disk>(disk: &D, root: &Path) -> Result<(), LogError> {
    let create = || {
        let mut has_created = false;
        for part in [TOPICS, WRITE_AHEAD] {
            if !disk.exists(&root.join(part))? {
                disk.create_dir_all(&root.join(part))?;
                has_created = true;
            }
        }
        if has_created { disk.sync_dir(root) } else { Ok(()) }
    };
    create().map_err(LogError::io("create parts of", root))
}

fn remove_deleted<D: Disk>(disk: &D, root: &Path) -> Result<(), LogError> {
    let deleted = root.join(DELETED);
    let remove = || {
        if !disk.exists(&deleted)? {
            return Ok(());
        }
        let names = disk.list(&deleted)?;
        if names.is_empty() {
            return Ok(());
        }
        // The process may have ended before the move was certain. Without this a crash now could
        // take the move back, but not the removal of files.
        disk.sync_dir(&deleted)?;
        for name in names {
            remove_tree(disk, &deleted.join(name))?;
        }
        Ok(())
    };
    remove().map_err(LogError::io("empty", &deleted))
}

/// Removes a directory of files.
fn remove_tree<D: Disk>(disk: &D, directory: &Path) -> io::Result<()> {
    for name in disk.list(directory)? {
        disk.remove_file(&directory.join(name))?;
    }
    disk.remove_dir(directory)
}

fn topic_directories<D: Disk>(disk: &D, topics: &Path) -> Result<Vec<(Uuid, PathBuf)>, LogError> {
    let names = disk.list(topics).map_err(LogError::io("list", topics))?;
    let found = names.iter().filter_map(|name| Some((topic_of(name)?, topics.join(name))));
    Ok(found.collect())
}

fn replay<D: Disk>(
    disk: &D,
    root: &Path,
    directory_id: Uuid,
    shows_cached: bool,
) -> Result<Replayed, LogError> {
    let topics: BTreeMap<Uuid, PathBuf> =
        topic_directories(disk, &root.join(TOPICS))?.into_iter().collect();
    let path_of = |partition: TopicPartition| {
        if partition == LogPlace::Metadata.partition() {
            return Some(root.join(METADATA));
        }
        Some(topics.get(&partition.topic)?.join(directory_name(partition.partition)))
    };
    let directory = root.join(WRITE_AHEAD);
    write_ahead::replay(disk, &directory, directory_id, shows_cached, path_of)
}
