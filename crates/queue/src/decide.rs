//! What a request leads to. Only who leads decides; everything that follows from the configuration is
//! in the records, so that who folds them needs none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use towpath_model::mutant::{self, Mutant};
use towpath_model::{Decision, Now, Offset, Timestamp, Token};

use crate::dedup::DedupKey;
use crate::deliveries::{Deliveries, SUBSCRIPTIONS_MAX};
use crate::record::{DeadReason, Record, Return, Settlement, Special, Verdict};
use crate::request::{
    Delay, Delivery, Departure, Facts, Receipt, ReceiptOutcome, Receive, Reply, Request, Retry,
    Wait,
};
use crate::stats::PeekState;
use crate::subscription::{Live, Move, Place, Subscription};
use crate::time::QueueTime;

/// What [`Deliveries`] decides.
pub type DeliveryDecision = Decision<Record, Reply>;

/// The longest that one delivery may be held altogether, as SQS has it.
pub const LEASE_MAX: Duration = Duration::from_secs(12 * 60 * 60);

/// Most messages of one receive.
pub const RECEIVE_MAX: u32 = 500;

/// Messages that are to be moved and that one receive passes over, at most.
const EXCEEDED_MAX: usize = 1_000;

/// What a receive gets.
pub(crate) struct Picked {
    pub(crate) offsets: Vec<Offset>,
    /// Messages that were received too often, and go elsewhere instead.
    pub(crate) exceeded: Vec<Offset>,
}

impl Deliveries {
    pub(crate) fn answer(&self, now: Now, token: Token, request: Request) -> DeliveryDecision {
        let at = self.clock.now(now.time);
        match request {
            Request::Admit { base, count, facts } => self.admit_all(now, token, base, count, facts),
            Request::Skip { to } => {
                let admitted_to = self.messages.admitted_to.max(to);
                let is_news = self.messages.admitted_to < to;
                Decision {
                    records: is_news.then_some(Record::Skipped { at, to }).into_iter().collect(),
                    replies: vec![(token, Reply::Admitted { admitted_to })],
                }
            }
            Request::Receive(receive) => self.receive(now, token, receive),
            Request::StopWaiting { waiter } => {
                Decision { records: vec![Record::WaitOver(waiter)], replies: Vec::new() }
            }
            Request::Delete { subscription, receipts } => {
                self.with(token, subscription, |own| self.delete(at, own, subscription, &receipts))
            }
            Request::Extend { subscription, receipts } => {
                self.with(token, subscription, |own| extend(at, own, subscription, &receipts))
            }
            Request::Release { subscription, receipts, delay, note } => {
                self.with(token, subscription, |own| {
                    let delay_of = |live: &Live, receipt: &Receipt| {
                        delay.unwrap_or_else(|| self.backoff(receipt.offset, live.receives))
                    };
                    let why = if note.is_some() { Return::Failed } else { Return::Released };
                    let release = GiveBack { at, subscription, why, note: note.clone() };
                    self.give_back(own, &release, &receipts, delay_of)
                })
            }
            Request::Unclaim { subscription, receipts } => {
                self.with(token, subscription, |own| self.unclaim(at, own, subscription, &receipts))
            }
            Request::Reject { subscription, receipts, note } => {
                self.with(token, subscription, |own| {
                    self.reject(at, own, subscription, &receipts, &note)
                })
            }
            Request::Purge { subscription } => self.with(token, subscription, |own| {
                let end = self.messages.admitted_to;
                let count = (end - own.settled.start()).try_into().unwrap_or(0_u64);
                let reply = Reply::Count(count - own.settled.ahead().min(count));
                (vec![Record::Purged { at, subscription, end }], reply)
            }),
            Request::Dispose { subscription, offsets, to, note, held_too } => {
                self.with(token, subscription, |own| {
                    let (offsets, held) = self.disposable(at, own, offsets, held_too);
                    let reply = Reply::Disposed { gone: offsets.len() as u64, held };
                    (dispose(at, subscription, offsets, to, note), reply)
                })
            }
            Request::Moves { subscription, to, max } => self.with(token, subscription, |own| {
                (Vec::new(), Reply::Moves(departures(own, &to, max)))
            }),
            Request::Moved { subscription, offsets } => self.with(token, subscription, |own| {
                let offsets: Vec<Offset> = moving(own, offsets);
                let reply = Reply::Count(offsets.len() as u64);
                (settled(at, subscription, Settlement::Moved, offsets), reply)
            }),
            Request::MoveFailed { subscription, offsets, note, is_for_good } => {
                self.with(token, subscription, |own| {
                    let failed_since = |offset| {
                        // Where it waits it holds up those behind it in its group.
                        let may_wait = is_for_good && self.messages.group_of.get(offset).is_none();
                        let live = own.live.get(offset).filter(|_| may_wait);
                        live.and_then(Live::move_failed_since).unwrap_or(at)
                    };
                    let later = |offset| Some(at + move_again_after(at - failed_since(offset)));
                    let moving = moving(own, offsets).into_iter();
                    let messages: Vec<_> = moving.map(|offset| (offset, later(offset))).collect();
                    let reply = Reply::Count(messages.len() as u64);
                    let why = Return::MoveFailed;
                    let note = Some(note);
                    (returned(at, subscription, why, note, messages), reply)
                })
            }
            Request::TakeOver { names, partitions } => {
                self.take_over(at, token, &names, partitions)
            }
            Request::Subscribe { partitions, .. } | Request::Unsubscribe { partitions, .. }
                if partitions < self.partitions || !self.has_taken_over() =>
            {
                let is_ready = self.has_taken_over();
                let refusal = if is_ready { Reply::MorePartitions } else { Reply::NotTakenOver };
                Decision::reply(token, refusal)
            }
            Request::Subscribe { name, from_start, .. } => {
                self.subscribe_to(at, token, name, from_start)
            }
            Request::Unsubscribe { name, .. } => match self.subscription(&name) {
                Some(number) if number != crate::OWN_SUBSCRIPTION => Decision {
                    records: vec![Record::Unsubscribed { at, number }],
                    replies: vec![(token, Reply::Done)],
                },
                _ => Decision::reply(token, Reply::UnknownSubscription),
            },
            Request::Trim { start } => {
                let is_news = self.messages.start < start;
                let records = is_news.then_some(Record::Trimmed { at, start });
                Decision {
                    records: records.into_iter().collect(),
                    replies: vec![(token, Reply::Done)],
                }
            }
            Request::Forget { to } => {
                let to = to.min(self.messages.admitted_to);
                let is_news = 0 < self.forgettable_within(self.messages.start..to);
                let records = is_news.then_some(Record::Forgotten { at, to });
                Decision {
                    records: records.into_iter().collect(),
                    replies: vec![(token, Reply::Done)],
                }
            }
            Request::Snapshot => {
                Decision { records: self.snapshot(), replies: vec![(token, Reply::Done)] }
            }
        }
    }

