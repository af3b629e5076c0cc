//! [`Consensus`] with the raft crate: what it wants done is collected into [`Ready`]s, and what it
//! does not guard itself is guarded here. The guards, each with what would happen without it:
//!
//! - A member does not stand for election before its disk has taken everything that it was given.
//!   The crate asserts it, and a lone voter could break it.
//! - A leader sends nothing before the vote of its term is durable. A lone voter leads at once; after
//!   a crash it would lead the same term again, with other entries that its learners take for the same.
//! - A leader that is no voter any more steps down; the crate would panic at its next commit.
//! - A rejection never moves a follower's position to or below what it is known to have (raft-rs #557).
//! - What is committed but not applied is bounded; the crate copies all of it at an election
//!   (raft-rs #530).
//! - A snapshot that does not arrive is sent again after a while; the crate would wait for ever.
//! - A snapshot taken before this member was added is taken nevertheless.

mod guards;
mod ready;

use std::collections::{BTreeMap, VecDeque};

use ::raft::{Config, ProgressState, RawNode, ReadOnlyOption, SnapshotStatus, StateRole};

use super::admit::{BadMessage, View, admit};
use super::consensus::{
    Consensus, MemberProgress, Proposed, ReadConfirmed, Ready, Refusal, Role, RoleChange, Status,
};
use super::convert;
use super::entry::{Entry, Payload};
use super::ids::{LogIndex, MemberId, Term, Vote};
use super::membership::{Membership, MembershipChange};
use super::message::{Body, Message, Snapshot};
use super::reads::Reads;
use super::start::{BadStart, Begun, RaftStart, Settings};
use super::store::Store;
use super::timeout::election_timeout;

/// The most Readys under way; a disk that has fallen so far behind gets no more to do.
pub const READYS_IN_FLIGHT_MAX: usize = 64;

/// Messages that wait to be taken; of more, the oldest are lost, as they could be on their way.
const MESSAGES_WAITING_MAX: usize = 16_384;

const APPENDS_IN_FLIGHT_MAX: usize = 256;
const APPEND_BYTES_MAX: u64 = 1 << 20;
const UNCOMMITTED_BYTES_MAX: u64 = 64 << 20;
const COMMITTED_BYTES_PER_READY: u64 = 1 << 20;

/// A member of the quorum, on the raft crate.
pub struct Raft {
    me: MemberId,
    node: RawNode<Store>,
    settings: Settings,
    seed: u64,
    /// Elections that this member began; the next is drawn with another timeout.
    attempts: u64,
    ticks: u64,

    /// As of the committed entries that were given out.
    membership: Membership,
    /// The last membership change among them, and the last that the disk has noted.
    changed: LogIndex,
    durable_change: LogIndex,
    /// The memberships since the snapshot, by the index from which each holds.
    memberships: BTreeMap<u64, Membership>,
    /// Committed entries, or a snapshot, up to here were given out; the state has seen them; and they
    /// are durable too. Invariant: applied <= seen <= given_out.
    given_out: LogIndex,
    seen: LogIndex,
    applied: LogIndex,

    /// What the disk was told to hold: the vote, and the end of the log.
    vote: Vote,
    last_written: LogIndex,
    in_flight: VecDeque<InFlight>,

    reads: Reads,
    confirmed: Vec<ReadConfirmed>,
    reported: RoleChange,

    /// The snapshot of this index came without this member in it.
    snapshot_without_me: Option<LogIndex>,
    /// When each member was last heard of, by this leader.
    heard: BTreeMap<MemberId, u64>,
    /// Since when a snapshot is on its way to a member.
    snapshots_sent: BTreeMap<MemberId, u64>,
}

struct InFlight {
    number: u64,
    /// The vote, if it has one; else the last one.
    vote: Vote,
    /// Whether it has a vote of another term, or for another candidate.
    has_vote: bool,
    must_sync: bool,
}

