//! What one log was promised to hold, kept apart from the log.
//!
//! The ghost knows every batch that was handed over. After a crash it accepts a log that is a
//! *prefix of one history* it has seen: the latest, or one that a truncation had cut and a power
//! loss brought back. A mixture is never right. The prefix must reach the acknowledged durable
//! offset. What was found is the history from then on.

use std::rc::Rc;

use towpath_model::{Offset, Timestamp};
use towpath_records::BatchHeader;

use crate::clock::SimClock;
use crate::profile::{Violation, ensure};
use crate::rng::Rng;

/// A batch that was handed to the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Handed {
    pub(super) bytes: Vec<u8>,
    pub(super) base: Offset,
    pub(super) next: Offset,
    /// Timestamps of its records, in order.
    pub(super) timestamps: Vec<Timestamp>,
    pub(super) max_timestamp: Timestamp,
    /// The broker's wall clock at the append.
    pub(super) appended: Timestamp,
    /// How often that clock had jumped by then.
    pub(super) clock_jumps: u64,
}

impl Handed {
    pub(super) fn new(
        bytes: Vec<u8>,
        timestamps: Vec<Timestamp>,
        header: &BatchHeader,
        clock: &SimClock,
    ) -> Handed {
        Handed {
            bytes,
            base: header.base_offset(),
            next: header.next_offset(),
            timestamps,
            max_timestamp: header.max_timestamp(),
            appended: clock.now().wall,
            clock_jumps: clock.jumps(),
        }
    }
}

type History = Vec<Rc<Handed>>;

/// One log's promises.
#[derive(Debug, Clone, Default)]
pub(super) struct Ghost {
    /// What the log holds if nothing is lost.
    latest: History,
    /// What it held before truncations that a power loss may undo.
    cut: Vec<History>,
    /// Acknowledged as durable, in the latest history.
    durable: Offset,
    /// Log start offset that was acknowledged.
    start: Offset,
    /// Furthest log start offset that was asked for.
    start_asked: Offset,
    /// The last recovery found a history that had been cut.
    was_truncation_undone: bool,
}

/// A log as it was found: where it starts, where it ends, and its batches from the one that holds
/// the start on.
#[derive(Debug, Clone)]
pub(super) struct FoundLog {
    pub(super) start: Offset,
    pub(super) end: Offset,
    pub(super) batches: Vec<(Offset, Offset, Vec<u8>)>,
}

/// How the process that wrote the log came to its end; the worst comes last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ending {
    /// It closed the log.
    Closed,
    /// It was killed; the page cache survived.
    Killed,
    /// A sync had failed before, or the power went.
    PowerLost,
}

impl Ghost {
    pub(super) fn start(&self) -> Offset {
        self.start
    }

    pub(super) fn durable(&self) -> Offset {
        self.durable
    }

    pub(super) fn end(&self) -> Offset {
        end_of(&self.latest, self.start)
    }

    /// Batches of the latest history, from the one that holds `from` on.
    pub(super) fn batches_from(&self, from: Offset) -> &[Rc<Handed>] {
        let at = self.latest.partition_point(|batch| batch.next <= from);
        &self.latest[at..]
    }

    /// An offset where a batch begins, at or after `low`, or the end.
    pub(super) fn boundary(&self, rng: &mut Rng, low: Offset) -> Offset {
        let candidates = self.latest.iter().map(|batch| batch.base).filter(|base| low <= *base);
        let mut candidates: Vec<Offset> = candidates.collect();
        candidates.push(self.end().max(low));
        candidates[rng.index(candidates.len())]
    }

    /// A batch is handed over. It may be there from now on, whether or not the call returns.
    pub(super) fn append(&mut self, batch: Handed) {
        assert_eq!(batch.base, self.end());
        self.latest.push(Rc::new(batch));
    }

    /// The last batch was refused: the disk had room for a part of it, which was cut off again.
    ///
    /// A power loss may undo that cut too, and zeros that a file system puts behind the part may be
    /// just the bytes that were missing: a batch whose last record has no headers ends in zero.
    pub(super) fn take_back(&mut self) {
        self.cut.push(self.latest.clone());
        self.latest.pop().expect("only the batch that was just handed over is taken back");
    }

    /// The log acknowledged that everything before `offset` is durable.
    pub(super) fn acknowledge(&mut self, offset: Offset) -> Result<(), Violation> {
        ensure!(self.durable <= offset, "INV-R9", "durable {} after {}", offset, self.durable);
        ensure!(offset <= self.end(), "INV-R9", "durable {} beyond the end {}", offset, self.end());
        self.durable = offset;
        Ok(())
    }

