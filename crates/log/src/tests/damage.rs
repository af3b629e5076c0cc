//! Torn tails and flipped bits: the former are cut, the latter reported and never cut.

use towpath_model::Offset;
use towpath_records::Compression;

use super::fixture::*;
use crate::testing::{Dice, MemoryDisk};
use crate::{LogError, ReadError};

/// A log with `batches` batches, of which the first `durable` were committed, after a kill.
fn killed(batches: usize, durable: usize, bytes: usize) -> (MemoryDisk, Vec<Vec<u8>>) {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (mut log, _) = open_log(&directory, 0);
    let mut all = Vec::new();
    for n in 0..batches {
        all.push(append(&mut log, 2, bytes));
        if n + 1 == durable {
            commit(&directory, &mut [&mut log]);
            log.save_checkpoint().unwrap();
        }
    }
    drop((log, directory));
    disk.kill();
    (disk, all)
}

const SEGMENT: &str = "00000000000000000000.log";

#[test]
fn a_torn_tail_is_cut_wherever_it_is_torn() {
    let (disk, all) = killed(4, 2, 30);
    let size = all[0].len();
    let whole = disk.content(&file(0, SEGMENT));
    for kept in size * 2..=size * 4 {
        let torn = disk.copy();
        let mut content = whole.clone();
        content[kept..].fill(0);
        if kept % 2 == 0 {
            content.truncate(kept);
        }
        torn.overwrite(&file(0, SEGMENT), &content);
        let (directory, _) = open(&torn);
        let (mut log, recovery) = open_log(&directory, 0);
        // The last byte of a batch of ours is zero: the header count of its last record.
        let batches = if kept + 1 == size * 3 && kept % 2 == 1 { 3 } else { kept / size };
        let batches = if kept + 1 == size * 4 && kept % 2 == 1 { 4 } else { batches };
        assert_eq!(log.log_end_offset(), Offset(2 * batches as i64), "kept {kept}");
        assert_eq!(contents(&log, Offset(0)), all[..batches].concat());
        assert_eq!(recovery.damage, vec![]);
        let has_remains = content.iter().skip(size * batches).any(|byte| *byte != 0);
        assert_eq!(recovery.cut.is_some(), has_remains, "kept {kept}: {recovery:?}");
        let next = append(&mut log, 1, 10);
        commit(&directory, &mut [&mut log]);
        drop((log, directory));
        torn.kill();
        let (directory, _) = open(&torn);
        let (log, _) = open_log(&directory, 0);
        assert_eq!(contents(&log, Offset(0)), [all[..batches].concat(), next].concat());
    }
}

#[test]
fn what_lies_behind_a_torn_batch_never_comes_back() {
    let (disk, all) = killed(4, 1, 30);
    let size = all[0].len();
    disk.flip(&file(0, SEGMENT), size + 70);
    let (directory, _) = open(&disk);
    let (mut log, recovery) = open_log(&directory, 0);
    let cut = recovery.cut.unwrap();
    assert_eq!((cut.at, cut.was_reordered), (Offset(2), true));
    // Batches of the same size put what lay behind exactly where a batch would follow.
    append(&mut log, 2, 30);
    drop((log, directory));
    disk.kill();
    let (directory, _) = open(&disk);
    let (log, recovery) = open_log(&directory, 0);
    assert_eq!((log.log_end_offset(), recovery.cut), (Offset(4), None));
}

#[test]
fn a_bad_batch_with_all_its_sectors_is_suspect() {
    let (disk, all) = killed(2, 1, 400);
    disk.flip(&file(0, SEGMENT), all[0].len() + 70);
    let (directory, _) = open(&disk);
    let (_, recovery) = open_log(&directory, 0);
    let cut = recovery.cut.unwrap();
    assert!(cut.is_suspect && !cut.was_reordered, "{cut:?}");
}

