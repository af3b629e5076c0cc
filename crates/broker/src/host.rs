//! Runs one state machine on one partition: decides, orders the append, applies, and holds
//! replies back until what they rest on is committed.
//!
//! ```text
//! request ─▶ decide ─▶ logged records? ──yes──▶ order an append ─▶ appended ─▶ apply, park replies
//!                          └────────no────────▶ apply, park replies
//! high watermark moves ─▶ release parked replies, name the records that are committed
//! ```
//!
//! Between the order and its result nothing else happens to the partition: the driver holds its
//! lock. A failed append changes nothing: the state is as before, and the token learns of it.

use std::collections::VecDeque;

use towpath_model::mutant::{self, Mutant};
use towpath_model::{Decision, FoldRecord, KeyValue, Now, Offset, StateMachine, Time, Token};

/// A state machine, its unanswered replies and its uncommitted records.
#[derive(Debug)]
pub struct Host<M: StateMachine> {
    machine: M,
    /// Replies in the order of decisions, each with the log end offset it rests on.
    parked: VecDeque<(Offset, Token, M::Reply)>,
    /// Logged records not yet committed, each with the offset that follows it.
    uncommitted: VecDeque<(Offset, M::Record)>,
    /// What was decided and waits for its append, with the token that asked (none: time asked).
    pending: Option<Pending<M::Record, M::Reply>>,
}

/// A decision whose append is under way.
#[derive(Debug)]
struct Pending<Record, Reply> {
    asked_by: Option<Token>,
    decision: Decision<Record, Reply>,
}

/// What a new high watermark set free.
#[derive(Debug)]
pub struct Advanced<Record, Reply> {
    /// Records that are now committed, in order.
    pub committed: Vec<Record>,
    /// Replies that may be sent now, in order.
    pub replies: Vec<(Token, Reply)>,
}

impl<M: StateMachine> Host<M> {
    /// Hosts a machine whose records up to the log's end have been replayed.
    pub fn new(machine: M) -> Self {
        Host { machine, parked: VecDeque::new(), uncommitted: VecDeque::new(), pending: None }
    }

    /// The state, every appended record applied.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// The state, to be told what is not part of it, such as its configuration.
    pub fn machine_mut(&mut self) -> &mut M {
        &mut self.machine
    }

    /// Decides on a request. Records that come back must be appended at once, and the result told
    /// by [`Host::appended`] or [`Host::append_failed`]; none means that it is already done.
    pub fn request(
        &mut self,
        now: Now,
        token: Token,
        request: M::Request,
        log_end_offset: Offset,
    ) -> Vec<KeyValue> {
        let decision = self.machine.decide(now, token, request);
        self.decided(Some(token), decision, log_end_offset)
    }

    /// Lets time act, as [`Host::request`] does for a client.
    pub fn expire(&mut self, now: Now, log_end_offset: Offset) -> Vec<KeyValue> {
        let decision = self.machine.expire(now);
        self.decided(None, decision, log_end_offset)
    }

    /// Begins to lead with replayed state, as [`Host::request`] does for a client.
    pub fn resume(&mut self, now: Now, log_end_offset: Offset) -> Vec<KeyValue> {
        let decision = self.machine.resume(now);
        self.decided(None, decision, log_end_offset)
    }

    fn decided(
        &mut self,
        token: Option<Token>,
        decision: Decision<M::Record, M::Reply>,
        log_end_offset: Offset,
    ) -> Vec<KeyValue> {
        assert!(self.pending.is_none(), "an append is decided while another one is under way");
        let logged: Vec<KeyValue> = decision.records.iter().filter_map(M::Record::encode).collect();
        self.pending = Some(Pending { asked_by: token, decision });
        if logged.is_empty() {
            self.appended(log_end_offset, log_end_offset);
        }
        logged
    }

    /// The ordered records lie at `[base_offset, log_end_offset)`.
    pub fn appended(&mut self, base_offset: Offset, log_end_offset: Offset) {
        let Pending { decision, .. } = self.pending.take().expect("an append follows a decision");
        let mut next = base_offset;
        for record in decision.records {
            self.machine.apply(&record);
            if record.is_logged() {
                next = next.next();
                self.uncommitted.push_back((next, record));
            }
        }
        assert!(next == log_end_offset, "as many records were appended as were decided");
        let log_end_offset = match mutant::is_on(Mutant::ReplyBeforeCommit) {
            true => Offset::ZERO,
            false => log_end_offset,
        };
        let parked =
            decision.replies.into_iter().map(|(token, reply)| (log_end_offset, token, reply));
        self.parked.extend(parked);
    }

    /// The ordered append lies at one place, all of its records together: `log_end_offset` is what
    /// follows it. So it is in the metadata's log, where an entry is a whole decision.
    pub fn appended_as_one(&mut self, log_end_offset: Offset) {
        let Pending { decision, .. } = self.pending.take().expect("an append follows a decision");
        for record in decision.records {
            self.machine.apply(&record);
            if record.is_logged() {
                self.uncommitted.push_back((log_end_offset, record));
            }
        }
        let parked =
            decision.replies.into_iter().map(|(token, reply)| (log_end_offset, token, reply));
        self.parked.extend(parked);
    }

    /// The ordered append did not happen. Returns the tokens that wait for an answer and will get
    /// none from the state machine.
    pub fn append_failed(&mut self) -> Vec<Token> {
        let Pending { asked_by, decision } =
            self.pending.take().expect("an append follows a decision");
        let mut tokens: Vec<Token> = decision.replies.into_iter().map(|(token, _)| token).collect();
        tokens.extend(asked_by);
        tokens.sort_unstable();
        tokens.dedup();
        tokens
    }

    /// Sets free what rests on records below `high_watermark`.
    pub fn advance(&mut self, high_watermark: Offset) -> Advanced<M::Record, M::Reply> {
        let mut advanced = Advanced { committed: Vec::new(), replies: Vec::new() };
        while self.uncommitted.front().is_some_and(|(end, _)| *end <= high_watermark) {
            advanced.committed.extend(self.uncommitted.pop_front().map(|(_, record)| record));
        }
        while self.parked.front().is_some_and(|(needs, _, _)| *needs <= high_watermark) {
            let freed = self.parked.pop_front().map(|(_, token, reply)| (token, reply));
            advanced.replies.extend(freed);
        }
        advanced
    }

    /// Drops every parked reply; returns who waited.
    pub fn drop_parked(&mut self) -> Vec<Token> {
        self.parked.drain(..).map(|(_, token, _)| token).collect()
    }

    /// When [`Host::expire`] is due.
    pub fn next_deadline(&self) -> Option<Time> {
        self.machine.next_deadline()
    }
}

#[cfg(test)]
mod tests;
