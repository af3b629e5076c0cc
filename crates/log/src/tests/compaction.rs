//! Compaction against a model: the newest record of each key stays, at its place, and no crash, no
//! read and no lookup sees anything in between (INV-T1, INV-T2, INV-T3).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use towpath_model::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};
use towpath_records::{
    BatchBuilder, BatchHeader, Compression, Scratch, records, set_leader_epoch, split_batches,
};

use super::fixture::*;
use super::timestamps::find;
use crate::testing::{Dice, MemoryDisk};
use crate::{
    Compacted, Compaction, CompactionError, CompactionRules, ReadError, Retention, Step, TimeQuery,
};

const RULES: CompactionRules = CompactionRules {
    min_lag: Duration::ZERO,
    max_lag: None,
    min_dirty_ratio: 0.5,
    tombstones_kept: Duration::from_millis(1000),
    key_bytes_max: 1 << 20,
};

/// Offset, timestamp, key, value.
type Visible = (i64, i64, Option<Vec<u8>>, Option<Vec<u8>>);

/// Key and value.
type KeyValue = (Option<Vec<u8>>, Option<Vec<u8>>);

fn record(key: u8, value: Option<u8>) -> KeyValue {
    (Some(vec![b'k', key]), value.map(|value| vec![value; 30]))
}

/// Appends one batch of an idempotent producer whose sequences follow the offsets.
fn put(log: &mut TestLog, records: &[KeyValue], wall: i64) {
    put_as(log, records, wall, Compression::None);
}

fn put_as(log: &mut TestLog, records: &[KeyValue], wall: i64, codec: Compression) {
    let at = log.log_end_offset();
    let mut builder = BatchBuilder::new(codec, Timestamp(wall));
    builder.set_base_offset(at);
    builder.set_producer(ProducerId(1), ProducerEpoch(0), Sequence(at.0 as i32));
    for (n, (key, value)) in (0..).zip(records) {
        builder.append(Timestamp(wall + n), key.as_deref(), value.as_deref(), []).unwrap();
    }
    let mut batch = builder.build();
    set_leader_epoch(&mut batch, LeaderEpoch(0));
    try_append(log, &batch, wall).unwrap();
}

/// Everything up to the end goes into sealed, durable segments.
fn seal(directory: &Directory, log: &mut TestLog) {
    commit(directory, &mut [log]);
    log.seal();
    commit(directory, &mut [log]);
}

fn compact_with(
    log: &mut TestLog,
    rules: &CompactionRules,
    wall: i64,
    kept: &[i64],
) -> Result<Option<Compacted>, CompactionError> {
    let kept: BTreeSet<Offset> = kept.iter().map(|offset| Offset(*offset)).collect();
    let limit = log.log_end_offset();
    let Some(pass) = log.begin_compaction(rules, now(wall), limit, kept)? else {
        return Ok(None);
    };
    run(log, pass).map(Some)
}

fn run(log: &mut TestLog, mut pass: Compaction<MemoryDisk>) -> Result<Compacted, CompactionError> {
    loop {
        match pass.step()? {
            Step::Worked => {}
            Step::Replace(replacement) => {
                if !log.replace(&replacement)? {
                    pass.abandon();
                    return Err(CompactionError::Superseded);
                }
            }
            Step::Finished(compacted) => {
                log.compacted(&compacted);
                return Ok(compacted);
            }
        }
    }
}

fn compact(log: &mut TestLog, wall: i64) -> Compacted {
    compact_with(log, &RULES, wall, &[]).unwrap().expect("something to compact")
}

/// What a consumer gets that reads from the start; it asserts that it never gets an empty batch.
fn visible(log: &TestLog) -> Vec<Visible> {
    let mut at = log.log_start_offset();
    let mut all = Vec::new();
    let mut scratch = Scratch::new();
    while let Some(slice) = log.read(at, log.log_end_offset(), 700, true).unwrap() {
        let bytes = slice.read().unwrap();
        for batch in split_batches(&bytes) {
            let header = batch.header;
            assert!(0 < header.record_count());
            for record in records(batch.bytes, 1 << 20, &mut scratch).unwrap() {
                let record = record.unwrap();
                let offset = header.offset_of(record.offset_delta);
                if log.log_start_offset() <= offset {
                    let time = header.timestamp_of(record.timestamp_delta).0;
                    let own = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
                    all.push((offset.0, time, own(record.key), own(record.value)));
                }
            }
        }
        assert!(at < slice.next_offset);
        at = slice.next_offset;
    }
    assert_eq!(at, log.log_end_offset(), "a reader comes to the end");
    all
}

