//! Compares what a log answers with what its ghost knows.

use towpath_log::disk::DiskFile;
use towpath_log::{
    AtRecord, LOOKUP_PLAIN_BYTES_MAX, Log, Patience, ReadError, Retention, TimeQuery, TimeStep,
};
use towpath_model::{Offset, Timestamp};
use towpath_records::{BatchHeader, Scratch, split_batches};

use super::ghost::{FoundLog, Ghost, Handed};
use crate::clock::SimClock;
use crate::disk::SimDisk;
use crate::profile::{Violation, ensure};
use crate::rng::Rng;

/// Why a comparison was not finished.
#[derive(Debug)]
pub(super) enum Unread {
    /// The disk refused, or the machine stopped.
    Refused(String),
    /// The log is wrong.
    Wrong(Violation),
}

impl From<Violation> for Unread {
    fn from(violation: Violation) -> Unread {
        Unread::Wrong(violation)
    }
}

fn refused(error: impl std::fmt::Display) -> Unread {
    Unread::Refused(error.to_string())
}

/// The whole log, batch by batch.
pub(super) fn read_all(log: &Log<SimDisk>) -> Result<FoundLog, Unread> {
    let (start, end) = (log.log_start_offset(), log.log_end_offset());
    let mut batches = Vec::new();
    for batch in log.batches(start, end) {
        let (header, bytes) = batch.map_err(refused)?;
        batches.push((header.base_offset(), header.next_offset(), bytes.to_vec()));
    }
    Ok(FoundLog { start, end, batches })
}

/// One read with drawn bounds, as a fetch makes it.
pub(super) fn check_read(log: &Log<SimDisk>, ghost: &Ghost, rng: &mut Rng) -> Result<(), Unread> {
    let (start, end) = (ghost.start(), ghost.end());
    let from = Offset(rng.between(0, end.0 as u64 + 1) as i64);
    // A high watermark lies between two batches.
    let limit = ghost.boundary(rng, start);
    let max_bytes = rng.weighted(&[(1, 1), (2, 500), (2, 100_000)]);
    let at_least_one = rng.percent(50);
    let slice = match log.read(from, limit, max_bytes, at_least_one) {
        Err(ReadError::OutOfRange { .. }) => {
            let is_outside = from < start || end < from;
            ensure!(is_outside, "INV-R13", "{from} is refused, the log holds [{start}, {end})");
            return Ok(());
        }
        other => other.map_err(refused)?,
    };
    ensure!(start <= from && from <= end, "INV-T7", "{from} is read, outside [{start}, {end})");
    let expected = expected_batches(ghost, from, limit);
    let Some(slice) = slice else {
        let first = expected.first().map(|batch| batch.bytes.len());
        let has_nothing = first.is_none_or(|len| !at_least_one && max_bytes < len);
        ensure!(has_nothing, "INV-R13", "nothing is read at {from}, a batch is there");
        return Ok(());
    };
    let mut bytes = vec![0; slice.len];
    let read = slice.file.read_at(&mut bytes, slice.position).map_err(refused)?;
    ensure!(read == bytes.len(), "INV-R13", "a slice of {} bytes holds {read}", bytes.len());
    let fits = bytes.len() <= max_bytes || (at_least_one && slice_is_one_batch(&bytes));
    ensure!(fits, "INV-R13", "{} bytes are read, {max_bytes} were asked for", bytes.len());
    check_slice(&bytes, &expected, from)?;
    let read_end = slice.next_offset;
    ensure!(read_end <= limit, "INV-R12", "read up to {read_end}, beyond {limit}");
    Ok(())
}

fn expected_batches(ghost: &Ghost, from: Offset, limit: Offset) -> Vec<&Handed> {
    let batches = ghost.batches_from(from).iter().map(|batch| &**batch);
    batches.take_while(|batch| batch.next <= limit).collect()
}

fn slice_is_one_batch(bytes: &[u8]) -> bool {
    BatchHeader::parse(bytes).is_ok_and(|header| header.size_in_bytes() == bytes.len())
}

fn check_slice(bytes: &[u8], expected: &[&Handed], from: Offset) -> Result<(), Violation> {
    let mut expected = expected.iter();
    let mut rest = bytes;
    while !rest.is_empty() {
        let Some(batch) = expected.next() else {
            return Err(Violation::new("INV-R12", format!("a read at {from} goes beyond its end")));
        };
        ensure!(
            rest.starts_with(&batch.bytes),
            "INV-R13",
            "a read at {from} has other bytes than batch [{}, {})",
            batch.base,
            batch.next
        );
        rest = &rest[batch.bytes.len()..];
    }
    ensure!(!bytes.is_empty(), "INV-R13", "an empty slice at {from}");
    ensure!(split_batches(bytes).count() != 0, "INV-R13", "no batch in the slice at {from}");
    Ok(())
}

