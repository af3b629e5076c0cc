//! Callers who number their messages, as over HTTP: each is published once, however often it is
//! sent, across restarts too.
//!
//! A *caller* sends a message until it is answered, or gives it up. Each request runs as a *flow*
//! inside the broker, as in `towpath_http::publisher`: it outlives a caller that hangs up, and ends
//! with the process.
//!
//! ```text
//! Begin ─▶ Append ─▶ produce ─▶ durable ─▶ Finish, answer
//!       ─▶ Resolve ─▶ does the partition hold it? ─▶ Finish ─▶ Begin again
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use towpath_coordinator::publishers::{Intent, Outcome as Fate, Publisher, Reply, Request};
use towpath_driver::{Condition, Delivery, Outcome, ProduceFailure};
use towpath_metadata as metadata;
use towpath_model::{PartitionIndex, ProducerId, Timestamp, TopicPartition};
use towpath_records::{BatchBuilder, Compression, RecordsError, Scratch, records};
use towpath_replication::Acks;

use super::partitions::Found;
use super::producers::validate;
use super::world::{Waiting, World};
use crate::checker::Answer;
use crate::profile::{Violation, ensure};

/// The topic they publish to; it is never deleted.
pub(super) const WEB: &str = "web";

/// After how long a caller whose request hangs comes back.
const CALLER_PATIENCE: Duration = Duration::from_secs(31);

/// The result of a publish, as its caller is told.
type Told = (PartitionIndex, i64);

/// Somebody who publishes.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    name: String,
    /// The message it publishes now.
    sequence: i64,
    timestamp: Timestamp,
    is_answered: bool,
    flow: Option<u64>,
    /// Messages that a broker has begun to append.
    begun: BTreeSet<i64>,
    /// Those of them that a crash left without an answer.
    interrupted: BTreeSet<i64>,
    told: BTreeMap<i64, Told>,
}

impl Caller {
    pub(super) fn new(name: String) -> Caller {
        Caller {
            name,
            sequence: 0,
            timestamp: Timestamp(0),
            is_answered: true,
            flow: None,
            begun: BTreeSet::new(),
            interrupted: BTreeSet::new(),
            told: BTreeMap::new(),
        }
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.is_answered
    }

    /// The broker is gone, and its flows with it.
    pub(super) fn disconnect(&mut self) {
        self.flow = None;
        if !self.is_answered && self.begun.contains(&self.sequence) {
            self.interrupted.insert(self.sequence);
        }
    }
}

/// One request inside the broker.
#[derive(Debug, Clone)]
pub(super) struct Flow {
    caller: usize,
    sequence: i64,
    timestamp: Timestamp,
    partition: PartitionIndex,
    producer_id: Option<ProducerId>,
    /// It has resolved an earlier attempt once.
    has_resolved: bool,
    /// It has slept, and others may have overtaken it.
    has_stalled: bool,
    stage: Stage,
}

#[derive(Debug, Clone, Copy)]
enum Stage {
    Beginning,
    NeedsProducerId,
    /// Its thread sleeps between the order to append and the append.
    Stalled {
        intent: Intent,
    },
    Appending {
        intent: Intent,
        told: Told,
    },
    Resolving {
        intent: Intent,
        fate: Fate,
    },
}

impl World {
    /// One caller does one thing.
    pub(super) fn call(&mut self, at: usize) -> Result<(), Violation> {
        let Some(web) = self.catalog.topic(WEB) else { return Ok(()) };
        let partitions = web.partitions;
        let wall = self.machine.now().wall;
        let caller = &mut self.callers[at];
        if let Some(flow) = caller.flow {
            let stalls = self.flows.get(&flow).is_some_and(|flow| flow.has_stalled);
            if self.rng.percent(if stalls { 40 } else { 5 }) {
                self.events.note("publisher: caller hung up");
                caller.flow = None;
                if stalls {
                    // It comes back when the broker no longer takes the attempt for one under way.
                    self.machine.advance(CALLER_PATIENCE);
                }
            }
            return self.wake_stalled(flow);
        }
        let repeats = caller.is_answered && 0 < caller.sequence && self.rng.percent(20);
        let has_straggler = self.flows.values().any(|flow| flow.caller == at);
        let impatience = if has_straggler { 30 } else { 5 };
        let gives_up = !caller.is_answered && !self.is_draining && self.rng.percent(impatience);
        if gives_up {
            self.events.note("publisher: message given up");
        }
        if (caller.is_answered && !repeats && !self.is_draining) || gives_up {
            caller.sequence += self.rng.between(1, 3) as i64;
            caller.timestamp = wall;
            caller.is_answered = false;
        } else if caller.is_answered && !repeats {
            return Ok(());
        }
        let (sequence, timestamp) = (caller.sequence, caller.timestamp);
        let partition = PartitionIndex(self.rng.below(partitions.unsigned_abs().into()) as i32);
        let flow = Flow {
            caller: at,
            sequence,
            timestamp,
            partition,
            producer_id: None,
            has_resolved: false,
            has_stalled: false,
            stage: Stage::Beginning,
        };
        self.flows_begun += 1;
        self.callers[at].flow = Some(self.flows_begun);
        self.flows.insert(self.flows_begun, flow);
        self.begin(self.flows_begun)
    }

