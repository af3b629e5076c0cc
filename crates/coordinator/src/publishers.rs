//! Publishers over HTTP: a caller names itself and numbers its messages, and a repeated call
//! publishes nothing twice, whatever crashed in between.
//!
//! Two logs take part: the topic's partition, and this state's own. One publish is
//!
//! ```text
//!   1  Begin          is it a repeat? is it stale? if not, log the intent: as which Kafka
//!                     producer, with which epoch and sequence, into which partition
//!   2  Append         (by the caller of this) one record into that partition, as that producer
//!   3  Finish         log the result
//!   4                 answer the HTTP request
//! ```
//!
//! and each step begins when the one before is durable. **Nothing is lost**: the answer is sent
//! after 3, and 3 says what 2 made durable. **Nothing is doubled**, by the crash's place:
//!
//! - Before 1 is durable: nothing happened. The caller's repeat begins anew.
//! - Between 1 and 3: the intent is there, its result is not. Until it is known whether 2 happened,
//!   this publisher begins nothing else ([`Reply::Resolve`]). The partition knows: an intent is the
//!   newest thing its producer did there, so it lies within the window in which a partition
//!   recognises repeats. If 2 happened, its result is logged now, and the caller's repeat gets it.
//!   If not, the intent is marked as refuted.
//! - After 3: the repeat finds the result.
//!
//! A refutation may be wrong in one way: the append of the process that crashed may still be under
//! way to the partition. So a repeat of the same sequence is appended as the *same* producer,
//! epoch and sequence, into the same partition: whichever of the two arrives second is recognised.
//! And if the caller gives that message up and goes on with a higher sequence, the producer's epoch
//! rises first. Then the straggler is fenced by what follows it in its partition, or it lands before
//! that, as a message whose fate nobody had been told. Its sequence is stale from then on, so it
//! cannot land a second time.
//!
//! Promise to callers: the last 100 results per publisher, for 24 hours. A publisher that was idle
//! for 24 hours is forgotten. The partition must remember producers at least as long.

mod history;
mod record;
mod request;

use std::collections::BTreeMap;
use std::time::Duration;

use towpath_model::mutant::{self, Mutant};
use towpath_model::{
    Decision, Now, PartitionIndex, ProducerEpoch, ProducerId, Sequence, StateMachine, Time,
    Timestamp, Token, TopicId,
};

pub use record::Record;
pub use request::{Intent, Outcome, Published, Publisher, PublishersConfig, Reply, Request};

use history::{Attempt, Fate, History, Known};
use record::slot;

/// What [`Publishers`] decides.
pub type PublisherDecision = Decision<Record, Reply>;

/// Results that are kept per publisher.
pub const RESULTS_KEPT: u64 = 100;

/// How long a result is kept, and an idle publisher.
pub const RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

/// The longest name of a publisher, in bytes.
pub const PUBLISHER_NAME_BYTES_MAX: usize = 256;

/// Most records that one step of expiry removes; the rest is due again at once.
const TOMBSTONES_PER_STEP: usize = 1_000;

/// The publishers of one partition of the internal topic.
#[derive(Debug, Clone)]
pub struct Publishers {
    config: PublishersConfig,
    histories: BTreeMap<Publisher, History>,
    /// When old results are looked for; `None` before `resume`.
    check_at: Option<Time>,
}

/// Which partition of the internal topic knows `publisher`. `partitions` is the topic's.
#[must_use]
pub fn publisher_partition(publisher: &Publisher, partitions: i32) -> i32 {
    let hash = fnv1a(publisher.name.as_bytes(), fnv1a(&publisher.topic.0, FNV_START));
    one_of(hash, partitions)
}

/// Where a message without a key goes: it follows from publisher and sequence, so that a repeat
/// goes to the same place even if nothing else is known. `partitions` is the topic's.
#[must_use]
pub fn message_partition(name: &str, sequence: i64, partitions: i32) -> PartitionIndex {
    let hash = fnv1a(&sequence.to_le_bytes(), fnv1a(name.as_bytes(), FNV_START));
    PartitionIndex(one_of(hash, partitions))
}

const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a: short, the same everywhere and for ever, and good enough to spread names.
fn fnv1a(bytes: &[u8], start: u64) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(start, step)
}

fn one_of(hash: u64, partitions: i32) -> i32 {
    let partitions = u64::try_from(partitions).unwrap_or(1).max(1);
    // The high half of FNV mixes better than the low one.
    i32::try_from((hash >> 32) % partitions).expect("less than an i32's number of partitions")
}

impl Publishers {
    /// No publishers yet.
    #[must_use]
    pub fn new(config: PublishersConfig) -> Publishers {
        Publishers { config, histories: BTreeMap::new(), check_at: None }
    }

