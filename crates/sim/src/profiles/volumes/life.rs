//! Processes, one after the other, with both directories or with one; the last one has both, and serves
//! everything.

use std::time::Duration;

use towpath_driver::VolumeIndex;

use super::super::broker::machine::Ending;
use super::world::{Absence, World};
use crate::profile::{Violation, ensure};
use crate::steps::Parted;

/// Makes the first topic while both directories are there and nothing goes wrong.
pub(super) fn first(world: &mut World) -> Result<(), Violation> {
    ensure!(start(world)?, "INV-F1", "a healthy machine, and its broker does not start");
    world.create_topic();
    while world.machine.sync_if_wanted() {}
    world.settle()?;
    ensure!(world.has_topics(), "INV-M1", "a healthy broker creates no topic");
    end(world)
}

/// A life with faults.
pub(super) fn live(world: &mut World) -> Result<(), Violation> {
    world.part(|world| {
        if world.rng.percent(world.crashes_percent) {
            let calls = world.rng.between(1, 200);
            world.machine.disk.crash_at(calls);
        }
        let absence = world.rng.weighted(&[
            (6, None),
            (1, Some(Absence::Unreadable)),
            (1, Some(Absence::NotMounted)),
            (1, Some(Absence::NotNamed)),
        ]);
        world.choose_directories(absence);
        Ok::<(), Violation>(())
    })?;
    if start(world)? {
        work(world)?;
    }
    end(world)
}

/// Starts a broker; says whether it serves.
fn start(world: &mut World) -> Result<bool, Violation> {
    if let Err(error) = world.machine.start() {
        let is_excused = world.machine.excuses_failure(false);
        ensure!(is_excused, "INV-F1", "the first directory is there, and yet: {error}");
        return Ok(false);
    }
    world.machine.take_ending();
    if world.machine.has_stopped() {
        return Ok(false);
    }
    world.check_recovered()?;
    Ok(!world.machine.has_stopped())
}

fn work(world: &mut World) -> Result<(), Violation> {
    for _ in 0..world.rng.between(0, world.steps_max) {
        let op = world.rng.weighted(&world.ops);
        world.part(|world| world.step(op))?;
        if world.machine.has_stopped() {
            return Ok(());
        }
        world.machine.advance(Duration::from_millis(1));
    }
    Ok(())
}

fn end(world: &mut World) -> Result<(), Violation> {
    let closes =
        world.machine.is_running() && !world.machine.has_stopped() && world.rng.percent(40);
    let was_closed = closes && world.machine.close();
    let is_excused = world.machine.excuses_failure(false);
    ensure!(was_closed || !closes || is_excused, "INV-F1", "a healthy broker does not close");
    let loses_power = world.rng.percent(50);
    let ending = world.machine.end(was_closed, loses_power);
    world.process_ended();
    world.events.note(match ending {
        Ending::Closed => "life: closed",
        Ending::Killed => "life: killed",
        Ending::PowerLost => "life: power lost",
    });
    Ok(())
}

/// Nothing goes wrong any more, and both directories are there: every partition is served, and takes a
/// record more.
pub(super) fn last(world: &mut World) -> Result<(), Violation> {
    world.machine.disk.crash_never();
    world.choose_directories(None);
    ensure!(start(world)?, "INV-F1", "a healthy machine, and its broker does not start");
    for id in world.all_ids() {
        world.produce(id)?;
    }
    while world.machine.sync_if_wanted() {}
    world.settle()?;
    ensure!(world.waits.is_empty(), "INV-F1", "somebody still waits: {:?}", world.waits);
    for id in world.all_ids() {
        world.read(id)?;
    }
    let is_failed = world.failure_of(VolumeIndex::FIRST).is_some();
    ensure!(!is_failed && world.machine.close(), "INV-F1", "a healthy broker does not close");
    Ok(())
}
