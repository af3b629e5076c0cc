//! Clients of queues: they send, receive, and do what they like with what they got, long after their time too.

use std::sync::Arc;
use std::time::Duration;

use towpath_driver::{Delivery, Outcome};
use towpath_model::{BrokerId, Offset, Token, TopicPartition};
use towpath_queue::{DeadReason, Receipt, Receive, Request};
use towpath_replication::Acks;

use super::account::{Account, Act, Asked, Message, Place};
use super::carrier::Carrying;
use super::drain::Probe;
use super::mix::{Mix, Step};
use super::records::{Stored, batch};
use super::subscribers::{Names, Naming};
use super::{DEAD, QUEUE};
use crate::profile::Violation;
use crate::profiles::broker::validate;
use crate::profiles::cluster::network::between;
use crate::profiles::cluster::world::{Event, Waiting, World};

/// Messages without an answer that are sent again later.
const UNHEARD_MAX: usize = 10;

/// Everybody who works queues, and what they know.
#[derive(Debug, Default)]
pub(in super::super) struct Clients {
    pub(super) account: Account,
    pub(super) queues: Vec<TopicPartition>,
    pub(super) dead: Vec<TopicPartition>,
    sent: u64,
    attempts: u64,
    pub(super) kept: Vec<(Place, Receipt)>,
    pub(super) unheard: Vec<(TopicPartition, u64, Stored)>,
    /// Receives that wait, by whom they were asked.
    waiting: Vec<(BrokerId, Token)>,
    pub(super) names: Names,
    pub(super) probe: Option<Probe>,
    /// Messages that were received at the end.
    pub(super) drained: u64,
}

/// A receive on its way.
#[derive(Debug, Clone)]
pub(in super::super) struct Receiving {
    pub(super) asked: Asked,
    /// Its client has hung up.
    pub(super) is_given_up: bool,
}

/// Who waits for what.
#[derive(Debug, Clone)]
pub(in super::super) enum Waiter {
    Sent {
        partition: TopicPartition,
        base: Offset,
        claims: Vec<u64>,
        numbers: Vec<u64>,
    },
    Received(Receiving),
    /// The messages are to be committed before they are read.
    Reads {
        receiving: Receiving,
        messages: Vec<towpath_queue::Delivery>,
    },
    Settled {
        place: Place,
        act: Act,
        receipts: Vec<Receipt>,
        call: u64,
    },
    Carries(Carrying),
    Named(Naming),
    Nothing,
}

impl World {
    /// Tells the account of the queues, and makes the second subscriptions.
    pub(super) fn serve_queues(&mut self, mix: &Mix) -> Result<bool, Violation> {
        for (name, rules, partitions) in [(DEAD, &mix.dead, 1), (QUEUE, &mix.own, mix.partitions)] {
            for index in 0..partitions {
                let Some(id) = self.partition_named(name, index) else { return Ok(false) };
                let Some(of) = self.leading(id) else { return Ok(false) };
                if !self.takes_over(of, id, partitions)? {
                    return Ok(false);
                }
                if rules.subscriptions == 1 {
                    continue;
                }
                let has_second = self.call(of, |driver| {
                    driver.with_deliveries(id, |it, _| it.subscription("second").is_some())
                })?;
                if !matches!(has_second, Some(Ok(true))) {
                    let name = Arc::from("second");
                    let told = partitions.unsigned_abs();
                    let request = Request::Subscribe { name, from_start: true, partitions: told };
                    let token = self.token();
                    self.call(of, |driver| driver.ask_deliveries(id, token, request))?;
                    return Ok(false);
                }
            }
        }
        // What has just been asked for is committed, where messages are late perhaps by as much again.
        self.run_until(self.now + Duration::from_millis(500))?;
        if !self.are_deliveries_committed() {
            return Ok(false);
        }
        for (name, rules, partitions) in [(DEAD, &mix.dead, 1), (QUEUE, &mix.own, mix.partitions)] {
            for index in 0..partitions {
                let Some(id) = self.partition_named(name, index) else { return Ok(false) };
                self.work.account.serves(id, rules.clone());
                self.books.entry(id).or_default().has_gaps = mix.is_only;
                let list = if name == DEAD { &mut self.work.dead } else { &mut self.work.queues };
                list.push(id);
            }
        }
        Ok(true)
    }