    /// The records from which a new value gets the same logged state: for a snapshot.
    pub fn logged_state(&self) -> impl Iterator<Item = Record> + '_ {
        self.histories.iter().flat_map(|(publisher, history)| {
            let mut attempts: Vec<&Attempt> = history.attempts.values().collect();
            attempts.sort_by_key(|attempt| attempt.intent.number);
            let attempts = attempts.into_iter().map(|attempt| Record::Intended {
                publisher: publisher.clone(),
                intent: attempt.intent,
                at: attempt.at,
                is_refuted: attempt.is_refuted,
            });
            let results = history.results.iter().map(|(sequence, known)| Record::Finished {
                publisher: publisher.clone(),
                number: known.number,
                sequence: *sequence,
                published: known.published,
                at: known.at,
            });
            attempts.chain(results)
        })
    }

    /// How many publishers are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.histories.len()
    }

    /// Whether none is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.histories.is_empty()
    }

    fn begin(
        &self,
        now: Now,
        publisher: &Publisher,
        sequence: i64,
        partition: PartitionIndex,
        fresh_id: Option<ProducerId>,
    ) -> Begin {
        if publisher.name.is_empty() || PUBLISHER_NAME_BYTES_MAX < publisher.name.len() {
            return Begin::Answer(Reply::InvalidName);
        }
        let Some(history) = self.histories.get(publisher) else {
            if self.config.publishers_max <= self.histories.len() {
                return Begin::Answer(Reply::TooManyPublishers);
            }
            return first_attempt(1, sequence, partition, fresh_id);
        };
        if let Some(known) = history.results.get(&sequence)
            && !mutant::is_on(Mutant::ResultsForgotten)
        {
            return Begin::Answer(Reply::Repeat(known.published));
        }
        // Without an attempt only results are left, of a publisher that is being forgotten.
        let Some((last, fate)) = history.last() else {
            let number = history.results.values().map(|known| known.number).max().unwrap_or(0);
            return first_attempt(number + 1, sequence, partition, fresh_id);
        };
        if fate == Fate::Unknown {
            let is_in_flight = history.in_flight_until.is_some_and(|until| now.time < until);
            let answer = if is_in_flight { Reply::Busy } else { Reply::Resolve(last.intent) };
            return Begin::Answer(answer);
        }
        if sequence < last.intent.sequence {
            return Begin::Answer(Reply::Stale);
        }
        let number = last.intent.number + 1;
        if sequence == last.intent.sequence {
            return match fate {
                Fate::Refuted => Begin::Attempt(Intent { number, ..last.intent }),
                // Its result has grown too old.
                Fate::Appended | Fate::Unknown => Begin::Answer(Reply::Stale),
            };
        }

        let (producer_id, epoch) = (last.intent.producer_id, last.intent.producer_epoch);
        let epoch = match fate {
            Fate::Refuted if mutant::is_on(Mutant::PublisherEpochKept) => Some(epoch),
            Fate::Refuted => epoch.0.checked_add(1).map(ProducerEpoch),
            Fate::Appended | Fate::Unknown => Some(epoch),
        };
        let Some(producer_epoch) = epoch else {
            return first_attempt(number, sequence, partition, fresh_id);
        };
        let producer_sequence = history.next_sequence(partition, producer_id, producer_epoch);
        Begin::Attempt(Intent {
            number,
            sequence,
            partition,
            producer_id,
            producer_epoch,
            producer_sequence,
        })
    }

    fn finish(&self, now: Now, publisher: Publisher, number: u64, outcome: Outcome) -> Decided {
        let history = self.histories.get(&publisher);
        let last = history.and_then(|history| history.last());
        let Some((attempt, Fate::Unknown)) = last.filter(|(a, _)| a.intent.number == number) else {
            return (Vec::new(), Reply::Superseded);
        };
        let intent = attempt.intent;
        let record = match outcome {
            Outcome::Appended { offset, timestamp } => {
                let published = Published { partition: intent.partition, offset, timestamp };
                let sequence = intent.sequence;
                Record::Finished { publisher, number, sequence, published, at: now.wall }
            }
            Outcome::NotAppended => {
                Record::Intended { publisher, intent, at: attempt.at, is_refuted: true }
            }
        };
        (vec![record], Reply::Finished)
    }

    fn topic_deleted(&self, topic: TopicId) -> Decided {
        let gone = self.histories.iter().filter(|(publisher, _)| publisher.topic == topic);
        let gone: Vec<_> = gone.collect();
        let mut records = Vec::new();
        for (publisher, history) in &gone {
            forget(publisher, history, &mut records);
        }
        (records, Reply::TopicDeleted { publishers: gone.len() })
    }
}

/// Records and the answer that rests on them.
type Decided = (Vec<Record>, Reply);

/// What a `Begin` leads to.
enum Begin {
    Answer(Reply),
    Attempt(Intent),
}

/// An attempt as a producer that no partition has seen.
fn first_attempt(
    number: u64,
    sequence: i64,
    partition: PartitionIndex,
    fresh_id: Option<ProducerId>,
) -> Begin {
    let Some(producer_id) = fresh_id else { return Begin::Answer(Reply::NeedsProducerId) };
    Begin::Attempt(Intent {
        number,
        sequence,
        partition,
        producer_id,
        producer_epoch: ProducerEpoch(0),
        producer_sequence: Sequence(0),
    })
}

