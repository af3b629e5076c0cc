//! Idempotent producers: each sends to one partition, up to five batches ahead, to whoever it takes for
//! the leader, and repeats in order whatever got no answer (INV-R1, R2, P1, P2, P5, P6).

use std::collections::VecDeque;
use std::time::Duration;

use towpath_driver::{Delivery, Outcome, ProduceFailure, Produced};
use towpath_metadata::{Reply, Request};
use towpath_model::{BrokerId, Offset, ProducerEpoch, Sequence, Time, Token, TopicPartition};
use towpath_records::BatchHeader;
use towpath_replication::{Acks, ProduceRefusal};

use super::network::between;
use super::world::{Event, Waiting, World};
use crate::checker::Answer;
use crate::profile::{Violation, ensure};
use crate::profiles::broker::validate;
use crate::workload;

/// As many as an idempotent producer may have in flight.
const WINDOW_MAX: u64 = 5;
/// How long it waits for an answer before it connects anew.
const PATIENCE: Duration = Duration::from_millis(1_500);
/// Where a batch lies that no broker has put anywhere yet.
const UNKNOWN: Offset = Offset(-1);

/// A producer.
#[derive(Debug, Clone)]
pub(super) struct Producer {
    stream: Option<workload::Producer>,
    pub(super) is_asking_for_id: bool,
    asked_at: Time,
    target: Option<TopicPartition>,
    /// Something of it was acknowledged by all there, so whoever leads knows it.
    is_known: bool,
    acks: Acks,
    /// Batches without an answer, in order.
    window: VecDeque<Pending>,
    /// How many batches it has drawn.
    drawn: u64,
    /// Who it is connected to.
    pub(super) leader: Option<BrokerId>,
    /// The number of its connection.
    connection: u64,
    /// When what it has sent last arrives.
    last_arrival: Time,
}

/// A batch without an answer.
#[derive(Debug, Clone)]
struct Pending {
    /// Which of the producer's batches it is.
    number: u64,
    bytes: Vec<u8>,
    header: BatchHeader,
    /// In flight, since then.
    token: Option<(Token, Time)>,
    attempts: u32,
    /// It was refused before and nothing says that an earlier attempt was not appended.
    is_refused: bool,
}

/// A batch on its way.
#[derive(Debug, Clone)]
pub(super) struct Frame {
    producer: usize,
    connection: u64,
    to: BrokerId,
    pub(super) target: TopicPartition,
    acks: Acks,
    token: Token,
    header: BatchHeader,
    bytes: Vec<u8>,
    attempts: u32,
    was_refused: bool,
    /// Where the broker has put it.
    base: Offset,
}

impl Producer {
    pub(super) fn new(at: usize) -> Producer {
        Producer {
            stream: None,
            is_asking_for_id: false,
            asked_at: Time(0),
            target: None,
            is_known: false,
            acks: if at % 4 == 1 { Acks::Leader } else { Acks::All },
            window: VecDeque::new(),
            drawn: 0,
            leader: None,
            connection: 0,
            last_arrival: Time(0),
        }
    }

    /// A client keeps so many batches in flight, counted from the oldest one without an answer: those
    /// behind it may have been answered before it.
    fn is_window_full(&self) -> bool {
        let oldest = self.window.front().map_or(self.drawn, |pending| pending.number);
        WINDOW_MAX <= self.drawn - oldest
    }

    /// Whether everything it has sent was answered.
    pub(super) fn is_quiet(&self) -> bool {
        self.window.is_empty()
    }

    fn awaits(&self, connection: u64, token: Token) -> bool {
        let is_it = |pending: &Pending| pending.token.is_some_and(|(sent, _)| sent == token);
        self.connection == connection && self.window.iter().any(is_it)
    }
}

