//! Everything behind a [`super::SimDisk`] handle, and the gate that every call goes through.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::content::Content;
use super::names::{Entry, Inode, Names};
use super::{Latency, SimCrash};
use crate::events::Events;
use crate::rng::Rng;
use crate::trace::Trace;

#[derive(Clone)]
pub(super) struct State {
    pub(super) names: Names,
    pub(super) files: BTreeMap<Inode, Content>,
    /// Files that a living process has locked.
    pub(super) locks: BTreeSet<Inode>,
    pub(super) capacity: Option<u64>,
    /// Reserved space is no promise: every write needs room of its own, as on btrfs or ZFS.
    pub(super) copies_on_write: bool,
    /// Directories whose sectors cannot be read.
    pub(super) unreadable: Vec<PathBuf>,
    pub(super) latency: Latency,
    pub(super) elapsed: Duration,
    pub(super) crash_in: Option<u64>,
    pub(super) fail_sync_in: Option<u64>,
    /// The next sync of a file at or below this fails.
    pub(super) fail_sync_under: Option<PathBuf>,
    pub(super) crashed: bool,
    /// Rises with every restart, so that handles of a dead process stay dead.
    pub(super) incarnation: u64,
    pub(super) changing_calls: u64,
    pub(super) events: Events,
    next_inode: Inode,
    rng: Rng,
    trace: Trace,
}

/// A call that changes something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    Create,
    CreateDir,
    Rename,
    Remove,
    SyncDir,
    Write,
    Sync,
    SyncAll,
    Allocate,
    Truncate,
}

impl Call {
    fn name(self) -> &'static str {
        match self {
            Call::Create => "disk.create",
            Call::CreateDir => "disk.create_dir",
            Call::Rename => "disk.rename",
            Call::Remove => "disk.remove",
            Call::SyncDir => "disk.sync_dir",
            Call::Write => "disk.write",
            Call::Sync => "disk.sync",
            Call::SyncAll => "disk.sync_all",
            Call::Allocate => "disk.allocate",
            Call::Truncate => "disk.truncate",
        }
    }

    fn is_sync(self) -> bool {
        matches!(self, Call::Sync | Call::SyncDir | Call::SyncAll)
    }

    fn crash_event(self) -> &'static str {
        match self {
            Call::Create | Call::CreateDir => "disk: stopped at a create",
            Call::Rename => "disk: stopped at a rename",
            Call::Remove => "disk: stopped at a removal",
            Call::SyncDir => "disk: stopped at a directory sync",
            Call::Write => "disk: stopped at a write",
            Call::Sync => "disk: stopped at a sync",
            Call::SyncAll => "disk: stopped at a sync of everything",
            Call::Allocate => "disk: stopped at an allocation",
            Call::Truncate => "disk: stopped at a truncation",
        }
    }
}

/// What is to become of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// It happens and returns.
    Whole,
    /// It happens, and the machine stops before it returns.
    WholeThenCrash,
    /// The machine stops in its middle.
    PartThenCrash,
    /// The machine stops before it.
    Crash,
}

impl Step {
    /// Whether all of it happens.
    pub(super) fn does(self) -> bool {
        matches!(self, Step::Whole | Step::WholeThenCrash)
    }

    /// What the caller hears.
    pub(super) fn answer(self) -> io::Result<()> {
        if self == Step::Whole { Ok(()) } else { Err(io::Error::other(SimCrash)) }
    }
}

impl State {
    pub(super) fn new(rng: Rng, trace: Trace) -> State {
        State {
            names: Names::new(),
            files: BTreeMap::new(),
            locks: BTreeSet::new(),
            capacity: None,
            copies_on_write: false,
            unreadable: Vec::new(),
            latency: Latency::default(),
            elapsed: Duration::ZERO,
            crash_in: None,
            fail_sync_in: None,
            fail_sync_under: None,
            crashed: false,
            incarnation: 0,
            changing_calls: 0,
            events: Events::new(),
            next_inode: 1,
            rng,
            trace,
        }
    }

    /// Makes a copied state independent: chance, trace and events of its own, no crash planned.
    pub(super) fn detach(&mut self, rng: Rng) {
        self.rng = rng;
        self.trace = Trace::hashing();
        self.events = Events::new();
        self.crash_in = None;
        self.fail_sync_in = None;
        self.fail_sync_under = None;
    }

