//! What must happen although nobody asks: deadlines, rolls, retention, flushes, snapshots, and an eye
//! on how much room there is.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use towpath_log::disk::Disk;
use towpath_model::{Now, Time};

use crate::cell::{Cell, Slot};
use crate::driver::Driver;
use crate::open::place_of;
use crate::recover::encode_snapshot;
use crate::reserve::Reserve;
use crate::room::{Room, Watermarks};
use crate::volume::{Volume, VolumeIndex};
use crate::world::{Clock, Net};

/// A snapshot saves re-reading at the next start; one per this many appended bytes is plenty.
const SNAPSHOT_EVERY_BYTES: u64 = 64 * 1024 * 1024;

/// How often room is looked at while there is plenty, and while there is not.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const LOOK_CLOSELY_EVERY: Duration = Duration::from_millis(100);
/// Plenty is so many times the high watermark: what a second of writing takes does not reach it.
const PLENTY: u64 = 4;

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// When [`Driver::expire_due`] has something to do.
    pub fn next_deadline(&self) -> Option<Time> {
        self.deadlines.lock().expect("no panic holds the deadlines").earliest()
    }

    /// Lets time act on every state whose deadline has passed.
    pub fn expire_due(&self) {
        let now = self.clock.now().time;
        let due = self.deadlines.lock().expect("no panic holds the deadlines").due(now);
        for id in due {
            match self.cell(id) {
                Some(cell) => self.step(&cell, |slot, now, out| {
                    if slot.leads() {
                        slot.partition.expire(now, out);
                    }
                }),
                None => self.schedule(id, None),
            }
        }
    }

    /// [`Driver::upkeep_in`] every data directory, one after the other.
    pub fn upkeep(&self) {
        self.volumes().for_each(|volume| self.upkeep_in(volume));
    }

    /// Looks how much room a data directory has, flushes its relaxed partitions and removes deleted
    /// topics from it; every `log.retention.check.interval.ms` also forgets idle producers. That of the
    /// first directory warns of groups that are far behind, and says what expires in all of them. To be
    /// called about once a second.
    pub fn upkeep_in(&self, volume: VolumeIndex) {
        let volume = self.volume(volume);
        self.tell_failure(volume);
        self.do_deferred(volume);
        self.remove_doomed(volume);
        self.watch_room(volume);
        self.write_back(volume);
        self.want_flush(volume);
        self.save_due_snapshots(volume);
        if volume.index == VolumeIndex::FIRST {
            self.watch_lags();
            self.save_metadata_snapshot_if_due();
        }
        for cell in self.delivery_cells().iter().filter(|cell| cell.volume == volume.index) {
            self.keep_deliveries(cell);
            self.fold_along(cell);
        }
        let mut followed = self.cells();
        followed.retain(|cell| cell.volume == volume.index && !cell.led.load(Ordering::Relaxed));
        self.follow_log_starts(&followed);
        let config = self.image().broker_config();
        let now = self.clock.now();
        if volume.index == VolumeIndex::FIRST {
            self.retire_settled(now);
        }
        let mut kept_up_at = volume.kept_up_at.lock().expect("only upkeep locks this");
        if kept_up_at.is_some_and(|at| now.time < at + config.retention_check) {
            return;
        }
        *kept_up_at = Some(now.time);
        drop(kept_up_at);
        for cell in self.cells().iter().filter(|cell| cell.volume == volume.index) {
            self.keep_up(cell, now, config.producer_idle_max);
        }
        // Topics may have partitions in several directories: one thread decides for all of them.
        if volume.index == VolumeIndex::FIRST {
            self.retire_all(now);
        }
    }

    /// How long after a look at a data directory's room the next one is due: filling up must not
    /// outrun it.
    pub fn look_again_after(&self, volume: VolumeIndex) -> Duration {
        let volume = self.volume(volume);
        let is_plenty = volume.kept_bytes().saturating_mul(PLENTY) <= volume.space().free_bytes;
        if is_plenty { LOOK_EVERY } else { LOOK_CLOSELY_EVERY }
    }

    /// Looks how much room a data directory has.
    pub fn look_at_room(&self, volume: VolumeIndex) {
        self.watch_room(self.volume(volume));
    }

    fn watch_room(&self, volume: &Volume<D>) {
        let space = match volume.directory.space() {
            Ok(space) => space,
            Err(error) => {
                tracing::warn!(directory = %volume.path.display(), %error,
                    "the free space of a data directory cannot be told");
                return;
            }
        };
        let config = self.image().broker_config();
        let marks = Watermarks::of(&config);
        let room = marks.judge(space, volume.room());
        let high_bytes = marks.high_bytes(space.total_bytes);
        volume.set_space(space, high_bytes);
        let before = volume.set_room(room);
        volume.directory.set_thrifty(room == Room::Full);
        if volume.index == VolumeIndex::FIRST && !volume.directory.is_failed() {
            let wanted = Reserve::wanted(config.disk_reserve_bytes, space.total_bytes);
            if space.free_bytes < wanted / 2 {
                self.release_reserve(volume);
            } else if high_bytes.saturating_add(wanted) <= space.free_bytes {
                self.hold_reserve(volume, wanted);
            }
        }
        if before == room {
            return;
        }
        let (directory, free_bytes) = (volume.path.display(), space.free_bytes);
        let broker = self.settings.broker_id;
        match room {
            Room::Full => tracing::error!(%broker, %directory, free_bytes, high_bytes,
                "a data directory is full: producing to its partitions is refused until more is free; \
                 delete topics or files, shorten retention, or enlarge the disk"),
            Room::Low => tracing::warn!(%broker, %directory, free_bytes, high_bytes,
                "a data directory is running full; below high_bytes producing to it is refused"),
            Room::Ample => tracing::info!(%broker, %directory, free_bytes,
                "a data directory has room again"),
        }
    }

    /// Writes back what relaxed partitions have appended, here and not in a round: it may be a lot, and
    /// those who wait for a round would wait for it.
    fn write_back(&self, volume: &Volume<D>) {
        let cells: Vec<_> = volume.unflushed.lock().expect("no panic holds the list").clone();
        for cell in cells {
            let files = {
                let slot = cell.lock();
                if slot.closed || slot.failed { Vec::new() } else { slot.log.unsynced_files() }
            };
            if let Err(error) = volume.directory.write_back(&files) {
                tracing::error!(topic = %cell.topic, partition = %cell.id.partition, %error,
                    "records cannot be written to the disk");
                break;
            }
        }
        self.tell_failure(volume);
    }

    fn hold_reserve(&self, volume: &Volume<D>, bytes: u64) {
        let mut reserve = volume.reserve.lock().expect("nothing panics over the reserve");
        if let Err(error) = reserve.hold(volume.directory.disk(), volume.directory.root(), bytes) {
            tracing::warn!(directory = %volume.path.display(), bytes, %error,
                "no space can be reserved for offsets and metadata");
        }
    }

    /// Gives the reserve back; says whether that made room.
    pub(crate) fn release_reserve(&self, volume: &Volume<D>) -> bool {
        let mut reserve = volume.reserve.lock().expect("nothing panics over the reserve");
        match reserve.release(volume.directory.disk(), volume.directory.root()) {
            Ok(0) => false,
            Ok(bytes) => {
                tracing::warn!(directory = %volume.path.display(), bytes,
                    "the disk is full: the space that was reserved for offsets and metadata is in use");
                true
            }
            Err(error) => {
                tracing::error!(directory = %volume.path.display(), %error,
                    "the reserved space cannot be given back");
                false
            }
        }
    }

    fn remove_doomed(&self, volume: &Volume<D>) {
        let doomed = std::mem::take(&mut *volume.doomed.lock().expect("no panic holds the list"));
        for cell in doomed {
            let (id, topic) = (cell.id, cell.topic.clone());
            // A log must be gone before its files: a round that still had it would vouch for them.
            if let Err(still_used) = Arc::try_unwrap(cell).map(drop) {
                volume.doomed.lock().expect("no panic holds the list").push(still_used);
                continue;
            }
            if !id.is_delivery_log() {
                volume.partitions.fetch_sub(1, Ordering::Relaxed);
                if !towpath_model::is_internal_topic(topic.as_str()) {
                    volume.placed.fetch_sub(1, Ordering::Relaxed);
                }
            }
            if let Err(error) = volume.directory.delete_log(place_of(id, &topic)) {
                tracing::warn!(%topic, partition = %id.partition, %error,
                    "a deleted topic's files could not be removed; the next start tries again");
            } else {
                self.begin_anew_if_held(id);
            }
        }
    }

    fn keep_up(&self, cell: &Arc<Cell<D>>, now: Now, idle: Duration) {
        self.step(cell, |slot, _, _| {
            if slot.closed || slot.failed {
                return;
            }
            slot.partition.expire_producers(now, idle);
        });
    }

    /// Saves the snapshots of partitions that have got much since the last one, so that a start has
    /// little to read.
    fn save_due_snapshots(&self, volume: &Volume<D>) {
        let due = std::mem::take(&mut *volume.unsnapped.lock().expect("no panic holds the list"));
        for cell in due {
            let mut slot = cell.lock();
            slot.awaits_snapshot = false;
            let is_over = slot.closed || slot.failed;
            drop(slot);
            if !is_over {
                self.save_snapshot(&cell);
            }
        }
    }

    /// Notes a partition whose snapshot is due.
    pub(crate) fn want_snapshot(&self, cell: &Arc<Cell<D>>, slot: &mut Slot<D>) {
        let is_due = SNAPSHOT_EVERY_BYTES <= slot.log.bytes_since_snapshot();
        if is_due && !std::mem::replace(&mut slot.awaits_snapshot, true) {
            let unsnapped = &self.volume(cell.volume).unsnapped;
            unsnapped.lock().expect("no panic holds the list").push(Arc::clone(cell));
        }
    }

    /// Saves what a partition knows of its producers, as of now.
    pub(crate) fn save_snapshot(&self, cell: &Arc<Cell<D>>) {
        let (at, payload, snapshots) = {
            let mut slot = cell.lock();
            let Some(snapshots) = slot.log.snapshots_to_save() else { return };
            let partition = &slot.partition;
            (partition.log_end_offset(), encode_snapshot(partition), snapshots)
        };
        if let Err(error) = snapshots.save(at, &payload) {
            tracing::warn!(topic = %cell.topic, partition = %cell.id.partition, %error,
                "a snapshot of producers could not be written; the log has it all");
        }
    }
}