impl World {
    /// One producer does whatever is next.
    pub(super) fn produce(&mut self, at: usize) -> Result<(), Violation> {
        let now = self.now;
        let is_known = |target: TopicPartition| self.catalog.surely_exists(target.topic);
        if !self.producers[at].target.is_some_and(is_known) {
            if self.is_healing && self.producers[at].target.is_none() {
                return Ok(());
            }
            let target = self.catalog.any_partition(&mut self.rng, &self.truth);
            self.disconnect_producer(at);
            let producer = &mut self.producers[at];
            producer.target = target;
            producer.is_known = false;
            producer.window.clear();
            return Ok(());
        }
        if self.producers[at].stream.is_none() {
            return self.ask_for_producer_id(at);
        }
        let oldest = self.producers[at].window.iter().filter_map(|p| p.token).map(|(_, t)| t).min();
        if oldest.is_some_and(|sent| sent + PATIENCE <= now) {
            self.events.note("producer: lost patience");
            self.disconnect_producer(at);
        }
        let draws = !self.is_healing && !self.producers[at].is_window_full();
        if draws {
            self.draw_batch(at)?;
        }
        if self.producers[at].leader.is_none() {
            let target = self.producers[at].target.expect("asked above");
            self.producers[at].leader = self.guess_leader(target);
        }
        if self.producers[at].leader.is_none() {
            return Ok(());
        }
        for index in 0..self.producers[at].window.len() {
            if self.producers[at].window[index].token.is_none() {
                self.send_batch(at, index)?;
            }
        }
        Ok(())
    }

    /// Whom a client takes for the leader: mostly who is, sometimes who was, or somebody.
    pub(super) fn guess_leader(&mut self, target: TopicPartition) -> Option<BrokerId> {
        if !self.is_healing && self.rng.percent(25) {
            let some = self.any_awake()?;
            let driver = &self.nodes[&some].process.as_ref()?.driver;
            let image = driver.image();
            return image.partition(target).and_then(|state| state.leader);
        }
        self.truth.newest(target).and_then(|state| state.leader)
    }

    fn ask_for_producer_id(&mut self, at: usize) -> Result<(), Violation> {
        let now = self.now;
        let producer = &mut self.producers[at];
        if producer.is_asking_for_id && now < producer.asked_at + PATIENCE {
            return Ok(());
        }
        producer.is_asking_for_id = true;
        producer.asked_at = now;
        let Some(of) = self.any_awake() else { return Ok(()) };
        self.ask(of, Waiting::ProducerId { producer: at }, Request::AllocateProducerId)
    }

    /// An id that nobody has had, whichever controller gives it.
    pub(super) fn producer_id_answered(
        &mut self,
        at: usize,
        delivery: &Delivery,
    ) -> Result<(), Violation> {
        self.producers[at].is_asking_for_id = false;
        if let Delivery::Metadata(Reply::AllocatedProducerId(id)) = delivery {
            let is_new = self.producer_ids.insert(*id);
            ensure!(is_new, "INV-P4", "producer id {id} was given out twice");
            self.producers[at].stream.get_or_insert_with(|| workload::Producer::new(id.0));
        }
        Ok(())
    }

    fn draw_batch(&mut self, at: usize) -> Result<(), Violation> {
        let wall = self.nodes.values().next().expect("there are brokers").wall();
        let producer = &mut self.producers[at];
        let stream = producer.stream.as_mut().expect("a producer draws once it has an id");
        let drawn = workload::draw_batch(&mut self.rng, stream, self.swarm.shape, wall);
        let header = validate(&drawn.bytes)?.header;
        let (bytes, token, attempts, is_refused) = (drawn.bytes, None, 0, false);
        let number = producer.drawn;
        producer.drawn += 1;
        producer.window.push_back(Pending { number, bytes, header, token, attempts, is_refused });
        Ok(())
    }

