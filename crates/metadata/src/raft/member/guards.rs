//! What the raft crate does not guard itself, around what it receives and sends.

use ::raft::{ProgressState, SnapshotStatus};

use super::Raft;
use crate::raft::convert;
use crate::raft::ids::{LogIndex, MemberId, Term};
use crate::raft::membership::Membership;
use crate::raft::message::Rejection;

/// A snapshot of which nothing was heard is sent again after so many election timeouts.
const SNAPSHOT_PATIENCE: u64 = 10;

impl Raft {
    /// Without this, a snapshot that was lost on its way would be waited for for ever.
    pub(super) fn send_snapshots_again(&mut self) {
        let receiving: Vec<MemberId> = self
            .node
            .raft
            .prs()
            .iter()
            .filter(|(_, progress)| progress.state == ProgressState::Snapshot)
            .map(|(&number, _)| convert::member(number))
            .collect();
        self.snapshots_sent.retain(|member, _| receiving.contains(member));
        let patience = SNAPSHOT_PATIENCE * self.settings.election_ticks as u64;
        for member in receiving {
            let sent_at = *self.snapshots_sent.entry(member).or_insert(self.ticks);
            if patience <= self.ticks - sent_at {
                self.snapshots_sent.remove(&member);
                self.node.report_snapshot(member.number(), SnapshotStatus::Failure);
            }
        }
    }

    /// What may be known to be committed here, until more is applied. Only what is committed can be
    /// left for later: a leader may need its uncommitted entries everywhere to commit any.
    pub(super) fn room(&self) -> LogIndex {
        LogIndex(self.applied.0.saturating_add(self.settings.unapplied_entries_max))
    }

    /// A rejection, with its hint resolved against this leader's log; `None` if it is an old one.
    pub(super) fn resolve(
        &self,
        from: MemberId,
        index: LogIndex,
        rejection: Rejection,
    ) -> Option<Rejection> {
        let Some(progress) = self.node.raft.prs().get(from.number()) else {
            return Some(rejection);
        };
        if index.0 <= progress.matched {
            return None;
        }
        let mut hint = rejection.hint_index.0;
        if rejection.hint_term != Term(0) {
            let log = &self.node.raft.raft_log;
            hint = log.find_conflict_by_term(hint, rejection.hint_term.0).0;
        }
        let hint_index = LogIndex(hint.max(progress.matched));
        Some(Rejection { hint_index, hint_term: Term(0) })
    }

    /// Ours and the raft crate's were computed apart. This member may be a learner there before it is
    /// one here: see [`Raft::admit_me`].
    pub(super) fn assert_same_members(&self, ours: &Membership, theirs: &Membership) {
        assert!(
            ours == theirs || self.admit_me(ours.clone()) == *theirs,
            "two memberships: {ours:?} and {theirs:?}"
        );
    }

    /// The raft crate ignores a snapshot without this member in it. But a member that was added after
    /// the snapshot was taken has no other way to begin; as a learner it decides nothing by it. Only
    /// the crate is told so: what is given out says what the snapshot says.
    pub(super) fn admit_me(&self, mut membership: Membership) -> Membership {
        if !membership.contains(self.me) {
            membership.learners.insert(self.me);
        }
        membership
    }
}
