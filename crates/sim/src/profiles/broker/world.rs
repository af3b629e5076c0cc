//! Everything of one run: the machine, the clients, what they wait for, and what they were promised.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use towpath_driver::Delivery;
use towpath_metadata as metadata;
use towpath_model::{Offset, ProducerId, Token, TopicId, TopicPartition};
use towpath_records::BatchHeader;
use towpath_replication::Acks;

use super::catalog::{Catalog, TopicModel};
use super::compacted::Compacted;
use super::consumers::Consumer;
use super::machine::Machine;
use super::network::{Frame, Network};
use super::partitions::{Expiry, PartitionModel};
use super::producers::Producer;
use super::publishers::{Caller, Flow, WEB};
use super::swarm::{Op, Swarm, draw_pause};
use crate::events::Events;
use crate::profile::{Violation, ensure};
use crate::rng::Rng;
use crate::steps::Parted;
use crate::trace::Trace;

/// Who waits for an answer, and what it is about.
#[derive(Debug, Clone)]
pub(super) enum Waiting {
    Produce {
        producer: usize,
        target: TopicPartition,
        header: BatchHeader,
        base: Offset,
        /// The topic was surely synced when the batch was appended.
        is_synced: bool,
    },
    ProducerId {
        producer: usize,
    },
    Poll {
        consumer: usize,
        target: TopicPartition,
        offset: Offset,
    },
    Admin {
        name: String,
    },
    Nonsense,
    Flow {
        flow: u64,
    },
}

pub(super) struct World {
    pub(super) rng: Rng,
    pub(super) machine: Machine,
    pub(super) events: Events,
    pub(super) swarm: Swarm,
    pub(super) catalog: Catalog,
    pub(super) partitions: BTreeMap<TopicPartition, PartitionModel>,
    pub(super) waits: BTreeMap<Token, Waiting>,
    pub(super) network: Network,
    pub(super) producers: Vec<Producer>,
    pub(super) consumers: Vec<Consumer>,
    pub(super) callers: Vec<Caller>,
    pub(super) flows: BTreeMap<u64, Flow>,
    pub(super) flows_begun: u64,
    /// Every producer id that was given out.
    pub(super) producer_ids: BTreeSet<ProducerId>,
    /// The disk has little room.
    pub(super) is_full: bool,
    /// It has had little room in this life.
    pub(super) was_full: bool,
    /// The broker may still think that it has: it has not looked since there is room.
    pub(super) may_lack_room: bool,
    /// Clients only finish what they have begun.
    pub(super) is_draining: bool,
}

impl Parted for World {
    fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    fn trace(&self) -> &Trace {
        &self.machine.trace
    }
}

impl World {
    pub(super) fn new(seed: u64, trace: Trace) -> World {
        trace.begin_world();
        let mut rng = Rng::new(seed);
        let swarm = Swarm::draw(&mut rng);
        let property = |name: &str, value: String| (name.to_owned(), value);
        let statics = BTreeMap::from([
            property("log.segment.bytes", swarm.segment_bytes.to_string()),
            property("log.index.interval.bytes", "400".to_owned()),
            property("log.retention.check.interval.ms", "1000".to_owned()),
            // Longer than all pauses of a run together, shorter than a jump of the wall clock.
            property("producer.id.expiration.ms", "14400000".to_owned()),
            property("log.cleaner.backoff.ms", "0".to_owned()),
        ]);
        let machine = Machine::new(&mut rng, trace, swarm.limits, statics);
        let acks = [Acks::All, Acks::Leader, Acks::All, Acks::None];
        let mut network = Network::default();
        let producers = (0..swarm.producers)
            .map(|at| Producer::new(acks[at as usize % 4], network.open()))
            .collect();
        let callers = (0..swarm.callers).map(|at| Caller::new(format!("caller-{at}")));
        World {
            producers,
            consumers: (0..swarm.consumers).map(|_| Consumer::default()).collect(),
            callers: callers.collect(),
            machine,
            events: Events::new(),
            catalog: Catalog::default(),
            partitions: BTreeMap::new(),
            waits: BTreeMap::new(),
            network,
            flows: BTreeMap::new(),
            flows_begun: 0,
            producer_ids: BTreeSet::new(),
            is_full: false,
            was_full: false,
            may_lack_room: false,
            is_draining: false,
            rng,
            swarm,
        }
    }