impl Raft {
    /// A member that begins with what its disk holds, or with the first voters.
    ///
    /// # Errors
    ///
    /// When that cannot be: see [`BadStart`].
    ///
    /// # Panics
    ///
    /// When the raft crate refuses what was checked here.
    pub fn start(start: RaftStart) -> Result<Raft, BadStart> {
        let (me, applied, settings, seed) = (start.me, start.applied, start.settings, start.seed);
        let Begun { store, vote, last, membership, memberships, first } = start.begin()?;
        let changed = memberships.keys().skip(1).last().map_or(LogIndex(0), |&at| LogIndex(at));
        let config = Config {
            id: me.number(),
            election_tick: settings.election_ticks,
            heartbeat_tick: settings.heartbeat_ticks,
            applied: applied.0,
            max_size_per_msg: APPEND_BYTES_MAX,
            max_inflight_msgs: APPENDS_IN_FLIGHT_MAX,
            max_uncommitted_size: UNCOMMITTED_BYTES_MAX,
            max_committed_size_per_ready: COMMITTED_BYTES_PER_READY,
            check_quorum: true,
            pre_vote: true,
            read_only_option: ReadOnlyOption::Safe,
            ..Config::default()
        };
        let silent = slog::Logger::root(slog::Discard, slog::o!());
        let mut node = RawNode::new(&config, store, &silent).expect("the start was checked");
        if let Some(first) = first {
            let index = node.raft.raft_log.append(&[convert::to_entry(first)]);
            node.raft.raft_log.commit_to(index);
        }
        let reported = RoleChange { role: Role::Follower, term: vote.term, leader: None };
        let mut raft = Raft {
            me,
            node,
            settings,
            seed,
            attempts: 0,
            ticks: 0,
            membership,
            changed: changed.max(vote.change),
            durable_change: vote.change,
            memberships,
            given_out: applied,
            seen: applied,
            applied,
            vote,
            last_written: last,
            in_flight: VecDeque::new(),
            reads: Reads::default(),
            confirmed: Vec::new(),
            reported,
            snapshot_without_me: None,
            heard: BTreeMap::new(),
            snapshots_sent: BTreeMap::new(),
        };
        raft.after_step();
        Ok(raft)
    }

    fn term(&self) -> Term {
        Term(self.node.raft.term)
    }

    fn is_leader(&self) -> bool {
        self.node.raft.state == StateRole::Leader
    }

    fn leader(&self) -> Option<MemberId> {
        MemberId::from_number(self.node.raft.leader_id)
    }

    fn last_index(&self) -> LogIndex {
        LogIndex(self.node.raft.raft_log.last_index())
    }

    fn current_vote(&self) -> Vote {
        let voted_for = MemberId::from_number(self.node.raft.vote);
        Vote { term: self.term(), voted_for, change: self.vote.change.max(self.changed) }
    }

    /// Whether everything that the disk must hold is on it, and the state not behind a snapshot.
    fn is_settled(&self) -> bool {
        let log = &self.node.raft.raft_log;
        log.unstable_entries().is_empty()
            && log.unstable_snapshot().is_none()
            && self.current_vote() == self.vote
            && self.in_flight.iter().all(|ready| !ready.must_sync)
            && self.applied.0 + 1 >= log.first_index()
            && self.applied.0 >= log.store().snapshot_index()
    }

    fn leader_only(&self) -> Result<(), Refusal> {
        if !self.is_leader() {
            return Err(Refusal::NotLeader { leader: self.leader() });
        }
        if self.node.raft.lead_transferee.is_some() {
            return Err(Refusal::Transferring);
        }
        if self.settings.unapplied_entries_max <= self.last_index().0 - self.applied.0 {
            return Err(Refusal::Backlogged);
        }
        Ok(())
    }

    fn last_proposed(&self) -> Proposed {
        Proposed { index: self.last_index(), term: self.term() }
    }

    /// Tells the crate what the state has seen, once it is durable: a snapshot may be seen before.
    fn note_applied(&mut self) {
        let durable = LogIndex(self.node.raft.raft_log.persisted);
        if self.seen <= self.applied || durable < self.seen {
            return;
        }
        let last = self.last_index();
        self.node.advance_apply_to(self.seen.0);
        self.applied = self.seen;
        if last < self.last_index() {
            // The crate has begun to leave a joint membership.
            self.node.raft.bcast_append();
        }
    }

    /// What has to hold after every step.
    fn after_step(&mut self) {
        let timeout = election_timeout(
            self.seed,
            self.me,
            self.term(),
            self.attempts,
            self.settings.election_ticks,
        );
        self.node.raft.set_randomized_election_timeout(timeout);
        let waiting = self.node.raft.msgs.len();
        if MESSAGES_WAITING_MAX < waiting {
            self.node.raft.msgs.drain(..waiting - MESSAGES_WAITING_MAX / 2);
        }
        if !self.is_leader() {
            self.reads.forget();
            self.heard.clear();
            self.snapshots_sent.clear();
            return;
        }
        self.reads.lead(self.term());
        if self.node.raft.commit_to_current_term()
            && let Some(carried) = self.reads.begin_round()
        {
            self.node.read_index(carried);
        }
    }

    fn progress(&self) -> BTreeMap<MemberId, MemberProgress> {
        let patience = self.settings.election_ticks as u64;
        let of = |(&number, progress): (&u64, &::raft::Progress)| {
            let member = convert::member(number);
            let heard = self.heard.get(&member).is_some_and(|&at| self.ticks - at <= patience);
            let progress = MemberProgress {
                matched: LogIndex(progress.matched),
                is_recently_active: member == self.me || heard,
                is_receiving_snapshot: progress.state == ProgressState::Snapshot,
            };
            (member, progress)
        };
        self.node.raft.prs().iter().map(of).collect()
    }

