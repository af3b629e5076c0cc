use std::collections::BTreeSet;
use std::io::{ErrorKind, IoSlice};
use std::path::Path;

use towpath_log::disk::{Disk, DiskFile};

use super::SimDisk;
use crate::contract::check_disk;
use crate::trace::Trace;

fn disk(seed: u64) -> SimDisk {
    SimDisk::new(seed, Trace::hashing())
}

fn write(file: &impl DiskFile, bytes: &[u8], position: u64) {
    file.write_at(&[IoSlice::new(bytes)], position).unwrap();
}

fn path(text: &str) -> &Path {
    Path::new(text)
}

/// What a file may hold after a power loss, over many seeds; `None` is "no such file".
fn outcomes(prepare: impl Fn(&SimDisk), name: &str) -> BTreeSet<Option<Vec<u8>>> {
    (0..200)
        .map(|seed| {
            let disk = disk(seed);
            prepare(&disk);
            disk.lose_power();
            disk.restart();
            let file = disk.open(path(name)).ok()?;
            let mut bytes = vec![0; file.len().unwrap() as usize];
            file.read_at(&mut bytes, 0).unwrap();
            Some(bytes)
        })
        .collect()
}

#[test]
fn it_keeps_the_contract_of_real_disks() {
    let disk = disk(1);
    disk.create_dir_all(path("/data")).unwrap();
    check_disk(&disk, path("/data"));
}

#[test]
fn synced_bytes_under_a_synced_name_always_survive() {
    let outcomes = outcomes(
        |disk| {
            disk.create_dir_all(path("/d")).unwrap();
            disk.sync_dir(path("/")).unwrap();
            let file = disk.create(path("/d/f")).unwrap();
            disk.sync_dir(path("/d")).unwrap();
            write(&file, b"kept", 0);
            file.sync_data().unwrap();
            assert_eq!(disk.durable(path("/d/f")).unwrap(), b"kept");
        },
        "/d/f",
    );
    assert_eq!(outcomes, BTreeSet::from([Some(b"kept".to_vec())]));
}

#[test]
fn synced_bytes_under_an_unsynced_name_may_vanish() {
    let outcomes = outcomes(
        |disk| {
            let file = disk.create(path("/f")).unwrap();
            write(&file, b"kept", 0);
            file.sync_data().unwrap();
            assert_eq!(disk.durable(path("/f")), None);
        },
        "/f",
    );
    assert_eq!(outcomes, BTreeSet::from([None, Some(b"kept".to_vec())]));
}

#[test]
fn a_file_in_a_directory_whose_own_name_was_not_synced_may_vanish() {
    let outcomes = outcomes(
        |disk| {
            disk.create_dir_all(path("/d")).unwrap();
            drop(disk.create(path("/d/f")).unwrap());
            disk.sync_dir(path("/d")).unwrap();
        },
        "/d/f",
    );
    assert_eq!(outcomes, BTreeSet::from([None, Some(vec![])]));
}

#[test]
fn unsynced_sectors_survive_in_any_subset_and_synced_ones_always() {
    let outcomes = outcomes(
        |disk| {
            let file = disk.create(path("/f")).unwrap();
            disk.sync_dir(path("/")).unwrap();
            write(&file, &[1; 300], 0);
            file.sync_data().unwrap();
            write(&file, &[2; 1236], 300);
        },
        "/f",
    );
    let outcomes: Vec<Vec<u8>> = outcomes.into_iter().map(Option::unwrap).collect();
    assert!(outcomes.iter().all(|bytes| bytes[..300] == [1; 300]));
    let whole = [vec![1; 300], vec![2; 1236]].concat();
    assert!(outcomes.contains(&whole));
    assert!(outcomes.contains(&vec![1; 300]));
    let only_the_last = [vec![1; 300], vec![0; 724], vec![2; 512]].concat();
    assert!(outcomes.contains(&only_the_last));
    let noise = |bytes: &Vec<u8>| bytes.iter().any(|byte| !matches!(byte, 0..=2));
    assert!(outcomes.iter().any(noise));
}

#[test]
fn an_unsynced_truncation_may_be_forgotten_but_a_synced_one_not() {
    let prepare = |disk: &SimDisk| {
        let file = disk.create(path("/f")).unwrap();
        disk.sync_dir(path("/")).unwrap();
        write(&file, b"long text", 0);
        file.sync_data().unwrap();
        file.truncate(4).unwrap();
        file
    };
    let forgotten = outcomes(|disk| drop(prepare(disk)), "/f");
    assert_eq!(forgotten, BTreeSet::from([Some(b"long".to_vec()), Some(b"long text".to_vec())]));
    let certain = outcomes(|disk| prepare(disk).sync_data().unwrap(), "/f");
    assert_eq!(certain, BTreeSet::from([Some(b"long".to_vec())]));
}