    /// Decides about one subscription, if it is there.
    fn with(
        &self,
        token: Token,
        subscription: u32,
        decide: impl FnOnce(&Subscription) -> (Vec<Record>, Reply),
    ) -> DeliveryDecision {
        match self.subscriptions.get(&subscription) {
            None => Decision::reply(token, Reply::UnknownSubscription),
            Some(own) => {
                let (records, reply) = decide(own);
                Decision { records, replies: vec![(token, reply)] }
            }
        }
    }

    fn admit_all(
        &self,
        now: Now,
        token: Token,
        base: Offset,
        count: u32,
        facts: Vec<(u32, Facts)>,
    ) -> DeliveryDecision {
        if base != self.messages.admitted_to {
            let admitted_to = self.messages.admitted_to;
            return Decision::reply(token, Reply::Admitted { admitted_to });
        }
        let at = self.clock.now(now.time);
        let (specials, here) = (Vec::new(), BTreeMap::new());
        let mut admission = Admission { deliveries: self, now, at, base, specials, here };
        if self.config.is_fifo || !self.config.delay.is_zero() {
            // Nobody is plain here.
            let mut facts = facts.into_iter().peekable();
            for index in 0..count {
                let own = facts.next_if(|(of, _)| *of == index).map(|(_, facts)| facts);
                admission.add(index, own.unwrap_or_default());
            }
        } else {
            facts.into_iter().for_each(|(index, facts)| admission.add(index, facts));
        }
        let specials = admission.specials;
        let lost: Vec<Offset> = specials
            .iter()
            .filter(|(_, is_lost)| *is_lost)
            .map(|(special, _)| base + i64::from(special.index))
            .collect();
        let specials = specials.into_iter().map(|(special, _)| special).collect();
        let mut records = vec![Record::Admitted { at, base, count, specials }];
        if !lost.is_empty() {
            for subscription in self.subscriptions.keys() {
                let to = self.config.dead_letter_queue.clone();
                records.push(match to {
                    Some(to) => Record::Moving {
                        at,
                        subscription: *subscription,
                        to,
                        reason: DeadReason::Undecodable,
                        note: None,
                        offsets: lost.clone(),
                    },
                    None => Record::Settled {
                        at,
                        subscription: *subscription,
                        how: Settlement::Dropped,
                        offsets: lost.clone(),
                    },
                });
            }
        }
        let admitted_to = base + i64::from(count);
        Decision { records, replies: vec![(token, Reply::Admitted { admitted_to })] }
    }

