//! The network between brokers, as `crates/server/src/peer/` uses it.
//!
//! ```text
//! 1 ══ control ═▶ 2     each way and class a connection of its own: in order, until it is cut;
//! 1 ══ records ═▶ 2     then what was last on its way is lost, and it is dialled again
//! ```
//!
//! A way that is blocked (a partition of the network) keeps what is sent, until it is open again or
//! the sender has lost patience. The driver is told what the transport tells it: that there is a
//! connection, in either direction; that the one for control messages is gone; that nobody listens.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use towpath_broker::peer::{Frame, encode_records};
use towpath_driver::{Fed, NextRecords, PeerMessage, Portion};
use towpath_model::{BrokerId, Time};

use super::outbox::Said;
use super::world::{Event, World};
use crate::disk::SimDisk;
use crate::profile::{Violation, ensure};
use crate::rng::Rng;

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    Control,
    Records,
}

/// From whom, to whom, for what.
pub(super) type Way = (BrokerId, BrokerId, Class);

/// Something on its way.
#[derive(Debug)]
pub(super) enum Parcel {
    Message(PeerMessage),
    /// What lies in a file is read from there when it arrives: a sender gives the file away, and
    /// whatever is written into it until the last byte is gone is what goes.
    Records(Vec<Portion<SimDisk>>),
}

/// Something that has arrived.
#[derive(Debug, Clone)]
enum Arrived {
    Message(PeerMessage),
    Records(Vec<Fed>),
}

/// The first rest between two dials, and the longest.
const REST_MIN: Duration = Duration::from_millis(20);
const REST_MAX: Duration = Duration::from_secs(1);
/// How long a dial or a handshake without an answer takes.
const DIAL_MAX: Duration = Duration::from_secs(1);
/// Messages of records that one connection takes at once.
const RECORDS_IN_FLIGHT_MAX: usize = 2;

/// One way of one class.
#[derive(Debug, Default)]
struct Pipe {
    /// The number of the connection, if there is one.
    connection: Option<u64>,
    /// When each of them arrives was decided when it was sent.
    flight: VecDeque<Parcel>,
    last_arrival: Option<Time>,
    /// Arrivals that were due while the way was blocked.
    held: u64,
    rest: Duration,
    is_dialling: bool,
    is_pulling: bool,
}

/// How the network of one seed behaves.
#[derive(Debug, Clone, Copy)]
pub(super) struct Weather {
    /// Messages in a hundred that are late, and by how much at most.
    pub(super) late_percent: u64,
    pub(super) late_max: Duration,
    /// Control messages of the controller in a hundred that are late.
    pub(super) controller_late_percent: u64,
    /// Bytes of records that are asked for at once.
    pub(super) records_bytes: usize,
    /// How long a sender waits for a peer that takes nothing.
    pub(super) patience: Duration,
    /// Messages are turned into bytes and back.
    pub(super) encodes: bool,
}

impl Weather {
    /// Nothing is late any more, and records come in large messages.
    pub(super) fn calm(&mut self) {
        self.late_percent = 0;
        self.controller_late_percent = 0;
        self.records_bytes = 1 << 20;
    }
}

/// All ways.
pub(super) struct Network {
    pipes: BTreeMap<Way, Pipe>,
    opened: u64,
    pub(super) blocked: BTreeSet<(BrokerId, BrokerId)>,
    rng: Rng,
    pub(super) weather: Weather,
}

impl Network {
    pub(super) fn new(rng: Rng, weather: Weather) -> Network {
        Network { pipes: BTreeMap::new(), opened: 0, blocked: BTreeSet::new(), rng, weather }
    }

    fn is_blocked(&self, way: Way) -> bool {
        self.blocked.contains(&(way.0, way.1))
    }

    fn between(&mut self, low: Duration, high: Duration) -> Duration {
        between(&mut self.rng, low, high)
    }

    fn ways(&self, is_wanted: impl Fn(&Way) -> bool) -> Vec<Way> {
        self.pipes.keys().filter(|way| is_wanted(way)).copied().collect()
    }
}

/// Some time between two.
pub(super) fn between(rng: &mut Rng, low: Duration, high: Duration) -> Duration {
    let (low, high) = (low.as_nanos() as u64, high.as_nanos() as u64);
    Duration::from_nanos(rng.between(low, high.max(low)))
}

const MS: Duration = Duration::from_millis(1);

