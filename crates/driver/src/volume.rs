//! A data directory as the driver works with it: what waits for its disk, how much room it has, and
//! whether it answers.
//!
//! Each directory has lists, a thread for its sync rounds and one for its upkeep. So a directory that is
//! slow, full or broken holds up nobody whose records lie elsewhere. What it says about itself is kept
//! in atomics: whoever asks how a disk does must not wait for that disk.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use towpath_log::DataDirectory;
use towpath_log::disk::{Disk, Space};
use towpath_model::{Time, Uuid};

use crate::cell::Cell;
use crate::reserve::Reserve;
use crate::room::Room;
use crate::scrub::{Doubts, Scrubber};
use crate::stall::Deferred;

/// A disk that has not answered for so long is stalled: it is said aloud, and nothing new is begun
/// there. Files with much to write take seconds on a disk that is merely busy.
pub(crate) const STALLED_AFTER: Duration = Duration::from_secs(5);
/// A disk that has not answered for so long means that writes may block as well.
const SLOW_AFTER: Duration = Duration::from_millis(100);

/// A data directory, counted in the order in which they were configured. The first one holds the
/// metadata and the internal topics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct VolumeIndex(pub usize);

impl VolumeIndex {
    /// Where the metadata and the internal topics live.
    pub const FIRST: VolumeIndex = VolumeIndex(0);
}

/// How a data directory does, for whoever reports it. Asking waits for no disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeStatus {
    /// Which one.
    pub index: VolumeIndex,
    /// Where it is.
    pub path: PathBuf,
    /// What its file system had left when that was last looked at, about a second ago.
    pub space: Space,
    /// How that compares with the watermarks.
    pub room: Room,
    /// Why nothing is written to it any more, if so.
    pub failure: Option<String>,
    /// How long nothing has come back from its disk that waits there, if that is longer than a healthy
    /// disk takes.
    pub stalled_for: Option<Duration>,
    /// Partitions that are led in it.
    pub partitions: usize,
}

/// A data directory that was configured, or had been part of the broker, and could not be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingVolume {
    /// Where it should be, if it is still configured.
    pub path: Option<PathBuf>,
    /// Its id, if the broker had it before.
    pub id: Option<Uuid>,
    /// Why it is not there.
    pub reason: String,
}

pub(crate) struct Volume<D: Disk> {
    pub(crate) index: VolumeIndex,
    pub(crate) path: PathBuf,
    pub(crate) directory: DataDirectory<D>,
    /// Partitions whose newest records wait for a sync round.
    pub(crate) unsynced: Mutex<Vec<Arc<Cell<D>>>>,
    /// Partitions whose start is to follow where others have deleted records, in a round.
    pub(crate) starts_due: Mutex<Vec<Arc<Cell<D>>>>,
    /// Relaxed partitions with unsynced records; the upkeep flushes them.
    pub(crate) unflushed: Mutex<Vec<Arc<Cell<D>>>>,
    /// Partitions whose snapshot the upkeep saves.
    pub(crate) unsnapped: Mutex<Vec<Arc<Cell<D>>>>,
    /// Logs of deleted topics, to be removed from disk by the upkeep.
    pub(crate) doomed: Mutex<Vec<Arc<Cell<D>>>>,
    /// What other threads could not do without waiting for this disk.
    pub(crate) deferred: Mutex<Vec<Deferred<D>>>,
    /// When every partition was last looked after.
    pub(crate) kept_up_at: Mutex<Option<Time>>,
    pub(crate) reserve: Mutex<Reserve>,
    /// Held by the one thread that scrubs.
    pub(crate) scrubber: Mutex<Scrubber<D>>,
    pub(crate) doubts: Mutex<Doubts>,
    /// Partitions that are led here.
    pub(crate) partitions: AtomicUsize,
    /// Those of them that could as well lie in another directory.
    pub(crate) placed: AtomicUsize,
    /// The failure has been told to everybody whom it concerns.
    failure_is_told: AtomicBool,
    room: AtomicU8,
    free_bytes: AtomicU64,
    total_bytes: AtomicU64,
    /// Free bytes below which producing is refused.
    kept_bytes: AtomicU64,
    /// When the round that is under way began, in nanoseconds and one; 0: none is.
    round_began: AtomicU64,
    /// When it was last seen to move, in the same way.
    round_moved: AtomicU64,
    /// What [`DataDirectory::disk_calls`] was at the last look.
    calls_before: AtomicU64,
    writes: Writes,
}

/// Writes to memory, which wait for the disk only when it is far behind. Counted, not timed: they are
/// many, and a look once a second shows those that do not come back.
#[derive(Debug, Default)]
struct Writes {
    begun: AtomicU64,
    ended: AtomicU64,
    /// What `ended` was at the last look.
    ended_before: AtomicU64,
    /// Since when some are under way and none has come back, as `round_moved`.
    stuck_since: AtomicU64,
}