    /// A partition takes over what its queue has, which is nothing yet; says whether it has done so.
    fn takes_over(
        &mut self,
        of: BrokerId,
        id: TopicPartition,
        partitions: i32,
    ) -> Result<bool, Violation> {
        let has_all =
            self.call(of, |driver| driver.with_deliveries(id, |it, _| it.has_taken_over()))?;
        if matches!(has_all, Some(Ok(true))) {
            return Ok(true);
        }
        let (names, partitions) = (Vec::new(), partitions.unsigned_abs());
        let token = self.token();
        let request = Request::TakeOver { names, partitions };
        self.call(of, |driver| driver.ask_deliveries(id, token, request))?;
        Ok(false)
    }

    fn are_deliveries_committed(&self) -> bool {
        let mut led = self
            .views
            .iter()
            .filter(|((_, log), view)| log.is_delivery_log() && view.leads.is_some());
        led.all(|((_, log), view)| self.books.get(log).is_some_and(|book| view.end <= book.end))
    }

    fn partition_named(&self, name: &str, index: i32) -> Option<TopicPartition> {
        let partition = towpath_model::PartitionIndex(index);
        let mut processes = self.nodes.values().filter_map(|node| node.process.as_ref());
        processes.find_map(|process| process.driver.partition_of(name, partition))
    }

    /// Whoever leads a queue's partition, as the metadata has it, and is awake.
    pub(super) fn leading(&self, id: TopicPartition) -> Option<BrokerId> {
        let leader = self.truth.newest(id)?.leader?;
        self.nodes[&leader].is_awake(self.now).then_some(leader)
    }

    /// Whom a client asks about a queue's partition.
    pub(super) fn whom(&mut self, id: TopicPartition) -> Option<BrokerId> {
        let guess = match self.rng.percent(15) {
            true => self.some_leader(id),
            false => self.guess_leader(id),
        };
        guess.filter(|of| self.nodes[of].is_awake(self.now))
    }

    /// A client does something.
    pub(in super::super) fn work(&mut self) -> Result<(), Violation> {
        let steps = &self.swarm.work.as_ref().expect("queues are worked").steps;
        let step = self.rng.weighted(steps);
        self.trace.event("work", &[step as u64]);
        match step {
            Step::Send => self.send_new(),
            Step::Repeat => self.send_again(),
            Step::Receive => {
                let place = self.any_place();
                let waits = self.rng.percent(40);
                let wait = waits.then(|| Duration::from_millis(self.rng.between(50, 2_500)));
                let visibility = self.any_visibility();
                let max = self.rng.weighted(&[(2, 1), (2, 3), (1, 10)]);
                self.receive(place, max, visibility, wait)
            }
            Step::Delete => self.settle_some(Act::Delete),
            Step::Extend => {
                let keep =
                    if self.rng.percent(25) { Duration::ZERO } else { self.any_visibility() };
                self.settle_some(Act::Extend(keep))
            }
            Step::Release => {
                let delay = self.rng.percent(50).then(|| self.any_delay());
                self.settle_some(Act::Release(delay))
            }
            Step::Reject => self.settle_some(Act::Reject),
            Step::Unclaim => self.settle_some(Act::Unclaim),
            Step::HangUp => self.hang_up(),
            Step::Purge => self.purge(),
            Step::Dispose => self.dispose(),
            Step::DeleteRecords => self.delete_messages(),
            Step::Name => self.name_or_end(),
        }
    }

    pub(super) fn any_place(&mut self) -> Place {
        let ended = self.work.account.ended_places();
        let places = match ended.is_empty() || self.rng.percent(95) {
            true => self.work.account.places(),
            false => ended,
        };
        places[self.rng.index(places.len())]
    }

