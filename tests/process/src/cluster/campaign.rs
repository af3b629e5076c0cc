//! Rounds of cycles: in each cycle something goes wrong, is mended, and all is compared.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fastrand::Rng;

use super::fault::Fault;
use super::ledger::Ledger;
use super::node::Nodes;
use super::queues::QueueRound;
use super::round::Round;
use super::{flips, moves, rolling};
use crate::load::Manners;

/// Cycles after which a fresh cluster begins: what is compared after each of them grows.
const ROUND_CYCLES: u64 = 2 * Fault::ALL.len() as u64;

/// Segments are rolled often, so that faults meet that as well.
const ROLLING_OFTEN: [(&str, &str); 3] =
    [("segment.bytes", "1048576"), ("segment.ms", "5000"), ("retention.ms", "-1")];
/// The three brokers' disks are one: what all partitions do at once would be taken for the moves'.
const NOT_ROLLING: [(&str, &str); 1] = [("retention.ms", "-1")];

/// What to do to the brokers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Kills, pauses, cuts, full and slow disks.
    Faults,
    /// Orderly restarts, one broker after the other.
    Rolling,
    /// `towpath cluster restart`, again and again.
    Restarts,
    /// Leaders that are moved as operators do it, under a writer that tells how long it waits.
    Moves,
    /// Flipped bits in the files of one broker at a time.
    Flips,
    /// Killed leaders of work queues.
    Queues,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Faults => "faults",
            Kind::Rolling => "rolling",
            Kind::Restarts => "restarts",
            Kind::Moves => "moves",
            Kind::Flips => "flips",
            Kind::Queues => "queues",
        }
    }

    /// The configuration of topics.
    pub(super) fn topic(self) -> &'static [(&'static str, &'static str)] {
        if self == Kind::Moves { &NOT_ROLLING } else { &ROLLING_OFTEN }
    }

    pub(super) fn manners(self) -> Manners {
        match self {
            Kind::Rolling | Kind::Restarts | Kind::Moves => Manners::Default,
            Kind::Faults | Kind::Flips | Kind::Queues => Manners::Quick,
        }
    }
}

/// How much of it.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What.
    pub kind: Kind,
    /// How often: faults, rounds of restarts, or flips.
    pub times: u64,
    /// Decides what happens to whom; the load itself depends on timing as well.
    pub seed: u64,
    /// The longest a fault lasts.
    pub hold_max: Duration,
    /// Where the campaign's ledger is, and what is kept of failures; a campaign goes on after one.
    pub campaign: Option<PathBuf>,
    /// Where logs and data of a failed round are copied when there is no campaign.
    pub keep: PathBuf,
}

/// Carries a plan out, and gives back what happened. An error is a broken promise.
pub fn run(plan: &Plan) -> Result<String> {
    let mut ledger = match &plan.campaign {
        Some(directory) => Ledger::load(directory, plan.seed)?,
        None => Ledger::begin(plan.seed),
    };
    while ledger.cycles < plan.times {
        let cycles = ROUND_CYCLES.min(plan.times - ledger.cycles);
        let (seed, began) = (ledger.seed, Instant::now());
        let mut rng = Rng::with_seed(seed);
        // Without a cluster there is nothing to go on with.
        let outcome = if plan.kind == Kind::Queues {
            queues(plan, seed, cycles, QueueRound::begin(&mut rng)?, &mut rng, &mut ledger)
        } else {
            let cluster = Round::begin(plan.kind, &mut rng)?;
            round(plan, seed, cycles, &mut rng, cluster, &mut ledger)
        };
        ledger.seed += 1;
        ledger.count(&format!("rounds: {}", plan.kind.name()), 1);
        ledger.count("seconds", began.elapsed().as_secs());
        if let Err(error) = outcome {
            let error = error.context(format!(
                "again: cargo xtask cluster --{} --times {} --seed {seed}",
                plan.kind.name(),
                plan.times
            ));
            ledger.failures.insert(seed, format!("{error:#}"));
            let Some(directory) = &plan.campaign else { return Err(error) };
            ledger.save(directory)?;
            eprintln!("FAILED seed {seed}: {error:#}");
            // Otherwise a round that fails in its first cycle is repeated for ever.
            ledger.cycles += 1;
        }
        if let Some(directory) = &plan.campaign {
            ledger.save(directory)?;
            println!("{} cycles done, {} rounds failed", ledger.cycles, ledger.failures.len());
        }
    }
    if !ledger.failures.is_empty() {
        bail!("{}", ledger.summary());
    }
    Ok(ledger.summary())
}

