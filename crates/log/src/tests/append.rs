use towpath_model::{LeaderEpoch, Offset};
use towpath_records::{BatchHeader, Compression, set_leader_epoch};

use super::fixture::*;
use crate::testing::MemoryDisk;
use crate::{Log, LogError, ReadError};

#[test]
fn nothing_is_on_the_disk_before_the_first_append() {
    let disk = MemoryDisk::default();
    let (directory, report) = open(&disk);
    assert_eq!(report.last_stop, crate::LastStop::Never);
    let (mut log, recovery) = open_log(&directory, 0);
    assert_eq!(recovery.scanned_bytes, 0);
    assert!(directory.logs_on_disk().unwrap().is_empty());
    log.save_checkpoint().unwrap();
    log.save_producers(Offset(0), b"none").unwrap();
    assert!(directory.logs_on_disk().unwrap().is_empty());
    append(&mut log, 1, 10);
    assert_eq!(directory.logs_on_disk().unwrap().len(), 1);
}

#[test]
fn what_was_appended_is_read_from_every_offset() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (mut log, _) = open_log(&directory, 0);
    let mut all = Vec::new();
    let mut starts = Vec::new();
    for n in 0..60 {
        starts.push((log.log_end_offset(), all.len()));
        all.extend(append(&mut log, 1 + n % 3, 20 + n));
    }
    assert!(2 < log.segment_count());
    assert_eq!(log.size_bytes(), all.len() as u64);
    for from in 0..log.log_end_offset().0 {
        let (_, position) = starts.iter().rev().find(|(start, _)| start.0 <= from).unwrap();
        assert_eq!(contents(&log, Offset(from)), all[*position..]);
    }
}

#[test]
fn a_read_ends_with_a_whole_batch_at_or_below_the_end_and_the_size() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (mut log, _) = open_log(&directory, 0);
    let sizes: Vec<usize> = (0..12).map(|_| append(&mut log, 2, 30).len()).collect();
    let size = sizes[0];
    let read = |from, end, bytes, one| {
        let slice = log.read(Offset(from), Offset(end), bytes, one).unwrap();
        slice.map(|slice| (slice.first_offset.0, slice.next_offset.0, slice.len))
    };
    assert_eq!(read(0, 24, size * 3, false), Some((0, 6, size * 3)));
    assert_eq!(read(0, 24, size * 3 - 1, false), Some((0, 4, size * 2)));
    assert_eq!(read(5, 24, size - 1, true), Some((4, 6, size)));
    assert_eq!(read(5, 24, size - 1, false), None);
    assert_eq!(read(4, 5, 10_000, true), None, "its last record is not below the end");
    assert_eq!(read(4, 7, 10_000, true), Some((4, 6, size)));
    assert_eq!(read(22, 24, 10_000, true), Some((22, 24, size)), "the newest batch");
    assert_eq!(read(24, 24, 10_000, true), None);
    let beyond = log.read(Offset(25), Offset(99), 10, true);
    assert!(matches!(beyond, Err(ReadError::OutOfRange { end: Offset(24), .. })));
}

#[test]
fn segments_roll_by_size_and_by_age() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (mut log, _) = open_log(&directory, 0);
    let hour = 3_600_000;
    let add = |log: &mut Log<MemoryDisk>, wall: i64, time: i64, bytes: usize| {
        let batch = batch(log.log_end_offset(), &[time], bytes, Compression::None);
        try_append(log, &batch, wall).unwrap().rolled
    };
    assert!(!add(&mut log, 10, 10, 100));
    assert!(!add(&mut log, 11, 11, 100));
    assert!(add(&mut log, 12, 12, 1800), "too large together");
    assert!(add(&mut log, 12 + hour, 13, 10), "too old");
    assert!(!add(&mut log, 13 + hour, i64::MAX / 2, 10), "the future rolls nothing");
    assert!(!log.roll_if_due(now(13 + hour)).unwrap());
    assert!(log.roll_if_due(now(12 + 2 * hour)).unwrap());
    assert!(!log.roll_if_due(now(12 + 9 * hour)).unwrap(), "nothing is active");
    assert!(!add(&mut log, 100 * hour, 5, 10), "there is no segment to roll");
    assert!(add(&mut log, 100 * hour, 6 + hour, 10), "records that span more than an age");
    assert_eq!(log.segment_count(), 5);
}