fn offsets(log: &TestLog) -> Vec<i64> {
    visible(log).into_iter().map(|(offset, ..)| offset).collect()
}

fn headers(log: &TestLog) -> Vec<BatchHeader> {
    log.headers(Offset::ZERO).map(Result::unwrap).collect()
}

#[test]
fn of_each_key_the_newest_record_stays_where_it_was() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (mut log, _) = open_log(&directory, 0);
    for n in 0..40 {
        put(&mut log, &[record(n % 4, Some(n)), record(9, Some(n))], 1000 + i64::from(n));
    }
    commit(&directory, &mut [&mut log]);
    let before = visible(&log);
    assert!(1 < log.segment_count());
    seal(&directory, &mut log);
    put(&mut log, &[record(0, Some(77))], 2000);
    commit(&directory, &mut [&mut log]);
    let state = log.compaction_state(&RULES, now(3000), log.log_end_offset());
    assert!(state.is_due && state.clean_bytes == 0);
    let compacted = compact(&mut log, 3000);
    assert_eq!((compacted.clean, compacted.keys), (Offset(80), 5));
    assert_eq!(compacted.records_removed, 75);
    // The active segment is as it was, and so is the record that it overtakes.
    assert_eq!(offsets(&log), [72, 74, 76, 78, 79, 80]);
    assert!(visible(&log)[..5].iter().all(|record| before.contains(record)));
    assert_eq!(log.segment_count(), 2, "small segments become one");
    let state = log.compaction_state(&RULES, now(3000), log.log_end_offset());
    assert!(!state.is_due && state.dirty_bytes == 0 && 0 < state.clean_bytes);
    // By time, across the gaps.
    let found = |at: i64| find(&log, TimeQuery::AtOrAfter(Timestamp(at)), 81);
    assert_eq!(found(0).map(|(_, offset, _)| offset), Some(Offset(72)));
    assert_eq!(found(1037).map(|(_, offset, _)| offset), Some(Offset(74)));
    assert_eq!(find(&log, TimeQuery::Newest, 80).map(|(_, o, _)| o), Some(Offset(79)));
    // A read in the middle of a gap begins with what follows it.
    let slice = log.read(Offset(10), Offset(81), 10_000, true).unwrap().unwrap();
    assert_eq!(slice.first_offset, Offset(72));
    directory.close([&mut log]).unwrap();
    drop((log, directory));
    let (directory, _) = open(&disk);
    let (mut log, recovery) = open_log(&directory, 0);
    assert_eq!((recovery.damage, recovery.cut), (vec![], None));
    assert_eq!(offsets(&log), [72, 74, 76, 78, 79, 80]);
    let state = log.compaction_state(&RULES, now(3000), log.log_end_offset());
    assert_eq!((state.clean, state.dirty_bytes), (Offset(80), 0));
}

#[test]
fn a_tombstone_stays_for_its_time_and_then_goes_without_new_records() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (mut log, _) = open_log(&directory, 0);
    put(&mut log, &[record(1, Some(1)), record(2, Some(2))], 10);
    put_as(&mut log, &[record(1, None), record(3, Some(3))], 20, Compression::Lz4);
    seal(&directory, &mut log);
    let compacted = compact(&mut log, 500);
    assert_eq!(offsets(&log), [1, 2, 3]);
    assert_eq!(compacted.horizon, Some(Timestamp(1500)));
    assert_eq!(visible(&log)[1], (2, 20, record(1, None).0, None), "its timestamp is as it was");
    let is_due =
        |log: &mut TestLog, at: i64| log.compaction_state(&RULES, now(at), Offset(4)).is_due;
    assert!(!is_due(&mut log, 1499));
    compact(&mut log, 1499);
    assert_eq!(offsets(&log), [1, 2, 3]);
    assert!(is_due(&mut log, 1500));
    let compacted = compact(&mut log, 1500);
    assert_eq!(offsets(&log), [1, 3]);
    assert_eq!(compacted.horizon, None);
    assert!(!is_due(&mut log, 9_000_000));
}

