//! What a start costs after a stop that was not clean, and what it believes.

use towpath_model::Offset;

use super::fixture::*;
use crate::disk::Disk;
use crate::testing::{Counts, Dice, MemoryDisk};
use crate::{LastStop, OpenReport, WriteAheadLimits};

const SEGMENT: &str = "00000000000000000000.log";

/// With write-ahead files that do not turn in the middle of a test.
fn open_roomy(disk: &MemoryDisk) -> (Directory, OpenReport) {
    let limits = WriteAheadLimits { file_bytes_max: 1 << 20, direct_bytes_min: 64 << 10 };
    Directory::open_with(disk.clone(), ROOT.as_ref(), identity, "boot", limits).unwrap()
}

/// Logs with acknowledged batches in the write-ahead file, after a kill.
fn killed(logs: i32) -> MemoryDisk {
    let disk = MemoryDisk::default();
    let (directory, _) = open_roomy(&disk);
    let mut open: Vec<TestLog> = (0..logs).map(|n| open_log(&directory, n).0).collect();
    for _ in 0..3 {
        for log in &mut open {
            append(log, 2, 60);
        }
        commit(&directory, &mut open.iter_mut().collect::<Vec<_>>());
    }
    drop((open, directory));
    disk.kill();
    disk
}

/// Opens everything; returns what that cost.
fn start(disk: &MemoryDisk, logs: i32) -> Counts {
    disk.forget_counts();
    let (directory, report) = open_roomy(disk);
    assert_eq!(report.last_stop, LastStop::ProcessEnded);
    for n in 0..logs {
        let (log, recovery) = open_log(&directory, n);
        assert_eq!(
            (log.durable_offset(), recovery.cut, recovery.damage),
            (Offset(6), None, vec![])
        );
    }
    drop(directory);
    disk.kill();
    disk.counts()
}

#[test]
fn a_start_after_a_kill_syncs_each_segment_once_and_everything_else_in_one_call() {
    for logs in [1, 10, 100] {
        let disk = killed(logs);
        let first = start(&disk, logs);
        let segments = logs as u64;
        assert!(first.file_syncs <= segments + 1, "{logs} logs: {first:?}");
        assert!(first.dir_syncs <= 2, "{logs} logs: {first:?}");
        assert_eq!(first.syncs_of_all, 1);
        // Nothing is left to replay: what is in the logs costs no sync, however many there are.
        let second = start(&disk, logs);
        assert!(second.file_syncs <= 1 && second.dir_syncs <= 2, "{logs} logs: {second:?}");
        assert!(second.opens <= 8 * segments + 8, "{logs} logs: {second:?}");
    }
}

#[test]
fn a_start_reads_what_lies_behind_the_checkpoint_and_nothing_before_it() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (mut log, _) = open_log(&directory, 0);
    for _ in 0..400 {
        append(&mut log, 2, 700);
    }
    log.save_checkpoint().unwrap();
    append(&mut log, 2, 60);
    commit(&directory, &mut [&mut log]);
    let segments = log.segment_count() as u64;
    drop((log, directory));
    disk.kill();
    disk.forget_counts();
    let (directory, _) = open(&disk);
    let (log, recovery) = open_log(&directory, 0);
    assert_eq!(log.log_end_offset(), Offset(802));
    assert!(recovery.scanned_bytes < 70_000, "a batch and reserved zeros: {recovery:?}");
    // 600 KB of records; of each sealed segment the summary is read.
    let counts = disk.counts();
    assert!(counts.read_bytes < 300_000 + 200 * segments, "{counts:?}");
}

#[test]
fn what_a_failed_sync_has_lost_is_not_believed_after_a_kill() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (mut log, _) = open_log(&directory, 0);
    let kept = append(&mut log, 2, 300);
    commit(&directory, &mut [&mut log]);
    append(&mut log, 2, 300);
    disk.fail_syncs(true);
    let round = log.take_dirty().into_iter().collect();
    assert!(directory.commit(round)[0].result().is_err());
    disk.fail_syncs(false);
    drop((log, directory));
    disk.kill();
    // The page cache still shows the second batch.
    let (directory, _) = open(&disk);
    let (log, recovery) = open_log(&directory, 0);
    assert_eq!(recovery.damage, vec![]);
    let found = contents(&log, Offset(0));
    let end = log.log_end_offset();
    drop((log, directory));
    disk.power_cut(&mut Dice(1));
    let (directory, _) = open(&disk);
    let (log, recovery) = open_log(&directory, 0);
    assert_eq!(recovery.damage, vec![], "what was believed is there");
    assert_eq!((log.log_end_offset(), contents(&log, Offset(0))), (end, found.clone()));
    assert!(found.starts_with(&kept));
}

#[test]
fn how_the_last_process_ended_shows_in_the_boot_id() {
    let disk = MemoryDisk::default();
    let start = |boot: &str| {
        let opened = Directory::open(disk.clone(), ROOT.as_ref(), identity, boot).unwrap();
        disk.kill();
        opened.1.last_stop
    };
    assert_eq!(start("one"), LastStop::Never);
    assert_eq!(start("one"), LastStop::ProcessEnded);
    assert_eq!(start("two"), LastStop::SystemEnded);
    assert_eq!(start("two"), LastStop::ProcessEnded);
    // Nobody knows: the page cache is not believed.
    assert_eq!(start(""), LastStop::ProcessEnded);
    assert_eq!(start("three"), LastStop::ProcessEnded);
    disk.remove_file(&std::path::Path::new(ROOT).join("boot")).unwrap();
    assert_eq!(start("four"), LastStop::ProcessEnded);
}

#[test]
fn what_was_acknowledged_long_ago_is_told_from_an_unfinished_write() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let mut logs: Vec<TestLog> = (0..3).map(|n| open_log(&directory, n).0).collect();
    let first = append(&mut logs[0], 2, 30);
    append(&mut logs[0], 2, 30);
    append(&mut logs[1], 2, 30);
    commit(&directory, &mut logs.iter_mut().collect::<Vec<_>>());
    // Without a checkpoint of the first log the write-ahead files turn many times.
    for _ in 0..300 {
        append(&mut logs[1], 1, 40);
        append(&mut logs[2], 1, 40);
        commit(&directory, &mut logs.iter_mut().collect::<Vec<_>>());
        directory.tidy();
    }
    drop((logs, directory));
    disk.kill();
    // More than one start later, too.
    for _ in 0..2 {
        let (directory, _) = open(&disk);
        for n in 0..3 {
            assert_eq!(open_log(&directory, n).1.damage, vec![]);
        }
        drop(directory);
        disk.kill();
    }
    assert!(!disk.exists(&file(0, "checkpoint.1")).unwrap());
    disk.flip(&file(0, SEGMENT), first.len() + 70);
    let (directory, _) = open(&disk);
    let (_, recovery) = open_log(&directory, 0);
    assert_eq!((recovery.cut, recovery.damage), (None, vec![changed(2, 4)]));
}
