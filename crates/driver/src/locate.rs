//! Where partitions lie: which data directories there are, what was found in which, and where new
//! partitions go.
//!
//! The disk says where a partition is; nothing else does. So a directory that is not there leaves a
//! doubt about every partition that is found nowhere: it may never have been written, or it may lie
//! there. As long as a directory is missing that the broker once had, such a partition stays
//! offline: to begin it anew would give out its offsets twice.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use towpath_log::disk::Disk;
use towpath_log::{DataDirectory, Identity, LastStop, LogError, WriteAheadLimits};
use towpath_metadata::Image;
use towpath_model::mutant::{self, Mutant};
use towpath_model::{TopicId, TopicPartition, Uuid};

use crate::driver::Driver;
use crate::open::{OpenError, Place};
use crate::volume::{MissingVolume, Volume, VolumeIndex};
use crate::world::{Clock, Net};

/// Where a partition's records are, when the broker starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Located {
    /// In this directory.
    In(VolumeIndex),
    /// In none, and none is missing: nothing was ever written.
    Nowhere,
    /// Nobody can say, for this reason.
    Unknown(String),
}

/// The directories beside the first one.
pub(crate) struct Others<D: Disk> {
    pub(crate) volumes: Vec<Volume<D>>,
    pub(crate) missing: Vec<MissingVolume>,
    /// All of them were closed cleanly, or are new.
    pub(crate) were_clean: bool,
}

/// Opens the data directories beside the first one. `known` are the ids that this broker had.
pub(crate) fn open_others<D: Disk>(
    first: &DataDirectory<D>,
    places: Vec<Place<D>>,
    known: &[Uuid],
    limits: WriteAheadLimits,
    mut new_id: impl FnMut() -> Uuid,
    boot_id: &str,
) -> Result<Others<D>, OpenError> {
    let identity = first.identity().clone();
    let mut others = Others { volumes: Vec::new(), missing: Vec::new(), were_clean: true };
    let peeked: Vec<_> = places
        .into_iter()
        .map(|place| {
            let found = DataDirectory::identity_at(&place.disk, &place.path);
            (place, found)
        })
        .collect();
    let mut absent: BTreeSet<Uuid> = known.iter().copied().collect();
    absent.remove(&identity.directory_id);
    for found in peeked.iter().filter_map(|(_, found)| found.as_ref().ok()?.as_ref()) {
        absent.remove(&found.directory_id);
    }
    for (place, found) in peeked {
        let Place { disk, path } = place;
        let found = match found {
            Ok(found) => found,
            Err(error) if is_lasting(&error) => return Err(error.into()),
            Err(error) => {
                others.missing.push(missing(path, None, error.to_string()));
                continue;
            }
        };
        if found.is_none() && !absent.is_empty() {
            let reason = format!(
                "{} is empty, but this broker had a data directory that it does not find: is its \
                 disk mounted there?",
                path.display()
            );
            others.missing.push(missing(path, None, reason));
            continue;
        }
        let id = found.as_ref().map(|found| found.directory_id);
        let is_ours =
            |i: &Identity| i.cluster_id == identity.cluster_id && i.node_id == identity.node_id;
        if let Some(found) = found.filter(|found| !is_ours(found)) {
            return Err(OpenError::Foreign {
                path,
                cluster_id: found.cluster_id,
                node: found.node_id,
                me: identity,
            });
        }
        let index = VolumeIndex(1 + others.volumes.len());
        let new = || Identity { directory_id: new_id(), ..identity.clone() };
        match DataDirectory::open_with(disk, &path, new, boot_id, limits) {
            Ok((directory, report)) => {
                others.were_clean &= report.last_stop == LastStop::Never || report.was_clean();
                others.volumes.push(Volume::new(index, path, directory));
            }
            Err(error) if is_lasting(&error) => return Err(error.into()),
            Err(error) => {
                others.were_clean = false;
                others.missing.push(missing(path, id, error.to_string()));
            }
        }
    }
    // One that is configured and cannot be read may be any of those that are absent.
    if others.missing.iter().all(|missing| missing.id.is_some()) {
        others.missing.extend(absent.into_iter().map(|id| MissingVolume {
            path: None,
            id: Some(id),
            reason: format!(
                "the data directory with id {id} is not among those that are configured; name it \
                 again with --data, or give up what it holds with --forget-directory {id}"
            ),
        }));
    }
    Ok(others)
}

