//! One subscription: what is ready for it, held by its receivers, delayed, on its way elsewhere.
//!
//! ```text
//!              ┌──────── ready ◀── delay ends ── delayed ◀──┐
//!   admitted ──┤           │                                │ gives back, fails, lease expires
//!              └▶ delayed  └── receive ──▶ leased ──────────┘
//!                                            │ delete         exceeds, rejects, too old
//!                              settled ◀─────┴──── moving ◀── (from anywhere)
//! ```
//!
//! Every message that was admitted is in one of these places. Those that were never received have no
//! entry of their own: they are runs of offsets.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use towpath_model::{Offset, Timestamp};

use crate::due::DueIndex;
use crate::groups::{GroupNumber, Groups};
use crate::index::OffsetMap;
use crate::moving::Moving;
use crate::named::NamedReceives;
use crate::observed::Seen;
use crate::ranges::OffsetRanges;
use crate::record::{DeadReason, Return};
use crate::settled::SettledSet;
use crate::time::QueueTime;

/// Attempts of one message that are remembered.
pub(crate) const HISTORY_MAX: usize = 10;

/// A message that was received at least once, and is not settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Live {
    pub(crate) place: Place,
    /// Number of its newest delivery.
    pub(crate) lease: u64,
    /// When that was.
    pub(crate) leased_at: QueueTime,
    pub(crate) receives: u32,
    pub(crate) first_received: Timestamp,
    /// Who had it last.
    pub(crate) holder: Arc<str>,
    /// How its earlier deliveries ended, the newest last.
    pub(crate) history: Vec<Attempt>,
}

impl Live {
    fn never_received() -> Live {
        Live {
            place: Place::Ready,
            lease: 0,
            leased_at: QueueTime::default(),
            receives: 0,
            first_received: Timestamp(0),
            holder: Arc::from(""),
            history: Vec::new(),
        }
    }

    /// Since when it could not be moved, if nothing else has become of it since.
    pub(crate) fn move_failed_since(&self) -> Option<QueueTime> {
        let last = self.history.last().filter(|attempt| attempt.why == Return::MoveFailed);
        last.map(|attempt| attempt.received_at)
    }

    /// Whether it is here because it could not be moved.
    fn is_unmovable(&self) -> bool {
        matches!(self.place, Place::Ready | Place::Delayed { .. })
            && self.move_failed_since().is_some()
    }

    fn remember(&mut self, attempt: Attempt) {
        if self.history.len() == HISTORY_MAX {
            self.history.remove(0);
        }
        self.history.push(attempt);
    }

    /// Moves that failed one after the other are one entry: they must not push out what its receivers said.
    fn remember_failed_move(&mut self, at: QueueTime, note: Option<Arc<str>>) {
        let since = self.move_failed_since();
        if since.is_some() {
            self.history.pop();
        }
        let received_at = since.unwrap_or(at);
        let (holder, why) = (Arc::from(""), Return::MoveFailed);
        self.remember(Attempt { received_at, returned_at: at, holder, why, note });
    }
}

/// Where such a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Leased { until: QueueTime },
    Ready,
    Delayed { until: QueueTime },
    Moving,
}

/// How one delivery ended, or a way to another queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// When the message was handed out, on the queue's clock; of a way that failed, when it did so first.
    pub received_at: QueueTime,
    /// When it came back, the last time.
    pub returned_at: QueueTime,
    /// Who had it.
    pub holder: Arc<str>,
    /// Why it came back.
    pub why: Return,
    /// What the receiver said.
    pub note: Option<Arc<str>>,
}

/// A message on its way to another queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// Which queue.
    pub to: Arc<str>,
    /// Why.
    pub reason: DeadReason,
    /// What the receiver said.
    pub note: Option<Arc<str>>,
}

/// Leases that end at the same moment.
#[derive(Debug, Clone, Default)]
struct Deadline {
    offsets: Vec<Offset>,
    /// How many of them still end then.
    valid: u32,
}

/// What the whole partition knows of a message, for one step of a subscription.
pub(crate) trait Known {
    /// Its group, if it has one.
    fn group(&self, offset: Offset) -> Option<GroupNumber>;
    /// Its priority.
    fn priority(&self, offset: Offset) -> u8;
    /// Whether it has a group, and its first delay has not ended.
    fn is_early(&self, offset: Offset) -> bool;
}

