use towpath_model::{LeaderEpoch, Offset, Timestamp};
use towpath_records::{Compression, Scratch, set_log_append_time};

use super::fixture::*;
use crate::testing::{Dice, MemoryDisk};
use crate::timestamps::{
    AtRecord, LOOKUP_PLAIN_BYTES_MAX, Patience, TimeLookup, TimeQuery, TimeStep,
};
use crate::{LogError, ReadError};

/// Looks without patience and with little memory first, each time.
pub(super) fn find(log: &TestLog, query: TimeQuery, end: i64) -> Option<AtRecord> {
    let mut lookup = log.time_lookup(query, Offset::ZERO, Offset(end));
    loop {
        let found = in_steps(&mut lookup).unwrap();
        assert!(log.has_seen(&mut lookup));
        match lookup.goes_on_at() {
            Some(from) => lookup = log.time_lookup(query, from, Offset(end)),
            None => return found,
        }
    }
}

fn in_steps(lookup: &mut TimeLookup<MemoryDisk>) -> Result<Option<AtRecord>, ReadError> {
    let mut scratch = Scratch::new();
    loop {
        let step = match lookup.advance(Patience::Hasty(70)) {
            Err(ReadError::NotResident) => lookup.advance(Patience::Patient)?,
            step => step?,
        };
        match step {
            TimeStep::Done => return Ok(lookup.found()),
            TimeStep::Look => {
                if !lookup.look(10, &mut scratch)? {
                    assert!(lookup.look(LOOKUP_PLAIN_BYTES_MAX, &mut scratch)?);
                }
            }
        }
    }
}

#[test]
fn the_first_record_that_is_not_older_is_found_among_unordered_times() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (mut log, _) = open_log(&directory, 0);
    let mut dice = Dice(7);
    let mut times = Vec::new();
    for n in 0..60 {
        let at = log.log_end_offset();
        let batch_times: Vec<i64> =
            (0..1 + dice.below(5)).map(|_| n * 10 + dice.below(200) as i64).collect();
        let batch =
            batch(at, &batch_times, 40, Compression::ALL[n as usize % Compression::ALL.len()]);
        try_append(&mut log, &batch, 1).unwrap();
        times.extend(batch_times);
    }
    assert!(2 < log.segment_count());
    check(&mut log, &times);
    drop((log, directory));
    disk.kill();
    let (directory, _) = open(&disk);
    let (mut log, _) = open_log(&directory, 0);
    check(&mut log, &times);
    log.start_moves_to(Offset(31)).unwrap();
    check(&mut log, &times);
}

fn check(log: &mut TestLog, times: &[i64]) {
    let start = log.log_start_offset().0 as usize;
    for end in [start, start + 1, start + 7, times.len() / 2, times.len()] {
        let known = || (start..end).map(|offset| (times[offset], offset as i64));
        for at in (0..850).step_by(3) {
            let expected = known().find(|(time, _)| at <= *time);
            let query = TimeQuery::AtOrAfter(Timestamp(at));
            let found = find(log, query, end as i64);
            let found = found.map(|(time, offset, epoch)| {
                assert_eq!(epoch, LeaderEpoch(0));
                (time.0, offset.0)
            });
            assert_eq!(found, expected, "at {at}, end {end}");
        }
        let newest = known().fold(None, |best: Option<(i64, i64)>, next| match best {
            Some(best) if next.0 <= best.0 => Some(best),
            _ => Some(next),
        });
        let found = find(log, TimeQuery::Newest, end as i64);
        assert_eq!(found.map(|(time, offset, _)| (time.0, offset.0)), newest, "end {end}");
    }
}

#[test]
fn the_brokers_time_counts_where_the_topic_says_so() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (mut log, _) = open_log(&directory, 0);
    for wall in [100, 200] {
        let mut batch = batch(log.log_end_offset(), &[5, 900, 7], 10, Compression::Lz4);
        set_log_append_time(&mut batch, Timestamp(wall));
        try_append(&mut log, &batch, wall).unwrap();
    }
    let found = find(&log, TimeQuery::AtOrAfter(Timestamp(101)), 6).unwrap();
    assert_eq!((found.0, found.1), (Timestamp(200), Offset(3)));
    assert_eq!(find(&log, TimeQuery::AtOrAfter(Timestamp(201)), 6), None);
    let newest = find(&log, TimeQuery::Newest, 6).unwrap();
    assert_eq!((newest.0, newest.1), (Timestamp(200), Offset(3)));
}

#[test]
fn an_empty_log_has_no_times() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (log, _) = open_log(&directory, 0);
    assert_eq!(find(&log, TimeQuery::Newest, 0), None);
    assert_eq!(find(&log, TimeQuery::AtOrAfter(Timestamp(0)), 0), None);
}

/// A lookup holds no lock: meanwhile a segment that it has not opened yet may go.
#[test]
fn a_lookup_whose_segments_went_meanwhile_has_to_be_begun_anew() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (mut log, _) = open_log(&directory, 0);
    while log.segment_count() < 4 {
        let at = log.log_end_offset();
        try_append(&mut log, &batch(at, &[at.0 + 100], 40, Compression::None), 1).unwrap();
    }
    drop((log, directory));
    let (directory, _) = open(&disk);
    let (mut log, _) = open_log(&directory, 0);
    let end = log.log_end_offset();
    let mut lookup = log.time_lookup(TimeQuery::AtOrAfter(Timestamp(0)), Offset::ZERO, end);
    assert!(matches!(lookup.advance(Patience::Hasty(1_000)), Err(ReadError::NotResident)));
    log.start_moves_to(end).unwrap();
    assert!(matches!(in_steps(&mut lookup), Err(ReadError::Log(LogError::Io { .. })) | Ok(_)));
    assert!(!log.has_seen(&mut lookup));
}