/// A lookup by time against a search through everything.
pub(super) fn check_timestamp(
    log: &Log<SimDisk>,
    ghost: &Ghost,
    rng: &mut Rng,
) -> Result<(), Unread> {
    let (start, limit) = (ghost.start(), ghost.boundary(rng, ghost.start()));
    let records = || {
        let batches = expected_batches(ghost, start, limit);
        batches.into_iter().flat_map(|batch| {
            let numbered = batch.timestamps.iter().enumerate();
            numbered.map(move |(at, timestamp)| (*timestamp, batch.base + at as i64))
        })
    };
    let in_log = || records().filter(|(_, offset)| start <= *offset);
    let all: Vec<Timestamp> = in_log().map(|(timestamp, _)| timestamp).collect();
    let sought = match all.len() {
        0 => Timestamp(rng.below(1_000) as i64),
        len => Timestamp(all[rng.index(len)].0 + rng.below(3) as i64 - 1),
    };
    let expected = in_log().find(|(timestamp, _)| sought <= *timestamp);
    let found = find(log, TimeQuery::AtOrAfter(sought), limit, rng)?;
    let found = found.map(|(timestamp, offset, _)| (timestamp, offset));
    ensure!(
        found == expected,
        "INV-L4",
        "first record at or after {sought} below {limit}: {found:?}, should be {expected:?}"
    );
    let newest = in_log().map(|(timestamp, _)| timestamp).max();
    let found = find(log, TimeQuery::Newest, limit, rng)?;
    let found_newest = found.map(|(timestamp, ..)| timestamp);
    ensure!(
        found_newest == newest,
        "INV-L4",
        "newest timestamp below {limit} in [{start}, …): {found:?}, should be {newest:?}"
    );
    Ok(())
}

/// Looks with little patience and memory at first, as the server does.
fn find(
    log: &Log<SimDisk>,
    query: TimeQuery,
    limit: Offset,
    rng: &mut Rng,
) -> Result<Option<AtRecord>, Unread> {
    let mut scratch = Scratch::new();
    let patience = Patience::Hasty(rng.below(1_000));
    let mut lookup = log.time_lookup(query, Offset::ZERO, limit);
    loop {
        let step = match lookup.advance(patience) {
            Err(ReadError::NotResident) => lookup.advance(Patience::Patient),
            step => step,
        };
        match (step.map_err(refused)?, lookup.goes_on_at()) {
            (TimeStep::Look, _) => {
                for plain_bytes_max in [100, LOOKUP_PLAIN_BYTES_MAX] {
                    if lookup.look(plain_bytes_max, &mut scratch).map_err(refused)? {
                        break;
                    }
                }
            }
            (TimeStep::Done, Some(from)) => lookup = log.time_lookup(query, from, limit),
            (TimeStep::Done, None) => return Ok(lookup.found()),
        }
    }
}

/// What retention wants to remove, judged batch by batch (INV-T5).
pub(super) fn check_expired(
    ghost: &Ghost,
    to: Offset,
    limit: Offset,
    clock: &SimClock,
    retention: &Retention,
) -> Result<(), Violation> {
    let now = clock.now().wall;
    ensure!(ghost.start() < to, "INV-T7", "retention moves {} to {to}", ghost.start());
    ensure!(to <= limit, "INV-T5", "retention removes up to {to}, above {limit}");
    let bytes_from = |offset: Offset| -> u64 {
        ghost.batches_from(offset).iter().map(|batch| batch.bytes.len() as u64).sum()
    };
    let removed = ghost.batches_from(ghost.start()).iter().take_while(|batch| batch.next <= to);
    for batch in removed {
        // Segments behind this one may have gone by age after this one went by size.
        let kept = bytes_from(if retention.time.is_some() { batch.next } else { to });
        let by_size = retention.bytes.is_some_and(|bytes| bytes <= kept);
        let by_age = retention.time.is_some_and(|age| {
            let age = age.as_millis() as i64;
            let newest = batch.max_timestamp.0.min(batch.appended.0);
            newest + age <= now.0
        });
        // What a clock that jumped calls old cannot be judged.
        let by_age = by_age || (retention.time.is_some() && batch.clock_jumps != clock.jumps());
        ensure!(
            by_size || by_age,
            "INV-T5",
            "batch [{}, {}) of {} (appended {}) is removed at {now}, {kept} bytes stay",
            batch.base,
            batch.next,
            batch.max_timestamp,
            batch.appended
        );
    }
    Ok(())
}
