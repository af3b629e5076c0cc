//! The network between producers and the broker: it delays, loses and repeats what it carries, and
//! keeps what was sent over connections that nobody uses any more.
//!
//! ```text
//! producer ─▶ connection 7 ─▶ [5][4] ─▶ broker      in order, each frame when chance says so
//!         (gave up on) 6 ─▶ [4][3] ─▶ broker      later, earlier, or never
//! ```
//!
//! One connection keeps its order; nothing else has one. The surprise: a frame that arrives over an
//! old connection may be the first of its batch to arrive, and is right to be appended then. What it
//! must never do is append a batch twice, or one of an epoch that has passed.

use std::collections::{BTreeMap, VecDeque};

use towpath_driver::{Delivery, ProduceFailure};
use towpath_model::{Token, TopicPartition};
use towpath_records::BatchHeader;
use towpath_replication::{Acks, ProduceRefusal};

use super::consumers::Consumer;
use super::producers::validate;
use super::world::{Waiting, World};
use crate::profile::{Violation, ensure};
use crate::rng::Rng;

/// A batch on its way.
#[derive(Debug, Clone)]
pub(super) struct Frame {
    pub(super) producer: usize,
    pub(super) target: TopicPartition,
    pub(super) acks: Acks,
    pub(super) token: Token,
    pub(super) header: BatchHeader,
    pub(super) bytes: Vec<u8>,
    pub(super) is_repeated: bool,
    pub(super) over_restart: bool,
    pub(super) was_refused: bool,
}

/// What was sent over one connection and has not arrived.
#[derive(Debug, Clone, Default)]
struct Connection {
    frames: VecDeque<Frame>,
    /// Whatever is sent from now on is lost; its producer has not noticed yet.
    is_cut: bool,
}

/// How the network of one seed behaves, in percent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Weather {
    /// A frame does not arrive at once.
    pub(super) delays: u64,
    /// A connection is cut while a frame is sent.
    pub(super) cuts: u64,
    /// A frame arrives once more, later.
    pub(super) repeats: u64,
    /// An answer is lost.
    pub(super) loses_answers: u64,
    /// An answer arrives later.
    pub(super) delays_answers: u64,
}

impl Weather {
    pub(super) fn draw(rng: &mut Rng) -> Weather {
        if rng.percent(40) {
            let (delays, cuts, repeats) = (0, 0, 0);
            return Weather { delays, cuts, repeats, loses_answers: 4, delays_answers: 0 };
        }
        Weather {
            delays: rng.weighted(&[(1, 10), (2, 60), (1, 95)]),
            cuts: rng.weighted(&[(1, 0), (1, 2), (1, 10)]),
            repeats: rng.weighted(&[(1, 0), (1, 5), (1, 20)]),
            loses_answers: rng.weighted(&[(1, 2), (1, 20)]),
            delays_answers: rng.weighted(&[(1, 0), (1, 20), (1, 70)]),
        }
    }
}

/// Everything that is on its way.
#[derive(Debug, Default)]
pub(super) struct Network {
    connections: BTreeMap<u64, Connection>,
    opened: u64,
    /// Answers that have left the broker; those over one connection keep their order.
    answers: VecDeque<(Option<u64>, Token, Delivery)>,
}

impl Network {
    /// A new connection.
    pub(super) fn open(&mut self) -> u64 {
        self.opened += 1;
        self.opened
    }

    /// Whether nothing is on its way.
    pub(super) fn is_quiet(&self) -> bool {
        self.answers.is_empty() && self.connections.values().all(|c| c.frames.is_empty())
    }

    fn busy(&self) -> Vec<u64> {
        let busy = self.connections.iter().filter(|(_, c)| !c.frames.is_empty() || c.is_cut);
        busy.map(|(number, _)| *number).collect()
    }

    /// The broker's process is gone, and with it what had been sent to it. Something between here and
    /// there may have kept a copy of what was answered, and passes it on to the next process. Not of
    /// anything else: connections end with the process, so that nothing overtakes what it has lost.
    pub(super) fn process_ended(&mut self, rng: &mut Rng, is_answered: impl Fn(&Frame) -> bool) {
        self.answers.clear();
        self.connections.retain(|_, connection| {
            connection.is_cut = false;
            connection.frames.retain(&is_answered);
            !connection.frames.is_empty() && rng.percent(30)
        });
    }

    /// A producer gives a connection up.
    pub(super) fn leave(&mut self, number: u64, rng: &mut Rng) {
        if rng.percent(40) {
            self.connections.remove(&number);
        } else if let Some(connection) = self.connections.get_mut(&number) {
            connection.is_cut = false;
        }
    }

    /// An answer has to wait, behind those of its connection.
    pub(super) fn hold(&mut self, connection: Option<u64>, token: Token, delivery: Delivery) {
        self.answers.push_back((connection, token, delivery));
    }

    /// Whether answers over this connection wait.
    pub(super) fn holds(&self, connection: Option<u64>) -> bool {
        connection.is_some() && self.answers.iter().any(|(over, ..)| *over == connection)
    }

