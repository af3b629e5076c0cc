//! Any system, with the standard library only: one seek and one write under a lock per call. Slower
//! than [`LinuxDisk`](super::LinuxDisk), and it does not reserve space, so a full disk shows at the
//! write.

use std::fs::{self, File};
use std::io::{self, IoSlice, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use towpath_log::disk::{Disk, DiskFile, Space};

use super::names;

/// The file systems of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct PortableDisk;

/// An open file. The lock guards its one read and write position.
#[derive(Debug)]
pub struct PortableFile {
    file: File,
    position: Mutex<()>,
}

impl PortableFile {
    fn new(file: File) -> PortableFile {
        PortableFile { file, position: Mutex::new(()) }
    }

    fn seek(&self, position: u64) -> io::Result<MutexGuard<'_, ()>> {
        // Nothing panics while it is held, and the position is set anew by every call.
        let guard = self.position.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        (&self.file).seek(SeekFrom::Start(position))?;
        Ok(guard)
    }
}

impl Disk for PortableDisk {
    type File = PortableFile;

    fn open(&self, path: &Path) -> io::Result<PortableFile> {
        names::open(path).map(PortableFile::new)
    }

    fn create(&self, path: &Path) -> io::Result<PortableFile> {
        names::create(path).map(PortableFile::new)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        names::list(directory)
    }

    fn create_dir_all(&self, directory: &Path) -> io::Result<()> {
        fs::create_dir_all(directory)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir(&self, directory: &Path) -> io::Result<()> {
        fs::remove_dir(directory)
    }

    fn sync_dir(&self, directory: &Path) -> io::Result<()> {
        names::sync_dir(directory)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        path.try_exists()
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        names::lock(path)
    }

    /// The standard library cannot ask; "no end in sight" lets writes go on until one fails.
    fn space(&self, path: &Path) -> io::Result<Space> {
        fs::metadata(path)?;
        Ok(Space { free_bytes: u64::MAX, total_bytes: u64::MAX })
    }
}

impl DiskFile for PortableFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let _guard = self.seek(position)?;
        let mut read = 0;
        while read < buffer.len() {
            match (&self.file).read(&mut buffer[read..]) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(read)
    }

    fn write_at(&self, buffers: &[IoSlice<'_>], position: u64) -> io::Result<()> {
        let _guard = self.seek(position)?;
        buffers.iter().try_for_each(|piece| (&self.file).write_all(piece))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        if self.len()? < length { self.file.set_len(length) } else { Ok(()) }
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn as_std(&self) -> Option<&File> {
        Some(&self.file)
    }
}