    fn send_batch(&mut self, at: usize, index: usize) -> Result<(), Violation> {
        let (token, now) = (self.token(), self.now);
        let delay = between(&mut self.chance, Duration::from_micros(50), Duration::from_millis(2));
        let producer = &mut self.producers[at];
        let arrival = producer.last_arrival.max(now + delay);
        producer.last_arrival = arrival;
        let (target, acks) = (producer.target.expect("chosen before"), producer.acks);
        let to = producer.leader.expect("chosen before");
        let connection = producer.connection;
        let pending = &mut producer.window[index];
        pending.token = Some((token, now));
        pending.attempts += 1;
        let Pending { bytes, header, attempts, is_refused: was_refused, .. } = pending.clone();
        let history = self.histories.entry(target).or_default();
        history.sent(&header, &bytes)?;
        self.trace.event("send", &[at as u64, token.0, header.base_sequence().0 as u64]);
        let base = UNKNOWN;
        let producer = at;
        let frame = Frame {
            producer,
            connection,
            to,
            target,
            acks,
            token,
            header,
            bytes,
            attempts,
            was_refused,
            base,
        };
        self.frames.entry((producer, connection)).or_default().push_back(frame);
        self.schedule(arrival, Event::Batch(producer, connection));
        Ok(())
    }

    /// The next batch of a connection arrives at a broker.
    pub(super) fn batch_arrives(&mut self, at: usize, connection: u64) -> Result<(), Violation> {
        let Some(frames) = self.frames.get_mut(&(at, connection)) else { return Ok(()) };
        let Some(to) = frames.front().map(|frame| frame.to) else { return Ok(()) };
        if let Some(until) = self.nodes[&to].paused_until.filter(|until| self.now < *until) {
            self.schedule(until, Event::Batch(at, connection));
            return Ok(());
        }
        let frame = frames.pop_front().expect("just looked at");
        if frames.is_empty() {
            self.frames.remove(&(at, connection));
        }
        self.batch_is_read(frame)
    }

    fn batch_is_read(&mut self, mut frame: Frame) -> Result<(), Violation> {
        let (at, to) = (frame.producer, frame.to);
        let is_current = self.producers[at].awaits(frame.connection, frame.token);
        if !self.nodes[&to].is_up() {
            if is_current {
                self.disconnect_producer(at);
            }
            return Ok(());
        }
        self.trace.event("batch", &[to.0 as u64, frame.token.0, u64::from(is_current)]);
        let validated = validate(&frame.bytes)?;
        let (target, acks, token) = (frame.target, frame.acks, frame.token);
        let mut bytes = frame.bytes.clone();
        // The answer may be given before the call has returned.
        self.waits.insert((to, token), Waiting::Produce(Box::new(frame.clone())));
        let result = self.call(to, |driver| {
            let result = driver.produce(target, &mut bytes, &validated, acks, token);
            (result, bytes)
        })?;
        let wait = self.waits.remove(&(to, token));
        let Some((result, bytes)) = result else { return Ok(()) };
        if let Ok(produced) = &result
            && !produced.is_duplicate
        {
            let header = BatchHeader::parse(&bytes)
                .map_err(|error| Violation::new("workload", format!("a stamped batch: {error}")))?;
            let book = self.books.entry(target).or_default();
            book.appended(target, &header)?;
        }
        if !is_current {
            return self.strayed(&frame, &result);
        }
        match result {
            Ok(produced) => {
                if produced.is_duplicate {
                    ensure!(
                        1 < frame.attempts,
                        "INV-P1",
                        "{:?} was sent once, and is a duplicate",
                        frame.header
                    );
                    self.events.note("producer: duplicate recognised");
                }
                frame.base = produced.base_offset;
                let heard = Delivery::Wait(Outcome::Reached);
                if produced.is_pending {
                    if wait.is_some() {
                        self.waits.insert((to, token), Waiting::Produce(Box::new(frame)));
                    }
                    return Ok(());
                }
                self.acknowledgement_leaves(to, &frame, &heard)?;
                self.waits.insert((to, token), Waiting::Produce(Box::new(frame)));
                self.schedule(self.now, Event::Heard(to, token, Box::new(heard)));
                Ok(())
            }
            Err(failure) => self.batch_refused(&frame, &failure),
        }
    }

