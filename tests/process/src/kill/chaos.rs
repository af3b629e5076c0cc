//! Stops the broker in every way it can be stopped, and starts it again.

use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fastrand::Rng;

use crate::broker_process::{Addresses, BrokerProcess, Start};
use crate::load::Load;

/// How long a broker may take to be ready, on a machine that does other things as well.
const READY_PATIENCE: Duration = Duration::from_secs(120);
/// How long it may take to stop when asked to, under load.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// What was done to the broker.
#[derive(Debug, Default, Clone)]
pub(super) struct Done {
    /// Kills with signal 9 of a ready broker.
    pub(super) kills: u64,
    /// Kills with signal 9 before it was ready.
    pub(super) kills_while_starting: u64,
    /// Stops with SIGTERM.
    pub(super) stops: u64,
    /// Time from the start of the process until it was ready, once per restart.
    pub(super) restarts: Vec<Duration>,
}

/// How a broker under load is started. Groups form at once: a campaign has no time to wait for
/// members that may still come.
pub(super) fn start(data: &Path, addresses: Addresses) -> Start {
    let at_once = ["--set", "group.initial.rebalance.delay.ms=0"];
    Start::serve(data).at(addresses).arguments(at_once)
}

/// Kills `times` times, and leaves the broker running.
pub(super) fn run(
    load: &Load,
    start: &Start,
    mut broker: BrokerProcess,
    times: u64,
    seed: u64,
) -> Result<(BrokerProcess, Done)> {
    let mut rng = Rng::with_seed(seed);
    let mut done = Done::default();
    while done.kills + done.kills_while_starting < times && load.failures().is_empty() {
        thread::sleep(Duration::from_millis(rng.u64(5..500)));
        if rng.u8(..8) == 0 {
            let (status, took, log) = broker.terminate(STOP_PATIENCE)?;
            ensure!(status.success(), "SIGTERM ended with {status} after {took:?}:\n{log}");
            done.stops += 1;
        } else {
            check_log(&broker.log())?;
            broker.kill()?;
            done.kills += 1;
        }
        while rng.u8(..4) == 0 && done.kills + done.kills_while_starting < times {
            let starting = start.begin()?;
            thread::sleep(Duration::from_millis(rng.u64(..60)));
            starting.kill()?;
            done.kills_while_starting += 1;
        }
        broker = restart(start, &mut done)?;
    }
    check_log(&broker.log())?;
    Ok((broker, done))
}

/// Starts the broker again after a stop or a kill.
pub(super) fn restart(start: &Start, done: &mut Done) -> Result<BrokerProcess> {
    let kills = done.kills + done.kills_while_starting;
    let broker = start.begin()?.ready(READY_PATIENCE).with_context(|| {
        format!("the broker did not come back after kill {kills} ({} stops)", done.stops)
    })?;
    done.restarts.push(broker.ready_after);
    Ok(broker)
}

fn check_log(log: &str) -> Result<()> {
    ensure!(!log.contains("panicked"), "the broker panicked:\n{log}");
    Ok(())
}
