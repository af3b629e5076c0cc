//! What one seed of the profile `queue` exercises.

use std::time::Duration;

use super::super::swarm::{Op, Swarm};
use super::account::Rules;
use crate::rng::Rng;

/// What a client of a queue does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Step {
    Send,
    Repeat,
    Receive,
    Delete,
    Extend,
    Release,
    Reject,
    Unclaim,
    HangUp,
    Purge,
    Dispose,
    DeleteRecords,
    Name,
}

/// The mix of one seed.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Mix {
    pub(super) steps: Vec<(u64, Step)>,
    /// The queue that is worked, and where its dead letters go.
    pub(super) own: Rules,
    pub(super) dead: Rules,
    pub(super) partitions: i32,
    pub(super) retry_first: Duration,
    pub(super) in_flight_max: u64,
    /// Bytes of a delivery log between two snapshots.
    pub(in super::super) snapshot_bytes: u64,
    /// The topics are queues and nothing else: records go with their messages.
    pub(super) is_only: bool,
    /// How long a segment takes records: they are sealed in a run of some dozens of messages.
    pub(super) segment_lasts: Duration,
    /// Longest delays and holds.
    pub(super) delay_max: Duration,
    pub(super) visibility_max: Duration,
    /// Of a hundred messages, how many have an id, a delay, a lifetime, a priority.
    pub(super) ids: u64,
    pub(super) delays: u64,
    pub(super) lifetimes: u64,
    pub(super) priorities: u64,
    pub(super) groups: u64,
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

impl Mix {
    fn draw(rng: &mut Rng) -> Mix {
        let is_only = rng.percent(50);
        let is_fifo = rng.percent(40);
        let has_dead_letters = rng.percent(60);
        let retention = rng.percent(20).then(|| ms(rng.between(3_000, 8_000)));
        let dedup_window = ms(rng.weighted(&[(3, 300_000), (1, 2_000)]));
        let usual_delay = ms(rng.weighted(&[(5, 0), (1, 700)]));
        let rules = Rules {
            is_fifo,
            delay: usual_delay,
            retention,
            removes_settled: is_only || rng.percent(50),
            receives_max: rng.weighted(&[(1, None), (2, Some(2)), (1, Some(4))]),
            has_dead_letters,
            expired_are_dead_letters: rng.percent(50),
            dedup_window,
            dedup_scope: rng.weighted(&[(3, "queue"), (1, "group")]),
            subscriptions: rng.weighted(&[(3, 1), (1, 2)]),
        };
        let dead = Rules {
            is_fifo,
            dedup_window,
            dedup_scope: "queue",
            removes_settled: is_only || rng.percent(50),
            subscriptions: 1,
            ..Rules::default()
        };
        Mix {
            steps: draw_steps(rng),
            own: rules,
            dead,
            partitions: rng.weighted(&[(2, 1), (1, 2)]),
            retry_first: ms(rng.weighted(&[(3, 0), (1, 400)])),
            in_flight_max: rng.weighted(&[(3, 120_000), (1, 4)]),
            is_only,
            segment_lasts: ms(rng.weighted(&[(2, 60), (1, 300), (1, 1_500)])),
            snapshot_bytes: rng.weighted(&[(2, 1_000), (2, 6_000), (1, 4 << 20)]),
            delay_max: ms(rng.weighted(&[(1, 800), (2, 4_000)])),
            visibility_max: ms(rng.weighted(&[(1, 600), (2, 5_000)])),
            ids: rng.weighted(&[(1, 0), (2, 40), (1, 90)]),
            delays: rng.weighted(&[(1, 0), (1, 30)]),
            lifetimes: rng.weighted(&[(1, 0), (1, 20)]),
            priorities: rng.weighted(&[(1, 0), (1, 30)]),
            groups: rng.between(1, 5),
        }
    }

    /// As topic properties; `dead` is the queue for dead letters.
    pub(super) fn properties(&self, is_dead: bool, dead: &str) -> Vec<(String, Option<String>)> {
        let rules = if is_dead { &self.dead } else { &self.own };
        let millis = |wait: Duration| wait.as_millis().to_string();
        let mut all = vec![
            ("queue.enable", "true".to_owned()),
            ("queue.only", self.is_only.to_string()),
            ("segment.ms", millis(self.segment_lasts)),
            ("min.cleanable.dirty.ratio", "0.05".to_owned()),
            ("queue.fifo", rules.is_fifo.to_string()),
            ("queue.delay.ms", millis(rules.delay)),
            ("queue.dedup.window.ms", millis(rules.dedup_window)),
            ("queue.dedup.scope", rules.dedup_scope.to_owned()),
            ("queue.message.retention.ms", rules.retention.map_or("-1".to_owned(), millis)),
        ];
        if rules.removes_settled && !self.is_only {
            // Far less than anybody needs: what is not settled stays all the same.
            all.push(("retention.ms", "1".to_owned()));
        }
        if !is_dead {
            all.push(("queue.retry.first.ms", millis(self.retry_first)));
            all.push(("queue.retry.max.ms", "2000".to_owned()));
            all.push(("queue.in.flight.max", self.in_flight_max.to_string()));
            if rules.has_dead_letters {
                let receives = rules.receives_max.unwrap_or(0);
                all.push(("queue.dead.letter.queue", dead.to_owned()));
                all.push(("queue.dead.letter.receives", receives.to_string()));
                all.push(("queue.dead.letter.expired", rules.expired_are_dead_letters.to_string()));
            }
        }
        all.into_iter().map(|(name, value)| (name.to_owned(), Some(value))).collect()
    }
}

fn draw_steps(rng: &mut Rng) -> Vec<(u64, Step)> {
    let mut steps = vec![(30, Step::Send), (30, Step::Receive), (20, Step::Delete)];
    let rare = [
        (8, Step::Repeat),
        (6, Step::Extend),
        (6, Step::Release),
        (4, Step::Reject),
        (3, Step::Unclaim),
        (4, Step::HangUp),
        (1, Step::Purge),
        (3, Step::Dispose),
        (1, Step::DeleteRecords),
        (4, Step::Name),
    ];
    steps.extend(rare.into_iter().filter(|_| rng.percent(50)));
    steps
}

impl Swarm {
    /// The mix of a seed of the profile `queue`: as that of `cluster`, with other clients.
    pub(in super::super) fn of_queues(rng: &mut Rng) -> Swarm {
        let mut swarm = Swarm::draw(rng);
        swarm.brokers = 3;
        swarm.producers = 0;
        swarm.ops = vec![(60, Op::Work)];
        if rng.percent(50) {
            swarm.ops.push((2, Op::Administer));
        }
        swarm.op_every = ms(rng.weighted(&[(1, 15), (1, 40)]));
        swarm.lasts = ms(rng.between(1_000, 4_000));
        let mix = Mix::draw(rng);
        swarm.work = Some(mix);
        swarm
    }
}
