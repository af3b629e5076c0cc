//! A vote that somebody has heard of is found again, whatever happened since.

use std::path::Path;

use super::fixture::{ROOT, open};
use crate::disk::Disk;
use crate::testing::{Dice, MemoryDisk};
use crate::{LogError, QuorumState};

fn state(disk: &MemoryDisk) -> Result<QuorumState, LogError> {
    let (directory, _) = open(disk);
    directory.quorum_files().map(|(_, state)| state)
}

fn vote(nth: u8) -> Vec<u8> {
    vec![nth; 24]
}

#[test]
fn a_vote_survives_a_power_cut_at_any_moment_of_the_next_one() {
    for seed in 0..60 {
        for stop_after in 0..12 {
            let disk = MemoryDisk::default();
            let mut dice = Dice(seed);
            let (directory, _) = open(&disk);
            let (mut files, found) = directory.quorum_files().unwrap();
            assert_eq!(found, QuorumState::default());
            files.save_vote(&vote(1)).unwrap();
            disk.stop_after(stop_after);
            let is_saved = files.save_vote(&vote(2)).is_ok();
            drop((files, directory));
            disk.power_cut(&mut dice);
            let found = state(&disk).unwrap().vote.unwrap();
            let allowed = if is_saved { vec![vote(2)] } else { vec![vote(1), vote(2)] };
            assert!(allowed.contains(&found), "seed {seed}, stopped after {stop_after} calls");
        }
    }
}

#[test]
fn the_first_vote_may_be_missing_only_as_long_as_nobody_has_heard_of_it() {
    for seed in 0..60 {
        for stop_after in 0..12 {
            let disk = MemoryDisk::default();
            let (directory, _) = open(&disk);
            let (mut files, _) = directory.quorum_files().unwrap();
            disk.stop_after(stop_after);
            let is_saved = files.save_vote(&vote(1)).is_ok();
            drop((files, directory));
            disk.power_cut(&mut Dice(seed));
            let found = state(&disk).unwrap().vote;
            assert!(found == Some(vote(1)) || !is_saved && found.is_none());
        }
    }
}

#[test]
fn a_torn_write_leaves_the_last_vote_also_where_only_one_file_holds_it() {
    let [first, second] = ["quorum.0", "quorum.1"].map(|name| Path::new(ROOT).join(name));
    let flip = |path| move |disk: &MemoryDisk| disk.flip(path, 30);
    let never_made = |disk: &MemoryDisk| disk.remove_file(&second).unwrap();
    torn_while_one_file_is_lost(flip(&first), &first, 2);
    torn_while_one_file_is_lost(flip(&second), &second, 2);
    torn_while_one_file_is_lost(never_made, &second, 3);
}

/// A process has left the last vote in one file only; the next one writes, which is the call before
/// `stop`, into the `other`.
fn torn_while_one_file_is_lost(lose: impl Fn(&MemoryDisk), other: &Path, stop: u64) {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    directory.quorum_files().unwrap().0.save_vote(&vote(1)).unwrap();
    drop(directory);
    lose(&disk);
    let (directory, _) = open(&disk);
    let (mut files, found) = directory.quorum_files().unwrap();
    assert_eq!(found.vote, Some(vote(1)));
    disk.stop_after(stop);
    files.save_vote(&vote(2)).unwrap_err();
    drop((files, directory));
    disk.kill();
    assert_eq!(state(&disk.copy()).unwrap().vote, Some(vote(2)));
    let half = disk.content(other)[..30].to_vec();
    disk.overwrite(other, &half);
    assert_eq!(state(&disk).unwrap().vote, Some(vote(1)));
}

#[test]
fn damage_to_one_file_costs_nothing_and_damage_to_both_stops_the_start() {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (mut files, _) = directory.quorum_files().unwrap();
    (1..=3).for_each(|nth| files.save_vote(&vote(nth)).unwrap());
    drop((files, directory));
    let [first, second] = ["quorum.0", "quorum.1"].map(|name| Path::new(ROOT).join(name));
    for damaged in [&first, &second] {
        let copy = disk.copy();
        copy.flip(damaged, 30);
        assert_eq!(state(&copy).unwrap().vote, Some(vote(3)));
    }
    disk.flip(&first, 30);
    disk.flip(&second, 30);
    assert!(matches!(state(&disk), Err(LogError::Unreadable { .. })));
}

#[test]
fn a_snapshot_is_the_old_one_or_the_new_one() {
    for seed in 0..40 {
        for stop_after in 0..10 {
            let disk = MemoryDisk::default();
            let (directory, _) = open(&disk);
            let (files, _) = directory.quorum_files().unwrap();
            files.save_snapshot(&[1; 3000]).unwrap();
            disk.stop_after(stop_after);
            let is_saved = files.save_snapshot(&[2; 5000]).is_ok();
            drop((files, directory));
            disk.power_cut(&mut Dice(seed));
            let found = state(&disk).unwrap().snapshot.unwrap();
            assert!(found == [2; 5000] || !is_saved && found == [1; 3000]);
        }
    }
}
