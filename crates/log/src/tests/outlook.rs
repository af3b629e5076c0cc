use towpath_model::{Offset, Timestamp};
use towpath_records::Compression;

use super::fixture::*;
use crate::testing::MemoryDisk;
use crate::{Log, Outlook};

fn outlook(log: &TestLog, from: i64) -> Outlook {
    log.outlook(Offset(from), log.log_end_offset()).unwrap().unwrap()
}

/// One record per batch, with its own time and the broker's.
fn append_at(log: &mut TestLog, own: i64, wall: i64, bytes: usize) {
    let batch = batch(log.log_end_offset(), &[own], bytes, Compression::None);
    try_append(log, &batch, wall).unwrap();
}

#[test]
fn a_record_waits_since_its_own_time_as_far_as_the_broker_can_confirm_it() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (mut log, _) = open_log(&directory, 0);
    // Seconds instead of milliseconds, a plausible one, none, and one of the far future.
    for (own, wall) in [(3, 1_000), (1_400, 1_500), (-1, 1_800), (9_999_999, 2_000)] {
        append_at(&mut log, own, wall, 20);
    }
    let since = |from| outlook(&log, from).waiting_since;
    assert_eq!(since(0), Some(Timestamp(1_000)));
    assert_eq!(since(1), Some(Timestamp(1_400)));
    assert_eq!(since(2), Some(Timestamp(1_000)), "without a time: as old as it may be");
    assert_eq!(since(3), Some(Timestamp(2_000)));
    assert_eq!(log.outlook(Offset(4), Offset(4)).unwrap(), None);
    assert_eq!(log.outlook(Offset(2), Offset(2)).unwrap(), None, "nothing below the end is there");
}

#[test]
fn bytes_before_a_reader_are_those_of_newer_segments_and_a_share_of_its_own() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (mut log, _) = open_log(&directory, 0);
    for n in 0..40 {
        append_at(&mut log, n, n, 100);
    }
    assert!(2 < log.segment_count());
    let all = outlook(&log, 0);
    assert_eq!((all.unread_bytes, all.size_bytes), (log.size_bytes(), log.size_bytes()));
    assert!(all.bytes_to_segment_end < all.size_bytes);
    let each = log.size_bytes() / 40;
    for from in 0..40 {
        let found = outlook(&log, from);
        assert_eq!(found.unread_bytes, (40 - from as u64) * each, "{from}");
        assert!(all.bytes_to_segment_end <= found.bytes_to_segment_end);
    }
    assert_eq!(outlook(&log, 39).bytes_to_segment_end, log.size_bytes());
    log.start_moves_to(Offset(30)).unwrap();
    assert_eq!(outlook(&log, 0).unread_bytes, outlook(&log, 30).unread_bytes);
}

#[test]
fn the_rate_is_that_of_the_newest_segments() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (mut log, _) = open_log(&directory, 0);
    let rate = |log: &Log<_>, now| log.append_rate(Timestamp(now));
    assert!(rate(&log, 5_000).abs() < f64::EPSILON);
    for n in 0..10 {
        append_at(&mut log, n, n * 1_000, 100);
    }
    let expected = log.size_bytes() as f64 / 10.0;
    assert!((rate(&log, 10_000) - expected).abs() < 0.001);
    // Long ago by now: the pause counts.
    assert!(rate(&log, 10_000_000) < expected / 500.0);
}