fn round(
    plan: &Plan,
    seed: u64,
    cycles: u64,
    rng: &mut Rng,
    mut round: Round,
    ledger: &mut Ledger,
) -> Result<()> {
    let outcome = match plan.kind {
        Kind::Faults => faults(plan, cycles, rng, &mut round, ledger),
        Kind::Rolling => rolling::run(cycles, &mut round, ledger),
        Kind::Restarts => rolling::run_by_command(cycles, &mut round, ledger),
        Kind::Moves => moves::run(cycles, &mut round, ledger),
        Kind::Flips => flips::run(cycles, rng, &mut round, ledger),
        Kind::Queues => anyhow::bail!("queues have a round of their own"),
    };
    let place = place_of(plan, seed);
    if let Err(error) = outcome {
        return Err(kept(&round.nodes, &place, error));
    }
    ledger.absorb(&round.end(&place)?);
    Ok(())
}

fn queues(
    plan: &Plan,
    seed: u64,
    cycles: u64,
    mut round: QueueRound,
    rng: &mut Rng,
    ledger: &mut Ledger,
) -> Result<()> {
    match round.run(cycles, rng, ledger).and_then(|()| round.end(ledger)) {
        Err(error) => Err(kept(&round.nodes, &place_of(plan, seed), error)),
        Ok(()) => round.nodes.take_down(),
    }
}

/// Where logs and data of a failed round are kept.
fn place_of(plan: &Plan, seed: u64) -> PathBuf {
    plan.campaign.as_ref().unwrap_or(&plan.keep).join(format!("failed-{seed}"))
}

/// The error, with where to look.
pub(super) fn kept(nodes: &Nodes, place: &Path, error: anyhow::Error) -> anyhow::Error {
    match nodes.keep(place) {
        Ok(()) => error.context(format!("logs and data are in {}", place.display())),
        Err(why) => error.context(format!("logs and data could not be kept: {why:#}")),
    }
}

fn faults(
    plan: &Plan,
    cycles: u64,
    rng: &mut Rng,
    round: &mut Round,
    ledger: &mut Ledger,
) -> Result<()> {
    let mut order: Vec<Fault> = Vec::new();
    while (order.len() as u64) < cycles {
        let left = usize::try_from(cycles)?.saturating_sub(order.len());
        let mut some = Fault::ALL[..left.min(Fault::ALL.len())].to_vec();
        rng.shuffle(&mut some);
        order.extend(some);
    }
    for fault in order {
        if let Some(why) = fault.missing() {
            println!("skipped  {fault}: {why}");
            ledger.count(&format!("skipped: {fault}"), 1);
        } else {
            cycle(plan, fault, rng, round, ledger).with_context(|| format!("after: {fault}"))?;
        }
        ledger.cycles += 1;
    }
    Ok(())
}

fn cycle(
    plan: &Plan,
    fault: Fault,
    rng: &mut Rng,
    round: &mut Round,
    ledger: &mut Ledger,
) -> Result<()> {
    thread::sleep(Duration::from_millis(rng.u64(200..1_000)));
    let mut happening = Vec::new();
    let first = (fault, rng.u64(..));
    let second = (rng.u8(..3) == 0).then(|| (second(rng), rng.u64(..)));
    let is_alone = second.is_none();
    for (fault, seed) in [first].into_iter().chain(second) {
        // Brokers that stand still would be waited for, and the fault before would last too long.
        let leaders = if is_alone { round.nodes.leaders() } else { BTreeMap::new() };
        let happened = fault.happen(&mut round.nodes, &mut Rng::with_seed(seed))?;
        println!("{happened}");
        let ended = happened.ended().iter().map(|id| i32::from(*id)).collect::<Vec<_>>();
        // Where a majority is gone, or goes, the time would be that of the fault.
        if ended.len() == 1 {
            let led = leaders.into_iter().filter(|(_, leader)| ended.contains(leader));
            round.load.await_acks_of(led.map(|(place, _)| place));
        }
        happening.push(happened);
        ledger.count(&format!("fault: {fault}"), 1);
        thread::sleep(plan.hold_max.mul_f64(rng.f64()));
    }
    for happened in happening {
        happened.mend(&round.nodes)?;
    }
    round.nodes.start_all()?;
    let whole = round.settle()?;
    println!(
        "in sync after {} ms, {} acknowledged",
        whole.as_millis(),
        round.load.writers().acked()
    );
    ledger.time("all replicas in sync after all brokers were ready", whole);
    for took in round.load.take_first_acks() {
        ledger.time(
            "first acknowledgement after a partition's leader ended, the others healthy",
            took,
        );
    }
    Ok(())
}

/// Something that may happen on top of anything else.
fn second(rng: &mut Rng) -> Fault {
    let some = [Fault::KillOne, Fault::KillTwo, Fault::KillAll, Fault::KillStarting, Fault::Pause];
    some[rng.usize(..some.len())]
}
