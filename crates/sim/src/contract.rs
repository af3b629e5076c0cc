//! What every [`Disk`] must do while nothing goes wrong, as one function that runs against the
//! simulated disk and against the real ones: what the simulator proves about the log is only worth
//! something if they agree.

use std::io::{ErrorKind, IoSlice};
use std::path::Path;

use towpath_log::disk::{Disk, DiskFile};

/// Checks `disk` inside the existing, empty directory `root`.
///
/// # Panics
/// At the first difference from the contract. This is a test.
pub fn check_disk<D: Disk>(disk: &D, root: &Path) {
    names_are_created_found_and_removed(disk, root);
    bytes_are_read_where_they_were_written(disk, root);
    allocated_space_reads_as_zeros_and_truncation_cuts(disk, root);
    renames_replace_files_and_keep_handles_alive(disk, root);
    removed_files_stay_readable_through_open_handles(disk, root);
    locks_exclude_each_other_until_dropped(disk, root);
    everything_can_be_synced_and_dropped_from_the_cache(disk, root);
    let space = disk.space(root).expect("the directory exists");
    assert!(space.free_bytes <= space.total_bytes);
    assert!(0 < space.free_bytes);
}

fn kind<T>(result: std::io::Result<T>) -> ErrorKind {
    result.err().expect("the call must fail").kind()
}

fn write<F: DiskFile>(file: &F, bytes: &[u8], position: u64) {
    file.write_at(&[IoSlice::new(bytes)], position).expect("a healthy disk writes");
}

fn read<F: DiskFile>(file: &F, position: u64, len: usize) -> Vec<u8> {
    let mut buffer = vec![0xee; len];
    let read = file.read_at(&mut buffer, position).expect("a healthy disk reads");
    buffer.truncate(read);
    buffer
}

fn names_are_created_found_and_removed<D: Disk>(disk: &D, root: &Path) {
    let deep = root.join("names/a/b");
    assert!(!disk.exists(&deep).unwrap());
    disk.create_dir_all(&deep).unwrap();
    disk.create_dir_all(&deep).unwrap();
    assert!(disk.exists(&deep).unwrap());

    let path = deep.join("file");
    assert_eq!(kind(disk.open(&path)), ErrorKind::NotFound);
    assert_eq!(kind(disk.list(&path)), ErrorKind::NotFound);
    assert_eq!(kind(disk.remove_file(&path)), ErrorKind::NotFound);
    assert_eq!(kind(disk.create(&root.join("names/missing/file"))), ErrorKind::NotFound);
    drop(disk.create(&path).unwrap());
    assert_eq!(kind(disk.create(&path)), ErrorKind::AlreadyExists);
    drop(disk.create(&deep.join("File.2")).unwrap());
    disk.sync_dir(&deep).unwrap();
    assert_eq!(disk.list(&deep).unwrap(), ["File.2", "file"]);
    assert_eq!(disk.list(&root.join("names")).unwrap(), ["a"]);

    assert_eq!(kind(disk.remove_dir(&deep)), ErrorKind::DirectoryNotEmpty);
    disk.remove_file(&path).unwrap();
    disk.remove_file(&deep.join("File.2")).unwrap();
    assert!(disk.list(&deep).unwrap().is_empty());
    disk.remove_dir(&deep).unwrap();
    assert_eq!(kind(disk.list(&deep)), ErrorKind::NotFound);
}

fn bytes_are_read_where_they_were_written<D: Disk>(disk: &D, root: &Path) {
    let path = root.join("bytes");
    let file = disk.create(&path).unwrap();
    assert!(file.is_empty().unwrap());
    assert_eq!(read(&file, 0, 10), b"");

    file.write_at(&[IoSlice::new(b"ab"), IoSlice::new(b""), IoSlice::new(b"cde")], 3).unwrap();
    assert_eq!(file.len().unwrap(), 8);
    assert_eq!(read(&file, 0, 100), b"\0\0\0abcde");
    assert_eq!(read(&file, 5, 2), b"cd");
    assert_eq!(read(&file, 8, 1), b"");
    assert_eq!(read(&file, 1 << 40, 1), b"");

    // More pieces than one system call takes.
    let pieces: Vec<[u8; 3]> = (0..3000u32).map(|n| [n as u8, (n >> 8) as u8, 7]).collect();
    let slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
    file.write_at(&slices, 1000).unwrap();
    assert_eq!(file.len().unwrap(), 10_000);
    assert_eq!(read(&file, 1000, 9000), pieces.concat());
    file.write_at(&[], 5).unwrap();
    assert_eq!(file.len().unwrap(), 10_000);

    let large = vec![0x5a; 3 << 20];
    write(&file, &large, 500);
    file.sync_data().unwrap();
    drop(file);
    let file = disk.open(&path).unwrap();
    assert_eq!(read(&file, 500, large.len() + 10), large);
    write(&file, b"again", 500);
    assert_eq!(read(&file, 499, 7), b"\0againZ");
}

