//! What people and scalers ask: how many messages are where, how old the oldest is, who holds what.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use towpath_model::{Now, Offset};

use crate::deliveries::Deliveries;
use crate::limit::Fill;
use crate::observed::Observed;
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
    /// An earlier message of its group is held, or delayed.
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
        let late_in_groups = (self.messages.early.len() + own.delayed_in_groups) as u64;
        Some(Stats {
            // Delayed messages of groups stand in their groups too.
            ready: own.ready_count().saturating_sub(late_in_groups),
            in_flight: own.leased as u64,
            delayed: self.messages.delayed + own.delayed_again as u64,
            moving: own.moving.len() as u64,
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
        let mut found = Vec::new();
        let unsettled = own.settled.unsettled(from..self.messages.admitted_to);
        for (scanned, offset) in unsettled.enumerate() {
            if found.len() == max || scanned == scan_max {
                return (found, Some(offset));
            }
            let state = self.state_of(at, subscription, offset);
            let is_wanted = matches!(
                (filter, &state),
                (PeekFilter::Any, _)
                    | (PeekFilter::Ready, PeekState::Ready | PeekState::Blocked)
                    | (PeekFilter::Held, PeekState::Held { .. })
                    | (PeekFilter::Delayed, PeekState::Delayed { .. })
                    | (PeekFilter::Moving, PeekState::Moving(_))
            );
            if is_wanted {
                let live = own.live.get(offset);
                found.push(Peeked {
                    offset,
                    state,
                    receives: live.map_or(0, |live| live.receives),
                    age: at - self.messages.admitted_at(offset),
                    history: live.map(|live| live.history.clone()).unwrap_or_default(),
                });
            }
        }
        (found, None)
    }

    pub(crate) fn state_of(&self, at: QueueTime, subscription: u32, offset: Offset) -> PeekState {
        let own = &self.subscriptions[&subscription];
        if let Some(way) = own.moving.get(offset) {
            return PeekState::Moving(way.clone());
        }
        if let Some(live) = own.live.get(offset) {
            match live.place {
                Place::Leased { until } => {
                    return PeekState::Held {
                        holder: Arc::clone(&live.holder),
                        held_for: at - live.leased_at,
                        left: until - at,
                    };
                }
                Place::Delayed { until } => return PeekState::Delayed { left: until - at },
                Place::Ready | Place::Moving => {}
            }
        }
        if let Some(until) = self.messages.early.get(&offset) {
            return PeekState::Delayed { left: *until - at };
        }
        let is_ready = own.ready.values().any(|ready| ready.contains(offset));
        match self.messages.group_of.get(offset) {
            None if is_ready => PeekState::Ready,
            None => self.first_delay_of(at, offset),
            Some(number) if own.groups.is_held(crate::groups::GroupNumber(number)) => {
                PeekState::Blocked
            }
            Some(_) => PeekState::Ready,
        }
    }

    /// A message that is nowhere else is delayed; until when is in the list of its second alone.
    fn first_delay_of(&self, at: QueueTime, offset: Offset) -> PeekState {
        let until = self.messages.delays.iter().find(|(_, other)| *other == offset);
        PeekState::Delayed { left: until.map_or(Duration::ZERO, |(until, _)| until - at) }
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
