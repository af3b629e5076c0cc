//! Checks the files of a node that does not run, and changes none of them.
//!
//! What a start would do (replay the write-ahead file, recover every log) is done over an
//! [`overlay`] that keeps every change in memory, and then every byte of every segment is read. So it
//! tells what the next start will find, and what that start would not look at.

mod overlay;

use std::path::{Path, PathBuf};

use towpath_model::{Offset, TopicName, TopicPartition};

use crate::checkpoint::Checkpoints;
use crate::damage::{DamageList, DamagedRange, Loaded};
use crate::directory::DataDirectory;
use crate::disk::Disk;
use crate::envelope;
use crate::error::{LogError, OpenError};
use crate::examine::{Examine, Expected};
use crate::identity::{Identity, LastStop};
use crate::index;
use crate::log::{Log, LogConfig};
use crate::place::{FileKind, LogPlace, METADATA, directory_name, partition_of, topic_of};
use crate::recover::Cut;
use overlay::Overlay;

/// What was found in a data directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// Whose it is.
    pub identity: Identity,
    /// How the last process ended.
    pub last_stop: LastStop,
    /// Write-ahead frames that the next start replays.
    pub frames: u64,
    /// Places in write-ahead files that were synced and are unreadable.
    pub damaged_frames: u64,
    /// Every log, the metadata first.
    pub logs: Vec<VerifiedLog>,
    /// Partition directories that no metadata named, and that were set aside.
    pub quarantined: Vec<String>,
    /// Deletions that the next start finishes.
    pub being_deleted: Vec<String>,
}

/// What was found in one log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedLog {
    /// Which one.
    pub partition: TopicPartition,
    /// Its topic's name, as its directory says it; `None` for the metadata.
    pub topic: Option<String>,
    /// Its directory.
    pub path: PathBuf,
    /// First offset kept.
    pub log_start_offset: Offset,
    /// First offset not yet written.
    pub log_end_offset: Offset,
    /// Its segments.
    pub segments: u64,
    /// Readable batches.
    pub batches: u64,
    /// Their bytes, and those between them.
    pub bytes: u64,
    /// Acknowledged records that cannot be read.
    pub damage: Vec<DamagedRange>,
    /// Files that can be made anew, or have another copy, and are not what was written.
    pub wrong_files: Vec<WrongFile>,
    /// What the next start cuts off its end: nobody had been promised it.
    pub cut: Option<Cut>,
    /// Why it could not be checked.
    pub error: Option<String>,
}

/// A file that is not what was written, without which nothing is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrongFile {
    /// Its name in the log's directory.
    pub name: String,
    /// What makes up for it.
    pub remedy: &'static str,
}

impl Verified {
    /// Whether every file is what was written.
    #[must_use]
    pub fn is_fine(&self) -> bool {
        self.damaged_frames == 0 && self.logs.iter().all(VerifiedLog::is_fine)
    }
}

impl VerifiedLog {
    /// Whether every file is what was written.
    #[must_use]
    pub fn is_fine(&self) -> bool {
        let is_cut_suspect = self.cut.as_ref().is_some_and(|cut| cut.is_suspect);
        self.damage.is_empty()
            && self.wrong_files.is_empty()
            && self.error.is_none()
            && !is_cut_suspect
    }
}

/// Checks the data directory at `root`, and tells `progress` of each log before it is read.
///
/// # Errors
/// When a broker has it open, when it is none, or when it cannot be read at all.
pub fn verify<D: Disk>(
    disk: &D,
    root: &Path,
    mut progress: impl FnMut(&Path),
) -> Result<Verified, OpenError> {
    let format = root.join("format");
    if !disk.exists(&format).map_err(LogError::io("look for", &format))? {
        return Err(OpenError::NoFormat(root.to_owned()));
    }
    let overlay = Overlay::new(disk.clone());
    let list = |name: &str| -> Result<Vec<String>, LogError> {
        let path = root.join(name);
        let exists = disk.exists(&path).map_err(LogError::io("look for", &path))?;
        if exists { disk.list(&path).map_err(LogError::io("list", &path)) } else { Ok(Vec::new()) }
    };
    let (quarantined, being_deleted) = (list("quarantine")?, list("deleted")?);
    let never = || unreachable!("a directory with a `format` file is not new");
    // The page cache is not believed: the disk is what is verified.
    let (directory, report) = DataDirectory::open(overlay.clone(), root, never, "")?;
    let mut logs = Vec::new();
    for (place, topic, path) in places(&overlay, root)? {
        progress(&path);
        logs.push(verify_log(&overlay, &directory, &place, topic, path, report.last_stop));
    }
    Ok(Verified {
        identity: directory.identity().clone(),
        last_stop: report.last_stop,
        frames: report.replayed_frames,
        damaged_frames: report.damaged_places,
        logs,
        quarantined,
        being_deleted,
    })
}

type Place = (LogPlace, Option<String>, PathBuf);

