//! Finding an offset: by its place, which is known at once, or by its time, which has to be read.
//!
//! A search by time takes along what it has to look at and holds no lock while it reads: neither
//! the disk nor a large batch may hold up those who write to the partition. So the log may have
//! changed when it is done, and then it begins anew.

use std::sync::Arc;

use towpath_log::disk::Disk;
use towpath_log::{AtRecord, Patience, ReadError, TimeLookup, TimeQuery, TimeStep};
use towpath_model::{LeaderEpoch, Offset, Timestamp, TopicPartition};
use towpath_records::Scratch;

use crate::cell::Cell;
use crate::driver::Driver;
use crate::fetch::{FetchRefusal, refused};
use crate::volume::VolumeIndex;
use crate::world::{Clock, Net};

/// How often a search begins anew because the log has changed. Compaction and retention replace a
/// segment once in minutes.
const CHANGES_MAX: u32 = 3;

/// Which offset a reader asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OffsetQuery {
    /// The first offset kept.
    Earliest,
    /// The first offset a new reader would get next: high watermark or last stable offset.
    Latest,
    /// The record with the largest timestamp (KIP-734).
    MaxTimestamp,
    /// The first record that is not older than this.
    AtOrAfter(Timestamp),
}

/// The answer to an [`OffsetQuery`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OffsetAnswer {
    /// The offset.
    pub offset: Offset,
    /// Timestamp of the record there, where one was looked for.
    pub timestamp: Option<Timestamp>,
    /// Leader epoch of that record, or of the leader.
    pub leader_epoch: LeaderEpoch,
}

/// What became of an [`OffsetQuery`].
pub enum Finding<D: Disk> {
    /// The answer. `None`: no record is that new.
    Found(Option<OffsetAnswer>),
    /// It has to be searched for; then [`Driver::conclude`] is next.
    Search(Box<TimeSearch<D>>),
}

/// A search by time.
pub struct TimeSearch<D: Disk> {
    cell: Arc<Cell<D>>,
    query: TimeQuery,
    end: Offset,
    lookup: TimeLookup<D>,
    changes: u32,
}

impl<D: Disk> TimeSearch<D> {
    /// In which data directory it searches.
    pub fn volume(&self) -> VolumeIndex {
        self.cell.volume
    }

    /// Size of the batch that has to be looked at, as it is stored.
    pub fn batch_bytes(&self) -> usize {
        self.lookup.batch_bytes()
    }

    /// Goes on to the next batch that has to be looked at.
    ///
    /// # Errors
    /// [`FetchRefusal::NotResident`] when that takes more than its patience, otherwise the refusal
    /// that [`Driver::conclude`] has to judge.
    pub fn advance(&mut self, patience: Patience) -> Result<TimeStep, FetchRefusal> {
        self.lookup.advance(patience).map_err(|error| unread(&error))
    }

    /// Looks at that batch in at most so many bytes of memory. `false`: it takes more.
    ///
    /// # Errors
    /// When the records are damaged.
    pub fn look(
        &mut self,
        plain_bytes_max: usize,
        scratch: &mut Scratch,
    ) -> Result<bool, FetchRefusal> {
        self.lookup.look(plain_bytes_max, scratch).map_err(|error| refused(&error))
    }
}

fn unread(error: &ReadError) -> FetchRefusal {
    match error {
        ReadError::NotResident => FetchRefusal::NotResident,
        ReadError::Log(error) => refused(error),
        ReadError::CorruptBatch { .. } => FetchRefusal::Corrupt(error.to_string()),
        ReadError::OutOfRange { .. } => FetchRefusal::Storage(error.to_string()),
    }
}

fn at_record(found: Option<AtRecord>) -> Option<OffsetAnswer> {
    found.map(|(timestamp, offset, leader_epoch)| OffsetAnswer {
        offset,
        timestamp: Some(timestamp),
        leader_epoch,
    })
}

impl<D: Disk, C: Clock, N: Net> Driver<D, C, N> {
    /// Finds an offset by its place, or begins to search for it. Reads nothing.
    ///
    /// # Errors
    /// [`FetchRefusal`].
    pub fn find_offset(
        &self,
        id: TopicPartition,
        epoch: Option<LeaderEpoch>,
        stable_only: bool,
        query: OffsetQuery,
    ) -> Result<Finding<D>, FetchRefusal> {
        let cell = self.led(id)?;
        let slot = self.locked(&cell)?;
        let leader = slot.leader()?;
        leader.check_epoch(epoch)?;
        let position = slot.position();
        let end = if stable_only { position.last_stable_offset } else { position.high_watermark };
        let query = match query {
            OffsetQuery::Earliest => {
                let offset = position.log_start_offset;
                let leader_epoch = leader.epochs().epoch_of(offset);
                let leader_epoch = leader_epoch.unwrap_or(position.leader_epoch);
                return Ok(Finding::Found(Some(OffsetAnswer {
                    offset,
                    timestamp: None,
                    leader_epoch,
                })));
            }
            OffsetQuery::Latest if !leader.is_high_watermark_certain() => {
                return Err(FetchRefusal::NotAvailable);
            }
            OffsetQuery::Latest => {
                let leader_epoch = position.leader_epoch;
                let answer = OffsetAnswer { offset: end, timestamp: None, leader_epoch };
                return Ok(Finding::Found(Some(answer)));
            }
            OffsetQuery::MaxTimestamp => TimeQuery::Newest,
            OffsetQuery::AtOrAfter(at) => TimeQuery::AtOrAfter(at),
        };
        let lookup = slot.log.time_lookup(query, Offset::ZERO, end);
        drop(slot);
        Ok(Finding::Search(Box::new(TimeSearch { cell, query, end, lookup, changes: 0 })))
    }

    /// Judges a search that is done, or that was refused: by then its segments may have been gone.
    /// Reads nothing.
    ///
    /// # Errors
    /// [`FetchRefusal`].
    pub fn conclude(
        &self,
        mut search: Box<TimeSearch<D>>,
        searched: Result<(), FetchRefusal>,
    ) -> Result<Finding<D>, FetchRefusal> {
        let cell = Arc::clone(&search.cell);
        let slot = self.locked(&cell)?;
        let leader = slot.leader()?;
        let from = if slot.log.has_seen(&mut search.lookup) {
            searched?;
            match search.lookup.goes_on_at() {
                None => {
                    let found = at_record(search.lookup.found());
                    // What it did not find may lie where it could not look.
                    let is_certain = found.is_some() || leader.is_high_watermark_certain();
                    return match is_certain {
                        true => Ok(Finding::Found(found)),
                        false => Err(FetchRefusal::NotAvailable),
                    };
                }
                Some(from) => from,
            }
        } else if search.changes < CHANGES_MAX {
            search.changes += 1;
            Offset::ZERO
        } else {
            let why = "segments are replaced faster than they can be searched: ask again";
            return Err(FetchRefusal::Storage(why.to_owned()));
        };
        search.lookup = slot.log.time_lookup(search.query, from, search.end);
        Ok(Finding::Search(search))
    }
}
