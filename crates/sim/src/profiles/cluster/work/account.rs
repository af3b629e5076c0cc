//! What clients of queues have asked and been told, and what follows from it (INV-Q1 to Q9).
//!
//! ```text
//! asked ──────────────▶ answered          whatever was decided was decided in between; so a lease begins
//! earliest begin         latest begin      no earlier than asked, and ends no earlier than that + visibility
//! ```
//!
//! Nothing in here comes from a broker's state: only calls, their answers, and the records that a receiver
//! reads. A call without an answer may have happened or not, and counts for whichever excuses more.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use towpath_model::{Offset, Time, TopicPartition};
use towpath_queue::{Receipt, ReceiptOutcome};

use crate::profile::{Violation, ensure};

/// Readings of clocks are cut to milliseconds.
const TICK: Duration = Duration::from_millis(2);

/// As far as people's clocks are apart that run 5 % too fast or too slow, in a run.
const CLOCKS_APART: Duration = Duration::from_secs(4);

/// A subscription of a partition.
pub(super) type Place = (TopicPartition, u32);

/// One delivery's way out of another queue: from which partition, of which message, by which subscription.
pub(super) type Origin = (TopicPartition, Offset, u32);

/// How a queue is configured, as long as it lives.
#[derive(Debug, Clone, Default)]
pub(super) struct Rules {
    pub(super) is_fifo: bool,
    pub(super) delay: Duration,
    pub(super) retention: Option<Duration>,
    /// How long records are kept, whether or not they are worked.
    pub(super) records_kept: Option<Duration>,
    pub(super) receives_max: Option<u32>,
    pub(super) has_dead_letters: bool,
    pub(super) expired_are_dead_letters: bool,
    pub(super) dedup_window: Duration,
    pub(super) subscriptions: u32,
}

/// A message as its sender made it.
#[derive(Debug, Clone)]
pub(super) struct Message {
    pub(super) group: Option<u8>,
    pub(super) delay: Option<Duration>,
    pub(super) ttl: Option<Duration>,
    pub(super) has_id: bool,
    /// When it was sent first.
    pub(super) sent_at: Time,
}

/// What a receiver has read of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) number: u64,
    pub(super) group: Option<u8>,
    pub(super) from: Option<Origin>,
    /// How often it was received where it comes from.
    pub(super) dead_receives: Option<u32>,
}

/// A receive that was asked.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) place: Place,
    pub(super) at: Time,
    visibility: Duration,
    attempt: Option<u64>,
    number: u64,
    /// Receives without an answer there by then.
    unknown: u64,
    /// The how-manieth answer of its place it is, once that has left; and when it did.
    left: Option<(u64, Time)>,
}

/// Receives of one place whose answers have left, in that order, each with what was read, once it was. What was
/// decided first is looked at first, whatever is heard first.
type Queue = BTreeMap<u64, Option<(Asked, Vec<Handed>)>>;

/// One message that was handed out and read.
#[derive(Debug, Clone)]
pub(super) struct Handed {
    pub(super) receipt: Receipt,
    pub(super) receives: u32,
    pub(super) written: Written,
}

/// What is done with messages that are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Act {
    Delete,
    Extend(Duration),
    Release(Option<Duration>),
    Reject,
    Unclaim,
}

/// One record of a queue, or what somebody who was not the leader any more took for one.
#[derive(Debug, Clone)]
struct Copy {
    /// Which of those that were put at this offset.
    claim: u64,
    number: u64,
    group: Option<u8>,
    from: Option<Origin>,
    /// It was appended no earlier.
    sent_at: Time,
    acknowledged_at: Option<Time>,
    /// By subscription.
    told: BTreeMap<u32, Told>,
}

/// What receivers were told of a message.
#[derive(Debug, Clone, Default)]
struct Told {
    /// As the newest delivery said.
    receives: u32,
    /// Deliveries that were given back uncounted since, perhaps.
    uncounted: u32,
    /// Receives without an answer when the newest delivery was asked for.
    unknown: u64,
    lease: Option<Lease>,
    /// A deletion was acknowledged, of this delivery.
    deleted: Option<u64>,
    /// It may be gone, by what somebody asked for.
    may_be_gone: Option<Time>,
    /// It may be on its way to another queue, by what somebody asked for.
    may_be_moved: Option<Time>,
    /// It was received where it went, at the latest then.
    arrived: Option<(TopicPartition, Offset, Time)>,
}