    fn receive(&self, now: Now, token: Token, receive: Receive) -> DeliveryDecision {
        let at = self.clock.now(now.time);
        let Some(own) = self.subscriptions.get(&receive.subscription) else {
            return Decision::reply(token, Reply::UnknownSubscription);
        };
        if let Some(again) = self.again(at, own, token, &receive) {
            return again;
        }
        if receive.max == 0 {
            let reply = Reply::Received { messages: Vec::new(), until: at };
            return Decision::reply(token, reply);
        }
        // An ordered queue has nothing to give then, and who may wait waits; another one says why.
        if !self.config.is_fifo && self.config.in_flight_max <= own.leased {
            return Decision::reply(token, Reply::OverLimit);
        }
        let picked = self.pick(own, receive.max);
        let mut records = self.exceeded(at, receive.subscription, picked.exceeded);
        if picked.offsets.is_empty() {
            let is_over = receive.wait_until.is_none_or(|until| until <= now.time);
            let Some(until) = receive.wait_until.filter(|_| !is_over) else {
                let reply = Reply::Received { messages: Vec::new(), until: at };
                return Decision { records, replies: vec![(token, reply)] };
            };
            records.push(Record::Waits(Arc::new(Wait { token, receive, until })));
            return Decision { records, replies: Vec::new() };
        }
        let (record, reply) = self.hand_out(now, own, &receive, picked.offsets);
        records.push(record);
        Decision { records, replies: vec![(token, reply)] }
    }

    /// A receive that was asked before by the same name gets the same messages, as long as all of them
    /// are still held.
    fn again(
        &self,
        at: QueueTime,
        own: &Subscription,
        token: Token,
        receive: &Receive,
    ) -> Option<DeliveryDecision> {
        let named = own.named.get(receive.attempt.as_ref()?)?;
        let is_held = |(lease, offset): (u64, &Offset)| {
            own.live.get(*offset).is_some_and(|live| {
                live.lease == lease && matches!(live.place, Place::Leased { .. })
            })
        };
        if !(named.first_lease..).zip(&named.offsets).all(is_held) {
            return None;
        }
        let until = at + receive.visibility;
        let messages = named.offsets.iter().map(|offset| (*offset, until)).collect();
        let deliveries = (named.first_lease..).zip(&named.offsets).filter_map(|(lease, offset)| {
            let live = own.live.get(*offset)?;
            Some(Delivery {
                receipt: Receipt { offset: *offset, lease },
                receives: live.receives,
                first_received: live.first_received,
            })
        });
        let reply = Reply::Received { messages: deliveries.collect(), until };
        let subscription = receive.subscription;
        let record = Record::Extended { at, subscription, messages };
        Some(Decision { records: vec![record], replies: vec![(token, reply)] })
    }

