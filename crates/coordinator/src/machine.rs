//! Runs a state machine in tests the way a host does, with a log in memory: decide, encode,
//! decode, apply; and throws the process away at any point.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use towpath_model::{Decision, FoldRecord, KeyValue, Now, StateMachine, Time, Timestamp, Token};

/// A state machine with its log and its clock.
pub(crate) struct Machine<T> {
    pub(crate) state: T,
    pub(crate) now: Now,
    fresh: Box<dyn Fn() -> T>,
    log: Vec<KeyValue>,
    tokens: u64,
}

/// Where the wall clock of a test starts.
pub(crate) const WALL_START: i64 = 1_000_000_000_000;

/// More steps than any wait of a test can take.
const STEPS_MAX: usize = 100_000;

impl<T> Machine<T>
where
    T: StateMachine,
    T::Record: FoldRecord + Clone + Debug + PartialEq,
{
    /// A process that leads an empty log.
    pub(crate) fn new(fresh: impl Fn() -> T + 'static) -> Machine<T> {
        let now = Now { time: Time(0), wall: Timestamp(WALL_START) };
        let log = Vec::new();
        let mut machine = Machine { state: fresh(), now, fresh: Box::new(fresh), log, tokens: 0 };
        machine.resume();
        machine
    }

    /// Asks, and returns the token of the request with everything it caused.
    pub(crate) fn ask(&mut self, request: T::Request) -> (Token, Decision<T::Record, T::Reply>) {
        self.tokens += 1;
        let token = Token(self.tokens);
        let decision = self.state.decide(self.now, token, request);
        self.carry_out(&decision);
        (token, decision)
    }

    /// Lets time pass, and returns what that alone caused.
    pub(crate) fn wait(&mut self, wait: Duration) -> Vec<Decision<T::Record, T::Reply>> {
        let until = self.now.time + wait;
        let mut decisions = Vec::new();
        for _ in 0..STEPS_MAX {
            let Some(deadline) = self.state.next_deadline().filter(|at| *at <= until) else {
                self.advance_to(until);
                return decisions;
            };
            self.advance_to(deadline.max(self.now.time));
            let decision = self.state.expire(self.now);
            self.carry_out(&decision);
            decisions.push(decision);
        }
        panic!("expire() keeps its deadline in the past");
    }

    fn advance_to(&mut self, time: Time) {
        let passed = time - self.now.time;
        self.now = Now { time, wall: self.now.wall + passed };
    }

    /// The process dies, and another one leads what it logged; after `compaction` perhaps.
    pub(crate) fn crash(&mut self, compaction: bool) {
        self.state = self.replay(compaction);
        self.resume();
    }

    /// A follower that has read the whole log.
    pub(crate) fn replay(&self, compaction: bool) -> T {
        let mut follower = (self.fresh)();
        let last: BTreeMap<&[u8], usize> =
            self.log.iter().enumerate().map(|(at, record)| (&*record.key, at)).collect();
        for (at, record) in self.log.iter().enumerate() {
            if compaction && (last[&*record.key] != at || record.value.is_none()) {
                continue;
            }
            follower.apply(&decode(record));
        }
        follower
    }

    fn resume(&mut self) {
        let decision = self.state.resume(self.now);
        self.carry_out(&decision);
    }

    /// Appends and applies; what is logged is applied as it is read back.
    fn carry_out(&mut self, decision: &Decision<T::Record, T::Reply>) {
        for record in &decision.records {
            let logged = record.encode();
            assert_eq!(logged.is_some(), record.is_logged());
            let Some(logged) = logged else {
                self.state.apply(record);
                continue;
            };
            let read_back: T::Record = decode(&logged);
            assert_eq!(&read_back, record, "a record must survive its own encoding");
            self.state.apply(&read_back);
            self.log.push(logged);
        }
    }
}

fn decode<R: FoldRecord>(record: &KeyValue) -> R {
    let decoded = R::decode(&record.key, record.value.as_deref());
    decoded.expect("what was encoded can be read").expect("and is of a known kind")
}
