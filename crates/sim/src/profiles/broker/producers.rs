//! Idempotent producers: each sends to one partition, up to five batches ahead, and repeats in
//! order whatever got no answer, over restarts too (INV-P1, P2, P4, P5, P6).

use std::collections::VecDeque;

use towpath_driver::{Delivery, Outcome, ProduceFailure, Produced};
use towpath_metadata as metadata;
use towpath_model::{ProducerEpoch, Sequence, Timestamp, Token, TopicPartition};
use towpath_records::{
    BatchHeader, ProduceRules, Scratch, TimestampType, Validated, validate_produced,
};
use towpath_replication::{Acks, ProduceRefusal};

use super::network::Frame;
use super::world::{Waiting, World};
use crate::checker::Answer;
use crate::profile::{Violation, ensure};
use crate::workload;

/// As many as an idempotent producer may have in flight.
const WINDOW_MAX: u64 = 5;

/// A producer.
#[derive(Debug, Clone)]
pub(super) struct Producer {
    /// Its id, epoch and next sequence, once it has an id.
    stream: Option<workload::Producer>,
    is_asking_for_id: bool,
    target: Option<TopicPartition>,
    acks: Acks,
    /// Batches without an answer, in order. Those that are in flight come first.
    window: VecDeque<Pending>,
    /// How many batches it has drawn.
    drawn: u64,
    /// A batch of an earlier epoch, still on its way.
    zombie: Option<Vec<u8>>,
    /// The connection it sends over.
    pub(super) connection: u64,
}

/// A batch without an answer.
#[derive(Debug, Clone)]
struct Pending {
    /// Which of the producer's batches it is.
    number: u64,
    bytes: Vec<u8>,
    header: BatchHeader,
    /// In flight.
    token: Option<Token>,
    /// The process that it was last sent to.
    sent_to: Option<u64>,
    /// A full disk did not take it.
    is_refused: bool,
}

impl Producer {
    pub(super) fn new(acks: Acks, connection: u64) -> Producer {
        Producer {
            stream: None,
            is_asking_for_id: false,
            target: None,
            acks,
            window: VecDeque::new(),
            drawn: 0,
            zombie: None,
            connection,
        }
    }

    /// A client keeps so many batches in flight, counted from the oldest one without an answer:
    /// those behind it may have been answered before it.
    fn is_window_full(&self) -> bool {
        let oldest = self.window.front().map_or(self.drawn, |pending| pending.number);
        WINDOW_MAX <= self.drawn - oldest
    }

    /// Whether it waits for what was sent like this over its connection.
    pub(super) fn awaits(&self, connection: u64, token: Token) -> bool {
        self.connection == connection
            && self.window.iter().any(|pending| pending.token == Some(token))
    }

    /// The connection is gone: nothing that was in flight will be answered.
    pub(super) fn disconnect(&mut self) {
        self.is_asking_for_id = false;
        for pending in &mut self.window {
            pending.token = None;
        }
    }

    /// Whether everything it has sent was answered.
    pub(super) fn is_quiet(&self) -> bool {
        self.window.is_empty()
    }

    /// Begins again with a higher epoch, as clients do when a sequence is refused (KIP-360). What
    /// had no answer is given up: it may be there or not.
    fn bump_epoch(&mut self) {
        self.zombie = self.window.pop_front().map(|pending| pending.bytes);
        self.window.clear();
        if let Some(stream) = &mut self.stream {
            stream.epoch = ProducerEpoch(stream.epoch.0 + 1);
            stream.next = Sequence(0);
        }
    }

    fn retarget(&mut self, target: Option<TopicPartition>) {
        self.target = target;
        self.window.clear();
        self.zombie = None;
        if let Some(stream) = &mut self.stream {
            stream.next = Sequence(0);
        }
    }
}

fn permissive_rules() -> ProduceRules {
    ProduceRules {
        batch_bytes_max: 1 << 20,
        plain_bytes_max: 1 << 24,
        record_bytes_max: 1 << 20,
        requires_keys: false,
        timestamp_type: TimestampType::CreateTime,
        timestamp_before_ms_max: i64::MAX,
        timestamp_after_ms_max: i64::MAX,
        now: Timestamp(0),
    }
}

/// Checks a batch by rules that refuse nothing the workload draws.
pub(in crate::profiles) fn validate(bytes: &[u8]) -> Result<Validated, Violation> {
    validate_produced(bytes, &permissive_rules(), &mut Scratch::default())
        .map_err(|error| Violation::new("workload", format!("a batch is refused: {error}")))
}