    /// A truncation is asked for. Until something after it is acknowledged, a power loss may undo
    /// it, and a crash in its middle may leave it undone.
    pub(super) fn truncate_to(&mut self, offset: Offset) {
        self.cut.push(self.latest.clone());
        self.latest.retain(|batch| batch.next <= offset);
        self.durable = self.durable.min(self.end());
    }

    pub(super) fn ask_start(&mut self, offset: Offset) {
        self.start_asked = self.start_asked.max(offset);
    }

    /// The log start offset is durable.
    pub(super) fn confirm_start(&mut self, offset: Offset) {
        self.start = self.start.max(offset);
    }

    /// Checks a log that was opened again, and takes it as the truth from here on.
    pub(super) fn recovered(&mut self, found: &FoundLog, ending: Ending) -> Result<(), Violation> {
        ensure!(
            self.start <= found.start,
            "INV-T7",
            "log start went back from {} to {}",
            self.start,
            found.start
        );
        ensure!(
            found.start <= self.start_asked,
            "INV-T6",
            "log starts at {}, nobody asked for more than {}",
            found.start,
            self.start_asked
        );
        ensure!(
            self.durable <= found.end,
            "INV-R1",
            "log ends at {}, everything before {} was acknowledged",
            found.end,
            self.durable
        );
        if ending != Ending::PowerLost {
            // The last batch may be one whose append never returned.
            let returned = self.latest.len().saturating_sub(1);
            let certain = end_of(&self.latest[..returned], self.start);
            let certain = if ending == Ending::Closed { self.end() } else { certain };
            ensure!(
                certain <= found.end || self.cut.iter().any(|h| end_of(h, self.start) == found.end),
                "INV-F1",
                "log ends at {} after {ending:?}, everything before {certain} was written",
                found.end
            );
        }
        let history = self.history_of(found)?;
        self.check_durable_prefix(&history)?;
        self.was_truncation_undone = history.iter().any(|found| !holds(&self.latest, found));
        self.latest = history;
        self.cut.clear();
        self.start = found.start;
        self.durable = self.durable.max(found.start);
        Ok(())
    }

    /// Whether the last recovery found a history that had been cut.
    pub(super) fn was_truncation_undone(&self) -> bool {
        self.was_truncation_undone
    }

    /// The prefix of a known history that the log holds.
    fn history_of(&self, found: &FoundLog) -> Result<History, Violation> {
        let mut closest: Option<Violation> = None;
        for known in std::iter::once(&self.latest).chain(self.cut.iter().rev()) {
            match matches(known, found) {
                Ok(history) => return Ok(history),
                Err(difference) => closest = closest.or(Some(difference)),
            }
        }
        Err(closest.expect("the latest history was compared"))
    }

    /// A history that was cut must not come back in place of acknowledged batches.
    fn check_durable_prefix(&self, history: &[Rc<Handed>]) -> Result<(), Violation> {
        for batch in self.latest.iter().filter(|batch| batch.base < self.durable) {
            let same = holds(history, batch);
            let gone = batch.next <= self.start_asked;
            ensure!(
                same || gone,
                "INV-R1",
                "acknowledged batch [{}, {}) was replaced by one that had been cut off",
                batch.base,
                batch.next
            );
        }
        Ok(())
    }
}

fn holds(history: &[Rc<Handed>], batch: &Rc<Handed>) -> bool {
    let at = history.binary_search_by_key(&batch.base, |held| held.base);
    at.is_ok_and(|at| Rc::ptr_eq(&history[at], batch))
}

fn end_of(history: &[Rc<Handed>], start: Offset) -> Offset {
    history.last().map_or(start, |batch| batch.next.max(start))
}