/// The newest delivery.
#[derive(Debug, Clone)]
struct Lease {
    number: u64,
    /// Nobody else gets the message before, if nothing else was asked for.
    first_until: Time,
    attempt: Option<u64>,
    /// What was asked for since, in that order.
    changes: Vec<Change>,
}

/// Somebody has asked for another end of a lease.
#[derive(Debug, Clone)]
struct Change {
    /// In which call.
    call: u64,
    until: Time,
    /// It was answered.
    is_sure: bool,
}

impl Lease {
    /// Nobody else gets the message before.
    fn until(&self) -> Time {
        self.changes.iter().fold(self.first_until, |until, change| match change.is_sure {
            true => change.until,
            false => until.min(change.until),
        })
    }

    fn may_end(&mut self, call: u64, until: Time) {
        self.changes.push(Change { call, until, is_sure: false });
    }

    fn surely_ends(&mut self, call: u64) {
        let changes = self.changes.iter_mut().filter(|change| change.call == call);
        changes.for_each(|change| change.is_sure = true);
    }
}

/// What is known of a subscription of a partition.
#[derive(Debug, Clone, Copy, Default)]
struct Calls {
    pending: u64,
    unknown: u64,
}

/// All that is known.
#[derive(Debug, Default)]
pub(super) struct Account {
    rules: BTreeMap<TopicPartition, Rules>,
    messages: BTreeMap<u64, Message>,
    /// What was acknowledged or received.
    copies: BTreeMap<(TopicPartition, Offset), Copy>,
    /// What was appended by somebody, and may be all there is of a message.
    claims: BTreeMap<(TopicPartition, Offset, u64), Copy>,
    numbers: u64,
    queues: BTreeMap<Place, Queue>,
    /// Receives by the name of an attempt: which call, and until when it would hold what it gets.
    named: BTreeMap<(Place, u64), Vec<(u64, Time)>>,
    /// Copies of what is sent with an id, and of what another queue has given up: one of each is delivered.
    twins: BTreeMap<Twin, BTreeSet<(TopicPartition, Offset)>>,
    groups: BTreeMap<(TopicPartition, Option<u8>), BTreeSet<Offset>>,
    calls: BTreeMap<Place, Calls>,
    /// When ids were forgotten last, perhaps.
    purged: BTreeMap<TopicPartition, Time>,
}

/// What makes two records one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Twin {
    Id(TopicPartition, u64),
    From(Origin),
}

impl Account {
    /// There is a queue.
    pub(super) fn serves(&mut self, partition: TopicPartition, rules: Rules) {
        self.rules.insert(partition, rules);
    }

    /// Every subscription of every partition.
    pub(super) fn places(&self) -> Vec<Place> {
        let all = self.rules.iter();
        all.flat_map(|(id, rules)| (0..rules.subscriptions).map(|number| (*id, number))).collect()
    }

    pub(super) fn rules(&self, partition: TopicPartition) -> &Rules {
        &self.rules[&partition]
    }

    /// Somebody sends a message for the first time.
    pub(super) fn sends(&mut self, number: u64, message: Message) {
        self.messages.insert(number, message);
    }

    /// A broker has put a record there, asked for at `at`; whether it stays is another matter. Returns by which
    /// number it is known.
    pub(super) fn appended(
        &mut self,
        partition: TopicPartition,
        offset: Offset,
        written: &Written,
        at: Time,
    ) -> u64 {
        self.numbers += 1;
        let claim = self.numbers;
        let copy = Copy {
            claim,
            number: written.number,
            group: written.group,
            from: written.from,
            sent_at: at,
            acknowledged_at: None,
            told: BTreeMap::new(),
        };
        self.claims.insert((partition, offset, claim), copy);
        claim
    }

