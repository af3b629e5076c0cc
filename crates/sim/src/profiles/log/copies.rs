//! What a power loss right now would leave, seen on a copy of the disk.

use super::ghost::Ending;
use super::life::{Life, Over};
use super::reads;
use crate::profile::{Violation, ensure};

impl Life<'_> {
    /// Cuts the power of a copy of the disk and recovers it: what was acknowledged must be there
    /// (INV-R9), whatever this life does next.
    pub(super) fn cut_power_of_a_copy(&mut self) -> Result<(), Over> {
        if self.directory.is_failed() || self.world.slots.iter().any(|slot| slot.is_being_deleted) {
            return Ok(());
        }
        let copy = self.world.disk.fork(self.world.rng.draw());
        copy.set_capacity(None);
        copy.lose_power();
        copy.restart();
        if self.world.rng.percent(30) {
            // It stops once more while it recovers.
            copy.crash_at(self.world.rng.between(1, 30));
            drop(self.world.open_directory(&copy).map(|(directory, _)| {
                (0..self.logs.len()).map(|slot| drop(self.world.open_log(&directory, slot))).count()
            }));
            copy.lose_power();
            copy.restart();
        }
        let broken = |detail: String| Violation::new("INV-R9", format!("a copy: {detail}"));
        let (directory, _) = self.world.open_directory(&copy).map_err(broken)?;
        for slot in 0..self.logs.len() {
            let (log, recovery) = self.world.open_log(&directory, slot).map_err(broken)?;
            ensure!(recovery.damage.is_empty(), "INV-D1", "a copy: damage {:?}", recovery.damage);
            let found = reads::read_all(&log).map_err(|unread| self.unread(unread))?;
            self.world.slots[slot].ghost.clone().recovered(&found, Ending::PowerLost)?;
        }
        self.world.events.note("log: durable in a power loss of a copy");
        Ok(())
    }
}