#[test]
fn damage_below_the_durable_offset_is_reported_and_never_cut() {
    let (disk, all) = killed(6, 6, 30);
    let size = all[0].len();
    // Without the index the segment is scanned; a damaged one is no obstacle.
    disk.flip(&file(0, "00000000000000000000.index"), 20);
    disk.flip(&file(0, SEGMENT), size * 2 + 70);
    for _ in 0..2 {
        let (directory, _) = open(&disk);
        let (log, recovery) = open_log(&directory, 0);
        assert_eq!(recovery.cut, None);
        assert_eq!(recovery.damage, vec![changed(4, 6)]);
        assert!(matches!(recovery.refuse_damage(), Err(LogError::Corrupt { .. })));
        for offset in 0..12 {
            let read = log.read(Offset(offset), Offset(12), 9999, true);
            match (offset, read) {
                (0..4, Ok(Some(slice))) => assert_eq!(slice.next_offset, Offset(4)),
                (4..6, Err(ReadError::CorruptBatch { from, to })) => {
                    assert_eq!((from, to), (Offset(4), Offset(6)));
                }
                (6.., Ok(Some(slice))) => {
                    assert!(slice.first_offset <= Offset(offset));
                    assert_eq!(slice.next_offset, Offset(12));
                }
                (_, read) => panic!("offset {offset}: {read:?}"),
            }
        }
        let headers: Vec<i64> =
            log.headers(Offset(0)).map(|header| header.unwrap().base_offset().0).collect();
        assert_eq!(headers, [0, 2, 6, 8, 10], "folds of headers pass it over");
        let batches: Vec<bool> =
            log.batches(Offset(0), Offset(12)).map(|batch| batch.is_ok()).collect();
        assert_eq!(batches, [true, true, false], "folds of records stop at it");
        let next = batch(Offset(12), &[1], 10, Compression::None);
        assert_eq!(log.log_end_offset(), Offset(12));
        let writable = disk.copy();
        drop((log, directory));
        disk.kill();
        let (directory, _) = open(&writable);
        let (mut log, _) = open_log(&directory, 0);
        try_append(&mut log, &next, 1).unwrap();
        assert_eq!(contents(&log, Offset(6)), [all[3..].concat(), next].concat());
    }
}

#[test]
fn a_durable_end_that_is_gone_is_damage_and_its_offsets_are_not_used_again() {
    let (disk, all) = killed(4, 4, 30);
    let size = all[0].len();
    let mut content = disk.content(&file(0, SEGMENT));
    content.truncate(size * 3);
    disk.overwrite(&file(0, SEGMENT), &content);
    let (directory, _) = open(&disk);
    let (mut log, recovery) = open_log(&directory, 0);
    assert_eq!(recovery.damage, vec![missing(6, 8)]);
    assert_eq!(log.log_end_offset(), Offset(8));
    let next = append(&mut log, 1, 10);
    assert_eq!(contents(&log, Offset(8)), next);
    log.start_moves_to(Offset(7)).unwrap();
    assert!(log.read(Offset(7), Offset(9), 999, true).is_err());
    log.start_moves_to(Offset(8)).unwrap();
    assert_eq!(contents(&log, Offset(8)), next);
}

#[test]
fn a_missing_segment_is_damage() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (mut log, _) = open_log(&directory, 0);
    let all: Vec<Vec<u8>> = (0..3).map(|_| append(&mut log, 1, 1500)).collect();
    log.save_checkpoint().unwrap();
    drop((log, directory));
    disk.kill();
    crate::disk::Disk::remove_file(&disk, &file(0, "00000000000000000001.log")).unwrap();
    let (directory, _) = open(&disk);
    let (log, recovery) = open_log(&directory, 0);
    assert_eq!(recovery.damage, vec![missing(1, 2)]);
    assert_eq!(contents(&log, Offset(2)), all[2]);
    let first = log.read(Offset(0), Offset(3), 9999, true).unwrap().unwrap();
    assert_eq!(first.read().unwrap(), all[0]);
}

#[test]
fn damaged_indexes_are_rebuilt_and_damaged_checkpoints_lose_nothing() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (mut log, _) = open_log(&directory, 0);
    let mut all = Vec::new();
    for n in 0..40 {
        all.extend(append(&mut log, 2, 60));
        if n % 5 == 0 {
            log.save_checkpoint().unwrap();
        }
    }
    directory.close([&mut log]).unwrap();
    drop((log, directory));
    let mut dice = Dice(3);
    for name in crate::disk::Disk::list(&disk, file(0, "x").parent().unwrap()).unwrap() {
        if name.ends_with(".log") {
            continue;
        }
        let broken = disk.copy();
        for _ in 0..3 {
            let length = broken.content(&file(0, &name)).len() as u64;
            broken.flip(&file(0, &name), dice.below(length) as usize);
        }
        let (directory, _) = open(&broken);
        let (log, recovery) = open_log(&directory, 0);
        assert_eq!((recovery.damage, recovery.cut), (vec![], None), "{name}");
        assert_eq!(contents(&log, Offset(0)), all, "{name}");
    }
    for name in ["checkpoint.0", "checkpoint.1"] {
        disk.flip(&file(0, name), 30);
    }
    let (directory, _) = open(&disk);
    let (log, recovery) = open_log(&directory, 0);
    assert_eq!((recovery.damage, recovery.cut), (vec![], None));
    assert_eq!(contents(&log, Offset(0)), all);
}

