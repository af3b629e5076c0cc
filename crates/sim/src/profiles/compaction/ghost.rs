//! What a compacted log was given, and what it may have lost.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use towpath_model::{Offset, Timestamp};
use towpath_records::BatchHeader;

use crate::profile::{Violation, ensure};

/// A record as it was handed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) timestamp: Timestamp,
    pub(super) key: Option<Vec<u8>>,
    /// `None` is a tombstone.
    pub(super) value: Option<Vec<u8>>,
}

/// A log as it was found.
#[derive(Debug, Clone, Default)]
pub(super) struct Found {
    pub(super) start: Offset,
    pub(super) end: Offset,
    pub(super) records: BTreeMap<Offset, Given>,
    /// Headers, also of batches that have no records any more.
    pub(super) headers: Vec<BatchHeader>,
}

/// One log's promises.
#[derive(Debug, Clone, Default)]
pub(super) struct Ghost {
    given: BTreeMap<Offset, Given>,
    /// Headers of the batches that were handed over, by base offset.
    batches: BTreeMap<Offset, BatchHeader>,
    pub(super) end: Offset,
    pub(super) durable: Offset,
    pub(super) start: Offset,
    pub(super) start_asked: Offset,
    /// The furthest end of a compaction that ever began.
    compacting_to: Offset,
    /// The lowest wall clock at which a compaction began that reaches a tombstone.
    tombstones: BTreeMap<Offset, Timestamp>,
    /// What was found missing stays missing.
    removed: BTreeSet<Offset>,
    pub(super) tombstones_kept: Duration,
}

impl Ghost {
    pub(super) fn append(&mut self, header: BatchHeader, records: Vec<Given>) {
        for (n, record) in (0..).zip(records) {
            self.given.insert(header.base_offset() + n, record);
        }
        self.batches.insert(header.base_offset(), header);
        self.end = header.next_offset();
    }

    /// The last batch was refused for good.
    pub(super) fn take_back(&mut self) {
        if let Some((base, _)) = self.batches.pop_last() {
            self.given.split_off(&base);
            self.end = base;
        }
    }

    /// Base offsets of the newest batches, also of those that no crash can take: a compaction must
    /// keep their headers.
    pub(super) fn newest_batches(&self) -> BTreeSet<Offset> {
        let certain = self.batches.range(..self.durable).next_back();
        let newest = self.batches.keys().rev().take(2);
        newest.chain(certain.map(|(base, _)| base)).copied().collect()
    }

    /// Ends of batches in `[start, durable]`.
    pub(super) fn durable_ends(&self) -> Vec<Offset> {
        let ends = self.batches.values().map(BatchHeader::next_offset);
        ends.filter(|end| self.start <= *end && *end <= self.durable).collect()
    }

    pub(super) fn acknowledge(&mut self, durable: Offset) -> Result<(), Violation> {
        ensure!(self.durable <= durable, "INV-R9", "durable {durable} after {}", self.durable);
        ensure!(durable <= self.end, "INV-R9", "durable {durable} beyond the end {}", self.end);
        self.durable = durable;
        Ok(())
    }

    /// A compaction begins that may remove records before `end`.
    pub(super) fn compaction_begins(&mut self, end: Offset, wall: Timestamp) {
        self.compacting_to = self.compacting_to.max(end);
        for (offset, _) in self.given.range(..end).filter(|(_, record)| record.value.is_none()) {
            let at = self.tombstones.entry(*offset).or_insert(wall);
            *at = wall.min(*at);
        }
    }