    fn role_change(&mut self) -> Option<RoleChange> {
        let now = RoleChange { role: self.role(), term: self.term(), leader: self.leader() };
        let before = std::mem::replace(&mut self.reported, now);
        (before != now).then_some(now)
    }

    fn role(&self) -> Role {
        match self.node.raft.state {
            StateRole::Follower => Role::Follower,
            StateRole::PreCandidate => Role::PreCandidate,
            StateRole::Candidate => Role::Candidate,
            StateRole::Leader => Role::Leader,
        }
    }
}

impl Consensus for Raft {
    fn tick(&mut self) {
        self.ticks += 1;
        let raft = &self.node.raft;
        let stands = raft.state != StateRole::Leader
            && raft.promotable()
            && raft.randomized_election_timeout() <= raft.election_elapsed + 1;
        if stands {
            if !self.is_settled() {
                return;
            }
            self.attempts += 1;
        }
        self.node.tick();
        if self.is_leader() {
            self.send_snapshots_again();
        }
        self.after_step();
    }

    fn receive(&mut self, mut message: Message) -> Result<(), BadMessage> {
        let view = View {
            me: self.me,
            term: self.term(),
            is_leader: self.is_leader(),
            last: self.last_index(),
            is_settled: self.is_settled(),
        };
        admit(&message, &view)?;
        let (from, is_current) = (message.from, message.term == view.term);
        if view.is_leader && is_current {
            self.heard.insert(from, self.ticks);
        }
        let room = self.room();
        match &mut message.body {
            Body::Append { commit, entries, .. } if room < *commit => {
                *commit = room;
                entries.truncate(entries.partition_point(|entry| entry.index <= room));
            }
            Body::Heartbeat { commit, .. } => *commit = room.min(*commit),
            // With the term of another index it would say something else.
            Body::Vote { commit, commit_term, .. }
            | Body::VoteReply { commit, commit_term, .. }
                if room < *commit =>
            {
                (*commit, *commit_term) = (LogIndex(0), Term(0));
            }
            Body::AppendReply { index, rejected: Some(rejection), .. }
                if view.is_leader && is_current =>
            {
                match self.resolve(from, *index, *rejection) {
                    Some(resolved) => *rejection = resolved,
                    None => return Ok(()),
                }
            }
            Body::Snapshot(snapshot) if !snapshot.membership.contains(self.me) => {
                self.snapshot_without_me = Some(snapshot.index);
                snapshot.membership = self.admit_me(std::mem::take(&mut snapshot.membership));
            }
            _ => {}
        }
        match self.node.step(convert::to_message(message)) {
            // Answers of strangers are passed over.
            Ok(()) | Err(::raft::Error::StepPeerNotFound) => {}
            Err(error) => unreachable!("raft drops only proposals: {error}"),
        }
        if let Some(progress) = self.node.raft.prs().get(from.number()) {
            assert!(
                progress.matched < progress.next_idx,
                "entries that a member has are sent again"
            );
        }
        self.after_step();
        Ok(())
    }

    fn propose(&mut self, command: Vec<u8>) -> Result<Proposed, Refusal> {
        self.leader_only()?;
        let bytes = command.len();
        let payload = Payload::Command(command);
        if !payload.fits() {
            return Err(Refusal::CommandSize { bytes });
        }
        let Payload::Command(command) = payload else { unreachable!("it was made above") };
        if self.node.propose(Vec::new(), command).is_err() {
            return Err(Refusal::Backlogged);
        }
        self.after_step();
        Ok(self.last_proposed())
    }

    fn change_membership(&mut self, change: MembershipChange) -> Result<Proposed, Refusal> {
        self.leader_only()?;
        if self.node.raft.has_pending_conf() {
            return Err(Refusal::ChangePending);
        }
        self.membership.after(&change)?;
        // Not by the crate's own way, on which protobuf would read the change.
        let payload = Payload::Membership(change);
        let entry = Entry { index: LogIndex(0), term: Term(0), payload };
        if !self.node.raft.append_entry(&mut [convert::to_entry(entry)]) {
            return Err(Refusal::Backlogged);
        }
        self.node.raft.pending_conf_index = self.node.raft.raft_log.last_index();
        self.node.raft.bcast_append();
        self.after_step();
        Ok(self.last_proposed())
    }

