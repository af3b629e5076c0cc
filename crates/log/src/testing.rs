//! A disk in memory that forgets what was not synced, for the tests of this crate.
//!
//! Every file and directory has the content that a running process sees and the content that is on
//! the platter. A power cut keeps the platter and, as a seed decides, some of the 512-byte sectors
//! and some of the names that were not synced. The simulator has a stronger one; this one needs no
//! other crate.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::path::{Component, Path};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::disk::{Disk, DiskFile, Space};

const SECTOR: usize = 512;
const ROOT: usize = 0;

#[derive(Debug, Clone, Default)]
pub(crate) struct MemoryDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    files: Vec<File>,
    /// What the running process sees, per directory.
    seen: Vec<Directory>,
    /// What a power cut leaves for certain.
    durable: Vec<Directory>,
    /// Changes of names that no sync has covered, oldest first.
    pending: Vec<Change>,
    locked: bool,
    /// Calls that change or sync something, so far.
    calls: u64,
    /// The call that fails; from then on all do, as after the end of the process.
    stops_at: Option<u64>,
    syncs_fail: bool,
    room: Option<u64>,
    counts: Counts,
}

/// Calls so far, of the kinds that cost a start its time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) file_syncs: u64,
    pub(crate) dir_syncs: u64,
    pub(crate) syncs_of_all: u64,
    pub(crate) read_bytes: u64,
    pub(crate) opens: u64,
}

impl Default for State {
    fn default() -> Self {
        State {
            files: Vec::new(),
            seen: vec![Directory::new()],
            durable: vec![Directory::new()],
            pending: Vec::new(),
            locked: false,
            calls: 0,
            stops_at: None,
            syncs_fail: false,
            room: None,
            counts: Counts::default(),
        }
    }
}

type Directory = BTreeMap<String, Node>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Node {
    File(usize),
    Directory(usize),
}

/// Takes a name away, gives one, or both at once: a rename happens or does not.
#[derive(Debug, Clone)]
struct Change {
    node: Node,
    from: Option<(usize, String)>,
    to: Option<(usize, String)>,
}

impl Change {
    fn touches(&self, directory: usize) -> bool {
        let in_it =
            |at: &Option<(usize, String)>| at.as_ref().is_some_and(|(d, _)| *d == directory);
        in_it(&self.from) || in_it(&self.to)
    }

    fn shares_name(&self, other: &Change) -> bool {
        let names = |change: &Change| [change.from.clone(), change.to.clone()];
        let others = names(other);
        names(self).iter().flatten().any(|name| others.iter().flatten().any(|o| o == name))
    }

    fn apply(&self, directories: &mut [Directory]) {
        if let Some((directory, name)) = &self.from
            && directories[*directory].get(name) == Some(&self.node)
        {
            directories[*directory].remove(name);
        }
        if let Some((directory, name)) = &self.to {
            directories[*directory].insert(name.clone(), self.node);
        }
    }
}

#[derive(Debug, Clone, Default)]
struct File {
    seen: Vec<u8>,
    durable: Vec<u8>,
    /// Changed since the last sync, whether that worked or not.
    is_dirty: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct MemoryFile {
    disk: MemoryDisk,
    at: usize,
}

impl State {
    fn find(&self, path: &Path) -> Option<Node> {
        let names = path.components().filter_map(|part| match part {
            Component::Normal(name) => name.to_str(),
            _ => None,
        });
        names.into_iter().try_fold(Node::Directory(ROOT), |node, name| match node {
            Node::Directory(at) => self.seen[at].get(name).copied(),
            Node::File(_) => None,
        })
    }

    fn directory(&self, path: &Path) -> io::Result<usize> {
        match self.find(path) {
            Some(Node::Directory(at)) => Ok(at),
            _ => Err(not_found()),
        }
    }

    fn file(&self, path: &Path) -> io::Result<usize> {
        match self.find(path) {
            Some(Node::File(at)) => Ok(at),
            _ => Err(not_found()),
        }
    }

    fn place(&self, path: &Path) -> io::Result<(usize, String)> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap().to_owned();
        Ok((self.directory(path.parent().unwrap())?, name))
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.seen);
        self.pending.push(change);
    }
}

/// A small generator, so that a seed decides what a crash keeps.
#[derive(Debug, Clone)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.roll() % limit
    }
}