impl World {
    /// One producer does one thing.
    pub(super) fn produce(&mut self, at: usize) -> Result<(), Violation> {
        if !self.has_live_target(at) && !self.choose_target(at) {
            return Ok(());
        }
        if self.producers[at].stream.is_none() {
            return self.ask_for_producer_id(at);
        }
        let producer = &self.producers[at];
        let unsent = producer.window.iter().position(|pending| pending.token.is_none());
        match unsent {
            Some(index) => self.send(at, index),
            None if self.is_draining || producer.is_window_full() => Ok(()),
            None => {
                self.draw_batch(at)?;
                self.send(at, self.producers[at].window.len() - 1)
            }
        }
    }

    fn has_live_target(&self, at: usize) -> bool {
        let Some(target) = self.producers[at].target else { return false };
        self.catalog.topics().any(|(_, topic)| topic.id == target.topic)
    }

    /// Whatever it had not heard about went with its topic.
    fn choose_target(&mut self, at: usize) -> bool {
        self.drop_waits(
            |waiting| matches!(waiting, Waiting::Produce { producer, .. } if *producer == at),
        );
        let target = self.random_stream_partition();
        self.producers[at].retarget(target);
        target.is_some()
    }

    fn ask_for_producer_id(&mut self, at: usize) -> Result<(), Violation> {
        if self.producers[at].is_asking_for_id {
            return Ok(());
        }
        self.producers[at].is_asking_for_id = true;
        let waiting = Waiting::ProducerId { producer: at };
        if !self.ask_metadata(waiting, metadata::Request::AllocateProducerId) {
            self.producers[at].is_asking_for_id = false;
        }
        Ok(())
    }

    /// An id that nobody has had, even before a crash.
    pub(super) fn producer_id_answered(
        &mut self,
        at: usize,
        delivery: &Delivery,
    ) -> Result<(), Violation> {
        self.producers[at].is_asking_for_id = false;
        if let Delivery::Metadata(metadata::Reply::AllocatedProducerId(id)) = delivery {
            ensure!(
                self.producer_ids.insert(*id),
                "INV-P4",
                "producer id {id} was given out twice"
            );
            // Who has asked twice, over two connections, keeps the id that came first.
            self.producers[at].stream.get_or_insert_with(|| workload::Producer::new(id.0));
        }
        Ok(())
    }

    fn draw_batch(&mut self, at: usize) -> Result<(), Violation> {
        let wall = self.machine.now().wall;
        let producer = &mut self.producers[at];
        let stream = producer.stream.as_mut().expect("a producer draws once it has an id");
        let drawn = workload::draw_batch(&mut self.rng, stream, self.swarm.shape, wall);
        let header = validate(&drawn.bytes)?.header;
        let (bytes, token, sent_to) = (drawn.bytes, None, None);
        let number = producer.drawn;
        producer.drawn += 1;
        let is_refused = false;
        producer.window.push_back(Pending { number, bytes, header, token, sent_to, is_refused });
        Ok(())
    }

    fn send(&mut self, at: usize, index: usize) -> Result<(), Violation> {
        let token = self.machine.token();
        let incarnation = self.machine.incarnation();
        let producer = &mut self.producers[at];
        let (target, acks) = (producer.target.expect("chosen before"), producer.acks);
        let pending = &mut producer.window[index];
        let is_repeated = pending.sent_to.is_some();
        let over_restart = pending.sent_to.is_some_and(|to| to != incarnation);
        pending.sent_to = Some(incarnation);
        pending.token = Some(token);
        let (bytes, header) = (pending.bytes.clone(), pending.header);
        let was_refused = pending.is_refused;
        self.partitions.entry(target).or_default().history.sent(&header, &bytes)?;
        if is_repeated {
            self.events.note("producer: batch repeated");
        }
        self.machine.trace.event("send", &[at as u64, token.0, header.base_sequence().0 as u64]);
        let producer = at;
        self.transmit(Frame {
            producer,
            target,
            acks,
            token,
            header,
            bytes,
            is_repeated,
            over_restart,
            was_refused,
        })
    }

