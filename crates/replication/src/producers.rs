//! Which idempotent producers wrote to a partition, and what last: a retry is recognised and never
//! appended twice, a gap is refused (KIP-98).
//!
//!   sequence    5  6 │ 7  8  9 │10│11 12│13│14 15 16│ 17 …
//!                    └──────────── the last 5 ──────┘ └ expected
//!               ▲         ▲                  ▲          ▲      ▲
//!   beyond the window   duplicate       overlap: gap   new    gap
//!
//! A fold over batch headers: a restart takes the newest snapshot and replays the headers after it.
//! Sequences wrap from `i32::MAX` to 0. The surprise: a producer that is not known here may begin
//! anywhere, because its earlier records may have been deleted, and this state with them.

mod snapshot;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use towpath_model::mutant::{self, Mutant};
use towpath_model::{Now, Offset, ProducerEpoch, ProducerId, Sequence, Time, Timestamp};
use towpath_records::BatchHeader;

pub use snapshot::SnapshotError;

/// How many batches of a producer are remembered: as many as Kafka's clients have in flight at
/// most when they are idempotent.
pub const BATCHES_REMEMBERED: usize = 5;

/// Sequences live on a circle of this many numbers.
const SEQUENCES: i64 = 1 << 31;

/// Why a batch does not continue what its producer wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SequenceRefusal {
    /// A newer incarnation has written here.
    StaleEpoch {
        /// That one.
        current: ProducerEpoch,
    },
    /// Records are missing before it, or it overlaps what is there without repeating it.
    OutOfOrder {
        /// What would continue.
        expected: Sequence,
        /// What came.
        got: Sequence,
    },
    /// All of it was written, before the batches that are remembered.
    DuplicateBeyondWindow {
        /// What came.
        got: Sequence,
    },
}

/// What a batch is to its producer's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    New,
    Duplicate(RememberedBatch),
}

/// A batch that was appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RememberedBatch {
    /// Sequence of its first record.
    pub base_sequence: Sequence,
    /// Distance of its last record from its first; at least 0.
    pub last_offset_delta: i32,
    /// Offset of its first record.
    pub base_offset: Offset,
    /// Its largest timestamp.
    pub timestamp: Timestamp,
}

impl RememberedBatch {
    /// Sequence of its last record.
    #[must_use]
    pub fn last_sequence(&self) -> Sequence {
        self.base_sequence.advance(self.last_offset_delta)
    }

    /// First offset after it.
    #[must_use]
    pub fn end_offset(&self) -> Offset {
        self.base_offset + i64::from(self.last_offset_delta) + 1
    }

    fn records(&self) -> i64 {
        i64::from(self.last_offset_delta) + 1
    }

    fn of(header: &BatchHeader) -> RememberedBatch {
        RememberedBatch {
            base_sequence: header.base_sequence(),
            last_offset_delta: header.last_offset_delta(),
            base_offset: header.base_offset(),
            timestamp: header.max_timestamp(),
        }
    }
}

/// Invariant: 1 <= batches.len() <= BATCHES_REMEMBERED, oldest first, each following the one
/// before; the sum of their records <= records.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Producer {
    epoch: ProducerEpoch,
    batches: Vec<RememberedBatch>,
    /// How many records of this incarnation are known to be here without a gap, the remembered ones
    /// included: so far back a sequence is known to have been appended.
    records: i64,
    /// When it last appended, by the clock that people read; shown, and kept across restarts.
    last_used: Timestamp,
    /// When it last appended, by the clock that only runs; a restart counts as a use, so that
    /// neither a jump of the wall clock nor an outage makes a retry unrecognisable.
    last_used_time: Time,
}

impl Producer {
    fn last(&self) -> &RememberedBatch {
        self.batches.last().expect("a producer is known by a batch")
    }

    fn expected(&self) -> Sequence {
        self.last().last_sequence().advance(1)
    }