    /// A record is committed: it is what lies there, for ever.
    fn committed(
        &mut self,
        partition: TopicPartition,
        offset: Offset,
        claim: u64,
    ) -> Result<(), Violation> {
        let Some(copy) = self.claims.remove(&(partition, offset, claim)) else { return Ok(()) };
        if let Some(before) = self.copies.get(&(partition, offset)) {
            return Err(Violation::new(
                "INV-T4",
                format!("{partition}: {copy:?} lies at {offset}, where {before:?} was promised"),
            ));
        }
        if let Some(twin) = self.twin_of(partition, &copy) {
            self.twins.entry(twin).or_default().insert((partition, offset));
        }
        self.groups.entry((partition, copy.group)).or_default().insert(offset);
        self.copies.insert((partition, offset), copy);
        Ok(())
    }

    fn twin_of(&self, partition: TopicPartition, copy: &Copy) -> Option<Twin> {
        match copy.from {
            Some(origin) => Some(Twin::From(origin)),
            None => {
                let has_id = self.messages[&copy.number].has_id;
                has_id.then_some(Twin::Id(partition, copy.number))
            }
        }
    }

    /// Whether a message may be another copy of one that came to its end before anybody heard of it.
    fn may_repeat(&self, partition: TopicPartition, offset: Offset) -> bool {
        let copy = &self.copies[&(partition, offset)];
        let Some(twin) = self.twin_of(partition, copy) else { return false };
        let all = (partition, Offset(0), 0)..(partition, offset, 0);
        self.claims.range(all).any(|(_, other)| self.twin_of(partition, other) == Some(twin))
    }

    /// Other copies of what is delivered once.
    fn others(&self, partition: TopicPartition, offset: Offset) -> Vec<Offset> {
        let copy = &self.copies[&(partition, offset)];
        let twins = self.twin_of(partition, copy).and_then(|twin| self.twins.get(&twin));
        let here = twins.into_iter().flatten().filter(|(of, at)| *of == partition && *at != offset);
        here.map(|(_, at)| *at).collect()
    }

    /// A send was acknowledged.
    pub(super) fn acknowledged(
        &mut self,
        partition: TopicPartition,
        offset: Offset,
        claim: u64,
        at: Time,
    ) -> Result<(), Violation> {
        self.committed(partition, offset, claim)?;
        if let Some(copy) = self.copies.get_mut(&(partition, offset)) {
            copy.acknowledged_at.get_or_insert(at);
        }
        Ok(())
    }

    /// Somebody wants messages.
    pub(super) fn receive_asked(
        &mut self,
        place: Place,
        at: Time,
        visibility: Duration,
        attempt: Option<u64>,
    ) -> Asked {
        let calls = self.calls.entry(place).or_default();
        calls.pending += 1;
        let unknown = calls.unknown;
        self.numbers += 1;
        let number = self.numbers;
        if let Some(attempt) = attempt {
            self.named.entry((place, attempt)).or_default().push((number, at + visibility));
            let (partition, subscription) = place;
            let all = (partition, Offset(0))..=(partition, Offset(i64::MAX));
            for (_, copy) in self.copies.range_mut(all) {
                let told = copy.told.get_mut(&subscription);
                let lease = told.and_then(|told| told.lease.as_mut());
                if let Some(lease) = lease.filter(|lease| lease.attempt == Some(attempt)) {
                    lease.may_end(number, at + visibility);
                }
            }
        }
        Asked { place, at, visibility, attempt, number, unknown, left: None }
    }

    /// A receive's answer leaves a broker.
    pub(super) fn receive_left(&mut self, asked: &mut Asked, at: Time) {
        self.numbers += 1;
        asked.left = Some((self.numbers, at));
        self.queues.entry(asked.place).or_default().insert(self.numbers, None);
    }

    /// A receive ends without anybody knowing what it was given. Returns what others were given.
    pub(super) fn receive_unknown(
        &mut self,
        asked: &Asked,
    ) -> Result<Vec<(Asked, Vec<Handed>)>, Violation> {
        let calls = self.calls.entry(asked.place).or_default();
        calls.pending -= 1;
        calls.unknown += 1;
        if let Some((nth, _)) = asked.left {
            self.queues.entry(asked.place).or_default().remove(&nth);
        }
        self.look(asked.place)
    }

    /// A receive was answered, and this was read. Returns what it was given, and what those were given that had
    /// to be looked at after it; nothing while there is somebody before it.
    pub(super) fn received(
        &mut self,
        asked: Asked,
        handed: Vec<Handed>,
    ) -> Result<Vec<(Asked, Vec<Handed>)>, Violation> {
        let place = asked.place;
        let (nth, _) = asked.left.expect("its answer has left");
        self.queues.entry(place).or_default().insert(nth, Some((asked, handed)));
        self.look(place)
    }