impl World {
    /// What a broker has said in one call goes on its way.
    pub(super) fn transmit(&mut self, from: BrokerId, said: Said) {
        for (to, message) in said.messages {
            self.note_message(from, &message);
            self.send((from, to, Class::Control), Parcel::Message(message));
        }
        for to in said.ready {
            self.wants_pull((from, to, Class::Records));
        }
    }

    fn send(&mut self, way: Way, parcel: Parcel) {
        let is_controllers =
            way.2 == Class::Control && [Some(way.0), Some(way.1)].contains(&self.controller);
        let now = self.now;
        let network = &mut self.network;
        let weather = network.weather;
        let late = if is_controllers { weather.controller_late_percent } else { 0 };
        let mut delay = network.between(MS / 10, MS);
        if network.rng.percent(weather.late_percent) || network.rng.percent(late) {
            delay = network.between(MS, weather.late_max);
        }
        let Some(pipe) = network.pipes.get_mut(&way) else { return };
        let Some(connection) = pipe.connection else {
            self.events.note("network: message without a connection");
            return;
        };
        let arrival = pipe.last_arrival.map_or(now + delay, |last| last.max(now + delay));
        pipe.last_arrival = Some(arrival);
        pipe.flight.push_back(parcel);
        self.schedule(arrival, Event::Arrive(way, connection));
    }

    /// The next parcel of a connection arrives.
    pub(super) fn arrive(&mut self, way: Way, connection: u64) -> Result<(), Violation> {
        let is_blocked = self.network.is_blocked(way);
        let awake_at = self.nodes[&way.1].paused_until.filter(|until| self.now < *until);
        let Some(pipe) = self.network.pipes.get_mut(&way) else { return Ok(()) };
        if pipe.connection != Some(connection) {
            return Ok(());
        }
        if is_blocked {
            pipe.held += 1;
            return Ok(());
        }
        if let Some(until) = awake_at {
            self.schedule(until, Event::Arrive(way, connection));
            return Ok(());
        }
        let Some(parcel) = pipe.flight.pop_front() else { return Ok(()) };
        self.hand_over(way, parcel)?;
        if way.2 == Class::Records {
            self.wants_pull(way);
        }
        Ok(())
    }

    fn hand_over(&mut self, way: Way, parcel: Parcel) -> Result<(), Violation> {
        let (from, to, _) = way;
        let arrived = match parcel {
            Parcel::Message(message) => Arrived::Message(message),
            Parcel::Records(portions) => {
                match portions.into_iter().map(Portion::read).collect::<Result<_, _>>() {
                    Ok(answers) => Arrived::Records(answers),
                    Err(_) => {
                        self.events.note("network: records cut off while they were sent");
                        return self.cut(way);
                    }
                }
            }
        };
        let arrived = if self.network.weather.encodes { recoded(arrived)? } else { arrived };
        match arrived {
            Arrived::Message(message) => {
                let kind = kind_of(&message);
                self.trace.event("arrives", &[from.0 as u64, to.0 as u64, kind]);
                self.trace.remark(|| format!("{from} ─▶ {to}: {message:?}"));
                self.note_arrival(to, &message);
                self.call(to, |driver| driver.receive(from, message))?;
            }
            Arrived::Records(answers) => {
                let count = answers.len() as u64;
                self.trace.event("records", &[from.0 as u64, to.0 as u64, count]);
                self.trace.remark(|| format!("{from} ─▶ {to}: {answers:?}"));
                self.call(to, |driver| driver.receive_records(from, answers))?;
            }
        }
        Ok(())
    }

    fn wants_pull(&mut self, way: Way) {
        let Some(pipe) = self.network.pipes.get_mut(&way) else { return };
        let Some(connection) = pipe.connection else { return };
        if pipe.is_pulling || RECORDS_IN_FLIGHT_MAX <= pipe.flight.len() {
            return;
        }
        pipe.is_pulling = true;
        let delay = self.network.between(MS / 50, MS / 5);
        self.schedule(self.now + delay, Event::Pull(way, connection));
    }

    /// The connection takes records.
    pub(super) fn pull(&mut self, way: Way, connection: u64) -> Result<(), Violation> {
        let (from, to, _) = way;
        if let Some(until) = self.nodes[&from].paused_until.filter(|until| self.now < *until) {
            self.schedule(until, Event::Pull(way, connection));
            return Ok(());
        }
        let Some(pipe) = self.network.pipes.get_mut(&way) else { return Ok(()) };
        if pipe.connection != Some(connection) {
            return Ok(());
        }
        pipe.is_pulling = false;
        let bytes = self.network.weather.records_bytes;
        let next = self.call(from, |driver| match driver.next_records(to, bytes, false) {
            NextRecords::Cold => driver.next_records(to, bytes, true),
            next => next,
        })?;
        if let Some(NextRecords::Answers(answers)) = next {
            self.send(way, Parcel::Records(answers));
            self.wants_pull(way);
        }
        Ok(())
    }

