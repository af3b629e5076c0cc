//! Work queues: asking the deliveries of a partition, and telling them what has been appended to it.
//!
//! ```text
//! produce ─▶ append to the records' log ─▶ admit: what the records say of themselves ─▶ delivery log
//! receive ─▶ ask deliveries ─▶ (leases durable) ─▶ answer ─▶ read the records below the high watermark
//! ```
//!
//! The two logs have a lock each, and nothing here holds both: what was appended and not admitted, because two
//! producers came at once or the disk was full, is read from the records' log and admitted then.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use towpath_log::disk::Disk;
use towpath_model::{Now, Offset, PartitionIndex, Token, TopicId, TopicPartition};
use towpath_queue::{Deliveries, Facts, Request, facts_of};
use towpath_records::{BatchHeader, Scratch, records, split_batches};

use crate::cell::{Cell, Slot};
use crate::coordinate::NotCoordinator;
use crate::driver::Driver;
use crate::manage::NOBODY;
use crate::volume::VolumeIndex;
use crate::world::{Clock, Net};

/// Bytes of records that are read at once to be admitted.
const ADMIT_BYTES: usize = 1 << 20;
/// The largest batch, decompressed, whose records are looked into.
const PLAIN_BYTES_MAX: usize = 256 << 20;
/// Steps in which time acts on one partition while a request waits; the rest is the timer's.
const STEPS_MAX: usize = 64;
/// Bytes of the delivery log after which its state is logged as a whole again, at least.
pub(crate) const SNAPSHOT_BYTES: u64 = 4 << 20;

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// The delivery log of a partition, if its topic is a queue and this broker leads it.
    fn delivery_cell(&self, id: TopicPartition) -> Result<Arc<Cell<D>>, NotCoordinator> {
        let is_queue = || {
            let image = self.image();
            let topic = image.topic_by_id(id.topic);
            topic.is_some_and(|topic| image.effective_config(topic).queue_enable)
        };
        self.cell(id.delivery_log()).ok_or_else(|| match self.offline(id) {
            Some(_) => NotCoordinator::Offline,
            None if !is_queue() => NotCoordinator::NoTopic,
            None => NotCoordinator::NotLeader,
        })
    }

    /// Asks the deliveries of a partition; the answer is delivered to `token`. What is answered rests on
    /// records of the delivery log that are committed; a message that was handed out may still have to
    /// become so, see [`Driver::watch`].
    ///
    /// # Errors
    /// [`NotCoordinator`].
    pub fn ask_deliveries(
        &self,
        id: TopicPartition,
        token: Token,
        request: Request,
    ) -> Result<(), NotCoordinator> {
        self.ask_without_round(id, token, request).map(|wanted| self.order_rounds(wanted))
    }

    /// [`Driver::ask_deliveries`], but orders no sync round; says in which data directory there is to be one.
    fn ask_without_round(
        &self,
        id: TopicPartition,
        token: Token,
        request: Request,
    ) -> Result<Option<VolumeIndex>, NotCoordinator> {
        let cell = self.delivery_cell(id)?;
        let mut wants_round = self.let_time_act_without_round(&cell);
        let (asked, has_appended) = self.step_without_round(&cell, |slot, now, out| {
            slot.leads() && slot.partition.ask_deliveries(now, token, request, out)
        });
        // What has just become ready is leased to who waits for it, and durable with that.
        wants_round |= has_appended | self.let_time_act_without_round(&cell);
        let wants_round = wants_round.then_some(cell.volume);
        match asked {
            true => Ok(wants_round),
            false => {
                self.order_rounds(wants_round);
                Err(NotCoordinator::NotLeader)
            }
        }
    }

    /// Reads something off the deliveries of a partition, every decision carried out, committed or not.
    ///
    /// # Errors
    /// [`NotCoordinator`].
    pub fn with_deliveries<R>(
        &self,
        id: TopicPartition,
        read: impl FnOnce(&Deliveries, Now) -> R,
    ) -> Result<R, NotCoordinator> {
        let cell = self.delivery_cell(id)?;
        self.let_time_act(&cell);
        let slot = self.lock_in_time(&cell).ok_or(NotCoordinator::Offline)?;
        let deliveries = slot.partition.deliveries().filter(|it| slot.leads() && it.is_serving());
        let deliveries = deliveries.ok_or(NotCoordinator::NotLeader)?;
        Ok(read(deliveries, self.clock.now()))
    }

    /// Partitions of queues that are led here and have messages on their way to another queue, each with the
    /// number of the subscription that gives them up, and where they go.
    pub fn moves_underway(&self) -> Vec<(TopicPartition, u32, Arc<str>)> {
        let mut found = Vec::new();
        for cell in &self.delivery_cells() {
            let Some(slot) = self.lock_in_time(cell) else { continue };
            let deliveries = slot.partition.deliveries().filter(|_| slot.leads());
            let ways = deliveries.into_iter().flat_map(Deliveries::ways);
            found.extend(ways.map(|(number, to)| (cell.id.records(), number, to)));
        }
        found
    }

    /// Partitions of queues that are led here and have not taken over the subscriptions of their queue.
    pub fn without_subscriptions(&self) -> Vec<TopicPartition> {
        let lacks = |cell: &&Arc<Cell<D>>| {
            let Some(slot) = self.lock_in_time(cell) else { return false };
            let deliveries = slot.partition.deliveries().filter(|_| slot.leads());
            deliveries.is_some_and(|it| it.is_serving() && !it.has_taken_over())
        };
        self.delivery_cells().iter().filter(lacks).map(|cell| cell.id.records()).collect()
    }

    /// What partitions of queues have to do that are led here and could be helped by more of them: for each queue how
    /// many these are, and their messages per second together. Those that have only what stays with them, because more
    /// partitions were added before, do not count.
    pub fn queue_loads(&self) -> BTreeMap<TopicId, (u32, f64)> {
        let mut loads: BTreeMap<TopicId, (u32, f64)> = BTreeMap::new();
        let now = self.clock.now();
        for cell in &self.delivery_cells() {
            let id = cell.id.records();
            let partitions = self.sharing_partitions(id);
            let Some(slot) = self.lock_in_time(cell) else { continue };
            let deliveries =
                slot.partition.deliveries().filter(|it| slot.leads() && it.is_serving());
            let deliveries = deliveries.filter(|_| {
                slot.config.may_grow()
                    && others_help(id.partition, slot.config.queue.dedup_partitions, partitions)
            });
            if let Some(deliveries) = deliveries {
                let (many, load) = loads.entry(id.topic).or_default();
                *many += 1;
                *load += deliveries.messages_per_second(now);
            }
        }
        loads
    }

    /// Partition 0 has all subscriptions of its queue from the beginning: it says which there are.
    fn take_over_first(&self, id: TopicPartition) {
        let lacks = || self.with_deliveries(id, |deliveries, _| !deliveries.has_taken_over());
        if id.partition == PartitionIndex(0) && lacks().unwrap_or(false) {
            let begin = Request::TakeOver { names: Vec::new(), partitions: 1 };
            let _ = self.ask_deliveries(id, NOBODY, begin);
        }
    }

    /// Whatever is due happens before and after anything else, so that a receiver that waits gets what
    /// has just become ready.
    fn let_time_act(&self, cell: &Arc<Cell<D>>) {
        if self.let_time_act_without_round(cell) {
            self.order_rounds([cell.volume]);
        }
    }

    /// The same; says whether somebody has to order a sync round.
    fn let_time_act_without_round(&self, cell: &Arc<Cell<D>>) -> bool {
        let mut wants_round = false;
        for _ in 0..STEPS_MAX {
            let (is_due, has_appended) = self.step_without_round(cell, |slot, now, out| {
                let is_due = slot.next_deadline().is_some_and(|at| at <= now.time);
                if is_due {
                    slot.partition.expire(now, out);
                }
                is_due
            });
            wants_round |= has_appended;
            if !is_due {
                break;
            }
        }
        wants_round
    }

    /// A batch has just been appended to a partition that is led here. Says in which data directory the caller
    /// has to order a sync round, so that the batch and what becomes of its messages have one together.
    pub(crate) fn admit_appended(&self, id: TopicPartition, batch: &[u8]) -> Option<VolumeIndex> {
        let header = BatchHeader::parse(batch).ok()?;
        let admitted_to =
            self.with_deliveries(id, |deliveries, _| deliveries.admitted_to()).ok()?;
        if admitted_to == header.base_offset() {
            return self.admit_batch(id, &header, batch);
        }
        if admitted_to < header.base_offset() {
            self.admit_missing(id);
        }
        None
    }

    /// Says in which data directory there is to be a sync round.
    fn admit_batch(
        &self,
        id: TopicPartition,
        header: &BatchHeader,
        batch: &[u8],
    ) -> Option<VolumeIndex> {
        if header.is_control() {
            self.skip(id, header.next_offset());
            return None;
        }
        let is_fifo = self.is_fifo(id);
        let count = u32::try_from(header.next_offset() - header.base_offset()).unwrap_or(u32::MAX);
        let facts = facts_of_batch(header, batch, is_fifo);
        let admit = Request::Admit { base: header.base_offset(), count, facts };
        // What cannot be admitted now is admitted with what comes later, or by the upkeep.
        self.ask_without_round(id, NOBODY, admit).ok().flatten()
    }

    fn is_fifo(&self, id: TopicPartition) -> bool {
        let cell = self.cell(id);
        cell.and_then(|cell| self.lock_in_time(&cell).map(|slot| slot.config.queue.fifo))
            .unwrap_or_default()
    }

    /// Admits what has been appended to a partition and not been admitted.
    pub(crate) fn admit_missing(&self, id: TopicPartition) {
        while let Some((from, bytes)) = self.not_admitted(id) {
            let mut at = from;
            for batch in split_batches(&bytes) {
                let header = batch.header;
                if header.next_offset() <= at {
                    continue;
                }
                if at < header.base_offset() {
                    self.skip(id, header.base_offset());
                }
                at = header.next_offset();
                self.order_rounds(self.admit_batch(id, &header, batch.bytes));
            }
            let now = self.with_deliveries(id, |deliveries, _| deliveries.admitted_to());
            if now.is_ok_and(|now| now <= from) || now.is_err() {
                return;
            }
        }
    }

    /// There is no message before `to`.
    fn skip(&self, id: TopicPartition, to: Offset) {
        let _ = self.ask_deliveries(id, NOBODY, Request::Skip { to });
    }

    /// The next records that have not been admitted, from where on.
    fn not_admitted(&self, id: TopicPartition) -> Option<(Offset, bytes::Bytes)> {
        let cell = self.cell(id)?;
        let start = self.lock_in_time(&cell)?.log.log_start_offset();
        let admitted_to =
            || self.with_deliveries(id, |deliveries, _| deliveries.admitted_to()).ok();
        if admitted_to()? < start {
            self.skip(id, start);
        }
        let admitted_to = admitted_to().filter(|admitted_to| start <= *admitted_to)?;
        let slice = {
            let slot = self.lock_in_time(&cell)?;
            if !slot.leads() || slot.log.log_end_offset() <= admitted_to {
                return None;
            }
            slot.log.read_for_replica(admitted_to, ADMIT_BYTES)
        };
        match slice {
            Ok(slice) => match slice?.read() {
                Ok(bytes) => Some((admitted_to, bytes)),
                Err(error) => self.cannot_admit(id, admitted_to, &error.to_string()),
            },
            Err(error) => self.cannot_admit(id, admitted_to, &error.to_string()),
        }
    }

    fn cannot_admit<T>(&self, id: TopicPartition, from: Offset, error: &str) -> Option<T> {
        tracing::error!(partition = %id, %from, error, "records cannot be read to be delivered");
        None
    }

    /// Where this broker leads a queue's partition anew, its deliveries go on where its records end: that is
    /// known once both logs are led, and only then is anything decided.
    pub(crate) fn resume_deliveries(&self, id: TopicPartition) {
        let Some(cell) = self.cell(id.delivery_log()) else { return };
        let ends = self.cell(id).and_then(|records| {
            let slot = records.lock();
            slot.leads().then(|| (records_end(&slot), slot.partition.log_end_offset()))
        });
        let Some((taken_over, all)) = ends else { return };
        let resumes = self.step(&cell, |slot, now, out| {
            let resumes =
                slot.leads() && slot.partition.deliveries().is_some_and(|it| !it.is_serving());
            if resumes {
                // After a stop in good order the same leadership goes on: its deliveries know its records.
                let end = if has_own_records(slot) { all } else { taken_over };
                slot.partition.tell_deliveries(|deliveries| deliveries.records_end_at(end));
                slot.partition.resume_deliveries(now, out);
            }
            resumes
        });
        if resumes {
            self.admit_missing(id);
            self.take_over_first(id);
        }
    }

    /// What a queue's partition needs although nobody asks: admissions that could not be written, the start
    /// of its records, a snapshot of its state and an end to what lies before that.
    pub(crate) fn keep_deliveries(&self, cell: &Arc<Cell<D>>) {
        let id = cell.id.records();
        self.admit_missing(id);
        self.take_over_first(id);
        let Some(start) = self.cell(id).and_then(|records| {
            self.lock_in_time(&records).map(|slot| slot.log.log_start_offset())
        }) else {
            return;
        };
        if self.with_deliveries(id, |deliveries, _| deliveries.start() < start).unwrap_or(false) {
            let _ = self.ask_deliveries(id, NOBODY, Request::Trim { start });
        }
        self.snapshot_deliveries(cell);
    }

    /// How long delivery logs get before their state is logged as a whole, in bytes. For simulations, whose logs
    /// are short; no operator has a reason to choose.
    pub fn snapshot_deliveries_every(&self, bytes: u64) {
        self.deliveries_bytes.store(bytes, Ordering::Relaxed);
    }

    fn snapshot_deliveries(&self, cell: &Arc<Cell<D>>) {
        let at_least = self.deliveries_bytes.load(Ordering::Relaxed);
        let id = cell.id.records();
        let committed = {
            let Some(mut slot) = self.lock_in_time(cell) else { return };
            if !slot.leads() || slot.failed {
                return;
            }
            let (epoch, high_watermark) =
                (slot.partition.leader_epoch(), slot.partition.high_watermark());
            // What another leadership has appended may be gone.
            match slot.snapshot.filter(|(of, ..)| *of == epoch) {
                Some((_, base, end)) if end <= high_watermark => {
                    slot.snapshot = None;
                    Some(base)
                }
                Some(_) => return,
                None if slot.log.size_bytes() < slot.snapshot_at_bytes.max(at_least) => {
                    return;
                }
                None => None,
            }
        };
        if let Some(base) = committed {
            self.shorten_deliveries(cell, base);
            return;
        }
        let before = cell.lock().partition.log_end_offset();
        if self.ask_deliveries(id, NOBODY, Request::Snapshot).is_ok() {
            let mut slot = cell.lock();
            let end = slot.partition.log_end_offset();
            let epoch = slot.partition.leader_epoch();
            slot.snapshot = (before < end).then_some((epoch, before, end));
        }
    }
}

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// What lies before a snapshot is not needed any more.
    fn shorten_deliveries(&self, cell: &Arc<Cell<D>>, start: Offset) {
        if let Err(refusal) = self.trim_deliveries(cell.id.records(), start) {
            tracing::warn!(partition = %cell.id, topic = %cell.topic, %refusal,
                "the log of deliveries cannot be shortened");
            return;
        }
        // What is left is the snapshot and what came since: the next one is due when that has grown to
        // several times its size.
        if let Some(mut slot) = self.lock_in_time(cell) {
            slot.snapshot_at_bytes = 4 * slot.log.size_bytes();
        }
    }
}

