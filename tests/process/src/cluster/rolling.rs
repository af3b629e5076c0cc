//! Restarts one broker after the other, as an upgrade does, under clients that set nothing.

use std::time::Instant;

use anyhow::{Result, ensure};

use super::ledger::Ledger;
use super::node::NODES;
use super::round::Round;

/// So many rounds over all brokers.
pub(super) fn run(rounds: u64, round: &mut Round, ledger: &mut Ledger) -> Result<()> {
    for number in 1..=rounds {
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
        round.settle()?;
        ledger.cycles += 1;
        println!("round {number}: {} acknowledged", round.load.writers().acked());
        let (times, first) = round.load.given_up();
        ensure!(
            times == 0,
            "clients with default settings gave up {times} times, first: {}",
            first.unwrap_or_default()
        );
    }
    Ok(())
}
