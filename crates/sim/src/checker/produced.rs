//! One partition as its clients see it: batches sent, answers, reads (INV-R1, R12, R13, P1, P2, P6).
//!
//! A batch that got no answer may be in the log or not, but at most once. One that was refused for
//! good is not. One that was acknowledged is where the answer said, for ever.

use std::collections::BTreeMap;

use towpath_model::{Offset, ProducerEpoch, ProducerId, Sequence};
use towpath_records::BatchHeader;

use crate::profile::{Violation, ensure};

/// Names a batch across retries: its producer, incarnation and first sequence.
type BatchId = (ProducerId, ProducerEpoch, Sequence);

/// Bytes of a batch that the broker may not change; before them lie base offset and leader epoch.
const FIXED_FROM: usize = 16;

/// What the client was told about a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Nothing yet, a timeout, or a lost connection: it may be there.
    Maybe,
    /// It is durable at this offset.
    Acknowledged(Offset),
    /// It was not appended and never will be (a definite error, not to be retried as is).
    Refused,
}

#[derive(Debug, Clone)]
struct Sent {
    fixed: Vec<u8>,
    answer: Answer,
}

/// Everything clients sent to, heard from and read from one partition.
#[derive(Debug, Clone, Default)]
pub struct PartitionHistory {
    sent: BTreeMap<BatchId, Sent>,
    /// What a consumer saw at an offset: the next offset and the bytes.
    seen: BTreeMap<Offset, (Offset, Vec<u8>)>,
}

fn id_of(header: &BatchHeader) -> Result<BatchId, Violation> {
    let producer = header.producer_id().ok_or_else(|| {
        Violation::new("INV-P1", format!("batch at {} has no producer", header.base_offset()))
    })?;
    Ok((producer, header.producer_epoch(), header.base_sequence()))
}

fn fixed(batch: &[u8]) -> &[u8] {
    batch.get(FIXED_FROM..).unwrap_or_default()
}

impl PartitionHistory {
    /// Nothing sent yet.
    #[must_use]
    pub fn new() -> PartitionHistory {
        PartitionHistory::default()
    }

    /// A client sends a batch, or sends it again.
    ///
    /// # Errors
    /// When another batch was sent with the same identity: a fault of the workload.
    pub fn sent(&mut self, header: &BatchHeader, batch: &[u8]) -> Result<(), Violation> {
        let fixed = fixed(batch);
        let sent = self
            .sent
            .entry(id_of(header)?)
            .or_insert_with(|| Sent { fixed: fixed.to_vec(), answer: Answer::Maybe });
        ensure!(sent.fixed == fixed, "workload", "one sequence was used for two batches");
        if sent.answer == Answer::Refused {
            // It is tried again after a refusal that may pass, such as a full disk.
            sent.answer = Answer::Maybe;
        }
        Ok(())
    }

    /// Whether the batch that was sent like this has an acknowledgement.
    #[must_use]
    pub fn is_acknowledged(&self, header: &BatchHeader) -> bool {
        let sent = id_of(header).ok().and_then(|id| self.sent.get(&id));
        sent.is_some_and(|sent| matches!(sent.answer, Answer::Acknowledged(_)))
    }

    /// The newest epoch of this batch's producer that has an acknowledgement here.
    #[must_use]
    pub fn newest_epoch(&self, header: &BatchHeader) -> Option<ProducerEpoch> {
        let producer = header.producer_id()?;
        let of_producer = self.sent.iter().filter(|((id, ..), _)| *id == producer);
        let acknowledged =
            of_producer.filter(|(_, sent)| matches!(sent.answer, Answer::Acknowledged(_)));
        acknowledged.map(|((_, epoch, _), _)| *epoch).max()
    }

    /// A topic of relaxed durability lost everything from `end` on: what was acknowledged there is
    /// gone for good, and the offsets may name other records. Returns how many acknowledged batches
    /// were lost.
    pub fn lost_from(&mut self, end: Offset) -> u64 {
        let mut lost = 0;
        for sent in self.sent.values_mut() {
            if matches!(sent.answer, Answer::Acknowledged(offset) if end <= offset) {
                sent.answer = Answer::Refused;
                lost += 1;
            }
        }
        self.seen.retain(|base, _| *base < end);
        lost
    }

    /// The client hears about a batch. No answer never takes back an answer.
    ///
    /// # Errors
    /// When two acknowledgements of one batch name different offsets (INV-P1).
    pub fn answered(&mut self, header: &BatchHeader, answer: Answer) -> Result<(), Violation> {
        let id = id_of(header)?;
        let Some(sent) = self.sent.get_mut(&id) else {
            return Err(Violation::new("workload", "an answer to a batch that was never sent"));
        };
        match (sent.answer, answer) {
            (Answer::Acknowledged(before), Answer::Acknowledged(now)) => {
                ensure!(before == now, "INV-P1", "a batch was acknowledged at {before} and {now}");
            }
            (_, Answer::Maybe) | (Answer::Acknowledged(_), Answer::Refused) => {}
            _ => sent.answer = answer,
        }
        Ok(())
    }

