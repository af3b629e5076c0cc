//! What consensus promises, to whoever drives it.
//!
//! **Order.** [`Ready`]s are taken, made durable and reported ([`Consensus::persisted`]) in the order
//! of their numbers; several may be under way. Of one Ready, first the vote, then the snapshot, then
//! the truncation, then the new entries; all of it must be durable before its
//! `messages_after_persist` go out and before it is reported. `messages` may go out at once.
//!
//! **Committed entries** come in order, without gaps, and only once they are durable here. They are
//! reported with [`Consensus::applied`], of which only as many may be outstanding as
//! [`Settings::unapplied_entries_max`](super::Settings) says; then new ones are taken no more.
//!
//! **A read** is linearizable when it sees at least the index that it is confirmed with.

use std::collections::BTreeMap;

use super::admit::BadMessage;
use super::entry::{COMMAND_BYTES_MAX, Entry};
use super::ids::{LogIndex, MemberId, Term, Vote};
use super::membership::{Membership, MembershipChange, MembershipRefusal};
use super::message::{Message, Snapshot};

/// One member of a quorum.
pub trait Consensus {
    /// Time goes on by one tick.
    fn tick(&mut self);

    /// A message has come. Whether its sender may say `from` is for the carrier to know.
    ///
    /// # Errors
    ///
    /// When no correct member says this; nothing has changed then.
    fn receive(&mut self, message: Message) -> Result<(), BadMessage>;

    /// Appends `command` to the log, if this member leads. It is decided when it comes back among the
    /// committed entries *with this term*; another entry at its index means that it is lost.
    ///
    /// # Errors
    ///
    /// When it was not appended.
    fn propose(&mut self, command: Vec<u8>) -> Result<Proposed, Refusal>;

    /// Appends a change of the membership; one at a time. It holds from the moment in which it is
    /// given out as committed. A leader that is no voter any more steps down then.
    ///
    /// Who was removed must go on running, with its disk, until every voter that is left shows a
    /// membership without it, and that this is durable ([`Status::is_membership_durable`]). Before, they
    /// may still need its vote to learn that it is removed.
    ///
    /// # Errors
    ///
    /// When it was not appended.
    fn change_membership(&mut self, change: MembershipChange) -> Result<Proposed, Refusal>;

    /// Hands the leadership to a voter, within an election timeout; until then nothing can be proposed.
    ///
    /// # Errors
    ///
    /// When it was not begun.
    fn transfer_leadership(&mut self, to: MemberId) -> Result<(), Refusal>;

    /// Asks for an index that a read must have seen to be linearizable; the answer is a
    /// [`ReadConfirmed`] with this `context`. There is none when the leadership ends before: repeat it
    /// at the next leader.
    ///
    /// # Errors
    ///
    /// When this member does not lead, or too many wait.
    fn read_index(&mut self, context: u64) -> Result<(), Refusal>;

    /// What is to be done now, if anything; `None` too while too many are under way.
    fn take_ready(&mut self) -> Option<Ready>;

    /// Everything that the Ready of this number, and those before it, asked to be made durable is.
    ///
    /// # Panics
    ///
    /// When no such Ready is under way.
    fn persisted(&mut self, number: u64);

    /// The state has seen everything up to `index`, inclusive: committed entries that were given out,
    /// or a snapshot. What is not durable yet counts from then on.
    ///
    /// # Panics
    ///
    /// When `index` was not given out yet.
    fn applied(&mut self, index: LogIndex);

    /// `snapshot` is the state after `to`, and durable: the entries up to there may be forgotten.
    /// Nothing happens when there is a newer snapshot.
    ///
    /// # Panics
    ///
    /// When `to` was not reported as applied.
    fn compact(&mut self, to: LogIndex, snapshot: Vec<u8>);

    /// Where this member stands.
    fn status(&self) -> Status;

    /// What was sent to `member` may not have come there: its connection broke.
    fn unreachable(&mut self, member: MemberId);
}

/// Where a proposal stands, until it is committed or replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proposed {
    /// Its index.
    pub index: LogIndex,
    /// The term in which it was appended.
    pub term: Term,
}