    fn look(&mut self, place: Place) -> Result<Vec<(Asked, Vec<Handed>)>, Violation> {
        let mut looked_at = Vec::new();
        while let Some(first) = self.queues.entry(place).or_default().first_entry() {
            if first.get().is_none() {
                break;
            }
            let Some((asked, handed)) = first.remove() else { break };
            self.look_at(&asked, &handed)?;
            looked_at.push((asked, handed));
        }
        Ok(looked_at)
    }

    fn look_at(&mut self, asked: &Asked, handed: &[Handed]) -> Result<(), Violation> {
        let (_, left) = asked.left.expect("its answer has left");
        self.calls.entry(asked.place).or_default().pending -= 1;
        for one in handed {
            self.learn(asked.place, one)?;
        }
        self.check_groups(asked, left, handed)?;
        handed.iter().try_for_each(|one| self.handed(asked, left, one))
    }

    /// What was received is committed.
    fn learn(&mut self, (partition, _): Place, handed: &Handed) -> Result<(), Violation> {
        let offset = handed.receipt.offset;
        let Written { number, group, from, .. } = handed.written;
        let is_it = |copy: &Copy| (copy.number, copy.group, copy.from) == (number, group, from);
        if self.copies.get(&(partition, offset)).is_some_and(is_it) {
            return Ok(());
        }
        let Some(message) = self.messages.get(&number) else {
            let detail = format!("{partition}: {:?} was sent by nobody", handed.written);
            return Err(Violation::new("INV-Q1", detail));
        };
        let sent_at = message.sent_at;
        let all = (partition, offset, 0)..=(partition, offset, u64::MAX);
        let claim =
            self.claims.range(all).find(|(_, copy)| is_it(copy)).map(|(_, copy)| copy.claim);
        // Nobody has heard where it was put.
        let claim =
            claim.unwrap_or_else(|| self.appended(partition, offset, &handed.written, sent_at));
        self.committed(partition, offset, claim)
    }

    fn handed(&mut self, asked: &Asked, left: Time, handed: &Handed) -> Result<(), Violation> {
        let (partition, number) = asked.place;
        let Handed { receipt: Receipt { offset, lease }, receives, .. } = *handed;
        let what = format!("{partition}/{number}: message at {offset}");
        self.check_delay(asked.place, offset, left, &what)?;
        self.check_twins(asked, left, offset, &what)?;
        self.check_way(asked, left, handed, &what)?;
        let rules = &self.rules[&partition];
        if let Some(max) = rules.receives_max.filter(|_| rules.has_dead_letters) {
            ensure!(
                receives <= max,
                "INV-Q6",
                "{what} is received {receives} times, {max} are allowed"
            );
        }
        let calls = self.calls[&asked.place];
        let copy = self.copies.get_mut(&(partition, offset)).expect("learnt of before");
        let sent_at = copy.sent_at;
        let told = copy.told.entry(number).or_default();
        if let Some(deleted) = told.deleted {
            ensure!(
                lease <= deleted,
                "INV-Q4",
                "{what} was deleted by delivery {deleted}, and is delivered by {lease}"
            );
        }
        let mut from = asked.at.max(sent_at);
        if let Some(before) = &mut told.lease {
            ensure!(
                before.number <= lease,
                "INV-Q2",
                "{what} is delivered by {lease}, after {}",
                before.number
            );
            if lease == before.number {
                ensure!(
                    asked.attempt.is_some() && asked.attempt == before.attempt,
                    "INV-Q2",
                    "{what} is delivered by {lease} again"
                );
                ensure!(
                    receives == told.receives,
                    "INV-Q6",
                    "{what}: delivery {lease} is the receive {}, and now {receives}",
                    told.receives
                );
                before.surely_ends(asked.number);
                return Ok(());
            }
            ensure!(
                before.until() <= left + TICK,
                "INV-Q2",
                "{what} is delivered by {lease} at {left:?}, {before:?} holds it"
            );
            from = from.max(before.until());
        }
        let least = (told.receives + 1).saturating_sub(told.uncounted);
        let most = u64::from(told.receives) + 1 + calls.unknown - told.unknown + calls.pending;
        ensure!(
            least <= receives && u64::from(receives) <= most,
            "INV-Q6",
            "{what}: receive {receives} after {}, {least} to {most} would be right",
            told.receives
        );
        told.receives = receives;
        told.uncounted = 0;
        told.unknown = asked.unknown;
        let (first_until, attempt) = (from + asked.visibility, asked.attempt);
        let mut newest = Lease { number: lease, first_until, attempt, changes: Vec::new() };
        // Whoever has asked by the same name may have got the same, for less long.
        let again = attempt.and_then(|attempt| self.named.get(&(asked.place, attempt)));
        for (call, until) in again.into_iter().flatten() {
            if *call != asked.number {
                newest.may_end(*call, *until);
            }
        }
        told.lease = Some(newest);
        Ok(())
    }

