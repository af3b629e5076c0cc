//! What members say to each other. Messages may be lost, late, repeated and reordered.
//!
//! A message names both ends: one that was meant for the member whose disk this broker had before
//! must not reach the member that it is now. The names follow the Raft dissertation.

use serde::{Deserialize, Serialize};

use super::entry::Entry;
use super::ids::{LogIndex, MemberId, Term};
use super::membership::Membership;

/// The most bytes that a heartbeat carries for its answer.
pub const CONTEXT_BYTES_MAX: usize = 64;

/// One message from one member to another.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Message {
    /// Who says it.
    pub from: MemberId,
    /// Who is meant.
    pub to: MemberId,
    /// The sender's term; of a pre-vote, the term that is asked for.
    pub term: Term,
    /// What is said.
    pub body: Body,
}

/// What a message says.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Body {
    /// Asks for a vote.
    Vote {
        /// Only asks whether it *would* get the vote; nobody's term changes.
        pre: bool,
        /// The leader handed over: the lease of a living leader does not count.
        transfer: bool,
        /// Where the candidate's log ends, inclusive.
        last_index: LogIndex,
        /// The term of that entry.
        last_term: Term,
        /// Up to where the candidate knows the log to be committed, inclusive.
        commit: LogIndex,
        /// The term of that entry.
        commit_term: Term,
    },
    /// Answers [`Body::Vote`].
    VoteReply {
        /// Which of the two was asked.
        pre: bool,
        /// Whether it gets the vote.
        granted: bool,
        /// Up to where the voter knows the log to be committed, when it refuses.
        commit: LogIndex,
        /// The term of that entry.
        commit_term: Term,
    },
    /// The leader's entries after `prev_index`; without entries it asks whether that one is there.
    Append {
        /// The entry before the first of `entries`; 0 is before the first of all.
        prev_index: LogIndex,
        /// The term of that entry; 0 before the first of all.
        prev_term: Term,
        /// Up to where the leader knows the log to be committed, inclusive.
        commit: LogIndex,
        /// Entries without a gap.
        entries: Vec<Entry>,
    },
    /// Answers [`Body::Append`] and [`Body::Snapshot`].
    AppendReply {
        /// Up to where the follower's durable log is the leader's; of a rejection, the `prev_index`
        /// that was rejected.
        index: LogIndex,
        /// Up to where the follower knows the log to be committed.
        commit: LogIndex,
        /// The entry before did not fit.
        rejected: Option<Rejection>,
    },
    /// The leader lives.
    Heartbeat {
        /// Up to where the log is committed, as far as this follower is known to have it.
        commit: LogIndex,
        /// Comes back with the answer; at most [`CONTEXT_BYTES_MAX`].
        context: Vec<u8>,
    },
    /// Answers [`Body::Heartbeat`].
    HeartbeatReply {
        /// Up to where the follower knows the log to be committed.
        commit: LogIndex,
        /// What came with the heartbeat.
        context: Vec<u8>,
    },
    /// The state in the place of entries that the leader no longer has.
    Snapshot(Snapshot),
    /// The leader hands over: stand for election now.
    TimeoutNow,
}

/// Where a follower's log may fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rejection {
    /// The largest index that may.
    pub hint_index: LogIndex,
    /// The term of the follower's entry there.
    pub hint_term: Term,
}

/// The state after the entry `index`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Snapshot {
    /// The last entry that is in it.
    pub index: LogIndex,
    /// The term of that entry.
    pub term: Term,
    /// Who took part after that entry.
    pub membership: Membership,
    /// The state itself; its bound is that of the carrier.
    pub data: Vec<u8>,
}
