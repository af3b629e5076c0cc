//! Linux: vectored positional writes, `fallocate`, `fdatasync`, `syncfs`, `posix_fadvise`, `statvfs`.

use std::fs::{self, File};
use std::io::{self, IoSlice, IoSliceMut};
use std::num::NonZero;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{Advice, FallocateFlags, SeekFrom, fadvise, fallocate, seek, statvfs, syncfs};
use rustix::io::{Errno, ReadWriteFlags, preadv2, pwritev};
use towpath_log::disk::{Disk, DiskFile, Space};

use super::names;

/// Most pieces that one `pwritev` takes (`IOV_MAX`).
const PIECES_MAX: usize = 1024;

/// Pages are dropped whole, so a range is widened to multiples of the largest page size there is.
const PAGE_BYTES_MAX: u64 = 64 << 10;

/// The file systems of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct LinuxDisk;

/// An open file.
#[derive(Debug)]
pub struct LinuxFile(File);

impl Disk for LinuxDisk {
    type File = LinuxFile;

    fn open(&self, path: &Path) -> io::Result<LinuxFile> {
        names::open(path).map(LinuxFile)
    }

    fn create(&self, path: &Path) -> io::Result<LinuxFile> {
        names::create(path).map(LinuxFile)
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

    /// The whole file system, also what others have written to it: still far cheaper than a sync
    /// per file.
    fn sync_all(&self, directory: &Path) -> io::Result<()> {
        Ok(syncfs(File::open(directory)?)?)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        path.try_exists()
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        names::lock(path)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        let status = statvfs(path)?;
        Ok(Space {
            // What unprivileged processes may still take, not what the super-user has in reserve.
            free_bytes: status.f_bavail.saturating_mul(status.f_frsize),
            total_bytes: status.f_blocks.saturating_mul(status.f_frsize),
        })
    }
}

impl DiskFile for LinuxFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        read_full(&self.0, buffer, position)
    }

    fn read_resident_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        loop {
            let mut pieces = [IoSliceMut::new(buffer)];
            match preadv2(&self.0, &mut pieces, position, ReadWriteFlags::NOWAIT) {
                Err(Errno::INTR) => {}
                // Not every file system can tell; those in memory need not.
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                    return read_full(&self.0, buffer, position);
                }
                read => return Ok(read?),
            }
        }
    }

    fn will_need(&self, position: u64, len: u64) {
        // Only advice: whoever reads waits, if the system has not followed it.
        let _ = fadvise(&self.0, position, NonZero::new(len), Advice::WillNeed);
    }

    fn write_at(&self, buffers: &[IoSlice<'_>], position: u64) -> io::Result<()> {
        let mut position = position;
        for pieces in buffers.chunks(PIECES_MAX) {
            let len: usize = pieces.iter().map(|piece| piece.len()).sum();
            let written = write_some(&self.0, pieces, position)?;
            if written < len {
                write_rest(&self.0, pieces, written, position)?;
            }
            position += len as u64;
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        let now = self.len()?;
        if length <= now {
            return Ok(());
        }
        loop {
            // Mode 0: blocks are reserved and unwritten, so they read as zeros, and the length grows.
            match fallocate(&self.0, FallocateFlags::empty(), now, length - now) {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => {}
                // Some file systems cannot reserve; a longer file without blocks reads the same.
                Err(Errno::OPNOTSUPP) => return self.0.set_len(length),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn drop_cached(&self, from: u64, length: u64) -> io::Result<()> {
        let start = from - from % PAGE_BYTES_MAX;
        let end = from.saturating_add(length).checked_next_multiple_of(PAGE_BYTES_MAX);
        // A length of none is "to the end of the file".
        let length = end.and_then(|end| std::num::NonZeroU64::new(end - start));
        Ok(fadvise(&self.0, start, length, Advice::DontNeed)?)
    }

    fn next_data(&self, position: u64) -> io::Result<Option<u64>> {
        // Every access here names its position, so that moving the file's own disturbs nobody.
        match seek(&self.0, SeekFrom::Data(position)) {
            Ok(at) => Ok(Some(at)),
            Err(Errno::NXIO) => Ok(None),
            // A file system without reserved space.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(Some(position)),
            Err(error) => Err(error.into()),
        }
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn as_std(&self) -> Option<&File> {
        Some(&self.0)
    }
}

fn read_full(file: &File, buffer: &mut [u8], position: u64) -> io::Result<usize> {
    let mut read = 0;
    while read < buffer.len() {
        match file.read_at(&mut buffer[read..], position.saturating_add(read as u64)) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

fn write_some(file: &File, pieces: &[IoSlice<'_>], position: u64) -> io::Result<usize> {
    loop {
        match pwritev(file, pieces, position) {
            Err(Errno::INTR) => {}
            result => return Ok(result?),
        }
    }
}

/// Finishes a write that the kernel cut short (a signal, a nearly full disk), piece by piece, so
/// that the error that stopped it shows.
fn write_rest(
    file: &File,
    pieces: &[IoSlice<'_>],
    mut written: usize,
    position: u64,
) -> io::Result<()> {
    let mut at = position;
    for piece in pieces {
        let done = written.min(piece.len());
        written -= done;
        file.write_all_at(&piece[done..], at + done as u64)?;
        at += piece.len() as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_cut_short_is_finished_where_it_stopped() {
        let directory = tempfile::tempdir().unwrap();
        let file = names::create(&directory.path().join("f")).unwrap();
        let pieces = [IoSlice::new(b"abc"), IoSlice::new(b""), IoSlice::new(b"defg")];
        for written in 0..=7 {
            file.set_len(0).unwrap();
            file.write_all_at(&b"abcdefg"[..written], 10).unwrap();
            write_rest(&file, &pieces, written, 10).unwrap();
            let mut bytes = [0; 7];
            file.read_exact_at(&mut bytes, 10).unwrap();
            assert_eq!(&bytes, b"abcdefg");
        }
    }
}
