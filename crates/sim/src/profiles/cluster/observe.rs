//! What a broker shows after each call, compared with what is known.

use std::path::PathBuf;

use towpath_driver::{Delivery, Outcome};
use towpath_log::{DataDirectory, Identity, LogConfig, LogPlace};
use towpath_metadata::PartitionState;
use towpath_model::{BrokerId, LeaderEpoch, Offset, TopicName, TopicPartition};
use towpath_records::BatchHeader;

use super::node::ROOT;
use super::world::{Waiting, World};
use crate::disk::SimDisk;
use crate::profile::{Violation, ensure};

/// What a process shows of one replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct View {
    /// In which epoch it leads, if it does.
    pub(super) leads: Option<LeaderEpoch>,
    /// The newest leadership that it knows.
    pub(super) epoch: LeaderEpoch,
    pub(super) start: Offset,
    pub(super) high_watermark: Offset,
    pub(super) durable: Offset,
    pub(super) end: Offset,
    /// Whether readers are told the high watermark as the end.
    pub(super) is_certain: bool,
    /// The metadata's number of the state that it acts on.
    pub(super) partition_epoch: i32,
}

/// Of a hundred moves of a high watermark, how many have the disks looked at.
const LOOKED_AT_PERCENT: u64 = 3;
/// The same, where it is the affair of another profile.
const LOOKED_AT_RARELY: u64 = 1;

impl World {
    /// Looks at everything a process shows.
    pub(super) fn observe(&mut self, id: BrokerId) -> Result<(), Violation> {
        let Some(process) = &self.nodes[&id].process else { return Ok(()) };
        let driver = std::sync::Arc::clone(&process.driver);
        let applied = driver.metadata_applied();
        if process.applied != Some(applied) {
            let image = driver.image();
            self.truth.seen(id, applied, &image, &mut self.events)?;
            let mine = image.broker(id).filter(|me| me.incarnation == self.nodes[&id].incarnation);
            let registered = mine.map(|me| me.epoch);
            drop(image);
            let process = self.node(id).process.as_mut().expect("looked up above");
            process.applied = Some(applied);
            process.registered = registered;
            if registered.is_some() {
                self.blank.remove(&id);
            }
        }
        let registered = self.nodes[&id].process.as_ref().and_then(|process| process.registered);
        for partition in self.truth.logs().iter().copied() {
            let view = driver.with_replica(partition, |replica, log| View {
                leads: replica.is_led().then(|| replica.leader_epoch()),
                epoch: replica.leader_epoch(),
                start: replica.log_start_offset(),
                high_watermark: replica.high_watermark(),
                durable: log.durable_offset(),
                end: replica.log_end_offset(),
                is_certain: replica.leader().is_some_and(|l| l.is_high_watermark_certain()),
                partition_epoch: replica.leader().map_or(0, |leader| leader.partition_epoch()),
            });
            let before = self.views.get(&(id, partition)).copied();
            if view == before {
                continue;
            }
            let Some(view) = view else {
                self.views.remove(&(id, partition));
                continue;
            };
            self.views.insert((id, partition), view);
            ensure!(
                registered.is_some(),
                "INV-R11",
                "broker {id} has {partition} open, and the metadata does not know its process"
            );
            self.replica_moved(id, partition, before, view)?;
            if self.truth.is_queue(partition.topic) {
                self.compare_pair(id, partition)?;
            }
        }
        // Who has not heard yet that a topic was deleted goes on with it, and nobody looks any more.
        let newest = self.truth.applied;
        let process = self.node(id).process.as_mut().expect("looked up above");
        if process.tidied.replace(newest) != Some(newest) {
            let topics = &self.truth.topics;
            self.views.retain(|(node, of), _| *node != id || topics.contains(&of.topic));
        }
        Ok(())
    }

