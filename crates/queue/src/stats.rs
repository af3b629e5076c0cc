//! What people and scalers ask: how many messages are where, how old the oldest is, who holds what.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use towpath_model::{Now, Offset};

use crate::deliveries::Deliveries;
use crate::groups::GroupNumber;
use crate::limit::Fill;
use crate::observed::Observed;
use crate::record::DeadReason;
use crate::subscription::{Attempt, Move, Place, Subscription};
use crate::time::QueueTime;

/// How many messages of one subscription are where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Can be received, or wait for an earlier one of their group.
    pub ready: u64,
    /// Held by receivers.
    pub in_flight: u64,
    /// Not delivered yet.
    pub delayed: u64,
    /// On their way to another queue.
    pub moving: u64,
    /// Of those that are ready or delayed: another queue does not take them, and that is tried again.
    pub unmovable: u64,
    /// Message groups that can be received from now: so many receivers can work beside each other.
    pub ready_groups: u64,
    /// Message groups of which a message is held.
    pub held_groups: u64,
    /// Age of the oldest message that can be received.
    pub oldest_waiting: Option<Duration>,
    /// Age of the oldest message.
    pub oldest: Option<Duration>,
    /// Receivers that wait.
    pub receivers: u64,
    /// Message groups that have messages, for any subscription.
    pub groups: u64,
}

/// A message as somebody sees it who only looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peeked {
    /// Which message.
    pub offset: Offset,
    /// Where it is.
    pub state: PeekState,
    /// How often it was received.
    pub receives: u32,
    /// How long it has been there.
    pub age: Duration,
    /// How its deliveries ended, the newest last.
    pub history: Vec<Attempt>,
}

/// Where a message is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeekState {
    /// It can be received.
    Ready,
    /// A message of its group is held, or the first one is delayed.
    Blocked,
    /// A receiver has it.
    Held {
        /// Who.
        holder: Arc<str>,
        /// Since when.
        held_for: Duration,
        /// Until when.
        left: Duration,
    },
    /// It is not delivered yet.
    Delayed {
        /// For so long.
        left: Duration,
    },
    /// It goes to another queue.
    Moving(Move),
}

/// Which messages somebody wants to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeekFilter {
    /// All that are not settled.
    Any,
    /// Those that nobody holds and that are not delayed.
    Ready,
    /// Those that somebody holds.
    Held,
    /// Those that are delayed.
    Delayed,
    /// Those that go to another queue.
    Moving,
}

impl Deliveries {
    /// How many messages of a subscription are where; nothing when there is no such subscription.
    #[must_use]
    pub fn stats(&self, now: Now, subscription: u32) -> Option<Stats> {
        let own = self.subscriptions.get(&subscription)?;
        let at = self.clock.now(now.time);
        let age = |offset: Offset| at - self.messages.admitted_at(offset);
        let start = own.settled.start();
        let late_in_groups = own.early_in_groups + own.delayed_in_groups as u64;
        Some(Stats {
            // Delayed messages of groups stand in their groups too.
            ready: own.ready_count() - late_in_groups,
            in_flight: own.leased as u64,
            delayed: own.early + own.delayed_again as u64,
            moving: own.moving.len() as u64,
            unmovable: own.unmovable,
            ready_groups: own.groups.ready_groups() as u64,
            held_groups: own.groups.held_groups() as u64,
            oldest_waiting: own.oldest_waiting().map(age),
            oldest: (start < self.messages.admitted_to).then(|| age(start)),
            groups: self.messages.names.len() as u64,
            receivers: self.waits.count(subscription) as u64,
        })
    }

    /// How full the partition is, but for bytes, and the first message of those that are held.
    #[must_use]
    pub fn fill(&self, now: Now) -> (Fill, Offset) {
        let at = self.clock.now(now.time);
        let own = self.subscriptions.values();
        let messages = own.clone().map(|own| own.unsettled_count(self.messages.admitted_to)).max();
        let oldest = own.filter_map(Subscription::oldest_waiting).min();
        let fill = Fill {
            messages: messages.unwrap_or(0),
            bytes: 0,
            oldest_waiting: oldest.map(|offset| at - self.messages.admitted_at(offset)),
        };
        (fill, self.settled_start())
    }

    /// What this process has seen of a subscription since it leads.
    #[must_use]
    pub fn observed(&self, now: Now, subscription: u32) -> Option<Observed> {
        let own = self.subscriptions.get(&subscription)?;
        Some(own.seen().observed(self.clock.now(now.time), &self.arrivals))
    }

    /// Bytes of memory in which it stands which new message is delayed until when. Looks at every second
    /// of which that is known.
    #[must_use]
    pub fn delay_bytes(&self) -> usize {
        self.messages.delays.bytes()
    }

    /// Looks at messages from an offset on, without taking any; `max` of them at most, and after looking at
    /// `scan_max` offsets it ends, too. Says from where to go on.
    pub fn peek(
        &self,
        now: Now,
        subscription: u32,
        from: Offset,
        filter: PeekFilter,
        max: usize,
        scan_max: usize,
    ) -> (Vec<Peeked>, Option<Offset>) {
        let Some(own) = self.subscriptions.get(&subscription) else { return (Vec::new(), None) };
        let at = self.clock.now(now.time);
        let (found, next) = self.look(at, own, from, filter, (max, scan_max));
        let early = found.iter().filter(|(_, state)| state.is_none()).map(|(offset, _)| *offset);
        let ends = self.messages.delays.times_of(&early.collect());
        let peeked = |(offset, state): (Offset, Option<PeekState>)| {
            let live = own.live.get(offset);
            let end = || ends.get(&offset).copied().unwrap_or(at);
            Peeked {
                offset,
                state: state.unwrap_or_else(|| PeekState::Delayed { left: end() - at }),
                receives: live.map_or(0, |live| live.receives),
                age: at - self.messages.admitted_at(offset),
                history: live.map(|live| live.history.clone()).unwrap_or_default(),
            }
        };
        (found.into_iter().map(peeked).collect(), next)
    }