    fn check_delay(
        &self,
        (partition, _): Place,
        offset: Offset,
        left: Time,
        what: &str,
    ) -> Result<(), Violation> {
        let copy = &self.copies[&(partition, offset)];
        let usual = self.rules[&partition].delay;
        let own = self.messages[&copy.number].delay.filter(|_| copy.from.is_none());
        let ready = copy.sent_at + own.unwrap_or(usual);
        ensure!(
            ready <= left + TICK,
            "INV-Q8",
            "{what} is delivered at {left:?}, before {ready:?}"
        );
        Ok(())
    }

    /// One message of those that are the same is delivered.
    fn check_twins(
        &self,
        asked: &Asked,
        left: Time,
        offset: Offset,
        what: &str,
    ) -> Result<(), Violation> {
        let (partition, number) = asked.place;
        let copy = &self.copies[&(partition, offset)];
        for other in self.others(partition, offset) {
            let twin = &self.copies[&(partition, other)];
            let is_delivered = twin.told.get(&number).is_some_and(|told| told.lease.is_some());
            if !is_delivered {
                continue;
            }
            ensure!(
                copy.from.is_none(),
                "INV-Q6",
                "{what} comes from {:?}, as does that at {other}",
                copy.from
            );
            let first = copy.sent_at.min(twin.sent_at);
            let window = self.rules[&partition].dedup_window;
            let was_purged = self.purged.get(&partition).is_some_and(|at| first <= *at);
            ensure!(
                was_purged || first + window <= left,
                "INV-Q7",
                "{what} is a repeat of that at {other} within {window:?}, and both are delivered"
            );
        }
        Ok(())
    }

    /// What moves from one queue to another is delivered by one of them.
    fn check_way(
        &mut self,
        asked: &Asked,
        left: Time,
        handed: &Handed,
        what: &str,
    ) -> Result<(), Violation> {
        let (partition, number) = asked.place;
        let offset = handed.receipt.offset;
        let told = self.copies[&(partition, offset)].told.get(&number);
        if let Some((to, at, arrived)) = told.and_then(|told| told.arrived) {
            ensure!(
                asked.at < arrived,
                "INV-Q1",
                "{what} is delivered, and was before as {to} at {at}"
            );
        }
        let Some((source, at, by)) = handed.written.from else { return Ok(()) };
        let Some(parent) = self.copies.get(&(source, at)) else { return Ok(()) };
        let may_move = self.may_be_moved(&(source, by), parent, left);
        ensure!(
            may_move,
            "INV-Q6",
            "{what} comes from {source} at {at}, where nothing says that it goes"
        );
        let parent_told = parent.told.get(&by).cloned().unwrap_or_default();
        if let Some(receives) = handed.written.dead_receives {
            let calls = self.calls.get(&(source, by)).copied().unwrap_or_default();
            let least = parent_told.receives.saturating_sub(parent_told.uncounted);
            let most = u64::from(parent_told.receives) + calls.unknown - parent_told.unknown
                + calls.pending;
            ensure!(
                least <= receives && u64::from(receives) <= most,
                "INV-Q6",
                "{what} says that it was received {receives} times, it was {least} to {most}"
            );
        }
        ensure!(
            parent.number == handed.written.number,
            "INV-Q6",
            "{what} is message {}, at its source it was {}",
            handed.written.number,
            parent.number
        );
        let parent = self.copies.get_mut(&(source, at)).expect("looked up above");
        let told = parent.told.entry(by).or_default();
        told.arrived.get_or_insert((partition, offset, left));
        Ok(())
    }

