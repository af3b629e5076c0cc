//! A follower and its leaders: where its logs end, and what comes for them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use towpath_broker::peer::{Fed, PeerMessage};
use towpath_broker::{Outcome, Output};
use towpath_log::disk::Disk;
use towpath_log::{LogError, Run};
use towpath_model::mutant::{self, Mutant};
use towpath_model::{BrokerId, Now, Offset, Time, TopicPartition};
use towpath_replication::{
    AnswerKind, EpochHistory, EpochStart, Producers, ReplicaAnswer, ReplicaPosition, ReplicaStep,
};

use crate::cell::{Cell, Slot};
use crate::driver::Driver;
use crate::recover::{encode_producers, producers_at_risk, read_producers};
use crate::world::{Clock, Net};

/// Positions by the leader that they are for.
pub(crate) type Positions = BTreeMap<BrokerId, Vec<(TopicPartition, ReplicaPosition)>>;

/// How often some of the positions are told again, in case a message was lost.
const REPEAT_EVERY: Duration = Duration::from_millis(500);
/// How many of them each time.
const REPEATED_MAX: usize = 1_000;
/// Most positions in one message.
const POSITIONS_MAX: usize = 10_000;

/// Whose positions are told again next.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    at: Option<Time>,
    after: Option<TopicPartition>,
}

