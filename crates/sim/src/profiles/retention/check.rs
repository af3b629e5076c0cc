//! Judges every step of a log start (INV-T8): the guard holds what it can, lets go what it must, and
//! names what a group lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use towpath_driver::Cause;
use towpath_model::properties::{RetentionGuard, TopicConfig};
use towpath_model::{Offset, TopicPartition};

use super::world::{TOPIC, World};
use crate::profile::{Violation, ensure};

/// Where everything was before an upkeep.
#[derive(Debug, Clone)]
pub(super) struct Before {
    config: TopicConfig,
    is_pressed: bool,
    starts: BTreeMap<TopicPartition, Offset>,
    /// Committed offsets, by partition and group.
    readers: BTreeMap<TopicPartition, BTreeMap<Arc<str>, Offset>>,
    bytes: u64,
    /// The upkeep has returned.
    is_whole: bool,
}

impl Before {
    /// Whether records that some group has not read may go.
    fn may_lose(&self) -> bool {
        self.config.retention_guard != RetentionGuard::Hold
            || self.is_pressed
            || self.config.retention_guard_bytes_max < self.bytes
    }
}

impl World {
    fn look(&self) -> Option<Before> {
        let driver = self.machine.driver();
        let image = driver.image();
        let config = image.topic(TOPIC).map(|topic| image.effective_config(topic))?;
        drop(image);
        let mut readers: BTreeMap<TopicPartition, BTreeMap<Arc<str>, Offset>> = BTreeMap::new();
        for group in &self.groups {
            for (id, offset) in &group.committed {
                readers.entry(*id).or_default().insert(group.name.clone(), *offset);
            }
        }
        let sizes = self.ids().into_iter().filter_map(|id| driver.size_bytes(id));
        Some(Before {
            config,
            is_pressed: self.is_pressed,
            starts: self.starts.clone(),
            readers,
            bytes: sizes.sum(),
            is_whole: false,
        })
    }

    /// One upkeep, judged if the machine has survived it.
    pub(super) fn upkeep(&mut self) -> Result<(), Violation> {
        self.settle()?;
        // Retention looks once a second.
        self.machine.advance(Duration::from_secs(1));
        self.before = self.look();
        self.machine.driver().upkeep();
        if self.machine.has_stopped() {
            return Ok(());
        }
        if let Some(before) = &mut self.before {
            before.is_whole = true;
        }
        self.judge()?;
        self.check_held()
    }

    /// Compares every log start with what it was before the last upkeep; after a start too, because
    /// the upkeep may have been the last thing that happened.
    pub(super) fn judge(&mut self) -> Result<(), Violation> {
        let Some(before) = self.before.take() else { return Ok(()) };
        for id in self.ids() {
            let Ok(lines) = self.machine.driver().position(id, None) else { continue };
            let (from, to) =
                (before.starts.get(&id).copied().unwrap_or_default(), lines.log_start_offset);
            ensure!(from <= to, "INV-T7", "{id}: the log start went back from {from} to {to}");
            if from < to {
                self.judge_step(id, from, to, &before)?;
            }
            self.starts.insert(id, to);
        }
        Ok(())
    }

    /// Finds out whether an order that a crash ended has been carried out.
    pub(super) fn settle_order(&mut self) -> Result<(), Violation> {
        let Some((id, asked)) = self.order else { return Ok(()) };
        let Ok(lines) = self.machine.driver().position(id, None) else { return Ok(()) };
        self.order = None;
        let before = self.starts.get(&id).copied().unwrap_or_default();
        let start = lines.log_start_offset;
        ensure!(
            start == before || start == asked,
            "INV-T7",
            "{id}: the log start is {start}, it was {before}, and {asked} was asked for"
        );
        self.starts.insert(id, start);
        Ok(())
    }