    /// Messages of a group come in order, and none while another one is held (INV-Q5).
    fn check_groups(&self, asked: &Asked, left: Time, handed: &[Handed]) -> Result<(), Violation> {
        let (partition, number) = asked.place;
        if !self.rules[&partition].is_fifo {
            return Ok(());
        }
        let mut before: BTreeMap<Option<u8>, Vec<Offset>> = BTreeMap::new();
        let is_again = |one: &&Handed| {
            let told = self.copies[&(partition, one.receipt.offset)].told.get(&number);
            let lease = told.and_then(|told| told.lease.as_ref());
            lease.is_some_and(|lease| one.receipt.lease <= lease.number)
        };
        for one in handed.iter().filter(|one| !is_again(one)) {
            let offset = one.receipt.offset;
            let group = one.written.group;
            let here = before.entry(group).or_default();
            let what = || format!("{partition}/{number}: {offset} of group {group:?}");
            ensure!(
                here.last().is_none_or(|last| *last < offset),
                "INV-Q5",
                "{} is delivered after {here:?}",
                what()
            );
            for other in self.groups[&(partition, group)].iter().filter(|at| **at != offset) {
                if here.contains(other) {
                    continue;
                }
                let copy = &self.copies[&(partition, *other)];
                let told = copy.told.get(&number);
                let lease = told.and_then(|told| told.lease.as_ref());
                let has_left = self.may_have_left(&asked.place, copy, *other, left);
                ensure!(
                    has_left || lease.is_none_or(|lease| lease.until() <= left + TICK),
                    "INV-Q5",
                    "{} is delivered while that at {other} is held: {lease:?}",
                    what()
                );
                let is_sure = copy.acknowledged_at.is_some_and(|at| at <= asked.at);
                ensure!(
                    !(*other < offset && is_sure) || has_left,
                    "INV-Q5",
                    "{} is delivered before that at {other}: {copy:?}",
                    what()
                );
            }
            here.push(offset);
        }
        Ok(())
    }

    /// Whether a message may have gone where it grows too old.
    fn may_have_expired(&self, partition: TopicPartition, copy: &Copy, now: Time) -> bool {
        let ttl = self.messages[&copy.number].ttl.filter(|_| copy.from.is_none());
        let limits = [ttl, self.rules[&partition].retention];
        limits.into_iter().flatten().any(|limit| copy.sent_at + limit <= now + TICK)
            || self.may_be_deleted(partition, copy, now)
    }

    /// Whether a record may be gone, worked or not, because it is old.
    fn may_be_deleted(&self, partition: TopicPartition, copy: &Copy, now: Time) -> bool {
        let kept = self.rules[&partition].records_kept;
        kept.is_some_and(|kept| copy.sent_at + kept <= now + CLOCKS_APART)
    }

    fn may_be_moved(&self, place: &Place, copy: &Copy, now: Time) -> bool {
        let rules = &self.rules[&place.0];
        let told = copy.told.get(&place.1);
        let receives = told.map_or(0, |told| u64::from(told.receives));
        let calls = self.calls.get(place).copied().unwrap_or_default();
        let unknown = calls.unknown + calls.pending - told.map_or(0, |told| told.unknown);
        let is_exceeded =
            rules.receives_max.is_some_and(|max| u64::from(max) <= receives + unknown);
        let is_old = rules.expired_are_dead_letters && self.may_have_expired(place.0, copy, now);
        told.is_some_and(|told| told.may_be_moved.is_some_and(|at| at <= now))
            || (rules.has_dead_letters && (is_exceeded || is_old))
    }

    /// Whether a message may have been settled, for whatever reason.
    fn may_have_left(&self, place: &Place, copy: &Copy, offset: Offset, now: Time) -> bool {
        let told = copy.told.get(&place.1);
        let is_done = told.is_some_and(|told| {
            told.deleted.is_some() || told.may_be_gone.is_some_and(|at| at <= now)
        });
        is_done
            || self.may_be_moved(place, copy, now)
            || self.may_have_expired(place.0, copy, now)
            || !self.others(place.0, offset).is_empty()
            || self.may_repeat(place.0, offset)
    }