/// Compares a log with a history; returns the part of the history that the log holds.
fn matches(known: &[Rc<Handed>], found: &FoundLog) -> Result<History, Violation> {
    let first = known.partition_point(|batch| batch.next <= found.start);
    let mut expected = known[first..].iter();
    let mut history = known[..first].to_vec();
    for (base, next, bytes) in &found.batches {
        let Some(batch) = expected.next() else {
            return Err(Violation::new(
                "INV-R7",
                format!("batch [{base}, {next}) was never handed over"),
            ));
        };
        ensure!(
            (batch.base, batch.next) == (*base, *next) && batch.bytes == *bytes,
            "INV-R1",
            "found batch [{base}, {next}), expected [{}, {}), bytes {}",
            batch.base,
            batch.next,
            if batch.bytes == *bytes { "equal" } else { "differ" }
        );
        history.push(Rc::clone(batch));
    }
    let end = end_of(&history, found.start);
    ensure!(end == found.end, "INV-R1", "batches end at {end}, the log says {}", found.end);
    Ok(history)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(base: i64, records: i64, salt: u8) -> Handed {
        Handed {
            bytes: vec![salt; 4],
            base: Offset(base),
            next: Offset(base + records),
            timestamps: vec![Timestamp(1); records as usize],
            max_timestamp: Timestamp(1),
            appended: Timestamp(1),
            clock_jumps: 0,
        }
    }

    fn found(start: i64, batches: &[Handed]) -> FoundLog {
        let end = batches.last().map_or(Offset(start), |batch| batch.next);
        let batches = batches.iter().map(|b| (b.base, b.next, b.bytes.clone())).collect();
        FoundLog { start: Offset(start), end, batches }
    }

    fn ghost() -> Ghost {
        let mut ghost = Ghost::default();
        for base in 0..3 {
            ghost.append(batch(base * 2, 2, base as u8));
        }
        ghost.acknowledge(Offset(4)).unwrap();
        ghost
    }

    fn invariant(result: Result<(), Violation>) -> &'static str {
        result.unwrap_err().invariant
    }

    #[test]
    fn a_prefix_that_reaches_the_acknowledged_offset_is_accepted() {
        let whole = [batch(0, 2, 0), batch(2, 2, 1), batch(4, 2, 2)];
        assert_eq!(ghost().recovered(&found(0, &whole), Ending::Closed), Ok(()));
        assert_eq!(ghost().recovered(&found(0, &whole[..2]), Ending::PowerLost), Ok(()));
        let lost = ghost().recovered(&found(0, &whole[..1]), Ending::PowerLost);
        assert_eq!(invariant(lost), "INV-R1");
        assert_eq!(ghost().recovered(&found(0, &whole[..2]), Ending::Killed), Ok(()));
        assert_eq!(invariant(ghost().recovered(&found(0, &whole[..2]), Ending::Closed)), "INV-F1");
    }

    #[test]
    fn other_bytes_gaps_and_inventions_are_refused() {
        let other = [batch(0, 2, 0), batch(2, 2, 9), batch(4, 2, 2)];
        assert_eq!(invariant(ghost().recovered(&found(0, &other), Ending::Closed)), "INV-R1");
        let gap = [batch(0, 2, 0), batch(4, 2, 2)];
        assert_eq!(invariant(ghost().recovered(&found(0, &gap), Ending::PowerLost)), "INV-R1");
        let more = [batch(0, 2, 0), batch(2, 2, 1), batch(4, 2, 2), batch(6, 1, 3)];
        assert_eq!(invariant(ghost().recovered(&found(0, &more), Ending::PowerLost)), "INV-R7");
    }

    #[test]
    fn a_truncation_may_be_undone_but_not_mixed_with_what_followed_it() {
        let truncated = || {
            let mut ghost = ghost();
            ghost.truncate_to(Offset(4));
            ghost.append(batch(4, 1, 7));
            ghost
        };
        let old = [batch(0, 2, 0), batch(2, 2, 1), batch(4, 2, 2)];
        let new = [batch(0, 2, 0), batch(2, 2, 1), batch(4, 1, 7)];
        assert_eq!(truncated().recovered(&found(0, &old), Ending::PowerLost), Ok(()));
        assert_eq!(truncated().recovered(&found(0, &new), Ending::PowerLost), Ok(()));
        let mut acknowledged = truncated();
        acknowledged.acknowledge(Offset(5)).unwrap();
        let undone = acknowledged.recovered(&found(0, &old), Ending::PowerLost);
        assert_eq!(invariant(undone), "INV-R1");
    }

    #[test]
    fn a_refused_batch_may_come_back_with_the_power_but_is_not_missed() {
        for comes_back in [false, true] {
            let mut ghost = ghost();
            let end = ghost.end().0;
            ghost.append(batch(end, 1, 9));
            ghost.take_back();
            let mut there = ghost.latest.iter().map(|b| (**b).clone()).collect::<Vec<_>>();
            if comes_back {
                there.push(batch(end, 1, 9));
            }
            ghost.recovered(&found(0, &there), Ending::PowerLost).unwrap();
            assert_eq!(ghost.was_truncation_undone(), comes_back);
        }
    }

    #[test]
    fn the_log_start_moves_only_forward_and_only_when_asked() {
        let mut moved = ghost();
        moved.ask_start(Offset(3));
        let rest = [batch(2, 2, 1), batch(4, 2, 2)];
        assert_eq!(moved.clone().recovered(&found(3, &rest), Ending::Closed), Ok(()));
        moved.confirm_start(Offset(3));
        let whole = [batch(0, 2, 0), batch(2, 2, 1), batch(4, 2, 2)];
        assert_eq!(invariant(moved.recovered(&found(0, &whole), Ending::Closed)), "INV-T7");
        assert_eq!(invariant(ghost().recovered(&found(3, &rest), Ending::Closed)), "INV-T6");
    }
}
