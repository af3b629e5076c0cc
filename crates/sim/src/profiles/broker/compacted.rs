//! What a compacted topic was given, record by record, and what of it may be gone (INV-T1, T2).
//!
//! ```text
//! gone is allowed:   a newer committed record has the same key       (superseded)
//!                    a tombstone, delete.retention.ms after a compaction could first see it
//!                    no key: nobody could name it
//! ```
//!
//! Everything else is there, with the bytes and the offset that it had, and what was seen to be gone
//! stays gone. Which compaction removed what is not asked: whether it was allowed to is.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use towpath_model::{Offset, Timestamp};
use towpath_records::{BatchHeader, Scratch, records};

use crate::checker::PartitionHistory;
use crate::profile::{Violation, ensure};

/// A record as its producer sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Given {
    timestamp: Timestamp,
    key: Option<Vec<u8>>,
    /// `None` is a tombstone.
    value: Option<Vec<u8>>,
}

/// Since when a tombstone may be on its way out.
#[derive(Debug, Clone, Copy)]
struct Horizon {
    /// The lowest wall clock at a compaction that could see it.
    seen_at: Timestamp,
    /// A compaction has run since whose clock had passed the horizon.
    has_passed: bool,
}

/// One partition of a compacted topic.
#[derive(Debug, Clone, Default)]
pub(super) struct Compacted {
    given: BTreeMap<Offset, Given>,
    /// Headers as they were appended, by base offset.
    batches: BTreeMap<Offset, BatchHeader>,
    tombstones: BTreeMap<Offset, Horizon>,
    /// What was found missing stays missing.
    removed: BTreeSet<Offset>,
    /// `delete.retention.ms` of the topic.
    tombstones_kept: Duration,
    /// Superseded records that were seen to be gone.
    pub(super) superseded: u64,
    /// Tombstones, the newest of their key, that were seen to be gone.
    pub(super) tombstones_gone: u64,
}

impl Compacted {
    pub(super) fn new(tombstones_kept: Duration) -> Compacted {
        Compacted { tombstones_kept, ..Compacted::default() }
    }

    /// The broker put these records into the log.
    pub(super) fn appended(&mut self, batch: &[u8]) -> Result<(), Violation> {
        let (header, given) = decode(batch)?;
        self.batches.insert(header.base_offset(), header);
        self.given.extend(given);
        Ok(())
    }

    /// A compaction may begin now of what lies before `end`.
    pub(super) fn compaction_begins(&mut self, end: Offset, wall: Timestamp) {
        let kept = self.tombstones_kept;
        for (offset, _) in self.given.range(..end).filter(|(_, record)| record.value.is_none()) {
            let new = Horizon { seen_at: wall, has_passed: false };
            let horizon = self.tombstones.entry(*offset).or_insert(new);
            horizon.seen_at = horizon.seen_at.min(wall);
            horizon.has_passed |= horizon.seen_at + kept <= wall;
        }
    }

    /// A process has opened the log again, and it ends at `end`: that is the truth from here on.
    /// What a process appended just before it died is in none of the answers; it was given too.
    pub(super) fn recovered(
        &mut self,
        end: Offset,
        found: &[(BatchHeader, Vec<u8>)],
    ) -> Result<(), Violation> {
        self.given.split_off(&end);
        self.batches.split_off(&end);
        self.tombstones.split_off(&end);
        self.removed.split_off(&end);
        for (header, batch) in found {
            if !self.batches.contains_key(&header.base_offset()) {
                self.appended(batch)?;
            }
        }
        Ok(())
    }

    /// Compares with the whole log up to its high watermark.
    pub(super) fn check(
        &mut self,
        start: Offset,
        high_watermark: Offset,
        found: &[(BatchHeader, Vec<u8>)],
        history: &PartitionHistory,
    ) -> Result<(), Violation> {
        let appended = self.batches.range(start..).map(|(_, header)| header);
        history.check_compacted_log(start, appended, found)?;
        let batches = found.iter().map(|(_, batch)| batch.as_slice());
        self.check_range(start, high_watermark, high_watermark, batches)
    }

