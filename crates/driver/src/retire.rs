//! Retention: what has expired goes, unless the topic's guard holds it for a group.
//!
//! ```text
//! per partition: roll, find expired segments ─▶ per topic: the guard decides ─▶ move log starts
//! ```
//!
//! The guard hears of committed offsets only as far as they are committed themselves: an offset that
//! a crash can take back must not cost the records behind it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use towpath_broker::guard::{self, Cause, ExpiredSegment, Expiring, Rules, Unheld, Verdict};
use towpath_broker::{Loss, Losses, OFFSETS_TOPIC};
use towpath_log::ExpiredBy;
use towpath_log::disk::Disk;
use towpath_model::properties::{RetentionGuard, TopicConfig};
use towpath_model::{Now, Offset, PartitionIndex, Timestamp, TopicId, TopicName, TopicPartition};

use crate::cell::{Cell, Slot};
use crate::config::retention;
use crate::driver::Driver;
use crate::recover::producers_at_risk;
use crate::stall::Deferred;
use crate::volume::VolumeIndex;
use crate::world::{Clock, Net};

/// Most log lines about losses of one topic at a time; every loss is on the list.
const LOSS_LINES_MAX: usize = 10;

/// The committed offsets of a topic, by partition and group.
type ReadersOfTopic = BTreeMap<PartitionIndex, BTreeMap<Arc<str>, Offset>>;

/// What the guard holds, and what it could not.
#[derive(Debug, Default)]
pub(crate) struct GuardBook {
    /// Topics of which something is held.
    held: BTreeMap<TopicId, (TopicName, u64)>,
    /// How often holding a topic's records has begun.
    holds_begun: u64,
    lost_records: BTreeMap<Cause, u64>,
    losses: Losses,
}