    fn judge_step(
        &mut self,
        id: TopicPartition,
        from: Offset,
        to: Offset,
        before: &Before,
    ) -> Result<(), Violation> {
        self.events.note("retention: records expired");
        if !before.is_whole {
            self.events.note("retention: start moved in an upkeep that a crash ended");
        }
        let config = &before.config;
        let is_limited = config.retention_ms.is_some() || config.retention_bytes.is_some();
        ensure!(is_limited, "INV-T5", "{id}: the start moved to {to} without a reason");
        let nobody = BTreeMap::new();
        for (group, committed) in before.readers.get(&id).unwrap_or(&nobody) {
            if to <= *committed {
                if self.held {
                    self.events.note("guard: held until the group had read them");
                }
                continue;
            }
            ensure!(
                before.may_lose(),
                "INV-T8",
                "{id}: {group} is at {committed}, the log starts at {to}; held are up to {} of {} bytes",
                config.retention_guard_bytes_max,
                before.bytes
            );
            if before.is_whole {
                self.judge_loss(id, group, from.max(*committed), to, before)?;
            }
        }
        Ok(())
    }

    /// A loss is on the list, with its range and its reason.
    fn judge_loss(
        &mut self,
        id: TopicPartition,
        group: &str,
        from: Offset,
        to: Offset,
        before: &Before,
    ) -> Result<(), Violation> {
        let losses = self.machine.driver().losses(Some(group));
        let here = losses.iter().filter(|loss| loss.partition == id.partition);
        let named: Vec<_> = here.filter(|loss| from < loss.to && loss.from < to).collect();
        let mut reach = from;
        for loss in &named {
            if loss.from <= reach {
                reach = reach.max(loss.to);
            }
        }
        if before.config.retention_guard == RetentionGuard::Off {
            ensure!(named.is_empty(), "INV-T8", "{id}: the guard is off, and names {named:?}");
            self.events.note("guard: off, and nothing said");
            return Ok(());
        }
        ensure!(to <= reach, "INV-T8", "{id}: {group} lost {from} to {to}, named are {named:?}");
        let cause = |cause: Cause| named.iter().any(|loss| loss.cause == cause && loss.to == to);
        let expected = match (before.config.retention_guard, before.is_pressed) {
            (RetentionGuard::Hold, true) => {
                self.events.note("guard: gave way to a full disk");
                cause(Cause::DiskPressure)
            }
            (RetentionGuard::Hold, false) => {
                self.events.note("guard: let the oldest go beyond its cap");
                cause(Cause::GuardCap)
            }
            _ => {
                self.events.note("guard: loss by retention named");
                cause(Cause::RetentionTime) || cause(Cause::RetentionBytes)
            }
        };
        ensure!(
            expected,
            "INV-T8",
            "{id}: {group} lost {from} to {to} for another reason: {named:?}"
        );
        Ok(())
    }

    /// What is held is within the cap.
    fn check_held(&mut self) -> Result<(), Violation> {
        let held: u64 = self.machine.driver().guard_report().held_bytes.values().sum();
        let cap = self.look().map_or(0, |now| now.config.retention_guard_bytes_max);
        ensure!(held <= cap, "INV-T8", "{held} bytes are held, allowed are {cap}");
        self.held = 0 < held;
        if self.held {
            self.events.note("guard: held records of a group");
        }
        Ok(())
    }

    /// Somebody orders records away; what groups lose by it is named.
    pub(super) fn delete_records(&mut self) -> Result<(), Violation> {
        self.settle()?;
        let id = self.random_id();
        let driver = self.machine.driver();
        let (Some(before), Ok(lines)) = (self.look(), driver.position(id, None)) else {
            return Ok(());
        };
        let span = (lines.high_watermark - lines.log_start_offset).unsigned_abs();
        let asked = lines.log_start_offset + self.rng.below(span + 1) as i64;
        let result = driver.delete_records(id, Some(asked));
        if self.machine.has_stopped() || result.is_err() {
            self.order = Some((id, asked));
            return Ok(());
        }
        self.starts.insert(id, asked);
        let nobody = BTreeMap::new();
        for (group, committed) in before.readers.get(&id).unwrap_or(&nobody) {
            let from = lines.log_start_offset.max(*committed);
            if asked <= from || before.config.retention_guard == RetentionGuard::Off {
                continue;
            }
            let losses = driver.losses(Some(group));
            let is_named = losses.iter().any(|loss| {
                loss.partition == id.partition
                    && loss.from <= from
                    && loss.to == asked
                    && loss.cause == Cause::DeleteRecords
            });
            ensure!(
                is_named,
                "INV-T8",
                "{id}: {group} lost {from} to {asked} by an order, unnamed"
            );
            self.events.note("guard: loss by an order named");
        }
        Ok(())
    }
}
