//! Another [`Consensus`], as small as one can be: the first voter in order leads for ever, and
//! replicates what it has durable, in order. Without it nothing is decided, and the members never
//! change; but what it does decide keeps every promise. It shows that the contract is not the raft
//! crate's only.

use std::collections::{BTreeMap, BTreeSet};

use towpath_metadata::raft::{
    BadMessage, Body, Consensus, Entry, LogIndex, MemberId, Membership, MembershipChange, Message,
    Payload, Proposed, RaftStart, ReadConfirmed, Ready, Refusal, Role, Snapshot, Status, Term,
};

use crate::cluster::Member;

const TERM: Term = Term(1);

pub(crate) struct Toy {
    me: MemberId,
    membership: Membership,
    snapshot: Option<Snapshot>,
    entries: Vec<Entry>,
    written: LogIndex,
    durable: LogIndex,
    commit: LogIndex,
    given_out: LogIndex,
    applied: LogIndex,
    /// Up to where the log went at the start: a leader must have committed that before it knows what
    /// it had committed.
    at_start: LogIndex,
    matched: BTreeMap<MemberId, LogIndex>,
    reads: Vec<u64>,
    install: Option<Snapshot>,
    /// Readys under way, with the end of the log that each makes durable.
    in_flight: BTreeMap<u64, LogIndex>,
    number: u64,
    messages: Vec<Message>,
    ticks: u64,
}

impl Member for Toy {
    const CHANGES: bool = false;

    fn start(start: RaftStart) -> Toy {
        let voters = start.first_voters.expect("the members never change");
        let base = start.snapshot.as_ref().map_or(LogIndex(0), |snapshot| snapshot.index);
        let mut toy = Toy {
            me: start.me,
            membership: Membership { voters: voters.clone(), ..Membership::default() },
            snapshot: start.snapshot,
            entries: start.entries,
            written: LogIndex(0),
            durable: LogIndex(0),
            commit: start.applied.max(start.commit),
            given_out: start.applied,
            applied: start.applied,
            at_start: LogIndex(0),
            matched: voters.iter().map(|&voter| (voter, LogIndex(0))).collect(),
            reads: Vec::new(),
            install: None,
            in_flight: BTreeMap::new(),
            number: 0,
            messages: Vec::new(),
            ticks: 0,
        };
        toy.written = LogIndex(base.0 + toy.entries.len() as u64);
        toy.durable = toy.written;
        if toy.written == LogIndex(0) && toy.leads() {
            toy.append(Payload::Membership(MembershipChange::Initial(voters)));
        }
        toy.at_start = toy.last();
        toy.advance();
        toy
    }
}

impl Toy {
    fn leader(&self) -> MemberId {
        *self.membership.voters.first().expect("there are voters")
    }

    fn leads(&self) -> bool {
        self.me == self.leader()
    }

    fn base(&self) -> LogIndex {
        self.snapshot.as_ref().map_or(LogIndex(0), |snapshot| snapshot.index)
    }

    fn last(&self) -> LogIndex {
        LogIndex(self.base().0 + self.entries.len() as u64)
    }

    fn append(&mut self, payload: Payload) -> Proposed {
        let index = self.last().next();
        self.entries.push(Entry { index, term: TERM, payload });
        Proposed { index, term: TERM }
    }

    fn after(&self, index: LogIndex) -> &[Entry] {
        &self.entries[(index.0 - self.base().0) as usize..]
    }

    fn say(&mut self, to: MemberId, body: Body) {
        self.messages.push(Message { from: self.me, to, term: TERM, body });
    }

    /// What a majority has durable is committed.
    fn advance(&mut self) {
        if !self.leads() {
            return;
        }
        self.matched.insert(self.me, self.durable);
        let mut matched: Vec<LogIndex> = self.matched.values().copied().collect();
        matched.sort();
        self.commit = self.commit.max(matched[(matched.len() - 1) / 2]);
    }

    fn replicate(&mut self) {
        let mut others: BTreeSet<MemberId> = self.membership.voters.clone();
        others.remove(&self.me);
        for to in others {
            let prev_index = self.matched[&to];
            let body = if prev_index < self.base() {
                Body::Snapshot(self.snapshot.clone().expect("there is a base"))
            } else {
                let count = (self.durable.0.saturating_sub(prev_index.0)).min(20) as usize;
                let entries = self.after(prev_index)[..count].to_vec();
                let prev_term = if prev_index == LogIndex(0) { Term(0) } else { TERM };
                Body::Append { prev_index, prev_term, commit: self.commit, entries }
            };
            self.say(to, body);
        }
    }