    /// Somebody does something with messages that it was given. Returns the number of the call.
    pub(super) fn settle_asked(
        &mut self,
        place: Place,
        act: Act,
        receipts: &[Receipt],
        now: Time,
    ) -> u64 {
        self.numbers += 1;
        let call = self.numbers;
        let goes_to_dead_letters = self.rules[&place.0].has_dead_letters;
        for Receipt { offset, lease } in receipts {
            let Some(told) = self.told(place, *offset) else { continue };
            let Some(newest) = told.lease.as_mut().filter(|newest| newest.number == *lease) else {
                // The message was delivered anew since: nothing may come of it.
                continue;
            };
            match act {
                Act::Delete => drop(told.may_be_gone.get_or_insert(now)),
                Act::Extend(keep) => newest.may_end(call, now + keep),
                Act::Release(_) => newest.may_end(call, now),
                Act::Unclaim => {
                    newest.may_end(call, now);
                    told.uncounted += 1;
                }
                Act::Reject if goes_to_dead_letters => {
                    told.may_be_moved.get_or_insert(now);
                }
                Act::Reject => drop(told.may_be_gone.get_or_insert(now)),
            }
        }
        call
    }

    fn told(&mut self, (partition, number): Place, offset: Offset) -> Option<&mut Told> {
        let copy = self.copies.get_mut(&(partition, offset))?;
        Some(copy.told.entry(number).or_default())
    }

    /// It is answered; the answer leaves at `left`. `is_newest`: nobody else leads.
    #[expect(clippy::too_many_arguments, reason = "what was asked, and what was answered")]
    pub(super) fn settle_answered(
        &mut self,
        place: Place,
        act: Act,
        receipts: &[Receipt],
        outcomes: &[ReceiptOutcome],
        call: u64,
        left: Time,
        is_newest: bool,
    ) -> Result<(), Violation> {
        for (Receipt { offset, lease }, outcome) in receipts.iter().zip(outcomes) {
            let what = format!("{}/{}: {act:?} of {offset} by {lease}", place.0, place.1);
            let Some(copy) = self.copies.get(&(place.0, *offset)) else { continue };
            let has_left = self.may_have_left(&place, copy, *offset, left);
            let Some(told) = self.told(place, *offset) else { continue };
            let Some(newest) = &mut told.lease else { continue };
            match outcome {
                ReceiptOutcome::Done => {
                    ensure!(
                        newest.number <= *lease,
                        "INV-Q4",
                        "{what} is done, and {newest:?} has it"
                    );
                    match act {
                        Act::Delete => told.deleted = Some(*lease),
                        Act::Extend(_) => newest.surely_ends(call),
                        _ => {}
                    }
                }
                ReceiptOutcome::Settled => ensure!(
                    has_left || !is_newest,
                    "INV-Q1",
                    "{what}: it is settled, by nobody: {told:?}"
                ),
                ReceiptOutcome::Unknown => {
                    ensure!(!is_newest, "INV-Q2", "{what}: the delivery is forgotten");
                }
                ReceiptOutcome::Expired => ensure!(
                    newest.number != *lease || newest.until() <= left + TICK || !is_newest,
                    "INV-Q2",
                    "{what}: it is over at {left:?}, {newest:?}"
                ),
                ReceiptOutcome::Superseded | ReceiptOutcome::TooLong => {}
            }
        }
        Ok(())
    }

    /// Everything that is there may go.
    pub(super) fn purge_asked(&mut self, (partition, number): Place, now: Time) {
        self.purged.insert(partition, now);
        self.each_copy(partition, Offset(i64::MAX), |copy| {
            copy.told.entry(number).or_default().may_be_gone.get_or_insert(now);
        });
    }

    /// Every record before an offset, or what may be one.
    fn each_copy(&mut self, of: TopicPartition, end: Offset, mut act: impl FnMut(&mut Copy)) {
        let copies = self.copies.range_mut((of, Offset(0))..(of, end)).map(|(_, copy)| copy);
        let claims = self.claims.range_mut((of, Offset(0), 0)..(of, end, 0)).map(|(_, copy)| copy);
        copies.chain(claims).for_each(&mut act);
    }

