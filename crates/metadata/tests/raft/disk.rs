//! What a member's disk holds, and what it was told to and has not yet: a crash loses that, but for a
//! prefix of it in the order that the contract gives.

use std::collections::VecDeque;

use towpath_metadata::raft::{Entry, LogIndex, Message, Ready, Snapshot, Vote};

use crate::rng::Rng;

#[derive(Default)]
pub(crate) struct Disk {
    pub(crate) vote: Vote,
    pub(crate) snapshot: Option<Snapshot>,
    pub(crate) entries: Vec<Entry>,
    pending: VecDeque<Write>,
}

struct Write {
    number: u64,
    vote: Option<Vote>,
    snapshot: Option<Snapshot>,
    truncate_from: Option<LogIndex>,
    append: Vec<Entry>,
    messages: Vec<Message>,
}

/// A write that has become durable.
pub(crate) struct Synced {
    pub(crate) number: u64,
    pub(crate) messages: Vec<Message>,
    pub(crate) has_snapshot: bool,
    pub(crate) appended: Vec<Entry>,
}

impl Disk {
    pub(crate) fn write(&mut self, ready: &mut Ready) {
        self.pending.push_back(Write {
            number: ready.number,
            vote: ready.vote,
            snapshot: ready.snapshot.clone(),
            truncate_from: ready.truncate_from,
            append: ready.append.clone(),
            messages: std::mem::take(&mut ready.messages_after_persist),
        });
    }

    pub(crate) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Makes the oldest write durable.
    pub(crate) fn sync_one(&mut self) -> Option<Synced> {
        let write = self.pending.pop_front()?;
        let synced = Synced {
            number: write.number,
            messages: write.messages.clone(),
            has_snapshot: write.snapshot.is_some(),
            appended: write.append.clone(),
        };
        self.perform(write);
        Some(synced)
    }

    /// Power goes: some of what is pending is there, in order, and the rest is not.
    pub(crate) fn crash(&mut self, rng: &mut Rng) {
        for _ in 0..rng.below(self.pending.len() as u64 + 1) {
            self.sync_one();
        }
        if let Some(mut torn) = self.pending.pop_front() {
            let parts = rng.below(5);
            if parts < 1 {
                torn.vote = None;
            }
            if parts < 2 {
                torn.snapshot = None;
            }
            if parts < 3 {
                torn.truncate_from = None;
            }
            if parts < 4 {
                torn.append.clear();
            } else {
                torn.append.truncate(rng.below(torn.append.len() as u64 + 1) as usize);
            }
            // Entries are there only with all that comes before them.
            self.perform(torn);
        }
        self.pending.clear();
    }

    fn perform(&mut self, write: Write) {
        if let Some(vote) = write.vote {
            assert!(self.vote.term <= vote.term, "a vote of an earlier term");
            let voted = self.vote.term == vote.term && self.vote.voted_for.is_some();
            assert!(!voted || self.vote.voted_for == vote.voted_for, "two votes in one term");
            self.vote = vote;
        }
        if let Some(snapshot) = write.snapshot {
            self.entries.clear();
            self.snapshot = Some(snapshot);
        }
        if let Some(from) = write.truncate_from {
            self.entries.retain(|entry| entry.index < from);
        }
        for entry in write.append {
            assert_eq!(entry.index, self.last_index().next(), "entries are appended without a gap");
            self.entries.push(entry);
        }
    }

    pub(crate) fn snapshot_index(&self) -> LogIndex {
        self.snapshot.as_ref().map_or(LogIndex(0), |snapshot| snapshot.index)
    }

    pub(crate) fn last_index(&self) -> LogIndex {
        self.entries.last().map_or(self.snapshot_index(), |entry| entry.index)
    }

    /// Whether this very entry, or a snapshot with it, is durable.
    pub(crate) fn holds(&self, entry: &Entry) -> bool {
        entry.index <= self.snapshot_index() || self.entries.iter().any(|held| held == entry)
    }

    /// A snapshot of this member's own state; what is pending stays.
    pub(crate) fn compact(&mut self, snapshot: Snapshot) {
        self.entries.retain(|entry| snapshot.index < entry.index);
        self.snapshot = Some(snapshot);
    }
}
