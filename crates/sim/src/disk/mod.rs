//! A disk in memory that keeps exactly what real disks promise, and not a sector more.
//!
//! What was written but not synced may survive a power loss in any subset of its 512-byte sectors;
//! names are certain only after their directory was synced ([`names`]); a failed sync loses what it
//! was to write and the next one succeeds. [`SimDisk::crash_at`] stops the machine at any one call
//! that changes something, before it or in its middle; from then on every call fails until
//! [`SimDisk::kill`] (the page cache survives) or [`SimDisk::lose_power`] (it does not), and then
//! [`SimDisk::restart`].
//!
//! A checker asks [`SimDisk::durable`], or looks at [`SimDisk::fork`]s that lost power, so it never
//! has to believe what the product thinks it has synced.

mod content;
mod fate;
mod file;
mod names;
mod state;

#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use towpath_log::disk::{Disk, Space};

pub use fate::SECTOR_BYTES;
pub use file::SimFile;

use crate::events::Events;
use crate::rng::Rng;
use crate::trace::Trace;
use state::{Call, State};

/// A handle to one simulated disk; clones share it.
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

/// The error of every call after the machine stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SimCrash;

impl fmt::Display for SimCrash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the simulated machine has stopped")
    }
}

impl std::error::Error for SimCrash {}

/// How long simulated calls take; a driver adds [`SimDisk::take_elapsed`] to its clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Latency {
    /// Of each call.
    pub call: Duration,
    /// Of each sync, of a file or a directory, beyond that.
    pub sync: Duration,
}

impl SimDisk {
    /// An empty disk that draws its misfortunes from `seed` and notes its calls in `trace`.
    #[must_use]
    pub fn new(seed: u64, trace: Trace) -> SimDisk {
        SimDisk::with(State::new(Rng::new(seed), trace))
    }

    fn with(state: State) -> SimDisk {
        SimDisk { state: Arc::new(Mutex::new(state)) }
    }

    /// A copy as it is now, with a future of its own. Calls on it are not traced.
    #[must_use]
    pub fn fork(&self, seed: u64) -> SimDisk {
        let mut state = self.state().clone();
        state.detach(Rng::new(seed));
        SimDisk::with(state)
    }

    /// Stops the machine at the `calls`-th call from now that changes something (1 is the next);
    /// a random part of that call may still happen.
    pub fn crash_at(&self, calls: u64) {
        self.state().crash_in = Some(calls);
    }

    /// Takes back [`SimDisk::crash_at`].
    pub fn crash_never(&self) {
        self.state().crash_in = None;
    }

    /// Whether the machine has stopped.
    #[must_use]
    pub fn has_crashed(&self) -> bool {
        self.state().crashed
    }

    /// Calls so far that changed something.
    #[must_use]
    pub fn changing_calls(&self) -> u64 {
        self.state().changing_calls
    }

    /// The process dies, the page cache survives: everything written stays readable, nothing more
    /// is durable than before. What a failed sync has lost stays readable too, until somebody drops
    /// it from the cache.
    pub fn kill(&self) {
        self.state().kill();
    }

    /// The machine loses power: a random part of what was not synced is gone.
    pub fn lose_power(&self) {
        self.state().lose_power();
    }

    /// A new process may use the disk. Handles and locks of the old one stay dead.
    pub fn restart(&self) {
        self.state().restart();
    }

    /// Lets the `syncs`-th file sync from now fail (1 is the next): what it was to write is lost.
    pub fn fail_sync_in(&self, syncs: u64) {
        self.state().fail_sync_in = Some(syncs);
    }

    /// Takes back [`SimDisk::fail_sync_in`].
    pub fn fail_sync_never(&self) {
        self.state().fail_sync_in = None;
    }

    /// Lets the next sync of a file at or below `path` fail, whenever it comes.
    pub fn fail_sync_under(&self, path: &Path) {
        self.state().fail_sync_under = Some(path.to_owned());
    }

