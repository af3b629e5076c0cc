//! What is committed, kept apart from whoever committed it.
//!
//! A record is committed when a leader's high watermark passes it. From then on it is in this book,
//! with its header, which holds the checksum of its records; whatever a leader, a follower, a reader or
//! a disk shows later is compared with it (INV-R1 to R9, R12, R13).

use std::collections::BTreeMap;

use towpath_model::{BrokerId, LeaderEpoch, Offset, TopicPartition};
use towpath_records::BatchHeader;

use crate::profile::{Violation, ensure};

/// A committed batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Committed {
    pub(super) header: BatchHeader,
    /// In which leadership it was committed.
    pub(super) in_epoch: LeaderEpoch,
}

/// One partition's committed records.
#[derive(Debug, Clone, Default)]
pub(super) struct Book {
    batches: BTreeMap<Offset, Committed>,
    /// Everything before it is committed.
    pub(super) end: Offset,
    /// The furthest log start that a leader has shown.
    pub(super) start: Offset,
    /// The furthest log start that somebody asked for.
    pub(super) start_asked: Offset,
    /// Records of messages that are done with go: each replica removes them from sealed segments by itself.
    pub(super) has_gaps: bool,
    /// Who led in which epoch (INV-R6).
    leaders: BTreeMap<LeaderEpoch, BrokerId>,
    /// What was appended under which epoch at which offset (INV-R7).
    appended: BTreeMap<(LeaderEpoch, Offset), u32>,
    /// The highest high watermark that anybody has shown, by the epoch of the leader.
    shown: BTreeMap<LeaderEpoch, Offset>,
}

impl Book {
    /// Somebody leads.
    pub(super) fn led(
        &mut self,
        id: TopicPartition,
        epoch: LeaderEpoch,
        by: BrokerId,
    ) -> Result<(), Violation> {
        let known = *self.leaders.entry(epoch).or_insert(by);
        ensure!(known == by, "INV-R6", "{id}: brokers {known} and {by} lead in epoch {epoch}");
        Ok(())
    }

    /// A leader has put a batch into its log.
    pub(super) fn appended(
        &mut self,
        id: TopicPartition,
        header: &BatchHeader,
    ) -> Result<(), Violation> {
        let (epoch, base) = (header.leader_epoch(), header.base_offset());
        let known = *self.appended.entry((epoch, base)).or_insert(header.crc());
        ensure!(
            known == header.crc(),
            "INV-R7",
            "{id}: epoch {epoch} has two different batches at offset {base}"
        );
        Ok(())
    }

    /// The high watermark of a leader has moved on; `batch` is the next in its log.
    pub(super) fn commit(
        &mut self,
        id: TopicPartition,
        in_epoch: LeaderEpoch,
        header: &BatchHeader,
    ) -> Result<(), Violation> {
        ensure!(
            header.base_offset() == self.end,
            "INV-R3",
            "{id}: committed up to {}, and the leader of epoch {in_epoch} goes on at {}",
            self.end,
            header.base_offset()
        );
        let last = self.batches.last_key_value().map(|(_, last)| last.header.leader_epoch());
        ensure!(
            last.is_none_or(|last| last <= header.leader_epoch()),
            "INV-R7",
            "{id}: after a batch of epoch {last:?} comes one of epoch {}",
            header.leader_epoch()
        );
        self.batches.insert(self.end, Committed { header: *header, in_epoch });
        self.end = header.next_offset();
        Ok(())
    }

    /// Somebody shows a high watermark as the end of what is committed, and is certain of it.
    pub(super) fn shown(
        &mut self,
        id: TopicPartition,
        epoch: LeaderEpoch,
        high_watermark: Offset,
        is_certain: bool,
    ) -> Result<(), Violation> {
        if is_certain {
            let before = self.shown.range(..=epoch).map(|(_, shown)| *shown).max();
            ensure!(
                before.is_none_or(|before| before <= high_watermark),
                "INV-R4",
                "{id}: readers were shown {before:?}, the leader of epoch {epoch} shows {high_watermark}"
            );
        }
        let shown = self.shown.entry(epoch).or_default();
        *shown = high_watermark.max(*shown);
        Ok(())
    }