/// Whether this leadership has written to this log before.
fn has_own_records<D: Disk>(slot: &Slot<D>) -> bool {
    let latest = slot.partition.epochs().latest_entry();
    latest.is_some_and(|entry| entry.epoch == slot.partition.leader_epoch())
}

/// Where the records end that a new leadership has settled on.
fn records_end<D: Disk>(slot: &Slot<D>) -> Offset {
    let latest = slot.partition.epochs().latest_entry();
    let own = latest.filter(|entry| entry.epoch == slot.partition.leader_epoch());
    own.map_or_else(|| slot.partition.log_end_offset(), |entry| entry.start)
}

/// What the records of a batch say of how they want to be delivered; those that say nothing are left
/// out.
fn facts_of_batch(header: &BatchHeader, batch: &[u8], is_fifo: bool) -> Vec<(u32, Facts)> {
    let count = u32::try_from(header.next_offset() - header.base_offset()).unwrap_or(u32::MAX);
    let all = |facts: Facts| (0..count).map(|index| (index, facts.clone())).collect();
    let mut scratch = Scratch::default();
    let lost = || all(Facts { is_undecodable: true, ..Facts::default() });
    let Ok(iter) = records(batch, PLAIN_BYTES_MAX, &mut scratch) else { return lost() };
    let (mut told, mut next) = (Vec::new(), 0);
    for record in iter {
        let Ok(record) = record else { return lost() };
        let index = record.offset_delta.unsigned_abs();
        // A batch may have holes where records were removed.
        told.extend(
            (next..index).map(|hole| (hole, Facts { is_control: true, ..Facts::default() })),
        );
        next = index + 1;
        let key = record.key.filter(|_| is_fifo);
        if key.is_none() && record.headers.is_empty() {
            continue;
        }
        let (facts, _) = facts_of(key, record.headers);
        if facts != Facts::default() {
            told.push((index, facts));
        }
    }
    told.extend((next..count).map(|hole| (hole, Facts { is_control: true, ..Facts::default() })));
    told
}

/// Whether more partitions may take work off one. Messages with ids stay in the first `dedup_partitions`, so once there
/// are others these alone count: they have only what goes on to new ones as well.
fn others_help(
    partition: PartitionIndex,
    dedup_partitions: Option<NonZeroU32>,
    partitions: u64,
) -> bool {
    let bound = dedup_partitions.map_or(0, |count| u64::from(count.get()));
    partitions <= bound || u64::try_from(partition.0).is_ok_and(|index| bound <= index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_grows_by_what_new_partitions_could_take() {
        let counted = |dedup_partitions, partitions: i32| -> Vec<i32> {
            let dedup_partitions = NonZeroU32::new(dedup_partitions);
            let all = 0..partitions;
            let is_counted = |index: &i32| {
                let partitions = u64::try_from(partitions).unwrap();
                others_help(PartitionIndex(*index), dedup_partitions, partitions)
            };
            all.filter(is_counted).collect()
        };
        assert_eq!(
            (counted(0, 3), counted(3, 3), counted(9, 2)),
            (vec![0, 1, 2], vec![0, 1, 2], vec![0, 1])
        );
        assert_eq!((counted(1, 3), counted(3, 5)), (vec![1, 2], vec![3, 4]));
    }
}