/// The guard's account, for people.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GuardReport {
    /// Bytes of expired records that are held for groups, by topic.
    pub held_bytes: BTreeMap<TopicName, u64>,
    /// How often holding a topic's records has begun, since the start.
    pub holds_begun: u64,
    /// Records that groups have lost since the start, by cause.
    pub lost_records: BTreeMap<Cause, u64>,
}

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// What the guard holds and could not hold.
    pub fn guard_report(&self) -> GuardReport {
        let book = self.guard_book.lock().expect("no panic holds the book");
        GuardReport {
            held_bytes: book.held.values().cloned().collect(),
            holds_begun: book.holds_begun,
            lost_records: book.lost_records.clone(),
        }
    }

    /// What groups have lost since the start, oldest first; the newest
    /// [`towpath_broker::LOSSES_MAX`].
    pub fn losses(&self, group: Option<&str>) -> Vec<Loss> {
        let book = self.guard_book.lock().expect("no panic holds the book");
        let asked = |loss: &&Loss| group.is_none_or(|group| *loss.group == *group);
        book.losses.iter().filter(asked).cloned().collect()
    }

    pub(crate) fn held_bytes_of(&self, topic: TopicId) -> u64 {
        let book = self.guard_book.lock().expect("no panic holds the book");
        book.held.get(&topic).map_or(0, |(_, bytes)| *bytes)
    }

    /// Rolls and retires what is due, topic by topic.
    pub(crate) fn retire_all(&self, now: Now) {
        let mut topics: BTreeMap<TopicId, Vec<Arc<Cell<D>>>> = BTreeMap::new();
        // What goes from a delivery log whoever folds it says, never its age or size.
        for cell in self.cells().into_iter().filter(|cell| !cell.id.is_delivery_log()) {
            topics.entry(cell.id.topic).or_default().push(cell);
        }
        let mut book = self.guard_book.lock().expect("no panic holds the book");
        book.held.retain(|topic, _| topics.contains_key(topic));
        drop(book);
        for (topic, cells) in topics {
            self.retire_topic(topic, &cells, now);
        }
    }

    /// Whoever is done with messages of a queue-only topic needs their records no more.
    pub(crate) fn retire_settled(&self, now: Now) {
        let mut topics: BTreeMap<TopicId, Vec<Arc<Cell<D>>>> = BTreeMap::new();
        for deliveries in self.delivery_cells() {
            let id = deliveries.id.records();
            let Some(cell) = self.cell(id).filter(|cell| cell.led.load(Ordering::Relaxed)) else {
                continue;
            };
            let slot = self.lock_in_time(&cell);
            if slot.is_some_and(|slot| slot.config.is_queue_only() && slot.log.has_sealed_segment())
            {
                topics.entry(id.topic).or_default().push(cell);
            }
        }
        for (topic, cells) in topics {
            self.retire_topic(topic, &cells, now);
        }
    }

    fn retire_topic(&self, topic: TopicId, cells: &[Arc<Cell<D>>], now: Now) {
        let Some(name) = cells.first().map(|cell| cell.topic.clone()) else { return };
        let (mut partitions, mut config) = (BTreeMap::new(), None);
        for cell in cells {
            // Of a partition that its disk holds up nothing is known at the moment.
            let mut found = None;
            self.step_soon(cell, |slot, _, _| found = find_expired(slot, cell, now));
            if let Some((mut expiring, its_config)) = found {
                if its_config.queue_enable && !expiring.segments.is_empty() {
                    self.keep_unsettled(cell, &mut expiring);
                }
                partitions.insert(cell.id.partition, expiring);
                config = Some(its_config);
            }
        }
        let is_expiring = partitions.values().any(|expiring| !expiring.segments.is_empty());
        let Some(config) = config.filter(|_| is_expiring) else {
            return self.note_held(topic, &name, 0);
        };
        let rules = Rules {
            guard: config.retention_guard,
            hold_bytes_max: config.retention_guard_bytes_max,
            is_disk_pressed: self.is_disk_pressed(),
        };
        if rules.guard != RetentionGuard::Off {
            self.ask_for_readers(topic);
        }
        match self.readers_of(topic, &name, rules.guard) {
            Some(mut readers) => {
                for (partition, expiring) in &mut partitions {
                    expiring.readers = readers.remove(partition).unwrap_or_default();
                }
            }
            None if rules.guard == RetentionGuard::Hold && !rules.is_disk_pressed => {
                tracing::warn!(topic = %name, "expired records stay for now: which groups have \
                    read them is not known while partitions of {OFFSETS_TOPIC} are not served");
                return;
            }
            None => {}
        }
        let verdicts = guard::decide(&rules, &partitions);
        let held = verdicts.values().map(|verdict| verdict.held_bytes).sum();
        for cell in cells {
            match verdicts.get(&cell.id.partition) {
                Some(verdict) if cell.volume == VolumeIndex::FIRST => {
                    self.carry_out_verdict(cell, verdict, now.wall);
                }
                // Its own thread waits for its disk.
                Some(verdict) => {
                    let retire = Deferred::Retire(Arc::clone(cell), verdict.clone(), now.wall);
                    self.defer(cell.volume, retire);
                }
                None => {}
            }
        }
        self.note_held(topic, &name, held);
    }

    pub(crate) fn carry_out_verdict(&self, cell: &Arc<Cell<D>>, verdict: &Verdict, at: Timestamp) {
        let Some(start) = verdict.start else { return };
        let begun = {
            let slot = cell.lock();
            match slot.leads() {
                false => Ok(None),
                true => slot.log.begin_start_move(start, producers_at_risk(&slot, start)),
            }
        };
        let (moved, result) = match begun {
            Ok(None) => return,
            Ok(Some(moved)) => {
                let moved = self.move_start(cell, moved);
                (moved.start, moved.result)
            }
            Err(error) => (None, Err(error)),
        };
        // It may have moved although something failed afterwards.
        let is_gone = moved.is_some_and(|now| start <= now);
        if let Err(error) = result {
            tracing::warn!(topic = %cell.topic, partition = %cell.id.partition, %error,
                "expired records could not be removed; tried again in a moment");
        }
        if is_gone {
            self.note_losses(cell, verdict.losses.clone(), at);
        }
    }

    /// Where the groups are that read this topic; empty when the guard does not care. `None`:
    /// nobody knows, because some groups are not here at the moment.
    fn readers_of(
        &self,
        topic: TopicId,
        name: &TopicName,
        guard: RetentionGuard,
    ) -> Option<ReadersOfTopic> {
        let mut found = ReadersOfTopic::new();
        if guard == RetentionGuard::Off {
            return Some(found);
        }
        let holders = self.image().topic(OFFSETS_TOPIC).map_or(0, |t| t.partitions.len());
        let cells = self.offsets_cells();
        for coordinator in (0..).map(PartitionIndex).take(holders) {
            let here = cells.iter().find(|cell| cell.id.partition == coordinator);
            let slot = here.map(|cell| cell.lock()).filter(|slot| slot.leads());
            let Some(slot) = slot else {
                for (partition, group, offset) in self.remote_readers_of(topic, coordinator)? {
                    found.entry(partition).or_default().insert(group, offset);
                }
                continue;
            };
            for (partition, groups) in slot.partition.readers().of_topic(name.as_str()) {
                let here = groups.iter().filter(|(_, reader)| reader.reads(topic));
                let offsets = here.map(|(group, reader)| (group.clone(), reader.offset));
                found.entry(partition).or_default().extend(offsets);
            }
        }
        Some(found)
    }

    /// What groups are about to lose by an order to delete records below some offset: call before,
    /// and pass the result to [`Driver::records_were_deleted`] after.
    pub(crate) fn readers_before_deletion(&self, cell: &Arc<Cell<D>>) -> Expiring {
        let (guard, log_start_offset) = {
            let slot = cell.lock();
            (slot.config.retention_guard, slot.log.log_start_offset())
        };
        let readers = self.readers_of(cell.id.topic, &cell.topic, guard);
        let readers = readers.and_then(|mut readers| readers.remove(&cell.id.partition));
        Expiring { log_start_offset, segments: Vec::new(), readers: readers.unwrap_or_default() }
    }

    pub(crate) fn records_were_deleted(
        &self,
        cell: &Arc<Cell<D>>,
        before: &Expiring,
        start: Offset,
        at: Timestamp,
    ) {
        let mut lost = Vec::new();
        let from = before.log_start_offset;
        guard::losses(before, from, start, Cause::DeleteRecords, &mut lost);
        self.note_losses(cell, lost, at);
    }

    fn note_losses(&self, cell: &Arc<Cell<D>>, losses: Vec<Unheld>, at: Timestamp) {
        for (nth, lost) in losses.iter().enumerate().take(LOSS_LINES_MAX + 1) {
            if nth == LOSS_LINES_MAX {
                let more = losses.len() - nth;
                tracing::warn!(topic = %cell.topic, partition = %cell.id.partition, more,
                    "more groups lost records there; GET /losses names them all");
                break;
            }
            let last = Offset(lost.to.0 - 1);
            tracing::warn!(group = %lost.group, topic = %cell.topic, partition = %cell.id.partition,
                first = %lost.from, %last, cause = lost.cause.as_str(),
                "records were deleted before a group had read them");
        }
        let mut book = self.guard_book.lock().expect("no panic holds the book");
        for lost in losses {
            let records = (lost.to - lost.from).unsigned_abs();
            *book.lost_records.entry(lost.cause).or_default() += records;
            book.losses.add(&cell.topic, cell.id.partition, lost, at);
        }
    }

    fn note_held(&self, topic: TopicId, name: &TopicName, bytes: u64) {
        let mut book = self.guard_book.lock().expect("no panic holds the book");
        let before = match bytes {
            0 => book.held.remove(&topic),
            bytes => book.held.insert(topic, (name.clone(), bytes)),
        };
        if before.is_none() && bytes != 0 {
            book.holds_begun += 1;
            tracing::warn!(topic = %name, bytes, "retention.guard holds expired records that a \
                group has not read; towpath group lag shows which, retention.guard.max.bytes bounds it");
        } else if before.is_some() && bytes == 0 {
            tracing::info!(topic = %name, "retention.guard holds no records any more");
        }
    }
}

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// A message of a queue goes when every subscription is done with it, however old it is: what has grown too old to
    /// be worked is settled, or becomes a dead letter, by the queue's own retention.
    fn keep_unsettled(&self, cell: &Cell<D>, expiring: &mut Expiring) {
        // While nobody decides on its deliveries, nothing is known of them.
        let settled = self.settled_for_good(cell.id).unwrap_or(Offset::ZERO);
        expiring.segments.retain(|segment| segment.end_offset <= settled);
    }

    fn settled_for_good(&self, id: TopicPartition) -> Option<Offset> {
        let deliveries = self.cell(id.delivery_log())?;
        let mut slot = self.lock_in_time(&deliveries)?;
        let serving = slot.partition.deliveries().filter(|it| slot.leads() && it.is_serving())?;
        let settled = serving.settled_for_good();
        let partition = &slot.partition;
        let (epoch, end) = (partition.leader_epoch(), partition.log_end_offset());
        let high_watermark = partition.high_watermark();
        let known = slot.settled.up_to(epoch, settled, end, high_watermark);
        // A subscription may have begun since, with messages that all others were done with.
        known.map(|known| known.min(settled))
    }
}