/// What came of an answer.
enum Took {
    /// Nothing to say.
    Nothing,
    /// The position has changed: it is told at once.
    Ask,
}

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// Answers of a leader, with records.
    pub fn receive_records(&self, from: BrokerId, answers: Vec<Fed>) {
        let mut positions = Vec::new();
        // What came together becomes durable together, and waits for no other directory.
        let mut round = None;
        for fed in answers {
            let Some(cell) = self.cell(fed.partition) else { continue };
            let Some(mut checked) = self.checked(&cell, &fed) else { continue };
            self.order_rounds(round.take_if(|volume| *volume != cell.volume));
            let (position, wants_round) = self.step_without_round(&cell, |slot, now, out| {
                let is_leader = |slot: &Slot<D>| {
                    slot.partition.replica().is_some_and(|replica| replica.leader() == Some(from))
                };
                if slot.closed || slot.failed || !is_leader(slot) {
                    return None;
                }
                let took = self.take_answer(&cell, slot, now, &mut checked, out);
                self.want_start(&cell, slot);
                let replica = slot.partition.replica()?;
                let mut position = replica.position();
                if mutant::is_on(Mutant::DurableToldEarly) {
                    position.durable_offset = position.from;
                }
                matches!(took, Took::Ask).then_some(position)
            });
            round = round.or(wants_round.then_some(cell.volume));
            let Some(position) = position else { continue };
            if self.may_ask_for_more(fed.partition, from, fed.batches.len()) {
                positions.push((fed.partition, position));
            }
        }
        self.order_rounds(round);
        self.tell_positions(Positions::from([(from, positions)]));
    }

    fn take_answer(
        &self,
        cell: &Arc<Cell<D>>,
        slot: &mut Slot<D>,
        now: Now,
        checked: &mut Checked,
        out: &mut Vec<Output>,
    ) -> Took {
        let Checked { answer, run, producers, producers_max } = checked;
        let most = *producers_max;
        let replica = slot.partition.replica().expect("asked by the caller");
        let took = match replica.judge(answer) {
            ReplicaStep::Ignore | ReplicaStep::Wait => return Took::Nothing,
            ReplicaStep::Append => {
                let (AnswerKind::Batches { epochs }, Some(run)) = (&answer.kind, run) else {
                    return Took::Nothing;
                };
                self.append_run(cell, slot, now, run, epochs).map(|()| {
                    let ReplicaAnswer { high_watermark, log_start_offset, .. } = *answer;
                    slot.partition.leader_told(high_watermark, log_start_offset, out);
                    Took::Ask
                })
            }
            ReplicaStep::Told => {
                slot.partition.leader_told(answer.high_watermark, answer.log_start_offset, out);
                Ok(Took::Nothing)
            }
            ReplicaStep::TruncateTo(_) if mutant::is_on(Mutant::CutNotDone) => Ok(Took::Nothing),
            ReplicaStep::TruncateTo(to) => self.cut(cell, slot, (now, to), most),
            ReplicaStep::StartAt(to) => {
                let producers = producers.take().unwrap_or_else(|| Producers::new(most));
                self.start_at(cell, slot, to, producers, out)
            }
            ReplicaStep::Contradiction(contradiction) => {
                tracing::error!(topic = %cell.topic, partition = %cell.id.partition, %contradiction,
                    "this replica does not follow its leader");
                Ok(Took::Nothing)
            }
        };
        took.unwrap_or_else(|error: LogError| {
            if error.is_disk_full() {
                // A round that was under way may be void.
                self.want_sync(cell, slot);
            }
            if slot.retry_at.is_none_or(|at| at <= now.time) {
                tracing::error!(topic = %cell.topic, partition = %cell.id.partition, %error,
                    "records of the leader cannot be written");
                slot.retry_at = Some(now.time + Duration::from_secs(1));
            }
            Took::Nothing
        })
    }

    /// Looks at the batches of an answer, or at its producers, with no lock held. `None`: they are not
    /// what they should be, and the position will be told again.
    fn checked(&self, cell: &Cell<D>, fed: &Fed) -> Option<Checked> {
        let Fed { answer, batches, .. } = fed;
        let mut checked =
            Checked { answer: answer.clone(), run: None, producers: None, producers_max: 0 };
        let refused = |error: &dyn std::fmt::Display| {
            tracing::warn!(topic = %cell.topic, partition = %cell.id.partition, %error,
                "records of the leader are refused");
        };
        match &answer.kind {
            AnswerKind::Batches { epochs } => {
                let starts: Vec<_> =
                    epochs.iter().map(|start| (start.epoch, start.start)).collect();
                let ReplicaAnswer { from, last_epoch, leader_epoch, .. } = *answer;
                let run = Run::check(batches.clone(), from, last_epoch, leader_epoch, &starts);
                checked.run = Some(run.inspect_err(|error| refused(error)).ok()?);
            }
            AnswerKind::BeginAnew { producers, .. } => {
                checked.producers_max = self.producers_max();
                let (now, most) = (self.clock.now(), checked.producers_max);
                let producers = Producers::decode(producers, now, most);
                checked.producers = Some(producers.inspect_err(|error| refused(error)).ok()?);
            }
            AnswerKind::Diverging { .. } => checked.producers_max = self.producers_max(),
            _ => {}
        }
        Some(checked)
    }

    fn append_run(
        &self,
        cell: &Arc<Cell<D>>,
        slot: &mut Slot<D>,
        now: Now,
        run: &mut Run,
        epochs: &[EpochStart],
    ) -> Result<(), LogError> {
        let starts: Vec<_> = epochs.iter().map(|start| (start.epoch, start.start)).collect();
        let volume = self.volume(cell.volume);
        let appended = loop {
            match volume.write(|| slot.log.append_run(run, &starts, now)) {
                Ok([]) => break Ok(()),
                Ok(headers) => {
                    for header in headers {
                        slot.partition.replicated(now, header, epochs);
                    }
                }
                Err(error) => break Err(error),
            }
        };
        // Part of it may have been written.
        self.want_sync(cell, slot);
        appended
    }

    fn cut(
        &self,
        cell: &Arc<Cell<D>>,
        slot: &mut Slot<D>,
        (now, to): (Now, Offset),
        producers_max: usize,
    ) -> Result<Took, LogError> {
        let end = slot.log.log_end_offset();
        slot.log.truncate_to(to)?;
        let end_now = slot.log.log_end_offset();
        slot.forget_folded_beyond(end_now);
        tracing::info!(topic = %cell.topic, partition = %cell.id.partition, from = %end, to = %end_now,
            "records that were never committed are cut off");
        // The log is cut and the core does not know yet: what cannot be read now ends the replica.
        let producers =
            producers_of_log(cell, slot, now, producers_max).inspect_err(|_| slot.failed = true)?;
        slot.partition.truncated(end_now, producers);
        self.want_sync(cell, slot);
        Ok(Took::Ask)
    }

    /// Drops everything and begins where the leader's log does. Where that fails half way the log is
    /// neither as the core knows it nor empty: nobody reads it any more.
    fn start_at(
        &self,
        cell: &Arc<Cell<D>>,
        slot: &mut Slot<D>,
        to: Offset,
        producers: Producers,
        out: &mut Vec<Output>,
    ) -> Result<Took, LogError> {
        let known = encode_producers(&producers, &EpochHistory::new());
        slot.followed = None;
        let begun = slot.log.begin_at(to, Some(&known));
        if begun.is_err() && self.has_failed(cell, slot) {
            slot.closed = true;
            slot.partition.resign(Outcome::StorageFailed, out);
        }
        begun?;
        slot.partition.started_at(to, producers);
        Ok(Took::Ask)
    }

    /// Never asked under a partition's lock: whoever publishes metadata holds it and takes those.
    fn producers_max(&self) -> usize {
        self.image().broker_config().producers_per_partition_max
    }

    /// Tells leaders where this broker's logs end.
    pub(crate) fn tell_positions(&self, positions: Positions) {
        let Some(broker_epoch) = self.my_epoch() else { return };
        for (leader, positions) in positions {
            for positions in positions.chunks(POSITIONS_MAX) {
                let positions = positions.to_vec();
                self.net.send(leader, PeerMessage::Positions { broker_epoch, positions });
            }
        }
    }

    /// Tells leaders what has become durable here.
    pub(crate) fn tell_durable(&self, positions: Positions) {
        let Some(broker_epoch) = self.my_epoch() else { return };
        for (leader, positions) in positions {
            for positions in positions.chunks(POSITIONS_MAX) {
                let positions = positions.to_vec();
                self.net.send(leader, PeerMessage::Durable { broker_epoch, positions });
            }
        }
    }

    /// There is a connection to this broker again: whatever it leads, it is asked for.
    pub(crate) fn peer_is_back(&self, leader: BrokerId) {
        let cells = self.cells();
        let positions = cells.iter().filter_map(|cell| self.position_for(cell, Some(leader)));
        let positions: Vec<_> = positions.map(|(_, id, position)| (id, position)).collect();
        self.tell_positions(Positions::from([(leader, positions)]));
    }

    /// Whom a followed partition asks, and with which position; only `leader`, if one is named.
    pub(super) fn position_for(
        &self,
        cell: &Arc<Cell<D>>,
        leader: Option<BrokerId>,
    ) -> Option<(BrokerId, TopicPartition, ReplicaPosition)> {
        if cell.led.load(std::sync::atomic::Ordering::Relaxed) {
            return None;
        }
        let slot = self.lock_in_time(cell)?;
        if slot.closed || slot.failed {
            return None;
        }
        let replica = slot.partition.replica()?;
        let asked =
            replica.leader().filter(|asked| leader.is_none_or(|leader| leader == *asked))?;
        Some((asked, cell.id, replica.position()))
    }

    /// Tells some of the positions again, in turn: whatever was lost on the way is made up for.
    pub(super) fn repeat_positions(&self, now: Time) {
        let after = {
            let mut rounds = self.rounds.lock().expect("no panic holds the rounds");
            if rounds.at.is_some_and(|at| now < at) {
                return;
            }
            rounds.at = Some(now + REPEAT_EVERY);
            if mutant::is_on(Mutant::PositionToldOnce) {
                return;
            }
            rounds.after.take()
        };
        let cells: Vec<Arc<Cell<D>>> = {
            let cells = self.cells.read().expect("no panic holds the map");
            let from = after.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
            let range = cells.range((from, std::ops::Bound::Unbounded));
            range.take(REPEATED_MAX).map(|(_, cell)| Arc::clone(cell)).collect()
        };
        if cells.len() == REPEATED_MAX {
            let mut rounds = self.rounds.lock().expect("no panic holds the rounds");
            rounds.after = cells.last().map(|cell| cell.id);
        }
        let mut positions = Positions::new();
        let told = cells.iter().filter(|cell| !self.is_held_up(cell.id));
        for (leader, id, position) in told.filter_map(|cell| self.position_for(cell, None)) {
            positions.entry(leader).or_default().push((id, position));
        }
        self.tell_positions(positions);
    }

    /// A partition's start is to follow where others have deleted records: the next round sees to it,
    /// for it waits for the disk.
    pub(crate) fn want_start(&self, cell: &Arc<Cell<D>>, slot: &mut Slot<D>) {
        let is_wanted = slot.partition.wanted_log_start().is_some() && !slot.closed && !slot.failed;
        if is_wanted && !std::mem::replace(&mut slot.awaits_start, true) {
            let due = &self.volume(cell.volume).starts_due;
            due.lock().expect("no panic holds the list").push(Arc::clone(cell));
            self.clock.sync_wanted(cell.volume);
        }
    }

    /// Moves the start of logs to where those of their leaders are, or of followers that have followed
    /// an earlier leader further; and tells the leaders.
    pub(crate) fn follow_log_starts(&self, cells: &[Arc<Cell<D>>]) {
        let positions = Mutex::default();
        for cell in cells {
            let begun = {
                let mut slot = cell.lock();
                slot.awaits_start = false;
                if slot.closed || slot.failed {
                    continue;
                }
                let wanted = slot.partition.wanted_log_start();
                let wanted = wanted.filter(|_| !mutant::is_on(Mutant::LogStartNotFollowed));
                let Some(start) = wanted else { continue };
                slot.log.begin_start_move(start, producers_at_risk(&slot, start))
            };
            let moved = match begun {
                Ok(Some(moved)) => self.move_start(cell, moved).result,
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
            if let Err(error) = moved {
                tracing::warn!(topic = %cell.topic, partition = %cell.id.partition, %error,
                    "records that others have deleted cannot be deleted here");
            }
            collect(&cell.lock(), cell.id, &positions);
        }
        self.tell_durable(positions.into_inner().expect("no panic holds a list of positions"));
    }
}

/// An answer whose batches, or producers, are what they should be.
struct Checked {
    answer: ReplicaAnswer,
    run: Option<Run>,
    producers: Option<Producers>,
    /// Most producers that the partition remembers, where the answer may make the replica read them anew.
    producers_max: usize,
}

/// Positions that a list of partitions would tell; nothing for those that lead.
pub(crate) fn collect<D: Disk>(slot: &Slot<D>, id: TopicPartition, positions: &Mutex<Positions>) {
    let Some(replica) = slot.partition.replica() else { return };
    if let Some(leader) = replica.leader() {
        let mut positions = positions.lock().expect("no panic holds a list of positions");
        positions.entry(leader).or_default().push((id, replica.position()));
    }
}

/// What is left of a log that was cut says of its producers.
fn producers_of_log<D: Disk>(
    cell: &Cell<D>,
    slot: &Slot<D>,
    now: Now,
    most: usize,
) -> Result<Producers, LogError> {
    let latest = slot.partition.leader_epoch();
    read_producers(cell.id, latest, most, &slot.log, now).map(|(producers, _)| producers)
}
