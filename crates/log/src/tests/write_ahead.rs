use std::path::{Path, PathBuf};

use towpath_model::Offset;

use super::fixture::*;
use crate::disk::Disk;
use crate::testing::{Dice, MemoryDisk};

fn wal_files(disk: &MemoryDisk) -> Vec<PathBuf> {
    let directory = Path::new(ROOT).join("wal");
    disk.list(&directory).unwrap().iter().map(|name| directory.join(name)).collect()
}

#[test]
fn small_appends_survive_a_power_cut_in_the_write_ahead_file_alone() {
    for seed in 0..20 {
        let disk = MemoryDisk::default();
        let (directory, _) = open(&disk);
        let mut logs: Vec<TestLog> = (0..5).map(|n| open_log(&directory, n).0).collect();
        let mut all = vec![Vec::new(); 5];
        for _ in 0..4 {
            for (log, all) in logs.iter_mut().zip(&mut all) {
                all.extend(append(log, 2, 25));
            }
            commit(&directory, &mut logs.iter_mut().collect::<Vec<_>>());
        }
        drop((logs, directory));
        disk.power_cut(&mut Dice(seed));
        let (directory, report) = open(&disk);
        assert!(0 < report.replayed_frames);
        assert_eq!(wal_files(&disk).len(), 1, "one that says how far the logs are durable");
        for (n, all) in all.iter().enumerate() {
            let (log, recovery) = open_log(&directory, n as i32);
            assert_eq!(contents(&log, Offset(0)), *all);
            assert_eq!((recovery.cut, recovery.damage), (None, vec![]));
        }
    }
}

#[test]
fn two_files_take_turns_and_stay_small() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let mut logs: Vec<TestLog> = (0..3).map(|n| open_log(&directory, n).0).collect();
    for _ in 0..200 {
        for log in &mut logs {
            append(log, 1, 40);
        }
        commit(&directory, &mut logs.iter_mut().collect::<Vec<_>>());
        directory.tidy();
        let files = wal_files(&disk);
        assert!(files.len() <= 2, "{files:?}");
        for file in files {
            assert!(disk.content(&file).len() as u64 <= LIMITS.file_bytes_max);
        }
    }
    let numbers: Vec<PathBuf> = wal_files(&disk);
    assert!(numbers.iter().all(|path| !path.ends_with("00000000000000000001.wal")), "{numbers:?}");
}

#[test]
fn a_frame_that_was_synced_and_is_unreadable_is_reported_and_passed_over() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let mut logs: Vec<TestLog> = (0..2).map(|n| open_log(&directory, n).0).collect();
    let mut all = vec![Vec::new(); 2];
    for _ in 0..3 {
        for (log, all) in logs.iter_mut().zip(&mut all) {
            all.extend(append(log, 1, 25));
        }
        commit(&directory, &mut logs.iter_mut().collect::<Vec<_>>());
    }
    drop((logs, directory));
    disk.kill();
    disk.flip(&wal_files(&disk)[0], 64 + 90);
    let (directory, report) = open(&disk);
    assert_eq!((report.damaged_places, report.replayed_frames), (1, 5));
    for (n, all) in all.iter().enumerate() {
        assert_eq!(contents(&open_log(&directory, n as i32).0, Offset(0)), *all);
    }
}

#[test]
fn without_room_for_the_write_ahead_file_segments_are_synced_themselves() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let mut logs: Vec<TestLog> = (0..3).map(|n| open_log(&directory, n).0).collect();
    let mut all = vec![Vec::new(); 3];
    for (log, all) in logs.iter_mut().zip(&mut all) {
        all.extend(append(log, 1, 25));
    }
    disk.set_room(Some(0));
    for _ in 0..3 {
        commit(&directory, &mut logs.iter_mut().collect::<Vec<_>>());
        for (log, all) in logs.iter_mut().zip(&mut all) {
            all.extend(append(log, 1, 25));
        }
    }
    commit(&directory, &mut logs.iter_mut().collect::<Vec<_>>());
    assert!(!directory.is_failed());
    drop((logs, directory));
    disk.set_room(None);
    disk.power_cut(&mut Dice(11));
    let (directory, _) = open(&disk);
    for (n, all) in all.iter().enumerate() {
        assert_eq!(contents(&open_log(&directory, n as i32).0, Offset(0)), *all);
    }
}