    fn replica_moved(
        &mut self,
        id: BrokerId,
        partition: TopicPartition,
        before: Option<View>,
        view: View,
    ) -> Result<(), Violation> {
        let numbers = [
            id.0 as u64,
            partition.partition.0 as u64,
            view.leads.map_or(0, |epoch| epoch.0 as u64 + 1),
            view.high_watermark.0 as u64,
            view.end.0 as u64,
        ];
        self.trace.event("replica", &numbers);
        self.trace.remark(|| format!("{id}: {partition} {view:?}"));
        ensure!(
            view.start <= view.high_watermark && view.high_watermark <= view.end,
            "INV-T7",
            "{partition} at broker {id}: lines out of order: {view:?}"
        );
        if let Some(before) = before {
            ensure!(
                before.high_watermark <= view.high_watermark,
                "INV-R4",
                "{partition} at broker {id}: the high watermark went back: {before:?}, {view:?}"
            );
            ensure!(
                before.epoch <= view.epoch,
                "INV-R7",
                "{partition} at broker {id}: the leader epoch went back: {before:?}, {view:?}"
            );
            ensure!(
                before.start <= view.start,
                "INV-T7",
                "{partition} at broker {id}: the log start went back: {before:?}, {view:?}"
            );
            if view.end < before.end {
                self.events.note("cluster: log cut to where it agrees");
            }
            if before.end < view.start {
                self.events.note("cluster: replica began anew");
            }
            if before.leads.is_some() && before.leads != view.leads {
                let newest = self.truth.newest(partition).map(|state| state.leader_epoch);
                if newest.is_some_and(|newest| before.leads < Some(newest)) {
                    self.events.note("cluster: old leader fenced");
                }
            }
        }
        if let Some(last) = before
            && last.leads.is_some()
            && last.leads != view.leads
            && last.high_watermark < view.high_watermark
        {
            // In one step it has learnt that fewer are in sync, and that it leads no more.
            let leads = last.leads;
            let as_leader = View { leads, is_certain: false, partition_epoch: 0, ..view };
            self.leader_moved(id, partition, before, as_leader)?;
        }
        if let Some(epoch) = view.leads {
            if before.and_then(|before| before.leads) != Some(epoch) {
                self.begins_to_lead(id, partition, epoch)?;
            }
            self.leader_moved(id, partition, before, view)?;
        } else {
            let committed = self.books.get(&partition).map_or(Offset(0), |book| book.end);
            ensure!(
                view.high_watermark <= committed,
                "INV-R3",
                "{partition}: follower {id} has the high watermark {}, committed is {committed}",
                view.high_watermark
            );
        }
        Ok(())
    }

    /// Whoever is elected has everything that was committed before (INV-R5), and is the only one (R6).
    fn begins_to_lead(
        &mut self,
        id: BrokerId,
        partition: TopicPartition,
        epoch: LeaderEpoch,
    ) -> Result<(), Violation> {
        let book = self.books.entry(partition).or_default();
        book.led(partition, epoch, id)?;
        let elected = self.truth.newest(partition).map(|state| (state.leader, state.leader_epoch));
        ensure!(
            elected.is_some_and(|(leader, of)| epoch < of || (of == epoch && leader == Some(id))),
            "INV-R6",
            "{partition}: broker {id} leads in epoch {epoch}, and {elected:?} was elected"
        );
        let (from, end) = (self.books[&partition].start, self.books[&partition].end);
        let here = self.headers(id, partition, from, end)?;
        let book = &self.books[&partition];
        book.compare(here.0, end, &here.1, |committed| committed.in_epoch < epoch).map_err(
            |difference| {
                Violation::new("INV-R5", format!("{partition}: new leader {id}: {difference}"))
            },
        )
    }

    /// Where a replica's log starts, and the headers of its batches from `from` to `end`.
    pub(super) fn headers(
        &self,
        id: BrokerId,
        partition: TopicPartition,
        from: Offset,
        end: Offset,
    ) -> Result<(Offset, Vec<BatchHeader>), Violation> {
        let Some(process) = &self.nodes[&id].process else { return Ok((end, Vec::new())) };
        let read = process.driver.with_replica(partition, |_, log| {
            let start = log.log_start_offset();
            let all: Result<Vec<BatchHeader>, _> =
                log.batches(from.max(start), end).map(|read| read.map(|(h, _)| h)).collect();
            (start.max(from), all)
        });
        let Some((start, all)) = read else { return Ok((end, Vec::new())) };
        let all = all.map_err(|error| {
            Violation::new("INV-R1", format!("{partition} at broker {id} cannot be read: {error}"))
        })?;
        Ok((start, all))
    }