fn find_expired<D: Disk>(
    slot: &mut Slot<D>,
    cell: &Cell<D>,
    now: Now,
) -> Option<(Expiring, Arc<TopicConfig>)> {
    if !slot.leads() || slot.failed {
        return None;
    }
    if let Err(error) = slot.log.roll_if_due(now) {
        tracing::warn!(topic = %cell.topic, partition = %cell.id.partition, %error,
            "the log takes no changes: nothing expires");
        return None;
    }
    let limit = slot.partition.high_watermark();
    let expired = retention(&slot.config)
        .map(|retention| slot.log.expired_segments(now.wall, &retention, limit))
        .unwrap_or_default();
    let is_queue_only = slot.config.is_queue_only();
    let settled = if is_queue_only { slot.log.sealed_segments(limit) } else { Vec::new() };
    // Of both lists the first ones are the same segments.
    let settled = settled.into_iter().skip(expired.len()).map(|segment| ExpiredSegment {
        end_offset: segment.offsets.end,
        bytes: segment.bytes,
        newest: segment.newest.unwrap_or(now.wall),
        cause: Cause::Settled,
    });
    let segments = expired.into_iter().map(|expired| ExpiredSegment {
        end_offset: expired.end_offset,
        bytes: expired.bytes,
        newest: expired.newest,
        cause: match expired.by {
            ExpiredBy::Time => Cause::RetentionTime,
            ExpiredBy::Size => Cause::RetentionBytes,
        },
    });
    let expiring = Expiring {
        log_start_offset: slot.log.log_start_offset(),
        segments: segments.chain(settled).collect(),
        readers: BTreeMap::new(),
    };
    Some((expiring, Arc::clone(&slot.config)))
}
