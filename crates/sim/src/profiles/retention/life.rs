//! Processes, one after the other; in the last one every group reads to the end, and everything
//! expires.

use std::time::Duration;

use towpath_broker::OFFSETS_TOPIC;
use towpath_metadata as metadata;
use towpath_model::Offset;

use super::super::broker::machine::Ending;
use super::world::{TOPIC, World};
use crate::profile::{Violation, ensure};

/// Creates the topics; nothing goes wrong yet.
pub(super) fn first(world: &mut World) -> Result<(), Violation> {
    start(world)?;
    world.topic = world.machine.new_id();
    let offsets = metadata::NewTopic {
        partitions: 2,
        internal: true,
        configs: vec![("cleanup.policy".to_owned(), Some("compact".to_owned()))],
        ..metadata::NewTopic::named(OFFSETS_TOPIC, world.machine.new_id())
    };
    let guard = world.rng.weighted(&[(4, "hold"), (1, "warn"), (1, "off")]);
    let configs = [("retention.guard", guard), ("retention.ms", "2000")];
    let orders = metadata::NewTopic {
        partitions: world.partitions,
        configs: configs.iter().map(|(n, v)| ((*n).to_owned(), Some((*v).to_owned()))).collect(),
        ..metadata::NewTopic::named(TOPIC, world.topic)
    };
    let topics = vec![offsets, orders];
    let token = world.machine.token();
    let request = metadata::Request::CreateTopics { topics, validate_only: false };
    let asked = world.machine.driver().ask_metadata(token, request);
    ensure!(asked.is_ok(), "INV-M1", "a healthy broker does not lead the metadata");
    while world.machine.sync_if_wanted() {}
    world.settle()
}

/// A life with a crash. The first one goes on with the process that made the topics.
pub(super) fn live(world: &mut World) -> Result<(), Violation> {
    if world.rng.percent(world.crashes_percent) {
        let calls = world.rng.between(1, 250);
        world.machine.disk.crash_at(calls);
    }
    if world.machine.is_running() || start(world)? {
        work(world)?;
    }
    let closes = !world.machine.has_stopped() && world.rng.percent(40);
    let was_closed = closes && world.machine.close();
    let is_excused = world.machine.excuses_failure(false);
    ensure!(was_closed || !closes || is_excused, "INV-F1", "a healthy broker does not close");
    let loses_power = world.rng.percent(50);
    let ending = world.machine.end(was_closed, loses_power);
    world.disconnect_all();
    world.events.note(match ending {
        Ending::Closed => "life: closed",
        Ending::Killed => "life: killed",
        Ending::PowerLost => "life: power lost",
    });
    Ok(())
}

/// Starts a broker; says whether it serves.
fn start(world: &mut World) -> Result<bool, Violation> {
    if let Err(error) = world.machine.start() {
        let is_excused = world.machine.excuses_failure(false);
        ensure!(is_excused, "INV-F1", "a healthy machine, and yet: {error}");
        return Ok(false);
    }
    world.machine.take_ending();
    if world.machine.has_stopped() {
        return Ok(false);
    }
    world.settle_order()?;
    world.judge()?;
    if world.topic.is_zero() {
        return Ok(true);
    }
    world.ask_where_groups_are()?;
    Ok(!world.machine.has_stopped())
}

fn work(world: &mut World) -> Result<(), Violation> {
    for _ in 0..world.rng.between(0, world.steps_max) {
        let op = world.rng.weighted(&world.ops);
        world.step(op)?;
        if world.machine.has_stopped() || world.machine.driver().is_failed() {
            return Ok(());
        }
        world.machine.advance(Duration::from_millis(1));
    }
    Ok(())
}

/// Nothing goes wrong any more. When every group has read and committed everything, nothing is held,
/// and what has expired goes.
pub(super) fn last(world: &mut World) -> Result<(), Violation> {
    world.machine.disk.crash_never();
    ensure!(start(world)?, "INV-F1", "a healthy machine, and its broker does not start");
    while world.machine.sync_if_wanted() {}
    for group in 0..world.groups.len() {
        for id in world.ids() {
            let end = end_of(world, id)?;
            world.send_commit(group, id, end);
        }
    }
    while world.machine.sync_if_wanted() {}
    world.settle()?;
    for _ in 0..3 {
        world.machine.advance(Duration::from_secs(3_600));
        world.upkeep()?;
    }
    let image_config = {
        let driver = world.machine.driver();
        let image = driver.image();
        image.topic(TOPIC).map(|topic| image.effective_config(topic))
    };
    let expires = image_config.is_some_and(|config| config.retention_ms.is_some());
    for id in world.ids() {
        let end = end_of(world, id)?;
        let start = world.starts.get(&id).copied().unwrap_or_default();
        ensure!(
            !expires || start == end,
            "INV-T8",
            "{id}: all is read and old, and starts at {start}"
        );
    }
    let held = world.machine.driver().guard_report().held_bytes;
    ensure!(held.is_empty(), "INV-T8", "all is read, and {held:?} is held");
    ensure!(world.machine.close(), "INV-F1", "a healthy broker does not close");
    Ok(())
}

fn end_of(world: &World, id: towpath_model::TopicPartition) -> Result<Offset, Violation> {
    let lines = world.machine.driver().position(id, None);
    let lines = lines.map_err(|e| Violation::new("INV-F1", format!("{id}: {e}")))?;
    Ok(lines.high_watermark)
}