    fn judge(
        &self,
        epoch: ProducerEpoch,
        batch: &RememberedBatch,
    ) -> Result<Verdict, SequenceRefusal> {
        let got = batch.base_sequence;
        if epoch < self.epoch && !mutant::is_on(Mutant::OldEpochAccepted) {
            return Err(SequenceRefusal::StaleEpoch { current: self.epoch });
        }
        if self.epoch < epoch {
            return match got {
                Sequence(0) => Ok(Verdict::New),
                _ => Err(SequenceRefusal::OutOfOrder { expected: Sequence(0), got }),
            };
        }
        let repeats = |known: &&RememberedBatch| {
            known.base_sequence == got && known.last_sequence() == batch.last_sequence()
        };
        if let Some(known) = self.batches.iter().find(repeats) {
            if mutant::is_on(Mutant::RepeatAppended) {
                return Ok(Verdict::New);
            }
            return Ok(Verdict::Duplicate(*known));
        }
        let expected = self.expected();
        if got == expected || mutant::is_on(Mutant::GapAccepted) {
            return Ok(Verdict::New);
        }
        if self.is_beyond_window(batch) {
            return Err(SequenceRefusal::DuplicateBeyondWindow { got });
        }
        Err(SequenceRefusal::OutOfOrder { expected, got })
    }

    /// Whether all of `batch` lies before the remembered batches and after the first record that
    /// is known to be here. Half the circle at most, so that a batch from far ahead is not taken
    /// for one from far behind.
    fn is_beyond_window(&self, batch: &RememberedBatch) -> bool {
        let expected = self.expected();
        let behind = |sequence: Sequence| {
            (i64::from(expected.0) - i64::from(sequence.0)).rem_euclid(SEQUENCES)
        };
        let window = behind(self.batches[0].base_sequence);
        let first = behind(batch.base_sequence);
        window + batch.records() <= first && first <= self.records.min(SEQUENCES / 2)
    }

    fn append(&mut self, batch: RememberedBatch) {
        if self.batches.len() == BATCHES_REMEMBERED {
            self.batches.remove(0);
        }
        self.batches.push(batch);
        self.records = self.records.saturating_add(batch.records());
    }
}

/// A producer as others see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerView {
    /// Its id.
    pub id: ProducerId,
    /// Its newest incarnation here.
    pub epoch: ProducerEpoch,
    /// Sequence of its last record.
    pub last_sequence: Sequence,
    /// When it last appended.
    pub last_used: Timestamp,
    /// Its last batch.
    pub last_batch: RememberedBatch,
}

/// The idempotent producers of one partition.
///
/// Invariant: producers.len() <= most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Producers {
    producers: BTreeMap<ProducerId, Producer>,
    most: usize,
}

impl Producers {
    /// No producers yet; never more than `most` (`producer.ids.per.partition.max`), which counts as
    /// 1 when it is 0.
    #[must_use]
    pub fn new(most: usize) -> Producers {
        Producers { producers: BTreeMap::new(), most: most.max(1) }
    }

    /// A batch that is in the log, read again after a restart or a truncation. In order, from the
    /// offset on at which the snapshot was taken.
    pub fn replay(&mut self, now: Now, header: &BatchHeader) {
        self.appended(now, header);
    }

    pub(crate) fn judge(&self, header: &BatchHeader) -> Result<Verdict, SequenceRefusal> {
        let known = producer_of(header).and_then(|id| self.producers.get(&id));
        match known {
            None => Ok(Verdict::New),
            Some(producer) => producer.judge(header.producer_epoch(), &RememberedBatch::of(header)),
        }
    }

    pub(crate) fn appended(&mut self, now: Now, header: &BatchHeader) {
        let Some(id) = producer_of(header) else { return };
        let epoch = header.producer_epoch();
        let batch = RememberedBatch::of(header);
        let fresh = || Producer {
            epoch,
            batches: Vec::with_capacity(1),
            records: 0,
            last_used: now.wall,
            last_used_time: now.time,
        };
        let producer = self.producers.entry(id).or_insert_with(fresh);
        let continues = producer.epoch == epoch
            && producer.batches.last().is_none_or(|_| producer.expected() == batch.base_sequence);
        if !continues {
            *producer = fresh();
        }
        producer.append(batch);
        producer.last_used = now.wall;
        producer.last_used_time = now.time;
        self.evict(id);
    }