    /// Messages are to go, or to go elsewhere.
    pub(super) fn dispose_asked(
        &mut self,
        (partition, number): Place,
        offsets: &[Offset],
        is_moved: bool,
        now: Time,
    ) {
        let note = |copy: &mut Copy| {
            let told = copy.told.entry(number).or_default();
            let since = if is_moved { &mut told.may_be_moved } else { &mut told.may_be_gone };
            since.get_or_insert(now);
        };
        for offset in offsets {
            self.copies.get_mut(&(partition, *offset)).into_iter().for_each(note);
            let all = (partition, *offset, 0)..=(partition, *offset, u64::MAX);
            self.claims.range_mut(all).for_each(|(_, copy)| note(copy));
        }
    }

    /// Records before this are to go.
    pub(super) fn deletion_asked(&mut self, partition: TopicPartition, end: Offset, now: Time) {
        let subscriptions = self.rules[&partition].subscriptions;
        self.each_copy(partition, end, |copy| {
            for number in 0..subscriptions {
                copy.told.entry(number).or_default().may_be_gone.get_or_insert(now);
            }
        });
    }

    /// Where messages lie.
    pub(super) fn offsets(&self, partition: TopicPartition) -> Vec<Offset> {
        let all = (partition, Offset(0))..=(partition, Offset(i64::MAX));
        self.copies.range(all).map(|((_, offset), _)| *offset).collect()
    }

    /// The first promise of a send that is not kept yet: its message was not worked, dropped, moved to where
    /// that is so, or too old (INV-Q1).
    pub(super) fn open(&self, now: Time) -> Option<String> {
        self.copies.iter().find_map(|((partition, offset), copy)| {
            copy.acknowledged_at?;
            let mut numbers = 0..self.rules[partition].subscriptions;
            numbers.find_map(|number| {
                let place = (*partition, number);
                let is_kept = self.is_accounted_for(&place, *offset, now)
                    || self.was_repeated(&place, *offset, now)
                    || self
                        .others(*partition, *offset)
                        .into_iter()
                        .any(|other| self.is_accounted_for(&place, other, now));
                (!is_kept).then(|| {
                    format!("{partition}/{number}: message at {offset} is nowhere: {copy:?}")
                })
            })
        })
    }

    /// Whether it may be another copy of one that may have gone before anybody heard of it.
    fn was_repeated(&self, place: &Place, offset: Offset, now: Time) -> bool {
        let (partition, _) = *place;
        let twin = self.twin_of(partition, &self.copies[&(partition, offset)]);
        let all = (partition, Offset(0), 0)..(partition, offset, 0);
        self.claims.range(all).any(|((_, at, _), copy)| {
            let is_twin = twin.is_some() && self.twin_of(partition, copy) == twin;
            is_twin && self.has_come_to_its_end(place, *at, copy, now)
        })
    }

    fn is_accounted_for(&self, place: &Place, offset: Offset, now: Time) -> bool {
        let copy = &self.copies[&(place.0, offset)];
        self.has_come_to_its_end(place, offset, copy, now)
    }

    fn has_come_to_its_end(&self, place: &Place, offset: Offset, copy: &Copy, now: Time) -> bool {
        let (partition, number) = *place;
        let rules = &self.rules[&partition];
        let goes_elsewhere = rules.expired_are_dead_letters && rules.has_dead_letters;
        let is_gone = copy.told.get(&number).is_some_and(|told| {
            told.deleted.is_some() || told.may_be_gone.is_some() || told.arrived.is_some()
        });
        let arrived = self.twins.get(&Twin::From((partition, offset, number)));
        is_gone
            || (self.may_have_expired(partition, copy, now) && !goes_elsewhere)
            || self.may_be_deleted(partition, copy, now)
            || arrived.into_iter().flatten().any(|(to, at)| {
                let mut numbers = 0..self.rules[to].subscriptions;
                numbers.all(|number| self.is_accounted_for(&(*to, number), *at, now))
            })
    }

    /// Messages that were acknowledged.
    pub(super) fn acknowledged_count(&self) -> u64 {
        self.copies.values().filter(|copy| copy.acknowledged_at.is_some()).count() as u64
    }
}