impl<D: Disk> Volume<D> {
    pub(crate) fn new(index: VolumeIndex, path: PathBuf, directory: DataDirectory<D>) -> Self {
        Volume {
            index,
            path,
            directory,
            unsynced: Mutex::default(),
            starts_due: Mutex::default(),
            unflushed: Mutex::default(),
            unsnapped: Mutex::default(),
            doomed: Mutex::default(),
            deferred: Mutex::default(),
            kept_up_at: Mutex::new(None),
            reserve: Mutex::default(),
            scrubber: Mutex::default(),
            doubts: Mutex::default(),
            partitions: AtomicUsize::new(0),
            placed: AtomicUsize::new(0),
            failure_is_told: AtomicBool::new(false),
            room: AtomicU8::new(Room::Ample as u8),
            free_bytes: AtomicU64::new(0),
            total_bytes: AtomicU64::new(0),
            kept_bytes: AtomicU64::new(0),
            round_began: AtomicU64::new(0),
            round_moved: AtomicU64::new(0),
            calls_before: AtomicU64::new(0),
            writes: Writes::default(),
        }
    }

    /// How much room there was when it was last looked at.
    pub(crate) fn room(&self) -> Room {
        Room::from_u8(self.room.load(Ordering::Relaxed))
    }

    /// Returns what it was before.
    pub(crate) fn set_room(&self, room: Room) -> Room {
        Room::from_u8(self.room.swap(room as u8, Ordering::Relaxed))
    }

    pub(crate) fn space(&self) -> Space {
        Space {
            free_bytes: self.free_bytes.load(Ordering::Relaxed),
            total_bytes: self.total_bytes.load(Ordering::Relaxed),
        }
    }

    /// Free bytes below which producing was refused when the space was last looked at.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.kept_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn set_space(&self, space: Space, kept_bytes: u64) {
        self.kept_bytes.store(kept_bytes, Ordering::Relaxed);
        self.free_bytes.store(space.free_bytes, Ordering::Relaxed);
        self.total_bytes.store(space.total_bytes, Ordering::Relaxed);
    }

    pub(crate) fn round_begins(&self, now: Time) {
        let now = now.0.saturating_add(1);
        self.round_began.store(now, Ordering::Relaxed);
        self.round_moved.store(now, Ordering::Relaxed);
    }

    pub(crate) fn round_ends(&self) {
        self.round_began.store(0, Ordering::Relaxed);
        self.round_moved.store(0, Ordering::Relaxed);
    }

    /// Does a write, under the lock of whatever it belongs to.
    pub(crate) fn write<R>(&self, write: impl FnOnce() -> R) -> R {
        self.writes.begun.fetch_add(1, Ordering::Relaxed);
        let result = write();
        self.writes.ended.fetch_add(1, Ordering::Relaxed);
        result
    }

    /// Looks whether the round under way moves, and whether writes come back. To be called about once
    /// a second.
    pub(crate) fn watch(&self, now: Time) {
        let calls = self.directory.disk_calls();
        let moved = self.round_moved.load(Ordering::Relaxed);
        if self.calls_before.swap(calls, Ordering::Relaxed) != calls && moved != 0 {
            let now = now.0.saturating_add(1);
            // Not where that round has ended meanwhile.
            let _ =
                self.round_moved.compare_exchange(moved, now, Ordering::Relaxed, Ordering::Relaxed);
        }
        let Writes { begun, ended, ended_before, stuck_since } = &self.writes;
        // In this order: what has ended had begun.
        let ended = ended.load(Ordering::Relaxed);
        let is_under_way = ended < begun.load(Ordering::Relaxed);
        let is_moving = ended_before.swap(ended, Ordering::Relaxed) != ended;
        if !is_under_way || is_moving {
            stuck_since.store(0, Ordering::Relaxed);
        } else if stuck_since.load(Ordering::Relaxed) == 0 {
            stuck_since.store(now.0.saturating_add(1), Ordering::Relaxed);
        }
    }

    /// How long ago the longest wait for the disk has begun, of the round and the writes.
    fn waited_for(&self, now: Time, round: &AtomicU64) -> Option<Duration> {
        let since = |began: &AtomicU64| began.load(Ordering::Relaxed).checked_sub(1);
        let oldest = since(round).into_iter().chain(since(&self.writes.stuck_since)).min()?;
        Some(Duration::from_nanos(now.0.saturating_sub(oldest)))
    }

    /// Whether somebody waits for the disk.
    pub(crate) fn is_waited_for(&self) -> bool {
        let is_set = |began: &AtomicU64| began.load(Ordering::Relaxed) != 0;
        is_set(&self.round_began) || is_set(&self.writes.stuck_since)
    }

    /// Whether whoever writes to it should expect to wait.
    pub(crate) fn is_slow(&self, now: Time) -> bool {
        self.waited_for(now, &self.round_began).is_some_and(|waited| SLOW_AFTER <= waited)
    }

    /// How long nothing has come back from it, when that is too long.
    pub(crate) fn stalled_for(&self, now: Time) -> Option<Duration> {
        self.waited_for(now, &self.round_moved).filter(|waited| STALLED_AFTER <= *waited)
    }

    /// Whether the directory has failed and nobody has been told yet; whoever asks tells.
    pub(crate) fn take_news_of_failure(&self) -> bool {
        self.directory.is_failed() && !self.failure_is_told.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn status(&self, now: Time) -> VolumeStatus {
        VolumeStatus {
            index: self.index,
            path: self.path.clone(),
            space: self.space(),
            room: self.room(),
            failure: self.directory.failure().map(str::to_owned),
            stalled_for: self.stalled_for(now),
            partitions: self.partitions.load(Ordering::Relaxed),
        }
    }
}
