//! A caller, the publishers' log, and the topic's partitions, with crashes anywhere and appends
//! that arrive late; and the promise: what was answered is there once, what is there was there
//! once, and nothing is there twice.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

const PARTITIONS: i32 = 3;

#[derive(Debug, Clone)]
enum Step {
    /// The caller publishes its next message, or repeats the current one until it is answered.
    Publish,
    /// The caller gives the current message up.
    GiveUp,
    /// The caller repeats an old message.
    Repeat(i64),
    /// The append that was ordered goes on its way.
    Send,
    /// The n-th of the appends under way arrives.
    Arrive(usize),
    /// The one who ordered the append hears what became of it.
    Report,
    /// It hears that it failed, although it may be under way.
    Fail,
    Crash(bool),
    Wait,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => Just(Step::Publish),
        1 => Just(Step::GiveUp),
        2 => (0_i64..30).prop_map(Step::Repeat),
        6 => Just(Step::Send),
        6 => (0_usize..4).prop_map(Step::Arrive),
        6 => Just(Step::Report),
        1 => Just(Step::Fail),
        1 => any::<bool>().prop_map(Step::Crash),
        1 => Just(Step::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 250,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn nothing_is_lost_or_doubled(steps in proptest::collection::vec(step(), 0..250)) {
        let mut world = World::new();
        for step in steps {
            world.take(step);
            world.check();
        }
    }
}

/// What a partition keeps: records, and per producer its epoch and last sequence (a window of one,
/// the least there can be).
#[derive(Default)]
struct Partition {
    records: Vec<i64>,
    producers: BTreeMap<ProducerId, (ProducerEpoch, Sequence, i64)>,
}

impl Partition {
    /// Kafka's rules: older epochs are fenced, a new epoch begins at 0, the last sequence again is
    /// a repeat, and otherwise there is no gap.
    fn append(&mut self, intent: &Intent) -> Option<i64> {
        if let Some(offset) = self.find(intent) {
            return Some(offset);
        }
        let expected = match self.producers.get(&intent.producer_id) {
            Some((epoch, last, _)) if *epoch == intent.producer_epoch => last.advance(1),
            Some((epoch, _, _)) if intent.producer_epoch < *epoch => return None,
            _ => Sequence(0),
        };
        if intent.producer_sequence != expected {
            // A straggler of which the successor has arrived.
            return None;
        }
        self.records.push(intent.sequence);
        let offset = self.records.len() as i64 - 1;
        let state = (intent.producer_epoch, intent.producer_sequence, offset);
        self.producers.insert(intent.producer_id, state);
        Some(offset)
    }

    fn find(&self, intent: &Intent) -> Option<i64> {
        let (epoch, sequence, offset) = self.producers.get(&intent.producer_id)?;
        let is_it = *epoch == intent.producer_epoch && *sequence == intent.producer_sequence;
        is_it.then_some(*offset)
    }
}

struct World {
    machine: Machine<Publishers>,
    partitions: Vec<Partition>,
    /// The message that the caller publishes now.
    current: i64,
    /// Ordered, and not sent.
    ordered: Option<Intent>,
    /// Sent; they arrive in any order, or never.
    under_way: Vec<Intent>,
    /// What an order of this process led to, not yet reported.
    outcome: Option<(Intent, Option<i64>)>,
    /// What the caller was told.
    told: BTreeMap<i64, Published>,
}

impl World {
    fn new() -> World {
        World {
            machine: machine(),
            partitions: (0..PARTITIONS).map(|_| Partition::default()).collect(),
            current: 0,
            ordered: None,
            under_way: Vec::new(),
            outcome: None,
            told: BTreeMap::new(),
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Publish => self.publish(self.current),
            Step::Repeat(sequence) => {
                if sequence < self.current {
                    self.publish(sequence);
                }
            }
            Step::GiveUp => self.current += 1,
            Step::Send => {
                let sent = self.ordered.take();
                self.under_way.extend(sent);
            }
            Step::Arrive(at) if at < self.under_way.len() => {
                let intent = self.under_way.remove(at);
                let offset = self.partition(&intent).append(&intent);
                self.outcome = Some((intent, offset));
            }
            Step::Arrive(_) => {}
            Step::Report => {
                let Some((intent, offset)) = self.outcome.take() else { return };
                let outcome = offset.map_or(Outcome::NotAppended, appended);
                finish(&mut self.machine, intent.number, outcome);
            }
            Step::Fail => {
                let under_way = self.under_way.last().copied();
                let Some(intent) = self.ordered.take().or(under_way) else { return };
                // Who resolves an attempt looks into the partition first.
                self.resolve(intent);
            }
            Step::Crash(compaction) => {
                self.machine.crash(compaction);
                (self.ordered, self.outcome) = (None, None);
            }
            Step::Wait => {
                self.machine.wait(Duration::from_secs(61));
            }
        }
    }

    fn partition(&mut self, intent: &Intent) -> &mut Partition {
        &mut self.partitions[intent.partition.0 as usize]
    }

    fn publish(&mut self, sequence: i64) {
        let partition = sequence.rem_euclid(i64::from(PARTITIONS)) as i32;
        match begin_into(&mut self.machine, "7", sequence, partition) {
            Reply::Append(intent) => self.ordered = Some(intent),
            Reply::Repeat(published) => {
                let told = self.told.entry(sequence).or_insert(published);
                assert_eq!(*told, published, "a repeat gets the first result");
                self.current = self.current.max(sequence + 1);
            }
            Reply::Resolve(intent) => self.resolve(intent),
            Reply::Busy => {}
            Reply::Stale => {
                // Never a message that the caller has not been answered about and not given up.
                assert!(sequence < self.current);
                assert!(!self.told.contains_key(&sequence) || self.told.len() > 90);
            }
            other => panic!("{other:?}"),
        }
    }

    fn resolve(&mut self, intent: Intent) {
        let found = self.partition(&intent).find(&intent);
        finish(&mut self.machine, intent.number, found.map_or(Outcome::NotAppended, appended));
    }

    fn check(&self) {
        for (sequence, published) in &self.told {
            let partition = &self.partitions[published.partition.0 as usize];
            let at = usize::try_from(published.offset.0).expect("an offset");
            assert_eq!(partition.records.get(at), Some(sequence), "what was told is there");
        }
        let mut all: Vec<i64> = self.partitions.iter().flat_map(|p| p.records.clone()).collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count, "nothing is there twice");
        let logged = |state: &Publishers| state.logged_state().collect::<Vec<_>>();
        let state = logged(&self.machine.state);
        assert_eq!(logged(&self.machine.replay(false)), state);
        assert_eq!(logged(&self.machine.replay(true)), state);
    }
}