    /// A batch arrives that its producer does not wait for any more.
    fn strayed(
        &mut self,
        frame: &Frame,
        result: &Result<Produced, ProduceFailure>,
    ) -> Result<(), Violation> {
        let history = self.histories.entry(frame.target).or_default();
        match result {
            Ok(produced) if produced.is_duplicate => {
                self.events.note("producer: stray batch recognised");
            }
            Ok(_) => {
                self.events.note("producer: stray batch appended");
                history.sent(&frame.header, &frame.bytes)?;
            }
            Err(ProduceFailure::Refused(ProduceRefusal::StaleProducerEpoch { .. })) => {
                self.events.note("producer: stray batch fenced");
            }
            Err(_) => {}
        }
        Ok(())
    }

    fn batch_refused(&mut self, frame: &Frame, failure: &ProduceFailure) -> Result<(), Violation> {
        let (at, target, to) = (frame.producer, frame.target, frame.to);
        self.trace.remark(|| format!("{to} refuses: {failure}"));
        let is_first = frame.attempts == 1;
        let node = &self.nodes[&to];
        let index = self.producers[at]
            .window
            .iter()
            .position(|pending| pending.token.is_some_and(|(token, _)| token == frame.token))
            .expect("its producer waits for it");
        match failure {
            ProduceFailure::NotLeader => {
                self.events.note("producer: not the leader");
                // It may lead when the next one arrives, which it takes for the first of a producer that
                // it does not know.
                let producer = &mut self.producers[at];
                producer.window[index].is_refused |= !producer.is_known;
            }
            ProduceFailure::Refused(ProduceRefusal::NotEnoughReplicas { .. }) => {
                self.events.note("producer: not enough replicas");
                self.producers[at].window[index].is_refused = true;
                if is_first {
                    let history = self.histories.entry(target).or_default();
                    history.answered(&frame.header, Answer::Refused)?;
                }
            }
            ProduceFailure::NoRoom(_) | ProduceFailure::Storage(_) => {
                let is_excused = node.is_full
                    || node.has_sync_failed()
                    || node.process.as_ref().is_some_and(|process| process.was_full);
                ensure!(is_excused, "INV-F1", "{target}: a healthy disk refuses: {failure}");
                self.events.note("producer: refused for a disk");
                self.producers[at].window[index].is_refused = true;
            }
            ProduceFailure::Stalled(_) => {
                self.events.note("producer: refused for a slow disk");
                self.producers[at].window[index].is_refused = true;
            }
            ProduceFailure::QueueFull(full) => {
                return Err(Violation::new("INV-F1", format!("{target} has no limit: {full}")));
            }
            ProduceFailure::QueueGivenUp(_) => {
                return Err(Violation::new("INV-F1", format!("{target} is kept: {failure}")));
            }
            ProduceFailure::Offline(reason) => {
                return Err(Violation::new("INV-F1", format!("{target}: {reason}")));
            }
            ProduceFailure::Refused(ProduceRefusal::OutOfOrderSequence { .. }) => {
                // Behind one without an answer, or that was refused: it is sent again after that one.
                if index == 0 {
                    let may_have_lost = frame.was_refused || frame.acks != Acks::All;
                    // Who has been replaced and does not know it lacks what came since.
                    let is_replaced = self.is_replaced(to, target);
                    if is_replaced {
                        self.events.note("producer: sequence refused by a former leader");
                    }
                    ensure!(
                        may_have_lost || is_replaced || self.has_overtaken(at),
                        "INV-P5",
                        "{target}: {failure}, and nothing was lost"
                    );
                    self.events.note("producer: sequence refused after a loss");
                    self.bump_epoch(at);
                    return Ok(());
                }
                self.events.note("producer: sequence refused behind another");
            }
            ProduceFailure::Refused(_) => {
                let header = &frame.header;
                return Err(Violation::new("INV-P5", format!("{target}: {header:?}: {failure}")));
            }
        }
        self.disconnect_producer(at);
        Ok(())
    }