    pub(super) fn into_events(mut self) -> Events {
        for compacted in self.partitions.values().filter_map(|model| model.compacted.as_ref()) {
            self.events.add("compaction: superseded record gone", compacted.superseded);
            self.events.add("compaction: tombstone gone", compacted.tombstones_gone);
        }
        let expired = self.partitions.values().map(|model| model.expired).sum();
        self.events.add("retention: log start moved", expired);
        self.events.merge(&self.machine.disk_events());
        self.events
    }

    /// One step of whoever's turn it is, and everything that follows from it at once.
    pub(super) fn step(&mut self, op: Op) -> Result<(), Violation> {
        self.machine.trace.event(op.name(), &[]);
        match op {
            Op::Produce => {
                let at = self.rng.index(self.producers.len());
                self.produce(at)?;
            }
            Op::Consume => {
                let at = self.rng.index(self.consumers.len());
                self.consume(at)?;
            }
            Op::Rewind => {
                let at = self.rng.index(self.consumers.len());
                self.rewind(at);
            }
            Op::Publish if self.callers.is_empty() => {}
            Op::Publish => {
                let at = self.rng.index(self.callers.len());
                self.call(at)?;
            }
            Op::Administer => self.administer()?,
            Op::DeleteRecords => self.delete_records()?,
            Op::BumpEpoch => {
                let at = self.rng.index(self.producers.len());
                self.bump_epoch(at);
            }
            Op::SyncRound if self.swarm.splits_rounds => self.machine.sync_a_part(&mut self.events),
            Op::SyncRound => {
                self.machine.sync_if_wanted();
            }
            Op::Carry => self.carry()?,
            Op::Pause => self.pause(),
            Op::Tick => self.machine.tick(),
            Op::Upkeep => {
                let had_deleted = self.has_deleted_files();
                self.machine.driver().upkeep();
                self.may_lack_room = self.is_full;
                if had_deleted && !self.machine.has_stopped() && !self.has_deleted_files() {
                    self.events.note("broker: deleted log removed");
                }
            }
            Op::Compact => {
                let turns = self.rng.between(1, 20);
                self.compaction_begins();
                let ended = self.machine.compact(turns);
                self.events.add("compaction: ended", ended);
            }
            Op::Scrub => self.scrub()?,
            Op::LetTimePass => {
                let pause = draw_pause(&mut self.rng);
                self.machine.advance(pause);
            }
            Op::JumpClock => self.machine.jump_wall(&mut self.rng),
            Op::FillDisk => {
                let spare = self.rng.between(0, 4_000);
                self.machine.fill_disk(spare);
                self.is_full = true;
                self.was_full = true;
                self.may_lack_room = true;
            }
            Op::FreeDisk => self.free_disk(),
            Op::FailSync => self.machine.disk.fail_sync_in(self.rng.between(1, 5)),
            Op::CutPowerOfACopy => self.cut_power_of_a_copy()?,
            Op::CheckEverything => self.check_everything()?,
        }
        self.settle()
    }

    pub(super) fn free_disk(&mut self) {
        self.machine.disk.set_capacity(None);
        self.is_full = false;
    }

    /// Delivers what was answered, and looks at every line.
    pub(super) fn settle(&mut self) -> Result<(), Violation> {
        self.deliver_all()?;
        if self.machine.has_stopped() {
            return Ok(());
        }
        self.machine.check_wishes()?;
        self.check_failure()?;
        self.observe_all()
    }

    /// A directory fails when a sync has. A full disk is only full: whatever it refuses works again
    /// when there is room (fault F6).
    fn check_failure(&mut self) -> Result<(), Violation> {
        let is_explained = !self.machine.driver().is_failed() || self.machine.has_sync_failed();
        ensure!(is_explained, "INV-F6", "the directory failed, and no sync has");
        Ok(())
    }