    /// Which messages a receiver gets now: those of the highest priority first, then the oldest.
    pub(crate) fn pick(&self, own: &Subscription, max: u32) -> Picked {
        let room = self.config.in_flight_max.saturating_sub(own.leased);
        let max = (max.min(RECEIVE_MAX) as usize).min(room);
        let mut picked = Picked { offsets: Vec::new(), exceeded: Vec::new() };
        let has_too_many = |offset: Offset| {
            let limit =
                self.config.receives_max.filter(|_| self.config.dead_letter_queue.is_some());
            let receives = || own.live.get(offset).map_or(0, |live| live.receives);
            let more = u32::from(mutant::is_on(Mutant::OneReceiveTooMany));
            limit.is_some_and(|limit| limit + more <= receives())
        };
        let plain = own.ready.values().flat_map(crate::OffsetRanges::iter);
        for offset in plain {
            if picked.offsets.len() == max || picked.exceeded.len() == EXCEEDED_MAX {
                return picked;
            }
            match has_too_many(offset) {
                true => picked.exceeded.push(offset),
                false => picked.offsets.push(offset),
            }
        }
        for (_, waiting) in own.groups.ready() {
            for offset in waiting {
                if picked.offsets.len() == max || picked.exceeded.len() == EXCEEDED_MAX {
                    return picked;
                }
                if self.is_late(own, offset) {
                    break;
                }
                match has_too_many(offset) {
                    true => picked.exceeded.push(offset),
                    false => picked.offsets.push(offset),
                }
            }
        }
        picked
    }

    fn is_late(&self, own: &Subscription, offset: Offset) -> bool {
        match own.live.get(offset) {
            Some(live) => matches!(live.place, Place::Delayed { .. }),
            None => self.messages.early.contains_key(&offset),
        }
    }

    /// Messages that were received too often go to the dead-letter queue.
    pub(crate) fn exceeded(
        &self,
        at: QueueTime,
        subscription: u32,
        offsets: Vec<Offset>,
    ) -> Vec<Record> {
        match self.config.dead_letter_queue.clone().filter(|_| !offsets.is_empty()) {
            None => Vec::new(),
            Some(to) => {
                let reason = DeadReason::TooManyReceives;
                vec![Record::Moving { at, subscription, to, reason, note: None, offsets }]
            }
        }
    }

    pub(crate) fn hand_out(
        &self,
        now: Now,
        own: &Subscription,
        receive: &Receive,
        offsets: Vec<Offset>,
    ) -> (Record, Reply) {
        let at = self.clock.now(now.time);
        let until = at + receive.visibility;
        let first_lease = self.next_lease;
        let messages = (first_lease..).zip(&offsets).map(|(lease, offset)| {
            let before = own.live.get(*offset).filter(|live| 0 < live.receives);
            Delivery {
                receipt: Receipt { offset: *offset, lease },
                receives: before.map_or(0, |live| live.receives).saturating_add(1),
                first_received: before.map_or(now.wall, |live| live.first_received),
            }
        });
        let reply = Reply::Received { messages: messages.collect(), until };
        let record = Record::Leased {
            at,
            wall: now.wall,
            subscription: receive.subscription,
            first_lease,
            until,
            holder: Arc::clone(&receive.holder),
            attempt: receive.attempt.clone(),
            offsets,
        };
        (record, reply)
    }

    fn delete(
        &self,
        at: QueueTime,
        own: &Subscription,
        subscription: u32,
        receipts: &[Receipt],
    ) -> (Vec<Record>, Reply) {
        let mut offsets = Distinct::default();
        let outcomes = receipts.iter().map(|receipt| {
            let outcome = match look_up(own, self.messages.admitted_to, receipt) {
                // The newest delivery's receipt works even after its time, where nobody relies on order.
                Err(ReceiptOutcome::Expired) if !self.config.is_fifo => Ok(()),
                other => other.map(|_| ()),
            };
            match outcome {
                Ok(()) if !offsets.add(receipt.offset) => ReceiptOutcome::Settled,
                Ok(()) => ReceiptOutcome::Done,
                Err(outcome) => outcome,
            }
        });
        let reply = Reply::Receipts(outcomes.collect());
        (settled(at, subscription, Settlement::Deleted, offsets.order), reply)
    }

    fn reject(
        &self,
        at: QueueTime,
        own: &Subscription,
        subscription: u32,
        receipts: &[Receipt],
        note: &Arc<str>,
    ) -> (Vec<Record>, Reply) {
        let (offsets, outcomes) = self.held(own, receipts);
        let records = match self.config.dead_letter_queue.clone().filter(|_| !offsets.is_empty()) {
            None => settled(at, subscription, Settlement::Rejected, offsets),
            Some(to) => {
                let (reason, note) = (DeadReason::Rejected, Some(Arc::clone(note)));
                vec![Record::Moving { at, subscription, to, reason, note, offsets }]
            }
        };
        (records, Reply::Receipts(outcomes))
    }

