//! One process: it opens the directory, recovers every log, works, and ends.

use std::time::Duration;

use towpath_log::{DataDirectory, Dirty, Log, LogError};
use towpath_model::{LeaderEpoch, TopicPartition};

use super::ghost::Ending;
use super::reads::{self, Unread};
use super::swarm::Op;
use super::world::{Slot, World};
use crate::disk::SimDisk;
use crate::profile::{Violation, ensure};
use crate::rng::Rng;
use crate::steps::Parted;
use crate::trace::Trace;

/// Why a life is over.
#[derive(Debug)]
pub(super) enum Over {
    /// The machine stopped in the middle of a call.
    Stopped,
    /// A sync failed, or the full disk hit something that cannot go on without a restart.
    Failed,
    /// A promise was broken.
    Broken(Violation),
}

impl From<Violation> for Over {
    fn from(violation: Violation) -> Over {
        Over::Broken(violation)
    }
}

/// What goes wrong in a life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Faults {
    /// What chance brings.
    Drawn,
    /// Nothing before its end.
    None,
    /// The machine stops at this call of those that change something; the first is 1.
    StopAt(u64),
}

/// A whole life.
pub(super) fn live(world: &mut World, faults: Faults) -> Result<(), Violation> {
    match faults {
        Faults::Drawn => draw_faults(world)?,
        Faults::None => {}
        Faults::StopAt(call) => world.disk.crash_at(call),
    }
    let syncs_failed = world.disk.events().count("disk: sync failed");
    let over = match Life::begin(world) {
        Ok(mut life) => life.work().and_then(|()| life.close_or_not()).err(),
        Err(over) => {
            world.events.note("life: stopped during recovery");
            Some(over)
        }
    };
    world.disk.set_capacity(None);
    if let Some(Over::Broken(violation)) = over {
        return Err(violation);
    }
    let stopped = world.disk.has_crashed();
    let failed = matches!(over, Some(Over::Failed))
        || syncs_failed < world.disk.events().count("disk: sync failed");
    let loses_power = world.rng.percent(if over.is_some() || stopped { 65 } else { 30 });
    match over {
        None if !loses_power => world.disk.kill(),
        _ if loses_power => {
            world.disk.lose_power();
            world.reboot();
        }
        _ => world.disk.kill(),
    }
    if over.is_some() {
        let lost = loses_power || failed;
        world.end(if lost { Ending::PowerLost } else { Ending::Killed });
    }
    world.disk.restart();
    Ok(())
}

/// The last life: nothing goes wrong any more, and everything that was promised is there.
pub(super) fn last(world: &mut World) -> Result<(), Violation> {
    world.disk.crash_never();
    let over = match Life::begin(world) {
        Ok(mut life) => life.finish().err(),
        Err(over) => Some(over),
    };
    match over {
        None => Ok(()),
        Some(Over::Broken(violation)) => Err(violation),
        Some(over) => Err(Violation::new("INV-F1", format!("a healthy disk, and yet: {over:?}"))),
    }
}

fn draw_faults(world: &mut World) -> Result<(), Violation> {
    world.part(|World { rng, disk, swarm, .. }| {
        if rng.percent(swarm.crashes_percent) {
            disk.crash_at(rng.between(1, swarm.calls_before_crash_max));
        }
        Ok(())
    })?;
    world.part(|World { rng, disk, swarm, .. }| {
        if rng.percent(swarm.sync_failures_percent) {
            disk.fail_sync_in(rng.between(1, 20));
        }
        Ok(())
    })
}

pub(super) struct Life<'w> {
    pub(super) world: &'w mut World,
    pub(super) directory: DataDirectory<SimDisk>,
    pub(super) logs: Vec<Log<SimDisk>>,
    pub(super) round: Vec<Dirty<SimDisk>>,
    pub(super) is_full: bool,
    syncs_failed: u64,
}

impl Parted for Life<'_> {
    fn rng(&mut self) -> &mut Rng {
        &mut self.world.rng
    }

    fn trace(&self) -> &Trace {
        &self.world.trace
    }
}