    /// A batch arrives at the broker, over the connection on which its producer waits.
    pub(super) fn arrived(&mut self, frame: Frame) -> Result<(), Violation> {
        let Frame { producer: at, target, acks, token, header, mut bytes, .. } = frame;
        let validated = validate(&bytes)?;
        let result = self.machine.driver().produce(target, &mut bytes, &validated, acks, token);
        if self.machine.has_stopped() {
            return Ok(());
        }
        match result {
            Ok(produced) => {
                ensure!(
                    produced.is_duplicate || !self.machine.is_out_of_room(),
                    "INV-F6",
                    "{target}: {header:?} is taken below the high watermark"
                );
                if frame.was_refused && !produced.is_duplicate {
                    self.events.note("broker: write accepted after a refusal");
                }
                if produced.is_duplicate {
                    let is_repeated = frame.is_repeated;
                    ensure!(is_repeated, "INV-P1", "{header:?} was sent once, and is a duplicate");
                    self.events.note("broker: duplicate recognised");
                    if frame.over_restart {
                        self.events.note("broker: duplicate recognised after a restart");
                    }
                }
                self.appended(at, target, &header, &bytes, produced, token)
            }
            Err(failure) => {
                let window = &self.producers[at].window;
                let index = window.iter().position(|pending| pending.token == Some(token));
                let index = index.expect("its producer waits for it");
                self.not_appended(at, index, target, &header, &failure)
            }
        }
    }

    fn appended(
        &mut self,
        at: usize,
        target: TopicPartition,
        header: &BatchHeader,
        batch: &[u8],
        produced: Produced,
        token: Token,
    ) -> Result<(), Violation> {
        let (now, jumps) = (self.machine.now(), self.machine.jumps());
        let is_synced = self.catalog.is_surely_synced(target.topic);
        let base = produced.base_offset;
        let model = self.partitions.entry(target).or_default();
        if !produced.is_duplicate {
            model.appended(batch, now, jumps)?;
        }
        if self.producers[at].acks == Acks::None {
            ensure!(!produced.is_pending, "INV-F1", "acks=0 waits for something");
            self.producers[at].window.retain(|pending| pending.token != Some(token));
            return Ok(());
        }
        let waiting = Waiting::Produce { producer: at, target, header: *header, base, is_synced };
        if produced.is_pending {
            self.waits.insert(token, waiting);
            return Ok(());
        }
        let connection = Some(self.producers[at].connection);
        if self.network.holds(connection) {
            self.waits.insert(token, waiting);
            self.network.hold(connection, token, Delivery::Wait(Outcome::Reached));
            return Ok(());
        }
        self.produce_answered(token, &waiting, Outcome::Reached)
    }

    fn not_appended(
        &mut self,
        at: usize,
        index: usize,
        target: TopicPartition,
        header: &BatchHeader,
        failure: &ProduceFailure,
    ) -> Result<(), Violation> {
        let is_failed = self.machine.driver().is_failed();
        self.producers[at].window[index].token = None;
        match failure {
            ProduceFailure::Storage(reason) => {
                ensure!(self.is_full || is_failed, "INV-F1", "a healthy disk refuses: {reason}");
                // It may be there from an earlier attempt whose answer was lost; that cannot be
                // refused any more, and the broker says so by recognising it. And what a full disk
                // had room for was cut off again, which a power loss may undo.
                let answer = if self.is_full && !is_failed {
                    self.events.note("broker: write refused for a full disk");
                    self.producers[at].window[index].is_refused = true;
                    Answer::Maybe
                } else {
                    Answer::Refused
                };
                let model = self.partitions.entry(target).or_default();
                model.history.answered(header, answer)
            }
            ProduceFailure::Stalled(reason) => {
                ensure!(self.machine.is_stalled(), "INV-F8", "the disk answers, yet: {reason}");
                // It may be there from an earlier attempt; what comes behind it may overtake it.
                self.events.note("broker: write refused while the disk does not answer");
                self.producers[at].window[index].is_refused = true;
                Ok(())
            }
            ProduceFailure::Offline(reason) => Err(Violation::new("INV-F1", reason.clone())),
            ProduceFailure::NoRoom(_) => {
                // What the broker knows of the room is as old as its last upkeep.
                ensure!(self.may_lack_room, "INV-F6", "{target}: there is room: {failure}");
                self.events.note("broker: write refused by the watermark");
                self.producers[at].window[index].is_refused = true;
                let model = self.partitions.entry(target).or_default();
                model.history.answered(header, Answer::Refused)
            }
            ProduceFailure::NotLeader => {
                let exists = self.catalog.topics().find(|(_, topic)| topic.id == target.topic);
                let is_certain = exists.is_some_and(|(name, _)| !self.catalog.is_changing(name));
                ensure!(!is_certain || is_failed, "INV-M1", "{target} exists and is not led");
                Ok(())
            }
            ProduceFailure::Refused(ProduceRefusal::OutOfOrderSequence { .. }) if 0 < index => {
                // A batch before it has no answer, or was refused for another reason: it is sent
                // again after that one.
                self.events.note("producer: sequence refused behind another");
                Ok(())
            }
            ProduceFailure::Refused(ProduceRefusal::OutOfOrderSequence { .. }) => {
                let model = &self.partitions[&target];
                // What comes behind a first batch that a full disk has refused is taken for the first
                // one: a producer that nobody knows may begin anywhere.
                let is_overtaken = self.producers[at].window[index].is_refused;
                let may_have_lost = model.is_lossy
                    || is_overtaken
                    || self.producers[at].acks == Acks::None
                    || !self.catalog.is_surely_synced(target.topic)
                    || 0 < model.start.0;
                ensure!(may_have_lost, "INV-P5", "{target}: {failure}, and nothing was lost");
                self.events.note(match is_overtaken {
                    true => "producer: refused batch was overtaken",
                    false => "producer: sequence refused after a loss",
                });
                self.bump_epoch(at);
                Ok(())
            }
            ProduceFailure::QueueFull(_) | ProduceFailure::QueueGivenUp(_) => {
                Err(Violation::new("INV-P5", failure.to_string()))
            }
            ProduceFailure::Refused(_) => {
                Err(Violation::new("INV-P5", format!("{target}: {header:?} is refused: {failure}")))
            }
        }
    }