    fn accept(&mut self, from: MemberId) {
        let body = Body::AppendReply { index: self.last(), commit: self.commit, rejected: None };
        self.say(from, body);
    }
}

impl Consensus for Toy {
    fn tick(&mut self) {
        self.ticks += 1;
        if self.leads() && self.ticks.is_multiple_of(2) {
            self.replicate();
        }
    }

    fn receive(&mut self, message: Message) -> Result<(), BadMessage> {
        if message.to != self.me {
            return Err(BadMessage::NotForMe { to: message.to });
        }
        match message.body {
            Body::Append { prev_index, commit, entries, .. } if !self.leads() => {
                if prev_index <= self.last() {
                    let last = self.last();
                    self.entries.extend(entries.into_iter().filter(|entry| last < entry.index));
                    self.commit = self.commit.max(commit.min(self.last()));
                }
                self.accept(message.from);
            }
            Body::Snapshot(snapshot) if !self.leads() => {
                if self.last() < snapshot.index {
                    self.entries.clear();
                    self.commit = snapshot.index;
                    self.snapshot = Some(snapshot.clone());
                    self.install = Some(snapshot);
                }
                self.accept(message.from);
            }
            Body::AppendReply { index, .. } if self.leads() => {
                let matched = self.matched.entry(message.from).or_default();
                *matched = index.max(*matched);
                self.advance();
            }
            _ => {}
        }
        Ok(())
    }

    fn propose(&mut self, command: Vec<u8>) -> Result<Proposed, Refusal> {
        if !self.leads() {
            return Err(Refusal::NotLeader { leader: Some(self.leader()) });
        }
        Ok(self.append(Payload::Command(command)))
    }

    fn change_membership(&mut self, _change: MembershipChange) -> Result<Proposed, Refusal> {
        Err(Refusal::ChangePending)
    }

    fn transfer_leadership(&mut self, to: MemberId) -> Result<(), Refusal> {
        Err(Refusal::NotAVoter { member: to })
    }

    fn read_index(&mut self, context: u64) -> Result<(), Refusal> {
        if !self.leads() {
            return Err(Refusal::NotLeader { leader: Some(self.leader()) });
        }
        self.reads.push(context);
        Ok(())
    }

    fn take_ready(&mut self) -> Option<Ready> {
        let committed_end = self.commit.min(self.durable).max(self.given_out);
        let has_reads = !self.reads.is_empty() && self.at_start <= self.commit;
        if self.written == self.last()
            && self.install.is_none()
            && self.messages.is_empty()
            && committed_end == self.given_out
            && !has_reads
        {
            return None;
        }
        self.number += 1;
        let mut ready = Ready { number: self.number, ..Ready::default() };
        if let Some(snapshot) = self.install.take() {
            self.written = snapshot.index;
            self.given_out = snapshot.index;
            ready.snapshot = Some(snapshot);
        } else if self.given_out < committed_end {
            let count = (committed_end.0 - self.given_out.0) as usize;
            ready.committed = self.after(self.given_out)[..count].to_vec();
            self.given_out = committed_end;
        }
        ready.append = self.after(self.written).to_vec();
        self.written = self.last();
        ready.must_sync = ready.snapshot.is_some() || !ready.append.is_empty();
        ready.messages_after_persist = std::mem::take(&mut self.messages);
        if has_reads {
            let index = self.commit;
            let confirm = |context| ReadConfirmed { context, index };
            ready.reads = std::mem::take(&mut self.reads).into_iter().map(confirm).collect();
        }
        self.in_flight.insert(self.number, self.written);
        Some(ready)
    }

    fn persisted(&mut self, number: u64) {
        self.durable = self.in_flight[&number];
        self.in_flight.retain(|&n, _| number < n);
        self.advance();
    }

    fn applied(&mut self, index: LogIndex) {
        assert!(index <= self.given_out && self.applied <= index);
        self.applied = index;
    }

    fn compact(&mut self, to: LogIndex, snapshot: Vec<u8>) {
        let membership = self.membership.clone();
        self.entries = self.after(to).to_vec();
        self.snapshot = Some(Snapshot { index: to, term: TERM, membership, data: snapshot });
    }

    fn status(&self) -> Status {
        Status {
            me: self.me,
            role: if self.leads() { Role::Leader } else { Role::Follower },
            term: TERM,
            leader: Some(self.leader()),
            commit: self.commit,
            applied: self.applied,
            last_index: self.last(),
            snapshot_index: self.base(),
            membership: self.membership.clone(),
            is_membership_durable: true,
            transferring_to: None,
            progress: BTreeMap::new(),
        }
    }

    fn unreachable(&mut self, _member: MemberId) {}
}
