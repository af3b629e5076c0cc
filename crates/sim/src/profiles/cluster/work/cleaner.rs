//! The compaction thread of every broker: it removes records of messages that are done with, a step at a time, and dies
//! with its process between any two of them.

use std::time::Duration;

use towpath_driver::CompactionWork;
use towpath_model::BrokerId;

use crate::profile::{Violation, ensure};
use crate::profiles::cluster::world::World;

/// Steps that are done in a row.
const STEPS_MAX: u32 = 12;
/// How long it may take until nothing is left of what is done with, where all is well.
const CLEAN_MAX: Duration = Duration::from_secs(15);

impl World {
    /// Some turns of the compaction thread.
    pub(super) fn clean(&mut self, of: BrokerId) -> Result<(), Violation> {
        if !self.mix().is_only {
            return Ok(());
        }
        let runs = |world: &World| {
            let process = world.nodes[&of].process.as_ref();
            process.map_or(0, |process| process.driver.compaction_totals().runs)
        };
        let before = runs(self);
        for _ in 0..STEPS_MAX {
            let worked = self.call(of, |driver| driver.compact())?;
            if !matches!(worked, Some(CompactionWork::Worked { .. })) {
                break;
            }
        }
        let ended = runs(self).saturating_sub(before);
        self.events.add("work: segment written anew", ended);
        Ok(())
    }

    /// Where all messages are done with, no sealed segment stays.
    pub(super) fn becomes_clean(&mut self) -> Result<(), Violation> {
        let began = self.now;
        while let Some(left) = self.sealed_segments_left() {
            ensure!(self.now - began < CLEAN_MAX, "INV-T5", "all is done with, and stays: {left}");
            self.run_until(self.now + Duration::from_millis(500))?;
        }
        self.events.note("work: nothing left of what was done with");
        Ok(())
    }

    fn sealed_segments_left(&self) -> Option<String> {
        let queues = self.work.queues.iter().chain(&self.work.dead);
        queues.copied().find_map(|id| {
            let process = self.nodes[&self.leading(id)?].process.as_ref()?;
            let left = process.driver.with_replica(id, |_, log| {
                let segments = log.sealed_segments(log.log_end_offset());
                segments.first().map(|segment| segment.offsets.clone())
            });
            left.flatten().map(|offsets| format!("{id}: {offsets:?}"))
        })
    }
}