    /// The messages that receipts prove, and what becomes of each receipt.
    fn held(&self, own: &Subscription, receipts: &[Receipt]) -> (Vec<Offset>, Vec<ReceiptOutcome>) {
        let mut offsets = Distinct::default();
        let outcomes =
            receipts.iter().map(|receipt| match look_up(own, self.messages.admitted_to, receipt) {
                Err(outcome) => outcome,
                Ok(_) if !offsets.add(receipt.offset) => ReceiptOutcome::Superseded,
                Ok(_) => ReceiptOutcome::Done,
            });
        let outcomes = outcomes.collect();
        (offsets.order, outcomes)
    }

    /// Nobody took what was handed out; it counts as not received. What was handed out under a name stays with it:
    /// whoever asks again by that name gets it, and may have done so already.
    fn unclaim(
        &self,
        at: QueueTime,
        own: &Subscription,
        subscription: u32,
        receipts: &[Receipt],
    ) -> (Vec<Record>, Reply) {
        let how = GiveBack { at, subscription, why: Return::Unclaimed, note: None };
        let (offsets, outcomes) = self.held(own, receipts);
        let is_named = |offset: &Offset| {
            let lease = own.live.get(*offset).map(|live| live.lease);
            let is_named = lease
                .is_some_and(|lease| own.named.has_handed_out(Receipt { offset: *offset, lease }));
            is_named && !mutant::is_on(Mutant::NamedGivenBack)
        };
        let free = offsets.into_iter().filter(|offset| !is_named(offset));
        let records = self.come_back(&how, free.map(|offset| (offset, None)).collect());
        (records, Reply::Receipts(outcomes))
    }

    fn give_back(
        &self,
        own: &Subscription,
        how: &GiveBack,
        receipts: &[Receipt],
        delay_of: impl Fn(&Live, &Receipt) -> Duration,
    ) -> (Vec<Record>, Reply) {
        let (offsets, outcomes) = self.held(own, receipts);
        let messages = offsets.into_iter().filter_map(|offset| {
            let live = own.live.get(offset)?;
            let delay = delay_of(live, &Receipt { offset, lease: live.lease });
            Some((offset, (!delay.is_zero()).then_some(how.at + delay)))
        });
        let records = self.come_back(how, messages.collect());
        (records, Reply::Receipts(outcomes))
    }

    /// Messages wait again, but for those that have grown too old meanwhile.
    pub(crate) fn come_back(
        &self,
        how: &GiveBack,
        messages: Vec<(Offset, Option<QueueTime>)>,
    ) -> Vec<Record> {
        let (old, young): (Vec<_>, Vec<_>) =
            messages.into_iter().partition(|(offset, _)| self.is_too_old(*offset, how.at));
        let old = old.into_iter().map(|(offset, _)| offset).collect();
        let mut records = self.expired(how.at, how.subscription, old);
        records.extend(returned(how.at, how.subscription, how.why, how.note.clone(), young));
        records
    }

    /// Whether nobody should get a message any more.
    pub(crate) fn is_too_old(&self, offset: Offset, at: QueueTime) -> bool {
        offset < self.messages.aged_to
            || self.messages.expires.get(&offset).is_some_and(|expires| *expires <= at)
    }

    /// Messages that have grown too old are dropped, or go to the dead-letter queue.
    pub(crate) fn expired(
        &self,
        at: QueueTime,
        subscription: u32,
        offsets: Vec<Offset>,
    ) -> Vec<Record> {
        if offsets.is_empty() {
            return Vec::new();
        }
        let to = self.config.dead_letter_queue.clone();
        match to.filter(|_| self.config.expired_are_dead_letters) {
            None => settled(at, subscription, Settlement::Expired, offsets),
            Some(to) => {
                let reason = DeadReason::Expired;
                vec![Record::Moving { at, subscription, to, reason, note: None, offsets }]
            }
        }
    }

    /// When a message that failed `receives` times comes back.
    pub(crate) fn backoff(&self, offset: Offset, receives: u32) -> Duration {
        backoff(&self.config.retry, offset, receives)
    }