    /// Some answer that has waited; of a connection, the first.
    fn take_answer(&mut self, rng: &mut Rng) -> Option<(Token, Delivery)> {
        if self.answers.is_empty() {
            return None;
        }
        let drawn = rng.index(self.answers.len());
        let (connection, ..) = self.answers[drawn];
        let is_same = |(over, ..): &(Option<u64>, Token, Delivery)| *over == connection;
        let first = self.answers.iter().position(is_same).filter(|_| connection.is_some());
        let (_, token, delivery) = self.answers.remove(first.unwrap_or(drawn))?;
        Some((token, delivery))
    }
}

impl World {
    /// A producer sends a batch over its connection.
    pub(super) fn transmit(&mut self, frame: Frame) -> Result<(), Violation> {
        let number = self.producers[frame.producer].connection;
        let weather = self.swarm.weather;
        let connection = self.network.connections.entry(number).or_default();
        if !self.is_draining && !connection.is_cut && self.rng.percent(weather.cuts) {
            self.events.note("network: connection cut");
            connection.is_cut = true;
        }
        if connection.is_cut {
            self.events.note("network: request lost");
            return Ok(());
        }
        connection.frames.push_back(frame);
        let waits = 1 < connection.frames.len() || self.rng.percent(weather.delays);
        if waits && !self.is_draining {
            return Ok(());
        }
        self.arrive_over(number)
    }

    /// Something that is on its way arrives, or a producer notices that nothing does.
    pub(super) fn carry(&mut self) -> Result<(), Violation> {
        if self.rng.percent(30)
            && let Some((token, delivery)) = self.network.take_answer(&mut self.rng)
        {
            self.events.note("network: answer came late");
            if matches!(self.waits.get(&token), Some(Waiting::Poll { .. })) {
                self.events.note("consumer: woken late");
            }
            return self.hear(token, delivery);
        }
        let late = self.consumers.iter().position(Consumer::awaits_records);
        if let Some(at) = late.filter(|_| self.rng.percent(30)) {
            return self.records_arrive(at);
        }
        let busy = self.network.busy();
        if busy.is_empty() {
            return Ok(());
        }
        let number = busy[self.rng.index(busy.len())];
        self.arrive_over(number)
    }

    /// Everything that is on its way arrives.
    pub(super) fn carry_all(&mut self) -> Result<(), Violation> {
        while let Some((token, delivery)) = self.network.take_answer(&mut self.rng) {
            self.hear(token, delivery)?;
        }
        for number in self.network.busy() {
            while self.network.connections.contains_key(&number) && !self.machine.has_stopped() {
                self.arrive_over(number)?;
            }
        }
        Ok(())
    }

    /// The next frame of one connection arrives.
    fn arrive_over(&mut self, number: u64) -> Result<(), Violation> {
        let Some(connection) = self.network.connections.get_mut(&number) else { return Ok(()) };
        let Some(frame) = connection.frames.pop_front() else {
            let is_cut = connection.is_cut;
            self.network.connections.remove(&number);
            let owner = self.producers.iter().position(|p| p.connection == number);
            if let Some(at) = owner.filter(|_| is_cut) {
                self.disconnect_producer(at);
            }
            return Ok(());
        };
        if !self.is_draining && self.rng.percent(self.swarm.weather.repeats) {
            // Something between here and there sends it once more.
            let stray = self.network.open();
            self.network.connections.entry(stray).or_default().frames.push_back(frame.clone());
            self.events.note("network: request repeated");
        }
        let is_current = self.producers[frame.producer].awaits(number, frame.token);
        self.machine.trace.event("arrives", &[number, frame.token.0, u64::from(is_current)]);
        if is_current {
            return self.arrived(frame);
        }
        self.events.note("network: request of an old connection arrived");
        self.strayed(frame)
    }

    /// A batch arrives that its producer does not wait for any more.
    fn strayed(&mut self, frame: Frame) -> Result<(), Violation> {
        let Frame { target, acks, token, header, mut bytes, .. } = frame;
        let model = self.partitions.entry(target).or_default();
        let was_acknowledged = model.history.is_acknowledged(&header);
        let newest = model.history.newest_epoch(&header);
        let validated = validate(&bytes)?;
        let result = self.machine.driver().produce(target, &mut bytes, &validated, acks, token);
        if self.machine.has_stopped() {
            return Ok(());
        }
        let model = &self.partitions[&target];
        let may_be_forgotten = model.is_lossy || 0 < model.start.0;
        match result {
            Ok(produced) if produced.is_duplicate => {
                self.events.note("network: stray batch recognised");
            }
            Ok(_) => {
                ensure!(
                    !was_acknowledged || may_be_forgotten,
                    "INV-P1",
                    "{target}: {header:?} was acknowledged, and its repeat is appended"
                );
                ensure!(
                    newest <= Some(header.producer_epoch()) || may_be_forgotten,
                    "INV-P4",
                    "{target}: {header:?} is appended, its producer is at {newest:?}"
                );
                self.events.note("network: stray batch appended first");
                let (now, jumps) = (self.machine.now(), self.machine.jumps());
                let model = self.partitions.entry(target).or_default();
                model.history.sent(&header, &bytes)?;
                model.appended(&bytes, now, jumps)?;
            }
            Err(ProduceFailure::Refused(ProduceRefusal::StaleProducerEpoch { .. })) => {
                self.events.note("network: stray batch fenced");
            }
            Err(ProduceFailure::Refused(ProduceRefusal::DuplicateBeyondWindow { .. })) => {
                self.events.note("network: stray batch is too old to be placed");
            }
            Err(_) => {}
        }
        Ok(())
    }
}
