//! A leader and its followers' positions: what is reported, what there is to send, and when.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use towpath_broker::peer::Fed;
use towpath_log::disk::Disk;
use towpath_log::{Log, ReadError, Slice};
use towpath_model::mutant::{self, Mutant};
use towpath_model::{BrokerEpoch, BrokerId, Offset, TopicPartition};
use towpath_replication::{
    AnswerKind, FetchRefusal, Incarnation, ReplicaAnswer, ReplicaGrant, ReplicaPosition,
};

use super::throttle::Pace;
use crate::cell::{Cell, Slot};
use crate::driver::Driver;
use crate::world::{Clock, Net};

/// Most bytes of one partition in one answer, unless its first batch alone has more.
const CHUNK_BYTES_MAX: usize = 1024 * 1024;
/// Most partitions in one frame of answers.
const ANSWERS_MAX: usize = 4_096;

/// What there is to send to each follower.
#[derive(Debug, Default)]
pub(crate) struct Feeds {
    of: Mutex<BTreeMap<BrokerId, Feed>>,
}

/// What there is to send to one follower. Bounded by the partitions that it follows.
#[derive(Debug, Default)]
struct Feed {
    /// Positions behind which there are records, the newest of each partition.
    ready: VecDeque<TopicPartition>,
    positions: BTreeMap<TopicPartition, ReplicaPosition>,
    /// Positions that wait because enough goes out already.
    kept: BTreeMap<TopicPartition, ReplicaPosition>,
    /// Answers without records.
    answers: VecDeque<(TopicPartition, ReplicaAnswer)>,
}

impl Feed {
    fn push(&mut self, partition: TopicPartition, position: ReplicaPosition) {
        self.kept.remove(&partition);
        if self.positions.insert(partition, position).is_none() {
            self.ready.push_back(partition);
        }
    }

    fn pop(&mut self) -> Option<(TopicPartition, ReplicaPosition)> {
        let partition = self.ready.pop_front()?;
        let position = self.positions.remove(&partition)?;
        Some((partition, position))
    }
}

/// What there is to send to a follower.
#[derive(Debug)]
pub enum NextRecords<D: Disk> {
    /// Nothing.
    Nothing,
    /// Only what a device has to be waited for.
    Cold,
    /// These answers.
    Answers(Vec<Portion<D>>),
}

/// One partition's answer to a follower's position, as its leader sends it: a [`Fed`] at the other end.
#[derive(Debug)]
pub struct Portion<D: Disk> {
    /// Which partition.
    pub partition: TopicPartition,
    /// The answer.
    pub answer: ReplicaAnswer,
    /// Whole batches, where the answer says so.
    pub batches: Batches<D>,
}

/// Where batches for a follower are.
#[derive(Debug)]
pub enum Batches<D: Disk> {
    /// In memory: those that a device had to be waited for, and none at all.
    Memory(Bytes),
    /// In a file of the page cache, from where they can be sent without a copy.
    File(Slice<D>),
}

impl<D: Disk> Batches<D> {
    /// How many bytes they have.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Batches::Memory(bytes) => bytes.len(),
            Batches::File(slice) => slice.len,
        }
    }
}

impl<D: Disk> Portion<D> {
    fn without_batches(partition: TopicPartition, answer: ReplicaAnswer) -> Portion<D> {
        Portion { partition, answer, batches: Batches::Memory(Bytes::new()) }
    }

    /// With its batches in memory.
    ///
    /// # Errors
    /// When the disk fails, or the file was cut meanwhile. The follower's position will be told again.
    pub fn read(self) -> io::Result<Fed> {
        let batches = match self.batches {
            Batches::Memory(bytes) => bytes,
            Batches::File(slice) => slice.read()?,
        };
        Ok(Fed { partition: self.partition, answer: self.answer, batches })
    }
}

/// What there is behind one position.
enum Behind<D: Disk> {
    Nothing,
    Cold,
    Portion(Portion<D>),
}