    /// A leader's lines have moved: what its high watermark passes is committed.
    fn leader_moved(
        &mut self,
        id: BrokerId,
        partition: TopicPartition,
        before: Option<View>,
        view: View,
    ) -> Result<(), Violation> {
        let epoch = view.leads.expect("asked by the caller");
        let committed = self.books.entry(partition).or_default().end;
        // A process that begins to lead knows of nothing that is committed before it is told.
        let known = before.filter(|before| before.leads == view.leads);
        let known = known.map_or(view.start, |before| before.high_watermark);
        let high_watermark = view.high_watermark;
        if known < high_watermark {
            let to = high_watermark;
            let (start, here) = self.headers(id, partition, known, to)?;
            let book = self.books.get_mut(&partition).expect("made above");
            let agreed = to.min(committed);
            book.compare(start, agreed, &here, |_| true).map_err(|difference| {
                Violation::new("INV-R3", format!("{partition}: leader {id}: {difference}"))
            })?;
            for header in
                here.iter().filter(|h| committed <= h.base_offset() && h.base_offset() < to)
            {
                book.commit(partition, epoch, header)?;
            }
            ensure!(
                to <= book.end,
                "INV-R3",
                "{partition}: leader {id} has the high watermark {to}, its log goes to {}",
                book.end
            );
        }
        let book = self.books.get_mut(&partition).expect("made above");
        book.start = book.start.max(view.start);
        // Queues let go of what nobody needs by themselves.
        ensure!(
            book.start <= book.start_asked || self.swarm.work.is_some(),
            "INV-T5",
            "{partition}: leader {id} starts at {}, nobody asked for more than {}",
            book.start,
            book.start_asked
        );
        book.shown(partition, epoch, high_watermark, view.is_certain)?;
        if committed < high_watermark {
            self.committed_more(id, partition, before, view)?;
        }
        Ok(())
    }

    /// Whoever may lead next has what is committed now (INV-R9, R10).
    fn committed_more(
        &mut self,
        id: BrokerId,
        partition: TopicPartition,
        before: Option<View>,
        view: View,
    ) -> Result<(), Violation> {
        let end = self.books[&partition].end;
        let Some(state) = self.truth.newest(partition).cloned() else { return Ok(()) };
        let is_same = before.is_some_and(|before| before.partition_epoch == view.partition_epoch);
        if is_same && view.partition_epoch == state.partition_epoch {
            let min = self.catalog.min_in_sync(partition.topic, &state);
            let min =
                min.map(|min| self.min_known_to(id, partition, &state).unwrap_or(min).min(min));
            ensure!(
                min.is_none_or(|min| min <= state.in_sync.len()),
                "INV-R9",
                "{partition}: committed up to {end} with {:?} in sync, {min:?} are asked for",
                state.in_sync
            );
        }
        for member in state.in_sync.iter().chain(&state.eligible) {
            if self.blank.contains(member) {
                continue;
            }
            if let Some(shown) = self.views.get(&(*member, partition)) {
                ensure!(
                    end <= shown.durable,
                    "INV-R9",
                    "{partition}: {id} commits up to {end}; {member} counts and shows {shown:?}"
                );
            }
        }
        let often = if self.swarm.work.is_some() { LOOKED_AT_RARELY } else { LOOKED_AT_PERCENT };
        if self.chance.percent(often) {
            let members: Vec<BrokerId> =
                state.in_sync.iter().chain(&state.eligible).copied().collect();
            let member = members[self.chance.index(members.len())];
            self.look_at_disk(member, partition, &state)?;
        }
        Ok(())
    }

    /// The fewest that must be in sync as a broker knows it that lacks metadata: a number that was raised
    /// since comes to it before any change of the in-sync set that rests on it.
    fn min_known_to(
        &self,
        id: BrokerId,
        partition: TopicPartition,
        state: &PartitionState,
    ) -> Option<usize> {
        let process = self.nodes[&id].process.as_ref()?;
        if process.applied == Some(self.truth.applied) {
            return None;
        }
        let image = process.driver.image();
        let topic = image.topic_by_id(partition.topic)?;
        Some(image.min_in_sync(topic, state))
    }

