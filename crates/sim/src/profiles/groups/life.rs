//! Processes, one after the other; the last one serves until the group has read everything.

use std::time::Duration;

use towpath_broker::OFFSETS_TOPIC;
use towpath_metadata as metadata;

use super::super::broker::machine::Ending;
use super::members::Phase;
use super::requests::TOPIC;
use super::world::World;
use crate::profile::{Violation, ensure};
use crate::steps::Parted;

/// How often, in a healthy broker, time moves on before every partition must have an owner that
/// makes progress: sessions (10 s at most) and a rebalance (8 s) end, and members join again.
const ROUNDS_MAX: u64 = 80;
const ROUND: Duration = Duration::from_millis(500);

/// Creates the topics; nothing goes wrong yet.
pub(super) fn first(world: &mut World) -> Result<(), Violation> {
    start(world)?;
    world.topic = world.machine.new_id();
    let offsets = metadata::NewTopic {
        partitions: 1,
        internal: true,
        configs: [
            ("cleanup.policy", "compact"),
            ("max.compaction.lag.ms", "2000"),
            ("delete.retention.ms", "3000"),
        ]
        .map(|(name, value)| (name.to_owned(), Some(value.to_owned())))
        .to_vec(),
        ..metadata::NewTopic::named(OFFSETS_TOPIC, world.machine.new_id())
    };
    let partitions = world.partitions;
    let orders = metadata::NewTopic { partitions, ..metadata::NewTopic::named(TOPIC, world.topic) };
    let topics = vec![offsets, orders];
    let token = world.machine.token();
    let request = metadata::Request::CreateTopics { topics, validate_only: false };
    let asked = world.machine.driver().ask_metadata(token, request);
    ensure!(asked.is_ok(), "INV-M1", "a healthy broker does not lead the metadata");
    while world.machine.sync_if_wanted() {}
    world.settle()?;
    for id in world.ids() {
        let led = world.machine.driver().position(id, None);
        ensure!(led.is_ok(), "INV-M1", "{id} was created and is not led: {led:?}");
    }
    Ok(())
}

/// A life with faults. The first one goes on with the process that made the topics.
pub(super) fn live(world: &mut World) -> Result<(), Violation> {
    world.part(|world| {
        if world.rng.percent(world.crashes_percent) {
            let calls = world.rng.between(1, 250);
            world.machine.disk.crash_at(calls);
        }
        Ok::<(), Violation>(())
    })?;
    if world.machine.is_running() || start(world)? {
        work(world)?;
    }
    end(world)
}

/// Starts a broker; says whether it serves.
fn start(world: &mut World) -> Result<bool, Violation> {
    if let Err(error) = world.machine.start() {
        let is_excused = world.machine.excuses_failure(world.is_full);
        ensure!(is_excused, "INV-F1", "a healthy machine, and yet: {error}");
        return Ok(false);
    }
    world.machine.take_ending();
    if world.machine.has_stopped() {
        return Ok(false);
    }
    if !world.topic.is_zero() {
        world.settle_topic()?;
    }
    Ok(true)
}

fn work(world: &mut World) -> Result<(), Violation> {
    for _ in 0..world.rng.between(0, world.steps_max) {
        let op = world.rng.weighted(&world.ops);
        world.part(|world| world.step(op))?;
        if world.machine.has_stopped() {
            return Ok(());
        }
        if world.machine.driver().is_failed() && world.rng.percent(20) {
            return Ok(());
        }
        world.machine.advance(Duration::from_millis(1));
    }
    Ok(())
}

fn end(world: &mut World) -> Result<(), Violation> {
    if world.is_full {
        world.free_disk();
    }
    let closes = !world.machine.has_stopped() && world.rng.percent(40);
    let was_closed = closes && world.machine.close();
    let may_fail = world.machine.excuses_failure(world.was_full);
    ensure!(was_closed || !closes || may_fail, "INV-F1", "a healthy broker does not close");
    let loses_power = world.rng.percent(50);
    let ending = world.machine.end(was_closed, loses_power);
    world.disconnect_all()?;
    world.events.note(match ending {
        Ending::Closed => "life: closed",
        Ending::Killed => "life: killed",
        Ending::PowerLost => "life: power lost",
    });
    Ok(())
}

/// Nothing goes wrong any more: soon every partition has an owner that reads and commits all of it
/// (INV-C4).
pub(super) fn last(world: &mut World) -> Result<(), Violation> {
    world.machine.disk.crash_never();
    world.free_disk();
    ensure!(start(world)?, "INV-F1", "a healthy machine, and its broker does not start");
    world.is_draining = true;
    let had_shares = world.members.iter().filter(|m| m.phase == Phase::Working).count();
    for round in 0.. {
        if is_done(world) {
            break;
        }
        ensure!(round < ROUNDS_MAX, "INV-C4", "after {round} rounds the group has not read all");
        serve(world)?;
        let still = world.members.iter().filter(|m| m.phase == Phase::Working).count();
        if round == 0 && 0 < had_shares && still == had_shares {
            world.events.note("member: went on after a restart");
        }
    }
    Ok(())
}

fn serve(world: &mut World) -> Result<(), Violation> {
    world.nudge_topic()?;
    world.hear_late(usize::MAX)?;
    if world.members.iter().all(|member| member.phase == Phase::Silent) {
        // The last one was fenced by an old request of its own; somebody starts it again.
        world.wake(0);
    }
    for at in 0..world.members.len() {
        for _ in 0..6 {
            world.act(at)?;
            world.machine.sync_if_wanted();
            world.settle()?;
        }
    }
    world.machine.advance(ROUND);
    world.machine.tick();
    world.machine.sync_if_wanted();
    world.settle()
}

fn is_done(world: &World) -> bool {
    world.is_topic_there() && world.ids().into_iter().all(|id| world.is_done_with(id))
}