#[test]
fn the_last_record_stays_even_when_it_is_an_old_tombstone_or_has_no_key() {
    for last in [record(1, None), (None, Some(vec![7]))] {
        let disk = MemoryDisk::default();
        let (directory, _) = open(&disk);
        let (mut log, _) = open_log(&directory, 0);
        put(&mut log, &[record(1, Some(1)), (None, Some(vec![1])), last], 10);
        seal(&directory, &mut log);
        for wall in [1_000, 10_000, 100_000] {
            compact(&mut log, wall);
            let expected: &[i64] = if visible(&log).len() == 1 { &[2] } else { &[0, 2] };
            assert_eq!(offsets(&log), expected);
        }
        put(&mut log, &[record(2, Some(1))], 100_010);
        seal(&directory, &mut log);
        compact(&mut log, 100_020);
        compact(&mut log, 200_000);
        assert!(!offsets(&log).contains(&2), "something follows it now");
    }
}

#[test]
fn live_producers_and_ends_of_segments_keep_a_header_that_no_reader_sees() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (mut log, _) = open_log(&directory, 0);
    put(&mut log, &[record(1, Some(1)), record(2, Some(1))], 10);
    put(&mut log, &[record(1, Some(2))], 20);
    put(&mut log, &[record(1, Some(3))], 30);
    seal(&directory, &mut log);
    put(&mut log, &[record(1, Some(4)), record(2, Some(4))], 40);
    seal(&directory, &mut log);
    compact_with(&mut log, &RULES, 50, &[2]).unwrap().unwrap();
    assert_eq!(offsets(&log), [4, 5]);
    let kept: Vec<_> = headers(&log)
        .iter()
        .map(|h| (h.base_offset().0, h.next_offset().0, h.base_sequence().0, h.record_count()))
        .collect();
    assert_eq!(kept, [(2, 3, 2, 0), (4, 6, 4, 2)]);
    // Nobody knows the producer any more.
    compact_with(&mut log, &RULES, 60, &[]).unwrap().unwrap();
    assert_eq!(headers(&log).len(), 1);
}

#[test]
fn a_segment_that_is_left_without_records_still_ends_where_it_ended() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (mut log, _) = open_log(&directory, 0);
    put(&mut log, &[record(1, Some(1))], 10);
    seal(&directory, &mut log);
    let large: Vec<_> = (0..25).map(|key| record(key, Some(2))).collect();
    put(&mut log, &large, 20);
    seal(&directory, &mut log);
    log.set_config(crate::LogConfig { segment_bytes: 1000, ..CONFIG });
    compact(&mut log, 50);
    assert_eq!(log.segment_count(), 2);
    assert_eq!(headers(&log)[0].next_offset(), Offset(1));
    assert_eq!(offsets(&log).len(), 25);
    assert_eq!(log.read(Offset(0), Offset(1), 1000, true).unwrap().map(|s| s.len), None);
    let first = log.read(Offset(0), Offset(26), 10_000, true).unwrap().unwrap();
    assert_eq!(first.first_offset, Offset(1));
    assert_eq!(find(&log, TimeQuery::AtOrAfter(Timestamp(0)), 26).unwrap().1, Offset(1));
    assert_eq!(find(&log, TimeQuery::Newest, 1), None);
}

#[test]
fn a_small_map_takes_several_passes() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (mut log, _) = open_log(&directory, 0);
    let long = |n: u32| Some(format!("{:0200}", n % 90).into_bytes());
    for n in 0..180 {
        put(&mut log, &[(long(n), Some(vec![n as u8; 20]))], i64::from(n));
    }
    seal(&directory, &mut log);
    let rules = CompactionRules { key_bytes_max: 0, ..RULES };
    let mut clean = Offset::ZERO;
    let mut passes = 0;
    while clean < Offset(180) {
        let compacted = compact_with(&mut log, &rules, 500, &[]).unwrap().unwrap();
        assert!(clean < compacted.clean, "each pass goes further");
        clean = compacted.clean;
        passes += 1;
    }
    assert!(1 < passes);
    assert_eq!(offsets(&log), (90..180).collect::<Vec<_>>());
}