    /// The broker's answer to a batch, at once or later. Now and then it is lost on the way.
    pub(super) fn produce_answered(
        &mut self,
        token: Token,
        waiting: &Waiting,
        outcome: Outcome,
    ) -> Result<(), Violation> {
        let Waiting::Produce { producer: at, target, header, base, is_synced } = waiting else {
            unreachable!("only produced batches are answered here")
        };
        let acks = self.producers[*at].acks;
        if outcome != Outcome::Reached {
            // It may be there: it is sent again.
            self.disconnect_producer(*at);
            return Ok(());
        }
        let end = *base + i64::from(header.record_count());
        let is_synced = *is_synced && self.catalog.is_surely_synced(target.topic);
        if acks == Acks::All
            && let Ok(position) = self.machine.driver().position(*target, None)
        {
            let high_watermark = position.high_watermark;
            ensure!(end <= high_watermark, "INV-R2", "acknowledged {end} above {high_watermark}");
        }
        if self.rng.percent(self.swarm.weather.loses_answers) {
            self.events.note("producer: answer lost on the way");
            self.disconnect_producer(*at);
            return Ok(());
        }
        self.partitions.entry(*target).or_default().acknowledged(header, *base, is_synced)?;
        self.machine.trace.event("acknowledged", &[*at as u64, base.0 as u64]);
        self.events.note(match acks {
            Acks::None => unreachable!("nobody waits for acks=0"),
            Acks::Leader => "producer: acknowledged by the leader",
            Acks::All => "producer: acknowledged by all",
        });
        self.producers[*at].window.retain(|pending| pending.token != Some(token));
        self.send_zombie(*at, *target)
    }

    pub(super) fn disconnect_producer(&mut self, at: usize) {
        self.drop_waits(
            |waiting| matches!(waiting, Waiting::Produce { producer, .. } if *producer == at),
        );
        self.producers[at].disconnect();
        self.network.leave(self.producers[at].connection, &mut self.rng);
        self.producers[at].connection = self.network.open();
    }

    /// Gives up what has no answer, under a new epoch.
    pub(super) fn bump_epoch(&mut self, at: usize) {
        self.disconnect_producer(at);
        self.producers[at].bump_epoch();
        self.events.note("producer: epoch bumped");
    }

    /// A batch of an older epoch arrives after the new one was acknowledged: it is fenced (INV-P4).
    fn send_zombie(&mut self, at: usize, target: TopicPartition) -> Result<(), Violation> {
        let Some(mut bytes) = self.producers[at].zombie.take() else { return Ok(()) };
        let validated = validate(&bytes)?;
        let token = self.machine.token();
        let driver = self.machine.driver();
        let result = driver.produce(target, &mut bytes, &validated, Acks::All, token);
        if self.machine.has_stopped() {
            return Ok(());
        }
        let is_fenced = matches!(
            result,
            Err(ProduceFailure::Refused(ProduceRefusal::StaleProducerEpoch { .. })
                | ProduceFailure::NotLeader
                | ProduceFailure::Stalled(_))
        );
        let may_be_forgotten =
            self.partitions[&target].is_lossy || 0 < self.partitions[&target].start.0;
        ensure!(is_fenced || may_be_forgotten, "INV-P4", "an old epoch's batch got {result:?}");
        if is_fenced {
            self.events.note("producer: batch of an old epoch fenced");
        } else if let Ok(produced) = result
            && !produced.is_duplicate
        {
            let (now, jumps) = (self.machine.now(), self.machine.jumps());
            let model = self.partitions.entry(target).or_default();
            model.appended(&bytes, now, jumps)?;
        }
        Ok(())
    }
}
