//! The log in memory, as the raft crate reads it: a snapshot, some entries that the snapshot covers
//! already (so that a member a little behind needs no snapshot), and all entries after it.
//!
//!   (before) ── entries ──▶ … snapshot.index … ──▶ last
//!
//! Holds what was *given out* to be made durable, which need not be durable yet.

use std::collections::VecDeque;

use ::raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use ::raft::{Error, GetEntriesContext, RaftState, Result, Storage, StorageError};

/// Entries that a snapshot covers are kept up to so many bytes.
const TRAILING_BYTES_MAX: usize = 4 << 20;

/// What an entry costs beside its data, when messages are cut to size.
const ENTRY_OVERHEAD: u64 = 32;

pub(super) struct Store {
    initial: RaftState,
    /// Index and term of the entry before the first.
    before: (u64, u64),
    entries: VecDeque<Entry>,
    snapshot: Option<Snapshot>,
    trailing: u64,
}

impl Store {
    pub(super) fn new(
        vote: HardState,
        members: ConfState,
        snapshot: Option<Snapshot>,
        entries: Vec<Entry>,
        trailing: u64,
    ) -> Store {
        let before = snapshot.as_ref().map_or((0, 0), position);
        let initial = RaftState { hard_state: vote, conf_state: members };
        Store { initial, before, entries: entries.into(), snapshot, trailing }
    }

    pub(super) fn last(&self) -> u64 {
        self.before.0 + self.entries.len() as u64
    }

    pub(super) fn snapshot_index(&self) -> u64 {
        self.snapshot.as_ref().map_or(0, |snapshot| position(snapshot).0)
    }

    /// Replaces everything.
    pub(super) fn install(&mut self, snapshot: Snapshot) {
        self.before = position(&snapshot);
        self.entries.clear();
        self.snapshot = Some(snapshot);
    }

    /// Appends after cutting what stands in the way.
    pub(super) fn append(&mut self, entries: &[Entry]) {
        let Some(first) = entries.first() else { return };
        assert!(self.before.0 < first.index, "entries that a snapshot covers are appended");
        assert!(first.index <= self.last() + 1, "entries are appended behind a gap");
        self.entries.truncate((first.index - self.before.0 - 1) as usize);
        self.entries.extend(entries.iter().cloned());
    }

    /// Takes `snapshot` and forgets what it covers, but for the trailing entries.
    pub(super) fn compact(&mut self, snapshot: Snapshot) {
        let to = position(&snapshot).0;
        assert!(
            self.before.0 < to && to <= self.last(),
            "a snapshot of entries that are not there"
        );
        self.snapshot = Some(snapshot);
        let mut bytes: usize =
            self.entries.iter().take((to - self.before.0) as usize).map(|e| e.data.len()).sum();
        while self.before.0 < to
            && (self.trailing < to - self.before.0 || TRAILING_BYTES_MAX < bytes)
        {
            let entry = self.entries.pop_front().expect("before < to <= last: there is an entry");
            bytes -= entry.data.len();
            self.before = (entry.index, entry.term);
        }
    }

    fn at(&self, index: u64) -> Option<&Entry> {
        let nth = index.checked_sub(self.before.0 + 1)?;
        self.entries.get(nth as usize)
    }
}

fn position(snapshot: &Snapshot) -> (u64, u64) {
    (snapshot.get_metadata().index, snapshot.get_metadata().term)
}

impl Storage for Store {
    fn initial_state(&self) -> Result<RaftState> {
        Ok(self.initial.clone())
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> Result<Vec<Entry>> {
        if low <= self.before.0 {
            return Err(Error::Store(StorageError::Compacted));
        }
        if self.last() + 1 < high {
            return Err(Error::Store(StorageError::Unavailable));
        }
        let max_size = max_size.into().unwrap_or(u64::MAX);
        let mut size = 0u64;
        let mut entries = Vec::new();
        for entry in
            self.entries.range((low - self.before.0 - 1) as usize..).take((high - low) as usize)
        {
            size = size.saturating_add(entry.data.len() as u64 + ENTRY_OVERHEAD);
            if max_size < size && !entries.is_empty() {
                break;
            }
            entries.push(entry.clone());
        }
        Ok(entries)
    }

    fn term(&self, index: u64) -> Result<u64> {
        if index == self.before.0 {
            return Ok(self.before.1);
        }
        if index < self.before.0 {
            return Err(Error::Store(StorageError::Compacted));
        }
        self.at(index).map(|entry| entry.term).ok_or(Error::Store(StorageError::Unavailable))
    }

    fn first_index(&self) -> Result<u64> {
        Ok(self.before.0 + 1)
    }

    fn last_index(&self) -> Result<u64> {
        Ok(self.last())
    }

    fn snapshot(&self, _request_index: u64, _to: u64) -> Result<Snapshot> {
        self.snapshot.clone().ok_or(Error::Store(StorageError::SnapshotTemporarilyUnavailable))
    }
}
