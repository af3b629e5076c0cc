use std::time::Duration;

use towpath_model::{Offset, Timestamp};
use towpath_records::{BatchHeader, Compression};

use super::fixture::*;
use crate::disk::Disk;
use crate::testing::{Dice, MemoryDisk};
use crate::{DataDirectory, OpenError, Retention};

#[test]
fn a_clean_stop_leaves_nothing_to_scan_or_replay() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (mut log, _) = open_log(&directory, 0);
    for _ in 0..20 {
        append(&mut log, 2, 50);
    }
    commit(&directory, &mut [&mut log]);
    directory.close([&mut log]).unwrap();
    drop((log, directory));
    disk.power_cut(&mut Dice(1));
    let (directory, report) = open(&disk);
    assert!(report.was_clean());
    assert_eq!(report.replayed_frames, 0);
    let (log, recovery) = open_log(&directory, 0);
    assert_eq!(log.log_end_offset(), Offset(40));
    assert!(recovery.scanned_bytes < 70_000, "only reserved zeros: {recovery:?}");
    drop((log, directory));
    let (_, report) = open(&disk);
    assert!(!report.was_clean(), "the mark counts once");
}

#[test]
fn a_directory_is_locked_and_belongs_to_an_identity() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    assert_eq!(*directory.identity(), identity());
    let again = DataDirectory::open(disk.clone(), ROOT.as_ref(), identity, "boot");
    assert!(matches!(again, Err(OpenError::Locked(_))));
    drop(directory);
    let never = || panic!("the directory is not new");
    let (directory, _) = DataDirectory::open(disk.clone(), ROOT.as_ref(), never, "boot").unwrap();
    drop(directory);
    let format = std::path::Path::new(ROOT).join("format");
    disk.flip(&format, 20);
    let damaged = DataDirectory::open(disk.clone(), ROOT.as_ref(), identity, "boot");
    assert!(matches!(damaged, Err(OpenError::NoFormat(_))));
    disk.remove_file(&format).unwrap();
    let missing = DataDirectory::open(disk, ROOT.as_ref(), identity, "boot");
    assert!(matches!(missing, Err(OpenError::NoFormat(_))));
}

#[test]
fn a_first_start_may_end_anywhere_and_the_second_one_too() {
    for (first, second) in (1..14).flat_map(|first| (1..6).map(move |second| (first, second))) {
        for seed in 0..8 {
            let disk = MemoryDisk::default();
            let attempt = || DataDirectory::open(disk.clone(), ROOT.as_ref(), identity, "boot");
            disk.stop_after(first);
            drop(attempt());
            disk.kill();
            disk.stop_after(second);
            drop(attempt());
            disk.power_cut(&mut Dice(seed));
            let opened = attempt().map(drop);
            assert!(opened.is_ok(), "stopped at {first}, then at {second}: {opened:?}");
        }
    }
}

#[test]
fn another_version_is_refused_by_naming_both() {
    let disk = MemoryDisk::default();
    drop(open(&disk));
    let format = std::path::Path::new(ROOT).join("format");
    let mut content = disk.content(&format);
    content[11] = 9;
    let crc = towpath_records::crc::crc32c(&content[8..]);
    content[4..8].copy_from_slice(&crc.to_be_bytes());
    disk.overwrite(&format, &content);
    let refused = DataDirectory::open(disk, ROOT.as_ref(), identity, "boot").unwrap_err();
    assert_eq!(
        refused.to_string(),
        "/data/format has format level 9, this version of Towpath reads 1"
    );
}

#[test]
fn a_deleted_log_stays_deleted_and_its_name_can_be_used_again() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (mut first, _) = open_log(&directory, 0);
    let (mut second, _) = open_log(&directory, 1);
    append(&mut first, 1, 50);
    append(&mut second, 1, 50);
    commit(&directory, &mut [&mut first, &mut second]);
    drop(first);
    directory.delete_log(place(0)).unwrap();
    let (mut first, _) = open_log(&directory, 0);
    assert_eq!(first.log_end_offset(), Offset(0));
    let again = append(&mut first, 3, 20);
    commit(&directory, &mut [&mut first, &mut second]);
    drop((first, second, directory));
    disk.power_cut(&mut Dice(5));
    let (directory, _) = open(&disk);
    assert_eq!(contents(&open_log(&directory, 0).0, Offset(0)), again);
    assert_eq!(open_log(&directory, 1).0.log_end_offset(), Offset(1));
}

#[test]
fn a_round_that_began_before_a_deletion_fails_nothing() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (mut log, _) = open_log(&directory, 0);
    append(&mut log, 1, 50);
    let round: Vec<_> = log.take_dirty().into_iter().collect();
    directory.delete_log(place(0)).unwrap();
    assert_eq!(directory.commit(round)[0].result(), Ok(()));
    assert!(!directory.is_failed());
    assert_eq!(open_log(&directory, 0).0.log_end_offset(), Offset(0));
}