#[test]
fn a_clean_stop_has_torn_nothing_and_its_only_checkpoint_is_not_taken_for_torn() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (mut log, _) = open_log(&directory, 0);
    let all: Vec<Vec<u8>> = (0..4).map(|_| append(&mut log, 2, 30)).collect();
    directory.close([&mut log]).unwrap();
    drop((log, directory));
    disk.flip(&file(0, "checkpoint.1"), 30);
    disk.flip(&file(0, SEGMENT), all[0].len() + 70);
    let (directory, _) = open(&disk);
    let (log, recovery) = open_log(&directory, 0);
    assert_eq!((recovery.damage, recovery.cut), (vec![changed(2, 4)], None));
    assert_eq!(log.log_end_offset(), Offset(8));
}

/// Three small segments of one batch each and a checkpoint, after a kill, the second one damaged.
fn second_segment_damaged() -> (MemoryDisk, Vec<Vec<u8>>) {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (mut log, _) = open_log(&directory, 0);
    let all: Vec<Vec<u8>> = (0..3).map(|_| append(&mut log, 2, 900)).collect();
    log.save_checkpoint().unwrap();
    drop((log, directory));
    disk.kill();
    disk.flip(&file(0, "00000000000000000002.log"), 700);
    disk.flip(&file(0, "00000000000000000002.index"), 30);
    (disk, all)
}

#[test]
fn damage_that_was_found_once_is_remembered_and_not_looked_for_again() {
    let (disk, all) = second_segment_damaged();
    for start in 0..3 {
        let (directory, _) = open(&disk);
        let (log, recovery) = open_log(&directory, 0);
        assert_eq!((recovery.cut, recovery.damage), (None, vec![changed(2, 4)]));
        assert_eq!(recovery.new_damage, usize::from(start == 0));
        assert_eq!(recovery.scanned_bytes < 1500, start != 0, "start {start}");
        let refused = log.read(Offset(2), Offset(6), 9999, true);
        assert!(matches!(refused, Err(ReadError::CorruptBatch { .. })), "{refused:?}");
        assert_eq!(contents(&log, Offset(4)), all[2]);
        drop((log, directory));
        disk.kill();
    }
    // Without the file nothing but a look at every batch tells.
    disk.flip(&file(0, "damage"), 20);
    let (directory, _) = open(&disk);
    let (_, recovery) = open_log(&directory, 0);
    assert_eq!((recovery.damage, recovery.new_damage), (vec![changed(2, 4)], 1));
}

#[test]
fn damage_is_forgotten_with_its_records() {
    let (disk, all) = second_segment_damaged();
    let (directory, _) = open(&disk);
    let (mut log, _) = open_log(&directory, 0);
    log.start_moves_to(Offset(3)).unwrap();
    assert_eq!(log.damaged(), vec![changed(3, 4)]);
    log.start_moves_to(Offset(4)).unwrap();
    assert_eq!(log.damaged(), vec![]);
    assert!(!crate::disk::Disk::exists(&disk, &file(0, "damage")).unwrap());
    drop((log, directory));
    disk.power_cut(&mut Dice(3));
    let (directory, _) = open(&disk);
    let (log, recovery) = open_log(&directory, 0);
    assert_eq!(recovery.damage, vec![]);
    assert_eq!(contents(&log, Offset(4)), all[2]);
}

#[test]
fn a_start_that_finds_damage_may_end_anywhere() {
    let (disk, all) = second_segment_damaged();
    for call in 1..40 {
        for seed in 0..4 {
            let disk = disk.copy();
            disk.stop_after(call);
            let opened = Directory::open_with(
                disk.clone(),
                ROOT.as_ref(),
                identity,
                "boot",
                super::fixture::LIMITS,
            );
            drop(opened.map(|(directory, _)| drop(directory.open_log(place(0), CONFIG))));
            if seed == 0 {
                disk.kill()
            } else {
                disk.power_cut(&mut Dice(seed))
            }
            let (directory, _) = open(&disk);
            let (log, recovery) = open_log(&directory, 0);
            assert_eq!(recovery.damage, vec![changed(2, 4)], "stopped at {call}, seed {seed}");
            assert_eq!(contents(&log, Offset(4)), all[2]);
        }
    }
}