    /// Sooner or later a thread that slept goes on, often long after its caller has hung up.
    fn wake_stalled(&mut self, at_least: u64) -> Result<(), Violation> {
        let stalled = |flow: &Flow| matches!(flow.stage, Stage::Stalled { .. });
        let oldest = self.flows.iter().find(|(_, flow)| stalled(flow)).map(|(number, _)| *number);
        let Some(number) = oldest.filter(|oldest| *oldest <= at_least) else { return Ok(()) };
        if !self.is_draining && self.rng.percent(85) {
            return Ok(());
        }
        let flow = self.flows[&number].clone();
        match flow.stage {
            Stage::Stalled { intent } => self.append(number, &flow, &intent),
            _ => Ok(()),
        }
    }

    fn publisher(&self, flow: &Flow) -> Publisher {
        let topic = self.catalog.topic(WEB).expect("it is never deleted").id;
        Publisher { topic, name: self.callers[flow.caller].name.as_str().into() }
    }

    fn begin(&mut self, number: u64) -> Result<(), Violation> {
        let flow = self.flows[&number].clone();
        let publisher = self.publisher(&flow);
        let request = Request::Begin {
            publisher: publisher.clone(),
            sequence: flow.sequence,
            partition: flow.partition,
            producer_id: flow.producer_id,
        };
        self.set_stage(number, Stage::Beginning);
        let token = self.machine.token();
        self.waits.insert(token, Waiting::Flow { flow: number });
        if self.machine.driver().ask_publisher(&publisher, token, request).is_err() {
            self.waits.remove(&token);
            self.end_flow(number);
        }
        Ok(())
    }

    fn set_stage(&mut self, number: u64, stage: Stage) {
        self.flows.get_mut(&number).expect("a flow that goes on").stage = stage;
    }

    /// Its caller gets no result.
    fn end_flow(&mut self, number: u64) {
        let Some(flow) = self.flows.remove(&number) else { return };
        let caller = &mut self.callers[flow.caller];
        caller.flow.take_if(|mine| *mine == number);
    }

    /// Something that a flow waited for has come.
    pub(super) fn flow_goes_on(
        &mut self,
        number: u64,
        delivery: Delivery,
    ) -> Result<(), Violation> {
        let Some(flow) = self.flows.get(&number).cloned() else { return Ok(()) };
        match (flow.stage, delivery) {
            (Stage::Beginning, Delivery::Publishers(reply)) => self.begun(number, &flow, reply),
            (
                Stage::NeedsProducerId,
                Delivery::Metadata(metadata::Reply::AllocatedProducerId(id)),
            ) => {
                ensure!(self.producer_ids.insert(id), "INV-P4", "producer id {id} twice");
                self.flows.get_mut(&number).expect("looked up above").producer_id = Some(id);
                self.begin(number)
            }
            (Stage::Appending { intent, told }, Delivery::Wait(Outcome::Reached)) => {
                self.published(number, &flow, &intent, told)
            }
            (Stage::Resolving { intent, fate }, Delivery::Wait(Outcome::Reached)) => {
                self.finish(&flow, intent.number, fate);
                self.begin(number)
            }
            // It may be there: the next Begin resolves it.
            (_, Delivery::Wait(_)) => {
                self.end_flow(number);
                Ok(())
            }
            (stage, other) => {
                Err(Violation::new("INV-P5", format!("{stage:?} is answered by {other:?}")))
            }
        }
    }