#[test]
fn what_no_metadata_names_is_set_aside_and_kept() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (mut log, _) = open_log(&directory, 4);
    append(&mut log, 1, 50);
    commit(&directory, &mut [&mut log]);
    drop(log);
    let found = directory.logs_on_disk().unwrap();
    assert_eq!((found.len(), found[0].partition.0), (1, 4));
    directory.quarantine(&found[0]).unwrap();
    assert!(directory.logs_on_disk().unwrap().is_empty());
    let kept = disk.list("/data/quarantine".as_ref()).unwrap();
    assert_eq!(kept.len(), 1);
    assert!(kept[0].starts_with("1-orders-") && kept[0].ends_with("-4"), "{kept:?}");
}

/// One segment per batch.
fn filled(timestamps: &[i64]) -> (MemoryDisk, Directory, TestLog) {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (mut log, _) = open_log(&directory, 0);
    for (n, timestamp) in timestamps.iter().enumerate() {
        let batch = batch(log.log_end_offset(), &[*timestamp], 1500, Compression::None);
        try_append(&mut log, &batch, 1000 + n as i64).unwrap();
    }
    commit(&directory, &mut [&mut log]);
    (disk, directory, log)
}

#[test]
fn records_expire_by_time_whole_segments_from_the_oldest() {
    let future = i64::MAX / 2;
    let (_disk, _directory, log) = filled(&[100, 101, 5000, 103, future]);
    let keep = Retention { time: Some(Duration::from_millis(50)), bytes: None };
    let expired = |now, limit| log.expired(Timestamp(now), &keep, Offset(limit)).map(|o| o.0);
    assert_eq!(expired(150, 5), None, "not older than its time");
    assert_eq!(expired(151, 5), Some(1));
    assert_eq!(expired(152, 5), Some(2));
    assert_eq!(expired(152, 1), Some(1), "never above the high watermark");
    assert_eq!(expired(1051, 5), Some(2), "the third was written at 1002");
    assert_eq!(expired(1053, 5), Some(4), "a time in the future counts as the append's");
    assert_eq!(expired(1055, 5), Some(5), "the newest segment too");
    assert_eq!(log.expired(Timestamp(future), &Retention::default(), Offset(5)), None);
}

#[test]
fn records_expire_by_size_while_the_others_have_enough() {
    let (_disk, _directory, log) = filled(&[1, 2, 3, 4]);
    let size = log.size_bytes() / 4;
    let expired = |bytes| {
        let keep = Retention { time: None, bytes: Some(bytes) };
        log.expired(Timestamp(9999), &keep, Offset(4)).map(|offset| offset.0)
    };
    assert_eq!(expired(size * 4), None);
    assert_eq!(expired(size * 3 + 1), None);
    assert_eq!(expired(size * 3), Some(1));
    assert_eq!(expired(size), Some(3));
    assert_eq!(expired(1), Some(3));
}

#[test]
fn an_idle_log_loses_its_last_segment_and_goes_on() {
    let (disk, directory, mut log) = filled(&[1, 2]);
    log.start_moves_to(Offset(2)).unwrap();
    assert_eq!((log.segment_count(), log.size_bytes()), (0, 0));
    assert_eq!(log.read(Offset(2), Offset(2), 100, true).unwrap().map(|s| s.len), None);
    drop((log, directory));
    disk.power_cut(&mut Dice(9));
    let (directory, _) = open(&disk);
    let (mut log, recovery) = open_log(&directory, 0);
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (Offset(2), Offset(2)));
    assert_eq!(recovery.damage, vec![]);
    let next = append(&mut log, 2, 10);
    assert_eq!(contents(&log, Offset(2)), next);
}

#[test]
fn a_start_that_was_moved_never_goes_back_wherever_it_crashes() {
    for calls in 1..40 {
        for seed in 0..8 {
            let (disk, directory, mut log) = filled(&[1, 2, 3, 4, 5]);
            log.start_moves_to(Offset(1)).unwrap();
            disk.stop_after(calls);
            let moved = log.start_moves_to(Offset(3)).and_then(|()| log.start_moves_to(Offset(4)));
            let told = log.log_start_offset();
            drop((log, directory));
            if seed == 0 {
                disk.kill()
            } else {
                disk.power_cut(&mut Dice(seed))
            }
            let (directory, _) = open(&disk);
            let (log, recovery) = open_log(&directory, 0);
            assert!(log.log_start_offset() <= Offset(4));
            if moved.is_ok() {
                assert_eq!(log.log_start_offset(), Offset(4));
            }
            let told = if moved.is_ok() { told } else { Offset(1) };
            assert!(told <= log.log_start_offset(), "calls {calls}, seed {seed}");
            assert_eq!(log.log_end_offset(), Offset(5));
            assert_eq!(recovery.damage, vec![]);
            contents(&log, log.log_start_offset());
        }
    }
}

#[test]
fn a_start_that_a_full_disk_refused_to_move_is_not_moved_by_a_later_round() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (mut log, _) = open_log(&directory, 0);
    append(&mut log, 2, 100);
    commit(&directory, &mut [&mut log]);
    disk.set_room(Some(0));
    assert!(log.start_moves_to(Offset(1)).unwrap_err().is_disk_full());
    disk.set_room(None);
    // The second one rolls, so this round writes a checkpoint.
    append(&mut log, 1, 1900);
    append(&mut log, 1, 1900);
    commit(&directory, &mut [&mut log]);
    assert_eq!(log.log_start_offset(), Offset(0));
    drop((log, directory));
    disk.kill();
    let (directory, _) = open(&disk);
    assert_eq!(open_log(&directory, 0).0.log_start_offset(), Offset(0));
}