    /// Forgets producers that have been idle for longer than `idle`.
    pub(crate) fn expire(&mut self, now: Now, idle: Duration) {
        if mutant::is_on(Mutant::ProducersExpireByWall) {
            return self.producers.retain(|_, producer| now.wall <= producer.last_used + idle);
        }
        self.producers.retain(|_, producer| now.time - producer.last_used_time <= idle);
    }

    pub(crate) fn set_most(&mut self, most: usize) {
        self.most = most.max(1);
        while self.most < self.producers.len() {
            self.forget_idlest(None);
        }
    }

    fn evict(&mut self, newest: ProducerId) {
        if self.most < self.producers.len() {
            self.forget_idlest(Some(newest));
        }
    }

    /// A scan: it happens only to a producer that comes in addition to the most.
    fn forget_idlest(&mut self, spared: Option<ProducerId>) {
        let others = self.producers.iter().filter(|(id, _)| Some(**id) != spared);
        let idlest = others
            .min_by_key(|(id, producer)| (producer.last_used_time, producer.last_used, **id))
            .map(|(id, _)| *id);
        if let Some(id) = idlest {
            self.producers.remove(&id);
        }
    }

    /// What is known of them by batches before `end`, where a batch begins or none is: a log that
    /// begins there adds the rest. Of more than `most` those that appended last.
    pub(crate) fn known_before(&self, end: Offset, most: usize) -> Producers {
        let before = |(id, producer): (&ProducerId, &Producer)| {
            let mut producer = producer.clone();
            let later = |batch: &&RememberedBatch| end < batch.end_offset();
            producer.records -=
                producer.batches.iter().filter(later).map(RememberedBatch::records).sum::<i64>();
            producer.batches.retain(|batch| batch.end_offset() <= end);
            (!producer.batches.is_empty()).then_some((*id, producer))
        };
        let mut known: Vec<(ProducerId, Producer)> =
            self.producers.iter().filter_map(before).collect();
        known.sort_unstable_by_key(|(id, p)| Reverse((p.last_used_time, p.last_used, *id)));
        known.truncate(most);
        Producers { producers: known.into_iter().collect(), most: self.most }
    }

    /// How many producers are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.producers.len()
    }

    /// Whether none is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.producers.is_empty()
    }

    /// What is known of one.
    #[must_use]
    pub fn get(&self, id: ProducerId) -> Option<ProducerView> {
        self.producers.get(&id).map(|producer| view(id, producer))
    }

    /// All, by id.
    pub fn iter(&self) -> impl Iterator<Item = ProducerView> {
        self.producers.iter().map(|(id, producer)| view(*id, producer))
    }

    /// The remembered batches of one producer's newest incarnation, oldest first: whether a batch
    /// that was sent before a crash is in the log.
    #[must_use]
    pub fn batches(&self, id: ProducerId) -> &[RememberedBatch] {
        self.producers.get(&id).map_or(&[], |producer| &producer.batches)
    }
}

fn view(id: ProducerId, producer: &Producer) -> ProducerView {
    ProducerView {
        id,
        epoch: producer.epoch,
        last_sequence: producer.last().last_sequence(),
        last_used: producer.last_used,
        last_batch: *producer.last(),
    }
}

/// Markers of the broker are no producer's records; an epoch or sequence of −1 is a producer that
/// does not ask to be recognised, as Kafka has it.
fn producer_of(header: &BatchHeader) -> Option<ProducerId> {
    let is_recognised =
        0 <= header.producer_epoch().0 && 0 <= header.base_sequence().0 && !header.is_control();
    header.producer_id().filter(|id| is_recognised && 0 <= id.0)
}
