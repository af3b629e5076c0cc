use std::io::IoSlice;

use towpath_log::disk::{Disk, DiskFile};
use towpath_sim::contract::check_disk;

use super::*;

#[test]
fn the_portable_disk_keeps_the_contract() {
    let root = tempfile::tempdir().unwrap();
    check_disk(&PortableDisk, root.path());
}

#[cfg(target_os = "linux")]
#[test]
fn the_linux_disk_keeps_the_contract() {
    let root = tempfile::tempdir().unwrap();
    check_disk(&LinuxDisk, root.path());
}

#[cfg(target_os = "linux")]
#[test]
fn allocation_reserves_blocks_so_that_a_full_disk_shows_before_the_write() {
    use std::os::unix::fs::MetadataExt;

    let root = tempfile::tempdir().unwrap();
    let file = LinuxDisk.create(&root.path().join("f")).unwrap();
    file.allocate(1 << 20).unwrap();
    let reserved = file.as_std().unwrap().metadata().unwrap().blocks() * 512;
    assert!(reserved == 0 || 1 << 20 <= reserved, "{reserved} bytes of 1 MiB reserved");
}

#[test]
fn readers_and_writers_of_one_file_do_not_disturb_each_other() {
    let root = tempfile::tempdir().unwrap();
    let file = SystemDisk::default().create(&root.path().join("f")).unwrap();
    shared_by_threads(&file);
    let file = PortableDisk.create(&root.path().join("g")).unwrap();
    shared_by_threads(&file);
}

fn shared_by_threads(file: &impl DiskFile) {
    const BLOCK: usize = 4096;
    std::thread::scope(|scope| {
        for lane in 0..4u8 {
            scope.spawn(move || {
                for round in 0..50u64 {
                    let position = (round * 4 + u64::from(lane)) * BLOCK as u64;
                    file.write_at(&[IoSlice::new(&[lane + 1; BLOCK])], position).unwrap();
                    let mut back = [0; BLOCK];
                    assert_eq!(file.read_at(&mut back, position).unwrap(), BLOCK);
                    assert_eq!(back, [lane + 1; BLOCK]);
                }
            });
        }
    });
    assert_eq!(file.len().unwrap(), 200 * BLOCK as u64);
}