#[test]
fn iterators_cross_segments_and_begin_with_the_batch_of_the_offset() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (mut log, _) = open_log(&directory, 0);
    let all: Vec<Vec<u8>> = (0..40).map(|_| append(&mut log, 3, 40)).collect();
    let headers: Vec<Offset> =
        log.headers(Offset(50)).map(|header| header.unwrap().base_offset()).collect();
    let expected: Vec<Offset> = (16..40).map(|n| Offset(3 * n)).collect();
    assert_eq!(headers, expected);
    let batches: Vec<Vec<u8>> =
        log.batches(Offset(0), Offset(100)).map(|batch| batch.unwrap().1.to_vec()).collect();
    assert_eq!(batches, all[..34]);
    assert_eq!(log.headers(Offset(120)).count(), 0);
}

#[test]
fn leader_epochs_are_known_with_their_first_offsets() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (mut log, _) = open_log(&directory, 0);
    for epoch in [1, 1, 2, 5, 5] {
        let mut batch = batch(log.log_end_offset(), &[1, 2], 10, Compression::None);
        set_leader_epoch(&mut batch, LeaderEpoch(epoch));
        try_append(&mut log, &batch, 1).unwrap();
    }
    let expected = [(1, 0), (2, 4), (5, 6)].map(|(e, o)| (LeaderEpoch(e), Offset(o)));
    assert_eq!(log.leader_epochs(), expected);
    commit(&directory, &mut [&mut log]);
    drop((log, directory));
    disk.kill();
    let (directory, _) = open(&disk);
    let (mut log, _) = open_log(&directory, 0);
    assert_eq!(log.leader_epochs(), expected);
    log.start_moves_to(Offset(5)).unwrap();
    let expected = [(2, 5), (5, 6)].map(|(e, o)| (LeaderEpoch(e), Offset(o)));
    assert_eq!(log.leader_epochs(), expected);
    log.truncate_to(Offset(6)).unwrap();
    assert_eq!(log.leader_epochs(), &expected[..1]);
}

#[test]
fn a_full_disk_refuses_and_recovers_by_itself() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (mut log, _) = open_log(&directory, 0);
    let mut all = append(&mut log, 1, 100);
    disk.set_room(Some(0));
    let next = batch(log.log_end_offset(), &[1], 1900, Compression::None);
    let refused = try_append(&mut log, &next, 1).unwrap_err();
    assert!(refused.is_disk_full(), "{refused}");
    assert!(!directory.is_failed());
    assert_eq!(log.log_end_offset(), Offset(1));
    assert_eq!(contents(&log, Offset(0)), all);
    disk.set_room(None);
    try_append(&mut log, &next, 1).unwrap();
    all.extend(next);
    commit(&directory, &mut [&mut log]);
    assert_eq!(contents(&log, Offset(0)), all);
    drop((log, directory));
    disk.kill();
    let (directory, _) = open(&disk);
    assert_eq!(contents(&open_log(&directory, 0).0, Offset(0)), all);
}

#[test]
fn a_failed_sync_fails_the_directory_for_good() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (mut log, _) = open_log(&directory, 0);
    append(&mut log, 1, 100);
    disk.fail_syncs(true);
    let round = log.take_dirty().into_iter().collect();
    let committed = directory.commit(round);
    assert!(committed[0].result().is_err());
    log.committed(&committed[0]);
    assert_eq!(log.durable_offset(), Offset(0));
    disk.fail_syncs(false);
    assert!(directory.is_failed());
    let next = batch(Offset(1), &[1], 10, Compression::None);
    let refused = try_append(&mut log, &next, 1);
    assert!(matches!(refused, Err(LogError::DirectoryFailed { .. })), "{refused:?}");
    assert!(directory.close([&mut log]).is_err());
    assert!(log.read(Offset(0), Offset(1), 1000, true).unwrap().is_some(), "reads still work");
}

#[test]
fn a_slice_stays_readable_after_its_segment_was_removed() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (mut log, _) = open_log(&directory, 0);
    let first = append(&mut log, 1, 1500);
    append(&mut log, 1, 1500);
    let slice = log.read(Offset(0), Offset(2), 9999, true).unwrap().unwrap();
    log.start_moves_to(Offset(1)).unwrap();
    assert_eq!(log.segment_count(), 1);
    assert_eq!(slice.read().unwrap(), first);
    assert_eq!(BatchHeader::parse(&slice.read().unwrap()).unwrap().base_offset(), Offset(0));
}