    /// A reader gets these batches for everything in `[from, to)`.
    pub(super) fn check_range<'b>(
        &mut self,
        from: Offset,
        to: Offset,
        high_watermark: Offset,
        batches: impl Iterator<Item = &'b [u8]>,
    ) -> Result<(), Violation> {
        self.check_read(from, to, high_watermark, batches, false)
    }

    /// As [`Self::check_range`]. What is late was found a while ago, and may be gone by now.
    pub(super) fn check_read<'b>(
        &mut self,
        from: Offset,
        to: Offset,
        high_watermark: Offset,
        batches: impl Iterator<Item = &'b [u8]>,
        is_late: bool,
    ) -> Result<(), Violation> {
        let mut found = BTreeSet::new();
        for batch in batches {
            let (header, records) = decode(batch)?;
            ensure!(!records.is_empty(), "INV-T1", "a reader gets {header:?}, without a record");
            let base = header.base_offset();
            let appended = self.batches.get(&base);
            let is_same = appended.is_some_and(|appended| is_remnant(&header, appended));
            ensure!(is_same, "INV-T1", "{appended:?} became {header:?}");
            for (offset, record) in records {
                let given = self.given.get(&offset);
                ensure!(
                    given == Some(&record),
                    "INV-T1",
                    "{offset} is {record:?}, given was {given:?}"
                );
                let was_gone = !is_late && self.removed.contains(&offset);
                ensure!(!was_gone, "INV-T2", "{offset} was gone, and is back");
                found.insert(offset);
            }
        }
        self.check_gone(from, to, high_watermark, &found)
    }

    fn check_gone(
        &mut self,
        from: Offset,
        to: Offset,
        high_watermark: Offset,
        found: &BTreeSet<Offset>,
    ) -> Result<(), Violation> {
        let newest = newest(&self.given, high_watermark);
        let gone = self.given.range(from..to).filter(|(offset, _)| !found.contains(offset));
        for (offset, record) in gone {
            let newest = record.key.as_deref().and_then(|key| newest.get(key));
            let is_superseded = newest.is_some_and(|newest| offset < newest);
            let horizon = self.tombstones.get(offset);
            let is_old = horizon.is_some_and(|horizon| horizon.has_passed);
            ensure!(
                is_superseded || is_old || record.key.is_none(),
                "INV-T1",
                "{offset} is gone: {record:?}, the newest of its key is at {newest:?}, {horizon:?}"
            );
            if self.removed.insert(*offset) {
                self.superseded += u64::from(is_superseded);
                self.tombstones_gone += u64::from(!is_superseded && is_old);
            }
        }
        Ok(())
    }

    /// Timestamps of the records in `[from, to)` that no compaction can have removed before `to` was
    /// the start: what retention has to look at, at least. With the base offsets of their batches.
    pub(super) fn certain(&self, from: Offset, to: Offset) -> Vec<(Offset, Timestamp)> {
        let newest = newest(&self.given, Offset(i64::MAX));
        let is_newest = |offset: &Offset, record: &Given| {
            let key = record.key.as_deref();
            record.value.is_some() && key.is_some_and(|key| newest.get(key) == Some(offset))
        };
        let certain =
            self.given.range(from..to).filter(|(offset, record)| is_newest(offset, record));
        let base =
            |offset: &Offset| self.batches.range(..=*offset).next_back().map(|(base, _)| *base);
        certain.filter_map(|(offset, record)| Some((base(offset)?, record.timestamp))).collect()
    }
}

/// The newest record of each key before `end`.
fn newest(given: &BTreeMap<Offset, Given>, end: Offset) -> BTreeMap<&[u8], Offset> {
    let committed = given.range(..end);
    committed.filter_map(|(at, record)| Some((record.key.as_deref()?, *at))).collect()
}

/// Whether a batch is what a compaction may make of another.
fn is_remnant(header: &BatchHeader, appended: &BatchHeader) -> bool {
    appended.next_offset() == header.next_offset()
        && appended.producer_id() == header.producer_id()
        && appended.producer_epoch() == header.producer_epoch()
        && appended.base_sequence() == header.base_sequence()
        && appended.leader_epoch() == header.leader_epoch()
}