fn producers_bytes(kind: &AnswerKind) -> usize {
    if let AnswerKind::BeginAnew { producers, .. } = kind { producers.len() } else { 0 }
}

/// Where a replica that has nothing of this log begins.
fn first_batch_offset<D: Disk>(log: &Log<D>) -> Offset {
    log.first_batch_offset().unwrap_or(log.log_start_offset())
}

impl<D: Disk> Slot<D> {
    /// Positions of followers behind which there are records now.
    pub(crate) fn take_fed(&mut self) -> Vec<(BrokerId, ReplicaPosition)> {
        let end = self.partition.log_end_offset();
        let armed = std::mem::take(&mut self.armed);
        let (due, waiting): (Vec<_>, Vec<_>) =
            armed.into_iter().partition(|(_, position)| position.from < end);
        self.armed = waiting;
        due
    }
}

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// Followers say where their logs end, and ask for what follows.
    pub(super) fn replicas_ask(
        &self,
        from: BrokerId,
        broker_epoch: BrokerEpoch,
        positions: &[(TopicPartition, ReplicaPosition)],
    ) {
        let follower = Incarnation { broker: from, epoch: broker_epoch };
        let (mut ready, mut answers) = (Vec::new(), Vec::new());
        for (id, position) in positions {
            let Some(cell) = self.cell(*id) else {
                self.told_early(*id, *position, (from, broker_epoch));
                continue;
            };
            self.step(&cell, |slot, now, out| {
                if !slot.leads() {
                    // Under the partition's lock: whoever begins to lead looks afterwards.
                    if slot.partition.leader_epoch() < position.leader_epoch {
                        self.told_early(*id, *position, (from, broker_epoch));
                    }
                    return;
                }
                let before = slot.armed.iter().find(|(broker, _)| *broker == from);
                // Told again, or for the first time: what moved meanwhile may have been lost on its
                // way, or nobody was there to be told.
                let may_lack_lines = before.is_none_or(|(_, before)| before == position);
                slot.armed.retain(|(broker, _)| *broker != from);
                let granted = slot.partition.replica_asks(now, follower, position, out);
                self.want_start(&cell, slot);
                match granted {
                    Ok(ReplicaGrant::Send { .. }) => ready.push((*id, *position)),
                    Ok(ReplicaGrant::Wait) => {
                        slot.armed.push((from, *position));
                        if may_lack_lines {
                            self.want_lines(&cell, slot);
                        }
                    }
                    Err(refusal) => {
                        let leader = slot.partition.leader().expect("asked above");
                        match leader.answer_to_refused(position, refusal) {
                            Some(answer) => answers.push((*id, answer)),
                            // Large, so it is made when it is sent.
                            None => ready.push((*id, *position)),
                        }
                    }
                }
            });
        }
        self.feed(from, ready, answers);
    }

    /// Followers say what is durable with them, while their positions wait here.
    pub(super) fn replicas_report(
        &self,
        from: BrokerId,
        broker_epoch: BrokerEpoch,
        positions: &[(TopicPartition, ReplicaPosition)],
    ) {
        let follower = Incarnation { broker: from, epoch: broker_epoch };
        for (id, position) in positions {
            let Some(cell) = self.cell(*id) else { continue };
            self.step(&cell, |slot, now, out| {
                if slot.leads() {
                    // What is refused here is told when it asks.
                    let _ = slot.partition.replica_asks(now, follower, position, out);
                    self.want_start(&cell, slot);
                } else if slot.partition.leader_epoch() < position.leader_epoch {
                    self.told_early(*id, *position, (from, broker_epoch));
                }
            });
        }
    }

    /// There is something to send to a follower.
    pub(crate) fn feed(
        &self,
        to: BrokerId,
        ready: Vec<(TopicPartition, ReplicaPosition)>,
        answers: Vec<(TopicPartition, ReplicaAnswer)>,
    ) {
        if ready.is_empty() && answers.is_empty() {
            return;
        }
        {
            let mut feeds = self.feeds.of.lock().expect("no panic holds the feeds");
            let feed = feeds.entry(to).or_default();
            ready.into_iter().for_each(|(partition, position)| feed.push(partition, position));
            for answer in answers {
                if feed.answers.len() < ANSWERS_MAX {
                    feed.answers.push_back(answer);
                }
            }
        }
        self.net.records_ready(to);
    }

    /// A connection to a follower ended: what it had asked for it will ask for again.
    pub(crate) fn forget_feed(&self, to: BrokerId) {
        self.feeds.of.lock().expect("no panic holds the feeds").remove(&to);
    }

    /// The next answers for a follower, about `max_bytes` of them. Without `may_wait` only what is in
    /// memory, left where it is; with it, what a device has to be waited for is read, with no lock held.
    pub fn next_records(&self, to: BrokerId, max_bytes: usize, may_wait: bool) -> NextRecords<D> {
        let mut answers: Vec<Portion<D>> = Vec::new();
        let mut cold = Vec::new();
        let mut bytes = 0;
        while bytes < max_bytes && answers.len() < ANSWERS_MAX {
            let next = {
                let mut feeds = self.feeds.of.lock().expect("no panic holds the feeds");
                let Some(feed) = feeds.get_mut(&to) else { break };
                match feed.answers.pop_front() {
                    Some((partition, answer)) => {
                        answers.push(Portion::without_batches(partition, answer));
                        continue;
                    }
                    None => feed.pop(),
                }
            };
            let Some((id, position)) = next else { break };
            let pace = self.pace_out(id, to);
            let at_most = match pace {
                Pace::Free => max_bytes - bytes,
                Pace::Limited(_, portion) => portion.min(max_bytes - bytes),
                Pace::Wait => {
                    self.keep_position(to, id, position);
                    continue;
                }
            };
            match self.behind(id, &position, at_most, may_wait) {
                Behind::Nothing => {}
                Behind::Cold => cold.push((id, position)),
                Behind::Portion(portion) => {
                    let size = portion.batches.bytes() + producers_bytes(&portion.answer.kind);
                    self.gone_out(pace, size);
                    bytes += size;
                    answers.push(portion);
                }
            }
        }
        let is_cold = !cold.is_empty();
        if is_cold {
            let mut feeds = self.feeds.of.lock().expect("no panic holds the feeds");
            let feed = feeds.entry(to).or_default();
            cold.into_iter().for_each(|(partition, position)| feed.push(partition, position));
        }
        match answers.is_empty() {
            false => NextRecords::Answers(answers),
            true if is_cold => NextRecords::Cold,
            true => NextRecords::Nothing,
        }
    }

    fn keep_position(&self, to: BrokerId, id: TopicPartition, position: ReplicaPosition) {
        let mut feeds = self.feeds.of.lock().expect("no panic holds the feeds");
        let feed = feeds.entry(to).or_default();
        // A newer one has come meanwhile.
        if !feed.positions.contains_key(&id) {
            feed.kept.insert(id, position);
            self.note_kept();
        }
    }

    /// Positions that were kept are looked at again.
    pub(super) fn feed_kept(&self) {
        let kept: Vec<_> = {
            let mut feeds = self.feeds.of.lock().expect("no panic holds the feeds");
            let kept = feeds.iter_mut().map(|(to, feed)| (*to, std::mem::take(&mut feed.kept)));
            kept.filter(|(_, kept)| !kept.is_empty()).collect()
        };
        for (to, kept) in kept {
            self.feed(to, kept.into_iter().collect(), Vec::new());
        }
    }

    fn behind(
        &self,
        id: TopicPartition,
        position: &ReplicaPosition,
        max_bytes: usize,
        may_wait: bool,
    ) -> Behind<D> {
        let Some(cell) = self.cell(id) else { return Behind::Nothing };
        let Some(slot) = self.lock_in_time(&cell) else { return Behind::Nothing };
        let Ok(leader) = slot.leader() else { return Behind::Nothing };
        if leader.leader_epoch() != position.leader_epoch {
            return Behind::Nothing;
        }
        let begin_anew = || {
            let begin = first_batch_offset(&slot.log);
            let answer = leader.begin_anew(position, begin);
            Behind::Portion(Portion::without_batches(id, answer))
        };
        if let Err(FetchRefusal::LeftBehind { .. }) = leader.check_position(position) {
            return begin_anew();
        }
        let max_bytes = CHUNK_BYTES_MAX.min(max_bytes.max(1));
        let read = if may_wait {
            slot.log.read_for_replica(position.from, max_bytes)
        } else {
            slot.log.read_resident_for_replica(position.from, max_bytes)
        };
        let refused = |error: &dyn std::fmt::Display| {
            tracing::warn!(topic = %cell.topic, partition = %id.partition, %error,
                "a follower cannot be given records");
            let answer = leader.answer(position, AnswerKind::Refused);
            Behind::Portion(Portion::without_batches(id, answer))
        };
        let slice = match read {
            Ok(Some(slice)) => slice,
            Ok(None) => return Behind::Nothing,
            Err(ReadError::NotResident) => return Behind::Cold,
            // A replica that holds nothing asks from anywhere, and is told where to begin; so is one
            // whose records have been deleted since it asked.
            Err(ReadError::OutOfRange { end, .. }) => {
                if position.from < first_batch_offset(&slot.log) {
                    return begin_anew();
                }
                let kind = AnswerKind::OutOfRange { log_end_offset: end };
                let answer = leader.answer(position, kind);
                return Behind::Portion(Portion::without_batches(id, answer));
            }
            Err(error) => {
                if let ReadError::CorruptBatch { from, .. } = error {
                    self.doubt_cell(&cell, from);
                }
                return refused(&error);
            }
        };
        let epochs = leader.epochs_between(position.from, slice.next_offset);
        let answer = leader.answer(position, AnswerKind::Batches { epochs });
        drop(slot);
        let portion = Portion { partition: id, answer, batches: Batches::File(slice) };
        if !may_wait {
            return Behind::Portion(portion);
        }
        match portion.read() {
            Ok(Fed { partition, answer, batches }) => {
                let batches = Batches::Memory(batches);
                Behind::Portion(Portion { partition, answer, batches })
            }
            Err(error) => {
                tracing::warn!(topic = %cell.topic, partition = %id.partition, %error,
                    "records for a follower cannot be read");
                Behind::Nothing
            }
        }
    }

    /// A partition's high watermark or start has moved; its followers are told soon, unless records
    /// tell them before.
    pub(crate) fn want_lines(&self, cell: &Arc<Cell<D>>, slot: &mut Slot<D>) {
        if mutant::is_on(Mutant::LinesNeverTold) {
            return;
        }
        if !slot.armed.is_empty() && !std::mem::replace(&mut slot.awaits_lines, true) {
            self.lines_due.lock().expect("no panic holds the list").push(Arc::clone(cell));
        }
    }

    /// Tells followers what has moved without records.
    pub(super) fn tell_lines(&self) {
        let due = std::mem::take(&mut *self.lines_due.lock().expect("no panic holds the list"));
        let mut answers: BTreeMap<BrokerId, Vec<(TopicPartition, ReplicaAnswer)>> = BTreeMap::new();
        for cell in due {
            let Some(mut slot) = self.lock_in_time(&cell) else { continue };
            slot.awaits_lines = false;
            let Ok(leader) = slot.leader() else { continue };
            for (to, position) in &slot.armed {
                let answer = leader.answer(position, AnswerKind::Nothing);
                answers.entry(*to).or_default().push((cell.id, answer));
            }
        }
        for (to, answers) in answers {
            self.feed(to, Vec::new(), answers);
        }
    }
}