    /// Limits the bytes of all files; beyond it, writes answer `StorageFull`. `None` is no limit.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state().capacity = bytes;
    }

    /// Whether writes need room even where space is reserved already, as on file systems that never
    /// write in place.
    pub fn set_copies_on_write(&self, copies: bool) {
        self.state().copies_on_write = copies;
    }

    /// Nothing at or below `path` can be opened or listed any more, until this is taken back.
    pub fn make_unreadable(&self, path: &Path) {
        self.state().unreadable.push(path.to_owned());
    }

    /// Takes back every [`SimDisk::make_unreadable`].
    pub fn make_readable(&self) {
        self.state().unreadable.clear();
    }

    /// Sets how long calls take from now on.
    pub fn set_latency(&self, latency: Latency) {
        self.state().latency = latency;
    }

    /// Time that calls took since this was last asked.
    pub fn take_elapsed(&self) -> Duration {
        std::mem::take(&mut self.state().elapsed)
    }

    /// What happened on this disk so far.
    #[must_use]
    pub fn events(&self) -> Events {
        self.state().events.clone()
    }

    /// The bytes that `path` is certain to have after any power loss; `None` when the name itself
    /// is not certain.
    #[must_use]
    pub fn durable(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.state();
        let entry = state.names.find_durable(path).ok()?;
        Some(state.files.get(&entry.inode)?.durable().to_vec())
    }

    /// Every file there is now, by path, with its bytes as a reader sees them.
    #[must_use]
    pub fn files(&self) -> Vec<(String, Vec<u8>)> {
        let state = self.state();
        let files = state.names.files();
        files
            .into_iter()
            .map(|(path, inode)| (path, state.files[&inode].cached().to_vec()))
            .collect()
    }

    /// Flips one bit of a file on the disk itself; nobody is told (fault F4).
    ///
    /// # Errors
    /// `NotFound` when there is no such file.
    pub fn flip_bit(&self, path: &Path, position: u64, bit: u8) -> io::Result<()> {
        let mut state = self.state();
        let inode = state.names.find(path)?.inode;
        let content = state.files.get_mut(&inode).ok_or(io::ErrorKind::IsADirectory)?;
        content.flip_bit(position as usize, bit);
        state.events.note("disk: bit flipped");
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic of the product under test may have poisoned the lock; the run is over then, and
        // only its events are still read.
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimDisk")
    }
}

impl Disk for SimDisk {
    type File = SimFile;

    fn open(&self, path: &Path) -> io::Result<SimFile> {
        let mut state = self.state();
        state.look_at(path)?;
        let entry = state.names.find(path)?;
        if entry.is_dir {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        Ok(SimFile::new(self.clone(), entry.inode, state.incarnation))
    }

    fn create(&self, path: &Path) -> io::Result<SimFile> {
        let mut state = self.state();
        state.look()?;
        let (parent, name) = state.names.vacancy(path)?;
        let step = state.change(Call::Create, &[])?;
        let inode = step.does().then(|| state.create_file(parent, name));
        step.answer()?;
        let inode = inode.expect("a step that answers has done what it was to do");
        Ok(SimFile::new(self.clone(), inode, state.incarnation))
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let mut state = self.state();
        state.look_at(directory)?;
        state.names.list(directory)
    }

    fn create_dir_all(&self, directory: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.look()?;
        let missing: Vec<_> = directory
            .ancestors()
            .take_while(|path| !path.as_os_str().is_empty() && state.names.find(path).is_err())
            .collect();
        for path in missing.into_iter().rev() {
            let (parent, name) = state.names.vacancy(path)?;
            let step = state.change(Call::CreateDir, &[])?;
            if step.does() {
                state.create_dir(parent, name);
            }
            step.answer()?;
        }
        state.names.directory(directory).map(|_| ())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.look()?;
        state.names.check_rename(from, to)?;
        let step = state.change(Call::Rename, &[])?;
        if step.does() {
            state.names.rename(from, to)?;
        }
        step.answer()
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.state().remove(path, false)
    }

    fn remove_dir(&self, directory: &Path) -> io::Result<()> {
        self.state().remove(directory, true)
    }

    fn sync_dir(&self, directory: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.look()?;
        let inode = state.names.directory(directory)?;
        let step = state.change(Call::SyncDir, &[inode])?;
        if step.does() {
            state.names.sync(inode);
        }
        step.answer()
    }

    fn sync_all(&self, directory: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.look()?;
        state.names.directory(directory)?;
        state.sync_everything()
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let mut state = self.state();
        state.look()?;
        Ok(state.names.find(path).is_ok())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        let mut state = self.state();
        state.look()?;
        let inode = match state.names.find(path) {
            Ok(entry) => entry.inode,
            Err(_) => {
                let (parent, name) = state.names.vacancy(path)?;
                let step = state.change(Call::Create, &[])?;
                if step.does() {
                    state.create_file(parent, name);
                }
                step.answer()?;
                state.names.find(path)?.inode
            }
        };
        if !state.locks.insert(inode) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(LockGuard { disk: self.clone(), inode, incarnation: state.incarnation }))
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        let mut state = self.state();
        state.look()?;
        state.names.find(path)?;
        let total_bytes = state.capacity.unwrap_or(1 << 40);
        Ok(Space { free_bytes: total_bytes.saturating_sub(state.used_bytes()), total_bytes })
    }
}

struct LockGuard {
    disk: SimDisk,
    inode: u64,
    incarnation: u64,
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        if state.incarnation == self.incarnation {
            state.locks.remove(&self.inode);
        }
    }
}