    /// Where the messages are that are wanted, each as [`Deliveries::state_of`] has it.
    fn look(
        &self,
        at: QueueTime,
        own: &Subscription,
        from: Offset,
        filter: PeekFilter,
        (max, scan_max): (usize, usize),
    ) -> (Vec<(Offset, Option<PeekState>)>, Option<Offset>) {
        let mut found = Vec::new();
        let unsettled = own.settled.unsettled(from..self.messages.admitted_to);
        for (scanned, offset) in unsettled.enumerate() {
            if found.len() == max || scanned == scan_max {
                return (found, Some(offset));
            }
            let state = self.state_of(at, own, offset);
            let is_wanted = matches!(
                (filter, &state),
                (PeekFilter::Any, _)
                    | (PeekFilter::Ready, Some(PeekState::Ready | PeekState::Blocked))
                    | (PeekFilter::Held, Some(PeekState::Held { .. }))
                    | (PeekFilter::Delayed, Some(PeekState::Delayed { .. }) | None)
                    | (PeekFilter::Moving, Some(PeekState::Moving(_)))
            );
            if is_wanted {
                found.push((offset, state));
            }
        }
        (found, None)
    }

    /// Where a message is that is not settled; nothing: it is new and delayed, and until when stands in the list of its
    /// second alone. Costs the same however many others there are.
    pub(crate) fn state_of(
        &self,
        at: QueueTime,
        own: &Subscription,
        offset: Offset,
    ) -> Option<PeekState> {
        if let Some(way) = own.moving.get(offset) {
            return Some(PeekState::Moving(way.clone()));
        }
        let live = own.live.get(offset);
        match live.map(|live| (live, live.place)) {
            Some((live, Place::Leased { until })) => {
                return Some(PeekState::Held {
                    holder: Arc::clone(&live.holder),
                    held_for: at - live.leased_at,
                    left: until - at,
                });
            }
            Some((_, Place::Delayed { until })) => {
                return Some(PeekState::Delayed { left: until - at });
            }
            Some((_, Place::Ready | Place::Moving)) | None => {}
        }
        match self.messages.group_of.get(offset).map(GroupNumber) {
            None => own.is_ready(offset).then_some(PeekState::Ready),
            Some(_) if live.is_none() && self.messages.early.contains_key(&offset) => None,
            Some(group) if own.groups.is_ready(group) => Some(PeekState::Ready),
            Some(_) => Some(PeekState::Blocked),
        }
    }

    /// How long it takes until it is `until`.
    #[must_use]
    pub fn left(&self, now: Now, until: QueueTime) -> Duration {
        until - self.clock.now(now.time)
    }

    /// How long ago it was `at`.
    #[must_use]
    pub fn since(&self, now: Now, at: QueueTime) -> Duration {
        self.clock.now(now.time) - at
    }

    /// Which subscriptions have messages on their way, and to which queues.
    #[must_use]
    pub fn ways(&self) -> BTreeSet<(u32, Arc<str>)> {
        let ways = self.subscriptions.iter().flat_map(|(number, own)| {
            own.moving.destinations().map(|to| (*number, Arc::clone(to)))
        });
        ways.collect()
    }

    /// The messages of a subscription that are on their way to another queue.
    pub fn moves(&self, subscription: u32) -> impl Iterator<Item = (Offset, &Move)> + '_ {
        let own = self.subscriptions.get(&subscription);
        own.into_iter().flat_map(|own| own.moving.iter())
    }

    /// How many messages of a subscription are on their way for one of these reasons. Walks over none of them.
    #[must_use]
    pub fn moving_because(&self, subscription: u32, reasons: &[DeadReason]) -> u64 {
        let own = self.subscriptions.get(&subscription);
        own.map_or(0, |own| reasons.iter().map(|reason| own.moving.because(*reason)).sum())
    }

    /// How the deliveries of a message ended, the newest last.
    #[must_use]
    pub fn history(&self, subscription: u32, offset: Offset) -> &[Attempt] {
        let live = self.subscriptions.get(&subscription).and_then(|own| own.live.get(offset));
        live.map_or(&[], |live| &live.history)
    }

    /// Names and numbers of all subscriptions.
    pub fn subscriptions(&self) -> impl Iterator<Item = (&str, u32)> + '_ {
        self.subscriptions.iter().map(|(number, own)| (&*own.name, *number))
    }

    /// Whether a receive of this name was given messages, as far as that is remembered.
    #[must_use]
    pub fn knows_attempt(&self, subscription: u32, name: &[u8]) -> bool {
        self.subscriptions.get(&subscription).is_some_and(|own| own.named.get(name).is_some())
    }

    /// The message that a message repeats, as far as its window lasts.
    #[must_use]
    pub fn first_with(&self, now: Now, key: &crate::DedupKey) -> Option<Offset> {
        self.dedup.first(key, self.clock.now(now.time))
    }
}
