//! Processes, one after the other: each starts, serves, and ends, one way or another; the last one
//! serves until everybody has what was promised.

use std::time::Duration;

use super::machine::Ending;
use super::world::World;
use crate::profile::{Violation, ensure};
use crate::steps::Parted;

/// Rounds in which a healthy broker must have answered everybody.
const ROUNDS_MAX: u64 = 300;

/// A whole life, with faults.
pub(super) fn live(world: &mut World) -> Result<(), Violation> {
    world.part(|world| {
        if world.rng.percent(world.swarm.crashes_percent) {
            let calls = world.rng.between(1, world.swarm.calls_before_crash_max);
            world.machine.disk.crash_at(calls);
        }
        Ok::<(), Violation>(())
    })?;
    if start(world)? {
        work(world)?;
    } else {
        world.events.note("life: ended during the start");
    }
    end(world)
}

/// Starts a broker; says whether it serves.
fn start(world: &mut World) -> Result<bool, Violation> {
    let had_deleted_files = world.has_deleted_files();
    if let Err(error) = world.machine.start() {
        let is_excused = world.machine.excuses_failure(world.is_full);
        ensure!(is_excused, "INV-F1", "a healthy machine, and yet: {error}");
        return Ok(false);
    }
    if world.machine.has_stopped() {
        return Ok(false);
    }
    if had_deleted_files {
        world.events.note("broker: deletion finished by the next start");
    }
    if world.machine.ending() != Ending::Closed {
        world.events.note("life: started after a crash");
    }
    world.check_recovered()?;
    Ok(true)
}

fn work(world: &mut World) -> Result<(), Violation> {
    let steps = world.rng.between(0, world.swarm.steps_max);
    for _ in 0..steps {
        let op = world.rng.weighted(&world.swarm.ops);
        world.part(|world| world.step(op))?;
        if world.machine.has_stopped() {
            world.events.note("life: stopped at a call");
            return Ok(());
        }
        // A directory that has failed takes no writes until a restart; whoever watches it restarts.
        if world.machine.driver().is_failed() && world.rng.percent(20) {
            world.events.note("life: restarted after a failure");
            return Ok(());
        }
        world.machine.advance(Duration::from_millis(1));
    }
    Ok(())
}

fn end(world: &mut World) -> Result<(), Violation> {
    if world.is_full && world.rng.percent(70) {
        world.free_disk();
    }
    let closes = !world.machine.has_stopped() && world.rng.percent(40);
    let was_closed = closes && world.machine.close();
    let may_fail = world.machine.excuses_failure(world.was_full);
    ensure!(
        was_closed || !closes || may_fail,
        "INV-F1",
        "a healthy machine, and yet it does not close"
    );
    let loses_power = world.rng.percent(50);
    let ending = world.machine.end(was_closed, loses_power);
    world.disconnect_all();
    world.events.note(match (ending, loses_power) {
        (Ending::Closed, false) => "life: closed",
        (Ending::Closed, true) => "life: closed, then power lost",
        (Ending::Killed, _) => "life: killed",
        (Ending::PowerLost, true) => "life: power lost",
        (Ending::PowerLost, false) => "life: killed after a failed sync",
    });
    Ok(())
}

/// The last life: nothing goes wrong any more, and everybody is served.
pub(super) fn last(world: &mut World) -> Result<(), Violation> {
    world.machine.disk.crash_never();
    world.free_disk();
    ensure!(start(world)?, "INV-F1", "a healthy machine, and its broker does not start");
    world.is_draining = true;
    for round in 0.. {
        if is_quiet(world) {
            break;
        }
        ensure!(round < ROUNDS_MAX, "INV-F1", "after {round} rounds somebody still waits");
        serve_everybody(world)?;
    }
    for (name, id) in world.all_partitions() {
        let position = world.machine.driver().position(id, None);
        let lines = position.map_err(|e| Violation::new("INV-F1", format!("{name}: {e}")))?;
        let (mark, end) = (lines.high_watermark, lines.log_end_offset);
        ensure!(
            mark == end,
            "INV-R14",
            "all is quiet, {name} ({id}) ends at {end}, {mark} committed"
        );
    }
    world.check_everything()?;
    world.catalog.check(&world.machine.driver().image())?;
    ensure!(world.machine.close(), "INV-F1", "a healthy machine, and its broker does not close");
    Ok(())
}

fn serve_everybody(world: &mut World) -> Result<(), Violation> {
    world.carry_all()?;
    for at in 0..world.producers.len() {
        world.produce(at)?;
    }
    for at in 0..world.callers.len() {
        world.call(at)?;
    }
    for at in 0..world.consumers.len() {
        world.consume(at)?;
    }
    world.machine.sync_if_wanted();
    world.settle()?;
    world.machine.driver().upkeep();
    world.machine.advance(Duration::from_secs(1));
    world.machine.tick();
    world.settle()
}

fn is_quiet(world: &World) -> bool {
    let driver = world.machine.driver();
    let has_read = |at: &super::consumers::Consumer| {
        let Some(target) = at.target else { return true };
        driver.position(target, None).map_or(true, |lines| lines.high_watermark <= at.position)
    };
    let is_idle = world.waits.values().all(|w| matches!(w, super::world::Waiting::Poll { .. }));
    is_idle
        && world.network.is_quiet()
        && !driver.has_unsynced()
        && world.producers.iter().all(super::producers::Producer::is_quiet)
        && world.callers.iter().all(super::publishers::Caller::is_quiet)
        && world.consumers.iter().all(has_read)
}
