//! What time alone leads to: leases and delays end, messages grow too old, receivers have waited long
//! enough, or get what has become ready.
//!
//! One step does a bounded amount of one of these things, and is called again until nothing is due.

use std::sync::Arc;
use std::time::Duration;

use towpath_model::mutant::{self, Mutant};
use towpath_model::{Decision, Now, Offset, StateMachine, Time, Token};

use crate::decide::{DeliveryDecision, GiveBack};
use crate::deliveries::Deliveries;
use crate::record::{Record, Return};
use crate::request::{Reply, Request, Wait};
use crate::subscription::{Place, Subscription};
use crate::time::QueueTime;

/// Most messages that one step concerns.
const STEP_MAX: usize = 1_000;

/// While something is held, delayed or remembered, the log says at least this often how late it is: that is what a
/// process that starts from it alone goes by.
const TICK: Duration = Duration::from_secs(5);

impl StateMachine for Deliveries {
    type Request = Request;
    type Record = Record;
    type Reply = Reply;

    fn decide(&self, now: Now, token: Token, request: Request) -> DeliveryDecision {
        self.answer(now, token, request)
    }

    fn apply(&mut self, record: &Record) {
        self.carry_out(record);
    }

    fn expire(&self, now: Now) -> DeliveryDecision {
        let at = self.clock.now(now.time);
        self.end_delays(at)
            .or_else(|| self.end_leases(now, at))
            .or_else(|| self.drop_expired(at))
            .or_else(|| self.drop_aged(at))
            .or_else(|| self.serve(now, at))
            .or_else(|| self.end_waits(now, at))
            .or_else(|| self.tick(at))
            .unwrap_or_default()
    }

    fn resume(&self, now: Now) -> DeliveryDecision {
        let mut at = self.clock.now(now.time);
        if mutant::is_on(Mutant::LeaseShortenedByFailover) {
            at = at + TICK;
        }
        let runs = Record::Runs { at, time: now.time };
        let resumed = Record::Resumed { at, end: self.records_end };
        Decision { records: vec![runs, resumed], replies: Vec::new() }
    }

    fn next_deadline(&self) -> Option<Time> {
        if !self.runs {
            return None;
        }
        let is_wanted = self.can_serve().is_some() && !mutant::is_on(Mutant::ReceiverNotWoken);
        if !self.messages.expired.is_empty() || is_wanted {
            return Some(Time(0));
        }
        let own = self.subscriptions.values();
        let leases = own.clone().filter_map(Subscription::first_deadline);
        let delays = own.filter_map(|own| own.delays.first());
        let messages = [self.messages.delays.first(), self.messages.expiries.first()];
        let ages = self.next_age().map(|(_, at)| at);
        let tick = self.is_any_pending().then(|| self.clock.last() + TICK);
        let first =
            leases.chain(delays).chain(messages.into_iter().flatten()).chain(ages).chain(tick);
        let first = first.min().map(|at| self.clock.when(at));
        first.into_iter().chain(self.waits.first_end()).min()
    }
}

impl Deliveries {
    fn end_delays(&self, at: QueueTime) -> Option<DeliveryDecision> {
        let own = self.subscriptions.values().filter_map(|own| own.delays.first());
        let messages = [self.messages.delays.first(), self.messages.expiries.first()];
        let first = own.chain(messages.into_iter().flatten()).min()?;
        (first <= at).then(|| just(vec![Record::Passed { at }]))
    }

    fn end_leases(&self, now: Now, at: QueueTime) -> Option<DeliveryDecision> {
        self.subscriptions.iter().find_map(|(number, own)| {
            let mut overdue = own.overdue(at, STEP_MAX);
            if mutant::is_on(Mutant::LeaseByWall) {
                overdue.extend(own.overdue_by_wall(now.wall));
            }
            let messages = overdue.into_iter().filter_map(|offset| {
                let delay = self.backoff(offset, own.live.get(offset)?.receives);
                Some((offset, (!delay.is_zero()).then_some(at + delay)))
            });
            let messages: Vec<_> = messages.collect();
            let how = GiveBack { at, subscription: *number, why: Return::LeaseExpired, note: None };
            (!messages.is_empty()).then(|| just(self.come_back(&how, messages)))
        })
    }

