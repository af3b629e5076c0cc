//! Our types into the raft crate's and back. Nothing here reads or writes protobuf: its structs are
//! filled field by field, and a membership change travels inside them in our own bytes.

use ::raft::CAMPAIGN_TRANSFER;
use ::raft::eraftpb::{
    ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, ConfState,
    Entry as RaftEntry, EntryType, Message as RaftMessage, MessageType, Snapshot as RaftSnapshot,
};

use super::bytes::{Reader, Writer};
use super::entry::{Entry, Payload};
use super::ids::{LogIndex, MemberId, Term};
use super::membership::{MemberChange, Membership, MembershipChange};
use super::message::{Body, Message, Rejection, Snapshot};

/// # Panics
///
/// When `number` is 0, which the raft crate gives to nobody.
pub(super) fn member(number: u64) -> MemberId {
    MemberId::from_number(number).expect("a member of raft's has a number")
}

pub(super) fn to_conf_state(membership: &Membership) -> ConfState {
    let numbers = |members: &std::collections::BTreeSet<MemberId>| {
        members.iter().map(|member| member.number()).collect::<Vec<u64>>()
    };
    ConfState {
        voters: numbers(&membership.voters),
        voters_outgoing: numbers(&membership.voters_outgoing),
        learners: numbers(&membership.learners),
        learners_next: numbers(&membership.learners_next),
        auto_leave: membership.auto_leave,
        ..ConfState::default()
    }
}

pub(super) fn from_conf_state(state: &ConfState) -> Membership {
    let members = |numbers: &[u64]| numbers.iter().map(|&number| member(number)).collect();
    Membership {
        voters: members(&state.voters),
        voters_outgoing: members(&state.voters_outgoing),
        learners: members(&state.learners),
        learners_next: members(&state.learners_next),
        auto_leave: state.auto_leave,
    }
}

/// The steps by which the raft crate makes `change`. It takes more than one change at once for a
/// joint one, so simple ones go one by one: at most one of them is about a voter.
pub(super) fn to_conf_changes(change: &MembershipChange) -> Vec<ConfChangeV2> {
    match change {
        MembershipChange::Initial(voters) => {
            voters.iter().map(|&voter| simple(MemberChange::AddVoter(voter))).collect()
        }
        MembershipChange::Simple(changes) => changes.iter().map(|&change| simple(change)).collect(),
        MembershipChange::EnterJoint { changes, auto_leave } => {
            let transition = if *auto_leave {
                ConfChangeTransition::Implicit
            } else {
                ConfChangeTransition::Explicit
            };
            let changes = changes.iter().map(|&change| single(change)).collect::<Vec<_>>();
            vec![ConfChangeV2 { transition, changes: changes.into(), ..ConfChangeV2::default() }]
        }
        MembershipChange::LeaveJoint => vec![ConfChangeV2::default()],
    }
}

fn simple(change: MemberChange) -> ConfChangeV2 {
    ConfChangeV2 { changes: vec![single(change)].into(), ..ConfChangeV2::default() }
}

fn single(change: MemberChange) -> ConfChangeSingle {
    let change_type = match change {
        MemberChange::AddVoter(_) => ConfChangeType::AddNode,
        MemberChange::AddLearner(_) => ConfChangeType::AddLearnerNode,
        MemberChange::Remove(_) => ConfChangeType::RemoveNode,
    };
    ConfChangeSingle {
        change_type,
        node_id: change.member().number(),
        ..ConfChangeSingle::default()
    }
}

pub(super) fn to_entry(entry: Entry) -> RaftEntry {
    let (entry_type, data) = match entry.payload {
        Payload::Empty => (EntryType::EntryNormal, Vec::new()),
        Payload::Command(command) => (EntryType::EntryNormal, command),
        Payload::Membership(change) => (EntryType::EntryConfChangeV2, change_bytes(&change)),
    };
    RaftEntry {
        entry_type,
        index: entry.index.0,
        term: entry.term.0,
        data: data.into(),
        ..RaftEntry::default()
    }
}

pub(super) fn from_entry(entry: &RaftEntry) -> Entry {
    let payload = match entry.entry_type {
        EntryType::EntryNormal if entry.data.is_empty() => Payload::Empty,
        EntryType::EntryNormal => Payload::Command(entry.data.to_vec()),
        EntryType::EntryConfChange | EntryType::EntryConfChangeV2 => {
            Payload::Membership(change_from_bytes(&entry.data))
        }
    };
    Entry { index: LogIndex(entry.index), term: Term(entry.term), payload }
}

/// Leaving is an entry without data, because the raft crate itself appends such a one for a change
/// that leaves by itself.
fn change_bytes(change: &MembershipChange) -> Vec<u8> {
    if *change == MembershipChange::LeaveJoint {
        return Vec::new();
    }
    let mut out = Writer::new();
    change.write(&mut out);
    out.finish()
}

fn change_from_bytes(bytes: &[u8]) -> MembershipChange {
    if bytes.is_empty() {
        return MembershipChange::LeaveJoint;
    }
    MembershipChange::read(&mut Reader::new(bytes)).expect("only to_entry writes such an entry")
}