    /// A process begins: it calls everybody, and everybody's connections to the one before end.
    pub(super) fn connect_all(&mut self, of: BrokerId) -> Result<(), Violation> {
        let others: Vec<BrokerId> = self.nodes.keys().copied().filter(|id| *id != of).collect();
        for other in &others {
            for class in [Class::Control, Class::Records] {
                self.network.pipes.entry((of, *other, class)).or_default();
                self.network.pipes.entry((*other, of, class)).or_default();
                self.cut((*other, of, class))?;
                self.dial_soon((of, *other, class), Duration::ZERO);
            }
        }
        Ok(())
    }

    fn dial_soon(&mut self, way: Way, rest: Duration) {
        let rest = self.network.between(rest / 2, rest + MS);
        let Some(pipe) = self.network.pipes.get_mut(&way) else { return };
        if pipe.connection.is_some() || pipe.is_dialling {
            return;
        }
        pipe.is_dialling = true;
        self.schedule(self.now + rest, Event::Dial(way));
    }

    /// Somebody dials.
    pub(super) fn dial(&mut self, way: Way) -> Result<(), Violation> {
        let (from, to, class) = way;
        let is_blocked = self.network.is_blocked(way) || self.network.blocked.contains(&(to, from));
        let Some(pipe) = self.network.pipes.get_mut(&way) else { return Ok(()) };
        pipe.is_dialling = false;
        if pipe.connection.is_some() || !self.nodes[&from].is_up() {
            return Ok(());
        }
        if let Some(until) = self.nodes[&from].paused_until.filter(|until| self.now < *until) {
            self.dial_soon(way, until - self.now);
            return Ok(());
        }
        let there = &self.nodes[&to];
        if is_blocked || there.is_dark || (there.is_up() && !there.is_awake(self.now)) {
            self.dial_soon(way, DIAL_MAX);
            return Ok(());
        }
        if !there.is_up() {
            let rest = pipe.rest.max(REST_MIN);
            pipe.rest = (2 * rest).min(REST_MAX);
            if class == Class::Control {
                self.events.note("network: connection refused");
                self.call(from, |driver| driver.peer_disconnected(to, true))?;
            }
            self.dial_soon(way, rest);
            return Ok(());
        }
        pipe.rest = Duration::ZERO;
        self.network.opened += 1;
        let opened = self.network.opened;
        let pipe = self.network.pipes.get_mut(&way).expect("looked up above");
        pipe.connection = Some(opened);
        pipe.flight.clear();
        pipe.held = 0;
        pipe.last_arrival = None;
        pipe.is_pulling = false;
        self.trace.event("connected", &[from.0 as u64, to.0 as u64, class as u64]);
        self.call(from, |driver| driver.peer_connected(to))?;
        self.call(to, |driver| driver.peer_connected(from))?;
        if class == Class::Records {
            self.wants_pull(way);
        }
        // Who is called calls back, and rests no longer.
        let back = (to, from, class);
        if self.network.pipes.get(&back).is_some_and(|pipe| !pipe.is_dialling) {
            self.dial_soon(back, Duration::ZERO);
        }
        Ok(())
    }

    /// A connection ends: what was sent last is lost.
    pub(super) fn cut(&mut self, way: Way) -> Result<(), Violation> {
        let (from, to, class) = way;
        let Some(pipe) = self.network.pipes.get_mut(&way) else { return Ok(()) };
        if pipe.connection.take().is_none() {
            return Ok(());
        }
        pipe.is_pulling = false;
        pipe.held = 0;
        let mut flight = std::mem::take(&mut pipe.flight);
        let arrives = self.network.rng.index(flight.len() + 1);
        let can_arrive = !self.network.is_blocked(way) && self.nodes[&to].is_awake(self.now);
        let lost = if can_arrive { flight.split_off(arrives) } else { std::mem::take(&mut flight) };
        self.trace.event("cut", &[from.0 as u64, to.0 as u64, class as u64, lost.len() as u64]);
        self.events.note("network: connection cut");
        self.events.add("network: message lost", lost.len() as u64);
        for parcel in flight {
            self.hand_over(way, parcel)?;
        }
        if class == Class::Control {
            self.call(from, |driver| driver.peer_disconnected(to, false))?;
        }
        self.dial_soon(way, Duration::ZERO);
        Ok(())
    }