/// The state of one subscription.
#[derive(Debug, Clone)]
pub(crate) struct Subscription {
    pub(crate) name: Arc<str>,
    pub(crate) settled: SettledSet,
    /// Ready messages without a group, the highest priority first.
    pub(crate) ready: BTreeMap<Reverse<u8>, OffsetRanges>,
    pub(crate) groups: Groups,
    pub(crate) live: OffsetMap<Live>,
    /// Delays of messages that came back. Those of new ones are the same for all subscriptions.
    pub(crate) delays: DueIndex,
    deadlines: BTreeMap<QueueTime, Deadline>,
    pub(crate) moving: Moving,
    pub(crate) named: NamedReceives,
    pub(crate) leased: usize,
    /// Messages that were never received nor sent away, and whose first delay has not ended.
    pub(crate) early: u64,
    /// Those of them that stand in a group too.
    pub(crate) early_in_groups: u64,
    /// Messages that came back and are delayed.
    pub(crate) delayed_again: usize,
    /// Those of them that stand in a group too.
    pub(crate) delayed_in_groups: usize,
    /// Messages that are here because they could not be moved.
    pub(crate) unmovable: u64,
    /// What this process has seen while it led; not part of the state.
    seen: Option<Box<Seen>>,
}

impl Subscription {
    pub(crate) fn new(name: Arc<str>, from: Offset) -> Subscription {
        Subscription {
            name,
            settled: SettledSet::starting_at(from),
            ready: BTreeMap::new(),
            groups: Groups::default(),
            live: OffsetMap::default(),
            delays: DueIndex::default(),
            deadlines: BTreeMap::new(),
            moving: Moving::default(),
            named: NamedReceives::default(),
            leased: 0,
            early: 0,
            early_in_groups: 0,
            delayed_again: 0,
            delayed_in_groups: 0,
            unmovable: 0,
            seen: None,
        }
    }

    /// What has been seen, to be added to.
    pub(crate) fn seen_mut(&mut self) -> &mut Seen {
        self.seen.get_or_insert_default()
    }

    /// What has been seen.
    pub(crate) fn seen(&self) -> Seen {
        self.seen.as_deref().copied().unwrap_or_default()
    }

    /// What has been seen so far was another leadership's.
    pub(crate) fn forget_seen(&mut self) {
        self.seen = None;
    }

    /// How many messages can be received, if nobody waits for an earlier one of their group.
    pub(crate) fn ready_count(&self) -> u64 {
        self.ready.values().map(OffsetRanges::len).sum::<u64>() + self.groups.waiting()
    }

    /// The oldest message that can be received.
    pub(crate) fn oldest_waiting(&self) -> Option<Offset> {
        let ready = self.ready.values().filter_map(OffsetRanges::first);
        // The groups are in the order of their oldest messages.
        let in_groups = self.groups.ready().next().and_then(|(_, mut waiting)| waiting.next());
        ready.chain(in_groups).min()
    }

