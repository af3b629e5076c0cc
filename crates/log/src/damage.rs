//! What of a log was durable and cannot be read any more: a lasting fact, kept in a file of its own.
//!
//! ```text
//!  found (recovery, scrub, compaction) ─▶ `damage` file, synced ─▶ refused by name, everything else served
//!                                                                  gone when the log start passes it
//! ```
//!
//! The file is written before an index or a checkpoint lets a start trust the segment: a range that
//! was found once is refused until its records are gone. A replica may repair it later.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use towpath_model::Offset;

use crate::disk::Disk;
use crate::envelope::{self, Kind, Payload};
use crate::error::LogError;

const DAMAGE: Kind = *b"TPdm";
const NAME: &str = "damage";
const ENTRY_BYTES: usize = 33;
/// Beyond so many ranges neighbours are joined, and the good records between them are refused too.
const RANGES_MAX: usize = 10_000;
const BYTES_MAX: u64 = (envelope::HEADER_LEN + 4 + ENTRY_BYTES * RANGES_MAX) as u64;

/// What is wrong with the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DamageCause {
    /// They are not the bytes that were written.
    Changed,
    /// They were confirmed as durable and are not there: the disk has not kept what it confirmed, or
    /// somebody has cut or removed a file.
    Missing,
}

impl fmt::Display for DamageCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DamageCause::Changed => "the bytes on the disk are not those that were written",
            DamageCause::Missing => {
                "bytes that the disk had confirmed as written are not there: it does not keep what it \
                 confirms, or a file was cut or removed"
            }
        })
    }
}

/// Records that were durable and are unreadable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedRange {
    /// Their offsets.
    pub offsets: Range<Offset>,
    /// What is wrong.
    pub cause: DamageCause,
}

/// Records `[from, to)` are unreadable; `resume` is where the batch at `to` lies, where it is in
/// the same segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Damage {
    pub(crate) from: Offset,
    pub(crate) to: Offset,
    pub(crate) resume: Option<(Offset, u64)>,
    pub(crate) cause: DamageCause,
}

impl Damage {
    pub(crate) fn range(&self) -> DamagedRange {
        DamagedRange { offsets: self.from..self.to, cause: self.cause }
    }
}

/// A log's damaged ranges.
///
/// Invariant: none is empty, they rise and do not overlap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DamageList(Vec<Damage>);

/// What the file says.
pub(crate) enum Loaded {
    /// There is none: no damage was ever found, or its records are gone.
    Nothing,
    /// These ranges.
    Known(DamageList),
    /// The file is damaged itself: only a look at every batch tells.
    Unreadable,
}

impl DamageList {
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Damage> {
        self.0.iter()
    }