#[test]
fn a_key_that_no_map_can_hold_keeps_all_of_its_records() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (mut log, _) = open_log(&directory, 0);
    let giant = Some(vec![b'k'; 5000]);
    put(&mut log, &[(giant.clone(), Some(vec![1])), record(1, Some(1))], 10);
    put(&mut log, &[(giant, None), record(1, Some(2))], 20);
    seal(&directory, &mut log);
    let rules = CompactionRules { key_bytes_max: 0, ..RULES };
    for wall in [500, 10_000] {
        compact_with(&mut log, &rules, wall, &[]).unwrap().unwrap();
        assert_eq!(offsets(&log), [0, 2, 3]);
    }
}

#[test]
fn lags_and_the_limit_hold_records_back_or_press_them_on() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (mut log, _) = open_log(&directory, 0);
    for wall in [100, 200, 300] {
        put(&mut log, &[record(1, Some(wall as u8))], wall);
        seal(&directory, &mut log);
    }
    put(&mut log, &[record(1, Some(9))], 400);
    let rules = CompactionRules { min_lag: Duration::from_millis(50), ..RULES };
    let dirty = |log: &mut TestLog, rules: &CompactionRules, wall: i64, limit: i64| {
        let one = log.segments[0].bytes;
        let state = log.compaction_state(rules, now(wall), Offset(limit));
        (state.dirty_bytes / one, state.is_due)
    };
    assert_eq!(dirty(&mut log, &rules, 400, 4), (3, true));
    assert_eq!(dirty(&mut log, &rules, 251, 4), (2, true), "the third is too young");
    assert_eq!(dirty(&mut log, &rules, 400, 2), (2, true), "the third is above the limit");
    assert_eq!(dirty(&mut log, &rules, 140, 4), (0, false));
    let never = CompactionRules { min_dirty_ratio: 1.0, ..RULES };
    assert_eq!(dirty(&mut log, &never, 400, 4), (3, false));
    let late = CompactionRules { max_lag: Some(Duration::from_millis(150)), ..never };
    assert_eq!(dirty(&mut log, &late, 249, 4), (3, false));
    assert_eq!(dirty(&mut log, &late, 250, 4), (3, true), "the first has waited for 150 ms");
}

#[test]
fn records_that_the_caller_names_go_from_the_segments_it_names() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (mut log, _) = open_log(&directory, 0);
    for nth in 0..4 {
        put(&mut log, &[(None, Some(vec![nth; 30])), record(1, Some(nth)), record(1, None)], 1);
        seal(&directory, &mut log);
    }
    put(&mut log, &[record(9, Some(9))], 1);
    commit(&directory, &mut [&mut log]);
    let limit = log.log_end_offset();
    let segments = log.sealed_segments(limit);
    let spans: Vec<_> = segments.iter().map(|one| one.offsets.start.0..one.offsets.end.0).collect();
    assert_eq!(spans, [0..3, 3..6, 6..9, 9..12]);
    assert_eq!(log.sealed_segments(Offset(8)).len(), 2);

    let gone = |offset: Offset| [1, 2, 3, 4, 6, 7, 8, 12].contains(&offset.0);
    let within = Offset(3)..Offset(9);
    let pass = log.begin_removal(within, gone, now(5), limit, BTreeSet::new());
    let done = run(&mut log, pass.unwrap().unwrap()).unwrap();
    // The last one of a pass stays.
    assert_eq!(done.records_removed, 4);
    assert!(done.bytes_after < done.bytes_before);
    assert_eq!(offsets(&log), [0, 1, 2, 5, 8, 9, 10, 11, 12]);
    assert_eq!(log.sealed_segments(limit).len(), 3, "what is left of two fits into one");
    drop(log);
    drop(directory);
    let (directory, _) = open(&disk);
    let (mut log, _) = open_log(&directory, 0);
    assert_eq!(offsets(&log), [0, 1, 2, 5, 8, 9, 10, 11, 12]);
    let nothing = log.begin_removal(Offset(1)..Offset(3), gone, now(5), limit, BTreeSet::new());
    assert!(nothing.unwrap().is_none(), "only whole segments");
}

