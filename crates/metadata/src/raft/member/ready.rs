//! What a Ready is made of.

use std::collections::BTreeMap;

use ::raft::INVALID_ID;
use ::raft::eraftpb::{ConfState, Entry as RaftEntry, Message as RaftMessage};

use super::Raft;
use crate::raft::consensus::Ready;
use crate::raft::convert;
use crate::raft::entry::{Entry, Payload};
use crate::raft::ids::LogIndex;
use crate::raft::membership::MembershipChange;
use crate::raft::message::Snapshot;

impl Raft {
    /// Makes `snapshot` the log and the state.
    pub(super) fn install(&mut self, mut snapshot: Snapshot) -> Snapshot {
        if self.snapshot_without_me.take() == Some(snapshot.index) {
            snapshot.membership.learners.remove(&self.me);
        }
        self.node.mut_store().install(convert::to_snapshot(snapshot.clone()));
        self.membership = snapshot.membership.clone();
        self.memberships = BTreeMap::from([(snapshot.index.0, self.membership.clone())]);
        self.given_out = snapshot.index;
        self.last_written = snapshot.index;
        snapshot
    }

    /// What may go out at once: everything when there is nothing to wait for, and what the crate lets a
    /// leader say before its own disk has taken it, but not before that disk has taken its vote.
    pub(super) fn sort_messages(
        &self,
        ready: &mut Ready,
        early: &[RaftMessage],
        late: &[RaftMessage],
    ) {
        let nothing_to_wait_for = self.in_flight.iter().all(|r| !r.must_sync);
        let vote_is_durable = self.in_flight.iter().all(|r| !r.has_vote);
        for (messages, may_go) in [(early, vote_is_durable), (late, false)] {
            let to = if may_go || nothing_to_wait_for {
                &mut ready.messages
            } else {
                &mut ready.messages_after_persist
            };
            to.extend(messages.iter().map(convert::from_message));
        }
    }

    pub(super) fn give_out(&mut self, committed: &[RaftEntry]) -> Vec<Entry> {
        let mut given = Vec::with_capacity(committed.len());
        for entry in committed {
            assert_eq!(entry.index, self.given_out.0 + 1, "committed entries come without gaps");
            self.given_out = LogIndex(entry.index);
            let entry = convert::from_entry(entry);
            if let Payload::Membership(change) = &entry.payload {
                self.apply_change(entry.index, change);
            }
            given.push(entry);
        }
        given
    }

    fn apply_change(&mut self, index: LogIndex, change: &MembershipChange) {
        let Ok(next) = self.membership.after(change) else { return };
        let mut state = ConfState::default();
        for change in convert::to_conf_changes(change) {
            state = self.node.raft.apply_conf_change(&change).expect("the same change fits ours");
        }
        if *change != MembershipChange::Simple(Vec::new()) {
            self.assert_same_members(&next, &convert::from_conf_state(&state));
        }
        self.membership = next;
        self.changed = index;
        self.memberships.insert(index.0, self.membership.clone());
        if self.is_leader() && !self.membership.is_voter(self.me) {
            let term = self.node.raft.term;
            self.node.raft.become_follower(term, INVALID_ID);
        }
    }
}