    pub(crate) fn first(&self) -> Option<&Damage> {
        self.0.first()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a range; returns whether that says anything new.
    pub(crate) fn add(&mut self, found: Damage) -> bool {
        if found.to <= found.from {
            return false;
        }
        let is_known = |d: &Damage| d.from <= found.from && found.to <= d.to;
        if self.0.iter().any(is_known) {
            return false;
        }
        let mut joined = found;
        self.0.retain(|known| {
            let overlaps = known.from < joined.to && joined.from < known.to;
            if overlaps {
                if joined.to < known.to {
                    (joined.to, joined.resume) = (known.to, known.resume);
                }
                joined.from = joined.from.min(known.from);
                joined.cause = joined.cause.max(known.cause);
            }
            !overlaps
        });
        let at = self.0.partition_point(|known| known.from < joined.from);
        self.0.insert(at, joined);
        if RANGES_MAX < self.0.len() {
            self.join_nearest();
        }
        true
    }

    fn join_nearest(&mut self) {
        let gaps = self.0.windows(2).map(|pair| pair[1].from - pair[0].to).enumerate();
        let Some((at, _)) = gaps.min_by_key(|(_, gap)| *gap) else { return };
        let from = self.0[at].from;
        self.0[at + 1].from = from;
        self.0.remove(at);
    }

    /// The range that holds `offset`.
    pub(crate) fn at(&self, offset: Offset) -> Option<&Damage> {
        self.0.iter().find(|damage| damage.from <= offset && offset < damage.to)
    }

    /// The first range that begins after `offset`.
    pub(crate) fn next_after(&self, offset: Offset) -> Option<Offset> {
        self.0.iter().map(|damage| damage.from).find(|from| offset < *from)
    }

    /// Keeps what lies in `[start, end)`; returns whether something went.
    pub(crate) fn clip(&mut self, start: Offset, end: Offset) -> bool {
        let before = self.0.clone();
        self.0.retain(|damage| start < damage.to && damage.from < end);
        for damage in &mut self.0 {
            damage.from = damage.from.max(start);
        }
        self.0 != before
    }

    pub(crate) fn ranges(&self) -> Vec<DamagedRange> {
        self.0.iter().map(Damage::range).collect()
    }

    /// Reads the file in a log's directory. `shows_cached`: a read may show what the disk lacks.
    pub(crate) fn load<D: Disk>(
        disk: &D,
        directory: &Path,
        shows_cached: bool,
    ) -> Result<Loaded, LogError> {
        let path = directory.join(NAME);
        if shows_cached {
            envelope::drop_cached(disk, &path)?;
        }
        if !disk.exists(&path).map_err(LogError::io("read", &path))? {
            return Ok(Loaded::Nothing);
        }
        let bytes = envelope::read_file(disk, &path, BYTES_MAX)?;
        let list = bytes.as_deref().and_then(DamageList::decode);
        Ok(list.map_or(Loaded::Unreadable, Loaded::Known))
    }

    /// Replaces the file, or removes it where there is nothing to say; durable when this returns.
    pub(crate) fn save<D: Disk>(&self, disk: &D, directory: &Path) -> Result<(), LogError> {
        let path = directory.join(NAME);
        if !self.is_empty() {
            return envelope::replace_file(disk, &path, &envelope::seal(DAMAGE, &self.encode()));
        }
        let remove = || {
            if disk.exists(&path)? {
                disk.remove_file(&path)?;
                disk.sync_dir(directory)?;
            }
            Ok(())
        };
        remove().map_err(LogError::io("remove", &path))
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = (self.0.len() as u32).to_be_bytes().to_vec();
        for damage in &self.0 {
            out.extend_from_slice(&damage.from.0.to_be_bytes());
            out.extend_from_slice(&damage.to.0.to_be_bytes());
            out.push(match damage.cause {
                DamageCause::Changed => 1,
                DamageCause::Missing => 2,
            });
            let (segment, position) = damage.resume.unwrap_or((Offset(-1), 0));
            out.extend_from_slice(&segment.0.to_be_bytes());
            out.extend_from_slice(&position.to_be_bytes());
        }
        out
    }

    fn decode(bytes: &[u8]) -> Option<DamageList> {
        let mut payload = Payload(envelope::open(DAMAGE, bytes).ok()?);
        let count = payload.u32()? as usize;
        if payload.0.len() != count.checked_mul(ENTRY_BYTES)? {
            return None;
        }
        let mut list: Vec<Damage> = Vec::with_capacity(count);
        for _ in 0..count {
            let (from, to) = (Offset(payload.i64()?), Offset(payload.i64()?));
            let cause = match payload.array()? {
                [1] => DamageCause::Changed,
                [2] => DamageCause::Missing,
                _ => return None,
            };
            let (segment, position) = (Offset(payload.i64()?), payload.u64()?);
            let rises = list.last().is_none_or(|last| last.to <= from);
            if !rises || to <= from || from < Offset::ZERO {
                return None;
            }
            let resume = (Offset::ZERO <= segment).then_some((segment, position));
            list.push(Damage { from, to, resume, cause });
        }
        Some(DamageList(list))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn damage(from: i64, to: i64) -> Damage {
        let resume = Some((Offset(0), to as u64 * 10));
        Damage { from: Offset(from), to: Offset(to), resume, cause: DamageCause::Changed }
    }

    fn spans(list: &DamageList) -> Vec<(i64, i64)> {
        list.iter().map(|d| (d.from.0, d.to.0)).collect()
    }

    #[test]
    fn ranges_are_kept_apart_joined_and_clipped() {
        let mut list = DamageList::default();
        assert!(list.add(damage(10, 20)));
        assert!(list.add(damage(0, 5)));
        assert!(!list.add(damage(12, 13)), "known");
        assert!(!list.add(damage(7, 7)), "nothing");
        assert_eq!(spans(&list), [(0, 5), (10, 20)]);
        assert!(list.add(damage(3, 11)));
        assert_eq!(spans(&list), [(0, 20)]);
        assert_eq!(list.iter().next().unwrap().resume, Some((Offset(0), 200)));
        assert!(list.clip(Offset(15), Offset(30)));
        assert_eq!(spans(&list), [(15, 20)]);
        assert!(!list.clip(Offset(15), Offset(16)));
        assert!(list.clip(Offset(20), Offset(30)));
        assert!(list.is_empty());
    }

    #[test]
    fn a_list_comes_back_from_its_bytes_and_other_bytes_do_not() {
        let mut list = DamageList::default();
        list.add(damage(10, 20));
        list.add(Damage { resume: None, cause: DamageCause::Missing, ..damage(30, 31) });
        let sealed = envelope::seal(DAMAGE, &list.encode());
        assert_eq!(DamageList::decode(&sealed), Some(list.clone()));
        let mut backwards = list.clone();
        backwards.0.reverse();
        assert_eq!(DamageList::decode(&envelope::seal(DAMAGE, &backwards.encode())), None);
        assert_eq!(DamageList::decode(&sealed[..sealed.len() - 1]), None);
    }

    #[test]
    fn so_many_ranges_that_they_would_fill_the_file_are_joined() {
        let mut list = DamageList::default();
        for n in 0..=RANGES_MAX as i64 {
            list.add(damage(n * 10, n * 10 + if n == 3 { 9 } else { 2 }));
        }
        assert_eq!(list.iter().count(), RANGES_MAX);
        assert_eq!(list.at(Offset(39)).map(|d| (d.from.0, d.to.0)), Some((30, 42)));
    }
}
