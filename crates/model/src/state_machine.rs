//! The one contract of every replicated state: groups, metadata, publishers, later transactions.
//!
//!   request ── decide(&self) ──▶ records + replies ── apply(&mut self) ──▶ state
//!
//! `decide` cannot change anything and `apply` cannot refuse anything, so the state *is* its
//! records, and a new leader gets there by running the code that normal operation runs. Records
//! that are not logged (a heartbeat, a half-finished rebalance) live in the leader's memory only:
//! after a failover the clients repeat them.

use std::fmt;

use crate::{Now, Time, Token};

/// A value that is a fold over its records.
pub trait StateMachine {
    /// What a client asks.
    type Request;
    /// One change of state.
    type Record: FoldRecord;
    /// What a client is told.
    type Reply;

    /// What `request` leads to. Sees every record applied so far, committed or not; its replies
    /// are held back until the records they rest on are committed.
    fn decide(
        &self,
        now: Now,
        token: Token,
        request: Self::Request,
    ) -> Decision<Self::Record, Self::Reply>;

    /// What time alone leads to; called when `next_deadline()` has passed, and again until it lies
    /// in the future.
    fn expire(&self, now: Now) -> Decision<Self::Record, Self::Reply>;

    /// What a process does first when it begins to lead with replayed state, such as giving every
    /// known member a fresh session.
    fn resume(&self, now: Now) -> Decision<Self::Record, Self::Reply>;

    /// Carries out one record. Must give the same state for the same records, whenever and
    /// wherever they are replayed.
    fn apply(&mut self, record: &Self::Record);

    /// The earliest moment at which [`StateMachine::expire`] has something to do.
    fn next_deadline(&self) -> Option<Time>;
}

/// What a state machine decided: changes in order, and answers that rest on them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision<Record, Reply> {
    /// To be appended (those that are logged) and applied, in order.
    pub records: Vec<Record>,
    /// To be sent once the records above, and all earlier ones, are committed. A request may be
    /// answered by a later decision than its own (a group member waits for the others).
    pub replies: Vec<(Token, Reply)>,
}

impl<Record, Reply> Default for Decision<Record, Reply> {
    fn default() -> Self {
        Decision { records: Vec::new(), replies: Vec::new() }
    }
}

impl<Record, Reply> Decision<Record, Reply> {
    /// Only an answer.
    pub fn reply(token: Token, reply: Reply) -> Self {
        Decision { records: Vec::new(), replies: vec![(token, reply)] }
    }
}

/// Key and value of a record in an internal compacted topic; `None` as value removes the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyValue {
    /// The compaction key.
    pub key: Vec<u8>,
    /// The value; `None` is a tombstone.
    pub value: Option<Vec<u8>>,
}

/// One change of state and its form in the log.
pub trait FoldRecord: Sized {
    /// Key and value in the log, or `None` for a change that lives in the leader's memory only.
    fn encode(&self) -> Option<KeyValue>;

    /// Whether the change is logged, that is whether [`FoldRecord::encode`] gives something.
    fn is_logged(&self) -> bool {
        self.encode().is_some()
    }

    /// Reads a logged record back. `Ok(None)` is a record kind of a later version that may be
    /// skipped.
    fn decode(key: &[u8], value: Option<&[u8]>) -> Result<Option<Self>, FoldError>;
}

/// A logged record that this version cannot read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoldError(pub String);

impl fmt::Display for FoldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unreadable state record: {}", self.0)
    }
}

impl std::error::Error for FoldError {}
