//! How a member begins: with what its disk holds, or with the first voters.
//!
//! **The first entry** of every log is [`MembershipChange::Initial`] at index 1 in term 1. All first
//! voters append the same one before anything else; it counts as committed from the beginning. A
//! member that joins later begins with nothing, takes part in nothing, and gets it from the leader.
//!
//! **What is known to be committed** need not be durable, but for membership changes. A member must
//! not forget that one is committed while it has the next one in its log: it could be elected by a
//! majority of voters that is none any more. A leader appends a change only when the one before is
//! applied, so all changes but the last of a log are committed, and that is where a start begins. And
//! it should not forget the last one either, or it could need the votes of members that were removed
//! by it and are gone: that one is noted with the vote.

use std::collections::{BTreeMap, BTreeSet};

use ::raft::eraftpb::HardState;

use super::convert;
use super::entry::{Entry, Payload};
use super::ids::{INDEX_MAX, LogIndex, MemberId, TERM_MAX, Term, Vote};
use super::membership::{Membership, MembershipChange, MembershipRefusal};
use super::message::Snapshot;
use super::store::Store;

/// How patient a member is, and how much it keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Ticks without a leader after which a voter stands for election, at least; twice as many at most.
    pub election_ticks: usize,
    /// Ticks between two heartbeats of a leader; fewer than `election_ticks`.
    pub heartbeat_ticks: usize,
    /// Committed entries that are not applied, at most; beyond, a leader refuses proposals, and a
    /// follower takes entries only when it has applied others.
    pub unapplied_entries_max: u64,
    /// Entries kept in memory although a snapshot covers them.
    pub trailing_entries: u64,
}

/// What a member begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RaftStart {
    /// Who it is.
    pub me: MemberId,
    /// The vote on its disk; the default without one.
    pub vote: Vote,
    /// The first voters of a new cluster; read only while there is neither a snapshot nor an entry.
    /// Every one of them begins with the same set. `None` for a member that joins.
    pub first_voters: Option<BTreeSet<MemberId>>,
    /// The newest snapshot on its disk.
    pub snapshot: Option<Snapshot>,
    /// The entries on its disk; those that the snapshot covers are passed over.
    pub entries: Vec<Entry>,
    /// Up to where the log is known to be committed; 0 where that is not remembered.
    pub commit: LogIndex,
    /// Up to where the state has seen it: the snapshot's index, where the state is folded anew.
    pub applied: LogIndex,
    /// How patient it is.
    pub settings: Settings,
    /// What its elections are drawn from.
    pub seed: u64,
}

/// Why what a member begins with cannot be: its disk lies, or who reads it errs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadStart {
    /// The settings contradict each other.
    #[error(
        "election ticks ({election}) must be more than heartbeat ticks ({heartbeat}), and both above 0"
    )]
    Settings {
        /// Election ticks.
        election: usize,
        /// Heartbeat ticks.
        heartbeat: usize,
    },
    /// An entry is missing, out of order, or out of bounds.
    #[error(
        "the metadata log does not go on after entry {after}: it has entry {found} of term {term}"
    )]
    Log {
        /// The entry before.
        after: LogIndex,
        /// What stands there.
        found: LogIndex,
        /// Its term.
        term: Term,
    },
    /// The log ends before what is known to be committed: it has lost entries.
    #[error("the metadata log ends at entry {last}, but entry {known} was committed and {what}")]
    Lost {
        /// Where it ends.
        last: LogIndex,
        /// What it must hold.
        known: LogIndex,
        /// How that is known.
        what: &'static str,
    },
    /// The state is older than the snapshot.
    #[error(
        "the state has seen entry {applied}, and the entries up to {snapshot} are only in a snapshot"
    )]
    Behind {
        /// What the state has seen.
        applied: LogIndex,
        /// Where the entries begin.
        snapshot: LogIndex,
    },
    /// Nobody can take part so.
    #[error("the members of the metadata quorum: {0}")]
    Membership(#[from] MembershipRefusal),
}

/// What [`RaftStart`] comes to.
pub(super) struct Begun {
    pub(super) store: Store,
    pub(super) vote: Vote,
    pub(super) last: LogIndex,
    /// As of what the state has seen.
    pub(super) membership: Membership,
    /// The memberships since the snapshot, by the index from which each holds.
    pub(super) memberships: BTreeMap<u64, Membership>,
    /// The entry that a first start has to append.
    pub(super) first: Option<Entry>,
}