#[test]
fn producer_states_are_kept_two_deep_and_passed_over_when_damaged() {
    let (disk, _directory, mut log) = filled(&[1, 2, 3]);
    assert_eq!(log.load_producers(Offset(3)), None);
    for at in 1..=3 {
        log.save_producers(Offset(at), format!("state {at}").as_bytes()).unwrap();
    }
    assert_eq!(log.bytes_since_snapshot(), 0);
    assert_eq!(log.load_producers(Offset(3)), Some((Offset(3), b"state 3".to_vec())));
    assert_eq!(log.load_producers(Offset(2)), Some((Offset(2), b"state 2".to_vec())));
    assert_eq!(log.load_producers(Offset(1)), None);
    disk.flip(&file(0, "00000000000000000003.producers"), 26);
    assert_eq!(log.load_producers(Offset(3)), Some((Offset(2), b"state 2".to_vec())));
}

#[test]
fn whoever_saves_and_removes_producer_states_at_once_takes_turns() {
    let (_disk, _directory, mut log) = filled(&[1, 2, 3]);
    let snapshots: Vec<_> = (0..4).map(|_| log.snapshots_to_save().unwrap()).collect();
    std::thread::scope(|scope| {
        for snapshots in &snapshots {
            scope.spawn(move || {
                for at in 0..500 {
                    snapshots.save(Offset(at % 3), b"state").unwrap();
                    snapshots.remove_below(Offset(1)).unwrap();
                }
            });
        }
    });
    assert!(log.load_producers(Offset(3)).is_some());
}

#[test]
fn a_producer_state_that_is_durable_outlives_younger_ones_that_are_not() {
    let (_disk, directory, mut log) = filled(&[1, 2]);
    log.save_producers(Offset(3), b"durable").unwrap();
    for at in 4..=6 {
        append(&mut log, 1, 20);
        log.save_producers(Offset(at), b"not yet").unwrap();
    }
    assert_eq!(log.load_producers(Offset(3)), Some((Offset(3), b"durable".to_vec())));
    commit(&directory, &mut [&mut log]);
    log.save_producers(Offset(6), b"durable").unwrap();
    assert_eq!(log.load_producers(Offset(4)), None);
}

#[test]
fn a_truncated_log_is_dirty_again_and_old_rounds_vouch_for_nothing() {
    let (_disk, directory, mut log) = filled(&[1, 2, 3]);
    append(&mut log, 1, 20);
    let old = log.take_dirty().into_iter().collect();
    log.truncate_to(Offset(2)).unwrap();
    assert_eq!((log.generation(), log.durable_offset()), (1, Offset(2)));
    append(&mut log, 1, 40);
    append(&mut log, 1, 40);
    for committed in directory.commit(old) {
        assert_eq!(committed.result(), Ok(()));
        log.committed(&committed);
    }
    assert_eq!(log.durable_offset(), Offset(2));
    commit(&directory, &mut [&mut log]);
    assert_eq!(log.durable_offset(), Offset(4));
}

#[test]
fn a_full_disk_takes_no_cut_and_the_log_is_as_it_was() {
    let (disk, directory, mut log) = filled(&[1, 2, 3]);
    append(&mut log, 1, 20);
    let all = contents(&log, Offset(0));
    let old = log.take_dirty().into_iter().collect();
    disk.set_room(Some(0));
    assert!(log.truncate_to(Offset(2)).unwrap_err().is_disk_full());
    assert!(!directory.is_failed());
    assert_eq!(contents(&log, Offset(0)), all);
    for committed in directory.commit(old) {
        log.committed(&committed);
    }
    assert!(log.durable_offset() < log.log_end_offset(), "the round was begun before");
    disk.set_room(None);
    commit(&directory, &mut [&mut log]);
    assert_eq!(log.durable_offset(), log.log_end_offset());
    log.truncate_to(Offset(2)).unwrap();
    assert_eq!(log.log_end_offset(), Offset(2));
}

#[test]
fn what_a_cut_leaves_is_read_wherever_the_cut_has_failed() {
    let left = |log: &TestLog| -> Vec<BatchHeader> {
        log.batches(Offset(0), Offset(4)).map(|read| read.unwrap().0).collect()
    };
    for calls in 1.. {
        let (disk, directory, mut log) = filled(&[1, 2, 3]);
        for bytes in [20, 20, 1500] {
            append(&mut log, 1, bytes);
        }
        commit(&directory, &mut [&mut log]);
        let before = left(&log);
        disk.stop_after(calls);
        if log.truncate_to(Offset(4)).is_ok() {
            assert!(5 < calls, "a cut takes more than {calls} calls");
            break;
        }
        assert!(directory.is_failed());
        assert_eq!(left(&log), before, "failed at call {calls}");
    }
}
