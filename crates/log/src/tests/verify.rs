//! A directory that no broker runs on is checked, and not a byte of it changes.

use towpath_model::Offset;

use super::fixture::*;
use crate::disk::Disk;
use crate::testing::MemoryDisk;
use crate::{LastStop, OpenError, Verified, verify};

/// Two logs; `0`: five sealed segments and an active one. Closed, or killed with frames to replay.
fn written(closes: bool) -> MemoryDisk {
    let disk = MemoryDisk::default();
    let (directory, _) = open(&disk);
    let (mut first, mut second) = (open_log(&directory, 0).0, open_log(&directory, 1).0);
    for _ in 0..6 {
        append(&mut first, 2, 900);
    }
    first.save_checkpoint().unwrap();
    first.save_producers(Offset(12), b"state").unwrap();
    for _ in 0..3 {
        append(&mut first, 1, 30);
        append(&mut second, 1, 30);
        commit(&directory, &mut [&mut first, &mut second]);
    }
    if closes {
        directory.close([&mut first, &mut second]).unwrap();
    }
    drop((first, second, directory));
    disk.kill();
    disk
}

/// Every file with its bytes.
fn everything(disk: &MemoryDisk) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    let mut directories = vec![std::path::PathBuf::from(ROOT)];
    while let Some(directory) = directories.pop() {
        for name in disk.list(&directory).unwrap() {
            let path = directory.join(name);
            match disk.open(&path) {
                Ok(_) => files.push((path.clone(), disk.content(&path))),
                Err(_) => directories.push(path),
            }
        }
    }
    files
}

fn verified(disk: &MemoryDisk) -> Verified {
    let before = everything(disk);
    let verified = verify(disk, ROOT.as_ref(), |_| {}).unwrap();
    assert!(everything(disk) == before, "verifying has changed a file");
    verified
}

#[test]
fn healthy_directories_are_fine_however_the_process_ended() {
    for closes in [true, false] {
        let disk = written(closes);
        let found = verified(&disk);
        assert!(found.is_fine(), "{found:#?}");
        let stop = if closes { LastStop::Clean } else { LastStop::ProcessEnded };
        assert_eq!((found.last_stop, found.frames == 0), (stop, closes));
        let ends: Vec<_> =
            found.logs.iter().map(|log| (log.log_end_offset.0, log.batches)).collect();
        assert_eq!(ends, [(15, 9), (3, 3)]);
        // A start finds the same, and the mark of a clean stop is still there for it.
        let (directory, report) = open(&disk);
        assert_eq!(report.last_stop, stop);
        assert_eq!(open_log(&directory, 0).0.log_end_offset(), Offset(15));
        let refused = verify(&disk, ROOT.as_ref(), |_| {});
        assert!(matches!(refused, Err(OpenError::Locked(_))), "{refused:?}");
    }
}

#[test]
fn what_is_no_data_directory_is_refused() {
    let disk = MemoryDisk::default();
    disk.create_dir_all(ROOT.as_ref()).unwrap();
    assert!(matches!(verify(&disk, ROOT.as_ref(), |_| {}), Err(OpenError::NoFormat(_))));
}

#[test]
fn every_kind_of_file_is_looked_at() {
    let names = [
        ("00000000000000000004.log", 700, "damage"),
        ("00000000000000000004.log", 5, "damage"),
        ("00000000000000000010.log", 700, "damage"),
        ("00000000000000000004.index", 40, "wrong"),
        ("00000000000000000004.timeindex", 5, "wrong"),
        ("checkpoint.0", 30, "wrong"),
        ("checkpoint.1", 30, "wrong"),
        ("00000000000000000012.producers", 20, "wrong"),
    ];
    for (name, at, kind) in names {
        let disk = written(true);
        disk.flip(&file(0, name), at);
        let found = verified(&disk);
        let (first, second) = (&found.logs[0], &found.logs[1]);
        assert!(!found.is_fine() && second.is_fine(), "{name}: {found:#?}");
        if kind == "damage" {
            let from = name[..20].parse().unwrap();
            assert_eq!(first.damage, vec![changed(from, from + 2)], "{name}");
        } else {
            let wrong: Vec<_> = first.wrong_files.iter().map(|file| file.name.clone()).collect();
            let shown = name.replace("timeindex", "index");
            assert_eq!((wrong, &first.damage), (vec![shown], &vec![]), "{name}");
        }
    }
}

#[test]
fn a_log_that_cannot_be_read_is_named_and_the_others_are_checked() {
    let disk = written(true);
    disk.remove_file(&file(0, "00000000000000000004.log")).unwrap();
    let found = verified(&disk);
    assert_eq!(found.logs[0].damage, vec![missing(4, 6)]);
    assert!(found.logs[1].is_fine());
}
