//! The deliveries of one partition: what its delivery log adds up to.
//!
//! ```text
//!   records' log    │ m0 │ m1 │ m2 │ … │            what was sent; read by anybody, changed by nobody
//!   delivery log    │ admitted │ leased │ settled │ …   what became of it, for every subscription
//! ```
//!
//! [`Deliveries::apply`] is the fold, the same on the leader and on every follower. What is decided, and
//! from which configuration, is the leader's affair (`decide.rs`, `expire.rs`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use towpath_model::mutant::{self, Mutant};
use towpath_model::{Now, Offset, Time};

use crate::dedup::{DedupWindow, Seen};
use crate::due::DueIndex;
use crate::groups::GroupNumber;
use crate::index::OffsetIndex;
use crate::named::Named;
use crate::names::GroupNames;
use crate::observed::Arrivals;
use crate::record::{Record, Settlement, Special, Verdict};
use crate::request::{DeliveryConfig, Receipt};
use crate::settled::{SettledSet, count_common};
use crate::snapshot::Parts;
use crate::subscription::{Known, Lease, Move, Place, Subscription};
use crate::time::{Clock, QueueTime};
use crate::waits::Waits;

/// The priority of messages that say nothing of it. Higher ones are delivered first.
pub const PRIORITY_USUAL: u8 = 4;

/// The number of the queue's own subscription.
pub const OWN_SUBSCRIPTION: u32 = 0;

/// Named subscriptions that a partition takes. A little more than a queue may have: one whose making or
/// ending broke off half-way is still in some of the partitions, and must not be in the way of others.
pub const SUBSCRIPTIONS_MAX: usize = 128;

/// Entries of the list of ages are so far apart at least.
const AGE_GRAIN_MS: u64 = 1_000;

/// Whether somebody holds a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holding {
    /// It is settled.
    Settled,
    /// The newest delivery of it is under way.
    Held(Receipt),
    /// Nobody holds it.
    Free,
}

/// The state of one partition's deliveries.
#[derive(Debug, Clone)]
pub struct Deliveries {
    pub(crate) config: Arc<DeliveryConfig>,
    pub(crate) clock: Clock,
    pub(crate) messages: Messages,
    /// By number; those that are gone leave a hole.
    pub(crate) subscriptions: BTreeMap<u32, Subscription>,
    pub(crate) next_subscription: u32,
    /// How many partitions the queue has, as far as this one was told; zero: it has not taken over the queue's
    /// subscriptions.
    pub(crate) partitions: u32,
    pub(crate) next_lease: u64,
    pub(crate) dedup: DedupWindow,
    /// Receivers that wait, in the order in which they came. Only who leads has any.
    pub(crate) waits: Waits,
    /// What came, as far as this process has led; not part of the state.
    pub(crate) arrivals: Arrivals,
    /// This process leads.
    pub(crate) runs: bool,
    /// Where the records of who leads end.
    pub(crate) records_end: Offset,
    /// The log that is folded begins with a snapshot: what comes before the end of that says nothing.
    awaits_snapshot: bool,
    parts: Parts,
}

/// What is known of messages, whoever gets them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Messages {
    /// Records before this are gone.
    pub(crate) start: Offset,
    /// First message that has not been admitted.
    pub(crate) admitted_to: Offset,
    /// Messages before this are older than messages may be.
    pub(crate) aged_to: Offset,
    /// First offsets, and when they were admitted; about one entry for a second.
    pub(crate) ages: VecDeque<(Offset, QueueTime)>,
    /// Offsets that are no messages, or repeats of others: a subscription that begins later must not get them.
    pub(crate) void: SettledSet,
    /// Records before it at void offsets may be removed: they were committed when that was decided.
    pub(crate) forgotten_to: Offset,
    pub(crate) group_of: OffsetIndex,
    pub(crate) names: GroupNames,
    pub(crate) priorities: BTreeMap<Offset, u8>,
    /// Delays of messages that nobody has received.
    pub(crate) delays: DueIndex,
    /// How many of them have not ended.
    pub(crate) delayed: u64,
    /// Those that have a group: who comes after them must know.
    pub(crate) early: BTreeMap<Offset, QueueTime>,
    /// When messages that say so grow worthless.
    pub(crate) expires: BTreeMap<Offset, QueueTime>,
    pub(crate) expiries: DueIndex,
    /// Those that have, and that nobody has looked at since.
    pub(crate) expired: BTreeSet<Offset>,
}