pub(super) fn to_snapshot(snapshot: Snapshot) -> RaftSnapshot {
    let mut to = RaftSnapshot::default();
    to.mut_metadata().index = snapshot.index.0;
    to.mut_metadata().term = snapshot.term.0;
    to.mut_metadata().set_conf_state(to_conf_state(&snapshot.membership));
    to.data = snapshot.data.into();
    to
}

pub(super) fn from_snapshot(snapshot: &RaftSnapshot) -> Snapshot {
    let metadata = snapshot.get_metadata();
    Snapshot {
        index: LogIndex(metadata.index),
        term: Term(metadata.term),
        membership: from_conf_state(metadata.get_conf_state()),
        data: snapshot.data.to_vec(),
    }
}

pub(super) fn to_message(message: Message) -> RaftMessage {
    let mut to = RaftMessage {
        from: message.from.number(),
        to: message.to.number(),
        term: message.term.0,
        ..RaftMessage::default()
    };
    match message.body {
        Body::Vote { pre, transfer, last_index, last_term, commit, commit_term } => {
            to.msg_type =
                if pre { MessageType::MsgRequestPreVote } else { MessageType::MsgRequestVote };
            to.index = last_index.0;
            to.log_term = last_term.0;
            to.commit = commit.0;
            to.commit_term = commit_term.0;
            if transfer {
                to.context = CAMPAIGN_TRANSFER.into();
            }
        }
        Body::VoteReply { pre, granted, commit, commit_term } => {
            to.msg_type = if pre {
                MessageType::MsgRequestPreVoteResponse
            } else {
                MessageType::MsgRequestVoteResponse
            };
            to.reject = !granted;
            to.commit = commit.0;
            to.commit_term = commit_term.0;
        }
        Body::Append { prev_index, prev_term, commit, entries } => {
            to.msg_type = MessageType::MsgAppend;
            to.index = prev_index.0;
            to.log_term = prev_term.0;
            to.commit = commit.0;
            to.entries = entries.into_iter().map(to_entry).collect::<Vec<_>>().into();
        }
        Body::AppendReply { index, commit, rejected } => {
            to.msg_type = MessageType::MsgAppendResponse;
            to.index = index.0;
            to.commit = commit.0;
            if let Some(Rejection { hint_index, hint_term }) = rejected {
                to.reject = true;
                to.reject_hint = hint_index.0;
                to.log_term = hint_term.0;
            }
        }
        Body::Heartbeat { commit, context } => {
            to.msg_type = MessageType::MsgHeartbeat;
            to.commit = commit.0;
            to.context = context.into();
        }
        Body::HeartbeatReply { commit, context } => {
            to.msg_type = MessageType::MsgHeartbeatResponse;
            to.commit = commit.0;
            to.context = context.into();
        }
        Body::Snapshot(snapshot) => {
            to.msg_type = MessageType::MsgSnapshot;
            to.set_snapshot(to_snapshot(snapshot));
        }
        Body::TimeoutNow => to.msg_type = MessageType::MsgTimeoutNow,
    }
    to
}

/// # Panics
///
/// When the raft crate wants to send what this facade never makes it say: it is asked for no
/// forwarding of proposals, reads or transfers.
pub(super) fn from_message(message: &RaftMessage) -> Message {
    let commit = LogIndex(message.commit);
    let commit_term = Term(message.commit_term);
    let body = match message.msg_type {
        kind @ (MessageType::MsgRequestVote | MessageType::MsgRequestPreVote) => Body::Vote {
            pre: kind == MessageType::MsgRequestPreVote,
            transfer: message.context == CAMPAIGN_TRANSFER,
            last_index: LogIndex(message.index),
            last_term: Term(message.log_term),
            commit,
            commit_term,
        },
        kind @ (MessageType::MsgRequestVoteResponse | MessageType::MsgRequestPreVoteResponse) => {
            Body::VoteReply {
                pre: kind == MessageType::MsgRequestPreVoteResponse,
                granted: !message.reject,
                commit,
                commit_term,
            }
        }
        MessageType::MsgAppend => Body::Append {
            prev_index: LogIndex(message.index),
            prev_term: Term(message.log_term),
            commit,
            entries: message.entries.iter().map(from_entry).collect(),
        },
        MessageType::MsgAppendResponse => Body::AppendReply {
            index: LogIndex(message.index),
            commit,
            rejected: message.reject.then_some(Rejection {
                hint_index: LogIndex(message.reject_hint),
                hint_term: Term(message.log_term),
            }),
        },
        MessageType::MsgHeartbeat => Body::Heartbeat { commit, context: message.context.to_vec() },
        MessageType::MsgHeartbeatResponse => {
            Body::HeartbeatReply { commit, context: message.context.to_vec() }
        }
        MessageType::MsgSnapshot => Body::Snapshot(from_snapshot(message.get_snapshot())),
        MessageType::MsgTimeoutNow => Body::TimeoutNow,
        other => panic!("raft wants to send {other:?}, which it has no reason to"),
    };
    Message { from: member(message.from), to: member(message.to), term: Term(message.term), body }
}