    fn begun(&mut self, number: u64, flow: &Flow, reply: Reply) -> Result<(), Violation> {
        let caller = &self.callers[flow.caller];
        match reply {
            Reply::Append(intent) if !self.is_draining && self.rng.percent(35) => {
                self.set_stage(number, Stage::Stalled { intent });
                self.flows.get_mut(&number).expect("a flow that goes on").has_stalled = true;
                Ok(())
            }
            Reply::Append(intent) => self.append(number, flow, &intent),
            Reply::Repeat(published) => {
                if caller.interrupted.contains(&flow.sequence) {
                    self.events.note("publisher: repeat answered after a crash");
                }
                self.answered(number, flow, (published.partition, published.offset.0))
            }
            Reply::Resolve(_) if flow.has_resolved => {
                // What was found could not be noted, on a full disk; asking again at once would
                // find it again.
                self.events.note("publisher: result could not be noted");
                self.end_flow(number);
                Ok(())
            }
            Reply::Resolve(intent) => {
                self.flows.get_mut(&number).expect("a flow that goes on").has_resolved = true;
                self.resolve(number, flow, intent)
            }
            Reply::NeedsProducerId => {
                self.set_stage(number, Stage::NeedsProducerId);
                let waiting = Waiting::Flow { flow: number };
                if !self.ask_metadata(waiting, metadata::Request::AllocateProducerId) {
                    self.end_flow(number);
                }
                Ok(())
            }
            Reply::Busy => {
                self.end_flow(number);
                Ok(())
            }
            Reply::Stale => {
                let is_old = flow.sequence < caller.sequence;
                ensure!(is_old, "INV-P5", "message {} is stale", flow.sequence);
                self.end_flow(number);
                Ok(())
            }
            other => Err(Violation::new("INV-P5", format!("a Begin is answered by {other:?}"))),
        }
    }

    fn append(&mut self, number: u64, flow: &Flow, intent: &Intent) -> Result<(), Violation> {
        ensure!(
            intent.sequence == flow.sequence,
            "INV-P5",
            "asked to publish {}, told to append {}",
            flow.sequence,
            intent.sequence
        );
        let topic = self.catalog.topic(WEB).expect("it is never deleted").id;
        let id = TopicPartition { topic, partition: intent.partition };
        self.callers[flow.caller].begun.insert(flow.sequence);
        let mut builder = BatchBuilder::new(Compression::None, flow.timestamp);
        builder.set_producer(intent.producer_id, intent.producer_epoch, intent.producer_sequence);
        let value = format!("{}/{}", self.callers[flow.caller].name, flow.sequence);
        builder
            .append(flow.timestamp, None, Some(value.as_bytes()), [])
            .expect("one small record fits a batch");
        let mut bytes = builder.build();
        let validated = validate(&bytes)?;
        let header = validated.header;
        let model = self.partitions.entry(id).or_default();
        model.history.sent(&header, &bytes).map_err(|_| {
            let detail = format!("{id}: {intent:?} names an identity that another message had");
            Violation::new("INV-P5", detail)
        })?;
        let token = self.machine.token();
        let driver = self.machine.driver();
        let result = driver.produce(id, &mut bytes, &validated, Acks::All, token);
        if self.machine.has_stopped() {
            return Ok(());
        }
        match result {
            Ok(produced) => {
                let (now, jumps) = (self.machine.now(), self.machine.jumps());
                if produced.is_duplicate {
                    self.events.note("publisher: append recognised as a repeat");
                } else {
                    let model = self.partitions.entry(id).or_default();
                    model.appended(&bytes, now, jumps)?;
                }
                let told = (intent.partition, produced.base_offset.0);
                self.set_stage(number, Stage::Appending { intent: *intent, told });
                if produced.is_pending {
                    self.waits.insert(token, Waiting::Flow { flow: number });
                    return Ok(());
                }
                self.published(number, flow, intent, told)
            }
            Err(ProduceFailure::Stalled(reason)) => {
                ensure!(self.machine.is_stalled(), "INV-F8", "the disk answers, yet: {reason}");
                // An earlier attempt may be there: the next one resolves it.
                self.events.note("publisher: append refused while the disk does not answer");
                self.end_flow(number);
                Ok(())
            }
            Err(failure) => {
                let is_overtaken =
                    flow.has_stalled && matches!(failure, ProduceFailure::Refused(_));
                if is_overtaken {
                    self.events.note("publisher: straggler fenced");
                }
                let is_refused_for_room =
                    matches!(failure, ProduceFailure::NoRoom(_)) && self.may_lack_room;
                let is_excused =
                    is_overtaken || self.is_full || is_refused_for_room || driver.is_failed();
                ensure!(is_excused, "INV-P5", "{id}: a publisher's append is refused: {failure}");
                if matches!(failure, ProduceFailure::Storage(_) | ProduceFailure::NoRoom(_)) {
                    // Any other refusal may meet a record that another flow has appended before.
                    let model = self.partitions.entry(id).or_default();
                    model.history.answered(&header, Answer::Refused)?;
                }
                self.finish(flow, intent.number, Fate::NotAppended);
                self.end_flow(number);
                Ok(())
            }
        }
    }

