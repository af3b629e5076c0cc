//! Looks at every byte of one segment, and at what its indexes say about it.
//!
//! The scrub does so while the broker runs, `verify` while it does not. It only reads, a piece at a
//! time, and needs no log: what it should find comes in as arguments. What no checksum covers (the
//! base offset of a batch) must fit what lies before and behind it.

use std::io;

use towpath_model::Offset;
use towpath_records::BatchHeader;

use crate::damage::{Damage, DamageCause};
use crate::disk::DiskFile;
use crate::index::{IndexCheck, Indexed, SparseIndex};
use crate::scan::{Found, LARGE_BUFFER, Scan};
use crate::segment::Summary;

/// What a segment should hold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected {
    /// What is known about it.
    pub(crate) summary: Summary,
    /// Batches that end at or before it need not follow each other without a gap.
    pub(crate) gaps_below: Offset,
    /// Interval of an index that is built anew.
    pub(crate) index_interval_bytes: u32,
}

/// What was found in it.
#[derive(Debug)]
pub(crate) struct Examined {
    /// Of its readable batches, with the times of `Expected`.
    pub(crate) summary: Summary,
    /// Of its readable batches.
    pub(crate) index: SparseIndex,
    /// What is unreadable.
    pub(crate) damage: Vec<Damage>,
    /// The index that was there is about something else, or not readable.
    pub(crate) is_index_wrong: bool,
    /// Readable batches.
    pub(crate) batches: u64,
}

/// A segment while it is examined.
#[derive(Debug)]
pub(crate) struct Examine {
    expected: Expected,
    scan: Scan,
    walked: Summary,
    index: SparseIndex,
    stored: Option<IndexCheck>,
    is_index_wrong: bool,
    damage: Vec<Damage>,
    batches: u64,
}

impl Examine {
    /// `stored`: the segment's index, where there is one that is whole.
    pub(crate) fn new(expected: Expected, stored: Option<SparseIndex>) -> Examine {
        let summary = &expected.summary;
        Examine {
            scan: Scan::bodies(0, summary.bytes, LARGE_BUFFER),
            walked: Summary::empty(summary.base_offset),
            index: SparseIndex::new(expected.index_interval_bytes),
            is_index_wrong: stored.is_none(),
            stored: stored.map(IndexCheck::new),
            damage: Vec::new(),
            batches: 0,
            expected,
        }
    }

    /// Bytes that were read so far.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.scan.bytes_read()
    }

    /// Reads on until about `bytes` more were read; returns whether the end was reached.
    pub(crate) fn step(&mut self, file: &impl DiskFile, bytes: u64) -> io::Result<bool> {
        let until = self.scan.bytes_read().saturating_add(bytes);
        while self.scan.bytes_read() < until {
            let at = self.scan.position();
            let batch = match self.scan.next(file)? {
                Found::Batch { header, position, .. } => Some((header, position)),
                Found::End if at == self.expected.summary.bytes => {
                    self.note_damage(self.expected.summary.next_offset, None, DamageCause::Missing);
                    return Ok(true);
                }
                Found::End => None,
                Found::Invalid => {
                    if self.skip(file, at, DamageCause::Changed)? {
                        continue;
                    }
                    return Ok(true);
                }
            };
            let goes_on = match batch {
                Some((header, position)) if self.follows(&header) => {
                    self.note(&header, position);
                    true
                }
                Some(_) => self.skip(file, at, DamageCause::Changed)?,
                None => self.skip(file, at, DamageCause::Missing)?,
            };
            if !goes_on {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn follows(&self, header: &BatchHeader) -> bool {
        let (expected, base, next) =
            (self.walked.next_offset, header.base_offset(), header.next_offset());
        let is_next = base == expected || (expected < base && next <= self.expected.gaps_below);
        is_next && next <= self.expected.summary.next_offset
    }

    fn note(&mut self, header: &BatchHeader, position: u64) {
        self.walked.bytes = position;
        let batch = Indexed {
            segment: self.walked.base_offset,
            base_offset: header.base_offset(),
            position,
            bytes: header.size_in_bytes() as u64,
            max_timestamp_before: self.walked.max_timestamp,
        };
        if let Some(stored) = &mut self.stored {
            self.is_index_wrong |= !stored.agrees_with(&batch);
        }
        self.index.note(&batch);
        self.walked.note(header);
        self.batches += 1;
    }

    /// Goes on at the next batch that may follow what is unreadable at `at`; false: there is none.
    fn skip(&mut self, file: &impl DiskFile, at: u64, cause: DamageCause) -> io::Result<bool> {
        self.scan = self.scan.again_from(at);
        let (from, summary) = (self.walked.next_offset, self.expected.summary);
        let is_plausible = |header: &BatchHeader| {
            from <= header.base_offset() && header.next_offset() <= summary.next_offset
        };
        let Some(header) = self.scan.resynchronise(file, is_plausible)? else {
            self.note_damage(summary.next_offset, None, cause);
            return Ok(false);
        };
        let resume = Some((summary.base_offset, self.scan.position()));
        self.note_damage(header.base_offset(), resume, cause);
        // A header without its checksum may be all that is wrong: the batch at `to` follows.
        self.walked.next_offset = header.base_offset();
        self.index.expect_entry();
        Ok(true)
    }

    fn note_damage(&mut self, to: Offset, resume: Option<(Offset, u64)>, cause: DamageCause) {
        let from = self.walked.next_offset;
        if from < to {
            self.damage.push(Damage { from, to, resume, cause });
            self.walked.next_offset = to;
        }
    }

    /// What was found, once [`Examine::step`] has reached the end.
    pub(crate) fn finish(self) -> Examined {
        let known = self.expected.summary;
        let walked = self.walked;
        let has_other_times = self.damage.is_empty()
            && (walked.first_timestamp, walked.max_timestamp, walked.max_timestamp_batch)
                != (known.first_timestamp, known.max_timestamp, known.max_timestamp_batch);
        let is_unused = self.stored.as_ref().is_some_and(|stored| !stored.is_used_up());
        let summary = Summary {
            first_timestamp: walked.first_timestamp,
            max_timestamp: walked.max_timestamp,
            max_timestamp_batch: walked.max_timestamp_batch,
            ..known
        };
        Examined {
            summary,
            index: self.index,
            is_index_wrong: self.is_index_wrong
                || is_unused
                || has_other_times
                || !self.damage.is_empty(),
            damage: self.damage,
            batches: self.batches,
        }
    }
}