fn allocated_space_reads_as_zeros_and_truncation_cuts<D: Disk>(disk: &D, root: &Path) {
    let file = disk.create(&root.join("space")).unwrap();
    write(&file, b"head", 0);
    file.allocate(70_000).unwrap();
    assert_eq!(file.len().unwrap(), 70_000);
    assert_eq!(read(&file, 0, 4), b"head");
    assert!(read(&file, 4, 70_000).iter().all(|byte| *byte == 0));

    file.allocate(100).unwrap();
    assert_eq!(file.len().unwrap(), 70_000, "allocating never shortens");

    write(&file, b"tail", 69_998);
    assert_eq!(file.len().unwrap(), 70_002);
    file.truncate(69_999).unwrap();
    assert_eq!(file.len().unwrap(), 69_999);
    file.allocate(70_100).unwrap();
    assert_eq!(read(&file, 69_997, 10), b"\0t\0\0\0\0\0\0\0\0", "what was cut never comes back");
    file.truncate(0).unwrap();
    assert!(file.is_empty().unwrap());
}

fn renames_replace_files_and_keep_handles_alive<D: Disk>(disk: &D, root: &Path) {
    let (old, new) = (root.join("rename.tmp"), root.join("rename"));
    write(&disk.create(&new).unwrap(), b"first", 0);
    let file = disk.create(&old).unwrap();
    write(&file, b"second", 0);
    disk.rename(&old, &new).unwrap();
    disk.sync_dir(root).unwrap();
    assert!(!disk.exists(&old).unwrap());
    assert_eq!(read(&disk.open(&new).unwrap(), 0, 10), b"second");
    write(&file, b"S", 0);
    assert_eq!(read(&disk.open(&new).unwrap(), 0, 10), b"Second");
    assert_eq!(kind(disk.rename(&old, &new)), ErrorKind::NotFound);

    let (from, to) = (root.join("dir.old"), root.join("dir.new"));
    disk.create_dir_all(&from).unwrap();
    drop(disk.create(&from.join("inside")).unwrap());
    disk.rename(&from, &to).unwrap();
    assert_eq!(disk.list(&to).unwrap(), ["inside"]);
    assert!(!disk.exists(&from).unwrap());
}

fn removed_files_stay_readable_through_open_handles<D: Disk>(disk: &D, root: &Path) {
    let path = root.join("removed");
    let file = disk.create(&path).unwrap();
    write(&file, b"still here", 0);
    disk.remove_file(&path).unwrap();
    assert!(!disk.exists(&path).unwrap());
    assert_eq!(read(&file, 0, 20), b"still here");
}

fn everything_can_be_synced_and_dropped_from_the_cache<D: Disk>(disk: &D, root: &Path) {
    let deep = root.join("all/below");
    disk.create_dir_all(&deep).unwrap();
    let file = disk.create(&deep.join("file")).unwrap();
    write(&file, &[9; 10_000], 0);
    disk.sync_all(root).unwrap();
    assert_eq!(kind(disk.sync_all(&root.join("missing"))), ErrorKind::NotFound);
    file.drop_cached(100, 1).unwrap();
    assert_eq!(read(&file, 0, 20_000), [9; 10_000]);
    write(&file, &[8; 10], 100);
    file.drop_cached(0, u64::MAX).unwrap();
    assert_eq!(
        read(&file, 99, 12),
        [9, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 9],
        "never what is not written"
    );
}

fn locks_exclude_each_other_until_dropped<D: Disk>(disk: &D, root: &Path) {
    let path = root.join("lock");
    let guard = disk.lock(&path).unwrap();
    assert_eq!(kind(disk.lock(&path)), ErrorKind::WouldBlock);
    drop(guard);
    drop(disk.lock(&path).unwrap());
}