    /// Cuts the power of a copy of a member's machine: what is committed is truly on its disk.
    pub(super) fn look_at_disk(
        &mut self,
        member: BrokerId,
        partition: TopicPartition,
        state: &PartitionState,
    ) -> Result<(), Violation> {
        let counts = state.in_sync.contains(&member) || state.eligible.contains(&member);
        let Some(name) = self.catalog.name_of(partition.topic) else { return Ok(()) };
        if !counts || self.blank.contains(&member) || self.nodes[&member].has_sync_failed() {
            return Ok(());
        }
        let copy = self.nodes[&member].disk.fork(self.chance.draw());
        copy.lose_power();
        let found = self.headers_on(&copy, partition, name)?;
        let book = self.books.entry(partition).or_default();
        let Some((start, headers)) = found else {
            ensure!(
                book.end == Offset(0),
                "INV-R9",
                "{partition}: {} is committed, and the disk of member {member} has no log",
                book.end
            );
            return Ok(());
        };
        self.events.note("cluster: promises found on a disk without power");
        let from = start.max(book.start);
        book.compare(from, book.end, &headers, |_| true).map_err(|difference| {
            Violation::new("INV-R9", format!("{partition}: the disk of {member}: {difference}"))
        })
    }

    /// The headers of a log on a disk that nobody uses.
    fn headers_on(
        &self,
        disk: &SimDisk,
        partition: TopicPartition,
        name: TopicName,
    ) -> Result<Option<(Offset, Vec<BatchHeader>)>, Violation> {
        let failed = |what: String| Violation::new("INV-R9", format!("{partition}: {what}"));
        disk.crash_never();
        disk.set_capacity(None);
        disk.restart();
        let identity = || Identity {
            cluster_id: "nobody".to_owned(),
            node_id: BrokerId(0),
            directory_id: towpath_model::Uuid::from_random_bytes([9; 16]),
        };
        let root = PathBuf::from(ROOT);
        let limits = self.swarm.limits;
        let opened = DataDirectory::open_with(disk.clone(), &root, identity, "later", limits);
        let (directory, _) = opened.map_err(|error| failed(error.to_string()))?;
        let on_disk = directory.logs_on_disk().map_err(|error| failed(error.to_string()))?;
        let is_it = |found: &towpath_log::FoundLog| {
            (found.topic, found.partition) == (partition.topic, partition.partition)
        };
        if !on_disk.iter().any(is_it) {
            return Ok(None);
        }
        let TopicPartition { topic, partition: index } = partition;
        let place = LogPlace::Partition { topic, name, partition: index };
        let config = LogConfig { segment_bytes: self.swarm.segment_bytes, ..LogConfig::default() };
        let (log, _) =
            directory.open_log(place, config).map_err(|error| failed(error.to_string()))?;
        let all: Result<Vec<BatchHeader>, _> = log
            .batches(log.log_start_offset(), log.log_end_offset())
            .map(|read| read.map(|(header, _)| header))
            .collect();
        let all = all.map_err(|error| failed(error.to_string()))?;
        Ok(Some((log.log_start_offset(), all)))
    }

    /// An answer leaves a broker.
    pub(super) fn answered(
        &mut self,
        id: BrokerId,
        token: towpath_model::Token,
        delivery: &Delivery,
    ) -> Result<(), Violation> {
        match self.waits.get(&(id, token)) {
            Some(Waiting::Produce(frame)) => {
                let frame = frame.clone();
                self.acknowledgement_leaves(id, &frame, delivery)
            }
            Some(Waiting::Admin { change }) => {
                let change = *change;
                let driver = std::sync::Arc::clone(
                    &self.nodes[&id].process.as_ref().expect("it has just said so").driver,
                );
                let term = self.only_controller();
                self.catalog.answer_leaves(change, delivery, &driver.image(), term)
            }
            Some(Waiting::Offset { partition, place }) => {
                let (partition, place) = (*partition, *place);
                self.offset_leaves(id, partition, place, delivery)
            }
            Some(Waiting::Deletion { partition, start })
                if matches!(delivery, Delivery::Wait(Outcome::Reached)) =>
            {
                let (partition, start) = (*partition, *start);
                self.deletion_answered(id, partition, start)
            }
            Some(Waiting::Work(waiter)) => {
                let waiter = waiter.clone();
                self.work_leaves(id, &waiter, delivery)
            }
            Some(Waiting::Delivery { log, end }) if matches!(delivery, Delivery::Deliveries(_)) => {
                let (log, end) = (*log, *end);
                self.delivery_leaves(id, log, end)
            }
            _ => Ok(()),
        }
    }
}
