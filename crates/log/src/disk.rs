//! The disk as the log sees it: a trait, so that the simulator can tear, forget and crash.
//!
//! The contract is the weakest that real disks give. What was written but not synced may be lost,
//! in any order, sector by sector. A name that was created, renamed or removed is only certain
//! after [`Disk::sync_dir`] of its directory. A sync that failed is never tried again: the caller
//! gives up what it vouched for. After it a reader may be shown bytes that the disk does not have,
//! until [`DiskFile::drop_cached`].

use std::io;
use std::io::IoSlice;
use std::path::Path;

/// One file system, or the part of it that a data directory uses.
pub trait Disk: Clone + Send + Sync + 'static {
    /// An open file. Dropping it closes it.
    type File: DiskFile;

    /// Opens an existing file for reading and writing.
    fn open(&self, path: &Path) -> io::Result<Self::File>;

    /// Creates a file that must not exist yet, for reading and writing.
    fn create(&self, path: &Path) -> io::Result<Self::File>;

    /// Names in a directory, sorted, without `.` and `..`.
    fn list(&self, directory: &Path) -> io::Result<Vec<String>>;

    /// Creates a directory and its missing parents.
    fn create_dir_all(&self, directory: &Path) -> io::Result<()>;

    /// Renames a file or directory, replacing a file that has the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory.
    fn remove_dir(&self, directory: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable.
    fn sync_dir(&self, directory: &Path) -> io::Result<()>;

    /// Makes everything below a directory durable: bytes and names, whichever process has written
    /// them. What a system has one call for costs one call.
    fn sync_all(&self, directory: &Path) -> io::Result<()> {
        for name in self.list(directory)? {
            let path = directory.join(name);
            match self.open(&path) {
                Ok(file) => file.sync_data()?,
                Err(_) => self.sync_all(&path)?,
            }
        }
        self.sync_dir(directory)
    }

    /// Whether something has this name.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// Takes an exclusive lock that ends with the returned guard or with the process.
    /// Fails with `WouldBlock` when another process holds it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>>;

    /// Bytes free and bytes in all on the file system that holds `path`.
    fn space(&self, path: &Path) -> io::Result<Space>;
}

/// What a file system has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Bytes that can still be written.
    pub free_bytes: u64,
    /// Bytes in all.
    pub total_bytes: u64,
}

/// One open file; all calls take positions, so that readers never disturb each other.
pub trait DiskFile: Send + Sync + 'static {
    /// Reads up to `buffer.len()` bytes at `position`; fewer only at the end of the file.
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize>;

    /// As [`DiskFile::read_at`], but fails with `WouldBlock` where the device would have to be waited
    /// for, if the system can tell.
    fn read_resident_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.read_at(buffer, position)
    }

    /// Somebody will read this stretch soon: the system may begin to fetch it. Waits for nothing.
    fn will_need(&self, _position: u64, _len: u64) {}

    /// Writes all of `buffers`, one after the other, at `position`.
    fn write_at(&self, buffers: &[IoSlice<'_>], position: u64) -> io::Result<()>;

    /// Makes everything written to this file durable, and its length.
    fn sync_data(&self) -> io::Result<()>;

    /// Reserves zeroed space so that the file is at least `length` bytes long.
    fn allocate(&self, length: u64) -> io::Result<()>;

    /// Cuts the file to `length` bytes.
    fn truncate(&self, length: u64) -> io::Result<()>;

    /// Lets go of what is cached of `[from, from + length)` and does not wait to be written, so that
    /// the next read shows what the disk has. A system without such a call does nothing.
    fn drop_cached(&self, from: u64, length: u64) -> io::Result<()> {
        let _ = (from, length);
        Ok(())
    }

    /// Where, at or behind `position`, something other than zeros may lie: space that was reserved and
    /// never written need not be read to know what it holds. A system that cannot tell says
    /// `position`. `None`: only zeros follow.
    fn next_data(&self, position: u64) -> io::Result<Option<u64>> {
        Ok(Some(position))
    }

    /// Length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Whether the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// The open file as the operating system knows it, where there is one: sockets are fed from it
    /// without a copy.
    fn as_std(&self) -> Option<&std::fs::File> {
        None
    }
}