    /// Those of the messages that are there and, unless held ones go too, could be received now; and how
    /// many could not.
    fn disposable(
        &self,
        at: QueueTime,
        own: &Subscription,
        mut offsets: Vec<Offset>,
        held_too: bool,
    ) -> (Vec<Offset>, u64) {
        offsets.sort_unstable();
        offsets.dedup();
        offsets.retain(|offset| {
            (Offset::ZERO..self.messages.admitted_to).contains(offset)
                && !own.settled.contains(*offset)
                && !own.moving.contains(*offset)
        });
        let there = offsets.len();
        let is_ready =
            |offset: &Offset| matches!(self.state_of(at, own, *offset), Some(PeekState::Ready));
        offsets.retain(|offset| held_too || is_ready(offset));
        let held = there - offsets.len();
        (offsets, held as u64)
    }

    fn subscribe_to(
        &self,
        at: QueueTime,
        token: Token,
        name: Arc<str>,
        from_start: bool,
    ) -> DeliveryDecision {
        if let Some(number) = self.subscription(&name) {
            return Decision::reply(token, Reply::Subscribed(number));
        }
        if SUBSCRIPTIONS_MAX <= self.subscription_names().count() {
            return Decision::reply(token, Reply::OverLimit);
        }
        let number = self.next_subscription;
        let to = self.messages.admitted_to;
        let from = if from_start { self.messages.start } else { to };
        // Of a message that all others are done with its group is not known any more, and in an ordered queue it
        // could not be told after which ones it comes.
        let is_out_of_order = from_start
            && self.config.is_fifo
            && 0 < self.forgettable_within(self.messages.start..to);
        let forgotten = is_out_of_order.then_some(Record::Forgotten { at, to });
        let subscribed = Record::Subscribed { at, number, name, from };
        Decision {
            records: forgotten.into_iter().chain([subscribed]).collect(),
            replies: vec![(token, Reply::Subscribed(number))],
        }
    }

    /// Who has taken over hears of every change, and takes nothing over again: what it lacks has ended since.
    fn take_over(
        &self,
        at: QueueTime,
        token: Token,
        names: &[Arc<str>],
        partitions: u32,
    ) -> DeliveryDecision {
        let own = self.subscription_names().map(Arc::from);
        let is_lacking = |name: &&Arc<str>| self.subscription(name).is_none();
        let is_first = !self.has_taken_over();
        let lacking: Vec<&Arc<str>> =
            names.iter().filter(is_lacking).filter(|_| is_first).collect();
        let all = own.chain(lacking.iter().map(|name| Arc::clone(name))).collect();
        let begun = (self.next_subscription..).zip(&lacking).map(|(number, name)| {
            Record::Subscribed { at, number, name: Arc::clone(name), from: self.messages.start }
        });
        let is_news = self.partitions < partitions;
        let records = begun.chain(is_news.then_some(Record::TakenOver { at, partitions }));
        Decision { records: records.collect(), replies: vec![(token, Reply::TakenOver(all))] }
    }
}

/// Messages that one request names, each once.
#[derive(Default)]
struct Distinct {
    order: Vec<Offset>,
    seen: BTreeSet<Offset>,
}

impl Distinct {
    /// Says whether it was not named before.
    fn add(&mut self, offset: Offset) -> bool {
        let is_new = self.seen.insert(offset);
        if is_new {
            self.order.push(offset);
        }
        is_new
    }
}

/// How messages come back.
pub(crate) struct GiveBack {
    pub(crate) at: QueueTime,
    pub(crate) subscription: u32,
    pub(crate) why: Return,
    pub(crate) note: Option<Arc<str>>,
}

/// When a move that failed is decided on again, at first, and at last where it fails for good: what the other queue takes
/// may be changed.
const MOVE_AGAIN_FIRST: Duration = Duration::from_secs(5);
const MOVE_AGAIN_LAST: Duration = Duration::from_secs(60 * 60);

/// Each time about twice as long as before.
fn move_again_after(failing_for: Duration) -> Duration {
    failing_for.clamp(MOVE_AGAIN_FIRST, MOVE_AGAIN_LAST)
}

