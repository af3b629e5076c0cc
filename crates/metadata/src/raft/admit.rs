//! Which messages reach the raft crate. It trusts its peers, and panics on what no correct one says:
//! a commit beyond the log, entries with a gap, a snapshot without voters. A broker must not die of a
//! message, so all of that is refused here, before anything has changed.
//!
//! What a message contradicts is looked up in [`View`]; the rest are bounds.

use super::entry::Entry;
use super::ids::{INDEX_MAX, LogIndex, MemberId, TERM_MAX, Term};
use super::membership::MembershipRefusal;
use super::message::{Body, CONTEXT_BYTES_MAX, Message};

/// Why a message was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadMessage {
    /// It is for another member: this broker had another disk before, or will have.
    #[error("a message of the metadata quorum for member {to}, which is another than this one")]
    NotForMe {
        /// Whom it is for.
        to: MemberId,
    },
    /// It says that this member sent it.
    #[error("a message of the metadata quorum from this member itself")]
    FromMyself,
    /// A term is 0 or out of bounds, or that of an entry later than that of the message.
    #[error("a message of the metadata quorum with term {term}, which cannot be")]
    Term {
        /// The term.
        term: Term,
    },
    /// An index is out of bounds.
    #[error("a message of the metadata quorum with index {index}, which cannot be")]
    Index {
        /// The index.
        index: LogIndex,
    },
    /// The leader has seen more durable here than there is: this member's disk has lost entries, or
    /// the leader is wrong.
    #[error(
        "the leader of the metadata quorum takes entry {known} for durable here, and the log ends at \
         {last}: if this disk lost entries, remove this member and let it join with an empty one"
    )]
    BeyondMyLog {
        /// What the leader believes.
        known: LogIndex,
        /// Where the log ends.
        last: LogIndex,
    },
    /// A follower answers for entries that the leader never had.
    #[error("an answer of the metadata quorum for entry {index}, and the log ends at {last}")]
    BeyondTheLeadersLog {
        /// What it answers for.
        index: LogIndex,
        /// Where the log ends.
        last: LogIndex,
    },
    /// Entries do not follow each other.
    #[error("entries of the metadata quorum do not follow each other: {index} of term {term}")]
    Entries {
        /// The first that does not fit.
        index: LogIndex,
        /// Its term.
        term: Term,
    },
    /// A command, a change or a context is empty or too long.
    #[error("a message of the metadata quorum with something empty or too long in it")]
    Size,
    /// A snapshot's membership cannot be.
    #[error("a snapshot of the metadata quorum: {0}")]
    Membership(#[from] MembershipRefusal),
    /// The leadership is handed to a member whose disk has not taken what it was given.
    #[error("the leadership of the metadata quorum is handed to a member that is behind")]
    NotReadyToLead,
}

/// What a message is compared with.
pub(super) struct View {
    pub(super) me: MemberId,
    pub(super) term: Term,
    pub(super) is_leader: bool,
    pub(super) last: LogIndex,
    /// Whether everything that was given out is durable and the state is not behind a snapshot.
    pub(super) is_settled: bool,
}

pub(super) fn admit(message: &Message, view: &View) -> Result<(), BadMessage> {
    if message.to != view.me {
        return Err(BadMessage::NotForMe { to: message.to });
    }
    if message.from == view.me {
        return Err(BadMessage::FromMyself);
    }
    check_term(message.term)?;
    // A message of a later term makes a follower of a leader before it is looked at.
    let leads_then = view.is_leader && message.term == view.term;
    match &message.body {
        Body::Vote { last_index, last_term, commit, commit_term, .. } => {
            check_position(*last_index, *last_term)?;
            check_position(*commit, *commit_term)
        }
        Body::VoteReply { commit, commit_term, .. } => {
            check_index(*commit)?;
            check_bound(*commit_term)
        }
        Body::Append { prev_index, prev_term, commit, entries } => {
            check_index(*commit)?;
            check_position(*prev_index, *prev_term)?;
            check_entries(*prev_index, *prev_term, message.term, entries)
        }
        Body::AppendReply { index, commit, rejected } => {
            check_index(*index)?;
            check_index(*commit)?;
            if let Some(rejection) = rejected {
                check_index(rejection.hint_index)?;
                check_bound(rejection.hint_term)?;
            }
            if leads_then && view.last < *index {
                return Err(BadMessage::BeyondTheLeadersLog { index: *index, last: view.last });
            }
            Ok(())
        }
        Body::Heartbeat { commit, context } => {
            check_context(context)?;
            if view.term <= message.term && view.last < *commit {
                return Err(BadMessage::BeyondMyLog { known: *commit, last: view.last });
            }
            Ok(())
        }
        Body::HeartbeatReply { commit, context } => {
            check_context(context)?;
            check_index(*commit)
        }
        Body::Snapshot(snapshot) => {
            if snapshot.index == LogIndex(0) {
                return Err(BadMessage::Index { index: snapshot.index });
            }
            check_position(snapshot.index, snapshot.term)?;
            if message.term < snapshot.term {
                return Err(BadMessage::Term { term: snapshot.term });
            }
            Ok(snapshot.membership.check()?)
        }
        Body::TimeoutNow if !view.is_settled => Err(BadMessage::NotReadyToLead),
        Body::TimeoutNow => Ok(()),
    }
}

fn check_term(term: Term) -> Result<(), BadMessage> {
    if term == Term(0) {
        return Err(BadMessage::Term { term });
    }
    check_bound(term)
}

fn check_bound(term: Term) -> Result<(), BadMessage> {
    if TERM_MAX < term {
        return Err(BadMessage::Term { term });
    }
    Ok(())
}

fn check_index(index: LogIndex) -> Result<(), BadMessage> {
    if INDEX_MAX < index {
        return Err(BadMessage::Index { index });
    }
    Ok(())
}

/// An entry has an index and a term, and before the first of all are index 0 and term 0.
fn check_position(index: LogIndex, term: Term) -> Result<(), BadMessage> {
    check_index(index)?;
    check_bound(term)?;
    if (index == LogIndex(0)) != (term == Term(0)) {
        return Err(BadMessage::Entries { index, term });
    }
    Ok(())
}

fn check_entries(
    prev_index: LogIndex,
    prev_term: Term,
    sent_in: Term,
    entries: &[Entry],
) -> Result<(), BadMessage> {
    let (mut last, mut last_term) = (prev_index, prev_term.max(Term(1)));
    if sent_in < last_term {
        return Err(BadMessage::Term { term: last_term });
    }
    for Entry { index, term, payload } in entries {
        if *index != last.next() || *term < last_term || INDEX_MAX < *index {
            return Err(BadMessage::Entries { index: *index, term: *term });
        }
        if sent_in < *term {
            return Err(BadMessage::Term { term: *term });
        }
        if !payload.fits() {
            return Err(BadMessage::Size);
        }
        (last, last_term) = (*index, *term);
    }
    Ok(())
}

fn check_context(context: &[u8]) -> Result<(), BadMessage> {
    if CONTEXT_BYTES_MAX < context.len() {
        return Err(BadMessage::Size);
    }
    Ok(())
}