    fn deliver_all(&mut self) -> Result<(), Violation> {
        let mailbox = self.machine.process().mailbox;
        while !self.machine.has_stopped() {
            let Some((token, delivery)) = mailbox.take() else { return Ok(()) };
            let connection = match self.waits.get(&token) {
                // A part of the broker itself.
                Some(Waiting::Flow { .. }) => {
                    self.hear(token, delivery)?;
                    continue;
                }
                Some(Waiting::Produce { producer, .. }) => {
                    Some(self.producers[*producer].connection)
                }
                _ => None,
            };
            let is_slow = !self.is_draining && self.rng.percent(self.swarm.weather.delays_answers);
            if is_slow || self.network.holds(connection) {
                self.network.hold(connection, token, delivery);
            } else {
                self.hear(token, delivery)?;
            }
        }
        Ok(())
    }

    /// An answer reaches whoever waits for it.
    pub(super) fn hear(&mut self, token: Token, delivery: Delivery) -> Result<(), Violation> {
        // Who gave up has no wait any more.
        let Some(waiting) = self.waits.remove(&token) else { return Ok(()) };
        self.machine.trace.event("delivered", &[token.0]);
        self.machine.trace.remark(|| format!("{waiting:?} is answered by {delivery:?}"));
        self.deliver(token, waiting, delivery)
    }

    /// The process is stopped (SIGSTOP, a hypervisor that takes its time) while clients wait, lose
    /// patience and connect anew; then it goes on as if nothing had been.
    /// Nothing damages this disk: whatever a scrub finds fault with was written wrong.
    fn scrub(&mut self) -> Result<(), Violation> {
        let before = self.machine.driver().scrubbed_so_far();
        let turns = self.rng.between(1, 30);
        let after = self.machine.scrub(turns);
        ensure!(after.damaged_ranges == 0, "INV-D1", "a scrub finds damage: {after:?}");
        // A full disk may take a part of an index, and a failed sync lose one.
        let fills = self.swarm.ops.iter().any(|(_, op)| matches!(op, Op::FillDisk));
        let has_lost = 0 < self.machine.disk.events().count("disk: sync failed");
        let is_right = fills || has_lost || after.rebuilt_indexes == 0;
        ensure!(is_right, "INV-D1", "a scrub finds a wrong index: {after:?}");
        self.events.add("broker: segment scrubbed", after.segments - before.segments);
        self.events.add("broker: scrub passed over everything", after.passes - before.passes);
        Ok(())
    }

    fn pause(&mut self) {
        self.events.note("life: paused");
        let pause = self.rng.between(1, 60);
        self.machine.advance(Duration::from_secs(pause));
        for at in 0..self.producers.len() {
            if self.rng.percent(70) {
                self.disconnect_producer(at);
            }
        }
    }

    fn deliver(
        &mut self,
        token: Token,
        waiting: Waiting,
        delivery: Delivery,
    ) -> Result<(), Violation> {
        match waiting {
            Waiting::Produce { .. } => match delivery {
                Delivery::Wait(outcome) => self.produce_answered(token, &waiting, outcome),
                other => Err(Violation::new("INV-R2", format!("{waiting:?} got {other:?}"))),
            },
            Waiting::ProducerId { producer } => self.producer_id_answered(producer, &delivery),
            Waiting::Poll { consumer, offset, .. } => self.woken(consumer, offset, &delivery),
            Waiting::Admin { name } => self.admin_answered(&name, &delivery),
            Waiting::Nonsense => self.nonsense_answered(&delivery),
            Waiting::Flow { flow } => self.flow_goes_on(flow, delivery),
        }
    }

    /// Asks the metadata; says whether there will be an answer.
    pub(super) fn ask_metadata(&mut self, waiting: Waiting, request: metadata::Request) -> bool {
        let token = self.machine.token();
        self.waits.insert(token, waiting);
        let asked = self.machine.driver().ask_metadata(token, request).is_ok();
        if !asked {
            self.waits.remove(&token);
        }
        asked
    }

    pub(super) fn drop_waits(&mut self, is_dropped: impl Fn(&Waiting) -> bool) {
        self.waits.retain(|_, waiting| !is_dropped(waiting));
    }