fn missing(path: PathBuf, id: Option<Uuid>, reason: String) -> MissingVolume {
    MissingVolume { path: Some(path), id, reason }
}

/// Whether an operator has to decide before anything can start: waiting for the disk does not help.
fn is_lasting(error: &towpath_log::OpenError) -> bool {
    use towpath_log::OpenError as Error;
    matches!(error, Error::Locked(_) | Error::Version { .. })
}

/// What lay where when the broker started.
#[derive(Debug)]
pub(crate) struct Found {
    places: BTreeMap<TopicPartition, Vec<VolumeIndex>>,
    /// Topics that there were, and how many partitions they had: whatever comes later is new, and
    /// cannot lie in a directory that was missing.
    topics: BTreeMap<TopicId, usize>,
}

impl Found {
    /// Looks through all directories.
    pub(crate) fn look<D: Disk>(volumes: &[Volume<D>], image: &Image) -> Result<Found, LogError> {
        let mut places: BTreeMap<TopicPartition, Vec<VolumeIndex>> = BTreeMap::new();
        for volume in volumes {
            for found in volume.directory.logs_on_disk()? {
                let id = TopicPartition { topic: found.topic, partition: found.partition };
                places.entry(id).or_default().push(volume.index);
            }
        }
        let topics = image.topics().map(|topic| (topic.id, topic.partitions.len())).collect();
        Ok(Found { places, topics })
    }

    /// Directories in which a partition or its delivery log was found.
    fn places_of(&self, id: TopicPartition) -> Vec<VolumeIndex> {
        let logs = [id, id.delivery_log()];
        let found: BTreeSet<_> =
            logs.iter().filter_map(|log| self.places.get(log)).flatten().copied().collect();
        found.into_iter().collect()
    }

    fn is_old(&self, id: TopicPartition) -> bool {
        let count = self.topics.get(&id.topic).copied().unwrap_or_default();
        usize::try_from(id.partition.0).is_ok_and(|index| index < count)
    }
}

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// Where a partition lies that is about to be led. Its delivery log lies in the same directory: where
    /// the two are found in different ones, somebody has moved them.
    pub(crate) fn located(&self, id: TopicPartition, is_internal: bool) -> Located {
        let is_ignored = mutant::is_on(Mutant::MissingBegunAnew);
        let is_somewhere_else = || !self.missing.is_empty() && self.found.is_old(id) && !is_ignored;
        match self.found.places_of(id).as_slice() {
            [index] => Located::In(*index),
            // The first directory is there, and internal topics are nowhere else.
            [] if is_internal || !is_somewhere_else() => Located::Nowhere,
            [] => {
                let reasons: Vec<&str> = self.missing.iter().map(|m| m.reason.as_str()).collect();
                Located::Unknown(format!(
                    "it lies in none of the data directories that are there, and it may lie in one that \
                     is not: {}",
                    reasons.join("; ")
                ))
            }
            several => {
                let paths: Vec<String> =
                    several.iter().map(|at| self.volume(*at).path.display().to_string()).collect();
                Located::Unknown(format!(
                    "it lies in more than one data directory ({}); only one of them can be right, move \
                     the other away",
                    paths.join(", ")
                ))
            }
        }
    }

    /// Where a partition goes that has no records yet: internal topics where the metadata is; others to
    /// a directory that works and has room, with the fewest partitions, then with the most room.
    pub(crate) fn place_for_new(&self, is_internal: bool) -> VolumeIndex {
        if is_internal {
            return VolumeIndex::FIRST;
        }
        let now = self.clock.now().time;
        let cost = |volume: &&Volume<D>| {
            (
                volume.directory.is_failed(),
                volume.stalled_for(now).is_some(),
                volume.room(),
                volume.placed.load(Ordering::Relaxed),
                Reverse(volume.space().free_bytes),
            )
        };
        self.volumes.iter().min_by_key(cost).map_or(VolumeIndex::FIRST, |volume| volume.index)
    }
}
