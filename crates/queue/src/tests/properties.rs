//! Random requests, waits, failovers, restarts and lost tails; the account must find nothing wrong.

use proptest::prelude::*;

use super::*;
use crate::{Delay, OWN_SUBSCRIPTION, Retry};

#[derive(Debug, Clone)]
enum Step {
    Send(Vec<Sent>),
    Receive { max: u32, visibility: u64, waits: bool, name: Option<u8> },
    Delete { nth: usize, count: usize },
    Extend { nth: usize, seconds: u64 },
    Release { nth: usize, delay: Option<u64> },
    Reject { nth: usize },
    Unclaim { nth: usize },
    Moved { fails: bool },
    Purge,
    Dispose { nth: i64 },
    Trim { by: i64 },
    Wait { ms: u64 },
    FailOver { loses: i64 },
    Restart,
    Snapshot,
    Skip { by: i64 },
    Forget,
}

#[derive(Debug, Clone)]
struct Sent {
    group: Option<u8>,
    delay: Option<u64>,
    ttl: Option<u64>,
    priority: Option<u8>,
    id: Option<u8>,
    is_odd: u8,
}

fn sent() -> impl Strategy<Value = Sent> {
    let rarely = |values| prop::option::weighted(0.2, values);
    let numbers = (rarely(0_u64..90), rarely(1_u64..120));
    let rest =
        (prop::option::weighted(0.15, 0_u8..9), prop::option::weighted(0.3, 0_u8..5), 0_u8..30);
    (prop::option::of(0_u8..4), numbers, rest).prop_map(
        |(group, (delay, ttl), (priority, id, is_odd))| Sent {
            group,
            delay,
            ttl,
            priority,
            id,
            is_odd,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let nth = 0_usize..50;
    prop_oneof![
        6 => prop::collection::vec(sent(), 1..6).prop_map(Step::Send),
        8 => (1_u32..6, 0_u64..60, any::<bool>(), prop::option::weighted(0.2, 0_u8..3)).prop_map(
            |(max, visibility, waits, name)| Step::Receive { max, visibility, waits, name }
        ),
        4 => (nth.clone(), 1_usize..4).prop_map(|(nth, count)| Step::Delete { nth, count }),
        2 => (nth.clone(), 0_u64..100).prop_map(|(nth, seconds)| Step::Extend { nth, seconds }),
        2 => (nth.clone(), prop::option::of(0_u64..40)).prop_map(|(nth, delay)| Step::Release { nth, delay }),
        1 => nth.clone().prop_map(|nth| Step::Reject { nth }),
        1 => nth.prop_map(|nth| Step::Unclaim { nth }),
        2 => any::<bool>().prop_map(|fails| Step::Moved { fails }),
        1 => Just(Step::Purge),
        1 => (0_i64..40).prop_map(|nth| Step::Dispose { nth }),
        1 => (1_i64..5).prop_map(|by| Step::Trim { by }),
        8 => prop_oneof![0_u64..3_000, 0_u64..90_000].prop_map(|ms| Step::Wait { ms }),
        1 => prop_oneof![3 => Just(0_i64), 1 => 1_i64..5].prop_map(|loses| Step::FailOver { loses }),
        1 => Just(Step::Restart),
        1 => Just(Step::Snapshot),
        1 => (1_i64..9).prop_map(|by| Step::Skip { by }),
        1 => Just(Step::Forget),
    ]
}

fn config() -> impl Strategy<Value = DeliveryConfig> {
    let limits =
        (prop::option::of(1_u32..4), any::<bool>(), prop_oneof![Just(3_usize), Just(1_000)]);
    let times = (prop::option::weighted(0.3, 30_u64..200), 0_u32..2, 0_u32..8);
    (any::<bool>(), limits, times, any::<bool>()).prop_map(
        |(
            is_fifo,
            (receives_max, has_dead, in_flight_max),
            (retention, delay, retry),
            by_group,
        )| {
            DeliveryConfig {
                is_fifo,
                delay: delay * 20 * SECOND,
                retention: retention.map(Duration::from_secs),
                in_flight_max,
                receives_max,
                dead_letter_queue: has_dead.then(|| Arc::from("dead")),
                expired_are_dead_letters: by_group,
                retry: Retry { first: retry * SECOND, max: 20 * SECOND, jitter_percent: 20 },
                dedup_window: 60 * SECOND,
                dedup_by_group: by_group,
            }
        },
    )
}

struct Run {
    bench: Bench,
    receipts: Vec<Receipt>,
}

impl Run {
    fn step(&mut self, step: Step) {
        let subscription = 0;
        match step {
            Step::Send(sent) => {
                self.bench.send_with(sent.iter().map(facts).collect());
            }
            Step::Receive { max, visibility, waits, name } => {
                let wait_until = waits.then(|| self.bench.now.time + 20 * SECOND);
                let attempt = name.map(|name| Arc::from([name]));
                let asked = receive(max, Duration::from_secs(visibility));
                self.bench.ask(Request::Receive(Receive { wait_until, attempt, ..asked }));
            }
            Step::Delete { nth, count } => {
                let receipts: Vec<Receipt> =
                    (nth..nth + count).filter_map(|n| self.receipt(n)).collect();
                self.bench.ask(Request::Delete { subscription, receipts });
            }
            Step::Extend { nth, seconds } => {
                let wait = Duration::from_secs(seconds);
                let receipts =
                    self.receipt(nth).into_iter().map(|receipt| (receipt, wait)).collect();
                self.bench.ask(Request::Extend { subscription, receipts });
            }
            Step::Release { nth, delay } => {
                let receipts = self.receipt(nth).into_iter().collect();
                let delay = delay.map(Duration::from_secs);
                let note = delay.is_none().then(|| Arc::from("failed"));
                self.bench.ask(Request::Release { subscription, receipts, delay, note });
            }
            Step::Reject { nth } => {
                let receipts = self.receipt(nth).into_iter().collect();
                self.bench.ask(Request::Reject { subscription, receipts, note: Arc::from("bad") });
            }
            Step::Unclaim { nth } => {
                let receipts = self.receipt(nth).into_iter().collect();
                self.bench.ask(Request::Unclaim { subscription, receipts });
            }
            Step::Moved { fails } => {
                let offsets: Vec<Offset> = self.bench.leader.moves(0).map(|(at, _)| at).collect();
                let note = Arc::from("no such queue");
                self.bench.ask(match fails {
                    true => {
                        let is_for_good = offsets.len().is_multiple_of(2);
                        Request::MoveFailed { subscription, offsets, note, is_for_good }
                    }
                    false => Request::Moved { subscription, offsets },
                });
            }
            Step::Purge => {
                self.bench.ask(Request::Purge { subscription });
            }
            Step::Dispose { nth } => {
                let offsets = vec![Offset(nth)];
                if Offset(nth) < self.bench.leader.admitted_to() {
                    let held_too = nth % 2 == 0;
                    let to =
                        (nth % 3 == 0).then(|| (Arc::from("other"), crate::DeadReason::Redriven));
                    let note = Some(Arc::from("somebody"));
                    self.bench.ask(Request::Dispose { subscription, offsets, to, note, held_too });
                }
            }
            Step::Trim { by } => {
                let start = self.bench.leader.settled_start() + by;
                self.bench.ask(Request::Trim { start });
            }
            Step::Wait { ms } => self.bench.wait(Duration::from_millis(ms)),
            Step::FailOver { loses } => {
                let end = (self.bench.records_end.0 - loses).max(0);
                let start = self.bench.leader.settled_start();
                self.bench.records_end = Offset(end).max(start);
                self.bench.fail_over();
            }
            Step::Restart => self.bench.restart(SECOND),
            Step::Snapshot => self.bench.snapshot(),
            Step::Skip { by } => {
                self.bench.records_end = self.bench.records_end + by;
                self.bench.ask(Request::Skip { to: self.bench.records_end });
            }
            Step::Forget => self.forget(),
        }
        for (_, reply) in std::mem::take(&mut self.bench.replies) {
            self.keep(&reply);
        }
    }

    /// Whoever subscribes afterwards gets what somebody still has to work, and nothing else.
    fn forget(&mut self) {
        let to = self.bench.leader.admitted_to();
        self.bench.ask(Request::Forget { to });
        let name: Arc<str> = Arc::from("later");
        self.bench.ask(Request::Subscribe {
            name: Arc::clone(&name),
            from_start: true,
            partitions: 1,
        });
        let leader = &self.bench.leader;
        let later = leader.subscription("later").expect("it has just begun");
        let settled = |number| &leader.subscriptions[&number].settled;
        let (own, later) = (settled(OWN_SUBSCRIPTION), settled(later));
        for at in (0..to.0).map(Offset) {
            assert_eq!(own.contains(at), later.contains(at), "{at:?}");
            assert_eq!(leader.void().contains(at), own.contains(at), "{at:?}");
        }
        self.bench.ask(Request::Unsubscribe { name, partitions: 1 });
    }

    fn keep(&mut self, reply: &Reply) {
        if let Reply::Received { messages, .. } = reply {
            self.receipts.extend(messages.iter().map(|message| message.receipt));
        }
    }

    /// One of the newest receipts, and sometimes an old one.
    fn receipt(&self, nth: usize) -> Option<Receipt> {
        let peeked = self.bench.leader.peek(
            self.bench.now,
            0,
            Offset(0),
            crate::PeekFilter::Held,
            usize::MAX,
            usize::MAX,
        );
        let held = peeked.0.len();
        if nth.is_multiple_of(7) || held == 0 {
            return self.receipts.get(nth % self.receipts.len().max(1)).copied();
        }
        let offset = peeked.0[nth % held].offset;
        let lease = self.bench.leader.subscriptions[&0].live.get(offset)?.lease;
        Some(Receipt { offset, lease })
    }
}

fn facts(sent: &Sent) -> Facts {
    Facts {
        group: sent.group.map(|group| Arc::from([group])),
        delay: sent.delay.map(|seconds| Delay::For(Duration::from_secs(seconds))),
        ttl: sent.ttl.map(Duration::from_secs),
        priority: sent.priority,
        dedup_id: sent.id.map(|id| Arc::from([id])),
        moved: None,
        is_control: sent.is_odd == 0,
        is_undecodable: sent.is_odd == 1,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 2, ..ProptestConfig::default() })]
    #[test]
    fn no_story_is_wrong(config in config(), steps in prop::collection::vec(step(), 1..60)) {
        let mut run = Run { bench: Bench::new(config), receipts: Vec::new() };
        steps.into_iter().for_each(|step| run.step(step));
        // In the end everything that is held or delayed comes back.
        run.bench.wait(Duration::from_secs(400));
        prop_assert_eq!(run.bench.stats().in_flight, 0);
        prop_assert_eq!(run.bench.stats().delayed, 0);
    }
}
