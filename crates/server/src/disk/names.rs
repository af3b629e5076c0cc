//! Calls on names, which the standard library does as well as anyone on every system.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::Path;

pub(super) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

pub(super) fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).open(path)
}

pub(super) fn list(directory: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        // A name that is not UTF-8 is not ours; the log must not trip over it, only leave it alone.
        if let Ok(name) = entry?.file_name().into_string() {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Makes the names in a directory durable. Windows has no such call: its directories cannot be
/// opened for writing, and NTFS journals names in order.
pub(super) fn sync_dir(directory: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(directory)?.sync_all() } else { fs::metadata(directory).map(|_| ()) }
}

/// The lock is on the open file, so it ends with the process however that ends.
pub(super) fn lock(path: &Path) -> io::Result<Box<dyn Send + Sync>> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Box::new(file)),
        Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
        Err(TryLockError::Error(error)) => Err(error),
    }
}