    fn any_visibility(&mut self) -> Duration {
        let longest = self.mix().visibility_max;
        between(&mut self.rng, Duration::from_millis(200), longest)
    }

    fn any_delay(&mut self) -> Duration {
        let longest = self.mix().delay_max;
        between(&mut self.rng, Duration::from_millis(100), longest)
    }

    fn send_new(&mut self) -> Result<(), Violation> {
        let count = self.rng.weighted(&[(3, 1), (1, 4)]);
        let group = self.rng.below(self.mix().groups) as u8;
        let partition = self.work.queues[usize::from(group) % self.work.queues.len()];
        let mut all = Vec::new();
        for _ in 0..count {
            let (ids, delays) = (self.mix().ids, self.mix().delays);
            let (lifetimes, priorities) = (self.mix().lifetimes, self.mix().priorities);
            let delay = self.rng.percent(delays).then(|| self.any_delay());
            let ttl = self
                .rng
                .percent(lifetimes)
                .then(|| Duration::from_millis(self.rng.weighted(&[(1, 1_500), (1, 3_600_000)])));
            let priority = self.rng.percent(priorities).then(|| self.rng.below(10) as u8);
            let has_id = self.rng.percent(ids);
            let message = Message { group: Some(group), delay, ttl, has_id, sent_at: self.now };
            all.push(self.new_message(message, priority));
        }
        self.send_to(partition, all)
    }

    /// A message that nobody has sent before.
    pub(super) fn new_message(&mut self, message: Message, priority: Option<u8>) -> (u64, Stored) {
        self.work.sent += 1;
        let number = self.work.sent;
        let stored = Stored::of(number, &message, priority);
        self.work.account.sends(number, message);
        (number, stored)
    }

    /// What has no answer is sent again.
    fn send_again(&mut self) -> Result<(), Violation> {
        if self.work.unheard.is_empty() {
            return Ok(());
        }
        let at = self.rng.index(self.work.unheard.len());
        let (partition, number, stored) = self.work.unheard.swap_remove(at);
        self.events.note("work: send repeated");
        self.send_to(partition, vec![(number, stored)])
    }

    /// Sends messages to whoever seems to lead.
    pub(super) fn send_to(
        &mut self,
        partition: TopicPartition,
        all: Vec<(u64, Stored)>,
    ) -> Result<(), Violation> {
        for (number, stored) in &all {
            self.work.unheard.push((partition, *number, stored.clone()));
        }
        if UNHEARD_MAX < self.work.unheard.len() {
            let excess = self.work.unheard.len() - UNHEARD_MAX;
            self.work.unheard.drain(..excess);
        }
        let Some(of) = self.whom(partition) else { return Ok(()) };
        let numbers: Vec<u64> = all.iter().map(|(number, _)| *number).collect();
        let stored: Vec<Stored> = all.into_iter().map(|(_, stored)| stored).collect();
        let appended = self.append(of, partition, &stored, |base, claims| Waiter::Sent {
            partition,
            base,
            claims,
            numbers,
        })?;
        if appended {
            self.events.note("work: message sent");
        }
        Ok(())
    }

    /// Appends records at a broker; says whether it has taken them. Whoever `waiter` makes hears when they
    /// are committed.
    pub(super) fn append(
        &mut self,
        of: BrokerId,
        partition: TopicPartition,
        stored: &[Stored],
        waiter: impl FnOnce(Offset, Vec<u64>) -> Waiter,
    ) -> Result<bool, Violation> {
        let asked = self.now;
        let wall = self.nodes[&of].wall();
        let mut bytes = batch(stored, wall);
        let validated = validate(&bytes)?;
        let token = self.token();
        // The answer may be given before the call has returned.
        self.waits.insert((of, token), Waiting::Work(Box::new(Waiter::Nothing)));
        let result = self.call(of, |driver| {
            let result = driver.produce(partition, &mut bytes, &validated, Acks::All, token);
            (result, bytes)
        })?;
        let wait = self.waits.remove(&(of, token));
        let Some((Ok(produced), _)) = result else { return Ok(false) };
        let mut claims = Vec::new();
        for (index, one) in stored.iter().enumerate() {
            let offset = produced.base_offset + index as i64;
            let written = one.written()?;
            claims.push(self.work.account.appended(partition, offset, &written, asked));
        }
        let waiter = waiter(produced.base_offset, claims);
        if produced.is_pending && wait.is_some() {
            self.waits.insert((of, token), Waiting::Work(Box::new(waiter)));
        } else if !produced.is_pending {
            let heard = Delivery::Wait(Outcome::Reached);
            self.work_leaves(of, &waiter, &heard)?;
            self.waits.insert((of, token), Waiting::Work(Box::new(waiter)));
            self.schedule(self.now, Event::Heard(of, token, Box::new(heard)));
        }
        Ok(true)
    }