    /// The process is gone, and with it everything that was not answered.
    pub(super) fn disconnect_all(&mut self) {
        self.waits.clear();
        self.flows.clear();
        let partitions = &self.partitions;
        let is_answered = |frame: &Frame| {
            let model = partitions.get(&frame.target);
            model.is_some_and(|model| model.history.is_acknowledged(&frame.header))
        };
        self.network.process_ended(&mut self.rng, is_answered);
        for at in 0..self.producers.len() {
            self.producers[at].connection = self.network.open();
        }
        self.producers.iter_mut().for_each(Producer::disconnect);
        self.callers.iter_mut().for_each(Caller::disconnect);
        self.consumers.iter_mut().for_each(Consumer::disconnect);
        self.was_full = self.is_full;
        self.may_lack_room = self.is_full;
    }

    /// Some partition of some topic that comes and goes.
    pub(super) fn random_stream_partition(&mut self) -> Option<TopicPartition> {
        let streams =
            self.catalog.topics().filter(|(name, topic)| *name != WEB && !topic.is_internal);
        let all: Vec<TopicPartition> = streams.flat_map(|(_, topic)| topic.ids()).collect();
        (!all.is_empty()).then(|| all[self.rng.index(all.len())])
    }

    /// When the log start may move now, and how far.
    pub(super) fn expiry(&self, topic: TopicId) -> Expiry {
        Expiry {
            now: self.machine.now(),
            clock_jumps: self.machine.jumps(),
            leads_anew: self.machine.must_lead_anew(),
            retention: self.catalog.strictest_retention(topic),
        }
    }

    /// Every partition that must be served, with its topic's name.
    pub(super) fn all_partitions(&self) -> Vec<(String, TopicPartition)> {
        let topics = self.catalog.topics();
        topics.flat_map(|(name, topic)| topic.ids().map(|id| (name.to_owned(), id))).collect()
    }

    fn observe_all(&mut self) -> Result<(), Violation> {
        let driver = self.machine.driver();
        for (name, id) in self.all_partitions() {
            let Ok(position) = driver.position(id, None) else {
                let is_excused = self.catalog.is_changing(&name) || driver.is_failed();
                ensure!(is_excused, "INV-M1", "{name} ({id}) is there and is not served");
                continue;
            };
            let is_synced = self.catalog.is_surely_synced(id.topic);
            let expiry = self.expiry(id.topic);
            let model = self.partitions.entry(id).or_default();
            model.observed(&position, is_synced, &expiry)?;
        }
        Ok(())
    }

    /// Whatever is committed in a compacted topic may be taken by the compaction that comes.
    fn compaction_begins(&mut self) {
        let (driver, wall) = (self.machine.driver(), self.machine.now().wall);
        for (id, model) in &mut self.partitions {
            let Some(compacted) = &mut model.compacted else { continue };
            if let Ok(position) = driver.position(*id, None) {
                compacted.compaction_begins(position.high_watermark, wall);
            }
        }
    }

    /// A topic becomes like this: from now on its records may be lost, if it is relaxed, and
    /// superseded, if it is compacted.
    pub(super) fn note_becomes(&mut self, after: Option<&TopicModel>) {
        for topic in after.into_iter().filter(|topic| topic.is_compacted() && !topic.is_internal) {
            for id in topic.ids() {
                let model = self.partitions.entry(id).or_default();
                let new = || Compacted::new(topic.tombstones_kept());
                model.compacted.get_or_insert_with(new);
            }
        }
        for id in after.into_iter().filter(|topic| topic.is_relaxed()).flat_map(TopicModel::ids) {
            self.partitions.entry(id).or_default().is_lossy = true;
        }
    }

    /// A change of a topic was acknowledged.
    pub(super) fn accepted(&mut self, name: &str) -> Result<(), Violation> {
        let was_relaxed = self.catalog.topic(name).is_some_and(TopicModel::is_relaxed);
        self.catalog.accept(name);
        let Some(topic) = self.catalog.topic(name).filter(|topic| !topic.is_relaxed()) else {
            return Ok(());
        };
        let driver = self.machine.driver();
        for id in topic.ids().filter(|_| was_relaxed) {
            if let Ok(position) = driver.position(id, None) {
                let model = self.partitions.entry(id).or_default();
                model.relaxed_until(position.log_end_offset);
            }
        }
        Ok(())
    }
}