fn places<D: Disk>(disk: &D, root: &Path) -> Result<Vec<Place>, LogError> {
    let mut found = Vec::new();
    let metadata = root.join(METADATA);
    if disk.exists(&metadata).map_err(LogError::io("look for", &metadata))? {
        found.push((LogPlace::Metadata, None, metadata));
    }
    let topics = root.join(crate::place::TOPICS);
    for directory in disk.list(&topics).map_err(LogError::io("list", &topics))? {
        let Some(topic) = topic_of(&directory) else { continue };
        let path = topics.join(&directory);
        let name = directory[..directory.len() - topic.to_string().len() - 1].to_owned();
        let mut partitions: Vec<_> = disk
            .list(&path)
            .map_err(LogError::io("list", &path))?
            .iter()
            .filter_map(|name| partition_of(name))
            .collect();
        partitions.sort_unstable();
        for partition in partitions {
            // What names the directory is enough of the name.
            let Ok(known) = TopicName::new(&name) else { continue };
            let place = LogPlace::Partition { topic, name: known, partition };
            found.push((place, Some(name.clone()), path.join(directory_name(partition))));
        }
    }
    Ok(found)
}

fn verify_log<D: Disk>(
    disk: &Overlay<D>,
    directory: &DataDirectory<Overlay<D>>,
    place: &LogPlace,
    topic: Option<String>,
    path: PathBuf,
    last_stop: LastStop,
) -> VerifiedLog {
    let mut verified = VerifiedLog {
        partition: place.partition(),
        topic,
        path,
        log_start_offset: Offset::ZERO,
        log_end_offset: Offset::ZERO,
        segments: 0,
        batches: 0,
        bytes: 0,
        damage: Vec::new(),
        wrong_files: Vec::new(),
        cut: None,
        error: None,
    };
    // Before the recovery, which replaces what it finds wrong, if only in memory.
    let looked = look_at_small_files(disk, &mut verified, last_stop);
    let checked = looked.and_then(|()| {
        let (mut log, recovery) = directory.open_log(place.clone(), LogConfig::default())?;
        verified.cut = recovery.cut;
        read_segments(disk, &mut log, &mut verified)?;
        verified.log_start_offset = log.log_start_offset();
        verified.log_end_offset = log.log_end_offset();
        verified.damage = log.damaged();
        Ok(())
    });
    verified.wrong_files.sort_by(|a, b| a.name.cmp(&b.name));
    verified.wrong_files.dedup();
    verified.error = checked.err().map(|error| error.to_string());
    verified
}

/// Checkpoints, snapshots of producers, the list of damage.
fn look_at_small_files<D: Disk>(
    disk: &Overlay<D>,
    verified: &mut VerifiedLog,
    last_stop: LastStop,
) -> Result<(), LogError> {
    let path = verified.path.clone();
    let mut wrong = |name: String, remedy| verified.wrong_files.push(WrongFile { name, remedy });
    // A process that ended while it wrote one leaves it torn, which is no damage.
    if last_stop == LastStop::Clean {
        for name in Checkpoints::unreadable(disk, &path)? {
            wrong(name.to_owned(), "the other generation counts, or a look at every batch");
        }
    }
    let names = disk.list(&path).map_err(LogError::io("list", &path))?;
    for at in names.iter().filter_map(|name| FileKind::Producers.offset_in(name)) {
        let file = FileKind::Producers.path(&path, at);
        envelope::drop_cached(disk, &file)?;
        if !crate::producers::is_readable(disk, &path, at)? {
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            wrong(name, "an older one counts, or the batches' headers");
        }
    }
    let mut bases: Vec<Offset> =
        names.iter().filter_map(|name| FileKind::Segment.offset_in(name)).collect();
    bases.sort_unstable();
    // Their indexes may not have been written whole either.
    let uncertain = if last_stop == LastStop::Clean { 0 } else { 2 };
    for base in &bases[..bases.len().saturating_sub(uncertain)] {
        index::drop_cached(disk, &path, *base)?;
        if !index::are_readable(disk, &path, *base)? {
            wrong(index_name(*base), REBUILT);
        }
    }
    if matches!(DamageList::load(disk, &path, true)?, Loaded::Unreadable) {
        wrong("damage".to_owned(), "the next start looks at every batch");
    }
    Ok(())
}

const REBUILT: &str = "it is rebuilt from the segment";

fn index_name(base: Offset) -> String {
    FileKind::Index.path(Path::new(""), base).to_string_lossy().into_owned()
}

fn read_segments<D: Disk>(
    disk: &Overlay<D>,
    log: &mut Log<Overlay<D>>,
    verified: &mut VerifiedLog,
) -> Result<(), LogError> {
    let gaps_below = log.checkpoints().latest.gaps_below;
    let interval = LogConfig::default().index_interval_bytes;
    for summary in log.segments.clone() {
        let base = summary.base_offset;
        let path = FileKind::Segment.path(&verified.path, base);
        let file = disk.open(&path).map_err(LogError::io("open", &path))?;
        crate::disk::DiskFile::drop_cached(&file, 0, u64::MAX)
            .map_err(LogError::io("read", &path))?;
        let has_index = summary.is_sealed && !log.has_unsaved_index(base);
        let stored =
            if has_index { index::load(disk, &verified.path, &summary, interval)? } else { None };
        let expected = Expected { summary, gaps_below, index_interval_bytes: interval };
        let mut examine = Examine::new(expected, stored);
        while !examine.step(&file, 16 << 20).map_err(LogError::io("read", &path))? {}
        let examined = examine.finish();
        verified.segments += 1;
        verified.batches += examined.batches;
        verified.bytes += summary.bytes;
        let is_new = log.note_damage(&examined.damage)?;
        if has_index && examined.is_index_wrong && !is_new && examined.damage.is_empty() {
            verified.wrong_files.push(WrongFile { name: index_name(base), remedy: REBUILT });
        }
    }
    Ok(())
}
