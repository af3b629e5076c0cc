//! An open file of a [`SimDisk`]. It belongs to one process and dies with it.

use std::io::{self, IoSlice};

use towpath_log::disk::DiskFile;

use super::names::Inode;
use super::state::State;
use super::{SimCrash, SimDisk};

/// What a file system reserves and writes whole.
const BLOCK_BYTES: usize = 4096;

/// A handle by inode: a rename does not disturb it, and after a removal it still reads.
#[derive(Debug)]
pub struct SimFile {
    disk: SimDisk,
    inode: Inode,
    incarnation: u64,
}

impl SimFile {
    pub(super) fn new(disk: SimDisk, inode: Inode, incarnation: u64) -> SimFile {
        SimFile { disk, inode, incarnation }
    }

    fn call<T>(&self, call: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.disk.state();
        if state.incarnation != self.incarnation {
            return Err(io::Error::other(SimCrash));
        }
        state.look()?;
        call(&mut state)
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.call(|state| {
            let bytes = state.content(self.inode)?.cached();
            let start = usize::try_from(position).unwrap_or(usize::MAX).min(bytes.len());
            let len = buffer.len().min(bytes.len() - start);
            buffer[..len].copy_from_slice(&bytes[start..start + len]);
            Ok(len)
        })
    }

    fn write_at(&self, buffers: &[IoSlice<'_>], position: u64) -> io::Result<()> {
        let bytes: Vec<u8> = buffers.iter().flat_map(|buffer| buffer.iter().copied()).collect();
        self.call(|state| state.write(self.inode, &bytes, position as usize))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.call(|state| state.sync(self.inode))
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        self.call(|state| state.allocate(self.inode, length as usize))
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.call(|state| state.truncate(self.inode, length as usize))
    }

    fn drop_cached(&self, from: u64, length: u64) -> io::Result<()> {
        self.call(|state| state.drop_cached(self.inode, from, length))
    }

    fn next_data(&self, position: u64) -> io::Result<Option<u64>> {
        self.call(|state| {
            let bytes = state.content(self.inode)?.cached();
            let mut at = usize::try_from(position).unwrap_or(usize::MAX);
            while at < bytes.len() {
                let block_end = (at / BLOCK_BYTES + 1) * BLOCK_BYTES;
                if bytes[at..block_end.min(bytes.len())].iter().any(|byte| *byte != 0) {
                    return Ok(Some(at as u64));
                }
                at = block_end;
            }
            Ok(None)
        })
    }

    fn len(&self) -> io::Result<u64> {
        self.call(|state| Ok(state.content(self.inode)?.cached().len() as u64))
    }
}