#[test]
fn damage_stops_it_and_nothing_is_removed() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (mut log, _) = open_log(&directory, 0);
    for n in 0..6 {
        put(&mut log, &[record(n % 2, Some(n))], i64::from(n));
    }
    seal(&directory, &mut log);
    let path = file(0, "00000000000000000000.log");
    let whole = disk.content(&path);
    disk.flip(&path, 300);
    let refused = compact_with(&mut log, &RULES, 100, &[]).unwrap_err();
    assert!(matches!(refused, CompactionError::Damaged { from: Offset(3), .. }), "{refused}");
    disk.flip(&path, 300);
    assert_eq!(disk.content(&path), whole);
    assert_eq!(offsets(&log), [0, 1, 2, 3, 4, 5]);
    compact(&mut log, 100);
    assert_eq!(offsets(&log), [4, 5]);
}

#[test]
fn a_log_that_changes_meanwhile_keeps_what_it_has() {
    for change in ["retention", "truncation"] {
        let disk = MemoryDisk::default();
        let (directory, _) = open(&disk);
        let (mut log, _) = open_log(&directory, 0);
        for n in 0..4 {
            put(&mut log, &[record(1, Some(n))], i64::from(n));
            seal(&directory, &mut log);
        }
        let begun = log.begin_compaction(&RULES, now(9), Offset(4), BTreeSet::new());
        let mut pass = begun.unwrap().unwrap();
        let replacement = loop {
            if let Step::Replace(replacement) = pass.step().unwrap() {
                break replacement;
            }
        };
        match change {
            "retention" => log.start_moves_to(Offset(1)).unwrap(),
            _ => log.truncate_to(Offset(3)).unwrap(),
        }
        let before = visible(&log);
        assert!(!log.replace(&replacement).unwrap());
        pass.abandon();
        assert_eq!(visible(&log), before);
        drop((replacement, log, directory));
        let (directory, _) = open(&disk);
        let (log, recovery) = open_log(&directory, 0);
        assert_eq!(recovery.damage, []);
        assert_eq!(visible(&log), before);
    }
}

#[test]
fn readers_of_the_old_segments_go_on_and_retention_works_on_the_new_ones() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (mut log, _) = open_log(&directory, 0);
    for n in 0..6 {
        put(&mut log, &[record(n % 2, Some(n))], i64::from(n));
        seal(&directory, &mut log);
    }
    let slice = log.read(Offset(0), Offset(6), 10_000, true).unwrap().unwrap();
    let held = slice.read().unwrap();
    compact(&mut log, 100);
    assert_eq!(slice.read().unwrap(), held);
    assert_eq!(log.segment_count(), 1);
    let retention = Retention { time: Some(Duration::from_millis(50)), bytes: None };
    assert_eq!(log.expired(Timestamp(54), &retention, Offset(6)), None);
    assert_eq!(log.expired(Timestamp(56), &retention, Offset(6)), Some(Offset(6)));
    log.start_moves_to(Offset(5)).unwrap();
    assert_eq!(offsets(&log), [5]);
    assert!(matches!(
        log.read(Offset(4), Offset(6), 1, true),
        Err(ReadError::OutOfRange { start: Offset(5), .. })
    ));
}

/// The whole life of a log up to a crash at call `stop`, if it comes to that; what was visible
/// before the compaction and after it.
fn life(disk: &MemoryDisk, rounds: u8, stop: Option<u64>) -> (Vec<Visible>, Option<Vec<Visible>>) {
    let (directory, _) = open(disk);
    let (mut log, _) = open_log(&directory, 0);
    let (mut other, _) = open_log(&directory, 1);
    for n in 0..rounds {
        let value = if n % 7 == 3 { None } else { Some(n) };
        put(&mut log, &[record(n % 5, value), record(n % 3, Some(n))], i64::from(n));
        // Two logs in a round: it goes through the write-ahead file.
        put(&mut other, &[record(1, Some(n))], i64::from(n));
        commit(&directory, &mut [&mut log, &mut other]);
        if n % 4 == 3 {
            log.seal();
        }
    }
    log.seal();
    put(&mut log, &[record(40, Some(40))], 40);
    put(&mut other, &[record(1, Some(99))], 40);
    commit(&directory, &mut [&mut log, &mut other]);
    let before = visible(&log);
    if let Some(stop) = stop {
        disk.stop_after(stop);
    }
    let after = compact_with(&mut log, &RULES, 100, &[0, 12, 2 * i64::from(rounds) - 2])
        .ok()
        .map(|_| visible(&log));
    (before, after)
}

