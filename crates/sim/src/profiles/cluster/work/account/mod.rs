//! What clients of queues have asked and been told, and what follows from it (INV-Q1 to Q9).
//!
//! ```text
//! asked ──────────────▶ answered          whatever was decided was decided in between; so a lease begins
//! earliest begin         latest begin      no earlier than asked, and ends no earlier than that + visibility
//! ```
//!
//! Nothing in here comes from a broker's state: only calls, their answers, and the records that a receiver
//! reads. A call without an answer may have happened or not, and counts for whichever excuses more.

mod ends;
mod lease;
mod receives;
mod settles;
mod subscriptions;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use towpath_model::{Offset, Time, TopicPartition};
use towpath_queue::Receipt;

use lease::Lease;
use subscriptions::Subscription;

use crate::profile::Violation;

/// Readings of clocks are cut to milliseconds.
const TICK: Duration = Duration::from_millis(2);

/// By how many thousandths the clocks of brokers run too fast or too slow, at most.
pub(super) const RATE_PER_MILLE: u32 = 2;

/// How long a wait lasts at least, by whichever broker's clock.
fn at_least(wait: Duration) -> Duration {
    wait - wait * RATE_PER_MILLE / 1_000
}

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
    /// Records may go once every subscription is done with them.
    pub(super) removes_settled: bool,
    pub(super) receives_max: Option<u32>,
    pub(super) has_dead_letters: bool,
    pub(super) expired_are_dead_letters: bool,
    pub(super) dedup_window: Duration,
    pub(super) dedup_scope: &'static str,
    /// Subscriptions that are there from the beginning to the end.
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
    /// Its answer has left a broker that had been replaced as the leader by then: it may say what others have
    /// changed since.
    is_late: bool,
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
    /// When an answer with it left for the first time.
    first_seen: Option<Time>,
    /// Records up to here may be gone, by what somebody asked for.
    deletion_asked: Option<Time>,
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
    subscriptions: BTreeMap<Place, Subscription>,
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
        self.subscribed_from_the_beginning(partition, rules.subscriptions);
        self.rules.insert(partition, rules);
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
            first_seen: None,
            deletion_asked: None,
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
}