    fn published(
        &mut self,
        number: u64,
        flow: &Flow,
        intent: &Intent,
        told: Told,
    ) -> Result<(), Violation> {
        let (offset, timestamp) = (towpath_model::Offset(told.1), flow.timestamp);
        self.finish(flow, intent.number, Fate::Appended { offset, timestamp });
        self.answered(number, flow, told)
    }

    /// Tells the state, and does not wait, as the product does not.
    fn finish(&mut self, flow: &Flow, number: u64, outcome: Fate) {
        let publisher = self.publisher(flow);
        let request = Request::Finish { publisher: publisher.clone(), number, outcome };
        let token = self.machine.token();
        // Without it the next Begin resolves the attempt.
        let _ = self.machine.driver().ask_publisher(&publisher, token, request);
    }

    /// The fate of an earlier attempt is not known: its partition knows.
    fn resolve(&mut self, number: u64, flow: &Flow, intent: Intent) -> Result<(), Violation> {
        let topic = self.catalog.topic(WEB).expect("it is never deleted").id;
        let id = TopicPartition { topic, partition: intent.partition };
        let driver = self.machine.driver();
        let found = driver.with_partition(id, |partition| {
            let producers = partition.producers();
            let known = producers.get(intent.producer_id);
            let is_current = known.is_some_and(|known| known.epoch == intent.producer_epoch);
            let mut batches = producers.batches(intent.producer_id).iter();
            let same = batches.find(|batch| batch.base_sequence == intent.producer_sequence);
            same.copied().filter(|_| is_current)
        });
        let Some(found) = found else {
            self.end_flow(number);
            return Ok(());
        };
        let Some(batch) = found else {
            self.events.note("publisher: resolved as not appended");
            self.finish(flow, intent.number, Fate::NotAppended);
            return self.begin(number);
        };
        self.events.note("publisher: resolved as appended");
        let fate = Fate::Appended { offset: batch.base_offset, timestamp: batch.timestamp };
        self.set_stage(number, Stage::Resolving { intent, fate });
        let token = self.machine.token();
        let condition = Condition::HighWatermark(batch.end_offset());
        self.waits.insert(token, Waiting::Flow { flow: number });
        if driver.watch(id, token, condition) {
            self.waits.remove(&token);
            return self.flow_goes_on(number, Delivery::Wait(Outcome::Reached));
        }
        Ok(())
    }

    /// The result reaches the caller, unless it hung up or the answer is lost.
    fn answered(&mut self, number: u64, flow: &Flow, told: Told) -> Result<(), Violation> {
        let caller = &mut self.callers[flow.caller];
        if caller.flow == Some(number) && !self.rng.percent(5) {
            self.events.note("publisher: answered");
            let first = *caller.told.entry(flow.sequence).or_insert(told);
            ensure!(
                first == told,
                "INV-P1",
                "message {} of {} was published at {first:?} and at {told:?}",
                flow.sequence,
                caller.name
            );
            if flow.sequence == caller.sequence {
                caller.is_answered = true;
            }
        }
        self.end_flow(number);
        Ok(())
    }

    /// Every message is in the topic at most once, and those that were answered are where their
    /// callers were told.
    pub(super) fn check_published(
        &self,
        found: &[(PartitionIndex, &Found)],
    ) -> Result<(), Violation> {
        let mut places: BTreeMap<String, Told> = BTreeMap::new();
        let mut scratch = Scratch::default();
        for (partition, found) in found {
            for (header, bytes) in &found.batches {
                let unreadable = |e: RecordsError| Violation::new("INV-R13", e.to_string());
                for record in records(bytes, 1 << 20, &mut scratch).map_err(unreadable)? {
                    let record = record.map_err(|e| Violation::new("INV-R13", e.to_string()))?;
                    let offset = header.offset_of(record.offset_delta).0;
                    let value = String::from_utf8_lossy(record.value.unwrap_or_default());
                    let before = places.insert(value.clone().into_owned(), (*partition, offset));
                    ensure!(
                        before.is_none(),
                        "INV-P1",
                        "{value} is at {before:?} and at ({partition}, {offset})"
                    );
                }
            }
        }
        for caller in &self.callers {
            for (sequence, told) in &caller.told {
                let place = places.get(&format!("{}/{sequence}", caller.name));
                ensure!(
                    place == Some(told),
                    "INV-R1",
                    "message {sequence} of {} was published at {told:?}, is at {place:?}",
                    caller.name
                );
            }
        }
        Ok(())
    }
}