impl<'w> Life<'w> {
    fn begin(world: &'w mut World) -> Result<Life<'w>, Over> {
        let syncs_failed = world.disk.events().count("disk: sync failed");
        let opened = world.open_directory(&world.disk);
        let (directory, report) = opened.map_err(|error| excuse(world, syncs_failed, &error))?;
        world.events.add("log: write-ahead frames replayed", report.replayed_frames);
        if 0 < report.repaired_bytes {
            world.events.note("log: write-ahead frames repaired a segment");
        }
        ensure!(report.damaged_places == 0, "INV-D1", "synced write-ahead frames are unreadable");
        let mut life = Life {
            world,
            directory,
            logs: Vec::new(),
            round: Vec::new(),
            is_full: false,
            syncs_failed,
        };
        life.check_gone()?;
        for slot in 0..life.world.slots.len() {
            let log = life.recover(slot)?;
            life.logs.push(log);
        }
        life.world.leader_epoch = LeaderEpoch(life.world.leader_epoch.0 + 1);
        Ok(life)
    }

    /// What was deleted for good never comes back (INV-T4), what was acknowledged has its place.
    fn check_gone(&self) -> Result<(), Over> {
        let found = self.directory.logs_on_disk().map_err(|e| self.excuse(&e))?;
        for found in &found {
            let partition = TopicPartition { topic: found.topic, partition: found.partition };
            ensure!(!self.world.gone.contains(&partition), "INV-T4", "deleted {partition} is back");
        }
        Ok(())
    }

    fn recover(&mut self, slot: usize) -> Result<Log<SimDisk>, Over> {
        if self.world.slots[slot].is_being_deleted {
            self.delete(slot)?;
        }
        let (log, recovery) =
            self.world.open_log(&self.directory, slot).map_err(|error| self.excuse(&error))?;
        let place = &self.world.slots[slot].place;
        ensure!(recovery.damage.is_empty(), "INV-D1", "{place:?}: damage {:?}", recovery.damage);
        if recovery.cut.is_some() {
            self.world.events.note("log: tail cut in recovery");
        }
        let found = reads::read_all(&log).map_err(|unread| self.unread(unread))?;
        let World { trace, slots, events, .. } = &mut *self.world;
        trace.event("recovered", &[slot as u64, found.start.0 as u64, found.end.0 as u64]);
        let Slot { ghost, ending, .. } = &mut slots[slot];
        ghost.recovered(&found, *ending)?;
        // Of records that were lost nobody keeps a state.
        slots[slot].snapshots.retain(|at, _| *at <= found.end);
        let Slot { ghost, ending, .. } = &mut slots[slot];
        ghost.acknowledge(log.durable_offset())?;
        *ending = Ending::Closed;
        if ghost.was_truncation_undone() {
            events.note("log: truncation undone by a power loss");
        }
        Ok(log)
    }

    fn work(&mut self) -> Result<(), Over> {
        let steps = self.world.rng.between(0, self.world.swarm.steps_max);
        for _ in 0..steps {
            let ops = &self.world.swarm.ops;
            let op = self.world.rng.weighted(ops);
            let slot = self.world.rng.index(self.logs.len());
            self.part(|life| {
                life.world.trace.event(op.name(), &[slot as u64]);
                life.aim(op);
                life.step(op, slot)
            })?;
            self.world.clock.advance(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Now and then the machine stops in the middle of what is about to happen.
    fn aim(&mut self, op: Op) {
        let World { rng, disk, swarm, .. } = &mut *self.world;
        if op.is_delicate() && rng.percent(swarm.aims_percent) {
            disk.crash_at(rng.between(1, 8));
        }
    }

    /// Ends well, or is killed while nothing is going on.
    fn close_or_not(&mut self) -> Result<(), Over> {
        if self.is_full || self.world.rng.percent(50) {
            return Err(Over::Stopped);
        }
        self.close()
    }

    fn close(&mut self) -> Result<(), Over> {
        let closed = self.directory.close(self.logs.iter_mut());
        closed.map_err(|error| self.excuse(&error))?;
        for slot in &mut self.world.slots {
            let end = slot.ghost.end();
            slot.ghost.acknowledge(end)?;
        }
        self.world.end(Ending::Closed);
        Ok(())
    }

    /// One round, and everything is read once more.
    fn finish(&mut self) -> Result<(), Over> {
        for slot in 0..self.logs.len() {
            self.append(slot)?;
        }
        self.take_round();
        self.commit()?;
        for slot in 0..self.logs.len() {
            let found = reads::read_all(&self.logs[slot]).map_err(|unread| self.unread(unread))?;
            let ghost = &self.world.slots[slot].ghost;
            let end = ghost.end();
            ensure!(ghost.durable() == end, "INV-R1", "durable {}, end {end}", ghost.durable());
            ghost.clone().recovered(&found, Ending::Closed)?;
            for _ in 0..5 {
                self.check(slot, reads::check_read)?;
                self.check(slot, reads::check_timestamp)?;
            }
        }
        self.close()
    }

    pub(super) fn unread(&self, unread: Unread) -> Over {
        match unread {
            Unread::Wrong(violation) => Over::Broken(violation),
            Unread::Refused(error) => self.excuse(&error),
        }
    }

    /// A refusal by the full disk is an answer (`None`); anything else ends the life.
    pub(super) fn forgive<T>(&self, result: Result<T, LogError>) -> Result<Option<T>, Over> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.is_disk_full() && self.is_full => Ok(None),
            Err(error) => Err(self.excuse(&error)),
        }
    }

    pub(super) fn excuse(&self, error: &dyn std::fmt::Display) -> Over {
        if self.is_full && self.directory.is_failed() {
            return Over::Failed;
        }
        excuse(self.world, self.syncs_failed, error)
    }
}

/// An error needs a fault that explains it.
fn excuse(world: &World, syncs_failed: u64, error: &dyn std::fmt::Display) -> Over {
    if world.disk.has_crashed() {
        return Over::Stopped;
    }
    if syncs_failed < world.disk.events().count("disk: sync failed") {
        return Over::Failed;
    }
    Over::Broken(Violation::new("INV-X2", format!("refused without a fault: {error}")))
}