impl RaftStart {
    pub(super) fn begin(self) -> Result<Begun, BadStart> {
        let Settings { election_ticks: election, heartbeat_ticks: heartbeat, .. } = self.settings;
        if heartbeat == 0 || election <= heartbeat {
            return Err(BadStart::Settings { election, heartbeat });
        }
        let (base, base_term) =
            self.snapshot.as_ref().map_or_else(Default::default, |s| (s.index, s.term));
        if let Some(snapshot) = &self.snapshot {
            snapshot.membership.check()?;
            let known = Entry { index: base, term: base_term, payload: Payload::Empty };
            follows(base.before(), Term(1), &known)?;
        }
        let entries: Vec<Entry> = self.entries.into_iter().filter(|e| base < e.index).collect();
        let (mut last, mut last_term) = (base, base_term.max(Term(1)));
        for entry in &entries {
            follows(last, last_term, entry)?;
            (last, last_term) = (entry.index, entry.term);
        }
        if self.applied < base {
            return Err(BadStart::Behind { applied: self.applied, snapshot: base });
        }
        for (known, what) in
            [(self.applied, "applied"), (self.commit, "noted"), (self.vote.change, "noted")]
        {
            if last < known {
                return Err(BadStart::Lost { last, known, what });
            }
        }

        let first = match (last, self.first_voters) {
            (LogIndex(0), Some(voters)) => Some(first_entry(voters)?),
            _ => None,
        };
        let (membership, memberships) = fold(self.snapshot.as_ref(), &entries, self.applied);
        let term = self.vote.term.max(last_term);
        let voted_for = self.vote.voted_for.filter(|_| term == self.vote.term);
        let noted = self.commit.max(self.vote.change);
        let commit = noted.max(self.applied).max(committed_changes(&entries));
        let hard_state = HardState {
            term: term.0,
            vote: voted_for.map_or(0, MemberId::number),
            commit: commit.0,
            ..HardState::default()
        };
        let store = Store::new(
            hard_state,
            convert::to_conf_state(&membership),
            self.snapshot.map(convert::to_snapshot),
            entries.into_iter().map(convert::to_entry).collect(),
            self.settings.trailing_entries,
        );
        Ok(Begun {
            store,
            vote: Vote { term, voted_for, change: self.vote.change },
            last,
            membership,
            memberships,
            first,
        })
    }
}

fn first_entry(voters: BTreeSet<MemberId>) -> Result<Entry, BadStart> {
    let change = MembershipChange::Initial(voters);
    Membership::default().after(&change)?;
    Ok(Entry { index: LogIndex(1), term: Term(1), payload: Payload::Membership(change) })
}

fn follows(after: LogIndex, after_term: Term, entry: &Entry) -> Result<(), BadStart> {
    let fits = entry.index == after.next()
        && entry.index <= INDEX_MAX
        && after_term <= entry.term
        && entry.term <= TERM_MAX
        && entry.payload.fits();
    if fits {
        return Ok(());
    }
    Err(BadStart::Log { after, found: entry.index, term: entry.term })
}

fn fold(
    snapshot: Option<&Snapshot>,
    entries: &[Entry],
    applied: LogIndex,
) -> (Membership, BTreeMap<u64, Membership>) {
    let mut membership = snapshot.map_or_else(Membership::default, |s| s.membership.clone());
    let base = snapshot.map_or(0, |s| s.index.0);
    let mut memberships = BTreeMap::from([(base, membership.clone())]);
    for entry in entries.iter().take_while(|entry| entry.index <= applied) {
        if let Payload::Membership(change) = &entry.payload
            && let Ok(next) = membership.after(change)
        {
            membership = next;
            memberships.insert(entry.index.0, membership.clone());
        }
    }
    (membership, memberships)
}

/// The last change that is known to be committed, because another one follows it, or because it is
/// the first entry of all; 0 if there is none.
fn committed_changes(entries: &[Entry]) -> LogIndex {
    let changes = entries.iter().filter(|e| matches!(e.payload, Payload::Membership(_)));
    let mut newest_first = changes.rev();
    let last = newest_first.next().map_or(LogIndex(0), |entry| entry.index);
    let before = newest_first.next().map_or(LogIndex(0), |entry| entry.index);
    before.max(last.min(LogIndex(1)))
}