    fn transfer_leadership(&mut self, to: MemberId) -> Result<(), Refusal> {
        if !self.is_leader() {
            return Err(Refusal::NotLeader { leader: self.leader() });
        }
        if !self.membership.voters.contains(&to) {
            return Err(Refusal::NotAVoter { member: to });
        }
        self.node.transfer_leader(to.number());
        self.after_step();
        Ok(())
    }

    fn read_index(&mut self, context: u64) -> Result<(), Refusal> {
        if !self.is_leader() {
            return Err(Refusal::NotLeader { leader: self.leader() });
        }
        self.reads.add(context)?;
        self.after_step();
        Ok(())
    }

    fn take_ready(&mut self) -> Option<Ready> {
        if READYS_IN_FLIGHT_MAX <= self.in_flight.len()
            || !(self.node.has_ready()
                || !self.confirmed.is_empty()
                || self.current_vote() != self.vote)
        {
            return None;
        }
        let mut from = self.node.ready();
        let mut ready = Ready { number: from.number(), ..Ready::default() };

        if !from.snapshot().is_empty() {
            ready.snapshot = Some(self.install(convert::from_snapshot(from.snapshot())));
        }
        let entries = from.take_entries();
        if let Some(first) = entries.first() {
            let first = LogIndex(first.index);
            ready.truncate_from = (first <= self.last_written).then_some(first);
            self.last_written = LogIndex(first.0 + entries.len() as u64 - 1);
            self.node.mut_store().append(&entries);
            ready.append = entries.iter().map(convert::from_entry).collect();
        }
        let messages = from.take_messages();
        let messages_after = from.take_persisted_messages();
        let committed = from.take_committed_entries();
        let reads = from.take_read_states();
        self.node.advance_append_async(from);
        ready.committed = self.give_out(&committed);
        let vote = self.current_vote();
        let before = std::mem::replace(&mut self.vote, vote);
        ready.vote = (before != self.vote).then_some(self.vote);
        ready.must_sync =
            ready.vote.is_some() || ready.snapshot.is_some() || !ready.append.is_empty();
        self.in_flight.push_back(InFlight {
            number: ready.number,
            vote: self.vote,
            has_vote: (before.term, before.voted_for) != (self.vote.term, self.vote.voted_for),
            must_sync: ready.must_sync,
        });
        self.sort_messages(&mut ready, &messages, &messages_after);
        for read in reads {
            let confirmed = self.reads.confirmed(&read.request_ctx, LogIndex(read.index));
            self.confirmed.extend(confirmed);
        }
        ready.reads = std::mem::take(&mut self.confirmed);
        ready.role_change = self.role_change();
        self.after_step();
        Some(ready)
    }

    fn persisted(&mut self, number: u64) {
        assert!(
            self.in_flight.iter().any(|ready| ready.number == number),
            "Ready {number} is not under way"
        );
        for ready in self.in_flight.iter().filter(|ready| ready.number <= number) {
            self.durable_change = ready.vote.change;
        }
        self.in_flight.retain(|ready| number < ready.number);
        self.node.on_persist_ready(number);
        self.note_applied();
        self.after_step();
    }

    fn applied(&mut self, index: LogIndex) {
        assert!(index <= self.given_out, "entry {index} is applied before it was given out");
        self.seen = index.max(self.seen);
        self.note_applied();
        self.after_step();
    }

    fn compact(&mut self, to: LogIndex, snapshot: Vec<u8>) {
        assert!(to <= self.applied, "a snapshot at {to}, and only {} is applied", self.applied);
        if to.0 <= self.node.store().snapshot_index() {
            return;
        }
        let term = self.node.raft.raft_log.term(to.0).expect("applied, and not yet in a snapshot");
        let (&since, membership) =
            self.memberships.range(..=to.0).next_back().expect("there is one since the snapshot");
        let membership = membership.clone();
        self.memberships = self.memberships.split_off(&since);
        let snapshot = Snapshot { index: to, term: Term(term), membership, data: snapshot };
        self.node.mut_store().compact(convert::to_snapshot(snapshot));
    }

    fn status(&self) -> Status {
        let log = &self.node.raft.raft_log;
        let progress = if self.is_leader() { self.progress() } else { BTreeMap::new() };
        Status {
            me: self.me,
            role: self.role(),
            term: self.term(),
            leader: self.leader(),
            commit: LogIndex(log.committed),
            applied: self.applied,
            last_index: self.last_index(),
            snapshot_index: LogIndex(log.store().snapshot_index()),
            membership: self.membership.clone(),
            is_membership_durable: self.changed <= self.durable_change,
            transferring_to: self.node.raft.lead_transferee.map(convert::member),
            progress,
        }
    }

    fn unreachable(&mut self, member: MemberId) {
        self.node.report_unreachable(member.number());
        self.node.report_snapshot(member.number(), SnapshotStatus::Failure);
        self.after_step();
    }
}