fn decode(batch: &[u8]) -> Result<(BatchHeader, BTreeMap<Offset, Given>), Violation> {
    let broken = |error: &dyn std::fmt::Display| Violation::new("INV-T1", error.to_string());
    let mut scratch = Scratch::new();
    let iter = records(batch, 1 << 20, &mut scratch).map_err(|error| broken(&error))?;
    let header = *iter.header();
    let mut given = BTreeMap::new();
    for record in iter {
        let record = record.map_err(|error| broken(&error))?;
        let own = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
        let timestamp = header.timestamp_of(record.timestamp_delta);
        let (key, value) = (own(record.key), own(record.value));
        given.insert(header.offset_of(record.offset_delta), Given { timestamp, key, value });
    }
    Ok((header, given))
}

#[cfg(test)]
mod tests {
    use towpath_model::{LeaderEpoch, ProducerEpoch, ProducerId, Sequence};
    use towpath_records::{BatchBuilder, Compression, set_base_offset, set_leader_epoch};

    use super::*;

    const END: Offset = Offset(3);

    /// Records 0 to 2: `a=1`, `a=2`, and a tombstone of `b`, a batch each.
    fn batches() -> Vec<Vec<u8>> {
        let records: [(&[u8], Option<&[u8]>); 3] =
            [(b"a", Some(b"1")), (b"a", Some(b"2")), (b"b", None)];
        let batch = |(at, (key, value)): (usize, &(&[u8], Option<&[u8]>))| {
            let mut builder = BatchBuilder::new(Compression::None, Timestamp(1));
            builder.set_producer(ProducerId(1), ProducerEpoch(0), Sequence(at as i32));
            builder.append(Timestamp(1), Some(key), *value, []).unwrap();
            let mut bytes = builder.build();
            set_base_offset(&mut bytes, Offset(at as i64));
            set_leader_epoch(&mut bytes, LeaderEpoch(0));
            bytes
        };
        records.iter().enumerate().map(batch).collect()
    }

    fn check(model: &mut Compacted, left: &[usize]) -> Result<(), &'static str> {
        let all = batches();
        let left = left.iter().map(|at| all[*at].as_slice());
        model.check_range(Offset(0), END, END, left).map_err(|violation| violation.invariant)
    }

    fn model() -> Compacted {
        let mut model = Compacted::new(Duration::from_millis(100));
        batches().iter().for_each(|batch| model.appended(batch).unwrap());
        model
    }

    #[test]
    fn only_superseded_records_may_go_and_they_stay_away() {
        let mut model = model();
        assert_eq!(check(&mut model, &[0, 1, 2]), Ok(()));
        assert_eq!(check(&mut model, &[0, 2]), Err("INV-T1"), "the newest value is gone");
        assert_eq!(check(&mut model, &[1, 2]), Ok(()));
        assert_eq!(model.superseded, 1);
        assert_eq!(check(&mut model, &[0, 1, 2]), Err("INV-T2"));
    }

    #[test]
    fn tombstones_go_when_a_compaction_saw_them_long_enough_before_another() {
        let mut model = model();
        model.compaction_begins(END, Timestamp(1_000));
        assert_eq!(check(&mut model, &[1]), Err("INV-T1"));
        model.compaction_begins(END, Timestamp(1_099));
        assert_eq!(check(&mut model, &[1]), Err("INV-T1"));
        model.compaction_begins(END, Timestamp(1_100));
        assert_eq!(check(&mut model, &[1]), Ok(()));
        assert_eq!(model.tombstones_gone, 1);
    }

    #[test]
    fn what_is_not_committed_supersedes_nothing() {
        let mut model = model();
        let all = batches();
        let nothing = model.check_range(Offset(0), Offset(1), Offset(1), std::iter::empty());
        assert_eq!(nothing.map_err(|violation| violation.invariant), Err("INV-T1"));
        let rest = [all[1].as_slice()];
        assert_eq!(model.check_range(Offset(0), Offset(2), Offset(2), rest.into_iter()), Ok(()));
    }
}