/// In a short life everything is still in the write-ahead file, too.
#[test]
fn a_stop_at_any_call_leaves_the_old_segments_or_the_new_ones() {
    for rounds in [8, 30] {
        stop_at_any_call(rounds);
    }
}

fn stop_at_any_call(rounds: u8) {
    let (before, after) = life(&MemoryDisk::default(), rounds, None);
    let after = after.expect("no fault");
    assert!(after.len() < before.len());
    let mut stop = 1;
    loop {
        let mut has_stopped = false;
        for (seed, loses_power) in [(0, false), (1, true), (2, true), (3, true)] {
            let disk = MemoryDisk::default();
            has_stopped |= life(&disk, rounds, Some(stop)).1.is_none();
            if loses_power {
                disk.power_cut(&mut Dice(seed + stop * 8))
            } else {
                disk.kill()
            }
            // The start may be stopped too.
            disk.stop_after(1 + (stop + seed) % 23);
            let opened =
                Directory::open_with(disk.clone(), ROOT.as_ref(), identity, "boot", LIMITS);
            drop(opened.map(|(directory, _)| directory.open_log(place(0), CONFIG).map(drop)));
            if loses_power {
                disk.power_cut(&mut Dice(seed + stop * 9))
            } else {
                disk.kill()
            }
            let (directory, _) = open(&disk);
            let (mut log, recovery) = open_log(&directory, 0);
            assert_eq!((&recovery.damage, &recovery.cut), (&vec![], &None), "stop {stop}");
            let found = visible(&log);
            assert!(
                found == before || is_between(&found, &before, &after),
                "stop {stop}: {found:?}"
            );
            let mut names = crate::disk::Disk::list(&disk, &file(0, "")).unwrap();
            names.retain(|name| name.ends_with(".cleaned") || name.ends_with(".swap"));
            assert_eq!(names, Vec::<String>::new());
            // And it goes on.
            put(&mut log, &[record(1, Some(200))], 200);
            seal(&directory, &mut log);
            compact(&mut log, 300);
            let keys: BTreeSet<_> = visible(&log).into_iter().map(|(_, _, key, _)| key).collect();
            assert_eq!(keys.len(), 6);
        }
        if !has_stopped {
            break;
        }
        stop += 1;
    }
    assert!(20 < stop, "the compaction has more calls than {stop}");
}

/// Some groups were replaced and some not.
fn is_between(found: &[Visible], before: &[Visible], after: &[Visible]) -> bool {
    after.iter().all(|record| found.contains(record))
        && found.iter().all(|record| before.contains(record))
}

#[derive(Debug, Clone)]
enum Op {
    Append(Vec<(u8, Option<u8>)>, u8),
    Seal,
    Compact(usize),
    Wait(i64),
    Restart(bool, u64),
    DeleteTo(u8),
}

fn op() -> impl Strategy<Value = Op> {
    let record = (0_u8..7, proptest::option::weighted(0.8, 0_u8..200));
    let batch = proptest::collection::vec(record, 1..6);
    prop_oneof![
        8 => (batch, 0_u8..5).prop_map(|(records, codec)| Op::Append(records, codec)),
        2 => Just(Op::Seal),
        3 => prop_oneof![Just(0_usize), Just(1 << 20)].prop_map(Op::Compact),
        2 => (1_i64..2000).prop_map(Op::Wait),
        1 => (any::<bool>(), any::<u64>()).prop_map(|(power, seed)| Op::Restart(power, seed)),
        1 => any::<u8>().prop_map(Op::DeleteTo),
    ]
}