#[test]
fn a_rename_is_certain_after_the_sync_of_the_new_names_directory() {
    let prepare = |disk: &SimDisk| {
        for name in ["/a", "/b"] {
            disk.create_dir_all(path(name)).unwrap();
        }
        let file = disk.create(path("/a/f")).unwrap();
        write(&file, b"x", 0);
        file.sync_data().unwrap();
        disk.sync_dir(path("/a")).unwrap();
        disk.sync_dir(path("/")).unwrap();
        disk.rename(path("/a/f"), path("/b/g")).unwrap();
        // A second file under the old name must not be certain before the first one has left it.
        drop(disk.create(path("/a/f")).unwrap());
    };
    let open = outcomes(prepare, "/b/g");
    assert_eq!(open, BTreeSet::from([None, Some(b"x".to_vec())]));
    let certain = |disk: &SimDisk| {
        prepare(disk);
        disk.sync_dir(path("/b")).unwrap();
    };
    assert_eq!(outcomes(certain, "/b/g"), BTreeSet::from([Some(b"x".to_vec())]));
    let both = |disk: &SimDisk| {
        prepare(disk);
        disk.sync_dir(path("/a")).unwrap();
    };
    assert_eq!(outcomes(both, "/b/g"), BTreeSet::from([Some(b"x".to_vec())]));
    assert_eq!(outcomes(both, "/a/f"), BTreeSet::from([Some(vec![])]));
}

#[test]
fn a_killed_process_leaves_the_page_cache_and_loses_its_handles_and_locks() {
    let disk = disk(3);
    let guard = disk.lock(path("/lock")).unwrap();
    let file = disk.create(path("/f")).unwrap();
    write(&file, b"cached", 0);
    disk.kill();
    assert!(disk.open(path("/f")).is_err());
    disk.restart();
    assert!(file.len().is_err(), "a handle of the dead process");
    let second = disk.lock(path("/lock")).unwrap();
    drop(guard);
    assert_eq!(disk.lock(path("/lock")).err().unwrap().kind(), ErrorKind::WouldBlock);
    drop(second);
    assert_eq!(disk.open(path("/f")).unwrap().len().unwrap(), 6);
    assert_eq!(disk.durable(path("/f")), None);
}

#[test]
fn a_failed_sync_loses_its_bytes_and_the_next_one_succeeds() {
    let disk = disk(4);
    let file = disk.create(path("/f")).unwrap();
    disk.sync_dir(path("/")).unwrap();
    write(&file, &[7; 4000], 0);
    disk.fail_sync_in(1);
    assert!(file.sync_data().is_err());
    file.sync_data().unwrap();
    let mut seen = [0; 4000];
    file.read_at(&mut seen, 0).unwrap();
    assert_eq!(seen, [7; 4000], "the page cache still shows it");
    assert_ne!(disk.durable(path("/f")).unwrap(), [7; 4000]);
    let durable = disk.durable(path("/f")).unwrap();
    disk.kill();
    disk.restart();
    let file = disk.open(path("/f")).unwrap();
    file.read_at(&mut seen, 0).unwrap();
    assert_eq!(seen, [7; 4000], "a kill does not change that");
    file.drop_cached(0, 1).unwrap();
    assert_eq!(disk.files(), [("/f".to_owned(), durable)]);
}

#[test]
fn a_crash_is_planned_at_any_changing_call_and_stops_the_machine() {
    for calls in 1..=3 {
        let disk = disk(calls);
        disk.crash_at(calls);
        let results = [
            disk.create(path("/f")).map(drop),
            disk.open(path("/f")).and_then(|file| file.write_at(&[IoSlice::new(b"abc")], 0)),
            disk.sync_dir(path("/")),
            disk.list(path("/")).map(drop),
        ];
        let failed = results.iter().position(Result::is_err).unwrap() as u64;
        assert_eq!(failed + 1, calls);
        assert!(results[failed as usize..].iter().all(Result::is_err));
        assert!(disk.has_crashed());
    }
}

#[test]
fn a_full_disk_refuses_writes_and_recovers_when_space_returns() {
    let disk = disk(5);
    disk.set_capacity(Some(1000));
    let file = disk.create(path("/f")).unwrap();
    write(&file, &[1; 900], 0);
    let refused = file.write_at(&[IoSlice::new(&[2; 200])], 900).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::StorageFull);
    assert_eq!(file.allocate(2000).unwrap_err().kind(), ErrorKind::StorageFull);
    write(&file, &[3; 900], 0);
    assert_eq!(disk.space(path("/")).unwrap().free_bytes, 0);
    file.truncate(0).unwrap();
    write(&file, &[4; 1000], 0);
}

#[test]
fn a_fork_has_a_future_of_its_own() {
    let disk = disk(6);
    let file = disk.create(path("/f")).unwrap();
    write(&file, b"here", 0);
    let fork = disk.fork(1);
    fork.lose_power();
    fork.restart();
    fork.create_dir_all(path("/other")).unwrap();
    assert!(!disk.exists(path("/other")).unwrap());
    assert_eq!(file.len().unwrap(), 4);
}
