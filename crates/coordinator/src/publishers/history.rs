//! What is known of one publisher: its attempts and their results.

use std::collections::BTreeMap;

use towpath_model::{PartitionIndex, ProducerEpoch, ProducerId, Sequence, Time, Timestamp};

use super::record::slot;
use super::request::{Intent, Published};

/// One publisher's last attempts.
///
/// Numbers rise from attempt to attempt, and so do sequences, except that a refuted attempt may be
/// followed by another at the same sequence.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct History {
    /// The last attempt in every partition.
    pub(super) attempts: BTreeMap<PartitionIndex, Attempt>,
    /// By sequence, the results that are still known; at most one per slot.
    pub(super) results: BTreeMap<i64, Known>,
    /// Which attempt was the last, and into which partition it went.
    pub(super) last: Option<(u64, PartitionIndex)>,
    /// Not logged: until when this process itself is busy with the last attempt.
    pub(super) in_flight_until: Option<Time>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Attempt {
    pub(super) intent: Intent,
    pub(super) at: Timestamp,
    pub(super) is_refuted: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) number: u64,
    pub(super) published: Published,
    pub(super) at: Timestamp,
}

/// How the last attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Appended,
    Refuted,
    Unknown,
}

impl History {
    /// The last attempt and its fate. Earlier attempts were appended or refuted: there is no next
    /// one before that is known.
    pub(super) fn last(&self) -> Option<(&Attempt, Fate)> {
        let (number, partition) = self.last?;
        let attempt = self.attempts.get(&partition)?;
        let result = self.results.get(&attempt.intent.sequence);
        let fate = match result {
            Some(known) if known.number == number => Fate::Appended,
            _ if attempt.is_refuted => Fate::Refuted,
            _ => Fate::Unknown,
        };
        Some((attempt, fate))
    }

    /// The sequence that `producer_id` uses next in `partition` in this epoch.
    pub(super) fn next_sequence(
        &self,
        partition: PartitionIndex,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
    ) -> Sequence {
        match self.attempts.get(&partition) {
            Some(Attempt { intent, is_refuted, .. })
                if intent.producer_id == producer_id && intent.producer_epoch == producer_epoch =>
            {
                intent.producer_sequence.advance(if *is_refuted { 0 } else { 1 })
            }
            _ => Sequence(0),
        }
    }

    /// When it last did something.
    pub(super) fn used_at(&self) -> Option<Timestamp> {
        let attempts = self.attempts.values().map(|attempt| attempt.at);
        attempts.chain(self.results.values().map(|known| known.at)).max()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.attempts.is_empty() && self.results.is_empty()
    }

    pub(super) fn intend(&mut self, attempt: Attempt) {
        let Intent { number, partition, .. } = attempt.intent;
        self.attempts.insert(partition, attempt);
        self.last = Some((number, partition));
        self.in_flight_until = None;
    }

    pub(super) fn finish(&mut self, sequence: i64, known: Known) {
        self.remove_result(slot(known.number));
        self.results.insert(sequence, known);
        self.in_flight_until = None;
    }

    pub(super) fn remove_result(&mut self, removed: u8) {
        self.results.retain(|_, known| slot(known.number) != removed);
    }

    pub(super) fn remove_attempt(&mut self, partition: PartitionIndex) {
        self.attempts.remove(&partition);
        if self.last.is_some_and(|(_, last)| last == partition) {
            self.last = None;
        }
    }
}
