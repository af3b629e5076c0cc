//! Restarts one broker after the other, as an upgrade does, under clients that set nothing.

use std::time::Instant;

use anyhow::Result;

use super::ledger::Ledger;
use super::node::NODES;
use super::replicas;
use super::round::Round;

/// So many rounds over all brokers, each of which is stopped and started.
pub(super) fn run(rounds: u64, round: &mut Round, ledger: &mut Ledger) -> Result<()> {
    repeat(rounds, round, ledger, |round, ledger| {
        for id in NODES {
            let led = round.nodes.leaders().into_iter().filter(|(_, by)| *by == i32::from(id));
            round.load.watch_acks_of(led.map(|(place, _)| place));
            let stop = round.nodes.terminate(id)?;
            ledger.time("a stop", stop);
            let began = Instant::now();
            round.nodes.begin(id)?;
            round.nodes.start_all()?;
            round.nodes.wait_until_whole()?;
            ledger.time("in sync after the start of the process", began.elapsed());
            ledger.count("brokers restarted", 1);
            for wait in round.load.take_longest_waits() {
                ledger.time("longest wait for an acknowledgement while a leader stops", wait);
            }
        }
        Ok(())
    })
}

/// So many rounds of `towpath cluster restart`.
pub(super) fn run_by_command(rounds: u64, round: &mut Round, ledger: &mut Ledger) -> Result<()> {
    repeat(rounds, round, ledger, |round, ledger| {
        round.load.watch_acks_of(replicas::places());
        for took in round.nodes.restart_by_command()? {
            ledger.time("a node, from the order to everything in sync", took);
            ledger.count("brokers restarted", 1);
        }
        for wait in round.load.take_longest_waits() {
            ledger.time("longest wait for an acknowledgement while all nodes start anew", wait);
        }
        Ok(())
    })
}

fn repeat(
    rounds: u64,
    round: &mut Round,
    ledger: &mut Ledger,
    restart_all: impl Fn(&mut Round, &mut Ledger) -> Result<()>,
) -> Result<()> {
    for number in 1..=rounds {
        restart_all(round, ledger)?;
        round.settle()?;
        ledger.cycles += 1;
        println!("round {number}: {} acknowledged", round.load.writers().acked());
        round.nobody_gave_up()?;
    }
    Ok(())
}