    /// Whether these are exactly what is committed from some batch boundary on, up to `end`.
    ///
    /// # Errors
    /// The first difference, under the name of `invariant`.
    pub(super) fn compare<'h>(
        &self,
        from: Offset,
        end: Offset,
        found: impl IntoIterator<Item = &'h BatchHeader>,
        is_wanted: impl Fn(&Committed) -> bool,
    ) -> Result<(), String> {
        if end < from {
            return Err(format!("it starts at {from}, and the end is {end}"));
        }
        let found = found.into_iter().filter(|header| from <= header.base_offset());
        if self.has_gaps {
            let unwanted = self.batches.range(from..end).find(|(_, of)| !is_wanted(of));
            let end = unwanted.map_or(end, |(base, _)| *base);
            return self.compare_what_is_left(from, end, found);
        }
        let mut found = found;
        for (base, committed) in self.batches.range(from..end) {
            if !is_wanted(committed) {
                break;
            }
            let here = found.next();
            if here != Some(&committed.header) {
                return Err(format!(
                    "at {base} {:?} is committed since epoch {}, and there is {here:?}",
                    committed.header, committed.in_epoch
                ));
            }
        }
        Ok(())
    }

    /// Whether nothing else is there than what is committed, or a part of it.
    fn compare_what_is_left<'h>(
        &self,
        from: Offset,
        end: Offset,
        found: impl Iterator<Item = &'h BatchHeader>,
    ) -> Result<(), String> {
        for header in found.filter(|header| header.base_offset() < end) {
            let committed = self.batches.range(from..=header.base_offset()).next_back();
            let is_part = committed.is_some_and(|(_, committed)| {
                header.next_offset() <= committed.header.next_offset()
                    && header.leader_epoch() == committed.header.leader_epoch()
            });
            if !is_part {
                return Err(format!("there is {header:?}, and {committed:?} is committed"));
            }
        }
        Ok(())
    }

    /// The committed batch that begins at an offset.
    pub(super) fn at(&self, base: Offset) -> Option<&BatchHeader> {
        self.batches.get(&base).map(|committed| &committed.header)
    }

    /// How many batches are committed.
    pub(super) fn len(&self) -> usize {
        self.batches.len()
    }
}

#[cfg(test)]
mod tests {
    use towpath_model::Timestamp;
    use towpath_records::{BatchBuilder, Compression, set_leader_epoch};

    use super::*;

    #[test]
    fn what_starts_behind_the_end_is_a_difference() {
        let book = Book::default();
        let compare = |from, end| book.compare(Offset(from), Offset(end), [], |_| true);
        assert_eq!(compare(4, 4), Ok(()));
        compare(4, 0).unwrap_err();
    }

    #[test]
    fn a_leader_of_before_need_not_have_what_was_committed_later() {
        let header = |epoch: i32| {
            let mut batch = BatchBuilder::new(Compression::None, Timestamp(epoch.into()));
            batch.append(Timestamp(epoch.into()), None, None, []).unwrap();
            let mut batch = batch.build();
            set_leader_epoch(&mut batch, LeaderEpoch(epoch));
            BatchHeader::parse(&batch).unwrap()
        };
        for has_gaps in [false, true] {
            let mut book = Book { has_gaps, ..Book::default() };
            let in_epoch = LeaderEpoch(3);
            book.batches.insert(Offset(0), Committed { header: header(3), in_epoch });
            let here = [header(0)];
            let compare = |epoch| {
                let is_wanted = |of: &Committed| of.in_epoch < LeaderEpoch(epoch);
                book.compare(Offset(0), Offset(1), &here, is_wanted)
            };
            assert_eq!(compare(1), Ok(()));
            compare(4).unwrap_err();
        }
    }
}