    /// Whether some message can be received now.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty() || self.groups.is_any_ready()
    }

    /// Whether a message without a group can be received now.
    pub(crate) fn is_ready(&self, offset: Offset) -> bool {
        self.ready.values().any(|ready| ready.contains(offset))
    }

    /// The first moment at which a lease ends.
    pub(crate) fn first_deadline(&self) -> Option<QueueTime> {
        self.deadlines.keys().next().copied()
    }

    /// As [`Subscription::overdue`], as a clock sees it that people set: a planted bug.
    pub(crate) fn overdue_by_wall(&self, wall: Timestamp) -> Vec<Offset> {
        let held = self.live.iter().filter_map(|(offset, live)| match live.place {
            Place::Leased { until } if live.receives == 1 => {
                let visibility = i64::try_from((until - live.leased_at).as_millis()).ok()?;
                (live.first_received.0 + visibility <= wall.0).then_some(offset)
            }
            _ => None,
        });
        held.collect()
    }

    /// Messages whose lease has ended by `now`, `max` of them at most.
    pub(crate) fn overdue(&self, now: QueueTime, max: usize) -> Vec<Offset> {
        let lists = self.deadlines.range(..=now);
        let ends_then = |at: QueueTime, offset: Offset| {
            let live = self.live.get(offset);
            live.is_some_and(|live| live.place == Place::Leased { until: at })
        };
        let mut overdue: Vec<Offset> = lists
            .flat_map(|(at, list)| list.offsets.iter().map(|offset| (*at, *offset)))
            .filter(|(at, offset)| ends_then(*at, *offset))
            .map(|(_, offset)| offset)
            .take(max)
            .collect();
        // A lease that was changed, and changed back, stands twice in its list.
        overdue.sort_unstable();
        overdue.dedup();
        overdue
    }

    /// A message of nobody's waits to be received.
    pub(crate) fn make_ready(&mut self, offset: Offset, known: &impl Known) {
        match known.group(offset) {
            Some(group) => self.enter(group, offset, known),
            None => self.ready.entry(Reverse(known.priority(offset))).or_default().insert(offset),
        }
    }

    /// Plain messages wait to be received.
    pub(crate) fn make_run_ready(&mut self, run: std::ops::Range<Offset>) {
        if run.start < run.end {
            self.ready.entry(Reverse(crate::PRIORITY_USUAL)).or_default().insert_run(run);
        }
    }

    /// Messages that were taken for plain ones wait to be received no more.
    pub(crate) fn take_run(&mut self, run: std::ops::Range<Offset>) {
        self.ready.retain(|_, ready| {
            ready.remove_run(run.clone());
            !ready.is_empty()
        });
    }

    /// A new message waits for the end of its first delay.
    pub(crate) fn await_first_delay(&mut self, offset: Offset, known: &impl Known) {
        self.early += 1;
        if let Some(group) = known.group(offset) {
            self.early_in_groups += 1;
            self.enter(group, offset, known);
        }
    }

    /// Whether the end of a message's first delay, if it has one, means anything here.
    fn minds_first_delay_of(&self, offset: Offset) -> bool {
        !self.settled.contains(offset)
            && self.live.get(offset).is_none()
            && !self.moving.contains(offset)
    }

    /// Counts anew what waits for the end of its first delay; `delayed` is all of which that has not come.
    pub(crate) fn count_early(
        &mut self,
        delayed: impl Iterator<Item = Offset>,
        known: &impl Known,
    ) {
        (self.early, self.early_in_groups) = (0, 0);
        for offset in delayed {
            if self.minds_first_delay_of(offset) {
                self.early += 1;
                self.early_in_groups += u64::from(known.group(offset).is_some());
            }
        }
    }

    /// A message stands in its group from now on, whether or not it may be delivered yet.
    pub(crate) fn enter(&mut self, group: GroupNumber, offset: Offset, known: &impl Known) {
        let (live, groups) = (&self.live, &mut self.groups);
        groups.add(group, offset, |at| is_late(live, known, at));
    }

    /// Takes a message out of where it waits.
    fn take(&mut self, offset: Offset, known: &impl Known) {
        match known.group(offset) {
            Some(group) => {
                let (live, groups) = (&self.live, &mut self.groups);
                groups.remove(group, offset, |at| is_late(live, known, at));
            }
            None => {
                self.take_ready(offset, known.priority(offset));
            }
        }
    }

    /// Says whether it was there.
    fn take_ready(&mut self, offset: Offset, priority: u8) -> bool {
        let Some(ready) = self.ready.get_mut(&Reverse(priority)) else { return false };
        let was_there = ready.remove(offset);
        if ready.is_empty() {
            self.ready.remove(&Reverse(priority));
        }
        was_there
    }

    /// Takes out a message that nobody has received: it is ready, or waits for the end of its first delay.
    fn take_new(&mut self, offset: Offset, known: &impl Known) {
        let is_early = match known.group(offset) {
            Some(_) => {
                let is_early = known.is_early(offset);
                self.early_in_groups -= u64::from(is_early);
                self.take(offset, known);
                is_early
            }
            None => !self.take_ready(offset, known.priority(offset)),
        };
        self.early -= u64::from(is_early);
    }

    /// A receiver holds a message until `until`.
    pub(crate) fn lease(&mut self, offset: Offset, lease: &Lease<'_>, known: &impl Known) {
        self.leave_place(offset, known);
        let before = self.live.remove(offset);
        if let Some(group) = known.group(offset) {
            let (live, groups) = (&self.live, &mut self.groups);
            groups.hold(group, offset, |at| is_late(live, known, at));
        }
        let mut live = before.unwrap_or_else(Live::never_received);
        if live.receives == 0 {
            live.first_received = lease.wall;
        }
        live.place = Place::Leased { until: lease.until };
        live.lease = lease.number;
        live.leased_at = lease.at;
        live.receives = live.receives.saturating_add(1);
        live.holder = Arc::clone(lease.holder);
        self.live.insert(offset, live);
        self.leased += 1;
        self.expect_deadline(lease.until, offset);
    }

    fn expect_deadline(&mut self, at: QueueTime, offset: Offset) {
        let deadline = self.deadlines.entry(at).or_default();
        deadline.offsets.push(offset);
        deadline.valid += 1;
    }

    fn drop_deadline(&mut self, at: QueueTime) {
        if let Some(deadline) = self.deadlines.get_mut(&at) {
            deadline.valid -= 1;
            if deadline.valid == 0 {
                self.deadlines.remove(&at);
            }
        }
    }

    /// A message leaves the place where it is; whoever calls puts it into another one.
    fn leave_place(&mut self, offset: Offset, known: &impl Known) {
        let live = self.live.get(offset);
        self.unmovable -= u64::from(live.is_some_and(Live::is_unmovable));
        match live.map(|live| live.place) {
            Some(Place::Leased { until }) => {
                self.leased -= 1;
                self.drop_deadline(until);
                if let Some(group) = known.group(offset) {
                    let (live, groups) = (&self.live, &mut self.groups);
                    groups.let_go(group, |at| is_late(live, known, at));
                }
            }
            Some(Place::Moving) => {
                self.moving.remove(offset);
            }
            Some(Place::Delayed { .. }) => {
                self.delayed_again -= 1;
                if known.group(offset).is_some() {
                    self.delayed_in_groups -= 1;
                    self.take(offset, known);
                }
            }
            None if self.moving.remove(offset).is_some() => {}
            None => self.take_new(offset, known),
            Some(Place::Ready) => self.take(offset, known),
        }
    }

    /// A receiver holds a message until another time.
    pub(crate) fn extend(&mut self, offset: Offset, until: QueueTime) {
        let Some(live) = self.live.get_mut(offset) else { return };
        let Place::Leased { until: before } = live.place else { return };
        live.place = Place::Leased { until };
        self.drop_deadline(before);
        self.expect_deadline(until, offset);
    }

    /// A message that somebody had waits again, not before `not_before`.
    pub(crate) fn give_back(
        &mut self,
        offset: Offset,
        at: QueueTime,
        not_before: Option<QueueTime>,
        ended: (Return, Option<&Arc<str>>),
        known: &impl Known,
    ) {
        let (why, note) = ended;
        if self.settled.contains(offset) {
            return;
        }
        self.leave_place(offset, known);
        let until = not_before.map(DueIndex::second_of).filter(|until| at < *until);
        if self.live.get(offset).is_none() {
            // It was on its way elsewhere and had never been received.
            self.live.insert(offset, Live::never_received());
        }
        if let Some(live) = self.live.get_mut(offset) {
            match why {
                Return::Unclaimed => live.receives = live.receives.saturating_sub(1),
                Return::MoveFailed => live.remember_failed_move(at, note.cloned()),
                Return::LeaseExpired | Return::Released | Return::Failed => {
                    live.remember(Attempt {
                        received_at: live.leased_at,
                        returned_at: at,
                        holder: Arc::clone(&live.holder),
                        why,
                        note: note.cloned(),
                    });
                }
            }
            live.place = until.map_or(Place::Ready, |until| Place::Delayed { until });
            self.unmovable += u64::from(live.is_unmovable());
        }
        match until {
            None => self.make_ready(offset, known),
            Some(until) => {
                self.delayed_again += 1;
                self.delays.add(until, offset);
                if let Some(group) = known.group(offset) {
                    self.delayed_in_groups += 1;
                    self.enter(group, offset, known);
                }
            }
        }
    }

    /// A message is on its way to another queue, and nobody here gets it meanwhile.
    pub(crate) fn send_away(&mut self, offset: Offset, to: &Move, known: &impl Known) {
        if self.settled.contains(offset) {
            return;
        }
        self.leave_place(offset, known);
        if let Some(live) = self.live.get_mut(offset) {
            live.place = Place::Moving;
        }
        self.moving.insert(offset, to.clone());
    }

    /// The subscription is done with a message. Returns what is known of it, if it was ever received.
    pub(crate) fn settle(&mut self, offset: Offset, known: &impl Known) -> Option<Live> {
        if self.settled.contains(offset) {
            return None;
        }
        self.leave_place(offset, known);
        self.settled.insert(offset);
        self.live.remove(offset)
    }

    /// How many messages before `admitted_to` it is not done with.
    pub(crate) fn unsettled_count(&self, admitted_to: Offset) -> u64 {
        let span = u64::try_from(admitted_to - self.settled.start()).unwrap_or(0);
        span.saturating_sub(self.settled.ahead())
    }

    /// The subscription is done with everything before `end`.
    pub(crate) fn purge(&mut self, end: Offset, known: &impl Known) {
        let runs: Vec<std::ops::Range<Offset>> = self
            .ready
            .values()
            .flat_map(OffsetRanges::runs)
            .filter(|run| run.start < end)
            .map(|run| run.start..run.end.min(end))
            .collect();
        // Those that came back have an entry of their own.
        let live: Vec<Offset> = self.live.range(Offset(0)..end).map(|(at, _)| at).collect();
        for offset in live {
            self.settle(offset, known);
        }
        for run in runs {
            self.settled.insert_run(run.clone());
            self.take_run(run);
        }
        let left: Vec<Offset> = self.settled.unsettled(self.settled.start()..end).collect();
        for offset in left {
            self.settle(offset, known);
        }
    }

    /// A first delay has ended.
    pub(crate) fn first_delay_ended(&mut self, offset: Offset, known: &impl Known) {
        if !self.minds_first_delay_of(offset) {
            return;
        }
        self.early -= 1;
        match known.group(offset) {
            None => self.make_ready(offset, known),
            Some(group) => {
                self.early_in_groups -= 1;
                let (live, groups) = (&self.live, &mut self.groups);
                groups.refresh(group, |at| is_late(live, known, at));
            }
        }
    }

    /// Delays of messages that came back end.
    pub(crate) fn end_delays(&mut self, now: QueueTime, known: &impl Known) {
        while let Some((second, offsets)) = self.delays.take(now) {
            for offset in offsets {
                let Some(live) = self.live.get_mut(offset) else { continue };
                if live.place != (Place::Delayed { until: second }) {
                    continue;
                }
                live.place = Place::Ready;
                self.delayed_again -= 1;
                match known.group(offset) {
                    None => self.make_ready(offset, known),
                    Some(group) => {
                        self.delayed_in_groups -= 1;
                        let (live, groups) = (&self.live, &mut self.groups);
                        groups.refresh(group, |at| is_late(live, known, at));
                    }
                }
            }
        }
    }

    /// Messages at or after `end` were lost. `known` still knows of them.
    pub(crate) fn truncate(&mut self, end: Offset, known: &impl Known) {
        let everything = end..Offset(i64::MAX);
        let live: Vec<Offset> = self.live.range(everything.clone()).map(|(at, _)| at).collect();
        for offset in live {
            self.leave_place(offset, known);
            self.live.remove(offset);
        }
        self.moving.truncate(end);
        self.take_run(everything);
        let in_groups: Vec<(GroupNumber, Offset)> =
            self.groups.iter().filter(|(_, offset)| end <= *offset).collect();
        for (group, offset) in in_groups {
            let (live, groups) = (&self.live, &mut self.groups);
            groups.remove(group, offset, |at| is_late(live, known, at));
        }
        self.settled.truncate(end);
        self.named.truncate(end);
    }

    /// Delays of messages at or after `end` mean nothing any more.
    pub(crate) fn rebuild_delays(&mut self) {
        let mut delays = DueIndex::default();
        for (offset, live) in self.live.iter() {
            if let Place::Delayed { until } = live.place {
                delays.add(until, offset);
            }
        }
        self.delays = delays;
    }

    /// Puts back what a snapshot says of a live message.
    pub(crate) fn restore(&mut self, offset: Offset, live: Live, known: &impl Known) {
        let place = live.place;
        self.unmovable += u64::from(live.is_unmovable());
        self.live.insert(offset, live);
        match place {
            Place::Leased { until } => {
                self.leased += 1;
                self.expect_deadline(until, offset);
                if let Some(group) = known.group(offset) {
                    let (live, groups) = (&self.live, &mut self.groups);
                    groups.hold(group, offset, |at| is_late(live, known, at));
                }
            }
            Place::Delayed { until } => {
                self.delayed_again += 1;
                self.delays.add(until, offset);
                if let Some(group) = known.group(offset) {
                    self.delayed_in_groups += 1;
                    self.enter(group, offset, known);
                }
            }
            Place::Ready => self.make_ready(offset, known),
            Place::Moving => {}
        }
    }
}

/// What a receive gives to each of its messages.
pub(crate) struct Lease<'a> {
    pub(crate) number: u64,
    pub(crate) at: QueueTime,
    pub(crate) wall: Timestamp,
    pub(crate) until: QueueTime,
    pub(crate) holder: &'a Arc<str>,
}

/// Whether a message that stands in a group may not be delivered yet.
fn is_late(live: &OffsetMap<Live>, known: &impl Known, offset: Offset) -> bool {
    match live.get(offset) {
        Some(live) => matches!(live.place, Place::Delayed { .. }),
        None => known.is_early(offset),
    }
}