impl Known for Messages {
    fn group(&self, offset: Offset) -> Option<GroupNumber> {
        self.group_of.get(offset).map(GroupNumber)
    }

    fn priority(&self, offset: Offset) -> u8 {
        self.priorities.get(&offset).copied().unwrap_or(PRIORITY_USUAL)
    }

    fn is_early(&self, offset: Offset) -> bool {
        self.early.contains_key(&offset)
    }
}

impl Messages {
    /// When a message was admitted, to about a second.
    pub(crate) fn admitted_at(&self, offset: Offset) -> QueueTime {
        let after = self.ages.partition_point(|(first, _)| *first <= offset);
        let entry = after.checked_sub(1).and_then(|at| self.ages.get(at));
        entry.map_or(QueueTime::default(), |(_, at)| *at)
    }

    fn note_age(&mut self, first: Offset, at: QueueTime) {
        let is_news = self.ages.back().is_none_or(|(_, last)| last.0 + AGE_GRAIN_MS <= at.0);
        if is_news {
            self.ages.push_back((first, at));
        }
    }

    /// Messages whose first delay has not ended, and some that are settled.
    pub(crate) fn delayed_offsets(&self) -> impl Iterator<Item = Offset> + '_ {
        self.delays.iter().map(|(_, offset)| offset)
    }

    /// Nobody will ask for this message any more.
    fn forget(&mut self, offset: Offset) {
        self.priorities.remove(&offset);
        self.expires.remove(&offset);
        self.expired.remove(&offset);
        self.early.remove(&offset);
        if let Some(number) = self.group_of.remove(offset) {
            self.names.let_go(GroupNumber(number));
        }
    }

    /// Messages at or after `end` were lost.
    fn truncate(&mut self, end: Offset) {
        self.admitted_to = self.admitted_to.min(end);
        self.aged_to = self.aged_to.min(end);
        self.void.truncate(end);
        self.forgotten_to = self.forgotten_to.min(end);
        while self.ages.back().is_some_and(|(first, _)| end <= *first) {
            self.ages.pop_back();
        }
        self.priorities.split_off(&end);
        self.expires.split_off(&end);
        self.early.split_off(&end);
        self.expired.split_off(&end);
        let lost: Vec<(Offset, u32)> = self.group_of.range(end..Offset(i64::MAX)).collect();
        for (offset, number) in lost {
            self.group_of.remove(offset);
            self.names.let_go(GroupNumber(number));
        }
        let keep = |due: &DueIndex| {
            let mut kept = DueIndex::default();
            due.iter().filter(|(_, at)| *at < end).for_each(|(when, at)| kept.add(when, at));
            kept
        };
        self.delays = keep(&self.delays);
        self.delayed = self.delays.iter().count() as u64;
        self.expiries = keep(&self.expiries);
    }
}

impl Deliveries {
    /// A partition of which nothing is known yet. Nothing is decided before somebody leads.
    #[must_use]
    pub fn new(config: Arc<DeliveryConfig>) -> Deliveries {
        let own = Subscription::new(Arc::from(""), Offset::ZERO);
        Deliveries {
            config,
            clock: Clock::default(),
            messages: Messages::default(),
            subscriptions: BTreeMap::from([(OWN_SUBSCRIPTION, own)]),
            next_subscription: OWN_SUBSCRIPTION + 1,
            partitions: 0,
            next_lease: 1,
            dedup: DedupWindow::default(),
            waits: Waits::default(),
            arrivals: Arrivals::default(),
            runs: false,
            records_end: Offset::ZERO,
            awaits_snapshot: false,
            parts: Parts::default(),
        }
    }