    /// A process has ended, or its machine has: its connections go, at once where somebody tells.
    pub(super) fn disconnect_all(&mut self, gone: BrokerId) -> Result<(), Violation> {
        let from = self.network.ways(|way| way.0 == gone);
        for way in from {
            self.cut(way)?;
        }
        let to = self.network.ways(|way| way.1 == gone);
        let is_dark = self.nodes[&gone].is_dark;
        for way in to {
            let Some(connection) = self.network.pipes[&way].connection else { continue };
            let after = if is_dark { self.network.weather.patience } else { MS };
            self.schedule(self.now + after, Event::Cut(way, connection));
        }
        Ok(())
    }

    /// A connection ends, if it is still the same one.
    pub(super) fn cut_if(&mut self, way: Way, connection: u64) -> Result<(), Violation> {
        let is_same = self.network.pipes.get(&way).and_then(|p| p.connection) == Some(connection);
        if is_same { self.cut(way) } else { Ok(()) }
    }

    /// Some connection is cut.
    pub(super) fn cut_one(&mut self) -> Result<(), Violation> {
        let ways = self.network.ways(|_| true);
        let up: Vec<Way> =
            ways.into_iter().filter(|way| self.network.pipes[way].connection.is_some()).collect();
        if up.is_empty() {
            return Ok(());
        }
        let way = up[self.rng.index(up.len())];
        self.cut(way)
    }

    /// These ways carry nothing any more.
    pub(super) fn block(&mut self, ways: &[(BrokerId, BrokerId)]) {
        for (from, to) in ways {
            self.network.blocked.insert((*from, *to));
            for class in [Class::Control, Class::Records] {
                let way = (*from, *to, class);
                let connection = self.network.pipes.get(&way).and_then(|pipe| pipe.connection);
                let Some(connection) = connection else { continue };
                let patience = self.network.weather.patience;
                self.schedule(self.now + patience, Event::LosePatience(way, connection));
            }
        }
    }

    /// A sender has waited long enough, if the way is still blocked.
    pub(super) fn lose_patience(&mut self, way: Way, connection: u64) -> Result<(), Violation> {
        if self.network.is_blocked(way) { self.cut_if(way, connection) } else { Ok(()) }
    }

    /// These ways are open again: what was held arrives now.
    pub(super) fn unblock(&mut self, ways: &[(BrokerId, BrokerId)]) {
        for (from, to) in ways {
            if !self.network.blocked.remove(&(*from, *to)) {
                continue;
            }
            for class in [Class::Control, Class::Records] {
                let way = (*from, *to, class);
                let Some(pipe) = self.network.pipes.get_mut(&way) else { continue };
                let held = std::mem::take(&mut pipe.held);
                let Some(connection) = pipe.connection else { continue };
                for _ in 0..held {
                    self.events.note("network: message held by a partition");
                    self.schedule(self.now + MS, Event::Arrive(way, connection));
                }
            }
        }
    }
}

/// As its bytes say it.
fn recoded(arrived: Arrived) -> Result<Arrived, Violation> {
    let bytes = match &arrived {
        Arrived::Message(message) => message.encode(),
        Arrived::Records(answers) => encode_records(answers.clone()).concat(),
    };
    let frame = Frame::decode(&bytes.into());
    let frame = frame.map_err(|error| Violation::new("INV-X2", format!("a message: {error}")))?;
    let (recoded, is_same) = match (frame, &arrived) {
        (Frame::Message(message), Arrived::Message(sent)) => {
            let is_same = message == *sent;
            (Arrived::Message(message), is_same)
        }
        (Frame::Records(answers), Arrived::Records(sent)) => {
            let is_same = answers == *sent;
            (Arrived::Records(answers), is_same)
        }
        (_, _) => (arrived.clone(), false),
    };
    ensure!(is_same, "INV-X2", "a message changes on its way: {arrived:?}");
    Ok(recoded)
}

fn kind_of(message: &PeerMessage) -> u64 {
    match message {
        PeerMessage::Raft(_) => 0,
        PeerMessage::Ask { .. } => 1,
        PeerMessage::Answer { .. } => 2,
        PeerMessage::NotController { .. } => 3,
        PeerMessage::Join { .. } => 4,
        PeerMessage::Positions { .. } => 5,
        PeerMessage::Durable { .. } => 6,
        _ => 7,
    }
}
