//! Consensus for the metadata log: which entries are decided, in which order, by whom.
//!
//!   tick, receive, propose ──▶ Raft ──take_ready──▶ vote + entries to make durable, messages, committed entries
//!                                ▲                        │
//!                                └── persisted(n), applied(index) ◀──┘
//!
//! A facade over the `raft` crate (raft-rs) in types of our own, so that it can be replaced: none of
//! its types, nor protobuf's, shows outside. It does no IO: who drives it keeps the log, the vote and
//! the snapshot, and carries the messages. [`Consensus`] is the contract.
//!
//! Three things surprise. Elections are drawn from a seed after every step, because the crate draws
//! them from the system's entropy (`timeout.rs`). What the crate would panic on is refused before it
//! sees it (`admit.rs`). And the first entry of every log is the first membership: everything about
//! a cluster is in its log, so a member that joins needs nothing but the log (`start.rs`).

mod admit;
mod bytes;
mod consensus;
mod convert;
mod entry;
mod ids;
mod member;
mod membership;
mod message;
mod reads;
mod start;
mod store;
mod timeout;

pub use admit::BadMessage;
pub use consensus::{
    Consensus, MemberProgress, Proposed, ReadConfirmed, Ready, Refusal, Role, RoleChange, Status,
};
pub use entry::{COMMAND_BYTES_MAX, Entry, Payload};
pub use ids::{INDEX_MAX, LogIndex, MemberId, TERM_MAX, Term, Vote};
pub use member::{READYS_IN_FLIGHT_MAX, Raft};
pub use membership::{MEMBERS_MAX, MemberChange, Membership, MembershipChange, MembershipRefusal};
pub use message::{Body, CONTEXT_BYTES_MAX, Message, Rejection, Snapshot};
pub use reads::READS_WAITING_MAX;
pub use start::{BadStart, RaftStart, Settings};