/// What a log was given, and what it may have lost.
#[derive(Default)]
struct Model {
    given: Vec<Visible>,
    /// When a tombstone was first at or below a compaction's end.
    compacted_at: BTreeMap<i64, i64>,
    clean: i64,
    removed: BTreeSet<i64>,
}

impl Model {
    fn check(&mut self, log: &TestLog, wall: i64) {
        let found = visible(log);
        let start = log.log_start_offset().0;
        assert!(found.is_sorted_by_key(|(offset, ..)| *offset));
        for record in &found {
            assert!(self.given.contains(record), "never given: {record:?}");
            assert!(!self.removed.contains(&record.0), "{record:?} is back");
        }
        let there: BTreeSet<i64> = found.iter().map(|(offset, ..)| *offset).collect();
        for (offset, _, key, value) in self.given.iter().filter(|given| start <= given.0) {
            if there.contains(offset) {
                continue;
            }
            assert!(*offset < self.clean, "{offset} is gone, only {} was compacted", self.clean);
            let newer =
                self.given.iter().any(|(o, _, k, _)| offset < o && *o < self.clean && k == key);
            let horizon = self.compacted_at.get(offset).map(|at| at + 1000);
            let is_old_tombstone = value.is_none() && horizon.is_some_and(|at| at <= wall);
            assert!(newer || is_old_tombstone, "{offset} {key:?} {value:?} is gone");
            self.removed.insert(*offset);
        }
    }

    /// After a pass that took everything: no key has two records below its end, but for the last.
    fn check_is_compact(&self, log: &TestLog, clean: i64) {
        let mut seen = BTreeSet::new();
        for (offset, _, key, _) in visible(log).iter().filter(|(offset, ..)| *offset < clean) {
            assert!(seen.insert(key.clone()), "{key:?} is there twice, at {offset} too");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 120,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_histories_keep_the_newest_of_each_key(
        ops in proptest::collection::vec(op(), 1..60),
    ) {
        let disk = MemoryDisk::default();
        let (mut directory, _) = open(&disk);
        let (mut log, _) = open_log(&directory, 0);
        let mut model = Model::default();
        let mut wall = 1000;
        for op in ops {
            match op {
                Op::Append(batch, codec) => {
                    let batch: Vec<_> = batch.iter().map(|(k, v)| record(*k, *v)).collect();
                    let at = log.log_end_offset().0;
                    let codec = Compression::from_id(codec).unwrap();
                    put_as(&mut log, &batch, wall, codec);
                    for (n, (key, value)) in (0..).zip(batch) {
                        model.given.push((at + n, wall + n, key, value));
                    }
                }
                Op::Seal => seal(&directory, &mut log),
                Op::Wait(ms) => wall += ms,
                Op::Compact(key_bytes_max) => {
                    commit(&directory, &mut [&mut log]);
                    let rules = CompactionRules { key_bytes_max, ..RULES };
                    let done = compact_with(&mut log, &rules, wall, &[]).unwrap();
                    if let Some(compacted) = done {
                        let clean = compacted.clean.0;
                        model.clean = model.clean.max(clean);
                        for (offset, ..) in &model.given {
                            if *offset < clean {
                                model.compacted_at.entry(*offset).or_insert(wall);
                            }
                        }
                        model.check_is_compact(&log, clean);
                    }
                }
                Op::Restart(loses_power, seed) => {
                    commit(&directory, &mut [&mut log]);
                    drop((log, directory));
                    if loses_power { disk.power_cut(&mut Dice(seed)) } else { disk.kill() }
                    directory = open(&disk).0;
                    let (again, recovery) = open_log(&directory, 0);
                    prop_assert_eq!((recovery.damage, recovery.cut), (vec![], None));
                    log = again;
                }
                Op::DeleteTo(part) => {
                    commit(&directory, &mut [&mut log]);
                    let (start, end) = (log.log_start_offset().0, log.log_end_offset().0);
                    let to = start + (end - start) * i64::from(part) / 2550;
                    log.start_moves_to(Offset(to)).unwrap();
                }
            }
            wall += 1;
            model.check(&log, wall);
            log.assert_invariants();
        }
    }
}