impl MemoryDisk {
    fn lock_state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn change(&self) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.lock_state();
        state.calls += 1;
        if state.stops_at.is_some_and(|at| at <= state.calls) {
            return Err(io::Error::other("the process has ended"));
        }
        Ok(state)
    }

    /// The `nth` changing call from now on fails, and all that follow.
    pub(crate) fn stop_after(&self, nth: u64) {
        let mut state = self.lock_state();
        state.stops_at = Some(state.calls + nth);
    }

    pub(crate) fn fail_syncs(&self, fail: bool) {
        self.lock_state().syncs_fail = fail;
    }

    /// Bytes that can still be allocated or written beyond files' ends.
    pub(crate) fn set_room(&self, room: Option<u64>) {
        self.lock_state().room = room;
    }

    /// The process ends: its files are closed, what it wrote stays.
    pub(crate) fn kill(&self) {
        let mut state = self.lock_state();
        state.locked = false;
        state.stops_at = None;
    }

    /// The power fails: of what was not synced each sector and each name survives or not.
    pub(crate) fn power_cut(&self, dice: &mut Dice) {
        let mut state = self.lock_state();
        state.locked = false;
        state.stops_at = None;
        let state = &mut *state;
        for file in &mut state.files {
            let length = match dice.below(3) {
                0 => file.durable.len(),
                1 => file.seen.len(),
                _ => file.durable.len().max(file.seen.len()),
            };
            let mut left = file.durable.clone();
            left.resize(length, 0);
            for (nth, sector) in left.chunks_mut(SECTOR).enumerate() {
                let start = (nth * SECTOR).min(file.seen.len());
                let end = (start + sector.len()).min(file.seen.len());
                let seen = &file.seen[start..end];
                if dice.below(2) == 0 {
                    sector[..seen.len()].copy_from_slice(seen);
                }
            }
            file.seen.clone_from(&left);
            file.durable = left;
            file.is_dirty = false;
        }
        for change in std::mem::take(&mut state.pending) {
            if dice.below(2) == 0 {
                change.apply(&mut state.durable);
            }
        }
        state.seen.clone_from(&state.durable);
    }

    pub(crate) fn counts(&self) -> Counts {
        self.lock_state().counts
    }

    pub(crate) fn forget_counts(&self) {
        self.lock_state().counts = Counts::default();
    }

    /// Flips a bit on the platter and in memory.
    pub(crate) fn flip(&self, path: &Path, at: usize) {
        let mut state = self.lock_state();
        let file = state.file(path).unwrap();
        state.files[file].seen[at] ^= 4;
        state.files[file].durable[at] ^= 4;
    }

    pub(crate) fn content(&self, path: &Path) -> Vec<u8> {
        let state = self.lock_state();
        state.files[state.file(path).unwrap()].seen.clone()
    }

    pub(crate) fn overwrite(&self, path: &Path, content: &[u8]) {
        let mut state = self.lock_state();
        let file = state.file(path).unwrap();
        let (seen, durable) = (content.to_vec(), content.to_vec());
        state.files[file] = File { seen, durable, is_dirty: false };
    }

    /// Another disk with the same content.
    pub(crate) fn copy(&self) -> MemoryDisk {
        let state = self.lock_state();
        let copy = State {
            files: state.files.clone(),
            seen: state.seen.clone(),
            durable: state.durable.clone(),
            pending: state.pending.clone(),
            ..State::default()
        };
        MemoryDisk { state: Arc::new(Mutex::new(copy)) }
    }
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl Disk for MemoryDisk {
    type File = MemoryFile;

    fn open(&self, path: &Path) -> io::Result<MemoryFile> {
        let mut state = self.lock_state();
        state.counts.opens += 1;
        let at = state.file(path)?;
        drop(state);
        Ok(MemoryFile { disk: self.clone(), at })
    }

    fn create(&self, path: &Path) -> io::Result<MemoryFile> {
        let mut state = self.change()?;
        if state.find(path).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let to = Some(state.place(path)?);
        let at = state.files.len();
        state.files.push(File::default());
        state.change(Change { node: Node::File(at), from: None, to });
        Ok(MemoryFile { disk: self.clone(), at })
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let state = self.lock_state();
        Ok(state.seen[state.directory(directory)?].keys().cloned().collect())
    }

    fn create_dir_all(&self, directory: &Path) -> io::Result<()> {
        let mut state = self.change()?;
        let mut missing: Vec<&Path> =
            directory.ancestors().take_while(|path| state.find(path).is_none()).collect();
        while let Some(path) = missing.pop() {
            let to = Some(state.place(path)?);
            let at = state.seen.len();
            state.seen.push(Directory::new());
            state.durable.push(Directory::new());
            state.change(Change { node: Node::Directory(at), from: None, to });
        }
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.change()?;
        let node = state.find(from).ok_or_else(not_found)?;
        let (from, to) = (Some(state.place(from)?), Some(state.place(to)?));
        state.change(Change { node, from, to });
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.change()?;
        let node = Node::File(state.file(path)?);
        let from = Some(state.place(path)?);
        state.change(Change { node, from, to: None });
        Ok(())
    }

    fn remove_dir(&self, directory: &Path) -> io::Result<()> {
        let mut state = self.change()?;
        let at = state.directory(directory)?;
        if !state.seen[at].is_empty() {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        let from = Some(state.place(directory)?);
        state.change(Change { node: Node::Directory(at), from, to: None });
        Ok(())
    }

    fn sync_all(&self, directory: &Path) -> io::Result<()> {
        let mut state = self.change()?;
        state.directory(directory)?;
        state.counts.syncs_of_all += 1;
        for file in &mut state.files {
            if file.is_dirty {
                file.durable.clone_from(&file.seen);
                file.is_dirty = false;
            }
        }
        for change in std::mem::take(&mut state.pending) {
            change.apply(&mut state.durable);
        }
        Ok(())
    }

    fn sync_dir(&self, directory: &Path) -> io::Result<()> {
        let mut state = self.change()?;
        let at = state.directory(directory)?;
        state.counts.dir_syncs += 1;
        let pending = std::mem::take(&mut state.pending);
        let mut is_covered: Vec<bool> = pending.iter().map(|change| change.touches(at)).collect();
        // A name never goes back to what it was: an older change of a covered name is covered.
        for newer in (0..pending.len()).rev() {
            for older in 0..newer {
                is_covered[older] |=
                    is_covered[newer] && pending[older].shares_name(&pending[newer]);
            }
        }
        for (change, is_covered) in pending.into_iter().zip(is_covered) {
            if is_covered {
                change.apply(&mut state.durable);
            } else {
                state.pending.push(change);
            }
        }
        Ok(())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(self.lock_state().find(path).is_some())
    }

    fn lock(&self, _: &Path) -> io::Result<Box<dyn Send + Sync>> {
        let mut state = self.lock_state();
        if state.locked {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        state.locked = true;
        Ok(Box::new(Unlock(self.clone())))
    }

    fn space(&self, _: &Path) -> io::Result<Space> {
        let free_bytes = self.lock_state().room.unwrap_or(1 << 40);
        Ok(Space { free_bytes, total_bytes: 1 << 40 })
    }
}

struct Unlock(MemoryDisk);

impl Drop for Unlock {
    fn drop(&mut self) {
        self.0.lock_state().locked = false;
    }
}

impl MemoryFile {
    fn grow(state: &mut State, at: usize, length: usize) -> io::Result<()> {
        let grows_by = length.saturating_sub(state.files[at].seen.len()) as u64;
        if let Some(room) = &mut state.room {
            *room = room.checked_sub(grows_by).ok_or(io::ErrorKind::StorageFull)?;
        }
        let seen = &mut state.files[at].seen;
        seen.resize(length.max(seen.len()), 0);
        Ok(())
    }
}

impl DiskFile for MemoryFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let mut state = self.disk.lock_state();
        let seen = &state.files[self.at].seen;
        let start = (position as usize).min(seen.len());
        let read = buffer.len().min(seen.len() - start);
        buffer[..read].copy_from_slice(&seen[start..start + read]);
        state.counts.read_bytes += read as u64;
        Ok(read)
    }

    fn write_at(&self, buffers: &[IoSlice<'_>], position: u64) -> io::Result<()> {
        let mut state = self.disk.change()?;
        let bytes: Vec<u8> = buffers.iter().flat_map(|slice| slice.iter().copied()).collect();
        let start = position as usize;
        MemoryFile::grow(&mut state, self.at, start + bytes.len())?;
        let file = &mut state.files[self.at];
        file.seen[start..start + bytes.len()].copy_from_slice(&bytes);
        file.is_dirty = true;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.disk.change()?;
        state.counts.file_syncs += 1;
        let fails = state.syncs_fail;
        let file = &mut state.files[self.at];
        // Its pages count as clean from now on, also when none of them got to the disk.
        let was_dirty = std::mem::take(&mut file.is_dirty);
        if fails {
            return Err(io::Error::other("input/output error"));
        }
        if was_dirty {
            file.durable.clone_from(&file.seen);
        }
        Ok(())
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        let mut state = self.disk.change()?;
        state.files[self.at].is_dirty = true;
        MemoryFile::grow(&mut state, self.at, length as usize)
    }

    fn drop_cached(&self, _: u64, _: u64) -> io::Result<()> {
        let mut state = self.disk.lock_state();
        let file = &mut state.files[self.at];
        if !file.is_dirty {
            file.seen.clone_from(&file.durable);
        }
        Ok(())
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        let mut state = self.disk.change()?;
        let file = &mut state.files[self.at];
        file.seen.resize(length as usize, 0);
        file.is_dirty = true;
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.lock_state().files[self.at].seen.len() as u64)
    }
}