/// Messages of one batch, on their way in.
struct Admission<'a> {
    deliveries: &'a Deliveries,
    now: Now,
    at: QueueTime,
    base: Offset,
    /// Each with whether it cannot be decoded.
    specials: Vec<(Special, bool)>,
    /// What is named by those of this batch that are delivered.
    here: BTreeMap<DedupKey, Offset>,
}

impl Admission<'_> {
    fn add(&mut self, index: u32, facts: Facts) {
        let config = &self.deliveries.config;
        if facts.is_control {
            let special = Special { index, verdict: Verdict::Skip, ..Special::default() };
            return self.specials.push((special, false));
        }
        let group = match facts.group {
            None if config.is_fifo => Some(Arc::from(&b""[..])),
            group => group.filter(|_| config.is_fifo),
        };
        let delay = match facts.delay {
            None => config.delay,
            Some(Delay::For(delay)) => delay,
            Some(Delay::Until(Timestamp(wall))) => {
                let left = wall.saturating_sub(self.now.wall.0);
                Duration::from_millis(left.try_into().unwrap_or(0))
            }
        };
        let key = match (facts.moved, facts.dedup_id) {
            (Some(_), _) if mutant::is_on(Mutant::HandedOverTwice) => None,
            (Some(identity), _) => Some((DedupKey::Moved(identity), MOVED_KEPT)),
            (None, Some(id)) => {
                let group = group.clone().filter(|_| config.dedup_by_group);
                Some((DedupKey::Id { group, id }, config.dedup_window))
            }
            (None, None) => None,
        };
        let first = key.as_ref().and_then(|(key, _)| self.first(key));
        if let Some((key, _)) = key.as_ref().filter(|_| first.is_none()) {
            self.here.insert(key.clone(), self.base + i64::from(index));
        }
        let special = Special {
            index,
            group,
            not_before: (!delay.is_zero()).then_some(self.at + delay),
            expires: facts.ttl.map(|ttl| self.at + ttl),
            priority: facts.priority.filter(|priority| *priority != crate::PRIORITY_USUAL),
            dedup: key.map(|(key, window)| (key, self.at + window)),
            verdict: first.map_or(Verdict::Deliver, |of| Verdict::Duplicate { of }),
        };
        let plain = Special { index, ..Special::default() };
        let is_lost = facts.is_undecodable && first.is_none();
        if special != plain || is_lost {
            self.specials.push((special, is_lost));
        }
    }

    /// The first message with this key, here or earlier.
    fn first(&self, key: &DedupKey) -> Option<Offset> {
        let earlier = self.deliveries.dedup.first(key, self.at);
        earlier.or_else(|| self.here.get(key).copied())
    }
}

/// How long a message that was handed over is known by where it came from. Its source settles it as soon
/// as it hears of it, so this is how long a source may be away in between.
const MOVED_KEPT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

fn backoff(retry: &Retry, offset: Offset, receives: u32) -> Duration {
    let doubled = receives.saturating_sub(1).min(31);
    let delay = retry.first.saturating_mul(1 << doubled).min(retry.max.max(retry.first));
    let jitter = i64::from(retry.jitter_percent.min(100));
    // As good as random, and the same wherever it is reckoned.
    let hash = (offset.0 as u64 ^ u64::from(receives) << 48).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let spread = (hash >> 32) as i64 % (2 * jitter + 1) - jitter;
    let percent = u32::try_from(100 + spread).unwrap_or(0);
    delay.saturating_mul(percent) / 100
}

/// What a receipt proves.
fn look_up<'a>(
    own: &'a Subscription,
    admitted_to: Offset,
    receipt: &Receipt,
) -> Result<&'a Live, ReceiptOutcome> {
    if receipt.offset < Offset::ZERO || admitted_to <= receipt.offset {
        return Err(ReceiptOutcome::Unknown);
    }
    if own.settled.contains(receipt.offset) {
        return Err(ReceiptOutcome::Settled);
    }
    let live = own.live.get(receipt.offset).ok_or(ReceiptOutcome::Unknown)?;
    match (live.lease.cmp(&receipt.lease), live.place) {
        (std::cmp::Ordering::Greater, _) if !mutant::is_on(Mutant::StaleReceiptWorks) => {
            Err(ReceiptOutcome::Superseded)
        }
        (std::cmp::Ordering::Less, _) => Err(ReceiptOutcome::Unknown),
        (_, Place::Moving) => Err(ReceiptOutcome::Settled),
        (_, Place::Ready | Place::Delayed { .. }) => Err(ReceiptOutcome::Expired),
        (_, Place::Leased { .. }) => Ok(live),
    }
}