    /// A consumer read a batch, below the high watermark it was told.
    ///
    /// # Errors
    /// When it lies at or above that mark (INV-R12), or two reads differ (INV-R13), or nobody sent
    /// it.
    pub fn read(
        &mut self,
        header: &BatchHeader,
        batch: &[u8],
        high_watermark: Offset,
    ) -> Result<(), Violation> {
        let (base, next) = (header.base_offset(), header.next_offset());
        ensure!(next <= high_watermark, "INV-R12", "read [{base}, {next}) above {high_watermark}");
        let sent = self.sent.get(&id_of(header)?);
        ensure!(
            sent.is_some_and(|sent| sent.fixed == fixed(batch)),
            "INV-R13",
            "read a batch at {base} that nobody sent"
        );
        let seen = self.seen.entry(base).or_insert_with(|| (next, batch.to_vec()));
        ensure!(*seen == (next, batch.to_vec()), "INV-R13", "two reads at {base} differ");
        Ok(())
    }

    /// Compares with the whole log, from its start offset on, when all is quiet.
    ///
    /// # Errors
    /// The first broken promise.
    pub fn check_log(
        &self,
        log_start: Offset,
        batches: &[(BatchHeader, Vec<u8>)],
    ) -> Result<(), Violation> {
        let mut found: BTreeMap<BatchId, Offset> = BTreeMap::new();
        let mut next_sequence: BTreeMap<(ProducerId, ProducerEpoch), Sequence> = BTreeMap::new();
        for (header, batch) in batches {
            let id = id_of(header)?;
            let base = header.base_offset();
            let again = found.insert(id, base);
            ensure!(again.is_none(), "INV-P1", "batch {id:?} is at {again:?} and at {base}");
            let sent = self.sent.get(&id);
            let is_known = sent.is_some_and(|sent| sent.fixed == fixed(batch));
            ensure!(is_known, "INV-P1", "batch {id:?} at {base} was never sent like this");
            let is_refused = sent.is_some_and(|sent| sent.answer == Answer::Refused);
            ensure!(!is_refused, "INV-P6", "batch {id:?} at {base} had been refused");
            self.check_read_again(header, batch)?;
            let expected = next_sequence.insert((id.0, id.1), header.last_sequence().advance(1));
            // What retention removed may have been the beginning.
            let follows = expected.is_none_or(|expected| expected == id.2);
            ensure!(follows, "INV-P2", "batch {id:?} at {base}, expected sequence {expected:?}");
        }
        self.check_acknowledged(log_start, &found)
    }