    /// Whether somebody else leads by now, whether or not this broker knows it.
    pub(super) fn is_replaced(&self, id: BrokerId, target: TopicPartition) -> bool {
        let leads = self.views.get(&(id, target)).and_then(|view| view.leads);
        let newest = self.truth.newest(target).map(|state| state.leader_epoch);
        leads < newest
    }

    /// Whether something behind the first batch may have been taken for the first one: a producer that
    /// a partition does not know may begin anywhere.
    fn has_overtaken(&self, at: usize) -> bool {
        self.producers[at].window.iter().any(|pending| pending.is_refused)
    }

    /// An acknowledgement leaves a broker: what it says is committed (INV-R2).
    pub(super) fn acknowledgement_leaves(
        &mut self,
        from: BrokerId,
        frame: &Frame,
        delivery: &Delivery,
    ) -> Result<(), Violation> {
        if frame.acks != Acks::All || !matches!(delivery, Delivery::Wait(Outcome::Reached)) {
            return Ok(());
        }
        // What is acknowledged in a topic that was deleted meanwhile goes with it.
        let is_gone = !self.truth.topics.contains(&frame.target.topic);
        if frame.base == UNKNOWN || is_gone {
            return Ok(());
        }
        let book = self.books.entry(frame.target).or_default();
        let there = book.at(frame.base);
        let is_it = there.is_some_and(|there| {
            (there.crc(), there.producer_id(), there.base_sequence())
                == (frame.header.crc(), frame.header.producer_id(), frame.header.base_sequence())
        });
        ensure!(
            is_it || frame.base < book.start,
            "INV-R2",
            "{}: {from} acknowledges {:?} at {}, committed up to {} is {there:?}",
            frame.target,
            frame.header,
            frame.base,
            book.end
        );
        Ok(())
    }

    /// A producer hears of its batch. Now and then the answer is lost on the way.
    pub(super) fn produce_answered(
        &mut self,
        frame: Frame,
        delivery: &Delivery,
    ) -> Result<(), Violation> {
        let at = frame.producer;
        if !self.producers[at].awaits(frame.connection, frame.token) {
            return Ok(());
        }
        let Delivery::Wait(outcome) = delivery else {
            return Err(Violation::new("INV-R2", format!("a batch is answered by {delivery:?}")));
        };
        if *outcome != Outcome::Reached {
            self.events.note("producer: answer that it may be lost");
            self.disconnect_producer(at);
            return Ok(());
        }
        if !self.is_healing && self.chance.percent(self.swarm.loses_answers) {
            self.events.note("producer: answer lost on the way");
            self.disconnect_producer(at);
            return Ok(());
        }
        let history = self.histories.entry(frame.target).or_default();
        if frame.acks == Acks::All {
            history.answered(&frame.header, Answer::Acknowledged(frame.base))?;
            self.producers[at].is_known = true;
            self.events.note("producer: acknowledged by all");
        } else {
            // Only the leader vouches for it.
            self.events.note("producer: acknowledged by the leader");
        }
        self.trace.event("acknowledged", &[at as u64, frame.base.0 as u64]);
        let is_it = |pending: &Pending| pending.token.is_some_and(|(t, _)| t == frame.token);
        self.producers[at].window.retain(|pending| !is_it(pending));
        Ok(())
    }

    /// A producer's connection ends; whatever has no answer is sent again.
    pub(super) fn disconnect_producer(&mut self, at: usize) {
        let now = self.now;
        let producer = &mut self.producers[at];
        producer.connection += 1;
        producer.leader = None;
        producer.last_arrival = now;
        for pending in &mut producer.window {
            pending.token = None;
        }
    }

    /// Gives up what has no answer, under a new epoch (KIP-360).
    pub(super) fn bump_epoch(&mut self, at: usize) {
        self.disconnect_producer(at);
        let producer = &mut self.producers[at];
        producer.window.clear();
        if let Some(stream) = &mut producer.stream {
            stream.epoch = ProducerEpoch(stream.epoch.0 + 1);
            stream.next = Sequence(0);
            self.events.note("producer: epoch bumped");
        }
    }
}
