//! A disk in memory that forgets what was not synced, for the tests of this crate.
//!
//! Every file has the content that a running process sees and, per 512-byte sector, the content
//! that is on the platter. A crash keeps the platter and, as a seed decides, some of the sectors
//! and names that were not synced. The simulator has a stronger one; this one needs no other crate.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::disk::{Disk, DiskFile, Space};

const SECTOR: usize = 512;

#[derive(Debug, Clone, Default)]
pub(crate) struct MemoryDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    files: Vec<File>,
    /// What the running process sees.
    names: Names,
    /// What a crash leaves for certain.
    durable: Names,
    locked: bool,
    /// Calls that change or sync something, so far.
    calls: u64,
    /// The call that fails; from then on all do, as after the end of the process.
    stops_at: Option<u64>,
    syncs_fail: bool,
    room: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Names {
    files: BTreeMap<PathBuf, usize>,
    directories: BTreeSet<PathBuf>,
}

#[derive(Debug, Clone, Default)]
struct File {
    seen: Vec<u8>,
    durable: Vec<u8>,
}

#[derive(Debug, Clone)]
pub(crate) struct MemoryFile {
    disk: MemoryDisk,
    at: usize,
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

    pub(crate) fn calls(&self) -> u64 {
        self.lock_state().calls
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
        }
        let mut left = state.durable.clone();
        let seen = std::mem::take(&mut state.names);
        left.directories.extend(seen.directories);
        for (name, file) in &seen.files {
            if left.files.get(name) != Some(file) && dice.below(2) == 0 {
                // A renamed file has one name or the other.
                left.files.retain(|_, held| held != file);
                left.files.insert(name.clone(), *file);
            }
        }
        let gone: Vec<PathBuf> =
            left.files.keys().filter(|name| !seen.files.contains_key(*name)).cloned().collect();
        for name in gone {
            let is_elsewhere = seen.files.values().any(|file| *file == left.files[&name]);
            if !is_elsewhere && dice.below(2) == 0 {
                left.files.remove(&name);
            }
        }
        state.names = left.clone();
        state.durable = left;
    }

    /// Flips a bit on the platter and in memory.
    pub(crate) fn flip(&self, path: &Path, at: usize) {
        let mut state = self.lock_state();
        let file = state.names.files[path];
        state.files[file].seen[at] ^= 4;
        state.files[file].durable[at] ^= 4;
    }

    pub(crate) fn content(&self, path: &Path) -> Vec<u8> {
        let state = self.lock_state();
        state.files[state.names.files[path]].seen.clone()
    }

    pub(crate) fn overwrite(&self, path: &Path, content: &[u8]) {
        let mut state = self.lock_state();
        let file = state.names.files[path];
        state.files[file] = File { seen: content.to_vec(), durable: content.to_vec() };
    }

    pub(crate) fn file_names(&self) -> Vec<PathBuf> {
        self.lock_state().names.files.keys().cloned().collect()
    }
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl Disk for MemoryDisk {
    type File = MemoryFile;

    fn open(&self, path: &Path) -> io::Result<MemoryFile> {
        let at = *self.lock_state().names.files.get(path).ok_or_else(not_found)?;
        Ok(MemoryFile { disk: self.clone(), at })
    }

    fn create(&self, path: &Path) -> io::Result<MemoryFile> {
        let mut state = self.change()?;
        if state.names.files.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if !state.names.directories.contains(path.parent().unwrap()) {
            return Err(not_found());
        }
        let at = state.files.len();
        state.files.push(File::default());
        state.names.files.insert(path.to_owned(), at);
        Ok(MemoryFile { disk: self.clone(), at })
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let state = self.lock_state();
        if !state.names.directories.contains(directory) {
            return Err(not_found());
        }
        let all = state.names.files.keys().chain(&state.names.directories);
        let inside = all.filter(|path| path.parent() == Some(directory));
        let mut names: Vec<String> =
            inside.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect();
        names.sort();
        Ok(names)
    }

    fn create_dir_all(&self, directory: &Path) -> io::Result<()> {
        let mut state = self.change()?;
        let all = directory.ancestors().map(Path::to_owned);
        state.names.directories.extend(all);
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.change()?;
        if let Some(file) = state.names.files.remove(from) {
            state.names.files.insert(to.to_owned(), file);
            return Ok(());
        }
        if !state.names.directories.remove(from) {
            return Err(not_found());
        }
        let moved = |path: &PathBuf| to.join(path.strip_prefix(from).unwrap());
        state.names.directories.insert(to.to_owned());
        let inside: Vec<PathBuf> =
            state.names.files.keys().filter(|path| path.starts_with(from)).cloned().collect();
        for path in inside {
            let file = state.names.files.remove(&path).unwrap();
            state.names.files.insert(moved(&path), file);
        }
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.change()?.names.files.remove(path).map(drop).ok_or_else(not_found)
    }

    fn remove_dir(&self, directory: &Path) -> io::Result<()> {
        self.change()?.names.directories.remove(directory);
        Ok(())
    }

    fn sync_dir(&self, directory: &Path) -> io::Result<()> {
        let mut state = self.change()?;
        if !state.names.directories.contains(directory) {
            return Err(not_found());
        }
        let is_inside = |path: &Path| path.parent() == Some(directory);
        let State { names, durable, .. } = &mut *state;
        // A directory that was renamed takes its content along.
        let stale: Vec<PathBuf> = durable
            .directories
            .iter()
            .filter(|path| is_inside(path) && !names.directories.contains(*path))
            .cloned()
            .collect();
        durable.files.retain(|path, _| {
            !is_inside(path) && !stale.iter().any(|directory| path.starts_with(directory))
        });
        durable.directories.retain(|path| !stale.contains(path));
        durable.directories.extend(names.directories.iter().cloned());
        let inside = names.files.iter().filter(|(path, _)| is_inside(path));
        let inside: Vec<(PathBuf, usize)> = inside.map(|(p, f)| (p.clone(), *f)).collect();
        let moved = names.files.iter().filter(|(path, _)| {
            path.parent().is_some_and(|parent| parent.parent() == Some(directory))
        });
        let moved: Vec<(PathBuf, usize)> = moved.map(|(p, f)| (p.clone(), *f)).collect();
        for (path, file) in inside.into_iter().chain(moved) {
            let is_renamed = !is_inside(&path);
            if !is_renamed || durable.files.values().any(|held| *held == file) || stale.is_empty() {
                let known_elsewhere: Vec<PathBuf> = durable
                    .files
                    .iter()
                    .filter(|(held, at)| **at == file && **held != path)
                    .map(|(held, _)| held.clone())
                    .collect();
                if is_renamed && known_elsewhere.is_empty() {
                    continue;
                }
                for held in known_elsewhere {
                    durable.files.remove(&held);
                }
                durable.files.insert(path, file);
            }
        }
        Ok(())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let state = self.lock_state();
        Ok(state.names.files.contains_key(path) || state.names.directories.contains(path))
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
        let state = self.disk.lock_state();
        let seen = &state.files[self.at].seen;
        let start = (position as usize).min(seen.len());
        let read = buffer.len().min(seen.len() - start);
        buffer[..read].copy_from_slice(&seen[start..start + read]);
        Ok(read)
    }

    fn write_at(&self, buffers: &[IoSlice<'_>], position: u64) -> io::Result<()> {
        let mut state = self.disk.change()?;
        let bytes: Vec<u8> = buffers.iter().flat_map(|slice| slice.iter().copied()).collect();
        let start = position as usize;
        MemoryFile::grow(&mut state, self.at, start + bytes.len())?;
        state.files[self.at].seen[start..start + bytes.len()].copy_from_slice(&bytes);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.disk.change()?;
        if state.syncs_fail {
            return Err(io::Error::other("input/output error"));
        }
        let file = &mut state.files[self.at];
        file.durable.clone_from(&file.seen);
        Ok(())
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        let mut state = self.disk.change()?;
        MemoryFile::grow(&mut state, self.at, length as usize)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.disk.change()?.files[self.at].seen.resize(length as usize, 0);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.lock_state().files[self.at].seen.len() as u64)
    }
}