    /// The gate of calls that only look.
    pub(super) fn look(&mut self) -> io::Result<()> {
        if self.crashed {
            return Err(io::Error::other(SimCrash));
        }
        self.elapsed += self.latency.call;
        Ok(())
    }

    /// The gate of calls that read what lies at `path`.
    pub(super) fn look_at(&mut self, path: &Path) -> io::Result<()> {
        self.look()?;
        if self.unreadable.iter().any(|unreadable| path.starts_with(unreadable)) {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        Ok(())
    }

    /// The gate of calls that change something; `numbers` identify the call in the trace.
    pub(super) fn change(&mut self, call: Call, numbers: &[u64]) -> io::Result<Step> {
        self.changing_calls += 1;
        if call.is_sync() {
            self.elapsed += self.latency.sync;
        }
        self.trace.event(call.name(), numbers);
        match &mut self.crash_in {
            None => return Ok(Step::Whole),
            Some(calls) if 1 < *calls => {
                *calls -= 1;
                return Ok(Step::Whole);
            }
            Some(_) => {}
        }
        self.crash_in = None;
        self.crashed = true;
        self.events.note(call.crash_event());
        Ok(self.rng.weighted(&[
            (1, Step::Crash),
            (2, Step::PartThenCrash),
            (1, Step::WholeThenCrash),
        ]))
    }

    pub(super) fn create_file(&mut self, parent: Inode, name: String) -> Inode {
        let inode = self.new_inode();
        self.files.insert(inode, Content::default());
        self.names.create(parent, name, Entry { inode, is_dir: false });
        inode
    }

    pub(super) fn create_dir(&mut self, parent: Inode, name: String) {
        let inode = self.new_inode();
        self.names.create(parent, name, Entry { inode, is_dir: true });
    }

    fn new_inode(&mut self) -> Inode {
        self.next_inode += 1;
        self.next_inode
    }

    pub(super) fn remove(&mut self, path: &Path, wants_dir: bool) -> io::Result<()> {
        self.look()?;
        let entry = self.names.check_remove(path, wants_dir)?;
        let step = self.change(Call::Remove, &[entry.inode])?;
        if step.does() {
            self.names.remove(path)?;
        }
        step.answer()
    }

    pub(super) fn write(&mut self, inode: Inode, bytes: &[u8], position: usize) -> io::Result<()> {
        let step = self.change(Call::Write, &[inode, position as u64, bytes.len() as u64])?;
        self.trace.content("disk.bytes", bytes);
        let wanted = if step.does() { bytes.len() } else { self.part(step, bytes.len()) };
        let room = self.room_for(inode, position, position + wanted);
        let possible = room.saturating_sub(position).min(wanted);
        self.content(inode)?.write(position, &bytes[..possible]);
        step.answer()?;
        if possible < wanted {
            self.events.note("disk: write found no space");
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    fn part(&mut self, step: Step, len: usize) -> usize {
        if step == Step::PartThenCrash { self.rng.index(len + 1) } else { 0 }
    }

    pub(super) fn sync(&mut self, inode: Inode) -> io::Result<()> {
        let step = self.change(Call::Sync, &[inode])?;
        let fails = match &mut self.fail_sync_in {
            Some(1) => true,
            Some(syncs) => {
                *syncs -= 1;
                false
            }
            None => false,
        } || self.is_to_fail(inode);
        if !step.does() {
            // How much of it got to the disk is decided when the power goes.
            return step.answer();
        }
        if fails {
            self.fail_sync_in = None;
            self.fail_sync_under = None;
            self.events.note("disk: sync failed");
            let content = self.files.get_mut(&inode).ok_or(io::ErrorKind::NotFound)?;
            content.fail_sync(&mut self.rng);
            return Err(io::Error::from_raw_os_error(EIO));
        }
        self.content(inode)?.sync();
        step.answer()
    }

    fn is_to_fail(&self, inode: Inode) -> bool {
        let Some(under) = &self.fail_sync_under else { return false };
        let files = self.names.files();
        files.iter().any(|(path, at)| *at == inode && Path::new(path).starts_with(under))
    }

    /// Bytes and names of all there is, in one call.
    pub(super) fn sync_everything(&mut self) -> io::Result<()> {
        let step = self.change(Call::SyncAll, &[])?;
        let fails = self.fail_sync_in == Some(1);
        if let Some(syncs) = self.fail_sync_in.as_mut() {
            *syncs = syncs.saturating_sub(1).max(1);
        }
        if step == Step::Crash {
            return step.answer();
        }
        // A machine that stops in its middle, and a sync that fails, have written some files.
        let is_whole = step.does() && !fails;
        let lost = if fails {
            self.files.keys().copied().nth(self.rng.index(self.files.len().max(1)))
        } else {
            None
        };
        for (inode, content) in &mut self.files {
            if lost == Some(*inode) {
                content.fail_sync(&mut self.rng);
            } else if is_whole || self.rng.percent(50) {
                content.sync();
            }
        }
        if fails {
            self.fail_sync_in = None;
            self.events.note("disk: sync failed");
            return Err(io::Error::from_raw_os_error(EIO));
        }
        if is_whole {
            self.names.sync_all();
        }
        step.answer()
    }

    /// See [`Content::drop_cached`].
    pub(super) fn drop_cached(&mut self, inode: Inode, from: u64, length: u64) -> io::Result<()> {
        let to = usize::try_from(from.saturating_add(length)).unwrap_or(usize::MAX);
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        if self.content(inode)?.drop_cached(from, to) {
            self.events.note("disk: page lost by a failed sync was read again");
        }
        Ok(())
    }

    pub(super) fn allocate(&mut self, inode: Inode, length: usize) -> io::Result<()> {
        let step = self.change(Call::Allocate, &[inode, length as u64])?;
        let own = self.files.get(&inode).map_or(0, |content| content.cached().len());
        if self.room_for(inode, own, length) < length {
            self.events.note("disk: allocation found no space");
            step.answer()?;
            return Err(io::ErrorKind::StorageFull.into());
        }
        let content = self.content(inode)?;
        if step.does() && content.cached().len() < length {
            content.set_len(length);
        }
        step.answer()
    }

    pub(super) fn truncate(&mut self, inode: Inode, length: usize) -> io::Result<()> {
        let step = self.change(Call::Truncate, &[inode, length as u64])?;
        if step.does() {
            self.content(inode)?.set_len(length);
        }
        step.answer()
    }

    pub(super) fn content(&mut self, inode: Inode) -> io::Result<&mut Content> {
        self.files.get_mut(&inode).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Up to where a write at `position` may go, at most `wanted`.
    fn room_for(&self, inode: Inode, position: usize, wanted: usize) -> usize {
        let Some(capacity) = self.capacity else { return wanted };
        if self.copies_on_write {
            let free = capacity.saturating_sub(self.used_bytes());
            return wanted.min(position + free as usize);
        }
        let own = self.files.get(&inode).map_or(0, |content| content.cached().len());
        if wanted <= own {
            return wanted;
        }
        let free = capacity.saturating_sub(self.used_bytes());
        wanted.min(own + free as usize)
    }

    pub(super) fn used_bytes(&self) -> u64 {
        let files = self.names.files();
        files.iter().map(|(_, inode)| self.files[inode].cached().len() as u64).sum()
    }

    pub(super) fn kill(&mut self) {
        self.trace.event("disk.kill", &[]);
        self.events.note("disk: killed");
        self.stop();
    }

    pub(super) fn lose_power(&mut self) {
        self.trace.event("disk.lose_power", &[]);
        self.events.note("disk: power lost");
        self.names.lose_power(&mut self.rng, &mut self.events);
        for content in self.files.values_mut() {
            content.lose_power(&mut self.rng, &mut self.events);
        }
        self.stop();
    }

    fn stop(&mut self) {
        self.crashed = true;
        self.locks.clear();
        let reachable = self.names.reachable();
        self.files.retain(|inode, _| reachable.contains(inode));
    }

    pub(super) fn restart(&mut self) {
        self.crashed = false;
        self.crash_in = None;
        self.fail_sync_in = None;
        self.fail_sync_under = None;
        self.incarnation += 1;
    }
}

/// Linux's number of "input/output error", which has no `io::ErrorKind`.
const EIO: i32 = 5;