    /// Whatever happens, at any time (INV-T1, T3, T7). `wall` is the latest at which a compaction
    /// could have judged. Returns how many records and old tombstones are newly gone.
    pub(super) fn check(
        &mut self,
        found: &Found,
        wall: Timestamp,
    ) -> Result<(u64, u64), Violation> {
        ensure!(self.start <= found.start, "INV-T7", "log start went back to {}", found.start);
        ensure!(
            found.start <= self.start_asked,
            "INV-T6",
            "log starts at {}, nobody asked for more than {}",
            found.start,
            self.start_asked
        );
        for (offset, record) in &found.records {
            let given = self.given.get(offset);
            ensure!(given == Some(record), "INV-T1", "{offset} is {record:?}, was {given:?}");
            ensure!(!self.removed.contains(offset), "INV-T2", "{offset} was gone and is back");
        }
        let (mut gone, mut old) = (0, 0);
        let newest: BTreeMap<&[u8], Offset> = self
            .given
            .range(..self.compacting_to)
            .filter_map(|(offset, record)| Some((record.key.as_deref()?, *offset)))
            .collect();
        for (offset, record) in self.given.range(found.start..found.end) {
            if found.records.contains_key(offset) {
                continue;
            }
            ensure!(
                *offset < self.compacting_to,
                "INV-T3",
                "{offset} is gone, compactions went to {} only",
                self.compacting_to
            );
            let newest = record.key.as_deref().and_then(|key| newest.get(key));
            let is_overtaken = newest.is_some_and(|newest| offset < newest);
            let horizon = self.tombstones.get(offset).map(|at| *at + self.tombstones_kept);
            let is_old = horizon.is_some_and(|horizon| horizon <= wall);
            ensure!(
                is_overtaken || is_old || record.key.is_none(),
                "INV-T1",
                "{offset} {record:?} is gone; horizon {horizon:?}, clock {wall}"
            );
            if self.removed.insert(*offset) {
                gone += 1;
                old += u64::from(!is_overtaken && is_old);
            }
        }
        self.check_headers(found)?;
        Ok((gone, old))
    }

    /// The newest batches are known by their headers (INV-P5).
    fn check_headers(&self, found: &Found) -> Result<(), Violation> {
        for header in &found.headers {
            let given = self.batches.get(&header.base_offset());
            let Some(given) = given else {
                return Err(Violation::new(
                    "INV-T1",
                    format!("a batch at {} was never given", header.base_offset()),
                ));
            };
            let same = given.next_offset() == header.next_offset()
                && given.producer_id() == header.producer_id()
                && given.producer_epoch() == header.producer_epoch()
                && given.base_sequence() == header.base_sequence()
                && given.leader_epoch() == header.leader_epoch();
            ensure!(same, "INV-T1", "{given:?} became {header:?}");
        }
        let last = self.batches.range(..found.end).next_back();
        if let Some((base, last)) = last.filter(|(_, last)| found.start < last.next_offset()) {
            let is_there = found.headers.iter().any(|header| header.base_offset() == *base);
            ensure!(is_there, "INV-P5", "nothing is left of the newest batch {last:?}");
        }
        Ok(())
    }

    /// After a compaction that ended at `clean`: every key has one record before it.
    pub(super) fn check_is_compact(&self, found: &Found, clean: Offset) -> Result<(), Violation> {
        let mut seen: BTreeMap<&[u8], Offset> = BTreeMap::new();
        for (offset, record) in found.records.range(..clean) {
            let Some(key) = record.key.as_deref() else { continue };
            if let Some(earlier) = seen.insert(key, *offset) {
                let detail = format!("{earlier} and {offset} have one key, below {clean}");
                return Err(Violation::new("INV-T1", detail));
            }
        }
        Ok(())
    }

    /// Takes a log that was opened again as the truth.
    pub(super) fn recovered(&mut self, found: &Found) -> Result<(), Violation> {
        ensure!(
            self.durable <= found.end,
            "INV-R1",
            "log ends at {}, everything before {} was acknowledged",
            found.end,
            self.durable
        );
        ensure!(found.end <= self.end, "INV-R7", "log ends at {}, not {}", found.end, self.end);
        self.given.split_off(&found.end);
        self.batches.split_off(&found.end);
        self.end = found.end;
        self.start = found.start;
        self.durable = self.durable.max(found.start);
        Ok(())
    }
}