/// The tombstones of a publisher, the last attempt and its result at the end: if only some of them
/// reach the log, what is left is still a publisher with an older past, or one without attempts.
fn forget(publisher: &Publisher, history: &History, records: &mut Vec<Record>) {
    let (last_number, last_partition) = history.last.unzip();
    let result = |known: &Known| Record::ResultRemoved {
        publisher: publisher.clone(),
        slot: slot(known.number),
    };
    let intent = |partition: PartitionIndex| Record::IntentRemoved {
        publisher: publisher.clone(),
        partition,
    };
    let is_last = |known: &&Known| Some(known.number) == last_number;
    records.extend(history.results.values().filter(|known| !is_last(known)).map(result));
    let older = history.attempts.keys().filter(|partition| Some(**partition) != last_partition);
    records.extend(older.map(|partition| intent(*partition)));
    records.extend(last_partition.map(intent));
    records.extend(history.results.values().filter(is_last).map(result));
}

fn is_old(now: Now, at: Timestamp) -> bool {
    at + RETENTION <= now.wall
}

impl StateMachine for Publishers {
    type Request = Request;
    type Record = Record;
    type Reply = Reply;

    fn decide(&self, now: Now, token: Token, request: Request) -> PublisherDecision {
        assert!(self.check_at.is_some(), "a leader resumes before it decides");
        let (records, reply) = match request {
            Request::Begin { publisher, sequence, partition, producer_id } => {
                match self.begin(now, &publisher, sequence, partition, producer_id) {
                    Begin::Answer(answer) => (Vec::new(), answer),
                    Begin::Attempt(intent) => {
                        let until = now.time + self.config.append_timeout;
                        let in_flight = Record::InFlight { publisher: publisher.clone(), until };
                        let (at, is_refuted) = (now.wall, false);
                        let intended = Record::Intended { publisher, intent, at, is_refuted };
                        (vec![intended, in_flight], Reply::Append(intent))
                    }
                }
            }
            Request::Finish { publisher, number, outcome } => {
                self.finish(now, publisher, number, outcome)
            }
            Request::TopicDeleted { topic } => self.topic_deleted(topic),
        };
        Decision { records, replies: vec![(token, reply)] }
    }

    fn expire(&self, now: Now) -> PublisherDecision {
        let mut records = Vec::new();
        for (publisher, history) in &self.histories {
            if TOMBSTONES_PER_STEP <= records.len() {
                return Decision { records, replies: Vec::new() };
            }
            if history.used_at().is_none_or(|at| is_old(now, at)) {
                forget(publisher, history, &mut records);
                continue;
            }
            let last = history.last.map(|(number, _)| number);
            let old = history.results.values().filter(|known| is_old(now, known.at));
            let old = old.filter(|known| Some(known.number) != last);
            records.extend(old.map(|known| Record::ResultRemoved {
                publisher: publisher.clone(),
                slot: slot(known.number),
            }));
        }
        records.push(Record::CheckAt(now.time + self.config.check_interval));
        Decision { records, replies: Vec::new() }
    }

    fn resume(&self, now: Now) -> PublisherDecision {
        // Attempts that another process began are nobody's now; the next Begin has them resolved.
        let check_at = Record::CheckAt(now.time + self.config.check_interval);
        Decision { records: vec![check_at], replies: Vec::new() }
    }

    fn apply(&mut self, record: &Record) {
        match record {
            Record::Intended { publisher, intent, at, is_refuted } => {
                let (intent, at, is_refuted) = (*intent, *at, *is_refuted);
                let history = self.histories.entry(publisher.clone()).or_default();
                history.intend(Attempt { intent, at, is_refuted });
            }
            Record::Finished { publisher, number, sequence, published, at } => {
                let known = Known { number: *number, published: *published, at: *at };
                let history = self.histories.entry(publisher.clone()).or_default();
                history.finish(*sequence, known);
            }
            Record::IntentRemoved { publisher, partition } => {
                self.remove(publisher, |history| history.remove_attempt(*partition));
            }
            Record::ResultRemoved { publisher, slot } => {
                self.remove(publisher, |history| history.remove_result(*slot));
            }
            Record::InFlight { publisher, until } => {
                if let Some(history) = self.histories.get_mut(publisher) {
                    history.in_flight_until = Some(*until);
                }
            }
            Record::CheckAt(at) => self.check_at = Some(*at),
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        self.check_at
    }
}

impl Publishers {
    fn remove(&mut self, publisher: &Publisher, remove: impl FnOnce(&mut History)) {
        let Some(history) = self.histories.get_mut(publisher) else { return };
        remove(history);
        if history.is_empty() {
            self.histories.remove(publisher);
        }
    }
}

#[cfg(test)]
mod tests;
