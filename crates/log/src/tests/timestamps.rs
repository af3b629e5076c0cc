use towpath_model::{LeaderEpoch, Offset, Timestamp};
use towpath_records::{Compression, set_log_append_time};

use super::fixture::*;
use crate::testing::{Dice, MemoryDisk};

const CODECS: [Compression; 5] = [
    Compression::None,
    Compression::Gzip,
    Compression::Snappy,
    Compression::Lz4,
    Compression::Zstd,
];

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
        let batch = batch(at, &batch_times, 40, CODECS[n as usize % CODECS.len()]);
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
            let found = log.offset_for_timestamp(Timestamp(at), Offset(end as i64)).unwrap();
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
        let found = log.max_timestamp(Offset(end as i64)).unwrap();
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
    let found = log.offset_for_timestamp(Timestamp(101), Offset(6)).unwrap().unwrap();
    assert_eq!((found.0, found.1), (Timestamp(200), Offset(3)));
    assert_eq!(log.offset_for_timestamp(Timestamp(201), Offset(6)).unwrap(), None);
    let newest = log.max_timestamp(Offset(6)).unwrap().unwrap();
    assert_eq!((newest.0, newest.1), (Timestamp(200), Offset(3)));
}

#[test]
fn an_empty_log_has_no_times() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (log, _) = open_log(&directory, 0);
    assert_eq!(log.max_timestamp(Offset(0)).unwrap(), None);
    assert_eq!(log.offset_for_timestamp(Timestamp(0), Offset(0)).unwrap(), None);
}