/// Why something was not begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Another member leads, if any.
    #[error("this member does not lead the metadata quorum")]
    NotLeader {
        /// Who does, as far as is known.
        leader: Option<MemberId>,
    },
    /// The leadership is being handed over.
    #[error("the leadership of the metadata quorum is being handed over; try again")]
    Transferring,
    /// Too much is proposed and not committed, or committed and not applied, or waits to be read.
    #[error("too much is waiting in the metadata quorum; try again later")]
    Backlogged,
    /// The bound of one command.
    #[error("a command has 1 to {COMMAND_BYTES_MAX} bytes, and this one has {bytes}")]
    CommandSize {
        /// How many it has.
        bytes: usize,
    },
    /// The change before is not applied yet.
    #[error("a change of the metadata quorum is not finished yet; try again when it is")]
    ChangePending,
    /// The change does not fit.
    #[error("the metadata quorum cannot change so: {0}")]
    Membership(#[from] MembershipRefusal),
    /// Only voters lead.
    #[error("member {member} is no voter of the metadata quorum, and only voters lead")]
    NotAVoter {
        /// Who was meant.
        member: MemberId,
    },
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ready {
    /// Its number; they rise.
    pub number: u64,
    /// The vote to make durable.
    pub vote: Option<Vote>,
    /// A snapshot that replaces the whole log and the state.
    pub snapshot: Option<Snapshot>,
    /// Of the entries that were given out before, those from here on are replaced by `append`. A proposal
    /// that its proposer has written and that was not given out may stand in the way as well.
    pub truncate_from: Option<LogIndex>,
    /// Entries to append, without a gap after what is there.
    pub append: Vec<Entry>,
    /// To send at once.
    pub messages: Vec<Message>,
    /// To send when everything above is durable.
    pub messages_after_persist: Vec<Message>,
    /// To apply, in this order; after `snapshot`, if there is one.
    pub committed: Vec<Entry>,
    /// Reads that may go on.
    pub reads: Vec<ReadConfirmed>,
    /// The role, the term or the leader is another than at the Ready before.
    pub role_change: Option<RoleChange>,
    /// Whether there is anything to make durable. Without it, report it at once.
    pub must_sync: bool,
}

/// A read may go on once everything up to `index` is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadConfirmed {
    /// Which read.
    pub context: u64,
    /// What it must have seen.
    pub index: LogIndex,
}

/// What a member is to its quorum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Role {
    /// Follows, or looks for a leader; learners too.
    #[default]
    Follower,
    /// Asks whether it would be elected.
    PreCandidate,
    /// Stands for election.
    Candidate,
    /// Leads.
    Leader,
}

/// Who leads now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoleChange {
    /// What this member is.
    pub role: Role,
    /// In which term.
    pub term: Term,
    /// Who leads, as far as is known.
    pub leader: Option<MemberId>,
}

/// Where a member stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Who this is.
    pub me: MemberId,
    /// What it is.
    pub role: Role,
    /// In which term.
    pub term: Term,
    /// Who leads, as far as is known.
    pub leader: Option<MemberId>,
    /// Up to where the log is known to be committed, inclusive.
    pub commit: LogIndex,
    /// Up to where the state has seen it.
    pub applied: LogIndex,
    /// The last entry, durable or not.
    pub last_index: LogIndex,
    /// The last entry of the newest snapshot; 0 without one.
    pub snapshot_index: LogIndex,
    /// Who takes part, as of the committed entries that were given out.
    pub membership: Membership,
    /// Whether this member would come back with that membership after a crash.
    pub is_membership_durable: bool,
    /// To whom the leadership is being handed.
    pub transferring_to: Option<MemberId>,
    /// What the leader knows of each member; empty elsewhere.
    pub progress: BTreeMap<MemberId, MemberProgress>,
}

/// What a leader knows of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberProgress {
    /// Up to where its durable log is the leader's, inclusive.
    pub matched: LogIndex,
    /// Whether it was heard of within an election timeout.
    pub is_recently_active: bool,
    /// Whether it is being sent a snapshot.
    pub is_receiving_snapshot: bool,
}