    /// The same, to be folded from a log whose beginning was removed: somewhere near its new beginning is
    /// a snapshot. [`Deliveries::awaits_snapshot`] says whether it was found.
    #[must_use]
    pub fn from_snapshot(config: Arc<DeliveryConfig>) -> Deliveries {
        Deliveries { awaits_snapshot: true, ..Deliveries::new(config) }
    }

    /// Whether no snapshot has come.
    #[must_use]
    pub fn awaits_snapshot(&self) -> bool {
        self.awaits_snapshot
    }

    /// The queue's configuration has changed.
    pub fn configure(&mut self, config: Arc<DeliveryConfig>) {
        self.config = config;
    }

    /// This process is about to lead, and its records end there: what the delivery log says of later ones
    /// is void. To be said before [`towpath_model::StateMachine::resume`].
    pub fn records_end_at(&mut self, end: Offset) {
        self.records_end = end;
    }

    /// Whether this process leads, and has said so to itself: before that nothing is decided.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        self.runs
    }

    /// This process follows, and has folded everything that it has at `time`.
    pub fn folded_at(&mut self, time: Time) {
        self.clock.runs_from(self.clock.last(), time);
    }

    /// First message that has not been admitted.
    pub fn admitted_to(&self) -> Offset {
        self.messages.admitted_to
    }

    /// First record that is there, as far as deliveries know.
    pub fn start(&self) -> Offset {
        self.messages.start
    }

    /// Everything before this has been settled by every subscription that is here.
    pub fn settled_start(&self) -> Offset {
        let starts = self.subscriptions.values().map(|each| each.settled.start());
        starts.min().unwrap_or(self.messages.admitted_to)
    }

    /// Everything before this is settled by every subscription of the queue, those included that this partition
    /// has not heard of yet: nobody will ask for it any more.
    pub fn settled_for_good(&self) -> Offset {
        if self.has_taken_over() { self.settled_start() } else { self.messages.start }
    }

    /// Whether every subscription of the queue is done with a message, as [`Deliveries::settled_for_good`].
    fn is_settled(&self, offset: Offset) -> bool {
        self.has_taken_over()
            && self.subscriptions.values().all(|each| each.settled.contains(offset))
    }

    /// Whether this partition has every subscription of the queue ([`crate::Request::TakeOver`]). Before that, what
    /// those here are done with may still be wanted by others.
    pub fn has_taken_over(&self) -> bool {
        self.partitions != 0
    }

    /// The offsets at which there is no message for anybody who subscribes from now on: there never was one, or
    /// every subscription is done with it and its record may be removed.
    pub fn void(&self) -> &SettledSet {
        &self.messages.void
    }

    /// First offset of which no record may be removed; what is [`Deliveries::void`] before it need not be kept.
    pub fn forgotten_to(&self) -> Offset {
        self.messages.forgotten_to
    }

    /// How many messages in `within` every subscription is done with for good and have not been forgotten.
    pub fn forgettable_within(&self, within: Range<Offset>) -> u64 {
        if !self.has_taken_over() {
            return 0;
        }
        let sets: Vec<&SettledSet> =
            self.subscriptions.values().map(|each| &each.settled).collect();
        let settled = count_common(&sets, within.clone());
        settled.saturating_sub(self.messages.void.count_within(within))
    }

    /// Messages that came in one second, or that subscriptions were done with, whichever is more, in the last minute as
    /// far as this process has led.
    pub fn messages_per_second(&self, now: Now) -> f64 {
        let at = self.clock.now(now.time);
        let served = self.subscriptions.values().map(|own| own.seen().served_per_second(at));
        self.arrivals.per_second(at).max(served.sum())
    }

    /// The number of a subscription.
    pub fn subscription(&self, name: &str) -> Option<u32> {
        self.subscriptions.iter().find(|(_, each)| *each.name == *name).map(|(number, _)| *number)
    }

    /// The names of all subscriptions besides the queue's own.
    pub fn subscription_names(&self) -> impl Iterator<Item = &str> {
        let named = self.subscriptions.iter().filter(|(number, _)| **number != OWN_SUBSCRIPTION);
        named.map(|(_, each)| &*each.name)
    }

    /// Whether somebody holds a message for a subscription.
    pub fn holding(&self, subscription: u32, offset: Offset) -> Holding {
        let Some(own) = self.subscriptions.get(&subscription) else { return Holding::Free };
        if own.settled.contains(offset) {
            return Holding::Settled;
        }
        match own.live.get(offset) {
            Some(live) if matches!(live.place, Place::Leased { .. }) => {
                Holding::Held(Receipt { offset, lease: live.lease })
            }
            _ => Holding::Free,
        }
    }

    /// Carries out one record; as [`towpath_model::StateMachine::apply`].
    pub(crate) fn carry_out(&mut self, record: &Record) {
        if let Record::Snapshot { part, is_last, bytes } = record {
            return self.take_part(*part, *is_last, bytes);
        }
        if self.awaits_snapshot {
            return;
        }
        if let Some(at) = record.at() {
            self.become_later(at);
        }
        match record {
            Record::Admitted { at, base, count, specials } => {
                self.admit(*at, *base, *count, specials);
            }
            Record::Leased {
                at,
                wall,
                subscription,
                first_lease,
                until,
                holder,
                attempt,
                offsets,
            } => {
                self.next_lease = self.next_lease.max(first_lease + offsets.len() as u64);
                let lease = Lease { number: 0, at: *at, wall: *wall, until: *until, holder };
                let (messages, subscriptions) = (&self.messages, &mut self.subscriptions);
                let Some(own) = subscriptions.get_mut(subscription) else { return };
                for (number, offset) in (*first_lease..).zip(offsets) {
                    own.lease(*offset, &Lease { number, ..lease }, messages);
                }
                if self.runs {
                    own.seen_mut().received += offsets.len() as u64;
                }
                if let Some(name) = attempt {
                    let (first_lease, offsets) = (*first_lease, offsets.clone());
                    own.named.insert(Arc::clone(name), Named { at: *at, first_lease, offsets });
                }
            }
            Record::Settled { at, subscription, offsets, how } => {
                self.settle(*at, *subscription, *how, offsets);
            }
            Record::Returned { at, subscription, why, note, messages } => {
                let (known, subscriptions) = (&self.messages, &mut self.subscriptions);
                let Some(own) = subscriptions.get_mut(subscription) else { return };
                for (offset, not_before) in messages {
                    own.give_back(*offset, *at, *not_before, (*why, note.as_ref()), known);
                }
                if self.runs {
                    own.seen_mut().returned(*at, *why, messages.len());
                }
            }
            Record::Extended { at, subscription, messages } => {
                let Some(own) = self.subscriptions.get_mut(subscription) else { return };
                messages.iter().for_each(|(offset, until)| own.extend(*offset, *until));
                if self.runs {
                    own.seen_mut().extended(*at, messages.len());
                }
            }
            Record::Moving { subscription, to, reason, note, offsets, .. } => {
                let (messages, subscriptions) = (&self.messages, &mut self.subscriptions);
                let Some(own) = subscriptions.get_mut(subscription) else { return };
                let way = Move { to: Arc::clone(to), reason: *reason, note: note.clone() };
                offsets.iter().for_each(|offset| own.send_away(*offset, &way, messages));
            }
            Record::Purged { at, subscription, end } => self.purge(*at, *subscription, *end),
            Record::Aged { to, .. } => self.messages.aged_to = self.messages.aged_to.max(*to),
            Record::Trimmed { at, start } => self.trim(*at, *start),
            Record::Skipped { to, .. } => self.skip(*to),
            Record::Forgotten { to, .. } => self.forget_done(*to),
            Record::Resumed { end, .. } => {
                if !self.runs {
                    self.clock.forget_reading();
                }
                if mutant::is_on(Mutant::IdsForgotten) {
                    self.dedup.clear_ids();
                }
                self.truncate(*end);
            }
            Record::Subscribed { number, name, from, .. } => {
                self.subscribe(*number, name, *from);
            }
            Record::TakenOver { partitions, .. } => {
                self.partitions = self.partitions.max(*partitions);
                self.forget_settled(self.messages.start..self.messages.admitted_to);
            }
            Record::Unsubscribed { number, .. } => {
                self.subscriptions.remove(number);
                if mutant::is_on(Mutant::SubscriptionNumberReused) {
                    self.next_subscription = *number;
                }
                self.forget_settled(self.messages.start..self.messages.admitted_to);
            }
            Record::Waits(wait) => self.waits.add(Arc::clone(wait)),
            Record::WaitOver(token) => self.waits.remove(*token),
            Record::Runs { at, time } => {
                self.clock.runs_from(*at, *time);
                self.runs = true;
                self.arrivals = Arrivals::default();
                self.subscriptions.values_mut().for_each(Subscription::forget_seen);
            }
            Record::Looked => self.messages.expired.clear(),
            Record::Ticked { .. } | Record::Passed { .. } | Record::Snapshot { .. } => {}
        }
    }

    /// What time alone does happens before whatever a record of that time says.
    fn become_later(&mut self, at: QueueTime) {
        self.clock.told(at);
        let now = self.clock.last();
        self.dedup.prune(now);
        while let Some((_, offsets)) = self.messages.delays.take(now) {
            for offset in offsets {
                self.messages.delayed -= 1;
                self.messages.early.remove(&offset);
                for subscription in self.subscriptions.values_mut() {
                    subscription.first_delay_ended(offset, &self.messages);
                }
            }
        }
        while let Some((_, offsets)) = self.messages.expiries.take(now) {
            let is_there = |offset: &Offset| self.messages.expires.contains_key(offset);
            let expired: Vec<Offset> = offsets.into_iter().filter(is_there).collect();
            self.messages.expired.extend(expired);
        }
        for subscription in self.subscriptions.values_mut() {
            subscription.end_delays(now, &self.messages);
            subscription.named.prune(now);
        }
    }

    fn admit(&mut self, at: QueueTime, base: Offset, count: u32, specials: &[Special]) {
        if base != self.messages.admitted_to {
            return;
        }
        let end = base + i64::from(count);
        self.messages.admitted_to = end;
        self.messages.note_age(base, at);
        let mut plain_from = base;
        for special in specials {
            let offset = base + i64::from(special.index);
            self.make_run_ready(plain_from..offset);
            plain_from = offset.next();
            self.admit_special(at, offset, special);
        }
        self.make_run_ready(plain_from..end);
        if self.runs {
            let void = specials.iter().filter(|special| special.verdict != Verdict::Deliver);
            let is_repeat = |each: &&Special| matches!(each.verdict, Verdict::Duplicate { .. });
            let (void, repeats) = (void.clone().count(), void.filter(is_repeat).count());
            self.arrivals.note(at, count, void as u32, repeats as u32);
        }
    }

    fn skip(&mut self, to: Offset) {
        let from = self.messages.admitted_to;
        if from < to {
            self.subscriptions.values_mut().for_each(|own| own.settled.insert_run(from..to));
            self.messages.void.insert_run(from..to);
            self.messages.admitted_to = to;
        }
    }

    fn forget_done(&mut self, to: Offset) {
        let sets: Vec<&SettledSet> = match mutant::is_on(Mutant::ForgottenByOne) {
            false => self.subscriptions.values().map(|each| &each.settled).collect(),
            true => self.subscriptions.values().take(1).map(|each| &each.settled).collect(),
        };
        let to = to.min(self.messages.admitted_to);
        let start = self.messages.void.start();
        self.messages.void.add_common(&sets, start..to);
        self.messages.forgotten_to = self.messages.forgotten_to.max(to);
    }

    fn make_run_ready(&mut self, run: Range<Offset>) {
        for own in self.subscriptions.values_mut() {
            // A subscription may begin later than what is admitted now.
            let from = own.settled.start().max(run.start);
            own.make_run_ready(from..run.end);
        }
    }

    fn admit_special(&mut self, at: QueueTime, offset: Offset, special: &Special) {
        if let Some((key, until)) = &special.dedup
            && special.verdict == Verdict::Deliver
        {
            self.dedup.insert(key.clone(), Seen { offset, until: *until });
        }
        if special.verdict != Verdict::Deliver {
            self.messages.void.insert(offset);
            self.subscriptions.values_mut().for_each(|own| {
                own.settled.insert(offset);
            });
            return;
        }
        let messages = &mut self.messages;
        if let Some(name) = &special.group {
            messages.group_of.insert(offset, messages.names.hold(name).0);
        }
        if let Some(priority) = special.priority.filter(|priority| *priority != PRIORITY_USUAL) {
            messages.priorities.insert(offset, priority);
        }
        if let Some(expires) = special.expires {
            messages.expires.insert(offset, expires);
            messages.expiries.add(expires, offset);
        }
        let not_before = special.not_before.map(DueIndex::second_of).filter(|until| at < *until);
        if let Some(until) = not_before {
            messages.delays.add(until, offset);
            messages.delayed += 1;
            if special.group.is_some() {
                messages.early.insert(offset, until);
            }
        }
        for own in self.subscriptions.values_mut() {
            if own.settled.contains(offset) {
                continue;
            }
            match not_before {
                None => own.make_ready(offset, messages),
                Some(_) => own.await_first_delay(offset, messages),
            }
        }
    }

    fn settle(&mut self, at: QueueTime, subscription: u32, how: Settlement, offsets: &[Offset]) {
        let (messages, subscriptions) = (&self.messages, &mut self.subscriptions);
        let Some(own) = subscriptions.get_mut(&subscription) else { return };
        if self.runs {
            own.seen_mut().settled(at, how, offsets.len());
        }
        for offset in offsets {
            let reason = match how {
                Settlement::Moved => own.moving.get(*offset).map(|way| way.reason),
                _ => None,
            };
            let live = own.settle(*offset, messages);
            if !self.runs {
                continue;
            }
            match (how, reason, live) {
                (Settlement::Deleted, _, Some(live)) => own.seen_mut().deleted(at, &live),
                (Settlement::Moved, Some(reason), _) => own.seen_mut().moved(reason),
                _ => {}
            }
        }
        for offset in offsets {
            if self.is_settled(*offset) {
                self.messages.forget(*offset);
            }
        }
        self.forget_delays();
    }

    /// Where everything is settled, no delay means anything.
    fn forget_delays(&mut self) {
        let messages = &self.messages;
        if 0 < messages.delayed && self.settled_for_good() == messages.admitted_to {
            self.messages.delays = DueIndex::default();
            self.messages.delayed = 0;
            self.messages.early.clear();
        }
    }

    fn purge(&mut self, at: QueueTime, subscription: u32, end: Offset) {
        let (messages, subscriptions) = (&self.messages, &mut self.subscriptions);
        let Some(own) = subscriptions.get_mut(&subscription) else { return };
        let before = own.unsettled_count(messages.admitted_to);
        own.purge(end, messages);
        let gone = before - own.unsettled_count(messages.admitted_to);
        if self.runs {
            own.seen_mut().settled(at, Settlement::Dropped, gone as usize);
        }
        // Ids are the queue's: a subscription that is purged must not let a repeat in for the others.
        if subscription == OWN_SUBSCRIPTION {
            self.dedup.clear_ids();
        }
        self.forget_settled(self.messages.start..end);
    }

    fn trim(&mut self, at: QueueTime, start: Offset) {
        let start = start.min(self.messages.admitted_to);
        if start <= self.messages.start {
            return;
        }
        let admitted_to = self.messages.admitted_to;
        for own in self.subscriptions.values_mut() {
            let before = own.unsettled_count(admitted_to);
            own.purge(start, &self.messages);
            let gone = before - own.unsettled_count(admitted_to);
            if self.runs && 0 < gone {
                own.seen_mut().settled(at, Settlement::Expired, gone as usize);
            }
        }
        self.forget_settled(self.messages.start..start);
        self.messages.start = start;
        self.messages.void.insert_run(Offset::ZERO..start);
        let ages = &mut self.messages.ages;
        while ages.get(1).is_some_and(|(next, _)| *next <= start) {
            ages.pop_front();
        }
    }

    /// Forgets what is known of messages that every subscription is done with.
    fn forget_settled(&mut self, within: Range<Offset>) {
        let messages = &self.messages;
        let special = messages.group_of.range(within.clone()).map(|(at, _)| at);
        let special = special.chain(messages.priorities.range(within.clone()).map(|(at, _)| *at));
        let special = special.chain(messages.expires.range(within).map(|(at, _)| *at));
        let settled: Vec<Offset> = special.filter(|offset| self.is_settled(*offset)).collect();
        settled.into_iter().for_each(|offset| self.messages.forget(offset));
        self.forget_delays();
    }

    fn truncate(&mut self, end: Offset) {
        self.waits.clear();
        if self.messages.admitted_to <= end || mutant::is_on(Mutant::LostRecordsKept) {
            return;
        }
        for own in self.subscriptions.values_mut() {
            own.truncate(end, &self.messages);
            own.rebuild_delays();
        }
        self.messages.truncate(end);
        self.dedup.truncate(end);
        let messages = &self.messages;
        for own in self.subscriptions.values_mut() {
            own.count_early(messages.delayed_offsets(), messages);
        }
    }

    fn subscribe(&mut self, number: u32, name: &Arc<str>, from: Offset) {
        self.next_subscription = self.next_subscription.max(number + 1);
        let mut own = Subscription::new(Arc::clone(name), from.max(self.messages.start));
        let messages = &self.messages;
        let all = own.settled.start()..messages.admitted_to;
        own.make_run_ready(all.clone());
        // Everything that is not plain is taken out again, and put where it belongs.
        for run in messages.void.runs_within(all.clone()) {
            own.settled.insert_run(run.clone());
            own.take_run(run);
        }
        let delayed: BTreeSet<Offset> = messages.delayed_offsets().collect();
        let grouped = messages.group_of.range(all.clone()).map(|(at, _)| at);
        let special = grouped.chain(messages.priorities.range(all.clone()).map(|(at, _)| *at));
        let special: BTreeSet<Offset> =
            special.chain(delayed.range(all.clone()).copied()).collect();
        for offset in special {
            own.take_run(offset..offset.next());
            match messages.group(offset) {
                _ if messages.void.contains(offset) => {}
                Some(group) => own.enter(group, offset, messages),
                None if delayed.contains(&offset) => {}
                None => own.make_ready(offset, messages),
            }
        }
        own.count_early(delayed.into_iter(), messages);
        self.subscriptions.insert(number, own);
    }

    /// A part of a snapshot: taken by who waits for it, and passed over by everybody else, for it says what
    /// they know.
    fn take_part(&mut self, part: u32, is_last: bool, bytes: &[u8]) {
        if self.awaits_snapshot && self.parts.add(part, bytes) && is_last {
            let parts = std::mem::take(&mut self.parts);
            if !mutant::is_on(Mutant::SnapshotPassedOver) {
                self.restore(&parts.bytes());
            }
            self.awaits_snapshot = false;
        }
    }
}