    /// Receives at a place.
    pub(super) fn receive(
        &mut self,
        place: Place,
        max: u32,
        visibility: Duration,
        wait: Option<Duration>,
    ) -> Result<(), Violation> {
        let (partition, subscription) = place;
        let Some(of) = self.whom(partition) else { return Ok(()) };
        let is_named = !self.is_healing && self.rng.percent(20);
        let attempt = is_named.then(|| {
            self.work.attempts += u64::from(self.rng.percent(60));
            self.work.attempts
        });
        let token = self.token();
        let asked = self.work.account.receive_asked(place, self.now, visibility, attempt);
        let receiving = Receiving { asked, is_given_up: false };
        self.waits.insert((of, token), Waiting::Work(Box::new(Waiter::Received(receiving))));
        let attempt = attempt.map(|attempt| Arc::from(attempt.to_be_bytes().as_slice()));
        let holder: Arc<str> = Arc::from("client");
        let result = self.call(of, |driver| {
            use towpath_driver::Clock as _;
            let wait_until = wait.map(|wait| driver.clock().now().time + wait);
            let receive = Receive { subscription, max, visibility, wait_until, holder, attempt };
            driver.ask_deliveries(partition, token, Request::Receive(receive))
        })?;
        match result {
            Some(Ok(())) => {
                if wait.is_some() {
                    self.work.waiting.push((of, token));
                }
                Ok(())
            }
            _ => match self.waits.remove(&(of, token)) {
                Some(waiting) => self.gives_up(waiting),
                None => Ok(()),
            },
        }
    }

    /// A client that waits hangs up. What is handed out to it all the same is given back.
    fn hang_up(&mut self) -> Result<(), Violation> {
        let waits = &self.waits;
        self.work.waiting.retain(|wait| waits.contains_key(wait));
        if self.work.waiting.is_empty() {
            return Ok(());
        }
        let at = self.rng.index(self.work.waiting.len());
        let (of, token) = self.work.waiting.swap_remove(at);
        let Some(Waiting::Work(waiter)) = self.waits.get_mut(&(of, token)) else { return Ok(()) };
        let Waiter::Received(receiving) = waiter.as_mut() else { return Ok(()) };
        receiving.is_given_up = true;
        let partition = receiving.asked.place.0;
        self.events.note("work: receiver hung up");
        if self.nodes[&of].is_awake(self.now) {
            let request = Request::StopWaiting { waiter: token };
            let nobody = self.token();
            self.call(of, |driver| driver.ask_deliveries(partition, nobody, request))?;
        }
        Ok(())
    }

    fn settle_some(&mut self, act: Act) -> Result<(), Violation> {
        if self.work.kept.is_empty() {
            return Ok(());
        }
        // Mostly the newest ones.
        let len = self.work.kept.len();
        let at = match self.rng.percent(60) {
            true => len - 1 - self.rng.index(len.min(4)),
            false => self.rng.index(len),
        };
        let (place, receipt) = self.work.kept[at];
        let mut receipts = vec![receipt];
        if self.rng.percent(30) {
            let more = self.work.kept.iter().filter(|(of, _)| *of == place).map(|(_, r)| *r);
            receipts.extend(more.filter(|other| *other != receipt).take(3));
        }
        self.settle(place, act, receipts)
    }

