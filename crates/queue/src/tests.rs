//! Runs [`Deliveries`] the way a host does, with a log in memory, beside a follower and beside a plain
//! account of what every message went through.

mod account;
mod observations;
mod properties;
mod rules;

use std::sync::Arc;
use std::time::Duration;

use towpath_model::{
    Decision, FoldRecord, KeyValue, Now, Offset, StateMachine, Time, Timestamp, Token,
};

use crate::{Deliveries, DeliveryConfig, Facts, Receipt, Receive, Record, Reply, Request};

use account::Account;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// A leader with its log, its clock, a follower, and an account.
struct Bench {
    leader: Deliveries,
    follower: Deliveries,
    config: Arc<DeliveryConfig>,
    log: Vec<KeyValue>,
    now: Now,
    tokens: u64,
    account: Account,
    /// Answers that nobody has looked at.
    replies: Vec<(Token, Reply)>,
    /// Where the records' log ends.
    records_end: Offset,
    /// The log begins with a snapshot.
    is_shortened: bool,
}

impl Bench {
    /// Of a partition that has all subscriptions of its queue: its own.
    fn new(config: DeliveryConfig) -> Bench {
        let mut bench = Bench::of_no_subscriptions(config);
        bench.ask(Request::TakeOver { names: Vec::new(), partitions: 1 });
        bench
    }

    fn of_no_subscriptions(config: DeliveryConfig) -> Bench {
        let config = Arc::new(config);
        let now = Now { time: Time(0), wall: Timestamp(1_700_000_000_000) };
        let mut bench = Bench {
            leader: Deliveries::new(Arc::clone(&config)),
            follower: Deliveries::new(Arc::clone(&config)),
            account: Account::new(&config),
            config,
            log: Vec::new(),
            now,
            tokens: 0,
            replies: Vec::new(),
            records_end: Offset::ZERO,
            is_shortened: false,
        };
        bench.resume();
        bench
    }

    fn ask(&mut self, request: Request) -> Option<Reply> {
        self.settle_time();
        self.tokens += 1;
        let token = Token(self.tokens);
        let decision = self.leader.decide(self.now, token, request);
        self.carry_out(decision);
        self.settle_time();
        let at = self.replies.iter().position(|(of, _)| *of == token)?;
        Some(self.replies.remove(at).1)
    }

    /// Everything that time leads to at this moment.
    fn settle_time(&mut self) {
        for _ in 0..100_000 {
            if self.leader.next_deadline().is_none_or(|at| self.now.time < at) {
                return;
            }
            let decision = self.leader.expire(self.now);
            assert_ne!(decision, Decision::default(), "something is due, and nothing happens");
            self.carry_out(decision);
        }
        panic!("time never comes to rest");
    }

    fn wait(&mut self, wait: Duration) {
        let until = self.now.time + wait;
        self.settle_time();
        while let Some(at) = self.leader.next_deadline().filter(|at| *at <= until) {
            self.advance_to(at);
            self.settle_time();
        }
        self.advance_to(until);
        self.settle_time();
    }

    fn advance_to(&mut self, time: Time) {
        let passed = time - self.now.time;
        self.now = Now { time, wall: self.now.wall + passed };
    }

    fn carry_out(&mut self, decision: Decision<Record, Reply>) {
        for record in &decision.records {
            let Some(logged) = record.encode() else {
                assert!(!record.is_logged());
                self.leader.apply(record);
                continue;
            };
            let read = read(&logged);
            assert_eq!(&read, record, "a record survives its encoding");
            self.account.note(&read, &self.leader);
            self.leader.apply(&read);
            self.follower.apply(&read);
            self.follower.folded_at(self.now.time);
            self.log.push(logged);
            assert_eq!(self.leader.to_bytes(), self.follower.to_bytes(), "after {record:?}");
        }
        self.replies.extend(decision.replies);
        self.account.compare(&self.leader, self.now);
    }

    fn resume(&mut self) {
        self.leader.records_end_at(self.records_end);
        let decision = self.leader.resume(self.now);
        self.carry_out(decision);
    }

    /// Another process leads: one that has followed.
    fn fail_over(&mut self) {
        self.leader = self.follower.clone();
        self.replies.clear();
        self.resume();
    }

    /// The process starts anew from the log; `away` passes meanwhile.
    fn restart(&mut self, away: Duration) {
        self.advance_to(self.now.time + away);
        let config = Arc::clone(&self.config);
        let mut anew = match self.is_shortened {
            true => Deliveries::from_snapshot(config),
            false => Deliveries::new(config),
        };
        self.log.iter().for_each(|logged| anew.apply(&read(logged)));
        assert_eq!(anew.to_bytes(), self.follower.to_bytes());
        self.follower = anew.clone();
        self.leader = anew;
        self.replies.clear();
        self.resume();
    }

    /// The log begins with a snapshot.
    fn snapshot(&mut self) {
        let before = self.log.len();
        self.ask(Request::Snapshot);
        self.log.drain(..before);
        self.is_shortened = true;
    }

    fn send(&mut self, count: u32) -> Offset {
        self.send_with(vec![Facts::default(); count as usize])
    }

    fn send_with(&mut self, facts: Vec<Facts>) -> Offset {
        let base = self.records_end;
        let count = u32::try_from(facts.len()).unwrap();
        self.records_end = base + i64::from(count);
        let told = (0..).zip(facts).filter(|(_, facts)| *facts != Facts::default()).collect();
        let reply = self.ask(Request::Admit { base, count, facts: told });
        assert_eq!(reply, Some(Reply::Admitted { admitted_to: self.records_end }));
        base
    }

    fn receive(&mut self, max: u32, visibility: Duration) -> Vec<Receipt> {
        match self.ask(Request::Receive(receive(max, visibility))) {
            Some(Reply::Received { messages, .. }) => {
                messages.into_iter().map(|message| message.receipt).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    fn received(&mut self, max: u32) -> Vec<i64> {
        self.receive(max, MINUTE).into_iter().map(|receipt| receipt.offset.0).collect()
    }

    fn delete(&mut self, receipts: &[Receipt]) -> Vec<crate::ReceiptOutcome> {
        let receipts = receipts.to_vec();
        self.outcomes(Request::Delete { subscription: 0, receipts })
    }

    fn outcomes(&mut self, request: Request) -> Vec<crate::ReceiptOutcome> {
        match self.ask(request) {
            Some(Reply::Receipts(outcomes)) => outcomes,
            other => panic!("{other:?}"),
        }
    }

    fn observed(&self) -> crate::Observed {
        self.leader.observed(self.now, 0).unwrap()
    }

    fn stats(&self) -> crate::Stats {
        self.leader.stats(self.now, 0).unwrap()
    }
}

fn read(logged: &KeyValue) -> Record {
    Record::decode(&logged.key, logged.value.as_deref()).unwrap().unwrap()
}

fn receive(max: u32, visibility: Duration) -> Receive {
    Receive {
        subscription: 0,
        max,
        visibility,
        wait_until: None,
        holder: Arc::from("worker"),
        attempt: None,
    }
}

fn in_group(name: &str) -> Facts {
    Facts { group: Some(name.as_bytes().into()), ..Facts::default() }
}
