//! What must hold over all members, kept by a model of its own.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use towpath_metadata::raft::{Body, Entry, LogIndex, MemberId, Membership, Message, Payload, Term};

/// Everything that was seen, by anybody.
#[derive(Default)]
pub(crate) struct Checker {
    leaders: BTreeMap<Term, (MemberId, u64)>,
    /// What an entry of this index and term says: log matching.
    entries: BTreeMap<(LogIndex, Term), u64>,
    committed: BTreeMap<LogIndex, Entry>,
    /// The state after each index.
    states: BTreeMap<LogIndex, State>,
    pub(crate) events: BTreeMap<&'static str, u64>,
    trace: DefaultHasher,
}

/// What the log is folded into.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct State {
    pub(crate) applied: LogIndex,
    pub(crate) sum: u64,
    pub(crate) commands: u64,
    pub(crate) membership: Membership,
}

pub(crate) fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl State {
    pub(crate) fn apply(&mut self, entry: &Entry) {
        assert_eq!(entry.index, self.applied.next(), "entries are applied without a gap");
        self.applied = entry.index;
        self.sum = hash_of(&(self.sum, entry));
        match &entry.payload {
            Payload::Empty => {}
            Payload::Command(_) => self.commands += 1,
            Payload::Membership(change) => {
                if let Ok(next) = self.membership.after(change) {
                    self.membership = next;
                }
            }
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in [self.applied.0, self.sum, self.commands] {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        bytes
    }

    pub(crate) fn decode(bytes: &[u8], membership: Membership) -> State {
        let number =
            |at: usize| u64::from_be_bytes(bytes[at * 8..at * 8 + 8].try_into().expect("8 bytes"));
        State { applied: LogIndex(number(0)), sum: number(1), commands: number(2), membership }
    }
}

impl Checker {
    pub(crate) fn event(&mut self, name: &'static str) {
        *self.events.entry(name).or_default() += 1;
    }

    pub(crate) fn trace(&mut self, what: &impl Hash) {
        what.hash(&mut self.trace);
    }

    pub(crate) fn trace_hash(&self) -> u64 {
        self.trace.finish()
    }

    /// A message leaves a member, in one of its lives.
    pub(crate) fn sent(&mut self, message: &Message, life: u64) {
        self.trace(message);
        match &message.body {
            Body::Append { entries, .. } => {
                self.leads(message.term, message.from, life);
                for entry in entries {
                    self.appended(entry);
                }
            }
            Body::Heartbeat { .. } => self.leads(message.term, message.from, life),
            Body::Snapshot(snapshot) => {
                self.leads(message.term, message.from, life);
                self.event("snapshot sent");
                self.snapshot(snapshot.index, &snapshot.data, &snapshot.membership);
            }
            _ => {}
        }
    }

    fn leads(&mut self, term: Term, leader: MemberId, life: u64) {
        let first = self.leaders.entry(term).or_insert_with(|| (leader, life));
        assert_eq!(*first, (leader, life), "two leaders in term {term}");
    }

    /// An entry is visible: durable somewhere, or on its way to somebody.
    pub(crate) fn appended(&mut self, entry: &Entry) {
        let says = hash_of(&entry.payload);
        let first = *self.entries.entry((entry.index, entry.term)).or_insert(says);
        assert_eq!(first, says, "two entries {} of term {}", entry.index, entry.term);
    }

    /// A member was given `entry` as committed.
    pub(crate) fn given_out(&mut self, entry: &Entry) {
        let first = self.committed.entry(entry.index).or_insert_with(|| entry.clone());
        assert_eq!(first, entry, "two committed entries {}", entry.index);
    }

    /// A member's state has seen everything up to `state.applied`.
    pub(crate) fn applied(&mut self, state: &State) {
        let first = self.states.entry(state.applied).or_insert_with(|| state.clone());
        assert_eq!(first, state, "two states after {}", state.applied);
    }

    pub(crate) fn snapshot(&self, index: LogIndex, data: &[u8], membership: &Membership) {
        let state = self.states.get(&index).expect("a snapshot of a state that somebody had");
        assert_eq!(*state, State::decode(data, membership.clone()), "a snapshot of another state");
    }

    /// The newest entry that anybody was given as committed.
    pub(crate) fn newest(&self) -> LogIndex {
        self.committed.last_key_value().map_or(LogIndex(0), |(&index, _)| index)
    }

    pub(crate) fn newest_state(&self) -> State {
        self.states.last_key_value().map(|(_, state)| state.clone()).unwrap_or_default()
    }

    pub(crate) fn is_committed(&self, index: LogIndex, term: Term) -> Option<bool> {
        self.committed.get(&index).map(|entry| entry.term == term)
    }
}
