//! Kills the leaders of work queues under load, and looks at what their workers are given.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use fastrand::Rng;

use super::ledger::Ledger;
use super::node::{NODES, Nodes};
use crate::history::{Place, Violation};
use crate::load::{JOBS, LINES, QueueLoad, Users};

/// How long the next message may take to be received after a kill, before something is wrong.
const RECEIVED_PATIENCE: Duration = Duration::from_secs(30);
/// How long everything may take to be deleted in the end: leases that nobody gave up run out first.
const DRAIN_PATIENCE: Duration = Duration::from_secs(60);
/// The longest that a broker stays away.
const AWAY_MS_MAX: u64 = 4_000;
/// Time for load before each kill.
const LOAD_MS: std::ops::Range<u64> = 500..3_000;

/// A cluster with both kinds of queues.
pub(super) struct QueueRound {
    pub(super) nodes: Nodes,
    users: Vec<Users>,
}

impl QueueRound {
    /// Starts the brokers and the load.
    pub(super) fn begin(rng: &mut Rng) -> Result<QueueRound> {
        let mut nodes = Nodes::start()?;
        nodes.wait_until_whole()?;
        let brokers = NODES.map(|id| nodes.http(id));
        let loads = [LINES, JOBS].map(|queue| QueueLoad::create(queue, &brokers));
        let loads: Vec<_> = loads.into_iter().collect::<Result<_>>()?;
        nodes.wait_until_whole()?;
        let users = loads.into_iter().map(|load| load.begin(rng)).collect();
        Ok(QueueRound { nodes, users })
    }

    /// So many times, somebody who leads is killed and started again.
    pub(super) fn run(&mut self, times: u64, rng: &mut Rng, ledger: &mut Ledger) -> Result<()> {
        for number in 1..=times {
            thread::sleep(Duration::from_millis(rng.u64(LOAD_MS)));
            let victim = self.victim(rng)?;
            let lines = &self.users[0].load;
            let killed = lines.now();
            self.nodes.kill(victim)?;
            let took = self.first_received(killed)?;
            ledger.time("from kill -9 of the leader to the next message", took);
            thread::sleep(Duration::from_millis(rng.u64(..AWAY_MS_MAX)));
            self.nodes.begin(victim)?;
            self.nodes.start_all()?;
            self.nodes.wait_until_whole()?;
            self.check()?;
            ledger.cycles += 1;
            ledger.count("leaders of queues killed", 1);
            let (acked, deliveries) = self.counts();
            println!(
                "kill {number}: {acked} messages, {deliveries} deliveries, {took:.2?} to the next one"
            );
        }
        Ok(())
    }

    /// Who leads the queue in which order matters.
    fn victim(&self, rng: &mut Rng) -> Result<u8> {
        let place = Place::new(LINES, 0);
        let deadline = Instant::now() + RECEIVED_PATIENCE;
        loop {
            let leader = self.nodes.leaders().get(&place).copied();
            if let Some(leader) = leader.and_then(|id| u8::try_from(id).ok()) {
                // Now and then another one, which leads a part of the other queue.
                let is_other = rng.u8(..4) == 0;
                return Ok(if is_other { leader % 3 + 1 } else { leader });
            }
            ensure!(Instant::now() < deadline, "nobody leads {place}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn first_received(&self, killed: Duration) -> Result<Duration> {
        let lines = &self.users[0].load;
        loop {
            if let Some(first) = lines.history().first_after(killed) {
                return Ok(first - killed);
            }
            let waited = lines.now() - killed;
            ensure!(waited < RECEIVED_PATIENCE, "nothing was received for {waited:?} after a kill");
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn check(&self) -> Result<()> {
        let histories = self.users.iter().map(|users| users.load.history());
        let broken: Vec<String> =
            histories.flat_map(|it| it.violations()).map(|it: Violation| it.to_string()).collect();
        if !broken.is_empty() {
            let shown = &broken[..broken.len().min(20)];
            bail!("{} promises broken:\n{}", broken.len(), shown.join("\n"));
        }
        Ok(())
    }

    fn counts(&self) -> (u64, u64) {
        let of = |users: &Users| {
            let history = users.load.history();
            (history.acked(), history.count())
        };
        self.users.iter().map(of).fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
    }

    /// Lets everything be worked, and looks whether it was.
    pub(super) fn end(&mut self, ledger: &mut Ledger) -> Result<()> {
        let loads: Vec<_> = self.users.iter().map(|users| users.load.clone()).collect();
        for users in std::mem::take(&mut self.users) {
            let load = users.load.clone();
            let left = users.end(DRAIN_PATIENCE)?;
            if let Some(first) = left.first() {
                bail!(
                    "INV-Q1: {} acknowledged messages of {} are lost: {:?}; {first}: {}; {}",
                    left.len(),
                    load.queue(),
                    &left[..left.len().min(20)],
                    load.history().story(*first),
                    load.look()
                );
            }
        }
        for load in loads {
            let history = load.history();
            let broken = history.violations();
            ensure!(broken.is_empty(), "{}", broken[0]);
            ensure!(
                0 < history.acked(),
                "nothing was acknowledged: the load never reached the brokers"
            );
            ledger.count("messages sent", history.acked());
            ledger.count("deliveries", history.count());
        }
        Ok(())
    }
}