    /// Messages whose own time is over, where nobody holds them; the others are looked at when they come
    /// back.
    fn drop_expired(&self, at: QueueTime) -> Option<DeliveryDecision> {
        if self.messages.expired.is_empty() {
            return None;
        }
        let mut records = Vec::new();
        for (number, own) in &self.subscriptions {
            let expired = self.messages.expired.iter().copied();
            let waiting: Vec<Offset> = expired.filter(|offset| is_waiting(own, *offset)).collect();
            records.extend(self.expired(at, *number, waiting));
        }
        records.push(Record::Looked);
        Some(just(records))
    }

    /// The first message that is not known to be older than messages may be, and when the ones from it
    /// on become so.
    fn next_age(&self) -> Option<(Offset, QueueTime)> {
        let retention = self.config.retention?;
        let after =
            self.messages.ages.partition_point(|(first, _)| *first <= self.messages.aged_to);
        let (first, at) = self.messages.ages.get(after.saturating_sub(1))?;
        let is_left = self.messages.aged_to < self.messages.admitted_to;
        let from = (*first).max(self.messages.aged_to);
        // Entries are about a second apart: nothing goes early.
        is_left.then(|| (from, *at + Duration::from_secs(1) + retention))
    }

    fn drop_aged(&self, at: QueueTime) -> Option<DeliveryDecision> {
        let (from, when) = self.next_age()?;
        if at < when {
            return None;
        }
        let next = self.messages.ages.partition_point(|(first, _)| *first <= from);
        let end =
            self.messages.ages.get(next).map_or(self.messages.admitted_to, |(first, _)| *first);
        let to = self.config.dead_letter_queue.as_ref();
        if to.filter(|_| self.config.expired_are_dead_letters).is_none() {
            return Some(just(vec![
                Record::Trimmed { at, start: end },
                Record::Aged { at, to: end },
            ]));
        }
        let mut reached = end;
        for own in self.subscriptions.values() {
            let nth = own.settled.unsettled(from..end).nth(STEP_MAX);
            reached = nth.map_or(reached, |offset| reached.min(offset));
        }
        let mut records = vec![Record::Aged { at, to: reached }];
        for (number, own) in &self.subscriptions {
            let old = own.settled.unsettled(from..reached);
            let waiting: Vec<Offset> = old.filter(|offset| is_waiting(own, *offset)).collect();
            records.extend(self.expired(at, *number, waiting));
        }
        Some(just(records))
    }

    /// The first receiver that can get something.
    fn can_serve(&self) -> Option<&Arc<Wait>> {
        self.waits.first_of(|subscription| {
            let own = self.subscriptions.get(&subscription);
            own.is_some_and(|own| own.has_ready() && own.leased < self.config.in_flight_max)
        })
    }

    fn serve(&self, now: Now, at: QueueTime) -> Option<DeliveryDecision> {
        let wait = self.can_serve()?;
        let own = self.subscriptions.get(&wait.receive.subscription)?;
        let picked = self.pick(own, wait.receive.max);
        let mut records = self.exceeded(at, wait.receive.subscription, picked.exceeded);
        if picked.offsets.is_empty() {
            return Some(just(records));
        }
        let (record, reply) = self.hand_out(now, own, &wait.receive, picked.offsets);
        records.extend([record, Record::WaitOver(wait.token)]);
        Some(Decision { records, replies: vec![(wait.token, reply)] })
    }

    fn end_waits(&self, now: Now, at: QueueTime) -> Option<DeliveryDecision> {
        let tokens: Vec<Token> = self.waits.over(now.time).take(STEP_MAX).collect();
        let none = || Reply::Received { messages: Vec::new(), until: at };
        (!tokens.is_empty()).then(|| Decision {
            records: tokens.iter().map(|token| Record::WaitOver(*token)).collect(),
            replies: tokens.iter().map(|token| (*token, none())).collect(),
        })
    }

    fn is_any_pending(&self) -> bool {
        self.messages.delays.first().is_some()
            || 0 < self.dedup.ids()
            || self.subscriptions.values().any(|own| 0 < own.leased + own.delayed_again)
    }

    fn tick(&self, at: QueueTime) -> Option<DeliveryDecision> {
        let is_due = self.is_any_pending() && self.clock.last() + TICK <= at;
        is_due.then(|| just(vec![Record::Ticked { at }]))
    }
}

fn just(records: Vec<Record>) -> DeliveryDecision {
    Decision { records, replies: Vec::new() }
}

/// Whether a message is neither settled, nor held, nor on its way elsewhere.
fn is_waiting(own: &Subscription, offset: Offset) -> bool {
    let place = own.live.get(offset).map(|live| live.place);
    !own.settled.contains(offset)
        && !own.moving.contains(offset)
        && !matches!(place, Some(Place::Leased { .. } | Place::Moving))
}