    /// Does something with what was received.
    pub(super) fn settle(
        &mut self,
        place: Place,
        act: Act,
        receipts: Vec<Receipt>,
    ) -> Result<(), Violation> {
        let (partition, subscription) = place;
        let Some(of) = self.whom(partition) else { return Ok(()) };
        let note: Arc<str> = Arc::from("no");
        let with = |keep: Duration| receipts.iter().map(|receipt| (*receipt, keep)).collect();
        let all = receipts.clone();
        let request = match act {
            Act::Delete => Request::Delete { subscription, receipts: all },
            Act::Extend(keep) => Request::Extend { subscription, receipts: with(keep) },
            Act::Release(delay) => {
                Request::Release { subscription, receipts: all, delay, note: Some(note) }
            }
            Act::Reject => Request::Reject { subscription, receipts: all, note },
            Act::Unclaim => Request::Unclaim { subscription, receipts: all },
        };
        let call = self.work.account.settle_asked(place, act, &receipts, self.now);
        self.ask_queue(of, partition, request, Waiter::Settled { place, act, receipts, call })
            .map(drop)
    }

    /// Asks the deliveries of a partition; says whether there may be an answer.
    pub(super) fn ask_queue(
        &mut self,
        of: BrokerId,
        partition: TopicPartition,
        request: Request,
        waiter: Waiter,
    ) -> Result<bool, Violation> {
        let token = self.token();
        self.waits.insert((of, token), Waiting::Work(Box::new(waiter)));
        let asked = self.call(of, |driver| driver.ask_deliveries(partition, token, request))?;
        let is_asked = matches!(asked, Some(Ok(())));
        if !is_asked {
            self.waits.remove(&(of, token));
        }
        Ok(is_asked)
    }

    fn purge(&mut self) -> Result<(), Violation> {
        let place = self.any_place();
        let Some(of) = self.whom(place.0) else { return Ok(()) };
        self.work.account.purge_asked(place, self.now);
        self.events.note("work: purge");
        let request = Request::Purge { subscription: place.1 };
        self.ask_queue(of, place.0, request, Waiter::Nothing).map(drop)
    }

    /// Somebody drops messages, or moves them to the other queue, whoever has them.
    fn dispose(&mut self) -> Result<(), Violation> {
        let place = self.any_place();
        let offsets = self.work.account.offsets(place.0);
        if offsets.is_empty() {
            return Ok(());
        }
        let from = self.rng.index(offsets.len());
        let count = self.rng.between(1, 3) as usize;
        let offsets: Vec<Offset> = offsets.into_iter().skip(from).take(count).collect();
        let Some(of) = self.whom(place.0) else { return Ok(()) };
        let other = if self.work.dead.contains(&place.0) { QUEUE } else { DEAD };
        let is_moved = self.rng.percent(70);
        self.work.account.dispose_asked(place, &offsets, is_moved, self.now);
        self.events.note(if is_moved { "work: messages moved" } else { "work: messages dropped" });
        let to = is_moved.then(|| (Arc::from(other), DeadReason::Redriven));
        let (held_too, note) = (self.rng.percent(50), None);
        let request = Request::Dispose { subscription: place.1, offsets, held_too, to, note };
        self.ask_queue(of, place.0, request, Waiter::Nothing).map(drop)
    }

    fn delete_messages(&mut self) -> Result<(), Violation> {
        let (partition, _) = self.any_place();
        let Some(of) = self.whom(partition) else { return Ok(()) };
        let offsets = self.work.account.offsets(partition);
        if offsets.is_empty() {
            return Ok(());
        }
        let before = offsets[self.rng.index(offsets.len().min(6))];
        self.work.account.deletion_asked(partition, before, self.now);
        let deleted = self.call(of, |driver| driver.delete_records(partition, Some(before)))?;
        if matches!(deleted, Some(Ok(_))) {
            self.events.note("work: records deleted");
        }
        Ok(())
    }
}