fn extend(
    at: QueueTime,
    own: &Subscription,
    subscription: u32,
    receipts: &[(Receipt, Duration)],
) -> (Vec<Record>, Reply) {
    let (mut kept, mut given_back) = (Vec::new(), Vec::new());
    let mut named = Distinct::default();
    let outcomes = receipts.iter().map(|(receipt, visibility)| {
        match look_up(own, Offset(i64::MAX), receipt) {
            Err(outcome) => outcome,
            Ok(live) if live.leased_at + LEASE_MAX < at + *visibility => ReceiptOutcome::TooLong,
            Ok(_) if !named.add(receipt.offset) => ReceiptOutcome::Superseded,
            Ok(_) if visibility.is_zero() => {
                given_back.push((receipt.offset, None));
                ReceiptOutcome::Done
            }
            Ok(_) => {
                kept.push((receipt.offset, at + *visibility));
                ReceiptOutcome::Done
            }
        }
    });
    let reply = Reply::Receipts(outcomes.collect());
    let mut records = returned(at, subscription, Return::Released, None, given_back);
    if !kept.is_empty() {
        records.push(Record::Extended { at, subscription, messages: kept });
    }
    (records, reply)
}

fn dispose(
    at: QueueTime,
    subscription: u32,
    offsets: Vec<Offset>,
    to: Option<(Arc<str>, DeadReason)>,
    note: Option<Arc<str>>,
) -> Vec<Record> {
    match to.filter(|_| !offsets.is_empty()) {
        None => settled(at, subscription, Settlement::Dropped, offsets),
        Some((to, reason)) => {
            vec![Record::Moving { at, subscription, to, reason, note, offsets }]
        }
    }
}

fn departures(own: &Subscription, to: &str, max: usize) -> Vec<Departure> {
    let departure = |(offset, way): (Offset, &Move)| {
        let live = own.live.get(offset);
        Departure {
            offset,
            way: way.clone(),
            receives: live.map_or(0, |live| live.receives),
            history: live.map(|live| live.history.clone()).unwrap_or_default(),
        }
    };
    own.moving.to(to).take(max).map(departure).collect()
}

fn moving(own: &Subscription, offsets: Vec<Offset>) -> Vec<Offset> {
    offsets.into_iter().filter(|offset| own.moving.contains(*offset)).collect()
}

fn settled(at: QueueTime, subscription: u32, how: Settlement, offsets: Vec<Offset>) -> Vec<Record> {
    if offsets.is_empty() {
        return Vec::new();
    }
    vec![Record::Settled { at, subscription, how, offsets }]
}

fn returned(
    at: QueueTime,
    subscription: u32,
    why: Return,
    note: Option<Arc<str>>,
    messages: Vec<(Offset, Option<QueueTime>)>,
) -> Vec<Record> {
    if messages.is_empty() {
        return Vec::new();
    }
    vec![Record::Returned { at, subscription, why, note, messages }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_message_comes_back_later_each_time() {
        let second = Duration::from_secs(1);
        let retry = Retry { first: second, max: 60 * second, jitter_percent: 0 };
        let delays: Vec<u64> =
            (1..=8).map(|receives| backoff(&retry, Offset(3), receives).as_secs()).collect();
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(backoff(&Retry::default(), Offset(3), 9), Duration::ZERO);
        assert_eq!(backoff(&retry, Offset(3), u32::MAX), 60 * second);
    }

    #[test]
    fn what_failed_together_does_not_come_back_together() {
        let second = Duration::from_secs(1);
        let retry = Retry { first: 10 * second, max: 10 * second, jitter_percent: 20 };
        let delays: std::collections::BTreeSet<Duration> =
            (0..100).map(|offset| backoff(&retry, Offset(offset), 1)).collect();
        assert!(20 < delays.len(), "{} different delays", delays.len());
        assert!(delays.iter().all(|delay| 8 * second <= *delay && *delay <= 12 * second));
    }
}