    /// As [`Self::check_log`], of a log that was compacted: batches and records may be missing, what is
    /// there has its place and its order. `appended` are the batches from the start on as they were
    /// appended.
    ///
    /// # Errors
    /// The first broken promise.
    pub fn check_compacted_log<'b>(
        &self,
        log_start: Offset,
        appended: impl Iterator<Item = &'b BatchHeader>,
        found: &[(BatchHeader, Vec<u8>)],
    ) -> Result<(), Violation> {
        let mut places: BTreeMap<BatchId, Offset> = BTreeMap::new();
        for header in appended {
            let (id, base) = (id_of(header)?, header.base_offset());
            let again = places.insert(id, base);
            ensure!(again.is_none(), "INV-P1", "batch {id:?} is at {again:?} and at {base}");
        }
        let mut next_sequence: BTreeMap<(ProducerId, ProducerEpoch), Sequence> = BTreeMap::new();
        for (header, _) in found {
            let (id, base) = (id_of(header)?, header.base_offset());
            let is_refused = self.sent.get(&id).is_some_and(|sent| sent.answer == Answer::Refused);
            ensure!(!is_refused, "INV-P6", "batch {id:?} at {base} had been refused");
            let expected = next_sequence.insert((id.0, id.1), header.last_sequence().advance(1));
            let follows = expected.is_none_or(|expected| expected <= id.2);
            ensure!(follows, "INV-P2", "batch {id:?} at {base} after sequence {expected:?}");
        }
        self.check_acknowledged(log_start, &places)
    }

    fn check_read_again(&self, header: &BatchHeader, batch: &[u8]) -> Result<(), Violation> {
        if let Some((next, bytes)) = self.seen.get(&header.base_offset()) {
            let same = *next == header.next_offset() && bytes == batch;
            ensure!(same, "INV-R13", "what was read at {} has changed", header.base_offset());
        }
        Ok(())
    }

    fn check_acknowledged(
        &self,
        log_start: Offset,
        found: &BTreeMap<BatchId, Offset>,
    ) -> Result<(), Violation> {
        for (id, sent) in &self.sent {
            let Answer::Acknowledged(offset) = sent.answer else { continue };
            let at = found.get(id);
            // A batch below the start may be gone, whole or not.
            let is_there = at == Some(&offset) || (at.is_none() && offset < log_start);
            ensure!(is_there, "INV-R1", "batch {id:?} was acknowledged at {offset}, is at {at:?}");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use towpath_model::Timestamp;
    use towpath_records::{BatchBuilder, Compression, set_base_offset};

    use super::*;

    fn batch(base: i64, sequence: i32, records: i32) -> (BatchHeader, Vec<u8>) {
        let mut builder = BatchBuilder::new(Compression::None, Timestamp(1));
        builder.set_producer(ProducerId(1), ProducerEpoch(0), Sequence(sequence));
        for _ in 0..records {
            builder.append(Timestamp(1), None, Some(b"v"), []).unwrap();
        }
        let mut bytes = builder.build();
        set_base_offset(&mut bytes, Offset(base));
        (BatchHeader::parse(&bytes).unwrap(), bytes)
    }

    fn history(answers: &[Answer]) -> PartitionHistory {
        let mut history = PartitionHistory::new();
        for (at, answer) in answers.iter().enumerate() {
            let (header, bytes) = batch(0, at as i32 * 2, 2);
            history.sent(&header, &bytes).unwrap();
            history.answered(&header, *answer).unwrap();
        }
        history
    }

    fn invariant(result: Result<(), Violation>) -> &'static str {
        result.unwrap_err().invariant
    }

    #[test]
    fn acknowledged_batches_are_where_they_were_promised() {
        let history = history(&[Answer::Acknowledged(Offset(0)), Answer::Maybe]);
        let log = [batch(0, 0, 2), batch(2, 2, 2)];
        assert_eq!(history.check_log(Offset(0), &log), Ok(()));
        assert_eq!(history.check_log(Offset(0), &log[..1]), Ok(()), "a maybe may be missing");
        assert_eq!(invariant(history.check_log(Offset(0), &[])), "INV-R1");
        assert_eq!(history.check_log(Offset(2), &log[1..]), Ok(()), "retention removed it");
    }

    #[test]
    fn duplicates_gaps_and_refused_batches_in_the_log_are_found() {
        let maybe = history(&[Answer::Maybe, Answer::Maybe, Answer::Refused]);
        let twice = [batch(0, 0, 2), batch(2, 0, 2)];
        assert_eq!(invariant(maybe.check_log(Offset(0), &twice)), "INV-P1");
        let swapped = [batch(0, 2, 2), batch(2, 0, 2)];
        assert_eq!(invariant(maybe.check_log(Offset(0), &swapped)), "INV-P2");
        let refused = [batch(0, 0, 2), batch(2, 2, 2), batch(4, 4, 2)];
        assert_eq!(invariant(maybe.check_log(Offset(0), &refused)), "INV-P6");
        let unknown = [batch(0, 6, 2)];
        assert_eq!(invariant(maybe.check_log(Offset(0), &unknown)), "INV-P1");
    }

    #[test]
    fn reads_are_below_the_high_watermark_and_repeatable() {
        let mut history = history(&[Answer::Maybe, Answer::Maybe]);
        let (header, bytes) = batch(0, 0, 2);
        history.read(&header, &bytes, Offset(2)).unwrap();
        history.read(&header, &bytes, Offset(5)).unwrap();
        assert_eq!(invariant(history.read(&header, &bytes, Offset(1))), "INV-R12");
        let (other, bytes) = batch(0, 2, 2);
        assert_eq!(invariant(history.read(&other, &bytes, Offset(2))), "INV-R13");
        assert_eq!(invariant(history.check_log(Offset(0), &[batch(0, 2, 2)])), "INV-R13");
    }

    #[test]
    fn what_a_relaxed_topic_lost_may_not_come_back() {
        let mut history =
            history(&[Answer::Acknowledged(Offset(0)), Answer::Acknowledged(Offset(2))]);
        let log = [batch(0, 0, 2), batch(2, 2, 2)];
        assert_eq!(history.lost_from(Offset(2)), 1);
        assert_eq!(history.check_log(Offset(0), &log[..1]), Ok(()));
        assert_eq!(invariant(history.check_log(Offset(0), &log)), "INV-P6");
    }

    #[test]
    fn a_refused_batch_may_be_sent_again() {
        let mut history = history(&[Answer::Refused]);
        let (header, bytes) = batch(0, 0, 2);
        history.sent(&header, &bytes).unwrap();
        history.answered(&header, Answer::Acknowledged(Offset(0))).unwrap();
        assert!(history.is_acknowledged(&header));
    }

    #[test]
    fn one_batch_is_not_acknowledged_at_two_offsets() {
        let mut history = history(&[Answer::Acknowledged(Offset(0))]);
        let (header, _) = batch(0, 0, 2);
        assert_eq!(history.answered(&header, Answer::Maybe), Ok(()));
        let elsewhere = history.answered(&header, Answer::Acknowledged(Offset(2)));
        assert_eq!(invariant(elsewhere), "INV-P1");
    }
}
